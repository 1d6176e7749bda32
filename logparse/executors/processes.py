"""Processes of this machine, forked from a server that has imported what they need.

A fresh interpreter for each would import NumPy and Arrow anew, half a second of a core.  The server opens no device and
runs no code of logparse, so that a process forked from it is as good as fresh, and a library that must not be forked
once it is in use (CUDA, HIP) is first used in the process itself.  It ends with the process that started it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import get_all_start_methods, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any


def _context() -> ForkServerContext | SpawnContext:
    return get_context("forkserver") if "forkserver" in get_all_start_methods() else get_context("spawn")


def pipe(*, duplex: bool = True) -> tuple[Connection[Any, Any], Connection[Any, Any]]:
    """Two ends of a pipe, one of which is an argument of ``started`` and closed here after it."""
    return _context().Pipe(duplex)


def started(target: Callable[..., None], *args: object, imports: Sequence[str] = ()) -> BaseProcess:
    """A running process that calls ``target(*args)`` in this process's environment and working folder.

    ``imports``: modules beside the target's own that the server imports when the first process starts it.
    """
    context = _context()
    context.set_forkserver_preload([target.__module__, *imports])
    process = context.Process(target=_call, args=(dict(os.environ), target, args), daemon=True)
    process.start()
    return process


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
