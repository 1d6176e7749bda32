"""Read a log quickly: find its distinct lines, and count how often each occurs, when and in which process.

Jobs repeat a few hundred calls millions of times. So a format reads a line only once for each *distinct* text. Texts
that change from call to call are removed first: the clock and the process of ``[date time][LIB][n]`` prefixes, and
addresses. An address such as ``0x7f…`` becomes ``0x@``. NULL, ``0`` and ``0x0`` stay, because they mean that there is
no bias, no algo and so on.

Counters (see ``counting``) do this for blocks of lines, several blocks at a time. It does not matter for the result
which counter counts which block. Block formats (a record of several lines) see the blocks one after the other, because
the order of lines has a meaning there.

A stream may be a *table of counts*, as ``sort | uniq -c`` writes it. Then the number before a line is how often the
line was in the log. Numbers that rise by 1 from line to line are line numbers (``cat -n``). In any other stream a
number before a record is the end of a torn line, and the record behind it is counted once.
"""

from __future__ import annotations

import mmap
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from logparse.ingest import counting
from logparse.libraries.kinds.format import BlockFormat, BlockReader, Line, LineFormat, Outcome
from logparse.libraries.kinds.line_prefixes import mark_length
from logparse.libraries.kinds.patterns import regex
from logparse.model import Record, Reject

if TYPE_CHECKING:
    from logparse.ingest._lines import Counter as NativeCounter

PIECE_BYTES = 4 << 20
"""Number of bytes of a file that are hashed at a time.

Parts of a file that begin at multiples of this number can be hashed independently.
"""
LONGEST_BYTES = 64 << 20
"""Maximum bytes of a line. A longer line is rejected, and its bytes are skipped."""
_EXCERPT_BYTES = 1024
# A block of this size fits into caches, and into memory that the allocator reuses instead of mapping it anew.
BLOCK_BYTES = 1 << 20
_HELD_BYTES = 10 << 20  # maximum bytes of distinct lines and cells in one counter until they are taken
_HELD_CLAIMED = 20_000
_RANGE_BYTES = (8 << 20, 256 << 20)  # minimum and maximum bytes of a range of a file
_GO_ON = -1  # continue the hash at the place where the last call stopped
_COUNT = regex(rb"(?:[ \t]+(\d{1,12})|(\d{1,12})(?![ \t]+MIOpen))[ \t]+(?=\S)")
"""Pattern of a count at the beginning of a line, in the form of ``uniq -c``.

A number at the very start of a line, before MIOpen's own prefix, is a thread and not a count.
"""
_NUMBER = regex(rb"[ \t]*(\d{1,12})(?:[ \t]|\r?\Z)")
_MIN_NUMBERED = 4
"""How many lines must begin with rising numbers (by 1 each) so that the numbers are taken for line numbers.

This limit applies to numbers that are followed by a blank.
"""
_TORN = Reject("the line is damaged: another log record begins in the middle of the line")

TORN = LineFormat("", "a record inside which another begins", (), b"", lambda _: Outcome("reject", (_TORN,)), True)

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Distinct:
    """A line of one format, which may occur many times in the log, with its number of occurrences.

    * ``text`` is the line without time, process and addresses. ``raw`` is the whole line at its first occurrence, at
      ``offset``.
    * ``count`` is how often it occurred, and ``counts[i]`` is how often at place ``numbers[i]`` (a time and process in
      ``Read.places``).
    * ``lines`` is the number of lines with this text.
    * ``counted`` is True if the log itself states the count, as ``uniq -c`` does. Then ``count`` may differ from
      ``lines``.
    """

    format: LineFormat
    text: str
    offset: int
    raw: bytes
    count: int
    numbers: Ints
    counts: Ints
    lines: int
    counted: bool = False


class Claimed(NamedTuple):
    """A line that is a part of a record of several lines, for example a line of a table in the log.

    ``outcome`` is the result of reading the line, ``offset`` its place, and ``raw`` its bytes.
    """

    outcome: Outcome
    offset: int
    raw: bytes
    format: str


