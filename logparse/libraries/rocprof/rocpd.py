"""rocprofv3's database (rocpd, sqlite), its default output from ROCm 7 on: kernel times per roctx range.

::

    rocpd_kernel_dispatch_<uuid>(start, end, agent_id, kernel_id, event_id, region_name_id, …)       schema 3, in ns
    rocpd_kernel_dispatch_<uuid>(start_id, end_id, track_id, kernel_id, event_id, …)                 schema 4
    rocpd_region_<uuid>(start, end, tid, name_id, event_id, …)     rocpd_event_<uuid>(category_id, stack_id, extdata, …)
    rocpd_info_kernel_symbol_<uuid>, rocpd_info_agent_<uuid>, rocpd_info_process_<uuid>, rocpd_string_<uuid>, …

``rocprofv3 --kernel-trace --hip-trace --marker-trace -- COMMAND`` writes it (``*_results.db``).  ``rocpd merge`` puts
several databases into one file, whose tables then differ by their suffix.  Releases differ in their tables and columns,
so the reader uses only tables and columns that it finds.  It never uses the views.  Source: ROCm/rocprofiler-sdk
source/share/rocprofiler-sdk-rocpd/{rocpd_tables,data_views,marker_views}.sql, source/lib/output/generateRocpd.cpp.

A kernel's ``op`` is the innermost roctx range in which it was launched, found by the HIP call of the same ``stack_id``.
If the calls were not traced, ``op`` is the range that rocprofv3 itself records for the kernel.  One row is one unit:

* a kernel is a measurement;
* a roctx range is a message with its text;
* a HIP call and rows of other tables are foreign.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import quote

from logparse.libraries.kinds.format import FileFormat, Head, Outcome, Source
from logparse.libraries.kinds.kernel_totals import KernelTotals, of_one_process
from logparse.libraries.kinds.marker_ranges import Ranges
from logparse.libraries.kinds.patterns import regex
from logparse.model import Fact, Message, Record, Reject, is_time
from logparse.quoting import sql_name
from logparse.target import hip_count

if TYPE_CHECKING:
    import sqlite3

CATEGORY = "marker"
_COLUMNS = {
    "kernel_dispatch": "start end start_id end_id agent_id track_id kernel_id event_id region_name_id",
    "region": "start end start_id end_id tid track_id name_id event_id",
    "event": "id stack_id category_id extdata",
    "string": "id string",
    "timestamp": "id value",
    "track": "id tid agent_id",
    "info_kernel_symbol": "id display_name kernel_name",
    "info_agent": "id type name product_name extdata type_index logical_index absolute_index",
    "info_process": "pid",
    "info_category": "id name",
}
"""For each table of the database, the columns that are read.

