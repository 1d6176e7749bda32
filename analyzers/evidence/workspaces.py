"""The workspace that MIOpen's solvers were measured with, by find-db key: a record that states less makes them fail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import pandas as pd
import pyarrow as pa

from analyzers.analyzer import Tables
from logparse.formats.miopen import find_db
from logparse.formats.miopen.find_db_record import ORIGIN
from logparse.model import problem_from_text

if TYPE_CHECKING:
    import duckdb

Workspaces: TypeAlias = Mapping[str, Mapping[str, int]]
"""Find-db key → solution → the largest workspace in bytes, where it is above 0."""

_COLUMNS = ("key_text", "problem", "solution", "workspace_bytes")
_ROWS = f"""
    select key_text, if(key_text is null, problem, null) as problem, solution, workspace_bytes
    from (select * replace (if(origin = '{ORIGIN}', key_text, null) as key_text) from measurements
          where kind = 'conv' and workspace_bytes > 0)"""


def read_workspaces(con: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    """Solutions of the view ``measurements`` of a connection that need a workspace: ``key_text`` as a find-db has it,
    else ``problem``, ``solution`` and ``workspace_bytes``.  Texts are categories.
    """
    read = con.sql(_ROWS).to_arrow_table()
    texts = [x.dictionary_encode() if x.type == pa.string() else x for x in read.columns]
    made: pd.DataFrame = pa.table(texts, names=read.column_names).to_pandas()
    return made


def workspaces(tables: Tables) -> Workspaces:
    """Those of the tables: read from the store already, or made here."""
    rows = tables.workspaces
    if rows is None:
        rows = tables.measurements
        rows = rows[(rows["kind"] == "conv") & (rows["workspace_bytes"].astype("float64") > 0)]
        rows = rows.assign(key_text=rows["key_text"].where(rows["origin"] == ORIGIN))
    return _largest(zip(*(rows[x] for x in _COLUMNS), strict=True))


def _largest(rows: Iterable[tuple[str | None, str, str, int]]) -> Workspaces:
    """``key_text`` is the key as a find-db has it; elsewhere it is that of the problem."""
    out: dict[str, dict[str, int]] = {}
    keys: dict[str, str | None] = {}
    for key_text, problem, solution, size in rows:
        key = key_text if isinstance(key_text, str) else None
        if key is None:
            if problem not in keys:
                keys[problem] = find_db.key(problem_from_text(problem), {})
            key = keys[problem]
        if key is not None:
            mine = out.setdefault(key, {})
            mine[solution] = max(int(size), mine.get(solution, 0))
    return out
