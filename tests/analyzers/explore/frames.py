"""Build the table of matrix products and convolutions that the HTML page shows, from DataFrames instead of a store.

A store is a folder of Parquet files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb
import pandas as pd

from analyzers.explore.point_table import build, tabulate_findings
from analyzers.explore.queries import copy_for_duckdb
from logparse.model import CONV_FIELDS, GEMM_FIELDS, Finding

_TEXT, _NUMBER = "object", "float64"
VIEW_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "gemm_problems": {
        **dict.fromkeys(("problem", "kind", "shape", *GEMM_FIELDS, "members", "epilogue"), _TEXT),
        **dict.fromkeys(("m", "n", "k", "batch_count", "flops"), _NUMBER),
    },
    "conv_problems": {
        **dict.fromkeys(("problem", "shape", "layer", "layout", "dtype"), _TEXT),
        **{x: _TEXT if x.endswith(("type", "layout", "cast", "mode", "direction")) else _NUMBER for x in CONV_FIELDS},
        "flops": _NUMBER,
    },
    "measurements": {
        **dict.fromkeys(("source_id", "run", "origin", "kind", "problem", "library", "solution", "status"), _TEXT),
        **dict.fromkeys(("raw", "algorithm", "error", "key_text", "samples_us"), _TEXT),
        **dict.fromkeys(("time_us", "min_us", "max_us", "std_us", "workspace_bytes", "ordinal"), _NUMBER),
    },
    "workload": {**dict.fromkeys(("run", "kind", "problem", "calls_from"), _TEXT), "pid": _NUMBER, "calls": _NUMBER},
    "calls": {
        **dict.fromkeys(("source_id", "run", "category", "problem", "solution"), _TEXT),
        **dict.fromkeys(("count", "pid"), _NUMBER),
        "by_tool": "boolean",
    },
    "links": dict.fromkeys(("problem", "other", "level"), _TEXT),
    "sources": {**dict.fromkeys(("source_id", "run", "path", "format"), _TEXT)},
    "kernels": {
        **dict.fromkeys(("source_id", "run", "op", "unit", "problem"), _TEXT),
        **dict.fromkeys(("device", "calls", "total_us"), _NUMBER),
    },
    "facts": dict.fromkeys(("source_id", "run", "name", "value"), _TEXT),
}
"""The columns of each SQL view that the HTML page needs.

If a DataFrame of a test lacks a column, all values of the column are taken as unknown.
"""


def points(
    problems: pd.DataFrame | Sequence[pd.DataFrame],
    measurements: pd.DataFrame,
    *,
    workload: pd.DataFrame | None = None,
    calls: pd.DataFrame | None = None,
    links: pd.DataFrame | None = None,
    facts: pd.DataFrame | None = None,
    compared: pd.DataFrame | None = None,
    findings: Sequence[Finding] = (),
) -> pd.DataFrame:
    """Return the table of matrix products and convolutions that the HTML page shows, made from the given DataFrames.

    The DataFrames have the columns of the SQL views.

    * ``problems`` is the view ``gemm_problems``, the view ``conv_problems`` or both.
    * ``calls`` and ``links`` decide which entries are the same product and get one row, as in ``logparse top``.
    * ``compared`` is the result of ``analyzers.evidence.picks.picks_vs_best``. Without it, the time of the library's
      choice is only known if the kernel ``Default`` was timed.
    """
    given = {"measurements": measurements, "workload": workload, "calls": calls, "links": links, "facts": facts}
    for frame in [problems] if isinstance(problems, pd.DataFrame) else problems:
        given["conv_problems" if "direction" in frame.columns else "gemm_problems"] = frame
    with duckdb.connect() as con:
        for name, columns in VIEW_COLUMNS.items():
            con.register(name, _with_columns(given.get(name), columns))
        runs = () if workload is None else workload["run"].dropna().unique()
        build(con, str(max(runs)) if len(runs) else "", compared, tabulate_findings(findings))
        return con.execute("select * from points order by total_us desc nulls last, id").df()


def _with_columns(frame: pd.DataFrame | None, columns: Mapping[str, str]) -> pd.DataFrame:
    given = pd.DataFrame() if frame is None else frame
    made = {
        name: given[name] if name in given.columns and len(given) else pd.Series(pd.NA, given.index, dtype=_TEXT)
        for name in columns
    }
    return copy_for_duckdb(pd.DataFrame(made).astype(dict(columns)))
