"""Draw the times of all kernels that were tried for one GEMM or convolution."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from analyzers.evidence.origins import TRACE
from analyzers.explore.charts.figure import Figure
from analyzers.explore.charts.marks import log_axis_over
from analyzers.explore.charts.palette import Theme, blank, styled
from analyzers.explore.plain_text import distinct, escape, shorten_names, solution_name
from analyzers.explore.tries import Try
from logparse.quoting import make_printable

NOTHING = "No solution of this problem is timed.<br>Next: <b>logparse replay</b>, or run the bench command below"
MOST = 40
SAMPLES = 200


_NUMBERED = 50
"""If the longest time is at most this many times the shortest, the axis also shows numbers between powers of ten."""


def solutions(
    tries: Sequence[Try], theme: Theme, *, pick: str | None = None, nearby_us: Sequence[float] = ()
) -> Figure:
    """Draw the times of all kernels for one GEMM or convolution, one row per kernel, the fastest on top.

    * ``pick``: the kernel that the library chose. It is marked.
    * ``nearby_us``: times of similar ones, scaled to this one's size, µs.
    """
    if not tries and len(nearby_us):
        return _nearby_alone(nearby_us, theme)
    if not tries:
        return blank(NOTHING, theme, height=220)
    best = _best(tries)
    order = sorted(best, key=lambda x: (best[x], x))[:MOST]
    names = _names(order, pick)
    rows = [x for x in tries if x.solution in names]
    timed = [(x, x.time_us) for x in rows if x.time_us is not None and x.time_us > 0]
    times = [*(time for _, time in timed), *nearby_us]
    figure = Figure()
    # A row shows all measured times. If they are not stored, it shows their interval, or else one point. The range of
    # the times of similar GEMMs or convolutions is shaded.
    _draw_samples(figure, timed, names, theme)
    for group, look, legend in (
        ([x for x in timed if x[0].solution != pick], {"color": theme.accent, "size": 11}, _legend(timed)),
        ([x for x in timed if x[0].solution == pick], {"color": theme.alarm, "size": 15, "symbol": "star"}, "the pick"),
    ):
        if group:
            figure.add_scatter(**_times(group, names), name=legend, mode="markers", marker=look)
    _failures(figure, [x for x in rows if not x.timed], names, min(times, default=1.0), theme)
    spread = max(times) / min(times) if times else 1.0
    # If the times are close, they fill the width, so that samples and intervals can be distinguished. Otherwise the
    # axis starts at zero.
    alone = spread == 1 and all(x.samples_us is None and x.max_us is None for x, _ in timed)
    mode = "tozero" if spread > 2 or alone else "normal"
    linear: dict[str, Any] = {"type": "linear", "rangemode": mode, "nticks": 8}
    across = log_axis_over(spread, most=_NUMBERED) if spread > 20 else linear
    unit = "time of one call (µs)" + (", logarithmic" if spread > 20 else "")
    if len(nearby_us):
        _shade(figure, nearby_us, theme)
    hidden = len(best) - len(order)
    styled(figure, theme, height=120 + 26 * max(4, len(order)))
    figure.update_xaxes(title={"text": unit}, **across)
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=[names[x] for x in reversed(order)])
    figure.update_layout(showlegend=True, margin={"t": 46})
    if hidden > 0:
        figure.add_annotation(
            text=f"{hidden:,} slower solutions are not shown", xref="paper", yref="paper", x=1, y=1, xanchor="right",
            yanchor="bottom", showarrow=False, font={"size": 11, "color": theme.faint},
        )  # fmt: skip
    return figure


def _legend(timed: Sequence[tuple[Try, float]]) -> str:
    """Return what the marks show. It is ``median`` if all come from traces, where the time of the job is the mean."""
    return "median" if all(x.origin == TRACE for x, _ in timed) else "time"


def _shade(figure: Figure, nearby_us: Sequence[float], theme: Theme) -> None:
    """Shade the part of the chart in which the times of similar GEMMs or convolutions lie."""
    figure.add_vrect(min(nearby_us), max(nearby_us), fillcolor=theme.good, opacity=0.14, line={"width": 0})
    figure.add_scatter(
        x=[min(nearby_us)], y=[None], mode="markers", name=f"{len(nearby_us)} comparable problems at this size",
        marker={"symbol": "square", "size": 10, "color": theme.good, "opacity": 0.4}, hoverinfo="skip",
    )  # fmt: skip


def _nearby_alone(nearby_us: Sequence[float], theme: Theme) -> Figure:
    figure = Figure()
    name = f"{len(nearby_us)} comparable problems at this size"
    figure.add_scatter(
        x=list(nearby_us), y=[name] * len(nearby_us), mode="markers", name="time",
        marker={"symbol": "line-ns-open", "size": 20, "color": theme.good},
        hovertemplate="%{x:,.5~r} µs<extra></extra>",
    )  # fmt: skip
    styled(figure, theme, height=170)
    figure.update_xaxes(title={"text": "time of one call (µs), estimated"}, type="linear", rangemode="tozero")
    figure.update_layout(showlegend=False)
    return figure


def _best(tries: Sequence[Try]) -> dict[str, float]:
    """Return the shortest time of each kernel, µs. It is infinite for a kernel without a time."""
    best: dict[str, float] = {}
    for x in tries:
        if x.solution is not None:
            best[x.solution] = min(best.get(x.solution, math.inf), math.inf if x.time_us is None else x.time_us)
    return best


def _names(order: list[str], pick: str | None) -> dict[str | None, str]:
    """Return a unique axis label for each kernel, because plotly draws equal labels in one place.

    The kernel that the library chose (``pick``) is in bold.
    """
    shown = shorten_names([make_printable(solution_name(text)) for text in order], 46)
    unique = distinct(escape(name, 46) for name in shown)
    return {text: f"<b>{name}</b>" if text == pick else name for text, name in zip(order, unique, strict=True)}


def _times(rows: Sequence[tuple[Try, float]], names: Mapping[str | None, str]) -> dict[str, Any]:
    """Return plotly's settings for marks that show measured times, with one mark for each measurement.

    If the file states the smallest and largest time of a measurement, the mark has an error bar.
    """
    return {
        "x": [time for _, time in rows],
        "y": [names[x.solution] for x, _ in rows],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [0.0 if x.max_us is None else max(0.0, x.max_us - time) for x, time in rows],
            "arrayminus": [0.0 if x.min_us is None else max(0.0, time - x.min_us) for x, time in rows],
            "visible": any(x.max_us is not None for x, _ in rows),
            "thickness": 1.2,
        },
        "customdata": [
            [_bytes(x.workspace_bytes), escape(x.origin, 30), escape(x.error, 90), escape(x.solution, 160)]
            for x, _ in rows
        ],
        "hovertemplate": "<b>%{customdata[3]}</b><br>%{x:,.5~r} µs<br>workspace %{customdata[0]}"
        "<br>measured by %{customdata[1]}<br>%{customdata[2]}<extra></extra>",
    }


def _draw_samples(
    figure: Figure, rows: Sequence[tuple[Try, float]], names: Mapping[str | None, str], theme: Theme
) -> None:
    x, y = list[float](), list[str]()
    for one, _ in rows:
        values = [] if one.samples_us is None else list(one.samples_us)[:SAMPLES]
        x += [float(v) for v in values]
        y += [names[one.solution]] * len(values)
    if x:
        look = {"symbol": "line-ns-open", "size": 20, "color": theme.faint}
        template = "sample %{x:,.5~r} µs<extra></extra>"
        figure.add_scatter(x=x, y=y, mode="markers", name="samples", hovertemplate=template, marker=look)


def _failures(figure: Figure, rows: Sequence[Try], names: Mapping[str | None, str], edge: float, theme: Theme) -> None:
    """Write the errors of kernels without a time into their rows of the chart, at the left edge."""
    if rows:
        words = [str(x.status) if x.error is None else f"{x.status}: {x.error}" for x in rows]
        figure.add_scatter(
            x=[edge] * len(rows), y=[names[x.solution] for x in rows], mode="text", name="no time",
            text=[escape(x, 40) for x in words], textposition="middle right", hoverinfo="text",
            textfont={"color": theme.faint, "size": 11},
        )  # fmt: skip


def _bytes(value: int | None) -> str:
    if value is None:
        return "unknown"
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= size:
            return f"{value / size:,.4g} {unit}"
    return f"{value:,.0f} bytes" if value else "none"
