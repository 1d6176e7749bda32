"""Nsight Compute's CSV: kernel times and achieved memory bandwidth.

::

    ==PROF== Connected to process 4242
    "ID","Process ID","Process Name","Host Name","Kernel Name",…,"Device","CC",…,"Metric Name","Metric Unit",…
    "0","4242","python","127.0.0.1","nvjet_sm90_tst_…",…,"0","9.0","…","gpu__time_duration.sum","ns","10,196,000"

Made by ``ncu --csv --metrics gpu__time_duration.sum,dram__bytes.sum.per_second COMMAND`` or any section that holds
them; ``--page raw`` gives one line per launch with the metrics as columns and their units on the second line.

The time of a launch is ``gpu__time_duration.sum`` (``Duration`` in a section), its bandwidth
``dram__bytes.sum.per_second`` or bytes over time, in GB/s (10^9).  A line is a measurement where it holds one of these
(of a launch without a time: a message), else foreign.  Numbers are read with thousands separated by commas.
A message states the bandwidth of each kernel in words.
"""

from __future__ import annotations

import codecs
import csv
import math
from collections import Counter
from collections.abc import Iterator, Mapping

from logparse.formats.decimals import MS_TO_US, NS_TO_US, S_TO_US, shifted
from logparse.formats.format import FileFormat, Head, Line, Outcome, Source
from logparse.formats.traces.kernel_totals import KernelTotals
from logparse.model import Fact, Message, Record, Reject

CATEGORY = "profiler"
_START = b'"ID","Process ID",'
_KERNEL = "Kernel Name"
_LONG = ("Metric Name", "Metric Unit", "Metric Value")
_TIME = frozenset({"gpu__time_duration.sum", "gpu__time_duration.avg", "Duration"})
_RATE = frozenset({"dram__bytes.sum.per_second", "Memory Throughput"})
_BYTES = frozenset({"dram__bytes.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"})

_PREFIXES = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12}
"""Decimal places of a unit's prefix."""
_US = {
    **dict.fromkeys(("ns", "nsecond", "nanosecond"), NS_TO_US),
    **dict.fromkeys(("us", "usecond", "microsecond"), 0),
    **dict.fromkeys(("ms", "msecond", "millisecond"), MS_TO_US),
    **dict.fromkeys(("s", "second"), S_TO_US),
}


def recognise(head: Head) -> bool:
    """By the first columns of the table, which may stand behind output of the program."""
    lines = head.data.removeprefix(codecs.BOM_UTF8).splitlines()
    return any(line.startswith(_START) and b'"Kernel Name"' in line for line in lines)


def read(source: Source) -> Iterator[Outcome]:
    """Every line; kernels and messages come at the end."""
    reader = _Table()
    for line in source.lines():
        yield from reader.take(line)
    yield from reader.close()


