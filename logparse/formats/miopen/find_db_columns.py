"""Find-db records as Arrow columns, a few MB of text at a time: what ``find_db_record.read_record`` says, only faster.

A stretch of text is cut at its delimiters with numpy, every piece is a value of one Arrow string array, and columns are
``take``n from that.  A stretch is handled in one go or not at all: where any line of it is not of the ordinary form
(damage, carriage returns, repeated ids, too few values …) it is halved until the odd line stands in a small stretch,
which ``read_record`` reads.  ``tests/formats/miopen/test_find_db.py`` holds both readers to the same answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logparse.formats.format import Outcome
from logparse.formats.miopen.find_db_record import DUPLICATE_KEY, ORIGIN, read_record
from logparse.formats.miopen.problem_key import read_tail
from logparse.formats.miopen.solvers import ALGORITHMS
from logparse.model import CONV_FIELDS, ConvProblem, Measurement

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

BLOCK = 4 << 20
"""Bytes of text per stretch: enough to spread numpy's cost per call, and a dozen of them fit into memory."""
SMALL = 16 << 10
"""A stretch of this size is read line by line when it is not of the ordinary form."""
THREADS = 2

_EQUALS, _COLON, _COMMA, _SEMICOLON, _LESS, _LF, _DASH, _X, _ZERO, _NINE = (np.uint8(x) for x in b"=:,;<\n-x09")


_NUMBER = re.compile(r"(?:0|[1-9]\d{0,8})\Z", re.ASCII)


class _OddError(Exception):
    """Some line of the stretch is not of the ordinary form."""


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
    except (_OddError, pa.ArrowInvalid):
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
    if not text.isascii() or b"\r" in text or not text.endswith(b"\n"):
        raise _OddError
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
    _demand((kind[key_piece] == _EQUALS).all() and np.count_nonzero(kind == _EQUALS) == len(key_piece))
    values = last - first
    _demand(values.min() >= 3 and values.max() <= 5)
    _demand((kind[first] == _COLON).all() and np.count_nonzero(kind == _COLON) == len(first))
    line = np.cumsum(opens) - 1

    keys = pieces.take(pa.array(2 * key_piece))
    problems = _problems(keys)
    table = _items(pieces, first, line, problems)
    ascending = len(keys) < 2 or bool(pc.all(pc.less(keys[:-1], keys[1:])).as_py())
    ordinal = np.arange(len(line)) - np.flatnonzero(opens)[line]
    table |= {
        "key_text": _dictionary(line, keys),
        "ordinal": pa.array(ordinal.astype(np.int32)),
    }
    return _Stretch(offset, b"", keys, line, problems.of_line, ascending, pa.table(table), problems.table)


def _demand(ordinary: bool | np.bool_) -> None:
    if not ordinary:
        raise _OddError


def _cut(buffer: pa.Buffer, at: Ints) -> pa.StringArray:
    """Text cut at delimiters: even values are the pieces, odd ones the delimiters."""
    offsets = np.empty(2 * len(at) + 1, dtype=np.int32)
    offsets[0], offsets[1::2], offsets[2::2] = 0, at, at + 1
    return _strings(offsets, buffer)


def _content(array: pa.StringArray) -> Bytes:
    data = array.buffers()[2]
    return np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def _dictionary(indices: Ints, values: pa.Array) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(indices.astype(np.int32)), values)


def _constant(value: str, count: int) -> pa.DictionaryArray:
    return _dictionary(np.zeros(count, dtype=np.int64), pa.array([value]))


def _numbers(texts: pa.StringArray) -> Ints:
    """Decimal numbers; Arrow alone would also take signs and hexadecimals."""
    content = _content(texts)
    _demand(not ((content < _ZERO) | (content > _NINE)).any())
    return texts.cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]


def _items(pieces: pa.StringArray, first: Ints, line: Ints, problems: _Problems) -> dict[str, Any]:
    """Columns of the measurements that each item is."""
    count = len(first)
    ids = pieces.take(pa.array(2 * first)).dictionary_encode()
    id_code = ids.indices.to_numpy()
    _demand(not _repeats(id_code, line))
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
    _demand(not old.any() or not np.array([name == "" for name in solvers])[solver.indices.to_numpy()].any())
    _demand("" not in names)
    fits = np.array(["FBW".find(ALGORITHMS.get(name, "?")) for name in algorithms])[algorithm.indices.to_numpy()]
    _demand((fits == problems.direction[line]).all())

    texts = pieces.take(pa.array(2 * (first + 1 + old)))
    _demand(not (_content(texts) == 32).any())
    milliseconds = texts.cast(pa.float64()).to_numpy()
    good = (milliseconds > 0) & (milliseconds < np.inf)
    workspace = pieces.take(pa.array(2 * (first + 2 + old)))
    _demand(pc.max(pc.binary_length(workspace)).as_py() <= 18)
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
        "workspace_bytes": pa.array(_numbers(workspace)),
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


