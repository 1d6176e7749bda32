"""The rows of a find-db, of which MIOpen ships files of 200,000 records: each is made when it is asked for.

What the rules report of an item depends on its numbers, its record and its place only where these are unusual.  So
records are recognised whose key and items are all of the usual form; of their items one per solver and algorithm is
judged for all.  The other records are judged item by item.  A law holds both ways to the same rows and notes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import TypeAlias, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logparse.formats.miopen.find_db_index import Index, index_of
from logparse.formats.miopen.key_tails import number_column, text_column
from logparse.formats.miopen.problem_key import key_of, problem_from_key
from logparse.formats.miopen.records import Item
from logparse.formats.reading import Less, LongFile, Offer, Row, offers
from logparse.formats.workspaces import Workspaces
from logparse.model import ConvProblem

K = TypeVar("K")
V = TypeVar("V")
Ints: TypeAlias = npt.NDArray[np.int64]
Judged: TypeAlias = Sequence[tuple[Item, Row]]
Judge: TypeAlias = Callable[[int, str, str, int], Judged]
"""Line, key, text behind ``=``, and line of the key's first record → the record's items and what becomes of them."""
Usual: TypeAlias = Callable[[str, str, ConvProblem], bool]
"""Whether nothing is wrong with a solver under an algorithm in a record of such a problem."""

_SMALLEST = {2: "1-1-1-1x1-1-1-1-1-", 3: "1-1-1-1-1x1x1-1-1-1-1-1-"}
"""What stands before a key's tail, by its count of dimensions."""
_DIRECTIONS = "FBW"


