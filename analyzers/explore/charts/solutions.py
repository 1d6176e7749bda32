"""Every solution of one problem with its samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from analyzers.explore.charts.figure import Figure
from analyzers.explore.charts.marks import log_axis
from analyzers.explore.charts.palette import Theme, axis_look, blank, layout_look
from analyzers.explore.plain_text import all_shown, distinct, shown, solution_name

NOTHING = "No solution of this problem was ever timed.<br>Next: <b>logparse replay</b>, or run the bench command below"
MOST = 40


def solutions(tries: pd.DataFrame, theme: Theme, *, pick: str | None = None, title: str = "") -> Figure:
    """A row per solution, the fastest on top: samples as a strip, else the file's interval, else one point.

    ``tries`` has columns of the view ``measurements``; ``pick`` is the solution that the library chose, marked.
    """
    if not len(tries):
        return blank(NOTHING, theme, title=title, height=220)
    best = tries.groupby("solution")["time_us"].min().reset_index()
    order = list(best.sort_values(["time_us", "solution"], na_position="last")["solution"].head(MOST))
    names = _names(order, pick)
    rows = tries[tries["solution"].isin(order)]
    timed = rows[rows["time_us"] > 0]
    data = _strips(timed, names, theme)
    for group, look, legend in (
        (timed[timed["solution"] != pick], {"color": theme.accent, "size": 11}, "time"),
        (timed[timed["solution"] == pick], {"color": theme.alarm, "size": 15, "symbol": "star"}, "the pick"),
    ):
        if len(group):
            data.append({**_times(group, names), "name": legend, "mode": "markers", "marker": look})
    data += _failures(rows[~(rows["time_us"] > 0)], names, timed, theme)
    spread = float(timed["time_us"].max()) / float(timed["time_us"].min()) if len(timed) else 1.0
    shared = axis_look(theme)
    # Close ones fill the width, so that samples and intervals can be distinguished; else zero is in sight.
    linear: dict[str, Any] = {"type": "linear", "rangemode": "tozero" if spread > 2 else "normal", "nticks": 8}
    across = log_axis(timed["time_us"]) if spread > 20 else linear
    unit = {**shared["title"], "text": "time of one call (µs)" + (", logarithmic" if spread > 20 else "")}
    hidden = tries["solution"].nunique() - len(order)
    spaces = _workspaces(rows, names)
    data += spaces
    layout = {
        **layout_look(theme, title=title, height=120 + 26 * max(4, len(order))),
        "xaxis": {**shared, **across, "title": unit, **({"domain": [0, 0.86]} if spaces else {})},
        "yaxis": {
            **shared,
            "type": "category",
            "categoryorder": "array",
            "categoryarray": [names[x] for x in reversed(order)],
        },
        **({"xaxis2": _beside(shared, "workspace")} if spaces else {}),
        "annotations": [_hidden(hidden, theme)] if hidden > 0 else [],
        "showlegend": True,
    }
    layout["margin"]["t"] = 76 if title else 46
    figure = Figure(*data)
    figure.update_layout(**layout)
    return figure


def _workspaces(rows: pd.DataFrame, names: dict[str, str]) -> list[dict[str, Any]]:
    """What each solution needs, as a column of text at the right; none where no file has it."""
    known = rows[rows["workspace_bytes"].notna()].groupby("solution")["workspace_bytes"].max()
    if not len(known):
        return []
    return [
        {
            "type": "scatter", "mode": "text", "xaxis": "x2", "x": [0] * len(known),
            "y": [names[x] for x in known.index], "text": [_bytes(x) for x in known], "textposition": "middle right",
            "textfont": {"size": 11}, "hoverinfo": "skip", "showlegend": False,
        }
    ]  # fmt: skip


def _beside(shared: Mapping[str, Any], title: str) -> dict[str, Any]:
    """An axis for a column of text."""
    return {**shared, "domain": [0.88, 1], "range": [0, 1], "title": {**shared["title"], "text": title}, "side": "top",
            "showticklabels": False, "showgrid": False, "zeroline": False, "fixedrange": True}  # fmt: skip


def _hidden(count: int, theme: Theme) -> dict[str, object]:
    return {
        "text": f"{count:,} slower ones are not shown", "xref": "paper", "yref": "paper", "x": 1, "y": 1,
        "xanchor": "right", "yanchor": "bottom", "showarrow": False, "font": {"size": 11, "color": theme.faint},
    }  # fmt: skip


def _names(order: list[str], pick: str | None) -> dict[str, str]:
    """Unique axis labels (equal ones would fall together), the pick in bold."""
    unique = distinct(shown(solution_name(text), 46) for text in order)
    return {text: f"<b>{name}</b>" if text == pick else name for text, name in zip(order, unique, strict=True)}


def _times(rows: pd.DataFrame, names: dict[str, str]) -> dict[str, Any]:
    """One mark per measurement, with the interval of the file's own statistics where it has them."""
    time = rows["time_us"].astype("float64")
    high, low = rows["max_us"].astype("float64") - time, time - rows["min_us"].astype("float64")
    return {
        "type": "scatter",
        "x": list(time),
        "y": [names[x] for x in rows["solution"]],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": list(high.clip(lower=0).fillna(0)),
            "arrayminus": list(low.clip(lower=0).fillna(0)),
            "visible": bool(high.notna().any()),
            "thickness": 1.2,
        },
        "customdata": [
            [_bytes(w), shown(o, 30), shown(e, 90), shown(s, 160)]
            for w, o, e, s in zip(rows["workspace_bytes"], rows["origin"], rows["error"], rows["solution"], strict=True)
        ],
        "hovertemplate": "<b>%{customdata[3]}</b><br>%{x:,.5~r} µs<br>workspace %{customdata[0]}"
        "<br>measured by %{customdata[1]}<br>%{customdata[2]}<extra></extra>",
    }


