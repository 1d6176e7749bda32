"""Compare the time of each convolution's weight gradient (W) with the other two passes of the same layer.

The other passes are the forward pass (F) and the gradient of the input (B). The same SQL query works for a folder of
Parquet files and for DataFrames. There may be hundreds of thousands of records, and only the result leaves the
database. Layers are compared by their hashes, because their texts have 150 characters. The query first reduces millions
of times to one row per file and convolution, and joins afterwards.
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
"""SQL query for the best times of the three passes of each convolution layer: forward, input and weight gradient.

The text of a convolution is ``conv``, the direction (F, B or W), and then the layer, which is hashed.
"""


def read_passes(con: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    """Return the best times of the weight gradient (W) and of the other two passes of each convolution layer.

    The other passes are the forward pass (F) and the gradient of the input (B). There is one row for each file and W.
    Times are positive, finite, and may be used to compare kernels. ``con`` has a view ``measurements``. Columns:

    * ``source_id``: the file.
    * ``problem, problem_hash``: the text of W and its hash. Rows are compared by the hash, because the text is long.
    * ``best_us, solution``: the time and name of the fastest kernel. Of equal times, the name that sorts first is used.
    * ``naive``: True if the fastest kernel is one of MIOpen's naive kernels.
    * ``f_us``, ``b_us``: best times of F and B of the layer. Missing if the file has none.
    """
    made: pd.DataFrame = con.sql(_PASSES).to_arrow_table().to_pandas()
    return made


def backward_weights(rows: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """Mark the convolutions whose weight gradient (W) is slow compared with the layer's other passes (F and B).

    * ``sibling_us``: new column, the time of the slower of F and B.
    * ``slow``: new column, True if W is slow.
    """
    # If only one of F and B is known, its time is used.
    sibling_us = rows[["f_us", "b_us"]].max(axis=1)
    best_us = rows["best_us"] / (1 + TIE)
    # W must take more than ``Settings.slow_factor`` times ``sibling_us``, and more than ``Settings.slow_floor_ms``.
    slow = (best_us > settings.slow_factor * sibling_us) & (best_us > settings.slow_floor_ms * 1e3)
    return rows.assign(sibling_us=sibling_us, slow=slow)


@cached_per_run
def passes(tables: Tables) -> pd.DataFrame:
    """Return the best times of forward and both backward passes of each convolution layer (see ``read_passes``).

    They are computed now, unless they were already computed when the data were loaded.
    """
    return passes_of(tables.measurements) if tables.passes is None else tables.passes


def passes_of(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return the best measured times of the three passes of each convolution layer in each file.

    The passes are forward, input gradient and weight gradient. ``read_passes`` explains the columns.
    """
    with reading({"measurements": measurements}, {"measurements": _COLUMNS}) as con:
        return read_passes(con)
