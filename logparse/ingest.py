"""Paths to a store: recognise, read, count, commit.

Each file is a task of its own; a file that fails leaves the others alone.  The commit of a source is its row file,
written last (see ``store``), so an ingest can be killed at any moment and simply run again.
"""

from __future__ import annotations

import datetime
import io
import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from typing import Any, BinaryIO, cast

import xxhash

from logparse.errors import InputError, LogparseError
from logparse.formats import FORMATS
from logparse.formats.format import UNITS, FileFormat, Format, Outcome, Unit
from logparse.lines import LineReader, blocks
from logparse.model import Record
from logparse.output import printable
from logparse.source import Hashing, InputFile, digests, find_inputs, last_line_end
from logparse.store import Attempt, Commit, Store, open_store
from logparse.stream import StreamRead, Tally
from logparse.tables import Collector, storable
from logparse.workers import each, report

FOREIGN = "foreign"
_LIVE_SECONDS = 3.0
_PARALLEL_BYTES = 32 << 20
_RANGED_BYTES = 16 << 20

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
    sizes = {path: _size(path) for path in files}
    total = sum(sizes.values())
    if jobs > 1 and len(files) > 1 and total > _PARALLEL_BYTES:
        tasks = [_Task(store.url, f, label, format, max_ratio, max(1, round(jobs * sizes[f] / total))) for f in files]
        return failed + _parallel(tasks, jobs, progress, sizes)
    tasks = [_Task(store.url, path, label, format, max_ratio, jobs) for path in files]
    return failed + [_ingest_one(task, store, formats, task.path in known, progress) for task in tasks]


@dataclass(frozen=True)
class _Task:
    store: str
    path: str
    run: str
    format: str | None
    max_ratio: float
    threads: int


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


def _parallel(tasks: Sequence[_Task], jobs: int, progress: Progress | None, sizes: Mapping[str, int]) -> list[Ingested]:
    """Files in worker processes, large ones first so that none is left alone at the end."""
    results: dict[str, Ingested] = {}
    for task, result in each(_worker, sorted(tasks, key=lambda task: -sizes[task.path]), jobs, progress):
        if isinstance(result, Exception):  # the worker died; the other files go on
            results[task.path] = Ingested(task.path, "failed", error=f"{printable(task.path)}: {result}")
        else:
            results[task.path] = result
    return [results[task.path] for task in tasks]


def _worker(task: _Task) -> Ingested:
    store = open_store(task.store)
    return _ingest_one(task, store, _chosen(task.format), True, report)


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


