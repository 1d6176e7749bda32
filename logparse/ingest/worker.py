"""Read one input file into the store: recognise its format, read all of it or only the part that was added since."""

from __future__ import annotations

import codecs
import io
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from operator import add
from typing import Any, BinaryIO, cast

from logparse.errors import InputError, LogparseError, UsageError
from logparse.executors.executor import report
from logparse.ingest.input_file import HEAD_BYTES, Cut, Digest, Hashing, InputFile, last_line_end, source_id
from logparse.ingest.lines import LineReader, blocks, has_continuation, has_long_line, whole_commands
from logparse.ingest.process_of_file import UNKNOWN, Process, is_process, numbers_in
from logparse.ingest.schedule import Ingested, JointTask, Several, Task
from logparse.ingest.stream import StreamRead, Tally
from logparse.libraries import FORMATS
from logparse.libraries.kinds.format import TRACE_ID, UNITS, FileFormat, Format, Outcome, stated_of
from logparse.libraries.kinds.patterns import regex
from logparse.location import make_absolute
from logparse.model import Fact, Reject
from logparse.store import Store, open_store
from logparse.store.collector import Collector
from logparse.store.columns import table as arrow_table
from logparse.store.copies import identity
from logparse.store.joint import JointAttempts
from logparse.store.parts import Attempt
from logparse.store.schema import COMMIT_SCHEMA, FOREIGN, Commit
from logparse.store.storable import describe, storable
from logparse.text import make_printable

_NOTEBOOK = regex(rb'\s*\{\s*"cells"\s*:\s*\[')
_UNPACK = "unpack the archive, and ingest the folder"
_UNREAD: Mapping[str, tuple[str, Callable[[bytes], bool]]] = {
    "a tar archive": (_UNPACK, lambda data: data[257:262] == b"ustar"),
    "a zip archive": (_UNPACK, lambda data: data.startswith(b"PK\x03\x04")),
    "UTF-16 (Windows PowerShell writes it)": (
        "convert the file with `iconv -f UTF-16 -t UTF-8`",
        lambda data: data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)),
    ),
    "a container's log as Docker stores it": (
        "print the log's text with `docker logs` or `jq -j .log`",
        lambda data: data.startswith((b'{"log":"', b'{"log": "')),
    ),
    "a Jupyter notebook": (
        "print the output of the notebook's cells with `jq -rj '.cells[].outputs[]?.text[]?'`",
        lambda data: _NOTEBOOK.match(data) is not None,
    ),
}
"""Kinds of files that cannot be read as lines. Each has a test of its first bytes and advice for the user.

For example, if an archive was read as lines, the names of its files would be lost, and most records would be damaged.
"""
_CUT = "the compressed file is cut off before its end"
_LIVE_SECONDS = 3.0
_RANGED_BYTES = 16 << 20


def formats_named(name: str | None) -> Sequence[Format]:
    """Return the format with this name in a list, or all formats if no name is given.

    Raises UsageError if the name is unknown.
    """
    if name is None:
        return FORMATS
    named = [f for f in FORMATS if f.name == name.replace("_", "-")]  # accepts the spelling with _, used until 2026
    if not named:
        raise UsageError(f"--as {name!r}: unknown format; the formats are {', '.join(f.name for f in FORMATS)}")
    return named


