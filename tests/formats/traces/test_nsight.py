"""Nsight Systems' sqlite export and Nsight Compute's CSV."""

from __future__ import annotations

import codecs
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.formats.format import Head
from logparse.formats.traces import ncu, nsys
from logparse.ingest.input_file import InputFile
from logparse.model import Kernel, Message
from tests.conftest import SAMPLES
from tests.formats.reading import facts, outcomes, records_of, totals, units

FOLDER = SAMPLES / "traces"
DETAILS = (FOLDER / "ncu_details.csv").read_bytes()


def test_nsys_gives_ranges() -> None:
    found = outcomes(nsys.FORMAT, FOLDER / "job.sqlite")
    assert [(k.op, k.kernel, k.device, k.total_us) for k in records_of(found, Kernel)] == [
        ("step", "nvjet_sm90_tst_192x192", 0, 14.24),
        ("forward", "nvjet_sm90_tst_192x192", 0, 14.24),
        ("", "void relu<float>(float*)", 0, 4.0),
        ("", "void relu<float>(float*)", 1, 1.0),
    ]
    assert units(found) == {"measurement": 4, "reject": 1, "message": 2, "foreign": 1 + 6 + 1 + 4}
    assert facts(found) == {"backend": "CUDA", "device": "NVIDIA H200", "cu_count": "132", "arch": "sm_90"}


def test_nsys_takes_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table CUPTI_ACTIVITY_KIND_KERNEL (start integer, end integer, name text)")
        db.execute("insert into CUPTI_ACTIVITY_KIND_KERNEL values (0, 1500, 'k')")
        db.commit()
    assert totals(outcomes(nsys.FORMAT, path)) == {("", "k"): (1, 1.5)}


def test_nsys_without_kernels_or_damaged(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table StringIds (id integer, value text)")
        db.commit()
    assert units(outcomes(nsys.FORMAT, path)) == {"reject": 1}
    data = (FOLDER / "job.sqlite").read_bytes()
    for cut in (100, 4096, 9000, len(data) - 4096):
        path.write_bytes(data[:cut])
        assert units(outcomes(nsys.FORMAT, path)).get("reject", 0) >= 1


def test_nsys_recognise() -> None:
    assert nsys.FORMAT.recognise(InputFile(str(FOLDER / "job.sqlite")).head())
    assert not nsys.FORMAT.recognise(Head("gfx942.db", b"SQLite format 3\0 create table perf_db"))
    assert not nsys.FORMAT.recognise(Head("job.sqlite", b"text"))


def test_ncu_details() -> None:
    found = outcomes(ncu.FORMAT, FOLDER / "ncu_details.csv")
    assert totals(found) == {("", "nvjet_sm90"): (2, 30.0)}
    (kernel,) = records_of(found, Kernel)
    assert kernel.dram_gb_per_s == 2000.0  # the mean of 2.5 TB/s and 1,500 GB/s
    (message,) = records_of(found, Message)
    assert (message.function, message.count) == ("nvjet_sm90", 2)
    assert message.text == "achieved DRAM bandwidth: 2000.0 GB/s, mean of the launches"
    assert units(found) == {"foreign": 4, "measurement": 4, "reject": 1}
    assert facts(found) == {"arch": "sm_90"}


def test_ncu_raw_page() -> None:
    found = outcomes(ncu.FORMAT, FOLDER / "ncu_raw.csv")
    assert totals(found) == {("", "copy"): (1, 10.0)}
    assert [k.dram_gb_per_s for k in records_of(found, Kernel)] == [2000.0]


@pytest.mark.parametrize("name", ["ncu_details.csv", "ncu_raw.csv"])
def test_ncu_behind_a_byte_order_mark(name: str) -> None:
    """A spreadsheet saves CSV with one; without ncu's own lines before it the mark stands at the heading."""
    data = (FOLDER / name).read_bytes()
    table = data[data.index(b'"ID",') :]
    marked = codecs.BOM_UTF8 + table
    assert ncu.FORMAT.recognise(Head(name, marked))
    found, plain = outcomes(ncu.FORMAT, marked), outcomes(ncu.FORMAT, table)
    assert totals(found) == totals(plain) != {}
    assert units(found) == units(plain)


def test_ncu_bandwidth_without_a_time_is_reported() -> None:
    lines = [line for line in DETAILS.splitlines(keepends=True) if b"gpu__time_duration" not in line]
    found = outcomes(ncu.FORMAT, b"".join(lines))
    assert records_of(found, Kernel) == []
    assert [(m.function, m.text, m.count) for m in records_of(found, Message)] == [
        ("nvjet_sm90", "bandwidth without a time", 2)
    ]
    assert units(found) == {"foreign": 4, "message": 2}


@given(st.integers(0, len(DETAILS)), st.integers(0, 60), st.binary(max_size=8).filter(lambda b: b"\n" not in b))
def test_ncu_damage_is_counted(at: int, length: int, junk: bytes) -> None:
    text = (DETAILS[:at] + junk + DETAILS[at + length :]).rstrip(b"\n") + b"\n"
    assert sum(units(outcomes(ncu.FORMAT, text)).values()) == text.count(b"\n")


@pytest.mark.parametrize(
    ("data", "ours"), [(DETAILS, True), ((FOLDER / "ncu_raw.csv").read_bytes(), True), (b'"ID","Name"\n', False)]
)
def test_ncu_recognise(data: bytes, ours: bool) -> None:
    assert ncu.FORMAT.recognise(Head("x.csv", data)) is ours
