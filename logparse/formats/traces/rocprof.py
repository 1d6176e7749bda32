"""rocprofv3's CSV: kernel traces and statistics, and marker ranges.

::

    "Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id",…
    "KERNEL_DISPATCH","Agent 4",1,1,852831,1,10,"Cijk_Alik_Bljk_BBS_…",1,1551874061244694,1551874061255734,…

    "Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"
    "Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"
    "MARKER_CORE_RANGE_API","hipblasLtMatmul",315155,315155,5,58378844641787,58378844936586

Made by ``rocprofv3 --kernel-trace [--stats] [--marker-trace] --output-format csv -- COMMAND``, with
``HIPBLASLT_ENABLE_MARKER=1`` for hipBLASLt's own ranges.  Timestamps are nanoseconds.  Columns are found by name:
rocprofv3 has moved them between releases, and an agent is a number or ``Agent N``.

A CSV kernel trace does not have the range in which a kernel was launched (the JSON has, see ``rocprof_json``); the
marker trace is a file of its own, whose ranges become messages.  A kernel is one unit (measurement), a marker one
message; the header is foreign.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from logparse.formats.format import FileFormat, Head, Line, Outcome, Source
from logparse.formats.traces.kernel_totals import KernelTotals
from logparse.model import Message, Reject

CATEGORY = "marker"
_TRACE = ("Kernel_Name", "Start_Timestamp", "End_Timestamp")
_STATS = ("Name", "Calls", "TotalDurationNs", "MinNs", "MaxNs")
_MARKERS = ("Domain", "Function", "Start_Timestamp", "End_Timestamp")


def recognise(head: Head) -> bool:
    """By the names of the columns."""
    return _layout(_header(head.data)) is not None


def _header(data: bytes) -> list[str]:
    return _cells(data.split(b"\n", 1)[0].decode("utf-8-sig", "backslashreplace"))


def _cells(text: str) -> list[str]:
    try:
        return next(csv.reader([text.rstrip("\r")]), [])
    except csv.Error:
        return []


def _layout(columns: Sequence[str]) -> tuple[str, ...] | None:
    return next((layout for layout in (_TRACE, _STATS, _MARKERS) if set(layout) <= set(columns)), None)


def read(source: Source) -> Iterator[Outcome]:
    """Every line; totals and messages come at the end."""
    lines = source.lines()
    first = next(lines, None)
    if first is None:
        return
    columns = _cells(first.text.removeprefix("\ufeff"))
    layout = _layout(columns)
    if layout is None:
        yield Outcome("reject", [Reject("no columns of rocprofv3")], at=first.offset)
        return
    yield Outcome("foreign")
    reader = _Rows(columns, layout)
    for line in lines:
        yield from reader.take(line)
    yield from reader.close()


class _Rows:
    def __init__(self, columns: list[str], layout: tuple[str, ...]) -> None:
        self._columns, self._layout = columns, layout
        self._totals = KernelTotals()
        self._ranges: Counter[str] = Counter()
        self._units: Counter[str] = Counter()

    def take(self, line: Line) -> Iterator[Outcome]:
        """One line; only rejects come back at once."""
        if not line.text.strip():
            self._units["blank"] += 1
            return
        cells = _cells(line.text)
        if len(cells) != len(self._columns):
            reason = f"{len(cells)} cells for {len(self._columns)} columns"
            yield Outcome("reject", [Reject(reason)], at=line.offset)
            return
        row = dict(zip(self._columns, cells, strict=True))
        try:
            self._units[self._row(row)] += 1
        except ValueError as error:
            yield Outcome("reject", [Reject(f"no number: {error}")], at=line.offset)

    def _row(self, row: Mapping[str, str]) -> str:
        if self._layout is _STATS:
            calls, total, least, most = (float(row[name]) for name in _STATS[1:])
            self._totals.add(
                "", row["Name"], None, total / 1e3, calls=int(calls), min_us=least / 1e3, max_us=most / 1e3
            )
            return "measurement"
        if self._layout is _MARKERS:
            if not row["Domain"].startswith("MARKER"):
                return "foreign"
            self._ranges[row["Function"]] += 1
            return "message"
        if row.get("Kind", "KERNEL_DISPATCH") != "KERNEL_DISPATCH":
            return "foreign"
        us = (int(row["End_Timestamp"]) - int(row["Start_Timestamp"])) / 1e3
        if us < 0:
            raise ValueError("the kernel ends before it starts")
        self._totals.add("", row["Kernel_Name"], _agent(row.get("Agent_Id", "")), us)
        return "measurement"

    def close(self) -> Iterator[Outcome]:
        """What the lines made."""
        units = self._units
        yield Outcome("measurement", list(self._totals.records()), lines=units["measurement"])
        markers = [Message(category=CATEGORY, text=text, count=n) for text, n in self._ranges.items()]
        yield Outcome("message", markers, lines=units["message"])
        yield Outcome("foreign", lines=units["foreign"])
        yield Outcome("blank", lines=units["blank"])


def _agent(text: str) -> int | None:
    number = text.removeprefix("Agent ")
    return int(number) if number.isascii() and number.isdigit() and len(number) < 6 else None


FORMAT = FileFormat(
    name="rocprof-csv",
    about="rocprofv3 CSV: kernel traces, kernel statistics and marker ranges",
    recognise=recognise,
    read=read,
)
