"""Paths to a store: recognise, read, count, commit.

Each file is a task of its own; a file that fails leaves the others alone.  The commit of a source is its row file,
written last (see ``store``), so an ingest can be killed at any moment and simply run again.
"""

from __future__ import annotations

import datetime
import io
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, fields, replace
from multiprocessing import get_context
from typing import Any, BinaryIO, cast

import xxhash

from logparse.errors import InputError, LogparseError
from logparse.formats import FORMATS
from logparse.formats.format import UNITS, FileFormat, Format, Outcome, Unit
from logparse.lines import LineReader, Read, blocks
from logparse.model import Call, Record
from logparse.output import printable
from logparse.source import Hashing, InputFile, find_inputs
from logparse.store import Attempt, Commit, Store, open_store
from logparse.tables import Collector, clock_second, problem_text

FOREIGN = "foreign"
_THREAD_PREFIX = "[cublasLt]"  # its third bracket is a thread, not a process
_LIVE_SECONDS = 3.0
_PARALLEL_BYTES = 32 << 20

Progress = Callable[[str, int], None]
"""Called with a path and the raw bytes read since the last call."""


@dataclass(frozen=True)
class Ingested:
    """What became of one input."""

    path: str
    state: str  # new, grown, unchanged, failed
    format: str = ""
    run: str = ""
    bytes: int = 0
    lines: int = 0
    splits: int = 0
    units: Mapping[Unit, int] = field(default_factory=dict)
    problems: int = 0
    calls: int = 0
    seconds: float = 0.0
    error: str = ""

    @property
    def recognised(self) -> bool:
        """Whether anything in it was ours."""
        return self.state == "unchanged" or any(n for unit, n in self.units.items() if unit not in ("foreign", "blank"))


def ingest(
    paths: Iterable[str],
    store: Store,
    *,
    run: str | None = None,
    format: str | None = None,
    jobs: int = 1,
    max_ratio: float = 2000.0,
    progress: Progress | None = None,
) -> list[Ingested]:
    """Read every input into the store.  One result per input, failures included.

    ``run`` labels the inputs (default: a label of this call's own); ``format`` names the format instead of recognising
    it.  Raises InputError when there is no such format.
    """
    formats = _chosen(format)
    files, missing = find_inputs(paths)
    label = run or datetime.datetime.now().isoformat(timespec="milliseconds")
    failed = [Ingested(path=message.split(":", 1)[0], state="failed", error=message) for message in missing]
    store.sweep()
    known = {row.path: row for row in store.commits()}
    tasks = [_Task(store.url, path, label, format, max_ratio) for path in files]
    if jobs > 1 and len(tasks) > 1 and sum(_size(path) for path in files) > _PARALLEL_BYTES:
        return failed + _parallel(tasks, jobs, progress)
    return failed + [_ingest_one(task, store, formats, task.path in known, progress) for task in tasks]


@dataclass(frozen=True)
class _Task:
    store: str
    path: str
    run: str
    format: str | None
    max_ratio: float


def _chosen(name: str | None) -> Sequence[Format]:
    if name is None:
        return FORMATS
    chosen = [f for f in FORMATS if f.name == name]
    if not chosen:
        raise InputError(f"no format {name!r}; `logparse formats` lists them: {', '.join(f.name for f in FORMATS)}")
    return chosen


def _size(path: str) -> int:
    try:
        return InputFile(path).size
    except (OSError, LogparseError):
        return 0


def _parallel(tasks: Sequence[_Task], jobs: int, progress: Progress | None) -> list[Ingested]:
    results: dict[str, Ingested] = {}
    with ProcessPoolExecutor(max_workers=jobs, mp_context=get_context("spawn")) as pool:
        pending = {pool.submit(_worker, task): task for task in tasks}
        while pending:
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                task = pending.pop(future)
                try:
                    results[task.path] = future.result()
                except Exception as error:  # the worker died; the other files go on
                    results[task.path] = Ingested(task.path, "failed", error=f"{printable(task.path)}: {error}")
                if progress:
                    progress(task.path, _size(task.path))
    return [results[task.path] for task in tasks]


