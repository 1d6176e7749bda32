"""Find-dbs merged as columns: what ``merge`` finds key by key, of keys that only usual records have, all at once.

The keys are merged in ranges, so that of all that is made of the files' items little is in memory at a time.  A test
holds both ways to the same file and conflicts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logparse.formats.miopen.find_db_file import FindDbFile, Ints
from logparse.formats.miopen.key_tails import number_column, text_column
from logparse.formats.override_format import MergedRecords, Together
from logparse.formats.reading import Offer, Reading

_AT_ONCE = 1 << 16
"""Records that are merged at once, of all files together: some hundred bytes each."""
_BETWEEN_ITEMS, _EQUALS, _NOTHING, _LINE_END = text_column((";", "=", "", "\n")).cast(pa.large_string())


def together(files: Sequence[tuple[str, Reading[FindDbFile]]]) -> Together:
    """What is taken of the keys that only usual records have, and what files offer for the other keys."""
    parsed = [reading.parsed for _, reading in files]
    odd = sorted(set().union(*(file.odd_keys for file in parsed)))
    records = _Files([path for path, _ in files], parsed, odd).merged()
    return Together(records, [(path, file.offers_of(odd)) for (path, _), file in zip(files, parsed, strict=True)])


class _Files:
    """The usual records of all files, but for those of ``odd`` keys, which other records have, too."""

    def __init__(self, paths: Sequence[str], files: Sequence[FindDbFile], odd: Sequence[str]) -> None:
        self.files, self._odd = files, odd
        self.paths = list(dict.fromkeys(paths))
        self.path = np.array([self.paths.index(path) for path in paths])
        self.solvers = sorted(set().union(*(file.columns.solvers for file in files)))
        self.solver = [np.array([self.solvers.index(x) for x in file.columns.solvers], np.int64) for file in files]
        marked = sorted(range(len(self.solvers)), key=lambda x: f"{self.solvers[x]}:")  # as texts of items are ordered
        self.mark = np.argsort(np.array(marked, np.int64))

    def merged(self) -> Iterator[MergedRecords]:
        """The records, sorted by key, none of them on both sides of an odd key."""
        for lines in self._ranges():
            items = _Items.of(self, lines, self._odd)
            keys, rivals, merged = items.keys.to_pylist(), items.rivals(), items.lines()
            cuts = {0, len(keys), *(bisect_left(keys, odd) for odd in self._odd)}
            for begin, end in pairwise(sorted(cuts)):
                among = [(keys[at], rivals[at]) for at in range(begin, end) if at in rivals]
                yield MergedRecords(keys[begin:end], "".join(merged[begin:end].to_pylist()), among)

    def _ranges(self) -> Iterator[Sequence[Ints]]:
        """Each file's lines of a range of keys, in order: a range has all keys that begin with the same eight bytes."""
        heads = [file.heads() for file in self.files]
        bounds = np.unique(np.sort(np.concatenate(heads))[_AT_ONCE::_AT_ONCE])
        numbers = [np.searchsorted(bounds, head, side="right") for head in heads]
        lines = [file.usual_lines[np.argsort(x, kind="stable")] for file, x in zip(self.files, numbers, strict=True)]
        stops = [np.cumsum(np.bincount(x, minlength=len(bounds) + 1)) for x in numbers]
        return zip(*(np.split(x, stop[:-1]) for x, stop in zip(lines, stops, strict=True)), strict=True)


