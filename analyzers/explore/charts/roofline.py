"""Draw the roofline chart: how fast each GEMM and convolution runs, and the limits of memory and arithmetic."""

from __future__ import annotations

import math

import numpy as np

from analyzers.explore.charts.figure import Figure
from analyzers.explore.charts.marks import HOVER, Look, add_points, hover_data, log_axis, sizes, texts
from analyzers.explore.charts.palette import SYMBOLS, Theme, blank, note, styled
from analyzers.explore.plain_text import escape
from logparse.devices import Device, devices
from logparse.lazy import pd
from logparse.text import duration

NOTHING = (
    "No problem here has both a size and a time.<br>"
    "Next: ingest timings (find-db, TunableOp results, bench output),<br>"
    "or measure: <b>logparse replay</b>"
)
COLUMNS = (
    *("id", "label", "solver", "operation", "direction", "input_type", "device", "time_us", "then_us", "total_us"),
    *("saving_us", "intensity", "tflops", "at_least"),
)
"""Columns of the table ``points`` (one row per GEMM or convolution) that this chart reads."""
HEIGHT = 560  # Height in px, with and without data, so that a filter moves nothing below the chart.


def roofline(points: pd.DataFrame, theme: Theme, *, remark: str = "") -> Figure:
    """Draw a point for each GEMM or convolution: its present TFLOP/s over its arithmetic intensity (flop per byte).

    A point's area is proportional to its time. Its colour shows the possible saving.
    """
    rows = points[(points["intensity"] > 0) & (points["tflops"] > 0)]
    if not len(rows):
        return blank(NOTHING, theme, height=HEIGHT)
    figure = Figure()
    # The limits are drawn for the GPU with the most time in the table (devices.csv).
    device = _device(rows)
    if device is not None:
        _ceilings(figure, device, rows, theme)
    judged, diameter = (rows["saving_us"] > 0).to_numpy(), sizes(rows["total_us"])
    if judged.any():
        _draw_known_savings(figure, rows[judged], diameter[judged], theme)
    # If no saving is known, the colour shows the operation.
    _plain(figure, rows[~judged], diameter[~judged], theme, only=not judged.any())
    styled(figure, theme, height=HEIGHT)
    figure.update_xaxes(
        title={"text": "arithmetic intensity (flop / byte, with the least traffic)"}, **log_axis(rows["intensity"])
    )
    figure.update_yaxes(title={"text": "achieved TFLOP/s"}, **log_axis(rows["tflops"]))
    figure.update_layout(dragmode="select", margin={"t": 56})
    left = sum(_cut_axis(figure, rows, name, axis) for name, axis in (("intensity", "xaxis"), ("tflops", "yaxis")))
    outside = "Some tiny problems lie outside the chart: a double click shows all. " if left else ""
    unknown = "" if device else "The device is unknown, so its limits (the roofline) are not drawn. "
    return note(figure, outside + unknown + remark, theme)


def _choose_axis_start(rows: pd.DataFrame, column: str) -> float:
    """Return the value at which an axis begins, so that a few tiny GEMMs or convolutions do not stretch it."""
    ordered = rows.sort_values(column)
    share = ordered["total_us"].fillna(0.0).cumsum()
    # The smallest values are skipped if together they take less than a thousandth of the time. On a logarithmic axis, a
    # single tiny value could add empty decades.
    kept = ordered[(share >= 0.001 * share.iloc[-1]).to_numpy()]
    return float(kept[column].iloc[0])


def _cut_axis(figure: Figure, rows: pd.DataFrame, column: str, axis: str) -> bool:
    """Cut the lower end of an axis if only a few tiny GEMMs or convolutions are there. Return True if it was cut."""
    least, smallest = _choose_axis_start(rows, column), float(rows[column].min())
    if least < _FAR * smallest:
        return False
    largest = max(float(y) for trace in figure.data for y in trace["x" if axis == "xaxis" else "y"] if y)
    figure.layout[axis]["range"] = [math.log10(least / 1.5), math.log10(largest * 1.5)]
    return True


_FAR = 10.0
"""An axis is cut only if its new lower end is at least this many times the smallest value."""


def _device(rows: pd.DataFrame) -> Device | None:
    known = rows[rows["device"].notna()]
    if not len(known):
        return None
    name = known.groupby("device")["total_us"].sum().sort_values(ascending=False, kind="stable").index[0]
    return next((x for x in devices() if x.name == name), None)


