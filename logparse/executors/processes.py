"""Start processes on this machine quickly, by forking a server process that has already imported what they need.

A fresh interpreter for each process would import NumPy and Arrow again, which takes half a second of a core. The server
opens no device and runs no code of logparse. So a process that is forked from it is as good as a fresh one. A library
that must not be forked once it is in use (CUDA, HIP) is first used in the process itself. The server ends with the
process that started it.

multiprocessing runs the parent's main module in each process, for functions that this module defines. This has two
costs: a user's script without ``if __name__ == "__main__"`` would start over, and a worker of Ray imports Ray, which
takes half a second of a core. So the main module is left out if it defines nothing that a process needs.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

_hiding = threading.Lock()
_CONTEXT = get_context("forkserver")


def pipe(*, duplex: bool = True) -> tuple[Connection[Any, Any], Connection[Any, Any]]:
    """Make a pipe to a process that will be started, and return its two ends.

    Pass one end to ``started``, and close it in this process afterwards.
    """
    return _CONTEXT.Pipe(duplex)


def started(target: Callable[..., None], *args: object, imports: Sequence[str] = ()) -> BaseProcess:
    """Start a Python process that calls ``target(*args)``. Return the process.

    It has this process's environment and working folder. ``imports`` names modules to import once for all such
    processes.
    """
    # All processes come from one server process, which imports these modules once for all of them.
    _CONTEXT.set_forkserver_preload([target.__module__, *imports])
    process = _CONTEXT.Process(target=_call, args=(dict(os.environ), target, args), daemon=True)
    needed = any(getattr(x, "__module__", None) == "__main__" for x in (target, *args))
    with nullcontext() if needed else _no_main():
        process.start()
    return process


@contextmanager
def _no_main() -> Iterator[None]:
    """Context that hides the main module, so that a started process does not run the user's script again."""
    with _hiding:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


def _call(environ: Mapping[str, str], target: Callable[..., None], args: tuple[object, ...]) -> None:
    os.environ.clear()  # the server has the environment of its own start
    os.environ.update(environ)
    target(*args)


def death(process: BaseProcess) -> str:
    """Return how a process ended, for example ``exited with 3`` or ``was killed by SIGSEGV``.

    Waits at most 5 s for its end.
    """
    process.join(5)
    code = process.exitcode
    if code is None or code >= 0:
        return "closed its pipe" if code is None else f"exited with {code}"
    name = {int(x): x.name for x in signal.Signals}.get(-code, f"signal {-code}")
    return f"was killed by {name}" + (" (perhaps for lack of memory)" if name == "SIGKILL" else "")


def end_with_parent() -> None:
    """Wait until the parent process has ended, and then end this process. Run this in a thread."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
