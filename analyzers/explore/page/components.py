"""Build the elements of the web page from small tables: lists, cards, tables and links.

* Every filter is a link, so that it can be reached by keyboard, opened in a new tab and sent to others. The URL is the
  state of the page.
* Text of a log goes into elements as text, which the browser never reads as HTML.
* The functions do no input or output.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from analyzers.explore.charts.compare import NOISE
from analyzers.explore.charts.compare import verdict as verdict_of
from analyzers.explore.charts.figure import Figure
from analyzers.explore.charts.palette import kind_of_work
from analyzers.explore.load.beside import later_first
from analyzers.explore.load.job import Calls, Card, Command, PageVerdict, TimeSplit
from analyzers.explore.page import elements as html
from analyzers.explore.page.paste import Advice, Paste
from analyzers.explore.plain_text import (
    capitalize_first,
    format_calls,
    of_one,
    percent,
    sentence,
    shorten_names,
    solution_name,
)
from analyzers.explore.queries import KernelRow
from analyzers.explore.selection import FACETS, VIEWS, Selection, facet_text, from_url, interval_words
from logparse.lazy import pd
from logparse.libraries.miopen import find_db_choice
from logparse.model import UPPER_BOUND
from logparse.text import duration, make_printable, pluralize, signed_percent


def _aria(**attributes: str) -> dict[str, Any]:
    return {f"aria_{name}": value for name, value in attributes.items()}


def _data(**attributes: str) -> dict[str, Any]:
    """Return HTML attributes ``data-…`` that the script ``assets/explore.js`` reads."""
    return {f"data_{name}": value for name, value in attributes.items()}


WHOLE, FOLDS = _data(whole="1"), _data(folds="1")
"""Marks for the report, whose script ``assets/report.js`` cannot make parts of the page again under a filter.

* ``WHOLE``: the element is about the whole run, so it is left out under a filter. An element with the attribute
  ``data-about`` stays if one of its names (of analyzers or things to do, with ``|`` between them) concerns a row.
