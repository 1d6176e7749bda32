"""Tests that a row of any kind of table is rejected if a cell has a text where a number belongs.

The reason names the column and the text of the cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from logparse.ingest.input_file import InputFile
from logparse.ingest.lines import LineReader
from logparse.libraries import FORMATS
from logparse.libraries.kinds.bad_cell import reason_of
from logparse.libraries.kinds.format import FileFormat
from logparse.model import Reject
from tests.conftest import SAMPLES

FILES = (
    *("traces/4242_kernel_trace.csv", "traces/4242_kernel_stats.csv", "hipblaslt/tuning_7.0.txt"),
    *("hipblaslt/tuning_cache.txt", "hipblaslt/bench_output.txt", "rocblas/bench_output.txt"),
    *("tables/aiter_bf16_tuned_gemm.csv", "tables/spreadsheet.csv"),
)
BAD = "x1"
NUMBER = re.compile(r"\s*-?\d+(\.\d+)?\s*")
OF_PYTHON = re.compile("could not convert|invalid literal")


def rejects(path: Path) -> Iterator[str]:
    source = InputFile(str(path))
    format = next((f for f in FORMATS if isinstance(f, FileFormat) and f.recognise(source.head())), None)
    if format is not None:
        outcomes = list(format.read(source))
    else:
        reader = LineReader([f for f in FORMATS if not isinstance(f, FileFormat)])
        reader.feed(path.read_bytes(), 0)
        outcomes = [claimed.outcome for claimed in reader.take().claimed]
    yield from (record.reason for x in outcomes for record in x.records if isinstance(record, Reject))


def damaged(text: str) -> Iterator[str]:
    """Yield copies of a CSV table, each with one number replaced by text that is no number.

    Every column is damaged once. Rows of a table may have different numbers of columns. Then the first row of each
    width is used.
    """
    lines, widths = text.split("\n"), set()
    for at, line in enumerate(lines):
        cells = line.split(",")
        numbers = [n for n, cell in enumerate(cells) if NUMBER.fullmatch(cell)]
        if len(numbers) > 2 and len(cells) not in widths:
            widths.add(len(cells))
            for n in numbers:
                row = ",".join([*cells[:n], BAD, *cells[n + 1 :]])
                yield "\n".join([*lines[:at], row, *lines[at + 1 :]])


@pytest.mark.parametrize("name", FILES)
def test_the_column_and_the_text_are_named(tmp_path: Path, name: str) -> None:
    sample, named = SAMPLES / name, 0
    for text in damaged(sample.read_text()):
        (tmp_path / sample.name).write_text(text)
        for reason in rejects(tmp_path / sample.name):
            assert not OF_PYTHON.search(reason), reason
            named += bool(re.search(rf"\w+ is '{BAD}', not a (whole )?number", reason))
    assert named, "a table without a number that is needed tests nothing"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("could not convert string to float: 'fast'", "us is 'fast', not a number"),
        ("invalid literal for int() with base 10: ' 7a'", "m is '7a', not a whole number"),
        ("row: invalid literal for int() with base 10: ''", "row: n is empty"),
        ("invalid literal for int() with base 10: 'b'", "tile contains 'b', not a whole number"),
        ("invalid literal for int() with base 10: 'zz'", "a cell is 'zz', not a whole number"),
        ("the kernel takes -1 µs", "the kernel takes -1 µs"),
    ],
)
def test_reason(error: str, reason: str) -> None:
    cells = {"us": "fast", "m": " 7a", "n": "", "tile": "64xb"}
    assert reason_of(ValueError(error), cells) == reason
