"""The map of shapes: how good which sizes are, where time jumps, and all sizes side by side."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analyzers.explore.charts.marks import columns, texts
from analyzers.explore.palette import SCALE, SYMBOLS, Theme, blank, note, styled
from analyzers.explore.plain_text import shown

NOTHING = (
    "No problem here has a known M and N.<br>"
    "Next: ingest a log with sizes (bench, profile or trace lines), or a find-db"
)
NO_FAMILY = (
    "No four problems here differ in one size only, so there is no curve over a size.<br>Next: take filters away"
)


def shape_map(cells: pd.DataFrame, theme: Theme, *, title: str = "") -> go.Figure:
    """A cell per octave of M and N; colour is the median share of the roofline (else TFLOP/s), text the share of time.

    ``cells`` as of ``rows.cells``.  A convolution counts as the GEMM that it amounts to.
    """
    if not len(cells):
        return blank(NOTHING, theme, title=title, height=420)
    rated = cells["efficiency"].notna().any()
    value, unit = ("efficiency", "of the roofline") if rated else ("tflops", "TFLOP/s")
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
    figure = go.Figure(
        go.Heatmap(
            x=[_octave(int(i)) for i in m],
            y=[_octave(int(i)) for i in n],
            z=np.clip(z, None, 1.0) if rated else z,
            customdata=clickable,
            text=[[f"{100 * v:.0f} %" if v >= 0.005 else "" for v in row] for row in share],
            texttemplate="%{text}",
            textfont={"size": 10},
            colorscale=SCALE,
            zmin=0 if rated else None,
            zmax=1 if rated else None,
            xgap=2,
            ygap=2,
            hoverongaps=False,
            hovertemplate="M %{x} · N %{y}<br>median %{z:" + (".0%" if rated else ".3~g") + "} " + unit
            + "<br>%{customdata[2]:,} problems, %{customdata[3]:.1%} of the time<extra></extra>",
            colorbar={
                "title": {"text": unit, "side": "top"},
                "thickness": 10,
                "outlinewidth": 0,
                "tickformat": ".0%" if rated else "",
            },
        )
    )  # fmt: skip
    styled(figure, theme, title=title, height=460)
    figure.update_xaxes(title={"text": "M (octaves)"}, type="category", showgrid=False)
    figure.update_yaxes(title={"text": "N (octaves)"}, type="category", showgrid=False)
    return note(figure, "numbers in cells: share of the time", theme)


def _octave(exponent: int) -> str:
    def short(value: int) -> str:
        for unit, size in (("M", 1 << 20), ("K", 1 << 10)):
            if value >= size:
                return f"{value // size}{unit}"
        return str(value)

    return f"{short(1 << exponent)}–{short(1 << (exponent + 1))}"


def cost_curves(families: pd.DataFrame, theme: Theme, *, title: str = "") -> go.Figure:
    """Time over the one size that differs, a line per family: a step is a cliff, a flat stretch a fixed cost.

    ``families`` as of ``rows.families``.
    """
    if not len(families):
        return blank(NO_FAMILY, theme, title=title)
    figure = go.Figure()
    for i, (name, rows) in enumerate(families.groupby("family", sort=True)):
        axis = str(rows["axis"].iloc[0])
        figure.add_scatter(
            x=list(rows["size"]),
            y=list(rows["time_us"]),
            mode="lines+markers",
            name=shown(f"{name} over {axis}", 60),
            text=texts(rows["label"]),
            customdata=columns([id] for id in rows["id"]),
            line={"color": theme.categories[i % len(theme.categories)], "width": 1.5},
            marker={"symbol": SYMBOLS[i % len(SYMBOLS)], "size": 7},
            hovertemplate="<b>%{text}</b><br>%{x:,} → %{y:,.4~g} µs<extra></extra>",
        )
    styled(figure, theme, title=title, height=460)
    figure.update_layout(
        legend={"orientation": "v", "x": 1.01, "xanchor": "left", "y": 1, "yanchor": "top", "font": {"size": 10}}
    )
    figure.update_xaxes(type="log", title={"text": "M or N, the size that differs"})
    figure.update_yaxes(type="log", title={"text": "time of one call (µs)"})
    return figure


def parallel(points: pd.DataFrame, theme: Theme, *, title: str = "", remark: str = "") -> go.Figure:
    """M, N, K, intensity, TFLOP/s and time as parallel coordinates, all logarithmic; colour is TFLOP/s."""
    columns = {"m": "M", "n": "N", "k": "K", "batch": "batch", "tflops": "TFLOP/s", "time_us": "time (µs)"}
    rows = points[(points[list(columns)] > 0).all(axis=1)]
    if not len(rows):
        return blank(NOTHING, theme, title=title)
    dimensions = []
    for name, label in columns.items():
        values = np.log10(rows[name].to_numpy(dtype="float64"))
        ends = int(np.floor(values.min())), int(np.ceil(values.max()))
        ticks = list(range(ends[0], max(ends[1], ends[0] + 1) + 1))
        dimensions.append(
            {
                "label": label,
                "range": [ticks[0], ticks[-1]],
                "values": np.round(values, 4),
                "tickvals": ticks,
                "ticktext": [_power(x) for x in ticks],
            }
        )
    figure = go.Figure(
        go.Parcoords(
            dimensions=dimensions,
            line={"color": dimensions[4]["values"], "colorscale": SCALE, "showscale": False},
            labelfont={"color": theme.ink, "size": 12},
            tickfont={"color": theme.ink, "size": 10},
            rangefont={"color": theme.faint, "size": 9},
            unselected={"line": {"color": theme.faint, "opacity": 0.04}},
        )
    )
    styled(figure, theme, title=title, height=420)
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    figure.update_layout(margin={"l": 60, "r": 60, "t": 104 if title else 70, "b": 44})
    if remark:
        note(figure, remark, theme)
    return figure


def _power(exponent: int) -> str:
    value = 10.0**exponent
    return f"{value:g}" if exponent < 4 else f"1e{exponent}"
