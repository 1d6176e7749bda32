"""CSV files of rocprofv3: kernel traces and statistics, counters, marker ranges, agents.

::

    "Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id",…
    "KERNEL_DISPATCH","Agent 4",1,1,852831,1,10,"Cijk_Alik_Bljk_BBS_…",1,1551874061244694,1551874061255734,…

    "Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"
    "Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"
    "MARKER_CORE_RANGE_API","hipblasLtMatmul",315155,315155,5,58378844641787,58378844936586

    "Node_Id","Logical_Node_Id","Agent_Type",…,"Cu_Count",…,"Name","Vendor_Name","Product_Name","Model_Name"

    "Name","Calls","DURATION (nsec)","AVERAGE (nsec)","PERCENT (INC)","MIN (nsec)","MAX (nsec)","STD_DEV"

These commands write such files:

* ``rocprofv3 --kernel-trace [--stats] [--marker-trace] [--pmc …] --output-format csv -- COMMAND``, with
  ``HIPBLASLT_ENABLE_MARKER=1`` for hipBLASLt's own ranges;
* ``rocpd convert --output-format csv``, which adds a first column ``Guid``;
* ``rocpd summary --format csv``, which writes the last form above.  By rank it adds a first column ``ProcessID``;
* rocprof-compute, which runs a job several times.  The timestamps of its ``pmc_perf.csv`` are means with fractions.

Timestamps are nanoseconds.  Columns are found by name, because rocprofv3 has moved them between releases.  An agent is
a number, ``Agent N`` or ``GPU N``.

A CSV kernel trace does not state the range in which a kernel was launched.  The database states it (see ``rocpd``). The
marker trace is a separate file, whose ranges become messages.  A file of counters (``Counter_Name``) has one row per
counter and dispatch.  Only rows of the first counter are kernels.  Units:

* a kernel is a measurement;
* a marker is a message;
* a GPU is a fact;
* the header and all other rows are foreign: calls of HIP, and statistics of calls and copies.  Such statistics look
  like statistics of kernels.

Source: ROCm/rocprofiler-sdk source/lib/output/generateCSV.cpp, source/lib/python/rocpd/csv.py, …/summary.py.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from logparse.libraries.kinds.format import Outcome
from logparse.libraries.kinds.kernel_totals import KernelTotals, of_one_process
from logparse.libraries.kinds.patterns import regex
from logparse.libraries.kinds.table import Header, Row, TableFormat
from logparse.model import MOST_CALLS, Fact, Message, is_time
from logparse.target import hip_count

CATEGORY = "marker"
_AGENTS = ("Agent_Type", "Cu_Count", "Name", "Product_Name")
_COUNTERS = ("Kernel_Name", "Counter_Name", "Start_Timestamp", "End_Timestamp")
_TRACE = ("Kernel_Name", "Start_Timestamp", "End_Timestamp")
_STATS = ("Name", "Calls", "TotalDurationNs", "AverageNs", "Percentage", "MinNs", "MaxNs")
_SUMMARY = ("DURATION (nsec)", "AVERAGE (nsec)", "PERCENT (INC)", "MIN (nsec)", "MAX (nsec)")
_OF_SUMMARY = dict(zip(_SUMMARY, _STATS[2:], strict=True))
_MARKERS = ("Domain", "Function", "Start_Timestamp", "End_Timestamp")
_OF_KERNELS = ("kernel_stats.csv", "kernels_summary.csv", "kernels_summary_by_rank.csv")
_LAYOUTS = (_COUNTERS, _TRACE, _STATS, _MARKERS, _AGENTS)
_NO_KERNEL = regex(r"(?:__)?hip[A-Z]\w*\Z|hsa_\w+\Z|[A-Z][A-Z0-9_]+\Z")
"""Pattern of names in rocprofv3's statistics that are not names of kernels.

