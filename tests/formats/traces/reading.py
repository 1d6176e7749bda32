"""Reading without ingest, and what the outcomes say."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, TypeVar

from logparse.formats.format import FileFormat, Outcome
from logparse.ingest.input_file import InputFile
from logparse.model import Fact, Kernel, Record
from tests.formats.tunableop.source import Memory

T = TypeVar("T")


def outcomes(format: FileFormat, source: bytes | Path) -> list[Outcome]:
    return list(format.read(Memory(source, "trace") if isinstance(source, bytes) else InputFile(str(source))))


def records(found: Iterable[Outcome], kind: type[T]) -> list[T]:
    return [record for outcome in found for record in outcome.records if isinstance(record, kind)]


def everything(found: Iterable[Outcome]) -> list[Record]:
    return [record for outcome in found for record in outcome.records]


def units(found: Iterable[Outcome]) -> dict[str, int]:
    count: Counter[str] = Counter()
    for outcome in found:
        count[outcome.unit] += outcome.lines
    return {unit: n for unit, n in count.items() if n}


def facts(found: Iterable[Outcome]) -> dict[str, str]:
    return {fact.name: fact.value for fact in records(found, Fact)}


def totals(found: Iterable[Outcome]) -> dict[tuple[str, str], tuple[int, float]]:
    return {(k.op, k.kernel): (k.calls, round(k.total_us, 3)) for k in records(found, Kernel)}


class Drip(io.RawIOBase):
    """A stream that gives a few bytes at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self._inner, self._size = io.BytesIO(data), size

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._inner.read(min(size, self._size) if size >= 0 else self._size)


def drip(data: bytes, size: int) -> BinaryIO:
    return Drip(data, size)  # type: ignore[return-value]
