"""Collect what was read from the log files in memory, and convert it into tables.

Other modules write the tables to disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logparse.model import CONV_FIELDS, GEMM_FIELDS, LIMIT, ConvProblem, GemmProblem, Problem
from logparse.store.columns import dictionary, fixed, numbers, table
from logparse.store.schema import SCHEMAS

NULL = int(np.iinfo(np.int64).min)
"""Number that means "unknown" in arrays of integers, for a process, a second or a count."""

Ints = npt.NDArray[np.int64]


class CallKey(NamedTuple):
    """The columns that identify a call in the table ``calls``: all except the process, the time and the count."""

    kind: str
    problem: str
    solution: str | None
    workspace_bytes: int | None
    by_tool: bool
    device: int | None
    category: str


@dataclass
class Pending:
    """The records of one input file that are still in memory, before they are written to the store.

    ``attempt`` is the name of this reading of the file.
    """

    attempt: str
    calls: dict[CallKey, int] = field(default_factory=dict)
    cells: list[tuple[int, Ints, Ints, Ints]] = field(default_factory=list)  # call, counts, processes, seconds
    cell_count: int = 0
    messages: dict[tuple[Any, ...], list[int]] = field(default_factory=dict)
    problems: dict[str, Problem] = field(default_factory=dict)
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {name: [] for name in SCHEMAS})

    @property
    def row_count(self) -> int:
        """How many different entries were collected in memory so far.

        Calls that differ only in their process, their time or how often they occurred are one entry.
        """
        return len(self.calls) + len(self.messages) + sum(map(len, self.rows.values()))


class Rows(NamedTuple):
    """Rows that will be written to one table of the store.

    * ``category``: the category of log lines, or None if the table has no categories.
    * ``columns``: the columns that are known. The others will be null.
    """

    table: str
    # All rows have the same category.
    category: str | None
    columns: pa.Table


def all_rows(several: Sequence[Pending]) -> Iterator[Rows]:
    """Convert all records of several input files into rows. Each result holds the rows for one Parquet file.

    The column ``attempt`` tells to which reading of an input file a row belongs.
    """
    yield from problem_rows(several)
    yield from _call_rows(several)
    by_category: dict[str, list[list[dict[str, Any]]]] = {}
    for number, pending in enumerate(several):
        for (category, pid, function, text), (count, offset) in pending.messages.items():
            row = {"pid": pid, "function": function, "text": text, "count": count, "offset": offset}
            by_category.setdefault(category, [[] for _ in several])[number].append(row)
    for category, rows in by_category.items():
        yield from _plain_rows("messages", rows, several, category)
    for name in SCHEMAS:
        yield from _plain_rows(name, [pending.rows[name] for pending in several], several)


def problem_rows(several: Sequence[Pending]) -> Iterator[Rows]:
    """Convert the GEMMs and convolutions of several input files into table rows.

    If several files have the same one, it is converted only once.
    """
    tables: tuple[tuple[str, type, Callable[[Any], dict[str, Any]]], ...]
    tables = (("gemms", GemmProblem, gemm_row), ("convs", ConvProblem, conv_row))
    for name, kind, row_of in tables:
        mine = [{text: x for text, x in pending.problems.items() if isinstance(x, kind)} for pending in several]
        distinct = {text: problem for problems in mine for text, problem in problems.items()}
        places = {text: place for place, text in enumerate(distinct)}
        place = np.array([places[text] for problems in mine for text in problems], np.int64)
        rows = [*map(row_of, distinct.values())]
        columns = {f.name: _spread([row[f.name] for row in rows], place, f.type) for f in _schema(name)}
        yield Rows(name, None, pa.table(columns | {"attempt": _attempts([*map(len, mine)], several)}))


def _plain_rows(
    name: str, rows: Sequence[Sequence[dict[str, Any]]], of: Sequence[Pending], category: str | None = None
) -> Iterator[Rows]:
    together = [*chain.from_iterable(rows)]
    if together:
        made = table(together, _schema(name))
        yield Rows(name, category, made.append_column("attempt", _attempts([*map(len, rows)], of)))


def _schema(name: str) -> pa.Schema:
    return pa.schema([f for f in SCHEMAS[name] if f.name not in ("attempt", "category")])


def _attempts(counts: Sequence[int], several: Sequence[Pending]) -> pa.Array:
    """Make the column that tells for each row from which input file it comes.

    The first ``counts[0]`` rows come from the first file in ``several``, the next ``counts[1]`` from the second, and so
    on.
    """
    # The column holds the name of the present reading of the file.
    return dictionary(np.repeat(np.arange(len(counts)), counts), [pending.attempt for pending in several])


def _call_rows(several: Sequence[Pending]) -> Iterator[Rows]:
    """Convert the counted calls of several input files into table columns, separately for each category of calls.

    A text that occurs in many rows is stored only once (as a dictionary column).
    """
    calls = [key for pending in several for key in pending.calls]
    if not calls:
        return
    sizes = [len(pending.calls) for pending in several]
    firsts = np.cumsum([0, *sizes])
    cells = [cell for pending in several for cell in pending.cells]
    call = np.repeat(
        np.array([first + cell[0] for pending, first in zip(several, firsts, strict=False) for cell in pending.cells]),
        [len(counts) for _, counts, _, _ in cells],
    )
    counts, pids, seconds = (np.concatenate(part) for part in list(zip(*cells, strict=True))[1:])
    keys = dict(zip(CallKey._fields, zip(*calls, strict=True), strict=True))
    of = np.repeat(np.arange(len(several)), sizes)
    categories = np.array(keys.pop("category"))
    for category in dict.fromkeys(categories.tolist()):
        mine = (categories == category)[call]
        number, pid, second, count = _sum_equal_rows(call[mine], pids[mine], seconds[mine], counts[mine])
        columns = {name: _spread(values, number, SCHEMAS["calls"].field(name).type) for name, values in keys.items()}
        time = numbers(second, NULL, pa.timestamp("s"))
        columns |= {"pid": numbers(pid, NULL), "count": numbers(count, NULL), "first_seen": time, "last_seen": time}
        columns["attempt"] = dictionary(of[number], [pending.attempt for pending in several])
        yield Rows("calls", category, pa.table(columns))


def _sum_equal_rows(call: Ints, pids: Ints, seconds: Ints, counts: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Merge table rows about the same call in the same process at the same time (in whole seconds) into one row.

    The row's count is the sum of their known counts.
    """
    order = np.lexsort((seconds, pids, call))
    call, pids, seconds, counts = call[order], pids[order], seconds[order], counts[order]
    differs = (call[1:] != call[:-1]) | (pids[1:] != pids[:-1]) | (seconds[1:] != seconds[:-1])
    first = np.concatenate(([0], np.flatnonzero(differs) + 1))
    sums = np.add.reduceat(np.where(counts == NULL, 0, counts), first)
    # The sum is unknown only if all of the counts are unknown.
    sums[~np.logical_or.reduceat(counts != NULL, first)] = NULL
    return call[first], pids[first], seconds[first], sums


