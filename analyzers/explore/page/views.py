"""Which charts each view has, and what a click or a box in one of them selects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from analyzers.explore import queries
from analyzers.explore.charts.compare import COLUMNS as COMPARE
from analyzers.explore.charts.compare import compare
from analyzers.explore.charts.figure import Figure
from analyzers.explore.charts.overview import FILTERED, NO_PROBLEM, completeness, overview
from analyzers.explore.charts.palette import EMPTY, Theme
from analyzers.explore.charts.regret import regret
from analyzers.explore.charts.roofline import COLUMNS as ROOFLINE
from analyzers.explore.charts.roofline import roofline
from analyzers.explore.charts.shapes import SIZES, cost_curves, parallel, shape_map
from analyzers.explore.charts.timeline import timeline
from analyzers.explore.charts.weights import COLUMNS as WEIGHTS
from analyzers.explore.charts.weights import backward_weights
from analyzers.explore.selection import FACETS, Selection, from_url

if TYPE_CHECKING:
    import duckdb

BOXES: Mapping[tuple[str, int], tuple[tuple[str, float], tuple[str, float]]] = {
    ("roofline", 0): (("intensity", 1.0), ("tflops", 1.0)),
    ("weights", 0): (("sibling_us", 1e3), ("best_us", 1e3)),
    ("compare", 0): (("here_us", 1.0), ("other_us", 1.0)),
}
"""Charts in which a box selects: the numbers on their axes, and what one unit of the axis is in the column's."""
POINTS = ("roofline", "weights", "compare")  # views whose chart is drawn by WebGL
STAYING = ("overview", "files")
"""Views whose first chart stays while only a filter changes: below the table, made later; or of no filter at all."""
LINES = 150  # of parallel coordinates; more cannot be followed, and the browser draws a thousand marks in 0.1 s


def draw(
    con: duckdb.DuckDBPyConnection, chosen: Selection, theme: Theme, names: tuple[str, str], *, anew: bool = True
) -> list[Figure | None]:
    """The figures of the selection's view, three at most; None for one that no selection changes, unless ``anew``, and
    for the one that ``draw_later`` makes.
    """
    if chosen.view in STAYING and not anew:
        return [None]
    made: list[Figure | None] = [_fitted(x, chosen) for x in CHARTS[chosen.view](con, chosen, theme, names)]
    return [*made, None] if chosen.view == "shapes" else made


def later(chosen: Selection, *, anew: bool) -> bool:
    """Whether a chart of the view is made once all others are there."""
    return chosen.view == "shapes" or (chosen.view == "overview" and not anew)


def draw_later(con: duckdb.DuckDBPyConnection, chosen: Selection, theme: Theme) -> tuple[int, Figure] | None:
    """The chart of a view that is below the screen, and its place."""
    if chosen.view == "overview":
        return 0, _fitted(_overview(con, chosen, theme, ("", ""))[0], chosen)
    return (2, _fitted(_side_by_side(con, chosen, theme), chosen)) if chosen.view == "shapes" else None


def _fitted(figure: Figure, chosen: Selection) -> Figure:
    figure.layout["uirevision"] = chosen.view  # a zoom stays while filters change; the next view has its own axes
    if not chosen.filters and not figure.data:
        figure.layout["height"] = EMPTY
    if chosen.filters and not figure.data:
        figure.layout["annotations"][0]["text"] = FILTERED
    if chosen.view in POINTS and not figure.data:  # while WebGL has anything to draw plotly keeps it
        figure.add_scattergl(x=[None], y=[None], mode="markers", showlegend=False, hoverinfo="skip")
    return figure


def clicked(chosen: Selection, chart: int, data: Mapping[str, Any] | None, *, boxed: bool) -> Selection:
    """The selection after a click or a box in a chart of its view; unchanged where that selects nothing."""
    if boxed:
        return _boxed(chosen, chart, data)
    marks = (data or {}).get("points") or [{}]
    mark = marks[0].get("customdata")
    if not isinstance(mark, list) or not mark:
        return chosen
    if chosen.view == "overview" and chart == 0 and mark[0] in FACETS:
        return chosen.toggled(str(mark[0]), str(mark[1]))
    if chosen.view == "regret" and mark[0] == "regret":
        return chosen.limited({"regret": (float(mark[1]), float(mark[2]) * (1 - 1e-12))})
    if chosen.view == "shapes" and chart == 0:
        m, n = (2.0 ** float(x) for x in mark[:2])
        return chosen.limited({"m": (m, 2 * m - 1), "n": (n, 2 * n - 1)})
    if chosen.view == "timeline":
        return chosen.during((str(mark[0]), str(mark[1])))
    return replace(chosen, problem=mark[0]) if isinstance(mark[0], str) else chosen


