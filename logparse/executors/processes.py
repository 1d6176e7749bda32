"""Processes of this machine, forked from a server that has imported what they need.

A fresh interpreter for each would import NumPy and Arrow anew, half a second of a core.  The server opens no device and
runs no code of logparse, so that a process forked from it is as good as fresh, and a library that must not be forked
once it is in use (CUDA, HIP) is first used in the process itself.  It ends with the process that started it.

multiprocessing runs the parent's main module in each process, for functions that it defines: a user's script without
``if __name__ == "__main__"`` would start over, and a worker of Ray imports Ray, half a second of a core.  Where nothing
that a process needs is defined there, it is left out.
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
    """Two ends of a pipe, one of which is an argument of ``started`` and closed here after it."""
    return _CONTEXT.Pipe(duplex)


def started(target: Callable[..., None], *args: object, imports: Sequence[str] = ()) -> BaseProcess:
    """A running process that calls ``target(*args)`` in this process's environment and working folder.

    ``imports``: modules beside the target's own that the server imports when the first process starts it.
    """
    _CONTEXT.set_forkserver_preload([target.__module__, *imports])
    process = _CONTEXT.Process(target=_call, args=(dict(os.environ), target, args), daemon=True)
    needed = any(getattr(x, "__module__", None) == "__main__" for x in (target, *args))
    with nullcontext() if needed else _no_main():
        process.start()
    return process


@contextmanager
def _no_main() -> Iterator[None]:
    """The main module has neither a name nor a file, by which a process that is started meanwhile would run it."""
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
    """How a process ended, after 5 s at most: ``exited with 3``, ``was killed by SIGSEGV``."""
    process.join(5)
    code = process.exitcode
    if code is None or code >= 0:
        return "closed its pipe" if code is None else f"exited with {code}"
    name = {int(x): x.name for x in signal.Signals}.get(-code, f"signal {-code}")
    return f"was killed by {name}" + (" (perhaps for lack of memory)" if name == "SIGKILL" else "")


def end_with_parent() -> None:
    """A thread's loop that ends this process when its parent has ended."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
