"""The Python face: each function makes a ``plotly.graph_objects.Figure`` of tables (see the package).

Here plotly checks every setting of a figure (the app and the report leave that to the browser).
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analyzers.explore import queries
from analyzers.explore.charts import solutions as _solutions
from analyzers.explore.charts.compare import NOISE
from analyzers.explore.charts.figure import Figure
from analyzers.explore.charts.palette import Theme, theme_of
from analyzers.explore.load.analysis import store_points
from analyzers.explore.point_table import points
from analyzers.explore.selection import Selection
from analyzers.explore.tries import of_frame
from analyzers.explore.views import ChartStyle, chart

__all__ = ["compare", "points", "regret", "roofline", "solutions", "store_points"]


def roofline(
    problems: pd.DataFrame, measurements: pd.DataFrame | None = None, *, theme: str | Theme = "light"
) -> go.Figure:
    """Arithmetic intensity (flop/byte) against achieved TFLOP/s under the device's ceilings."""
    return _of_view("roofline", problems, measurements, ChartStyle(theme_of(theme)))


def regret(
    problems: pd.DataFrame, measurements: pd.DataFrame | None = None, *, theme: str | Theme = "light"
) -> go.Figure:
    """Distribution of regret, and the cumulative time saved by the first N rows."""
    return _of_view("regret", problems, measurements, ChartStyle(theme_of(theme)))


def solutions(
    measurements: pd.DataFrame, problem: str | None = None, *, pick: str | None = None, theme: str | Theme = "light"
) -> go.Figure:
    """Every solution of one problem (its text) in the SQL view ``measurements``."""
    chosen = measurements if problem is None else measurements[measurements["problem"] == problem]
    return _checked(_solutions.solutions(of_frame(chosen), theme_of(theme), pick=pick))


def compare(
    here: pd.DataFrame,
    there: pd.DataFrame,
    *,
    names: tuple[str, str] = ("before", "after"),
    theme: str | Theme = "light",
) -> go.Figure:
    """Two tables of ``points``, problem by problem, with a band of noise."""
    other = here["problem"].map(there.groupby("problem")["time_us"].min()).astype("float64")
    ratio = other / here["time_us"]
    moved = np.select([ratio > 1 + NOISE, ratio < 1 - NOISE], ["slower", "faster"], "same")
    both = here.assign(here_us=here["time_us"], other_us=other, moved=moved)
    return _of_view("compare", both, None, ChartStyle(theme_of(theme), names))


def _of_view(view: str, problems: pd.DataFrame, measurements: pd.DataFrame | None, style: ChartStyle) -> go.Figure:
    """The chart of a view, of ``problems`` that already are points, or of those that the two views make."""
    table = problems if measurements is None else points(problems, measurements)
    with queries.over(table) as con:
        return _checked(chart(con, Selection(view=view), style) or Figure())


def _checked(figure: Figure) -> go.Figure:
    return go.Figure(figure.plain())
