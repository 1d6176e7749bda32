"""Find-db records as Arrow columns, a few MB of text at a time: what ``find_db_record.read_record`` says, only faster.

A stretch of text is cut at its delimiters with numpy, every piece is a value of one Arrow string array, and columns are
``take``n from that.  A stretch is handled in one go or not at all: where any line of it is not of the ordinary form
(damage, carriage returns, repeated ids, too few values …) it is halved until the odd line stands in a small stretch,
which ``read_record`` reads.  ``tests/formats/miopen/test_find_db.py`` holds both readers to the same answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logparse.formats.format import Outcome
from logparse.formats.miopen.find_db_record import DUPLICATE_KEY, ORIGIN, read_record
from logparse.formats.miopen.problem_key_columns import (
    Ints,
    OddError,
    Problems,
    content,
    demand,
    numbers_of,
    problems_of,
    strings,
)
from logparse.formats.miopen.solvers import ALGORITHMS
from logparse.model import Measurement

BLOCK = 4 << 20
"""Bytes of text per stretch: enough to spread numpy's cost per call, and a dozen of them fit into memory."""
SMALL = 16 << 10
"""A stretch of this size is read line by line when it is not of the ordinary form."""
THREADS = 2

_EQUALS, _COLON, _COMMA, _SEMICOLON, _LESS, _LF, _BLANK = (np.uint8(x) for x in b"=:,;<\n ")


@dataclass(frozen=True)
class _Stretch:
    """``columns`` of an ordinary stretch, or None: its ``text`` is to be read line by line."""

    offset: int
    text: bytes
    keys: pa.StringArray | None = None
    line_of_item: Ints | None = None
    conv_of_line: Ints | None = None
    ascending: bool = False
    measurements: pa.Table | None = None
    convs: pa.Table | None = None


def read_columns(stream: BinaryIO) -> Iterator[Outcome]:
    """Outcomes of a find-db's lines, in order, ordinary stretches as tables ``measurements`` and ``convs``."""
    keys = _Keys()
    with ThreadPoolExecutor(THREADS) as pool:
        work = ((pool.submit(_stretches, text, offset)) for offset, text in _blocks(stream))
        ahead: list[Future[list[_Stretch]]] = list(islice(work, THREADS + 1))
        while ahead:
            for stretch in ahead.pop(0).result():
                yield from _outcomes(stretch, keys)
            ahead.extend(islice(work, 1))


