"""Reading without ingest: a source held in memory, and a stream through a block reader."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from logparse.formats.format import BlockFormat, FileFormat, Head, Line, Outcome
from logparse.model import Record


@dataclass
class Memory:
    data: bytes
    name: str = "tunableop_results0.csv"

    def open(self) -> BinaryIO:
        return io.BytesIO(self.data)

    def lines(self) -> Iterator[Line]:
        place = 0
        for part in self.data.split(b"\n")[: -1 if self.data.endswith(b"\n") or not self.data else None]:
            yield Line(part.decode("utf-8", "backslashreplace"), place)
            place += len(part) + 1

    def local_path(self) -> str:
        raise AssertionError("not needed")


def from_file(path: Path) -> Memory:
    return Memory(path.read_bytes(), path.name)


def head(source: Memory) -> Head:
    return Head(source.name, source.data[: 64 << 10])


def outcomes(format: FileFormat, source: Memory | bytes) -> list[Outcome]:
    return list(format.read(Memory(source) if isinstance(source, bytes) else source))


def records(found: Iterable[Outcome]) -> list[Record]:
    return [record for outcome in found for record in outcome.records]


def stream(format: BlockFormat, data: bytes) -> tuple[list[Outcome | None], list[Record]]:
    """What became of each line (None: not ours), as ingest shows lines to a block reader, and the leftovers."""
    reader = format.begin()
    taken = [
        reader.take(line) if reader.awake or any(m in line.text.encode() for m in format.markers) else None
        for line in Memory(data).lines()
    ]
    return taken, list(reader.close())
