"""Run PyTorch's profiler for a part of the job and write the trace, without a line in the job's output.

If the job uses a profiler itself, that profiler has priority.
"""

from __future__ import annotations

import contextlib
import ctypes
import gzip
import os
import shutil
import threading
from typing import Any, Callable, Dict, Iterator, Optional

import torch
from torch.autograd import profiler as autograd_profiler

from . import ordinary
from .importlib_bootstrap_frames import around
from .ranges import OpenRanges
from .unpatched import Python

_SILENT = 99
_PREPARES_S = 0.005
"""Kineto prepares the detaching of CUPTI in a thread of its own, s. CUPTI is detached when the next CUDA call ends."""
_OTHER_THREAD = b"External init callback must run in same thread as registerClient"


class Profile:
    """Starts PyTorch's profiler for some steps of the job, stops it and writes the trace.

    The profiler records the thread that starts it, and all work on the GPU. If ``detaches`` is True, the profiler is
    detached from the process when it stops. It must be False if another profile begins at once, because that profile
    would record no kernels.
    """

    def __init__(self) -> None:
        self._ranges = OpenRanges()
        self._profile: Any = None
        self._step: Any = None
        self._prepared = False
        self.is_on = False
        self.detaches = True

    def prepare(self) -> None:
        """Warm up the profiler, so that ``start`` takes little time.

        What the profiler records before ``start`` is thrown away. Raises OSError if this process can open no file.
        """
        if self._prepared:
            return
        _check_that_files_open()
        device = "cuda" if ordinary.on_gpu() and torch.cuda.is_available() else None
        self._profile = autograd_profiler.profile(
            use_kineto=True, use_device=device, record_shapes=True, experimental_config=_with_waits()
        )
        with _ours(), _quiet(), _without_line_of_other_thread():
            self._profile._prepare_trace()
            self._prepared = True

    def start(self) -> None:
        self.prepare()
        with _ours(), _quiet():
            self._profile._start_trace()
        self.is_on = True
        _add_metadata(_of_ranks())

    def step(self, number: int) -> None:
        """Write a mark into the trace: one step of the job has ended, and step ``number`` begins.

        A ``number`` of 0 means that no further step follows.
        """
        with torch._C.DisableTorchFunction():  # Otherwise a mode of the job would see that the range begins and ends
            ending, self._step = self._step, None
            if ending is not None:
                ending.__exit__(None, None, None)
            if number:
                beginning = autograd_profiler.record_function(f"ProfilerStep#{number}")
                beginning.__enter__()
                self._step = beginning  # Set only now, because an interrupt may have come before

    def stop(self, header: Dict[str, Any], path: Optional[str]) -> None:
        """Stop the profiler and write the trace to ``path``. Without a path (None), throw the trace away.

        ``header`` holds facts that are added to the trace file.
        """
        if not self._prepared:
            return
        if not self.is_on:  # The profiler was only prepared, and PyTorch can end only a started profiler
            self.start()
        self.step(0)
        try:
            self._ranges.end()
        finally:
            self._end(header, path)

    def _end(self, header: Dict[str, Any], path: Optional[str]) -> None:
        detaches = False
        try:
            try:
                if path is not None:
                    _add_metadata(header)
                if ordinary.on_gpu() and not ordinary.is_capturing():
                    torch.cuda.synchronize()
            finally:  # A profiler that is still on when Python exits would crash the process
                self.is_on = self._prepared = False
                with _quiet():
                    with _detached() if self.detaches else contextlib.nullcontext(False) as detaches:
                        results = torch.autograd._disable_profiler()
                    getattr(autograd_profiler, "_run_on_profiler_stop", int)()
            if path is not None:
                with _quiet():
                    _save(results, path)
            elif detaches:
                Python.sleep(_PREPARES_S)
        finally:
            if detaches:
                torch._C._cuda_getDevice()


@contextlib.contextmanager
def _detached() -> Iterator[bool]:
    """Context in which the profiler, when it stops, detaches NVIDIA's CUPTI library from the process.

    While CUPTI is attached, each kernel launch takes the host up to twice as long: 6.2 µs become 11.8 µs on an H100.
    The profiler's library (Kineto) reads the environment variable ``TEARDOWN_CUPTI``. If the job has set it, the job's
    value is kept. PyTorch itself allows detaching in jobs with CUDA graphs from CUDA 12.6 on
    (torch/profiler/profiler.py). The context's value is True if CUPTI is being detached.
    """
    if "TEARDOWN_CUPTI" in os.environ or not _detaches():
        yield False
        return
    os.putenv("TEARDOWN_CUPTI", "1")
    try:
        yield True
    finally:
        os.unsetenv("TEARDOWN_CUPTI")


def _check_that_files_open() -> None:
    """Raise OSError if this process cannot read its own name, because it has no ``/proc`` or too many open files.

    The profiler's library (Kineto) would print a line about it on the job's standard error.
    """
    Python.open("/proc/self/comm", "rb").close()


def _detaches() -> bool:
    version = (torch.version.cuda or "0.0").split(".")
    return ordinary.on_gpu() and tuple(map(int, version[:2])) >= (12, 6)


def is_busy() -> bool:
    """Return True if the job's own profiler is on, in any thread."""
    on = torch.autograd._profiler_enabled() or getattr(autograd_profiler, "_is_profiler_enabled", False)
    return bool(on or _State.executions_recorded)


class _State:
    ours = 0
    used = False
    loaded_in = threading.get_ident()
    kineto_level: Any = None
    library: Any = None
    executions_recorded = False


