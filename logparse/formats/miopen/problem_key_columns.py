"""Find-db keys as Arrow columns: what ``problem_key.problem_from_key`` returns for each, for thousands at once.

The sizes of a key are cut out with numpy and become columns; what follows them (pads, strides, types …) is one of a few
hundred texts per file, each of which is read once by the plain reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logparse.formats.miopen.key_tails import SIZES, TAILS, Hashes, Ints, demand, key_hashes, problem_columns

Bytes = npt.NDArray[np.uint8]

_DASH, _X, _ZERO, _NINE = (np.uint8(x) for x in b"-x09")


def content(array: pa.StringArray) -> Bytes:
    """The bytes of all values, one after the other; for arrays that are no slices."""
    data = array.buffers()[2]
    return np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def numbers_of(texts: pa.StringArray) -> Ints:
    """Decimal numbers; Arrow alone would also take signs and hexadecimals."""
    data = content(texts)
    demand(not ((data < _ZERO) | (data > _NINE)).any())
    return texts.cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]


def strings(offsets: npt.NDArray[np.int32], content: pa.Buffer) -> pa.StringArray:
    """The stretches of ``content`` between the offsets, without copying it."""
    return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), content)


@dataclass(frozen=True)
class Problems:
    """The problems that keys name: their texts, rows of the table ``convs``, and which line names which."""

    texts: pa.StringArray
    of_line: Ints  # position in ``texts`` and ``table`` of each line's problem
    direction: Ints  # 0, 1, 2 for F, B, W, of each line
    hashes: Hashes  # of each line's key
    table: pa.Table


@dataclass(frozen=True)
class _Form:
    """A form of key.  Its first six groups are sizes that differ from key to key: channels and sizes of the first
    tensor, filter, channels and sizes of the second one, batch.  What follows (pads, strides, dilations, types …) is
    its *tail*: a file has a few hundred different ones, each of which is read once.
    """

    spatial: int
    pads: int

    @property
    def groups(self) -> tuple[tuple[str, int], ...]:
        """What stands between the numbers of each group, and how many they are."""
        wide = self.spatial
        return (("-", 1), ("-", wide), ("x", wide), ("-", 1), ("-", wide), ("-", 1))

    @property
    def delimiters(self) -> Bytes:
        """The character after each number."""
        text = "".join(between * (count - 1) + "-" for between, count in self.groups)
        return np.frombuffer(text.encode(), np.uint8)

    @property
    def starts(self) -> list[int]:
        """Position of each group's first number among the key's numbers, and the count of numbers at the end."""
        return [0, *np.cumsum([count for _, count in self.groups]).tolist()]


_FORMS = {4: _Form(2, 2), 8: _Form(3, 3), 7: _Form(3, 2)}
"""Forms by their number of ``x``: 2D, 3D, and the ragged one (3D with a pad of two numbers)."""
_C1, _SIZE1, _FILTER, _C2, _SIZE2, _N = range(6)
_COMMAS = bytes.maketrans(b"-x", b",,")


def problems_of(keys: pa.StringArray) -> Problems:
    """The problem of each key.  Raises OddError where one is not of the ordinary form."""
    data = content(keys)
    ends = np.frombuffer(keys.buffers()[1], np.int32)[: len(keys) + 1].astype(np.int64)
    exes = np.flatnonzero(data == _X)
    form_of_line = np.diff(np.searchsorted(exes, ends))
    order = np.empty(len(keys), dtype=np.int64)
    direction = np.empty(len(keys), dtype=np.int64)
    hashes = np.empty(len(keys), dtype=np.uint64)
    parts: list[dict[str, pa.Array]] = []
    done = 0
    for exes_count in np.unique(form_of_line).tolist():
        demand(exes_count in _FORMS)
        rows = np.flatnonzero(form_of_line == exes_count)
        chosen = keys if len(rows) == len(keys) else keys.take(pa.array(rows))
        columns, direction[rows], hashes[rows] = _problems_of_form(chosen, _FORMS[exes_count])
        parts.append(columns)
        order[rows] = done + np.arange(len(rows))
        done += len(rows)
    texts = pa.concat_arrays([part["problem"] for part in parts])
    return Problems(texts, order, direction, hashes, pa.concat_tables([pa.table(part) for part in parts]))


def _problems_of_form(keys: pa.StringArray, form: _Form) -> tuple[dict[str, pa.Array], Ints, Hashes]:
    """Columns of the table ``convs`` for keys of one form, and the direction and hash of each."""
    count, data = len(keys), content(keys)
    ends = np.frombuffer(keys.buffers()[1], np.int32)[: count + 1].astype(np.int64)
    starts, delimiters = form.starts, form.delimiters
    at = np.flatnonzero((data == _DASH) | (data == _X))
    first = np.searchsorted(at, ends)
    demand(np.diff(first).min() >= len(delimiters))
    stop = at[first[:-1, None] + np.arange(len(delimiters))]  # where each number of each key ends
    demand((data[stop] == delimiters).all())
    begin = np.concatenate([ends[:-1, None], stop[:, :-1] + 1], axis=1)
    width = stop - begin
    demand(width.max() <= 9 and not ((data[begin] == _ZERO) & (width > 1)).any())

    numbers = strings(_span_offsets(begin, stop, ends), keys.buffers()[2])
    each = 2 * len(delimiters) + 1
    every = (np.arange(count)[:, None] * each + 2 * np.arange(len(delimiters))).ravel()
    value = numbers_of(numbers.take(pa.array(every))).reshape(count, -1)
    tails = numbers.take(pa.array(np.arange(count) * each + each - 1)).dictionary_encode()
    places, told_of = TAILS.of([(form.spatial, text) for text in tails.dictionary.to_pylist()])
    place = places[tails.indices.to_numpy()]
    direction = told_of.direction[place]

    backward = direction != 0
    spans = _span_offsets(begin[:, starts[:-1]], stop[:, [x - 1 for x in starts[1:]]], ends)
    commas = strings(spans, pa.py_buffer(data.tobytes().translate(_COMMAS)))
    row = np.arange(count) * (2 * len(form.groups) + 1)

    def piece(group: int, swapped: int | None = None) -> pa.StringArray:
        index = 2 * group if swapped is None else np.where(backward, 2 * swapped, 2 * group)
        return commas.take(pa.array(row + index))

    def told(index: int) -> pa.StringArray:
        return pa.array([told_of.pieces[i][index].decode() for i in places]).take(tails.indices)

    n, c, k = piece(_N), piece(_C1, _C2), piece(_C2, _C1)
    one = "1," if form.spatial == 2 else ""  # a 2D problem's depth
    in_, filters, out = piece(_SIZE1, _SIZE2), piece(_FILTER), piece(_SIZE2, _SIZE1)
    problem = _join(
        *(told(0), n, ",", c, f",{one}", in_, " k=", k, f" filter={one}", filters),
        *(told(1), one, out, told(2)),
    )
    sizes = _sizes(value, form, backward)
    columns = {"problem": problem, **problem_columns(sizes, told_of, place)}
    return columns, direction, key_hashes([sizes[name] for name in SIZES], told_of.hashes[place])


def _span_offsets(begin: Ints, stop: Ints, ends: Ints) -> npt.NDArray[np.int32]:
    """Keys cut into spans and what is between them: values 0, 2, 4 … of a key are its spans, the last is its tail."""
    count, spans = begin.shape
    flat = np.empty(count * (2 * spans + 1) + 1, dtype=np.int32)
    offsets = flat[:-1].reshape(count, -1)
    offsets[:, 0:-1:2], offsets[:, 1::2], offsets[:, -1] = begin, stop, stop[:, -1] + 1
    flat[-1] = ends[-1]
    return flat


def _join(*parts: pa.StringArray | str) -> pa.StringArray:
    return pc.binary_join_element_wise(*parts, "")


def _sizes(value: Ints, form: _Form, backward: npt.NDArray[np.bool_]) -> Mapping[str, Ints]:
    """The numbers of the key by field, un-swapped; the depth of a 2D problem is 1."""
    groups = [value[:, a:b] for a, b in zip(form.starts[:-1], form.starts[1:], strict=True)]
    swap = backward[:, None]
    in_, out = np.where(swap, groups[_SIZE2], groups[_SIZE1]), np.where(swap, groups[_SIZE1], groups[_SIZE2])
    sizes = dict.fromkeys(SIZES, np.ones(len(value), dtype=np.int64)) | {
        "n": groups[_N][:, 0],
        "c": np.where(backward, groups[_C2][:, 0], groups[_C1][:, 0]),
        "k": np.where(backward, groups[_C1][:, 0], groups[_C2][:, 0]),
    }
    for word, numbers in (("", in_), ("out_", out), ("filter_", groups[_FILTER])):
        for x, column in zip("dhw"[-form.spatial :], numbers.T, strict=True):
            sizes[word + x] = np.ascontiguousarray(column)
    return sizes
