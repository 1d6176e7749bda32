"""Build the page's layout.  Pure: Dash components are made from a selection and small tables.

Every filter is a link, so that it can be reached by keyboard, opened in a new tab and sent to others.  The URL is the
state of the page.  All text of a log goes into components as text, which React never reads as HTML.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import dash_ag_grid
import pandas as pd
from dash import dcc, html

from analyzers.explore import queries
from analyzers.explore.charts.compare import NOISE
from analyzers.explore.charts.compare import verdict as verdict_of
from analyzers.explore.charts.figure import Figure
from analyzers.explore.load.job import Card, PageVerdict, TimeSplit
from analyzers.explore.page.paste import Advice, Paste
from analyzers.explore.plain_text import amount, of_one, percent, sentence
from analyzers.explore.selection import FACETS, NUMBERS, VIEWS, Selection, facet_text
from logparse.text import duration, printable


def layout(store: str, tunnel: str, table_url: str, version: int = 0) -> html.Div:
    """Return the frame of the page, which callbacks fill.

    ``version`` is the version of the data, so that only later data are fetched again.
    """
    return html.Div(
        [
            dcc.Location(id="url", refresh=False),
            dcc.Store(id="theme", storage_type="local", data=""),
            dcc.Store(id="webgl", data=None),
            dcc.Interval(id="pulse", interval=700),
            dcc.Store(id="version", data=version),
            html.A("Skip to the table", href="#table-box", className="skip"),
            html.Header(
                [
                    html.Div([html.H1("logparse", className="brand"), html.Span(printable(store), className="store")]),
                    html.Div(
                        [
                            html.Div(id="runs"),
                            html.Label("Search", htmlFor="search", className="hidden"),
                            dcc.Input(id="search", type="search", placeholder="Search ( / )", debounce=True),
                            html.Button("Dark / light", id="switch", n_clicks=0, title="Change the colours"),
                        ],
                        className="tools",
                    ),
                ]
            ),
            html.Div(id="verdict", className="verdict", role="status"),
            html.P(id="doing", className="faint", role="status"),
            html.Nav(id="tabs", **_aria(label="Views")),
            html.Div(id="chips", className="chips"),
            html.Main(
                [
                    html.Section(
                        [
                            html.P(id="intro", className="intro"),
                            html.Div(id="answer"),
                            html.Div(html.Div(id="chart", className="chart"), id="charts", tabIndex="-1"),
                            html.Div(id="detail", **_aria(live="polite")),
                            html.Div(
                                _table(table_url),
                                id="table-box",
                                tabIndex="-1",
                                role="region",
                                **_aria(label="Problems: Enter or Space opens a row's solutions"),
                            ),
                        ],
                        id="content",
                        className="content",
                    ),
                    # The filters come after the content, so that the keyboard reaches the table before fifty filters.
                    html.Aside(html.Div(id="facets"), **_aria(label="Filters")),
                ]
            ),
            html.Footer(tunnel),
        ],
        id="page",
    )


def _aria(**attributes: str) -> dict[str, Any]:
    return {f"aria-{name}": value for name, value in attributes.items()}


def _data(**attributes: str) -> dict[str, Any]:
    """Return HTML attributes that ``assets/explore.js`` reads."""
    return {f"data-{name}": value for name, value in attributes.items()}


def _table(table_url: str) -> list[Any]:
    return [
        html.Div([html.H2("Problems"), html.Span(id="table-note", className="faint")], className="bar"),
        dash_ag_grid.AgGrid(
            id="table",
            columnDefs=[_column(name, title) for name, title in queries.TABLE.items()],
            defaultColDef={
                "sortable": True,
                "resizable": True,
                "filter": True,
                "sortingOrder": ["desc", "asc", None],
                "minWidth": 70,
                "wrapHeaderText": True,
                "autoHeaderHeight": True,
            },
            # ``assets/explore.js`` asks for the rows, because Dash handles one request at a time.
            rowModelType="infinite",
            dashGridOptions={
                "rowBuffer": 0,
                "cacheBlockSize": queries.FIRST_ROWS,
                "maxBlocksInCache": 4,
                # AG Grid's default is 2. Dash's own source takes one more and never answers.
                "maxConcurrentDatasourceRequests": 3,
                "rowSelection": {"mode": "singleRow", "checkboxes": False, "enableClickSelection": True},
                "suppressCellFocus": False,
                "enableCellTextSelection": True,
                "theme": "themeQuartz",
                "rowHeight": 34,
                "localeText": {
                    "noRowsToShow": "No problem here. Take a filter away, or ingest more.",
                    # Remove AG Grid's texts for a screen reader: it would speak them at each row, 0.2 s late, over the
                    # card. The label of the table explains once how to open a row.
                    **dict.fromkeys(("ariaRowSelect", "ariaRowDeselect"), " "),
                },
            },
            getRowId="params.data.id",
            className="grid",
            style={"height": "430px"},
        ),
        # The screen shows this bar above the table. The keyboard reaches the bar after the table.
        html.Div(
            [
                html.Details([html.Summary("Columns"), _chooser()], id="choose"),
                html.Button("Export CSV", id="export", **_data(url=table_url)),
            ],
            className="above",
        ),
    ]


_UNITS = {"µs": 1.0, "ms": 1e3}  # The value of each unit in µs.


def _chooser() -> html.Div:
    given = {"presets": queries.PRESETS, "spared": queries.SPARED, "beside": queries.BESIDE}
    return html.Div(id="chooser", **_data(**{name: json.dumps(value) for name, value in given.items()}))


_NUMBER_WIDTH, _LABEL_WIDTH = 78, 278
_TEXT_WIDTH: Mapping[str, int] = {"best": 240, "pick": 200, "action": 104, "finding": 400, "file": 180}
"""Least widths of the table's columns (px).