def _spread(values: Sequence[Any], places: Ints, type: pa.DataType) -> pa.Array:
    """Make a text column in which each different text is stored only once: row i has the text ``values[places[i]]``."""
    if pa.types.is_string(type):
        numbers_of: dict[str, int] = {}
        codes = [-1 if value is None else numbers_of.setdefault(value, len(numbers_of)) for value in values]
        return dictionary(np.array(codes, np.int64)[places], list(numbers_of))
    present = np.array([value is not None for value in values], np.bool_)
    return fixed(np.array([value or 0 for value in values])[places], present[places], type)


def _flops(problem: GemmProblem | ConvProblem) -> int | None:
    flops = problem.flops
    return None if flops is None or abs(flops) >= LIMIT else flops


def gemm_row(problem: GemmProblem) -> dict[str, Any]:
    """Convert a GEMM to a row of the table ``gemms``.

    Sizes and types are written in a uniform way (``GemmProblem.normal``).
    """
    normal = problem.normal
    fields = vars(normal)
    row: dict[str, Any] = {name: fields[name] for name in GEMM_FIELDS}
    row |= {"problem": problem.text, "kind": problem.kind, "shape": problem.shape}
    row["members"] = ",".join(member.text for member in normal.members) or None
    return row | {"epilogue": normal.epilogue, "flops": _flops(normal)}


def conv_row(problem: ConvProblem) -> dict[str, Any]:
    """Return a convolution as a row of the table ``convs``."""
    fields = vars(problem)
    row: dict[str, Any] = {name: fields[name] for name in CONV_FIELDS}
    return row | {"problem": problem.text, "flops": _flops(problem)}
