"""Where the time goes: bars by operation, direction, type, library … and what the logs held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pandas as pd

from analyzers.explore.charts.figure import Figure, Trace, bar, scatter, subplots
from analyzers.explore.charts.palette import Theme, blank, styled
from analyzers.explore.plain_text import all_shown, distinct, shown
from analyzers.explore.selection import FACETS, facet_text
from logparse.text import shortened

PANELS = ("operation", "direction", "dtype", "library", "calls_from", "solver", "layout")
MOST = 6  # panels of a figure, and bars of a panel
NOTHING = "Nothing to show yet.<br>Next: <b>logparse ingest</b> your logs and tuning files, then reload."
NO_PROBLEM = (
    "No call and no timing is here.<br>Next: log calls (HIPBLASLT_LOG_MASK=32 writes bench lines),<br>or ingest "
    "tuning files; messages are in the SQL view: <b>select * from messages</b>"
)
NOTHING_HELD = "The files are empty.<br>Next: <b>logparse ingest</b> logs that hold something."
FILTERED = "Nothing to draw is left under these filters.<br>Next: take one away, or clear them all."
HOVER = "<b>%{customdata[3]}</b><br>%{customdata[4]:.1%}<br>%{customdata[2]:,} problems<extra></extra>"
UNITS = ("call", "message", "measurement", "fact", "reject", "foreign", "blank")


def measure(groups: pd.DataFrame) -> tuple[str, str]:
    """What bars count: the column, and its axis title.  Time where it is known, else calls, else problems."""
    if float(groups["total_us"].fillna(0).sum()) > 0:
        called = float(groups["calls"].fillna(0).sum()) > 0
        return "total_us", "share of time" if called else "share of time, each problem called once"
    if float(groups["calls"].fillna(0).sum()) > 0:
        return "calls", "share of calls (no times known)"
    return "problems", "share of problems"


def overview(
    groups: pd.DataFrame,
    theme: Theme,
    *,
    chosen: Mapping[str, Sequence[str]] = MappingProxyType({}),
    title: str = "",
) -> Figure:
    """Six panels of bars; a bar's ``customdata`` is ``[facet, value]``, bars beside the ``chosen`` ones are faint.

    ``groups`` as of ``rows.groups``: ``facet, value, problems, calls, total_us, values``.
    """
    if not len(groups):
        return blank(NO_PROBLEM, theme, title=title)
    column, unit = measure(groups)
    counts = groups["facet"].value_counts()
    panels = [x for x in PANELS if counts.get(x, 0) > 1][:MOST] or [x for x in PANELS if x in counts.index][:1]
    columns = 2 if len(panels) in (2, 4) else min(3, len(panels))
    tall = [min(MOST, max(int(counts[x]) for x in panels[i : i + columns])) for i in range(0, len(panels), columns)]
    height = BAR * sum(tall) + BETWEEN * (len(tall) - 1)
    figure = subplots(
        rows=len(tall),
        cols=columns,
        subplot_titles=[FACETS[x] for x in panels],
        horizontal_spacing=0.06,
        vertical_spacing=BETWEEN / height,
        row_heights=tall,
    )
    for i, facet in enumerate(panels):
        rows = groups[groups["facet"] == facet].sort_values([column, "value"], ascending=[False, True]).head(MOST)[::-1]
        total = float(groups.loc[groups["facet"] == facet, column].fillna(0).sum())
        place = {"row": i // columns + 1, "col": i % columns + 1}
        for trace in _bars(rows, facet, column, total, theme, chosen.get(facet, ())):
            figure.add_trace(trace, **place)
        figure.update_yaxes(range=[len(rows) - tall[i // columns] - 0.5, len(rows) - 0.5], **place)
    top, under = (76 if title else 40), 52
    styled(figure, theme, title=title, height=height + top + under)
    figure.update_xaxes(tickformat=".0%", rangemode="tozero", title={"text": unit}, nticks=5, zeroline=False)
    figure.update_yaxes(showgrid=False, showticklabels=False, type="category", fixedrange=True)
    figure.update_layout(showlegend=False, margin={"l": 24, "t": top, "b": under})
    figure.update_annotations(font={"size": 12, "color": theme.ink}, xanchor="left", yshift=4)
    for i, annotation in enumerate(figure.layout["annotations"]):
        annotation["x"] = figure.layout["xaxis" + (str(i + 1) if i else "")]["domain"][0]
    return figure


ROOM = 28
"""Characters of a bar's name: a third of the chart of a window of 1,024 pixels."""
BAR, BETWEEN = 32, 84
"""Pixels from bar to bar, and from one row of panels to the next."""


