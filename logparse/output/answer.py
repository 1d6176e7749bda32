"""Print the answer of a command on the terminal, or write it as CSV, JSON or Parquet.

``show`` prints an ``Answer``. ``TABLES`` has the columns of every table that a script may read, which are the same for
every store.
"""

# This module computes nothing. The names, order and types of the columns do not depend on the content of the store.

from __future__ import annotations

import contextlib
import csv
import datetime
import io
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from pathlib import Path
from typing import Any

from logparse.errors import UsageError
from logparse.lazy import pa, pq
from logparse.output.files import Rewrite
from logparse.output.own_files import remember
from logparse.output.terminal import (
    PASSES,
    Block,
    Colour,
    draw_table,
    has_passes,
    is_coloured,
    paint,
)
from logparse.text import make_printable, terminal_width


class TableFormat(str, Enum):
    """The formats in which a table can be printed."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


CHECK_FAILED, UNCHECKED = 3, 4
"""Exit codes of a check that failed, and of a check that had nothing to check.

Exit code 1 means that something could not be read, and 2 means wrong usage.
"""
BESIDE = "logparse: "
"""Beginning of each line that logparse prints between the lines of a user's job."""
ROWS = 20
"""Default number of rows that a table has on the terminal (``-n``)."""
TABLES: Mapping[str, str] = {
    "try": "action text, outcome text, unit text, now_us float, then_us float, then_low_us float, then_high_us float, "
    "ratio float, ratio_low float, ratio_high float, pairs int, processes int, seconds float, deviation float, "
    "deviation_allowed float, why text, changed text",
    "top": "calls int, share float, problem text, pick text, pick_us float, best text, best_us float, saves_us float, "
    "total_us float, saves_only_if text, kind text, calls_from text, text text",
    "show": "level text, run text, category text, pid int, solution text, count int, first_seen time, last_seen time, "
    "by_tool bool, problem text, what text, origin text, device text, status text, time_us float, "
    "workspace_bytes int, error text, key_text text",
    "status": "run text, format text, files int, lines int, call_lines int, measurement_lines int, message_lines int, "
    "rejects int, foreign_lines int, bytes int",
    "formats": "name text, what text, about text",
    "recommend": "run text, analyzer text, kind text, problem text, label text, message text, interval_from text, "
    "confidence text, action text, calls int, pre_us float, post_us float, per_call_us float, per_call_low_us float, "
    "per_call_high_us float, saving_us float, saving_low_us float, saving_high_us float, saving_share float, p float, "
    "solution text, advice text",
    "replay": "problem text, calls int, time_us float, basis text, saving_us float, solutions int, "
    "cost_s float, text text",
    "lint": "file text, line int, severity text, rule text, message text, remedy text",
    "lint -v": "file text, line int, key text, solution text, read bool, matched bool, honoured bool, why text",
    "coverage": "problem text, calls int, time_us float, state text, line int, reason text, key text, text text, "
    "file text",
    "verify": "problem text, intended text, before text, after text, effect text, before_us float, after_us float, "
    "move text, calls int, gained_us float, promised_us float, basis text, file text, line int, text text",
    "verify --action": "operators text, before_us float, promised_us float, after_us float, gained_us float",
    "diff": "state text, problem text, a_us float, b_us float, change float, delta_us float, pick_a text, pick_b text, "
    "basis text, text text",
}
"""For each command, the columns of its table with their types.

``int`` and ``float`` are 64 bits wide.  ``time`` has a resolution of seconds.  Any value may be null.
"""


