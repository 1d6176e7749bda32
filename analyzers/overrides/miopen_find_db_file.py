"""The rows of a find-db, of which MIOpen ships files of 200,000 records: each is made when it is asked for.

What the rules have to say of an item depends on its numbers, its record and its place only where these are unusual.  So
records are recognised whose key and items are all of the usual form; of their items one per solver and algorithm is
judged for all.  The other records are judged item by item.  A law holds both ways to the same rows and notes.
"""

from __future__ import annotations

import math
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from typing import TypeAlias, TypeVar, cast, overload

from analyzers.overrides.miopen_records import Item
from analyzers.overrides.reading import LongFile, Offer, Row, offers
from logparse.formats.decimals import MS_TO_US
from logparse.formats.miopen.problem_key import SIZES_2D, SIZES_3D, key_of, problem_from_key
from logparse.model import ConvProblem

K = TypeVar("K")
V = TypeVar("V")
Judged: TypeAlias = Sequence[tuple[Item, Row]]
Judge: TypeAlias = Callable[[int, str, str, int], Judged]
"""Line, key, text behind ``=``, and line of the key's first record → the record's items and what becomes of them."""
Usual: TypeAlias = Callable[[str, str, ConvProblem], bool]
"""Whether nothing is wrong with a solver under an algorithm in a record of such a problem."""

_SIZES = re.compile(rf"({SIZES_2D}|{SIZES_3D})-", re.ASCII)
_SMALLEST = {
    4: "1-1-1-1x1-1-1-1-1-1x1-1x1-1x1-",
    7: "1-1-1-1-1x1x1-1-1-1-1-1-1x1-1x1x1-1x1x1-",
    8: "1-1-1-1-1x1x1-1-1-1-1-1-1x1x1-1x1x1-1x1x1-",
}
"""Sizes of a key, by how many ``x`` they have: a 3D key may have a pad of two numbers."""
_ITEM = re.compile(r"(?:^|;)([^\s:;,=]+):(?=[\d.]*[1-9])\d{1,18}(?:\.\d{1,18})?,\d{1,11},(\w+)(?=;|$)", re.ASCII)
"""An item with a time above 0 and a workspace that a GPU may have."""
_WORKSPACE = re.compile(r"[=;]([^:]+):[^,]*,(\d+)", re.ASCII)
"""Solver and workspace of an item of the usual form."""
_TIME = re.compile(r"[=;](([^:]+):([\d.]+),\d+,\w+)", re.ASCII)
"""Text, solver and time of an item of the usual form."""