@dataclass(slots=True)
class Read:
    """The content of a part of a log, after its lines were counted.

    * ``claimed`` are lines that belong to records of several lines. They were already read.
    * ``distinct`` are the other lines, each with its number of occurrences. They still have to be read.
    * ``places`` are the times and processes that lines state in their prefixes.
    * ``foreign`` and ``blank`` are the numbers of lines without a known format and of empty lines.
    """

    claimed: list[Claimed] = field(default_factory=list)
    distinct: list[Distinct] = field(default_factory=list)
    places: list[counting.Place] = field(default_factory=list)
    foreign: int = 0
    blank: int = 0
    lines: int = 0
    splits: int = 0


class LineReader:
    """Counts how often each different line of a log occurs.

    * ``feed`` takes a block of whole lines.
    * ``take`` returns the counts.
    * ``close`` ends the log.

    ``threads`` parts of a file are counted at the same time. ``head`` holds the log's first bytes.
    """

    def __init__(
        self,
        formats: Sequence[LineFormat | BlockFormat],
        threads: int = 1,
        *,
        head: bytes = b"",
        native: bool | None = None,
    ) -> None:
        self._records = [(f, regex(f.start), f.markers) for f in formats if isinstance(f, LineFormat)]
        blocks = [f for f in formats if isinstance(f, BlockFormat)]
        self._blocks: list[tuple[BlockFormat, BlockReader]] = [(f, f.begin()) for f in blocks]
        records = _drop_unneeded_markers(tuple(m for f, _, _ in self._records for m in f.markers))
        block = _drop_unneeded_markers(tuple(m for f in blocks for m in f.markers))
        self.marker = counting.any_of((*records, *block))
        # The first bytes show whether the log is a table of counts (``uniq -c``).
        self.is_table = self._is_table(head)
        # A count before a line hides the line's prefix.
        prefixed = [f for f, _, _ in self._records if f.prefixed and not self.is_table]
        starts = tuple(b"]" + m for f in prefixed for m in f.markers)
        self._block_marker = counting.any_of(block)
        self._claimer: BlockReader | None = None
        self._record_markers = [(m, number) for number, (_, _, markers) in enumerate(self._records) for m in markers]
        counter = counting.new_counter(records, block, starts, native=native)
        # The threads run code in C, which does not hold Python's global lock.
        self._threads = 1 if isinstance(counter, counting.PlainCounter) else threads
        self._idle = [counter]
        if self._threads > 1:  # one more than threads, so that no thread waits for this one
            self._idle += [counting.new_counter(records, block, starts, native=native) for _ in range(self._threads)]
        self._counters = tuple(self._idle)
        self._pool: ThreadPoolExecutor | None = None
        self.hashes: list[bytes] = []  # hashes of the pieces of a file that was read
        self._counting: deque[_Counting] = deque()
        self.read = Read()
        self._taking = _Taking(self, self.read)

    def _is_table(self, head: bytes) -> bool:
        """Return True if the log is a table of lines with their counts, as ``sort | uniq -c`` prints it."""
        lines = [counting.uncoloured(line) for line in head.split(b"\n") if line.strip()]
        # This holds for nearly all streams.  It is tested first, because compiling the pattern of all markers takes a
        # while.
        if not any(map(_COUNT.match, lines)):
            return False
        if _are_numbered(lines):
            return False
        # In such a table most lines that may have a known format begin with a count. If no line may have a known
        # format, every line must begin with a count.
        marked = [line for line in lines if self.marker.search(line)]
        counted = sum(_COUNT.match(line) is not None for line in marked or lines)
        return 2 * counted > len(marked) if marked else 0 < len(lines) == counted

    def feed(self, data: bytes, offset: int) -> None:
        """Count the lines in ``data``, a block of whole lines that is at position ``offset`` of the log.

        A command with a backslash at the line end continues on the next line, and is counted as one line
        (``continued_commands``).
        """
        data = continued_commands(data)
        self._follow(_Text(data, offset), offset, self._counters[0], self._counters[0].count(data, offset))

    @property
    def reads_files(self) -> bool:
        """True if lines are counted by the fast code in C, which can also read files itself.

        Then counting does not wait for Python, and Python does not wait for the disk.
        """
        return hasattr(self._counters[0], "count_file")

    def read_file(self, file: int, start: int, end: int) -> Iterator[int]:
        """Count the lines in bytes ``start`` to ``end`` of a file. A line must begin at both positions.

        ``file`` is the file's descriptor. Every now and then the function yields the number of bytes that it has read
        since the last time. Then the caller can collect the counts so far with ``take``. At the end ``hashes`` contains
        a hash of each whole piece of the file up to ``end``. Raises OSError if the file cannot be read.
        """
        text = _Text(b"", start, file)
        ranges = _ranges(file, start, end, self._threads)
        hashed = 0

        def begin() -> None:
            nonlocal hashed
            while self._idle and (span := next(ranges, None)) is not None:
                self._counting.append(self._count_range(text, *span, self._idle.pop(), hashed))
                hashed = span[1] - span[1] % PIECE_BYTES

        try:
            begin()
            while self._counting:
                done = self._finish()
                begin()  # this comes before the caller reads the counts, which takes long
                yield done
        finally:
            for part in self._counting:
                part.counted.exception()  # wait for the threads, because the caller may close the file afterwards

    def _count_range(self, text: _Text, start: int, end: int, counter: counting.Counter, hashed: int) -> _Counting:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="logparse-lines")
        count = cast("NativeCounter", counter).count_file
        counted = self._pool.submit(count, cast(int, text.file), start, end, _HELD_BYTES, hashed, PIECE_BYTES)
        return _Counting(text, start, end, counter, counted)

    def take(self, *, all: bool = True) -> Read:
        """Return the different lines that were read since the last call, and how often each one occurred.

        If ``all`` is False, only counts that take much memory are returned, while counting goes on.
        """
        if all:
            while self._counting:
                self._finish()
            for counter in self._counters:
                self._taking.add(counter)
        out = self._taking.finish()
        self.read = Read()
        self._taking = _Taking(self, self.read)
        return out

    @property
    def full(self) -> bool:
        """True if so many different lines are in memory that the caller should take them with ``take`` now."""
        return self._taking.begun or len(self.read.claimed) > _HELD_CLAIMED

    def close(self) -> Iterator[Record]:
        """Tell the reader that the log has ended, and yield the entries that are incomplete.

        An example is a table whose last lines are missing.
        """
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        for _, reader in self._blocks:
            yield from reader.close()

    def pieces(self, line: bytes) -> list[tuple[LineFormat | None, int, int]]:
        """Divide a line into its records, because two threads may have written into one line.

        The result lists the parts of the line: each with its format (None if no format knows it), its start and its
        end.
        """
        if b"#" in line and _COMMENT.match(line, mark_length(line)):
            return [(None, 0, len(line))]
        owners = {number for marker, number in self._record_markers if marker in line}
        found, at = list[tuple[int, int]](), 0  # (place where a record begins, number of its format)
        while matches := [
            (match.start(), number, match.end())
            for number in owners
            if (match := _next(*self._records[number][1:], line, at)) is not None
        ]:
            # The record that begins first, and of two that begin at one place the format that is listed first.
            begin, number, at = min(matches)
            found.append((begin, number))
        if not found:
            return [(None, 0, len(line))]
        out: list[tuple[LineFormat | None, int, int]] = []
        if line[: found[0][0]].strip():
            out.append((None, 0, found[0][0]))
        ends = [begin for begin, _ in found[1:]] + [len(line)]
        return out + [(self._records[i][0], begin, end) for (begin, i), end in zip(found, ends, strict=True)]

    # --------------------------------------------------------------------------------------- block formats

    def _finish(self) -> int:
        """Wait until the first of the parts that threads count is done, and add up its counts.

        Returns the number of bytes that were counted.
        """
        text, start, end, counter, counted = self._counting.popleft()
        result = counted.result()
        stop = result[-1]
        hashes = cast("NativeCounter", counter).hashes()
        self.hashes += [hashes[at : at + 8] for at in range(0, len(hashes), 8)]
        # Tables, and other entries with several lines, must be read in order. So their lines in this part are read now.
        self._follow(text, start, counter, result)
        if stop < end:  # the counter stopped because it was full
            self._counting.appendleft(self._count_range(text, stop, end, counter, _GO_ON))
        else:
            self._idle.append(counter)
        return stop - start

    def _follow(self, text: _Text, at: int, counter: counting.Counter, counted: counting.Counted) -> None:
        """Add up the counts of one part of the log, and read its tables and other entries with several lines."""
        if counter.held > _HELD_BYTES:
            self._taking.add(counter)
        lines, foreign, blank, splits, events, stop = counted
        self.read.lines += lines
        self.read.foreign += foreign
        self.read.blank += blank
        self.read.splits += splits
        # The first line of such an entry contains a text that identifies its format. From there, all lines up to the
        # end of the entry are read in order.
        for start, length in np.frombuffer(events, np.int64).reshape(-1, 2).tolist():
            self._follow_between(text, at, start)
            self._event(text.span(start, length), start)
            at = start + length + 1
        self._follow_between(text, at, stop)

    def _follow_between(self, text: _Text, at: int, stop: int) -> None:
        """Read the next lines of a table, or of another log entry that has several lines and is still incomplete."""
        while at < stop and self._awake:
            line = text.line(at, stop)
            if self._counted(line)[-1][0] is None and self._shown(line, at):
                # The line contains no text that identifies a format, so it was counted before as blank or unknown. It
                # belongs to the table, so this count is reduced by one.
                if line.strip():
                    self.read.foreign -= 1
                else:
                    self.read.blank -= 1
            at += len(line) + 1

    @property
    def _awake(self) -> bool:
        claimer = self._claimer  # this reader is asked first, because it usually claims many lines in a row
        return (claimer is not None and claimer.awake) or any(reader.awake for _, reader in self._blocks)

    def _event(self, line: bytes, place: int) -> None:
        """Read a line that may be the beginning of a table, or of another log entry that has several lines.

        If it is not, it is counted as a line of unknown format.
        """
        plain, pieces = counting.uncoloured(line), self._counted(line)
        format, start, end = pieces[-1]
        if format is None:
            # The line belongs to no such entry. It may have been counted before as an entry of its own.
            if not self._shown(line, place):
                self.read.foreign += 1
            return
        if len(pieces) == 2 and pieces[0][0] is None and start <= mark_length(plain):
            start = 0  # the mark before the line names the rank, and the piece goes to the reader of this rank
        piece = plain[start:end]
        for block, reader in self._blocks:
            if any(m in piece for m in block.markers):
                reader.take(_line(piece, place + start))

    def _counted(self, line: bytes) -> list[tuple[LineFormat | None, int, int]]:
        """Split a line of the log into its entries. There are two if two threads wrote into one line.

        Returns each entry's format (None if it is not recognised), start and end, without colours.
        """
        # Colours are escape sequences of the terminal. They are removed first.
        record = b"\x1b" not in line or any(marker in line for marker, _ in self._record_markers)
        return self.pieces(counting.uncoloured(line)) if record else [(None, 0, len(line))]

    def _shown(self, raw: bytes, place: int) -> bool:
        """Offer a line to the formats whose records have several lines. Return True if a format takes the line."""
        line = _line(raw, place)
        for format, reader in self._asked(raw):
            outcome = reader.take(line)
            if outcome is not None:
                self._claimer = reader
                self.read.claimed.append(Claimed(outcome, place, raw, format.name))
                return True
        return False

    def _asked(self, raw: bytes) -> Iterator[tuple[BlockFormat, BlockReader]]:
        """Yield the formats that must see this line, because it may belong to one of their records of several lines.

        First come the formats that have an identifying text (marker) in the line. Then come the formats with an
        unfinished record.
        """
        marked: list[tuple[BlockFormat, BlockReader]] = []
        if self._block_marker.search(raw) is not None:
            marked = [block for block in self._blocks if any(m in raw for m in block[0].markers)]
            yield from marked
        for block in self._blocks:
            if block[1].awake and block not in marked:
                yield block


