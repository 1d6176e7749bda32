"""The operator of a kernel that bears no ``External id``: by the time and thread of its launch.

The kernel's ``correlation`` names the runtime call (``cudaLaunchKernel``, ``hipLaunchKernel`` …) that launched it; the
operator is the innermost one that was open on that thread then.  Costs a second reading of the trace.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np

from logparse.formats.format import Source
from logparse.formats.traces.marker_ranges import innermost
from logparse.formats.traces.torch.event_cutter import TraceEvents, is_kernel, is_operator, parse
from logparse.formats.traces.torch.records import Columns, Floats, Ints

_RUNTIME = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "runtime"})


class _Times:
    def __init__(self) -> None:
        self.op_start, self.op_end, self.op_thread = array("d"), array("d"), array("q")
        self.kernel = array("q")
        self.launches: dict[int, tuple[float, int]] = {}
        self._threads: dict[tuple[object, object], int] = {}

    def add(self, event: Mapping[str, Any]) -> None:
        args = event.get("args")
        correlation = args.get("correlation") if isinstance(args, dict) else None
        if is_operator(event):
            start, duration = event.get("ts"), event.get("dur")
            if not isinstance(start, (int, float)) or not isinstance(duration, (int, float)):
                start, duration = -1.0, -1.0  # an operator without a time holds no moment
            self.op_start.append(start)
            self.op_end.append(start + duration)
            self.op_thread.append(self._thread(event))
        elif is_kernel(event):
            self.kernel.append(correlation if type(correlation) is int else -1)
        elif event.get("cat") in _RUNTIME and type(correlation) is int and isinstance(event.get("ts"), (int, float)):
            self.launches[correlation] = (event["ts"], self._thread(event))

    def _thread(self, event: Mapping[str, Any]) -> int:
        key = (str(event.get("pid")), str(event.get("tid")))
        return self._threads.setdefault(key, len(self._threads))


def operators_by_time(source: Source, columns: Columns) -> Ints:
    """For each kernel of ``columns`` the index of its operator, or -1."""
    times = _Times()
    with source.open() as stream:
        for batch in TraceEvents(stream).batches():
            i = 0
            while i < len(batch.bodies):
                event, taken, _ = parse(batch, i)
                if event is not None:
                    times.add(event)
                i += taken
    found = np.full(len(columns.kernel_id), -1, dtype=np.int64)
    if len(times.kernel) != len(found) or len(times.op_start) != len(columns.op_id):
        return found  # the file changed between the two readings
    asked = [i for i, correlation in enumerate(times.kernel) if correlation in times.launches]
    launched = [times.launches[times.kernel[i]] for i in asked]
    moments: Floats = np.array([start for start, _ in launched], dtype=np.float64)
    threads: Ints = np.array([thread for _, thread in launched], dtype=np.int64)
    starts, ends = np.array(times.op_start), np.array(times.op_end)
    found[asked] = innermost(starts, ends, np.array(times.op_thread), moments, threads)
    return found
