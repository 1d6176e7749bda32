"""Find-db records as Arrow columns with numpy: the plain twin of the native reader, for stretches of the ordinary form.

A stretch of text is cut at its delimiters, every piece is a value of one Arrow string array, and columns are ``take``n
from that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logparse.formats.miopen.find_db_record import BLANKS, ORIGIN, no_time
from logparse.formats.miopen.key_tails import Hashes, Ints, demand
from logparse.formats.miopen.problem_key_columns import Problems, content, numbers_of, problems_of, strings
from logparse.formats.miopen.solvers import ALGORITHMS

_EQUALS, _COLON, _COMMA, _SEMICOLON, _LESS, _LF, _BLANK = (np.uint8(x) for x in b"=:,;<\n ")


def numpy_columns(text: bytes) -> tuple[Hashes, Ints, Ints, pa.Table, pa.Table]:
    """Hashes of the keys, the line of each item, the problem of each line, measurements and problems.

    Raises OddError, or ArrowInvalid where a time is no number that Arrow reads.
    """
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
    table = _items(pieces, first, values, line, problems)
    ordinal = np.arange(len(line)) - np.flatnonzero(opens)[line]
    table |= {
        "key_text": _dictionary(line, keys),
        "ordinal": pa.array(ordinal.astype(np.int32)),
    }
    return problems.hashes, line, problems.of_line, pa.table(table), problems.table


def _cut(buffer: pa.Buffer, at: Ints) -> pa.StringArray:
    """Text cut at delimiters: even values are the pieces, odd ones the delimiters."""
    offsets = np.empty(2 * len(at) + 1, dtype=np.int32)
    offsets[0], offsets[1::2], offsets[2::2] = 0, at, at + 1
    return strings(offsets, buffer)


def _dictionary(indices: Ints, values: pa.Array) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(indices.astype(np.int32)), values)


def _constant(value: str, count: int) -> pa.DictionaryArray:
    return _dictionary(np.zeros(count, dtype=np.int64), pa.array([value]))


def _items(pieces: pa.StringArray, first: Ints, values: Ints, line: Ints, problems: Problems) -> dict[str, Any]:
    """Columns of the measurements that each item is."""
    count = len(first)
    ids = pieces.take(pa.array(2 * first)).dictionary_encode()
    id_code = ids.indices.to_numpy()
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
    used = [solvers[place] for place in np.unique(solver.indices.to_numpy())]
    demand("" not in (*names, *used) and not any(x in BLANKS for name in used for x in name))
    places = {name: place for place, name in enumerate(solvers)}  # an id of one item may be the second word of another
    demand(not _repeats(np.array([places[name] for name in solvers])[solver.indices.to_numpy()], line))
    demand(not old.any() or values[old].min() >= 4)
    fits = np.array(["FBW".find(ALGORITHMS.get(name, "?")) for name in algorithms])[algorithm.indices.to_numpy()]
    demand((fits == problems.direction[line]).all())

    texts = pieces.take(pa.array(2 * (first + 1 + old)))
    demand(not (content(texts) <= _BLANK).any())
    # Milliseconds with three more decimal places: multiplying the doubles would round twice.
    time_us = pc.binary_join_element_wise(texts, "e3", "").cast(pa.float64()).to_numpy()
    good = (time_us > 0) & (time_us < np.inf)
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
        "time_us": pa.array(time_us, mask=~good),
        "workspace_bytes": pa.array(numbers_of(workspace)),
        "error": _errors(texts, good),
    }


def _repeats(code: Ints, line: Ints) -> bool:
    """Whether a solver occurs twice in a line: compare items at growing distance while any pair shares its line."""
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
        errors[index] = no_time(texts[int(index)].as_py())
    return pa.array(errors, pa.string())