class Reader:
    """Reads input files into the store. An object of this class is called like a function, also in another process.

    When the object is sent to another process (pickled), it holds the store's URL instead of the store.
    """

    def __init__(self, store: Store, run: str, format: str | None) -> None:
        self.run, self.format = run, format
        self.began = time.time()
        self._store: Store | None = store
        self._url = make_absolute(store.url)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_store": None}

    @property
    def store(self) -> Store:
        if self._store is None:
            self._store = open_store(self._url)
        return self._store

    def __call__(self, task: Task | JointTask) -> Ingested | Several:
        """Read the file of a task, or the several files of a task.

        If a file fails, its result is the error, and the other files are still read.
        """
        return self.read(task) if isinstance(task, Task) else self._several(task)

    def _several(self, tasks: Sequence[Task]) -> Several:
        """Read a group of small files, and store their rows together in the same Parquet files.

        At the end the rows of all these files become visible.
        """
        joint = self.store.joint_attempts()
        results = [self.read(task, joint) for task in tasks]
        try:
            rows, states = joint.commit()
        except (LogparseError, OSError) as error:
            why = str(getattr(error, "strerror", None) or error)
            rows, states = arrow_table([], COMMIT_SCHEMA), dict.fromkeys((task.path for task in tasks), why)
        return Several(tuple(_make_final_result(one, states.get(one.path, True)) for one in results), rows)

    def read(self, task: Task, joint: JointAttempts | None = None) -> Ingested:
        try:
            return _Input(self, task, (joint or self.store).attempt).do()
        except LogparseError as error:
            return Ingested(task.path, "failed", error=str(error))
        except (OSError, EOFError) as error:
            reason = getattr(error, "strerror", None) or error
            return Ingested(task.path, "failed", error=f"{make_printable(task.path)}: {reason}")
        except Exception as error:  # the content of this file triggers a bug of this program
            return Ingested(task.path, "failed", error=f"{make_printable(task.path)}: {type(error).__name__}: {error}")


def _make_final_result(result: Ingested, state: str | bool) -> Ingested:
    """Return the final result for a file, after its rows were written or could not be written.

    ``state`` is True if the rows were new, False if the store had them, or the reason for a failure.
    """
    if isinstance(state, str) and result.state in ("new", "grown"):
        return Ingested(result.path, "failed", error=f"{make_printable(result.path)}: {state}")
    return result if state else replace(result, state="unchanged")


@dataclass(frozen=True)
class _Passed:
    """The hashes, the size and the last line of a log, after it was read to its end.

    * ``digest`` is the hash of all bytes of the file, and ``end`` is their number.
    * ``digest_of_lines`` is the hash up to the end of the last complete line.
    * ``content`` is the hash of the unpacked bytes.
    * ``last`` is the last line if it has no line end, and ``place`` is its position.
    """

    digest: str
    digest_of_lines: str
    content: str
    end: int
    last: bytes
    place: int


