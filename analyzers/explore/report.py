"""Write the report: one HTML file with the charts, the table and the solutions of the costliest problems.

The report opens offline from an e-mail, because plotly.js, styles and data are in it.  Its Content-Security-Policy
allows no request, and no script but the two that it was written with.  Data of a log are in JSON blocks, which a
browser never runs, and are shown as text.
"""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
from plotly.offline import get_plotlyjs

from analyzers.evidence.joins import facts_by_source
from analyzers.explore import point_table, queries, tries
from analyzers.explore.charts.figure import Figure
from analyzers.explore.charts.palette import DARK, LIGHT
from analyzers.explore.charts.solutions import solutions
from analyzers.explore.load.actions import verdict_of
from analyzers.explore.load.analysis import Analysis, analyse
from analyzers.explore.load.beside import beside, compared, keep, names
from analyzers.explore.load.job import Card, PageVerdict, TimeSplit
from analyzers.explore.page.paste import advice
from analyzers.explore.plain_text import amount, of_one, sentence
from analyzers.explore.selection import INTRO, VIEWS, Selection
from analyzers.explore.views import ChartStyle, chart
from analyzers.recommend.verb import STAGES as ADVICE_STAGES
from logparse.groups import in_groups
from logparse.lazy import duckdb
from logparse.output.files import write_file
from logparse.output.own_files import remember
from logparse.quoting import Html, asset, filled, html_list, html_text, joined, json_block
from logparse.text import duration, printable

if TYPE_CHECKING:
    from logparse.store import Store

LIMIT_BYTES = 10_000_000
TOP = 500
SHOWN = 2  # Number of remarks shown at once.
CHARTS = ("roofline", "regret", "weights", "compare")
"""The views whose charts are in the report."""
PAPER = ("label", *queries.PRESETS[next(iter(queries.PRESETS))], "tflops", "efficiency")
"""Columns of the table that are printed.  All columns are too many for a page of paper."""


@dataclass(frozen=True)
class Report:
    """The text of the file, the number of problems in it, and the number of all problems."""

    text: Html
    shown: int
    total: int


@dataclass(frozen=True)
class Beside:
    """Another run to compare with.

    * ``names``: the names of both runs.
    * ``called``: the other run's name in a sentence.
    * ``times``: the comparison, as ``beside.keep`` writes it.
    """

    names: tuple[str, str]
    called: str
    times: Path


def write_report(
    store: Store,
    out: str | os.PathLike[str],
    *,
    run: str | None = None,
    compare: str | None = None,
    top: int = TOP,
    limit: int = LIMIT_BYTES,
    begins: Callable[[str], None] = lambda stage: None,
) -> Report:
    """Write the report of a run (default the latest) to ``out``.

    The report has at most ``top`` problems.  It has fewer if it would be larger than ``limit`` bytes.  ``compare``
    names another run, in a form that ``beside`` takes, which is shown beside this run.  Raises StoreError if there is
    no run, OSError if ``out`` cannot be written.  ``begins`` is called with the name of each of ``STAGES`` stages
    before it begins.
    """
    analysis = analyse(store, run, limits=(), begins=begins)
    begins("drawing")
    with tempfile.TemporaryDirectory(prefix="logparse-report-") as folder:
        other = _beside(store, analysis.run, compare, Path(folder)) if compare else None
        made = _fitting(store, analysis, other, top, limit)
    write_file(Path(out), made.text.data)
    remember([Path(out)])
    return made


STAGES = ADVICE_STAGES + 1


def _fitting(store: Store, analysis: Analysis, other: Beside | None, top: int, limit: int) -> Report:
    with store.connect() as con:
        point_table.build(con, analysis.run, analysis.compared, analysis.found, other.times if other else None)
        verdict = verdict_of(con, analysis, "points")
        style = ChartStyle(LIGHT, names=other.names if other else ("", ""))
        charts = {VIEWS[x]: chart(con, Selection(view=x), style) for x in CHARTS if other or x != "compare"}
        drawn = {title: figure for title, figure in charts.items() if figure is not None}
        made = _report(con, store.url, analysis.run, verdict, other, drawn, top)
        while len(made.text.data) > limit and top > 10:
            top = top // 2
            made = _report(con, store.url, analysis.run, verdict, other, drawn, top)
    return made


def _beside(store: Store, run: str, word: str, folder: Path) -> Beside:
    other, other_run = beside(word, store)
    called = f"run {other_run}" + (f" of {_name(other.url)}" if other.url != store.url else "")
    return Beside(names(store, run, other, other_run), called, keep(compared(store, run, other, other_run), folder))


def _report(
    con: duckdb.DuckDBPyConnection,
    url: str,
    run: str,
    verdict: PageVerdict,
    other: Beside | None,
    charts: Mapping[str, Figure],
    top: int,
) -> Report:
    """Return the report with the solutions of the ``top`` problems.

    Problems are ordered by saving and then by time.  If another run is compared, they are ordered by their change.
    """
    everything = Selection()
    frame, total = queries.table(con, everything, end=top, default=queries.MOVED if other else queries.ORDER)
    con.register("ids_", pd.DataFrame({"id": list(frame["id"])}, dtype="object"))
    chosen = frame.merge(con.execute("select id, own from points semi join ids_ using (id)").df(), on="id", how="left")
    sums = queries.totals(con, everything)
    scope = f"Run {printable(run)}" + (f" beside {printable(other.called)}" if other else "")
    left_out = () if other else queries.COMPARED
    titles = {name: title for name, title in queries.TABLE.items() if name not in left_out}
    data = {
        "titles": titles,
        "texts": sorted(queries.TEXTS),
        "paper": (*PAPER, *(queries.COMPARED if other else ())),
        "columns": {str(name): _plain(chosen[name]) for name in chosen.columns if name not in left_out},
        "charts": {name: figure.plain() for name, figure in charts.items()},
        "captions": {VIEWS[view]: f"{INTRO[view]} {scope}." for view in CHARTS if VIEWS[view] in charts},
        "details": _details(con, verdict),
        "total": total,
        "dark": _recolouring(),
    }
    return Report(_page(url, run, verdict, other, sums, len(frame), total, data), len(frame), total)


