"""Tests of the data in the HTML page's charts. They are compared with golden files, and some rules hold for all.

A golden file is a reviewed file with the expected output.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from analyzers import explore
from analyzers.explore import queries, views
from analyzers.explore.charts.compare import NOISE
from analyzers.explore.charts.palette import LIGHT, THEMES
from analyzers.explore.charts.regret import rows_for
from analyzers.explore.charts.roofline import roofline
from analyzers.explore.plain_text import escape
from analyzers.explore.selection import Selection
from tests.analyzers.example import W
from tests.golden import Goldens

GOLDEN = Path(__file__).parent / "golden"
OF_POINTS: tuple[Callable[..., go.Figure], ...] = (
    explore.roofline,
    explore.regret,
    explore.backward_weights,
)
CHARTS = (*OF_POINTS, "compare", "solutions")


def plain(value: Any) -> Any:
    """Return the data of a chart as JSON with rounded numbers.

    Parts that only change the look, such as fonts, are left out.
    """
    if isinstance(value, dict):
        return {
            k: plain(v) for k, v in sorted(value.items()) if k not in ("font", "hoverlabel", "colorway", "colorscale")
        }
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray | pd.Series):
        return plain(value.tolist())
    if isinstance(value, float | np.floating):
        return None if np.isnan(value) else float(f"{float(value):.5g}")
    return int(value) if isinstance(value, np.integer) else value


def described(figure: go.Figure) -> dict[str, Any]:
    made = figure.to_plotly_json()
    axes = {
        name: {"title": axis.get("title", {}).get("text"), "type": axis.get("type")}
        for name, axis in sorted(made["layout"].items())
        if name[1:].startswith("axis")
    }
    texts = [x.get("text") for x in made["layout"].get("annotations", ())]
    return {"traces": plain(made["data"]), "axes": axes, "annotations": texts}


def compare(here: pd.DataFrame, there: pd.DataFrame, names: tuple[str, str] = ("after", "before")) -> go.Figure:
    """Draw the chart that compares the times of matrix products before and after a change.

    ``here`` and ``there`` are the tables of products.
    """
    other = here["problem"].map(there.groupby("problem")["time_us"].min()).astype("float64")
    ratio = here["time_us"] / other
    moved = np.select([ratio > 1 + NOISE, ratio < 1 - NOISE], ["slower", "faster"], "same")
    with queries.open_points(here.assign(here_us=here["time_us"], other_us=other, moved=moved)) as con:
        figure = views.chart(con, Selection(view="compare"), views.ChartStyle(LIGHT, names))
    assert figure is not None
    return go.Figure(figure.plain())


def add_known_savings(points: pd.DataFrame) -> pd.DataFrame:
    """Change the example's data for the charts: the library now chose a slow kernel, so that time can be saved.

    Times of a second run are added too, because the page also compares two runs.
    """
    slow = points["problem"] == W.text
    made = points.assign(other_us=points["time_us"] * np.where(slow, 0.5, 1.02))
    made["pick"] = "miopen:ConvDirectNaiveConvWrw"
    made["pick_us"] = made["best_us"] * np.where(slow, 11.0, 1.0)
    made["time_us"] = made["total_us"] = made["pick_us"]
    made["regret"] = made["pick_us"] / made["best_us"] - 1
    made["loss_us"] = made["saving_us"] = made["pick_us"] - made["best_us"]
    made["saving_from"] = "measured"
    made["tflops"] = made["flops"] / made["time_us"] / 1e6
    return made


def golden_of(chart: Callable[..., go.Figure] | str) -> Path:
    return GOLDEN / f"{chart if isinstance(chart, str) else chart.__name__}.json"


@pytest.mark.parametrize("chart", CHARTS, ids=lambda x: getattr(x, "__name__", x))
def test_golden(
    chart: Callable[..., go.Figure] | str,
    example_points: pd.DataFrame,
    example_views: dict[str, pd.DataFrame],
    golden: Goldens,
) -> None:
    points = add_known_savings(example_points)
    if chart == "compare":
        other = points.assign(time_us=points["other_us"])
        figure = compare(points, other)
    elif chart == "solutions":
        figure = explore.solutions(example_views["measurements"], W.text, pick="miopen:ConvDirectNaiveConvWrw")
    else:
        assert callable(chart)
        figure = chart(points)
    text = json.dumps(described(figure), indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    golden.check(golden_of(chart), text)


def test_no_golden_is_left_over(golden: Goldens) -> None:
    golden.check_names(GOLDEN, map(golden_of, CHARTS))


@pytest.mark.parametrize("chart", OF_POINTS, ids=lambda x: x.__name__)
def test_an_empty_store_gives_a_figure_with_the_next_command(
    chart: Callable[..., go.Figure], example_points: pd.DataFrame
) -> None:
    figure = chart(example_points.head(0))
    assert not figure.data
    (text,) = [x.text for x in figure.layout.annotations]
    assert "Next:" in text


def test_a_chart_of_a_sample_is_marked_so(example_points: pd.DataFrame) -> None:
    figure = roofline(add_known_savings(example_points), LIGHT, remark="2 of 3 problems drawn")
    assert any("2 of 3 problems drawn" in x["text"] for x in figure.plain()["layout"]["annotations"])


def draw_layers(points: pd.DataFrame, places: Sequence[tuple[float, float]]) -> tuple[list[str], list[str]]:
    """Draw one layer per place: the time of the slower of F and B, and that of W, µs.

    Returns the names beside their marks and those with a line to their mark. Layer ``n`` loses more than ``n + 1``.
    """
    [w] = points.loc[points["problem"] == W.text].head(1).to_dict("records")
    rows = [
        {
            **w,
            "label": f"W 64×128×56×56 layer{n} FP16 NCHW",
            "sibling_us": x,
            "w_us": y,
            "w_total_us": 100.0,
            "beyond_us": 100.0 - n,
        }
        for n, (x, y) in enumerate(places)
    ]
    figure = explore.backward_weights(pd.DataFrame(rows))
    names = figure.layout.annotations
    assert all(x.bgcolor == LIGHT.panel for x in names), "no line strikes a name through"
    one, two = ([x.text.replace("64×128×56×56 ", "") for x in names if x.showarrow == led] for led in (False, True))
    return one, two


def test_each_name_of_a_layer_belongs_to_one_mark(example_points: pd.DataFrame) -> None:
    """A name stands beside the nearest mark, or a line leads to its mark. Else it is left out."""
    alone, marks = (100.0, 5_000.0), [(600.0, 3_000.0), (750.0, 3_000.0), (940.0, 3_000.0)]
    assert draw_layers(example_points, [alone]) == (["layer0"], [])
    # Of three marks in a row, only the left one has room for a name beside it. Lines lead to the others.
    assert draw_layers(example_points, [alone, *marks]) == (["layer0", "layer1"], ["layer2", "layer3"])
    # Two overlapping marks get no name: it would not show to which mark it belongs.
    assert draw_layers(example_points, [alone, (1_000.0, 3_500.0), (1_010.0, 3_500.0)]) == (["layer0"], [])
    assert draw_layers(example_points, [alone, (1_000.0, 3_500.0), (1_000.1, 3_500.0)]) == (
        ["layer0", "layer1 and 1 more"],
        [],
    )
    crowd = [(x, y) for x in np.geomspace(100.0, 1_000.0, 20).tolist() for y in np.geomspace(100.0, 1_000.0, 20)]
    assert draw_layers(example_points, crowd) == ([], [])


def test_only_layers_with_slow_backward_weights_are_named(example_points: pd.DataFrame) -> None:
    """A layer that loses nearly nothing is not named, even if a filter leaves no other layer."""
    assert draw_layers(example_points, [(200.0, 210.0)]) == ([], [])
    assert draw_layers(example_points, [(100.0, 5_000.0), (200.0, 210.0)]) == (["layer0"], [])


def test_a_solver_looks_the_same_under_any_filter(example_points: pd.DataFrame) -> None:
    """The colour and the symbol of a solver follow from the whole run, although a filter leaves another order."""
    one = example_points[example_points["direction"] == "W"].iloc[0].to_dict()
    solvers = ["miopen:Common"] * 3 + ["miopen:Rare"] * 2 + ["miopen:Unseen"]
    rows = [
        {**one, "id": f"{n:012x}", "label": f"W layer{n} FP16 NCHW", "w_solution": solver, "file": f"file {solver}",
         "sibling_us": 100.0, "w_us": 500.0}
        for n, solver in enumerate(solvers)
    ]  # fmt: skip

    def looks(**values: tuple[str, ...]) -> dict[str, tuple[str, str]]:
        chosen = Selection(view="weights", values=values)
        figure = views.chart(con, chosen, views.ChartStyle(LIGHT))
        assert figure is not None
        return {
            x["name"]: (x["marker"]["color"], x["marker"]["symbol"])
            for x in figure.data
            if x.get("customdata") is not None
        }

    with queries.open_points(pd.DataFrame(rows)) as con:
        every, some = looks(), looks(file=("file miopen:Rare", "file miopen:Unseen"))
    assert list(every) == ["Common", "Rare", "Unseen"]
    assert some == {name: every[name] for name in ("Rare", "Unseen")}


def test_other_empty_figures_state_the_next_command(
    example_views: dict[str, pd.DataFrame], example_points: pd.DataFrame
) -> None:
    empty = (
        explore.solutions(example_views["empty"]),
        compare(example_points, example_points.head(0)),
    )
    for figure in empty:
        assert not figure.data
        assert len(figure.layout.annotations[0].text) > 20


@pytest.mark.parametrize("chart", OF_POINTS, ids=lambda x: x.__name__)
def test_input_is_left_alone_and_order_does_not_matter(
    chart: Callable[..., go.Figure], example_points: pd.DataFrame
) -> None:
    points = add_known_savings(example_points)
    before = points.copy()
    one = described(chart(points))
    pd.testing.assert_frame_equal(points, before)
    assert described(chart(points[::-1])) == one


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("chart", OF_POINTS, ids=lambda x: x.__name__)
def test_every_axis_of_numbers_has_a_title_and_the_theme_is_kept(
    chart: Callable[..., go.Figure], theme: str, example_points: pd.DataFrame
) -> None:
    figure = chart(add_known_savings(example_points), theme=theme)
    assert figure.layout.paper_bgcolor == THEMES[theme].panel
    for axis in (*figure.select_xaxes(), *figure.select_yaxes()):
        assert axis.title.text or axis.type == "category" or axis.visible is False


def test_markup_of_a_log_is_escaped_in_every_figure(example_points: pd.DataFrame) -> None:
    attack = '<b>x</b><a href="javascript:alert(1)">y</a>\u202e'
    points = add_known_savings(example_points)
    for name in ("label", "best", "solver", "dtype", "layout", "library"):
        points[name] = attack
    for chart in OF_POINTS:
        figure = chart(points).to_plotly_json()
        for text in strings(figure):
            assert "<a" not in text
            assert "<b>x" not in text
            assert "\u202e" not in text


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype == object):
        for inner in value:
            yield from strings(inner)


def test_shown() -> None:
    assert escape("<img src=x onerror=1>") == "&lt;img src=x onerror=1&gt;"
    assert escape("a\x1b[31m\u202eb") == "a\\x1b[31m\\u202eb"
    assert escape(None) == escape(float("nan")) == ""
    assert len(escape("x" * 500, 60)) == 60


def test_stores_of_one_name_are_distinguished_by_the_folders_above(example_points: pd.DataFrame) -> None:
    for names, said in {
        ("/data/before/store", "/data/after/store/"): ["before/store", "after/store"],
        ("before", "after"): ["before", "after"],
        ("/data/store", "/data/store"): ["/data/store", "/data/store"],
        ("s3://a/store", "store"): ["a/store", "store"],
    }.items():
        figure = compare(example_points, example_points, names=names)
        axes = (figure.layout.yaxis, figure.layout.xaxis)
        assert [x.title.text for x in axes] == [f"{name}: time of one call (µs)" for name in said]


def test_rows_for_ninety_percent() -> None:
    savings = pd.DataFrame({"saving_us": [80.0, 15.0, 5.0], "total_saving_us": 100.0})
    assert rows_for(savings) == 2
    assert rows_for(savings.head(0)) == 0
