"""Tests of the C code that finds the lines of a find-db (MIOpen's file of solver times).

The code must find every line, and never take an unusual line for one of the usual form.
"""

from __future__ import annotations

import os
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logparse.libraries.miopen.find_db_index import Index, index_of, native_reader
from tests.conftest import SAMPLES

LINES = (SAMPLES / "miopen/gfx942130.HIP.fdb.txt").read_bytes().splitlines()
KEY = b"64-28-28-28-3x3x3-64-28-28-28-16-1x1x1-1x1x1-1x1x1-0-NCDHW-FP16-F"
ITEM = b"Solver:1.5,0,miopenConvolutionFwdAlgoGEMM"

needs_native = pytest.mark.skipif(native_reader() is None, reason="the native reader was not built")


def same(data: bytes) -> Index:
    """Check that code in C and code in Python find the same lines in a file, and return the lines' positions."""
    native = index_of(data)
    with patch.dict(os.environ, LOGPARSE_NATIVE="0"):
        plain = index_of(data)
    for name in ("starts", "equals", "first"):
        assert getattr(native, name).tolist() == getattr(plain, name).tolist(), name
    assert set(plain.tail) <= {-1}
    keyed = native.equals > 0
    assert len(set(native.hash[keyed])) == len(set(native.first[keyed])), "one hash per key"
    return native


@needs_native
@example(b"")
@example(b"\n=\n\n" + LINES[0])
@example(KEY + b"=" + ITEM + b"\n" + KEY + b"=" + ITEM)
@given(st.binary(max_size=60))
def test_any_bytes(noise: bytes) -> None:
    same(noise)
    same(LINES[0] + noise + b"\n" + LINES[1])


@needs_native
@pytest.mark.parametrize(
    ("record", "items"),
    [
        (ITEM, 1),
        (ITEM + b";Other:0.25,4096,algorithm", 2),
        (ITEM + b";" + ITEM, 0),  # one solver twice
        (ITEM + b";", 0),
        (ITEM.replace(b"1.5", b"0"), 1),
        (ITEM.replace(b"1.5", b"0.0"), 0),
        (ITEM.replace(b"1.5", b"1.5e3"), 0),
        (ITEM.replace(b"1.5", b"9007199254740992"), 1),
        (ITEM.replace(b"1.5", b"9007199254740993"), 0),  # no double has this value
        (ITEM.replace(b",0,", b",123456789012,"), 0),
    ],
)
def test_what_is_usual(record: bytes, items: int) -> None:
    found = same(KEY + b"=" + record)
    assert (len(found.at), found.tail.tolist() == [-1]) == (items, items == 0)
    texts = [(KEY + b"=" + record)[at:].partition(b";")[0] for at in found.at]
    assert b";".join(texts) == (record if items else b"")
    if items:
        assert found.sizes.T.tolist() == [[16, 64, 28, 28, 28, 64, 3, 3, 3, 28, 28, 28]]


@needs_native
def test_sizes_beyond_64_bits_are_not_usual() -> None:
    large = KEY.replace(b"28", b"999999999")
    assert same(large + b"=" + ITEM).tail.tolist() == [-1]
    assert same(large.replace(b"64-999999999", b"64-0") + b"=" + ITEM).tail.tolist() == [-1], "flops may lack the 0"
    assert np.array_equal(same(KEY + b"=" + ITEM).line, [0])
