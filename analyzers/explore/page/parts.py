"""Answer the browser's requests for the parts of the web page that depend on the user's filters.

Answers are plain data (``elements``), from which the browser's program ``assets/explore.js`` makes HTML elements.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from analyzers.explore import queries
from analyzers.explore.charts.palette import EMPTY, theme_of
from analyzers.explore.charts.solutions import solutions
from analyzers.explore.load.job import PageVerdict
from analyzers.explore.page import components
from analyzers.explore.page import elements as html
from analyzers.explore.page.data import PageData, Pages
from analyzers.explore.page.paste import Advice, advice
from analyzers.explore.page.table import rows
from analyzers.explore.plain_text import of_one
from analyzers.explore.selection import INTRO, Selection, from_url
from analyzers.explore.tries import Try
from analyzers.explore.views import BOXES, ChartStyle, apply_click, chart
from logparse.errors import LogparseError
from logparse.lazy import duckdb, pd

FILES_URL, TABLE_URL = "/overrides.zip", "/problems.csv"
FILTERED = "Nothing to draw is left under these filters.<br>Next: take one away, or clear them all."


def answer_all_but_chart(pages: Pages, asked: Mapping[str, Any]) -> dict[str, object]:
    """Answer the browser's request for everything on the web page except charts, table and details.

    The result's keys are the ids of HTML elements (see ``content``). ``asked`` has ``search``, the URL's query string.
    """
    chosen = _parse_selection(asked)
    page = pages.of(chosen)
    try:
        only_headline, known = page.wait_for_headline(), progress(page)
        if unknown := pages.unknown(chosen):
            told = components.no_such_run(unknown, page.runs, chosen)
            return {**_FRAME, **known, "verdict": told, "content": "content nothing"}
        if only_headline:
            return {**_FRAME, **headline(page, chosen), **known}
        with page.cursor() as con:
            return {**content(con, page, chosen), **known}
    except LogparseError as error:
        return {
            **_FRAME,
            **progress(page),
            "tabs": components.tabs(chosen),
            "verdict": components.explain_unreadable(str(error)),
        }


_NOTHING: tuple[object, ...] = ()
_FRAME: Mapping[str, object] = {
    **dict.fromkeys(("verdict", "tabs", "chips", "intro", "answer", "after", "runs", "filters"), _NOTHING),
    "base": "",
    "content": "content overview",
}


class Known(Protocol):
    """The data about a run that the web page needs in addition to its tables.

    ``PageData`` describes each attribute.
    """

    verdict: PageVerdict
    judged: bool
    error: str
    run: str
    runs: list[str]
    other: str
    empty: frozenset[str]
    rows_of: Mapping[str, int]
    shared: Mapping[tuple[str, str], int]
    traced: bool

    @property
    def finished(self) -> bool: ...

    @property
    def final(self) -> bool: ...

    @property
    def files(self) -> Path | None: ...


def content(con: duckdb.DuckDBPyConnection, known: Known, chosen: Selection) -> dict[str, object]:
    """Return the contents of the web page, by the id of the HTML element. Four keys have data instead:

    * ``filters``: the filters.
    * ``content``: CSS classes.
    * ``empty``: the columns without values, which are hidden.
    * ``names``: the two runs that are compared.
    """
    total, groups = queries.totals(con, chosen), queries.groups(con, chosen)
    tables = con if known.final else None
    return {
        **headline(known, chosen, tables),
        "tabs": components.tabs(chosen, _find_missing_tabs(known)),
        "chips": components.chips(chosen, known.verdict.actions),
        "filters": components.facets(groups, chosen, final=known.final),
        "base": components.name_base(total, chosen) if known.final else "",
        "runs": components.runs(known.runs, known.run, known.other, chosen, known.verdict.alike),
        "after": _make_elements_below(con, chosen),
        "empty": sorted(known.empty),
        "names": [known.run, known.other],
    }


def headline(known: Known, chosen: Selection, con: duckdb.DuckDBPyConnection | None = None) -> dict[str, object]:
    """Return the part of ``content`` that is shown before the tables have the results of the analyzers.

    * ``con``: the database with these tables. None as long as they are not there. The numbers that need them, such as
      sums of times, are then left out.
    """
    return {
        "verdict": _verdict(known, chosen, con),
        "intro": INTRO[chosen.view],
        "answer": _answer(known, chosen, con),
        "content": f"content {chosen.view}" + " beside" * (chosen.view == "compare" and bool(known.other)),
    }


def _verdict(known: Known, chosen: Selection, con: duckdb.DuckDBPyConnection | None) -> list[object]:
    if known.error:
        return components.explain_unreadable(known.error)
    if not known.judged or (known.other and con is None):  # The headline of a comparison needs the tables.
        return components.skeleton()
    if con is None:
        return components.verdict(known.verdict, None, known.run, chosen)
    total, (changed, unlogged) = queries.totals(con, chosen), _change(con, known)
    left = queries.analyzers(con, chosen) if chosen.filters else ()
    return components.verdict(known.verdict, total, known.run, chosen, changed, unlogged, left)


def _find_missing_tabs(known: Known) -> dict[str, str]:
    """Return the tabs for which the run has no data, and why."""
    made = {} if known.traced else {"timeline": "This run has no trace."}
    if known.final and "sibling_ratio" in known.empty:
        made["weights"] = "This run has no layer with times of its backward-weight pass (W) and of another pass."
    return made


def progress(page: PageData) -> dict[str, object]:
    """Return how far the data are loaded: their versions, whether more will come, and a text for the user."""
    versions = {"version": page.version, "tables": page.tables_version}
    return {**versions, "finished": page.finished, "doing": page.doing}


def _answer(known: Known, chosen: Selection, con: duckdb.DuckDBPyConnection | None) -> list[object]:
    if chosen.view == "overview":
        return _what_to_do(known, chosen, con)
    if chosen.view == "compare":
        if not known.other:
            return components.offer_comparisons(known.runs, known.run, chosen, known.verdict.alike)
        changed = None if con is None else queries.changes(con, chosen)
        return components.comparison(known.verdict, (known.run, known.other), changed)
    return []


def _what_to_do(known: Known, chosen: Selection, con: duckdb.DuckDBPyConnection | None) -> list[object]:
    """Return the main part of the overview: where the time goes, and the cards of things to do."""
    if not known.judged or (chosen.filters and con is None):
        return [html.div([html.span("", class_="bone") for _ in range(3)], class_="skeleton")]
    of, files = known.verdict, FILES_URL + replace(chosen.cleared(), view="overview").url() if known.files else ""
    if con is None:
        leads = components.Leads(None, traced=False, download=files)
        return components.answer(of.actions, of.time, None, chosen, leads, order=of.order, together=of.together)
    about = queries.todos(con, chosen) if chosen.filters else None
    parts, untimed = queries.sum_time_by_kind(con, chosen), queries.totals(con, chosen)["untimed_calls"]
    leads = components.Leads(known.rows_of, known.traced, files, known.shared)
    return components.answer(of.actions, of.time, parts, chosen, leads, about, untimed, of.order, of.together)


def _change(con: duckdb.DuckDBPyConnection, known: Known) -> tuple[list[str], str]:
    """Return two texts about a comparison: sentences about what changed, and what only the earlier run has.

    Both are empty without another run.
    """
    if not known.other:
        return [], ""
    names = known.run, known.other
    changed = components.change(known.verdict, names, queries.changes(con, Selection()))
    return changed, components.list_unlogged(known.verdict, names)


def _make_elements_below(con: duckdb.DuckDBPyConnection, chosen: Selection) -> list[object]:
    """Return the elements below the chart: the table of kernels, or a text about solvers that no log names."""
    if chosen.view == "weights" and (told := components.say_where_w_is_from(*queries.find_unnamed_weights(con))):
        return [html.p(told, class_="remark")]
    if chosen.view != "timeline":
        return []
    total, per_step = queries.kernels_us(con)
    ((unit,),) = con.execute("select any_value(unit) from points").fetchall() if per_step else [(None,)]
    return components.kernels(queries.kernels(con, components.KERNELS), total, of_one(unit), chosen)


def answer_chart(pages: Pages, asked: Mapping[str, Any]) -> dict[str, object]:
    """Return the chart that the browser requests, and its ``height``. Both are missing if there is no chart.

    * ``asked``: ``search`` (the URL's query string), ``theme`` (light or dark), ``webgl``.
    """
    chosen = _parse_selection(asked)
    page = pages.of(chosen)
    try:
        with page.cursor() as con:
            if chosen.view == "compare" and not page.other:  # The text above states what to do.
                return {}
            if not page.final and chosen.view != "timeline":  # The analyzers still change its times.
                return {}
            # The value webgl is True if the browser has WebGL.
            style = ChartStyle(theme_of(str(asked.get("theme"))), page.names, headed=False, mean=mean_step(page))
            return figure_of(con, chosen, style, webgl=bool(asked.get("webgl")))
    except LogparseError:
        return {}


def mean_step(known: Known) -> str:
    """Return the time of an average step as text, for the timeline. Empty if it is unknown."""
    return known.verdict.time.mean if known.verdict.time is not None else ""


def figure_of(
    con: duckdb.DuckDBPyConnection, chosen: Selection, style: ChartStyle, *, webgl: bool
) -> dict[str, object]:
    """Return the chart of the selected view (``figure``) and the ``height`` of its box. Empty if there is no chart."""
    figure = chart(con, chosen, style)
    if figure is None or (chosen.view == "compare" and not figure.data):  # The text above states the result.
        return {}
    figure.layout["uirevision"] = chosen.view  # A zoom is kept while filters change. The next view has axes of its own.
    if not figure.data and chosen.filters:
        figure.layout["annotations"][0]["text"] = FILTERED
    elif not figure.data:
        figure.layout["height"] = EMPTY
    if not figure.data and chosen.view in BOXES:  # Plotly keeps WebGL as long as the figure has anything to draw.
        figure.add_scattergl(x=[None], y=[None], mode="markers", showlegend=False, hoverinfo="skip")
    return {"figure": figure.plain(webgl=webgl), "height": components.height_of(figure)}


def card(pages: Pages, asked: Mapping[str, Any]) -> dict[str, object]:
    """Answer the browser's request for the details of the selected GEMM or convolution.

    ``card`` has the elements, and ``figure`` the chart with the times of its kernels.
    """
    chosen = _parse_selection(asked)
    page = pages.of(chosen)
    try:
        with page.cursor() as con:
            row = queries.find_point(con, chosen.problem)
            if row is None:
                return {
                    "card": html.p(
                        "The store has no data about this matrix product or convolution (any more).", class_="faint"
                    )
                }
            if not page.final:
                return {"card": components.wait_for_card()}
            kernels = queries.kernels(con, LAUNCHED, str(row["problem"]))
            caller = queries.called_from(con, page.run, str(row["problem"]))
            near = queries.find_similar_times(con, row)
        tries = page.tries(row)
        verdict = page.verdict if page.judged else None
        advised = advice(row, {**page.facts(row["source_id"]), **page.target}, verdict)
        names = (page.run, page.other)
    except LogparseError as error:
        return {"card": html.p(str(error))}
    return problem_card(chosen, row, tries, advised, kernels, near, str(asked.get("theme")), names, caller)


def problem_card(
    chosen: Selection,
    row: pd.Series,
    tries: Sequence[Try],
    advised: Advice,
    kernels: Sequence[queries.KernelRow],
    near: queries.Nearby | None,
    theme: str,
    names: components.Names,
    caller: str = "",
) -> dict[str, object]:
    """Build the details of one GEMM or convolution (``card``) and the chart of its kernels' times (``figure``).

    * ``kernels``: the kernels that its calls launch.
    * ``near``: the times of similar ones.
    * ``caller``: a sentence about the places in the program.
    """
    pick = row["pick"] if isinstance(row["pick"], str) else None
    figure = solutions(tries, theme_of(theme), pick=pick, nearby_us=near.times_us if near else ())
    box = html.div(id="solutions", class_="chart", style=f"height:{components.height_of(figure)}")
    told = near.told if near else ""
    launched = components.list_launched_kernels(kernels, chosen, caller)
    close = replace(chosen, problem="").url()
    made = components.detail(row, advised, box, close, names=names, expected=told, launched=launched)
    return {"card": made, "figure": figure.plain()}


LAUNCHED = 8
"""Largest number of kernels that are listed in the details of a GEMM or convolution."""


def after_click(_: Pages, asked: Mapping[str, Any]) -> dict[str, object]:
    """Return the URL's new query string (``search``) after the user clicked in a chart or drew a box in it.

    ``search`` is null if nothing is selected. ``asked`` has the old ``search``, ``data`` (plotly's event) and
    ``boxed``.
    """
    chosen, data = _parse_selection(asked), asked.get("data")
    if not isinstance(data, dict):
        return {"search": None}
    try:
        new = apply_click(chosen, data, boxed=bool(asked.get("boxed")))
    except (AttributeError, IndexError, TypeError, ValueError):  # The data are no event of plotly's.
        new = chosen
    return {"search": None if new == chosen else new.url()}


def watch(pages: Pages, asked: Mapping[str, Any]) -> dict[str, object]:
    """Answer the browser's question of how far the data are loaded. The browser repeats it until all are loaded.

    If the browser names the ``version`` that it has, the answer waits until there is another one, but no longer than
    ``_NEWS_S``.
    """
    page, version = pages.of(_parse_selection(asked)), asked.get("version")
    if isinstance(version, int) and not page.finished:
        page.wait_for_news(version, _NEWS_S)
    return progress(page)


_NEWS_S = 1.0
"""Longest time without an answer to ``watch``, in seconds: the browser shows how many seconds loading has taken."""


PARTS: Mapping[str, Callable[[Pages, Mapping[str, Any]], dict[str, object]]] = {
    # The report, which needs no server, has the same answers in its file.
    "surroundings": answer_all_but_chart,
    "chart": answer_chart,
    "card": card,
    "rows": rows,
    "click": after_click,
    "watch": watch,
}


def as_json(part: Mapping[str, object]) -> str:
    """Return a part of the web page as JSON for the browser.

    An element becomes a list of its tag, attributes and children.
    """
    return json.dumps(part, separators=(",", ":"), ensure_ascii=False, default=lambda x: x.plain())


def _parse_selection(asked: Mapping[str, Any]) -> Selection:
    return from_url(str(asked.get("search") or ""))
