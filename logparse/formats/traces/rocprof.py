"""rocprofv3's kernel times: CSV kernel traces and statistics, marker ranges, and the JSON that holds all of them.

::

    "Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id",…
    "KERNEL_DISPATCH","Agent 4",1,1,852831,1,10,"Cijk_Alik_Bljk_BBS_…",1,1551874061244694,1551874061255734,…

    "Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"
    "Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"
    "MARKER_CORE_RANGE_API","hipblasLtMatmul",315155,315155,5,58378844641787,58378844936586

Made by ``rocprofv3 --kernel-trace [--stats] [--marker-trace --hip-trace] --output-format csv json -- COMMAND``, with
``HIPBLASLT_ENABLE_MARKER=1`` for hipBLASLt's own ranges.  Timestamps are nanoseconds.  Columns are found by name:
rocprofv3 has moved them between releases, and an agent is a number or ``Agent N``.

In JSON a kernel's ``op`` is the innermost roctx range in which it was launched, by the HIP call of the same correlation
id (without ``--hip-trace`` that is not known and stays empty).  A CSV kernel trace does not say it; its marker trace is
a file of its own, whose ranges become messages.  A kernel is one unit (measurement), a marker one message; header, HIP
calls and copies are foreign.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logparse.formats.format import FileFormat, Head, Line, Outcome, Source
from logparse.formats.traces.kernel_totals import KernelTotals
from logparse.formats.traces.ranges import innermost
from logparse.model import Fact, Message, Record, Reject

CATEGORY = "marker"
_TRACE = ("Kernel_Name", "Start_Timestamp", "End_Timestamp")
_STATS = ("Name", "Calls", "TotalDurationNs", "MinNs", "MaxNs")
_MARKERS = ("Domain", "Function", "Start_Timestamp", "End_Timestamp")
_TOOL = "rocprofiler-sdk-tool"
_RANGES = frozenset({"MARKER_CORE_API", "MARKER_CORE_RANGE_API"})
_GPU = 2


# ------------------------------------------------------------------------------------------------- CSV


def recognise_csv(head: Head) -> bool:
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


def read_csv(source: Source) -> Iterator[Outcome]:
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


# ------------------------------------------------------------------------------------------------- JSON


def recognise_json(head: Head) -> bool:
    """By the name of the tool, which is the first key."""
    return head.data.lstrip()[:1] == b"{" and f'"{_TOOL}"'.encode() in head.data[:4096]


def read_json(source: Source) -> Iterator[Outcome]:
    """Every record of every process.  The file is held in memory."""
    with source.open() as stream:
        try:
            content = json.loads(stream.read().decode("utf-8-sig", "backslashreplace"), strict=False)
        except (ValueError, RecursionError) as error:
            yield Outcome("reject", [Reject(f"no JSON: {error}")])
            return
    processes = content.get(_TOOL) if isinstance(content, dict) else None
    for process in processes if isinstance(processes, list) else [processes]:
        if isinstance(process, dict):
            yield from _process(process)
        else:
            yield Outcome("reject", [Reject(f"no records under {_TOOL}")])


def _process(process: Mapping[str, Any]) -> Iterator[Outcome]:
    records = _part(process, "buffer_records")
    tables = {name: rows for name, rows in records.items() if isinstance(rows, list)}
    kernels = tables.pop("kernel_dispatch", [])
    markers, apis = tables.pop("marker_api", []), tables.pop("hip_api", [])
    agents = {_handle(a.get("id")): a for a in _rows(process, "agents") if a.get("type") == _GPU}
    devices = {handle: i for i, handle in enumerate(agents)}
    yield Outcome("fact", _facts(process, list(agents.values())), lines=0)
    names = {
        s.get("kernel_id"): str(s.get("formatted_kernel_name") or s.get("kernel_name") or "")
        for s in _rows(process, "kernel_symbols")
    }
    ranges = _ranges(process, markers)
    ops = _launched_in(kernels, apis, ranges)
    totals, bad = KernelTotals(), 0
    for kernel, op in zip(kernels, ops, strict=True):
        info = _part(kernel, "dispatch_info") if isinstance(kernel, dict) else {}
        name = names.get(info.get("kernel_id"))
        start, end = _time(kernel, "start_timestamp"), _time(kernel, "end_timestamp")
        if not name or start is None or end is None or end < start:
            bad += 1
            continue
        totals.add(op, name, devices.get(_handle(info.get("agent_id"))), (end - start) / 1e3)
    yield Outcome("measurement", list(totals.records()), lines=len(kernels) - bad)
    if bad:
        yield Outcome("reject", [Reject("a kernel without name or times")] * bad, lines=bad)
    counts = Counter(name for name, _, _, _ in ranges)
    yield Outcome(
        "message", [Message(category=CATEGORY, text=t, count=n) for t, n in counts.items()], lines=len(ranges)
    )
    other = len(markers) - len(ranges) + len(apis) + sum(map(len, tables.values()))
    yield Outcome("foreign", lines=other)


def _ranges(process: Mapping[str, Any], markers: Sequence[Any]) -> list[tuple[str, int, int, int]]:
    """Name, start, end and thread of every marker; ``strings.marker_api`` has the names by correlation id."""
    strings = _part(process, "strings")
    names = {row.get("key"): str(row.get("value")) for row in _rows(strings, "marker_api")}
    kinds = [row.get("kind") for row in _rows(strings, "buffer_records")]
    out = []
    for marker in markers:
        kind = marker.get("kind") if isinstance(marker, dict) else None
        if isinstance(kind, int) and 0 <= kind < len(kinds) and kinds[kind] not in _RANGES:
            continue
        name = names.get(_internal(marker))
        start, end = _time(marker, "start_timestamp"), _time(marker, "end_timestamp")
        if name is not None and start is not None and end is not None:
            out.append((name, start, end, _time(marker, "thread_id") or 0))
    return out


def _launched_in(kernels: Sequence[Any], apis: Sequence[Any], ranges: Sequence[tuple[str, int, int, int]]) -> list[str]:
    """The name of the range in which each kernel was launched, or an empty text."""
    out = [""] * len(kernels)
    calls = {_internal(api): api for api in apis}
    asked = [(i, calls[_internal(kernel)]) for i, kernel in enumerate(kernels) if _internal(kernel) in calls]
    asked = [(i, api) for i, api in asked if _time(api, "start_timestamp") is not None]
    if not ranges or not asked:
        return out
    found = innermost(
        np.array([start for _, start, _, _ in ranges], dtype=np.int64),
        np.array([end for _, _, end, _ in ranges], dtype=np.int64),
        np.array([thread for _, _, _, thread in ranges], dtype=np.int64),
        np.array([_time(api, "start_timestamp") for _, api in asked], dtype=np.int64),
        np.array([_time(api, "thread_id") or 0 for _, api in asked], dtype=np.int64),
    )
    for (i, _), index in zip(asked, found.tolist(), strict=True):
        out[i] = ranges[index][0] if index >= 0 else ""
    return out


def _facts(process: Mapping[str, Any], agents: Sequence[Mapping[str, Any]]) -> list[Record]:
    facts: list[Record] = [Fact("backend", "HIP")]
    pid = _part(process, "metadata").get("pid")
    if type(pid) is int:
        facts.append(Fact("pid", str(pid)))
    for agent in agents:
        for key, name in (("name", "arch"), ("product_name", "device"), ("cu_count", "cu_count")):
            if agent.get(key):
                facts.append(Fact(name, str(agent[key])))
    return list(dict.fromkeys(facts))


def _part(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = value.get(key)
    return part if isinstance(part, dict) else {}


def _rows(value: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    rows = value.get(key)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _handle(value: object) -> object:
    handle = value.get("handle") if isinstance(value, dict) else value
    return handle if isinstance(handle, (int, str)) else None


def _internal(record: object) -> object:
    value = record.get("correlation_id") if isinstance(record, dict) else None
    value = value.get("internal") if isinstance(value, dict) else value
    return value if isinstance(value, (int, str)) else object()


def _time(record: object, key: str) -> int | None:
    value = record.get(key) if isinstance(record, dict) else None
    return value if type(value) is int and abs(value) < 1 << 62 else None


CSV_FORMAT = FileFormat(
    name="rocprof-csv",
    about="rocprofv3 CSV: kernel traces, kernel statistics and marker ranges",
    recognise=recognise_csv,
    read=read_csv,
)
JSON_FORMAT = FileFormat(
    name="rocprof-json",
    about="rocprofv3 JSON: kernel times per roctx range",
    recognise=recognise_json,
    read=read_json,
)
