"""Parse a million texts of GEMMs and convolutions at once: their families, sizes, operations and bytes. Pure.

"Problem" in this module means a GEMM or a convolution with all its sizes and types. A family is a set of problems that
differ only in their sizes. Problems of one family are equal in:

* products: types, transposes and scales
* convolutions: direction, types, layout, number of spatial dimensions, mode, and whether they are grouped or depthwise

Sizes are logarithms to base 2, so that a distance is in doublings. Sizes of a convolution's filter, stride and dilation
are weighted twice, because they influence the choice of a kernel more than they change the amount of work. Texts are
parsed as columns, because it would take half a minute to make a Python object of each of a million problems.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analyzers.evidence.expected import Floats, Ints, base_time_us, distinct_codes
from logparse.devices import Device, devices
from logparse.model.problems import COMPLEX, CONV_WORDS, GEMM_LATER, GEMM_WORDS, NARROW, TYPE_BYTES

_Cells: TypeAlias = tuple[str, ...]

_ASSUMED_TFLOPS, _ASSUMED_GBS = 200.0, 2000.0
"""Speed that is assumed for a GPU that is missing in our table of data sheets, TFLOP/s and GB/s.

A wrong value does little harm, because an estimate depends only on the ratio of two times that are computed from it.
"""
_FIRST_WORDS = ("trans", "mnk", "batch", "ld", "stride")
"""Names of the first words of a matrix product's text, after ``gemm``. Most of them depend on its sizes."""
_OTHER_WORDS = tuple(x for x in GEMM_WORDS if x[0] not in (*_FIRST_WORDS, *GEMM_LATER))
_CONV_WORDS = (("direction", ("direction",)), *CONV_WORDS)
_IGNORED = pa.array(["input=?", "input=?,?", "input=?,-", "input=-,?", "sms=?"], pa.large_string())
"""Words of a matrix product's text that contain no information, for example ``sms=?``."""
_CHUNK = 1 << 16
"""Largest number of texts that are parsed at once. Memory of small portions is reused, which halves the time."""
_GROUPINGS = ("", " grouped", " depthwise")
_UNKNOWN = ("?", "-")
"""Values without information in the text of a GEMM or convolution.

``?`` means that the log does not state the value. ``-`` means that the value cannot matter.
"""


class Kind(NamedTuple):
    """Properties of a GEMM or convolution that do not depend on its size.

    * ``dtype``: the data type whose peak rate limits the computation.
    * ``sizes``: bytes of an element of each operand.
    * ``flops``: operations for each multiply-add, for example 8 for complex numbers.
    """

    # All with these properties have this name in common. None if it is unknown.
    family: str | None
    dtype: str
    sizes: tuple[float, float, float, float]
    flops: float = 2.0


@dataclass(frozen=True, eq=False)
class Sized:
    """Many parsed GEMMs, or many parsed convolutions, as columns.

    * ``rows``: the index of each one in the list of parsed texts.
    * ``kind``: an index into ``kinds``.
    * ``at``: logarithms to base 2 of the sizes.
    * ``bytes``: bytes to move.
    """

    rows: Ints
    # Each of them has the properties that do not depend on sizes.
    kinds: Sequence[Kind]
    kind: Ints
    at: Floats
    flops: Floats
    bytes: Floats

    def base_us(self, device: str) -> Floats:
        """Return a rough time of each GEMM or convolution on a GPU, µs. ``device`` is for example ``gfx942 304``.

        It is the time of computing, of moving the operands once, and of one kernel launch (``expected.base_time_us``).
        """
        sheet = _sheet(device)
        peak = np.array([_peak(sheet, x.dtype) for x in self.kinds], dtype=np.float64)[self.kind]
        return base_time_us(self.flops, self.bytes, peak, sheet.hbm_gbs if sheet else _ASSUMED_GBS)

    def by_family(self) -> Iterator[tuple[str, Ints]]:
        """Group the GEMMs or convolutions that differ only in sizes. Yields a name and the indices for each group."""
        names = sorted({x.family for x in self.kinds if x.family is not None})
        code = np.array([names.index(x.family) if x.family is not None else -1 for x in self.kinds], dtype=np.intp)
        of_each = code[self.kind]
        for number, name in enumerate(names):
            places = np.flatnonzero(of_each == number)
            if len(places):
                yield name, places


