"""A stream read the way ingest reads it, with every record where it can be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from logparse.formats.format import BlockFormat, LineFormat
from logparse.formats.miopen import driver, driver_output, log
from logparse.ingest.lines import LineReader
from logparse.model import Record

LANGUAGES: Sequence[LineFormat | BlockFormat] = (driver.FORMAT, driver_output.FORMAT, log.FORMAT)


def read(
    data: bytes | str, formats: Sequence[LineFormat | BlockFormat] = LANGUAGES
) -> tuple[list[Record], Counter[str]]:
    """Every record, block languages first, and the units; distinct lines are counted as often as they stand there."""
    reader = LineReader(formats)
    reader.feed(data.encode() if isinstance(data, str) else data, 0)
    rest = list(reader.close())
    taken = reader.take()
    records: list[Record] = []
    units = Counter(foreign=taken.foreign, blank=taken.blank)
    for claimed in taken.claimed:
        records += claimed.outcome.records
        units[claimed.outcome.unit] += claimed.outcome.lines
    records += rest
    for line in taken.distinct:
        outcome = line.format.read(line.text)
        units[outcome.unit] += line.count
        records += list(outcome.records) * line.count
    assert sum(units.values()) == taken.lines + taken.splits
    return records, +units
