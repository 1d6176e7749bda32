"""Draw the chart of each tab (view) of the web page. The report and notebooks draw the same charts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from analyzers.explore import queries
from analyzers.explore.charts.compare import COLUMNS as COMPARE
from analyzers.explore.charts.compare import compare
from analyzers.explore.charts.figure import Figure
from analyzers.explore.charts.palette import Theme
from analyzers.explore.charts.regret import regret
from analyzers.explore.charts.roofline import COLUMNS as ROOFLINE
from analyzers.explore.charts.roofline import roofline
from analyzers.explore.charts.timeline import timeline
from analyzers.explore.charts.weights import COLUMNS as WEIGHTS
from analyzers.explore.charts.weights import backward_weights
from analyzers.explore.selection import Selection
from logparse.lazy import duckdb

BOXES: Mapping[str, tuple[tuple[str, float], tuple[str, float]]] = {
    "roofline": (("intensity", 1.0), ("tflops", 1.0)),
    "weights": (("sibling_us", 1e3), ("w_us", 1e3)),
    "compare": (("other_us", 1.0), ("here_us", 1.0)),
}
"""Charts in which the user can select GEMMs and convolutions by drawing a box, with the columns of the two axes.

Each column has a factor that converts a number on the axis to the column's unit. For example, it is 1e3 if the axis is
in ms and the column in µs. These charts are drawn with WebGL.
"""


@dataclass(frozen=True)
class ChartStyle:
    """The style of a chart.

    * ``names``: the names of the two runs in a comparison.
    * ``headed``: False if a text beside the chart already states the result.
    * ``mean``: the time of an average step, such as ``mean of 3 steps: 18.8 ms``. Empty if it is unknown.
    """

    theme: Theme
    names: tuple[str, str] = ("this run", "the other run")
    headed: bool = True
    mean: str = ""


def chart(con: duckdb.DuckDBPyConnection, chosen: Selection, style: ChartStyle) -> Figure | None:
    """Draw the chart of the tab that the user chose on the web page. Returns None for a tab without a chart.

    ``con`` is the database with the tables for the charts.
    """
    theme = style.theme
    match chosen.view:
        case "timeline":
            row = queries.find_point(con, chosen.problem) if chosen.problem else None
            problem = "" if row is None else str(row["problem"])
            return timeline(*queries.read_work_of_step(con), theme, mean=style.mean, problem=problem, mark=chosen.mark)
        case "roofline":
            drawn = queries.sample(con, chosen, ROOFLINE, ("intensity", "tflops"))
            return roofline(drawn.rows, theme, remark=drawn.note)
        case "regret":
            return regret(queries.regrets(con, chosen), queries.find_largest_savings(con, chosen), theme)
        case "weights":
            drawn = queries.sample(con, chosen, WEIGHTS, ("sibling_us", "w_us"))
            return backward_weights(drawn.rows, queries.count_solvers(con), theme, remark=drawn.note)
        case "compare":
            drawn, totals = queries.sample(con, chosen, COMPARE, ("other_us", "here_us")), queries.changes(con, chosen)
            return compare(drawn.rows, totals, theme, names=style.names, remark=drawn.note, headed=style.headed)
    return None


def apply_click(chosen: Selection, data: Mapping[str, Any], *, boxed: bool) -> Selection:
    """Return the new filters after the user clicked in a chart or drew a box in it.

    Returns the old selection if the click or box selects nothing.
    """
    if boxed:
        return _boxed(chosen, data)
    marks = data.get("points") or [{}]
    mark = marks[0].get("customdata")
    if not isinstance(mark, list) or not mark:
        return chosen
    if chosen.view == "regret" and mark[0] == "regret":
        return chosen.limited({"regret": (float(mark[1]), float(mark[2]) * (1 - 1e-12))})
    return replace(chosen, problem=mark[0]) if isinstance(mark[0], str) else chosen


def _boxed(chosen: Selection, data: Mapping[str, Any]) -> Selection:
    axes, limits = BOXES.get(chosen.view), data.get("range")
    if axes is None or not isinstance(limits, dict):
        return chosen
    intervals = {}
    for axis, (name, unit) in zip("xy", axes, strict=True):
        ends = limits.get(axis)
        if not isinstance(ends, list) or len(ends) != 2:
            return chosen
        low, high = sorted(float(x) * unit for x in ends)
        intervals[name] = (float(f"{low:.6g}"), float(f"{high:.6g}"))
    return chosen.limited(intervals)
