"""Laws of every format: one spelling of names."""

from __future__ import annotations

import re

import pytest

from logparse.errors import InputError
from logparse.formats import FORMATS
from logparse.formats.override_formats import WRITERS
from logparse.ingest.worker import chosen


@pytest.mark.parametrize("name", [x.name for x in (*FORMATS, *WRITERS)])
def test_names_are_words_joined_by_hyphens(name: str) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)


@pytest.mark.parametrize("name", [x.name for x in FORMATS])
def test_a_format_is_chosen_by_its_name_and_by_the_former_spelling(name: str) -> None:
    assert [f.name for f in chosen(name)] == [f.name for f in chosen(name.replace("-", "_"))] == [name]


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InputError, match="no format 'tunableop'"):
        chosen("tunableop")
