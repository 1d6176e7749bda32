"""Compare the time of each convolution's weight gradient (W) with the other two passes of the same layer.

The other passes are the forward pass (F) and the gradient of the input (B). The same SQL query works for a folder of
Parquet files and for DataFrames. There may be hundreds of thousands of records, and only the result leaves the
database. Layers are compared by their hashes, because their texts have 150 characters. The query first reduces millions
of times to one row per file and convolution, and joins afterwards.
"""

from __future__ import annotations

from analyzers.evidence.origins import IS_EVIDENCE
from analyzers.evidence.statistics.intervals import TIE
from analyzers.evidence.tables import Settings, Tables, cached_per_run, query_frames
from logparse.lazy import duckdb, pd
from logparse.libraries.miopen.find_db_choice import passes_sql

_COLUMNS = (
    "kind text, origin text, source_id text, problem text, solution text, status text, time_us float, evidence bool"
)


def read_passes(con: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    """Return the best times of the weight gradient (W) and of the other two passes of each convolution layer.

    Times are positive, finite, and may be used to compare kernels. ``con`` has a view ``measurements``. ``passes_sql``
    lists the columns.
    """
    made: pd.DataFrame = con.sql(passes_sql(IS_EVIDENCE)).to_arrow_table().to_pandas()
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
def find_best_pass_times(tables: Tables) -> pd.DataFrame:
    """Return the best times of forward and both backward passes of each convolution layer (see ``read_passes``).

    They are computed now, unless they were already computed when the data were loaded.
    """
    return passes_of(tables.measurements) if tables.passes is None else tables.passes


def passes_of(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return the best measured times of the three passes of each convolution layer in each file.

    The passes are forward, input gradient and weight gradient. ``read_passes`` explains the columns.
    """
    with query_frames({"measurements": measurements}, {"measurements": _COLUMNS}) as con:
        return read_passes(con)
