"""What is read next: files go in, tasks come out, results go in.  It opens no file and starts no process.

A file is read by a task of its own; small ones, where there are very many, by one task for several (see
``store.joint``).  A joint task whose worker died is taken apart: one of its files may kill any worker that reads it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import pyarrow as pa

from logparse.executors.executor import Resources, TaskError
from logparse.formats.format import UNITS, Unit
from logparse.ingest.process_of_file import UNKNOWN, Process
from logparse.store.schema import Commit
from logparse.text import printable

SMALL_BYTES, MANY = 256 << 10, 512
"""Size of a small file, and how many there must be to read several in one task (and to merge them in the end)."""
_TOGETHER, _TASKS = 256, 4
"""Maximum number of files of a joint task; minimum number of such tasks per core."""
_THREAD_BYTES = 256 << 20  # minimum bytes per extra thread: each finds the distinct lines anew
_MOST_THREADS = 8  # a single reader takes what all threads found

State: TypeAlias = Literal["waiting", "reading", "lost", "done"]
"""``lost``: it waits again, for a task of its own, as the worker of its joint task died."""


@dataclass(frozen=True, slots=True)  # slots: one per file, and there may be very many files
class Ingested:
    """The result of one input."""

    path: str
    state: str  # new, grown, unchanged, failed, left out
    format: str = ""
    run: str = ""
    bytes: int = 0
    lines: int = 0
    splits: int = 0
    counts: tuple[int, ...] = (0,) * len(UNITS)
    problems: int = 0
    calls: int = 0
    seconds: float = 0.0
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


@dataclass(frozen=True, slots=True)
class JointTask:
    """Several small files to read."""

    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Several:
    """The results of a joint task, and the rows that committed them."""

    results: tuple[Ingested, ...]
    rows: pa.Table


def resources(task: Task | JointTask) -> Resources:
    """The needs of a task for its executor."""
    if isinstance(task, JointTask):
        return Resources(weight=sum(one.size for one in task.tasks))
    return Resources(cpus=task.threads, weight=task.size)


class Schedule:
    """The files of one ingest, each in one ``State``.

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
        self.states: dict[str, State] = dict.fromkeys(sorted(sizes, key=lambda path: -sizes[path]), "waiting")

    @property
    def waits(self) -> bool:
        """Whether a file is still to be read; only a joint task that ended badly makes files wait again."""
        return any(state in ("waiting", "lost") for state in self.states.values())

    def tasks(self) -> Iterator[Task | JointTask]:
        """Tasks for all files that wait, large ones first, so that no large one runs alone at the end."""
        waiting = [path for path, state in self.states.items() if state in ("waiting", "lost")]
        small = [path for path in waiting if self._sizes[path] <= SMALL_BYTES and self.states[path] == "waiting"]
        joint = set(small) if len(small) >= MANY else set[str]()
        for path in waiting:
            if path not in joint:
                yield self._task(path)
        if joint:
            together = min(_TOGETHER, -(-len(small) // (_TASKS * self._cores)))
            for start in range(0, len(small), together):
                yield JointTask(tuple(map(self._task, small[start : start + together])))

    def _task(self, path: str) -> Task:
        size = self._sizes[path]
        cores = min(self._most, round(self._share * size))  # its share of the cores
        threads = max(1, min(cores, _MOST_THREADS, 2 + size // _THREAD_BYTES))
        self.states[path] = "reading"
        return Task(path, threads, size, tuple(self._known(path)), self._processes.get(path, UNKNOWN))

    def ended(self, task: Task | JointTask, result: Ingested | Several | TaskError) -> Sequence[Ingested]:
        """Take the result of a task; returns those of its files that are done."""
        results: Sequence[Ingested]
        if isinstance(result, Several):
            results = result.results
        elif isinstance(result, Ingested):
            results = [result]
        elif isinstance(task, JointTask):
            self.states |= dict.fromkeys((one.path for one in task.tasks), "lost")
            return []
        else:
            results = [Ingested(task.path, "failed", error=f"{printable(task.path)}: {result}")]
        self.states |= dict.fromkeys((one.path for one in results), "done")
        return results
