"""A JSON document read from front to back: members and items one at a time, so that no list is ever held.

    json = JsonStream(stream)
    for key in json.members():      # the document is an object
        if json.begins("["):
            for _ in json.items():
                record = json.value()
        else:
            json.value()

Each member and item is to be taken (by ``value``, ``members`` or ``items``) before the next is asked for.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from logparse.formats.patterns import regex

BLOCK_BYTES = 1 << 18
_LARGEST = 256 << 20
"""Characters that one value may take."""

_SPACE = regex(r"[ \t\r\n]*")


class JsonError(ValueError):
    """The document is no JSON from byte ``offset`` on."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.offset = offset


class JsonStream:
    """Reads a document once.  All methods raise JsonError where it is damaged or ends too early."""

    def __init__(self, stream: BinaryIO, block_bytes: int = BLOCK_BYTES) -> None:
        self._stream = stream
        self._block = block_bytes
        self._text = ""
        self._at = 0
        self._dropped = 0  # bytes before ``_text``
        self._ended = False
        # bad bytes become lone surrogates and back again, so that every place has its byte offset
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._json = json.JSONDecoder(strict=False)
        if self.begins("\ufeff"):
            self._at += 1

    def begins(self, character: str) -> bool:
        """Whether the next value begins with this character."""
        return self._next() == character

    def value(self) -> Any:
        """The next value, whole."""
        self._next()
        while True:
            reason = "the file ends within a value"
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                reason = error.msg
            except RecursionError:
                raise self._error("nested too deeply") from None
            except ValueError as error:  # a number of thousands of digits
                reason = str(error)
            else:
                if end + 2 < len(self._text) or self._ended:  # else a number might go on: 1 of 1e+5
                    self._at = end
                    return value
            if len(self._text) - self._at > _LARGEST or not self._more():
                raise self._error(reason)

    def members(self) -> Iterator[str]:
        """The keys of the object that comes next."""
        for _ in self._parts("{", "}"):
            key = self.value()
            if not isinstance(key, str):
                raise self._error("a key that is no text")
            self._take(":")
            yield key

    def items(self) -> Iterator[None]:
        """Once for each item of the list that comes next."""
        return self._parts("[", "]")

    def end(self) -> None:
        """Nothing may follow."""
        if self._next():
            raise self._error("more than one value")

    # ------------------------------------------------------------------------------------------------ characters

    def _parts(self, opening: str, closing: str) -> Iterator[None]:
        self._take(opening)
        if self.begins(closing):
            self._take(closing)
            return
        while True:
            yield
            if self.begins(closing):
                self._take(closing)
                return
            self._take(",")

    def _take(self, character: str) -> None:
        if self._next() != character:
            raise self._error(f"{character!r} is missing")
        self._at += 1

    def _next(self) -> str:
        """The next character that is no white space, or nothing at the end."""
        while True:
            match = _SPACE.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _more(self) -> bool:
        if self._ended:
            return False
        self._dropped += self._bytes_before()
        rest = self._text[self._at :]
        data = self._stream.read(max(self._block, len(rest)))  # twice as much each time: a long value costs no square
        self._ended = not data
        self._text, self._at = rest + self._decoder.decode(data, final=self._ended), 0
        return True

    def _bytes_before(self) -> int:
        return len(self._text[: self._at].encode("utf-8", "surrogateescape"))

    def _error(self, reason: str) -> JsonError:
        return JsonError(reason, self._dropped + self._bytes_before())


def printable_text(value: object) -> str:
    """The value as text that a table may hold: lone surrogates (bad bytes, half escapes) are written as escapes."""
    return str(value).encode("utf-8", "backslashreplace").decode()
