"""Read all contents of a store (Parquet folder), for tests that compare two stores."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import pyarrow.parquet as pq

from logparse.store import Store
from logparse.store.schema import RECORDED, VIEWS

OF_THE_MOMENT = ("ingested_at", "seconds")
"""Columns that differ if the same files are read twice, for example times of reading."""


def contents(store: Store, but: Collection[str] = (), views: Iterable[str] = VIEWS) -> dict[str, list[str]]:
    """Return the rows of each SQL view as sorted texts, after a text with the names of its columns.

    The columns in ``but`` are left out. Sorting DataFrames by all columns would take three times as long.
    """
    out = {}
    with store.reading() as con:
        for view in views:
            rows = con.execute(f"select * from {view}").fetchall()
            names = [str(column[0]) for column in con.description]
            kept = [place for place, name in enumerate(names) if name not in but]
            out[view] = [str([names[x] for x in kept]), *sorted(str([row[x] for x in kept]) for row in rows)]
    return out


def unrecord(store: Store) -> None:
    """Change the files of a local store (Parquet folder) as if an earlier version of logparse had written them.

    Such files lack the lists and checksums of their Parquet files.
    """
    for path in Path(store.url).glob("sources/**/*.parquet"):
        pq.write_table(pq.ParquetFile(path).read().drop_columns([RECORDED]).replace_schema_metadata(), path)
