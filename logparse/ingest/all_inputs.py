"""Paths to a store: finds the inputs, has each read, and records what no file holds.

Each file is a task of its own for the executor; one that is too large for a node is several (see ``byte_ranges``), and
several small ones of many are one (see ``store.joint``).  A file that fails does not affect the others.  The commit of
a source is its row file, written last (see ``store``), so an ingest can be killed at any moment and simply run again.
"""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from logparse.errors import StoreError
from logparse.executors.executor import Executor, Progress, Resources, TaskError, reporting
from logparse.executors.local import LocalExecutor
from logparse.formats.format import Outcome
from logparse.ingest.byte_ranges import RangeRead, cut
from logparse.ingest.input_file import find_inputs, name_of
from logparse.ingest.one_input import (
    CommitTask,
    Ingested,
    JointTask,
    RangeTask,
    Reader,
    Several,
    Task,
    chosen,
    source_id,
)
from logparse.ingest.process_of_file import Process, processes_in_names, stated_process
from logparse.ingest.stream import Tally
from logparse.model import Record
from logparse.store import Store, open_store
from logparse.store.announcements import announced, remove_abandoned
from logparse.store.collector import Collector
from logparse.store.schema import Commit
from logparse.store.unused import remove_unused
from logparse.text import counted, printable

_THREAD_BYTES = 256 << 20  # minimum bytes per extra thread: each finds the distinct lines anew
_SMALL_BYTES = 256 << 10
_MANY = 512
"""Minimum number of files of at most ``_SMALL_BYTES`` that are read together, and merged at the end of an ingest."""
_TOGETHER, _TASKS = 256, 4
"""Maximum number of files that are read together; minimum number of such tasks per core."""
_MOST_THREADS = 8  # a single reader takes what all threads found


_OWN = "left out: {} that logparse itself wrote (a file's own path reads it)"


def ingest(
    paths: Iterable[str],
    store: Store,
    *,
    run: str | None = None,
    format: str | None = None,
    jobs: int = 1,
    max_ratio: float = 2000.0,
    progress: Progress | None = None,
    total: Callable[[int | None], None] | None = None,
    executor: Executor | None = None,
    pid: str | None = None,
) -> list[Ingested]:
    """Read every input into the store.  Returns one result per input, failures included, and one per folder of which
    files are left out as logparse itself wrote them.

    ``run`` labels the inputs (default: the time of this call); ``format`` names the format instead of recognising it.
    ``pid`` is the process of lines that state none: a number, ``none`` where it is unknown, or by default what the
    files' names have (see ``process_of_file``).
    ``executor`` does the work (default: ``jobs`` processes of this machine).  ``progress`` is called with a path and
    the raw bytes read since the last call, ``total`` once with the raw bytes to read (None: unknown).  Raises
    UsageError for an unknown format.
    """
    chosen(format)
    stated = stated_process(pid)
    files, missing, own = find_inputs(paths)
    names = {path: name_of(path) for path in files}
    in_names = processes_in_names(names.values())
    processes = {path: stated or in_names[name] for path, name in names.items()}
    label = run or datetime.datetime.now().isoformat(timespec="milliseconds")
    store.sweep()
    remove_abandoned(store, time.time())
    known = store.known()
    read = Reader(store, label, format, max_ratio)
    results: dict[str, Ingested] = {}
    ahead = [count for path, size in files.items() if (count := _ahead(size, known(path))) is not None]
    amount = None if "-" in files else sum(ahead)
    if total:
        total(amount)
    with announced(store, "ingest", label, files=len(ahead), bytes=amount):
        elsewhere = {path: size for path, size in files.items() if path != "-"}
        for path, result in _read_all(read, elsewhere, known, processes, executor or LocalExecutor(jobs), progress):
            results[path] = replace(result, path=path, run=sys.intern(result.run), format=sys.intern(result.format))
        if "-" in files:  # is of this process
            with reporting(progress):
                results["-"] = cast(Ingested, read(Task("-", 1, process=processes["-"])))
    if store.unmerged_small(_SMALL_BYTES) >= _MANY:
        from logparse.store.compaction import compact  # not at the start: it imports pyarrow.compute

        with suppress(StoreError):  # another ingest has merged them, or is just doing so
            compact(store)
    failed = [Ingested(path=path, state="failed", error=message) for path, message in missing]
    left_out = [
        Ingested(path=path, state="left out", remark=_OWN.format(counted(n, "file"))) for path, n in own.items()
    ]
    return failed + [results[path] for path in files] + left_out


def ingest_at(location: str | None, paths: Iterable[str], **how: Any) -> list[Ingested]:
    """``ingest`` into the store at a folder or URL (see ``open_store``), which is made where it is missing, and removed
    again where nothing of these inputs was recognised.
    """
    store, results = open_store(location, create=True), list[Ingested]()
    try:
        results += ingest(paths, store, **how)
        return results
    finally:
        if not any(result.recognised or result.is_empty_results for result in results):
            remove_unused(store, {result.path for result in results})


