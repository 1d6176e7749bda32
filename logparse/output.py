"""Tables to the terminal, to CSV, JSON or Parquet.  Nothing here computes."""

from __future__ import annotations

import os
import sys
from enum import Enum
from typing import TYPE_CHECKING

from logparse.errors import LogparseError
from logparse.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd


class TableFormat(str, Enum):
    """How a table is printed."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


def write_table(frame: pd.DataFrame, how: TableFormat, out: str | None = None) -> None:
    """Print a table, or write it to a file.  Raises LogparseError for Parquet on a terminal."""
    if how is TableFormat.parquet:
        if out is None and sys.stdout.isatty():
            raise LogparseError("Parquet is binary: name a file with --output, or redirect")
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.Table.from_pandas(frame, preserve_index=False)
        pq.write_table(table, out if out is not None else pa.PythonFile(sys.stdout.buffer, mode="w"))
        return
    if how is TableFormat.csv:
        text = frame.to_csv(index=False)
    elif how is TableFormat.json:
        text = frame.to_json(orient="records", date_format="iso", indent=1, force_ascii=False) + "\n"
    else:
        text = _terminal(frame)
    if out is None:
        sys.stdout.write(text)
    else:
        with open(out, "w", encoding="utf-8") as sink:
            sink.write(text)


def write_rows(rows: Sequence[Mapping[str, object]]) -> None:
    """Print rows as a table on the terminal (without pandas, which takes longer to import than most logs to read)."""
    names = list(rows[0]) if rows else []
    numeric = {name: all(isinstance(row[name], int | float) for row in rows) for name in names}
    sys.stdout.write(_drawn(numeric, (tuple(row[name] for name in names) for row in rows)))


def _terminal(frame: pd.DataFrame) -> str:
    numeric = {str(name): frame[name].dtype.kind in "iuf" for name in frame.columns}
    return _drawn(numeric, frame.itertuples(index=False, name=None))


def _drawn(numeric: Mapping[str, bool], rows: Iterable[Sequence[object]]) -> str:
    """A table with these columns, numeric ones right-aligned."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, right in numeric.items():
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    width = None if sys.stdout.isatty() else int(os.environ.get("COLUMNS") or 4096)  # a pipe takes whole rows
    console = Console(width=width, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(table)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    return "\n".join(lines).strip("\n") + "\n"


def _cell(value: object) -> str:
    if value is None or str(value) in ("nan", "<NA>", "NaT"):
        return ""
    if isinstance(value, float):
        whole = abs(value) < 1e15 and (value.is_integer() or abs(value) >= 1e3)
        return f"{value:,.0f}" if whole else f"{value:,.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return printable(str(value))