def parse_sizes(texts: Sequence[str] | pa.Array) -> tuple[Sized, ...]:
    """Parse the texts of GEMMs and convolutions, and return their sizes, operations and bytes as columns.

    There is one result for all GEMMs and one for all convolutions. Two kinds of texts are special:

    * A text is left out if it does not state all its sizes, or does not state what kind of GEMM or convolution it is.
    * The words ``input`` and ``sms`` of a matrix product exist only in newer texts. They are ignored if they contain
      only unknown values (``?``). If they contain a value, the product is left out.
    """
    given = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.large_string())
    begins = range(0, max(1, len(given)), _CHUNK)
    parts = [_products_and_convolutions(given[begin : begin + _CHUNK]) for begin in begins]
    kinds = (_join_parsed([*zip(begins, of_kind, strict=True)]) for of_kind in zip(*parts, strict=True))
    return tuple(x for x in kinds if len(x.rows))


def _products_and_convolutions(texts: pa.Array) -> tuple[Sized, Sized]:
    texts = pc.fill_null(texts, "")
    return _products(*_of_kind(texts, "gemm")), _convolutions(*_of_kind(texts, "conv"))


def _of_kind(texts: pa.Array, kind: str) -> tuple[Ints, pa.Array]:
    """Find the texts whose first word is ``kind`` (``gemm`` or ``conv``). Return their indices, and the texts."""
    rows = np.flatnonzero(pc.starts_with(texts, f"{kind} ").to_numpy(zero_copy_only=False))
    return rows, texts if len(rows) == len(texts) else texts.take(pa.array(rows))


def _join_parsed(parts: Sequence[tuple[int, Sized]]) -> Sized:
    """Join the results of parsing several parts of a list of GEMMs or convolutions into one result.

    Each result comes with the index in the list at which its part begins.
    """
    number = {kind: i for i, kind in enumerate(dict.fromkeys(kind for _, part in parts for kind in part.kinds))}
    codes = [np.array([number[kind] for kind in part.kinds], dtype=np.intp)[part.kind] for _, part in parts]
    joined = [np.concatenate([getattr(part, name) for _, part in parts]) for name in ("at", "flops", "bytes")]
    return Sized(np.concatenate([begin + x.rows for begin, x in parts]), [*number], np.concatenate(codes), *joined)


def _products(rows: Ints, texts: pa.Array) -> Sized:
    """Parse the texts of matrix products. ``rows`` are their indices among all texts.

    From its types on, a text is equal for products of many sizes. So only the words before are split off, and each
    distinct rest is parsed once.
    """
    last = 1 + len(_FIRST_WORDS)
    split = _Split.of(texts, last)
    here = np.flatnonzero(split.count > last)
    rests = split.column(here, last).dictionary_encode()
    usual, words = _Split.of(rests.dictionary).columns(_OTHER_WORDS)
    others, number = _distinct(words, ("type", "compute", "scale", "swizzle", "beta"))
    other_of = np.full(len(rests.dictionary), -1, dtype=np.intp)
    other_of[usual] = number
    other = other_of[rests.indices.to_numpy()]
    here, other = here[other >= 0], other[other >= 0]
    trans, batches = (_Word.of(split.column(here, i), 2) for i in (1, 3))
    m, n, k = _Word(pc.utf8_slice_codeunits(split.column(here, 2), len("mnk=")), None, 3).numbers()
    batch, _ = batches.numbers()
    first, place = distinct_codes(trans.codes * max(1, len(others)) + other)
    trans_rows = trans.rows()
    made = [_product((trans_rows[trans.codes[i]], *others[other[i]])) for i in first.tolist()]
    a, b, c, d = _columns([x.sizes for x in made], 4)[:, place]
    moved = batch * (m * k * a + k * n * b + m * n * (c + d))
    flops = _columns([(x.flops,) for x in made], 1)[0, place] * m * n * k * batch
    return _tabulate_sizes(rows[here], made, place, _doublings(m, n, k, batch), flops, moved)


