"""A user's own table of measurements or calls: a CSV or Parquet file with these column names.

::

    trans_a,trans_b,m,n,k,batch_count,a_type,library,solution,time_us
    T,N,4096,512,1024,1,bf16_r,hipblaslt,477479,55.9
    T,N,4096,512,1024,1,bf16_r,torch,Default,61.2

    direction,n,c,h,w,k,filter_h,filter_w,pad_h,pad_w,stride_h,stride_w,groups,in_type,solution,time_us,calls
    W,64,256,56,56,256,3,3,1,1,1,1,1,FP16,miopen:GemmWrwUniversal,812.5,120

Problem columns are the fields of ``GemmProblem`` (at least m, n, k).  With a column ``direction`` they are the fields
of ``ConvProblem``.  Instead there may be one column ``problem`` with the canonical text.  docs/formats.md lists the
other columns.  ``arch``, ``cu_count`` and any other name of ``logparse.model.FACTS`` have one value per file.  Rows of
another machine are rejected.

* A row with a time is a measurement.  It needs a solution.
* A row with calls is a call.
* A row with both is both.

An empty cell is unknown.  ``batch_count`` is 1 if the table has no such column.  Other columns are ignored, and the
fact ``ignored_columns`` names them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from logparse.libraries.kinds.bad_cell import reason_of
from logparse.libraries.kinds.format import FileFormat, Head, Origin, Outcome, Source
from logparse.libraries.kinds.table import UNIT_OF, Header, Row, header_of, read_table
from logparse.model import (
    CONV_FIELDS,
    FACTS,
    GEMM_FIELDS,
    Call,
    ConvProblem,
    Fact,
    GemmProblem,
    Measurement,
    Problem,
    Record,
    Reject,
    Solution,
    Status,
    fault,
    problem_from_text,
    solution_from_text,
)

ORIGIN = "table"
CATEGORY = "table"
_TIMES = ("time_us", "min_us", "max_us", "std_us", "workspace_bytes", "status", "error")
_BOOLS: Mapping[str, bool] = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
_CONV_NEEDS = frozenset({"direction", "n", "c", "h", "w", "k"})


def recognise(head: Head) -> bool:
    """Return True if a file is a user's own table of times or calls.

    Its columns must describe a matrix product or convolution, and a time or a number of calls.
    """
    # A Parquet file is recognised by its first bytes and its name.
    if head.data.startswith(b"PAR1"):
        return head.name.endswith((".parquet", ".pq"))
    return _is_ours(header_of(head).columns)


def _is_ours(columns: Sequence[str]) -> bool:
    names = set(columns)
    problem = "problem" in names or names >= {"m", "n", "k"} or names >= _CONV_NEEDS
    return problem and bool(names & {"time_us", "calls"})


def read(source: Source) -> Iterator[Outcome]:
    """Read a table that the user has made: each row states a measured time, a call, or both.

    A row that cannot be read is reported as an error.  The names of the ignored columns are kept as a fact.
    """
    with source.open() as stream:
        parquet = stream.read(4) == b"PAR1"
    yield from _read_parquet(source) if parquet else read_table(source, _Table, fit="fewer")


class _Table:
    """Reads a user's own table of times or calls.

    The reader keeps the facts about the machine, because all rows of a file must be from one machine.
    """

    def __init__(self, header: Header) -> None:
        self._columns, self._machine = header.columns, dict[str, str]()

    def open(self) -> Iterator[Outcome]:
        ignored = [name for name in self._columns if name not in _KNOWN]
        yield Outcome("fact", [Fact("ignored_columns", ",".join(ignored))] if ignored else [])

    def take(self, row: Row) -> Sequence[Record]:
        return self.records(row.cells)

    def records(self, cells: Mapping[str, str]) -> Sequence[Record]:
        """Return what one row of a user's table states: a measured time, a call, or both.

        Raises ValueError if the row cannot be read, or if it is from another machine than the rows before it.
        """
        records, machine = _records(cells), self._machine
        told = {name: cells[name] for name in FACTS if cells.get(name)}
        told |= {name: str(_integer(told, name)) for name in ("cu_count", "gpus") if name in told}
        other = next((name for name in told if machine.get(name, told[name]) != told[name]), None)
        if other:
            raise ValueError(
                f"{other} is {told[other]} here and {machine[other]} before, but a file describes one machine"
            )
        wrong = next(filter(None, (fault(Fact(name, value)) for name, value in told.items())), None)
        if wrong is not None:
            raise ValueError(wrong)
        machine.update(told)
        if not records:
            raise ValueError("the row has neither a time (time_us) nor a number of calls (calls)")
        return records

    def close(self) -> Iterator[Outcome]:
        yield Outcome("fact", [Fact(name, value) for name, value in self._machine.items()], lines=0)


def _read_parquet(source: Source) -> Iterator[Outcome]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(source.local_path())
    except (pa.ArrowException, OSError) as error:
        yield Outcome("reject", [Reject(f"not a readable Parquet file: {error}")])
        return
    columns = file.schema_arrow.names
    if not _is_ours(columns):
        reason = (
            "the Parquet file lacks columns that describe calls (problem; or m, n and k; or the sizes of a "
            "convolution), or it has neither a column time_us nor calls"
        )
        yield Outcome("reject", [Reject(reason)], lines=file.metadata.num_rows)
        return
    table = _Table(Header("", columns, source.name))
    yield from (replace(one, lines=0) for one in table.open())
    for batch in file.iter_batches(columns=[name for name in columns if name in _KNOWN]):
        for row in batch.to_pylist():
            cells = {name: "" if value is None else str(value).strip() for name, value in row.items()}
            try:
                records = table.records(cells)
            except ValueError as error:
                yield Outcome("reject", [Reject(reason_of(error, cells))])
            else:
                yield Outcome(UNIT_OF[type(records[0])], records)
    yield from table.close()


_KNOWN = frozenset({*GEMM_FIELDS, *CONV_FIELDS, *_TIMES, *FACTS, "problem", "calls", "library", "solution"})


def _records(row: Mapping[str, str]) -> list[Record]:
    problem = _problem(row)
    solution = _solution(row)
    status: Any = row.get("status") or None
    if status not in (None, *get_args(Status)):
        raise ValueError(f"status is {status!r}, which is none of {', '.join(get_args(Status))}")
    time_us = _number(row, "time_us")
    out: list[Record] = []
    if time_us is not None or status is not None:
        if solution is None:
            raise ValueError("the row has a time, but does not name the solution (kernel) that took this time")
        ok = time_us is not None and time_us > 0 and math.isfinite(time_us)
        out.append(
            Measurement(
                problem=problem, solution=solution, origin=ORIGIN, status=status or ("ok" if ok else "no_time"),
                time_us=time_us if ok else None, min_us=_number(row, "min_us"), max_us=_number(row, "max_us"),
                std_us=_number(row, "std_us"), workspace_bytes=_integer(row, "workspace_bytes"),
                error=row.get("error") or None,
            )
        )  # fmt: skip
    calls = _integer(row, "calls")
    if calls is not None:
        out.append(Call(problem=problem, category=CATEGORY, count=calls, solution=None if out else solution))
    return out


def _problem(row: Mapping[str, str]) -> Problem:
    if row.get("problem"):
        return problem_from_text(row["problem"])
    if row.get("direction"):
        return ConvProblem(**_fields(row, CONV_FIELDS, _CONV_TYPES))
    values = _fields(row, GEMM_FIELDS, _GEMM_TYPES)
    if "batch_count" not in row:
        values["batch_count"] = 1
    return GemmProblem(**values)


_GEMM_TYPES, _CONV_TYPES = get_type_hints(GemmProblem), get_type_hints(ConvProblem)


def _fields(row: Mapping[str, str], names: Iterable[str], types: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cells of a row that describe a matrix product or convolution, each converted to its field's type.

    The cells are given by the names of the fields.
    """
    return {name: _field(name, row[name], types[name]) for name in names if row.get(name)}


