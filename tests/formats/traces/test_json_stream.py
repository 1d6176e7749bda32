"""A document read from front to back is what ``json.loads`` reads, whatever the blocks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.formats.traces.json_stream import JsonError, JsonStream, printable_text
from tests.formats.reading import drip

VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner, max_size=5),
    max_leaves=20,
)


def walked(stream: JsonStream) -> Any:
    """The next value, each container entered."""
    if stream.begins("{"):
        return {key: walked(stream) for key in stream.members()}
    return [walked(stream) for _ in stream.items()] if stream.begins("[") else stream.value()


@given(VALUE, st.integers(1, 40), st.sampled_from([None, 1]), st.booleans())
def test_walking_is_loading(value: Any, size: int, indent: int | None, ascii: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii).encode("utf-8", "surrogatepass")
    for read in (walked, JsonStream.value):
        stream = JsonStream(drip(text, size), block_bytes=size)
        assert read(stream) == value
        stream.end()


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("text", "at"),
    [
        (b'{"a": [1, 2', 11),
        (b'{"a": [1, 2 3]}', 12),
        ('{"é\u2028": [1, oops]}'.encode(), 14),
        (b'{"\xff\xfe": [1 2]}', 10),
        (b"{5: 1}", 2),
        (b'{"a" 1}', 5),
        (b"[1] [2]", 4),
        (b"", 0),
        (b"[" * 50, 50),
        (b'["' + b"x" * 5000, 1),
    ],
)
def test_damage_is_at_its_place(text: bytes, at: int, size: int) -> None:
    stream = JsonStream(drip(text, size), block_bytes=size)
    with pytest.raises(JsonError) as caught:
        _ = walked(stream), stream.end()
    assert caught.value.offset == at


def test_nesting_has_a_limit() -> None:
    with pytest.raises(JsonError, match="deep") as caught:
        JsonStream(drip(b"[" * 200_000, 1 << 20)).value()
    assert caught.value.offset == 0


def test_texts_that_no_table_holds_are_escaped() -> None:
    (bad, half) = JsonStream(drip(b'["a\xffb", "\\ud800"]', 100)).value()
    assert printable_text(bad).isascii()
    assert printable_text(half) == "\\ud800"