* ``FOLDS``: under a filter, what is left of the content is shown without a click.
"""


def runs(known: Sequence[str], run: str, other: str, chosen: Selection, alike: Collection[str] = ()) -> list[object]:
    """Return the list of runs for the header of the web page.

    It has the shown run, the pair of runs that is compared, and links to the others. ``run`` and ``other`` are the runs
    whose data are shown. If the user looks at the earlier run of a pair, ``chosen`` has the other one. Comparisons
    with the runs in ``alike`` come first, because these runs call the same GEMMs or convolutions.
    """
    swapped = bool(other) and chosen.compare == run
    looked = other if swapped else run
    beside = run if swapped else other or (chosen.compare if chosen.compare in known and chosen.compare != run else "")
    latest = list(reversed(known))
    what = _name_runs(known, looked, beside, chosen.view)
    if len(known) < 2:
        return [html.span(what, title=make_printable(run))]
    after = f"{looked}{AFTER}" if f"{looked}{AFTER}" in known else looked
    first = after.removesuffix(AFTER)
    offered = html.link(
        f"Compare {_with_end(first)} → {_with_end(after)}",
        href=replace(_select_comparison(first, chosen), run=after).url(),
        class_="offered",
    )
    # The pair is kept if the user looks at its other run. A tab that the other run may not have leads to the overview.
    view = chosen.view if chosen.view in _TABS_OF_ALL_RUNS else "overview"
    kept = replace(chosen.cleared(), view=view)
    look = [_run(x, replace(kept, run=x, compare=looked if x == beside else beside), x == looked) for x in latest]
    compare = [
        _run(x, replace(_select_comparison(x, chosen), run=looked), x == beside)
        for x in _alike_first(latest, alike)
        if x != looked
    ]
    lists = [html.h2("Look at"), html.ul(look), html.h2("Compare with"), html.ul(compare)]
    pair = [offered] if not beside and first in known and first != after else []
    return [html.details([html.summary(what, title=make_printable(looked)), html.div(lists)]), *pair]


def _alike_first(latest: Sequence[str], alike: Collection[str]) -> list[str]:
    return sorted(latest, key=lambda x: x not in alike)


_TABS_OF_ALL_RUNS = ("overview", "roofline", "regret")


def _name_runs(known: Sequence[str], looked: str, beside: str, view: str) -> list[object]:
    """Return the heading of the list of runs: the run that the user looks at, and the compared pair in its order."""
    later, earlier = later_first(known, looked, beside)
    pair = [html.b(_with_end(earlier)), " → ", html.b(_with_end(later))] if beside else []
    if pair and view == "compare":
        return pair
    return ["Run ", html.b(_with_end(looked)), *([" · ", *pair] if pair else [])]


AFTER = "-after"
"""The last part of the name of a run that ``tune`` made with its changes."""
_LONGEST = 36


def _with_end(name: str) -> str:
    """Return the name of a run, shortened in its middle if it is long.

    The end is kept, because names of runs of one job often differ only in the last letters.
    """
    shown = make_printable(name)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST // 2 - 1]}…{shown[-_LONGEST // 2 :]}"


def _select_comparison(name: str, chosen: Selection) -> Selection:
    return replace(chosen.cleared(), view="compare", compare=name)


def _run(name: str, chosen: Selection, here: bool) -> html.Element:
    return html.li(html.link(make_printable(name), href=chosen.url(), class_="here" if here else ""))


Names: TypeAlias = tuple[str, str]
"""The names of the shown run and of the run with which it is compared, which is the earlier one."""


def change(known: PageVerdict, names: Names, totals: pd.Series) -> list[str]:
    """Return sentences that say what changed from the earlier run to the later one. The first is the headline.

    The order: the times of the two runs, the changed picks, and why the two runs may not be the same work. ``totals``
    comes from ``queries.changes``, without filters.
    """
    here, there = (_with_end(x) for x in names)
    picked, picks = int(totals["picked"]), int(totals["repicked"])
    step = next(((name, us, old) for name, us, old in known.beside if us and old), None)
    times = ""
    if step:
        name, us, old = step
        times = f"{name} {duration(old)} → {duration(us)} ({signed_percent(us / old - 1)})"
    elif totals["problems"]:
        times = verdict_of(totals)
    repicked = f"{picks:,} of {pluralize(picked, 'pick')} changed" if picked else "no pick is known in both runs"
    if picks and known.proposed:
        repicked += f"; {known.proposed.replace('`', '')}"
    first, *more = filter(None, (times, repicked))
    if not times:
        first += "; whether the job got faster is not known"
        more.append("the runs have no times that can be compared")
    said = [*more, *_say_logged_calls(known, names, traced=step is not None)]
    return [f"{there} → {here}: {first}", *map(sentence, said)]


def _say_logged_calls(known: PageVerdict, names: Names, *, traced: bool) -> list[str]:
    """Say which calls the two runs logged, if their numbers differ. Empty if they are equal.

    * ``traced``: True if both runs have times of a step. Other numbers of calls are then no reason for a warning.
    """
    here, there = (_with_end(x) for x in names)
    differ = [x for x in known.calls if x[1] != x[2]]
    if not differ:
        return []
    old = " and ".join(_say_calls(kind, count, many) for kind, count, _, many, _ in differ)
    new = " and ".join(_say_calls(kind, count, many) for kind, _, count, _, many in differ)
    logged = f"run {there} logged {old}; run {here} logged {new}"
    if traced:
        return [logged]
    again = "to compare their times, make both runs with logparse capture --trace 2"
    return ["the two runs may not be the same work", logged, again]


def _say_calls(kind: str, count: int | None, many: int) -> str:
    if count is None:
        return f"no {_noun(kind)}s"
    return f"{pluralize(count, 'call')} of {_noun(kind)}s{_in_processes(many)}"


def list_unlogged(known: PageVerdict, names: Names) -> str:
    """Say how many problems only the earlier run has, because what is left to do in the later run leaves them out."""
    count = dict(known.changed).get("vanished", 0)
    here, there = (_with_end(x) for x in names)
    return f"{pluralize(count, 'problem')} of {there}, which {here} did not log." if count else ""


def _in_processes(count: int) -> str:
    return f" in {pluralize(count, 'process')}" if count else ""


def _of_both_picks(totals: pd.Series) -> str:
    old, new = float(totals["pick_there_us"]), float(totals["pick_here_us"])
    return f"{duration(old)} → {duration(new)} ({signed_percent(new / old - 1)})"


def _logged(calls: Sequence[Calls], there: str) -> str:
    """Say how many processes both runs logged, if this run logged another number than the run ``there``."""
    other = next(((mine, theirs) for *_, theirs, mine in calls if mine and theirs and mine != theirs), None)
    return "" if other is None else f", which logged {pluralize(other[0], 'process')} ({there}: {other[1]:,})"


def offer_comparisons(known: Sequence[str], run: str, chosen: Selection, alike: Collection[str] = ()) -> list[object]:
    """Return links to the comparisons of the shown run with each other run, the latest first.

    The runs in ``alike``, which call the same GEMMs or convolutions, come before all others.
    """
    start = "start the page with --compare STORE#RUN."
    others = [x for x in _alike_first(list(reversed(known)), alike) if x != run]
    if not others:
        return [html.p(f"This store has only one run. To compare it with a run of another store, {start}")]
    links = [_run(x, replace(_select_comparison(x, chosen), run=run), False) for x in others]
    return [
        html.p(["Compare run ", html.b(make_printable(run)), " with:"]),
        html.ul(links, class_="choices"),
        html.p(f"To compare it with a run of another store, {start}", class_="faint"),
    ]


def comparison(known: PageVerdict, names: Names, totals: pd.Series | None) -> list[object]:
    """Return the web page's text about the comparison of two runs, from the earlier run to the later one.

    ``totals`` are sums from ``queries.changes``. None if they are not known yet.
    """
    if totals is None:
        return [html.p("The two runs are being compared …", class_="skeleton")]
    here, there = (_with_end(x) for x in names)
    rows = [*(_make_row_of_times(*row) for row in known.beside), *(_calls_beside(*row[:3]) for row in known.calls)]
    head = html.tr([html.th(""), html.th(f"{there} → {here}", scope="col")])
    made: list[object] = [html.table([head, *rows], class_="beside", **_aria(label="Both runs"))] if rows else []
    picks, both = int(totals["repicked"]), int(totals["both_picks"])
    if totals["problems"]:
        noun = "problem has" if totals["problems"] == 1 else "problems have"
        once = "" if totals["called"] else " (each counted as one call, because no file of the run counts the calls)"
        made += [
            html.h2(verdict_of(totals), **WHOLE),
            html.p(
                f"{int(totals['problems']):,} {noun} a time in both runs{once}; "
                f"faster and slower: beyond {NOISE:.0%} and noise.",
                **WHOLE,
            ),
        ]
    if picks:
        made.append(html.h2(f"{picks:,} of {pluralize(int(totals['picked']), 'problem')} with another pick", **WHOLE))
        only = (
            "no problem was timed in the same way (for example by traces) in both runs, so the runs' own times are not "
            "compared."
        )
        made += [] if totals["problems"] else [html.p(sentence(only))]
    if both:
        which = f"all {picks:,}" if both == picks else f"{both:,} of these {picks:,}"
        files = _list_of(totals["pick_files"])
        file = make_printable(files[0]) if len(files) == 1 else "one file"
        made.append(
            html.p(
                f"The kernels alone, timed in a benchmark: {_of_both_picks(totals)} at the calls of "
                f"{here}{_logged(known.calls, there)}. {file} has "
                f"these times of both picks, for {which}. The two runs themselves were not timed.",
                **WHOLE,
            )
        )
    apart = {"vanished": f"only in {there}", "new": f"only in {here}"}
    made += [
        html.p(f"{pluralize(count, 'problem')} {apart[state]}.") for state, count in known.changed if state in apart
    ]
    if not totals["problems"] and not picks:
        made.append(
            html.p(
                "The runs cannot be compared: no matrix product or convolution has times in both runs, or a known "
                "choice of the library in both runs."
            )
            if not totals["picked"]
            else html.p(f"All {pluralize(int(totals['picked']), 'pick')} that both runs name are the same.")
        )
    return made


def _make_row_of_times(name: str, here: float | None, there: float | None) -> html.Element:
    change = f" ({signed_percent(here / there - 1)})" if there and here is not None else ""
    times = ["unknown" if us is None else duration(us) for us in (there, here)]
    return html.tr([html.th(name, scope="row"), html.td(f"{times[0]} → {times[1]}{change}")])


def _calls_beside(kind: str, there: int | None, here: int | None) -> html.Element:
    numbers = ["none in its logs (unknown)" if x is None else f"{x:,}" for x in (there, here)]
    return html.tr([html.th(f"logged calls of {_noun(kind)}s", scope="row"), html.td(f"{numbers[0]} → {numbers[1]}")])


def _noun(kind: str) -> str:
    return {"gemm": "GEMM", "conv": "convolution"}.get(kind, kind)


def say_where_w_is_from(count: int, files: Sequence[str]) -> str:
    """Say from which files the times of backward weights (W) come if no log names the job's solvers. Else empty.

    * ``count``: for how many passes no log names the solver.
    * ``files``: the find-dbs with their times.
    """
    if not count:
        return ""
    named = ", ".join(make_printable(x) for x in files)
    table = f"MIOpen's own table of timed solvers (find-db {named})" if files else "files with timed solvers"
    which = "these times are" if count > 1 else "this time is"
    return (
        f"The job's log does not name the solver that it runs for {pluralize(count, 'W problem')}, so nobody can judge "
        f"its choice: {which} the best of {table}. ≥: the job's own solver takes at least this time, if it is in the "
        "table."
    )


def tabs(chosen: Selection, missing: Mapping[str, str] = MappingProxyType({})) -> list[object]:
    """Return the links to the tabs. A tab in ``missing`` is no link, and its reason is a tooltip."""

    def tab(view: str, title: str) -> html.Element:
        look = "view here" if view == chosen.view else "view"
        if view in missing:
            return html.span(title, class_=f"{look} off", title=missing[view], **_aria(disabled="true"))
        return html.link(title, href=chosen.on_tab(view).url(), class_=look)

    return [tab(view, title) for view, title in VIEWS.items()]


def chips(chosen: Selection, actions: Sequence[Card] = ()) -> list[object]:
    """Return the list of all filters that are set. Each is a link that removes the filter."""
    made: list[object] = [
        _chip(f"{FACETS[facet]}: {make_printable(facet_text(facet, value, whole=True))}", chosen.toggled(facet, value))
        for facet, values in chosen.values.items()
        for value in values
    ]
    made += [
        _chip(interval_words(name, low, high), chosen.limited({name: None}))
        for name, (low, high) in chosen.between.items()
    ]
    if chosen.todo:
        title = next((x.title for x in actions if x.name == chosen.todo), chosen.todo)
        made.append(_chip(make_printable(capitalize_first(title)), replace(chosen, todo="")))
    if chosen.search:
        made.append(_chip(f"“{make_printable(chosen.search)}”", replace(chosen, search="")))
    if chosen.mark and chosen.view == "timeline":
        made.append(_chip(f"Marked: {make_printable(chosen.mark)}", replace(chosen, mark="")))
    if made:
        made.append(html.link("Clear all", href=chosen.cleared().url(), class_="clear"))
    return made


def _chip(text: str, without: Selection) -> html.Element:
    return html.link(
        [text, html.span(" ×", **_aria(hidden="true"))],
        without.url(),
        class_="chip",
        title="Take this filter away",
    )


def name_base(total: pd.Series, chosen: Selection) -> str:
    """Return the title of the lists of filters: of what their percentages are a share.

    It is not the step, whose bar also has other kernels and idle time. ``total`` comes from ``queries.totals``.
    """
    timed, called = float(total["total_us"]) > 0, float(total["calls"]) > 0
    if chosen.values:
        what = "time" if timed else "calls" if called else "number"
        return f"Share of the {what} of GEMMs and convolutions; each list ignores its own filter."
    kind = "selected GEMMs and convolutions" if chosen.filters else "GEMMs and convolutions"
    if timed:
        return f"Share of the {duration(float(total['total_us']))} of {kind}"
    return f"Share of the {format_calls(total['calls'])} calls of {kind}" if called else f"Share of the {kind}"


def facets(groups: pd.DataFrame, chosen: Selection, *, final: bool = True) -> list[dict[str, object]]:
    """Return the lists of filters: the most common values of each column, with percentages of the time.

    Each value has a link that selects or deselects it. The percentages are missing unless they are ``final``.
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
        # The filters are plain data, which assets/explore.js draws as text. Three hundred page elements would take the
        # browser as long as drawing a chart.
        made.append(
            {
                "title": title,
                "entries": [
                    _entry(facet, value, amount / total if final else None, chosen) for value, amount, _ in known
                ],
                "more": f"{more:,} more: use the search" if more > 0 else "",
                "open": facet in _OPEN or facet in chosen.values,
            }
        )
    return made