class FindDbFile(LongFile):
    """The items of a find-db's records, in order.  Lines without key or ``=`` (``keyless``) have none."""

    def __init__(self, text: str, judge: Judge, usual: Usual) -> None:
        self._lines = text.split("\n")
        self._judge = judge
        self._first: dict[str, int] = {}
        self._again: dict[str, list[int]] = {}
        self._starts, self._numbers, self._count = array("q"), array("q"), 0
        self._odd: dict[int, Judged] = {}
        self._same: dict[str, dict[tuple[str, str], array[int] | None]] = {x: {} for x in "FBW"}  # None: not usual
        self.keyless: list[int] = []
        for number, line in enumerate(self._lines, start=1):
            key, equals, payload = line.partition("=")
            if not equals or not key:
                self.keyless += [number] if line.strip() else []
                continue
            first = self._first.setdefault(key, number)
            if first != number:
                self._again.setdefault(key, []).append(number)
            problem = _usual_key(key) if first == number else None
            same = None if problem is None else self._alike(payload, problem, usual)
            if same is None:
                self._odd[number] = judge(number, key, payload, first)
            for lines in same or ():
                lines.append(number)
            self._starts.append(self._count)
            self._numbers.append(number)
            self._count += len(self._odd[number] if same is None else same)

    def _alike(self, payload: str, problem: ConvProblem, usual: Usual) -> list[array[int]] | None:
        """For each item of a record the lines of those like it; None where anything is unusual."""
        found, same = _ITEM.findall(payload), self._same[problem.direction]
        if len(found) != payload.count(";") + 1 or len(dict(found)) != len(found):
            return None
        for pair in found:
            if pair not in same:
                same[pair] = array("q") if usual(pair[0], pair[1], problem) else None
        lines = [same[pair] for pair in found]
        return None if None in lines else cast("list[array[int]]", lines)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        for number in self._numbers:
            yield from self.of_line(number)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(index)
        at = bisect_right(self._starts, place) - 1
        return self.of_line(self._numbers[at])[place - self._starts[at]]

    def of_line(self, number: int) -> list[Row]:
        """The rows of the record in a line."""
        return [row for _, row in self._judged(number)]

    def _judged(self, number: int) -> Judged:
        if number in self._odd:
            return self._odd[number]
        key, _, payload = self._lines[number - 1].partition("=")
        return self._judge(number, key, payload, number)

    @property
    def odd(self) -> Iterator[Row]:
        """The rows of records that are not of the usual form."""
        return (row for judged in self._odd.values() for _, row in judged)

    @property
    def judged(self) -> Iterator[tuple[Item, Row, Sequence[int]]]:
        """Each item that was judged, what becomes of it, and the lines of those that it was judged for."""
        for number, judged in self._odd.items():
            yield from ((item, row, (number,)) for item, row in judged)
        for same in self._same.values():
            for (solver, _), lines in same.items():
                if lines:
                    yield next((item, row, lines) for item, row in self._judged(lines[0]) if item.solver == solver)

    @property
    def alike(self) -> Iterator[tuple[Row, Sequence[int]]]:
        return ((row, lines) for _, row, lines in self.judged)

    @property
    def offers(self) -> Mapping[str, Sequence[Offer]]:
        return _OfKeys(self._first, self._offers)

    def _offers(self, key: str) -> Sequence[Offer]:
        number = self._first[key]
        if number in self._odd or key in self._again:
            return list(offers(chain(self.of_line(number), *map(self.of_line, self._again.get(key, ())))))
        items = _TIME.findall(self._lines[number - 1], len(key))
        return [Offer(number, key, x, x, float(f"{time}e{MS_TO_US}"), text) for text, x, time in items]

    @property
    def by_key(self) -> Mapping[str, Sequence[Row]]:
        return _OfKeys(self._first, self._kept)

    def _kept(self, key: str) -> Sequence[Row]:
        lines = (self._first[key], *self._again.get(key, ()))
        return [row for line in lines for row in self.of_line(line) if not row.dead]

    @cached_property
    def _shapes(self) -> dict[str | None, list[int]]:
        out: dict[str | None, list[int]] = {}
        for number in self._numbers:
            try:
                shape = problem_from_key(self._lines[number - 1].partition("=")[0]).shape
            except ValueError:
                shape = None
            out.setdefault(shape, []).append(number)
        return out

    @property
    def by_shape(self) -> Mapping[str | None, Sequence[Row]]:
        return _OfKeys(self._shapes, lambda x: [r for line in self._shapes[x] for r in self.of_line(line) if r.live])

    def with_less(self, needed: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
        for key, sizes in needed.items():
            number = self._first.get(key)
            if number is None:
                continue
            stated = dict(_WORKSPACE.findall(self._lines[number - 1]))
            if number in self._odd or any(
                int(stated.get(solution.partition(":")[2], size)) < size for solution, size in sizes.items()
            ):
                yield key


class _OfKeys(Mapping[K, Sequence[V]]):
    """What is made of each key when it is asked for, for some of them nothing."""

    def __init__(self, keys: Collection[K], made: Callable[[K], Sequence[V]]) -> None:
        self._keys, self._made = keys, made

    def __getitem__(self, key: K) -> Sequence[V]:
        if key not in self._keys:
            raise KeyError(key)
        return self._made(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def _usual_key(key: str) -> ConvProblem | None:
    """A problem of the key's tail, if MIOpen makes such a key and spells it so."""
    match = _SIZES.match(key)
    if match is None:
        return None
    sizes = match[1]
    problem = _usual_tail(sizes.count("x"), key[match.end() :])
    product = math.prod(map(int, sizes.replace("x", "-").replace("-0", "").split("-")))  # pads are 0
    return problem if product < 1 << 62 or _is_read(key) else None  # flops are at most twice the product


@lru_cache(maxsize=4096)  # a file has some hundred
def _usual_tail(separators: int, tail: str) -> ConvProblem | None:
    key = _SMALLEST[separators] + tail
    try:
        problem = problem_from_key(key)
    except ValueError:
        return None
    return problem if key_of(problem) == key else None


def _is_read(key: str) -> bool:
    try:
        problem_from_key(key)
    except ValueError:
        return False
    return True
