"""Make Arrow columns and tables from Python values without pandas.

``pyarrow.array`` imports pandas if it is installed. That import takes longer than reading most logs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def column(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    """Make an Arrow column of the given type from Python values. A value of None becomes null.

    The type may be text, number, boolean, time in seconds, list or mapping (struct).
    """
    present = [value is not None for value in values]
    if pa.types.is_struct(type):
        fields = [column([value and value[x.name] for value in values], x.type) for x in type]
        return pa.Array.from_buffers(type, len(values), [_valid(present)], children=fields)
    if pa.types.is_list(type):
        sizes = [0 if value is None else len(value) for value in values]
        inner = column([item for value in values if value is not None for item in value], type.value_type)
        return pa.Array.from_buffers(type, len(values), [_valid(present), _ends(sizes)], children=[inner])
    if pa.types.is_string(type):
        texts = values if all(present) else ["" if value is None else value for value in values]
        return pa.Array.from_buffers(type, len(values), [_valid(present), *_texts(texts)])
    plain = values if all(present) else [0 if value is None else value for value in values]
    return fixed(np.array(plain, _dtype(type)), np.array(present, np.bool_), type)


def fixed(values: npt.NDArray[Any], present: npt.NDArray[np.bool_], type: pa.DataType) -> pa.Array:
    """Make an Arrow column of numbers, booleans or times. Values for which ``present`` is False become null."""
    data = _pack_bits(values) if pa.types.is_boolean(type) else pa.py_buffer(np.ascontiguousarray(values, _dtype(type)))
    return pa.Array.from_buffers(type, len(values), [_valid(present), data])


def numbers(values: npt.NDArray[np.int64], null: int, type: pa.DataType | None = None) -> pa.Array:
    """Make an Arrow column of 64-bit integers. Values equal to ``null`` become null."""
    return fixed(values, values != null, type or pa.int64())


def dictionary(codes: npt.NDArray[np.int64], texts: Sequence[str]) -> pa.Array:
    """Make an Arrow column of texts in which each different text is stored only once.

    Row i has the text ``texts[codes[i]]``. A negative code becomes null.
    """
    indices = fixed(codes, codes >= 0, pa.int32())
    return pa.DictionaryArray.from_arrays(indices, column(texts, pa.string()), safe=False)


def table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Make an Arrow table from rows. Each row is a dictionary. A value that a row lacks becomes null."""
    return pa.Table.from_arrays([column([row.get(f.name) for row in rows], f.type) for f in schema], schema=schema)


_FEW = 2_000
"""Number of rows up to which values are converted one by one in Python, because this is faster for few rows."""


def conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Give a table the columns and types of ``schema``. The table may be from a file of an earlier version.

    If the table lacks a column, the column is added with nulls.
    """
    if rows.schema.equals(schema):
        return rows

    def given(wanted: pa.Field) -> pa.Array | pa.ChunkedArray:
        if wanted.name not in rows.column_names:
            return pa.nulls(len(rows), wanted.type)
        found = rows[wanted.name]
        if found.type == wanted.type:
            return found
        if pa.types.is_dictionary(found.type) and len(found) <= _FEW:
            return column(found.to_pylist(), wanted.type)  # a cast imports pyarrow.compute, which takes 0.03 s
        return found.cast(wanted.type)

    return pa.Table.from_arrays([given(f) for f in schema], schema=schema)


def _dtype(type: pa.DataType) -> np.dtype[Any]:
    return np.dtype("int64" if pa.types.is_timestamp(type) else str(type))


def _pack_bits(flags: Any) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.asarray(flags, np.bool_), bitorder="little"))


def _valid(present: Any) -> pa.Buffer | None:
    return None if np.all(present) else _pack_bits(present)


def _texts(texts: Sequence[str]) -> tuple[pa.Buffer, pa.Buffer]:
    """Return the two memory buffers of an Arrow text column: the positions of the texts, and the bytes of all texts."""
    together = "".join(texts)
    # A column can hold only valid Unicode. So a lone surrogate (half of an escape in JSON) is written as its escape.
    data = together.encode("utf-8", "backslashreplace")
    ascii = len(data) == len(together)
    sizes = [len(text) if ascii else len(text.encode("utf-8", "backslashreplace")) for text in texts]
    return _ends(sizes), pa.py_buffer(data)


def _ends(sizes: Sequence[int]) -> pa.Buffer:
    """Return where each value of an Arrow column begins and ends, from the sizes of its values.

    The values are texts or lists. The result is an Arrow buffer. Raises OverflowError above 2 GiB, which no file of a
    store reaches.
    """
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    if ends[-1] > np.iinfo(np.int32).max:
        raise OverflowError("a column of a file in the store would be larger than 2 GiB")
    return pa.py_buffer(ends.astype(np.int32))
