"""Laws of every format: one spelling of names, and what counts as measured."""

from __future__ import annotations

import re

import pytest

from logparse.errors import InputError
from logparse.formats import FORMATS
from logparse.formats.format import FileFormat
from logparse.formats.override_formats import WRITERS
from logparse.ingest.worker import chosen
from logparse.model import Call, Measurement
from tests.conftest import SAMPLE_FILES
from tests.formats.reading import from_file, head


@pytest.mark.parametrize("name", [x.name for x in (*FORMATS, *WRITERS)])
def test_names_are_words_joined_by_hyphens(name: str) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)


@pytest.mark.parametrize("name", [x.name for x in FORMATS])
def test_a_format_is_chosen_by_its_name_and_by_the_former_spelling(name: str) -> None:
    assert [f.name for f in chosen(name)] == [f.name for f in chosen(name.replace("-", "_"))] == [name]


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InputError, match="no format 'tunableop'"):
        chosen("tunableop")


TABLES = [x for x in FORMATS if isinstance(x, FileFormat) and ".traces." not in x.read.__module__]


def test_a_line_of_a_table_counts_as_measured_or_called_where_it_gives_a_record() -> None:
    """Headers and the like are of no time: what ``ingest`` and ``status`` count are measurements."""
    counted = set()
    for path in SAMPLE_FILES:
        source = from_file(path)
        for format in (x for x in TABLES if x.recognise(head(source))):
            for outcome in format.read(source):
                kinds = {type(record) for record in outcome.records}
                needed = {"measurement": Measurement, "call": Call}.get(outcome.unit)
                assert needed is None or outcome.tables or needed in kinds, (path, outcome)
                counted.add((format.name, outcome.unit))
    assert {("hipblaslt-tuning-file", "measurement"), ("aiter", "call")} <= counted
