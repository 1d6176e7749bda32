"""Draw one step as the GPU ran it: a line for each stream, the idle times with their reason, and the host's calls."""

from __future__ import annotations

from typing import Any

import numpy as np

from analyzers.explore.charts.figure import Figure
from analyzers.explore.charts.palette import KINDS, Theme, blank, styled
from analyzers.explore.plain_text import escape, solution_name
from logparse.lazy import pd
from logparse.text import duration

NOTHING = (
    "This run has no trace, so no time of a stream is known.<br>"
    "Next: <b>logparse capture --trace 2 -- JOB</b>, or ingest a trace of torch.profiler"
)
DRAWN = 3_000
"""Largest number of bars in the chart. If there are more, neighbouring bars of one kind are joined."""
IDLE = "no kernel runs"
"""Name of the chart's line that shows idle time."""
WHY: dict[str, tuple[str, str]] = {
    "queued": ("idle, work queued", "the GPU waits although work is queued"),
    "data loading": ("idle, data loading", "the host waits for data"),
    "synchronisation": ("idle, synchronised", "the host waits for the GPU"),
    "host": (
        "idle, launching or no operator",
        "the host launches kernels, or runs code of the program outside PyTorch's operators",
    ),
}
"""Explanations of idle time: for each reason a short text for the legend, and a sentence."""
_LOOKS = {"queued": ".", "data loading": "x", "synchronisation": "|", "host": "/"}
HOST = "host"
"""Name of the chart's line that shows what the host does."""
_HOST_DOES: dict[str, tuple[str, str, str]] = {
    "launch": ("host launches", "the host launches a kernel or a copy", ""),
    "wait": ("host waits for the GPU", "the host waits for the GPU", ""),
    "other": ("host, other calls", "another call of the runtime, for example for memory", "."),
}
"""Kinds of calls: for each a short text for the legend, a sentence, and the pattern of its bars."""


def _colour_of_host(does: str, theme: Theme) -> str:
    return {"launch": theme.scale[1], "wait": theme.scale[4]}.get(does, theme.faint)


_AROUND = 196
"""Height (px) of the parts around the bars: axis, legend and margins."""
_EDGE = {"width": 0.02, "color": "rgba(0,0,0,0)"}
"""The invisible edge of a bar. Plotly draws a bar without an edge at least one pixel wide, much wider than a short gap.

With the edge, the width of each bar is its time, also if the bar is narrower than a pixel.
"""
HOVER = "<b>%{text}</b><br>%{customdata[1]}at %{base:,.4~r} ms for %{customdata[2]}<br>%{customdata[3]}<extra></extra>"


def timeline(
    works: pd.DataFrame,
    gaps: pd.DataFrame,
    host: pd.DataFrame,
    title: str,
    launched: str,
    theme: Theme,
    *,
    mean: str = "",
    problem: str = "",
    mark: str = "",
) -> Figure:
    """Draw what the GPU did in one step, and when it was idle.

    * ``works``: columns ``start, us, stream, kind, kernel, op, problem, id``, times in µs.
    * ``gaps``: idle time, columns ``start, us, why``.
    * ``host``: calls of the CUDA or HIP runtime, columns ``start, us, does``. Without calls, the chart has no line for
      the host.
    * ``launched``: a sentence about when the host launched the work. Empty if it is unknown.
    * ``mean``: the time of an average step, as text. The shown step may take another time. Empty if it is unknown.
    * ``problem``: a GEMM or convolution to emphasise. Its kernels keep their colour, and all others become faint.
    * ``mark``: a kind of work to emphasise in the same way, such as ``communication`` or ``idle``. ``problem`` comes
      first.
    """
    if not len(works):
        return blank(NOTHING, theme, height=220)
    figure = Figure()
    whole = float((works["start"] + works["us"]).max())
    bars = _join_close_bars(works, whole)
    streams = list(dict.fromkeys(works["stream"]))
    lines = {x: f"communication ({x})" if _is_communication_stream(works, x) else x for x in streams}
    for kind in [x for x in KINDS if x in set(bars["kind"])]:
        rows = bars[bars["kind"] == kind]
        marked = not mark or kind == mark
        faint = [x != problem if problem else not marked for x in rows["problem"]]
        pattern = {"pattern": {"shape": "/", "solidity": 0.3}} if kind == "communication" else {}
        look: dict[str, Any] = {
            "color": theme.kind(kind), "opacity": [0.15 if x else 1.0 for x in faint], "line": _EDGE, **pattern,
        }  # fmt: skip
        data = [
            [mark, "" if count == 1 else f"{count:,} launches, ", duration(us), escape(op, 60)]
            for mark, count, us, op in zip(rows["id"], rows["count"], rows["us"], rows["op"], strict=True)
        ]
        figure.add_bar(
            orientation="h", base=list(rows["start"] / 1e3), x=list(rows["us"] / 1e3),
            y=[lines[x] for x in rows["stream"]],
            name=kind, marker=look, text=[escape(solution_name(f"kernel:{x}"), 90) for x in rows["kernel"]],
            textposition="none", customdata=data, hovertemplate=HOVER,
        )  # fmt: skip
    _draw_idle_time(figure, gaps, whole, theme, faint=bool(problem) or mark not in ("", "idle"))
    _draw_host(figure, host, whole, theme, faint=bool(problem or mark))
    order = [*[HOST][: len(host)], IDLE, *(lines[x] for x in reversed(streams))]
    styled(figure, theme, height=_AROUND + 44 * len(order))
    busy = 1 - float(gaps["us"].sum()) / whole if whole > 0 else 1.0
    usual = f" ({mean})" if mean else ""
    text = f"{escape(title, 90)}: {duration(whole)}{usual}<br>The GPU computes or communicates in {busy:.0%} of it."
    when = f"<br>{escape(launched, 200)}" if launched else ""
    figure.update_xaxes(title={"text": f"ms since the first kernel. {text}{when}"}, rangemode="tozero")
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=order, fixedrange=True)
    figure.update_layout(
        barmode="overlay", bargap=0.25, dragmode="zoom", margin={"t": 30, "b": _AROUND - 30, "l": 140},
        legend={"y": 0.01, "yanchor": "bottom"},
    )  # fmt: skip
    return figure


