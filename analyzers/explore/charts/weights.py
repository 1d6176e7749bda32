"""Draw how slow each convolution's weight gradient (W) is compared with the other two passes of its layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

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
_TRIED = 100
"""Number of layers for whose names a place is searched. The layers that lose most time come first."""
RATIOS = (1, 3, 10, 30, 100)
NAMED = 6
"""Largest number of marks with the name of their layer beside them. They are the layers that lose most time."""
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
    size = sizes(rows["w_total_us"], 5, 22)
    add_points(
        figure,
        np.array(solver, dtype=object),
        categories(solver, theme, "other solvers"),
        size,
        opacity=0.7,
        hovertemplate=HOVER,
        x=rows["sibling_us"].to_numpy() / 1e3,
        y=rows["w_us"].to_numpy() / 1e3,
        text=texts(rows["label"]),
        customdata=_data(rows),
    )
    _names(figure, rows, size, [(right, right * ratio) for ratio, right in ends.items()], theme, still)
    styled(figure, theme, height=HEIGHT)
    figure.update_xaxes(
        title={"text": "best known time of forward F or backward data B, the slower one (ms)"},
        **log_axis(rows["sibling_us"]),
    )
    figure.update_yaxes(title={"text": "time of backward weights W now (ms)"}, **log_axis(rows["w_us"]))
    figure.update_layout(dragmode="select", margin={"t": 66})
    return note(figure, remark, theme)


def _names(
    figure: Figure,
    rows: pd.DataFrame,
    size: np.ndarray,
    ends: Sequence[tuple[float, float]],
    theme: Theme,
    still: dict[str, Any],
) -> None:
    """Write the names of the layers that lose most time beside their marks.

    A name is written only if its mark is the nearest one, or if a line leads to the mark. A name overlaps no other
    mark and no other text. Marks on the same place share one name, which counts the others.

    * ``size``: diameter of each mark, px.
    * ``ends``: the right ends of the lines of ratios, where their names are. Both coordinates are in ms.
    """
    places, texts_at = _pixels(rows, ends)
    radii = size / 2
    order = rows.reset_index(drop=True).sort_values(["beyond_us", "w_total_us"], ascending=False).index
    boxes = [Box(x, x + _RATIO_WIDTH, y - _LINE / 2, y + _LINE / 2) for x, y in texts_at]
    kept: dict[int, tuple[str, str]] = {}
    named: list[np.ndarray] = []
    for i in order[:_TRIED].tolist():
        if len(named) == NAMED:
            break
        away = np.hypot(*(places - places[i]).T)
        here = away <= _SAME_PLACE
        radius, others = float(radii[here].max()), int(here.sum()) - 1
        marks, sizes_ = places[~here], radii[~here]
        # A mark that overlaps another one gets no name, because nobody can tell whose name it is.
        shared = any(here_ @ here for here_ in named) or (away[~here] < radius + sizes_ + _GAP).any()
        if shared:
            continue
        name = _shorten_label(str(rows["label"].iloc[i])) + f" and {others:,} more" * bool(others)
        x, y = map(float, places[i])
        width = _LETTER * len(name)
        sides, leads = _sides(x, y, radius, width), _leads(x, y, width)
        # The names of marks in the right half are written to the left of them, if there is room.
        first = "middle left" if x > _WIDTH / 2 else "middle right"
        side = next((side for side in sorted(sides, key=lambda side: side != first)
                     if _is_free(sides[side], marks, sizes_ + _CLEAR, boxes)), None)  # fmt: skip
        if side is not None:
            pad = "&nbsp;" * math.ceil((radius + _GAP) / _BLANK)
            kept[i] = side, _AROUND[side].format(name, pad=pad)
            boxes.append(sides[side])
            named.append(here)
            continue
        lead = next((lead for lead, box in leads.items()
                     if _is_free(box, marks, sizes_ + _GAP, boxes)
                     and _is_clear((x, y), lead, marks, sizes_ + _GAP)), None)  # fmt: skip
        if lead is not None:
            right, up = lead
            figure.add_annotation(
                text=name, x=math.log10(rows["sibling_us"].iloc[i] / 1e3), y=math.log10(rows["w_us"].iloc[i] / 1e3),
                ax=right, ay=-up, xanchor="right" if right < 0 else "left" if right > 0 else "center",
                yanchor="bottom" if up > 0 else "top", showarrow=True, arrowside="none", arrowwidth=1,
                arrowcolor=theme.ink, standoff=radius, borderpad=0, font={"size": 11, "color": theme.ink},
            )  # fmt: skip
            boxes.append(leads[lead])
            named.append(here)
    beside = rows.iloc[list(kept)]
    figure.add_scatter(
        x=list(beside["sibling_us"] / 1e3), y=list(beside["w_us"] / 1e3), mode="text",
        text=[text for _, text in kept.values()],
        textposition=[side for side, _ in kept.values()],
        textfont={"size": 11, "color": theme.ink}, **still,
    )  # fmt: skip


class Box(NamedTuple):
    """The ends of a text in the plot, px from its left and lower edge."""

    left: float
    right: float
    low: float
    high: float


_WIDTH, _HEIGHT = 700.0, 340.0
"""Size of the smallest plot for which names are placed, px. In a larger one, marks are further apart."""
_EDGE = 0.05
"""Width of the empty edge that plotly leaves around the marks, as a fraction of the plot."""
_LETTER, _BLANK, _LINE, _RATIO_WIDTH = 6.9, 3.0, 15.0, 30.0
"""Size of texts, px: the widest usual letter, the narrowest usual blank, the height of a line, the text ``100×``."""
_SAME_PLACE, _GAP, _CLEAR = 2.0, 4.0, 14.0
"""Distances, px: of marks on one place, between a name and its mark, from a name without a line to any other mark."""
_AROUND = {
    **dict.fromkeys(("middle left", "middle right"), "{pad}{}{pad}"),
    "top center": "{}<br>&nbsp;",
    "bottom center": "&nbsp;<br>{}",
}
"""The text of a name, with blanks or an empty line towards its mark."""
_LEADS = ((0, 32), (0, -32), (-40, 28), (40, 28), (-40, -28), (40, -28))
"""Where a line from a mark to its name ends, px to the right and up."""


def _pixels(rows: pd.DataFrame, ends: Sequence[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of the marks and of the ends of the lines in the smallest plot, px."""
    marks = np.log10(rows[["sibling_us", "w_us"]].to_numpy(dtype="float64") / 1e3)
    texts_at = np.log10(np.array(ends, dtype="float64"))
    begins = np.full((1, 2), marks[:, 0].min() - math.log10(1.5))  # of the line of ratio 1
    drawn = np.vstack([marks, texts_at, begins])
    low, spread = drawn.min(axis=0), np.ptp(drawn, axis=0)
    plot = np.array([_WIDTH, _HEIGHT])
    of_marks, of_texts = (plot * (_EDGE + (1 - 2 * _EDGE) * (x - low) / spread) for x in (marks, texts_at))
    return of_marks, of_texts


