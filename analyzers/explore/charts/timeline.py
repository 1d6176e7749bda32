"""Calls over time, one row per process: late starters, stragglers and silent ranks are seen at once."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analyzers.explore.charts.figure import Figure, heatmap
from analyzers.explore.charts.palette import Theme, blank, colour_bar, headline, styled

_CLOCK = "<br>Logs of hipBLASLt and cuBLASLt have a time of day on Trace, Hints, Info and Api lines (mask 30)"
NOTHING = f"No line of this run has a time of day, so there is no timeline.{_CLOCK}"
TRACED = f"Of this run's traces only sums are kept: a trace viewer shows their clock.{_CLOCK}"
BINS = 240


def timeline(ticks: pd.DataFrame, theme: Theme, *, title: str = "", traced: bool = False) -> Figure:
    """Calls per process and slice of time.  ``ticks`` has ``pid, second`` (timestamp) and ``calls``.

    ``traced``: calls of the run were counted by traces, which have a clock.
    """
    rows = ticks[ticks["second"].notna()]
    if not len(rows):
        return blank(TRACED if traced else NOTHING, theme, title=title, height=360)
    seconds = pd.to_datetime(rows["second"]).to_numpy(dtype="datetime64[s]").astype("int64")
    start, end = int(seconds.min()), int(seconds.max()) + 1
    width = max(1, -(-(end - start) // BINS))
    slot = (seconds - start) // width
    pids = sorted({int(x) for x in rows["pid"].dropna()})
    names = [str(pid) for pid in pids] + (["unknown"] if rows["pid"].isna().any() else [])
    place = {pid: i for i, pid in enumerate(pids)}
    z = np.zeros((len(names), int(slot.max()) + 1))
    at = [len(pids) if pd.isna(pid) else place[int(pid)] for pid in rows["pid"]]
    np.add.at(z, (np.array(at), slot), rows["calls"].to_numpy(dtype="float64", na_value=0.0))
    edges = (start + np.arange(z.shape[1] + 1) * width).astype("datetime64[s]")
    slices = [
        [first.replace("T", " "), last.replace("T", " ")]
        for first, last in zip(edges[:-1].astype(str), (edges[1:] - np.timedelta64(1, "s")).astype(str), strict=True)
    ]
    figure = Figure(
        heatmap(
            x=[str(x) for x in edges],
            y=[f"process {x}" for x in names],
            z=np.where(z > 0, z, np.nan),
            colorscale=[[0, theme.grid], [1, theme.accent]],
            zmin=0,
            zmax=float(z.max()),
            ygap=3,
            hoverongaps=False,
            customdata=[slices] * len(names),
            hovertemplate="%{y}<br>%{customdata[0]}<br>%{z:,} calls<extra></extra>",
            colorbar=colour_bar(f"calls per {f'{width:,} s' if width > 1 else 'second'}", theme, nticks=4),
        )
    )
    styled(figure, theme, title=title, height=150 + 30 * max(2, min(len(names), 24)))
    few = {"dtick": 1000 * width} if z.shape[1] <= 6 else {}  # no fractions of a slice
    figure.update_xaxes(type="date", title={"text": "time of the log's clock"}, showgrid=False, **few)
    figure.update_yaxes(showgrid=False, type="category", range=[len(names) - 0.5, -0.5])  # the first on top
    figure.update_layout(dragmode="select", selectdirection="h")
    if len(names) > 1:
        figure.layout["height"] += 20
        headline(figure, _skew(rows, z), theme)
    return figure


def _skew(rows: pd.DataFrame, z: np.ndarray) -> str:
    """How far apart the processes began, and how different their numbers of calls are."""
    counts = z.sum(axis=1)
    firsts = pd.to_datetime(rows["second"]).groupby(rows["pid"]).min().sort_values()
    text = f"Calls per process: {int(counts.min()):,} to {int(counts.max()):,}"
    if len(firsts) > 1 and (apart := int((firsts.iloc[-1] - firsts.iloc[0]).total_seconds())) > 0:
        text += f"; first calls up to {apart:,} s apart, process {firsts.index[-1]:.0f} last"
    return text
