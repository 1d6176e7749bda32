"""Nsight Compute's CSV: kernel times and achieved memory bandwidth.

::

    ==PROF== Connected to process 4242
    "ID","Process ID","Process Name","Host Name","Kernel Name",…,"Device","CC",…,"Metric Name","Metric Unit",…
    "0","4242","python","127.0.0.1","nvjet_sm90_tst_…",…,"0","9.0","…","gpu__time_duration.sum","ns","10,196,000"

Made by ``ncu --csv --metrics gpu__time_duration.sum,dram__bytes.sum.per_second COMMAND`` or any section that holds
them; ``--page raw`` gives one line per launch with the metrics as columns and their units on the second line.

The time of a launch is ``gpu__time_duration.sum`` (``Duration`` in a section).  The model's ``Kernel`` has no
bandwidth, so that becomes a message per kernel: the mean over launches of ``dram__bytes.sum.per_second`` or of bytes
over time, in GB/s (10^9).  A line is a measurement where it holds the time, a message where it holds the bandwidth,
else foreign.  Numbers are read with thousands separated by commas.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator, Mapping

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

_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_US = {
    **dict.fromkeys(("ns", "nsecond", "nanosecond"), 1e-3),
    **dict.fromkeys(("us", "usecond", "microsecond"), 1.0),
    **dict.fromkeys(("ms", "msecond", "millisecond"), 1e3),
    **dict.fromkeys(("s", "second"), 1e6),
}


def recognise(head: Head) -> bool:
    """By the first columns of the table, which may stand behind output of the program."""
    return any(line.startswith(_START) and b'"Kernel Name"' in line for line in head.data.splitlines())


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
        self._launch: dict[str, float] = {}
        self._rates: dict[str, list[float]] = {}
        self._count: Counter[str] = Counter()
        self._facts: dict[Record, None] = {}

    def take(self, line: Line) -> Iterator[Outcome]:
        """One line; only rejects come back at once."""
        text = line.text.rstrip("\r")
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
                self._count[self._row(row)] += 1
            except ValueError as error:
                yield Outcome("reject", [Reject(str(error))], at=line.offset)

    def _row(self, row: Mapping[str, str]) -> str:
        if not row["ID"]:
            self._units = dict(row)
            return "foreign"
        if row.get("CC"):
            self._facts[Fact("arch", "sm_" + row["CC"].replace(".", ""))] = None
        if set(_LONG) <= row.keys():
            name, unit, value = (row[key] for key in _LONG)
            return self._metrics(row, {name: (value, unit)})
        return self._metrics(row, {name: (row[name], unit) for name, unit in self._units.items() if name in row})

    def _metrics(self, row: Mapping[str, str], metrics: Mapping[str, tuple[str, str]]) -> str:
        key = (row.get("Process ID", ""), row["ID"], row.get(_KERNEL, ""))
        if key != self._key:  # ncu prints one launch after the other
            self._finish()
            self._key = key
        launch = self._launch
        unit = "foreign"
        for name, (value, of) in metrics.items():
            if name in _TIME and "us" not in launch:
                launch["us"] = _number(value, name) * _factor(of, _US, name)
                device = row.get("Device", "")
                self._totals.add("", key[2], int(device) if device.isdecimal() else None, launch["us"])
                unit = "measurement"
            elif name in _RATE and "/" in of and "rate" not in launch:
                launch["rate"] = _number(value, name) * _bytes(of.partition("/")[0], name)
                unit = unit if unit == "measurement" else "message"
            elif name in _BYTES and name not in launch:
                launch[name] = _number(value, name) * _bytes(of, name)
                unit = unit if unit == "measurement" else "message"
        return unit

    def _finish(self) -> None:
        """Add the bandwidth of the launch in hand: as printed, or bytes over time."""
        launch, self._launch = self._launch, {}
        moved = launch.get("dram__bytes.sum")
        if moved is None and {"dram__bytes_read.sum", "dram__bytes_write.sum"} <= launch.keys():
            moved = launch["dram__bytes_read.sum"] + launch["dram__bytes_write.sum"]
        rate = launch.get("rate")
        if rate is None and moved is not None and launch.get("us", 0.0) > 0:
            rate = moved / launch["us"] * 1e6
        if rate is not None and self._key is not None:
            total = self._rates.setdefault(self._key[2], [0, 0.0])
            total[0] += 1
            total[1] += rate

    def close(self) -> Iterator[Outcome]:
        """What the lines made."""
        self._finish()
        yield Outcome("fact", list(self._facts), lines=0)
        yield Outcome("measurement", list(self._totals.records()), lines=self._count["measurement"])
        messages = [
            Message(
                category=CATEGORY,
                function=kernel,
                text=f"achieved DRAM bandwidth: {total / count / 1e9:.1f} GB/s, mean of the launches",
                count=int(count),
            )
            for kernel, (count, total) in self._rates.items()
        ]
        yield Outcome("message", messages, lines=self._count["message"])
        yield Outcome("foreign", lines=self._count["foreign"])
        yield Outcome("blank", lines=self._count["blank"])


def _number(text: str, name: str) -> float:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        raise ValueError(f"{name}: no number: {text[:40]!r}") from None
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{name}: {text[:40]!r}")
    return value


def _factor(unit: str, units: Mapping[str, float], name: str) -> float:
    if unit not in units:
        raise ValueError(f"{name}: unknown unit {unit[:40]!r}")
    return units[unit]


def _bytes(unit: str, name: str) -> float:
    for word in ("byte", "B"):
        if unit.endswith(word):
            return _factor(unit.removesuffix(word), _PREFIXES, name)
    raise ValueError(f"{name}: unknown unit {unit[:40]!r}")


FORMAT = FileFormat(
    name="ncu",
    about="Nsight Compute CSV: kernel times and achieved memory bandwidth",
    recognise=recognise,
    read=read,
)