def _ceilings(figure: Figure, device: Device, rows: pd.DataFrame, theme: Theme) -> None:
    """Draw the device's limits: a slope for the memory bandwidth, and a flat line for the peak rate of each type.

    Only the input types with the most time are drawn, at most three lines.
    """
    ends = _choose_axis_start(rows, "intensity") / 1.5, float(rows["intensity"].max()) * 1.5
    common = rows.groupby("input_type")["total_us"].sum().sort_values(ascending=False, kind="stable").index
    peaks: dict[float, list[str]] = {}
    for dtype in common[:6]:
        peak = device.peak_tflops(str(dtype))
        if peak:
            peaks.setdefault(peak, []).append(str(dtype))
    if not peaks:
        return
    top = max(peaks)
    slope = device.hbm_gbs / 1e3
    low, ridge = min(ends[0], top / slope), top / slope
    figure.add_scatter(
        x=[low, ridge], y=[low * slope, top], mode="lines", line={"color": theme.faint, "width": 1.5},
        name=f"{device.name}: {device.hbm_gbs:,.0f} GB/s", hoverinfo="name",
    )  # fmt: skip
    for peak, names in sorted(peaks.items(), reverse=True)[:3]:
        right = max(ends[1], peak / slope * 2)
        figure.add_scatter(
            x=[peak / slope, right], y=[peak, peak], mode="lines",
            line={"color": theme.faint, "width": 1.5, "dash": "dot"},
            name=f"{device.name}: {peak:,.0f} TFLOP/s {escape(', '.join(names), 30)}", hoverinfo="name",
            showlegend=False,
        )  # fmt: skip
        figure.add_annotation(
            x=math.log10(right) - 0.01, y=math.log10(peak), text=f"{escape(', '.join(names), 30)} {peak:,.0f} TFLOP/s",
            showarrow=False, xanchor="right", yanchor="bottom", font={"size": 11, "color": theme.ink},
            bgcolor=theme.panel, opacity=0.85,
        )  # fmt: skip


def _draw_known_savings(figure: Figure, rows: pd.DataFrame, diameter: np.ndarray, theme: Theme) -> None:
    """Draw the GEMMs and convolutions for which a saving is known, coloured by the logarithm of the saving."""
    faint, saving = {"color": theme.faint}, np.log10(rows["saving_us"].to_numpy(dtype="float64"))
    high = float(saving.max())
    low = max(float(saving.min()), high - _DECADES) if saving.min() < high else high - 1.0
    ticks = np.linspace(low, high, 5)
    figure.add_scattergl(
        x=rows["intensity"],
        y=rows["tflops"],
        mode="markers",
        text=texts(rows["label"]),
        customdata=hover_data(rows),
        hovertemplate=HOVER,
        name="time to gain",
        marker={
            "size": diameter,
            "color": saving.clip(low, high),
            "colorscale": [(i / (len(theme.scale) - 1), colour) for i, colour in enumerate(theme.scale)],
            "cmin": low,
            "cmax": high,
            "opacity": 0.85,
            "line": {"width": 0.75, "color": theme.faint},
            # The colour bar's title stands along the bar. Above it, it would overlap the topmost number.
            "colorbar": {
                "title": {"text": "time to gain", "side": "right", "font": {"size": 12, **faint}},
                "thickness": 10,
                "outlinewidth": 0,
                "len": 0.8,
                "tickfont": {"size": 11, **faint},
                "tickvals": [float(x) for x in ticks],
                "ticktext": [duration(10**x) for x in ticks],
            },
        },
    )


_DECADES = 3.0
"""How many powers of ten the colours of the chart distinguish, counted down from the largest saving."""


def _plain(figure: Figure, rows: pd.DataFrame, diameter: np.ndarray, theme: Theme, *, only: bool) -> None:
    """Draw the GEMMs and convolutions for which no saving is known.

    They are grey. But if no saving is known at all, they are coloured by operation and direction. Each kind keeps its
    colour and symbol under every filter.
    """
    pairs = zip(rows["operation"].tolist(), rows["direction"].tolist(), strict=True)
    kinds = np.array([f"{operation} {direction}".removesuffix(" –") for operation, direction in pairs], dtype=object)
    looks = {x: Look(x, *look) for x, *look in zip(ORDER, theme.categories, SYMBOLS, strict=True)} if only else {}
    add_points(
        figure,
        kinds,
        {**looks, "": Look("other" if only else "nothing to gain known", theme.faint, "circle")},
        diameter,
        opacity=0.6,
        x=rows["intensity"].to_numpy(),
        y=rows["tflops"].to_numpy(),
        text=texts(rows["label"]),
        customdata=hover_data(rows),
    )


ORDER = ("GEMM", "convolution F", "convolution B", "convolution W", "grouped GEMM", "convolution B+W")