def _are_numbered(lines: Sequence[bytes]) -> bool:
    """Return True if the numbers before the lines are line numbers (``cat -n``, ``nl``, ``less -N``), not counts."""
    found = [match for match in map(_NUMBER.match, lines) if match is not None]
    numbers = [int(match[1]) for match in found]
    steps = [after - before for before, after in pairwise(numbers)]
    # After a count, ``uniq -c`` prints a blank. After a line number, ``cat -n`` and ``nl`` print a tab.
    enough = 2 if all(match[0].endswith(b"\t") for match in found) else _MIN_NUMBERED
    return len(numbers) >= enough and min(steps) > 0 and 2 * steps.count(1) > len(steps)


def _line(raw: bytes, place: int) -> Line:
    return Line(counting.uncoloured(raw).decode("utf-8", "backslashreplace"), place)


@cache  # The formats are always the same.  Without a cache this would be a tenth of the work for a small file.
def _drop_unneeded_markers(markers: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return the markers that are enough to find all lines. A marker is a text that identifies lines of a format.

    A marker that contains another marker is not needed.
    """
    # For example, each line with ``conv -n`` also contains ``conv``.
    return tuple(dict.fromkeys(m for m in markers if not any(other in m for other in markers if other != m)))


def _next(start: re.Pattern[bytes], markers: tuple[bytes, ...], line: bytes, at: int) -> re.Match[bytes] | None:
    """Find the next record of a format in a line, at position ``at`` or later. Return the match, or None.

    Every record of the format contains one of the texts ``markers``.
    """
    # The markers are searched first, because that is faster than the pattern ``start``.
    for marker in markers:
        if line.find(marker, at) >= 0:
            return start.search(line, at)
    return None


class _Text:
    """A part of a log whose lines are counted: a block in memory, or a range of a file that is read piece by piece."""

    _WINDOW = 1 << 20
    _LINE = 1 << 12

    def __init__(self, data: bytes, offset: int, file: int | None = None) -> None:
        self.file = file
        self._data = data
        self._offset = offset

    def span(self, start: int, length: int) -> bytes:
        at = start - self._offset
        if self.file is not None and (at < 0 or at + length > len(self._data)):
            self._data, self._offset, at = os.pread(self.file, max(length, self._WINDOW), start), start, 0
        return self._data[at : at + length]

    def line(self, start: int, stop: int) -> bytes:
        """Return the line that begins at ``start``, without its line end. The last line ends at ``stop``."""
        length = self._LINE
        while True:
            text = self.span(start, min(length, stop - start))
            end = text.find(b"\n")
            if end >= 0 or length >= stop - start:
                return text if end < 0 else text[:end]
            length *= 4


class _Counting(NamedTuple):
    """A part of a large file whose lines a thread is counting at the moment."""

    text: _Text
    start: int
    end: int
    counter: counting.Counter
    counted: Future[counting.Counted]


def _ranges(file: int, start: int, end: int, threads: int) -> Iterator[tuple[int, int]]:
    """Divide bytes ``start`` to ``end`` of a large file into ranges of whole lines, which several threads will read.

    The ranges become smaller towards the end, so that all threads end at about the same time.
    """
    smallest, largest = _RANGE_BYTES
    while start < end:
        stop = start + max(smallest, min(largest, (end - start) // (2 * threads)))
        # The next range begins with the first line in a piece of the file. So only few bytes have to be read again to
        # hash the beginning of that piece.
        if stop - stop % PIECE_BYTES > start:
            stop -= stop % PIECE_BYTES
        stop = min(end, stop)
        while stop < end:  # extend the range to its last line's end
            data = os.pread(file, 1 << 16, stop - 1)
            cut = data.find(b"\n")
            stop = min(end, stop + (cut if cut >= 0 else len(data)))
            if cut >= 0 or not data:
                break
        yield start, stop
        start = stop


class _Taking:
    """Adds up the counts of log lines from several counters into one list of different lines.

    Each thread that reads a part of a large log has a counter.
    """

    def __init__(self, reader: LineReader, out: Read) -> None:
        self._reader = reader
        self._out = out
        self._number: dict[counting.Place, int] = {}
        self._found: dict[tuple[str, bytes, bool], Distinct] = {}
        self._more: dict[tuple[str, bytes, bool], list[tuple[Ints, Ints]]] = {}

    @property
    def begun(self) -> bool:
        return bool(self._found)

    def finish(self) -> Read:
        """Return the counted lines."""
        for key, parts in self._more.items():
            entry = self._found[key]
            entry.numbers = np.concatenate([entry.numbers, *(numbers for numbers, _ in parts)])
            entry.counts = np.concatenate([entry.counts, *(counts for _, counts in parts)])
        self._out.places += self._number
        self._out.distinct += self._found.values()
        return self._out

    def add(self, counter: counting.Counter) -> None:
        entries, places, packed = counter.take()
        if not entries:
            return
        cells = np.frombuffer(packed, np.int64).reshape(-1, 3)
        few = cells[:, 0].astype(np.min_scalar_type(len(entries)))  # numpy sorts 16-bit numbers in linear time
        cells = cells[np.argsort(few, kind="stable")]
        ours = np.array([self._number.setdefault(place, len(self._number)) for place in places], np.int64)
        numbers, counts = ours[cells[:, 1]], np.ascontiguousarray(cells[:, 2])
        begins = np.searchsorted(cells[:, 0], np.arange(len(entries)))
        times = np.add.reduceat(counts, begins).tolist()
        for entry, total, (begin, end) in zip(entries, times, pairwise([*begins.tolist(), len(cells)]), strict=True):
            self._entry(entry, total, numbers[begin:end], counts[begin:end])

    # If two threads of the job wrote into one line at the same time, the line is divided again.
    def _entry(self, entry: counting.CountedLine, times: int, numbers: Ints, counts: Ints) -> None:
        reader, out = self._reader, self._out
        raw, key, offset, event, torn = entry
        raw, key = counting.uncoloured(raw), None if key is None else counting.uncoloured(key).rstrip()
        count = _COUNT.match(raw) if reader.is_table else None
        if count is not None:
            raw, offset = raw[count.end() :], offset + count.end()
        stood = _Stood(times, numbers, counts, int(count[1] or count[2]) if count else None)
        text = raw if key is None else key
        pieces = reader.pieces(raw)
        last, start, end = pieces[-1]
        format = TORN if torn else last
        # This line has a marker but no record.  It is foreign, unless it was shown to block readers as an event.
        if format is None:
            out.foreign += 0 if event else times
            return
        if len(pieces) == 1 and (start == 0 if torn else (key is not None) == format.prefixed):
            self._keep(format, text, raw, offset, stood)
            return
        out.splits += times * (len(pieces) - 1)
        for (owner, begin, stop), (after, _, end_after) in pairwise(pieces):
            if owner is not None and owner is after and _is_whole(raw[begin:stop], raw[stop:end_after]):
                self._piece(owner, raw[begin:stop], offset + begin, stood)
            elif owner is not None or reader.marker.search(raw, begin, stop):
                self._piece(TORN, raw[begin:stop], offset + begin, stood)
            else:
                out.foreign += times
        self._piece(format, raw[start:end], offset + start, stood)

    def _piece(self, format: LineFormat, piece: bytes, offset: int, stood: _Stood) -> None:
        """Count a part of a line without its time and memory addresses, so that equal parts are counted as one text."""
        text, where = piece, counting.NOWHERE
        if format.prefixed and (prefix := counting.PREFIX.match(piece)) is not None:
            text = prefix[2] + counting.mask_addresses(piece[prefix.end() :].rstrip())
            where = (prefix[1], prefix[3] or b"")
        number = self._number.setdefault(where, len(self._number))
        here = stood._replace(numbers=np.array([number]), counts=np.array([stood.lines]))
        self._keep(format, text, piece, offset, here)

    def _keep(self, format: LineFormat, text: bytes, raw: bytes, offset: int, stood: _Stood) -> None:
        lines, numbers, counts, stated = stood
        times = lines
        if stated is not None:
            times, counts = lines * stated, counts * stated
        key = (format.name, text, stated is not None)
        entry = self._found.get(key)
        if entry is None:
            shown = text.rstrip().decode("utf-8", "backslashreplace")
            self._found[key] = Distinct(format, shown, offset, raw, times, numbers, counts, lines, stated is not None)
            return
        entry.count += times
        entry.lines += lines
        self._more.setdefault(key, []).append((numbers, counts))
        if offset < entry.offset:
            entry.offset, entry.raw = offset, raw


class _Stood(NamedTuple):
    """How often the same text occurs in a part of the log, in total and for each time and process.

    ``stated`` is a count in front of each such line, or None.
    """

    lines: int
    # ``counts[i]`` is the number of lines for the time and process with index ``numbers[i]`` in a list.
    numbers: Ints
    counts: Ints
    # ``uniq -c`` prints such counts.
    stated: int | None


def has_long_line(file: int, start: int, end: int) -> bool:
    """Return True if bytes ``start`` to ``end`` of a file may contain a line of more than ``LONGEST_BYTES``.

    ``file`` is a file descriptor.
    """
    # The range is divided into stretches of half of ``LONGEST_BYTES``. If a line is longer than ``LONGEST_BYTES``, at
    # least one stretch has no line end.
    half = LONGEST_BYTES // 2
    return any(not _has_line_end(file, at, at + half) for at in range(start, end - half + 1, half))


def _has_line_end(file: int, start: int, stop: int) -> bool:
    size = 1 << 12
    while start < stop and (data := os.pread(file, min(size, stop - start), start)):
        if b"\n" in data:
            return True
        start, size = start + len(data), 1 << 20
    return False


_PROMPT = rb"(?:[ \t]*>[ \t]+(?=-|\Z))?"
"""Pattern of the ``> `` that a shell prints before a line that continues a command."""
_TOOL = regex(rb"hipblaslt-bench|rocblas-bench|MIOpenDriver")
_CONTINUED = regex(rb"(?m)^[^\n]*(?:" + _TOOL.pattern + rb")[^\n]*\\\r?\n(?:[^\n]*\\\r?\n)*" + _PROMPT)
"""Pattern of the lines of a command that end with a backslash. The last line of the command follows."""
_CONTINUATION = regex(rb"\\\r?\n" + _PROMPT)
"""Pattern of the text between two lines of a command."""
_OPEN = (b"\\\n", b"\\\r\n")
"""Ends of a line that the next line continues."""
_COMMAND_BYTES = 64 << 10
"""Maximum bytes of a command that is held until its last line is read."""
_COMMENT = regex(
    rb"[ \t]*#+[ \t]*(?!MIOpen\()(?:- \{|(?:[^\s\d#%][^\n]*?)?(?:" + _TOOL.pattern + rb")(?:\.exe)?:?[ \t])"
)
"""Pattern of a comment that holds a command, or a record in YAML (``- {``).

A progress bar (``### 45.0%``) and the number of a step (``#12 0.3``) are no comments. A command may stand behind them.
MIOpen prints ``#`` between a file and a number. So a line of MIOpen's log may stand behind a torn ``#``.
"""
_FLAG = regex(rb"--?[A-Za-z]")


def continued_commands(data: bytes) -> bytes:
    r"""Join the lines of a command that is continued by a backslash, such as ``hipblaslt-bench -m 1 \`` and ``-n 2``.

    Every other byte keeps its position, because blanks replace backslashes and line ends.
    """
    if b"\\" not in data or not _CONTINUATION.search(data):
        return data

    def joined(command: re.Match[bytes]) -> bytes:
        # A command whose last line is missing stays as it is.
        return command[0] if command.end() == len(data) else _CONTINUATION.sub(_blanks, command[0])

    return _CONTINUED.sub(joined, data)


def _is_whole(command: bytes, following: bytes) -> bool:
    """Return True if a command is certainly complete, although another command follows it in the same line.

    * A shell separates the two commands with ``;`` or ``&&``.
    * Or a blank follows the last value, and both commands have the same flags in the same order. Of a command that was
      torn off, a flag or a part of a value is missing.
    """
    flags = _flags(command)
    if not any(flags):
        return False
    separated = command.rstrip().endswith((b";", b"&&"))
    return separated or (command.endswith((b" ", b"\t")) and flags == _flags(following))


def _flags(command: bytes) -> list[bytes]:
    """Return the flags of a command, with an empty text in place of each value."""
    return [word if _FLAG.match(word) else b"" for word in command.split()[1:]]


def _blanks(match: re.Match[bytes]) -> bytes:
    return b" " * len(match[0])


def whole_commands(data: bytes) -> int:
    """Return the position after the last complete line of a block.

    A command that continues on the next line is incomplete.
    """
    end = at = data.rfind(b"\n") + 1
    while at and end - at < _COMMAND_BYTES and data.endswith(_OPEN, 0, at):
        at = data.rfind(b"\n", 0, at - 1) + 1
        if _TOOL.search(data, at, end):
            end = at  # the command may begin even earlier, if a line before it names the tool, too
    return end


def has_continuation(file: int) -> bool:
    """Return True if some line of the file ends with a backslash. ``file`` is the file's descriptor."""
    with mmap.mmap(file, 0, access=mmap.ACCESS_READ) as data:
        at = data.find(b"\\")  # finding one byte is many times faster than finding two
        while at >= 0 and data[at + 1 : at + 3].removeprefix(b"\r")[:1] != b"\n":
            at = data.find(b"\\", at + 1)
        return at >= 0


Long = Callable[[bytes, int, int], None]
"""Function that is called for each line that is too long, with its first bytes, its offset and its length."""


def blocks(
    stream: BinaryIO, offset: int = 0, size: int | None = None, long: Long | None = None
) -> Iterator[tuple[bytes, int]]:
    """Read a stream in blocks of whole lines. Yield each block with its offset.

    * The last block may lack its line end.
    * A command that continues behind a backslash is in one block.
    * A line that is longer than a block is a block of its own.
    * ``size`` is the number of bytes of one read (default ``BLOCK_BYTES``).
    * If ``long`` is given, it is called for lines of more than ``LONGEST_BYTES``. They are in no block, and never in
      memory as a whole.
    """
    rest: list[bytes | memoryview] = []
    first, held = b"", 0  # first bytes of a line that is too long, and the length of that line so far
    while data := stream.read(size or BLOCK_BYTES):
        if first and long:
            end = data.find(b"\n") + 1
            held += end or len(data)
            if not end:
                continue
            long(first, offset, held)
            offset, first, held, data = offset + held, b"", 0, data[end:]
        cut = data.rfind(b"\n") + 1
        if not cut:
            rest.append(data)
            held += len(data)
            if long and held > LONGEST_BYTES:
                first, rest = b"".join(rest)[:_EXCERPT_BYTES], []
            continue
        view = memoryview(data)
        held = len(data) - cut
        block = b"".join([*rest, view[:cut]])
        rest = [bytes(view[cut:])]  # this is a copy, so that the memory of `data` can be freed before the next read
        view.release()
        del data
        if block.endswith(_OPEN) and (whole := whole_commands(block)) < len(block):
            rest.insert(0, block[whole:])
            held += len(block) - whole
            block = block[:whole]
            if not block:
                continue
        yield block, offset
        offset += len(block)
    if first and long:
        long(first, offset, held)
    elif any(rest):
        yield b"".join(rest), offset
