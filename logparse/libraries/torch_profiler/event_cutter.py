"""Cut a trace file (``{"traceEvents": [...]}``) into its events without loading the whole file.

Kineto (PyTorch's profiler) prints one event over several lines, always with the same indentation.  So its events can be
cut apart at a fixed byte string.  A JSON string cannot contain a line feed, so this byte string never occurs inside an
event.  Traces that a tool rewrote (``json.dump``) are cut at ``}, {"``, which may also occur inside an event's
arguments.  Then the piece is not a JSON object, and ``parse`` joins it with the pieces that follow.

The text before and after the array of events is kept as ``header`` and ``tail``.  Memory is bounded by the block size
and the largest event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from logparse.libraries.kinds.format import Outcome
from logparse.libraries.kinds.patterns import regex
from logparse.libraries.torch_profiler.event import Event, decode, event_of, loads
from logparse.model import Reject

BLOCK_BYTES = 1 << 18
_LARGEST = 32 << 20
"""The maximum size in bytes of one event, of the header and of the tail."""

_ARRAY = regex(rb'(?<!\\)"traceEvents"\s*:\s*\[')
_KINETO = regex(rb"\n  \{\s")
_KINETO_CUT = b"\n  },\n  {"
_KINETO_END = b"\n  }\n  ]"
_ANY_CUT = regex(rb'\}\s*,\s*\{(?=\s*")')
_NO_CUT = regex(rb"(?!)")
_FOLLOWING = regex(rb"\s*(?:,\s*\{|(\]))")
_TAIL = 1 << 16
_JOINED = 8
"""The maximum number of pieces of text that ``parse`` joins to one event.

