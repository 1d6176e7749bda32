"""What one call of each problem took in a run, by each kind of evidence; times of two kinds are never compared.

A trace contains what the job's calls took, a measured file candidates: of these the job's pick counts where a log
names it, else (in a replay) the default, else the fastest, which is what a tuner or a find-db makes the library use.
It is SQL over the views of a store, or over tables with their columns: of hundreds of thousands of problems none
becomes a Python object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from analyzers.analyzer import Tables, once
from analyzers.times.origins import CONFIRM, EVIDENCE, PICK, PICKED, TRACE
from logparse.model import DEFAULT
from logparse.store import Store
from logparse.store.database import shared_database
from logparse.target import machine_of_files

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

_NEAREST = (TRACE, CONFIRM, "driver", "bench", "tunableop-verbose", "miopen-log", "find-db", "tunableop", "tuning-file")
BASES = (*_NEAREST, *sorted(EVIDENCE - {*_NEAREST}))
"""Kinds of evidence, what is nearest to the job first."""

COLUMNS = ("problem", "basis", "solution", "time_us", "noise")


@dataclass(frozen=True, eq=False)
class RunTimes:
    """What a run called and what its calls took.

    ``rows`` has several rows per problem, in no order: ``problem, named, calls, pick`` and ``COLUMNS``.  One row has
    its ``calls`` and its ``pick``, the solution that was picked most often according to its logs; another per
    ``basis`` has ``solution``, ``time_us`` and ``noise``, the relative standard error of the time, null where the
    evidence does not contain it.  ``named``: the run calls or measures the problem.  ``machine``: its machine's facts.
    """

    run: str
    rows: pa.Table
    machine: Mapping[str, str]


_PICKS = f"""
    with named as (
        select category, problem, solution, sum(coalesce(count, 1)) as n from calls
        where solution is not null and not coalesce(by_tool, false) group by all
        union all select origin, problem, solution, count(*) from measurements where origin in {PICKED} group by all),
    logged as (
        select problem, category from named group by problem, category
        qualify row_number() over (partition by problem order by sum(n) desc, category) = 1)
    select problem, solution as pick from named join logged using (problem, category) group by problem, solution
    qualify row_number() over (partition by problem order by sum(n) desc, solution) = 1"""
"""As ``evidence.picks.picks``: several mask categories log one launch, the one with the most picks counts."""
_DEFAULTS = f"select source_id, max(value) as own from facts where name = '{PICK}' group by source_id"
_CALLED = """
    select problem, true as named, cast(sum(calls) as bigint) as calls, bool_and(calls_from = 'profiler') as traced
    from workload group by problem"""
_NOISE = """
    case when len(samples_us) > 1 then 1.4826 * list_median(list_transform(
        samples_us, lambda x: abs(x / list_median(samples_us) - 1))) / sqrt(len(samples_us))
    else std_us / time_us end"""
"""Of its samples where there are any, else the deviation in the file."""
_ROWS = f"""
    select problem, true as named, calls, pick, null as basis, null as solution, null as time_us, null as noise
    from called full join picks using (problem)
    union all by name
    select problem, {TRACE!r} as basis, string_agg(distinct kernel, ' + ' order by kernel) as solution,
           nullif(fsum(total_us) / coalesce(any_value(c.calls) filter (c.traced), max(k.calls)), 'nan') as time_us
    from kernels k left join called c using (problem) where problem is not null group by problem
    union all by name
    select problem, named, basis, f.time_us as time_us, f.solution as solution, f.noise as noise from (
        select problem, if(origin in {tuple(sorted(EVIDENCE))}, origin, null) as basis,
               bool_or(kind is distinct from 'family') as named, min({{
                   'rank': case when solution = pick then 0
                           when origin = '{CONFIRM}' and solution = coalesce(own, '{DEFAULT.text}') then 1 else 2 end,
                   'time_us': time_us, 'solution': solution, 'source_id': source_id,
                   'noise': nullif({_NOISE}, 'nan')}}) as f
        from measurements left join picks using (problem) left join defaults using (source_id)
        where status = 'ok' and time_us > 0 and isfinite(time_us) group by problem, basis)"""
"""Times that are no evidence only show that their problem was measured.  A log of another process may count a problem's
calls, too: then the workload's count is no divisor of the trace's total.
"""
_STAGES = {"picks": _PICKS, "defaults": _DEFAULTS, "called": _CALLED}
"""Small tables that ``_ROWS`` reads: common table expressions would be planned again wherever they are named."""
_BATCH = 1 << 16
"""Rows of a batch: whoever reads the table in DuckDB reads each batch in one thread, and its default is a million."""
_FACTS = "select source_id, name, value from facts"


def times_of_run(store: Store, run: str | None = None) -> RunTimes:
    """The times of a store's run, by default the latest.  Raises StoreError."""
    run = store.latest_run(run)
    with store.reading(" ".join([*_STAGES.values(), _ROWS]), run) as con:
        return _times(con, run)


@once
def times_of(tables: Tables) -> RunTimes:
    with shared_database().cursor() as con:
        for name, schema in _READ.items():
            frame = getattr(tables, name)
            own = frame[frame["run"] == tables.run] if "run" in frame else frame
            con.register(name, pa.Table.from_arrays([_column(own, field) for field in schema], schema=schema))
        return _times(con, tables.run)


def _column(frame: pd.DataFrame, field: pa.Field) -> pa.Array:
    if field.name not in frame or frame[field.name].isna().all():  # pandas may hold them in any type
        return pa.nulls(len(frame), field.type)
    return pa.Array.from_pandas(frame[field.name], type=field.type)


def _fields(texts: str, **others: pa.DataType) -> pa.Schema:
    return pa.schema([*((name, pa.string()) for name in texts.split()), *others.items()])


_READ = {
    "calls": _fields("category problem solution", count=pa.int64(), by_tool=pa.bool_()),
    "workload": _fields("problem calls_from", calls=pa.int64()),
    "measurements": _fields(
        "source_id origin kind problem solution status",
        time_us=pa.float64(),
        std_us=pa.float64(),
        samples_us=pa.list_(pa.float64()),
    ),
    "kernels": _fields("problem kernel", calls=pa.int64(), total_us=pa.float64()),
    "facts": _fields("source_id name value"),
}
"""The columns that are read of each table."""


def _times(con: duckdb.DuckDBPyConnection, run: str) -> RunTimes:
    for name, sql in _STAGES.items():
        con.execute(f"create temp table {name} as {sql}")
    rows = con.sql(_ROWS).to_arrow_table(_BATCH)
    return RunTimes(run, rows, machine_of_files(con.execute(_FACTS).fetchall()))


def timings(tables: Tables) -> pd.DataFrame:
    """One row per problem and kind of evidence of the run, with ``COLUMNS``."""
    frame: pd.DataFrame = times_of(tables).rows.select(list(COLUMNS)).to_pandas()
    return frame[frame["basis"].notna()].reset_index(drop=True)


def main_pick(tables: Tables) -> dict[str, str]:
    """Problem → the solution that was picked most often according to its logs."""
    rows = times_of(tables).rows.select(["problem", "pick"]).drop_null()
    return dict(zip(rows["problem"].to_pylist(), rows["pick"].to_pylist(), strict=True))


def kernels_of(tables: Tables) -> dict[str, str]:
    """Problem → the kernels that its calls launched in the run's traces, as one text."""
    rows = timings(tables)
    rows = rows[rows["basis"] == TRACE]
    return dict(zip(rows["problem"], rows["solution"], strict=True))
