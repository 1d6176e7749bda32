"""Write the report: the web page about one run in one HTML file, with details of the costliest GEMMs and convolutions.

The report is drawn by the same code as the web page: ``page/parts.py`` makes its parts, ``assets/explore.js`` draws
them. Where the web page asks its server, ``assets/report.js`` answers from the data in the file. Two other ways were
considered. A report drawn by code of its own drew every list, table and chart a second time, and differed from the
page. A page of Dash and AG Grid could not be put into a file of 3 MB that opens in half a second, so the page has its
own small table.

The report opens offline from an e-mail. Its Content-Security-Policy allows no request, and no script but the three that
it was written with. Data of a log are in JSON blocks, which a browser never runs, and are shown as text. The large
parts (plotly.js, cards and charts) are compressed, and are unpacked when they are first needed.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files as resources
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from analyzers.evidence.joins import facts_by_source
from analyzers.explore import queries, tries
from analyzers.explore.charts.palette import DARK, KINDS, LIGHT
from analyzers.explore.load.actions import verdict_of
from analyzers.explore.load.analysis import Analysis, analyse
from analyzers.explore.load.beside import Beside, compare, find_run_to_compare, names, put_in_order
from analyzers.explore.load.child import write_tables
from analyzers.explore.load.job import PageVerdict
from analyzers.explore.page import parts
from analyzers.explore.page.components import count
from analyzers.explore.page.frame import ASSETS, frame
from analyzers.explore.page.paste import advice
from analyzers.explore.page.table import records
from analyzers.explore.selection import FACETS, MOST_TIMES, NUMBERS, SEARCHED, VIEWS, Selection, facet_text
from analyzers.explore.views import BOXES, ChartStyle
from analyzers.recommend.verb import STAGES as ADVICE_STAGES
from logparse.groups import in_groups
from logparse.lazy import duckdb, pd
from logparse.output.files import write_file
from logparse.output.own_files import remember
from logparse.quoting import Html, asset, fill_template, html_text, join_code
from logparse.text import make_printable

if TYPE_CHECKING:
    from logparse.store import Store

LIMIT_BYTES = 3_000_000
TOP = 500
PAPER = ("label", "saving_us", "total_us", "calls", "time_us", "then_us", "action", "tflops", "efficiency")
"""Columns of the table that are printed on paper. All columns would be too wide for a page."""
_DOWN = ("todos", "analyzer", "intensity", "sibling_us", "best_us", "library", "unit")
"""Columns of the table ``points`` that the report's filters need, in addition to the columns that it shows."""


@dataclass(frozen=True)
class Report:
    """A finished report: its text, the number of GEMMs and convolutions in it, and how many its run has in all.

    ``earlier`` is the run that it is compared with, if there is one.
    """

    text: Html
    shown: int
    total: int
    run: str = ""
    earlier: str = ""


@dataclass
class _Run:
    """Data about the job that the report needs in addition to its tables, for example the recommended changes.

    The report uses the same functions as the web page. So this class has the attributes that they expect
    (``parts.Known``).
    """

    verdict: PageVerdict
    run: str
    runs: list[str]
    other: str
    empty: frozenset[str]
    rows_of: Mapping[str, int]
    shared: Mapping[tuple[str, str], int]
    traced: bool
    judged: bool = True
    finished: bool = True
    final: bool = True
    error: str = ""
    files: Path | None = None


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
    """Write a report about a run (default: the latest) to the file ``out``.

    * ``compare`` names another run. The report goes from the earlier to the later of the two runs, and is about the
      later one. The forms of the name are described in ``find_run_to_compare``.
    * The report has details of at most ``top`` GEMMs and convolutions. It has fewer if it would be larger than
      ``limit`` bytes.
    * ``begins`` is called with the name of each stage before it begins. There are ``STAGES`` stages.

    Raises StoreError if there is no run, OSError if ``out`` cannot be written.
    """
    compared = find_run_to_compare(compare, store) if compare else None
    if compared:
        run, earlier = put_in_order(store, store.latest_run(run), *compared)
        compared = compared[0], earlier
    analysis = analyse(store, run, limits=(), begins=begins)
    begins("drawing")
    with tempfile.TemporaryDirectory(prefix="logparse-report-") as folder:
        made = _make_fitting_report(store, analysis, compared, Path(folder), top, limit)
    write_file(Path(out), made.text.data)
    remember([Path(out)])
    return replace(made, run=analysis.run, earlier=compared[1] if compared else "")


STAGES = ADVICE_STAGES + 1


