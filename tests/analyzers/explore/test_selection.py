"""A selection can be written to a URL and read back unchanged. Any other URL gives a valid selection, too."""

from __future__ import annotations

import duckdb
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from analyzers.explore.selection import FACETS, NUMBERS, VIEWS, Selection, from_url

texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
numbers = st.floats(1e-6, 1e12).map(lambda x: float(f"{x:.6g}"))
intervals = st.tuples(numbers, numbers).map(lambda x: (min(x), max(x)))
selections = st.builds(
    Selection,
    view=st.sampled_from(sorted(VIEWS)),
    values=st.dictionaries(
        st.sampled_from(sorted(FACETS)), st.lists(texts, min_size=1, max_size=3, unique=True).map(tuple)
    ),
    between=st.dictionaries(st.sampled_from(sorted(NUMBERS)), intervals),
    search=texts.map(str.strip),
    problem=texts,
    table=texts,
)


@given(selections)
def test_round_trip(chosen: Selection) -> None:
    assert from_url(chosen.url()) == chosen


@given(st.text(max_size=300))
def test_any_url_is_taken_and_only_known_names_stay(text: str) -> None:
    chosen = from_url(text)
    assert chosen.view in VIEWS
    assert set(chosen.values) <= set(FACETS)
    assert set(chosen.between) <= set(NUMBERS)


@given(selections)
def test_where_is_sql_without_any_text_of_the_selection(chosen: Selection) -> None:
    columns = {x: pd.Series(dtype="object") for x in (*FACETS, "label", "best", "problem")}
    points = pd.DataFrame(columns | {x: pd.Series(dtype="float64") for x in NUMBERS})
    where, parameters = chosen.where()
    with duckdb.connect() as con:
        con.register("points", points)
        assert con.execute(f"select count(*) from points where {where}", parameters).fetchone() == (0,)


def test_a_facet_is_switched_on_and_off() -> None:
    on = Selection().toggled("direction", "W")
    assert on.values == {"direction": ("W",)}
    assert on.toggled("direction", "W") == Selection()
    assert on.toggled("no such facet", "W") == on


def test_an_interval_without_numbers_is_dropped() -> None:
    assert from_url("?m=1..nan&n=a..b&k=5&tflops=9..1").between == {"tflops": (1.0, 9.0)}
