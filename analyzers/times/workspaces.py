"""The workspace that MIOpen's solvers were measured with, by find-db key: a record that states less makes them fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from analyzers.analyzer import Tables, once
from logparse.formats.miopen import find_db
from logparse.formats.miopen.find_db_items import ORIGIN
from logparse.formats.workspaces import Workspaces
from logparse.model import problem_from_text
from logparse.output.answer import typed
from logparse.store.database import shared_database

if TYPE_CHECKING:
    import duckdb


_COLUMNS = "kind text, origin text, problem text, solution text, workspace_bytes int, key_text text"
_FIND_DB = f"origin = '{ORIGIN}' and key_text is not null"
_NEEDED = "from measurements where kind = 'conv' and workspace_bytes > 0"
_KEYED = f"select key_text as key, solution, workspace_bytes as bytes {_NEEDED} and {_FIND_DB}"
_OTHERS = f"""
    select problem, solution, max(workspace_bytes) as bytes {_NEEDED} and ({_FIND_DB}) is not true group by all"""


def read_workspaces(con: duckdb.DuckDBPyConnection) -> pa.Table:
    """Find-db ``key``, ``solution`` and ``bytes`` of what needs a workspace in the view ``measurements``.

    Texts are dictionaries, made block by block: the whole of a find-db's keys would be its size in memory.
    """
    batches = [_encoded(pa.table(batch)) for batch in con.sql(_KEYED).to_arrow_reader(1 << 17)]
    others = con.sql(_OTHERS).to_arrow_table()
    return pa.concat_tables([*batches, _encoded(_with_keys(others))]).unify_dictionaries().combine_chunks()


def _encoded(rows: pa.Table) -> pa.Table:
    return pa.table(
        {name: rows[name].cast(pa.string()).dictionary_encode() for name in ("key", "solution")}
        | {"bytes": rows["bytes"].cast(pa.int64())}
    )


def _with_keys(rows: pa.Table) -> pa.Table:
    """Rows of a ``problem`` with its find-db key, where it has one."""
    texts = rows["problem"].to_pylist()
    keys = {text: find_db.key(problem_from_text(text), {}) for text in dict.fromkeys(texts)}
    named = rows.append_column("key", pa.array([keys[text] for text in texts], pa.string()))
    return named.filter(pc.is_valid(named["key"]))


@once
def workspaces(tables: Tables) -> Workspaces:
    """Those of the tables: read from the store already, or made here."""
    read = tables.workspaces
    if read is None:
        with shared_database().cursor() as con:
            con.register("measurements", typed(tables.measurements, _COLUMNS))
            read = read_workspaces(con)
    key, solution = (read[name].combine_chunks() for name in ("key", "solution"))
    return Workspaces(
        keys=key.dictionary,
        solutions=solution.dictionary.to_pylist(),
        key=key.indices.to_numpy(),
        solution=solution.indices.to_numpy(),
        bytes=read["bytes"].to_numpy(),
    )
