"""A chart of any small table: the result of a query."""

from __future__ import annotations

import math

import pandas as pd

from analyzers.explore.charts.figure import Figure
from analyzers.explore.charts.palette import SYMBOLS, Theme, blank, styled
from analyzers.explore.plain_text import all_shown, shown

MOST = 5_000


def anything(table: pd.DataFrame, theme: Theme, *, title: str = "") -> Figure:
    """The first column against the numeric ones: bars over names, markers over numbers, lines over times."""
    numbers = [
        x for x in table.columns if pd.api.types.is_numeric_dtype(table[x]) and not pd.api.types.is_bool_dtype(table[x])
    ]
    if not len(table) or not numbers:
        return blank("Nothing to plot: the result needs a row and a column of numbers", theme, title=title, height=380)
    rows = table.head(MOST)
    first = str(table.columns[0])
    values = [x for x in numbers if x != first] or numbers
    named = first not in numbers and not pd.api.types.is_datetime64_any_dtype(table[first])
    x = all_shown(rows[first], 40) if named else list(rows[first])
    figure = Figure()
    for i, name in enumerate(values[:6]):
        colour, y = (
            theme.categories[i % len(theme.categories)],
            [None if math.isnan(v) else v for v in rows[name].astype("float64")],
        )
        if named:
            figure.add_bar(x=x, y=y, name=shown(name, 40), marker={"color": colour})
        else:
            mode = "markers" if first in numbers else "lines+markers"
            marker = {"color": colour, "symbol": SYMBOLS[i % len(SYMBOLS)]}
            figure.add_scatter(x=x, y=y, name=shown(name, 40), mode=mode, marker=marker)
    styled(figure, theme, title=title, height=380)
    figure.update_xaxes(title={"text": shown(first, 40)})
    if named:
        figure.update_xaxes(type="category")
    figure.update_yaxes(title={"text": shown(values[0], 40) if len(values) == 1 else "value of each column"})
    return figure