def _sides(x: float, y: float, radius: float, width: float) -> dict[str, Box]:
    """Return where the name of a mark may stand beside it, with the box of the name."""
    away, half = radius + _GAP, _LINE / 2
    left, right = x - width / 2, x + width / 2
    return {
        "middle left": Box(x - away - _BLANK - width, x - away, y - half, y + half),
        "middle right": Box(x + away, x + away + _BLANK + width, y - half, y + half),
        "top center": Box(left, right, y + _LINE, y + 2 * _LINE),
        "bottom center": Box(left, right, y - 2 * _LINE, y - _LINE),
    }


def _leads(x: float, y: float, width: float) -> dict[tuple[float, float], Box]:
    """Return where the line from a mark to its name may end, with the box of the name."""
    out: dict[tuple[float, float], Box] = {}
    for right, up in _LEADS:
        left = x + right - (width if right < 0 else 0 if right > 0 else width / 2)
        low = y + up - (_LINE if up < 0 else 0)
        out[right, up] = Box(left, left + width, low, low + _LINE)
    return out


def _is_free(box: Box, marks: np.ndarray, away: np.ndarray, boxes: Sequence[Box]) -> bool:
    """Tell whether a name is in the plot, overlaps no other text, and is far from the marks of other layers.

    * ``away``: the least distance to the centre of each mark, px.
    """
    beside = np.maximum(np.maximum(box.left - marks[:, 0], marks[:, 0] - box.right), 0.0)
    above = np.maximum(np.maximum(box.low - marks[:, 1], marks[:, 1] - box.high), 0.0)
    inside = box.left >= 0 and box.right <= _WIDTH and box.low >= 0 and box.high <= _HEIGHT
    apart = all(
        box.right <= x.left or x.right <= box.left or box.high <= x.low or x.high <= box.low for x in boxes
    )  # fmt: skip
    return bool(inside and apart and (np.hypot(beside, above) >= away).all())


def _is_clear(start: tuple[float, float], lead: tuple[float, float], marks: np.ndarray, away: np.ndarray) -> bool:
    """Tell whether a line passes no mark at less than the distance ``away``, px."""
    along = np.array(lead, dtype="float64")
    to_mark = marks - np.array(start)
    share = np.clip(to_mark @ along / (along @ along), 0.0, 1.0)
    return bool((np.hypot(*(to_mark - share[:, None] * along).T) >= away).all())


def _shorten_label(label: str) -> str:
    """Return the sizes in the label of a backward-weight pass, without direction, type and layout."""
    words = label.split(" ")
    return escape(" ".join(words[1:-2] if words[0] == "W" and len(words) > 3 else words), 40)


def _data(rows: pd.DataFrame) -> np.ndarray:
    w, sibling = (rows[name].to_numpy(dtype="float64") / 1e6 for name in ("w_us", "sibling_us"))
    numbers = round_to_six_digits(np.column_stack([w, w / sibling, sibling]))
    texts_ = (escape_column(rows["w_solution"]), escape_column(rows["passes_from"]))
    return np.column_stack([rows["id"].to_numpy(object), numbers, *texts_])
