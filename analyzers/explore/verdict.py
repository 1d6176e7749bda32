"""What the analyzers say of a run, in the few tables and sentences that the page shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from analyzers.analyzer import Settings, Tables
from analyzers.explore.plain_text import duration
from analyzers.explore.problems import build, found
from analyzers.picks import compare
from analyzers.recommend import Recommendation, recommend

if TYPE_CHECKING:
    from logparse.store import Store


@dataclass(frozen=True)
class Analysis:
    """``compared`` as of ``picks.compare``, ``found`` one row per problem with a finding, sentences for the top."""

    run: str
    headline: str
    lines: tuple[str, ...]
    compared: pd.DataFrame
    found: pd.DataFrame


def analyse(store: Store, run: str | None = None, settings: Settings | None = None) -> Analysis:
    """Run every analyzer over a run of the store (default the latest).  Raises StoreError where there is none."""
    settings = settings or Settings()
    tables = _tables(store, store.latest_run(run))
    result = recommend(tables, settings)
    return Analysis(
        run=tables.run,
        headline=headline(result),
        lines=tuple(x.message for x in sorted(result.remarks, key=lambda x: x.analyzer not in _FIRST)),
        compared=compare(tables, settings),
        found=found(result.findings),
    )


def store_points(store: Store, run: str | None = None) -> pd.DataFrame:
    """The table of a store's run (default the latest), with what ``recommend`` finds in it."""
    analysis = analyse(store, run)
    with store.connect() as con:
        build(con, analysis.run, analysis.compared, analysis.found)
        return con.execute("select * from points order by total_us desc nulls last, id").df()


def _tables(store: Store, run: str) -> Tables:
    """What ``store.frames`` gives, without what no analyzer can use of problems that the run never called: a system
    find-db of 200,000 problems would take two gigabytes.
    """
    own = ("calls", "workload", "process_messages")
    with store.connect() as con:
        con.execute("create table called as select distinct problem from workload where run = ?", [run])
        con.execute(_CLOSE)
        frames = {name: con.execute(f"select * from {name} where run = ?", [run]).df() for name in own}
        for name in ("sources", "gemm_problems", "conv_problems", "solutions", "kernels", "facts"):
            frames[name] = con.execute(f"select * from {name}").df()
        frames["links"] = con.execute("select * from links semi join called using (problem)").df()
        frames["measurements"] = con.execute(_MEASUREMENTS).df()
    frames["messages"] = frames.pop("process_messages")
    return Tables(run=run, **frames)


_CLOSE = """
    create table close as
    select problem from measurements where solution = 'Default' or exists (from called)
       and problem in (select other from links semi join called using (problem))
    union select problem from called"""
_MEASUREMENTS = """
    select source_id, run, origin, kind, m.problem, library, solution, if(c.problem is null, null, raw) as raw,
           if(c.problem is null, null, algorithm) as algorithm, status, time_us, min_us, max_us, std_us,
           null::double[] as samples_us, workspace_bytes, error, ordinal,
           if(c.problem is null, null, key_text) as key_text
    from measurements m left join close c using (problem)"""


_FIRST = ("suboptimal-pick", "slow-wrw")
"""Analyzers whose remarks say where time is lost; what others say of the logs comes after."""


def headline(result: Recommendation) -> str:
    """The ceiling in one sentence, and on how much of the run it rests."""
    ceiling, count = result.ceiling, len(result.findings)
    overrides = len(result.overrides)
    if ceiling.share is None:
        return (
            f"{count:,} problems are worth a look; no pick is timed against an alternative, so there is no ceiling. "
            "Next: measure them (logparse replay)"
            if count
            else "Nothing is timed against an alternative yet. Next: ingest timings, or measure (logparse replay)"
        )
    rests = [
        f"{share:.0%} of {what}"
        for share, what in ((ceiling.calls_share, "calls"), (ceiling.time_share, "GPU time"))
        if share is not None
    ]
    known = f" (known for {' and '.join(rests)})" if rests else ""
    if ceiling.saving_us <= 0:
        return f"Nothing worth doing: every pick is the best known one{known}"
    return (
        f"At most {ceiling.share:.1%} of the compared time, {duration(ceiling.saving_us)} per run, can be gained{known}"
        f"; {overrides:,} overrides are proposed"
    )
