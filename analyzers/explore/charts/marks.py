"""Properties that the points of all charts have in common: hover text, size, style."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from analyzers.explore.charts.figure import Figure
from analyzers.explore.charts.palette import SYMBOLS, Theme
from analyzers.explore.plain_text import distinct, escape
from logparse.lazy import pd
from logparse.text import shorten_texts

HOVER = (
    "<b>%{text}</b><br>%{customdata[1]}<br>now %{customdata[5]}%{customdata[2]:.3s}s · best known %{customdata[3]:.3s}s"
    "<br>%{customdata[4]:,.3~r} TFLOP/s<extra></extra>"
)
"""Template of the text that appears when the mouse is on a point.

It contains no text of a log. Texts of logs come through ``text`` and ``customdata``, in which they were already made
safe to show as HTML.
"""


class Look(NamedTuple):
    """The style of one kind of points in a chart: name in the legend, colour, symbol.

    ``whole`` is the tooltip in the legend.
    """

    name: str
    colour: str
    symbol: str
    whole: str = ""


def add_points(
    figure: Figure,
    kinds: np.ndarray,
    looks: Mapping[str, Look],
    size: np.ndarray,
    *,
    opacity: float,
    hovertemplate: str = HOVER,
    **each: np.ndarray,
) -> None:
    """Add points to a figure, each kind of points with its own style and entry in the legend.

    * ``kinds``: the kind of each point.
    * ``looks``: the style of each kind. A kind that is not in ``looks`` is drawn in the style ``""``.
    * ``size``: the diameter of each point, px.
    * ``each``: ``x``, ``y``, ``text`` and ``customdata`` of each point.

    The values are made for all points at once and split here, because pandas takes as long for the few points of one
    kind as for all.
    """
    left = np.ones(len(kinds), dtype=bool)
    for kind, look in looks.items():
        here = kinds == kind if kind else left
        if here.any():
            marker = {"size": size[here], "color": look.colour, "symbol": look.symbol, "opacity": opacity}
            figure.add_scattergl(
                mode="markers",
                name=look.name,
                hovertemplate=hovertemplate,
                marker={**marker, "line": {"width": 0}},
                **({"meta": look.whole} if look.whole else {}),
                **{name: values[here] for name, values in each.items()},
            )
        left = left & ~here


def hover_data(points: pd.DataFrame) -> np.ndarray:
    """Return the data behind each point (a GEMM or convolution), for its hover text and for clicks.

    The columns are id, fastest kernel, seconds now, seconds with the best kernel, TFLOP/s, and ``≥`` if the seconds
    now are a lower bound. Plotly calls such data ``customdata``.
    """
    numbers = np.column_stack([points["time_us"] / 1e6, points["then_us"] / 1e6, points["tflops"]]).astype("float64")
    at_least = np.where(points["at_least"].to_numpy(bool), "≥ ", "").astype(object)
    return np.column_stack(
        [points["id"].to_numpy(object), escape_column(points["solver"]), round_to_six_digits(numbers), at_least]
    )


def round_to_six_digits(values: np.ndarray) -> np.ndarray:
    """Round numbers to six digits, so that the data stay small. A hover text shows no more digits.

    Numbers that are not finite become None.
    """
    size = np.abs(values, where=np.isfinite(values), out=np.ones_like(values))
    scale = 10.0 ** (5 - np.floor(np.log10(np.where(size > 0, size, 1.0))))
    out = (np.round(values * scale) / scale).astype(object)
    out[~np.isfinite(values)] = None
    return out


def escape_column(names: pd.Series) -> np.ndarray:
    """Make a column of texts from a log safe to show as HTML.

    To save time, each distinct text is converted only once.
    """
    codes, distinct = pd.factorize(names, use_na_sentinel=False)
    return texts(distinct, 60)[codes]


def columns(rows: Iterable[Sequence[object]]) -> np.ndarray:
    """Convert rows to an array of objects for plotly's ``customdata``.

    With a list, plotly would convert every row itself.
    """
    return np.array([tuple(row) for row in rows], dtype=object)


def texts(values: Iterable[object], longest: int = 120) -> np.ndarray:
    """Make texts safe to show as HTML, and return them as an array.

    An array is used because plotly would check each text of a list.
    """
    # Taking them from the Series one by one takes six times as long.
    known = values.tolist() if isinstance(values, pd.Series) else values
    return np.array([escape(text, longest) for text in known], dtype=object)


def sizes(weights: pd.Series, smallest: float = 5.0, largest: float = 30.0) -> np.ndarray:
    """Return the diameters (px) of markers whose areas are proportional to ``weights``.

    If no weight is known, all markers have the smallest diameter.
    """
    known = weights.to_numpy(dtype="float64", na_value=0.0)
    top = known.max(initial=0.0)
    area = known / top if top > 0 else np.zeros(len(known))
    return np.round(np.maximum(smallest, largest * np.sqrt(area)), 2)


def categories(common: Counter[str], theme: Theme, other: str) -> Mapping[str, Look]:
    """Choose a colour and a symbol for each of the six most frequent names.

    All other names get one common style with the key ``""``. The legend calls it ``other``. A name keeps its style
    while the user changes filters if ``common`` counts the names of the whole run.
    """
    order = sorted(common, key=lambda x: (-common[x], x))
    some = order[: len(SYMBOLS)]
    names = distinct(escape(x, _LEGEND) for x in shorten_texts(some, _LEGEND))
    looks = map(Look, names, theme.categories, SYMBOLS, (escape(x, _TOOLTIP) for x in some))
    made = dict(zip(some, looks, strict=False))
    return {**made, "": Look(other, theme.faint, "circle")}


_LEGEND, _TOOLTIP = 48, 2_000
"""Largest number of characters of a name in the legend and in its tooltip. MIOpen's solvers have shorter names."""


def log_axis(values: pd.Series) -> dict[str, Any]:
    """Return plotly's settings for a logarithmic axis with tick marks that suit the values."""
    known = values[values > 0]
    # Largest / smallest above 300: one tick per decade. Above 10: ticks at 1, 2 and 5. Otherwise plotly chooses the
    # ticks. A tick shows its whole number, such as 10,000.
    return log_axis_over(float(known.max()) / float(known.min()) if len(known) else 1.0)


def log_axis_over(ratio: float, most: float = 300) -> dict[str, Any]:
    """Return plotly's settings for a logarithmic axis on which the largest value is ``ratio`` times the smallest.

    If ``ratio`` is at most ``most``, there are also ticks between the powers of ten.
    """
    steps = {"dtick": 1} if ratio > most else {"dtick": "D2"} if ratio > 10 else {"nticks": 8}
    return {"type": "log", **steps, "tickformat": ",~r"}
