"""Read the ends (tails) of find-db keys, for example ``1x1-2x2-1x1-0-NCHW-FP16-W_g32``.

A find-db is MIOpen's database of solvers.  A key's end states pads, strides, dilations, bias, layouts, types and
direction.  A file has only a few hundred different ends, so each is read once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logparse.libraries.miopen.problem_key import key_of, problem_from_key
from logparse.model import ConvProblem, Direction, problem_fault

Ints = npt.NDArray[np.int64]

Tail = tuple[int, str]
"""The end of a key in MIOpen's solver database: the number of dimensions (2 or 3) and the text."""
Pieces = tuple[bytes, bytes, bytes]
"""The three pieces of a convolution's text between which its sizes are written:

* the text before the sizes of ``in``;
* the text between the filter's sizes and the sizes of ``out``;
* the text behind the sizes of ``out``.
"""

DIRECTIONS: tuple[Direction, ...] = ("F", "B", "W")
_SMALLEST = {2: "1-1-1-1x1-1-1-1-1-", 3: "1-1-1-1-1x1x1-1-1-1-1-1-"}
"""The first part of a key in MIOpen's solver database with all sizes 1, for 2 and for 3 dimensions.

Together with the end of a key (tail) it is a whole key.
"""
_NULL = int(np.iinfo(np.int64).min)


def number_column(values: npt.NDArray[Any], present: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Turn a numpy array into an Arrow array without a copy.  Elements for which ``present`` is False become null.

    ``pyarrow.array`` is not used, because it would import pandas.
    """
    values = np.ascontiguousarray(values)
    valid = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [valid, pa.py_buffer(values)])


def dictionary(codes: npt.NDArray[Any], values: pa.Array, present: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Make an Arrow dictionary array with the element ``values[code]`` for each of the codes.

    Elements for which ``present`` is False become null.
    """
    indices = number_column(codes.astype(np.int32, copy=False), present)
    return pa.DictionaryArray.from_arrays(indices, values, safe=False)


def text_column(texts: Iterable[str]) -> pa.Array:
    """Make an Arrow array of texts."""
    data = [text.encode() for text in texts]
    ends = np.zeros(len(data) + 1, np.int32)
    np.cumsum([len(text) for text in data], out=ends[1:])
    return pa.StringArray.from_buffers(len(data), pa.py_buffer(ends), pa.py_buffer(b"".join(data)))


@lru_cache(maxsize=1 << 14)
def _problem_of(tail: Tail) -> ConvProblem | None:
    """Parse the end of a key in MIOpen's solver database, and return a convolution with the fields that the end states.

    The end states no sizes, so all of them are 1.  Returns None if MIOpen has no such key.
    """
    try:
        problem = problem_from_key(_SMALLEST[tail[0]] + tail[1])
    except ValueError:
        return None
    # Keys that MIOpen spells differently, and convolutions that logparse cannot store, give None too.
    usual = problem_fault(problem) is None and str(key_of(problem)).endswith(f"-{tail[1]}")
    return problem if usual else None


@lru_cache(maxsize=1 << 14)
def _pieces(problem: ConvProblem) -> Pieces:
    text = problem.text
    before, middle, out = text.index(" in=") + 4, text.index(" pad="), text.index(" out=") + 5
    return text[:before].encode(), text[middle:out].encode(), text[text.index(" groups=") :].encode()


class Tails:
    """The ends of the keys in MIOpen's solver database, each parsed only once.

    The end of a key states for example strides, layouts and types, and the sizes are before it.  Hundreds of thousands
    of keys have only a few hundred different ends.  Each valid end is a row of this table, and each field of a
    convolution is a column.  ``places`` gives the row of each end, or -1 if MIOpen has no such key.
    """

    def __init__(self, tails: Sequence[Tail]) -> None:
        found = [_problem_of(tail) for tail in tails]
        known = np.array([problem is not None for problem in found], bool)
        self.places: Ints = np.where(known, np.cumsum(known) - 1, -1)
        self._problems = [problem for problem in found if problem is not None]
        self.pieces = tuple(map(_pieces, self._problems))
        self.direction = np.array([*(DIRECTIONS.index(x.direction) for x in self._problems), 0], np.int64)
        """For each row, the index of its direction in ``DIRECTIONS``.

        One more value at the end is used for the row number -1.
        """
        self.groups = np.array([x.groups for x in self._problems], np.int64)

    def column(self, name: str, places: Ints) -> pa.Array:
        """Return one field of ``ConvProblem`` as an Arrow array, for the rows of this table that ``places`` lists."""
        values = [getattr(problem, name) for problem in self._problems]
        if all(isinstance(value, str) for value in values):
            texts = list(dict.fromkeys(values))
            return dictionary(np.array([texts.index(value) for value in values])[places], text_column(texts))
        numbers = np.array([_NULL if value is None else value for value in values], np.int64)[places]
        present = numbers != _NULL
        return number_column(numbers, None if present.all() else present)