# ------------------------------------------------------------------------------------------------ keys


@dataclass(frozen=True)
class _Problems:
    texts: pa.StringArray
    of_line: Ints  # position in ``texts`` and ``table`` of each line's problem
    direction: Ints  # 0, 1, 2 for F, B, W, of each line
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
    def out_start(self) -> str:
        """What stands before a 2D problem's output sizes."""
        return "1," if self.spatial == 2 else ""

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
_EXES = bytes.maketrans(b"-", b"x")


def _problems(keys: pa.StringArray) -> _Problems:
    data = _content(keys)
    ends = np.frombuffer(keys.buffers()[1], np.int32)[: len(keys) + 1].astype(np.int64)
    exes = np.flatnonzero(data == _X)
    form_of_line = np.diff(np.searchsorted(exes, ends))
    order = np.empty(len(keys), dtype=np.int64)
    direction = np.empty(len(keys), dtype=np.int64)
    parts: list[dict[str, pa.Array]] = []
    done = 0
    for exes_count in np.unique(form_of_line).tolist():
        _demand(exes_count in _FORMS)
        rows = np.flatnonzero(form_of_line == exes_count)
        chosen = keys if len(rows) == len(keys) else keys.take(pa.array(rows))
        columns, direction[rows] = _problems_of_form(chosen, _FORMS[exes_count])
        parts.append(columns)
        order[rows] = done + np.arange(len(rows))
        done += len(rows)
    texts = pa.concat_arrays([part["problem"] for part in parts])
    return _Problems(texts, order, direction, pa.concat_tables([pa.table(part) for part in parts]))


def _problems_of_form(keys: pa.StringArray, form: _Form) -> tuple[dict[str, pa.Array], Ints]:
    """Columns of the table ``convs`` for keys of one form, and the direction of each."""
    count, data = len(keys), _content(keys)
    ends = np.frombuffer(keys.buffers()[1], np.int32)[: count + 1].astype(np.int64)
    starts, delimiters = form.starts, form.delimiters
    at = np.flatnonzero((data == _DASH) | (data == _X))
    first = np.searchsorted(at, ends)
    _demand(np.diff(first).min() >= len(delimiters))
    stop = at[first[:-1, None] + np.arange(len(delimiters))]  # where each number of each key ends
    _demand((data[stop] == delimiters).all())
    begin = np.concatenate([ends[:-1, None], stop[:, :-1] + 1], axis=1)
    width = stop - begin
    _demand(width.max() <= 9 and not ((data[begin] == _ZERO) & (width > 1)).any())

    numbers = _strings(_span_offsets(begin, stop, ends), keys.buffers()[2])
    each = 2 * len(delimiters) + 1
    every = (np.arange(count)[:, None] * each + 2 * np.arange(len(delimiters))).ravel()
    value = _numbers(numbers.take(pa.array(every))).reshape(count, -1)
    tails = numbers.take(pa.array(np.arange(count) * each + each - 1)).dictionary_encode()
    tail = _Tails(tails.dictionary.to_pylist(), form)
    direction = tail.direction[tails.indices.to_numpy()]

    backward = direction != 0
    spans = _span_offsets(begin[:, starts[:-1]], stop[:, [x - 1 for x in starts[1:]]], ends)
    commas = _strings(spans, pa.py_buffer(data.tobytes().translate(_COMMAS)))
    exes = _strings(spans, pa.py_buffer(data.tobytes().translate(_EXES)))
    row = np.arange(count) * (2 * len(form.groups) + 1)

    def piece(source: pa.StringArray, group: int, swapped: int | None = None) -> pa.StringArray:
        index = 2 * group if swapped is None else np.where(backward, 2 * swapped, 2 * group)
        return source.take(pa.array(row + index))

    def told(texts: list[str]) -> pa.StringArray:
        return pa.array(texts).take(tails.indices)

    n, c, k = piece(commas, _N), piece(commas, _C1, _C2), piece(commas, _C2, _C1)
    one = "1," if form.spatial == 2 else ""
    layer = _join(
        *(f"spatial={form.spatial} in=", n, ",", c, f",{one}", piece(commas, _SIZE1, _SIZE2), " k=", k),
        *(f" filter={one}", piece(commas, _FILTER), told(tail.middle), piece(commas, _SIZE2, _SIZE1), told(tail.end)),
    )
    start = pa.array(["conv F ", "conv B ", "conv W "]).take(pa.array(direction))
    one = one.replace(",", "x")
    shape = _join(
        *(start, n, "x", c, f"x{one}", piece(exes, _SIZE1, _SIZE2), "x", k, f"x{one}", piece(exes, _FILTER)),
        told(tail.shape),
    )
    sizes = _sizes(value, form, backward)
    columns = {"problem": _join(start, layer), "shape": shape, "layer": layer}
    for name in CONV_FIELDS:
        columns[name] = pa.array(sizes[name]) if name in sizes else tail.column(name, tails.indices)
    columns["flops"] = pa.array(_flops(sizes, columns["groups"].to_numpy()))
    return columns, direction


