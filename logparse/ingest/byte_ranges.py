"""A large plain file in ranges: each is read by itself, on any node, and one commit makes all of them visible.

A line belongs to the range in which it begins.  Its counts depend on no other range; only block formats need order (see
``formats.format``).  So a range does not pass lines to their readers, and notes where lines with their markers are; the
commit of the file reads those places once more, in order, and on from there while a block is open.  In the logs that
grow large they are few.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from logparse.errors import InputError
from logparse.formats.format import UNITS, BlockFormat, FileFormat, Format, Line, Outcome, Unit
from logparse.ingest.input_file import Digest, InputFile
from logparse.ingest.lines import PIECE_BYTES, LineReader, Read, blocks
from logparse.ingest.process_of_file import Process
from logparse.ingest.stream import StreamRead, Tally
from logparse.model import Record
from logparse.store import Store
from logparse.store.parts import Attempt
from logparse.text import printable

LEAST_BYTES, MOST_BYTES = 1 << 30, 4 << 30
"""Size of a range: each reads the distinct lines anew and writes its own parts, and a lost worker loses its range."""
_SCAN_BYTES = 64 << 10
_MANY_PROBLEMS = 1 << 20

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Counts:
    """A ``Tally`` that can be pickled and added to others."""

    lines: int = 0
    splits: int = 0
    units: dict[Unit, int] = field(default_factory=dict)
    calls: int = 0
    problems: int = 0
    formats: str = ""
    bench_output: bool = False
    processes: frozenset[int | None] = frozenset()  # those that prefixes name; None: several

    @classmethod
    def of(cls, tally: Tally) -> Counts:
        process = tally.process()
        return cls(
            lines=tally.lines,
            splits=tally.splits,
            units={**tally.units},
            calls=tally.calls,
            problems=tally.problems,
            formats=tally.formats,
            bench_output=tally.bench_output,
            processes=frozenset([process.pid] if process else []),
        )

    def process(self) -> Process | None:
        """See ``Tally.process``."""
        return (
            Process(next(iter(self.processes)) if len(self.processes) == 1 else None, "prefix")
            if self.processes
            else None
        )


def total(counts: Sequence[Counts], problems: int) -> Counts:
    """The sum of the counts, with ``problems`` as the number of distinct problems."""
    return Counts(
        lines=sum(one.lines for one in counts),
        splits=sum(one.splits for one in counts),
        units={unit: sum(one.units[unit] for one in counts) for unit in UNITS},
        calls=sum(one.calls for one in counts),
        problems=problems,
        formats="+".join(sorted({name for one in counts for name in one.formats.split("+") if name})),
        bench_output=any(one.bench_output for one in counts),
        processes=frozenset().union(*(one.processes for one in counts)),
    )


@dataclass(frozen=True, slots=True)
class RangeRead:
    """A range of a file that an attempt has read.

    ``pieces``: hashes of its pieces; ``marked``: spans with lines that bear markers of block formats; ``unended``:
    where the file's last line begins, if it has no end and begins in this range.
    """

    start: int
    attempt: str
    parts: Sequence[str]
    counts: Counts
    pieces: Sequence[bytes]
    marked: Sequence[Span]
    unended: int | None
    seconds: float


def cut(size: int, cores: int, together: int) -> list[Span]:
    """The ranges in which ``cores`` cores read a file; empty where one node's cores, ``together``, read it as fast.

    Ranges begin at multiples of ``PIECE_BYTES``.
    """
    if cores <= together or size <= together * LEAST_BYTES:
        return []
    length = max(LEAST_BYTES, min(MOST_BYTES, size // cores))
    length += -length % PIECE_BYTES
    return [(start, min(start + length, size)) for start in range(0, size, length)]


def read_range(
    file: InputFile, attempt: Attempt, formats: Sequence[Format], span: Span, size: int, report: Callable[[int], None]
) -> RangeRead:
    """Read the lines that begin in ``span`` of a file of ``size``, except a last line without its end: it may grow.

    Raises OSError, and InputError when the file has become shorter.
    """
    started, (start, end), marks, unended = time.monotonic(), span, _Marks(), None
    formats = [marks.instead(f) if isinstance(f, BlockFormat) else f for f in formats]
    stream = StreamRead(attempt, formats, head=file.head().data)
    with file.seekable() as raw:
        begin, stop = (_line_start(file, raw, at, size) for at in span)
        passing = _Passing(file, raw, start, stop, hashed=end, report=report)
        while passing.at < min(begin, end):  # the rest of a line that begins before the span
            passing.read(min(begin, end) - passing.at)
        lines = blocks(cast(BinaryIO, passing), begin, long=stream.reject_long) if begin < end else ()
        for block, offset in lines:
            whole = block.rfind(b"\n") + 1
            if whole:
                stream.feed(block[:whole], offset)
                marks.passed(offset, offset + whole)
            if whole < len(block):
                unended = offset + whole
    stream.finish()
    return RangeRead(
        start=start,
        attempt=attempt.name,
        parts=tuple(attempt.parts()),
        counts=Counts.of(stream.tally),
        pieces=passing.digest.pieces,
        marked=marks.spans,
        unended=unended,
        seconds=time.monotonic() - started,
    )


def read_marked(file: InputFile, attempt: Attempt, formats: Sequence[Format], spans: Sequence[Span], end: int) -> Tally:
    """Read what block formats claim of a file's lines up to ``end``, after ranges have counted these lines.

    Claimed lines are subtracted from the foreign and blank ones, so that this tally and the ranges' counts add up.
    """
    reader = _InOrder([f for f in formats if not isinstance(f, FileFormat)])
    stream = StreamRead(attempt, formats, reader=reader)
    with file.seekable() as raw:
        for (start, stop), (limit, _) in pairwise([*spans, (end, end)]):
            passing = cast(BinaryIO, _Passing(file, raw, start, limit))
            for block, offset in blocks(passing, start, long=lambda *_: None):  # a range has rejected it
                if offset >= stop and not reader.awake:
                    break
                stream.feed(block, offset)
    stream.finish()
    return stream.tally


def digest_until(file: InputFile, pieces: Sequence[bytes], end: int) -> str:
    """The hash of a file's bytes up to ``end``, from the hashes of its first pieces.  Raises OSError."""
    whole = min(end // PIECE_BYTES, len(pieces))  # a last line without its end may be longer than a piece
    digest = Digest(pieces[:whole])
    with file.seekable() as raw:
        passing = _Passing(file, raw, whole * PIECE_BYTES, end)
        while data := passing.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()


def distinct_problems(store: Store, parts: Iterable[str], counts: Sequence[Counts]) -> int:
    """The number of distinct problems in parts; a lower bound where there are very many."""
    if sum(one.problems for one in counts) > _MANY_PROBLEMS:
        return max(one.problems for one in counts)
    tables = tuple(f"{store.root}/{table}/" for table in ("gemms", "convs"))
    paths = [path for path in parts if path.startswith(tables)]
    files = (pq.ParquetFile(path, filesystem=store.filesystem) for path in paths)
    texts = [chunk for part in files for chunk in part.read(["problem"])["problem"].cast(pa.string()).chunks]
    return len(pa.chunked_array(texts, pa.string()).unique())  # this imports pyarrow.compute, which other paths avoid


class _Passing:
    """A stream of the bytes ``at`` to ``stop`` of a file; it hashes and reports those before ``hashed``."""

    def __init__(
        self,
        file: InputFile,
        raw: BinaryIO,
        at: int,
        stop: int,
        hashed: int = 0,
        report: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._file, self._raw, self._stop, self._hashed, self._report = file, raw, stop, hashed, report
        self.at = at
        self.digest = Digest()
        raw.seek(at)

    def read(self, size: int) -> bytes:
        wanted = min(size, self._stop - self.at)
        data = self._raw.read(wanted) if wanted else b""
        if wanted and not data:
            raise InputError(f"{printable(self._file.path)}: became shorter while it was read")
        mine = memoryview(data)[: max(0, self._hashed - self.at)]
        if mine:
            self.digest.update(mine)
            self._report(len(mine))
        self.at += len(data)
        return data


def _line_start(file: InputFile, raw: BinaryIO, at: int, size: int) -> int:
    """The place of the first line that begins at ``at`` or later; ``size`` if there is no such line."""
    if not at:
        return 0
    passing = _Passing(file, raw, at - 1, size)
    while data := passing.read(_SCAN_BYTES):
        end = data.find(b"\n")
        if end >= 0:
            return passing.at - len(data) + end + 1
    return size


class _Marks:
    """Stands in for the readers of all block formats: claims no line, and notes which blocks held lines for them."""

    awake = False

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._asked = False

    def instead(self, format: BlockFormat) -> BlockFormat:
        return replace(format, begin=lambda: self)

    def passed(self, start: int, stop: int) -> None:
        """Note ``start`` to ``stop`` as marked, if a line was offered since the last call."""
        if self._asked and self.spans and self.spans[-1][1] == start:
            self.spans[-1] = (self.spans[-1][0], stop)
        elif self._asked:
            self.spans.append((start, stop))
        self._asked = False

    def take(self, line: Line) -> Outcome | None:
        self._asked = True
        return None

    def close(self) -> Iterable[Record]:
        return ()


class _InOrder(LineReader):
    """A reader that returns only what block formats claim, and subtracts it from the foreign and blank lines."""

    @property
    def awake(self) -> bool:
        return self._awake

    def take(self, *, all: bool = True) -> Read:
        claimed = [line for line in super().take(all=all).claimed if line.format]
        blank = sum(not line.raw.strip() for line in claimed)
        return Read(claimed=claimed, foreign=blank - len(claimed), blank=-blank)
