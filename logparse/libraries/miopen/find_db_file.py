"""The rows of a find-db (MIOpen's database of the fastest solvers), each made only when it is needed.

MIOpen ships files of 200,000 records.  A rule gives the same result for all usual entries that have the same solver,
algorithm and direction.  So one entry of each such group is checked for the whole group.  If the key or an entry of a
record is unusual, every entry of the record is checked by itself.  A test checks that both ways give the same rows and
notes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from logparse.libraries.kinds.reading import Offer, Reading, Row, Verdict, judge, offers
from logparse.libraries.miopen.find_db_index import Index, index_of
from logparse.libraries.miopen.find_db_items import RULES, is_usable, items, row_of
from logparse.libraries.miopen.key_tails import DIRECTIONS, Ints, Tails, number_column
from logparse.libraries.miopen.problem_key import problem_from_key
from logparse.libraries.miopen.records import Item, problem_or_none
from logparse.libraries.miopen.solvers import known_algorithm
from logparse.model import Direction

K = TypeVar("K")
V = TypeVar("V")
Judged: TypeAlias = Sequence[tuple[Item, Row]]
"""The entries of a record in MIOpen's solver database, each with a row that states what MIOpen does with it."""


class FindDbFile(Collection[Row]):
    """The rows of a find-db (MIOpen's database of solvers), in the file's order.  A row is one solver in a record.

    * ``numbers``: the numbers of the lines that have a record, counted from 1.
    * ``odd``: the entries and rows of each record that does not have the usual form, by line number.
    * ``keyless``: the numbers of the lines without a key or ``=``.  These lines have no rows.
    """

    def __init__(self, data: bytes, taken: Verdict, refusal: str) -> None:
        self.data, self._taken, self._refusal = data, taken, refusal
        self.columns = index = index_of(data)
        tails = Tails(index.tails)
        places = np.append(tails.places, -1)[index.tail]
        self._kinds = Kinds(index, tails, places)
        self._usual = places >= 0
        self._usual[index.line[index.time_us == 0]] = False
        self._usual[index.line[~self._kinds.all_for(_unremarkable)]] = False
        has_key = index.equals > 0
        self.numbers = np.flatnonzero(has_key) + 1
        self.odd = {n: self._judge_line(n) for n in (np.flatnonzero(has_key & ~self._usual) + 1).tolist()}
        self.keyless = [n for n in (np.flatnonzero(~has_key) + 1).tolist() if self.text_of(n).strip()]

    def text_of(self, number: int) -> str:
        start, end = self.columns.starts[number - 1], self.columns.starts[number] - 1
        return self.data[start:end].decode("utf-8", "surrogateescape")

    def key_of(self, number: int) -> str:
        start = self.columns.starts[number - 1]
        return self.data[start : start + self.columns.equals[number - 1]].decode("utf-8", "surrogateescape")

    def _judge_line(self, number: int) -> Judged:
        key, _, payload = self.text_of(number).partition("=")
        first, problem = int(self.columns.first[number - 1]) + 1, problem_or_none(problem_from_key, key)
        found = items(key, payload, problem, number, first)
        return [(x, row_of(x, *judge(number, x, {}, RULES, self._taken, self._refusal))) for x in found]

    @cached_property
    def first(self) -> dict[str, int]:
        """The number of the first line for each convolution in MIOpen's solver database.

        The key is the text that describes the convolution.
        """
        return {self.key_of(n): n for n in self.numbers.tolist() if self.columns.first[n - 1] == n - 1}

    def __len__(self) -> int:
        usual = np.diff(self.columns.begins)[self._usual]
        return int(usual.sum()) + sum(map(len, self.odd.values()))

    def __contains__(self, row: object) -> bool:
        return any(row == own for own in self)

    def __iter__(self) -> Iterator[Row]:
        for number in self.numbers.tolist():
            yield from self.of_line(number)

    def of_line(self, number: int) -> list[Row]:
        """Check one line of MIOpen's solver database, and return one result for each solver in the line."""
        return [row for _, row in self._judged(number)]

    def _judged(self, number: int) -> Judged:
        return self.odd[number] if number in self.odd else self._judge_line(number)

    def longer_than(self, most: int) -> list[int]:
        """Return the numbers of the lines (records) that list more than ``most`` solvers."""
        usual = np.flatnonzero(self._usual & (np.diff(self.columns.begins) > most)) + 1
        others = (n for n in (*self.odd, *self.keyless) if self.text_of(n).partition("=")[2].count(";") >= most)
        return sorted([*usual.tolist(), *others])

    @property
    def judged(self) -> Iterator[tuple[Item, Row, Sequence[int]]]:
        """Each entry of MIOpen's solver database, with the result of its check and the lines that contain it.

        Entries with the same solver, algorithm and direction are given once, with all their lines, because MIOpen
        treats them in the same way.
        """
        for number, judged in self.odd.items():
            yield from ((item, row, (number,)) for item, row in judged)
        yield from self._judged_alike

    @cached_property
    def _judged_alike(self) -> Sequence[tuple[Item, Row, Sequence[int]]]:
        return [
            next((item, row, lines) for item, row in self._judged(lines[0]) if item.solver == solver)
            for solver, lines in self._kinds.lines(self._usual)
        ]


