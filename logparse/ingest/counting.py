"""Count how often each distinct line occurs, in native code if it was built, and otherwise in Python.

The results are equal. A counter gets blocks of whole lines. All offsets are places in the stream (the input file).

* *Marker*: a short text that identifies a line of a known format.
* *Entry*: a distinct text of lines with a marker of a format that reads single lines (a record).
* *Cell* (entry, place, count): the count of an entry at one *place*, a pair of clock and third bracket.
* *Event* (start and length, in order): a line with a marker of a format that reads blocks of lines.
* Foreign or blank: a line without any marker.

If a line begins with the prefix ``[date time][LIB][n]`` of a prefixed format, its text has no clock, no third bracket
and no addresses.

Two threads, or the application and a library, may write into one line. If it is certain that a line ends with a
prefixed record, the line is cut before that record, so that the record is counted together with equal records. The text
before the record is foreign, or an entry of its own that is marked as *torn*. Colours before a record are ignored.
"""

from __future__ import annotations

import os
import re
from array import array
from collections import Counter as Tally
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from logparse.libraries.kinds.patterns import regex

if TYPE_CHECKING:
    from logparse.ingest import _lines

CLOCK_BYTES = 21  # [YYYY-MM-DD hh:mm:ss]
PREFIX = regex(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\](\[[A-Za-z]+\])(?:\[(\d{1,18})\])?(?=\[[A-Za-z]+\])")
# An address has at least five digits, because nothing is mapped below 64 KiB. Shorter numbers are values, such as
# bufData=0x6f.
_ADDRESS = regex(rb"0[xX](?=0*[1-9a-fA-F])[0-9a-fA-F]{5,16}(?![0-9a-zA-Z])")
_WINDOWS_ADDRESS = regex(rb"(?<==)[0-9A-F]{16}(?![0-9a-zA-Z])")

_COLOUR = regex(rb"\x1b\[[0-9;:]*[mK]")
"""Pattern of the escape sequences that colour text in a terminal (Select Graphic Rendition, ECMA-48, 8.3.117).

The pattern also matches the erasure of the rest of the line, which grep and gcc add.
"""

NATIVE_VERSION = 4
"""Version of the native counter's arguments and results."""
NOWHERE = (b"", b"")

CountedLine: TypeAlias = tuple[bytes, bytes | None, int, bool, bool]
"""A distinct line as a tuple of five values.

* The whole line at its first occurrence.
* Its text, if a prefix or an address was removed from it.
* The line's offset.
* True if the line also has a marker (identifying text) of a format whose records have several lines.
* True if the line is torn, because another line begins inside it.
"""
Counted: TypeAlias = tuple[int, int, int, int, bytes, int]
"""Results for a block of lines, as a tuple of six values.

* The numbers of lines, of foreign lines (of no known format), of blank lines, and of splits. A split is a text that was
  cut off a line, foreign or not.
* The events, as pairs of int64.
* The place where the block ends.
"""
Place: TypeAlias = tuple[bytes, bytes]
"""The time in the prefix ``[date time][LIB][n]`` of a line, and the number n. Without a prefix both are empty."""
Counter: TypeAlias = "PlainCounter | _lines.Counter"


def new_counter(
    records: tuple[bytes, ...], blocks: tuple[bytes, ...], starts: tuple[bytes, ...], *, native: bool | None = None
) -> Counter:
    """Return a counter of different log lines: the fast one in C if it can be used, otherwise the one in Python.

    The one in C needs to be built, and ``native`` and ``LOGPARSE_NATIVE`` must not forbid it.
    """
    if native is None:
        native = os.environ.get("LOGPARSE_NATIVE", "1") != "0"
    if native:
        try:
            from logparse.ingest import _lines
        except ImportError:
            pass
        else:
            # An older build of this checkout has another version.
            if getattr(_lines, "VERSION", None) == NATIVE_VERSION:
                return _lines.Counter(records, blocks, starts)
    return PlainCounter(records, blocks, starts)


def mask_addresses(text: bytes) -> bytes:
    """Replace each memory address in ``text`` by ``0x@``.

    So lines that differ only in addresses become equal and are counted together.
    """
    if b"0x" in text or b"0X" in text:
        return _ADDRESS.sub(b"0x@", text)
    return _WINDOWS_ADDRESS.sub(lambda match: b"0x@" if match[0].strip(b"0") else b"0", text)


def uncoloured(text: bytes) -> bytes:
    """Return ``text`` without the escape sequences that colour it in a terminal."""
    return _COLOUR.sub(b"", text) if b"\x1b" in text else text