def _convolutions(rows: Ints, texts: pa.Array) -> Sized:
    """Parse the texts of convolutions. ``rows`` are their indices among all texts."""
    here, words = _Split.of(texts).columns(_CONV_WORDS, 1)
    n, c, d, h, w = words["in"].numbers()
    out_d, out_h, out_w = words["out"].numbers()
    (k,), (groups,) = words["k"].numbers(), words["groups"].numbers()
    filter_d, filter_h, filter_w = words["filter"].numbers()
    _, stride_h, stride_w = words["stride"].numbers()
    _, dilation_h, _ = words["dilation"].numbers()
    kinds, place = _distinct(words, ("direction", "spatial", "type", "layout", "mode"))
    # Grouped and depthwise convolutions run other kernels, so they are families of their own.
    grouping = np.where(groups > 1, np.where(groups == c, 2, 1), 0)
    pairs, place = np.unique(place * 3 + grouping, return_inverse=True)
    made = [_convolution(kinds[x // 3], _GROUPINGS[x % 3]) for x in pairs.tolist()]
    x, y, z, _ = _columns([x.sizes for x in made], 4)[:, place]
    pixels, taps = out_d * out_h * out_w, filter_d * filter_h * filter_w
    moved = n * c * d * h * w * x + k * c / groups * taps * y + n * k * pixels * z
    at = (
        _doublings(n, c / groups, k / groups, groups),
        0.7 * _doublings(pixels),  # Height and width change together.
        2.0 * _doublings(filter_d * filter_h, filter_w, stride_h, stride_w, dilation_h),
    )
    return _tabulate_sizes(
        rows[here], made, place, np.concatenate(at, axis=1), 2 * n * k * pixels * c / groups * taps, moved
    )


def _product(cells: Sequence[_Cells]) -> Kind:
    trans, types, compute, scales, swizzle, beta = cells
    a_type = types[0]
    a, b, c, d = (x if x not in _UNKNOWN else a_type for x in types)
    size = {x: TYPE_BYTES.get(x, math.nan) for x in (a, b, c, d)}
    short = compute[0] if a_type == "f32_r" and compute[0] not in (*_UNKNOWN, "f32_r") else ""
    scaled = f"{scales[0]},{scales[1]}" if {a, b} & NARROW else ""
    swizzled = "swizzled" if "1" in swizzle else ""
    words = (f"{trans[0]}{trans[1]}", a if a == b else f"{a}/{b}", short, scaled, swizzled)
    known = not {*trans, a_type} & set(_UNKNOWN)
    return Kind(
        family=" ".join(filter(None, words)) if known else None,
        dtype="xf32_r" if short else a_type,
        sizes=(size[a], size[b], size[c] if beta[0] == "nonzero" else 0.0, size[d]),
        flops=8.0 if a_type in COMPLEX else 2.0,
    )


def _convolution(cells: Sequence[_Cells], grouping: str) -> Kind:
    direction, spatial, types, layouts, mode = cells
    kinds = tuple(x if x not in _UNKNOWN else types[0] for x in types)
    places = tuple(x if x not in _UNKNOWN else layouts[0] for x in layouts)
    x, y, z = (TYPE_BYTES.get(kind, math.nan) for kind in kinds)
    known = direction[0] != "B+W" and not {types[0], layouts[0]} & set(_UNKNOWN)
    words = (*direction, f"{spatial[0]}D", *dict.fromkeys(kinds), *dict.fromkeys(places))
    transposed = " transposed" * (mode[0] == "transposed")
    return Kind(" ".join(words) + grouping + transposed if known else None, types[0], (x, y, z, 0.0))


def _tabulate_sizes(rows: Ints, kinds: Sequence[Kind], place: Ints, at: Floats, flops: Floats, bytes: Floats) -> Sized:
    """Build the table of parsed GEMMs or convolutions, without those whose size or kind is unknown."""
    known = np.array([x.family is not None for x in kinds], dtype=bool)
    with np.errstate(invalid="ignore"):
        good = known[place] & (bytes > 0) & (flops > 0) & np.isfinite(at).all(axis=1)
    return Sized(rows[good], kinds, place[good], at[good], flops[good], bytes[good])


def _columns(rows: Sequence[Sequence[float]], count: int) -> Floats:
    return np.array(rows, dtype=np.float64).reshape(-1, count).T


def _doublings(*sizes: Floats) -> Floats:
    """Return the sizes of GEMMs or convolutions as a matrix of logarithms to base 2.

    Each argument is one dimension of all of them, and becomes one column. An unknown size is NaN.
    """
    # With logarithms, the distance of two rows shows how similar their sizes are.
    out: Floats = np.log2(np.maximum(np.stack(sizes, axis=1), 1.0))
    return out


@dataclass(frozen=True)
class _Word:
    """One word of many texts, stored as a column. An example is ``mnk=4096,512,1024``, the second word of each text.

    * ``place``: for each text, the index of its word in ``values``.
    * ``count``: how many values the word lists, 3 for ``mnk``.
    """

    # It has each different word once. Without ``place``, it has the words of all texts, in order, without ``mnk=``.
    values: pa.Array
    place: Ints | None
    count: int

    @classmethod
    def of(cls, column: pa.Array, count: int) -> _Word:
        """Make the words of a column distinct, so that each distinct word is parsed once."""
        column = column.dictionary_encode()
        return cls(column.dictionary, column.indices.to_numpy().astype(np.intp), count)

    @property
    def codes(self) -> Ints:
        assert self.place is not None, "the words are made distinct"
        return self.place

    def rows(self) -> list[_Cells]:
        """Split the stored words into their values. ``mnk=4096,512,1024`` becomes ``("4096", "512", "1024")``."""
        flat = self._cells().to_pylist()
        return [tuple(flat[i : i + self.count]) for i in range(0, len(flat), self.count)]

    def numbers(self) -> list[Floats]:
        """Return the word's values as columns of numbers, for example as three columns for ``mnk=4096,512,1024``.

        Entry i of a column belongs to text i. A value that is not a number becomes NaN.
        """
        cells = self._cells()
        known = pc.ascii_is_decimal(cells)
        if not pc.all(known).as_py():
            cells = pc.if_else(known, cells, pa.scalar(None, cells.type))
        flat = cells.cast(pa.float64()).to_numpy(zero_copy_only=False).reshape(-1, self.count)
        return [x if self.place is None else x[self.place] for x in flat.T]

    def _cells(self) -> pa.Array:
        after = self.values if self.place is None else pc.replace_substring_regex(self.values, "^[^=]*=", "")
        return pc.list_flatten(pc.split_pattern(after, ","))


@dataclass(frozen=True, eq=False)
class _Split:
    """Many texts, each split into words at the blanks.

    * ``words``: the words of all texts, one text after the other.
    * ``begin``, ``count``: for each text, the index of its first word, and its number of words.
    """

    words: pa.Array
    begin: Ints
    count: Ints

    @classmethod
    def of(cls, texts: pa.Array, most: int | None = None) -> _Split:
        """Split the texts, each at its first ``most`` blanks, or at all blanks."""
        parts = pc.split_pattern(texts, " ", max_splits=most)
        offsets = parts.offsets.to_numpy().astype(np.intp)
        return cls(parts.values, offsets[:-1], np.diff(offsets))

    def column(self, rows: Ints, number: int) -> pa.Array:
        """Return a word of each of the given texts. ``number`` is its place in the text, 0 for the first word."""
        return self.words.take(pa.array(self.begin[rows] + number))

    def columns(self, names: Sequence[tuple[str, tuple[str, ...]]], begin: int = 0) -> tuple[Ints, dict[str, _Word]]:
        """Find the texts that have the usual number of words, and return their indices and a column for each word.

        ``names``: the words from number ``begin`` on, each with the names of its values.
        """
        usual, count = begin + len(names), self.count.copy()
        # Words in ``_IGNORED`` at the end of a text do not count.
        for _ in GEMM_LATER:
            longer = np.flatnonzero(count > usual)
            last = self.words.take(pa.array(self.begin[longer] + count[longer] - 1))
            count[longer] -= pc.is_in(last, _IGNORED).to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(count == usual)
        columns = (_Word.of(self.column(rows, i), len(cells)) for i, (_, cells) in enumerate(names, start=begin))
        return rows, {name: column for (name, _), column in zip(names, columns, strict=True)}


def _distinct(words: Mapping[str, _Word], names: Sequence[str]) -> tuple[list[tuple[_Cells, ...]], Ints]:
    """Find the different combinations of some words in many texts, and for each text the index of its combination.

    ``names`` selects the words, for example ``mnk`` of ``mnk=4096,512,1024``.
    """
    columns = [words[name] for name in names]
    places, code = [x.codes for x in columns], np.zeros(1, dtype=np.int64)
    for column, place in zip(columns, places, strict=True):
        code = code * max(1, len(column.values)) + place
    first, place = distinct_codes(code)
    cells = [x.rows() for x in columns]
    return [tuple(x[at[i]] for x, at in zip(cells, places, strict=True)) for i in first.tolist()], place


@cache
def _sheet(device: str) -> Device | None:
    return next((x for x in devices() if f"{x.arch} {x.cu_count}" == device), None)


def _peak(device: Device | None, dtype: str) -> float:
    """Return the peak rate of a GPU for a data type, TFLOP/s.

    If the data sheet lacks the type, the rate of the GPU's fastest type is returned.
    """
    if device is None:
        return _ASSUMED_TFLOPS
    return device.peak_tflops(dtype) or max(device.peaks.values())
