"""Decide in which order and by how many threads the input files are read.

This module opens no file and starts no process. Usually a task reads one file. If there are very many small files, a
task reads several of them (see ``store.joint``). If the worker process of such a task dies, each of its files is read
by a task of its own, because one of them may kill every process that reads it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from logparse.executors.executor import Resources, TaskError
from logparse.ingest.process_of_file import UNKNOWN, Process
from logparse.libraries.kinds.format import UNITS, Unit
from logparse.store.schema import Commit
from logparse.text import make_printable

SMALL_BYTES, MANY = 256 << 10, 512
"""Largest size of a small file in bytes, and the number of small files from which on they are read together.

A task then reads several of them, and their rows are merged at the end.
"""
_TOGETHER, _TASKS = 256, 4
"""Limits for tasks that read several small files: the most files in one task, and the fewest tasks for each core."""
# Minimum bytes for each further thread.  Each thread has to find the distinct lines anew, so few bytes are not worth a
# thread.
_THREAD_BYTES = 256 << 20
_MOST_THREADS = 8  # one reader takes what all threads found, so more threads do not help


@dataclass(frozen=True, slots=True)  # slots: one object per file, and there may be very many files
class Ingested:
    """The result of reading one input file.

    ``state`` is ``new``, ``grown``, ``unchanged``, ``failed`` or ``left out``.
    """

    path: str
    state: str  # new, grown, unchanged, failed, left out
    format: str = ""
    run: str = ""
    lines: int = 0
    counts: tuple[int, ...] = (0,) * len(UNITS)
    problems: int = 0
    calls: int = 0
    error: str = ""
    remark: str = ""

    @property
    def units(self) -> Mapping[Unit, int]:
        """Number of lines of each category, such as ``call``, or ``foreign`` for lines of an unknown format."""
        # The numbers are kept as a tuple, which takes a third of the memory.
        return dict(zip(UNITS, self.counts, strict=True))

    @property
    def recognised(self) -> bool:
        """True if logparse knows a format in the file, or if nothing was read because the file has not changed."""
        return self.state == "unchanged" or any(n for unit, n in self.units.items() if unit not in ("foreign", "blank"))

    @property
    def is_empty_results(self) -> bool:
        """True if the file is a TunableOp results file without any result."""
        read = self.state not in ("failed", "left out") and not self.lines
        return read and "tunableop_results" in os.path.basename(self.path)


@dataclass(frozen=True, slots=True)
class Task:
    """A task for a worker process: to read one file with ``threads`` threads.

    ``known`` says which parts of the file were already stored at the start.
    """

    path: str
    threads: int = 1
    size: int = 0
    known: tuple[Commit, ...] = ()
    # The process that wrote the lines, if the lines do not state one.
    process: Process = UNKNOWN


JointTask: TypeAlias = tuple[Task, ...]
"""Several small files that one task reads."""


@dataclass(frozen=True, slots=True)
class Several:
    """The results of a task that has read several small files, and the records that make these files' rows visible."""

    results: tuple[Ingested, ...]
    rows: pa.Table


def resources(task: Task | JointTask) -> Resources:
    """Return how many cores the reading of a file (or of several small files) needs, and how many bytes are read."""
    if isinstance(task, Task):
        return Resources(cpus=task.threads, weight=task.size)
    return Resources(weight=sum(one.size for one in task))


class Schedule:
    """Makes tasks for the worker processes from the files that still have to be read.

    * ``sizes`` holds the size of each file in bytes.
    * ``cores`` is the number of cores for all tasks together, and ``most`` the largest number for one task.
    * ``known`` is a function that returns which parts of a file are already stored.
    * ``processes`` holds the process of each file, for lines that do not state one.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        cores: int = 1,
        most: int = 1,
        known: Callable[[str], Sequence[Commit]] = lambda path: (),
        processes: Mapping[str, Process] | None = None,
    ) -> None:
        self._sizes, self._cores, self._most = sizes, cores, most
        self._known, self._processes = known, processes or {}
        self._share = cores / max(1, sum(sizes.values()))
        self.waiting = sorted(sizes, key=lambda path: -sizes[path])
        """Files that are still to be read.

        If the worker process of a task with several files died, these files are put back into this list.
        """
        self._lost: set[str] = set()

    def tasks(self) -> Iterator[Task | JointTask]:
        """Yield tasks for all files that are still to be read, the large files first.

        This order avoids that a large file is read alone at the end, while the other cores have nothing to do.
        """
        waiting, self.waiting = self.waiting, []
        small = [path for path in waiting if self._sizes[path] <= SMALL_BYTES and path not in self._lost]
        joint = set(small) if len(small) >= MANY else set[str]()
        for path in waiting:
            if path not in joint:
                yield self._task(path)
        if joint:
            together = min(_TOGETHER, -(-len(small) // (_TASKS * self._cores)))
            for start in range(0, len(small), together):
                yield tuple(map(self._task, small[start : start + together]))

    def _task(self, path: str) -> Task:
        size = self._sizes[path]
        cores = min(self._most, round(self._share * size))  # the file's share of the cores
        threads = max(1, min(cores, _MOST_THREADS, 2 + size // _THREAD_BYTES))
        return Task(path, threads, size, tuple(self._known(path)), self._processes.get(path, UNKNOWN))

    def ended(self, task: Task | JointTask, result: Ingested | Several | TaskError) -> Sequence[Ingested]:
        """Note that a task has ended. Return the results of the files that are now done.

        If a task with several files failed, its files are put back, and are then read one by one.
        """
        if isinstance(result, Several):
            return result.results
        if isinstance(result, Ingested):
            return [result]
        if isinstance(task, Task):
            return [Ingested(task.path, "failed", error=f"{make_printable(task.path)}: {result}")]
        lost = [one.path for one in task]
        self._lost.update(lost)
        self.waiting += lost
        return []
