"""The passes of each layer in each file: what W takes at its best, beside the best F and B of the same layer.

The same SQL makes the table over a store (of hundreds of thousands of records only this leaves the database) and over
DataFrames.  Texts of 150 characters are hashed in the three aggregates that make a row per file and problem of
millions of times, and never joined before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from analyzers.analyzer import Tables, once
from analyzers.times.origins import EVIDENCE
from logparse.store.database import shared_database
from logparse.text import sql_text

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

GENERIC = r"Naive|:[Gg]emm|Wino"
"""Solvers that are there for any problem; nothing made for backward weights is on offer where all are of these."""
_COLUMNS = {
    "measurements": {
        **dict.fromkeys(("kind", "origin", "source_id", "problem", "solution", "status"), pa.string()),
        "time_us": pa.float64(),
    },
    "conv_problems": {**dict.fromkeys(("problem", "direction", "layer"), pa.string()), "flops": pa.int64()},
}


@dataclass(frozen=True)
class _Problems:
    """SQL of what is known of convolutions: which are W, the others of ``best`` with direction and layer, the layer of
    a W, and the table that has their ``flops``.
    """

    are_w: str
    placed: str
    layer: str
    table: str


_STORED = _Problems(
    are_w="problem like 'conv W %'",
    placed="""(
        select file, us, hash(problem[8:]) as layer,
               case when problem like 'conv F %' then 'F' when problem like 'conv B %' then 'B' end as direction
        from best)""",
    layer="hash(problem[8:])",
    table="conv_rows",
)
"""Problems as texts of ``model.ConvProblem``, which hold direction and layer: no join is needed.  Layers
go by their hashes, which takes a quarter less time on a million texts.
"""
_GIVEN = _Problems(
    are_w="problem in (select problem from conv_problems where direction = 'W')",
    placed="best join (select problem, direction, layer from conv_problems) using (problem)",
    layer="(select any_value(layer) from conv_problems c where c.problem = w.problem)",
    table="conv_problems",
)
_TIMED = """
    create temp view timed as
    select source_id, problem, solution, time_us from measurements
    where status = 'ok' and time_us > 0 and isfinite(time_us) and kind = 'conv' and origin in ({origins})"""
_STEPS = (
    """
    create temp table files as
    select source_id, cast(row_number() over () as integer) as file from (select distinct source_id from timed)""",
    """
    create temp table solvers as
    select solution, cast(row_number() over (order by solution) as integer) as solver,
           regexp_matches(solution, '{generic}') as generic, contains(lower(solution), 'naive') as naive
    from (select distinct solution from timed)""",
    """
    create temp table best as
    select file, problem, min(time_us) as us from timed join files using (source_id) where not ({are_w})
    group by file, problem""",
    """
    create temp table w as
    select file, problem, tries[1].us as best_us, tries[1].solver as solver, generic,
           [x.us for x in tries if x.solver <> tries[1].solver][1] as second_us,
           list_unique([x.solver for x in tries]) as solutions
    from (select file, problem, list_sort(list({{'us': time_us, 'solver': solver}})) as tries,
                 bool_and(generic) as generic
          from timed join files using (source_id) join solvers using (solution) where {are_w}
          group by file, problem)""",
)
_PASSES = """
    with siblings as (
        select file, layer, min(us) filter (direction = 'F') as f_us, min(us) filter (direction = 'B') as b_us
        from {placed} where direction in ('F', 'B') group by file, layer),
    sums as (
        select file, sum(us order by us) as all_us
        from (select file, us from best union all select file, best_us from w) group by file),
    sizes as (
        select problem, any_value(flops) as flops from {table}
        where problem in (select problem from w join solvers using (solver) where naive) group by problem)
    select source_id, w.problem, hash(w.problem) as problem_hash, flops, best_us, solution, second_us, solutions,
           w.generic, naive, f_us, b_us, all_us
    from w join files using (file) join solvers using (solver) join sums using (file)
    left join siblings s on s.file = w.file and s.layer = {layer} left join sizes z on z.problem = w.problem"""
_LEFT = ("files", "solvers", "best", "w")


def read_passes(con: duckdb.DuckDBPyConnection, problems: _Problems = _STORED) -> pd.DataFrame:
    """The passes of the views ``measurements`` and ``conv_rows`` (or ``conv_problems``) of a connection.

    One row per source and W problem: ``source_id, problem`` and the hash of that, which stands for so long a text where
    rows are compared, ``best_us, solution`` (of equal times the smaller text),
    ``second_us`` (of the next solution; missing where there is one only), ``solutions`` (with a time), ``generic`` (all
    are), ``naive`` (the best is; only then ``flops`` are there), ``f_us`` and ``b_us`` (missing where the source has
    none) and ``all_us`` (the best times of all passes of the source).  Times are positive, finite, and of origins that
    are evidence.
    """
    origins = ", ".join(map(sql_text, sorted(EVIDENCE)))
    words = {**vars(problems), "generic": GENERIC, "origins": origins}
    for step in (_TIMED, *_STEPS):
        con.execute(step.format(**words))
    made: pd.DataFrame = con.sql(_PASSES.format(**words)).to_arrow_table().to_pandas()
    for table in _LEFT:
        con.execute(f"drop table {table}")
    con.execute("drop view timed")
    return made


@once
def passes(tables: Tables) -> pd.DataFrame:
    """The passes of the tables, as ``read_passes`` has them: read from the store already, or made here."""
    return passes_of(tables.measurements, tables.conv_problems) if tables.passes is None else tables.passes


def passes_of(measurements: pd.DataFrame, conv_problems: pd.DataFrame) -> pd.DataFrame:
    """The passes of DataFrames with the columns of the views."""
    with shared_database().cursor() as con:
        for name, frame in (("measurements", measurements), ("conv_problems", conv_problems)):
            columns = [
                pa.array(frame[x], type=kind, from_pandas=True) if x in frame else pa.nulls(len(frame), kind)
                for x, kind in _COLUMNS[name].items()
            ]
            con.register(name, pa.table(columns, names=list(_COLUMNS[name])))
        return read_passes(con, _GIVEN)