def height_of(figure: Figure) -> str:
    """Return the height of a chart's box as CSS.

    Without a height of its own the box collapses when the window is resized.
    """
    return f"{figure.layout['height'] + _FRAME}px"


_FRAME = 14  # Padding and border of a chart's box (px).


def count(problems: int, order: str) -> str:
    """Return the line above the table, for example ``1,200 problems, the most worthwhile first``.

    ``order`` names what comes first by default. It is empty if the user chose the order.
    """
    noun = "problem" if problems == 1 else "problems"
    return f"{problems:,} {noun}" + (f", {order} first" if order and problems > 1 else "")


_OPEN = ("operation", "direction", "dtype", "library", "layout")


def _entry(facet: str, value: str, share: float | None, chosen: Selection) -> dict[str, object]:
    text = "" if share is None else f"{share:.0%}" if share >= 0.005 or share == 0 else "<1%"
    return {
        "name": make_printable(facet_text(facet, value)),
        "whole": make_printable(facet_text(facet, value, whole=True)),
        "share": text,
        "level": f"{100 * (share or 0.0):.1f}%",
        "href": chosen.toggled(facet, value).url(),
        "on": value in chosen.values.get(facet, ()),
    }


REMARKS = 1  # Number of remarks shown at once in the overview. In the other views the chart comes first.