def _details(con: duckdb.DuckDBPyConnection, verdict: PageVerdict) -> Mapping[str, object]:
    """Return the details of each problem in the table ``ids_``.

    The details are a figure of its solutions, what to do, and the texts to copy.
    """
    chosen = con.execute("select p.* from points p semi join ids_ using (id)").df()
    con.register("wanted_", pa.table({"problem": pa.array(sorted(set(chosen["measured"])), pa.string())}))
    columns = ", ".join(tries.COLUMNS)
    found = con.execute(f"select {columns} from measurements semi join wanted_ using (problem)")
    by_problem = in_groups(tries.of_query(found), lambda x: x.problem)
    facts = facts_by_source(con.execute("select * from facts").df())
    made = {}
    for row in chosen.to_dict("records"):
        mine = tries.of_source(by_problem.get(row["measured"], []), row["source_id"])
        pick = row["pick"] if isinstance(row["pick"], str) else None
        advised = asdict(advice(row, facts.get(str(row["source_id"]), {}), verdict))
        figure = solutions(mine, LIGHT, pick=pick).plain() if mine else None
        if figure is not None:
            # All figures have the same template, so only the first chart keeps it. The page copies it into the other
            # figures.
            del figure["layout"]["template"]
        made[str(row["id"])] = {"figure": figure, "problem": str(row["problem"]), **advised}
    return made


def _plain(column: pd.Series) -> list[object]:
    if pd.api.types.is_numeric_dtype(column):
        return [None if pd.isna(x) or abs(x) == float("inf") else float(f"{x:.6g}") for x in column]
    return [x if isinstance(x, str) else None for x in column]


def _recolouring() -> dict[str, str]:
    """Map each colour of the light theme to the corresponding colour of the dark theme."""
    names = ("panel", "ink", "faint", "grid", "alarm", "good")
    pairs = {getattr(LIGHT, name): getattr(DARK, name) for name in names}
    for light, dark in ((LIGHT.categories, DARK.categories), (LIGHT.scale, DARK.scale)):
        pairs |= dict(zip(light, dark, strict=True))
    return pairs


def _page(
    url: str,
    run: str,
    verdict: PageVerdict,
    other: Beside | None,
    sums: pd.Series,
    shown: int,
    total: int,
    data: Mapping[str, object],
) -> Html:
    folder = files("analyzers.explore")
    script = Html(asset(folder / "assets_report" / "report.js"))
    sheets = folder / "page" / "assets" / "explore.css", folder / "assets_report" / "report.css"
    plotly = Html(get_plotlyjs())
    of = f"{one} has " if (one := of_one(sums["unit"])) else ""
    calls = of if pd.isna(sums["calls"]) else f"{of}{amount(sums['calls'])} calls of "
    known = f", {duration(float(sums['total_us']))}" if pd.notna(sums["total_us"]) else ", no times" if total else ""
    order = "the largest change first" if other else "the most worthwhile first"
    part = "" if shown >= total else f" The table and the solutions below are of {shown:,} of them, {order}."
    if other:
        part += f" Compared with {printable(other.called)}."
    of_all = f", {shown:,} of {total:,}" if shown < total else ""
    digests = (base64.b64encode(hashlib.sha256(x.encode()).digest()).decode() for x in (plotly, script))
    values = {
        "plotly_hash": html_text(next(digests)),
        "script_hash": html_text(next(digests)),
        "style": joined(Html(), [Html(asset(x)) for x in sheets]),
        "store": html_text(_name(url)),
        "headline": html_text(verdict.headline),
        "todo": _todo(verdict.actions),
        "summary": html_text(f"Run {run}: {calls}{total:,} problems{known}.{part}"),
        "caption": html_text(f"Problems of run {run}{of_all}, {order}"),
        "remarks": _remarks([html_text(sentence(x)) for x in (*_split(verdict.time), *verdict.lines)]),
        "plotly": plotly,
        "data": json_block(data),
        "script": script,
    }
    return filled(Html(asset(folder / "assets_report" / "report.html.in")), values)


def _name(url: str) -> str:
    return url.rstrip("/").rsplit("/", 1)[-1]


def _todo(actions: Sequence[Card]) -> Html:
    """Return the things to do, numbered as ``recommend`` numbers them."""
    texts = (f"{x.title}: {x.gain} ({x.evidence}); {x.changes}" for x in actions)
    return html_list(Html("ol"), map(html_text, texts))


def _split(time: TimeSplit | None) -> list[str]:
    """Return where the time goes, in one sentence."""
    parts = " · ".join(f"{name} {duration(us)}" for name, us in time.parts if us > 0) if time else ""
    return [f"{time.title}, {duration(sum(us for _, us in time.parts))}: {parts}"] if time and parts else []


def _remarks(remarks: Sequence[Html]) -> Html:
    """Return the first remarks, and the others behind a line that opens them."""
    first = [filled(Html("<p class=remark>@text@</p>"), {"text": x}) for x in remarks[:SHOWN]]
    rest = {"count": html_text(str(len(remarks) - SHOWN)), "list": html_list(Html("ul"), remarks[SHOWN:])}
    more = filled(Html("<details><summary>@count@ more</summary>@list@</details>"), rest)
    return joined(Html(), [*first, more] if rest["list"] else first)
