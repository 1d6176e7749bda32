"""The map of shapes: how good which sizes are, where time jumps, and all sizes side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from analyzers.explore.charts.figure import Figure, Trace, heatmap, scatter
from analyzers.explore.charts.marks import columns, log_axis, texts
from analyzers.explore.charts.palette import (
    SYMBOLS,
    THEMES,
    UNDER,
    Theme,
    blank,
    colour_bar,
    remark,
    styled,
    text_on,
)
from analyzers.explore.plain_text import shown

NOTHING = (
    "No problem here has a known M and N.<br>"
    "Next: ingest a log with sizes (bench, profile or trace lines), or a find-db"
)
NO_FAMILY = (
    "No four timed problems here differ in one size only, so there is no curve over a size.<br>"
    "Next: take filters away, or ingest timings of more sizes"
)
NO_LINE = "No problem here has all of its sizes and a time.<br>Next: ingest timings, or measure: <b>logparse replay</b>"
MAP, CURVES, LINES = 460, 520, 420
"""Heights (px) of the three, with and without data: a filter moves nothing below."""
LEFT = 110
"""Left margin (px) of the first two: room for "256K–512K", as plotly draws twice where a click widens the labels."""


def shape_map(cells: pd.DataFrame, theme: Theme, *, title: str = "") -> Figure:
    """A cell per octave of M and N; colour is the median share of the roofline (else TFLOP/s), text the share of time.

    ``cells`` as of ``rows.cells``.  A convolution counts as the GEMM that it amounts to.
    """
    if not len(cells):
        return blank(NOTHING, theme, title=title, height=MAP)
    rated = cells["efficiency"].notna().any()
    value, unit = ("efficiency", "of the roofline") if rated else ("tflops", "TFLOP/s")
    timed = float(cells["total_us"].fillna(0).sum()) > 0
    m = np.arange(int(cells["mi"].min()), int(cells["mi"].max()) + 1)
    n = np.arange(int(cells["ni"].min()), int(cells["ni"].max()) + 1)
    grid = cells.set_index(["ni", "mi"])
    index = pd.MultiIndex.from_product([n, m])
    z, problems, time = (
        grid[name].reindex(index).to_numpy(dtype="float64", na_value=np.nan).reshape(len(n), len(m))
        for name in (value, "problems", "total_us")
    )
    total = np.nansum(time)
    share = time / total if total > 0 else np.full_like(time, np.nan)
    clickable = np.dstack([np.tile(m, (len(n), 1)), np.tile(n[:, None], (1, len(m))), problems, share])
    figure = Figure()
    if (unrated := np.isnan(z) & (problems > 0)).any():
        figure.add_trace(_unrated(m, n, unrated, clickable, theme))
    low, high = (0.0, 1.0) if rated else _ends(z)
    figure.add_trace(
        heatmap(
            x=[_octave(int(i)) for i in m],
            y=[_octave(int(i)) for i in n],
            z=np.clip(z, None, 1.0) if rated else z,
            customdata=clickable,
            colorscale=theme.colour_scale,
            zmin=low,
            zmax=high,
            xgap=2,
            ygap=2,
            hoverongaps=False,
            hovertemplate="M %{x} · N %{y}<br>median %{z:" + (".0%" if rated else ",.3~r") + "} " + unit
            + "<br>%{customdata[2]:,} problems, %{customdata[3]:.1%} of the time<extra></extra>",
            colorbar=colour_bar(f"median {unit}", theme, tickformat=".0%" if rated else ""),
        )
    )  # fmt: skip
    if max(z.shape) <= MOST_NUMBERED:
        figure.add_trace(_numbers(m, n, share, (z - low) / (high - low), theme))
    styled(figure, theme, title=title, height=MAP)
    figure.update_xaxes(
        title={"text": "M (octaves)" + ("; numbers in cells: share of the time" if timed else "")},
        type="category",
        range=[-0.5, len(m) - 0.5],  # to its numbers plotly would add room all around
        showgrid=False,
    )
    figure.update_yaxes(title={"text": "N (octaves)"}, type="category", range=[-0.5, len(n) - 0.5], showgrid=False)
    figure.update_layout(margin={"l": LEFT})
    return figure


def _unrated(m: np.ndarray, n: np.ndarray, cells: np.ndarray, clickable: np.ndarray, theme: Theme) -> Trace:
    """Cells of problems whose device has no known peak: there, in no colour of the scale."""
    return heatmap(
        x=[_octave(int(i)) for i in m],
        y=[_octave(int(i)) for i in n],
        z=np.where(cells, 0.0, np.nan),
        customdata=clickable,
        colorscale=[[0, theme.grid], [1, theme.grid]],
        showscale=False,
        xgap=2,
        ygap=2,
        hoverongaps=False,
        hovertemplate="M %{x} · N %{y}<br>the device's peak is unknown"
        "<br>%{customdata[2]:,} problems, %{customdata[3]:.1%} of the time<extra></extra>",
    )  # fmt: skip


MOST_NUMBERED = 30
"""Rows and columns of the map whose cells have room for a number."""


def _ends(values: np.ndarray) -> tuple[float, float]:
    """What the colour scale spans: from the least to the largest of known values."""
    known = values[~np.isnan(values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _numbers(m: np.ndarray, n: np.ndarray, share: np.ndarray, place: np.ndarray, theme: Theme) -> Trace:
    """Each cell's share of the time from 0.5% on, black or white by the luminance of what it stands on.

    ``place``: where on the colour scale a cell is, NaN where it is ``_unrated``.  plotly.js writes a heatmap's own
    numbers in a grey that is too weak on the middle of the scale.  ``meta`` has the colours of every theme, for the
    report, which changes its theme in the browser.
    """
    rows, cells = np.nonzero(np.nan_to_num(share) >= 0.005)
    places = place[rows, cells]
    colours = {
        name: [text_on(one.grid if np.isnan(x) else one.colour_at(float(x))) for x in places]
        for name, one in THEMES.items()
    }
    return scatter(
        mode="text",
        x=[_octave(int(m[i])) for i in cells],
        y=[_octave(int(n[i])) for i in rows],
        text=[f"{x:.0%}" for x in share[rows, cells]],
        textfont={"size": 10, "color": colours[theme.name]},
        meta={"textColours": colours},
        hoverinfo="skip",
        showlegend=False,
    )


def _octave(exponent: int) -> str:
    def short(value: int) -> str:
        for unit, size in (("M", 1 << 20), ("K", 1 << 10)):
            if value >= size:
                return f"{value // size}{unit}"
        return str(value)

    return f"{short(1 << exponent)}–{short(1 << (exponent + 1))}"


def cost_curves(families: pd.DataFrame, theme: Theme, *, title: str = "") -> Figure:
    """Time over the one size that differs, a line per family: a step is a cliff, a flat stretch a fixed cost.

    ``families`` as of ``rows.families``.
    """
    if not len(families):
        return blank(NO_FAMILY, theme, title=title, height=CURVES)
    figure = Figure()
    for i, (name, rows) in enumerate(families.groupby("family", sort=True)):
        axis = str(rows["axis"].iloc[0])
        figure.add_scatter(
            x=list(rows["size"]),
            y=list(rows["time_us"]),
            mode="lines+markers",
            name=shown(f"{name} over {axis}".replace(" – ", " "), 60),
            text=texts(rows["label"]),
            customdata=columns([id] for id in rows["id"]),
            line={"color": theme.categories[i % len(theme.categories)], "width": 1.5},
            marker={"symbol": SYMBOLS[i % len(SYMBOLS)], "size": 7, "maxdisplayed": MARKS},
            hovertemplate="<b>%{text}</b><br>%{x:,} → %{y:,.4~r} µs<extra></extra>",
        )
    styled(figure, theme, title=title, height=CURVES)
    figure.update_layout(legend={"y": 0.02, "yanchor": "bottom"}, margin={"l": LEFT})
    figure.update_xaxes(title={"text": "M or N, the size that differs"}, **log_axis(families["size"]))
    figure.update_yaxes(title={"text": "time of one call (µs)"}, **log_axis(families["time_us"]))
    return figure


MARKS = 15
"""Symbols that a curve bears, so that it is known without its colour; each costs the browser time."""


def parallel(points: pd.DataFrame, theme: Theme, *, title: str = "", note: str = "") -> Figure:
    """M, N, K, batch, TFLOP/s and time side by side, all logarithmic; a line is a problem, bright is fast.

    Lines of plain SVG, few enough to follow; plotly's own parallel coordinates take over a second to draw where there
    is no GPU, and select nothing elsewhere.  Invisible marks stand along each axis; their ``customdata`` is
    ``["", low, high]``, the powers of ten at its ends, so that a box over it can be read as an interval (``SIZES``).
    """
    rows = points[(points[list(SIZES)] > 0).all(axis=1)]
    if not len(rows):
        return blank(NO_LINE, theme, title=title, height=LINES)
    scales = _spans(rows)
    heights = np.column_stack(
        [
            (np.log10(rows[name].to_numpy(dtype="float64")) - low) / (high - low)
            for name, (low, high) in zip(SIZES, scales, strict=True)
        ]
    )
    rank = rows["tflops"].rank(method="first", pct=True).to_numpy()
    group = np.ceil(rank * len(theme.scale)).astype(int) - 1
    figure = Figure()
    for i, colour in enumerate(theme.scale):
        part = rows[group == i]
        if len(part):
            figure.add_trace(_lines(part, heights[group == i], colour))
    figure.add_trace(_handles(scales))
    styled(figure, theme, title=title, height=LINES)
    _axes(figure, scales, theme, note)
    return figure


SIZES: Mapping[str, str] = {
    "m": "M",
    "n": "N",
    "k": "K",
    "batch": "batch, groups",
    "tflops": "TFLOP/s",
    "time_us": "time (µs)",
}
"""The axes of ``parallel``, from left to right: columns of ``points`` and their titles."""


HANDLES = 21  # along each axis: a box that is a twentieth as high as the plot catches one


def _spans(rows: pd.DataFrame) -> list[tuple[int, int]]:
    """The powers of ten between which each axis of ``parallel`` runs."""
    out = []
    for name in SIZES:
        known = rows[name].to_numpy(dtype="float64")
        known = known[known > 0]
        low, high = (int(f(np.log10(x))) for f, x in ((np.floor, known.min()), (np.ceil, known.max())))
        out.append((low, max(high, low + 1)))
    return out


def _lines(part: pd.DataFrame, heights: np.ndarray, colour: str) -> Trace:
    """All lines of one colour as one trace, with a gap after each; a mark at each corner would take longer to draw."""
    count, width = heights.shape
    x = np.tile([*range(width), np.nan], count)
    y = np.column_stack([np.round(heights, 4), np.full(count, np.nan)]).ravel()
    return scatter(
        x=x,
        y=y,
        mode="lines",
        line={"color": colour, "width": 1},
        opacity=0.55,
        text=np.repeat(texts(part["label"]), width + 1),
        customdata=[[id] for id in part["id"] for _ in range(width + 1)],
        hovertemplate="<b>%{text}</b><extra></extra>",
        showlegend=False,
    )


def _handles(scales: Sequence[tuple[int, int]]) -> Trace:
    """What a box over an axis catches: a line without marks cannot be selected."""
    steps = np.round(np.linspace(0, 1, HANDLES), 3)
    return scatter(
        x=np.repeat(np.arange(len(scales)), HANDLES),
        y=np.tile(steps, len(scales)),
        customdata=[["", *ends] for ends in scales for _ in steps],
        mode="markers",
        marker={"size": 1},
        opacity=0,
        hoverinfo="skip",
        showlegend=False,
    )


def _axes(figure: Figure, scales: Sequence[tuple[int, int]], theme: Theme, note: str) -> None:
    marks = []
    for i, (low, high) in enumerate(scales):
        step = -(-(high - low) // 8)
        for power in range(low, high + 1, step):
            marks.append(
                {
                    "x": i, "y": (power - low) / (high - low), "text": _power(power), "xanchor": "right", "xshift": -5,
                    "showarrow": False, "font": {"size": 10, "color": theme.ink}, "bgcolor": theme.panel,
                    "opacity": 0.85,
                }
            )  # fmt: skip
    marks += [remark(note, theme)] if note else []
    figure.update_layout(
        annotations=marks, dragmode="select", hovermode="closest",
        margin={"l": 56, "r": 40, "t": 84 if "title" in figure.layout else 36, "b": UNDER if note else 52},
    )  # fmt: skip
    figure.update_xaxes(
        tickvals=list(range(len(scales))), ticktext=list(SIZES.values()), range=[-0.35, len(scales) - 0.85],
        title={"text": "a line is a problem; every axis is logarithmic"}, zeroline=False, gridcolor=theme.faint,
        side="top", tickfont={"size": 12, "color": theme.ink},
    )  # fmt: skip
    figure.update_yaxes(visible=False, range=[-0.05, 1.05])


def _power(exponent: int) -> str:
    """``0.01``, ``100``, ``10k``, ``1M``."""
    units = {0: "", 3: "k", 6: "M", 9: "G"}
    size = max((x for x in units if x <= exponent), default=0)
    return f"{10.0 ** (exponent - size):g}{units[size]}"