class _Input:
    """Reads one input file into the store."""

    def __init__(self, reader: Reader, task: Task, attempt: Callable[[], Attempt]) -> None:
        self.task = task
        self.run, self.began = reader.run, reader.began
        self.store = reader.store
        self.attempt = attempt
        self.file = InputFile(task.path, until_cut=True)
        self.formats = formats_named(reader.format)
        self._started = time.monotonic()

    def do(self) -> Ingested:
        """Read the file and store its records. If the store already has the file's beginning, only read the rest."""
        if self.task.path == "-":
            return self._stdin()
        size = self.file.size
        earlier = self.store.commits_of(self.task.path, self.task.known)
        at = self._continuation(earlier, size)
        if at is None:
            return Ingested(self.task.path, "unchanged", earlier[-1].format, earlier[-1].run)
        result = self._read(at)
        state = result.state if result.state == "unchanged" else "grown" if at.source_id else "new"
        return replace(result, state=state)

    def _read(self, at: Commit) -> Ingested:
        file_format = self._file_format() if at.start == 0 else None
        return self._whole_file(file_format, at) if file_format else self._stream(at)

    def _continuation(self, earlier: Sequence[Commit], size: int) -> Commit | None:
        """Decide where to begin reading a file that may have been read before. Return None if the store has all of it.

        * The result has the position in ``start``. The result is an incomplete commit (the record that a part of the
          file was read).
        * A file has grown if it is longer and the bytes that the store knows are unchanged. Then only new lines are
          read.
        * Compressed files, and formats that need the whole file, are read again from the start.
        """
        if earlier:
            mine = [row for row in earlier if row.source_id == earlier[-1].source_id]
            latest = max(mine, key=lambda row: row.end)
            if size >= latest.end and self.file.digest(latest.end) == latest.content_hash:
                if size == latest.end:
                    return None
                again = latest.whole or self.file.compressed
                stale = tuple(row.attempt for row in mine if again or row.tail)
                start = 0 if again else max((row.end for row in mine if not row.tail), default=0)
                return self._row(source_id=latest.source_id, run=latest.run, start=start, replaces=stale)
        return self._row()

    def _file_format(self) -> FileFormat | None:
        candidates = [f for f in self.formats if isinstance(f, FileFormat)]
        if len(self.formats) == 1:
            return candidates[0] if candidates else None
        head = self.file.head()
        for kind, (remedy, is_one) in _UNREAD.items():
            if is_one(head.data):
                raise InputError(f"{make_printable(self.task.path)}: {kind}: {remedy}")
        return next((f for f in candidates if f.recognise(head)), None)

    def _whole_file(self, format: FileFormat, at: Commit) -> Ingested:
        attempt = self.attempt()
        collector, tally = Collector(attempt), Tally()
        size, pids, traces = self.file.size, set[str](), set[str]()
        device: dict[str, str] = {}
        with ThreadPoolExecutor(1) as beside:
            hashed = beside.submit(self._digests, size)
            for read in format.read(self.file):
                facts = [fact for fact in read.records if isinstance(fact, Fact)]
                describe(device, facts)
                outcome = storable(read, device)
                tally.add(outcome)
                pids |= {fact.value for fact in facts if fact.name == "pid"}
                traces |= {fact.value for fact in facts if fact.name == TRACE_ID}
                collector.add(outcome.records, offset=self.file.mark_bytes + outcome.at)
                collector.add_tables(dict(outcome.tables))
            if self.file.cut is not None:
                rest = _rest_of(self.file.cut)
                tally.add(Outcome("reject", [rest]))
                collector.add([rest], offset=self.file.mark_bytes + self.file.cut.offset)
            collector.flush()
            digest, content = hashed.result()
        tally.count_problems(collector)
        self._report(size)
        source = at.source_id or source_id(self.task.path, digest)
        ended = None if self.file.cut is None else _CUT
        row = replace(at, source_id=source, content_hash=digest, start=0, end=size, bytes=size, whole=True, ended=ended)
        row = replace(row, format=format.name, **stated_of([format]), **asdict(self._process_of(pids)))
        named = f"{content}:{self.file.name}" if format.named else content
        text = self._identity(named.replace(" ", "_").replace("+", "_"), row)
        if traces:  # no two processes write the same trace
            text = identity("+".join([*sorted(traces), content]), self.began)
        return self._commit(attempt, replace(row, identity=text), tally)

    def _digests(self, size: int) -> tuple[str, str]:
        """Return the hash of the first ``size`` raw bytes, and the hash of the unpacked content."""
        digest = self.file.digest(size)
        return digest, self.file.content_digest() if self.file.compressed else digest

    def _identity(self, content: str, row: Commit) -> str | None:
        """Return a text by which copies of this file can be recognised later. Returns None for an empty file.

        ``content`` is the hash of the file's content.
        """
        if not row.end:
            return None
        if row.pid_from in ("prefix", "fact"):  # the content names the process
            return identity(content, self.began)
        stated = row.pid_from == "option" and row.pid is not None
        numbers = [row.pid or 0] if stated else numbers_in(self.task.path)
        return identity(content, self.began, self.file.packed, numbers)

    def _process_of(self, facts: set[str]) -> Process:
        """Return the number of the process that wrote the file.

        If the file states exactly one fact ``pid`` and it is a number, this is the process. Otherwise it is the user's
        ``--pid``, if given.
        """
        pid = next(iter(facts)) if len(facts) == 1 else ""
        if is_process(pid):
            return Process(int(pid), "fact")
        return self.task.process if self.task.process.pid_from == "option" else UNKNOWN

    def _stream(self, at: Commit) -> Ingested:
        """Read a log, whose lines may have several formats, and make its rows visible in the store.

        If the last line has no line end, it is stored separately, because it may still grow.
        """
        stream = self._stream_read()
        passed = self._pass_ranges(stream, at.start) or self._pass_blocks(stream, at.start)
        if passed.last and self.file.compressed:
            stream.feed(passed.last, passed.place)
            passed = replace(passed, last=b"")
        if self.file.cut is not None:
            stream.reject(_rest_of(self.file.cut), self.file.mark_bytes + self.file.cut.offset)
        source = at.source_id or source_id(self.task.path, passed.digest)
        whole = replace(at, source_id=source, content_hash=passed.digest, end=passed.end, identity=passed.content)
        if not passed.last:
            return self._commit_stream(stream, whole)
        rest = self._stream_read()
        rest.feed(passed.last, passed.place)
        end = passed.end - len(passed.last)
        tail = replace(whole, start=end, tail=True)
        if end <= (at.start or self.file.mark_bytes):
            return self._commit_stream(rest, replace(tail, start=at.start))
        own = passed.digest_of_lines
        lines = self._commit_stream(stream, replace(whole, content_hash=own, end=end, identity=own))
        return _sum(lines, self._commit_stream(rest, replace(tail, replaces=())))

    def _pass_blocks(self, stream: StreamRead, start: int) -> _Passed:
        """Read any log, also a compressed one, one block at a time, and compute its hash on the way.

        Returns the hashes, the size, and the last line if it has no line end.
        """
        # A faster way exists only for large local files.
        hashing = Hashing(self.file.raw(), lambda count: self._report(count) if hashing.count > start else None)
        last, place = b"", start
        marked = self.file.mark_bytes
        with hashing:
            content = self.file.decompressed(cast(BinaryIO, hashing))
            unpacked = Hashing(content, lambda count: None, before=self.file.mark) if self.file.compressed else None
            content = cast(BinaryIO, unpacked or content)
            skip = start - marked if start else 0
            while skip and (data := content.read(min(1 << 20, skip))):
                skip -= len(data)
            for block, offset in blocks(content, start or marked, long=stream.reject_long):
                cut = whole_commands(block)
                if cut:
                    stream.feed(block[:cut], offset)
                last, place = block[cut:], offset + cut
            digest = hashing.finish()
        inner = unpacked.finish() if unpacked else digest
        # ``last`` may be several lines of one command that continues behind backslashes.
        lines = self.file.digest(place) if b"\n" in last and not self.file.compressed else hashing.whole_lines
        return _Passed(digest, lines, inner, hashing.count, last, place)

    def _pass_ranges(self, stream: StreamRead, start: int) -> _Passed | None:
        """Read a large local file fast: code in C reads it with several threads, and computes its hash.

        Returns None, and reads nothing, if the file is small, compressed or remote, or may have too long a line.
        """
        path = self.file.plain_path if stream.reader.reads_files else None
        if path is None or self.file.size - start <= _RANGED_BYTES:
            return None
        with open(path, "rb", buffering=0) as raw:
            file = raw.fileno()
            size = os.fstat(file).st_size
            # The code in C would keep the whole line in memory.
            if has_long_line(file, start, size) or has_continuation(file):
                return None
            place = last_line_end(file, start, size)
            try:
                for count in stream.read_file(file, min(start or self.file.mark_bytes, place), place):
                    self._report(count)
            except OSError as error:
                if os.fstat(file).st_size < place:
                    raise InputError(
                        f"{make_printable(path)}: became shorter while it was read; ingest it again"
                    ) from error
                raise
            last = os.pread(file, size - place, place)
        pieces = stream.reader.hashes
        digest = self.file.digest(size, pieces)
        return _Passed(digest, self.file.digest(place, pieces), digest, size, last, place)

    def _report(self, count: int) -> None:
        report(self.task.path, count)

    def _stdin(self) -> Ingested:
        """Read standard input and store its content. Each time it is stored as a new input."""
        source = source_id("-", os.urandom(8).hex())
        raw = _Available(self.file.raw())
        self.file = self.file.kept(io.BytesIO(raw.first))
        if self.file.compressed or self._file_format():
            self.file = self.file.kept(cast(BinaryIO, raw))
            total = self._read(self._row(source_id=source))
        else:
            total = self._live(raw, source)
        content = raw.digest.hexdigest()
        same = [row for row in self.store.commits_of("-") if row.content_hash.split("-")[0] == content]
        before = {row.run: "" for row in same if row.source_id != source and row.run != self.run}
        again = f"this stream is also in run {', '.join(before)}"
        again = again if before and raw.count else ""
        return replace(total, state="new", remark=again)

    def _live(self, raw: _Available, source: str) -> Ingested:
        """Read lines from standard input while another program still writes them.

        The lines are stored every few seconds, so that the user can already query them.
        """
        stream, total = self._stream_read(), Ingested("-", "new")
        start, last_commit = 0, time.monotonic()

        def reject_long(first: bytes, offset: int, length: int) -> None:
            stream.reject_long(first, offset, length)  # uses the current stream: each commit begins a new one

        for block, offset in blocks(cast(BinaryIO, raw), raw.mark_bytes, long=reject_long):
            stream.feed(block, offset)
            read = offset + len(block)
            if time.monotonic() - last_commit > _LIVE_SECONDS:
                at = self._row(source_id=source, content_hash=f"{source}-{read}", start=start, end=read)
                total = _sum(total, self._commit_stream(stream, at, end_of_stream=False))
                start, last_commit, stream = read, time.monotonic(), self._stream_read(stream.reader)
        content = f"{raw.digest.hexdigest()}-{raw.count}"
        own = raw.digest.hexdigest()
        at = self._row(source_id=source, content_hash=content, start=start, end=raw.count, identity=own)
        return _sum(total, self._commit_stream(stream, at))

    def _stream_read(self, reader: LineReader | None = None) -> StreamRead:
        return StreamRead(self.attempt(), self.formats, self.task.threads, reader, head=self.file.head().data)

    def _commit_stream(self, stream: StreamRead, at: Commit, end_of_stream: bool = True) -> Ingested:
        stream.finish(end_of_stream)
        tally = stream.tally
        ended = "in the middle of a line" if at.tail and tally.units["reject"] else None
        ended = _CUT if self.file.cut is not None else ended
        values = asdict(tally.process() or self.task.process)
        names = set(tally.formats.split("+"))
        values |= stated_of(format for format in self.formats if format.name in names)
        row = replace(at, format=tally.formats or FOREIGN, ended=ended, bytes=stream.bytes, **values)
        row = replace(row, identity=self._identity(at.identity, row) if at.identity else None)
        return self._commit(stream.attempt, row, tally)

    def _row(self, run: str = "", **values: Any) -> Commit:
        """Return the beginning of the entry in the store which says that this file was read.

        ``values`` are further fields of the entry.
        """
        return Commit(run=run or self.run, path=self.task.path, **values)

    def _commit(self, attempt: Attempt, at: Commit, tally: Tally) -> Ingested:
        row = replace(
            at,
            attempt=attempt.name,
            lines=tally.lines,
            splits=tally.splits,
            units={**tally.units},
            bench_output=tally.bench_output,
            committed_at=time.time(),
            seconds=time.monotonic() - self._started,
            readable=True,
        )
        return Ingested(
            row.path,
            "new" if attempt.commit(row) else "unchanged",
            row.format,
            row.run,
            lines=row.lines,
            counts=tuple(tally.units[unit] for unit in UNITS),
            problems=tally.problems,
            calls=tally.calls,
        )


