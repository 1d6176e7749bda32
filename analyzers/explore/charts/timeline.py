"""Calls over time, one row per process: late starters, stragglers and silent ranks are seen at once."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analyzers.explore.palette import SCALE, Theme, blank, note, styled

NOTHING = (
    "No log here has a clock, so there is no timeline.<br>"
    "hipBLASLt and cuBLASLt print one on Trace, Hints, Info and Api lines (mask 2 + 4 + 8 + 16)"
)
BINS = 240


def timeline(ticks: pd.DataFrame, theme: Theme, *, title: str = "") -> go.Figure:
    """Calls per process and slice of time.  ``ticks`` has ``pid, second`` (timestamp) and ``calls``."""
    rows = ticks[ticks["second"].notna()]
    if not len(rows):
        return blank(NOTHING, theme, title=title, height=360)
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
    times = (start + np.arange(z.shape[1]) * width).astype("datetime64[s]")
    ends = np.stack([times, times + np.timedelta64(width - 1, "s")], axis=1).astype(str)
    slices = [[start.replace("T", " "), end.replace("T", " ")] for start, end in ends]
    figure = go.Figure(
        go.Heatmap(
            x=[str(x) for x in times],
            y=[f"process {x}" for x in names],
            z=np.where(z > 0, z, np.nan),
            colorscale=SCALE,
            zmin=0,
            ygap=3,
            hoverongaps=False,
            customdata=[slices] * len(names),
            hovertemplate="%{y}<br>%{x}<br>%{z:,} calls<extra></extra>",
            colorbar={"title": {"text": f"calls per {width} s", "side": "top"}, "thickness": 10, "outlinewidth": 0},
        )
    )
    styled(figure, theme, title=title, height=150 + 30 * max(2, min(len(names), 24)))
    figure.update_xaxes(type="date", title={"text": "time of the log's clock"}, showgrid=False)
    figure.update_yaxes(showgrid=False, type="category", autorange="reversed")
    figure.update_layout(dragmode="select", selectdirection="h")
    counts = np.nansum(z, axis=1)
    if len(names) > 1 and counts.max() > 0:
        figure = note(figure, f"calls per process: {int(counts.min()):,} to {int(counts.max()):,}", theme)
    return figure