def _boxed(chosen: Selection, chart: int, data: Mapping[str, Any] | None) -> Selection:
    if (chosen.view, chart) == ("shapes", 2):
        return chosen.limited(_sizes(data or {}))
    if (chosen.view, chart) == ("timeline", 0):
        stretch = from_url("?" + urlencode({"time": _seconds(data or {})})).time
        return chosen.during(stretch) if stretch else chosen
    axes, limits = BOXES.get((chosen.view, chart)), (data or {}).get("range")
    if axes is None or not isinstance(limits, dict):
        return chosen
    intervals = {}
    for axis, (name, unit) in zip("xy", axes, strict=True):
        ends = limits.get(axis) or limits.get(axis + "1")
        if not isinstance(ends, list) or len(ends) != 2:
            return chosen
        low, high = sorted(float(x) * unit for x in ends)
        intervals[name] = (float(f"{low:.6g}"), float(f"{high:.6g}"))
    return chosen.limited(intervals)


def _sizes(data: Mapping[str, Any]) -> dict[str, tuple[float, float] | None]:
    """The intervals of the axes of ``parallel`` that a box covers; the points hold the ends of each axis."""
    limits, out = (data.get("range") or {}), dict[str, tuple[float, float] | None]()
    if len(limits.get("x") or ()) != 2 or len(limits.get("y") or ()) != 2:
        return out
    left, right, bottom, top = *sorted(map(float, limits["x"])), *sorted(map(float, limits["y"]))
    ends = {int(x["x"]): x["customdata"][1:] for x in data.get("points") or () if x.get("customdata")}
    for i, name in enumerate(SIZES):
        if left <= i <= right and i in ends:
            low, high = ends[i]
            interval = [10 ** (low + (high - low) * y) for y in (max(bottom, 0.0), min(top, 1.0))]
            out[name] = (float(f"{interval[0]:.4g}"), float(f"{interval[1]:.4g}"))
    return out


def _seconds(data: Mapping[str, Any]) -> str:
    """The stretch of the clock that a box covers, as a URL has it."""
    return "..".join(str(x)[:19] for x in (data.get("range") or {}).get("x") or ())


def _overview(con: duckdb.DuckDBPyConnection, chosen: Selection, theme: Theme, _: tuple[str, str]) -> list[Figure]:
    return [overview(queries.groups(con, chosen), theme, chosen=chosen.values, empty=NO_PROBLEM)]


def _files(con: duckdb.DuckDBPyConnection, chosen: Selection, theme: Theme, _: tuple[str, str]) -> list[Figure]:
    return [completeness(con.execute("select * from sources").df(), theme)]


def _roofline(con: duckdb.DuckDBPyConnection, chosen: Selection, theme: Theme, _: tuple[str, str]) -> list[Figure]:
    drawn = queries.sample(con, chosen, ROOFLINE, ("intensity", "tflops"))
    return [roofline(drawn.rows, theme, remark=drawn.note)]


def _regret(con: duckdb.DuckDBPyConnection, chosen: Selection, theme: Theme, _: tuple[str, str]) -> list[Figure]:
    return [regret(queries.regrets(con, chosen), queries.savings(con, chosen), theme)]


def _weights(con: duckdb.DuckDBPyConnection, chosen: Selection, theme: Theme, _: tuple[str, str]) -> list[Figure]:
    drawn = queries.sample(con, chosen, WEIGHTS, ("sibling_us", "best_us"))
    return [backward_weights(drawn.rows, theme, remark=drawn.note)]


def _shapes(con: duckdb.DuckDBPyConnection, chosen: Selection, theme: Theme, _: tuple[str, str]) -> list[Figure]:
    return [
        shape_map(queries.cells(con, chosen), theme),
        cost_curves(queries.families(con, chosen), theme, title="Time over one size, all else equal"),
    ]


def _side_by_side(con: duckdb.DuckDBPyConnection, chosen: Selection, theme: Theme) -> Figure:
    drawn = queries.sample(con, chosen, ("id", "label", *SIZES), tuple(SIZES), LINES)
    return parallel(drawn.rows, theme, title="Sizes side by side", note=drawn.note)


def _timeline(con: duckdb.DuckDBPyConnection, chosen: Selection, theme: Theme, _: tuple[str, str]) -> list[Figure]:
    return [timeline(queries.ticks(con, chosen), theme, traced=queries.traced(con))]


def two_runs(
    con: duckdb.DuckDBPyConnection, chosen: Selection, theme: Theme, names: tuple[str, str], *, headed: bool = True
) -> Figure:
    """The chart of two runs, as of ``compare``."""
    drawn = queries.sample(con, chosen, COMPARE, ("here_us", "other_us"))
    movers, totals = queries.movers(con, chosen), queries.changes(con, chosen)
    return compare(drawn.rows, movers, totals, theme, names=names, remark=drawn.note, headed=headed)


def _compare(con: duckdb.DuckDBPyConnection, chosen: Selection, theme: Theme, names: tuple[str, str]) -> list[Figure]:
    return [two_runs(con, chosen, theme, names, headed=False)]  # the text above it states what it comes to


def _none(con: duckdb.DuckDBPyConnection, chosen: Selection, theme: Theme, _: tuple[str, str]) -> list[Figure]:
    return []


CHARTS: Mapping[str, Callable[[duckdb.DuckDBPyConnection, Selection, Theme, tuple[str, str]], list[Figure]]] = {
    "overview": _overview,
    "roofline": _roofline,
    "regret": _regret,
    "weights": _weights,
    "shapes": _shapes,
    "timeline": _timeline,
    "compare": _compare,
    "files": _files,
    "sql": _none,
}
