"""Read the input files into the store: find the files, and let worker processes read them.

``record`` stores records that come from no file, such as the measurements of a replay.

If one file fails, the others are still read. A file is stored completely or not at all, because its rows become visible
only when a last, small file is written (see ``store``). So reading can be stopped at any moment and then be repeated.
"""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from logparse.errors import StoreError
from logparse.executors.executor import Executor, Progress, pass_progress_to
from logparse.executors.local import LocalExecutor
from logparse.ingest.input_file import Inputs, find_inputs, name_of, source_id
from logparse.ingest.process_of_file import processes_in_names, stated_process
from logparse.ingest.schedule import MANY, SMALL_BYTES, Ingested, Schedule, Several, Task, resources
from logparse.ingest.worker import Reader, formats_named
from logparse.model import Record
from logparse.store import Store, command_line, open_store
from logparse.store.collector import Collector
from logparse.store.schema import Commit
from logparse.text import make_printable, pluralize, short_path

_COPY = "left out: this file is a packed copy of {}, and logparse reads only the unpacked file"
_SAME = (
    "the same content as {}, so both count only once in run {}. If this file is from another process or another "
    "execution of the job, run `{}`, then ingest the file again with --pid (process) or --run (execution)"
)
_OWN = "left out: {} that logparse itself wrote (to read such a file, name the file and not its folder)"


def ingest(
    paths: Iterable[str] | Inputs,
    store: Store,
    *,
    run: str | None = None,
    format: str | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
    total: Callable[[int], None] | None = None,
    executor: Executor | None = None,
    pid: str | None = None,
) -> list[Ingested]:
    """Read all input files into the store. Return one result for each file, also for a file that failed.

    Files that logparse itself wrote are left out, and each folder with such files gives one more result. A packed copy
    of another file (``a.log.gz`` beside ``a.log``) is left out as well, and gives one more result. A
    file with the content of another file of the run is stored but counts nowhere, and its result says so.

    * ``run`` is the label under which the files are kept (default: the time of this call).
    * ``format`` is the name of their format. By default it is recognised.
    * ``pid`` is the process of lines that do not state one: a number, or ``none`` if it is unknown. By default it is
      the process in the file's name (see ``process_of_file``).
    * ``executor`` runs the tasks (default: ``jobs`` processes of this machine).
    * ``progress`` is called with a path and the number of bytes read since the last call.
    * ``total`` is called once with the number of bytes to read, if it is known.

    Raises UsageError for an unknown format.
    """
    formats_named(format)
    stated = stated_process(pid)
    inputs = paths if isinstance(paths, Inputs) else find_inputs(paths)
    executor = executor or LocalExecutor(jobs)
    names = {path: name_of(path) for path in inputs.files}
    in_names = processes_in_names(names.values())
    processes = {path: stated or in_names[name] for path, name in names.items()}
    label = run or datetime.datetime.now().isoformat(timespec="milliseconds")
    store.sweep()
    known, before = store.known(), set(store.copies(label))
    read = Reader(store, label, format)
    results: dict[str, Ingested] = {}
    sizes = {path: size for path, size in inputs.files.items() if path != "-"}
    if total and "-" not in inputs.files:
        total(sum(size for path, size in sizes.items() if all(row.end != size for row in known(path))))
    schedule = Schedule(sizes, executor.together, executor.cpus, known, processes)
    while schedule.waiting:
        for task, result in executor.map_unordered(read, schedule.tasks(), resources, progress):
            if isinstance(result, Several):
                store.learn(result.rows)
            for one in schedule.ended(task, result):
                results[one.path] = replace(one, run=sys.intern(one.run), format=sys.intern(one.format))
    if "-" in inputs.files:  # read in this process
        with pass_progress_to(progress):
            results["-"] = read.read(Task("-", process=processes["-"]))
    if store.unmerged_small(SMALL_BYTES) >= MANY:
        from logparse.store.compaction import compact  # not at the start, because it imports pyarrow.compute

        with suppress(StoreError):  # another ingest has merged them, or is merging them now
            compact(store)
    store.take_inventory()
    for copy in sorted(set(store.copies(label)) - before):
        for path, other in (copy, copy[::-1])[: 1 if copy[0] in results else 2]:
            if path in results:
                results[path] = replace(results[path], remark=_remark_on_equal_files(store, path, other, label))
    missing = [Ingested(path, "failed", error=message) for path, message in inputs.missing]
    own = [Ingested(path, "left out", remark=_OWN.format(pluralize(n, "file"))) for path, n in inputs.own.items()]
    copies = [
        Ingested(path, "left out", remark=_COPY.format(name)) for path, name in _name_when_unpacked(inputs.copies)
    ]
    return missing + [results[path] for path in inputs.files] + own + copies


def _remark_on_equal_files(store: Store, path: str, other: str, run: str) -> str:
    """Return a remark for the user: two files of one run (execution of a job) have the same content."""
    what = "an earlier stream" if other == "-" else short_path(other)
    forget = command_line(store.url, "forget", path)
    return _SAME.format(what, run, forget)


def _name_when_unpacked(copies: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each packed file, together with the name that its content has when it is unpacked.

    Characters of the name that a terminal would interpret are replaced.
    """
    return ((path, make_printable(plain.rpartition("/")[2])) for path, plain in copies.items())


def ingest_at(location: str | None, paths: Iterable[str], **how: Any) -> list[Ingested]:
    """Read input files into the store at a folder or URL.  ``how`` are further arguments of ``ingest``.

    If there is no store, one is made, provided that at least one file was found.
    """
    formats_named(how.get("format"))
    inputs = find_inputs(paths)
    if not inputs.files:
        return [Ingested(path, "failed", error=message) for path, message in inputs.missing]
    return ingest(inputs, open_store(location, create=True), **how)


def record(
    store: Store, records: Iterable[Record], *, run: str, name: str, format: str, evidence: Iterable[str] | None = None
) -> str:
    """Store records that do not come from an input file, such as the measured times of kernels. Return an id for them.

    ``evidence`` names the kinds of measurements whose times may be used to judge kernels.
    """
    attempt, taken = store.attempt(), list(records)
    collector = Collector(attempt)
    collector.add(taken)
    collector.flush()
    source = source_id(name, os.urandom(8).hex())
    row = Commit(
        attempt=attempt.name,
        source_id=source,
        run=run,
        path=name,
        format=format,
        content_hash=source,
        lines=len(taken),
        units={"measurement": len(taken)},
        whole=True,
        committed_at=time.time(),
        readable=True,
        evidence=None if evidence is None else tuple(evidence),
        winners=None if evidence is None else (),
        # Facts in the records (such as the version of a library) are not taken for facts about the user's job.
        job_log=False,
    )
    # Either all records become visible at once, or none.
    attempt.commit(row)
    return source
