"""Laws of every format: one spelling of names, and what counts as measured."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.errors import InputError
from logparse.ingest.worker import formats_named
from logparse.libraries import FORMATS
from logparse.libraries.kinds.format import FileFormat, LineFormat
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
    with pytest.raises(InputError, match="no format 'tunableop'"):
        formats_named("tunableop")


TABLES = [x for x in FORMATS if isinstance(x, FileFormat)]
COUNTED = {"measurement": {Measurement, Kernel}, "call": {Call}}
"""The records that a line of these units gives."""


def test_a_line_of_a_table_counts_as_measured_or_called_where_it_gives_a_record() -> None:
    """Headers and the like are of no time: what ``ingest`` and ``status`` count are measurements."""
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


HEADS = {"table": 1, "aiter": 1, "transformer-engine-cache": 1, "tunableop-untuned": 0, "rocprof-csv": 1}
"""Tables by the lines before their rows.  Of a user's own table with rows of two machines the first row decides which
one the file is of; those of a library's own keys have a law beside that of its reader, in
``tests/analyzers/overrides/test_laws.py``."""
IN_ORDER = {
    **dict.fromkeys(
        ("hipblaslt-tuning-file", "tunableop-results"), "of one key's rows the first counts: the other law"
    ),
    **dict.fromkeys(("miopen-find-db", "miopen-perf-db"), "of records of one key the first counts: the other law"),
    **dict.fromkeys(("facts", "job-units", "applied", "bundle", "flashinfer"), "one object, whose members have names"),
    **dict.fromkeys(("torch-profiler", "rocpd"), "events have clocks, threads and launches, not places"),
    "hipblaslt-bench-output": "a row belongs to the header before it, and a Winner's to a row above",
    "rocblas-bench-output": "a row belongs to the header before it",
    "miopen-driver-output": "times follow the command and the solution that they are of",
    "miopen-log": "a time, a choice and the call that asked for it stand in three lines",
    "miopen-performance-log": "a record belongs to the command before it",
    "tunableop-verbose": "a time has only its candidate's number, which the line before it explains",
    "rocblas-tune": "rows stand behind their heading among other lines",
    "tensile-launches": "arguments follow their kernel",
}
"""Why the order of a format's lines means something, or is held to elsewhere."""


def test_each_format_is_held_to_the_law_of_order_or_the_reason_is_stated() -> None:
    lines = {x.name for x in FORMATS if isinstance(x, LineFormat)}  # read one by one, each distinct text once
    assert HEADS.keys() | IN_ORDER.keys() | lines == {x.name for x in FORMATS}
    assert not lines & IN_ORDER.keys()


@given(st.data())
def test_the_order_of_rows_changes_no_record(data: st.DataObject) -> None:
    held = [x for x in TABLES if x.name in HEADS]
    format = data.draw(st.sampled_from(held))
    path = data.draw(st.sampled_from([x for x in SAMPLE_FILES if format.recognise(head(from_file(x)))]))
    text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
    first, *rows = [text[:0], *text.splitlines()] if not HEADS[format.name] else text.splitlines()
    found = []
    for lines in (rows, data.draw(st.permutations(rows))):
        made = "\n".join([*([first] if first else []), *lines, ""]).encode("utf-8", "surrogateescape")
        records = Counter[object]()
        for outcome in format.read(Memory(made, path.name)):
            records[outcome.unit] += outcome.lines
            records.update(x for x in outcome.records if not isinstance(x, Reject))
        found.append(records)
    assert found[0] == found[1]