Beside the problem's column, a window of 1,440 pixels has room for all columns of a preset, and a window of 1,024 pixels
for five.
"""
_NUMBER = (
    "params.value == null ? '' : Math.abs(params.value) < 1e-9 ? '0' : "
    "d3.format(Math.abs(params.value) >= 1000 ? ',.0f' : '.4~r')(params.value)"
)


def _column(name: str, title: str) -> dict[str, object]:
    shown = {"field": name, "hide": name not in ("label", *next(iter(queries.PRESETS.values())))}
    if name in queries.TEXTS:
        return {
            **shown,
            "headerName": title,
            "width": _LABEL_WIDTH if name == "label" else _TEXT_WIDTH.get(name, 96),
            "filter": "agTextColumnFilter",
            "filterParams": {"filterOptions": queries.TEXT_RULES, **_ONE_RULE},
            "tooltipField": name,
            **({"pinned": "left"} if name == "label" else {}),
        }
    heading, _, unit = title.removesuffix(")").partition(" (")
    if name == "change":
        signed = "params.value == null ? '' : d3.format('+,.1f')(params.value)"
        as_change = {**_AS_NUMBER, "valueFormatter": {"function": signed}}
        return {**shown, "headerName": title, "width": _NUMBER_WIDTH + 14, **as_change}
    if unit not in _UNITS:
        return {**shown, "headerName": title, "width": _NUMBER_WIDTH, **_AS_NUMBER}
    scaled = f"duration(params.value, {_UNITS[unit]:g})"
    return {
        **shown,
        "headerName": heading,
        "width": _NUMBER_WIDTH + 10 * (name == "saving_us"),  # There is room for the mark of an estimate.
        **_AS_NUMBER,
        "filterParams": {"filterPlaceholder": f"in {unit}", **_NUMBER_RULE},
        "valueFormatter": {"function": f"estimated(params, {scaled})" if name == "saving_us" else scaled},
    }


_ONE_RULE = {"maxNumConditions": 1}
_NUMBER_RULE = {"filterOptions": queries.NUMBER_RULES, **_ONE_RULE}
_AS_NUMBER = {
    "filter": "agNumberColumnFilter",
    "filterParams": _NUMBER_RULE,
    "type": "rightAligned",
    "valueFormatter": {"function": _NUMBER},
}


def runs(known: Sequence[str], run: str, other: str, chosen: Selection) -> list[object]:
    """Return the names of the shown run and the run beside it, and links to other runs.  A link reloads the page."""
    what: list[Any] = ["Run ", html.B(_with_end(run))]
    what += [" beside ", html.B(_with_end(other))] if other else []
    latest = list(reversed(known))
    if len(known) < 2:
        return [html.Span(what, title=printable(run))]
    after = f"{run}{AFTER}" if f"{run}{AFTER}" in known else run.removesuffix(AFTER)
    offered = dcc.Link(f"Compare with {_with_end(after)}", href=_compared(after, chosen).url(), className="offered")
    look = [_run(x, replace(chosen.cleared(), run=x), x == run) for x in latest]
    compare = [_run(x, _compared(x, chosen), x == other) for x in latest if x != run]
    lists = [html.H2("Look at"), html.Ul(look), html.H2("Compare with"), html.Ul(compare)]
    pair = [offered] if not other and after in known and after != run else []
    return [html.Details([html.Summary(what, title=printable(run)), html.Div(lists)]), *pair]


AFTER = "-after"
"""Suffix that ``tune`` gives to the run after a change."""
_LONGEST = 36


def _with_end(name: str) -> str:
    """Return a run's name, shortened in its middle if it is long.

    Both ends are kept, because names of runs of one job often differ only in the last letters.
    """
    shown = printable(name)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST // 2 - 1]}…{shown[-_LONGEST // 2 :]}"


def _compared(name: str, chosen: Selection) -> Selection:
    return replace(chosen.cleared(), view="compare", compare=name)


def _run(name: str, chosen: Selection, here: bool) -> html.Li:
    return html.Li(html.A(printable(name), href=chosen.url(), className="here" if here else ""))


def comparison(known: PageVerdict, other: str, totals: pd.Series, *, finished: bool, choice: bool) -> list[object]:
    """Return the result of the comparison of two runs.

    First come the times of both runs from their traces, then the problems (``queries.changes``).  ``choice``: the store
    holds another run.
    """
    if not other:
        choose = "Choose a run to compare with in the header, or start" if choice else "This store holds one run. Start"
        return [html.P(f"{choose} the page with --compare {'[STORE#]RUN' if choice else 'STORE#RUN'}")]
    table = html.Table([_beside(*row) for row in known.beside], className="beside", **_aria(label="Times of both runs"))
    times: list[object] = [table] if known.beside else []
    if not totals["problems"]:
        return times if finished else [html.P("Reading: the two runs are being compared …")]
    noun = "problem has" if totals["problems"] == 1 else "problems have"
    once = "" if totals["called"] else " (each counted once: the store has no calls of them)"
    return [
        *times,
        html.H2(verdict_of(totals)),
        html.P(
            f"{int(totals['problems']):,} {noun} a time in both runs{once}; "
            f"faster and slower: beyond {NOISE:.0%} and noise."
        ),
    ]


def _beside(name: str, here: float | None, there: float | None) -> html.Tr:
    change = f"{there / here - 1:+.1%}" if here and there is not None else ""
    times = ["unknown" if us is None else duration(us) for us in (here, there)]
    return html.Tr([html.Th(name, scope="row"), html.Td(f"{times[0]} → {times[1]}"), html.Td(change)])


def tabs(chosen: Selection) -> list[object]:
    return [
        dcc.Link(title, href=replace(chosen, view=view).url(), className="view here" if view == chosen.view else "view")
        for view, title in VIEWS.items()
    ]


def chips(chosen: Selection) -> list[object]:
    """Return each active filter with a link that takes it away."""
    made: list[object] = [
        _chip(f"{FACETS[facet]}: {printable(facet_text(facet, value, whole=True))}", chosen.toggled(facet, value))
        for facet, values in chosen.values.items()
        for value in values
    ]
    made += [
        _chip(f"{NUMBERS[name]}: {low:.4g} – {high:.4g}", chosen.limited({name: None}))
        for name, (low, high) in chosen.between.items()
    ]
    if chosen.search:
        made.append(_chip(f"“{printable(chosen.search)}”", replace(chosen, search="")))
    if made:
        made.append(dcc.Link("Clear all", href=chosen.cleared().url(), className="clear"))
    return made


def _chip(text: str, without: Selection) -> dcc.Link:
    return dcc.Link(
        [text, html.Span(" ×", **_aria(hidden="true"))],
        href=without.url(),
        className="chip",
        title="Take this filter away",
    )


def facets(groups: pd.DataFrame, chosen: Selection) -> list[dict[str, object]]:
    """Return the filters: the largest values of each facet, each with its fraction and a link that switches the value.

    The filters are plain data, which ``assets/explore.js`` shows as text.  As Dash components they would be three
    hundred, and exchanging these takes the browser as long as drawing a chart.
    """
    if not len(groups):
        return [{"title": "No filters", "entries": [], "more": "", "open": False}]
    # The fractions are of time if any time is known, else of calls, else of problems.
    column = next((x for x in ("total_us", "calls") if float(groups[x].fillna(0).sum()) > 0), "problems")
    found = dict[str, list[tuple[str, float, int]]]()
    amounts = groups[column].fillna(0.0)
    for facet, value, share, values in zip(groups["facet"], groups["value"], amounts, groups["values"], strict=True):
        found.setdefault(facet, []).append((str(value), float(share), int(values)))
    made: list[dict[str, object]] = []
    for facet, title in FACETS.items():
        known = sorted(found.get(facet, ()), key=lambda x: -x[1])
        if len(known) < 2 and facet not in chosen.values:
            continue
        total = sum(amount for _, amount, _ in known) or 1.0
        more = known[0][2] - len(known) if known else 0
        made.append(
            {
                "title": title,
                "entries": [_entry(facet, value, amount / total, chosen) for value, amount, _ in known],
                "more": f"{more:,} more: use the search" if more > 0 else "",
                "open": facet in _OPEN or facet in chosen.values,
            }
        )
    return made


def height_of(figure: Figure) -> dict[str, str]:
    """Return the style of a chart's box.  Without a height of its own the box collapses when the window is resized."""
    return {"height": f"{figure.layout['height'] + _FRAME}px"}


