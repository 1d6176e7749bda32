"""Draw how slow each convolution's weight gradient (W) is compared with the other two passes of its layer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analyzers.explore.charts import places
from analyzers.explore.charts.figure import Figure
from analyzers.explore.charts.marks import (
    add_points,
    categories,
    escape_column,
    log_axis,
    round_to_six_digits,
    sizes,
    texts,
)
from analyzers.explore.charts.palette import Theme, blank, note, styled
from analyzers.explore.plain_text import escape, solution_name
from logparse.lazy import pd
from logparse.libraries.miopen.find_db_choice import SLOW_FACTOR

NOTHING = (
    "No layer here has both a time of its backward-weight pass (W) and of its forward (F) or backward data (B) "
    "pass.<br>Next: ingest a trace of a training step with convolutions, or a MIOpen find-db; clear filters on "
    "direction"
)
COLUMNS = (
    "id",
    "label",
    "direction",
    "w_solution",
    "w_us",
    "sibling_us",
    "w_total_us",
    "beyond_us",
    "passes_from",
    "at_least",
)
"""Columns of the table ``points`` (one row per GEMM or convolution) that this chart reads."""
HEIGHT = 560  # Height in px, with and without data, so that a filter moves nothing below the chart.
_TRIED = 100
"""Number of layers for whose names a place is searched. The layers that lose most time come first."""
RATIOS = (1, 3, 10, 30, 100)
NAMED = 6
"""Largest number of marks with the name of their layer beside them. They are the layers that lose most time.