def _is_communication_stream(works: pd.DataFrame, stream: str) -> bool:
    rows = works[works["stream"] == stream]
    return bool((rows["kind"] == "communication").mean() > 0.5)


def _draw_idle_time(figure: Figure, gaps: pd.DataFrame, whole: float, theme: Theme, *, faint: bool) -> None:
    for why, (name, told) in WHY.items():
        rows = gaps[gaps["why"] == why]
        if not len(rows):
            continue
        rows = rows.nlargest(DRAWN // 4, "us")
        look = {"color": theme.kind("idle"), "line": _EDGE, "pattern": {"shape": _LOOKS[why], "solidity": 0.4}}
        total = float(gaps.loc[gaps["why"] == why, "us"].sum())
        figure.add_bar(
            orientation="h", base=list(rows["start"] / 1e3), x=list(rows["us"] / 1e3), y=[IDLE] * len(rows),
            name=f"{name} {duration(total)}", marker=look, text=[told] * len(rows), textposition="none",
            customdata=[["", "", duration(us), f"{us / whole:.1%} of the time shown"] for us in rows["us"]],
            hovertemplate=HOVER, opacity=0.3 if faint else 1.0,
        )  # fmt: skip


def _draw_host(figure: Figure, host: pd.DataFrame, whole: float, theme: Theme, *, faint: bool) -> None:
    """Draw a line with the host's calls of the runtime. Calls that are too close to be distinguished are joined."""
    if not len(host):
        return
    bars = _join_close_bars(host.assign(stream=HOST, kind=host["does"], problem=""), whole)
    for does, (name, told, shape) in _HOST_DOES.items():
        rows = bars[bars["does"] == does]
        if not len(rows):
            continue
        pattern = {"pattern": {"shape": shape, "solidity": 0.4}} if shape else {}
        look = {"color": _colour_of_host(does, theme), "line": _EDGE, **pattern}
        data = [
            ["", "" if count == 1 else f"{count:,} calls, ", duration(us), ""]
            for count, us in zip(rows["count"], rows["us"], strict=True)
        ]
        figure.add_bar(
            orientation="h", base=list(rows["start"] / 1e3), x=list(rows["us"] / 1e3), y=[HOST] * len(rows),
            name=name, marker=look, text=[told] * len(rows), textposition="none", customdata=data,
            hovertemplate=HOVER, opacity=0.3 if faint else 1.0,
        )  # fmt: skip


def _join_close_bars(works: pd.DataFrame, whole: float) -> pd.DataFrame:
    """Join neighbouring bars of the timeline that are too close to be distinguished.

    Adds the column ``count``, the number of bars that were joined.
    """
    rows = works.sort_values(["stream", "start"], kind="stable").reset_index(drop=True)
    if len(rows) <= DRAWN:
        return rows.assign(count=1)
    for parts in (4_000, 2_000, 1_000, 500, 250):
        # Joined bars are of one stream, one kind, and the same GEMM or convolution.
        made = _join_bars_within(rows, whole / parts)
        if len(made) <= DRAWN:
            break
    return made


def _join_bars_within(rows: pd.DataFrame, least_us: float) -> pd.DataFrame:
    start, end = rows["start"].to_numpy(), (rows["start"] + rows["us"]).to_numpy()
    same = np.ones(len(rows) - 1, dtype=bool)
    for name in ("stream", "kind", "problem"):
        values = rows[name].to_numpy()
        same &= values[1:] == values[:-1]
    near = same & (start[1:] - end[:-1] < least_us) & ((end - start)[1:] < least_us)
    group = np.r_[0, np.cumsum(~near)]
    grouped = rows.assign(end=end, group=group).groupby("group")
    first = grouped.first()
    return (
        first.assign(us=grouped["end"].max() - first["start"], count=grouped.size())
        .drop(columns="end")
        .reset_index(drop=True)
    )
