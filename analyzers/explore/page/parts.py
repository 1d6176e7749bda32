"""Answer the browser's requests for the content of the page that depends on the selection.

``assets/explore.js`` requests each part of the content with one request and draws it.  With Dash's callbacks each part
would need a chain of requests, and every chart would be drawn twice.  The answers are Dash components, from which the
browser makes plain HTML elements.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dash import html

from analyzers.explore import queries
from analyzers.explore.charts.palette import EMPTY, theme_of
from analyzers.explore.charts.solutions import solutions
from analyzers.explore.page import components
from analyzers.explore.page.data import PageData, Pages
from analyzers.explore.page.paste import advice
from analyzers.explore.page.table import rows
from analyzers.explore.selection import INTRO, Selection, from_url
from analyzers.explore.views import BOXES, ChartStyle, chart, clicked
from logparse.errors import LogparseError

FILES_URL, TABLE_URL = "/overrides.zip", "/problems.csv"
FILTERED = "Nothing to draw is left under these filters.<br>Next: take one away, or clear them all."


def surroundings(pages: Pages, asked: Mapping[str, Any]) -> dict[str, object]:
    """Return everything but charts, table and card, by the ids of the page's elements.

    The entry ``filters`` is plain data, and ``content`` holds class names.  ``asked`` has ``search``: the URL's query
    string, without parameters that change no filter.
    """
    chosen = _chosen(asked)
    page = pages.of(chosen)
    frame: dict[str, object] = {
        "tabs": components.tabs(chosen),
        "chips": components.chips(chosen),
        "filters": [],
        "intro": "",
        "answer": [],
        "runs": [],
        "content": f"content {chosen.view}",
    }
    try:
        with page.cursor() as con:
            total, groups = queries.totals(con, chosen), queries.groups(con, chosen)
    except LogparseError as error:
        return {**frame, "verdict": components.unreadable(str(error))}
    frame["verdict"] = (
        components.unreadable(page.error)
        if page.error
        else components.verdict(page.verdict, total, page.run, chosen, finished=page.finished)
    )
    frame["filters"] = components.facets(groups, chosen)
    frame["runs"] = components.runs(page.runs, page.run, page.other, chosen)
    frame["intro"] = INTRO[chosen.view]
    frame["answer"] = _answer(page, chosen)
    if chosen.view == "compare" and page.other:
        frame["content"] = "content compare beside"
    return frame


def _answer(page: PageData, chosen: Selection) -> list[object]:
    if chosen.view == "overview":
        files = FILES_URL + replace(chosen.cleared(), view="overview").url() if page.files else ""
        return components.answer(page.verdict.actions, page.verdict.time, files)
    if chosen.view == "compare":
        with page.cursor() as con:
            totals = queries.changes(con, chosen)
        choice = len(page.runs) > 1
        known = page.verdict
        return components.comparison(known, page.other, totals, finished=page.finished, choice=choice)
    return []


def drawn(pages: Pages, asked: Mapping[str, Any]) -> dict[str, object]:
    """Return the ``figure`` of the selection's view and the ``style`` of its box.

    Both are missing if there is no figure.  ``asked`` has ``search``, ``theme``, and ``webgl`` (True if the browser has
    WebGL).
    """
    chosen = _chosen(asked)
    page = pages.of(chosen)
    try:
        with page.cursor() as con:
            nothing = chosen.view == "compare" and not page.other  # The text above states what to do.
            style = ChartStyle(theme_of(str(asked.get("theme"))), names=page.names, headed=False)
            figure = None if nothing else chart(con, chosen, style)
    except LogparseError:
        figure = None
    if figure is None or (chosen.view == "compare" and not figure.data and not page.finished):
        return {}
    figure.layout["uirevision"] = chosen.view  # A zoom is kept while filters change. The next view has axes of its own.
    if not figure.data and chosen.filters:
        figure.layout["annotations"][0]["text"] = FILTERED
    elif not figure.data:
        figure.layout["height"] = EMPTY
    if not figure.data and chosen.view in BOXES:  # Plotly keeps WebGL as long as the figure has anything to draw.
        figure.add_scattergl(x=[None], y=[None], mode="markers", showlegend=False, hoverinfo="skip")
    return {"figure": figure.plain(webgl=bool(asked.get("webgl"))), "style": components.height_of(figure)}


def card(pages: Pages, asked: Mapping[str, Any]) -> dict[str, object]:
    """Return the ``card`` of the selection's problem, and the ``figure`` of its solutions."""
    chosen = _chosen(asked)
    page = pages.of(chosen)
    try:
        with page.cursor() as con:
            row = queries.one(con, chosen.problem)
        if row is None:
            return {"card": html.P("This problem is not in the store (any more).", className="faint")}
        tries = page.tries(row)
        verdict = page.verdict if page.verdict.headline else None
        advised = advice(row, {**page.facts(row["source_id"]), **page.target}, verdict)
    except LogparseError as error:
        return {"card": html.P(str(error))}
    pick = row["pick"] if isinstance(row["pick"], str) else None
    figure = solutions(tries, theme_of(str(asked.get("theme"))), pick=pick)
    box = html.Div(id="solutions", className="chart", style=components.height_of(figure))
    made = components.detail(row, advised, box, replace(chosen, problem="").url())
    return {"card": made, "figure": figure.plain()}


def after_click(_: Pages, asked: Mapping[str, Any]) -> dict[str, object]:
    """Return the URL's query string (``search``) after a click or a box in a chart.

    Return None if the click or box selects nothing.  ``asked`` has ``search``, ``data`` of plotly's event, and
    ``boxed``.
    """
    chosen, data = _chosen(asked), asked.get("data")
    if not isinstance(data, dict):
        return {"search": None}
    try:
        new = clicked(chosen, data, boxed=bool(asked.get("boxed")))
    except (AttributeError, IndexError, TypeError, ValueError):  # The data are no event of plotly's.
        new = chosen
    return {"search": None if new == chosen else new.url()}


def watch(pages: Pages, asked: Mapping[str, Any]) -> dict[str, object]:
    """Return the progress of reading the page's store."""
    page = pages.of(_chosen(asked))
    return {"version": page.version, "finished": page.finished, "doing": page.doing}


PARTS: Mapping[str, Callable[[Pages, Mapping[str, Any]], dict[str, object]]] = {
    "surroundings": surroundings,
    "chart": drawn,
    "card": card,
    "rows": rows,
    "click": after_click,
    "watch": watch,
}


def as_json(part: Mapping[str, object]) -> str:
    """Return a part of the page as JSON for the browser.  A component becomes its type and properties."""
    return json.dumps(part, separators=(",", ":"), ensure_ascii=False, default=lambda x: x.to_plotly_json())


def _chosen(asked: Mapping[str, Any]) -> Selection:
    return from_url(str(asked.get("search") or ""))
