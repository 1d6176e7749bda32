"""A helper for tests that reads a log with MIOpen's lines. It returns the data in the log."""

from __future__ import annotations

from collections import Counter

from logparse.libraries.miopen import driver, driver_output, log
from logparse.model import Record
from tests.libraries.reading import read_lines


def read(data: bytes | str) -> tuple[list[Record], Counter[str]]:
    return read_lines(data, (driver.FORMAT, driver_output.FORMAT, log.FORMAT))