_FRAME = 14  # Padding and border of a chart's box (px).


def count(problems: int, order: str) -> str:
    """Describe the content of the table.

    ``order`` names the criterion of the default order; it is empty if the user chose the order.
    """
    noun = "problem" if problems == 1 else "problems"
    return f"{problems:,} {noun}" + (f", {order} first" if order and problems > 1 else "")


_OPEN = ("operation", "direction", "dtype", "library", "layout")


def _entry(facet: str, value: str, share: float, chosen: Selection) -> dict[str, object]:
    return {
        "name": printable(facet_text(facet, value)),
        "whole": printable(facet_text(facet, value, whole=True)),
        "share": f"{share:.0%}" if share >= 0.005 or share == 0 else "<1%",
        "level": f"{100 * share:.1f}%",
        "href": chosen.toggled(facet, value).url(),
        "on": value in chosen.values.get(facet, ()),
    }


REMARKS = 2  # Number of remarks shown at once in the overview. In the other views the chart comes first.


def unreadable(error: str) -> list[object]:
    """Return the text that replaces the verdict if the store could not be read."""
    return [html.Strong("The store could not be read"), html.P(printable(error))]


def verdict(known: PageVerdict, total: pd.Series, run: str, chosen: Selection, *, finished: bool) -> list[object]:
    """Return what to know first: the largest possible saving, what is selected, and the analyzers' remarks.

    If filters are set, the possible saving is stated for the filtered problems.  Without filters, the headline states
    it for all problems.
    """
    headline, remarks = known.headline, REMARKS if chosen.view == "overview" else 0
    calls = f"{amount(total['calls'])} calls of " if pd.notna(total["calls"]) else ""
    total_us = float(total["total_us"])
    time = f", calls × time of a call is {duration(total_us)}" if total_us > 0 else ""
    once = "" if calls or not total["problems"] else " (each counted once: the store has no calls of them)"
    untimed, of = total["untimed_calls"], f", of {one}" if (one := of_one(total["unit"])) else ""
    gap = f"; {amount(untimed)} calls have no time" if pd.notna(untimed) and untimed > 0 else ""
    stated = total["saving_us"] > 0 and (chosen.filters or not headline)
    saving = f"; up to {duration(float(total['saving_us']))} to save" if stated else ""
    headline = headline or ("No verdict" if finished else "Reading: analyzers are running …")
    made: list[object] = [
        html.Strong(printable(headline)),
        html.P(f"Selected{of}: {calls}{total['problems']:,} problems{time}{once}{gap}{saving}. Run {printable(run)}."),
    ]
    texts = [printable(sentence(x)) for x in known.lines]
    made += [html.P(x, className="remark") for x in texts[:remarks]]
    if rest := texts[remarks:]:
        noun = "more" if remarks else "remark" if len(rest) == 1 else "remarks"
        made.append(html.Details([html.Summary(f"{len(rest)} {noun}"), html.Ul([html.Li(x) for x in rest])]))
    return made