def _strips(rows: pd.DataFrame, names: dict[str, str], theme: Theme) -> list[dict[str, Any]]:
    x, y = list[float](), list[str]()
    for solution, samples in zip(rows["solution"], rows["samples_us"], strict=True):
        values = [] if samples is None or isinstance(samples, float) or samples is pd.NA else list(samples)[:200]
        x += [float(v) for v in values]
        y += [names[solution]] * len(values)
    if not x:
        return []
    look = {"symbol": "line-ns-open", "size": 20, "color": theme.faint}
    template = "sample %{x:,.5~r} µs<extra></extra>"
    return [
        {
            "type": "scatter",
            "x": x,
            "y": y,
            "mode": "markers",
            "name": "samples",
            "hovertemplate": template,
            "marker": look,
        }
    ]


def _failures(rows: pd.DataFrame, names: dict[str, str], timed: pd.DataFrame, theme: Theme) -> list[dict[str, Any]]:
    """Solutions that gave no time, at the left edge, with what went wrong."""
    if not len(rows):
        return []
    edge = float(timed["time_us"].min()) if len(timed) else 1.0
    words = [f"{s}: {e}" if isinstance(e, str) else str(s) for s, e in zip(rows["status"], rows["error"], strict=True)]
    return [
        {
            "type": "scatter",
            "x": [edge] * len(rows),
            "y": [names[x] for x in rows["solution"]],
            "mode": "text",
            "name": "no time",
            "text": all_shown(words, 40),
            "textposition": "middle right",
            "textfont": {"color": theme.faint, "size": 11},
            "hoverinfo": "text",
        }
    ]


def _bytes(value: object) -> str:
    if value is None or pd.isna(value):  # type: ignore[call-overload]
        return "unknown"
    number = float(str(value))
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if number >= size:
            return f"{number / size:,.4g} {unit}"
    return f"{number:,.0f} bytes" if number else "none"
