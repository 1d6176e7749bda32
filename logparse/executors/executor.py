"""Interface of executors, which run a function for many independent items in parallel.

The function and the items are pickled. The function must be safe to repeat, because a task whose process died is tried
up to ``TRIES`` times.
"""

# An ingest is safe to repeat: it stores each file in one step, and only if the file is not stored yet.

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

T = TypeVar("T")
R = TypeVar("R")
H = TypeVar("H")

TRIES = 3
Progress: TypeAlias = Callable[[str, int], None]
"""Function that reports progress. It gets a name, and how much work on it was done since the last call."""


@dataclass(frozen=True)
class Resources:
    """The needs of one task: a number of cores (``cpus``), and its amount of work (``weight``).

    The weight is for example the number of bytes to read.
    """

    cpus: int = 1
    weight: float = 0.0


class TaskError(Exception):
    """Result of a failed task. Its text is the type and text of the exception that the function raised."""


class LostError(TaskError):
    """Result of a task whose worker process or machine died in every try."""


class Executor(Protocol):
    """Interface of the classes that call a function for many items in parallel.

    One class uses processes of this machine, and one uses a Ray cluster.
    """

    @property
    def cpus(self) -> int:
        """The largest number of cores that one task may use."""

    @property
    def together(self) -> int:
        """The number of cores that all tasks at the same time can use."""

    def map_unordered(
        self,
        function: Callable[[T], R],
        items: Iterable[T],
        resources: Callable[[T], Resources],
        progress: Progress | None = None,
    ) -> Iterator[tuple[T, R | TaskError]]:
        """Call ``function(item)`` for each item in parallel. Yield each item with its result or error when it is done.

        ``progress`` gets what the function passes to ``report`` (on Ray, when the task has ended). If the caller raises
        an exception, running tasks are ended.
        """
        # A new item is taken only when a task can run it, so neither items nor results pile up. Ctrl-C is an exception
        # of the caller, too.


def run_with_retries(
    items: Iterable[T],
    room: Callable[[], int],
    start: Callable[[T], H],
    ended: Callable[[], Iterable[tuple[H, R | TaskError]]],
    running: dict[H, tuple[T, int]],
) -> Iterator[tuple[T, R | TaskError]]:
    """Run a task for each item in parallel, and yield each item with its result as soon as it is done.

    A task whose worker died is started again, up to ``TRIES`` times in all.

    * ``room`` returns how many tasks may run at a time.
    * ``start`` starts a task and returns a handle for it.
    * ``ended`` waits for tasks and yields their handles and results.
    * ``running`` holds, by handle, the item of each running task and how often the item was started.
    """
    again: deque[tuple[T, int]] = deque()
    waiting = ((item, 1) for item in items)
    while True:
        most = room()
        while len(running) < most:
            task = again.popleft() if again else next(waiting, None)
            if task is None:
                break
            running[start(task[0])] = task
        if not running:
            return
        for handle, result in ended():
            item, number = running.pop(handle)
            if isinstance(result, LostError) and number < TRIES:
                again.append((item, number + 1))
            else:
                yield item, result


_report_to: Progress | None = None


def report(name: str, count: int) -> None:
    if _report_to is not None:
        _report_to(name, count)


@contextmanager
def pass_progress_to(to: Progress | None) -> Iterator[None]:
    """Context in which progress reports of this process are passed to the function ``to``.

    Code reports its progress by calling ``report``. With ``to=None`` these calls do nothing.
    """
    global _report_to  # noqa: PLW0603 - a pickled function cannot carry a callback
    before, _report_to = _report_to, to
    try:
        yield
    finally:
        _report_to = before


def call_or_error(function: Callable[[T], R], item: T) -> R | TaskError:
    """Call the function and return its result. If it raises an exception, return a TaskError instead.

    A TaskError can be pickled, so a worker process can send it back.
    """
    try:
        return function(item)
    except Exception as error:
        return TaskError(f"{type(error).__name__}: {error}")
