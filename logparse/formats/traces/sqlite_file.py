"""SQLite databases that profilers export, read without writing to them or beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import quote

from logparse.formats.format import Outcome, Source
from logparse.model import Reject

if TYPE_CHECKING:
    import sqlite3


def outcomes(source: Source, read: Callable[[sqlite3.Connection], Iterator[Outcome]]) -> Iterator[Outcome]:
    """What ``read`` yields of the database, bytes that are not UTF-8 escaped; a reject where SQLite cannot read on."""
    import sqlite3

    path = quote(source.local_path())
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
            database.text_factory = lambda raw: raw.decode("utf-8", "backslashreplace")
            yield from read(database)
    except sqlite3.Error as error:
        yield Outcome("reject", [Reject(f"sqlite: {error}")])


def quoted(name: str) -> str:
    """A table's or column's name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'
