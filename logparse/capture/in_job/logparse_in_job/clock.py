"""Moments of a job, and the time between two moments.

If the job computes on a GPU, moments are events on the GPU.  Otherwise they are times of the host.
"""

from __future__ import annotations

import collections
import time
from typing import Any, Deque, Optional, Tuple

import torch

from . import ordinary
from .units import Kind, Series

_PENDING = 256
"""Largest number of units whose events are not read yet.  If there are more, the host waits for the oldest event."""


def now() -> Any:
    """Return the present moment: an event on the current stream, or seconds of the host (float) if no GPU is used.

    Return None while a graph is captured.  The host does not wait until the event has happened.
    """
    if not ordinary.on_gpu():
        return time.perf_counter()
    if ordinary.is_capturing():
        return None
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def passed(moment: Any) -> bool:
    return isinstance(moment, float) or bool(moment.query())


def us_between(start: Any, end: Any) -> Optional[float]:
    """Return the microseconds between two moments that have passed.

    Return None if the moments are of two clocks or two devices.
    """
    if isinstance(start, float) or isinstance(end, float):
        return 1e6 * (end - start) if type(start) is type(end) else None
    try:
        return 1e3 * float(start.elapsed_time(end))
    except RuntimeError:  # the events belong to two devices
        return None


class Timer:
    """Reader of the time of units.

    The timer reads a unit's time once the GPU has done the unit, and adds the time to the unit's series.  ``pending``
    are the units whose time is not read yet.
    """

    def __init__(self) -> None:
        self.pending: Deque[Tuple[Series, Kind, Any, Any]] = collections.deque()

    def add(self, series: Series, kind: Kind, start: Any, end: Any) -> None:
        if start is not None and end is not None:
            self.pending.append((series, kind, start, end))

    def read(self, wait: bool = False) -> None:
        """Read the times that are available.  If ``wait`` is True, wait for all times and read them.

        Nothing is read while a graph is captured.
        """
        if not self.pending or ordinary.is_capturing():
            return
        while self.pending and (wait or len(self.pending) > _PENDING or passed(self.pending[0][3])):
            series, kind, start, end = self.pending.popleft()
            if not passed(end):
                end.synchronize()
            us = us_between(start, end)
            if us is not None:
                series.add_time(kind, us)