def _is_ours() -> bool:
    return _State.ours > 0


@contextlib.contextmanager
def _ours() -> Iterator[None]:
    _State.ours += 1
    try:
        yield
    finally:
        _State.ours -= 1


def when_job_profiles(begins: Callable[[], None]) -> None:
    """Arrange that the function ``begins`` is called before the job uses a profiler of its own.

    Other tools of ``torch.autograd.profiler``, and execution traces, are also profilers in this sense. The call comes
    before the job prepares or starts one.
    """

    def begin(args: Any, kwargs: Any) -> None:
        begins()

    for name in ("_prepare_profiler", "_enable_profiler"):
        function = getattr(autograd_profiler, name, None)
        if function is not None:
            setattr(autograd_profiler, name, around(function, _is_ours, begin, lambda token, whole: None))
    _watch_execution_traces(begins)


def _watch_execution_traces(begins: Callable[[], None]) -> None:
    """Arrange that ``begins`` is called before the job starts an ``ExecutionTraceObserver`` of its own.

    This observer (of ``torch.profiler``) records every range of ``record_function``. So it would also record the ranges
    with which logparse marks steps.
    """

    def begin(args: Any, kwargs: Any) -> None:
        begins()

    def set_on(on: bool) -> Callable[[Any, bool], None]:
        def end(token: Any, whole: bool) -> None:
            _State.executions_recorded = on

        return end

    module = torch.profiler.profiler
    names = {"_enable_execution_trace_observer": True, "_disable_execution_trace_observer": False}
    for name, on in names.items():
        function = getattr(module, name, None)
        if function is not None:
            setattr(module, name, around(function, _is_ours, begin, set_on(on)))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Context in which the profiler's own messages do not appear on the job's standard error."""
    level = _kineto_level()
    before = level.value
    level.value = _SILENT
    try:
        yield
    finally:
        if level.value == _SILENT:  # the library sets it anew when it is first used
            level.value = before


@contextlib.contextmanager
def _without_line_of_other_thread() -> Iterator[None]:
    """Context that hides a harmless warning of the profiler's library (Kineto) on standard error.

    Other text that is written to standard error meanwhile is passed on.
    """
    # The library prints the warning when it is first used in another thread than the one that loaded it. The log level
    # does not suppress it.
    if _State.used or threading.get_ident() == _State.loaded_in or not hasattr(os, "memfd_create"):
        _State.used = True
        yield
        return
    _State.used = True
    try:
        own = os.dup(2)
    except OSError:  # standard error is closed
        yield
        return
    held = os.memfd_create("stderr")
    os.dup2(held, 2)
    try:
        yield
    finally:
        os.dup2(own, 2)
        os.lseek(held, 0, os.SEEK_SET)
        written = b"".join(iter(lambda: os.read(held, 1 << 16), b""))
        os.close(held)
        os.close(own)
        kept = [line for line in written.splitlines(keepends=True) if _OTHER_THREAD not in line]
        if kept:
            os.write(2, b"".join(kept))


def _kineto_level() -> Any:
    """Return the variable that says which messages the profiler's library (Kineto) prints.

    A new value takes effect at once. If the library does not export the variable, setting the result has no effect.
    """
    if _State.kineto_level is None:
        _State.kineto_level = ctypes.c_int(0)
        with contextlib.suppress(OSError, ValueError):
            path = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")
            _State.library = ctypes.CDLL(path)  # Kept, because the collector would otherwise find it when it is dropped
            # This variable lies in the library's own memory.
            _State.kineto_level = ctypes.c_int.in_dll(_State.library, "_ZN9libkineto6Logger14severityLevel_E")
    return _State.kineto_level


def _with_waits() -> Any:
    """Return profiler settings with which a CUDA trace also shows for which event a stream waited.

    Returns None if PyTorch lacks these settings (before 2.1).
    """
    try:
        return torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
    except (AttributeError, TypeError):
        return None


def _of_ranks() -> Dict[str, Any]:
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return {}
    known = {"rank": distributed.get_rank(), "world_size": distributed.get_world_size()}
    return {"distributedInfo": {"backend": str(distributed.get_backend()), **known}}


def _add_metadata(header: Dict[str, Any]) -> None:
    for key, value in header.items():
        torch.autograd._add_metadata_json(key, Python.dumps(value))


def _save(results: Any, path: str) -> None:
    """Write the trace to ``path``, compressed with gzip.

    Raises OSError if the file is incomplete (for example because the disk is full), or if the folder no longer exists.
    """
    part = path + ".part"
    with Python.open(part, "wb"):  # Kineto would write a line about a folder that is gone
        pass
    try:
        results.save(part)
        with Python.open(part, "rb") as file:
            file.seek(-min(64, os.path.getsize(part)), os.SEEK_END)
            if not file.read().rstrip().endswith(b"}"):
                raise OSError(f"{path}: the trace was cut off (is the disk full?)")
            file.seek(0)
            # Without ``mtime`` the compressed file would ask the job's clock.
            with Python.open(part + ".gz", "wb") as out, gzip.GzipFile("", "wb", 3, out, mtime=0) as packed:
                shutil.copyfileobj(file, packed)
        Python.replace(part + ".gz", path)
    finally:
        for left in (part, part + ".tmp", part + ".gz"):  # Kineto leaves ``.tmp`` if it cannot write all
            with contextlib.suppress(OSError):
                Python.remove(left)
