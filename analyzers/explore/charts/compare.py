"""Draw the chart that compares two runs of a job: before and after a change, or with two library builds."""

from __future__ import annotations

import numpy as np

from analyzers.explore.charts.figure import Figure
from analyzers.explore.charts.marks import Look, add_points, columns, log_axis, sizes, texts
from analyzers.explore.charts.palette import Theme, blank, headline, note, styled
from analyzers.explore.plain_text import escape
from logparse.lazy import pd
from logparse.text import duration, signed_percent

NOTHING = (
    "No problem has a time of the same kind in both runs.<br>Next: choose another run above, or start<br>the "
    "page with <b>--compare RUN</b> (or STORE#RUN)"
)
COLUMNS = ("id", "label", "here_us", "other_us", "moved", "total_us")
"""Columns of the table ``points`` (one row per GEMM or convolution) that this chart reads."""
NOISE = 0.03
"""Relative difference up to which two times are treated as equal in a comparison of runs (0.03 = 3 %)."""
HEIGHT = 560  # Height in px, with and without data, so that a filter moves nothing below the chart.
HOVER = "<b>%{text}</b><br>from %{x:,.4~r} µs to %{y:,.4~r} µs: %{customdata[1]}<extra></extra>"


def compare(
    points: pd.DataFrame,
    totals: pd.Series,
    theme: Theme,
    *,
    names: tuple[str, str] = ("this run", "the other run"),
    remark: str = "",
    headed: bool = True,
) -> Figure:
    """Draw a point for each GEMM or convolution: its time in the later run over its time in the earlier run.

    * ``points``: with the columns ``here_us``, ``other_us``, ``moved``.
    * ``totals``: sums over all points (``queries.changes``).
    * ``headed``: False if the page shows the result itself.
    """
    # The columns are the two times, and "faster", "slower" and so on.
    rows = points[(points["here_us"] > 0) & (points["other_us"] > 0)]
    if not len(rows):
        return blank(NOTHING, theme, height=HEIGHT)
    figure, (here, there) = Figure(), _shorten_store_names(names)
    ends = [float(f(f(rows["here_us"]), f(rows["other_us"]))) for f in (min, max)]
    ends = [ends[0] / 1.5, ends[1] * 1.5]
    # A grey band shows differences up to ±NOISE.
    for factor, fill in ((1 - NOISE, None), (1 + NOISE, "tonexty")):
        figure.add_scatter(
            x=ends, y=[x * factor for x in ends], mode="lines", line={"width": 0}, fill=fill, hoverinfo="skip",
            fillcolor="rgba(128,128,128,0.25)", name=f"±{NOISE:.0%}: noise", showlegend=fill is not None,
        )  # fmt: skip
    change = (rows["here_us"] / rows["other_us"] - 1).tolist()
    add_points(
        figure,
        np.where(rows["moved"].isin(["faster", "slower"]), rows["moved"], "alike"),
        {
            "alike": Look("within noise", theme.faint, "circle"),
            "faster": Look(f"faster in {here}", theme.good, "triangle-down"),
            "slower": Look(f"slower in {here}", theme.alarm, "triangle-up"),
        },
        sizes(rows["total_us"], 6, 20),
        opacity=0.6,
        hovertemplate=HOVER,
        x=rows["other_us"].to_numpy(),
        y=rows["here_us"].to_numpy(),
        text=texts(rows["label"]),
        customdata=columns(zip(rows["id"], map(signed_percent, change), strict=True)),
    )
    styled(figure, theme, height=HEIGHT)
    axis = log_axis(rows["other_us"])
    figure.update_xaxes(title={"text": f"{there}: time of one call (µs)"}, **axis)
    figure.update_yaxes(title={"text": f"{here}: time of one call (µs)"}, **axis)
    figure.update_layout(dragmode="select")
    if headed:
        both = f"{int(totals['problems']):,} problems timed in both (beyond {NOISE:.0%} and noise)"
        headline(figure, f"{verdict(totals)}<br>{both}", theme, lines=2)
    return note(figure, remark, theme)


def verdict(totals: pd.Series) -> str:
    """Return the result of a comparison of two runs as text, from the earlier run to the later one.

    For example: ``23.4 ms → 15.8 ms (−32.5%): 28 faster, 2 slower``. ``totals`` comes from ``queries.changes``.
    """
    here, there = float(totals["here_us"]), float(totals["there_us"])
    change = f" ({signed_percent(here / there - 1)})" if there > 0 else ""
    counts = f"{int(totals['faster']):,} faster, {int(totals['slower']):,} slower"
    return f"{duration(there)} → {duration(here)}{change}: {counts}"


def _shorten_store_names(names: tuple[str, str]) -> list[str]:
    """Return short names of two data folders: the last parts of their paths, enough to distinguish them."""
    paths = [name.rstrip("/").split("/") for name in names]
    deep = 1
    while paths[0][-deep:] == paths[1][-deep:] and deep < max(map(len, paths)):
        deep += 1
    return [escape("/".join(path[-deep:]) or name, 50) for path, name in zip(paths, names, strict=True)]
