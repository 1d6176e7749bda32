"""Chart functions for notebooks and scripts. Each function makes a ``plotly.graph_objects.Figure`` from tables.

Unlike for the web page and the report, plotly checks each setting of such a figure.
"""

from __future__ import annotations

import plotly.graph_objects as go

from analyzers.explore import queries
from analyzers.explore.charts import solutions as _solutions
from analyzers.explore.charts.figure import Figure
from analyzers.explore.charts.palette import Theme, theme_of
from analyzers.explore.load.analysis import store_points
from analyzers.explore.selection import Selection
from analyzers.explore.tries import of_frame
from analyzers.explore.views import ChartStyle, chart
from logparse.lazy import pd

__all__ = ["backward_weights", "regret", "roofline", "solutions", "store_points"]


def roofline(points: pd.DataFrame, *, theme: str | Theme = "light") -> go.Figure:
    """Draw how fast each GEMM and convolution runs (TFLOP/s) over its arithmetic intensity (flop/byte).

    Lines show the limits of the device: the memory bandwidth and the peak rates of the types.
    """
    return _of_view("roofline", points, theme)


def regret(points: pd.DataFrame, *, theme: str | Theme = "light") -> go.Figure:
    """Draw how much time the library's choices lose against the best known kernels.

    One plot shows how large the losses are, the other how much time the N most valuable changes save together.
    """
    return _of_view("regret", points, theme)


def backward_weights(points: pd.DataFrame, *, theme: str | Theme = "light") -> go.Figure:
    """Draw each convolution's weight gradient as a point: its time against the slower of the layer's other two passes.

    The other passes are the forward pass and the gradient of the input.
    """
    return _of_view("weights", points, theme)


def solutions(
    measurements: pd.DataFrame, problem: str | None = None, *, pick: str | None = None, theme: str | Theme = "light"
) -> go.Figure:
    """Draw the time of every kernel that was tried for one GEMM or convolution.

    ``measurements`` are rows of the SQL view with that name. ``pick`` is the kernel that the library chose, which is
    marked.
    """
    chosen = measurements if problem is None else measurements[measurements["problem"] == problem]
    return _checked(_solutions.solutions(of_frame(chosen), theme_of(theme), pick=pick))


def _of_view(view: str, points: pd.DataFrame, theme: str | Theme) -> go.Figure:
    with queries.open_points(points) as con:
        return _checked(chart(con, Selection(view=view), ChartStyle(theme_of(theme))) or Figure())


def _checked(figure: Figure) -> go.Figure:
    return go.Figure(figure.plain())
