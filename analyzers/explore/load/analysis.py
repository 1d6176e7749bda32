"""Analyse a run, and collect the tables and sentences that the web page shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import pandas as pd

from analyzers.evidence.picks import picks_vs_best
from analyzers.evidence.runs import tables_to_analyse
from analyzers.evidence.tables import Settings
from analyzers.explore.plain_text import capitalize_first
from analyzers.explore.point_table import NEARBY, build, tabulate_findings
from analyzers.explore.selection import MOST_TIMES, Selection
from analyzers.findings import layout_transposes, slow_wrw
from analyzers.findings.layout_transposes import transposed
from analyzers.findings.slower_than_comparable import in_words
from analyzers.job.expectations import expectations
from analyzers.job.gpu_time import GpuTime, gpu_time
from analyzers.recommend.ranking import Recommendation, recommend
from analyzers.recommend.render import warnings_first
from analyzers.recommend.step_times import StepTimes
from analyzers.recommend.todo import Todo
from analyzers.recommend.verb import with_step
from analyzers.recommend.verdict import verdict
from logparse.model import problem_from_text

if TYPE_CHECKING:
    from analyzers.evidence.tables import Tables
    from logparse.store import Store


LIMITS = ("threads = 2", "memory_limit = '400MB'", "preserve_insertion_order = false")
"""Settings of DuckDB that limit the memory of the process that loads data for the web page."""


@dataclass(frozen=True)
class Analysis:
    """All results of the analyzers for one run of a job, as the web page needs them.

    * ``headline`` and ``lines``: sentences for the top of the page.
    * ``compared``: the library's chosen kernels and the best known ones (``picks_vs_best``).
    * ``found``: one row for each GEMM or convolution that can be made faster.
    * ``nearby``: how long similar GEMMs or convolutions take, where this is known (``NEARBY``).
    * ``shows``: for some of the lines, the query string of the page's view that shows what the line is about.
    * ``about``: for some of the lines, the analyzer whose findings the line sums up.
    """

    run: str
    headline: str
    lines: tuple[str, ...]
    shows: Mapping[str, str]
    about: Mapping[str, str]
    compared: pd.DataFrame
    found: pd.DataFrame
    nearby: pd.DataFrame
    recommendation: Recommendation


def analyse(
    store: Store,
    run: str | None = None,
    settings: Settings | None = None,
    limits: Sequence[str] = LIMITS,
    begins: Callable[[str], None] = lambda stage: None,
) -> Analysis:
    """Run all analyzers on a run of a job (default: the latest), and return the results for the web page.

    ``begins`` is called with each stage's name before it begins. Raises StoreError if there is no such run.
    """
    settings = settings or Settings()
    # The stages are the same as in analyzers.recommend.verb.advise.
    begins("reading the store")
    # The limits are DuckDB settings for reading.
    tables = tables_to_analyse(store, run, limits)
    result = recommend(tables, settings, begins=begins)
    result = result if result.gpu_time is None else with_step(result, tables)
    of = verdict(result)
    limit = [of.limit] if isinstance(result.step, StepTimes) else []
    messages = [x.message for x in warnings_first(result.remarks)]
    # The first line is always shown, and is about the job. The others are folded away, the warnings first.
    limit = limit or [x.message for x in result.remarks[:1]]
    compared = picks_vs_best(tables, settings)
    slow = Selection(view="weights", between={"sibling_ratio": (settings.slow_factor, MOST_TIMES)}).url()
    single = {x.analyzer for x in result.findings if x.problem is not None}
    nothing = not len(tables.workload) and not tables.sources["measurement_lines"].sum()
    return Analysis(
        run=tables.run,
        headline=NOTHING if nothing else of.headline,
        lines=tuple(dict.fromkeys([*limit, *messages])),
        shows={x.message: slow for x in result.remarks if x.analyzer == slow_wrw.NAME and x.evidence.details["slow"]},
        about={x.message: x.analyzer for x in result.remarks if x.analyzer in single},
        compared=compared[~compared["apart"].astype(bool)],
        found=_with_actions(tabulate_findings(result.findings), result, {layout_transposes.NAME: transposed(tables)}),
        nearby=_find_similar_times(tables, settings),
        recommendation=result,
    )


def _find_similar_times(tables: Tables, settings: Settings) -> pd.DataFrame:
    """Return times of similar GEMMs or convolutions, for each one that was timed with only one kernel.

    The times are converted to its size.
    """
    rows = []
    for device, (known, times) in expectations(tables, settings).items():
        for i, text in enumerate(known["problem"]):
            if near := times.neighbours(i):
                scaled = [x.scaled_us for x in near]
                told = in_words(problem_from_text(str(text)), near, device)
                rows.append((str(text), told, min(scaled), max(scaled), scaled))
    return pd.DataFrame(rows, columns=list(NEARBY)).drop_duplicates("problem")


def load_gpu_time(store: Store, run: str) -> GpuTime | None:
    """Return how the GPU spent its time in a run's traces. Returns None at once if the run has no traces."""
    if not len(store.query("select 1 from kernels where run = $run limit 1", run, {"run": run})):
        return None
    return gpu_time(tables_to_analyse(store, run, LIMITS))


def _with_actions(
    rows: pd.DataFrame, result: Recommendation, more_of: Mapping[str, Mapping[str, float]] = MappingProxyType({})
) -> pd.DataFrame:
    """Add two columns to the table of findings: a proposal about each GEMM or convolution, and all proposals.

    The first column names the proposal that brings the saving of its row, if there is one.

    * ``more_of``: the GEMMs and convolutions of proposals about the whole job, with their savings in the run, µs.
    """
    parts = {x.action.name: x.parts for x in result.actions}
    todos, named = verdict(result).todo, dict[str, dict[str, str]]()

    def add(todo: Todo, texts: Iterable[str]) -> None:
        for text in texts:
            named.setdefault(text, {}).setdefault(todo.name, capitalize_first(todo.title))

    for todo in todos:
        of = (result.findings[n - 1] for n in todo.findings)
        add(todo, (x.problem.text for x in of if x.problem is not None))
    for todo in todos:
        add(todo, (*(part.of for part in parts.get(todo.name, ())), *more_of.get(todo.name, ())))
    first, all_of = {x: next(iter(y.values())) for x, y in named.items()}, {x: "|".join(y) for x, y in named.items()}
    rows["action"], rows["todos"] = rows["problem"].map(first), rows["problem"].map(all_of)
    known_rows = set(rows["problem"])
    # If a proposal concerns a GEMM or convolution without a finding, a row is added for it.
    others = [x for x in named if x not in known_rows]
    savings = {text: us for of in more_of.values() for text, us in of.items()}
    known = {"action": [first[x] for x in others], "todos": [all_of[x] for x in others]}
    saved = {"found_us": [savings.get(x, math.nan) for x in others]}
    more = pd.DataFrame({"problem": others, **known, **saved, "timed": False}, columns=rows.columns)
    return pd.concat([rows, more.astype(rows.dtypes)], ignore_index=True) if others else rows


def store_points(store: Store, run: str | None = None) -> pd.DataFrame:
    """Return a table of a run's GEMMs and convolutions with possible savings, the one with the most time first.

    ``run`` is the latest by default. ``point_table`` describes the columns.
    """
    analysis = analyse(store, run)
    with store.connect() as con:
        build(con, analysis.run, analysis.compared, analysis.found)
        return con.execute("select * from points order by total_us desc nulls last, id").df()


NOTHING = (
    "This run holds no call and no timing. Next: log calls (HIPBLASLT_LOG_MASK=32 writes bench lines), "
    "or ingest tuning files"
)
