"""Find-db records as Arrow columns by the optional native reader, the twin of ``find_db_columns``."""

from __future__ import annotations

import os
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logparse.formats.miopen.find_db_record import BLANKS, ORIGIN, no_time, read_time
from logparse.formats.miopen.key_tails import (
    SIZES,
    TAILS,
    Hashes,
    demand,
    dictionary,
    distinct,
    key_hashes,
    number_column,
    problem_columns,
    text_column,
)
from logparse.formats.miopen.solvers import ALGORITHMS

VERSION = 5
"""Of the native module's arguments and results: one built from other sources is not used."""

_NAMES = tuple(name.encode() for name in ALGORITHMS)
_DIRECTIONS = "".join(ALGORITHMS.values()).encode()


def native_reader(native: bool | None = None) -> ModuleType | None:
    """The native module; None where it was not built, or from other sources than these, or where ``native`` or
    ``LOGPARSE_NATIVE=0`` asks for that.
    """
    if native is None:
        native = os.environ.get("LOGPARSE_NATIVE", "1") != "0"
    if not native:
        return None
    try:
        from logparse.formats.miopen import _find_db
    except ImportError:
        return None
    return _find_db if getattr(_find_db, "VERSION", None) == VERSION else None


def native_columns(
    native: ModuleType, text: bytes | memoryview
) -> tuple[Hashes, npt.NDArray[np.int32], pa.Table, pa.Table]:
    """Hashes of the keys, the line of each item, measurements, and a problem per line.

    Raises OddError where a line is not of the ordinary form.
    """
    found = native.scan(text, _NAMES, _DIRECTIONS)
    demand(found is not None)
    line, ordinal, solver, algorithm, times, workspace, key_ends, keys, tail, sizes, asides, names, told = found
    places, tails = TAILS.of(told)
    problem_ends, problems = native.texts(sizes, tail, tuple(tails.pieces[i] for i in places))

    count = len(tail) // 4
    of_line = places[np.frombuffer(tail, np.int32)]
    size = dict(zip(SIZES, np.frombuffer(sizes, np.int64).reshape(len(SIZES), count), strict=True))
    problem = _texts(problem_ends, problems)
    columns = {"problem": problem, **problem_columns(size, tails, of_line)}

    lines = np.frombuffer(line, np.int32)
    solver, algorithm = np.frombuffer(solver, np.int32), np.frombuffer(algorithm, np.int32)
    items = len(lines)
    zeros = np.zeros(items, np.int32)
    measurements = {
        "origin": dictionary(zeros, text_column([ORIGIN])),
        "kind": dictionary(zeros, text_column(["conv"])),
        "problem": dictionary(lines, problem),
        "library": dictionary(zeros, text_column(["miopen"])),
        "solution": dictionary(solver, text_column([f"miopen:{name}" for name in names])),
        "raw": dictionary(solver, text_column(names)),
        "algorithm": dictionary(algorithm, text_column(ALGORITHMS)),
        **_times(text, times, asides, zeros),
        "workspace_bytes": number_column(np.frombuffer(workspace, np.int64)),
        "key_text": dictionary(lines, _texts(key_ends, keys)),
        "ordinal": number_column(np.frombuffer(ordinal, np.int32)),
    }
    hashes = key_hashes([size[name] for name in SIZES], tails.hashes[of_line])
    return hashes, lines, _table(measurements), _table(columns)


def _times(text: bytes | memoryview, times: bytes, asides: bytes, zeros: npt.NDArray[np.int32]) -> dict[str, pa.Array]:
    """Status, time and error; ``asides`` are the items whose time the native reader leaves to the plain one."""
    items = len(zeros)
    rest = np.frombuffer(asides, np.int64).reshape(-1, 3)
    if not len(rest):
        return {
            "status": dictionary(zeros, text_column(["ok"])),
            "time_us": number_column(np.frombuffer(times, np.float64)),
            "error": pa.nulls(items, pa.string()),
        }
    time_us = np.frombuffer(times, np.float64).copy()
    good, errors = np.ones(items, dtype=bool), []
    for item, start, length in rest.tolist():
        written = bytes(text[start : start + length]).decode().strip(BLANKS)
        known = read_time(written)
        if known is None:
            good[item] = False
            errors.append(no_time(written))
        else:
            time_us[item] = known
    of_item = np.zeros(items, np.int32)
    of_item[~good], said = distinct(errors)
    return {
        "status": dictionary(~good, text_column(["ok", "no_time"])),
        "time_us": number_column(time_us, good),
        "error": dictionary(of_item, text_column(said), ~good) if said else pa.nulls(items, pa.string()),
    }


def _texts(ends: bytes, data: bytes) -> pa.StringArray:
    return pa.StringArray.from_buffers(len(ends) // 4 - 1, pa.py_buffer(ends), pa.py_buffer(data))


def _table(columns: dict[str, pa.Array]) -> pa.Table:
    return pa.Table.from_arrays(list(columns.values()), names=list(columns))
