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
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from multiprocessing import get_all_start_methods, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

from logparse.executors import import_numpy

_hiding = threading.Lock()


def _context() -> ForkServerContext | SpawnContext:
    return get_context("forkserver") if "forkserver" in get_all_start_methods() else get_context("spawn")


def pipe(*, duplex: bool = True) -> tuple[Connection[Any, Any], Connection[Any, Any]]:
    """Two ends of a pipe, one of which is an argument of ``started`` and closed here after it."""
    return _context().Pipe(duplex)


def prepare(*imports: str) -> None:
    """Fork a process that imports these modules while this one does something else; the next ``asked`` takes it.

    It needs no server, whose interpreter would have to start first.  Only a process that has no thread and no library
    loaded yet can be forked safely: of any other none is made, and ``asked`` starts one as always.
    """
    if sys.platform == "linux" and threading.active_count() == 1 and "numpy" not in sys.modules:
        context = get_context("fork")
        here, there = context.Pipe()
        process = context.Process(target=_prepared, args=(here, there, imports), daemon=True)
        process.start()
        there.close()
        _ready.append((process, here))
    import_numpy()  # with threads, so not before


_ready: list[tuple[BaseProcess, Connection[Any, Any]]] = []
"""Processes of ``prepare``, each with this end of its pipe."""


def _prepared(here: Connection[Any, Any], there: Connection[Any, Any], imports: Sequence[str]) -> None:
    here.close()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends both processes; only the other one prints it
    import_numpy()
    for name in imports:
        import_module(name)
    with suppress(EOFError):  # nothing was asked: the other process ended before
        target, args = there.recv()
        target(there, *args)


def asked(
    target: Callable[..., None], *args: object, imports: Sequence[str] = ()
) -> tuple[BaseProcess, Connection[Any, Any]]:
    """A running process that calls ``target(connection, *args)``, and the other end of that connection: one that
    ``prepare`` has made, else a new one, as ``started`` makes it.
    """
    if _ready:
        process, here = _ready.pop()
        with suppress(BrokenPipeError):  # it was killed: who receives from it sees that
            here.send((target, args))
        return process, here
    receiver, sender = pipe(duplex=False)
    process = started(target, sender, *args, imports=imports)
    sender.close()
    return process, receiver


def started(target: Callable[..., None], *args: object, imports: Sequence[str] = ()) -> BaseProcess:
    """A running process that calls ``target(*args)`` in this process's environment and working folder.

    ``imports``: modules beside the target's own that the server imports when the first process starts it.
    """
    context = _context()
    context.set_forkserver_preload([target.__module__, *imports])
    process = context.Process(target=_call, args=(dict(os.environ), target, args), daemon=True)
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


def end_with_parent() -> None:
    """A thread's loop that ends this process when its parent has ended."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
