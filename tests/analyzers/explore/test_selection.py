"""Tests that the filters of the HTML page can be written to a URL and read back unchanged.

Any other URL must also give valid filters.
"""

from __future__ import annotations

import duckdb
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.explore import queries
from analyzers.explore.selection import FACETS, NUMBERS, VIEWS, Selection, as_label, from_url, type_name

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
    todo=texts,
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
    points["todos"] = pd.Series([], dtype="object")
    where, parameters = chosen.where()
    with duckdb.connect() as con:
        con.register("given_", points)
        con.execute("create table points as select * replace (todos::varchar[] as todos) from given_")
        assert con.execute(f"select count(*) from points where {where}", parameters).fetchone() == (0,)


def test_a_facet_is_switched_on_and_off() -> None:
    on = Selection().toggled("direction", "W")
    assert on.values == {"direction": ("W",)}
    assert on.toggled("direction", "W") == Selection()
    assert on.toggled("no such facet", "W") == on


def test_an_interval_without_numbers_is_dropped() -> None:
    assert from_url("?m=1..nan&n=a..b&k=5&tflops=9..1").between == {"tflops": (1.0, 9.0)}


@pytest.mark.parametrize(
    ("typed", "label"),
    [("3x3", "3×3"), ("4096x12288", "4096×12288"), ("4096*12288*64", "4096×12288×64"), ("max", "max"), ("x3", "x3")],
)
def test_sizes_are_typed_with_an_x(typed: str, label: str) -> None:
    assert as_label(typed) == label


@pytest.mark.parametrize("typed", ["bf16_r", "BF16", "bf16"])
def test_an_input_type_has_one_name(typed: str) -> None:
    assert type_name(typed) == "BF16"


def test_problems_are_found_by_a_thing_to_do_and_by_either_name_of_their_type(sampled_points: pd.DataFrame) -> None:
    def found(chosen: Selection) -> pd.DataFrame:
        where, parameters = chosen.where()
        with queries.open_points(sampled_points) as con:
            return con.execute(f"from points where {where}", parameters).df()

    every = found(Selection())
    assert set(every["dtype"]) >= {"BF16", "FP16"}
    assert not {"bf16_r", "f16_r"} & set(every["dtype"])
    for text in ("bf16_r", "BF16"):
        assert len(found(Selection(search=text))) == (every["dtype"] == "BF16").sum() > 0
    assert found(Selection(search="3x3"))["label"].str.contains("3×3").all()
    assert len(found(Selection(search="3x3"))) == every["label"].str.contains("3×3").sum() > 0
    chosen = found(Selection(todo="overrides"))
    assert 0 < len(chosen) < len(every)
    assert all("overrides" in x for x in chosen["todos"])
    assert from_url(Selection(todo="overrides").url()).todo == "overrides"
    with queries.open_points(sampled_points) as con:
        parts = queries.sum_time_by_kind(con, Selection())
        assert parts["us"].sum() == pytest.approx(every["total_us"].sum())
        assert parts["saving_us"].sum() == pytest.approx(
            every.loc[every["saving_from"] == "measured", "saving_us"].sum()
        )
        assert "overrides" in queries.todos(con, Selection())


def test_the_comparison_leaves_out_filters_that_a_click_on_another_tab_set() -> None:
    chosen = from_url("?view=weights&run=a&direction=W&search=x&sibling_ratio=3..9&todo=t&mark=idle")
    assert chosen.on_tab("compare").url() == "?view=compare&run=a&direction=W&search=x"
    assert chosen.on_tab("roofline").between == chosen.between, "the other tabs show the same problems"
    compared = from_url("?view=compare&run=a&compare=b&here_us=1..2")
    assert compared.on_tab("compare") == compared
    assert compared.on_tab("overview").url() == "?view=overview&run=a&compare=b"
