"""The passes of each layer in each file: what W takes at its best, beside the best F and B of the same layer.

The same SQL makes the table over a store (of hundreds of thousands of records only this leaves the database) and over
DataFrames.  Texts of 150 characters are hashed in the three aggregates that make a row per file and problem of
millions of times, and never joined before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzers.analyzer import Settings, Tables, once
from analyzers.statistics.intervals import TIE
from analyzers.times.origins import EVIDENCE
from logparse.output.answer import typed
from logparse.store.database import shared_database
from logparse.text import sql_text

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

_COLUMNS = "kind text, origin text, source_id text, problem text, solution text, status text, time_us float"
_STEPS = (
    f"""
    create temp view timed as
    select source_id, problem, solution, time_us, problem like 'conv W %' as is_w from measurements
    where status = 'ok' and time_us > 0 and isfinite(time_us) and kind = 'conv'
          and origin in ({", ".join(map(sql_text, sorted(EVIDENCE)))})""",
    """
    create temp table files as
    select source_id, cast(row_number() over () as integer) as file from (select distinct source_id from timed)""",
    """
    create temp table solvers as
    select solution, cast(row_number() over (order by solution) as integer) as solver,
           contains(lower(solution), 'naive') as naive
    from (select distinct solution from timed)""",
    """
    create temp table best as
    select file, problem, min(time_us) as us from timed join files using (source_id) where not is_w
    group by file, problem""",
    """
    create temp table w as
    select file, problem, best.us as best_us, best.solver as solver, solutions
    from (select file, problem, min({'us': time_us, 'solver': solver}) as best, count(distinct solver) as solutions
          from timed join files using (source_id) join solvers using (solution) where is_w group by file, problem)""",
)
"""A problem's text holds direction and layer, and layers go by their hashes: a quarter less time on a million texts."""
_PASSES = """
    with placed as (
        select file, us, hash(problem[8:]) as layer,
               case when problem like 'conv F %' then 'F' when problem like 'conv B %' then 'B' end as direction
        from best),
    siblings as (
        select file, layer, min(us) filter (direction = 'F') as f_us, min(us) filter (direction = 'B') as b_us
        from placed where direction in ('F', 'B') group by file, layer)
    select source_id, w.problem, hash(w.problem) as problem_hash, best_us, solution, solutions, naive,
           f_us, b_us
    from w join files using (file) join solvers using (solver)
    left join siblings s on s.file = w.file and s.layer = hash(w.problem[8:])"""
_LEFT = ("files", "solvers", "best", "w")


def read_passes(con: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    """The passes of the view ``measurements`` of a connection.

    One row per source and W problem: ``source_id, problem`` and the hash of that, which stands for so long a text where
    rows are compared, ``best_us, solution`` (of equal times the smaller text), ``solutions`` (with a time), ``naive``
    (the best is), ``f_us`` and ``b_us`` (missing where the source has none).  Times are positive, finite, and of
    origins that are evidence.
    """
    for step in _STEPS:
        con.execute(step)
    made: pd.DataFrame = con.sql(_PASSES).to_arrow_table().to_pandas()
    for table in _LEFT:
        con.execute(f"drop table {table}")
    con.execute("drop view timed")
    return made


def backward_weights(rows: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """``passes`` with ``sibling_us`` (the slower of those present) and ``slow``: whether W takes so much longer."""
    sibling_us = rows[["f_us", "b_us"]].max(axis=1)
    best_us = rows["best_us"] / (1 + TIE)
    slow = (best_us > settings.slow_factor * sibling_us) & (best_us > settings.slow_floor_ms * 1e3)
    return rows.assign(sibling_us=sibling_us, slow=slow)


@once
def passes(tables: Tables) -> pd.DataFrame:
    """The passes of the tables, as ``read_passes`` has them: read from the store already, or made here."""
    return passes_of(tables.measurements) if tables.passes is None else tables.passes


def passes_of(measurements: pd.DataFrame) -> pd.DataFrame:
    """The passes of a DataFrame with the columns of the view."""
    with shared_database().cursor() as con:
        con.register("measurements", typed(measurements, _COLUMNS))
        return read_passes(con)
