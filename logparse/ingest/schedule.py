"""What is read next: files go in, tasks come out, results go in.  It opens no file and starts no process.

A file is read by a task of its own; small ones, where there are very many, by one task for several (see
``store.joint``).  A joint task whose worker died is split: one of its files may kill any worker that reads it.
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
"""Size of a small file, and how many there must be to read several in one task (and to merge them in the end)."""
_TOGETHER, _TASKS = 256, 4
"""Maximum number of files of a joint task; minimum number of such tasks per core."""
_THREAD_BYTES = 256 << 20  # minimum bytes per extra thread: each finds the distinct lines anew
_MOST_THREADS = 8  # a single reader takes what all threads found


@dataclass(frozen=True, slots=True)  # slots: one per file, and there may be very many files
class Ingested:
    """The result of one input."""

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
        """Lines per unit; kept as ``counts``, which take a third of the memory."""
        return dict(zip(UNITS, self.counts, strict=True))

    @property
    def recognised(self) -> bool:
        """Whether any format read something in it."""
        return self.state == "unchanged" or any(n for unit, n in self.units.items() if unit not in ("foreign", "blank"))

    @property
    def is_empty_results(self) -> bool:
        """Whether it is a file of TunableOp in which no result was written."""
        read = self.state not in ("failed", "left out") and not self.lines
        return read and "tunableop_results" in os.path.basename(self.path)


@dataclass(frozen=True, slots=True)
class Task:
    """A file to read with ``threads`` threads, the commits of it that the store held at the start, and the process of
    its lines that state none.
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
    """The results of a joint task, and the rows that committed them."""

    results: tuple[Ingested, ...]
    rows: pa.Table


def resources(task: Task | JointTask) -> Resources:
    """The needs of a task for its executor."""
    if isinstance(task, Task):
        return Resources(cpus=task.threads, weight=task.size)
    return Resources(weight=sum(one.size for one in task))


class Schedule:
    """The files of one ingest.

    ``sizes``: raw bytes by path; ``cores``: of all tasks together; ``most``: of one task; ``known``: a file's commits.
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
        """The files that are still to be read; those of a joint task that ended badly wait again."""
        self._lost: set[str] = set()

    def tasks(self) -> Iterator[Task | JointTask]:
        """Tasks for all files that wait, large ones first, so that no large one runs alone at the end."""
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
        cores = min(self._most, round(self._share * size))  # its share of the cores
        threads = max(1, min(cores, _MOST_THREADS, 2 + size // _THREAD_BYTES))
        return Task(path, threads, size, tuple(self._known(path)), self._processes.get(path, UNKNOWN))

    def ended(self, task: Task | JointTask, result: Ingested | Several | TaskError) -> Sequence[Ingested]:
        """Take the result of a task; returns those of its files that are done."""
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
