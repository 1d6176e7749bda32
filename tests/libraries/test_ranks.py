"""Tests of logs in which a launcher such as torchrun puts the rank before each line.

The lines are read as if each rank had a log of its own.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.ingest.lines import LineReader
from logparse.libraries.aiter import log as aiter_log
from logparse.libraries.hipblaslt import bench_output
from logparse.libraries.kinds.format import BlockFormat, Line, LineFormat
from logparse.libraries.kinds.line_prefixes import MARK
from logparse.libraries.miopen import driver_output
from logparse.libraries.miopen import log as miopen_log
from logparse.libraries.moe import config as moe_config
from logparse.libraries.rocblas import logs as rocblas
from logparse.libraries.tensile import launches
from logparse.libraries.tunableop import verbose
from logparse.model import Reject
from tests.conftest import SAMPLES

VERBOSE = (SAMPLES / "tunableop" / "tunableop_verbose.log").read_text().splitlines()
MARKS = ["[default{}]:", "[rank{}]: ", "{}: ", "[1,{}]<stderr>:", "[trainer{}]:", "(Worker pid={}) "]
MARKS += ["\x1b[36m(Worker pid={}, ip=10.0.0.2)\x1b[0m ", "(VllmWorker rank=1 pid={}) ", "\x1b[36m(pid={})\x1b[0m "]
MARKS += ["train-{}  | ", "train_{} | ", "[pod/train-{}/main] ", "logs/find.{}.log:", "find_{}.out:12:"]
FORMATS: dict[str, tuple[BlockFormat, Path]] = {
    "tunableop": (verbose.FORMAT, SAMPLES / "tunableop" / "tunableop_verbose.log"),
    "bench": (bench_output.FORMAT, SAMPLES / "hipblaslt" / "bench_output.txt"),
    "miopen": (miopen_log.FORMAT, SAMPLES / "miopen" / "find.log"),
    "driver": (driver_output.FORMAT, SAMPLES / "miopen" / "driver_output.txt"),
    "launches": (launches.FORMAT, SAMPLES / "rocblas" / "launches.txt"),  # its rows are indented
}


def read(format: BlockFormat, lines: list[str]) -> tuple[Counter[str], Counter[str]]:
    """Read lines with one log format, as ``ingest`` does.

    Returns how many lines of each kind there are, and how often each record occurs.
    """
    reader = format.begin()
    units: Counter[str] = Counter()
    records: Counter[str] = Counter()
    for line in lines:
        if not (reader.awake or any(marker.decode() in line for marker in format.markers)):
            continue
        outcome = reader.take(Line(line, 0))
        if outcome is not None:
            units[outcome.unit] += 1
            records.update(map(repr, outcome.records))
    records.update(map(repr, reader.close()))
    return units, records


STAMPS = [
    "2026-05-05T12:00:00.123456789Z stderr F ",
    "2026-05-05T12:00:00.1+02:00 ",
    "2026-05-05T12:00:00.1Z [rank{}]: ",
    "Nov  2 12:00:00 node7.hpc python3[588]: ",
    "Nov  2 12:00:00 node7 python3: ",
    "Nov 22 12:00:00 ",
    "2026-05-05 12:00:00 [rank{}]: ",
    "train-{}  | 2026-05-05T12:00:00.123456789Z ",
    "[2026-05-05 12:00:00.12] ",
    "\ufeff",
    "> ",
    "    12\t",
    "test\tRun tests\t2026-05-05T12:00:00.1234567Z ",
    "  5%|▌         | 1/20 [00:01<00:20,  1.06it/s, loss=0.1]",
    "  5%|▌         | 1/20 [00:01<00:20,  1.06it/s]\r",
    "\r 50%|█████     | 1/2 [00:00<00:00]\r",
]


@pytest.mark.parametrize("name", FORMATS)
def test_a_mark_changes_nothing(name: str) -> None:
    format, sample = FORMATS[name]
    lines = sample.read_text().splitlines()
    plain = read(format, lines)
    assert sum(plain[0].values()) > 0
    for mark in (*MARKS, *STAMPS):
        assert read(format, [mark.format(7) + line if line else line for line in lines]) == plain, mark


@pytest.mark.parametrize("text", ["hipBLASLt version: 100200", "rocBLAS version: 5.2.0", "Device ID 0 : AMD gfx950"])
def test_a_clock_alone_takes_no_word_of_the_line(text: str) -> None:
    match = MARK.match(f"Nov 22 12:00:00 {text}")
    assert match is not None
    assert match[0] == "Nov 22 12:00:00 "


@given(st.lists(st.integers(0, 3), min_size=20, max_size=600), st.sampled_from(MARKS))
def test_ranks_in_one_log_are_read_separately(order: list[int], mark: str) -> None:
    """If four ranks tune the same matrix products, their common log gives four times what one rank's log gives.

    It does not matter how the lines of the ranks are mixed.
    """
    left = {rank: iter(VERBOSE) for rank in range(4)}
    mixed = [f"{mark.format(rank)}{line}" for rank in order if (line := next(left[rank], None)) is not None]
    mixed += [f"{mark.format(rank)}{line}" for rank in range(4) for line in left[rank]]
    units, records = read(verbose.FORMAT, mixed)
    one_units, one_records = read(verbose.FORMAT, VERBOSE)
    assert units == Counter({unit: 4 * n for unit, n in one_units.items()})
    assert records == Counter({record: 4 * n for record, n in one_records.items()})


def test_a_reject_is_counted_from_before_its_mark() -> None:
    line = "finding fastest for GemmTunableOp_BFloat16_TN(tn_nonsense) out of 5 candidates"
    for mark in ("", "[default0]:", "12: "):
        outcome = verbose.FORMAT.begin().take(Line(mark + line, 100))
        assert outcome is not None
        (reject,) = outcome.records
        assert isinstance(reject, Reject)
        assert (mark + line)[reject.offset :].startswith("tn_nonsense")


@pytest.mark.parametrize(
    "text",
    [
        "[0]:transA,transB",
        "├──offset",
        "[1]: x",
        "12:30:00 x",
        "(a) b",
        "(a pid=1)b",
        "(rapid=1) b",
        "2026-05-05 12:00:00,123 b",
        "[2026-05-05 12:00:00][HIPBLASLT]",
        "key: value",
        "M-1 N-2 | x",
        "| train-1 | x",
        "train-1 |x",
        "see tune.log: x is",
        "C:\\find.log:x",
        "  0: x",
    ],
)
def test_what_is_no_mark(text: str) -> None:
    match = MARK.match(text)
    assert match is not None
    assert match[0] == ""


@pytest.mark.parametrize("mark", [mark for mark in MARKS if "pid=" in mark])
@pytest.mark.parametrize(
    ("format", "line"),
    [
        (aiter_log.FORMAT, "[aiter] shape is M:16, N:9216, K:3072, not found tuned config in a8w8_tuned_gemm.csv"),
        (moe_config.LOG, "WARNING Config file not found at /a/E=8,N=3584,device_name=AMD_Instinct_MI300X.json"),
    ],
)
def test_the_process_of_a_record_line_is_its_worker(format: LineFormat, line: str, mark: str) -> None:
    reader = LineReader([format])
    reader.feed(f"{mark.format(4242)}{line}\n".encode(), 0)
    (one,) = reader.take().distinct
    assert format.process is not None
    assert format.process(one.text) == 4242


@pytest.mark.parametrize("mark", MARKS)
def test_mixed_tables_of_two_ranks_are_read(mark: str) -> None:
    """If two ranks print a table into one log at the same time, line by line, both tables are read correctly."""
    # Each table has its own header. A mark before each line names the rank. The position of a damaged row is counted
    # from the end of this mark.
    lines = (SAMPLES / "tables" / "rocblas.log").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("transA,"))
    table = [line for line in lines[start:] if line[:1] in "NTt"]
    both = [mark.format(rank) + line for line in table for rank in (0, 1)]
    alone, together = read(rocblas.TUNE, table), read(rocblas.TUNE, both)
    assert alone[0]["measurement"] > 0
    assert together[0] == Counter({unit: 2 * count for unit, count in alone[0].items()})
    offset = len(mark.format(0).encode())
    moved = {text.replace("offset=0", f"offset={offset}"): 2 * count for text, count in alone[1].items()}
    assert together[1] == Counter(moved)