@dataclass(frozen=True, eq=False)
class _Items:
    """The items of a range of ``keys``, which are sorted, as columns: of each its ``key`` and ``solver`` as places in
    lists, ``time_us``, its ``file``, and its ``place`` among that file's items.  They are in order of file and place.
    """

    all: _Files
    keys: pa.LargeStringArray
    key: Ints
    solver: Ints
    file: Ints
    place: Ints
    time_us: npt.NDArray[np.float64]

    @classmethod
    def of(cls, all: _Files, lines: Sequence[Ints], odd: Sequence[str]) -> _Items:
        texts = pa.concat_arrays([file.keys(its) for file, its in zip(all.files, lines, strict=True)])
        coded = texts.dictionary_encode()
        is_odd = pc.is_in(coded.dictionary, text_column(x for x in odd if x.isascii()).cast(pa.large_string()))
        order = np.from_dlpack(pc.array_sort_indices(coded.dictionary))
        order = order[np.from_dlpack(is_odd.cast(pa.uint8()))[order] == 0]
        rank = np.full(len(coded.dictionary), -1)
        rank[order] = np.arange(len(order))
        ranks = np.split(rank[np.from_dlpack(coded.indices)], np.cumsum([len(its) for its in lines])[:-1])
        rows: list[tuple[npt.NDArray[np.generic], ...]] = []
        for number, (file, its, key) in enumerate(zip(all.files, lines, ranks, strict=True)):
            places, counts = file.columns.items_of(its[key >= 0])
            rows.append(
                (
                    np.repeat(key[key >= 0], counts),
                    all.solver[number][file.columns.solver[places]],
                    np.full(len(places), number),
                    places,
                    file.columns.time_us[places],
                )
            )
        columns = (np.concatenate(column) for column in zip(*rows, strict=True))
        return cls(all, coded.dictionary.take(number_column(order)), *columns)  # type: ignore[arg-type]

    def lines(self) -> pa.LargeStringArray:
        """A line for each key, its items the fastest first."""
        taken = np.sort(self._fastest(self.key * len(self.all.solvers) + self.solver))
        cuts = np.searchsorted(self.file[taken], np.arange(1, len(self.all.files)))
        texts = pa.concat_arrays(
            [file.items(self.place[its]) for file, its in zip(self.all.files, np.split(taken, cuts), strict=True)]
        )
        order = np.lexsort((self.all.mark[self.solver[taken]], self.time_us[taken], self.key[taken]))
        counts = np.bincount(self.key[taken], minlength=len(self.keys))
        offsets = number_column(np.concatenate([[0], np.cumsum(counts)]))
        records = pa.LargeListArray.from_arrays(offsets, texts.take(number_column(order)))
        lines = pc.binary_join_element_wise(self.keys, pc.binary_join(records, _BETWEEN_ITEMS), _EQUALS)
        return pc.binary_join_element_wise(lines, _NOTHING, _LINE_END)

    def _fastest(self, groups: Ints) -> Ints:
        """Of each group the fastest item, of several the one of the smallest solver, then of the first file."""
        order = np.lexsort((self.solver, groups)) if len(groups) else np.empty(0, np.int64)
        starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
        if not len(starts):
            return order
        times = self.time_us[order]
        sizes = np.diff(starts, append=len(order))
        least = np.flatnonzero(times == np.repeat(np.minimum.reduceat(times, starts), sizes))
        found: Ints = order[least[np.flatnonzero(np.diff(groups[order[least]], prepend=-1))]]
        return found

    def rivals(self) -> Mapping[int, Sequence[tuple[str, Offer]]]:
        """The fastest item of each path, of keys (their places) where these are of several solvers."""
        fastest = self._fastest(self.key * len(self.all.paths) + self.all.path[self.file])
        keys, solvers = self.key[fastest], self.solver[fastest]
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        if not len(starts):
            return {}
        differ = np.minimum.reduceat(solvers, starts) != np.maximum.reduceat(solvers, starts)
        out: dict[int, list[tuple[str, Offer]]] = {}
        for item in fastest[np.repeat(differ, np.diff(starts, append=len(fastest)))].tolist():
            path = self.all.paths[self.all.path[self.file[item]]]
            out.setdefault(int(self.key[item]), []).append((path, self._offer(item)))
        return out

    def _offer(self, item: int) -> Offer:
        return self.all.files[int(self.file[item])].offer(int(self.place[item]), self.keys[int(self.key[item])].as_py())