def _worker(task: _Task) -> Ingested:
    store = open_store(task.store)
    return _ingest_one(task, store, _chosen(task.format), True, None)


def _ingest_one(
    task: _Task, store: Store, formats: Sequence[Format], may_be_known: bool, progress: Progress | None
) -> Ingested:
    try:
        return _Ingest(task, store, formats, progress).do(may_be_known)
    except LogparseError as error:
        return Ingested(task.path, "failed", error=str(error))
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or error
        return Ingested(task.path, "failed", error=f"{printable(task.path)}: {reason}")


@dataclass(frozen=True)
class _Stretch:
    """Which part of which source a commit holds."""

    source_id: str
    run: str
    content_hash: str = ""
    start: int = 0
    end: int = 0
    replaces: tuple[str, ...] = ()
    tail: bool = False


class _Ingest:
    """One input on its way into the store."""

    def __init__(self, task: _Task, store: Store, formats: Sequence[Format], progress: Progress | None) -> None:
        self.task = task
        self.store = store
        self.file = InputFile(task.path, task.max_ratio)
        self.formats = formats
        self._progress = progress
        self._started = time.monotonic()

    def do(self, may_be_known: bool) -> Ingested:
        """Read the input, or only what is new of it."""
        if self.task.path == "-":
            return self._stdin()
        size = self.file.size
        earlier = [row for row in self.store.commits() if row.path == self.task.path] if may_be_known else []
        at = self._continuation(earlier, size)
        if at is None:
            return Ingested(self.task.path, "unchanged", earlier[-1].format, earlier[-1].run)
        file_format = self._file_format() if at.start == 0 else None
        result = self._whole_file(file_format, at) if file_format else self._stream(at)
        state = result.state if result.state == "unchanged" else "grown" if at.source_id else "new"
        return replace(result, state=state, seconds=time.monotonic() - self._started)

    def _continuation(self, earlier: Sequence[Commit], size: int) -> _Stretch | None:
        """Where to go on: a file whose stored prefix is unchanged has grown.  None: nothing is new."""
        if earlier:
            mine = [row for row in earlier if row.source_id == earlier[-1].source_id]
            latest = max(mine, key=lambda row: row.end)
            if size >= latest.end and self.file.digest(latest.end) == latest.content_hash:
                if size == latest.end:
                    return None
                again = latest.whole or self.file.compressed
                stale = tuple(row.attempt for row in mine if again or row.tail)
                start = 0 if again else max((row.end for row in mine if not row.tail), default=0)
                return _Stretch(latest.source_id, latest.run, start=start, replaces=stale)
        return _Stretch("", self.task.run)

    def _file_format(self) -> FileFormat | None:
        candidates = [f for f in self.formats if isinstance(f, FileFormat)]
        if len(self.formats) == 1:
            return candidates[0] if candidates else None
        head = self.file.head()
        return next((f for f in candidates if f.recognise(head)), None)

    def _whole_file(self, format: FileFormat, at: _Stretch) -> Ingested:
        attempt = self.store.attempt()
        collector, tally = Collector(attempt), _Tally()
        digest, size = self.file.digest(), self.file.size
        for outcome in format.read(self.file):
            tally.add(outcome)
            collector.add(outcome.records, offset=outcome.at)
            collector.add_tables(dict(outcome.tables))
        collector.flush()
        self._report(size)
        source = at.source_id or _source_id(self.task.path, digest)
        stretch = replace(at, source_id=source, content_hash=digest, start=0, end=size)
        return self.commit(attempt, stretch, tally, format=format.name, bytes=size, whole=True)

    def _stream(self, at: _Stretch) -> Ingested:
        """Lines of several languages and of nobody.  A last line without its end is committed apart: it may grow."""
        hashing = Hashing(self.file.raw())
        stream = _StreamRead(self)
        last, place = b"", at.start
        with hashing:
            content = self.file.decompressed(cast(BinaryIO, hashing))
            while at.start > hashing.count and content.read(min(1 << 20, at.start - hashing.count)):
                pass
            for block, offset in blocks(content, at.start, progress=self._report):
                cut = block.rfind(b"\n") + 1
                if cut:
                    stream.feed(block[:cut], offset)
                last, place = block[cut:], offset + cut
            digest = hashing.finish()
        source = at.source_id or _source_id(self.task.path, digest)
        whole = replace(at, source_id=source, content_hash=digest, end=hashing.count)
        if not last or self.file.compressed:
            if last:
                stream.feed(last, place)
            return stream.commit(whole)
        end = hashing.count - len(last)
        tail = replace(whole, start=end, tail=True)
        result = None
        if end > at.start:
            result = stream.commit(replace(whole, content_hash=self.file.digest(end), end=end))
            tail = replace(tail, replaces=())
        rest = _StreamRead(self)
        rest.feed(last, place)
        part = rest.commit(tail)
        return part if result is None else _sum(result, part)

    def _report(self, count: int) -> None:
        if self._progress:
            self._progress(self.task.path, count)

    def _stdin(self) -> Ingested:
        """Standard input: a new source per call, committed every few seconds so that a live store can be looked at."""
        source = _source_id("-", secrets.token_hex(8))
        raw = self.file.raw()
        stream, total = _StreamRead(self), Ingested("-", "new")
        start, read, rest, last_commit = 0, 0, b"", time.monotonic()
        while data := _available(raw):
            block, rest = _cut(rest + data)
            if block:
                stream.feed(block, read)
                read += len(block)
            if read > start and time.monotonic() - last_commit > _LIVE_SECONDS:
                stretch = _Stretch(source, self.task.run, f"{source}-{read}", start, read)
                total = _sum(total, stream.commit(stretch, end_of_stream=False))
                start, last_commit, stream = read, time.monotonic(), _StreamRead(self, stream.reader)
        if rest:
            stream.feed(rest, read)
        end = read + len(rest)
        total = _sum(total, stream.commit(_Stretch(source, self.task.run, f"{source}-end", start, end)))
        return replace(total, seconds=time.monotonic() - self._started)

    def commit(self, attempt: Attempt, at: _Stretch, tally: _Tally, **values: Any) -> Ingested:
        """Make what was read exist."""
        row = Commit(
            attempt=attempt.name,
            path=self.task.path,
            lines=tally.lines,
            splits=tally.splits,
            units={**tally.units},
            bench_output=tally.bench_output,
            committed_at=time.time(),
            seconds=time.monotonic() - self._started,
            **{f.name: getattr(at, f.name) for f in fields(at)},
            **values,
        )
        return Ingested(
            row.path,
            "new" if attempt.commit(row) else "unchanged",
            row.format,
            row.run,
            bytes=row.bytes,
            lines=row.lines,
            splits=row.splits,
            units=tally.units,
            problems=len(tally.problems) + tally.tabled,
            calls=tally.calls,
        )