In schema 4, time stamps, threads and agents are in separate tables.
"""
_TABLE = regex(rf"rocpd_({'|'.join(_COLUMNS)})((?:_[0-9A-Fa-f-]+)*)\Z")
_REGIONS = """
    select coalesce(r."start", s.value) as begins, coalesce(r."end", f.value) as ends, coalesce(r.tid, t.tid) as thread,
        e.stack_id as stack, e.extdata, n.string as name, {category} as category
    from region r join event e on e.id = r.event_id
        left join string n on n.id = r.name_id left join timestamp s on s.id = r.start_id
        left join timestamp f on f.id = r.end_id left join track t on t.id = r.track_id {join}"""
_KERNELS = """
    select coalesce(k."start", s.value), coalesce(k."end", f.value),
        coalesce(a.type_index, a.logical_index, a.absolute_index), y.display_name, y.kernel_name, g.string,
        l.begins, l.thread
    from kernel_dispatch k left join timestamp s on s.id = k.start_id left join timestamp f on f.id = k.end_id
        left join track t on t.id = k.track_id left join info_agent a on a.id = coalesce(k.agent_id, t.agent_id)
        left join info_kernel_symbol y on y.id = k.kernel_id left join string g on g.id = k.region_name_id
        left join event e on e.id = k.event_id left join launches l on l.stack = e.stack_id"""
_BATCH = 100_000


def recognise(head: Head) -> bool:
    """Return True if a file is a database that rocprofv3 wrote (rocpd)."""
    # The name is needed for a merged file, because its schema may not be among the first bytes.
    named = head.name.endswith("_results.db")
    return head.data.startswith(b"SQLite format 3\0") and (b"rocpd_" in head.data or named)


def read(source: Source) -> Iterator[Outcome]:
    """Read every row of every table of a rocprofv3 database.

    Nothing is written to the file or beside it.  If SQLite cannot read on, the last result is a reject (a counted
    error).
    """
    import sqlite3

    yield from of_one_process(source.name)
    path = quote(source.local_path())
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
            database.text_factory = lambda raw: raw.decode("utf-8", "backslashreplace")
            yield from _outcomes(database)
    except sqlite3.Error as error:
        yield Outcome("reject", [Reject(f"sqlite: {error}")])


def _outcomes(database: sqlite3.Connection) -> Iterator[Outcome]:
    names = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
    parts: dict[str, dict[str, str]] = {}
    for name in names:
        match = _TABLE.match(name)
        if match:
            parts.setdefault(match[2], {})[match[1]] = name
    kernels = [tables for tables in parts.values() if "kernel_dispatch" in tables]
    if not kernels:
        yield Outcome("reject", [Reject("the rocpd database has no table of kernel dispatches")])
        return
    read_rows: set[str] = set()
    for tables in kernels:
        part = _Part(database, tables)
        yield from part.outcomes()
        read_rows |= {tables[base] for base in ("kernel_dispatch", "region") if base in tables}
    others = sum(_count(database, name) for name in names if name not in read_rows)
    yield Outcome("foreign", lines=others)


def _count(database: sqlite3.Connection, table: str) -> int:
    return int(database.execute(f"select count(*) from {sql_name(table)}").fetchone()[0])


class _Part:
    """The tables of one process in a rocprofv3 database, in the same form for every release of the profiler.

    They are SQL views.  A column that a release lacks is null, and a table that it lacks is empty.
    """

    def __init__(self, database: sqlite3.Connection, tables: dict[str, str]) -> None:
        self._db, self._tables = database, tables
        database.execute("create temp table if not exists absent (id integer primary key)")
        for base, names in _COLUMNS.items():
            of = sql_name(tables.get(base, "absent"))
            there = {row[1] for row in database.execute(f"pragma table_info({of})")}
            columns = ", ".join(f"{sql_name(x) if x in there else 'null'} as {sql_name(x)}" for x in names.split())
            database.execute(f"drop view if exists temp.{base}")
            database.execute(f"create temp view {base} as select {columns} from {of}")
        category, other = ("c.name", "info_category") if "info_category" in tables else ("c.string", "string")
        self._regions = _REGIONS.format(category=category, join=f"left join {other} c on c.id = e.category_id")

    def outcomes(self) -> Iterator[Outcome]:
        yield Outcome("fact", self._facts(), lines=0)
        ranges = self._ranges()
        totals, bad = self._kernels(ranges)
        count = _count(self._db, self._tables["kernel_dispatch"])
        yield Outcome("measurement", list(totals.records()), lines=count - bad)
        if bad:
            yield Outcome("reject", [Reject("a kernel without a name or times")] * bad, lines=bad)
        texts = Counter(ranges.names)
        messages = [Message(category=CATEGORY, text=text, count=n) for text, n in texts.items()]
        yield Outcome("message", messages, lines=len(ranges.names))
        if "region" in self._tables:
            yield Outcome("foreign", lines=_count(self._db, self._tables["region"]) - len(ranges.names))

    def _ranges(self) -> Ranges:
        ranges, texts = Ranges(), dict[str, str]()
        sql = f"select begins, ends, thread, extdata, name from ({self._regions}) where category like '%MARKER%'"
        for start, end, thread, data, name in self._db.execute(sql):
            if type(start) is int and type(end) is int and type(thread) is int:
                text = texts.setdefault(data, _message(data)) if isinstance(data, str) else ""
                ranges.add(text or str(name), start, end, thread)
        return ranges

    def _kernels(self, ranges: Ranges) -> tuple[KernelTotals, int]:
        """Add up the times of each kernel in one process of a rocprofv3 database.

        Also returns the number of rows that were left out because they lack a valid name or valid times.
        """
        totals, bad = KernelTotals(), 0
        self._db.execute("drop table if exists temp.launches")
        calls = f"from ({self._regions}) where category like 'HIP%' group by stack" if ranges.names else "limit 0"
        columns = "stack, min(begins) as begins, thread" if ranges.names else "0 as stack, 0 as begins, 0 as thread"
        self._db.execute(f"create temp table launches as select {columns} {calls}")
        self._db.execute("create index temp.by_stack on launches(stack)")
        cursor = self._db.execute(_KERNELS)
        while rows := cursor.fetchmany(_BATCH):
            taken: dict[tuple[str, str, object], list[int]] = defaultdict(list)
            ops = ranges.at([(row[6], row[7]) for row in rows])
            for (begins, ends, index, shown, plain, rename, _, _), op in zip(rows, ops, strict=True):
                name = shown or plain
                if name and type(begins) is int and type(ends) is int and is_time((ends - begins) / 1e3):
                    taken[op or (rename if rename != name else "") or "", name, index].append(ends - begins)
                else:
                    bad += 1
            for (op, name, index), ns in taken.items():
                us, device = [x / 1e3 for x in (sum(ns), min(ns), max(ns))], index if type(index) is int else None
                totals.add(str(op), str(name), device, us[0], calls=len(ns), least=us[1], most=us[2])
        return totals, bad

    def _facts(self) -> list[Record]:
        facts: list[Record] = [Fact("backend", "HIP")]
        gpus = self._db.execute("select name, product_name, extdata from info_agent where type = 'GPU'")
        for name, product, data in gpus:
            facts += [Fact("arch", str(name))] if name else []
            facts += [Fact("device", str(product))] if product else []
            units = _member(data, "cu_count")
            facts += [Fact("cu_count", str(hip_count(units, str(name))))] if type(units) is int else []
        pids = self._db.execute("select pid from info_process")
        facts += [Fact("pid", str(pid)) for (pid,) in pids if type(pid) is int]
        return list(dict.fromkeys(facts))


def _member(data: object, name: str) -> object:
    """Parse a text as a JSON object and return one of its members, or None if there is no such member."""
    try:
        found = json.loads(data) if isinstance(data, str) else None
    except (ValueError, RecursionError):
        return None
    return found.get(name) if isinstance(found, dict) else None


def _message(data: str) -> str:
    """Return the text that the program gave to a marked range (roctx), from the JSON data of the range's event."""
    text = _member(data, "message")
    return text if isinstance(text, str) else ""


FORMAT = FileFormat(
    "rocpd",
    "rocprofv3's rocpd database (ROCm 7): kernel times per roctx range",
    recognise,
    read,
    job_log=True,
    order="the file is a database. Each of its rows states its own time, so the order of the rows means nothing",
    seen="schema 3.0 and 4.0 (source code only); one file of an MI300X, schema 3 (no test)",
    example="rocpd_kernel_dispatch_<uuid>(start, end, …)",
    gives="kernels per range",
    how=(
        "`rocprofv3 --kernel-trace --hip-trace --marker-trace -- COMMAND` (from ROCm 7 on, rocprofv3 writes "
        "`*_results.db` by default)"
    ),
)