class _Table:
    def __init__(self) -> None:
        self._columns: list[str] = []
        self._units: dict[str, str] = {}  # of metrics that are columns
        self._totals = KernelTotals()
        self._key: tuple[str, str, str] | None = None  # the launch in hand: process, ID, kernel
        self._device: int | None = None
        self._launch: dict[str, float] = {}
        self._lines = 0  # of this launch, with what is measured
        self._timeless: Counter[str] = Counter()  # launches with a bandwidth alone, by kernel
        self._count: Counter[str] = Counter()
        self._facts: dict[Record, None] = {}

    def take(self, line: Line) -> Iterator[Outcome]:
        """One line; only rejects come back at once."""
        text = line.text.removeprefix("\ufeff").rstrip("\r")
        if not text.startswith('"'):
            self._count["foreign" if text.strip() else "blank"] += 1
            return
        try:
            cells = next(csv.reader([text]), [])
        except csv.Error as error:
            yield Outcome("reject", [Reject(str(error))], at=line.offset)
            return
        if cells[:2] == ["ID", "Process ID"]:
            self._columns, self._units = cells, {}
            self._count["foreign"] += 1
        elif not self._columns:
            self._count["foreign"] += 1
        elif len(cells) != len(self._columns):
            reason = f"{len(cells)} cells for {len(self._columns)} columns"
            yield Outcome("reject", [Reject(reason)], at=line.offset)
        else:
            row = dict(zip(self._columns, cells, strict=True))
            try:
                self._count["foreign"] += not self._row(row)
            except ValueError as error:
                yield Outcome("reject", [Reject(str(error))], at=line.offset)

    def _row(self, row: Mapping[str, str]) -> bool:
        """Whether the line holds something measured; such a line is counted with its launch."""
        if not row["ID"]:
            self._units = dict(row)
            return False
        if row.get("CC"):
            self._facts[Fact("arch", "sm_" + row["CC"].replace(".", ""))] = None
        key = (row.get("Process ID", ""), row["ID"], row.get(_KERNEL, ""))
        if key != self._key:  # ncu prints one launch after the other
            self._finish()
            device = row.get("Device", "")
            self._key, self._device = key, int(device) if device.isdecimal() else None
        if set(_LONG) <= row.keys():
            name, unit, value = (row[key] for key in _LONG)
            measured = self._metric(name, value, unit)
        else:  # a list: every column counts, also behind one that was measured
            columns = [(name, row[name], unit) for name, unit in self._units.items() if name in row]
            measured = sum(self._metric(*column) for column in columns) > 0
        self._lines += measured
        return measured

    def _metric(self, name: str, value: str, unit: str) -> bool:
        launch = self._launch
        if name in _TIME and "us" not in launch:
            launch["us"] = _number(value, _places(unit, _US, name), name)
        elif name in _RATE and "/" in unit and "rate" not in launch:
            launch["rate"] = _number(value, _bytes(unit.partition("/")[0], name), name)
        elif name in _BYTES and name not in launch:
            launch[name] = _number(value, _bytes(unit, name), name)
        else:
            return False
        return True

    def _finish(self) -> None:
        """Add the launch in hand; its bandwidth is the one printed, or bytes over time."""
        launch, self._launch = self._launch, {}
        lines, self._lines = self._lines, 0
        if self._key is None:
            return
        us = launch.get("us")
        self._count["message" if us is None else "measurement"] += lines
        if us is None:
            self._timeless[self._key[2]] += bool(lines)
            return
        moved = launch.get("dram__bytes.sum")
        if moved is None and {"dram__bytes_read.sum", "dram__bytes_write.sum"} <= launch.keys():
            moved = launch["dram__bytes_read.sum"] + launch["dram__bytes_write.sum"]
        rate = launch.get("rate")
        if rate is None and moved is not None and us > 0:
            rate = moved / us * 1e6
        self._totals.add("", self._key[2], self._device, us, dram_gb_per_s=None if rate is None else rate / 1e9)

    def close(self) -> Iterator[Outcome]:
        """What the lines made."""
        self._finish()
        yield Outcome("fact", list(self._facts), lines=0)
        kernels = list(self._totals.records())
        yield Outcome("measurement", kernels, lines=self._count["measurement"])
        messages = [
            Message(
                category=CATEGORY,
                function=kernel.kernel,
                text=f"achieved DRAM bandwidth: {kernel.dram_gb_per_s:.1f} GB/s, mean of the launches",
                count=kernel.calls,
            )
            for kernel in kernels
            if kernel.dram_gb_per_s is not None
        ]
        messages += [
            Message(category=CATEGORY, function=kernel, text="bandwidth without a time", count=count)
            for kernel, count in self._timeless.items()
            if count
        ]
        yield Outcome("message", messages, lines=self._count["message"])
        yield Outcome("foreign", lines=self._count["foreign"])
        yield Outcome("blank", lines=self._count["blank"])


def _number(text: str, places: int, name: str) -> float:
    try:
        value = shifted(text.replace(",", ""), places)
    except ValueError:
        raise ValueError(f"{name}: no number: {text[:40]!r}") from None
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{name}: {text[:40]!r}")
    return value


def _places(unit: str, units: Mapping[str, int], name: str) -> int:
    if unit not in units:
        raise ValueError(f"{name}: unknown unit {unit[:40]!r}")
    return units[unit]


def _bytes(unit: str, name: str) -> int:
    for word in ("byte", "B"):
        if unit.endswith(word):
            return _places(unit.removesuffix(word), _PREFIXES, name)
    raise ValueError(f"{name}: unknown unit {unit[:40]!r}")


FORMAT = FileFormat(
    name="ncu",
    about="Nsight Compute CSV: kernel times and achieved memory bandwidth",
    recognise=recognise,
    read=read,
)
