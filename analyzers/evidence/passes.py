"""The passes of each layer in each file: what W takes at its best, beside the best F and B of the same layer.

The same SQL makes the table over a store (of hundreds of thousands of records only this leaves the database) and over
DataFrames.  Texts of 150 characters are hashed in the three aggregates that make a row per file and problem of
millions of times, and never joined before.
"""

from __future__ import annotations

from analyzers.evidence.origins import IS_EVIDENCE
from analyzers.evidence.statistics.intervals import TIE
from analyzers.evidence.tables import Settings, Tables, cached_per_run, reading
from logparse.lazy import duckdb, pd

_COLUMNS = (
    "kind text, origin text, source_id text, problem text, solution text, status text, time_us float, evidence bool"
)
_PASSES = f"""
    with timed as (
        select source_id, problem, solution, time_us, problem[6:7] as pass, hash(problem[8:]) as layer
        from measurements
        where status = 'ok' and time_us > 0 and isfinite(time_us) and kind = 'conv'
            and {IS_EVIDENCE}),
    siblings as (
        select source_id, layer, min(time_us) filter (pass = 'F ') as f_us, min(time_us) filter (pass = 'B ') as b_us
        from timed where pass in ('F ', 'B ') group by all),
    w as (
        select source_id, layer, any_value(problem) as problem, min({{'us': time_us, 'solution': solution}}) as best
        from timed where pass = 'W ' group by all)
    select source_id, problem, hash(problem) as problem_hash, best.us as best_us, best.solution as solution,
        contains(lower(best.solution), 'naive') as naive, f_us, b_us
    from w left join siblings using (source_id, layer)"""
"""A problem's text begins with ``conv``, a direction and the layer, which goes by its hash."""


def read_passes(con: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    """The passes of the view ``measurements`` of a connection.

    One row per source and W problem: ``source_id, problem`` and the hash of that, which stands for so long a text where
    rows are compared, ``best_us, solution`` (of equal times the smaller text), ``naive`` (the best is),
    ``f_us`` and ``b_us`` (missing where the source has none).  Times are positive, finite, and of
    origins that are evidence.
    """
    made: pd.DataFrame = con.sql(_PASSES).to_arrow_table().to_pandas()
    return made


def backward_weights(rows: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """``passes`` with ``sibling_us`` (the slower of those present) and ``slow``: whether W takes so much longer."""
    sibling_us = rows[["f_us", "b_us"]].max(axis=1)
    best_us = rows["best_us"] / (1 + TIE)
    slow = (best_us > settings.slow_factor * sibling_us) & (best_us > settings.slow_floor_ms * 1e3)
    return rows.assign(sibling_us=sibling_us, slow=slow)


@cached_per_run
def passes(tables: Tables) -> pd.DataFrame:
    """The passes of the tables, as ``read_passes`` has them: read from the store already, or made here."""
    return passes_of(tables.measurements) if tables.passes is None else tables.passes


def passes_of(measurements: pd.DataFrame) -> pd.DataFrame:
    """The passes of a DataFrame with the columns of the view."""
    with reading({"measurements": measurements}, {"measurements": _COLUMNS}) as con:
        return read_passes(con)
