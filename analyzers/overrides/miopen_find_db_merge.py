"""Find-dbs merged as columns: what ``merge`` finds key by key, of keys that only usual records have, all at once.

A test holds both ways to the same file and conflicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from analyzers.overrides.miopen_find_db_file import FindDbFile
from analyzers.overrides.override_format import MergedRecord, Together
from analyzers.overrides.reading import Offer, Reading

Ints = npt.NDArray[np.int64]
_AT_ONCE = 1 << 13
"""Keys whose records are written at once: some hundred bytes each."""


def together(files: Sequence[tuple[str, Reading[FindDbFile]]]) -> Together:
    """What is taken of the keys that only usual records have, and what files offer for the other keys."""
    parsed = [reading.parsed for _, reading in files]
    odd = sorted(set().union(*(file.odd_keys for file in parsed)))
    items = _Items.of([path for path, _ in files], parsed, odd)
    return Together(
        items.merged(), [(path, file.offers_of(odd)) for (path, _), file in zip(files, parsed, strict=True)]
    )


@dataclass(frozen=True, eq=False)
class _Items:
    """The items of all files that are merged as columns: of each its ``key``, ``solver`` and ``path`` as places in
    lists (``keys`` and ``solvers`` are sorted), ``time_us``, its ``file``, and its ``place`` among that file's items.
    """

    files: Sequence[FindDbFile]
    paths: Sequence[str]
    solvers: Sequence[str]
    keys: pa.Array
    key: npt.NDArray[np.int32]
    solver: npt.NDArray[np.int32]
    path: npt.NDArray[np.int32]
    file: npt.NDArray[np.int16]
    place: npt.NDArray[np.int32]
    time_us: npt.NDArray[np.float64]

    @classmethod
    def of(cls, paths: Sequence[str], files: Sequence[FindDbFile], odd: Sequence[str]) -> _Items:
        coded = pa.concat_arrays([file.usual_keys() for file in files]).dictionary_encode()
        keys, codes, begun = coded.dictionary, coded.indices.to_numpy(), 0
        fine = ~pc.is_in(keys, pa.array((x for x in odd if x.isascii()), pa.large_string())).to_numpy(
            zero_copy_only=False
        )
        order = pc.array_sort_indices(keys).to_numpy()
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        solvers = sorted(set().union(*(file.columns.solvers for file in files)))
        named = list(dict.fromkeys(paths))
        rows: list[tuple[npt.NDArray[np.generic], ...]] = []
        for number, (path, file) in enumerate(zip(paths, files, strict=True)):
            code = codes[begun : begun + len(file.usual_lines)]
            begun += len(code)
            of_line = np.full(len(file.columns.tail), -1, np.int32)
            of_line[file.usual_lines] = np.where(fine[code], rank[code], -1)
            places = np.flatnonzero(of_line[file.columns.line] >= 0)
            solver = np.array([solvers.index(x) for x in file.columns.solvers], np.int32)
            rows.append(
                (
                    of_line[file.columns.line[places]],
                    solver[file.columns.solver[places]],
                    np.full(len(places), named.index(path), np.int32),
                    np.full(len(places), number, np.int16),
                    places.astype(np.int32),
                    file.columns.time_us[places],
                )
            )
        columns = (np.concatenate(column) for column in zip(*rows, strict=True))
        return cls(files, named, solvers, keys.take(pa.array(order)), *columns)  # type: ignore[arg-type]

    def merged(self) -> Iterator[MergedRecord]:
        """The record of each key, its items the fastest first, sorted by key."""
        taken = self._fastest(self.key.astype(np.int64) * len(self.solvers) + self.solver)
        marked = sorted(range(len(self.solvers)), key=lambda x: f"{self.solvers[x]}:")  # as texts of items are ordered
        mark = np.argsort(np.array(marked, np.int64))
        taken = taken[np.lexsort((mark[self.solver[taken]], self.time_us[taken], self.key[taken]))]
        rivals, data = self._rivals(), [file.data for file in self.files]
        starts = np.flatnonzero(np.diff(self.key[taken], prepend=-1))
        stops = np.append(starts[1:], len(taken))
        for at in range(0, len(starts), _AT_ONCE):
            start, stop = starts[at : at + _AT_ONCE], stops[at : at + _AT_ONCE]
            items = taken[start[0] : stop[-1]]
            rows = zip(self.file[items].tolist(), *(x.tolist() for x in self._places(items)), strict=True)
            texts = (data[file][begin:end] for file, begin, end in rows)
            numbers, counts = self.key[taken[start]], (stop - start).tolist()
            keys = self.keys.take(pa.array(numbers)).to_pylist()
            for number, key, count in zip(numbers.tolist(), keys, counts, strict=True):
                yield MergedRecord(key, b";".join(islice(texts, count)).decode(), rivals.get(number, ()))

    def _places(self, items: Ints) -> tuple[Ints, Ints]:
        """Where items begin and end in their files."""
        begins, ends = np.empty(len(items), np.int64), np.empty(len(items), np.int64)
        for number, file in enumerate(self.files):
            mine = np.flatnonzero(self.file[items] == number)
            places = self.place[items[mine]]
            begins[mine], ends[mine] = file.columns.at[places], file.columns.ends[places]
        return begins, ends

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

    def _rivals(self) -> Mapping[int, Sequence[tuple[str, Offer]]]:
        """The fastest item of each file, of keys where these are of several solvers."""
        fastest = self._fastest(self.key.astype(np.int64) * len(self.paths) + self.path)
        keys, solvers = self.key[fastest], self.solver[fastest]
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        if not len(starts):
            return {}
        differ = np.minimum.reduceat(solvers, starts) != np.maximum.reduceat(solvers, starts)
        out: dict[int, list[tuple[str, Offer]]] = {}
        for item in fastest[np.repeat(differ, np.diff(starts, append=len(fastest)))].tolist():
            out.setdefault(int(self.key[item]), []).append((self.paths[self.path[item]], self._offer(item)))
        return out

    def _offer(self, item: int) -> Offer:
        return self.files[int(self.file[item])].offer(int(self.place[item]), self.keys[int(self.key[item])].as_py())
