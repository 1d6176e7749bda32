"""Helper functions that read logs without storing them, and check rules that every result must obey."""

from __future__ import annotations

import io
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TypeVar

from logparse.ingest.counting import Place
from logparse.ingest.input_file import InputFile
from logparse.ingest.lines import Distinct, LineReader, Read
from logparse.libraries.kinds.format import UNITS, BlockFormat, FileFormat, Head, Line, LineFormat, Outcome, Source
from logparse.model import Fact, Kernel, Record
from logparse.store import Store

T = TypeVar("T")


def places_of(read: Read, entry: Distinct) -> dict[Place, int]:
    """Return how often a repeated log line occurred at each time and in each process or thread: {place: count}.

    A place is (clock, content of the third bracket) of a hipBLASLt log line.
    """
    # A hipBLASLt log line begins with these two texts.
    out: dict[Place, int] = {}
    for number, count in zip(entry.numbers.tolist(), entry.counts.tolist(), strict=True):
        out[read.places[number]] = out.get(read.places[number], 0) + count
    return out


@dataclass
class Memory:
    """An input file whose content is in memory. If a reader needs a path, it writes a temporary copy."""

    data: bytes
    name: str = "sample"
    _copies: list[Path] = field(default_factory=list)

    def open(self) -> BinaryIO:
        return io.BytesIO(self.data)

    def lines(self) -> Iterator[Line]:
        place = 0
        for part in self.data.split(b"\n")[: -1 if self.data.endswith(b"\n") or not self.data else None]:
            yield Line(part.decode("utf-8", "backslashreplace"), place)
            place += len(part) + 1

    def local_path(self) -> str:
        with tempfile.NamedTemporaryFile(delete=False) as copy:
            copy.write(self.data)
        self._copies.append(Path(copy.name))
        return copy.name

    def beside(self) -> Iterator[Source]:
        yield from ()

    def __del__(self) -> None:
        for copy in self._copies:
            copy.unlink(missing_ok=True)


def from_file(path: Path) -> Memory:
    return Memory(path.read_bytes(), path.name)


def head(source: Memory) -> Head:
    return Head(source.name, source.data[: 64 << 10])


def outcomes(format: FileFormat, source: Source | bytes | Path) -> list[Outcome]:
    """Read a whole file with one log format, and return the results.

    A compressed file is decompressed, as in ``ingest``.
    """
    if isinstance(source, bytes):
        source = Memory(source)
    return list(format.read(InputFile(str(source)) if isinstance(source, Path) else source))


def stream(format: BlockFormat, data: bytes) -> tuple[list[Outcome | None], list[Record]]:
    """Read lines with one log format, as ``ingest`` does. Returns a result per line, and the records at the end.

    A line that the format does not read has the result None.
    """
    reader = format.begin()
    taken = [
        reader.take(line) if reader.awake or any(m in line.text.encode() for m in format.markers) else None
        for line in Memory(data).lines()
    ]
    return taken, list(reader.close())


def read_lines(data: bytes | str, formats: Sequence[LineFormat | BlockFormat]) -> tuple[list[Record], Counter[str]]:
    """Read a log with the given formats. Returns everything that was read, and how many lines of each kind there are.

    If a line occurs three times in the log, so does its result.
    """
    # Results from blocks of several lines come first.
    data = data.encode() if isinstance(data, str) else data
    reader = LineReader(formats, head=data)
    reader.feed(data, 0)
    held = list(reader.close())
    read = reader.take()
    found = records(line.outcome for line in read.claimed) + held
    for line in read.distinct:
        found += list(line.format.read(line.text).records) * line.count
    counted = units_of(read)
    assert sum(counted.values()) == read.lines + read.splits
    return found, counted


def units_of(read: Read) -> Counter[str]:
    """Return how many lines of each kind were read, for example {"measurement": 3}.

    Two processes may have written into the same line. Then each part is counted as a line.
    """
    units = Counter({"foreign": read.foreign, "blank": read.blank})
    for line in read.claimed:
        units[line.outcome.unit] += line.outcome.lines
    for entry in read.distinct:
        units[entry.format.read(entry.text).unit] += entry.lines
    return +units


def check_conservation(store: Store) -> None:
    """Check that every line of every log, and every part of a torn line, was counted exactly once."""
    for row in store.sources().itertuples():
        assert row.lines + row.splits == sum(getattr(row, f"{unit}_lines") for unit in UNITS), row.path


def records(found: Iterable[Outcome]) -> list[Record]:
    return [record for outcome in found for record in outcome.records]


def records_of(found: Iterable[Outcome], kind: type[T]) -> list[T]:
    return [record for record in records(found) if isinstance(record, kind)]


def units(found: Iterable[Outcome]) -> dict[str, int]:
    count: Counter[str] = Counter()
    for outcome in found:
        count[outcome.unit] += outcome.lines
    return dict(+count)


def facts(found: Iterable[Outcome]) -> dict[str, str]:
    return {fact.name: fact.value for fact in records_of(found, Fact)}


def totals(found: Iterable[Outcome]) -> dict[tuple[str, str], tuple[int, float]]:
    return {(k.op, k.kernel): (k.calls, round(k.total_us, 3)) for k in records_of(found, Kernel)}


class Drip(io.RawIOBase):
    """A stream from which each read returns only a few bytes."""

    def __init__(self, data: bytes, size: int) -> None:
        self._inner, self._size = io.BytesIO(data), size

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._inner.read(min(size, self._size) if size >= 0 else self._size)


def drip(data: bytes, size: int) -> BinaryIO:
    return Drip(data, size)  # type: ignore[return-value]
