"""Moments of a job, on the GPU where it computes, else on the host; and the time between two of them."""

from __future__ import annotations

import collections
import time
from typing import Any, Deque, Optional, Tuple

import torch

from . import ordinary
from .units import Kind, Series

_PENDING = 256
"""Units whose events are still to be read, before the oldest one is waited for."""


def now() -> Any:
    """An event on the current stream, or seconds of the host (float) if no GPU is used; None while a graph is captured.

    The host does not wait for the event.
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
    """Microseconds between two moments that have passed; None for two clocks or two devices."""
    if isinstance(start, float) or isinstance(end, float):
        return 1e6 * (end - start) if type(start) is type(end) else None
    try:
        return 1e3 * float(start.elapsed_time(end))
    except RuntimeError:  # events of two devices
        return None


class Timer:
    """Reads the time of units once the GPU has done them, and adds it to their series."""

    def __init__(self) -> None:
        self._pending: Deque[Tuple[Series, Kind, Any, Any]] = collections.deque()

    def add(self, series: Series, kind: Kind, start: Any, end: Any) -> None:
        if start is not None and end is not None:
            self._pending.append((series, kind, start, end))

    def read(self, wait: bool = False) -> None:
        """Read the times that are there; all of them with ``wait``.  Nothing is asked while a graph is captured."""
        if not self._pending or ordinary.is_capturing():
            return
        while self._pending and (wait or len(self._pending) > _PENDING or passed(self._pending[0][3])):
            series, kind, start, end = self._pending.popleft()
            if not passed(end):
                end.synchronize()
            us = us_between(start, end)
            if us is not None:
                series.add_time(kind, us)
