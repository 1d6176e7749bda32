"""Trace fixed periods of time instead of whole steps.

This is used for a job in which no steps were found, or if the user asks for it (``--trace 2s``).

The profiler records the thread that starts it, so the main thread must start and stop it. Another thread waits for the
right time and then makes the main thread do so between two bytecodes. The waiting thread is started only once the job
uses a GPU, so a job on CPUs has no additional thread.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Callable, List

import torch

from . import ordinary
from .unpatched import Python

_WINDOWS, QUIET_S, _POLL_S, _PATIENCE_S = 3, 4.0, 0.1, 60.0
_GPUS = ("/dev/kfd", "/dev/nvidiactl", "/proc/driver/nvidia")


def has_gpu() -> bool:
    return any(map(Python.exists, _GPUS))


class ByTime:
    """Runs the profiler a few times, each time for a fixed number of ``seconds``.

    ``begin`` and ``end`` start and stop the profiler, and return False if they could not. No period begins once
    ``wanted()`` is False.
    """

    def __init__(
        self,
        seconds: float,
        asked: bool,
        wanted: Callable[[], bool],
        begin: Callable[[], bool],
        end: Callable[[], bool],
    ) -> None:
        self._seconds, self._asked, self._wanted = seconds, asked, wanted
        self._begin, self._end = begin, end
        self._kept: List[Any] = []
        self._started = False

    def start(self) -> None:
        """Start the thread that begins a trace after some time, and ends it.

        If the user asked for a trace of some seconds, the thread starts now, and otherwise when the job first uses a
        GPU.
        """
        if self._asked:
            self._start_thread()
        elif hasattr(torch.cuda, "_lazy_call"):
            torch.cuda._lazy_call(self._start_thread)

    def _start_thread(self) -> None:
        if not self._started:
            self._started = True
            threading.Thread(target=self._run, name="logparse", daemon=True).start()

    def _run(self) -> None:
        quiet_since, windows = None, 0
        waits_for_gpu = has_gpu()
        while windows < _WINDOWS and self._wanted():
            Python.sleep(_POLL_S)
            if waits_for_gpu and not ordinary.on_gpu():
                continue  # a launcher imports torch, too
            quiet_since = quiet_since or Python.monotonic()
            if Python.monotonic() - quiet_since < QUIET_S * 4**windows:
                continue
            if not self._wanted() or not self._in_main_thread(self._begin):
                return
            Python.sleep(self._seconds)
            if not self._in_main_thread(self._end):
                return
            windows, quiet_since = windows + 1, Python.monotonic()

    def _in_main_thread(self, function: Callable[[], bool]) -> bool:
        """Have the main thread call a function until it returns True. This is called in another thread.

        Returns False if the function has not returned True within a minute.
        """
        until = Python.monotonic() + _PATIENCE_S
        while Python.monotonic() < until:
            done, result = threading.Event(), [False]
            self._add_pending_call(function, result, done)
            if not done.wait(_PATIENCE_S):
                return False
            if result[0]:
                return True
            Python.sleep(_POLL_S / 2)
        return False

    def _add_pending_call(self, function: Callable[[], bool], result: List[bool], done: threading.Event) -> None:
        def call(_: Any) -> int:
            try:
                result[0] = bool(function())
            finally:
                done.set()
            return 0

        made = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(call)
        self._kept.append(made)
        ctypes.pythonapi.Py_AddPendingCall(made, None)
