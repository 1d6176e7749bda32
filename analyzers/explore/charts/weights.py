"""Draw how slow each convolution's weight gradient (W) is compared with the other two passes of its layer."""

from __future__ import annotations

from typing import Any

import numpy as np

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

NOTHING = (
    "No layer here has both a time of its backward-weight pass (W) and of its forward (F) or dgrad (B) "
    "pass.<br>Next: ingest a trace of a training step with convolutions, or a MIOpen find-db; clear filters on "
    "direction"
)
COLUMNS = ("id", "label", "direction", "w_solution", "w_us", "sibling_us", "w_total_us", "beyond_us", "passes_from")
"""Columns of the table ``points`` (one row per GEMM or convolution) that this chart reads."""
HEIGHT = 560  # Height in px, with and without data, so that a filter moves nothing below the chart.
RATIOS = (1, 3, 10, 30, 100)
NAMED = 6
"""Number of marks with the name of their layer beside them. They are the layers that lose most time."""
HOVER = (
    "<b>%{text}</b><br>W %{customdata[1]:.3s}s = %{customdata[2]:,.3~r}× the slower of F and B (%{customdata[3]:.3s}s)"
    "<br>%{customdata[4]}<br>times from %{customdata[5]}<extra></extra>"
)


def backward_weights(points: pd.DataFrame, theme: Theme, *, remark: str = "") -> Figure:
    """Plot, for each convolution layer, how much slower its weight gradient (W) is than its other passes.

    The vertical axis is the time of W now. The horizontal axis is the best known time of the forward pass (F) or
    of the data gradient (B), whichever is longer. There is one point per layer and file.

    Lines show equal ratios. The symbol shows the solver (kernel) that takes the time of W. All three passes do the same
    floating-point work, so points far above the line of ratio 1 show a W that is slow.
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
    names = rows["w_solution"].astype(object).where(rows["w_solution"].notna(), "unknown solver")
    solver = [solution_name(str(name)) for name in names.tolist()]
    add_points(
        figure,
        np.array(solver, dtype=object),
        categories(solver, theme, "other solvers"),
        sizes(rows["w_total_us"], 5, 22),
        opacity=0.7,
        hovertemplate=HOVER,
        x=rows["sibling_us"].to_numpy() / 1e3,
        y=rows["w_us"].to_numpy() / 1e3,
        text=texts(rows["label"]),
        customdata=_data(rows),
    )
    _names(figure, rows, theme, still)
    styled(figure, theme, height=HEIGHT)
    figure.update_xaxes(
        title={"text": "best known time of forward F or backward data B, the slower one (ms)"},
        **log_axis(rows["sibling_us"]),
    )
    figure.update_yaxes(title={"text": "time of backward weights W now (ms)"}, **log_axis(rows["w_us"]))
    figure.update_layout(dragmode="select", margin={"t": 66})
    return note(figure, remark, theme)


def _names(figure: Figure, rows: pd.DataFrame, theme: Theme, still: dict[str, Any]) -> None:
    """Write the names of the layers that lose most time beside their marks.

    A name is written beside, above or below its mark, or not at all, so that it overlaps no other name or mark. Marks
    on the same place share one name, which counts the others.
    """
    place = np.log10(rows[["sibling_us", "w_us"]].to_numpy(dtype="float64"))
    low, spread = place.min(axis=0), np.maximum(np.ptp(place, axis=0), 0.3)
    place = (place - low) / spread
    order = rows.reset_index(drop=True).sort_values(["beyond_us", "w_total_us"], ascending=False).index
    kept: dict[int, str] = {}
    ends = np.empty((0, 3))  # of each name: its left end, right end and height
    for i in order[: 3 * NAMED].tolist():
        if len(kept) == NAMED:
            break
        gap = np.abs(place - place[i])
        here = (gap < (_MARK / 2, _LINE / 2)).all(axis=1)
        if any(here[x] for x in kept):
            continue
        x, y = place[i]
        left, right = x - _NAME / 2, x + _NAME / 2
        boxes = {
            "middle left": (x - _NAME, x, y),
            "middle right": (x, x + _NAME, y),
            "top center": (left, right, y + _AWAY),
            "bottom center": (left, right, y - _AWAY),
        }
        # The names of marks in the right half are written to the left of them, if there is room.
        sides = sorted(boxes, key=lambda side: side == ("middle right" if place[i][0] > 0.5 else "middle left"))
        free = next((side for side in sides if _is_free(boxes[side], place[~here], ends)), None)
        if free is not None:
            kept[i] = free
            ends = np.vstack([ends, boxes[free]])
    others = [int((np.abs(place - place[i]) < (_MARK / 2, _LINE / 2)).all(axis=1).sum()) - 1 for i in kept]
    named = rows.iloc[list(kept)]
    figure.add_scatter(
        x=list(named["sibling_us"] / 1e3), y=list(named["w_us"] / 1e3), mode="text",
        text=[
            _AROUND[side].format(f"{_shorten_label(str(x))}{f' and {more:,} more' * bool(more)}")
            for x, more, side in zip(named["label"], others, kept.values(), strict=True)
        ],
        textposition=list(kept.values()),
        textfont={"size": 11, "color": theme.ink}, **still,
    )  # fmt: skip


_NAME, _LINE, _MARK, _AWAY = 0.3, 0.05, 0.02, 0.088
"""Sizes as fractions of the chart: width of a name, its height, radius of a mark, distance of a name above its mark."""
_AROUND = {
    **dict.fromkeys(("middle left", "middle right"), "&nbsp;&nbsp;&nbsp;{}&nbsp;&nbsp;&nbsp;"),
    "top center": "{}<br>&nbsp;<br>&nbsp;",
    "bottom center": "&nbsp;<br>&nbsp;<br>{}",
}
"""The text of a name, with blanks or empty lines towards its mark."""


def _is_free(box: tuple[float, float, float], marks: np.ndarray, names: np.ndarray) -> bool:
    """Tell whether a name overlaps no mark, no other name and no edge of the chart.

    * ``box``: left end, right end and height of the name.
    * ``marks``: positions of the marks. ``names``: boxes of other names.
    """
    left, right, y = box
    on_marks = (np.abs(marks[:, 1] - y) < _LINE) & (marks[:, 0] > left - _MARK) & (marks[:, 0] < right + _MARK)
    on_names = (np.abs(names[:, 2] - y) < _LINE) & (names[:, 0] < right) & (names[:, 1] > left)
    return left > -0.1 and right < 1.1 and -0.1 < y < 1.1 and not on_marks.any() and not on_names.any()


def _shorten_label(label: str) -> str:
    """Return the sizes in the label of a backward-weight pass, without direction, type and layout."""
    words = label.split(" ")
    return escape(" ".join(words[1:-2] if words[0] == "W" and len(words) > 3 else words), 40)


def _data(rows: pd.DataFrame) -> np.ndarray:
    w, sibling = (rows[name].to_numpy(dtype="float64") / 1e6 for name in ("w_us", "sibling_us"))
    numbers = round_to_six_digits(np.column_stack([w, w / sibling, sibling]))
    texts_ = (escape_column(rows["w_solution"]), escape_column(rows["passes_from"]))
    return np.column_stack([rows["id"].to_numpy(object), numbers, *texts_])
