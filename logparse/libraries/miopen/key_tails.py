"""Tails of find-db keys, ``1x1-2x2-1x1-0-NCHW-FP16-W_g32``: pads, strides, dilations, bias, layouts, types, direction.

A file has hundreds of thousands of keys and a few hundred tails.  Each is read once by the plain reader; what it holds
is a place in columns from which those of a stretch of keys are taken.
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
"""Count of dimensions (2 or 3) and text."""
Pieces = tuple[bytes, bytes, bytes]
"""What stands before the sizes of ``in`` in the problem's text, from the filter's to those of ``out``, behind these."""

DIRECTIONS: tuple[Direction, ...] = ("F", "B", "W")
_SMALLEST = {2: "1-1-1-1x1-1-1-1-1-", 3: "1-1-1-1-1x1x1-1-1-1-1-1-"}
"""What stands before a key's tail, by its count of dimensions."""
_NULL = int(np.iinfo(np.int64).min)


def number_column(values: npt.NDArray[Any], present: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Numbers as they lie in memory (``pyarrow.array`` would import pandas)."""
    values = np.ascontiguousarray(values)
    valid = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [valid, pa.py_buffer(values)])


def dictionary(codes: npt.NDArray[Any], values: pa.Array, present: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """``values[code]`` of each code."""
    indices = number_column(codes.astype(np.int32, copy=False), present)
    return pa.DictionaryArray.from_arrays(indices, values, safe=False)


def text_column(texts: Iterable[str]) -> pa.Array:
    """Texts as an Arrow array."""
    data = [text.encode() for text in texts]
    ends = np.zeros(len(data) + 1, np.int32)
    np.cumsum([len(text) for text in data], out=ends[1:])
    return pa.StringArray.from_buffers(len(data), pa.py_buffer(ends), pa.py_buffer(b"".join(data)))


@lru_cache(maxsize=1 << 14)
def _problem_of(tail: Tail) -> ConvProblem | None:
    """A problem of this tail, its sizes 1; None where MIOpen has no such key or spells it otherwise, and where the
    store takes no such problem.
    """
    try:
        problem = problem_from_key(_SMALLEST[tail[0]] + tail[1])
    except ValueError:
        return None
    usual = problem_fault(problem) is None and str(key_of(problem)).endswith(f"-{tail[1]}")
    return problem if usual else None


@lru_cache(maxsize=1 << 14)
def _pieces(problem: ConvProblem) -> Pieces:
    text = problem.text
    before, middle, out = text.index(" in=") + 4, text.index(" pad="), text.index(" out=") + 5
    return text[:before].encode(), text[middle:out].encode(), text[text.index(" groups=") :].encode()


class Tails:
    """The fields of some tails: ``places`` is the index of each in the columns, -1 where MIOpen has no such key."""

    def __init__(self, tails: Sequence[Tail]) -> None:
        found = [_problem_of(tail) for tail in tails]
        known = np.array([problem is not None for problem in found], bool)
        self.places: Ints = np.where(known, np.cumsum(known) - 1, -1)
        self._problems = [problem for problem in found if problem is not None]
        self.pieces = tuple(map(_pieces, self._problems))
        self.direction = np.array([*(DIRECTIONS.index(x.direction) for x in self._problems), 0], np.int64)
        """Places in ``DIRECTIONS``; one more value, for a place of -1."""
        self.groups = np.array([x.groups for x in self._problems], np.int64)

    def column(self, name: str, places: Ints) -> pa.Array:
        """A field of ``ConvProblem`` for tails at these places."""
        values = [getattr(problem, name) for problem in self._problems]
        if all(isinstance(value, str) for value in values):
            texts = list(dict.fromkeys(values))
            return dictionary(np.array([texts.index(value) for value in values])[places], text_column(texts))
        numbers = np.array([_NULL if value is None else value for value in values], np.int64)[places]
        present = numbers != _NULL
        return number_column(numbers, None if present.all() else present)