class FindDbFile(LongFile):
    """The items of a find-db's records, in order.  Lines without key or ``=`` (``keyless``) have none."""

    def __init__(self, data: bytes, judge: Judge, usual: Usual) -> None:
        self.data, self._judge = data, judge
        self.columns = index = index_of(data)
        problems = [_usual_tail(*tail) for tail in index.tails]
        known = np.array([x is not None for x in (*problems, None)])  # the last is that of records not ordinary
        letters = np.array([_DIRECTIONS.find(x.direction) if x else 0 for x in (*problems, None)])
        self._usual = known[index.tail]
        self._kinds = _Kinds(index, letters[index.tail[index.line]])
        example: dict[str, ConvProblem] = {x.direction: x for x in problems if x is not None}
        self._usual[index.line[~self._kinds.fine(usual, example)[self._kinds.place]]] = False
        has_key = index.equals > 0
        self._numbers = np.flatnonzero(has_key) + 1
        self._odd = {n: self._judge_line(n) for n in (np.flatnonzero(has_key & ~self._usual) + 1).tolist()}
        self.keyless = [n for n in (np.flatnonzero(~has_key) + 1).tolist() if self._line(n).strip()]

    def _line(self, number: int) -> str:
        start, end = self.columns.starts[number - 1], self.columns.starts[number] - 1
        return self.data[start:end].decode("utf-8", "surrogateescape")

    def _key(self, number: int) -> str:
        start = self.columns.starts[number - 1]
        return self.data[start : start + self.columns.equals[number - 1]].decode("utf-8", "surrogateescape")

    def _judge_line(self, number: int) -> Judged:
        key, _, payload = self._line(number).partition("=")
        return self._judge(number, key, payload, int(self.columns.first[number - 1]) + 1)

    @cached_property
    def _starts(self) -> npt.NDArray[np.int64]:
        """How many items stand before those of each record."""
        counts = np.diff(self.columns.begins).astype(np.int64)
        counts[np.fromiter(self._odd, np.int64, len(self._odd)) - 1] = [len(x) for x in self._odd.values()]
        before: npt.NDArray[np.int64] = np.cumsum(counts[self._numbers - 1]) - counts[self._numbers - 1]
        return before

    @cached_property
    def _first(self) -> dict[str, int]:
        """Key → line of its first record."""
        usual = zip(self.usual_keys().to_pylist(), (self.usual_lines + 1).tolist(), strict=True)
        odd = ((self._key(n), n) for n in self._odd if self.columns.first[n - 1] == n - 1)
        return dict(chain(usual, odd))

    @cached_property
    def _again(self) -> dict[str, list[int]]:
        """Key → lines of its other records."""
        out: dict[str, list[int]] = {}
        for number in self._numbers[self.columns.first[self._numbers - 1] + 1 != self._numbers].tolist():
            out.setdefault(self._key(number), []).append(number)
        return out

    def __len__(self) -> int:
        return int(self._starts[-1]) + len(self._judged(int(self._numbers[-1]))) if len(self._numbers) else 0

    def __iter__(self) -> Iterator[Row]:
        for number in self._numbers.tolist():
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
        return self.of_line(int(self._numbers[at]))[place - int(self._starts[at])]

    def of_line(self, number: int) -> list[Row]:
        """The rows of the record in a line."""
        return [row for _, row in self._judged(number)]

    def _judged(self, number: int) -> Judged:
        return self._odd[number] if number in self._odd else self._judge_line(number)

    def longer_than(self, most: int) -> list[int]:
        """Lines with more items than that."""
        usual = np.flatnonzero(self._usual & (np.diff(self.columns.begins) > most)) + 1
        others = (n for n in (*self._odd, *self.keyless) if self._line(n).partition("=")[2].count(";") >= most)
        return sorted([*usual.tolist(), *others])

    @property
    def odd(self) -> Iterator[Row]:
        """The rows of records that are not of the usual form."""
        return (row for judged in self._odd.values() for _, row in judged)

    @property
    def judged(self) -> Iterator[tuple[Item, Row, Sequence[int]]]:
        """Each item that was judged, what becomes of it, and the lines of those that it was judged for."""
        for number, judged in self._odd.items():
            yield from ((item, row, (number,)) for item, row in judged)
        yield from self._judged_alike

    @cached_property
    def _judged_alike(self) -> Sequence[tuple[Item, Row, Sequence[int]]]:
        return [
            next((item, row, lines) for item, row in self._judged(lines[0]) if item.solver == solver)
            for solver, lines in self._kinds.lines(self._usual)
        ]

    @property
    def alike(self) -> Iterator[tuple[Row, Sequence[int]]]:
        return ((row, lines) for _, row, lines in self.judged)

    @property
    def odd_keys(self) -> set[str]:
        """Keys of which a record is not of the usual form, or which several records have."""
        return {self._key(number) for number in self._odd}

    def offers_of(self, keys: Sequence[str]) -> dict[str, list[Offer]]:
        """What the file offers for some keys: ``offers`` of their rows."""
        lines: dict[str, list[int]] = {key: [] for key in keys}
        plain = [key for key in keys if key.isascii()]  # as usual keys are
        at = pc.index_in(text_column(plain).cast(pa.large_string()), self.usual_keys())
        for key, place in zip(plain, at.to_pylist(), strict=True):
            lines[key] += [] if place is None else [int(self.usual_lines[place]) + 1]
        for number in self._odd:
            if (key := self._key(number)) in lines:
                lines[key].append(number)
        return {key: list(offers(chain.from_iterable(map(self.of_line, its)))) for key, its in lines.items() if its}

    def offer(self, item: int, key: str) -> Offer:
        """What an item of the columns offers to its key."""
        columns = self.columns
        solver, time_us = columns.solvers[columns.solver[item]], float(columns.time_us[item])
        (text,) = self.items(np.array([item])).to_pylist()
        return Offer(int(columns.line[item]) + 1, key, solver, solver, time_us, text)

    @property
    def by_key(self) -> Mapping[str, Sequence[Row]]:
        return _OfKeys(self._first, self._kept)

    def _kept(self, key: str) -> Sequence[Row]:
        lines = (self._first[key], *self._again.get(key, ()))
        return [row for line in lines for row in self.of_line(line) if not row.dead]

    @cached_property
    def _shapes(self) -> dict[str | None, list[int]]:
        out: dict[str | None, list[int]] = {}
        for number in self._numbers.tolist():
            try:
                shape = problem_from_key(self._key(number)).shape
            except ValueError:
                shape = None
            out.setdefault(shape, []).append(number)
        return out

    @property
    def by_shape(self) -> Mapping[str | None, Sequence[Row]]:
        return _OfKeys(self._shapes, lambda x: [r for line in self._shapes[x] for r in self.of_line(line) if r.live])

    @cached_property
    def usual_lines(self) -> Ints:
        """The lines, counted from 0, of records of the usual form."""
        return np.flatnonzero(self._usual)

    def usual_keys(self) -> pa.LargeStringArray:
        """Their keys, made anew: a third of the file."""
        return self.keys(self.usual_lines)

    def keys(self, lines: Ints) -> pa.LargeStringArray:
        """The keys of some usual lines, in order."""
        starts = self.columns.starts[lines]
        return self._cut(starts, starts + self.columns.equals[lines])

    def heads(self) -> npt.NDArray[np.uint64]:
        """The first eight bytes of each key of a usual line, as numbers that are in the order of the keys."""
        starts = self.columns.starts[self.usual_lines]
        firsts = np.frombuffer(self.data, np.uint8)[starts[:, None] + np.arange(8)]
        heads: npt.NDArray[np.uint64] = firsts.view(">u8").astype(np.uint64).ravel()
        return heads

    def items(self, places: Ints) -> pa.LargeStringArray:
        """The texts of some items of the columns, in order."""
        return self._cut(self.columns.at[places], self.columns.ends(places))

    def _cut(self, starts: Ints, ends: Ints) -> pa.LargeStringArray:
        """Texts of the file, in order."""
        cuts = np.empty(2 * len(starts), np.int64)  # every other text is one of them
        cuts[::2], cuts[1::2] = starts, ends
        texts = pa.LargeStringArray.from_buffers(max(len(cuts) - 1, 0), pa.py_buffer(cuts), pa.py_buffer(self.data))
        return texts.take(number_column(np.arange(0, len(cuts), 2)))

    def with_less(self, needed: Workspaces) -> Iterator[Less]:
        index, names = self.columns, {f"miopen:{name}": place for place, name in enumerate(self.columns.solvers)}
        found = pc.index_in(needed.keys.cast(pa.large_string()), self.usual_keys()).fill_null(-1).to_numpy()[needed.key]
        solver = np.array([*(names.get(x, -1) for x in needed.solutions), -1])[needed.solution]
        known = (found >= 0) & (solver >= 0)
        asked = self.usual_lines[found[known]] * len(names) + solver[known]
        items = index.line.astype(np.int64) * len(names) + index.solver
        order = np.argsort(items, kind="stable")  # they are nearly in order
        at = order[np.minimum(np.searchsorted(items, asked, sorter=order), len(order) - 1)]
        same, most = items[at] == asked, np.zeros(len(items), np.int64)
        np.maximum.at(most, at[same], needed.bytes[known][same])
        for item in np.flatnonzero(index.workspace_bytes < most).tolist():
            stated, needs = int(index.workspace_bytes[item]), int(most[item])
            yield Less(int(index.line[item]) + 1, index.solvers[index.solver[item]], stated, needs)


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