@dataclass(frozen=True)
class Answer:
    """The answer of a command: text for the terminal, and a table for other formats.

    * ``text`` holds lines and tables for the terminal, in order.  By default it is ``table``.
    * ``notes`` returns further lines for the terminal.  The function is called only if the lines are printed.
    * ``table`` is the table with all columns, for the other formats.  It may be a function that makes the table, so
      that the terminal need not wait for it.
    * ``of`` is the table's name in ``TABLES``.
    * ``errors`` are lines for standard error, in every format.
    * ``aside`` is True if the text goes to standard error as well, because standard output belongs to the user's job.
      Each line then begins with ``BESIDE``.
    * ``code`` is the program's exit code.
    """

    text: Iterable[str | Block] | None = None
    table: Block | Callable[[], Block] | None = None
    of: str = ""
    notes: Callable[[], Iterable[str]] = tuple
    errors: Iterable[str] = ()
    code: int = 0
    aside: bool = False

    @property
    def blocks(self) -> Iterable[str | Block]:
        """The sentences and tables that a command prints on the terminal, in order.

        The additional remarks from ``notes`` are not included.
        """
        made = self.made if self.text is None else None
        return self.text if self.text is not None else [] if made is None else [made]

    @property
    def made(self) -> Block | None:
        """The answer's table.  If ``table`` is a function, it is called now to make the table."""
        return self.table() if callable(self.table) else self.table


def format_of(how: TableFormat | None, out: str | None) -> TableFormat:
    """Choose the format of a table: ``how`` if it is given, otherwise by the ending of the file ``out``.

    Raises UsageError if ``out`` is just the name of a format, or has no known ending.
    """
    if how is not None:
        return how
    if out in TableFormat.__members__:
        raise UsageError(
            f"-o names a file, not a format; to print {out}, use --format {out}; to write it, use -o NAME.{out}"
        )
    ending = os.path.splitext(out or "")[1].removeprefix(".").lower()
    if out is None or ending in ("txt", "table"):
        return TableFormat.table
    if ending not in TableFormat.__members__:
        raise UsageError(f"-o {out}: must end in .csv, .json, .parquet or .txt; for another name, add --format")
    return TableFormat[ending]


def show(
    answer: Answer,
    how: TableFormat | None = None,
    out: str | None = None,
    *,
    wide: bool | None = False,
    n: int | None = None,
    colour: Colour = "auto",
) -> None:
    """Print an answer, or write its table to the file ``out`` and print its name.

    * ``how`` is the format.  By default the ending of the file decides.
    * ``n`` is the number of rows to show of each table.
    * ``colour`` tells whether text is bold and coloured (``paint``).  With ``auto`` it is on a terminal.
    * ``wide`` is True to show every column on any terminal.  None means that the command has no such option.

    Raises UsageError for Parquet on a terminal.  Raises OSError if the file cannot be written.
    """
    how = format_of(how, out)
    if how is TableFormat.table:
        stream = sys.stderr if answer.aside else sys.stdout
        width = None if wide or out is not None else terminal_width()
        width = width and width - len(BESIDE) * answer.aside
        remedy = "--wide shows all columns" if wide is not None else ""
        coloured = out is None and is_coloured(stream, colour)
        with _text_in(out) if out is not None else contextlib.nullcontext(stream) as sink:
            told, in_headline, before = False, True, ""
            for number, block in enumerate(chain(answer.blocks, answer.notes())):
                if not isinstance(block, str) and not told and has_passes(block[:n]):
                    text, told = f"{draw_table(block[:n], width, remedy, coloured)}{PASSES}\n", True
                elif isinstance(block, str):
                    line = make_printable(block)
                    in_headline = in_headline and (not number or line.startswith("    "))
                    text = f"{paint(line, in_headline, before) if coloured else line}\n"
                    before = line
                else:
                    text = draw_table(block[:n], width, remedy, coloured)
                sink.write(mark_as_message(text) if answer.aside else text)
    else:
        _write(arrow(answer.made, answer.of)[:n], how, out)
    if out is not None:
        remember([Path(out)])
        line = f"written: {make_printable(out)}"  # Standard output may be the file itself, as /dev/stdout.
        print(mark_as_message(line) if answer.aside else line, file=sys.stderr)
    for line in answer.errors:
        print(mark_as_message(make_printable(line)) if answer.aside else make_printable(line), file=sys.stderr)