@dataclass(frozen=True, kw_only=True)
class FindDbReading(Reading[FindDbFile]):
    """The rows that MIOpen takes from a find-db (its database of the fastest solvers) when it reads the file."""

    @property
    def alike(self) -> Iterator[tuple[Row, Sequence[int]]]:
        return ((row, lines) for _, row, lines in self.parsed.judged)

    def offers(self, work: Callable[[Row], str]) -> Iterator[Offer]:
        """Yield what may be copied from MIOpen's database to a merged one: keys, solvers and times.

        ``work`` is not used.  In other libraries' files it tells apart products that share a key.  But a key of MIOpen
        describes the whole convolution.
        """
        index = self.parsed.columns
        begins, names = index.begins.tolist(), [index.solvers[place] for place in index.solver.tolist()]
        times = index.time_us.tolist()
        for number in self.parsed.numbers.tolist():
            if number in self.parsed.odd:
                yield from offers(row for _, row in self.parsed.odd[number])
                continue
            key, _, payload = self.parsed.text_of(number).partition("=")
            for item, text in enumerate(payload.split(";"), begins[number - 1]):
                yield Offer(number, key, names[item], names[item], times[item], text)

    @cached_property
    def by_key(self) -> Mapping[str, Sequence[Row]]:
        first, rows = self.parsed.first, self.parsed.of_line
        return _OfKeys(first, lambda key: [row for row in rows(first[key]) if not row.dead])

    @cached_property
    def by_shape(self) -> Mapping[str | None, Sequence[Row]]:
        shapes, rows = dict[str | None, list[int]](), self.parsed.of_line
        for number in self.parsed.numbers.tolist():
            try:
                shape = problem_from_key(self.parsed.key_of(number)).shape
            except ValueError:
                shape = None
            shapes.setdefault(shape, []).append(number)
        return _OfKeys(shapes, lambda x: [row for line in shapes[x] for row in rows(line) if row.live])


class _OfKeys(Mapping[K, Sequence[V]]):
    """A read-only dictionary that computes the value of a key each time it is read."""

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


class Kinds:
    """The solvers' entries in MIOpen's database, in groups that MIOpen treats alike.

    The entries of a group have the same solver, algorithm and direction.
    """

    def __init__(self, index: Index, tails: Tails, places: Ints) -> None:
        self._index = index
        directions = tails.direction[places[index.line]]
        codes = (index.solver.astype(np.int64) * len(index.algorithms) + index.algorithm) * 3 + directions
        found = number_column(codes).dictionary_encode()
        self._codes = found.dictionary.to_pylist()
        self._place = np.frombuffer(found.indices.buffers()[1], np.int32)[: len(codes)]

    def all_for(self, holds: Callable[[str, str, Direction], bool]) -> npt.NDArray[np.bool_]:
        """Call ``holds(solver, algorithm, direction)`` for each group of entries, and return an answer for every entry.

        The entries of a group have the same solver, algorithm and direction, so one call per group is enough.
        """
        fine: list[bool] = []
        for names, direction in (divmod(code, 3) for code in self._codes):
            solver, algorithm = divmod(names, len(self._index.algorithms))
            fine.append(holds(self._index.solvers[solver], self._index.algorithms[algorithm], DIRECTIONS[direction]))
        out: npt.NDArray[np.bool_] = np.array(fine, bool)[self._place]
        return out

    def lines(self, usual: npt.NDArray[np.bool_]) -> Iterator[tuple[str, Sequence[int]]]:
        """Yield the solver of each group of entries, and the numbers (from 1) of the lines that contain the group.

        The entries of a group have the same solver, algorithm and direction.  ``usual`` tells for each line if it has
        the usual form.  Other lines are left out.
        """
        items = np.flatnonzero(usual[self._index.line])
        order = items[np.argsort(self._place[items], kind="stable")]
        cuts = np.flatnonzero(np.diff(self._place[order])) + 1
        # The groups are sorted by their first line.
        for group in sorted(np.split(order, cuts), key=lambda x: x[:1].tolist()):
            if len(group):
                lines = array("q", (self._index.line[group] + np.int64(1)).tobytes())
                yield self._index.solvers[self._index.solver[group[0]]], lines


def _unremarkable(solver: str, algorithm: str, direction: Direction) -> bool:
    return known_algorithm(solver) is not None and is_usable(solver, algorithm, direction)
