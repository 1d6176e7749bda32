"""Where the records of a find-db stand, and the numbers of those of the ordinary form, without an object per record.

Readers of whole files take from it what is uniform, and read the other lines one by one.  The native reader and the
plain one below give equal results; ``tests/formats/miopen/test_find_db_index.py`` holds them to that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from logparse.formats.decimals import MS_TO_US
from logparse.formats.miopen.find_db_native import native_reader
from logparse.formats.patterns import regex

_N = rb"(?:0|[1-9]\d{0,8})"
_SIZES = regex(
    rb"(?:%(n)s-%(n)s-%(n)s-%(n)sx%(n)s-%(n)s-%(n)s-%(n)s-%(n)s-"
    rb"|%(n)s-%(n)s-%(n)s-%(n)s-%(n)sx%(n)sx%(n)s-%(n)s-%(n)s-%(n)s-%(n)s-%(n)s-)(?=[ !-+\--9<>-~]+\Z)" % {b"n": _N}
)
_ITEM = regex(rb"([!-+\--9<>-~]+):(\d+(?:\.\d+)?),(\d{1,11}),(\w+)")
_MOST_FLOPS = float(1 << 62)
"""Half of what 64 bits hold: flops are at most twice the product of a key's sizes."""
_EXACT, _DIGITS = 1 << 53, 18
"""Times up to this number without their point, of so many characters, are read exactly by one operation."""


@dataclass(frozen=True, eq=False)
class Index:
    """Columns of a file's lines and of the items of its ordinary records.

    Of each line: ``starts`` (bytes; one more: where a next line would begin), ``equals``, the length of its key (-1 or
    0: it has none), ``first``, the line of the key's first record, ``tail``, a place in ``tails`` (-1: the record is
    not of the ordinary form, and has no items here), ``begins``, its first item (one more).  Of each item: ``solver``
    and ``algorithm``, places in ``solvers`` and ``algorithms``, ``at``, where it begins in the file, ``time_us`` above
    0, and ``workspace_bytes``.  Lines are counted from 0.

    An ordinary record is the first of its key, its key has sizes whose product makes flops of 64 bits, and its items
    are ``solver:ms,workspace,algorithm`` of different solvers.  What tails and names mean is not looked at; ``tails``
    have the count of dimensions and the text behind the batch size.
    """

    starts: npt.NDArray[np.int64]
    equals: npt.NDArray[np.int32]
    first: npt.NDArray[np.int32]
    tail: npt.NDArray[np.int32]
    begins: npt.NDArray[np.int32]
    solver: npt.NDArray[np.int32]
    algorithm: npt.NDArray[np.int32]
    at: npt.NDArray[np.int64]
    time_us: npt.NDArray[np.float64]
    workspace_bytes: npt.NDArray[np.int64]
    solvers: Sequence[str]
    algorithms: Sequence[str]
    tails: Sequence[tuple[int, str]]

    @cached_property
    def line(self) -> npt.NDArray[np.int32]:
        """The line of each item."""
        return np.repeat(np.arange(len(self.tail), dtype=np.int32), np.diff(self.begins))

    def ends(self, items: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Where items end in the file."""
        following, next_line = items + 1, self.line[items] + 1
        last = following == self.begins[next_line]
        ends: npt.NDArray[np.int64] = np.where(
            last, self.starts[next_line], self.at[np.minimum(following, len(self.at) - 1)]
        )
        return ends - 1

    def items_of(self, lines: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The items of lines, and how many each line has."""
        begins = self.begins[lines].astype(np.int64)
        counts = self.begins[lines + 1] - begins
        before = np.cumsum(counts) - counts
        return np.arange(counts.sum()) + np.repeat(begins - before, counts), counts


_TYPES = (np.int64, *(np.int32,) * 6, np.int64, np.float64, np.int64)


def index_of(data: bytes, native: bool | None = None) -> Index:
    """The index of a file of less than 2 GiB, by the native reader or plainly (see ``native_reader``)."""
    reader = native_reader(native)
    if reader is None or len(data) >= 1 << 31:
        return _plain(data)
    *columns, solvers, algorithms, tails = reader.index(data)
    fields: list[Any] = [*map(np.frombuffer, columns, _TYPES), solvers, algorithms, tails]
    return Index(*fields)


def _plain(data: bytes) -> Index:
    lines = data.split(b"\n")
    rows: list[tuple[int, int, int, int]] = []
    items: list[tuple[int, int, int, float, int]] = []
    keys: dict[bytes, int] = {}
    solvers, algorithms = dict[str, int](), dict[str, int]()
    tails: dict[tuple[int, str], int] = {}
    start = 0
    for number, line in enumerate(lines):
        key, equals, payload = line.partition(b"=")
        first = keys.setdefault(key, number) if equals and key else number
        tail = _tail(key) if equals and key and first == number else None
        found = None if tail is None else _items(payload)
        place = -1 if tail is None or found is None else tails.setdefault(tail, len(tails))
        rows.append((len(key) if equals else -1, first, place, len(items)))
        for solver, algorithm, at, time_us, size in found or ():
            names = solvers.setdefault(solver, len(solvers)), algorithms.setdefault(algorithm, len(algorithms))
            items.append((*names, start + len(key) + 1 + at, time_us, size))
        start += len(line) + 1
    starts = np.cumsum([0, *(len(line) + 1 for line in lines)])
    by_line = np.array([*rows, (0, 0, 0, len(items))]).T
    by_item = list(zip(*items, strict=True)) or [()] * 5
    columns = [starts, *(x[:-1] for x in by_line[:3]), by_line[3], *by_item]
    made = (np.array(values, kind) for values, kind in zip(columns, _TYPES, strict=True))
    fields: list[Any] = [*made, list(solvers), list(algorithms), list(tails)]
    return Index(*fields)


def _tail(key: bytes) -> tuple[int, str] | None:
    """Count of dimensions, and what stands behind the batch size of a key of the ordinary form."""
    match = _SIZES.match(key)
    if match is None:
        return None
    sizes = [float(x) for x in re.split(b"[-x]", match[0][:-1])]
    return (2 if len(sizes) == 9 else 3, key[match.end() :].decode()) if math.prod(sizes) < _MOST_FLOPS else None


def _items(payload: bytes) -> list[tuple[str, str, int, float, int]] | None:
    """Solver, algorithm, place, time and workspace of each item; None where one is not of the ordinary form."""
    out: list[tuple[str, str, int, float, int]] = []
    at, seen = 0, set[bytes]()
    for item in payload.split(b";"):
        match = _ITEM.fullmatch(item)
        if match is None or match[1] in seen or len(match[2]) > _DIGITS:
            return None
        if not 0 < int(match[2].replace(b".", b"")) <= _EXACT:
            return None
        time_us = float(f"{match[2].decode()}e{MS_TO_US}")
        out.append((match[1].decode(), match[4].decode(), at, time_us, int(match[3])))
        seen.add(match[1])
        at += len(item) + 1
    return out
