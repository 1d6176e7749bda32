"""The Python face: each function makes a ``plotly.graph_objects.Figure`` of tables (see the package).

Here plotly checks every setting of a figure (the app and the report leave that to the browser).
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analyzers.explore import queries
from analyzers.explore.charts import compare as _compare
from analyzers.explore.charts import overview as _overview
from analyzers.explore.charts import regret as _regret
from analyzers.explore.charts import roofline as _roofline
from analyzers.explore.charts import shapes as _shapes
from analyzers.explore.charts import solutions as _solutions
from analyzers.explore.charts import timeline as _timeline
from analyzers.explore.charts import weights as _weights
from analyzers.explore.charts.figure import Figure
from analyzers.explore.charts.palette import Theme, theme_of
from analyzers.explore.load.analysis import store_points
from analyzers.explore.point_table import points
from analyzers.explore.selection import Selection
from analyzers.explore.tries import of_frame

__all__ = [
    "backward_weights",
    "compare",
    "completeness",
    "cost_curves",
    "overview",
    "parallel",
    "points",
    "regret",
    "roofline",
    "shape_map",
    "solutions",
    "store_points",
    "timeline",
]


def overview(
    problems: pd.DataFrame, measurements: pd.DataFrame | None = None, *, theme: str | Theme = "light"
) -> go.Figure:
    """Time (else calls, else problems) by operation, direction, type, library, layout and fastest solution."""
    with queries.over(_points(problems, measurements)) as con:
        return _checked(
            _overview.overview(queries.groups(con, Selection()), theme_of(theme), title="Where the time goes")
        )


def roofline(
    problems: pd.DataFrame, measurements: pd.DataFrame | None = None, *, theme: str | Theme = "light"
) -> go.Figure:
    """Arithmetic intensity (flop/byte) against achieved TFLOP/s under the device's ceilings."""
    with queries.over(_points(problems, measurements)) as con:
        drawn = queries.sample(con, Selection(), _roofline.COLUMNS, ("intensity", "tflops"))
    return _checked(_roofline.roofline(drawn.rows, theme_of(theme), title="Roofline", remark=drawn.note))


def regret(
    problems: pd.DataFrame, measurements: pd.DataFrame | None = None, *, theme: str | Theme = "light"
) -> go.Figure:
    """Distribution of regret, and the cumulative time saved by the first N rows."""
    with queries.over(_points(problems, measurements)) as con:
        return _checked(
            _regret.regret(
                queries.regrets(con, Selection()), queries.savings(con, Selection()), theme_of(theme), title="Regret"
            )
        )


def backward_weights(
    problems: pd.DataFrame, measurements: pd.DataFrame | None = None, *, theme: str | Theme = "light"
) -> go.Figure:
    """W against the slower of F and B of the same layer."""
    with queries.over(_points(problems, measurements)) as con:
        drawn = queries.sample(con, Selection(), _weights.COLUMNS, ("sibling_us",))
    return _checked(_weights.backward_weights(drawn.rows, theme_of(theme), title="Backward weights", remark=drawn.note))


def shape_map(
    problems: pd.DataFrame, measurements: pd.DataFrame | None = None, *, theme: str | Theme = "light"
) -> go.Figure:
    """Median share of the roofline per octave of M and N."""
    with queries.over(_points(problems, measurements)) as con:
        return _checked(_shapes.shape_map(queries.cells(con, Selection()), theme_of(theme), title="Shapes"))


def cost_curves(
    problems: pd.DataFrame, measurements: pd.DataFrame | None = None, *, theme: str | Theme = "light"
) -> go.Figure:
    """Time over one size where all else is equal: cliffs and flat costs."""
    with queries.over(_points(problems, measurements)) as con:
        return _checked(
            _shapes.cost_curves(queries.families(con, Selection()), theme_of(theme), title="Cost over one size")
        )


def parallel(
    problems: pd.DataFrame, measurements: pd.DataFrame | None = None, *, theme: str | Theme = "light"
) -> go.Figure:
    """M, N, K, batch, TFLOP/s and time as parallel coordinates."""
    with queries.over(_points(problems, measurements)) as con:
        drawn = queries.sample(con, Selection(), ("id", "label", *_shapes.SIZES), tuple(_shapes.SIZES), 250)
    return _checked(_shapes.parallel(drawn.rows, theme_of(theme), title="Sizes side by side", note=drawn.note))


def timeline(calls: pd.DataFrame, *, theme: str | Theme = "light") -> go.Figure:
    """Calls over time per process; ``calls`` is the SQL view of that name."""
    ticks = pd.DataFrame({"pid": calls["pid"], "second": calls["first_seen"], "calls": calls["count"]})
    return _checked(_timeline.timeline(ticks, theme_of(theme), title="Calls over time"))


def solutions(
    measurements: pd.DataFrame, problem: str | None = None, *, pick: str | None = None, theme: str | Theme = "light"
) -> go.Figure:
    """Every solution of one problem (its text) in the SQL view ``measurements``."""
    chosen = measurements if problem is None else measurements[measurements["problem"] == problem]
    return _checked(_solutions.solutions(of_frame(chosen), theme_of(theme), pick=pick, title="Solutions"))


def compare(
    here: pd.DataFrame,
    there: pd.DataFrame,
    *,
    names: tuple[str, str] = ("before", "after"),
    theme: str | Theme = "light",
) -> go.Figure:
    """Two tables of ``points``, problem by problem, with a band of noise and the largest changes."""
    other = here["problem"].map(there.groupby("problem")["time_us"].min()).astype("float64")
    ratio = other / here["time_us"]
    moved = np.select([ratio > 1 + _compare.NOISE, ratio < 1 - _compare.NOISE], ["slower", "faster"], "same")
    with queries.over(here.assign(here_us=here["time_us"], other_us=other, moved=moved)) as con:
        drawn = queries.sample(con, Selection(), _compare.COLUMNS, ("here_us", "other_us"))
        movers, totals = queries.movers(con, Selection()), queries.changes(con, Selection())
    return _checked(
        _compare.compare(drawn.rows, movers, totals, theme_of(theme), names=names, title="Compare", remark=drawn.note)
    )


def completeness(sources: pd.DataFrame, *, theme: str | Theme = "light") -> go.Figure:
    """What every line of every file became; ``sources`` is the SQL view of that name."""
    return _checked(_overview.completeness(sources, theme_of(theme), title="What the files held"))


def _checked(figure: Figure) -> go.Figure:
    return go.Figure(figure.plain())


def _points(problems: pd.DataFrame, measurements: pd.DataFrame | None) -> pd.DataFrame:
    """``problems`` as they are where they already are points; made from the two views otherwise."""
    return problems if measurements is None else points(problems, measurements)