def _span_offsets(begin: Ints, stop: Ints, ends: Ints) -> npt.NDArray[np.int32]:
    """Keys cut into spans and what is between them: values 0, 2, 4 … of a key are its spans, the last is its tail."""
    count, spans = begin.shape
    flat = np.empty(count * (2 * spans + 1) + 1, dtype=np.int32)
    offsets = flat[:-1].reshape(count, -1)
    offsets[:, 0:-1:2], offsets[:, 1::2], offsets[:, -1] = begin, stop, stop[:, -1] + 1
    flat[-1] = ends[-1]
    return flat


def _strings(offsets: npt.NDArray[np.int32], content: pa.Buffer) -> pa.StringArray:
    return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), content)


def _join(*parts: pa.StringArray | str) -> pa.StringArray:
    return pc.binary_join_element_wise(*parts, "")


class _Tails:
    """What the distinct tails (``1x1-2x2-1x1-0-NCHW-FP16-W_g32``) say, one entry each."""

    def __init__(self, texts: list[str], form: _Form) -> None:
        told = [_tail(text, form) for text in texts]
        self.fields = [fields for fields, _ in told]
        self.middle = [layer[layer.index(" pad=") : layer.index(" out=") + 5] + form.out_start for _, layer in told]
        self.end = [layer[layer.index(" groups=") :] for _, layer in told]
        self.shape = [f" g{fields['groups']} {fields['in_type']}" for fields in self.fields]
        self.direction = np.array(["FBW".index(fields["direction"]) for fields in self.fields])

    def column(self, name: str, code: pa.Array) -> pa.Array:
        default = ConvProblem.__dataclass_fields__[name].default
        values = pa.array([fields.get(name, default) for fields in self.fields])
        if pa.types.is_string(values.type):
            return pa.DictionaryArray.from_arrays(code, values)
        return values.cast(pa.int64()).take(code)


@lru_cache(maxsize=65536)
def _tail(text: str, form: _Form) -> tuple[dict[str, Any], str]:
    """The fields that a tail tells, and ``layer`` of a problem of which only these are known."""
    groups = text.split("-", 3)
    _demand(len(groups) == 4)
    fields: dict[str, Any] = {"spatial": form.spatial, "pad_d": None if form.pads < form.spatial else 0}
    wanted = (("pad", form.pads), ("stride", form.spatial), ("dilation", form.spatial))
    for group, (word, count) in zip(groups, wanted, strict=False):
        numbers = group.split("x")
        _demand(len(numbers) == count and all(_NUMBER.match(x) for x in numbers))
        fields |= {f"{word}_{x}": int(v) for x, v in zip("dhw"[-count:], numbers, strict=True)}
    try:
        fields |= read_tail(groups[3])
    except ValueError as error:
        raise _OddError from error
    return fields, ConvProblem(**fields).layer


def _sizes(value: Ints, form: _Form, backward: npt.NDArray[np.bool_]) -> dict[str, Ints]:
    """The numbers of the key by field, un-swapped."""
    groups = [value[:, a:b] for a, b in zip(form.starts[:-1], form.starts[1:], strict=True)]
    swap = backward[:, None]
    in_, out = np.where(swap, groups[_SIZE2], groups[_SIZE1]), np.where(swap, groups[_SIZE1], groups[_SIZE2])
    sizes = {
        "n": groups[_N][:, 0],
        "c": np.where(backward, groups[_C2][:, 0], groups[_C1][:, 0]),
        "k": np.where(backward, groups[_C1][:, 0], groups[_C2][:, 0]),
    }
    for word, numbers in (("", in_), ("out_", out), ("filter_", groups[_FILTER])):
        for x, column in zip("dhw"[-form.spatial :], numbers.T, strict=True):
            sizes[word + x] = np.ascontiguousarray(column)
    return sizes


def _flops(sizes: dict[str, Ints], groups: Ints) -> Ints:
    names = ("n", "k", "c", "out_d", "out_h", "out_w", "filter_d", "filter_h", "filter_w")
    product = np.full(len(groups), 2, dtype=np.int64)
    estimate = np.full(len(groups), 2.0)
    for name in names:
        if name in sizes:  # the third dimension of a 2D problem is 1
            product *= sizes[name]
            estimate *= sizes[name]
    _demand(estimate.max() < 2.0**62)
    return product // groups
