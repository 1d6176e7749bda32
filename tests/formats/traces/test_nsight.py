"""Nsight Systems' sqlite export."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from logparse.formats.format import Head
from logparse.formats.traces import nsys
from logparse.ingest.input_file import InputFile
from tests.conftest import SAMPLES
from tests.formats.reading import outcomes, totals, units

FOLDER = SAMPLES / "traces"


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