class _StreamRead:
    """A stretch of a stream that becomes one commit."""

    def __init__(self, ingest: _Ingest, reader: LineReader | None = None) -> None:
        self._ingest = ingest
        self._attempt = ingest.store.attempt()
        self._collector, self._tally = Collector(self._attempt), _Tally()
        self.reader = reader or LineReader([f for f in ingest.formats if not isinstance(f, FileFormat)])
        self._bytes = 0

    def feed(self, block: bytes, offset: int) -> None:
        """Read whole lines that stand at ``offset``."""
        self.reader.feed(block, offset)
        self._bytes += len(block)
        if self.reader.full:
            self._absorb(self.reader.take())

    def commit(self, at: _Stretch, end_of_stream: bool = True) -> Ingested:
        """Write everything; at the end of the stream block languages give what they still hold."""
        self._absorb(self.reader.take())
        if end_of_stream:
            self._collector.add(self.reader.close())
        self._collector.flush()
        pid, pid_from = self._tally.process(self._ingest.file.pid_in_name)
        ended = "in the middle of a line" if at.tail and self._tally.units["reject"] else None
        values = {"pid": pid, "pid_from": pid_from, "ended": ended, "bytes": self._bytes}
        return self._ingest.commit(self._attempt, at, self._tally, format=self._tally.languages or FOREIGN, **values)

    def _absorb(self, read: Read) -> None:
        tally, collector = self._tally, self._collector
        tally.lines += read.lines
        tally.splits += read.splits
        tally.units["foreign"] += read.foreign
        tally.units["blank"] += read.blank
        for outcome, raw, language in read.outcomes:
            tally.add(replace(outcome, lines=outcome.lines), language, lines=False)
            collector.add(outcome.records, offset=outcome.at, raw=raw)
            collector.add_tables(dict(outcome.tables))
        for entry in read.distinct:
            outcome, total = entry.format.read(entry.text), entry.count
            tally.add(replace(outcome, lines=total), entry.format.name, lines=False, times=total)
            threads = entry.text.startswith(_THREAD_PREFIX)
            for (clock, bracket), count in entry.places.items():
                pid = None if threads or not bracket else int(bracket)
                if pid is not None:
                    tally.pids.add(pid)
                second = clock_second(clock) if clock else None
                collector.add(outcome.records, count=count, pid=pid, second=second, offset=entry.offset, raw=entry.raw)


