"""Write the sample databases in ``sample_logs/rocpd/``. Run it from any folder; the files are always the same.

The samples are databases of AMD's profiler rocprofv3 for a small program, with the columns that matter: one of ROCm 7
(schema 3) and one of later versions (schema 4). The script follows the schema (see the folder's README), and imports
nothing of logparse.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

OUT = Path(__file__).parent / "rocpd"
UUID = "_00001092_a3b7_7c0c_b0cb_1d2e3f405162"
NAMES = ["Cijk_Ailk_Bljk_BBS_BH_MT128x128x64", "MIOpenConvUniC.kd"]
STRINGS = [
    "HIP_RUNTIME_API_EXT",
    "MARKER_CORE_RANGE_API",
    "hipModuleLaunchKernel",
    "roctxRangePushA",
    "KERNEL_DISPATCH",
    "",
]
RANGES = [("forward", 1_000, 90_000), ("hipblasLtMatmul", 9_000, 40_000)]
LAUNCHES = [(10_000, 12_000, 101), (20_000, 22_000, 102), (50_000, 52_000, 103), (95_000, 96_000, 104)]
KERNELS = [(15_000, 35_000, 1, 101), (36_000, 60_500, 1, 102), (61_000, 70_000, 2, 103), (97_000, 99_000, 2, 104)]

COMMON = """
    create table rocpd_metadata{u} (id integer primary key, tag text, value text);
    create table rocpd_info_process{u} (id integer primary key, nid integer, ppid integer, pid integer, command text);
    create table rocpd_info_thread{u} (id integer primary key, nid integer, pid integer, tid integer);
    create table rocpd_info_agent{u} (id integer primary key, type text, absolute_index integer, logical_index integer,
        type_index integer, name text, product_name text, extdata text);
    create table rocpd_info_kernel_symbol{u} (id integer primary key, kernel_name text, display_name text);
    create table rocpd_event{u} (id integer primary key, category_id integer, stack_id integer, parent_stack_id integer,
        correlation_id integer, extdata text);
    create table rocpd_string{u} (id integer primary key, guid text, string text);
"""
INLINE = """
    create table rocpd_region{u} (id integer primary key, nid integer, pid integer, tid integer, start bigint,
        end bigint, name_id integer, event_id integer);
    create table rocpd_kernel_dispatch{u} (id integer primary key, nid integer, pid integer, tid integer,
        agent_id integer, kernel_id integer, dispatch_id integer, start bigint, end bigint, region_name_id integer,
        event_id integer);
    create view rocpd_region as select * from rocpd_region{u};
"""
STAMPED = """
    create table rocpd_timestamp{u} (id integer primary key, value bigint, track_id integer);
    create table rocpd_track{u} (id integer primary key, nid integer, pid integer, tid integer, agent_id integer);
    create table rocpd_info_category{u} (id integer primary key, name text);
    create table rocpd_region{u} (id integer primary key, track_id integer, start_id integer, end_id integer,
        name_id integer, event_id integer);
    create table rocpd_kernel_dispatch{u} (id integer primary key, track_id integer, kernel_id integer,
        dispatch_id integer, start_id integer, end_id integer, region_name_id integer, event_id integer);
"""


class Writer:
    """A writer for a sample database of rocprofv3, with schema 4 if ``stamped`` is true, otherwise with schema 3."""

    def __init__(self, database: sqlite3.Connection, uuid: str, stamped: bool) -> None:
        self._db, self._uuid, self._stamped = database, uuid, stamped
        self._events = self._stamps = 0
        database.executescript((COMMON + (STAMPED if stamped else INLINE)).replace("{u}", uuid))

    def rows(self, table: str, *rows: tuple[object, ...]) -> None:
        """Insert complete rows into a table."""
        marks = ",".join("?" * len(rows[0]))
        self._db.executemany(f"insert into rocpd_{table}{self._uuid} values ({marks})", rows)

    def event(self, category: int, stack: int, text: str = "") -> int:
        """Insert an event and return its id."""
        self._events += 1
        data = json.dumps({"message": text}) if text else "{}"
        self.rows("event", (self._events, category, stack, stack, 0, data))
        return self._events

    def stamp(self, value: int, track: int) -> int:
        """Insert a time stamp (only in schema 4) and return its id."""
        self._stamps += 1
        self.rows("timestamp", (self._stamps, value, track))
        return self._stamps

    def region(self, number: int, start: int, end: int, name: int, event: int) -> None:
        """Insert a marked range, or a call of a function, of the program's only thread."""
        if self._stamped:
            self.rows("region", (number, 1, self.stamp(start, 1), self.stamp(end, 1), name, event))
        else:
            self.rows("region", (number, 1, 1, 1, start, end, name, event))

    def kernel(self, number: int, start: int | None, end: int, symbol: int, event: int) -> None:
        """Insert a kernel that ran on the only GPU."""
        if self._stamped:
            begins = None if start is None else self.stamp(start, 2)
            self.rows("kernel_dispatch", (number, 2, symbol, number, begins, self.stamp(end, 2), 6, event))
        else:
            self.rows("kernel_dispatch", (number, 1, 1, 1, 2, symbol, number, start, end, 6, event))


def fill(out: Writer, uuid: str, pid: int, stamped: bool) -> None:
    """Write the sample program's data to the database: two marked ranges, four kernel launches and their kernels.

    One more kernel has no start time.
    """
    out.rows("metadata", (1, "schema_version", "4.0.0" if stamped else "3"), (2, "uuid", uuid))
    out.rows("info_process", (1, 1, 1, pid, "./train"))
    out.rows("info_thread", (1, 1, 1, pid))
    gpu = json.dumps({"cu_count": 304, "simd_count": 1216})
    out.rows(
        "info_agent", (1, "CPU", 0, 0, 0, "AMD EPYC", "AMD EPYC 9654", "{}"),
        (2, "GPU", 1, 1, 0, "gfx942", "AMD Instinct MI300X", gpu),
    )  # fmt: skip
    out.rows("info_kernel_symbol", *((i, name, name) for i, name in enumerate(NAMES, 1)))
    out.rows("string", *((i, "", text) for i, text in enumerate(STRINGS, 1)))
    if stamped:
        out.rows("info_category", *((i, text) for i, text in enumerate(STRINGS[:5], 1)))
        out.rows("track", (1, 1, 1, 1, None), (2, 1, 1, 1, 2))
    for number, (text, start, end) in enumerate(RANGES, 1):
        out.region(number, start, end, 4, out.event(2, number, text))
    for number, (start, end, stack) in enumerate(LAUNCHES, len(RANGES) + 1):
        out.region(number, start, end, 3, out.event(1, stack))
    for number, (start, end, symbol, stack) in enumerate(KERNELS, 1):
        out.kernel(number, start, end, symbol, out.event(5, stack))
    out.kernel(len(KERNELS) + 1, None, 200_000, 1, out.event(5, 999))


def main() -> None:
    """Write both sample databases."""
    OUT.mkdir(exist_ok=True)
    merged = [(UUID, 4242), (UUID.replace("1092", "1093"), 4243)]
    for name, parts, stamped in (("4242_results.db", merged[:1], False), ("merged_results.db", merged, True)):
        path = OUT / name
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as database:
            writers = [(Writer(database, uuid, stamped), uuid, pid) for uuid, pid in parts]
            for writer, uuid, pid in writers:
                fill(writer, uuid, pid, stamped)
            database.commit()


if __name__ == "__main__":
    main()
