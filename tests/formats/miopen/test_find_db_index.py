"""The native index of a find-db is that of the plain reader, of usual and of damaged files."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logparse.formats.miopen.find_db_index import Index, index_of
from logparse.formats.miopen.find_db_native import native_reader
from tests.conftest import SAMPLES

LINES = (SAMPLES / "miopen/gfx942130.HIP.fdb.txt").read_bytes().splitlines()
EDITS = (
    b"",
    b"0",
    b"1e9",
    b"99999999999999999999",
    b".",
    b";",
    b",",
    b":",
    b"x",
    b" ",
    b"=",
    b"-",
    b"\xff",
    b"\0",
    b"\n",
)
KEY = b"64-28-28-28-3x3x3-64-28-28-28-16-1x1x1-1x1x1-1x1x1-0-NCDHW-FP16-F"
ITEM = b"Solver:1.5,0,miopenConvolutionFwdAlgoGEMM"

needs_native = pytest.mark.skipif(native_reader(native=True) is None, reason="the native reader was not built")


def same(data: bytes) -> Index:
    """The index of the file, which both readers agree on."""
    native, plain = index_of(data, native=True), index_of(data, native=False)
    for name in ("starts", "equals", "first", "begins", "at", "time_us", "workspace_bytes"):
        assert getattr(native, name).tolist() == getattr(plain, name).tolist(), name
    for place, names in (("solver", "solvers"), ("algorithm", "algorithms"), ("tail", "tails")):
        one, other = ([[*getattr(x, names), None][i] for i in getattr(x, place)] for x in (native, plain))
        assert one == other
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
@given(st.data())
def test_damaged_lines(data: st.DataObject) -> None:
    lines = [bytearray(x) for x in data.draw(st.lists(st.sampled_from(LINES[:40]), min_size=1, max_size=4))]
    for _ in range(data.draw(st.integers(0, 3))):
        line = data.draw(st.sampled_from(lines))
        at, cut = data.draw(st.integers(0, len(line))), data.draw(st.integers(0, 4))
        line[at : at + cut] = data.draw(st.sampled_from(EDITS))
    same(b"\n".join(lines))


@needs_native
@pytest.mark.parametrize(
    ("record", "items"),
    [
        (ITEM, 1),
        (ITEM + b";Other:0.25,4096,algorithm", 2),
        (ITEM + b";" + ITEM, 0),  # one solver twice
        (ITEM + b";", 0),
        (ITEM.replace(b"1.5", b"0.0"), 0),
        (ITEM.replace(b"1.5", b"1.5e3"), 0),
        (ITEM.replace(b"1.5", b"9007199254740992"), 1),
        (ITEM.replace(b"1.5", b"9007199254740993"), 0),  # no double
        (ITEM.replace(b",0,", b",123456789012,"), 0),
    ],
)
def test_what_is_ordinary(record: bytes, items: int) -> None:
    found = same(KEY + b"=" + record)
    assert (len(found.at), found.tail.tolist() == [-1]) == (items, items == 0)
    texts = [(KEY + b"=" + record)[a:b] for a, b in zip(found.at, found.ends(np.arange(len(found.at))), strict=True)]
    assert b";".join(texts) == (record if items else b"")


@needs_native
def test_sizes_beyond_64_bits_are_not_ordinary() -> None:
    large = KEY.replace(b"28", b"999999999")
    assert same(large + b"=" + ITEM).tail.tolist() == [-1]
    assert np.array_equal(same(KEY + b"=" + ITEM).line, [0])