def _blocks(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    offset, rest = 0, b""
    while data := stream.read(BLOCK):
        cut = data.rfind(b"\n") + 1
        if not cut:
            rest += data
            continue
        block = rest + data[:cut]
        rest = data[cut:]
        yield offset, block
        offset += len(block)
    if rest:
        yield offset, rest


def _stretches(text: bytes, offset: int) -> list[_Stretch]:
    try:
        return [_columns(text, offset)]
    except (OddError, pa.ArrowInvalid):
        cut = text.find(b"\n", len(text) // 2) + 1
        if len(text) <= SMALL or not 0 < cut < len(text):
            return [_Stretch(offset, text)]
        return [*_stretches(text[:cut], offset), *_stretches(text[cut:], offset + cut)]


# ------------------------------------------------------------------------------------------- first record wins


class _Keys:
    """The keys met so far.  Shipped files are sorted, so that a comparison with the last key does; a set is only made
    where one is not.
    """

    def __init__(self) -> None:
        self._sorted: list[pa.StringArray] = []
        self._last: str | None = None
        self._seen: set[str] | None = None

    def repeated(self, keys: pa.StringArray, ascending: bool) -> list[int]:
        """Positions of keys that were met before; all of them are met now."""
        if self._seen is None:
            if ascending and (self._last is None or keys[0].as_py() > self._last):
                self._sorted.append(keys)
                self._last = keys[-1].as_py()
                return []
            self._seen = {key for array in self._sorted for key in array.to_pylist()}
            self._sorted = []
        names = keys.to_pylist()
        before = len(self._seen)
        if self._seen.isdisjoint(names):
            self._seen.update(names)
            if len(self._seen) == before + len(names):
                return []
            self._seen.difference_update(names)
        out = []
        for position, name in enumerate(names):
            if name in self._seen:
                out.append(position)
            self._seen.add(name)
        return out


def _outcomes(stretch: _Stretch, keys: _Keys) -> Iterator[Outcome]:
    if stretch.keys is None:
        yield from _plain(stretch, keys)
        return
    measurements, convs, line_of_item = stretch.measurements, stretch.convs, stretch.line_of_item
    assert measurements is not None
    assert convs is not None
    assert line_of_item is not None
    assert stretch.conv_of_line is not None
    repeated = keys.repeated(stretch.keys, stretch.ascending)
    if repeated:
        again = np.zeros(len(stretch.keys), dtype=bool)
        again[repeated] = True
        mask = pa.array(again[line_of_item])
        for name, value in (("status", "skipped"), ("error", DUPLICATE_KEY)):
            column = pc.if_else(mask, value, measurements[name].cast(pa.string()))
            measurements = measurements.set_column(measurements.schema.get_field_index(name), name, column)
        first = np.ones(len(stretch.keys), dtype=bool)
        first[stretch.conv_of_line[repeated]] = False
        convs = convs.filter(pa.array(first))
    tables = {"measurements": measurements, "convs": convs}
    yield Outcome("measurement", lines=len(stretch.keys), tables=tables)


def _plain(stretch: _Stretch, keys: _Keys) -> Iterator[Outcome]:
    offset = stretch.offset
    for raw in stretch.text.removesuffix(b"\n").split(b"\n"):
        outcome = read_record(raw.decode("utf-8", "backslashreplace"))
        measured = [x for x in outcome.records if isinstance(x, Measurement)]
        if measured and keys.repeated(pa.array([str(measured[0].key_text)]), True):
            records = [
                replace(x, status="skipped", error=DUPLICATE_KEY) if isinstance(x, Measurement) else x
                for x in outcome.records
            ]
            outcome = replace(outcome, records=records)
        yield replace(outcome, at=offset)
        offset += len(raw) + 1


# ------------------------------------------------------------------------------------------------ one stretch


def _columns(text: bytes, offset: int) -> _Stretch:
    demand(text.isascii() and b"\r" not in text and text.endswith(b"\n") and len(text) < 1 << 30)
    data = np.frombuffer(text, np.uint8)
    at = np.flatnonzero((data - _COLON <= _EQUALS - _COLON) | (data == _COMMA) | (data == _LF))
    kind = data[at]
    if (kind == _LESS).any():  # the one character between ':' and '=' that is no delimiter
        at, kind = at[kind != _LESS], kind[kind != _LESS]
    pieces = _cut(pa.py_buffer(text), at)

    last = np.flatnonzero((kind == _SEMICOLON) | (kind == _LF))  # index of each item's last piece
    opens = np.empty(len(last), dtype=bool)  # is the item the first of its line?
    opens[0], opens[1:] = True, kind[last[:-1]] == _LF
    first = np.empty_like(last)
    first[0], first[1:] = 0, last[:-1] + 1
    first += opens
    key_piece = first[opens] - 1
    demand((kind[key_piece] == _EQUALS).all() and np.count_nonzero(kind == _EQUALS) == len(key_piece))
    values = last - first
    demand(values.min() >= 3 and values.max() <= 5)
    demand((kind[first] == _COLON).all() and np.count_nonzero(kind == _COLON) == len(first))
    line = np.cumsum(opens) - 1

    keys = pieces.take(pa.array(2 * key_piece))
    problems = problems_of(keys)
    table = _items(pieces, first, line, problems)
    ascending = len(keys) < 2 or bool(pc.all(pc.less(keys[:-1], keys[1:])).as_py())
    ordinal = np.arange(len(line)) - np.flatnonzero(opens)[line]
    table |= {
        "key_text": _dictionary(line, keys),
        "ordinal": pa.array(ordinal.astype(np.int32)),
    }
    return _Stretch(offset, b"", keys, line, problems.of_line, ascending, pa.table(table), problems.table)


def _cut(buffer: pa.Buffer, at: Ints) -> pa.StringArray:
    """Text cut at delimiters: even values are the pieces, odd ones the delimiters."""
    offsets = np.empty(2 * len(at) + 1, dtype=np.int32)
    offsets[0], offsets[1::2], offsets[2::2] = 0, at, at + 1
    return strings(offsets, buffer)


def _dictionary(indices: Ints, values: pa.Array) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(indices.astype(np.int32)), values)


def _constant(value: str, count: int) -> pa.DictionaryArray:
    return _dictionary(np.zeros(count, dtype=np.int64), pa.array([value]))


def _items(pieces: pa.StringArray, first: Ints, line: Ints, problems: Problems) -> dict[str, Any]:
    """Columns of the measurements that each item is."""
    count = len(first)
    ids = pieces.take(pa.array(2 * first)).dictionary_encode()
    id_code = ids.indices.to_numpy()
    demand(not _repeats(id_code, line))
    names = ids.dictionary.to_pylist()
    old = np.array([name in ALGORITHMS for name in names])[id_code]  # v1 and v0: the id is the algorithm
    if old.any():
        other = pieces.take(pa.array(2 * np.where(old, first + 1, first + 3))).dictionary_encode()
        mixed = pa.concat_arrays([ids.dictionary, other.dictionary])
        other_code = other.indices.to_numpy() + len(names)
        solver = _dictionary(np.where(old, other_code, id_code), mixed)
        algorithm = _dictionary(np.where(old, id_code, other_code), mixed)
    else:
        solver, algorithm = ids, pieces.take(pa.array(2 * (first + 3))).dictionary_encode()
    solvers, algorithms = solver.dictionary.to_pylist(), algorithm.dictionary.to_pylist()
    demand(not old.any() or not np.array([name == "" for name in solvers])[solver.indices.to_numpy()].any())
    demand("" not in names)
    fits = np.array(["FBW".find(ALGORITHMS.get(name, "?")) for name in algorithms])[algorithm.indices.to_numpy()]
    demand((fits == problems.direction[line]).all())

    texts = pieces.take(pa.array(2 * (first + 1 + old)))
    demand(not (content(texts) == _BLANK).any())
    milliseconds = texts.cast(pa.float64()).to_numpy()
    good = (milliseconds > 0) & (milliseconds < np.inf)
    workspace = pieces.take(pa.array(2 * (first + 2 + old)))
    demand(pc.max(pc.binary_length(workspace)).as_py() <= 18)
    return {
        "origin": _constant(ORIGIN, count),
        "kind": _constant("conv", count),
        "problem": _dictionary(problems.of_line[line], problems.texts),
        "library": _constant("miopen", count),
        "solution": _dictionary(solver.indices.to_numpy(), pa.array([f"miopen:{name}" for name in solvers])),
        "raw": solver,
        "algorithm": algorithm,
        "status": _dictionary(~good, pa.array(["ok", "no_time"])),
        "time_us": pa.array(milliseconds * 1000.0, mask=~good),
        "workspace_bytes": pa.array(numbers_of(workspace)),
        "error": _errors(texts, good),
    }


def _repeats(code: Ints, line: Ints) -> bool:
    """Whether an id occurs twice in a line: compare items at growing distance while any pair shares its line."""
    for step in range(1, len(code)):
        together = line[step:] == line[:-step]
        if not together.any():
            return False
        if (together & (code[step:] == code[:-step])).any():
            return True
    return False


def _errors(texts: pa.StringArray, good: npt.NDArray[np.bool_]) -> pa.Array:
    if good.all():
        return pa.nulls(len(texts), pa.string())
    errors = np.full(len(texts), None, dtype=object)
    for index in np.flatnonzero(~good):
        errors[index] = f"time is {texts[int(index)].as_py()} ms"
    return pa.array(errors, pa.string())
