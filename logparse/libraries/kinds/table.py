"""The interface of a table: a text file with a header line, followed by rows of comma-separated cells.

A format declares its columns and one function that turns a row into records.  Everything else exists once, here::

    def read_row(row: Row) -> Iterator[Record]:
        problem = GemmProblem(m=row.whole("m"), n=row.whole("n"), k=row.whole("k"), a_type=row.one_of("dtype", TYPES))
        solution = Solution("mytuner", row["kernel"])
        yield Measurement(problem=problem, solution=solution, origin="mytuner", status="ok", time_us=row.time("us"))

    FORMAT = TableFormat(
        name="mytuner",
        about="table of mytuner: the time of every kernel",
        columns=("kernel", "m", "n", "k", "dtype", "us"),
        begin=each_row(read_row),
        origins=(Origin("mytuner", evidence=True),),
    )

If the function raises ``ValueError``, its line becomes a reject with this reason.  Every line of the file is counted as
one unit:

* The header is counted as a fact.
* A line of blanks is counted as blank.
* A row is counted as the kind of its first record (``UNIT_OF``).

Cells may be quoted.  A cell with a line end makes two rows, and both are rejects.  ``read_table`` is for a format that
also reads other files than tables.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

from logparse.libraries.kinds.bad_cell import reason_of
from logparse.libraries.kinds.format import FileFormat, Head, Outcome, Source, Unit, cells_of
from logparse.model import Call, Collective, Fact, Kernel, Measurement, Message, Record, Reject, SolutionName

T = TypeVar("T")
BOM = "\ufeff"
Fit = Literal["exact", "fewer", "any"]
"""The rule for the number of cells in a row.

* ``exact``: as many cells as columns.
* ``fewer``: at most as many cells as columns.
* ``any``: any number of cells.
"""
UNIT_OF: Mapping[type, Unit] = {
    Measurement: "measurement",
    Kernel: "measurement",
    Call: "call",
    Message: "message",
    Fact: "fact",
    SolutionName: "fact",
    Collective: "measurement",
    Reject: "reject",
}
"""How a row is counted, by the type of its first record.

