"""What the analyzers say of a run, in the few tables and sentences that the page shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from analyzers.analyzer import Settings, Tables
from analyzers.evidence.picks import compare
from analyzers.explore.plain_text import duration
from analyzers.explore.point_table import build, found
from analyzers.recommend.ranking import Recommendation, recommend

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
    nothing = not len(tables.workload) and not len(tables.measurements)
    return Analysis(
        run=tables.run,
        headline=NOTHING if nothing else headline(result),
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
    with store.connect(direct=True) as con:
        for setting in ("threads = 2", "memory_limit = '400MB'", "preserve_insertion_order = false"):
            con.execute(f"set {setting}")
        con.execute("create table called as select distinct problem from workload where run = ?", [run])
        called = con.execute("select count(*) from called").fetchone() != (0,)
        con.execute(f"create table linked as {_LINKS if called else 'select * from links limit 0'}")
        con.execute(_CLOSE)
        con.execute(_BEST)
        frames = {name: con.execute(f"select * from {name} where run = ?", [run]).df() for name in own}
        for name in ("sources", "gemm_problems", "solutions", "kernels", "facts"):
            frames[name] = con.execute(f"select * from {name}").df()
        wanted = {"links": "from linked", "conv_problems": _CONVS, "measurements": _MEASUREMENTS}
        for name, sql in wanted.items():  # over Arrow, which makes no Python object per text
            frames[name] = con.sql(sql).to_arrow_table().to_pandas()
    frames["messages"] = frames.pop("process_messages")
    return Tables(run=run, **frames)


_LINKS = "select * from links semi join called using (problem)"
_CLOSE = """
    create table close as
    select hash(problem) as h from measurements
    where solution = 'Default' or origin in ('replay', 'replay-confirm')
    union select hash(other) from linked union select hash(problem) from called"""
_BEST = """
    create table best as
    select source_id, hash(problem) as h, min(time_us) as best_us from measurements
    where origin = 'find-db' and kind = 'conv' and status = 'ok' and time_us > 0 and isfinite(time_us)
      and hash(problem) in (select hash(problem) from conv_problems where direction <> 'W')
      and source_id not in (select source_id from facts where name = 'find_db' and value = 'user')
    group by all"""
"""F and B of system find-dbs: of those that are not close only the best time says anything (about W)."""
_CONVS = "select problem, layer, direction, groups, dtype, flops from conv_problems"
"""What analyzers look at; one that wants more fails in the tests of the page and is given it here."""
_MEASUREMENTS = """
    select m.source_id, run, origin, kind, problem, library, solution, if(c.h is null, null, raw) as raw,
           if(c.h is null, null, algorithm) as algorithm, status, time_us, min_us, max_us, std_us,
           null::double[] as samples_us, workspace_bytes, error, ordinal, if(c.h is null, null, key_text) as key_text
    from measurements m left join close c on c.h = hash(problem)
    left join best b on b.h = hash(problem) and b.source_id = m.source_id and origin = 'find-db'
    where c.h is not null or b.h is null or time_us = best_us"""


NOTHING = (
    "This run holds no call and no timing. Next: log calls (HIPBLASLT_LOG_MASK=32 writes bench lines), "
    "or ingest tuning files"
)
_FIRST = ("suboptimal-pick", "slow-wrw")
"""Analyzers whose remarks say where time is lost; what others say of the logs comes after."""


def headline(result: Recommendation) -> str:
    """The ceiling in one sentence, and on how much of the run it rests."""
    ceiling, count = result.ceiling, len(result.findings)
    worth = "1 problem is" if count == 1 else f"{count:,} problems are"
    overrides = len(result.overrides)
    if ceiling.share is None:
        return (
            f"{worth} worth a look; no pick is timed against an alternative, so there is no ceiling. "
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
