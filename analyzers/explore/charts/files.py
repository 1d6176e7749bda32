"""What the files held: what every line of every file became."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from analyzers.explore.charts.figure import Figure
from analyzers.explore.charts.palette import Theme, blank, styled
from analyzers.explore.plain_text import distinct, shown

NOTHING = "Nothing to show yet.<br>Next: <b>logparse ingest</b> your logs and tuning files, then reload."
NOTHING_HELD = "The files are empty.<br>Next: <b>logparse ingest</b> logs that hold something."
UNITS = ("call", "message", "measurement", "fact", "reject", "foreign", "blank")


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
