"""List what the store holds, and give advice about it (``logparse status``)."""

from __future__ import annotations

import pyarrow as pa

from logparse.store import Store
from logparse.text import make_printable, pluralize, short_path, shorten_texts

_HOLDINGS = """
    select run, format, count(*) as files, cast(sum(lines) as bigint) as lines,
           cast(sum(call_lines) as bigint) as call_lines, cast(sum(measurement_lines) as bigint) as measurement_lines,
           cast(sum(message_lines) as bigint) as message_lines, cast(sum(reject_lines) as bigint) as rejects,
           cast(sum(foreign_lines) as bigint) as foreign_lines, cast(sum(bytes) as bigint) as bytes
    from sources where copy_of is null group by run, format order by min(ingested_at), format"""


def list_contents(store: Store) -> pa.Table:
    """Return a table of what the store contains, with one row per run (execution of a job) and file format.

    The columns are the number of files, their bytes, and the number of lines of each category.
    """
    # The categories are calls, rejects and so on. Copies are left out, and ``hints`` counts them.
    return _rows(store, _HOLDINGS)


def _rows(store: Store, sql: str) -> pa.Table:
    with store.reading(sql) as con:
        return con.sql(sql).to_arrow_table()


_WIDTH = 80
MANY_FILES = 2_000
"""Number of small files in a store above which opening the store takes seconds."""


def hints(store: Store) -> list[str]:
    """Return advice about a store: if it is empty, if many small files make it slow, or if rows cannot be read."""
    if not store.runs():
        return [store.empty]
    count, out = store.unmerged, list[str]()
    if count > MANY_FILES:
        out.append(f"the store has {count:,} small files, which slow it down; `logparse compact` merges them")
    if copies := store.copies():
        path, first = copies[0]
        out.append(
            f"{pluralize(len(copies), 'file')} with the content of another file of the run, so each content "
            f"counts once ({short_path(path)} is a copy of {short_path(first)}; the column copy_of of the view sources "
            "lists all)"
        )
    if left_out := store.left_out():
        first = shorten_texts([store.unreadable()[0]], _WIDTH)[0]
        out.append(
            f"{pluralize(left_out, 'row')} of an earlier version are left out, because their problems cannot be "
            f"read, such as {make_printable(first)}; if ingested again, their lines become rejects with a reason"
        )
    return out
