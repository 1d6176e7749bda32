"""Tests of the members of a JSON file: none is lost, each has its place, and members can be cut out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.libraries.kinds.json_members import Member, items_of, members_of
from logparse.libraries.kinds.override_format import cut_items, cut_members

NAMES = st.sampled_from(["a", "b", 'quote " and }', "µ, {", ""])
VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
)


@given(st.lists(st.tuples(NAMES, VALUES)), st.sampled_from([" ", "\n", "\r\n "]), st.booleans())
def test_every_member_is_found_at_its_place(pairs: list[tuple[str, object]], blank: str, escaped: bool) -> None:
    texts = [
        f"{json.dumps(x, ensure_ascii=escaped)}{blank}:{blank}{json.dumps(y, ensure_ascii=escaped)}" for x, y in pairs
    ]
    data = f"{blank}{{{blank}{f'{blank},{blank}'.join(texts)}{blank}}}{blank}".encode()
    found = members_of(data)
    assert [(x.name, x.value) for x in found] == pairs
    assert [data[x.offset : x.end].decode() for x in found] == [x.text for x in found] == texts
    assert [x.line for x in found] == [data.count(b"\n", 0, x.offset) + 1 for x in found]
    assert {x.name: x.value for x in found if x.unused is None} == json.loads(data), "the rest is unused"
    cut = cut_members(lambda member: member.name == "a")
    assert cut(data, (), lambda line, text: True) == data
    rest = members_of(cut(data, (), lambda line, text: False))
    assert [(x.name, x.value) for x in rest] == [x for x in pairs if x[0] != "a"]


@given(st.lists(VALUES), st.sampled_from(["", "\n", "\r\n "]), st.booleans())
def test_every_item_of_a_list_is_found_at_its_place(values: list[object], blank: str, escaped: bool) -> None:
    texts = [json.dumps(x, ensure_ascii=escaped) for x in values]
    items = f"{blank},{blank}".join(texts)
    data = f'{{{blank}"µ": [1],{blank}"a["{blank}:{blank}[{blank}{items}{blank}],{blank}"b": 2}}'.encode()
    found = items_of(members_of(data)[1])
    assert [x.value for x in found] == values
    assert [data[x.offset : x.end].decode() for x in found] == [x.text for x in found] == texts
    assert [x.line for x in found] == [data.count(b"\n", 0, x.offset) + 1 for x in found]
    cut = cut_items("a[")
    assert cut(data, (), lambda line, text: True) == data
    assert json.loads(cut(data, (), lambda line, text: False)) == {"µ": [1], "a[": [], "b": 2}
    for item in found:
        rest = json.loads(cut(data, (), lambda line, text, item=item: text != b" ".join(item.text.encode().split())))
        assert rest["a["] == [x for x, y in zip(values, found, strict=True) if y.text.split() != item.text.split()]
    assert items_of(members_of(data)[2]) == [], "no list"


def test_names_that_occur_again_are_reported() -> None:
    first, second, third = members_of(b'{"a": 1,\n"b": [{"c": 1, "c": 2, "d": {"e": 1, "e": 1}}],\n"a": 2}')
    assert (first.unused, first.ambiguous) == ("line 3 has the same name, and the later member is used", None)
    assert (second.value, second.repeated) == ([{"c": 2, "d": {"e": 1}}], ("e", "c"))
    assert second.ambiguous == "e, c: several members have this name, and the last one is used"
    assert third == Member("a", 2, '"a": 2', 3, third.offset, 6)


@pytest.mark.parametrize(
    "data", [b"", b"[1]", b'"a"', b'{"a": 1', b'{"a": 1} x', b"\xef\xbb\xbf{}", b'{"\xff": 1}', b"[" * 100_000]
)
def test_other_files_raise(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        members_of(data)