@dataclass(frozen=True)
class _Passed:
    """A stream that was read to its end: hashes of all raw bytes and of those up to the last line's end, how many they
    are, and the last line, if it has no end, with its place.
    """

    digest: str
    digest_of_lines: str
    end: int
    last: bytes
    place: int


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
        collector, tally = Collector(attempt), Tally()
        digest, size = self.file.digest(), self.file.size
        for outcome in map(storable, format.read(self.file)):
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
        stream = self._stream_read()
        path = self.file.plain_path if stream.reader.reads_files else None
        if path is not None and self.file.size - at.start > _RANGED_BYTES:
            passed = self._pass_ranges(stream, path, at.start)
        else:
            passed = self._pass_blocks(stream, at.start)
        source = at.source_id or _source_id(self.task.path, passed.digest)
        whole = replace(at, source_id=source, content_hash=passed.digest, end=passed.end)
        if not passed.last or self.file.compressed:
            if passed.last:
                stream.feed(passed.last, passed.place)
            return self._commit_stream(stream, whole)
        end = passed.end - len(passed.last)
        tail = replace(whole, start=end, tail=True)
        result = None
        if end > at.start:
            result = self._commit_stream(stream, replace(whole, content_hash=passed.digest_of_lines, end=end))
            tail = replace(tail, replaces=())
        rest = self._stream_read()
        rest.feed(passed.last, passed.place)
        part = self._commit_stream(rest, tail)
        return part if result is None else _sum(result, part)

    def _pass_blocks(self, stream: StreamRead, start: int) -> _Passed:
        """Feed a stream of any kind, block by block."""
        hashing = Hashing(self.file.raw())
        last, place = b"", start
        with hashing:
            content = self.file.decompressed(cast(BinaryIO, hashing))
            while start > hashing.count and content.read(min(1 << 20, start - hashing.count)):
                pass
            for block, offset in blocks(content, start, progress=self._report):
                cut = block.rfind(b"\n") + 1
                if cut:
                    stream.feed(block[:cut], offset)
                last, place = block[cut:], offset + cut
            digest = hashing.finish()
        return _Passed(digest, hashing.whole_lines, hashing.count, last, place)

    def _pass_ranges(self, stream: StreamRead, path: str, start: int) -> _Passed:
        """Let counters read a plain local file by themselves, while it is hashed beside them."""
        with open(path, "rb", buffering=0) as raw, ThreadPoolExecutor(1) as beside:
            file = raw.fileno()
            size = os.fstat(file).st_size
            place = last_line_end(file, start, size)
            hashed = beside.submit(digests, path, (place, size))
            try:
                for count in stream.read_file(file, start, place):
                    self._report(count)
            except OSError as error:
                if os.fstat(file).st_size < place:
                    raise InputError(f"{printable(path)}: became shorter while it was read") from error
                raise
            last = os.pread(file, size - place, place)
            digest_of_lines, digest = hashed.result()
        return _Passed(digest, digest_of_lines, size, last, place)

    def _report(self, count: int) -> None:
        if self._progress:
            self._progress(self.task.path, count)

    def _stdin(self) -> Ingested:
        """Standard input: a new source per call, committed every few seconds so that a live store can be looked at."""
        source = _source_id("-", secrets.token_hex(8))
        raw = self.file.raw()
        stream, total = self._stream_read(), Ingested("-", "new")
        start, read, rest, last_commit = 0, 0, b"", time.monotonic()
        while data := _available(raw):
            block, rest = _cut(rest + data)
            if block:
                stream.feed(block, read)
                read += len(block)
            if read > start and time.monotonic() - last_commit > _LIVE_SECONDS:
                stretch = _Stretch(source, self.task.run, f"{source}-{read}", start, read)
                total = _sum(total, self._commit_stream(stream, stretch, end_of_stream=False))
                start, last_commit, stream = read, time.monotonic(), self._stream_read(stream.reader)
        if rest:
            stream.feed(rest, read)
        end = read + len(rest)
        stretch = _Stretch(source, self.task.run, f"{source}-end", start, end)
        total = _sum(total, self._commit_stream(stream, stretch))
        return replace(total, seconds=time.monotonic() - self._started)

    def _stream_read(self, reader: LineReader | None = None) -> StreamRead:
        return StreamRead(self.store.attempt(), self.formats, self.task.threads, reader)

    def _commit_stream(self, stream: StreamRead, at: _Stretch, end_of_stream: bool = True) -> Ingested:
        stream.finish(end_of_stream)
        tally = stream.tally
        pid, pid_from = tally.process(self.file.pid_in_name)
        ended = "in the middle of a line" if at.tail and tally.units["reject"] else None
        values = {"pid": pid, "pid_from": pid_from, "ended": ended, "bytes": stream.bytes}
        return self.commit(stream.attempt, at, tally, format=tally.languages or FOREIGN, **values)

    def commit(self, attempt: Attempt, at: _Stretch, tally: Tally, **values: Any) -> Ingested:
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
            problems=tally.problems,
            calls=tally.calls,
        )


def record(store: Store, records: Iterable[Record], *, run: str, name: str, format: str) -> str:
    """Commit records that no file holds (a replay's measurements and the facts they were made under) as one source.

    Returns the source's id.  Everything is visible at once or not at all.
    """
    attempt, tally = store.attempt(), Tally()
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
