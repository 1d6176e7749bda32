"""Take the time on the GPU or on the host, and measure the time between two such moments.

A moment is an event on the GPU if the job uses a GPU, and otherwise a time of the host.
"""

from __future__ import annotations

import collections
import ctypes
from typing import Any, Deque, Optional, Tuple

import torch

from . import ordinary
from .units import Kind, Series
from .unpatched import Python

_PENDING = 256
"""Largest number of steps whose GPU times have not been read yet. If there are more, the host waits for the oldest one.
"""


class _OnGpu:
    """A moment on the GPU: an event of PyTorch.

    A process that the job has forked never deletes an event of its parent. Such a process cannot use the GPU, and CUDA
    ends a process that deletes an event without it.
    """

    # Weak references to the events themselves would find them, too, but made jobs with PyTorch 2.11 crash at their end.
    __slots__ = ("event", "process")

    def __init__(self, event: Any) -> None:
        self.event, self.process = event, Python.getpid()

    # The functions are arguments, because the module may be gone already when the process ends.
    def __del__(
        self, getpid: Any = Python.getpid, keep: Any = ctypes.pythonapi.Py_IncRef, of: Any = ctypes.py_object
    ) -> None:
        if getpid() != self.process:
            keep(of(self.event))


def now() -> Any:
    """Return the present moment, for ``us_between``. Returns None while a CUDA graph is captured.

    If a GPU is used, the moment is an event on the current stream. Otherwise it is the host's time in seconds (float).
    """
    if not ordinary.on_gpu():
        return Python.perf_counter()
    if ordinary.is_capturing():
        return None
    event = torch.cuda.Event(enable_timing=True)
    # The host does not wait for the event.
    event.record()
    return _OnGpu(event)


def has_passed(moment: Any) -> bool:
    return isinstance(moment, float) or bool(moment.event.query())


def us_between(start: Any, end: Any) -> Optional[float]:
    """Return the microseconds between two moments that ``now`` has returned. The GPU must already have reached both.

    Returns None if the moments come from the GPU and the host, or from two GPUs.
    """
    if isinstance(start, float) or isinstance(end, float):
        return 1e6 * (end - start) if type(start) is type(end) else None
    try:
        return 1e3 * float(start.event.elapsed_time(end.event))
    except RuntimeError:  # the events belong to two devices
        return None


class Timer:
    """Reads how long the job's steps (such as training steps) took on the GPU, once the GPU has finished them.

    ``pending`` holds the steps that were begun and ended, but whose time has not been read yet.
    """

    def __init__(self) -> None:
        self.pending: Deque[Tuple[Series, Kind, Any, Any]] = collections.deque()

    def add(self, series: Series, kind: Kind, start: Any, end: Any) -> None:
        if start is not None and end is not None:
            self.pending.append((series, kind, start, end))

    def read(self, wait: bool = False) -> None:
        """Read how long the finished steps took on the GPU.

        If ``wait`` is True, first wait until all steps are finished. Nothing is read while a CUDA graph is captured.
        """
        if not self.pending or ordinary.is_capturing():
            return
        while self.pending and (wait or len(self.pending) > _PENDING or has_passed(self.pending[0][3])):
            series, kind, start, end = self.pending.popleft()
            if not has_passed(end):
                end.event.synchronize()
            us = us_between(start, end)
            if us is not None:
                series.add_time(kind, us)