def explain_unreadable(error: str) -> list[object]:
    """Return the text that the web page shows if the data could not be read."""
    return [html.strong("The store could not be read"), html.p(make_printable(error))]


def no_such_run(name: str, known: Sequence[str], chosen: Selection) -> list[object]:
    """Return the text that the web page shows if the URL names a run that does not exist."""
    latest = list(reversed(known))
    links = [_run(x, replace(chosen.cleared(), run=x, compare=""), False) for x in latest]
    return [
        html.strong(f"This store has no run “{make_printable(name)}”"),
        html.p("Its runs, the latest first:"),
        html.ul(links),
    ]


def skeleton() -> list[object]:
    """Return the text that the web page shows while the run is still being analysed.

    It contains no sums, because they would change.
    """
    lines = [html.span("", class_="bone") for _ in range(2)]
    return [html.strong("The run is being analysed …"), html.p(lines, class_="skeleton")]


def wait_for_card() -> html.Element:
    """Return the details of a GEMM or convolution that the web page shows while the run is still being analysed."""
    lines = [html.span("", class_="bone") for _ in range(3)]
    return html.section([html.p("The run is being analysed …"), html.p(lines, class_="skeleton")],
                        id="problem", class_="problem", tabindex="-1", **_aria(label="One problem"))  # fmt: skip


def verdict(
    known: PageVerdict,
    total: pd.Series | None,
    run: str,
    chosen: Selection,
    change: Sequence[str] = (),
    unlogged: str = "",
    left: Collection[str] = (),
) -> list[object]:
    """Return the top of the web page: what to do first, sums over the table's rows, and remarks of the analyzers.

    * ``total``: these sums (``queries.totals``). None if they are not known yet.
    * ``change``: sentences about what changed from the earlier run. The first is the headline.
    * ``unlogged``: what of the earlier run is not judged (``list_unlogged``).
    * ``left``: names of the analyzers whose findings are among the selected rows.
    """
    headline = make_printable(capitalize_first(known.headline or "no verdict"))
    # What changed comes first, because it is what the user asks.
    changed = [
        *(html.strong(make_printable(x)) for x in change[:1]),
        *([html.p(make_printable(" ".join(change[1:])))] if change[1:] else []),
        html.p(_say_what_is_left(known, headline, run, unlogged, "" if total is None else _list_borrowed(total))),
        *([html.p([html.b("Not judged: "), make_printable(unlogged)])] if unlogged else []),
    ]
    made: list[object] = [
        *(changed if change else [html.strong(headline)]),
        html.p(html.span("", class_="bone"), class_="skeleton") if total is None else _sums(total, run, chosen),
    ]
    return made + _remarks(known, chosen, left)


def _remarks(known: PageVerdict, chosen: Selection, left: Collection[str]) -> list[object]:
    """Return the analyzers' remarks. Most of them are folded away, under a filter those about the whole run."""
    shown = known.lines[:REMARKS] if not chosen.filters else [x for x in known.lines if known.about.get(x) in left]
    if chosen.view != "overview":
        shown = ()
    texts = {x: _remark(x, known.shows.get(x), chosen) for x in known.lines}
    tags = {x: _data(about=known.about[x]) if x in known.about else WHOLE for x in known.lines}
    made: list[object] = [html.p(texts[x], class_="remark", **tags[x]) for x in shown]
    if more := [x for x in known.lines if x not in shown]:
        noun = f"{'more ' * bool(shown and not chosen.filters)}remark{'s' * (len(more) != 1)}"
        about = " about the whole run" if chosen.filters else ""
        items = html.ul([html.li(texts[x], **tags[x]) for x in more])
        made.append(html.details([html.summary(f"{len(more)} {noun}{about}"), items], **FOLDS))
    return made


def _sums(total: pd.Series, run: str, chosen: Selection) -> html.Element:
    """Say how many calls, problems and how much time the selected rows of the table have."""
    calls = f"{format_calls(total['calls'])} calls of " if pd.notna(total["calls"]) else ""
    total_us = float(total["total_us"])
    least = "≥ " * bool(total["at_least"])
    time = f", {least}{duration(total_us)} (calls × time of a call{_name_borrowed(total)})" if total_us > 0 else ""
    once = (
        ""
        if calls or not total["problems"]
        else " (each counted as one call, because no file of the run counts the calls)"
    )
    untimed, of = total["untimed_calls"], f" of {one}" if (one := of_one(total["unit"])) else ""
    what = "Selected" if chosen.filters else "GEMMs and convolutions"
    gap = f"; {format_calls(untimed)} calls have no time" if pd.notna(untimed) and untimed > 0 else ""
    # With filters, the possible saving is counted for the filtered rows only.
    saving = (
        f"; up to {duration(float(total['saving_us']))} to save" if total["saving_us"] > 0 and chosen.filters else ""
    )
    if total["conditional_us"] > 0 and chosen.filters:
        saving += f"; {duration(float(total['conditional_us']))} to save if {find_db_choice.ASSUMES}"
    return html.p(
        f"{what}{of}: {calls}{total['problems']:,} problems{time}{once}{gap}{saving}. Run {make_printable(run)}.",
        **WHOLE,
    )


def _say_what_is_left(known: PageVerdict, headline: str, run: str, unlogged: str, files: str) -> str:
    """Say what is left to do after a change.

    * ``files``: the files of other runs with the measured times. Empty if all are of the run itself.
    * ``unlogged``: problems that only the earlier run has. "Nothing" would be read as if they had been judged, too.
    """
    if known.actions:
        return f"Left to do: {sentence(headline)}"
    about = f" in run {make_printable(run)}" if unlogged else ""
    measured = f" The measured times are from {files}." if files else ""
    if not known.nothing_left:
        return f"Left to do{about}: {sentence(headline)}"
    # "Nothing is left" would be read as an all-clear about the other problems, too.
    if unlogged:
        return sentence(f"in run {make_printable(run)}, {headline[0].lower()}{headline[1:]}") + measured
    return f"Nothing is left to do. {sentence(capitalize_first(headline.partition(': ')[2]))}{measured}"