class _Tally:
    """Counts of one commit."""

    def __init__(self) -> None:
        self.lines = 0
        self.splits = 0
        self.units: dict[Unit, int] = dict.fromkeys(UNITS, 0)
        self.problems: set[str] = set()
        self.tabled = 0
        self.calls = 0
        self.pids: set[int] = set()
        self.bench_output = False
        self._languages: set[str] = set()

    def add(self, outcome: Outcome, language: str = "", *, lines: bool = True, times: int = 1) -> None:
        """Count an outcome; ``lines`` False where its lines were counted already."""
        self.units[outcome.unit] += outcome.lines
        self.lines += outcome.lines if lines else 0
        self._languages |= {language} - {""}
        for record in outcome.records:
            problem = getattr(record, "problem", None)
            if problem is not None:
                self.problems.add(problem_text(problem))
            if isinstance(record, Call):
                self.calls += (record.count or 0) * times
            self.bench_output |= getattr(record, "origin", None) == "bench"
        if "convs" in outcome.tables:  # a format that gives tables gives each problem of the file once
            self.tabled += outcome.tables["convs"].num_rows

    @property
    def languages(self) -> str:
        return "+".join(sorted(self._languages))

    def process(self, in_name: int | None) -> tuple[int | None, str | None]:
        """The process that wrote the source, and where that is known from."""
        if self.pids:
            return (next(iter(self.pids)) if len(self.pids) == 1 else None), "prefix"
        return in_name, None if in_name is None else "name"


def record(store: Store, records: Iterable[Record], *, run: str, name: str, format: str) -> str:
    """Commit records that no file holds (a replay's measurements and the facts they were made under) as one source.

    Returns the source's id.  Everything is visible at once or not at all.
    """
    attempt, tally = store.attempt(), _Tally()
    collector = Collector(attempt)
    held = list(records)
    tally.add(Outcome("measurement", held, lines=len(held)))
    collector.add(held)
    collector.flush()
    source = _source_id(name, secrets.token_hex(8))
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


def _source_id(path: str, digest: str) -> str:
    return str(xxhash.xxh3_64_hexdigest(f"{path}\0{digest}".encode()))


def _sum(one: Ingested, two: Ingested) -> Ingested:
    return replace(
        two,
        format=two.format if one.format in ("", FOREIGN) else one.format,
        bytes=one.bytes + two.bytes,
        lines=one.lines + two.lines,
        splits=one.splits + two.splits,
        units={unit: one.units.get(unit, 0) + two.units.get(unit, 0) for unit in UNITS},
        problems=max(one.problems, two.problems),
        calls=one.calls + two.calls,
    )


def _cut(data: bytes) -> tuple[bytes, bytes]:
    cut = data.rfind(b"\n") + 1
    return data[:cut], data[cut:]


def _available(raw: BinaryIO) -> bytes:
    """What standard input has now, at least one byte; empty at its end."""
    return bytes(raw.read1(1 << 20)) if isinstance(raw, io.BufferedReader) else raw.read(1 << 16)