def _bars(
    rows: pd.DataFrame, facet: str, column: str, total: float, theme: Theme, chosen: Sequence[str]
) -> tuple[Trace, Trace]:
    """Bars of one facet and their names, cut and made unique, since equal labels would stack.

    Names stand above their bars: beside them, long ones would reach into the next panel of a narrow window.
    """
    names = distinct(all_shown(shortened([facet_text(facet, str(v)) for v in rows["value"]], ROOM)))
    both: dict[str, Any] = {
        "y": names,
        "customdata": [
            [facet, str(v), int(p), shown(facet_text(facet, str(v), whole=True), 200), share]
            for v, p, share in zip(rows["value"], rows["problems"], _shares(rows[column], total), strict=True)
        ],
        "hovertemplate": HOVER,
    }
    bars = bar(
        x=_shares(rows[column], total),
        orientation="h",
        width=0.3,
        offset=-0.4,
        marker={
            "color": [theme.accent if not chosen or v in chosen else theme.grid for v in rows["value"]],
            "line": {"width": 0},
        },
        **both,
    )
    look = {"size": 11, "color": theme.ink}
    return bars, scatter(x=[0] * len(names), mode="text", text=names, textposition="top right", textfont=look, **both)


def _shares(amounts: pd.Series, total: float) -> list[float]:
    return [float(v or 0) / total if total else 0.0 for v in amounts.fillna(0)]


def _without_records(sources: pd.DataFrame) -> pd.DataFrame:
    """The sources with all that a replay recorded, one source per problem, folded into one row."""
    if "format" not in sources.columns:
        return sources
    replayed = sources["format"] == "replay"
    if replayed.sum() < 2:
        return sources
    counts = [name for name in sources.columns if name == "lines" or name.endswith("_lines")]
    folded = sources.loc[replayed, counts].sum().to_frame().T.assign(path=f"{int(replayed.sum()):,} replay records")
    return pd.concat([sources[~replayed], folded], ignore_index=True)


def completeness(sources: pd.DataFrame, theme: Theme, *, title: str = "") -> Figure:
    """What every line of every file became, as shares; rejects are what should not be there.

    ``sources`` has the columns of the SQL view: ``path, lines`` and a ``*_lines`` column per unit.
    """
    if not len(sources):
        return blank(NOTHING, theme, title=title)
    rows = _without_records(sources).sort_values("lines", ascending=False).head(12)[::-1]
    names = distinct(shown(str(path).rsplit("/", 1)[-1], 44) for path in rows["path"])
    figure = Figure()
    colours: Mapping[str, str] = dict(
        zip(UNITS, (*theme.categories[:4], theme.alarm, theme.faint, theme.grid), strict=True)
    )
    total = rows[[f"{unit}_lines" for unit in UNITS]].sum(axis=1).clip(lower=1)
    if not rows["lines"].sum():
        return blank(NOTHING_HELD, theme, title=title, height=200)
    for unit in UNITS:
        counts = rows[f"{unit}_lines"].fillna(0)
        if not counts.sum():
            continue
        figure.add_bar(
            y=names,
            x=list(counts / total),
            name={"reject": "rejected"}.get(unit, unit),
            orientation="h",
            marker={"color": colours[unit], "line": {"width": 0}},
            customdata=[int(x) for x in counts],
            hovertemplate="%{y}<br>%{fullData.name}: %{customdata:,} lines (%{x:.1%})<extra></extra>",
        )
    styled(figure, theme, title=title, height=170 + 30 * len(rows))
    figure.update_layout(
        barmode="stack",
        bargap=0.35,
        showlegend=True,
        legend={"traceorder": "normal"},
        margin={"t": 84 if title else 46},
    )
    figure.update_xaxes(tickformat=".0%", range=[0, 1], title={"text": "share of lines"})
    figure.update_yaxes(showgrid=False, type="category")
    return figure
