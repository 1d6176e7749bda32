"""A plotly figure as plain data, with the methods of ``plotly.graph_objects.Figure`` that the charts use.

Plotly's own class checks every value, which takes 40 to 70 ms of each click. The browser's plotly.js checks the values
anyway.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logparse.lazy import pd


# The module notebook makes figures of plotly's class from this data, and the tests check all settings there. The checks
# would take a quarter of a second of the first view.
class Figure:
    """A plotly figure as plain dictionaries: ``data`` and ``layout``, as plotly.js takes them."""

    def __init__(self) -> None:
        self.data: list[dict[str, Any]] = []
        self.layout: dict[str, Any] = {}
        self._plots = 1

    def add_bar(self, **settings: Any) -> None:
        self._add("bar", **settings)

    def add_scatter(self, **settings: Any) -> None:
        self._add("scatter", **settings)

    def add_scattergl(self, **settings: Any) -> None:
        self._add("scattergl", **settings)

    def _add(self, kind: str, *, col: int | None = None, **settings: Any) -> None:
        """Add one series of marks (plotly calls it a trace) to the figure.

        ``col`` is the number of the plot if the figure has several.
        """
        place = {} if col is None else {axis + "axis": axis + _number(col) for axis in "xy"}
        self.data.append({"type": kind, **settings, **place})

    def add_annotation(self, **settings: Any) -> None:
        self.layout.setdefault("annotations", []).append(settings)

    def add_vline(self, x: float, *, col: int = 1, **settings: Any) -> None:
        """Add a vertical line over the whole height of a plot."""
        number = _number(col)
        ends = {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "xref": f"x{number}", "yref": f"y{number} domain"}
        self.layout.setdefault("shapes", []).append({**ends, **settings})

    def add_vrect(self, x0: float, x1: float, **settings: Any) -> None:
        """Add a rectangle over the whole height of the plot, below the marks."""
        ends = {"type": "rect", "x0": x0, "x1": x1, "y0": 0, "y1": 1, "xref": "x", "yref": "y domain", "layer": "below"}
        self.layout.setdefault("shapes", []).append({**ends, **settings})

    def update_layout(self, **settings: Any) -> None:
        """Merge settings into the figure's layout. All other settings are kept, also inside groups of settings."""
        _merge(self.layout, settings)

    def update_annotations(self, selector: Mapping[str, Any] | None = None, **settings: Any) -> None:
        """Change the texts that are already in the figure.

        With ``selector``, change only the texts whose settings match it.
        """
        for annotation in self.layout.get("annotations", ()):
            if all(annotation.get(name) == value for name, value in (selector or {}).items()):
                _merge(annotation, settings)

    def update_xaxes(self, *, col: int | None = None, **settings: Any) -> None:
        self._update_axes("x", col, settings)

    def update_yaxes(self, *, col: int | None = None, **settings: Any) -> None:
        self._update_axes("y", col, settings)

    def plain(self, *, webgl: bool = True) -> dict[str, Any]:
        """Return the figure as lists, dictionaries, texts and finite numbers, so that it can be written as JSON.

        Without ``webgl``, points are drawn as SVG, which is slower but needs no WebGL. Numbers that are not finite
        become None.
        """
        data = _plain(self.data)
        if not webgl:
            data = [{**x, "type": "scatter"} if x["type"] == "scattergl" else x for x in data]
        return {"data": data, "layout": _plain(self.layout)}

    def _update_axes(self, axis: str, col: int | None, settings: Mapping[str, Any]) -> None:
        """Change the axis of one plot, or of all plots."""
        for number in map(_number, range(1, self._plots + 1) if col is None else [col]):
            _merge(self.layout.setdefault(f"{axis}axis{number}", {}), settings)


def _number(col: int) -> str:
    return str(col) if col > 1 else ""


def subplots(titles: Sequence[str], *, horizontal_spacing: float) -> Figure:
    """Return a figure with several plots side by side. Each plot has its own axes and is numbered from 1 at the left.

    ``horizontal_spacing`` is the gap between plots as a fraction of the whole width.
    """
    figure = Figure()
    figure._plots = cols = len(titles)
    wide = (1 - horizontal_spacing * (cols - 1)) / cols
    for col, title in enumerate(titles):
        number = _number(col + 1)
        left = col * (wide + horizontal_spacing)
        figure.layout[f"xaxis{number}"] = {"anchor": f"y{number}", "domain": [left, left + wide]}
        figure.layout[f"yaxis{number}"] = {"anchor": f"x{number}", "domain": [0.0, 1.0]}
        figure.add_annotation(
            text=title, x=left + wide / 2, y=1.0, xref="paper", yref="paper", xanchor="center", yanchor="bottom",
            showarrow=False,
        )  # fmt: skip
    return figure


def _merge(settings: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, dict):
            _merge(settings.setdefault(name, {}), value)
        else:
            settings[name] = value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, np.ndarray | pd.Series):
        return _to_list(np.asarray(value))
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _to_list(values: np.ndarray) -> list[Any]:
    if values.dtype.kind == "f" and not (finite := np.isfinite(values)).all():
        values = values.astype(object)
        values[~finite] = None
    return list(values.tolist())