def mark_as_message(text: str) -> str:
    """Put ``logparse: `` before each line, so that the user can distinguish the lines from the output of the job."""
    return "".join(f"{BESIDE}{line}" for line in text.splitlines(keepends=True))


def arrow(table: Block | None, of: str = "") -> pa.Table:
    """Give a table the columns and types that are documented for the command ``of`` (see ``TABLES``).

    If ``of`` is empty, the table is returned unchanged.
    """
    assert table is not None, "this command prints no table, so it has no option for a format"
    return convert_to_columns(table, TABLES[of]) if of else table


def convert_to_columns(table: Block, columns: str) -> pa.Table:
    """Convert a table to the given columns and types, for example ``columns`` of an entry in ``TABLES``.

    A column that the table lacks is filled with null.
    """
    types = {
        "int": pa.int64(),
        "float": pa.float64(),
        "text": pa.string(),
        "bool": pa.bool_(),
        "time": pa.timestamp("ms"),  # Parquet has no type for times in seconds
    }
    rows: Any = table
    if not isinstance(table, Sequence):
        rows = table.to_pylist() if isinstance(table, pa.Table) else table.to_dict("records")

    def column(name: str, kind: pa.DataType) -> pa.Array:
        values = [row.get(name) for row in rows]
        if pa.types.is_integer(kind):  # If kinds of units have weights, the counts of a run may be fractions.
            values = [round(x) if isinstance(x, float) and math.isfinite(x) else x for x in values]
        return pa.array(values, kind, from_pandas=True)

    named = [(name, types[kind]) for name, kind in (words.split(" ") for words in columns.split(", "))]
    return pa.Table.from_arrays([column(*x) for x in named], schema=pa.schema(named))


def _write(table: pa.Table, how: TableFormat, out: str | None) -> None:
    if how is TableFormat.parquet:
        if out is None and sys.stdout.isatty():
            raise UsageError(
                "Parquet is binary, so logparse does not print it to a terminal; name a file with --table, or "
                "redirect the output"
            )
        if out is None:
            sink = io.BytesIO()
            pq.write_table(table, pa.PythonFile(sink, mode="w"))
            sys.stdout.buffer.write(sink.getvalue())
            return
        with Rewrite() as files, files.open(Path(out)) as file:  # Arrow cannot open a name that is not UTF-8
            pq.write_table(table, pa.PythonFile(file, mode="w"))
        return
    # Programs get the same bytes as in a file, whatever the locale.
    if out is None and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    shown = out is None and sys.stdout.isatty()
    rows = zip(*([_plain(value, shown) for value in column.to_pylist()] for column in table.columns), strict=True)
    with _text_in(out) if out is not None else contextlib.nullcontext(sys.stdout) as text:
        if how is TableFormat.csv:
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(table.column_names)
            writer.writerows(rows)
            return
        records = (dict(zip(table.column_names, row, strict=True)) for row in rows)
        text.write("[")
        for number, record in enumerate(records):
            line = json.dumps(record, ensure_ascii=False, default=str)
            text.write(("," if number else "") + "\n " + _CONTROL.sub(_escape, line))
        text.write("\n]\n" if table.num_rows else "]\n")


_CONTROL = re.compile(r"[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Pattern of characters that JSON does not escape but that must not be printed.

A terminal would interpret some of them.  The others cannot be encoded.
"""


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


@contextlib.contextmanager
def _text_in(out: str) -> Iterator[io.TextIOWrapper]:
    """Context in which a text file is written. The new file replaces the old one only at the end."""
    with Rewrite() as files, files.open(Path(out)) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
        yield text
        text.detach()  # flushes it


def _plain(value: Any, shown: bool = False) -> Any:
    """Convert a value so that it can be written as JSON.

    NaN and infinity become null.  Times become ISO 8601 texts.  If ``shown`` is True, the value goes to a terminal, so
    control characters in texts are made visible.
    """
    if shown and isinstance(value, str):
        return make_printable(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return value
