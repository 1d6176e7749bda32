"""Laws over ANALYZERS: empty in, empty out; row order does not matter; the input stays as it was."""

from __future__ import annotations

from dataclasses import fields, replace

import pandas as pd
import pytest

from analyzers import ANALYZERS
from analyzers.analyzer import Analyzer, Settings, Tables
from analyzers.recommend.ranking import recommend
from tests.analyzers.build import tables
from tests.analyzers.example import everything, oddities

by_name = pytest.mark.parametrize("analyzer", ANALYZERS, ids=lambda x: x.name)
FRAMES = [field.name for field in fields(Tables) if field.name != "run"]


def changed(given: Tables, how: str) -> Tables:
    def one(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.iloc[::-1] if how == "reversed" else frame.sample(frac=1.0, random_state=7)

    return replace(given, **{name: one(getattr(given, name)) for name in FRAMES})


@by_name
def test_empty_in_empty_out(analyzer: Analyzer) -> None:
    assert list(analyzer.find(tables(), Settings())) == []


@by_name
@pytest.mark.parametrize("how", ["reversed", "shuffled"])
def test_row_order_does_not_matter(analyzer: Analyzer, how: str) -> None:
    found = list(analyzer.find(oddities(), Settings()))
    assert found
    assert list(analyzer.find(changed(oddities(), how), Settings())) == found


@by_name
def test_input_is_untouched(analyzer: Analyzer) -> None:
    given = oddities()
    before = {name: getattr(given, name).copy(deep=True) for name in FRAMES}
    analyzer.find(given, Settings())
    for name in FRAMES:
        pd.testing.assert_frame_equal(getattr(given, name), before[name])


def test_names_are_distinct_and_used() -> None:
    assert len({x.name for x in ANALYZERS}) == len(ANALYZERS)
    for analyzer in ANALYZERS:
        assert {x.analyzer for x in analyzer.find(oddities(), Settings())} == {analyzer.name}


@pytest.mark.parametrize("how", ["reversed", "shuffled"])
def test_recommendation_does_not_depend_on_row_order(how: str) -> None:
    for given in (everything(), oddities()):
        assert recommend(changed(given, how), Settings()) == recommend(given, Settings())


def test_recommendation_of_nothing() -> None:
    nothing = recommend(tables(), Settings())
    assert not nothing.findings
    assert not nothing.overrides
    assert nothing.ceiling.share is None