def _name_borrowed(total: pd.Series) -> str:
    """Say from which files of other runs the times come. Empty if all are of the run itself."""
    return f"; times from {files}" if (files := _list_borrowed(total)) else ""


def _list_borrowed(total: pd.Series) -> str:
    files = _list_of(total["borrowed"])
    return make_printable(files[0]) if len(files) == 1 else f"{len(files)} files of other runs" if files else ""


def _list_of(value: Any) -> list[str]:
    """Return the texts of a list that DuckDB read. For an empty list, pandas has a missing value."""
    return [str(x) for x in value] if hasattr(value, "__len__") else []


def _remark(text: str, shows: str | None, chosen: Selection) -> list[object]:
    said = _prose(sentence(text))
    if shows is None:
        return said
    where = replace(from_url(shows), run=chosen.run, compare=chosen.compare)
    return [*said, " ", html.link("Show them →", where.url(), class_="shows")]


def _prose(text: str) -> list[object]:
    """Return a text for the user as text, with what stands between backquotes as code."""
    parts = make_printable(text).split("`")
    whole = len(parts) % 2 == 1  # A single backquote is no pair.
    return [html.code(x) if i % 2 else x for i, x in enumerate(parts) if x] if whole else [make_printable(text)]


CARDS = 4  # Number of cards shown at once.


class Leads(NamedTuple):
    """Where the cards of things to do lead.

    * ``rows_of``: the number of rows that each thing to do concerns, by its name. None if it is not known yet. The
      cards then lead nowhere.
    * ``traced``: True if the timeline shows something.
    * ``download``: URL of the files, empty without files.
    * ``shared``: the number of rows that two things to do both concern, by their names.
    """

    rows_of: Mapping[str, int] | None
    traced: bool
    download: str = ""
    shared: Mapping[tuple[str, str], int] = MappingProxyType({})


def answer(
    actions: Sequence[Card],
    time: TimeSplit | None,
    parts: pd.DataFrame | None,
    chosen: Selection,
    leads: Leads,
    about: Collection[str] | None = None,
    untimed: float = math.nan,
    order: str = "",
    together: str = "",
) -> list[object]:
    """Return the main part of the overview: where the time goes, and the cards of things to do.

    * ``time``: the time of a step by kind of work. It is shown if nothing is filtered.
    * ``parts``: the time of the selected GEMMs and convolutions (``queries.sum_time_by_kind``), shown for a filter or a
      run without traces. None if it is not known yet.
    * ``about``: names of the things to do that concern the selected rows. None if nothing is filtered.
    * ``order``, ``together``: the order of the things to do, and what they save together (``PageVerdict``).
    * ``untimed``: number of the selected calls that have no time. NaN if unknown.
    """
    if time is not None and about is None:
        made = _time_bar(time)
    elif parts is None:
        made = [html.div(html.span("", class_="bone"), class_="skeleton")]
    else:
        made = _split_bar(parts, chosen, untimed)
    shown = [x for x in actions if about is None or x.name in about]
    # A card keeps its number under a filter, because other cards name it.
    names = [x.name for x in actions]
    cards = [_card(x, names.index(x.name) + 1, names, leads, chosen) for x in shown]
    if "first" in order and len(shown) > 1:
        first = f"What to do, {order.removeprefix('to do, ')}"
        made.append(html.p(html.b(first), class_="order", title=sentence(WORDS["measured first"]), **WHOLE))
    if cards:
        made.append(html.ul(cards[:CARDS], class_="cards", **_aria(label="What to do")))
    if rest := cards[CARDS:]:
        folded = [html.summary(f"{len(rest)} more things to do"), html.ul(rest, class_="cards")]
        made.append(html.details(folded, **FOLDS))
    if together and about is None:
        made.append(html.p(sentence(together), class_="faint", **WHOLE))
    words = dict.fromkeys(word for x in shown if x.saves != "unknown" for word in x.evidence.split(", "))
    means = [f"{word}: {_MEANS[word]}" for word in words if word in _MEANS]
    entries = [x for term, meaning in WORDS.items() for x in (html.dt(term), html.dd(meaning))]
    more = html.span("More words" if means else "What the words mean", class_="more")
    made.append(html.details([html.summary(["; ".join(means) + ". " if means else "", more]), html.dl(entries)],
                             class_="words"))  # fmt: skip
    if about is not None and len(actions) > len(shown):
        hidden = pluralize(len(actions) - len(shown), "thing")
        made.append(html.p(f"{hidden} to do about other problems or the whole job: clear the filters.", class_="faint"))
    return made


def _time_bar(time: TimeSplit) -> list[object]:
    parts = [_Part(name, us) for name, us in time.parts if us > 0]
    total = sum(x.us for x in parts)
    return _bar(f"{time.title}: {duration(total)}", parts) if parts else []


def _split_bar(parts: pd.DataFrame, chosen: Selection, untimed: float) -> list[object]:
    columns = (parts[x].tolist() for x in ("kind", "us", "saving_us", "estimated_us", "conditional_us", "at_least"))
    rows = [
        _Part(str(kind), us, min(saved, us), min(estimated, us - min(saved, us)), perhaps, bool(at_least))
        for kind, us, saved, estimated, perhaps, at_least in zip(*columns, strict=True)
    ]
    if not rows:
        return []
    what = "Selected problems" if chosen.filters else "Problems"
    gap = f", nor are {format_calls(untimed)} calls without a time" if untimed > 0 else ""
    least = "≥ " * any(x.at_least for x in rows)
    head = f"{what}: {least}{duration(sum(x.us for x in rows))} (calls × time; other kernels are not in it{gap})"
    return _bar(head, rows)


_PARTS = 9
"""Largest number of kinds of work in a bar. If there are more, the last part is the sum of the others."""


