"""The parts of the page that follow from the selection: what the browser asks for, and what it gets.

``assets/explore.js`` asks for each with one request and draws it; through Dash's callbacks each would be a chain of
requests, and every chart would be drawn twice.  Components are Dash's; the browser makes plain elements of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
from dash import html

from analyzers.explore import queries
from analyzers.explore.charts.figure import Figure
from analyzers.explore.charts.palette import theme_of
from analyzers.explore.charts.solutions import solutions
from analyzers.explore.page import components
from analyzers.explore.page.data import PageData, Pages
from analyzers.explore.page.paste import advice
from analyzers.explore.page.table import rows
from analyzers.explore.page.views import POINTS, clicked, draw, draw_later, later
from analyzers.explore.selection import Selection, from_url
from logparse.errors import LogparseError

FILES_URL = "/overrides.zip"


def first_view(chosen: Selection) -> bool:
    """Whether a selection's sums and charts need no more than what is there first."""
    return chosen.view == "overview" and not chosen.filters


def surroundings(pages: Pages, asked: Mapping[str, Any]) -> dict[str, object]:
    """All but charts, table and card, by the ids of the elements; ``filters`` is data, ``content`` names classes.

    ``asked``: ``search``, the URL's query string, without what changes no filter.
    """
    chosen = _chosen(asked)
    page, sql = pages.of(chosen), chosen.view == "sql"
    frame: dict[str, object] = {
        "tabs": components.tabs(chosen),
        "chips": components.chips(chosen),
        "filters": [],
        "columns": [],
        "intro": "",
        "answer": [],
        "runs": [],
        "content": f"content {chosen.view}",
    }
    try:
        with page.cursor(first_view=first_view(chosen)) as con:
            total, groups = queries.totals(con, chosen), queries.groups(con, chosen)
    except LogparseError as error:
        return {
            **frame,
            "verdict": components.verdict("", (), pd.Series(), "", error=str(error), finished=True),
        }
    remarks = components.REMARKS if chosen.view == "overview" else 0
    known = (page.headline, page.lines, total, page.run)
    frame["verdict"] = components.verdict(
        *known, error=page.error, finished=page.finished, remarks=remarks, filtered=chosen.filters
    )
    if sql:
        frame["columns"] = components.columns(page.columns(), chosen)
    else:
        frame["filters"] = components.facets(groups, chosen)
    frame["runs"] = components.runs(page.runs, page.run, page.other, chosen)
    frame["intro"] = components.INTRO[chosen.view]
    frame["answer"] = _answer(page, chosen)
    if chosen.view == "compare" and page.other:
        frame["content"] = "content compare beside"
    return frame


def _answer(page: PageData, chosen: Selection) -> list[object]:
    if chosen.view == "overview":
        files = FILES_URL + replace(chosen.cleared(), view="overview").url() if page.files else ""
        return components.answer(page.actions, page.time, files)
    if chosen.view == "compare":
        with page.cursor() as con:
            totals = queries.changes(con, chosen)
            worst = queries.movers(con, chosen, components.WORST, only="slower")
        choice = len(page.runs) > 1
        return components.comparison(page.other, totals, worst, chosen, finished=page.finished, choice=choice)
    return []


def charts(pages: Pages, asked: Mapping[str, Any]) -> dict[str, object]:
    """``charts`` of the selection's view, each with its ``place``, and whether one ``later`` follows.

    ``asked``: ``search``, ``theme``, ``webgl`` (whether the browser has it), and ``anew`` (false: only filters differ
    from what is drawn of this view, and a chart that no filter changes is left out).
    """
    chosen, anew = _chosen(asked), bool(asked.get("anew", True))
    page = pages.of(chosen)
    try:
        with page.cursor(first_view=first_view(chosen)) as con:
            nothing = chosen.view == "compare" and not page.other  # the text above states what to do
            theme = theme_of(str(asked.get("theme")))
            made = [] if nothing else draw(con, chosen, theme, page.names, anew=anew)
    except LogparseError:
        made = []
    beginning = components.OF_POINTS if chosen.view in POINTS else 0
    webgl = bool(asked.get("webgl"))
    drawn = [_drawn(x, place, webgl=webgl) for place, x in enumerate(made, beginning) if x is not None]
    return {"charts": drawn, "later": later(chosen, anew=anew)}


def below(pages: Pages, asked: Mapping[str, Any]) -> dict[str, object]:
    """The chart of the view that is below the screen, as in ``charts``."""
    chosen = _chosen(asked)
    try:
        with pages.of(chosen).cursor(first_view=first_view(chosen)) as con:
            made = draw_later(con, chosen, theme_of(str(asked.get("theme"))))
    except LogparseError:
        made = None
    return {"charts": [] if made is None else [_drawn(made[1], made[0], webgl=True)]}


def _drawn(figure: Figure, place: int, *, webgl: bool) -> dict[str, object]:
    return {"place": place, "figure": figure.plain(webgl=webgl), "style": components.height_of(figure)}


def card(pages: Pages, asked: Mapping[str, Any]) -> dict[str, object]:
    """The ``card`` of the selection's problem, and the ``figure`` of its solutions."""
    chosen = _chosen(asked)
    page = pages.of(chosen)
    try:
        with page.cursor() as con:
            row = queries.one(con, chosen.problem)
        if row is None:
            return {"card": html.P("This problem is not in the store (any more).", className="faint")}
        tries, layer = page.tries(row), page.layer(row)
        advised = advice(row, tries, page.facts(row["source_id"]), target=page.target, objects=page.objects)
    except LogparseError as error:
        return {"card": html.P(str(error))}
    pick = row["pick"] if isinstance(row["pick"], str) else None
    figure = solutions(tries, theme_of(str(asked.get("theme"))), pick=pick)
    chart = html.Div(id="solutions", className="chart", style=components.height_of(figure))
    made = components.detail(row, advised, chart, layer, replace(chosen, problem="").url())
    return {"card": made, "figure": figure.plain()}


def after_click(_: Pages, asked: Mapping[str, Any]) -> dict[str, object]:
    """The URL's query string (``search``) after a click or a box in a chart; None where that selects nothing.

    ``asked``: ``search``, ``place`` of the chart, ``data`` of plotly's event, ``boxed``.
    """
    chosen, place, data = _chosen(asked), asked.get("place"), asked.get("data")
    chart = 0 if place == components.OF_POINTS else place
    if not isinstance(chart, int) or not isinstance(data, dict):
        return {"search": None}
    new = clicked(chosen, chart, data, boxed=bool(asked.get("boxed")))
    return {"search": None if new == chosen else new.url()}


PARTS: Mapping[str, Callable[[Pages, Mapping[str, Any]], dict[str, object]]] = {
    "surroundings": surroundings,
    "charts": charts,
    "below": below,
    "card": card,
    "rows": rows,
    "click": after_click,
}


def as_json(part: Mapping[str, object]) -> str:
    """A part as the browser reads it: components as their types and properties."""
    return json.dumps(part, separators=(",", ":"), ensure_ascii=False, default=lambda x: x.to_plotly_json())


def _chosen(asked: Mapping[str, Any]) -> Selection:
    return from_url(str(asked.get("search") or ""))