class _Kinds:
    """The items of a file by solver, algorithm and direction: those of one kind are judged alike."""

    def __init__(self, index: Index, direction: npt.NDArray[np.int64]) -> None:
        self._index = index
        codes = (index.solver.astype(np.int64) * len(index.algorithms) + index.algorithm) * len(_DIRECTIONS) + direction
        self._codes, place = np.unique(codes, return_inverse=True)
        self.place = place.astype(np.int32)

    def fine(self, usual: Usual, examples: Mapping[str, ConvProblem]) -> npt.NDArray[np.bool_]:
        """Of each kind, whether nothing is wrong with it."""
        return np.array([self._fine(code, usual, examples) for code in self._codes.tolist()], bool)

    def _fine(self, code: int, usual: Usual, examples: Mapping[str, ConvProblem]) -> bool:
        names, direction = divmod(code, len(_DIRECTIONS))
        solver, algorithm = divmod(names, len(self._index.algorithms))
        problem = examples.get(_DIRECTIONS[direction])
        return problem is not None and usual(self._index.solvers[solver], self._index.algorithms[algorithm], problem)

    def lines(self, usual: npt.NDArray[np.bool_]) -> Iterator[tuple[str, Sequence[int]]]:
        """Solver and lines (from 1) of each kind in usual records, in the order of their first lines."""
        items = np.flatnonzero(usual[self._index.line])
        order = items[np.argsort(self.place[items], kind="stable")]
        cuts = np.flatnonzero(np.diff(self.place[order])) + 1
        for group in sorted(np.split(order, cuts), key=lambda x: x[:1].tolist()):
            if len(group):
                lines = array("q", (self._index.line[group] + np.int64(1)).tobytes())
                yield self._index.solvers[self._index.solver[group[0]]], lines


def _usual_tail(wide: int, tail: str) -> ConvProblem | None:
    """A problem of a key's tail, if MIOpen makes such a key and spells it so."""
    key = _SMALLEST[wide] + tail
    try:
        problem = problem_from_key(key)
    except ValueError:
        return None
    return problem if key_of(problem) == key else None
