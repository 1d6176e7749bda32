"""The passes of each layer in each file: what W takes at its best, beside the best F and B of the same layer.

The same SQL makes the table over a store (of hundreds of thousands of records only this leaves the database) and over
DataFrames.  Its large intermediate tables hold numbers in place of texts of 150 characters.  DuckDB's ``hash`` is no
such number: texts that differ by the same digits 16 characters apart have equal hashes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa

from analyzers.analyzer import Tables, once
from analyzers.evidence.origins import EVIDENCE
from logparse.text import sql_text

if TYPE_CHECKING:
    import duckdb

GENERIC = r"Naive|:[Gg]emm|Wino"
"""Solvers that are there for any problem; nothing made for backward weights is on offer where all are of these."""
NAIVE = "Naive"
_STORED = "select problem, direction, substr(problem, 7 + length(direction)) as layer, flops from conv_rows"
_GIVEN = "select problem, direction, layer, flops from conv_problems"
_COLUMNS = {
    "measurements": {
        **dict.fromkeys(("kind", "origin", "source_id", "problem", "solution", "status"), pa.string()),
        "time_us": pa.float64(),
    },
    "conv_problems": {**dict.fromkeys(("problem", "direction", "layer"), pa.string()), "flops": pa.int64()},
}


_STEPS = (
    """
    create temp table given as
    select problem, any_value(direction) as direction, any_value(flops) as flops, any_value(layer) as layer
    from ({layers}) group by problem""",
    """
    create temp table layers as
    select layer, cast(row_number() over () as integer) as place from (select distinct layer from given)""",
    """
    create temp table problems as
    select problem, cast(row_number() over () as integer) as id, direction, flops, place as layer
    from given left join layers using (layer)""",
    "drop table given",
    "drop table layers",
    """
    create temp table files as
    select source_id, cast(row_number() over () as integer) as file from (select distinct source_id from timed)""",
    """
    create temp table solvers as
    select solution, cast(row_number() over (order by solution) as integer) as solver,
           regexp_matches(solution, '{generic}') as generic, contains(solution, '{naive}') as naive
    from (select distinct solution from timed)""",
    """
    create temp table times as
    select file, id, solver, time_us as us from timed join problems using (problem) join files using (source_id)
    join solvers using (solution)""",
    """
    create temp table best as
    select file, direction, layer, us
    from (select file, id, min(us) as us from times group by all) join problems using (id)""",
    """
    create temp table w as
    select file, id, min({{'us': us, 'solver': solver}}) as first, min(us, 2)[2] as second_us, count(*) as solutions,
           bool_and(generic) as generic
    from (select file, id, solver, min(us) as us from times
          where id in (select id from problems where direction = 'W') group by all) join solvers using (solver)
    group by file, id""",
    "drop table times",
)
_TIMED = """
    create temp view timed as
    select source_id, problem, solution, time_us from measurements
    where status = 'ok' and time_us > 0 and isfinite(time_us) and kind = 'conv' and origin in ({origins})"""
_PASSES = """
    with siblings as (
        select file, layer, min(us) filter (direction = 'F') as f_us, min(us) filter (direction = 'B') as b_us
        from best where direction in ('F', 'B') group by all),
    sums as (select file, sum(us order by us) as all_us from best group by all)
    select source_id, problem, flops, w.first.us as best_us, solution, second_us, solutions, w.generic, naive,
           f_us, b_us, all_us
    from w join problems p using (id) join files using (file) join sums using (file)
    join solvers on solver = w.first.solver left join siblings s on s.file = w.file and s.layer = p.layer"""
_LEFT = ("problems", "files", "solvers", "best", "w")


def read_passes(con: duckdb.DuckDBPyConnection, layers: str = _STORED) -> pd.DataFrame:
    """The passes of the views ``measurements`` and, by the SQL ``layers``, the convolutions of a connection.

    One row per source and W problem: ``source_id, problem, flops, best_us, solution`` (of equal times the smaller
    text), ``second_us`` (of the next solution; missing where there is one only), ``solutions`` (with a time),
    ``generic`` (all are), ``naive`` (the best is), ``f_us`` and ``b_us`` (missing where the source has none) and
    ``all_us`` (the best times of all passes of the source).  Times are positive, finite, and of origins that are
    evidence.
    """
    origins = ", ".join(map(sql_text, sorted(EVIDENCE)))
    words = {"layers": layers, "generic": GENERIC, "naive": NAIVE, "origins": origins}
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
    import duckdb

    with duckdb.connect() as con:
        for name, frame in (("measurements", measurements), ("conv_problems", conv_problems)):
            columns = [
                pa.array(frame[x], type=kind, from_pandas=True) if x in frame else pa.nulls(len(frame), kind)
                for x, kind in _COLUMNS[name].items()
            ]
            con.register(name, pa.table(columns, names=list(_COLUMNS[name])))
        return read_passes(con, _GIVEN)
