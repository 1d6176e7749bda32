"""Collect the analyzers' results for a run, in the few tables and sentences that the page shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from analyzers.evidence.picks import picks_vs_best
from analyzers.evidence.runs import tables_to_analyse
from analyzers.evidence.tables import Settings
from analyzers.explore.point_table import build, found
from analyzers.job.gpu_time import GpuTime, gpu_time
from analyzers.recommend.ranking import Recommendation, recommend
from analyzers.recommend.step_times import StepTimes
from analyzers.recommend.verb import with_step
from analyzers.recommend.verdict import verdict

if TYPE_CHECKING:
    from logparse.store import Store


LIMITS = ("threads = 2", "memory_limit = '400MB'", "preserve_insertion_order = false")
"""Settings of DuckDB that limit the memory of the page's child process."""


@dataclass(frozen=True)
class Analysis:
    """Results of the analyzers for one run.

    * ``compared``: rows of ``picks_vs_best``.
    * ``found``: one row per problem with a finding.
    * ``headline`` and ``lines``: sentences for the top of the page.
    """

    run: str
    headline: str
    lines: tuple[str, ...]
    compared: pd.DataFrame
    found: pd.DataFrame
    recommendation: Recommendation


def analyse(
    store: Store,
    run: str | None = None,
    settings: Settings | None = None,
    limits: Sequence[str] = LIMITS,
    begins: Callable[[str], None] = lambda stage: None,
) -> Analysis:
    """Run every analyzer over a run of the store (default the latest), with these settings of DuckDB.

    ``begins`` is called with the name of each stage before it begins, as by ``analyzers.recommend.verb.advise``.

    Raises StoreError if there is no such run.
    """
    settings = settings or Settings()
    begins("reading the store")
    tables = tables_to_analyse(store, run, limits)
    result = recommend(tables, settings, begins=begins)
    result = result if result.gpu_time is None else with_step(result, tables)
    of = verdict(result)
    limit = [f"the {of.word} is {of.limit}"] if isinstance(result.step, StepTimes) else []
    compared = picks_vs_best(tables, settings)
    nothing = not len(tables.workload) and not tables.sources["measurement_lines"].sum()
    return Analysis(
        run=tables.run,
        headline=NOTHING if nothing else of.headline,
        lines=(*limit, *(x.message for x in result.remarks)),
        compared=compared[~compared["apart"].astype(bool)],
        found=_with_actions(found(result.findings), result),
        recommendation=result,
    )


def traced(store: Store, run: str) -> GpuTime | None:
    """Return the GPU time of a run's traces.  If the run has no traces, read nothing else and return None."""
    if not len(store.query("select 1 from kernels where run = $run limit 1", run, {"run": run})):
        return None
    return gpu_time(tables_to_analyse(store, run, LIMITS))


def _with_actions(rows: pd.DataFrame, result: Recommendation) -> pd.DataFrame:
    """Add to each problem the name of the best action for it.

    An action may concern a problem without a finding.  Such a problem is added as a row.
    """
    parts = {x.action.name: x.parts for x in result.actions}
    named: dict[str, str] = {}
    for todo in verdict(result).todo:
        of = [x.problem.text for x in (result.findings[n - 1] for n in todo.findings) if x.problem is not None]
        for text in (*of, *(part.of for part in parts.get(todo.name, ()))):
            named.setdefault(text, todo.name)
    rows["action"] = rows["problem"].map(named)
    others = [x for x in named if x not in set(rows["problem"])]
    more = pd.DataFrame({"problem": others, "action": [named[x] for x in others], "timed": False}, columns=rows.columns)
    return pd.concat([rows, more.astype(rows.dtypes)], ignore_index=True) if others else rows


def store_points(store: Store, run: str | None = None) -> pd.DataFrame:
    """Return the table ``points`` of a store's run (default the latest), with the findings of ``recommend``."""
    analysis = analyse(store, run)
    with store.connect() as con:
        build(con, analysis.run, analysis.compared, analysis.found)
        return con.execute("select * from points order by total_us desc nulls last, id").df()


NOTHING = (
    "This run holds no call and no timing. Next: log calls (HIPBLASLT_LOG_MASK=32 writes bench lines), "
    "or ingest tuning files"
)