CARDS = 4  # Number of cards shown at once.


def answer(actions: Sequence[Card], time: TimeSplit | None, download: str) -> list[object]:
    """Return the first answer: where the time goes, and what to do.

    ``download`` is the URL of the files, empty without files.
    """
    made: list[object] = [] if time is None else _time_bar(time)
    if not actions:
        return made
    cards = [_card(x, download) for x in actions]
    made.append(html.Ul(cards[:CARDS], className="cards", **_aria(label="What to do")))
    if rest := cards[CARDS:]:
        made.append(html.Details([html.Summary(f"{len(rest)} more"), html.Ul(rest, className="cards")]))
    return made


def _time_bar(time: TimeSplit) -> list[object]:
    total = sum(us for _, us in time.parts)
    if total <= 0:
        return []
    shown = [(_KINDS.get(name, f"kind{n % 8}"), name, us) for n, (name, us) in enumerate(time.parts) if us > 0]
    bar = [
        html.Span(className=look, style={"width": f"{100 * us / total:.2f}%"}, title=f"{name}: {duration(us)}")
        for look, name, us in shown
    ]
    legend = [
        html.Span([html.I(className=look), f" {name} {duration(us)} ({percent(us / total)})"])
        for look, name, us in shown
    ]
    gap = f"; {time.untimed_calls:,} calls have no time" if time.untimed_calls else ""
    label = ", ".join(f"{percent(us / total)} {name}" for _, name, us in shown)
    return [
        html.P([html.B(f"{time.title}: {duration(total)}"), gap], className="time"),
        html.Div(bar, className="time-bar", role="img", **_aria(label=label)),
        html.P(legend, className="legend"),
    ]