def _make_fitting_report(
    store: Store, analysis: Analysis, compared: tuple[Store, str] | None, folder: Path, top: int, limit: int
) -> Report:
    beside, other, called = Beside(), ("", ""), ""
    if compared:
        there, other_run = compared
        beside = compare(store, analysis.run, there, other_run, folder)
        other = names(store, analysis.run, there, other_run)
        called = other_run if there.url == store.url else f"{other_run} of {_name(there.url)}"
    with store.connect() as con:
        con.execute("set threads = 2")
        con.execute("attach ':memory:' as out_")
        write_tables(con, "out_", analysis.run, analysis, beside.times)
        con.execute("use out_")
        known = _Run(
            verdict=verdict_of(analysis, store.url, beside, store.runs()),
            run=analysis.run,
            runs=[analysis.run],
            other=called,
            empty=queries.empty_columns(con),
            rows_of=queries.rows_of_todos(con),
            shared=queries.rows_of_pairs(con),
            traced=queries.has_kernels(con),
        )
        views = _views(con, known, ChartStyle(LIGHT, other, headed=False, mean=parts.mean_step(known)))
        made = _report(con, store.url, known, views, top)
        while len(made.text.data) > limit and top > 10:
            top = top // 2
            made = _report(con, store.url, known, views, top)
    return made


def _views(con: duckdb.DuckDBPyConnection, known: _Run, style: ChartStyle) -> dict[str, dict[str, object]]:
    """Return the content of each tab of the report. The tab for the comparison exists only if there is another run."""
    made: dict[str, dict[str, object]] = {}
    shown = [x for x in VIEWS if x != "compare" or known.other]
    for view in shown:
        chosen = Selection(view=view)
        content = parts.content(con, known, chosen)
        tabs = content["tabs"]
        assert isinstance(tabs, list)
        content["tabs"] = [x for x, name in zip(tabs, VIEWS, strict=True) if name in shown]
        content |= {"filters": [], "version": 1, "finished": True, "doing": ""}
        made[view] = {"content": content, "chart": parts.figure_of(con, chosen, style, webgl=True)}
    return made


def _report(
    con: duckdb.DuckDBPyConnection, url: str, known: _Run, views: Mapping[str, Mapping[str, object]], top: int
) -> Report:
    """Make the report with the ``top`` most important GEMMs and convolutions.

    The ones with the largest savings come first, then the ones with the longest times. If the run is compared with
    another one, the largest changes come first.
    """
    compared, empty = bool(known.other), known.empty | queries.find_zero_columns(con)
    default = queries.order_of("compare" if compared else "", compared=compared, empty=empty)
    rows, total = queries.table(con, Selection(), end=top, default=default)
    con.register("ids_", pd.DataFrame({"id": list(rows["id"])}, dtype="object"))
    orders = {x: queries.order_of(x, compared=compared, empty=empty) for x in views}
    ranks = ", ".join(f"row_number() over (order by {order.by}) as rank_{view}" for view, order in orders.items())
    more = con.execute(f"select id, {', '.join(_DOWN)}, {ranks} from points semi join ids_ using (id)").df()
    rows = rows.merge(more, on="id", how="left")
    rows["todos"] = ["|".join(x) if isinstance(x, list) or hasattr(x, "tolist") else "" for x in rows["todos"]]
    whole = len(rows) == total
    note = count(total, default.first) if whole else f"{len(rows):,} of {total:,} problems, {default.first} first"
    first = {
        "live": False,
        "opens": Selection(view="compare").url() if compared else "",
        "rows": _by_column(rows),
        "notes": {x: note if order.by == default.by else count(len(rows), order.first) for x, order in orders.items()},
        "facets": _facets(rows),
        "by": {x: order.column for x, order in orders.items()},
        "numbers": {name: queries.SCALED.get(name, 1.0) for name in NUMBERS},
        "limits": {"titles": dict(NUMBERS), "none": MOST_TIMES},
        "searched": dict(SEARCHED),
        "boxes": {view: axes for view, axes in BOXES.items() if view in views},
        "views": {view: made["content"] for view, made in views.items()},
        "paper": [x for x in (*PAPER, *(queries.COMPARED if known.other else ())) if x not in known.empty],
        "titles": {view: VIEWS[view] for view in views},
    }
    later = {
        "charts": {view: made["chart"] for view, made in views.items()},
        "cards": _cards(con, known),
        "dark": _recolouring(),
    }
    return Report(_page(url, known, first, later), len(rows), total)


def _facets(rows: pd.DataFrame) -> list[dict[str, object]]:
    """Return the filters of the report: the columns with a few values, and the text of each value.

    ``assets/report.js`` counts the rows.
    """
    made: list[dict[str, object]] = []
    for name in _FACETS:
        values = sorted(set(rows[name].dropna().astype(str)))
        if 1 < len(values) <= MOST_VALUES:
            made.append({"name": name, "title": FACETS[name], "values": {x: facet_text(name, x) for x in values}})
    return made


