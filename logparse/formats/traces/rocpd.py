"""rocprofv3's database (rocpd, sqlite), its default output from ROCm 7 on: kernel times per roctx range.

::

    rocpd_kernel_dispatch_<uuid>(start, end, agent_id, kernel_id, event_id, region_name_id, …)       schema 3, in ns
    rocpd_kernel_dispatch_<uuid>(start_id, end_id, track_id, kernel_id, event_id, …)                 schema 4
    rocpd_region_<uuid>(start, end, tid, name_id, event_id, …)     rocpd_event_<uuid>(category_id, stack_id, extdata, …)
    rocpd_info_kernel_symbol_<uuid>, rocpd_info_agent_<uuid>, rocpd_info_process_<uuid>, rocpd_string_<uuid>, …

Made by ``rocprofv3 --kernel-trace --hip-trace --marker-trace -- COMMAND`` (``*_results.db``); ``rocpd merge`` puts
several into one file, whose tables then differ by their suffix.  Tables and columns come and go between releases: only
what is there is used, and never the views.
Source: ROCm/rocprofiler-sdk source/share/rocprofiler-sdk-rocpd/{rocpd_tables,data_views,marker_views}.sql,
source/lib/output/generateRocpd.cpp.

A kernel's ``op`` is the innermost roctx range in which it was launched, by the HIP call of the same ``stack_id``; where
the calls were not traced, the range that rocprofv3 itself notes with the kernel.  One row is one unit: a kernel is a
measurement, a roctx range is a message by its text, a HIP call and rows of other tables are foreign.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import quote

from logparse.formats.format import FileFormat, Head, Outcome, Source
from logparse.formats.patterns import regex
from logparse.formats.traces.kernel_totals import KernelTotals, of_one_process
from logparse.formats.traces.marker_ranges import Ranges
from logparse.model import Fact, Message, Record, Reject

if TYPE_CHECKING:
    import sqlite3

CATEGORY = "marker"
_BASES = (
    *("kernel_dispatch", "region", "sample", "event", "string", "timestamp", "track", "metadata"),
    *("info_kernel_symbol", "info_agent", "info_process", "info_thread", "info_category"),
)
_TABLE = regex(rf"rocpd_({'|'.join(_BASES)})((?:_[0-9A-Fa-f-]+)*)\Z")
_BATCH = 100_000


def recognise(head: Head) -> bool:
    """An sqlite file with tables of rocpd in its schema, which may begin late in a merged file, or of its name."""
    named = head.name.endswith("_results.db")
    return head.data.startswith(b"SQLite format 3\0") and (b"rocpd_" in head.data or named)


def read(source: Source) -> Iterator[Outcome]:
    """Every row of every table, without writing to the file or beside it; a reject where SQLite cannot read on."""
    import sqlite3

    yield from of_one_process(source.name)
    path = quote(source.local_path())
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
            database.text_factory = lambda raw: raw.decode("utf-8", "backslashreplace")
            yield from _outcomes(database)
    except sqlite3.Error as error:
        yield Outcome("reject", [Reject(f"sqlite: {error}")])


def _quoted(name: str) -> str:
    """A table's or column's name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def _outcomes(database: sqlite3.Connection) -> Iterator[Outcome]:
    names = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
    parts: dict[str, dict[str, str]] = {}
    for name in names:
        match = _TABLE.match(name)
        if match:
            parts.setdefault(match[2], {})[match[1]] = name
    kernels = [tables for tables in parts.values() if "kernel_dispatch" in tables]
    if not kernels:
        yield Outcome("reject", [Reject("rocpd: no table of kernel dispatches")])
        return
    read_rows: set[str] = set()
    for tables in kernels:
        part = _Part(database, tables)
        yield from part.outcomes()
        read_rows |= {tables[base] for base in ("kernel_dispatch", "region") if base in tables}
    others = sum(_count(database, name) for name in names if name not in read_rows)
    yield Outcome("foreign", lines=others)


def _count(database: sqlite3.Connection, table: str) -> int:
    return int(database.execute(f"select count(*) from {_quoted(table)}").fetchone()[0])


