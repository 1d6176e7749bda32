"""rocprofv3's JSON: kernel times per roctx range.

::

    {"rocprofiler-sdk-tool": [{"metadata": {"pid": 4242, …}, "agents": [{"id": {"handle": 7}, "type": 2, …}],
      "kernel_symbols": [{"kernel_id": 10, "formatted_kernel_name": "Cijk_Ailk_Bljk_BBS_…", …}], "strings": {…},
      "buffer_records": {"kernel_dispatch": [{"start_timestamp": 2000, "end_timestamp": 40500, "correlation_id":
        {"internal": 1, …}, "dispatch_info": {"agent_id": {"handle": 7}, "kernel_id": 10, …}}, …],
        "hip_api": […], "marker_api": […], "memory_copy": […]}}]}

Made by ``rocprofv3 --kernel-trace --hip-trace --marker-trace --output-format json -- COMMAND``, with
``HIPBLASLT_ENABLE_MARKER=1`` for hipBLASLt's own ranges.  Timestamps are nanoseconds.

A kernel's ``op`` is the innermost roctx range in which it was launched, by the HIP call of the same correlation id
(without ``--hip-trace`` that is not known and stays empty).  A kernel is one unit (measurement), a named marker one
message; HIP calls, copies and other markers are foreign.  Records are read one at a time, of each five numbers at most
are held until the end of their process.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from logparse.formats.format import FileFormat, Head, Outcome, Source
from logparse.formats.traces.json_stream import JsonError, JsonStream, printable_text
from logparse.formats.traces.kernel_totals import KernelTotals, of_one_process
from logparse.formats.traces.marker_ranges import innermost
from logparse.model import Fact, Message, Record, Reject

CATEGORY = "marker"
_TOOL = "rocprofiler-sdk-tool"
_RANGES = frozenset({"MARKER_CORE_API", "MARKER_CORE_RANGE_API"})
_GPU = 2
_NONE = -1

Ints = npt.NDArray[np.int64]


def recognise(head: Head) -> bool:
    """By the name of the tool, which is the first key."""
    return head.data.lstrip()[:1] == b"{" and f'"{_TOOL}"'.encode() in head.data[:4096]


def read(source: Source) -> Iterator[Outcome]:
    """Every record of every process; what is behind a damaged place is not read."""
    yield from of_one_process(source.name)
    with source.open() as stream:
        json = JsonStream(stream)
        process = _Process()
        try:
            for key in json.members():
                if key != _TOOL:
                    json.value()
                    continue
                for _ in json.items() if json.begins("[") else [None]:
                    process = _Process()
                    yield from process.take(json)
                    yield from process.outcomes()
                    process = _Process()
            json.end()
        except JsonError as error:
            yield from process.outcomes()
            yield Outcome("reject", [Reject(f"no JSON: {error}")], at=error.offset)


class _Process:
    """One process: its description of itself, and columns of its kernels, HIP calls and markers."""

    def __init__(self) -> None:
        self._parts: dict[str, Any] = {}
        self._other = 0
        self._columns = {
            "kernel_dispatch": _Rows("kernel", "agent", "start", "end", "correlation"),
            "hip_api": _Rows("start", "thread", "correlation"),
            "marker_api": _Rows("kind", "start", "end", "thread", "correlation"),
        }

    def take(self, json: JsonStream) -> Iterator[Outcome]:
        """Read all of it."""
        if not json.begins("{"):
            json.value()
            yield Outcome("reject", [Reject(f"no records under {_TOOL}")])
            return
        for key in json.members():
            if key != "buffer_records" or not json.begins("{"):
                self._parts[key] = json.value()
                continue
            for table in json.members():
                if not json.begins("["):
                    json.value()
                    continue
                rows = self._columns.get(table)
                for _ in json.items():
                    record = json.value()
                    if rows is None:
                        self._other += 1
                    else:
                        rows.add(record if isinstance(record, dict) else {})

    def outcomes(self) -> Iterator[Outcome]:
        """What was read, in units."""
        agents = {_handle(a.get("id")): a for a in _rows(self._parts, "agents") if a.get("type") == _GPU}
        kernels, calls, markers = (self._columns[name] for name in ("kernel_dispatch", "hip_api", "marker_api"))
        if self._parts:
            yield Outcome("fact", _facts(self._parts, list(agents.values())), lines=0)
        names, ranges = self._ranges(markers)
        yield from self._kernels(kernels, {handle: i for i, handle in enumerate(agents)}, names, ranges, calls)
        messages = [Message(category=CATEGORY, text=text, count=n) for text, n in Counter(names).items()]
        yield Outcome("message", messages, lines=len(names))
        yield Outcome("foreign", lines=len(markers) - len(names) + len(calls) + self._other)

    def _ranges(self, markers: _Rows) -> tuple[list[str], Ints]:
        """Names of the ranges, and which rows of the markers they are.

        ``strings.marker_api`` has the names by correlation id.
        """
        strings = _part(self._parts, "strings")
        names = {row.get("key"): printable_text(row.get("value")) for row in _rows(strings, "marker_api")}
        kinds = [row.get("kind") for row in _rows(strings, "buffer_records")]
        others = {i for i, kind in enumerate(kinds) if kind not in _RANGES}
        found = [names.get(correlation) for correlation in markers.column("correlation").tolist()]
        timed = (markers.column("start") != _NONE) & (markers.column("end") != _NONE)
        good = timed & ~np.isin(markers.column("kind"), list(others)) & np.array([x is not None for x in found], bool)
        mine = np.flatnonzero(good)
        return [found[i] or "" for i in mine.tolist()], mine

    def _kernels(
        self, kernels: _Rows, devices: Mapping[object, int], names: list[str], ranges: Ints, calls: _Rows
    ) -> Iterator[Outcome]:
        symbols = {
            s.get("kernel_id"): printable_text(s.get("formatted_kernel_name") or s.get("kernel_name") or "")
            for s in _rows(self._parts, "kernel_symbols")
        }
        launched = _launched_in(kernels, calls, [self._columns["marker_api"].column(x)[ranges] for x in _SPAN])
        totals, bad = KernelTotals(), 0
        rows = zip(*(kernels.column(x).tolist() for x in ("kernel", "agent", "start", "end")), launched, strict=True)
        for kernel, agent, start, end, index in rows:
            name = symbols.get(kernel)
            if not name or start == _NONE or end < start:
                bad += 1
                continue
            totals.add(names[index] if index >= 0 else "", name, devices.get(agent), (end - start) / 1e3)
        yield Outcome("measurement", list(totals.records()), lines=len(kernels) - bad)
        if bad:
            yield Outcome("reject", [Reject("a kernel without name or times")] * bad, lines=bad)


_SPAN = ("start", "end", "thread")


class _Rows:
    """Numbers of records, -1 where one is missing."""

    def __init__(self, *names: str) -> None:
        self._columns = {name: array("q") for name in names}

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def column(self, name: str) -> Ints:
        return np.frombuffer(self._columns[name], dtype=np.int64)

    def add(self, record: Mapping[str, Any]) -> None:
        for name, column in self._columns.items():
            column.append(_number(_FIELDS[name](record)))


_FIELDS: Mapping[str, Callable[[Mapping[str, Any]], object]] = {
    "start": lambda record: record.get("start_timestamp"),
    "end": lambda record: record.get("end_timestamp"),
    "thread": lambda record: record.get("thread_id"),
    "kind": lambda record: record.get("kind"),
    "correlation": lambda record: _inner(record.get("correlation_id"), "internal"),
    "kernel": lambda record: _part(record, "dispatch_info").get("kernel_id"),
    "agent": lambda record: _handle(_part(record, "dispatch_info").get("agent_id")),
}


def _number(value: object) -> int:
    return value if type(value) is int and 0 <= value < 1 << 62 else _NONE


def _launched_in(kernels: _Rows, calls: _Rows, ranges: list[Ints]) -> list[int]:
    """The range (its place in the columns ``ranges``) in which each kernel was launched, or -1."""
    out = np.full(len(kernels), -1, dtype=np.int64)
    correlation, mine = calls.column("correlation"), kernels.column("correlation")
    if not len(ranges[0]) or not len(calls):
        return out.tolist()
    order = np.argsort(correlation, kind="stable")
    place = order[np.maximum(np.searchsorted(correlation[order], mine, side="right") - 1, 0)]  # the last of equal ones
    start = calls.column("start")[place]
    asked = np.flatnonzero((correlation[place] == mine) & (mine != _NONE) & (start != _NONE))
    threads = np.maximum(calls.column("thread")[place], 0)
    starts, ends, of = ranges
    out[asked] = innermost(starts, ends, np.maximum(of, 0), start[asked], threads[asked])
    return out.tolist()


def _facts(process: Mapping[str, Any], agents: list[Mapping[str, Any]]) -> list[Record]:
    facts: list[Record] = [Fact("backend", "HIP")]
    pid = _part(process, "metadata").get("pid")
    if type(pid) is int:
        facts.append(Fact("pid", str(pid)))
    for agent in agents:
        for key, name in (("name", "arch"), ("product_name", "device"), ("cu_count", "cu_count")):
            if agent.get(key):
                facts.append(Fact(name, printable_text(agent[key])))
    return list(dict.fromkeys(facts))


def _part(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = value.get(key)
    return part if isinstance(part, dict) else {}


def _rows(value: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    rows = value.get(key)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _inner(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, dict) else value


def _handle(value: object) -> object:
    handle = _inner(value, "handle")
    return handle if isinstance(handle, int) else None


FORMAT = FileFormat(
    name="rocprof-json",
    about="rocprofv3 JSON: kernel times per roctx range",
    recognise=recognise,
    read=read,
)