A layer whose W is not slow (``SLOW_FACTOR``) gets no name, even if a filter leaves only such layers.
"""
HOVER = (
    "<b>%{text}</b><br>W %{customdata[1]:.3s}s = %{customdata[2]:,.3~r}× the slower of F and B (%{customdata[3]:.3s}s)"
    "<br>%{customdata[4]}<br>times from %{customdata[5]}<extra></extra>"
)


def backward_weights(
    points: pd.DataFrame, solvers: Mapping[str | None, int], theme: Theme, *, remark: str = ""
) -> Figure:
    """Plot, for each convolution layer, how much slower its weight gradient (W) is than its other passes.

    The vertical axis is the time of W now, or its best known time if no log names the solver that ran. The horizontal
    axis is the best known time of the forward pass (F) or of the data gradient (B), whichever is longer. There is one
    point per layer and file.

    Lines show equal ratios. The symbol shows the solver (kernel) that takes the time of W. All three passes do the same
    floating-point work, so points far above the line of ratio 1 show a W that is slow.

    ``solvers`` counts the layers of each solver in the whole run. So a solver looks the same under any filter.
    """
    rows = points[(points["direction"] == "W") & (points["w_us"] > 0) & (points["sibling_us"] > 0)]
    if not len(rows):
        return blank(NOTHING, theme, height=HEIGHT)
    figure = Figure()
    low, high = float(rows["sibling_us"].min()) / 1e3 / 1.5, float(rows["sibling_us"].max()) / 1e3 * 1.5
    ceiling = max(float(rows["w_us"].max()) / 1e3 * 2, low * 2 * RATIOS[1])
    ends = {ratio: min(high, ceiling / ratio) for ratio in RATIOS if ceiling / ratio > low}
    still: dict[str, Any] = {"hoverinfo": "skip", "showlegend": False, "cliponaxis": False}
    # The browser pays per trace, so the lines are drawn in two traces.
    for ratios, width, dash in (RATIOS[:1], 1.5, "solid"), (RATIOS[1:], 1, "dot"):
        drawn = [ratio for ratio in ratios if ratio in ends]
        figure.add_scatter(
            x=[x for ratio in drawn for x in (low, ends[ratio], None)],
            y=[y for ratio in drawn for y in (low * ratio, ends[ratio] * ratio, None)],
            mode="lines", line={"color": theme.faint, "width": width, "dash": dash}, **still,
        )  # fmt: skip
    figure.add_scatter(
        x=list(ends.values()), y=[right * ratio for ratio, right in ends.items()], text=[f"{x}×" for x in ends],
        mode="text", textposition="middle right", textfont={"size": 11, "color": theme.faint}, **still,
    )  # fmt: skip
    common = Counter[str]()
    for name, count in solvers.items():
        common[_name_solver(name)] += count
    solver = [_name_solver(x) for x in rows["w_solution"].astype(object).where(rows["w_solution"].notna(), None)]
    size = sizes(rows["w_total_us"], 5, 22)
    add_points(
        figure,
        np.array(solver, dtype=object),
        categories(common, theme, "other solvers"),
        size,
        opacity=0.7,
        hovertemplate=HOVER,
        x=rows["sibling_us"].to_numpy() / 1e3,
        y=rows["w_us"].to_numpy() / 1e3,
        text=texts(rows["label"]),
        customdata=_data(rows),
    )
    _names(figure, rows, size, [(right, right * ratio) for ratio, right in ends.items()], theme)
    styled(figure, theme, height=HEIGHT)
    figure.update_xaxes(
        title={"text": "the slower of forward F and backward data B, best known time (ms)"},
        **log_axis(rows["sibling_us"]),
    )
    # If no log names the solver, the time of W is the best known one, too.
    which = (
        "best known time of backward weights W (ms)"
        if rows["at_least"].any()
        else "time of backward weights W now (ms)"
    )
    figure.update_yaxes(title={"text": which}, **log_axis(rows["w_us"]))
    figure.update_layout(dragmode="select", margin={"t": 66})
    return note(figure, remark, theme)


def _name_solver(solution: str | None) -> str:
    return "unknown solver" if solution is None else solution_name(solution)


def _names(
    figure: Figure,
    rows: pd.DataFrame,
    size: np.ndarray,
    ends: Sequence[tuple[float, float]],
    theme: Theme,
) -> None:
    """Write the names of the layers that lose most time beside their marks, or connect them by a line (``places``).

    * ``size``: diameter of each mark, px.
    * ``ends``: the right ends of the lines of ratios, where their names are. Both coordinates are in ms.
    """
    marks = np.log10(rows[["sibling_us", "w_us"]].to_numpy(dtype="float64") / 1e3)
    begin = float(marks[:, 0].min()) - math.log10(1.5)  # of the line of ratio 1
    at, ratios_at = places.to_pixels(marks, np.log10(np.array(ends, dtype="float64")), begin)
    numbered = rows.reset_index(drop=True)
    slow = numbered[numbered["w_us"] >= SLOW_FACTOR * numbered["sibling_us"]]
    order = slow.sort_values(["beyond_us", "w_total_us"], ascending=False).index
    half = places.LINE / 2
    taken = [places.Box(x, x + _RATIO_WIDTH, y - half, y + half) for x, y in ratios_at]
    labels = list(map(_shorten_label, map(str, rows["label"])))

    def text(mark: int, others: int) -> str:
        return labels[mark] + f" and {others:,} more" * bool(others)

    # The background hides the lines of ratios, which else would strike a name through.
    look: dict[str, Any] = {"bgcolor": theme.panel, "borderpad": 0, "font": {"size": 11, "color": theme.ink}}
    names = places.place_names(at, size / 2, order[:_TRIED].tolist(), text, taken, NAMED)
    for name in (x for x in names if not x.side):
        right, up = name.lead
        figure.add_annotation(
            text=name.text, x=marks[name.mark, 0], y=marks[name.mark, 1],
            ax=right, ay=-up, xanchor="right" if right < 0 else "left" if right > 0 else "center",
            yanchor="bottom" if up > 0 else "top", showarrow=True, arrowside="none", arrowwidth=1,
            arrowcolor=theme.ink, standoff=name.radius, **look,
        )  # fmt: skip
    for name in (x for x in names if x.side):
        x, y, away = marks[name.mark, 0], marks[name.mark, 1], name.radius + places.GAP
        right, up = _SIDES[name.side]
        figure.add_annotation(
            text=name.text, x=x, y=y, xshift=right * (away + places.BLANK), yshift=up * places.LINE,
            xanchor=("right", "center", "left")[right + 1], yanchor=("top", "middle", "bottom")[up + 1],
            showarrow=False, **look,
        )  # fmt: skip


_RATIO_WIDTH = 30.0
"""Width of the text ``100×``, px."""
_SIDES = {"middle left": (-1, 0), "middle right": (1, 0), "top center": (0, 1), "bottom center": (0, -1)}
"""Where a name stands from its mark, to the right and up."""


def _shorten_label(label: str) -> str:
    """Return the sizes in the label of a backward-weight pass, without direction, type and layout."""
    words = label.split(" ")
    return escape(" ".join(words[1:-2] if words[0] == "W" and len(words) > 3 else words), 40)


def _data(rows: pd.DataFrame) -> np.ndarray:
    w, sibling = (rows[name].to_numpy(dtype="float64") / 1e6 for name in ("w_us", "sibling_us"))
    numbers = round_to_six_digits(np.column_stack([w, w / sibling, sibling]))
    texts_ = (escape_column(rows["w_solution"]), escape_column(rows["passes_from"]))
    return np.column_stack([rows["id"].to_numpy(object), numbers, *texts_])