def _rest_of(cut: Cut) -> Reject:
    """Return a record that says how much was lost because a compressed file ends too early."""
    reason = f"the compressed file is cut, so its content behind byte {cut.offset:,} is lost"
    return Reject(reason, 0, cut.length)


def _sum(one: Ingested, two: Ingested) -> Ingested:
    return replace(
        two,
        format=two.format if one.format in ("", FOREIGN) else one.format,
        lines=one.lines + two.lines,
        counts=tuple(map(add, one.counts, two.counts)),
        problems=max(one.problems, two.problems),
        calls=one.calls + two.calls,
    )


class _Available:
    """Standard input as a stream. While it is read, its bytes are hashed and counted.

    A byte order mark at its start is skipped. ``first`` holds the first line and all that came with it. ``read``
    returns these bytes, too.
    """

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self.digest = Digest()
        self.count = 0
        self.first = b""
        while b"\n" not in self.first and len(self.first) < HEAD_BYTES and (data := self._now(HEAD_BYTES)):
            self.first += data
        self._again = self.first
        self.mark_bytes = len(codecs.BOM_UTF8) if self.first.startswith(codecs.BOM_UTF8) else 0

    def read(self, size: int) -> bytes:
        """Wait for more of standard input, and return the bytes that have arrived. Returns no bytes at the end."""
        marked = 0 if self.count else self.mark_bytes
        data, self._again = self._again or self._now(size), b""
        self.digest.update(data)
        self.count += len(data)
        return data[marked:]

    def _now(self, size: int) -> bytes:
        return bytes(self._raw.read1(size)) if isinstance(self._raw, io.BufferedReader) else self._raw.read(1 << 16)