class _Part:
    """The tables of one process."""

    def __init__(self, database: sqlite3.Connection, tables: dict[str, str]) -> None:
        self._db = database
        self._tables = tables
        self._columns = {
            base: {row[1] for row in database.execute(f"pragma table_info({_quoted(name)})")}
            for base, name in tables.items()
        }

    def outcomes(self) -> Iterator[Outcome]:
        yield Outcome("fact", self._facts(), lines=0)
        ranges = self._ranges()
        totals, bad = self._kernels(ranges)
        count = _count(self._db, self._tables["kernel_dispatch"])
        yield Outcome("measurement", list(totals.records()), lines=count - bad)
        if bad:
            yield Outcome("reject", [Reject("a kernel without name or times")] * bad, lines=bad)
        texts = Counter(ranges.names)
        messages = [Message(category=CATEGORY, text=text, count=n) for text, n in texts.items()]
        yield Outcome("message", messages, lines=len(ranges.names))
        if "region" in self._tables:
            yield Outcome("foreign", lines=_count(self._db, self._tables["region"]) - len(ranges.names))

    # ------------------------------------------------------------------------------------------------ pieces of SQL

    def _table(self, base: str) -> str:
        return _quoted(self._tables[base])

    def _has(self, base: str, *columns: str) -> bool:
        return set(columns) <= self._columns.get(base, set())

    def _column(self, base: str, alias: str, *names: str) -> str:
        """The first of these columns that there is, else null."""
        return next((f"{alias}.{_quoted(name)}" for name in names if self._has(base, name)), "null")

    def _times(self, base: str, alias: str) -> tuple[str, str, str]:
        """Start, end and the joins that they need (schema 4 keeps time stamps in a table of their own)."""
        if self._has(base, "start", "end"):
            return f'{alias}."start"', f'{alias}."end"', ""
        if not self._has(base, "start_id", "end_id") or "timestamp" not in self._tables:
            return "null", "null", ""
        stamps = self._table("timestamp")
        joins = (
            f" left join {stamps} {alias}s on {alias}s.id = {alias}.start_id"
            f" left join {stamps} {alias}e on {alias}e.id = {alias}.end_id"
        )
        return f"{alias}s.value", f"{alias}e.value", joins

    def _owner(self, base: str, alias: str, column: str) -> tuple[str, str]:
        """A thread or agent of a row, of its own or of its track (schema 4), and the join that it needs."""
        if self._has(base, column):
            return f"{alias}.{column}", ""
        if self._has(base, "track_id") and self._has("track", column):
            return f"{alias}t.{column}", f" left join {self._table('track')} {alias}t on {alias}t.id = {alias}.track_id"
        return "null", ""

    def _category(self) -> tuple[str, str]:
        """An event's category and the join that it needs."""
        if "info_category" in self._tables:
            return "c.name", f" left join {self._table('info_category')} c on c.id = e.category_id"
        if "string" in self._tables:
            return "c.string", f" left join {self._table('string')} c on c.id = e.category_id"
        return "null", ""

    def _regions(self, wanted: str, where: str) -> str:
        """A query of regions ``r`` with their events ``e`` and names ``n``."""
        start, end, times = self._times("region", "r")
        thread, track = self._owner("region", "r", "tid")
        category, join = self._category()
        return (
            f"select {wanted.format(start=start, end=end, thread=thread, category=category)}"
            f" from {self._table('region')} r left join {self._table('event')} e on e.id = r.event_id"
            f" left join {self._table('string')} n on n.id = r.name_id{times}{track}{join}"
            f" where {where.format(start=start, end=end, thread=thread, category=category)}"
        )

    @property
    def _traced(self) -> bool:
        """Whether there are regions with events and names."""
        return all(base in self._tables for base in ("region", "event", "string")) and self._has("region", "event_id")

    # ------------------------------------------------------------------------------------------------ what there is

    def _ranges(self) -> Ranges:
        ranges = Ranges()
        if not self._traced:
            return ranges
        sql = self._regions("{start}, {end}, {thread}, e.extdata, n.string", "{category} like '%MARKER%'")
        texts: dict[str, str] = {}
        for start, end, thread, data, name in self._db.execute(sql):
            if type(start) is int and type(end) is int and type(thread) is int:
                text = texts.setdefault(data, _message(data)) if isinstance(data, str) else ""
                ranges.add(text or str(name), start, end, thread)
        return ranges

    def _kernels(self, ranges: Ranges) -> tuple[KernelTotals, int]:
        """Totals of the kernels, and how many rows have no name or times."""
        totals, bad = KernelTotals(), 0
        start, end, joins = self._times("kernel_dispatch", "k")
        agent, track = self._owner("kernel_dispatch", "k", "agent_id")
        names = ["null", "null"]
        if "info_kernel_symbol" in self._tables:
            joins += f" left join {self._table('info_kernel_symbol')} s on s.id = k.kernel_id"
            names = [self._column("info_kernel_symbol", "s", x) for x in ("display_name", "kernel_name")]
        joins += track
        device = "null"
        if "info_agent" in self._tables and agent != "null":
            joins += f" left join {self._table('info_agent')} a on a.id = {agent}"
            device = self._column("info_agent", "a", "type_index", "logical_index", "absolute_index")
        renamed = "null"
        if self._has("kernel_dispatch", "region_name_id") and "string" in self._tables:
            joins += f" left join {self._table('string')} g on g.id = k.region_name_id"
            renamed = "g.string"
        launch, join = self._launches(ranges)
        sql = (
            f"select {start}, {end}, {device}, {', '.join(names)}, {renamed}, {launch}"
            f" from {self._table('kernel_dispatch')} k{joins}{join}"
        )
        cursor = self._db.execute(sql)
        while rows := cursor.fetchmany(_BATCH):
            ops = ranges.at([(row[6], row[7]) for row in rows])
            for (begins, ends, index, shown, plain, rename, _, _), op in zip(rows, ops, strict=True):
                name = shown or plain
                if not name or type(begins) is not int or type(ends) is not int or ends < begins:
                    bad += 1
                    continue
                region = str(rename) if rename and rename != name else ""
                totals.add(op or region, str(name), index if type(index) is int else None, (ends - begins) / 1e3)
        return totals, bad

    def _launches(self, ranges: Ranges) -> tuple[str, str]:
        """When and on which thread each kernel was launched: columns and the join that they need."""
        if not ranges.names or not self._has("event", "stack_id") or not self._has("kernel_dispatch", "event_id"):
            return "null, null", ""
        self._db.execute("drop table if exists temp.launches")
        sql = self._regions("e.stack_id as stack, min({start}) as start, {thread} as tid", "{category} like 'HIP%'")
        self._db.execute(f"create temp table launches as {sql} group by e.stack_id")
        self._db.execute("create index temp.by_stack on launches(stack)")
        event = f" left join {self._table('event')} own on own.id = k.event_id"
        return "l.start, l.tid", f"{event} left join launches l on l.stack = own.stack_id"

    def _facts(self) -> list[Record]:
        facts: list[Record] = [Fact("backend", "HIP")]
        if self._has("metadata", "tag", "value"):
            sql = f"select value from {self._table('metadata')} where tag = 'schema_version'"
            facts += [Fact("rocpd_schema", str(value)) for (value,) in self._db.execute(sql)]
        if self._has("info_agent", "type", "name"):
            more = ", ".join(self._column("info_agent", "a", x) for x in ("product_name", "extdata"))
            sql = f"select a.name, {more} from {self._table('info_agent')} a where a.type = 'GPU'"
            for name, product, data in self._db.execute(sql):
                facts += [Fact("arch", str(name))] if name else []
                facts += [Fact("device", str(product))] if product else []
                units = _member(data, "cu_count")
                facts += [Fact("cu_count", str(units))] if type(units) is int else []
        if self._has("info_process", "pid"):
            sql = f"select pid from {self._table('info_process')}"
            facts += [Fact("pid", str(pid)) for (pid,) in self._db.execute(sql) if type(pid) is int]
        return list(dict.fromkeys(facts))


def _member(data: object, name: str) -> object:
    """A member of a JSON object, or None."""
    try:
        found = json.loads(data) if isinstance(data, str) else None
    except (ValueError, RecursionError):
        return None
    return found.get(name) if isinstance(found, dict) else None


def _message(data: str) -> str:
    """The text of a roctx range, which its event holds."""
    text = _member(data, "message")
    return text if isinstance(text, str) else ""


FORMAT = FileFormat(
    name="rocpd",
    about="rocprofv3's rocpd database (ROCm 7): kernel times per roctx range",
    recognise=recognise,
    read=read,
)
