"""Arrow columns from Python values, without pandas.

``pyarrow.array`` imports pandas where that is installed, which takes longer than most logs take to read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa


def column(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    """Values of one of the store's types (text, number, boolean, time in seconds, list), None where unknown."""
    present = np.fromiter((value is not None for value in values), np.bool_, len(values))
    valid = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    if pa.types.is_list(type):
        sizes = [0 if value is None else len(value) for value in values]
        inner = column([item for value in values if value is not None for item in value], type.value_type)
        return pa.Array.from_buffers(type, len(values), [valid, _ends(sizes)], children=[inner])
    if pa.types.is_string(type):
        # "backslashreplace": a half escape of JSON is a lone surrogate, which no table holds
        texts = [b"" if value is None else value.encode("utf-8", "backslashreplace") for value in values]
        return pa.Array.from_buffers(
            type, len(values), [valid, _ends(list(map(len, texts))), pa.py_buffer(b"".join(texts))]
        )
    plain = [0 if value is None else value for value in values]
    if pa.types.is_boolean(type):
        data = np.packbits(np.array(plain, np.bool_), bitorder="little")
    else:
        data = np.array(plain, np.int64 if pa.types.is_timestamp(type) else np.dtype(str(type)))
    return pa.Array.from_buffers(type, len(values), [valid, pa.py_buffer(data)])


def numbers(values: np.ndarray[Any, np.dtype[np.int64]], null: int, type: pa.DataType | None = None) -> pa.Array:
    """64-bit numbers, ``null`` where unknown."""
    present = values != null
    valid = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(type or pa.int64(), len(values), [valid, pa.py_buffer(np.ascontiguousarray(values))])


def table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows with these columns; a name that a row lacks is unknown."""
    return pa.Table.from_arrays([column([row.get(f.name) for row in rows], f.type) for f in schema], schema=schema)


def _ends(sizes: Sequence[int]) -> pa.Buffer:
    """Where each value begins and ends.  Raises OverflowError above 2 GiB, which no part comes near."""
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    if ends[-1] > np.iinfo(np.int32).max:
        raise OverflowError("a column of more than 2 GiB")
    return pa.py_buffer(ends.astype(np.int32))