class _Part(NamedTuple):
    """A part of a bar that shows how time is divided: a kind of work.

    * ``us``: its time, µs.
    * ``saved``, ``estimated``: how much of it can be saved, by measured times and by estimates, µs.
    * ``perhaps``: how much more can be saved if a condition holds, µs.
    * ``at_least``: True if a time in it is a lower bound.
    """

    name: str
    us: float
    saved: float = 0.0
    estimated: float = 0.0
    perhaps: float = 0.0
    at_least: bool = False


def _bar(head: str, parts: Sequence[_Part]) -> list[object]:
    """Return a bar that shows how time is divided among kinds of work, and its legend.

    Idle time is never in "other".
    """
    if len(parts) > _PARTS:
        idle = [x for x in parts if x.name == "idle"]
        kinds = [x for x in parts if x.name != "idle"]
        room = _PARTS - 1 - len(idle)
        rest = kinds[room:]
        us, saved = sum(x.us for x in rest), sum(x.saved for x in rest)
        estimated, perhaps = sum(x.estimated for x in rest), sum(x.perhaps for x in rest)
        parts = [*kinds[:room], _Part("other", us, saved, estimated, perhaps, any(x.at_least for x in rest)), *idle]
    total = sum(x.us for x in parts)
    bar, legend = [], []
    for name, us, saved, estimated, perhaps, at_least in parts:
        least = "≥ " * at_least
        for share, look, more in (
            (us - saved - estimated, "", ""),
            (saved, " to-save", ", can be saved, by measured times"),
            (estimated, " to-gain", ", can be saved, by estimates"),
        ):
            if share > 0:
                text = f"{make_printable(name)}: {duration(share)}{more}"
                bar.append(html.span(class_=_look(name) + look, style=f"width:{100 * share / total:.2f}%", title=text))
        can = f", {duration(saved)} to save" if saved > 0 else ""
        can += f", ≈ {duration(estimated)} to save" if estimated > 0 else ""
        can += f", perhaps {duration(perhaps)} to save" if perhaps > 0 else ""
        words = f" {make_printable(name)} {least}{duration(us)} ({percent(us / total)}{can})"
        legend.append(html.span([html.i(class_=_look(name)), words]))
    if any(x.saved > 0 for x in parts):
        legend.append(html.span([html.i(class_="k to-save"), " hatched: can be saved, by measured times"]))
    if any(x.estimated > 0 for x in parts):
        lighter = "lighter: by estimates" if any(x.saved > 0 for x in parts) else "hatched: can be saved, by estimates"
        legend.append(html.span([html.i(class_="k to-gain"), f" {lighter}"]))
    label = ", ".join(f"{percent(x.us / total)} {make_printable(x.name)}" for x in parts)
    return [
        html.p(html.b(head), class_="time", **WHOLE),
        html.div(bar, class_="time-bar", role="img", **_aria(label=label), **WHOLE),
        html.p(legend, class_="legend", **WHOLE),
    ]


def _look(name: str) -> str:
    """Return the CSS classes that give a kind of work its colour in ``assets/explore.css``."""
    kind = kind_of_work(name)
    still = " still" if kind in ("communication", "idle") else ""
    return f"k k-{kind.replace(' ', '-')}{still}"


def _card(action: Card, number: int, names: Sequence[str], leads: Leads, chosen: Selection) -> html.Element:
    """Return the card of one thing to do, as an element of the web page.

    It is a link to the rows or the part of the timeline that it concerns. ``names`` are the names of all things to do
    in their order.
    """
    rows = (leads.rows_of or {}).get(action.name, 0)
    where = None
    if rows:
        where = replace(chosen.cleared(), view="overview", todo=action.name)
    # A card that concerns no rows leads to the timeline, which marks the kind of work. Without a trace, it leads
    # nowhere.
    elif leads.traced:
        where = replace(chosen.cleared(), view="timeline", mark=action.mark)
    lead = f"Show {pluralize(rows, 'problem')}" if rows else f"Show {action.mark or 'it'} in the timeline"
    name = f"lines-{number}"
    boxed = _box_commands(action.commands, name, action.note)
    label = f"Copy: {make_printable(action.title)}"
    copy = html.button("Copy", class_="copy", **_data(copies=name), **_aria(label=label)) if boxed else None
    download = leads.download
    get = html.a("Download (zip)", href=download, class_="get") if action.files and download else None
    worth = "worth unknown" if action.saves == "unknown" else f"saves {action.saves}"
    head = html.h3(f"{number}. {make_printable(capitalize_first(action.title))}")
    sure = html.span(make_printable(action.evidence), title=meaning(action.evidence), class_="sure")
    basis = [html.span(_prose(f" · {action.basis}."), class_="basis")] if action.basis else []
    how = [sentence(x) for x in (action.changes, action.detail) if x]
    # Rows that an earlier card also counts are not to be counted twice.
    both, earlier = max(((leads.shared.get((x, action.name), 0), -n) for n, x in enumerate(names[: number - 1], 1)),
                        default=(0, 0))  # fmt: skip
    which = f"{both:,} of its {pluralize(rows, 'problem')} {'is' if both == 1 else 'are'} also in {-earlier}."
    ends = [*([html.span(lead, class_="leads")] if where else []), *([get] if get else [])]
    joined = [x for n, one in enumerate(ends) for x in ([" · ", one] if n else [one])]
    return html.li(
        [
            html.link([head], where.url(), class_="whole", title=lead) if where else head,
            html.p(worth, class_="saves"),
            *(
                [html.p([html.b(make_printable(action.gain)), " · ", sure, *basis])]
                if action.saves != "unknown"
                else []
            ),
            html.p([html.b("How: "), *_prose(" ".join(how))]),
            html.p(which, class_="basis") if both and rows else None,
            *boxed,
            # The line has its place before the lead is known, so that the cards do not move.
            html.p([*(joined or ["\u00a0"]), copy], class_="ends") if ends or copy or leads.rows_of is None else None,
        ],
        **_data(about=action.name),
    )


def _keep_words(line: str) -> list[object]:
    """Return a command line as elements, so that the browser breaks no line within an option such as ``--run``."""
    parts = re.split(r"( +)", line)
    return [html.span(x, class_="word") if x[0] == "-" else x for x in parts if x]