_KINDS = {"exposed communication": "exposed", "idle": "idle"}
"""Kinds of time in the time bar that look different.  Time in which the GPU does not compute is hatched."""


def _card(action: Card, download: str) -> html.Li:
    link = html.A("Download the files (zip)", href=download, className="get") if action.files and download else None
    return html.Li(
        [
            html.H3(printable(action.title)),
            html.P([html.B(printable(action.gain)), f" · {action.evidence} · {printable(action.changes)}"]),
            *([html.P(text, className="faint", title=text)] if (text := printable(action.detail)) else []),
            *([link] if link else []),
        ]
    )


def detail(row: pd.Series, advised: Advice, chart: html.Div, close: str) -> html.Section:
    """Return one problem: what to do, its numbers, every solution, and the texts to copy."""
    estimated = row["saving_from"] == "estimated"
    numbers = [
        ("Now" if row["own"] else f"As of {printable(str(row['file']))}", duration(row["time_us"])),
        ("Best known", duration(row["then_us"])),
        (f"Calls of {one}" if (one := of_one(row["unit"])) else "Calls", amount(row["calls"])),
        ("Could save" + (", estimated" if estimated else ""), duration(row["saving_us"])),
        ("Rate", "unknown" if pd.isna(row["tflops"]) else f"{row['tflops']:,.3g} TFLOP/s"),
        ("Of roofline", percent(row["efficiency"])),
    ]
    if pd.notna(row["other_us"]):
        numbers.append(("Both runs", f"{duration(row['here_us'])} → {duration(row['other_us'])}"))
    head = [html.H2(printable(str(row["label"]))), dcc.Link("Close", href=close, className="close")]
    title = f"Override row ({advised.override.name})" if advised.override.name else "Override row"
    return html.Section(
        [
            html.Div(head, className="bar"),
            html.P(printable(advised.sentence), className="sentence"),
            html.Dl([html.Div([html.Dt(name), html.Dd(value)]) for name, value in numbers]),
            chart,
            _paste("Bench command", advised.command, "bench"),
            _paste(title, advised.override, "override"),
            html.Details([html.Summary("Full key"), html.Code(printable(str(row["problem"])))]),
        ],
        id="problem",
        className="problem",
        tabIndex="-1",
        **_aria(label="One problem"),
    )


def _paste(title: str, given: Paste, name: str) -> html.Div:
    note = html.Span(printable(given.note), className="faint")
    if not given.text:
        return html.Div([html.H3(title), html.P(note)])
    more = _data(copies=f"text-{name}") | _aria(label=f"Copy: {title}")
    copy = html.Button("Copy", id=f"copy-{name}", className="copy", **more)
    head = html.Div([html.H3(title), copy, note], className="bar")
    return html.Div([head, html.Pre(html.Code(given.text, id=f"text-{name}"))])
