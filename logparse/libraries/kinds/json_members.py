"""Read the members of a file that is one JSON object, each with its place in the file.

Python's ``json.loads`` keeps only the last of several members with one name, and no places.  ``members_of`` yields all
of them, so that a format can report the members that a library ignores.  ``items_of`` yields the items of a list in it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

_BLANKS = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True)
class Member:
    """A name and its value in the JSON object of a file.

    * ``text``: name and value as they are in the file.
    * ``line``: the number of the line with the name (from 1).
    * ``offset``, ``length``: the place of name and value in the file, in bytes.
    * ``later``: the line of the last member with the same name, if this member is not the last one.
    * ``repeated``: names that occur more than once in an object within the value.  ``value`` has their last value.
    """

    name: str
    value: Any
    text: str
    line: int
    offset: int
    length: int
    later: int | None = None
    repeated: tuple[str, ...] = ()

    @property
    def end(self) -> int:
        return self.offset + self.length

    @property
    def unused(self) -> str | None:
        """The reason why a usual JSON reader ignores the member, or None if the reader uses it."""
        return None if self.later is None else f"line {self.later} has the same name, and the later member is used"

    @property
    def ambiguous(self) -> str | None:
        """A remark about names that occur more than once within the value.  None if no name does."""
        if not self.repeated:
            return None
        return f"{', '.join(self.repeated)}: several members have this name, and the last one is used"


def members_of(data: bytes) -> list[Member]:
    """Return the members of a JSON object in the order of the file, also those whose name occurs again.

    Raises ValueError if the file is not UTF-8, is not one JSON object, or is nested too deeply.  A byte order mark is
    refused, because most libraries refuse it.
    """
    text, repeated = data.decode(), list[str]()
    decoder = json.JSONDecoder(object_pairs_hook=lambda pairs: _make_dict(pairs, repeated))
    try:
        whole = json.loads(text)
        found = list(_walk(text, decoder, repeated)) if isinstance(whole, dict) else None
    except RecursionError as error:
        raise ValueError("the JSON text is nested too deeply") from error
    if found is None:
        raise ValueError("it is not a JSON object")
    last = {member.name: member for member in found}
    return [x if last[x.name] is x else replace(x, later=last[x.name].line) for x in found]


def items_of(member: Member) -> list[Member]:
    """Return the items of a list, which is the value of a member.  Returns no items if the value is no list.

    An item's ``name`` is its position (from 0).
    """
    if not isinstance(member.value, list):
        return []
    text, repeated = member.text, list[str]()
    decoder = json.JSONDecoder(object_pairs_hook=lambda pairs: _make_dict(pairs, repeated))
    colon = _skip_blanks(text, decoder.raw_decode(text)[1])
    at = _skip_blanks(text, _skip_blanks(text, colon + 1) + 1)
    counted, line, offset, out = 0, member.line, member.offset, list[Member]()
    while text[at] != "]":
        repeated.clear()
        value, end = decoder.raw_decode(text, at)
        line += text.count("\n", counted, at)
        offset += len(text[counted:at].encode())
        counted, own = at, text[at:end]
        names = tuple(dict.fromkeys(repeated))
        out.append(Member(str(len(out)), value, own, line, offset, len(own.encode()), repeated=names))
        at = _skip_blanks(text, end)
        if text[at] == ",":
            at = _skip_blanks(text, at + 1)
    return out


def _make_dict(pairs: Sequence[tuple[str, Any]], repeated: list[str]) -> dict[str, Any]:
    """Make a dictionary from the members of an object, and add names that occur more than once to ``repeated``."""
    made = dict(pairs)
    if len(made) < len(pairs):
        repeated += [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
    return made


def _walk(text: str, decoder: json.JSONDecoder, repeated: list[str]) -> Iterator[Member]:
    """Yield the members of a text that is a JSON object.  ``decoder`` adds to ``repeated``."""
    at, counted, line, offset = _skip_blanks(text, text.index("{") + 1), 0, 1, 0
    while text[at] != "}":
        begin = at
        name, at = decoder.raw_decode(text, begin)
        colon = _skip_blanks(text, at)
        repeated.clear()
        value, end = decoder.raw_decode(text, _skip_blanks(text, colon + 1))
        line += text.count("\n", counted, begin)
        offset += len(text[counted:begin].encode())
        counted = begin
        own = text[begin:end]
        yield Member(name, value, own, line, offset, len(own.encode()), repeated=tuple(dict.fromkeys(repeated)))
        at = _skip_blanks(text, end)
        if text[at] == ",":
            at = _skip_blanks(text, at + 1)


def _skip_blanks(text: str, at: int) -> int:
    return _BLANKS.match(text, at).end()  # type: ignore[union-attr]  # It matches everywhere.