_FACETS = ("operation", "direction", "dtype", "library", "layout")
"""Columns by which a reader can filter the rows of the report."""
MOST_VALUES = 12
"""A column with more values is no filter of the report. Its values are found by the search."""


def _by_column(rows: pd.DataFrame) -> dict[str, list[object]]:
    """Convert a table to a dictionary of columns for JSON. Numbers are rounded to six digits."""
    plain = records(rows)

    def short(value: object) -> object:
        return float(f"{value:.6g}") if isinstance(value, float) else value

    return {str(name): [short(row[str(name)]) for row in plain] for name in rows.columns}


def _cards(con: duckdb.DuckDBPyConnection, known: _Run) -> Mapping[str, object]:
    """Return the details that the report shows when the reader clicks on a GEMM or convolution.

    The keys are the ids in the table ``ids_``, which has each GEMM or convolution that can be clicked.
    """
    chosen = con.execute("select p.* from points p semi join ids_ using (id)").df()
    con.register("wanted_", pa.table({"problem": pa.array(sorted(set(chosen["measured"])), pa.string())}))
    columns = ", ".join(tries.COLUMNS)
    found = con.execute(f"select {columns} from memory.measurements semi join wanted_ using (problem)")
    by_problem = in_groups(tries.of_query(found), lambda x: x.problem)
    facts = facts_by_source(con.execute("select * from memory.facts").df())
    made: dict[str, object] = {}
    for _, row in chosen.iterrows():
        mine = tries.of_source(by_problem.get(row["measured"], []), row["source_id"])
        advised = advice(row, facts.get(str(row["source_id"]), {}), known.verdict)
        kernels = queries.kernels(con, parts.LAUNCHED, str(row["problem"]))
        shown, near = Selection(problem=str(row["id"])), queries.find_similar_times(con, row)
        caller = queries.called_from(con, known.run, str(row["problem"]))
        card = parts.problem_card(shown, row, mine, advised, kernels, near, "light", (known.run, known.other), caller)
        figure = card["figure"]
        assert isinstance(figure, dict)
        # All figures have the same template, so only the first chart keeps it. The page copies it into the others.
        figure["layout"] = {name: value for name, value in figure["layout"].items() if name != "template"}
        made[str(row["id"])] = card
    return made


def _recolouring() -> dict[str, str]:
    """Map each colour of the light theme to its colour in the dark theme.

    The browser uses the map when the user switches the theme.
    """
    roles = ("panel", "ink", "faint", "grid", "alarm", "good")
    pairs = {getattr(LIGHT, name): getattr(DARK, name) for name in roles}
    for light, dark in ((LIGHT.categories, DARK.categories), (LIGHT.scale, DARK.scale)):
        pairs |= dict(zip(light, dark, strict=True))
    return pairs | dict(KINDS.values())


_POLICY = Html(
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src @hashes@ 'unsafe-eval'; "
    "style-src 'unsafe-inline'; img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'\">"
)
_STYLE, _PACKED = Html("<style>@style@</style>"), Html('<script type="text/plain" id="@name@">@text@</script>')
_SCRIPT = Html("<script>@script@</script>")


def _page(url: str, known: _Run, first: Mapping[str, object], later: Mapping[str, object]) -> Html:
    scripts = [Html(asset(ASSETS / x)) for x in ("report.js", "explore.js")]
    plotly = asset(resources("plotly") / "package_data" / "plotly.min.js")
    packed = {"later": parts.as_json(later), "plotly": plotly}
    blocks = [
        fill_template(_PACKED, {"name": html_text(x), "text": html_text(_compressed(y))}) for x, y in packed.items()
    ]
    hashes = " ".join(f"'sha256-{_digest(x)}'" for x in (*scripts, plotly))
    style = join_code(Html(), [Html(asset(ASSETS / x)) for x in ("explore.css", "report.css")])
    scope = f"{known.other} → {known.run}" if known.other else f"run {known.run}"
    return frame(
        "logparse report",
        f"{_name(url)}, {make_printable(scope)}",
        "Made by logparse. This file loads nothing from the network.",
        json.loads(parts.as_json(first)),
        policy=fill_template(_POLICY, {"hashes": html_text(hashes)}),
        style=fill_template(_STYLE, {"style": style}),
        scripts=join_code(Html(), [*blocks, *(fill_template(_SCRIPT, {"script": x}) for x in scripts)]),
    )


def _compressed(text: str) -> str:
    """Compress a text with gzip and encode it in base64. The same text always gives the same result."""
    return base64.b64encode(gzip.compress(text.encode("utf-8", "backslashreplace"), 9, mtime=0)).decode()


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _name(url: str) -> str:
    return url.rstrip("/").rsplit("/", 1)[-1]