def _box_commands(commands: Sequence[Command], name: str, explained: str = "") -> list[object]:
    """Return the box with the command lines of a card, and a note that explains them. Empty without lines.

    * ``name``: the id of the element whose text the button Copy copies.
    * ``explained``: a sentence for the note.
    """
    if not commands:
        return []
    # The style sheet shows the labels. They are no text of the element, so they are neither copied nor selected.
    ends = ["\n"] * (len(commands) - 1) + [""]
    lines = [
        html.span([*_keep_words(make_printable(line)), end], class_="line", **_data(label=label))
        for (label, line), end in zip(commands, ends, strict=True)
    ]
    said = ["JOB is the command of the job"] if any("-- JOB" in line for _, line in commands) else []
    said += [explained] if explained else []
    note = [html.p(" ".join(map(sentence, said)), class_="note")] if said else []
    return [html.div([html.pre(html.code(lines, id=name)), *note], class_="commands")]


_MEANS: Mapping[str, str] = {
    "measured in the job": "timed in the running job, with and without the change",
    "measured alone": "kernels timed outside the job",
    "estimated": "computed from other times",
    UPPER_BOUND: "how much can be saved is unknown; the saving is at most this number",
    "confirmed": "logparse replay timed the change again, alternating with the library's choice",
    "not confirmed": "not timed again by logparse replay yet",
    "may gain nothing": "the interval of the saving includes zero",
    "if not in use yet": f"only if {find_db_choice.ASSUMES}",
}
"""Explanations of the words that say how certain a saving is."""


def meaning(certainty: str) -> str:
    """Explain the words that say how certain a saving is, for example ``measured alone, not confirmed``."""
    return "; ".join(_MEANS[x] for x in certainty.split(", ") if x in _MEANS)


WORDS: Mapping[str, str] = {
    "problem": "a matrix product (GEMM) or a convolution with all its sizes and types",
    "TN 4096×512×1024 b8": "a GEMM: the inputs are transposed (T) or not (N), M × N × K, and 8 of them in one batch",
    "W 64×256×56×56 k128 3×3 s2 g32": "a convolution: its direction, batch × channels × height × width, output "
    "channels (k), size of the filter, stride (s) and groups (g)",
    "F, B, W": "the passes of a layer: forward, backward data (dgrad) and backward weights (wgrad)",
    "W ÷ max(F, B)": "the time of backward weights (W) divided by the time of the layer's slower "
    "other pass. The passes do the same work, so about 1 is usual",
    "≈": "estimated, not measured",
    "solution": "a kernel, or an algorithm of several kernels, that a library can run for a problem",
    "pick": "the solution that the job ran: the library's own choice, or the one of an override row",
    "measured first": "savings that were measured in the job come first, then those measured alone, estimated, and "
    "those of which only an upper bound is known. Equally sure ones are listed by size. A saving below 2% of the step, "
    "and what a measurement is expected to find, stand among the upper bounds",
    "regret": "how much longer the library's choice takes than the fastest known solution",
    "override row": "a line of a file that tells a library which solution to use for a problem",
    "find-db": "MIOpen's file of timed solutions: the system's is installed with MIOpen, the user's (ufdb) is written "
    "by a search on the machine and is read first",
    "exposed communication": "time in which only collectives run, such as an allreduce",
    "idle": "time in which the GPU runs nothing, for example because the host launches too slowly",
    "run of 2 processes": "the logs of 2 processes are added up; their times are not the time of a step",
}
"""Words of the page that a reader may not know, with their meanings."""


KERNELS = 200
"""Largest number of rows in the web page's table of kernels."""
_KERNEL_LETTERS = 100
"""Largest number of characters in the name of a kernel or an operator. The tooltip has the whole name."""


def kernels(rows: Sequence[KernelRow], total_us: float, unit: str, chosen: Selection) -> list[object]:
    """Return the web page's table of the kernels with the longest times (``queries.kernels``).

    * ``unit``: the word for the step to which the times belong, such as ``request``. Empty if they are of the whole
      run.
    """
    if not len(rows):
        return [
            html.p("This run has no trace, so its kernels are unknown. Next: logparse capture --trace.", class_="faint")
        ]
    head = [
        html.th(x, scope="col")
        for x in ("Kernel", "Kind", "Time", "Share", "Launches", "Each", "Operator", "Problem or input")
    ]
    body = []
    names = shorten_names([make_printable(solution_name(f"kernel:{x.kernel}")) for x in rows], _KERNEL_LETTERS)
    ops = shorten_names([make_printable(x.op) for x in rows], _KERNEL_LETTERS)
    for x, name, op in zip(rows, names, ops, strict=True):
        link = html.link(make_printable(x.label or ""), replace(chosen, problem=x.id).url()) if x.id else x.input
        here = "here" if (x.id and x.id == chosen.problem) or (chosen.mark and x.kind == chosen.mark) else ""
        body.append(
            html.tr(
                [
                    html.th(name, scope="row", title=make_printable(x.kernel)),
                    html.td([html.i(class_=_look(x.kind)), f" {x.kind}"]),
                    html.td(duration(x.us), class_="number"),
                    html.td(percent(x.us / total_us), class_="number"),
                    html.td(format_calls(x.calls), class_="number"),
                    html.td(duration(x.us / x.calls) if x.calls else "", class_="number"),
                    html.td(op, title=make_printable(x.op)),
                    html.td(link, title=make_printable(x.label or x.input)),
                ],
                class_=here,
            )
        )
    of = f" of {unit}" if unit else " of the run's traces"
    in_all = f"{duration(total_us)} in all (the sum over all streams, which run at the same time)"
    shown = f"the {len(rows)} longest" if len(rows) >= KERNELS else f"{len(rows)}"
    return [
        html.div(
            [
                html.h2(f"Kernels{of}"),
                html.span(f"{shown}, by time; {in_all}", class_="faint"),
            ],
            class_="bar",
        ),
        html.div(html.table([html.thead(html.tr(head)), html.tbody(body)], class_="kernels"), class_="scroll"),
    ]


