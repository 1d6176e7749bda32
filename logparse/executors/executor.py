"""Interface of executors, which run a function over items.  Each item is independent of the others.

The function and the items are pickled.  A task whose worker or node died is tried again, up to ``TRIES`` times in all.
So the function must be safe to repeat.  An ingest is safe: the commit of a source is one put-if-absent.
"""

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
"""Function that gets a name, and the amount of work on it that was done since the last call."""


@dataclass(frozen=True)
class Resources:
    """Needs of one task.  ``weight`` is its amount of work (bytes to read), relative to the weights of other tasks."""

    cpus: int = 1
    weight: float = 0.0


class TaskError(Exception):
    """Result of a failed task: the type and text of the exception that the function raised."""


class LostError(TaskError):
    """Result of a task whose worker or node died in every try."""


class Executor(Protocol):
    """Runner of tasks."""

    @property
    def cpus(self) -> int:
        """The maximum number of cores of one task."""

    @property
    def together(self) -> int:
        """The number of cores of all tasks that run at the same time."""

    def map_unordered(
        self,
        function: Callable[[T], R],
        items: Iterable[T],
        resources: Callable[[T], Resources],
        progress: Progress | None = None,
    ) -> Iterator[tuple[T, R | TaskError]]:
        """Run ``function(item)`` for each item.  Yield each item with its result or error as soon as it ends.

        An item is taken only when there is room to run it, so neither items nor results pile up.  ``progress`` gets
        what the function passes to ``report``.  On Ray it gets this when the task has ended.  An exception in the
        caller (also Ctrl-C) ends the running tasks.
        """


def tried(
    items: Iterable[T],
    room: Callable[[], int],
    start: Callable[[T], H],
    ended: Callable[[], Iterable[tuple[H, R | TaskError]]],
    running: dict[H, tuple[T, int]],
) -> Iterator[tuple[T, R | TaskError]]:
    """Run items, and yield each item with its result as soon as it ends.

    At most ``room()`` items run at a time.  A lost item is started ``TRIES`` times.  ``start`` begins an item and
    returns its handle.  ``ended`` waits for results.  ``running`` holds, by handle, each running item and the number of
    its try.
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
def reporting(to: Progress | None) -> Iterator[None]:
    """Send this process's ``report`` calls to ``to`` for the duration of the context."""
    global _report_to  # noqa: PLW0603 - a pickled function cannot carry a callback
    before, _report_to = _report_to, to
    try:
        yield
    finally:
        _report_to = before


def attempted(function: Callable[[T], R], item: T) -> R | TaskError:
    """Call the function.  Return its result, or its exception in a form that every process can read."""
    try:
        return function(item)
    except Exception as error:
        return TaskError(f"{type(error).__name__}: {error}")