def _ahead(size: int, known: Sequence[Commit]) -> int | None:
    """Raw bytes to read of a file, by its size; None where the store seems to hold it already."""
    end = max((row.end for row in known), default=None)
    if size == end:
        return None
    again = end is None or size < end or any(row.whole for row in known)
    return size if again or end is None else size - end


def _read_all(
    read: Reader,
    sizes: Mapping[str, int],
    known: Callable[[str], Sequence[Commit]],
    processes: Mapping[str, Process],
    executor: Executor,
    progress: Progress | None,
) -> Iterator[tuple[str, Ingested]]:
    """Each file's result from the executor, large files first, so that no large one runs alone at the end."""
    share = executor.together / max(1, sum(sizes.values()))
    most = executor.cpus
    left: dict[str, int] = {}  # number of ranges, per file that is read in ranges
    lost: list[Task] = []  # files of joint tasks whose worker died: one of them may kill any that reads it
    ranges: dict[str, list[RangeRead]] = {}  # the ranges that were read, until their file is committed
    failed: set[str] = set()  # files with a range that could not be read

    def single_tasks() -> Iterator[Task]:
        for path, size in sorted(sizes.items(), key=lambda item: -item[1]):
            cores, earlier = round(share * size), tuple(known(path))
            spans = cut(size, cores, most)
            if spans and not earlier and read.is_lines(path):
                left[path] = len(spans)
                yield from (RangeTask(path, 1, size, span=span) for span in spans if path not in failed)
            else:
                yield Task(path, _threads(size, min(most, cores)), size, earlier, processes[path])

    def tasks() -> Iterator[Task]:
        count = sum(size <= _SMALL_BYTES for size in sizes.values())
        together = min(_TOGETHER, -(-count // (_TASKS * executor.together)))
        small: list[Task] = []
        for task in single_tasks():
            if count < _MANY or task.size > _SMALL_BYTES or type(task) is not Task:
                yield task
                continue
            small.append(task)
            if len(small) == together:
                yield _joint(small)
                small = []
        if small:
            yield _joint(small)

    def commits() -> Iterator[Task]:
        for path in [path for path, found in ranges.items() if len(found) == left[path]]:
            found = sorted(ranges.pop(path), key=lambda one: one.start)
            yield CommitTask(path, 1, sizes[path], process=processes[path], ranges=tuple(found))

    def tasks_and_commits() -> Iterator[Task]:
        for task in tasks():
            yield from commits()
            yield task

    def resources(task: Task) -> Resources:
        return Resources(cpus=task.threads, weight=task.weight)

    def rest() -> Iterator[Task]:
        yield from commits()
        yield from lost

    for items in (tasks_and_commits, rest):  # the last ranges end after the last task was handed out
        for task, result in executor.map_unordered(read, items(), resources, progress):
            if isinstance(task, JointTask) and isinstance(result, TaskError):
                lost += task.tasks
            elif isinstance(result, Several):
                read.store.learn(result.rows)
                yield from ((one.path, one) for one in result.results)
            elif isinstance(result, RangeRead):
                ranges.setdefault(task.path, []).append(result)
            elif task.path not in failed:
                failed |= {task.path} if isinstance(result, TaskError) or result.state == "failed" else set()
                why = f"{printable(task.path)}: {result}"
                yield task.path, Ingested(task.path, "failed", error=why) if isinstance(result, TaskError) else result


def _joint(tasks: Sequence[Task]) -> JointTask:
    return JointTask(tasks[0].path, size=sum(task.size for task in tasks), tasks=tuple(tasks))


def _threads(size: int, cores: int) -> int:
    """The number of threads that reads a file of ``size`` bytes fastest, at most its share of the cores."""
    return max(1, min(cores, _MOST_THREADS, 2 + size // _THREAD_BYTES))


def record(store: Store, records: Iterable[Record], *, run: str, name: str, format: str) -> str:
    """Commit records that no file holds (a replay's measurements and the facts of its machine) as one source.

    Returns the source's id.  All records become visible at once, or none do.
    """
    attempt, tally = store.attempt(), Tally()
    collector = Collector(attempt)
    held = list(records)
    tally.add(Outcome("measurement", held, lines=len(held)))
    collector.add(held)
    collector.flush()
    source = source_id(name, os.urandom(8).hex())
    row = Commit(
        attempt=attempt.name,
        source_id=source,
        run=run,
        path=name,
        format=format,
        content_hash=source,
        start=0,
        end=0,
        bytes=0,
        lines=tally.lines,
        units={**tally.units},
        whole=True,
        committed_at=time.time(),
    )
    attempt.commit(row)
    return source


__all__ = ["Ingested", "ingest", "record"]
