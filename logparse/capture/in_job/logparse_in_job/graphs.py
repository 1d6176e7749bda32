"""Number the job's CUDA graphs, trace how they are captured, and note which ones are replayed while the profiler runs.

A replay launches kernels without operators. So the reader of the traces looks up the operators in the trace of the
graph's capture. A capture is traced if no other profiler is on. At most ``_MOST`` captures are traced, for at most
``_MOST_S`` seconds together. The profiler starts before the capture and ends after it, because starting it in between
would break the capture.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any, Dict, List, Optional, Tuple

from .profiler import Profile, is_busy
from .unpatched import Python

_MOST, _MOST_S, _REPLAYS = 16, 8.0, 20_000


class Graphs:
    """The CUDA graphs that the job captures and replays in this process.

    * ``process`` names this process (see ``Record``). It is a part of each graph's name in the traces.
    * ``capturing`` is the number of graphs that are being captured now.
    * ``replays`` lists the graphs that were replayed since the profiler was started.
    """

    def __init__(self, process: str, traces: bool) -> None:
        self._process = process
        self.capturing = 0
        self.replays: List[str] = []
        self._numbers = itertools.count(1)
        self._of: Dict[int, Tuple[Any, str]] = {}
        self._captures, self._seconds = 0 if traces else _MOST, 0.0
        self._profile: Optional[Profile] = None
        self._began_s = 0.0

    @property
    def is_tracing(self) -> bool:
        return self._profile is not None

    @property
    def any(self) -> bool:
        """True if the job has captured a CUDA graph or has begun to capture one."""
        return bool(self._of)

    def number(self, graph: Any) -> str:
        """Return the number that identifies a CUDA graph, as a text such as ``"3"``. A new graph gets a new number."""
        reference, number = self._of.get(id(graph), (None, ""))
        # A graph may lie at the memory address of a graph that no longer exists. Then it is a new graph, too.
        return number if number and reference is not None and reference() is graph else self.new_number(graph)

    def new_number(self, graph: Any) -> str:
        number = str(next(self._numbers))
        self._of[id(graph)] = (weakref.ref(graph), number)
        return number

    def note_replay(self, number: str) -> None:
        if len(self.replays) <= _REPLAYS:
            self.replays.append(f"{self._process}.{number}")

    def capture_begins(self, graph: Any) -> None:
        self.new_number(graph)
        if self._captures < _MOST and self._seconds < _MOST_S and self._profile is None and not is_busy():
            self._began_s = Python.monotonic()
            self._profile = Profile()
            self._profile.start()
        self.capturing += 1

    def capture_ended(self, graph: Any, path: Optional[str]) -> None:
        """Stop the profiler after a CUDA graph was captured, and write the trace to ``path``.

        After a failed capture ``path`` has no value (None), and no trace is written.
        """
        self.capturing = max(self.capturing - 1, 0)
        profile, self._profile = self._profile, None
        if profile is None:
            return
        try:
            profile.stop({"logparse_graph": f"{self._process}.{self.number(graph)}"}, path)
        finally:
            self._captures += 1
            self._seconds += Python.monotonic() - self._began_s

    def give_up(self) -> None:
        """Stop the profiler that traces the capture of a CUDA graph, if it is on. No trace is written."""
        profile, self._profile = self._profile, None
        if profile is not None:
            self._captures += 1
            profile.stop({}, None)