class PlainCounter:
    """Counts how often each different line of a log occurs. A faster counter in C gives the same results.

    * ``starts``: texts, beginning with ``]``, that follow the time in a line's prefix ``[date time][LIBRARY]``.
    * ``held``: bytes of memory in use, roughly.
    """

    def __init__(self, records: tuple[bytes, ...], blocks: tuple[bytes, ...], starts: tuple[bytes, ...]) -> None:
        self._records = any_of(records)
        self._blocks = any_of(blocks)
        self._starts = starts
        self._forget()

    def _forget(self) -> None:
        self._entries: list[CountedLine] = []
        self._numbers: dict[tuple[bytes, bool, bool], int] = {}  # by text, whether a prefix was removed, and torn
        self._places: dict[Place, int] = {}
        self._cells: dict[tuple[int, int], int] = {}
        self.held = 0

    def count(self, data: bytes, offset: int) -> Counted:
        """Add the lines of a block to the counts. ``offset`` is the position of the block in the log.

        The block consists of whole lines.
        """
        lines = data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        foreign = blank = splits = 0
        begins = list(accumulate(map(len, lines), lambda at, length: at + length + 1, initial=offset))
        first = dict(zip(reversed(lines), range(len(lines) - 1, -1, -1), strict=True))
        watched: set[bytes] = set()
        for line, times in Tally(lines).items():
            begin, inside = begins[first[line]], self._record_inside(line)
            if uncoloured(line[:inside]).strip():
                splits += times
                foreign += times if self._count(line[:inside], begin, times, torn=True) is None else 0
            entry = self._count(line[inside:], begin + inside, times)
            if self._blocks.search(line) if entry is None else entry[3]:
                watched.add(line)
            elif entry is None and line.strip():
                foreign += times
            elif entry is None:
                blank += times
        events = array("q")
        if watched:
            for line, begin in zip(lines, begins, strict=False):
                if line in watched:
                    events.extend((begin, len(line)))
        return len(lines), foreign, blank, splits, events.tobytes(), offset + len(data)

    def take(self) -> tuple[list[CountedLine], list[Place], bytes]:
        """Return the different lines that were read since the last call, and how often each one occurred.

        * the lines;
        * the prefixes (time, and process or thread);
        * the counts: int64 triples of line index, prefix index and count.
        """
        cells = array("q")
        for (entry, place), times in self._cells.items():
            cells.extend((entry, place, times))
        out = self._entries, list(self._places), cells.tobytes()
        self._forget()
        return out

    def _record_inside(self, line: bytes) -> int:
        """Return where the text of a second thread begins in a line of the log, or 0 if there is no second text."""
        at = max((line.rfind(start) for start in self._starts), default=-1) - (CLOCK_BYTES - 1)
        # The second text is recognised by its prefix ``[date time][LIBRARY]``. The prefix must be complete, and no
        # further text may begin right before it or behind it.
        if (
            at <= 0
            or line[at - 1 : at] == b"]"
            or PREFIX.match(line, at) is None
            or self._records.search(line, at + CLOCK_BYTES)
            or self._blocks.search(line)
        ):
            return 0
        return at

    def _count(self, line: bytes, offset: int, times: int, *, torn: bool = False) -> CountedLine | None:
        """Count a line, or a piece of a line. Return what is stored about all lines with the same text.

        Returns None if the text does not belong to a known format.
        """
        place, text, key = NOWHERE, line, None
        if line.startswith(self._starts, CLOCK_BYTES - 1) and (prefix := PREFIX.match(line)) is not None:
            text = key = prefix[2] + mask_addresses(line[prefix.end() :].rstrip())
            place = (prefix[1], prefix[3] or b"")
        elif self._records.search(line) is None:
            return None
        same = (text, key is not None, torn)
        number = self._numbers.get(same)
        if number is None:
            number = self._numbers[same] = len(self._entries)
            self._entries.append((line, key, offset, self._blocks.search(line) is not None, torn))
            self.held += 2 * len(line) + 200
        cell = (number, self._places.setdefault(place, len(self._places)))
        self._cells[cell] = self._cells.get(cell, 0) + times
        return self._entries[number]


@lru_cache(maxsize=64)
def any_of(markers: tuple[bytes, ...]) -> re.Pattern[bytes]:
    """Return a regular expression that matches any of the given texts. Without texts it never matches."""
    return regex(b"|".join(map(re.escape, markers)) if markers else rb"(?!)")