An event that was cut into more pieces (because it contains a list with many objects) is counted as an error.
"""


class Batch:
    """Some neighbouring events of a trace file, as one block of text.

    * ``block`` is the text without its first opening and last closing brace.
    * ``first`` is the position of the block in the file.
    """

    def __init__(self, first: int, block: bytes, cut: re.Pattern[bytes] | None = None) -> None:
        self.block = block
        self._first = first
        self._cut = cut
        self.stacks = False
        """True if the trace has stacks, so that sequence numbers are read."""
        self._bodies: list[bytes] | None = None
        self._places: list[int] = []

    @property
    def bodies(self) -> list[bytes]:
        """The text of each event in the block, without its outer braces."""
        if self._bodies is None:
            cuts = [] if self._cut is None else list(self._cut.finditer(self.block))
            if self._cut is None:
                self._bodies = self.block.split(_KINETO_CUT)
            else:
                self._places = [0, *(cut.end() for cut in cuts)]
                ends = [*(cut.start() for cut in cuts), len(self.block)]
                self._bodies = [self.block[a:b] for a, b in zip(self._places, ends, strict=True)]
        return self._bodies

    def whole(self) -> Sequence[Event] | None:
        """Parse all events of the block at once, which is fast.  Return None if one of them cannot be parsed."""
        text = b"[{" + self.block + b"}]"
        try:
            return decode(text, self.stacks)
        except (ValueError, RecursionError):  # not strict JSON, or a field has another type
            pass
        try:
            values = loads(text)
        except (ValueError, RecursionError):
            return None
        return [*map(event_of, values)] if all(isinstance(value, dict) for value in values) else None

    def one_by_one(self) -> Iterator[tuple[Event | None, int, str]]:
        """Parse the events of a block one by one, so that one damaged event does not make the whole block unreadable.

        Yields each event with its number in the block, or None and the reason for a damaged event.
        """
        i = 0
        while i < len(self.bodies):
            value, taken, reason = parse(self, i)
            yield None if value is None else event_of(value), i, reason
            i += taken

    def joined(self, i: int, count: int) -> bytes:
        """Return the text of ``count`` neighbouring pieces of a trace as one text, beginning with piece ``i``.

        The characters between the pieces are included.
        """
        # A block of a trace file was cut into pieces at the ends of events. This puts together an event that was cut by
        # mistake.
        if not self._places:
            return _KINETO_CUT.join(self.bodies[i : i + count])
        last = i + count - 1
        return self.block[self._places[i] : self._places[last] + len(self.bodies[last])]

    def offset(self, i: int) -> int:
        """Return the position of an event in the trace file, in bytes.

        A part of the file was cut into events.  ``i`` is the number of the event in this part, counted from 0.
        """
        before = self.bodies[:i]
        place = self._places[i] if self._places else sum(map(len, before)) + i * len(_KINETO_CUT)
        return self._first - 1 + place


class TraceEvents:
    """Reads a trace file once, from its beginning to its end.

    ``batches`` yields the events.  After that ``header``, ``tail`` (the texts around the events) and ``damage`` are
    complete.
    """

    def __init__(self, stream: BinaryIO, block_bytes: int = BLOCK_BYTES) -> None:
        self._stream = stream
        self._block = block_bytes
        self._buffer = b""
        self._at = 0  # offset of the buffer in the file
        self.header: dict[str, Any] = {}
        self.tail: dict[str, Any] = {}
        self.damage: list[Outcome] = []

    def batches(self) -> Iterator[Batch]:
        """Read the trace file and yield its events, one block of events at a time."""
        if not self._find_array():
            return
        kineto = _KINETO.match(self._buffer) is not None
        opening = re.match(rb"\s*\{", self._buffer)
        if opening is None:
            rest = self._buffer.lstrip()
            if rest[:1] == b"]":
                self._close(self._buffer[self._buffer.index(b"]") + 1 :])
            else:
                self._damaged("the trace's list of events does not begin with an event", len(self._buffer))
            return
        self._drop(opening.end())
        yield from self._kineto() if kineto else self._any()

    # ------------------------------------------------------------------------------------------- blocks

    def _more(self) -> bool:
        data = self._stream.read(self._block)
        self._buffer += data
        return bool(data)

    def _drop(self, count: int) -> None:
        self._buffer = self._buffer[count:]
        self._at += count

    def _damaged(self, reason: str, length: int) -> None:
        self.damage.append(_damaged(reason, self._at, length))

    def _find_array(self) -> bool:
        while self._more():
            start = re.match(rb"(?:\xef\xbb\xbf)?\s*\[", self._buffer)  # a bare list of events is a trace
            found = start or _ARRAY.search(self._buffer)
            if found:
                if not start:
                    self.header = self._object(self._buffer[: found.end()] + b"]}", "header")
                self._drop(found.end())
                while not self._buffer.strip() and self._more():
                    pass
                return True
            if len(self._buffer) > _LARGEST:
                break
        self._damaged("no traceEvents", len(self._buffer))
        return False

    def _close(self, tail: bytes) -> None:
        """Read the text that follows the list of events in a trace file."""
        parts = [tail]
        size = len(tail)
        while data := self._stream.read(self._block):
            size += len(data)
            if size <= _LARGEST:
                parts.append(data)
        text = b"".join(parts).strip()
        if text.startswith(b",") and size <= _LARGEST:
            self.tail = self._object(b"{" + text[1:], "tail")

    def _object(self, text: bytes, part: str) -> dict[str, Any]:
        try:
            value = loads(text)
        except (ValueError, RecursionError) as error:
            why = "nested too deeply" if isinstance(error, RecursionError) else error
            self._damaged(f"{part}: {why}", len(text))
            return {}
        return value if isinstance(value, dict) else {}

    # ------------------------------------------------------------------------------------------- cutting

    def _kineto(self) -> Iterator[Batch]:
        while True:
            end = self._buffer.find(_KINETO_END)
            if end >= 0:
                yield Batch(self._at, self._buffer[:end])
                self._drop(end)
                self._close(self._buffer[len(_KINETO_END) :])
                return
            last = self._buffer.rfind(_KINETO_CUT)
            if last >= 0:
                yield Batch(self._at, self._buffer[:last])
                self._drop(last + len(_KINETO_CUT))
            if len(self._buffer) > _LARGEST or not self._more():
                yield from self._any()
                return

    def _any(self) -> Iterator[Batch]:
        """Yield the events of a trace file in blocks. Line breaks and blanks may be anywhere in the file."""
        while True:
            cuts = list(_ANY_CUT.finditer(self._buffer, max(0, len(self._buffer) - _TAIL)))
            cuts = cuts if len(cuts) > _JOINED else list(_ANY_CUT.finditer(self._buffer))
            if len(cuts) > _JOINED:
                # An event may begin in one block and end in the next one. So the last pieces of a block are kept for
                # the next one.
                keep = cuts[-_JOINED]
                yield Batch(self._at, self._buffer[: keep.start()], _ANY_CUT)
                self._drop(keep.end())
            if len(self._buffer) > _LARGEST:
                self._damaged("an event without end", len(self._buffer))
                self._drop(len(self._buffer))
            if not self._more():
                break
        yield from self._last()

    def _last(self) -> Iterator[Batch]:
        buffer, at, start = self._buffer, self._at, 0
        while True:
            body, end = _one_event(buffer, start)
            if body is None:
                self.damage.append(_damaged("the trace file ends within an event", at + start, len(buffer) - start))
                return
            yield Batch(at + start, body, _NO_CUT)
            following = _FOLLOWING.match(buffer, end)
            if following is None:
                if buffer[end:].strip():
                    self.damage.append(_damaged("no event", at + end, len(buffer) - end))
                return
            if following[1]:
                self._at = at + following.end()
                self._close(buffer[following.end() :])
                return
            start = following.end()


def _damaged(reason: str, offset: int, length: int) -> Outcome:
    """Return a reject (an error that is counted) for a place in a trace where an event cannot be read.

    The reject states the place and the reason.
    """
    return Outcome("reject", [Reject(reason, 0, length)], at=offset)


def _one_event(buffer: bytes, start: int) -> tuple[bytes | None, int]:
    """Find the end of the trace event that begins at ``start``, even if the event is damaged.

    Returns the event's text, or None if its end is missing, and the offset behind its closing brace.
    """
    # Only braces outside of strings are counted.
    depth = 1
    for token in _TOKEN.finditer(buffer, start):
        if token[0] == b"{":
            depth += 1
        elif token[0] == b"}":
            depth -= 1
            if depth == 0:
                return buffer[start : token.start()], token.end()
    return None, len(buffer)


_TOKEN = regex(rb'[{}]|"(?:[^"\\]|\\.)*"', re.DOTALL)


def parse(batch: Batch, i: int) -> tuple[dict[str, Any] | None, int, str]:
    """Parse the event of a trace that begins with piece ``i`` of the cut text.

    Returns the event, the number of its pieces, and an empty text.  For a damaged event it returns None, 1 and the
    reason.
    """
    bodies = batch.bodies
    text = bodies[i]
    reason = ""
    for count in range(1, _JOINED + 1):
        try:
            value = loads(b"{" + text + b"}")
        except ValueError as error:
            reason = reason or str(error)
            # The text was cut at places that look like the end of an event. If a place was inside a string or object,
            # the piece is joined with the next one.
            within = text.count(b"{") > text.count(b"}") or "Unterminated string" in str(error)
            if i + count >= len(bodies) or not within:
                break
            text = batch.joined(i, count + 1)
        except RecursionError:
            return None, 1, "nested too deeply"
        else:
            return (value, count, "") if isinstance(value, dict) else (None, 1, "no event")
    return None, 1, reason
