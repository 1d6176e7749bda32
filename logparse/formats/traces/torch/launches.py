"""The operator of a kernel that bears no ``External id``: by the time and thread of its launch.

The kernel's ``correlation`` names the runtime call (``cudaLaunchKernel``, ``hipLaunchKernel`` …) that launched it; the
operator is the innermost one that was open on that thread then; of a graph launch see ``graphs``.  Costs a second
reading of the trace.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np

from logparse.formats.format import Source
from logparse.formats.traces.marker_ranges import innermost
from logparse.formats.traces.torch.event_cutter import is_kernel, is_operator
from logparse.formats.traces.torch.graphs import GRAPHS, LAUNCH, RUNTIME, KindOf, events_of, join, thread_of
from logparse.formats.traces.torch.records import Columns, Floats, Ints
from logparse.model import Fact


class _Times:
    def __init__(self) -> None:
        self.op_start, self.op_end, self.op_thread = array("d"), array("d"), array("q")
        self.kernel = array("q")
        self.launches: dict[int, tuple[float, int]] = {}
        self.graphs: set[int] = set()
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
        elif event.get("cat") in RUNTIME and type(correlation) is int and isinstance(event.get("ts"), (int, float)):
            self.launches[correlation] = (event["ts"], self._thread(event))
            if LAUNCH.match(str(event.get("name"))):
                self.graphs.add(correlation)

    def marked(self, marks: object) -> dict[int, str]:
        """The mark of each launch of a graph, by its correlation; none where there are not as many marks."""
        if not isinstance(marks, list) or len(marks) != len(self.graphs):
            return {}
        return dict(zip(sorted(self.graphs, key=lambda x: self.launches[x]), map(str, marks), strict=True))

    def _thread(self, event: Mapping[str, Any]) -> int:
        return self._threads.setdefault(thread_of(event), len(self._threads))


def operators_by_time(
    source: Source, columns: Columns, kind_of: KindOf, header: Mapping[str, Any]
) -> tuple[Ints, list[Fact]]:
    """For each kernel of ``columns`` the index of its operator, or -1; and what became of graph replays."""
    times = _Times()
    for event in events_of(source):
        times.add(event)
    found = np.full(len(columns.kernel_id), -1, dtype=np.int64)
    if len(times.kernel) != len(found) or len(times.op_start) != len(columns.op_id):
        return found, []  # the file changed between the two readings
    asked = [i for i, correlation in enumerate(times.kernel) if correlation in times.launches]
    launched = [times.launches[times.kernel[i]] for i in asked]
    moments: Floats = np.array([start for start, _ in launched], dtype=np.float64)
    threads: Ints = np.array([thread for _, thread in launched], dtype=np.int64)
    starts, ends = np.array(times.op_start), np.array(times.op_end)
    found[asked] = innermost(starts, ends, np.array(times.op_thread), moments, threads)
    columns.launched = np.zeros(len(found), dtype=bool)
    columns.launched[asked] = True
    graph_of = [correlation if correlation in times.graphs else -1 for correlation in times.kernel]
    return found, join(source, columns, graph_of, times.marked(header.get(GRAPHS)), found, kind_of)