A row without a record is counted as foreign (not of this format).
"""


@dataclass(frozen=True)
class Header:
    """The first line of a table: its text, the column names in it, and the name of the file without folder."""

    text: str
    columns: Sequence[str]
    name: str


class Row:
    """One row of a table below the header.

    * ``text``: the line without its line end.
    * ``line``: the number of the line, counted from 1.
    * ``values``: the cells in their order.
    * ``cells``: the cells by the names of their columns.
    """

    __slots__ = ("cells", "columns", "line", "text", "values")

    def __init__(self, columns: Sequence[str], values: list[str], text: str, line: int) -> None:
        self.columns, self.values, self.text, self.line = columns, values, text, line
        self.cells = dict(zip(columns, values, strict=False))

    def get(self, name: str) -> str:
        """Return the text in a column.  Returns an empty text if the row has no such cell."""
        return self.cells.get(name, "")

    def __getitem__(self, name: str) -> str:
        """Return the text in a column.  Raises ValueError if the cell is empty or missing."""
        cell = self.cells.get(name)
        if not cell:
            raise ValueError(f"column {name} is missing" if cell is None else f"{name} is empty")
        return cell

    def whole(self, name: str) -> int:
        """Return the whole number in a column.  Raises ValueError if the cell holds anything else."""
        cell = self[name]
        try:
            return int(cell)
        except ValueError:
            raise ValueError(f"{name} is {cell[:40]!r}, not a whole number") from None

    def real(self, name: str) -> float:
        """Return the number in a column.  Raises ValueError if the cell holds anything else."""
        cell = self[name]
        try:
            return float(cell)
        except ValueError:
            raise ValueError(f"{name} is {cell[:40]!r}, not a number") from None

    def time(self, name: str) -> float:
        """Return the time in a column.  Raises ValueError if the cell holds no number above 0."""
        value = self.real(name)
        if not 0 < value < math.inf:
            raise ValueError(f"{name} is {self[name][:40]!r}, which is no time")
        return value

    def one_of(self, name: str, known: Mapping[str, T]) -> T:
        """Look up the text in a column in the dictionary ``known`` and return the value found there.

        Raises ValueError if ``known`` does not contain the text.
        """
        cell = self[name]
        if cell not in known:
            raise ValueError(f"{name} is {cell[:40]!r}, not one of {', '.join(known)}")
        return known[cell]


class TableReader(Protocol):
    """Reads the rows of one table of text, one by one."""

    def open(self) -> Iterable[Outcome]:
        """Read the line with the column names, before any other line of the table.

        Returns ``Outcome`` objects: the kind of the line, for example "fact", and the records that were read from it.
        """
        ...

    def take(self, row: Row) -> Sequence[Record] | None:
        """Read one row of the table, and return what it states.

        Returns None if the rest of the table is needed to understand the row.  Then ``close`` returns its records.
        Raises ValueError with the reason if the row cannot be read.
        """
        ...

    def close(self) -> Iterable[Outcome]:
        """Tell the reader that the table has ended, and return the results that need the whole table.

        For example, a row may need a later one.  ``take`` returned None for such a row.
        """
        ...


@dataclass(frozen=True)
class _EachRow:
    """A reader for tables whose rows can be understood one by one."""

    read: Callable[[Row], Iterable[Record]]

    def open(self) -> Iterable[Outcome]:
        return (Outcome("fact"),)

    def take(self, row: Row) -> Sequence[Record]:
        return list(self.read(row))

    def close(self) -> Iterable[Outcome]:
        return ()


def each_row(read: Callable[[Row], Iterable[Record]]) -> Callable[[Header], TableReader]:
    """Return a reader for tables whose rows can be understood one by one.  ``read`` reads a row."""
    return lambda header: _EachRow(read)


def header_of(head: Head, rename: Callable[[list[str]], list[str]] = lambda names: names) -> Header:
    """Return the header line of a table from the beginning of the file.

    ``rename`` may replace the names of the columns.
    """
    return _header(head.data.split(b"\n", 1)[0].decode("utf-8", "backslashreplace"), head.name, rename)


def _header(line: str, name: str, rename: Callable[[list[str]], list[str]]) -> Header:
    text = line.removeprefix(BOM).rstrip("\r")
    return Header(text, rename([cell.strip() for cell in cells_of(text)]), name)


def read_table(
    source: Source,
    begin: Callable[[Header], TableReader],
    *,
    rename: Callable[[list[str]], list[str]] = lambda names: names,
    fit: Fit = "exact",
    comments: tuple[str, ...] = (),
    strip: bool = True,
) -> Iterator[Outcome]:
    """Read a table, such as a CSV file, line by line. Yield for each line its category and what was read from it.

    ``begin`` gets the line with the column names, and returns a reader for the rows.  The other arguments are explained
    at ``TableFormat``.
    """
    reader: TableReader | None = None
    columns: Sequence[str] = ()
    fewest = most = 0
    lines = enumerate(source.lines(), start=1)
    for number, line in lines:
        text = line.text.rstrip("\r")
        if not (bare := text.strip()) or bare.startswith(comments):
            yield Outcome("blank")
        elif reader is None:
            header = _header(text, source.name, rename)
            columns = header.columns
            fewest = len(columns) if fit == "exact" else 0
            most = sys.maxsize if fit == "any" else len(columns)
            try:
                reader = begin(header)
            # Columns that the reader refuses are an error, and all other lines do not belong to this format.
            except ValueError as error:
                yield _reject(str(error), text, line.offset)
                yield Outcome("foreign", lines=sum(1 for _ in lines))
                return
            yield from reader.open()
        else:
            values = [*map(str.strip, cells_of(text))] if strip else cells_of(text)
            if not fewest <= len(values) <= most:
                yield _reject(f"{len(values)} cells, but the header has {most} columns", text, line.offset)
                continue
            row = Row(columns, values, text, number)
            try:
                records = reader.take(row)
            except ValueError as error:
                yield _reject(reason_of(error, row.cells), text, line.offset)
                continue
            if records is not None:
                yield Outcome(UNIT_OF[type(records[0])] if records else "foreign", records, at=line.offset)
    if reader is not None:
        yield from reader.close()


def _reject(reason: str, text: str, at: int) -> Outcome:
    return Outcome("reject", [Reject(reason, 0, len(text.encode("utf-8", "surrogatepass")))], at=at)


@dataclass(frozen=True, kw_only=True)
class TableFormat(FileFormat):
    """Describes a format of text tables with a header line.

    * ``columns``: the columns that a table of this format must have, in any order.
    * ``ours``: a further test of the header, for formats with several sets of columns.
    * ``begin``: makes the reader of a table.  ``each_row`` makes such a function from a function that reads a row.
      Raises ValueError if no row below such a header can be read.
    * ``rename``: gives the columns other names before the rows are read.
    * ``fit``: the number of cells that a row may have.
    * ``comments``: a line that begins with such a text is treated as blank.
    * ``strip``: True if blanks around each cell are removed.
    """

    recognise: Callable[[Head], bool] = field(init=False)
    read: Callable[[Source], Iterator[Outcome]] = field(init=False)
    begin: Callable[[Header], TableReader]
    columns: Collection[str] = ()
    ours: Callable[[Header], bool] = lambda header: True
    rename: Callable[[list[str]], list[str]] = lambda names: names
    fit: Fit = "exact"
    comments: tuple[str, ...] = ()
    strip: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "recognise", self._is_ours)
        object.__setattr__(self, "read", self._outcomes)

    def _is_ours(self, head: Head) -> bool:
        header = header_of(head, self.rename)
        return set(self.columns) <= set(header.columns) and self.ours(header)

    def _outcomes(self, source: Source) -> Iterator[Outcome]:
        return read_table(
            source, self._begin, rename=self.rename, fit=self.fit, comments=self.comments, strip=self.strip
        )

    def _begin(self, header: Header) -> TableReader:
        missing = [name for name in self.columns if name not in header.columns]
        if missing:
            raise ValueError(f"{self.name}: the header lacks the column {', '.join(missing)}")
        return self.begin(header)