The names are calls of HIP or HSA, copies (``MEMORY_COPY_…``) and kinds of events (``KERNEL_DISPATCH``).
"""


def _layout(columns: Sequence[str]) -> tuple[str, ...] | None:
    return next((layout for layout in _LAYOUTS if set(layout) <= set(columns)), None)


class _Table:
    """Reads one CSV file of rocprofv3, and adds up the times of each kernel.

    Sums are enough, because millions of rows contain few different kernels.  Marked ranges and facts are collected too.
    """

    def __init__(self, header: Header) -> None:
        layout = _layout(header.columns)
        if layout is None:
            raise ValueError("no columns that rocprofv3 writes")
        self._name = header.name
        self._read = {
            _STATS: self._statistics,
            _MARKERS: self._marker,
            _AGENTS: self._agent,
            _COUNTERS: self._counted_kernel,
            _TRACE: self._kernel,
        }[layout]
        others = self._name.endswith(("_stats.csv", "_summary.csv", "_by_rank.csv"))
        self._of_kernels = self._name.endswith(_OF_KERNELS) or not others
        self._counter: str | None = None
        self._totals = KernelTotals()
        self._ranges: Counter[str] = Counter()
        self._facts: dict[Fact, None] = {}
        self._units: Counter[str] = Counter()

    def open(self) -> Iterator[Outcome]:
        yield Outcome("foreign")
        yield from of_one_process(self._name)

    def take(self, row: Row) -> None:
        try:
            self._units[self._read(row.cells)] += 1
        except ValueError as error:
            raise ValueError(f"not a possible number: {error}") from error

    def _marker(self, row: Mapping[str, str]) -> str:
        if not row["Domain"].startswith("MARKER"):
            return "foreign"
        self._ranges[row["Function"]] += 1
        return "message"

    def _counted_kernel(self, row: Mapping[str, str]) -> str:
        self._counter = self._counter or row["Counter_Name"]
        return self._kernel(row) if row["Counter_Name"] == self._counter else "foreign"

    def _kernel(self, row: Mapping[str, str]) -> str:
        if row.get("Kind", "KERNEL_DISPATCH") != "KERNEL_DISPATCH":
            return "foreign"
        name, agent = row["Kernel_Name"], row.get("Agent_Id") or row.get("GPU_ID", "")
        us = _nanoseconds(row["Start_Timestamp"], row["End_Timestamp"]) / 1e3
        if not is_time(us):
            raise ValueError(
                f"the kernel of this row takes {us:g} µs, which is impossible"
                if us >= 0
                else "the kernel of this row ends before it starts"
            )
        self._totals.add("", name, _agent(agent), us, calls=1, least=us, most=us)
        return "measurement"

    def _statistics(self, row: Mapping[str, str]) -> str:
        name = row["Name"]
        if not self._of_kernels or _NO_KERNEL.match(name):
            return "foreign"
        calls, total, least, most = (float(row[x]) for x in ("Calls", "TotalDurationNs", "MinNs", "MaxNs"))
        if not 1 <= calls <= MOST_CALLS or not all(is_time(x / 1e3) for x in (total / calls, least, most)):
            raise ValueError("the row of statistics states an impossible number of calls or an impossible time")
        self._totals.add("", name, None, total / 1e3, calls=int(calls), least=least / 1e3, most=most / 1e3)
        return "measurement"

    def _agent(self, row: Mapping[str, str]) -> str:
        if row["Agent_Type"] != "GPU":
            return "foreign"
        units = row["Cu_Count"]
        count = str(hip_count(int(units), row["Name"])) if units.isdecimal() and len(units) < 10 else units
        told = (("arch", row["Name"]), ("device", row["Product_Name"]), ("cu_count", count))
        self._facts |= {Fact(name, value): None for name, value in told if value}
        self._facts[Fact("backend", "HIP")] = None
        return "fact"

    def close(self) -> Iterator[Outcome]:
        """Yield the results after the last row of a profiler table: kernel times, marked ranges, and facts."""
        units = self._units
        yield Outcome("measurement", list(self._totals.records()), lines=units["measurement"])
        messages = [Message(category=CATEGORY, text=text, count=n) for text, n in self._ranges.items()]
        yield Outcome("message", messages, lines=units["message"])
        yield Outcome("fact", list(self._facts), lines=units["fact"])
        yield Outcome("foreign", lines=units["foreign"])


def _nanoseconds(begin: str, end: str) -> float:
    """Return the time between two timestamps, in ns.  Raises ValueError if a timestamp is no number.

    Integers are subtracted as integers, because the number of nanoseconds since 1970 exceeds the precision of a float.
    """
    try:
        return int(end) - int(begin)
    except ValueError:
        passed = float(end) - float(begin)
    if not math.isfinite(passed):
        raise ValueError(f"the row's times {begin} to {end} are impossible")
    return passed


@lru_cache(maxsize=256)
def _agent(text: str) -> int | None:
    number = text.removeprefix("Agent ").removeprefix("GPU ")
    return int(number) if number.isascii() and number.isdigit() and len(number) < 6 else None


FORMAT = TableFormat(
    name="rocprof-csv",
    about="rocprofv3's CSV files: kernel traces, statistics, counters, marker ranges, agents",
    ours=lambda header: _layout(header.columns) is not None,
    begin=_Table,
    rename=lambda names: [_OF_SUMMARY.get(name, name) for name in names],
    strip=False,
    job_log=True,
    seen="samples after the source code; without a test: public rows, and files of rocprof-compute on an MI300X",
    example='"KERNEL_DISPATCH","Agent 7",17,26,…',
    gives="kernels, counters, facts",
    how="run `rocprofv3 --kernel-trace [--stats] [--marker-trace] [--pmc …] --output-format csv -- COMMAND`; or make "
    "CSV files from a rocpd database with `rocpd convert --output-format csv` or `rocpd summary --format csv`",
)
