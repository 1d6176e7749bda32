"""Tests of rules that every log format must obey.

For example, names are spelled in one way, and a line is counted as a measurement only if it contains one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.errors import InputError
from logparse.ingest.worker import formats_named
from logparse.libraries import FORMATS
from logparse.libraries.kinds.format import BlockFormat, FileFormat
from logparse.libraries.kinds.table import TableFormat
from logparse.libraries.override_formats import WRITERS
from logparse.model import Call, Kernel, Measurement, Reject
from tests.conftest import SAMPLE_FILES
from tests.libraries.reading import Memory, from_file, head


@pytest.mark.parametrize("name", [x.name for x in (*FORMATS, *WRITERS)])
def test_names_are_words_joined_by_hyphens(name: str) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)


@pytest.mark.parametrize("name", [x.name for x in FORMATS])
def test_a_format_is_chosen_by_its_name_and_by_the_former_spelling(name: str) -> None:
    assert [f.name for f in formats_named(name)] == [f.name for f in formats_named(name.replace("-", "_"))] == [name]


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InputError, match="--as 'tunableop': unknown format"):
        formats_named("tunableop")


TABLES = [x for x in FORMATS if isinstance(x, FileFormat)]
COUNTED: Mapping[str, set[type]] = {"measurement": {Measurement, Kernel}, "call": {Call}}
"""Classes of records of which a line must give at least one to be counted as this kind of line.

For example, a line may only be counted as a "call" if a ``Call`` was read from it.
"""


def test_only_lines_with_a_record_are_counted_as_measurement_or_call() -> None:
    """A line of a table is counted as a measurement only if a measurement was read from it. The same is true for calls.

    Headers and notes are counted as other kinds of lines. ``ingest`` and ``status`` print these numbers.
    """
    counted = set()
    for path in SAMPLE_FILES:
        source = from_file(path)
        for format in (x for x in TABLES if x.recognise(head(source))):
            for outcome in format.read(source):
                kinds = {type(record) for record in outcome.records}
                needed = COUNTED.get(outcome.unit)
                assert needed is None or outcome.tables or not outcome.lines or needed & kinds, (path, outcome)
                counted.add((format.name, outcome.unit))
    assert {("hipblaslt-tuning-file", "measurement"), ("aiter", "call")} <= counted


def test_each_format_is_held_to_the_law_of_order_or_states_what_order_means() -> None:
    for format in FORMATS:
        if isinstance(format, BlockFormat):
            assert format.order, f"{format.name}: say what the order of its lines means"
    assert {x.name for x in TABLES if not x.order} >= {x.name for x in FORMATS if isinstance(x, TableFormat)}


@given(st.data())
def test_the_order_of_rows_changes_no_record(data: st.DataObject) -> None:
    format = data.draw(st.sampled_from([x for x in TABLES if not x.order]))
    path = data.draw(st.sampled_from([x for x in SAMPLE_FILES if format.recognise(head(from_file(x)))]))
    text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
    first, *rows = text.splitlines()
    found = []
    for lines in (rows, data.draw(st.permutations(rows))):
        made = "\n".join([first, *lines, ""]).encode("utf-8", "surrogateescape")
        records = Counter[object]()
        for outcome in format.read(Memory(made, path.name)):
            records[outcome.unit] += outcome.lines
            records.update(x for x in outcome.records if not isinstance(x, Reject))
        found.append(records)
    assert found[0] == found[1]
