"""Worker processes on this machine. Each has a pipe of its own, so that a worker that dies loses only its task."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from logparse.executors.executor import (
    TRIES,
    LostError,
    Progress,
    TaskError,
    call_or_error,
    pass_progress_to,
    run_with_retries,
)
from logparse.executors.processes import death, end_with_parent, pipe, started

T = TypeVar("T")
R = TypeVar("R")


class Pool(Generic[T, R]):
    """A pool of at most ``size`` worker processes that call ``function`` for many items."""

    def __init__(self, function: Callable[[T], R], size: int, progress: Progress | None) -> None:
        self._function, self._size, self._progress = function, size, progress
        self._busy: dict[Connection[Any, Any], _Worker] = {}
        self._idle: list[_Worker] = []

    def run(self, items: Iterable[T]) -> Iterator[tuple[T, R | TaskError]]:
        try:
            yield from run_with_retries(items, lambda: self._size, self._start, self._ended, {})
        finally:
            for worker in (*self._idle, *self._busy.values()):
                worker.end()

    def _start(self, item: T) -> Connection[Any, Any]:
        worker = self._idle.pop() if self._idle else _Worker(self._function)
        self._busy[worker.pipe] = worker
        with suppress(OSError):  # it may have died while idle; reading from it will report that
            worker.pipe.send(item)
        return worker.pipe

    def _ended(self) -> Iterator[tuple[Connection[Any, Any], R | TaskError]]:
        for ready in wait(list(self._busy)):
            worker = self._busy[ready]  # type: ignore[index]
            try:
                kind, value = worker.pipe.recv()
            except (EOFError, OSError):
                del self._busy[worker.pipe]
                how = death(worker.process)
                worker.end()
                yield worker.pipe, LostError(f"its worker {how}, {TRIES} times")
                continue
            if kind == "done":
                del self._busy[worker.pipe]
                self._idle.append(worker)
                yield worker.pipe, value
            elif self._progress:
                self._progress(*value)


class _Worker:
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.pipe, theirs = pipe()
        self.process = started(_serve, function, theirs, imports=[type(function).__module__])
        theirs.close()

    def end(self) -> None:
        """Kill the process at once. This is safe, because no half-written data of the process become visible."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(function: Callable[[Any], Any], pipe: Connection[Any, Any]) -> None:
    """The work of a worker process: receive items through the pipe, call the function, and send the results back.

    The process ends when the pipe is closed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=end_with_parent, daemon=True).start()
    with pass_progress_to(lambda name, count: pipe.send(("report", (name, count)))):
        while True:
            try:
                item = pipe.recv()
            except EOFError:
                return
            pipe.send(("done", call_or_error(function, item)))
