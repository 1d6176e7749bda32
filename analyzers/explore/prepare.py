"""Reading a store for the page, in a process of its own.

Reading 200,000 problems takes more than half a gigabyte for some seconds, which the page must not keep.  So a child
reads the store, writes what the page needs as Parquet into a folder and says after each step that it is there.  The
first step is all that the first view needs; what the analyzers say comes later, at a lower priority than the page.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa

from analyzers.analyzer import Settings
from analyzers.explore import cache, problems, rows
from analyzers.explore.verdict import analyse
from logparse.errors import LogparseError
from logparse.store import open_store

if TYPE_CHECKING:
    import duckdb

    from logparse.store import Store

READY, TRIES, VERDICT, FAILED, DONE = "ready", "tries", "verdict", "failed", "done"
_SMALL = {
    "sources": "select * from sources where run = $run",
    "facts": "select * from facts",
    "ticks": rows.TICKS,
}
_TRIES = """
    select hash(problem) as h, source_id, origin, library, solution, raw, algorithm, status, time_us, min_us, max_us,
           std_us, samples_us, workspace_bytes, error, key_text from measurements where kind <> 'family' order by h"""


def prepare(
    sender: Connection, url: str, run: str | None, folder: str, other: str | None, target: Mapping[str, str]
) -> None:
    """The child: send ``(step, text)`` for each step that is in ``folder``, and keep it all; never raises."""
    pa.set_memory_pool(pa.system_memory_pool())  # the other pools hold on to what was freed
    try:
        store = open_store(url)
        chosen = store.latest_run(run)
        kept = cache.place(store, chosen, other, target)  # of the store as it is before it is read
        for step in (_first, _tries, partial(_verdict, target=target)):
            sender.send((step(store, chosen, Path(folder), other), ""))
            if step is _first:
                os.nice(5)
        if kept is not None:
            cache.keep(Path(folder), kept)
        sender.send((DONE, ""))
    except (LogparseError, OSError) as error:
        sender.send((FAILED, str(error)))
    except Exception as error:  # the page must say why it stays empty, whatever it was
        sender.send((FAILED, f"{type(error).__name__}: {error}"))


def _first(store: Store, run: str, folder: Path, other: str | None) -> str:
    with _connect(store) as con:
        problems.survey(con, run)
        for name in ("bases", "places", "peaks"):
            _write(con, f"select * from {name}", folder / f"{name}.parquet")
        for name, sql in _SMALL.items():
            con.execute(f"create or replace table out_ as {sql}", {"run": run} if "$run" in sql else None)
            _write(con, "select * from out_", folder / f"{name}.parquet")
    if other is not None:
        with _connect(open_store(other)) as con:
            problems.build(con, open_store(other).latest_run())
            sql = "select problem, min(time_us) as other_us from points group by problem"
            _write(con, sql, folder / "others.parquet")
    (folder / "run.json").write_text(json.dumps({"run": run, "runs": store.runs()}))
    return READY


def _tries(store: Store, run: str, folder: Path, other: str | None) -> str:
    """Every measurement, ordered so that those of one problem lie together and are found without reading the rest."""
    with _connect(store) as con:
        _write(con, _TRIES, folder / "tries.parquet", "row_group_size 4096")
    return TRIES


def _verdict(store: Store, run: str, folder: Path, other: str | None, target: Mapping[str, str]) -> str:
    analysis = analyse(store, run, Settings(target=target))
    _plain(analysis.compared[list(problems.COMPARED)]).to_parquet(folder / "compared.parquet")
    _plain(analysis.found).to_parquet(folder / "found.parquet")
    (folder / "verdict.json").write_text(json.dumps({"headline": analysis.headline, "lines": analysis.lines}))
    return VERDICT


def _connect(store: Store) -> duckdb.DuckDBPyConnection:
    con = store.connect(direct=True)
    for setting in ("threads = 2", "memory_limit = '500MB'", "preserve_insertion_order = false"):
        con.execute(f"set {setting}")
    return con


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Object columns as text, so that an empty or mixed column has a type in Parquet."""
    texts = [x for x in frame.columns if frame[x].dtype == object]
    return frame.astype(dict.fromkeys(texts, "string"))


def _write(con: duckdb.DuckDBPyConnection, sql: str, path: Path, options: str = "") -> None:
    target = str(path).replace("'", "''")
    con.execute(f"copy ({sql}) to '{target}' (format parquet{', ' + options if options else ''})")
