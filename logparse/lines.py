"""Bytes to distinct lines with counts, clocks and places: the fast path, and the only clever code.

Jobs repeat a few hundred problems millions of times, so a line is read by its format once per *distinct* text.  What
differs from call to call is taken off first: the clock and the process of ``[date time][LIB][n]`` prefixes, and
addresses (``0x7f…`` becomes ``0x@``; NULL, ``0`` or ``0x0``, stays: it means that there is no bias, no algo …).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from logparse.formats.format import BlockFormat, BlockReader, Line, LineFormat, Outcome, Unit
from logparse.model import Record, Reject

BLOCK_BYTES = 8 << 20
_DISTINCT_LIMIT = 50_000
_CLOCK = rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\](\[[A-Za-z]+\])(?:\[(\d+)\])?(?=\[[A-Za-z]+\])"
_PREFIX = re.compile(_CLOCK)
# An address has at least five digits (nothing is mapped below 64 KiB); shorter numbers are values, as bufData=0x6f is.
_ADDRESS = re.compile(rb"0[xX](?=0*[1-9a-fA-F])[0-9a-fA-F]{5,16}(?![0-9a-zA-Z])")
_WINDOWS_ADDRESS = re.compile(rb"(?<==)[0-9A-F]{16}(?![0-9a-zA-Z])")
_TORN = "torn: another record begins inside this line"


@dataclass(slots=True)
class Distinct:
    """A distinct line of one language: its text without clock, process and addresses, and where it stood."""

    format: LineFormat
    text: str
    offset: int
    raw: bytes
    wakes: tuple[int, ...] = ()
    places: dict[tuple[bytes, bytes], int] = field(default_factory=dict)  # (clock text, third bracket) -> count

    @property
    def count(self) -> int:
        return sum(self.places.values())


@dataclass(slots=True)
class Read:
    """What a stretch of a stream gave: outcomes of block languages, torn pieces, and distinct lines to read."""

    outcomes: list[tuple[Outcome, bytes, str]] = field(default_factory=list)  # with the raw line and the language
    distinct: list[Distinct] = field(default_factory=list)
    foreign: int = 0
    blank: int = 0
    lines: int = 0
    splits: int = 0


class LineReader:
    """Reads one stream block by block; ``feed`` takes whole lines, ``close`` ends it."""

    def __init__(self, formats: Sequence[LineFormat | BlockFormat]) -> None:
        self._records = [f for f in formats if isinstance(f, LineFormat)]
        blocks = [f for f in formats if isinstance(f, BlockFormat)]
        self._blocks: list[tuple[BlockFormat, BlockReader]] = [(f, f.begin()) for f in blocks]
        starts = b"|".join(b"(?P<f%d>%s)" % (i, f.start) for i, f in enumerate(self._records))
        self._starts = re.compile(starts) if starts else None
        markers = {marker for f in formats for marker in f.markers}
        self._markers = sorted(markers, key=len)
        self._seen: dict[bytes, Distinct] = {}
        self.read = Read()

    def feed(self, data: bytes, offset: int) -> None:
        """Read whole lines; ``offset`` is the place of ``data`` in the stream."""
        lines = data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        read, seen, place = self.read, self._seen, offset
        read.lines += len(lines)
        present = tuple(marker for marker in self._markers if marker in data)
        for line in lines:
            entry = seen.get(line)
            if entry is not None:
                entry.places[_NOWHERE] = entry.places.get(_NOWHERE, 0) + 1
                if entry.wakes:
                    self._wake(entry.wakes, line, place)
            elif any(marker in line for marker in present):
                self._marked(line, place)
            else:
                self._unmarked(line, place)
            place += len(line) + 1

    def take(self) -> Read:
        """What was read since the last call."""
        out, self.read = self.read, Read()
        out.distinct = list(self._seen.values())
        self._seen = {}
        return out

    @property
    def full(self) -> bool:
        """Whether ``take`` is due, so that memory stays bounded when every line is distinct."""
        return len(self._seen) + len(self.read.outcomes) >= _DISTINCT_LIMIT

    def close(self) -> Iterator[Record]:
        """Records that block languages still hold."""
        for _, reader in self._blocks:
            yield from reader.close()

    def _marked(self, line: bytes, place: int) -> None:
        prefix = _PREFIX.match(line)
        if prefix is not None:
            key = prefix[2] + _masked(line[prefix.end() :].rstrip())
            where = (prefix[1], prefix[3] or b"")
            entry = self._seen.get(key)
            if entry is not None:
                entry.places[where] = entry.places.get(where, 0) + 1
                if entry.wakes:
                    self._wake(entry.wakes, line, place)
                return
        pieces = self._pieces(line)
        if len(pieces) == 1 and pieces[0][0] is not None:
            self._enter(pieces[0][0], line, place)
            return
        if all(format is None for format, _, _ in pieces):
            self._ordered(line, place)
            return
        self.read.splits += len(pieces) - 1
        for number, (format, start, end) in enumerate(pieces):
            piece = line[start:end]
            if format is None:
                if any(marker in piece for marker in self._markers):
                    self._torn(piece, place + start)
                else:
                    self.read.foreign += 1
            elif number + 1 < len(pieces):
                self._torn(piece, place + start)
            else:
                self._enter(format, piece, place + start)

    def _pieces(self, line: bytes) -> list[tuple[LineFormat | None, int, int]]:
        """The stretches of a line, each with the format whose record begins there (None: of nobody)."""
        if self._starts is None:
            return [(None, 0, len(line))]
        found = [(self._records[_group(match)], match.start()) for match in self._starts.finditer(line)]
        if not found:
            return [(None, 0, len(line))]
        out: list[tuple[LineFormat | None, int, int]] = []
        if line[: found[0][1]].strip():
            out.append((None, 0, found[0][1]))
        ends = [start for _, start in found[1:]] + [len(line)]
        return out + [(format, start, end) for (format, start), end in zip(found, ends, strict=True)]

    def _enter(self, format: LineFormat, line: bytes, place: int) -> None:
        where, key = _NOWHERE, line
        if format.prefixed and (prefix := _PREFIX.match(line)) is not None:
            key = prefix[2] + _masked(line[prefix.end() :].rstrip())
            where = (prefix[1], prefix[3] or b"")
        entry = self._seen.get(key)
        if entry is None:
            wakes = tuple(i for i, (f, _) in enumerate(self._blocks) if any(m in line for m in f.markers))
            text = key.rstrip().decode("utf-8", "backslashreplace")
            entry = self._seen[key] = Distinct(format, text, place, line, wakes)
        entry.places[where] = entry.places.get(where, 0) + 1
        if entry.wakes:
            self._wake(entry.wakes, line, place)

    def _wake(self, wakes: tuple[int, ...], line: bytes, place: int) -> None:
        for i in wakes:
            self._blocks[i][1].take(Line(line.decode("utf-8", "backslashreplace"), place))

    def _unmarked(self, line: bytes, place: int) -> None:
        if any(reader.awake for _, reader in self._blocks):
            self._ordered(line, place)
        elif line.strip():
            self.read.foreign += 1
        else:
            self.read.blank += 1

    def _ordered(self, raw: bytes, place: int) -> None:
        """A line that no record language claims: block readers see it, those whose marker it bears first."""
        line = Line(raw.decode("utf-8", "backslashreplace"), place)
        marked = [block for block in self._blocks if any(m in raw for m in block[0].markers)]
        for format, reader in marked + [block for block in self._blocks if block[1].awake and block not in marked]:
            outcome = reader.take(line)
            if outcome is not None:
                self.read.outcomes.append((outcome, raw, format.name))
                return
        if raw.strip():
            self.read.foreign += 1
        else:
            self.read.blank += 1

    def _torn(self, piece: bytes, place: int) -> None:
        self.read.outcomes.append((Outcome("reject", [Reject(_TORN, 0, len(piece))], at=place), piece, ""))


_NOWHERE = (b"", b"")


def _group(match: re.Match[bytes]) -> int:
    return int((match.lastgroup or "f0")[1:])


def _masked(text: bytes) -> bytes:
    if b"0x" in text or b"0X" in text:
        return _ADDRESS.sub(b"0x@", text)
    return _WINDOWS_ADDRESS.sub(_windows, text)


def _windows(match: re.Match[bytes]) -> bytes:
    return b"0x@" if match[0].strip(b"0") else b"0"


def blocks(
    stream: BinaryIO, offset: int = 0, size: int = BLOCK_BYTES, progress: Callable[[int], None] | None = None
) -> Iterator[tuple[bytes, int]]:
    """Blocks of whole lines with their offsets; the last may lack its line end, a longer line is a block of its own."""
    rest: list[bytes] = []
    while data := stream.read(size):
        if progress:
            progress(len(data))
        cut = data.rfind(b"\n") + 1
        if not cut:
            rest.append(data)
            continue
        block = b"".join([*rest, data[:cut]])
        yield block, offset
        offset += len(block)
        rest = [data[cut:]] if cut < len(data) else []
    if rest:
        yield b"".join(rest), offset


__all__ = ["BLOCK_BYTES", "Distinct", "LineReader", "Read", "Unit", "blocks"]
