"""Two runs side by side: before and after a change, or two library builds."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analyzers.explore.charts.figure import Figure, subplots
from analyzers.explore.charts.marks import Look, add_points, columns, log_axis, sizes, texts
from analyzers.explore.charts.palette import Theme, blank, headline, note, styled
from analyzers.explore.plain_text import all_shown, distinct, shown
from logparse.text import duration

NOTHING = (
    "No problem has a time of one kind in both runs.<br>Next: choose another run above, or start<br>"
    "the page with <b>--compare RUN</b> (or STORE#RUN)"
)
COLUMNS = ("id", "label", "here_us", "other_us", "moved", "total_us")
"""Columns of ``points`` that are read here."""
NOISE = 0.03
"""As ``logparse diff`` has it."""
HOVER = "<b>%{text}</b><br>here %{x:,.4~r} µs, there %{y:,.4~r} µs: %{customdata[1]:+.1%}<extra></extra>"


def compare(
    points: pd.DataFrame,
    movers: pd.DataFrame,
    totals: pd.Series,
    theme: Theme,
    *,
    names: tuple[str, str] = ("this run", "the other run"),
    noise: float = NOISE,
    title: str = "",
    remark: str = "",
    headed: bool = True,
) -> Figure:
    """Above: time there against time here, the band of ±``noise`` grey.  Below: the largest changes, weighed by calls.

    ``points`` needs ``here_us``, ``other_us`` and ``moved``; ``movers`` and ``totals`` as of ``queries.movers`` and
    ``queries.changes``.  Not ``headed``: where the page states ``verdict`` above.
    """
    rows = points[(points["here_us"] > 0) & (points["other_us"] > 0)]
    if not len(rows):
        return blank(NOTHING, theme, title=title, height=420)
    changed = movers[movers["change_us"] != 0].head(15)[::-1]
    height = 500 + BAR * len(changed) + 60
    heights = [500, BAR * len(changed) + 60] if len(changed) else [500]
    figure = subplots(rows=len(heights), row_heights=heights, vertical_spacing=80 / height)
    ends = [float(f(f(rows["here_us"]), f(rows["other_us"]))) for f in (min, max)]
    ends = [ends[0] / 1.5, ends[1] * 1.5]
    for factor, fill in ((1 - noise, None), (1 + noise, "tonexty")):
        figure.add_scatter(
            x=ends, y=[x * factor for x in ends], mode="lines", line={"width": 0}, fill=fill, hoverinfo="skip",
            fillcolor="rgba(128,128,128,0.25)", name=f"±{noise:.0%}: noise", showlegend=fill is not None, row=1, col=1,
        )  # fmt: skip
    change = (rows["other_us"] / rows["here_us"] - 1).to_numpy()
    add_points(
        figure,
        np.where(rows["moved"].isin(["faster", "slower"]), rows["moved"], "alike"),
        {
            "alike": Look("within noise", theme.other, "circle"),
            "faster": Look("faster there", theme.good, "triangle-down"),
            "slower": Look("slower there", theme.alarm, "triangle-up"),
        },
        sizes(rows["total_us"], 6, 20),
        opacity=0.6,
        place={"row": 1, "col": 1},
        hovertemplate=HOVER,
        x=rows["here_us"].to_numpy(),
        y=rows["other_us"].to_numpy(),
        text=texts(rows["label"]),
        customdata=columns(zip(rows["id"], change, strict=True)),
    )
    if len(changed):
        _bars(figure, changed, theme)
        figure.update_xaxes(title={"text": "change of time, calls × time (ms); left is faster there"}, row=2, col=1)
        figure.update_yaxes(showgrid=False, showticklabels=False, type="category", row=2, col=1)
    styled(figure, theme, title=title, height=height)
    axis, (here, there) = log_axis(rows["here_us"]), _short(names)
    figure.update_xaxes(title={"text": f"{here}: time of one call (µs)"}, **axis, row=1, col=1)
    figure.update_yaxes(title={"text": f"{there}: time of one call (µs)"}, **axis, row=1, col=1)
    figure.update_layout(dragmode="select")
    if headed:
        headline(figure, _summary(totals, noise), theme, lines=2)
    return note(figure, remark, theme) if remark else figure


def _summary(totals: pd.Series, noise: float) -> str:
    return f"{verdict(totals)}<br>{int(totals['problems']):,} problems timed in both (beyond {noise:.0%} and noise)"


def verdict(totals: pd.Series) -> str:
    """``23.4 ms → 15.8 ms (-32.5%): 28 faster, 2 slower``, of ``queries.changes``."""
    here, there = float(totals["here_us"]), float(totals["there_us"])
    change = f" ({there / here - 1:+.1%})" if here > 0 else ""
    counts = f"{int(totals['faster']):,} faster, {int(totals['slower']):,} slower"
    return f"{duration(here)} → {duration(there)}{change}: {counts}"


def _short(names: tuple[str, str]) -> list[str]:
    """The folders' own names of two stores' paths, with as many folders above as distinguish them."""
    paths = [name.rstrip("/").split("/") for name in names]
    deep = 1
    while paths[0][-deep:] == paths[1][-deep:] and deep < max(map(len, paths)):
        deep += 1
    return [shown("/".join(path[-deep:]) or name, 50) for path, name in zip(paths, names, strict=True)]


BAR = 32
"""Pixels from bar to bar."""


def _bars(figure: Figure, rows: pd.DataFrame, theme: Theme) -> None:
    """The changes, each under its problem's name: beside them, the names would take a third of a narrow chart."""
    names, place = distinct(all_shown(rows["label"], 60)), {"row": 2, "col": 1}
    figure.add_scatter(
        x=[min(0.0, float(rows["change_us"].min()) / 1e3)] * len(names),
        y=names,
        mode="text",
        text=names,
        textposition="top right",
        textfont={"size": 11, "color": theme.ink},
        hoverinfo="skip",
        showlegend=False,
        **place,
    )
    figure.add_bar(
        x=list(rows["change_us"] / 1e3),
        y=names,
        orientation="h",
        width=0.3,
        offset=-0.4,
        marker={"color": [theme.alarm if x > 0 else theme.good for x in rows["change_us"]]},
        customdata=[[id] for id in rows["id"]],
        hovertemplate="%{y}<br>%{x:+,.4~r} ms<extra></extra>",
        showlegend=False,
        **place,
    )