def _field(name: str, cell: str, type_: Any) -> object:
    options = get_args(type_) or (type_,)
    words = [str(word) for option in (type_, *options) if get_origin(option) is Literal for word in get_args(option)]
    if words and cell not in words:
        raise ValueError(f"{name} is {cell!r}, not one of {', '.join(words)}")
    if bool in options:
        if cell.lower() not in _BOOLS:
            raise ValueError(f"{name} is {cell!r}, neither true nor false")
        return _BOOLS[cell.lower()]
    return _integer({name: cell}, name) if int in options or isinstance(options[0], int) else cell


def _solution(row: Mapping[str, str]) -> Solution | None:
    text = row.get("solution", "")
    if not text:
        return None
    if ":" in text or not row.get("library"):
        return solution_from_text(text)
    return Solution(row["library"], text)


def _number(row: Mapping[str, str], name: str) -> float | None:
    cell = row.get(name, "")
    return float(cell) if cell else None


def _integer(row: Mapping[str, str], name: str) -> int | None:
    """Parse an integer.  ``128.0`` is accepted, because spreadsheets write it.  Raises ValueError for any other text.

    An empty text gives None.
    """
    cell = row.get(name, "")
    if not cell:
        return None
    value = float(cell)
    if not value.is_integer():
        raise ValueError(f"{name} is {cell!r}, not a whole number")
    return int(value)


FORMAT = FileFormat(
    name="table",
    about="CSV or Parquet table with the columns in docs/formats.md: problems, solutions, time_us, calls",
    recognise=recognise,
    read=read,
    origins=(Origin(ORIGIN, evidence=True),),
    asked_late=(
        "a table that a library wrote may have columns with the same names, so logparse tries the libraries' own "
        "formats first"
    ),
    seen="yours",
    example="T,N,4096,512,1024,1,bf16_r,hipblaslt,477479,55.9",
    gives="measurements, calls",
)
