"""Tails of find-db keys, ``1x1-2x2-1x1-0-NCHW-FP16-W_g32``: pads, strides, dilations, bias, layouts, types, direction.

A file has hundreds of thousands of keys and a few hundred tails.  Each is read once by the plain reader; what it holds
is a place in columns from which those of a stretch of keys are taken.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from logparse.formats.miopen.problem_key import read_tail
from logparse.formats.patterns import regex
from logparse.model import CONV_FIELDS, ConvProblem

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

SIZES = ("n", "c", "d", "h", "w", "k", "filter_d", "filter_h", "filter_w", "out_d", "out_h", "out_w")
"""The part of a key before its tail."""

Tail = tuple[int, str]
"""Count of dimensions (2 or 3) and text."""
Pieces = tuple[bytes, bytes, bytes]
"""What stands before the sizes of ``in`` in the problem's text, from the filter's to those of ``out``, behind these."""

_NUMBER = regex(r"(?:0|[1-9]\d{0,8})\Z", re.ASCII)
_NULL = int(np.iinfo(np.int64).min)
_MOST = 1 << 14
_SEED = int.from_bytes(os.urandom(8), "little")
_MIX = np.uint64(0x9E3779B97F4A7C15)


class OddError(Exception):
    """Something is not of the ordinary form."""


def demand(ordinary: bool | np.bool_) -> None:
    """Raises OddError where a stretch is not of the ordinary form."""
    if not ordinary:
        raise OddError


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


def distinct(values: Sequence[str]) -> tuple[npt.NDArray[np.int32], list[str]]:
    """Codes of the values, and what they stand for."""
    places: dict[str, int] = {}
    codes = [places.setdefault(value, len(places)) for value in values]
    return np.array(codes, np.int32), list(places)


@dataclass(frozen=True)
class Tails:
    """The fields of some tails, by their place."""

    pieces: Sequence[Pieces]
    direction: Ints  # 0, 1, 2 for F, B, W
    hashes: Hashes
    numbers: dict[str, Ints]
    texts: dict[str, tuple[npt.NDArray[np.int32], pa.Array]]

    def column(self, name: str, places: npt.NDArray[Any]) -> pa.Array:
        """A field of ``ConvProblem`` for tails at these places."""
        if name in self.numbers:
            values = self.numbers[name][places]
            present = values != _NULL
            return number_column(values, None if present.all() else present)
        codes, values = self.texts[name]
        return dictionary(codes[places], values)

    @property
    def groups(self) -> Ints:
        return self.numbers["groups"]


class Registry:
    """Reads each tail once, as long as they are not too many."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._places: dict[Tail, int] = {}
        self._told: list[tuple[dict[str, Any], Pieces]] = []
        self._tails: Tails | None = None

    def of(self, tails: Sequence[Tail]) -> tuple[npt.NDArray[np.int64], Tails]:
        """The place of each tail's fields, and the columns that hold them.  Raises OddError where a text is no tail."""
        with self._lock:
            new = [tail for tail in dict.fromkeys(tails) if tail not in self._places]
            if new or self._tails is None:
                if len(self._places) + len(new) > _MOST:
                    self._places, self._told, new = {}, [], list(dict.fromkeys(tails))
                self._told += [_read(*tail) for tail in new]
                self._places |= {tail: len(self._places) + i for i, tail in enumerate(new)}
                self._tails = _columns(self._told, list(self._places))
            return np.array([self._places[tail] for tail in tails], np.int64), self._tails


TAILS = Registry()
"""Those that this process has read."""


def tail_hash(tail: Tail) -> int:
    """64 bits that differ from process to process."""
    return xxhash.xxh3_64_intdigest(tail[1].encode(), seed=_SEED ^ tail[0])


def key_hashes(sizes: Sequence[Ints], tails: Hashes) -> Hashes:
    """A hash of each key: its ``SIZES``, a column each, and the hash of its tail.

    Keys that differ in one size only never have the same (every step can be undone); any two others by chance of about
    2⁻⁶⁴, so that among n keys some two are expected to with n²/2⁶⁵: 5·10⁻⁸ for a million of them.
    """
    out, high = tails.copy(), np.empty_like(tails)
    for column in sizes:
        out ^= column.view(np.uint64)
        out *= _MIX
        out ^= np.right_shift(out, np.uint64(32), out=high)
    return out


def problem_columns(sizes: Mapping[str, Ints], tails: Tails, places: Ints) -> dict[str, pa.Array]:
    """The fields of problems by name, and their ``flops``.  Raises OddError where these are beyond 64 bits."""
    columns = {
        name: number_column(sizes[name]) if name in sizes else tails.column(name, places) for name in CONV_FIELDS
    }
    return columns | {"flops": number_column(_flops(sizes, tails.groups[places]))}


def _flops(sizes: Mapping[str, Ints], groups: Ints) -> Ints:
    names = ("n", "k", "c", "out_d", "out_h", "out_w", "filter_d", "filter_h", "filter_w")
    product = np.full(len(groups), 2, dtype=np.int64)
    estimate = np.full(len(groups), 2.0)
    for name in names:
        product *= sizes[name]
        estimate *= sizes[name]
    demand(estimate.max() < 2.0**62)
    return product // groups


def _columns(told: Sequence[tuple[dict[str, Any], Pieces]], tails: Sequence[Tail]) -> Tails:
    fields = [told_fields for told_fields, _ in told]
    integers: dict[str, Ints] = {}
    texts: dict[str, tuple[npt.NDArray[np.int32], pa.Array]] = {}
    for name in CONV_FIELDS:
        default = ConvProblem.__dataclass_fields__[name].default
        values = [of.get(name, default) for of in fields]
        if all(isinstance(value, str) for value in values):
            codes, names = distinct(values)
            texts[name] = codes, text_column(names)
        else:
            integers[name] = np.array([_NULL if value is None else value for value in values], np.int64)
    return Tails(
        [pieces for _, pieces in told],
        np.array(["FBW".index(of["direction"]) for of in fields], np.int64),
        np.array([tail_hash(tail) for tail in tails], np.uint64),
        integers,
        texts,
    )


def _read(spatial: int, text: str) -> tuple[dict[str, Any], Pieces]:
    """The fields of a tail, and its pieces.  A 3D key may have a pad of two numbers: ``pad_d`` is unknown."""
    groups = text.split("-", 3)
    demand(len(groups) == 4)
    pads = groups[0].count("x") + 1
    demand(pads in (2, spatial))
    fields: dict[str, Any] = {"spatial": spatial, "pad_d": None if pads < spatial else 0}
    for group, (word, count) in zip(groups, (("pad", pads), ("stride", spatial), ("dilation", spatial)), strict=False):
        sizes = group.split("x")
        demand(len(sizes) == count and all(_NUMBER.match(x) for x in sizes))
        fields |= {f"{word}_{x}": int(v) for x, v in zip("dhw"[-count:], sizes, strict=True)}
    try:
        fields |= read_tail(groups[3])
    except ValueError as error:
        raise OddError from error
    return fields, _pieces(fields)


def _pieces(fields: dict[str, Any]) -> Pieces:
    problem = ConvProblem(**fields)  # of which the sizes are unknown
    text = problem.text
    before, middle, out = text.index(" in=") + 4, text.index(" pad="), text.index(" out=") + 5
    return text[:before].encode(), text[middle:out].encode(), text[text.index(" groups=") :].encode()
