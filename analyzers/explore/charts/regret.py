"""Draw how much time is lost because the library does not choose the fastest kernels, and what N changes would save."""

from __future__ import annotations

from analyzers.explore.charts.figure import Figure, subplots
from analyzers.explore.charts.marks import columns, texts
from analyzers.explore.charts.palette import Theme, blank, headline, styled
from logparse.lazy import pd
from logparse.text import duration

NOTHING = (
    "No pick is timed against an alternative here, so there is no regret to show.<br>"
    "Next: ingest timings of the same problems, or measure: <b>logparse replay</b>"
)
SHARE = 0.9
HEIGHT = 460  # Height in px, with and without data, so that a filter moves nothing below the chart.


def rows_for(savings: pd.DataFrame) -> int:
    """Return how many of the largest savings make up 90 % (``SHARE``) of the sum of all. 0 without savings."""
    if not len(savings):
        return 0
    reached = savings["saving_us"].cumsum() >= SHARE * float(savings["total_saving_us"].iloc[0])
    return int(reached.to_numpy().argmax()) + 1 if reached.any() else len(savings)


def regret(regrets: pd.DataFrame, savings: pd.DataFrame, theme: Theme) -> Figure:
    """Draw the time that is lost because the library does not choose the fastest known kernels.

    * Left: the number of operators by loss (``queries.regrets``).
    * Right: time saved by replacing N kernels (``queries.find_largest_savings``).
    """
    judged = regrets[regrets["problems"] > 0]
    if not len(judged) and not len(savings):
        return blank(NOTHING, theme, height=HEIGHT)
    titles = ["Regret of the picks"] * bool(len(judged)) + ["Time saved by the first N rows"] * bool(len(savings))
    figure = subplots(titles, horizontal_spacing=0.14)
    if len(judged):
        _classes(figure, regrets, theme)
    nothing = ["No change that an override file can make has a measured saving"]
    remark = _cumulative(figure, savings, theme, len(titles)) if len(savings) else nothing
    styled(figure, theme, height=HEIGHT)
    figure.update_layout(showlegend=False)
    figure.update_annotations(selector={"yanchor": "bottom"}, font={"size": 12, "color": theme.ink})
    headline(figure, "<br>".join(remark), theme, lines=len(remark))
    return figure


def _classes(figure: Figure, regrets: pd.DataFrame, theme: Theme) -> None:
    ends = zip(regrets["low"], regrets["high"], strict=True)
    names = [f"{100 * low:.0f}–{high:.0%}" if high < 1e6 else f"> {low:.0%}" for low, high in ends]
    total = float(regrets["total_us"].sum()) or 1.0
    figure.add_bar(
        x=names,
        y=list(regrets["problems"]),
        marker={"color": [theme.alarm if low >= 0.1 else theme.accent for low in regrets["low"]], "line": {"width": 0}},
        customdata=[
            ["regret", low, high, time / total]
            for low, high, time in zip(regrets["low"], regrets["high"], regrets["total_us"], strict=True)
        ],
        hovertemplate="regret %{x}<br>%{y:,} problems<br>%{customdata[3]:.1%} of their time<extra></extra>",
        col=1,
    )
    figure.update_xaxes(title={"text": "regret: pick / best known − 1"}, type="category", tickangle=-40, col=1)
    few = {"dtick": 1} if regrets["problems"].max() <= 8 else {}  # Without it the axis would show half problems.
    figure.update_yaxes(title={"text": "problems"}, **few, col=1)


def _cumulative(figure: Figure, savings: pd.DataFrame, theme: Theme, column: int) -> list[str]:
    """Draw how much time is saved in total if only the N most useful kernels are replaced, as a curve over N.

    Returns a list with a remark: how few of them give most of the saving.
    """
    count, total = int(savings["count"].iloc[0]), float(savings["total_saving_us"].iloc[0])
    needed = rows_for(savings)
    curve = savings["saving_us"].cumsum() / 1e3
    figure.add_scatter(
        x=list(range(1, len(savings) + 1)),
        y=list(curve),
        mode="lines+markers" if len(savings) <= 60 else "lines",
        line={"color": theme.accent, "width": 2},
        marker={"size": 7},
        fill="tozeroy",
        cliponaxis=False,
        fillcolor=_transparent(theme.accent),
        text=texts(savings["label"]),
        customdata=columns(zip(savings["id"], savings["saving_us"] / 1e6, strict=True)),
        hovertemplate="row %{x}: <b>%{text}</b><br>saves %{customdata[1]:.3s}s<br>in all %{y:,.4~r} ms<extra></extra>",
        col=column,
    )
    figure.add_vline(x=needed, line={"color": theme.alarm, "width": 1, "dash": "dot"}, col=column)
    once = f" of a {savings['unit'].iloc[0]}" if savings["calls"].notna().any() else " (each problem called once)"
    whole = {"dtick": 1} if len(savings) <= 8 else {}  # Without it the axis would show half rows.
    figure.update_xaxes(title={"text": "rows changed, most valuable first"}, rangemode="tozero", **whole, col=column)
    figure.update_yaxes(title={"text": f"time saved{once}, ms"}, rangemode="tozero", col=column)
    rows = "row gives" if needed == 1 else f"{needed:,} rows give"
    return [f"The first {rows} {SHARE:.0%} of {duration(total)}{once} in {count:,} rows"]


def _transparent(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.15)"
