"""Print the answers of commands, as text, tables or files.

* ``answer``: the answer of a command; the columns of its table; CSV, JSON and Parquet.
* ``terminal``: tables that fit a terminal, and progress bars.
* ``files`` and ``own_files``: writing into a user's folder.
* ``options``: options that several commands have.
* ``program``: the program's output streams and its errors.
"""

from __future__ import annotations

from logparse.output.answer import CHECK_FAILED, ROWS, TABLES, UNCHECKED, Answer, TableFormat, mark_as_message, show
from logparse.output.terminal import Bar, Block, Rows, Stages, Wait, with_total

__all__ = [
    "CHECK_FAILED",
    "ROWS",
    "TABLES",
    "UNCHECKED",
    "Answer",
    "Bar",
    "Block",
    "Rows",
    "Stages",
    "TableFormat",
    "Wait",
    "mark_as_message",
    "show",
    "with_total",
]
