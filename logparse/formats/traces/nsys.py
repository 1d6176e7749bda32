"""Nsight Systems' sqlite export: kernel times per NVTX range.

::

    CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, correlationId, globalPid, demangledName, shortName, …)
    CUPTI_ACTIVITY_KIND_RUNTIME(start, end, globalTid, correlationId, nameId, …)
    NVTX_EVENTS(start, end, eventType, text, textId, globalTid, …)      StringIds(id, value)

Made by ``nsys profile -o job COMMAND`` and ``nsys export --type sqlite job.nsys-rep``.  Timestamps are nanoseconds.
Tables exist only where something was traced, and columns come and go between releases: only what is there is used.

A kernel's ``op`` is the innermost NVTX range that was open on the launching thread when the runtime call of the same
process and correlation id began; empty where there is none.  One row is one unit: a kernel is a measurement, a range a
message, rows of all other tables are foreign.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from logparse.formats.format import FileFormat, Head, Outcome, Source
from logparse.formats.traces.kernel_totals import KernelTotals
from logparse.formats.traces.marker_ranges import Ranges
from logparse.formats.traces.sqlite_file import outcomes, quoted
from logparse.model import Fact, Message, Record, Reject

if TYPE_CHECKING:
    import sqlite3

CATEGORY = "marker"
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_NVTX = "NVTX_EVENTS"
_RANGE_TYPES = (59, 60)  # push/pop and start/end ranges
_BATCH = 100_000


def recognise(head: Head) -> bool:
    """An sqlite file with tables of Nsight Systems in its schema, or with its name."""
    if not head.data.startswith(b"SQLite format 3\0"):
        return False
    ours = any(word in head.data for word in (b"CUPTI_ACTIVITY_KIND", b"NVTX_EVENTS", b"TARGET_INFO_GPU"))
    return ours or head.name.endswith((".sqlite", ".nsys-rep.sqlite"))


def read(source: Source) -> Iterator[Outcome]:
    """Every row of every table."""
    return outcomes(source, lambda database: _Export(database).outcomes())


class _Export:
    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database
        tables = database.execute("select name from sqlite_master where type = 'table'").fetchall()
        self._columns = {
            name: {row[1] for row in database.execute(f"pragma table_info({quoted(name)})")} for (name,) in tables
        }
        self._names: dict[int, str] = {}

    def outcomes(self) -> Iterator[Outcome]:
        if _KERNELS not in self._columns:
            yield Outcome("reject", [Reject(f"no table {_KERNELS}: no CUDA kernels were traced")])
            return
        if "StringIds" in self._columns:
            self._names = dict(self._db.execute("select id, value from StringIds"))
        ranges, others = self._ranges()
        totals, kernels, bad = self._kernels(ranges)
        yield Outcome("fact", self._facts(), lines=0)
        yield Outcome("measurement", list(totals.records()), lines=kernels - bad)
        if bad:
            yield Outcome("reject", [Reject("a kernel without name or times")] * bad, lines=bad)
        counts: dict[str, int] = {}
        for name in ranges.names:
            counts[name] = counts.get(name, 0) + 1
        messages = [Message(category=CATEGORY, text=text, count=n) for text, n in counts.items()]
        yield Outcome("message", messages, lines=len(ranges.names))
        for table in self._columns.keys() - {_KERNELS, _NVTX}:
            others += self._db.execute(f"select count(*) from {quoted(table)}").fetchone()[0]
        yield Outcome("foreign", lines=others)

    def _ranges(self) -> tuple[Ranges, int]:
        ranges, others = Ranges(), 0
        columns = self._columns.get(_NVTX, set())
        if not {"start", "end", "globalTid"} <= columns:
            return ranges, others
        wanted = ", ".join(
            _column(columns, name) for name in ("start", "end", "globalTid", "text", "textId", "eventType")
        )
        for start, end, thread, text, text_id, kind in self._db.execute(f"select {wanted} from {_NVTX}"):
            name = text or self._names.get(text_id)
            timed = type(start) is int and type(end) is int and type(thread) is int
            if name and timed and (kind is None or kind in _RANGE_TYPES):
                ranges.add(str(name), start, end, thread)
            else:
                others += 1
        return ranges, others

    def _kernels(self, ranges: Ranges) -> tuple[KernelTotals, int, int]:
        totals, count, bad = KernelTotals(), 0, 0
        columns = self._columns[_KERNELS]
        wanted = [
            _column(columns, name, "k") for name in ("start", "end", "deviceId", "demangledName", "shortName", "name")
        ]
        runtime = self._columns.get(_RUNTIME, set())
        join = ""
        if ranges.names and {"start", "globalTid", "correlationId"} <= runtime and "correlationId" in columns:
            same = " and (r.globalTid >> 24) = (k.globalPid >> 24)" if "globalPid" in columns else ""
            join = f"left join launches r on r.correlationId = k.correlationId{same}"
            self._db.execute(
                f"create temp table launches as select correlationId, globalTid, min(start) as start from {_RUNTIME}"
                " group by correlationId, globalTid >> 24"
            )
            self._db.execute("create index temp.by_correlation on launches(correlationId)")
        launch = "r.start, r.globalTid" if join else "null, null"
        cursor = self._db.execute(f"select {', '.join(wanted)}, {launch} from {_KERNELS} k {join}")
        while rows := cursor.fetchmany(_BATCH):
            ops = ranges.at([(row[6], row[7]) for row in rows])
            for (start, end, device, long, short, plain, _, _), op in zip(rows, ops, strict=True):
                count += 1
                name = self._names.get(long) or self._names.get(short) or plain
                if not name or type(start) is not int or type(end) is not int or end < start:
                    bad += 1
                    continue
                totals.add(op, str(name), device if type(device) is int else None, (end - start) / 1e3)
        return totals, count, bad

    def _facts(self) -> list[Record]:
        facts: list[Record] = [Fact("backend", "CUDA")]
        columns = self._columns.get("TARGET_INFO_GPU", set())
        wanted = ", ".join(_column(columns, name) for name in ("name", "smCount", "computeMajor", "computeMinor"))
        if columns:
            for name, units, major, minor in self._db.execute(f"select {wanted} from TARGET_INFO_GPU"):
                facts += [Fact("device", str(name))] if name else []
                facts += [Fact("cu_count", str(units))] if units else []
                facts += [Fact("arch", f"sm_{major}{minor}")] if major is not None and minor is not None else []
        if "globalPid" in self._columns[_KERNELS]:
            pids = self._db.execute(f"select distinct globalPid from {_KERNELS} limit 2").fetchall()
            if len(pids) == 1 and type(pids[0][0]) is int:
                facts.append(Fact("pid", str(pids[0][0] >> 24 & 0xFFFFFF)))
        return list(dict.fromkeys(facts))


def _column(columns: set[str], name: str, table: str = "") -> str:
    dot = f"{table}." if table else ""
    return f"{dot}{quoted(name)}" if name in columns else "null"


FORMAT = FileFormat(
    name="nsys",
    about="Nsight Systems sqlite export: kernel times per NVTX range",
    recognise=recognise,
    read=read,
)