def list_launched_kernels(rows: Sequence[KernelRow], chosen: Selection, caller: str = "") -> list[object]:
    """Return the web page's list of kernels that a GEMM or convolution launches, with a link to the timeline.

    The list is empty if no kernel is known. ``caller`` says from where the program calls the GEMM or convolution.
    """
    if not len(rows):
        return []
    names = shorten_names([make_printable(solution_name(f"kernel:{x.kernel}")) for x in rows], _KERNEL_LETTERS)
    each = [
        html.li(
            [
                html.b(duration(x.us)),
                f" {format_calls(x.calls)} × ",
                html.span(name, title=make_printable(x.kernel)),
                f" ({make_printable(x.op or x.kind)})",
            ]
        )
        for x, name in zip(rows, names, strict=True)
    ]
    where = html.link("Where in the step →", replace(chosen, view="timeline").url())
    place = [html.p(make_printable(caller[:1].upper() + caller[1:]), class_="caller")] if caller else []
    return [html.div([html.h3("Its kernels"), where], class_="bar"), html.ul(each, class_="launched"), *place]


def detail(
    row: pd.Series,
    advised: Advice,
    chart: html.Element,
    close: str,
    *,
    names: Names = ("this run", "the compared run"),
    expected: str = "",
    launched: Sequence[object] = (),
) -> html.Element:
    """Return the details of one GEMM or convolution: what to do, numbers, times, kernels, and texts to copy.

    * ``names``: this run and the compared run.
    * ``expected``: a sentence about times of similar ones.
    * ``launched``: elements about its kernels.
    """
    estimated, unsettled = row["saving_from"] == "estimated", row["saving_from"] == "conditional"
    now = "Time now, according to the system find-db" if unsettled else "Now"
    known = pd.notna(row["saving_us"])
    saves = f"{'0 or ' * unsettled}{'≈ ' * (estimated and known)}{duration(row['saving_us'])}"
    time = f"{'≥ ' * bool(row['at_least'])}{duration(row['time_us'])}"
    whose = f", {row['then_is']}" if isinstance(row["then_is"], str) else ""
    expected_time = [(f"Expected{whose}", f"≈ {duration(row['aim_us'])}")] if pd.notna(row["aim_us"]) else []
    numbers = [
        (now if row["own"] or unsettled else f"Time in {make_printable(str(row['file']))}", time),
        (
            f"Best known, in {make_printable(str(row['file']))}" if row["apart"] else "Best known",
            duration(row["then_us"]),
        ),
        *expected_time,
        (f"Calls of {one}" if (one := of_one(row["unit"])) else "Calls", format_calls(row["calls"])),
        ("Could save" + (", estimated" if estimated else ""), saves),
        ("Rate", "unknown" if pd.isna(row["tflops"]) else f"{row['tflops']:,.3g} TFLOP/s"),
        ("Of roofline", percent(row["efficiency"])),
    ]
    if pd.notna(row["sibling_ratio"]):
        times = ", ".join(f"{x} {duration(row[f'{x.lower()}_us'])}" for x in "WFB" if pd.notna(row[f"{x.lower()}_us"]))
        ratio = f"{row['sibling_ratio']:.3g}× ({times}; {make_printable(str(row['passes_from']))})"
        numbers.append(("W ÷ max(F, B)", ratio))
    here, there = (_with_end(x) for x in names)
    if pd.notna(row["other_us"]):
        numbers.append((f"{there} → {here}", f"{duration(row['other_us'])} → {duration(row['here_us'])}"))
    if isinstance(row["pick_here"], str) and row["pick_here"] != row["pick_there"]:
        picks = [make_printable(str(row[x])) for x in ("pick_there", "pick_here")]
        if pd.notna(row["pick_here_us"]):
            picks = [f"{x} ({duration(row[y])})" for x, y in zip(picks, ("pick_there_us", "pick_here_us"), strict=True)]
        numbers.append((f"Pick, {there} → {here}", " → ".join(picks)))
    which = f" {TWO_RATIOS}" if row["sibling_ratio"] > 1 else ""
    head = [html.h2(make_printable(str(row["label"]))), html.link("Close", href=close, class_="close")]
    title = f"Override row ({advised.override.name})" if advised.override.name else "Override row"
    return html.section(
        [
            html.div(head, class_="bar"),
            html.p(_prose(advised.sentence), class_="sentence"),
            *([html.p(sentence(UNNAMED), class_="sentence")] if row["at_least"] else []),
            *([html.p(make_printable(sentence(expected) + which), class_="sentence expected")] if expected else []),
            html.dl([html.div([html.dt(name), html.dd(value)]) for name, value in numbers]),
            chart,
            *launched,
            _paste("Bench command", advised.command, "bench"),
            _paste(title, advised.override, "override"),
            html.details([html.summary("Full key"), html.code(make_printable(str(row["problem"])))]),
        ],
        id="problem",
        class_="problem",
        tabindex="-1",
        **_aria(label="One problem"),
    )


UNNAMED = (
    "the job's log does not name the solution that it runs. “≥ time” is the time of the best known solution; the job's "
    "own takes at least as long, if it is among the timed ones"
)
"""Text for times that are lower bounds, because no log names the solution that ran."""
TWO_RATIOS = (
    "Backward weights (W) are compared in two ways: W ÷ max(F, B) compares W with the other passes of its layer, and "
    "the times of similar problems compare it with W of other layers. W can surely be faster only if both show it slow."
)
"""Text for a backward-weight pass (W) that is compared in two ways."""


def _paste(title: str, given: Paste, name: str) -> html.Element:
    note = html.span(make_printable(given.note), class_="faint")
    if not given.text:
        return html.div([html.h3(title), html.p(note)])
    more = _data(copies=f"text-{name}") | _aria(label=f"Copy: {title}")
    copy = html.button("Copy", id=f"copy-{name}", class_="copy", **more)
    head = html.div([html.h3(title), copy, note], class_="bar")
    return html.div([head, html.pre(html.code(given.text, id=f"text-{name}"))])
