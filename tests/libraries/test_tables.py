"""Tests of log formats that are tables: every line is counted once, and a rejected line states why and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.libraries.kinds.format import Head
from logparse.libraries.kinds.table import Fit, Row, TableFormat, each_row, read_table
from logparse.model import Fact, Record, Reject
from tests.libraries.reading import Memory


def read_row(row: Row) -> Iterator[Record]:
    yield Fact(row["name"], f"{row.whole('n')} {row.real('us')} {row.one_of('dtype', {'bf16': 'bf16_r'})}")


FORMAT = TableFormat(
    name="one", about="a table of a test", columns=("name", "n", "us", "dtype"), begin=each_row(read_row)
)


def read(text: str, format: TableFormat = FORMAT) -> tuple[dict[str, int], list[Record], list[tuple[int, int, str]]]:
    """Read a table. Returns how many lines of each kind there are, what was read from them, and the rejected parts.

    A rejected part is (position, length, reason).
    """
    units, records, rejects = Counter[str](), list[Record](), list[tuple[int, int, str]]()
    for outcome in format.read(Memory(text.encode(), "x.csv")):
        units[outcome.unit] += outcome.lines
        for record in outcome.records:
            if isinstance(record, Reject):
                rejects.append((outcome.at + record.offset, record.length, record.reason))
            else:
                records.append(record)
    return dict(units), records, rejects


def test_columns_are_found_by_name_and_cells_may_be_quoted() -> None:
    assert FORMAT.recognise(Head("x.csv", b'\xef\xbb\xbfus,"name",dtype,more,n\r\n1,2'))
    assert not FORMAT.recognise(Head("x.csv", b"us,name,dtype\n"))
    units, records, rejects = read('us,"name",dtype,more,n\r\n 1.5 ,"a,b",bf16,,7\r\n\r\n')
    assert (units, rejects) == ({"fact": 2, "blank": 1}, [])
    assert records == [Fact("a,b", "7 1.5 bf16_r")]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("a,7,1.5", "3 cells, but the header has 4 columns"),
        ("a,7,1.5,bf16,more", "5 cells, but the header has 4 columns"),
        (",7,1.5,bf16", "name is empty"),
        ("a,7.5,1.5,bf16", "n is '7.5', not a whole number"),
        ("a,7,fast,bf16", "us is 'fast', not a number"),
        ("a,7,1.5,int4", "dtype is 'int4', not one of bf16"),
    ],
)
def test_a_reject_says_where_and_why(row: str, reason: str) -> None:
    header = "name,n,us,dtype\n"
    assert read(f"{header}{row}\n")[2] == [(len(header), len(row), reason)]


def test_a_header_that_is_not_ours_is_a_reject_and_what_follows_is_foreign() -> None:
    units, _, rejects = read("name,n\na,7\nb,8\n")
    assert units == {"reject": 1, "foreign": 2}
    assert rejects == [(0, 6, "one: the header lacks the column us, dtype")]


@pytest.mark.parametrize(("fit", "taken"), [("exact", [2]), ("fewer", [1, 2]), ("any", [1, 2, 3])])
def test_how_many_cells_a_row_may_have_is_the_formats_choice(fit: Fit, taken: list[int]) -> None:
    text = "a,b\n# a remark\n1\n1,2\n1,2,3\n"
    begin = each_row(lambda row: [Fact("cells", str(len(row.values)))])
    outcomes = [*read_table(Memory(text.encode(), "x.csv"), begin, fit=fit, comments=("#",))]
    found = [record.value for x in outcomes for record in x.records if isinstance(record, Fact)]
    assert found == [str(count) for count in taken]
    assert sum(x.lines for x in outcomes) == 5


@given(st.lists(st.text(st.sampled_from('ab7,"# \r\t\0é\ud800'), max_size=12), max_size=8))
def test_every_line_is_accounted_for(lines: list[str]) -> None:
    data = "\n".join(["name,n,us,dtype", *lines, ""]).encode("utf-8", "replace")
    assert sum(outcome.lines for outcome in FORMAT.read(Memory(data, "x.csv"))) == len(lines) + 1
