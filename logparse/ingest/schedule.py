"""Decide what is read next: files go in, tasks come out, results go in.

This module opens no file and starts no process.

A file is read by a task of its own.  If there are very many small files, a joint task reads several of them (see
``store.joint``).  If the worker of a joint task dies, its files are read by tasks of their own, because one of them may
kill every worker that reads it.
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
from logparse.text import printable

SMALL_BYTES, MANY = 256 << 10, 512
"""Largest size of a small file in bytes, and the number of small files that makes joint tasks worth while.

If there are at least this many small files, a task reads several of them, and they are merged at the end.
"""
_TOGETHER, _TASKS = 256, 4
"""Maximum number of files of a joint task, and minimum number of such tasks per core."""
# Minimum bytes for each further thread.  Each thread has to find the distinct lines anew, so few bytes are not worth a
# thread.
_THREAD_BYTES = 256 << 20
_MOST_THREADS = 8  # one reader takes what all threads found, so more threads do not help


@dataclass(frozen=True, slots=True)  # slots: one object per file, and there may be very many files
class Ingested:
    """Result of one input."""

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
        """The number of lines per unit.  They are kept as ``counts``, which take a third of the memory."""
        return dict(zip(UNITS, self.counts, strict=True))

    @property
    def recognised(self) -> bool:
        """True if any format read something in the input, or if the input is unchanged."""
        return self.state == "unchanged" or any(n for unit, n in self.units.items() if unit not in ("foreign", "blank"))

    @property
    def is_empty_results(self) -> bool:
        """True if the input is a file of TunableOp in which no result was written."""
        read = self.state not in ("failed", "left out") and not self.lines
        return read and "tunableop_results" in os.path.basename(self.path)


@dataclass(frozen=True, slots=True)
class Task:
    """File to read with ``threads`` threads.

    ``known`` are the file's commits that the store held at the start.  ``process`` is the process of lines that state
    none.
    """

    path: str
    threads: int = 1
    size: int = 0
    known: tuple[Commit, ...] = ()
    process: Process = UNKNOWN


JointTask: TypeAlias = tuple[Task, ...]
"""Several small files to read."""


@dataclass(frozen=True, slots=True)
class Several:
    """Results of a joint task, and the rows that committed them."""

    results: tuple[Ingested, ...]
    rows: pa.Table


def resources(task: Task | JointTask) -> Resources:
    """Return the cores and the weight that a task needs from its executor."""
    if isinstance(task, Task):
        return Resources(cpus=task.threads, weight=task.size)
    return Resources(weight=sum(one.size for one in task))


class Schedule:
    """Files of one ingest.

    * ``sizes``: raw bytes by path.
    * ``cores``: the number of cores of all tasks together.
    * ``most``: the largest number of cores of one task.
    * ``known``: a function that returns a file's commits.
    * ``processes``: the process of each file's lines that state none.
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

        If the worker of a joint task died, the files of that task are among them again.
        """
        self._lost: set[str] = set()

    def tasks(self) -> Iterator[Task | JointTask]:
        """Yield tasks for all files that wait.  Large files come first, so that no large file runs alone at the end."""
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
        """Take the result of a task that ended.  Return the results of the files that are now done."""
        if isinstance(result, Several):
            return result.results
        if isinstance(result, Ingested):
            return [result]
        if isinstance(task, Task):
            return [Ingested(task.path, "failed", error=f"{printable(task.path)}: {result}")]
        lost = [one.path for one in task]
        self._lost.update(lost)
        self.waiting += lost
        return []
