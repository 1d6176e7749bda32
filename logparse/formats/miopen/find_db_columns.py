"""Find-db records as Arrow columns, a few MB of text at a time: what ``find_db_record.read_record`` returns, faster.

A stretch is handled in one go, by the native reader or by its twin in numpy, or not at all: where any line of it is not
of the ordinary form (damage, carriage returns, repeated ids, too few values …) it is halved until the odd line stands
in a small stretch, which ``read_record`` reads.  ``tests/formats/miopen/test_find_db.py`` holds all readers to the same
answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logparse.formats.format import Outcome
from logparse.formats.miopen.find_db_native import native_columns, native_reader
from logparse.formats.miopen.find_db_record import DUPLICATE_KEY, read_record
from logparse.formats.miopen.key_tails import SIZES, Hashes, Ints, OddError, key_hashes, tail_hash
from logparse.model import ConvProblem, Measurement, Record

BLOCK = 8 << 20
"""Bytes of text per stretch: enough to spread the cost per column, and half a dozen of them fit into memory."""
SMALL = 16 << 10
"""A stretch of this size is read line by line when it is not of the ordinary form."""
THREADS = 2


@dataclass(frozen=True)
class _Columns:
    """An ordinary stretch."""

    keys: Hashes
    line_of_item: npt.NDArray[Any]
    conv_of_line: Ints | None  # None: row by row
    measurements: pa.Table
    convs: pa.Table


@dataclass(frozen=True)
class _Stretch:
    """``columns``, or None: the ``text`` is to be read line by line."""

    offset: int
    text: bytes
    columns: _Columns | None = None


def read_columns(stream: BinaryIO, native: bool | None = None) -> Iterator[Outcome]:
    """Outcomes of a find-db's lines, in order, ordinary stretches as tables ``measurements`` and ``convs``.

    ``native``: whether by the native reader; by default wherever it was built.
    """
    keys, reader = _Keys(), native_reader(native)
    with ThreadPoolExecutor(THREADS) as pool:
        work = ((pool.submit(_stretches, text, offset, reader)) for offset, text in _blocks(stream))
        ahead: list[Future[list[_Stretch]]] = list(islice(work, THREADS))
        while ahead:
            stretches = ahead.pop(0).result()
            ahead.extend(islice(work, 1))
            for stretch in stretches:
                yield from _outcomes(stretch, keys)


def _blocks(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    offset, parts = 0, [b""]  # of which only the last may hold a line end
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


def _stretches(text: bytes, offset: int, native: ModuleType | None) -> list[_Stretch]:
    try:
        return [_Stretch(offset, b"", _columns(text, native))]
    except (OddError, pa.ArrowInvalid):
        cut = text.find(b"\n", len(text) // 2) + 1
        if len(text) <= SMALL or not 0 < cut < len(text):
            return [_Stretch(offset, text)]
        return [*_stretches(text[:cut], offset, native), *_stretches(text[cut:], offset + cut, native)]


def _columns(text: bytes, native: ModuleType | None) -> _Columns:
    if native is not None:
        keys, line_of_item, measurements, convs = native_columns(native, text)
        return _Columns(keys, line_of_item, None, measurements, convs)
    from logparse.formats.miopen.find_db_numpy import numpy_columns  # brings pandas, which the native reader spares

    return _Columns(*numpy_columns(text))


# ------------------------------------------------------------------------------------------- first record wins


_FILTER_BITS = 24


class _Keys:
    """The keys met so far, as hashes (see ``key_hashes``): eight bytes each, in a few sorted arrays.

    Most keys are new, and a filter of some bits of each hash spares these the search.
    """

    def __init__(self) -> None:
        self._runs: list[Hashes] = []  # each at least twice as long as the next
        self._filter = np.zeros(1 << _FILTER_BITS, dtype=bool)

    def repeated(self, keys: Hashes) -> Ints:
        """Positions of keys that were met before; all of them are met now."""
        again = np.zeros(len(keys), dtype=bool)
        ordered = np.sort(keys)
        if (ordered[1:] == ordered[:-1]).any():
            order = np.argsort(keys, kind="stable")
            again[order[1:]] = ordered[1:] == ordered[:-1]
        places = keys >> np.uint64(64 - _FILTER_BITS)
        known = np.flatnonzero(self._filter[places])
        for run in self._runs if len(known) else ():
            at = np.searchsorted(run, keys[known])
            again[known] |= run[np.minimum(at, len(run) - 1)] == keys[known]
        self._filter[places] = True
        while self._runs and len(self._runs[-1]) < 2 * len(ordered):
            ordered = np.concatenate([self._runs.pop(), ordered])
            ordered.sort(kind="stable")  # merges what is sorted already
        self._runs.append(ordered)
        return np.flatnonzero(again)


def _hashes_of(records: Sequence[Measurement]) -> Hashes:
    """Hashes of the keys of measurements of convolutions."""
    problems = [record.problem for record in records]
    sizes = [np.array([getattr(problem, name) for problem in problems], np.int64) for name in SIZES]
    tails = [_tail(record) for record in records]
    return key_hashes(sizes, np.array([tail_hash(tail) for tail in tails], np.uint64))


def _tail(record: Measurement) -> tuple[int, str]:
    spatial = record.problem.spatial if isinstance(record.problem, ConvProblem) else 2
    return spatial, str(record.key_text).split("-", 2 * spatial + 4)[-1]


def _outcomes(stretch: _Stretch, keys: _Keys) -> Iterator[Outcome]:
    if stretch.columns is None:
        yield from _plain(stretch, keys)
        return
    columns = stretch.columns
    measurements, convs, count = columns.measurements, columns.convs, len(columns.keys)
    repeated = keys.repeated(columns.keys)
    if len(repeated):
        import pyarrow.compute as pc

        again = np.zeros(count, dtype=bool)
        again[repeated] = True
        mask = pa.array(again[columns.line_of_item])
        for name, value in (("status", "skipped"), ("error", DUPLICATE_KEY)):
            column = pc.if_else(mask, value, measurements[name].cast(pa.string()))
            measurements = measurements.set_column(measurements.schema.get_field_index(name), name, column)
        first = np.ones(count, dtype=bool)
        first[repeated if columns.conv_of_line is None else columns.conv_of_line[repeated]] = False
        convs = convs.filter(pa.array(first))
    yield Outcome("measurement", lines=count, tables={"measurements": measurements, "convs": convs})


def _plain(stretch: _Stretch, keys: _Keys) -> Iterator[Outcome]:
    offset = stretch.offset
    outcomes = []
    for raw in stretch.text.removesuffix(b"\n").split(b"\n"):
        outcomes.append(replace(read_record(raw.decode("utf-8", "backslashreplace")), at=offset))
        offset += len(raw) + 1
    firsts = [next((x for x in outcome.records if isinstance(x, Measurement)), None) for outcome in outcomes]
    measured = [position for position, first in enumerate(firsts) if first is not None]
    if measured:
        hashes = _hashes_of([first for first in firsts if first is not None])
        for position in np.array(measured)[keys.repeated(hashes)].tolist():
            outcomes[position] = replace(outcomes[position], records=_skipped(outcomes[position].records))
    yield from outcomes


def _skipped(records: Sequence[Record]) -> list[Record]:
    return [replace(x, status="skipped", error=DUPLICATE_KEY) if isinstance(x, Measurement) else x for x in records]
