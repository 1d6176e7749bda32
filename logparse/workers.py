"""Worker processes for many files: each file is a task, a worker that dies takes only its own file with it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import suppress
from multiprocessing import get_context, parent_process
from multiprocessing.queues import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_POLL_SECONDS = 0.2
_reports: SimpleQueue[Any] | None = None  # of this process, when it is a worker


def report(name: str, count: int) -> None:
    """Tell the parent of progress."""
    if _reports is not None:
        _reports.put((name, count))


def each(
    do: Callable[[T], R], tasks: Sequence[T], jobs: int, progress: Callable[[str, int], None] | None
) -> Iterator[tuple[T, R | Exception]]:
    """``do(task)`` for each task in ``jobs`` processes: tasks with their results, or with what stopped them.

    ``progress`` gets what workers ``report``.  An exception here (Ctrl-C is one) ends the workers at once.
    """
    context = get_context("spawn")
    reports: SimpleQueue[Any] = context.SimpleQueue()
    workers: set[int] = set()

    def drain() -> None:
        while not reports.empty():
            name, count = reports.get()
            if name is None:
                workers.add(count)
            elif progress:
                progress(name, count)

    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(reports,)) as pool:
        pending = {pool.submit(do, task): task for task in tasks}
        try:
            while pending:
                done, _ = wait(pending, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
                drain()
                for future in done:
                    error = future.exception()
                    if error is not None and not isinstance(error, Exception):
                        raise error
                    yield pending.pop(future), future.result() if error is None else error
            drain()
        except BaseException:
            drain()
            pool.shutdown(wait=False, cancel_futures=True)
            for pid in workers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            raise


def _begin(reports: SimpleQueue[Any]) -> None:
    global _reports  # noqa: PLW0603 - a worker is told once where to report
    _reports = reports
    reports.put((None, os.getpid()))
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
