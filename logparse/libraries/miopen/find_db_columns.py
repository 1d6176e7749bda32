"""Read a find-db (MIOpen's database of the fastest solvers) quickly: a few MB at a time, as Arrow columns.

The result is the same as from ``find_db_items.read_record``, which reads one record at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logparse.devices import most_tflops
from logparse.libraries.kinds.format import Outcome
from logparse.libraries.miopen.find_db_file import Kinds
from logparse.libraries.miopen.find_db_index import SIZES, Index, index_of, native_reader
from logparse.libraries.miopen.find_db_items import DUPLICATE_KEY, ORIGIN, is_usable, no_time, read_record
from logparse.libraries.miopen.key_tails import Ints, Tails, dictionary, number_column, text_column
from logparse.model import CONV_FIELDS, MOST_US, Measurement

Bools = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]

BLOCK = 8 << 20
"""The number of bytes of text per block.

Each column costs a fixed time per block, so a block must be large.  About six blocks are in memory at once.
"""
THREADS = 2


@dataclass(frozen=True)
class _Block:
    """Some lines of a find-db (MIOpen's database of solvers) that are parsed together.

    * ``index`` tells where each line and each solver's entry begins.
    * ``usual`` tells for each line if it has the usual form.
    * ``places`` holds for each line the row in ``tails`` for the end of its key, or -1 if MIOpen has no such key.
    * ``tables`` holds the measurements and convolutions of the usual lines.
    """

    offset: int
    text: bytes
    index: Index
    usual: Bools
    places: Ints
    tails: Tails
    tables: Mapping[str, pa.Table] = field(default_factory=dict)

    def tabled(self) -> _Block:
        """Return a copy of this part of MIOpen's solver database with its lines converted to tables.

        The attribute ``tables`` of the copy contains the times and the convolutions.  Only lines of the usual form are
        converted.  Other lines are read elsewhere.
        """
        lines = np.flatnonzero(self.usual)
        if not len(lines):
            return replace(self, tables={})
        problem, convs = self._problems(lines)
        items, line = np.arange(len(self.index.line)), self.index.line
        if len(lines) < len(self.usual):
            items = np.flatnonzero(self.usual[line])
            line = (np.cumsum(self.usual, dtype=np.int32) - 1)[line[items]]
        measurements = self._measurements(lines, line, items, problem)
        tables = {"measurements": _table(measurements), "convs": _table({"problem": problem, **convs})}
        return replace(self, tables=tables)

    def _problems(self, lines: Ints) -> tuple[pa.Array, dict[str, pa.Array]]:
        """Return the convolutions in the given lines of MIOpen's database: their texts, and a column for each field."""
        places, numbers = self.places[lines], self.index.sizes.take(lines, axis=1)
        native = native_reader()
        assert native is not None, (
            "the C module of logparse is not loaded, but reading the convolutions of a find-db's lines needs it"
        )
        ends, texts = native.texts(numbers, places.astype(np.int32), self.tails.pieces)
        sizes = dict(zip(SIZES, numbers, strict=True))
        columns = {
            name: number_column(sizes[name]) if name in sizes else self.tails.column(name, places)
            for name in CONV_FIELDS
        }
        flops = np.full(len(lines), 2)
        for name in _FACTORS:
            flops *= sizes[name]
        flops //= self.tails.groups[places]
        problem = pa.StringArray.from_buffers(len(lines), pa.py_buffer(ends), pa.py_buffer(texts))
        return problem, columns | {"flops": number_column(flops)}

    def _measurements(
        self, lines: Ints, line: npt.NDArray[np.int32], items: Ints, problem: pa.Array
    ) -> dict[str, pa.Array]:
        """Return the solvers' measured times in this part of MIOpen's database, as columns with one row per solver.

        * ``lines`` are the numbers of the lines that are read here.  Lines of unusual form are read elsewhere.
        * ``items`` are the numbers of the solvers' entries.
        * ``line`` says in which line an entry is, as an index into ``lines``.
        * ``problem`` holds the convolution of each line, as a text.
        """
        index, zeros = self.index, np.zeros(len(items), np.int32)
        solver, timed = index.solver[items], index.time_us[items] > 0
        return {
            "origin": dictionary(zeros, text_column([ORIGIN])),
            "kind": dictionary(zeros, text_column(["conv"])),
            "problem": dictionary(line, problem),
            "library": dictionary(zeros, text_column(["miopen"])),
            "solution": dictionary(solver, text_column(f"miopen:{name}" for name in index.solvers)),
            "raw": dictionary(solver, text_column(index.solvers)),
            "algorithm": dictionary(index.algorithm[items], text_column(index.algorithms)),
            "status": dictionary(~timed, text_column(["ok", "no_time"])),
            "time_us": number_column(index.time_us[items], timed),
            "workspace_bytes": number_column(index.workspace_bytes[items]),
            "error": dictionary(zeros, text_column([no_time("0")]), ~timed),
            "key_text": dictionary(line, keys_of(self.text, index, lines)),
            "ordinal": number_column((items - index.begins[index.line[items]]).astype(np.int32)),
        }


_FACTORS = ("n", "k", "c", "out_d", "out_h", "out_w", "filter_d", "filter_h", "filter_w")


def _table(columns: Mapping[str, pa.Array]) -> pa.Table:
    return pa.Table.from_arrays(list(columns.values()), names=list(columns))


def keys_of(text: bytes, index: Index, lines: Ints) -> pa.StringArray:
    """Return the keys in some lines of MIOpen's solver database, in the order of ``lines``.

    A key describes a convolution.
    """
    # Begin and end of each key.  So every other text between two cuts is a key.
    cuts = np.empty(2 * len(lines), np.int32)
    cuts[::2] = index.starts[lines]
    cuts[1::2] = cuts[::2] + index.equals[lines]
    texts = pa.StringArray.from_buffers(max(len(cuts) - 1, 0), pa.py_buffer(cuts), pa.py_buffer(text))
    return texts.take(number_column(np.arange(0, len(cuts), 2)))


_NO_FACTS: Mapping[str, str] = MappingProxyType({})


def read_columns(stream: BinaryIO, facts: Mapping[str, str] = _NO_FACTS) -> Iterator[Outcome]:
    """Read MIOpen's find-db, the file in which MIOpen keeps the fastest solvers. Several threads parse blocks of it.

    Lines of the usual form give a table of times (``measurements``) and a table of convolutions (``convs``) per block.
    A line with a time that is too short for the GPU of ``facts`` is read one by one, so that ``storable`` rejects the
    time.
    """
    # ``tests/libraries/miopen/test_find_db.py`` checks that ``read_record`` gives the same answers.
    keys, most = _Keys(), most_tflops(facts)
    with ThreadPoolExecutor(THREADS) as pool:
        work = (pool.submit(_read, text, offset, most) for offset, text in _blocks(stream))
        ahead: list[Future[_Block]] = list(islice(work, THREADS))
        while ahead:
            block = ahead.pop(0).result()
            ahead.extend(islice(work, 1))
            yield from _outcomes(block, keys)


def _blocks(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    offset, parts = 0, [b""]  # ``parts`` is the unfinished last line, so it holds no line end.
    while data := stream.read(BLOCK):
        cut = data.rfind(b"\n") + 1
        if not cut:
            parts.append(data)
            continue
        block = b"".join((*parts, memoryview(data)[:cut]))
        parts = [data[cut:]]
        yield offset, block
        offset += len(block)
    if rest := b"".join(parts):
        yield offset, rest


def _read(text: bytes, offset: int, most: float) -> _Block:
    index = index_of(text, whole=False)
    tails = Tails(index.tails)
    places = np.append(tails.places, -1)[index.tail]
    usual = (places >= 0) & (index.sizes > 0).all(axis=0)  # Problems with a size of 0 are read one by one.
    usual[index.line[index.time_us > MOST_US]] = False
    usual[index.line[_too_fast(index, places, tails, most)]] = False
    usual[index.line[~Kinds(index, tails, places).all_for(is_usable)]] = False
    return _Block(offset, text, index, usual, places, tails).tabled()


def _too_fast(index: Index, places: Ints, tails: Tails, most: float) -> Bools:
    """Tell for each solver's entry whether its rate exceeds ``most`` Tflop/s (``ConvProblem.least_flops`` / time)."""
    sizes, known = dict(zip(SIZES, index.sizes, strict=True)), places >= 0
    flops = np.full(len(places), 2.0)
    for name in _FACTORS:
        if not name.startswith("filter_"):
            flops *= sizes[name]
    flops[known] /= tails.groups[places[known]]
    time_us = index.time_us
    # A time of 0 means that the time is unknown.
    return (time_us > 0) & (flops[index.line] > most * 1e6 * time_us)


# ------------------------------------------------------------------------------------------- first record wins


class _Keys:
    """The set of all keys that were read so far.

    To save memory, it holds only the 64-bit hashes of the keys, in a few sorted arrays.
    """

    def __init__(self) -> None:
        self._runs: list[Hashes] = []  # Each array is at least twice as long as the next, so there are few.

    def met(self, keys: Hashes) -> Bools:
        """Tell for each key if it occurred before, in an earlier call or earlier in ``keys``.

        The keys are remembered for the next calls.
        """
        again, order = np.zeros(len(keys), dtype=bool), np.argsort(keys, kind="stable")
        new = keys[order]  # Sorted, because a search in ascending order is faster.
        again[order[1:]] = new[1:] == new[:-1]
        for run in self._runs:
            again[order] |= run[np.minimum(np.searchsorted(run, new), len(run) - 1)] == new
        while self._runs and len(self._runs[-1]) < 2 * len(new):
            # A stable sort is fast here, because it only has to merge two sorted arrays.
            new = np.sort(np.concatenate([self._runs.pop(), new]), kind="stable")
        self._runs += [new] if len(new) else []
        return again


def _outcomes(block: _Block, keys: _Keys) -> Iterator[Outcome]:
    index = block.index
    again, keyed = np.zeros(len(index.equals), dtype=bool), index.equals > 0
    again[keyed] = keys.met(index.hash[keyed])
    if (block.usual & again).any():  # Records with a repeated key are read one by one.
        block = replace(block, usual=block.usual & ~again).tabled()
    if block.tables:
        yield Outcome("measurement", lines=int(np.count_nonzero(block.usual)), tables=block.tables)
    for number in np.flatnonzero(~block.usual).tolist():
        start, end = index.starts[number : number + 2].tolist()
        outcome = read_record(block.text[start:end].removesuffix(b"\n").decode("utf-8", "backslashreplace"))
        records = outcome.records
        if again[number]:
            without = partial(replace, status="skipped", error=DUPLICATE_KEY, time_us=None, workspace_bytes=None)
            records = [without(x) if isinstance(x, Measurement) else x for x in records]
        yield replace(outcome, records=records, at=block.offset + start)
