"""Tests of reading rocpd, the database that rocprofv3 writes: both schemas, merged files, missing tables, damage."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from logparse.ingest import ingest
from logparse.ingest.input_file import InputFile
from logparse.libraries import FORMATS
from logparse.libraries.kinds.format import FileFormat, Head
from logparse.libraries.rocprof import rocpd
from logparse.model import Fact, Kernel, Record
from logparse.store import open_store
from tests.conftest import SAMPLES
from tests.libraries.reading import outcomes, records, units

FOLDER = SAMPLES / "rocpd"
OLD, MERGED = FOLDER / "4242_results.db", FOLDER / "merged_results.db"
GEMM, CONV = "Cijk_Ailk_Bljk_BBS_BH_MT128x128x64", "MIOpenConvUniC.kd"


def read(path: Path) -> list[Record]:
    return records(outcomes(rocpd.FORMAT, path))


def kernels(found: list[Record]) -> dict[tuple[str, str], tuple[int, float]]:
    return {(r.op, r.kernel): (r.calls, r.total_us) for r in found if isinstance(r, Kernel)}


def rows(path: Path) -> int:
    """Return the number of rows of all tables in the database together."""
    with closing(sqlite3.connect(path)) as db:
        names = [name for (name,) in db.execute("select name from sqlite_master where type = 'table'")]
        return sum(db.execute(f'select count(*) from "{name}"').fetchone()[0] for name in names)


def change(path: Path, tmp_path: Path, *statements: str) -> Path:
    """Copy a rocprofiler database (SQLite), and change the copy with SQL statements. Returns the path of the copy.

    The names of all tables in the database end with the same random text. In the statements, ``{u}`` stands for this
    text.
    """
    copy = tmp_path / path.name
    shutil.copy(path, copy)
    with closing(sqlite3.connect(copy)) as db:
        (name,) = db.execute("select name from sqlite_master where name like 'rocpd_metadata%'").fetchone()
        for statement in statements:
            db.execute(statement.replace("{u}", name.removeprefix("rocpd_metadata")))
        db.commit()
    return copy


@pytest.mark.parametrize("path", [OLD, MERGED], ids=lambda p: p.stem)
def test_every_row_is_accounted_for(path: Path) -> None:
    found = units(outcomes(rocpd.FORMAT, path))
    assert sum(found.values()) == rows(path)
    parts = 2 if path is MERGED else 1
    assert (found["measurement"], found["reject"], found["message"]) == (4 * parts, parts, 2 * parts)


def test_schema_4_and_several_processes() -> None:
    found = read(MERGED)
    per_part = list(kernels(read(OLD)).items())
    assert [((r.op, r.kernel), (r.calls, r.total_us)) for r in found if isinstance(r, Kernel)] == per_part * 2
    assert [r.value for r in found if isinstance(r, Fact) and r.name == "pid"] == ["4242", "4243"]


def test_without_calls_a_renamed_kernel_keeps_its_range(tmp_path: Path) -> None:
    path = change(
        OLD, tmp_path, "drop table rocpd_region{u}", "update rocpd_string{u} set string = 'step' where id = 6"
    )
    assert set(kernels(read(path))) == {("step", GEMM), ("step", CONV)}


@pytest.mark.parametrize(
    "table", ["event", "string", "info_agent", "info_process", "metadata", "region", "info_kernel_symbol"]
)
def test_what_is_missing_is_left_out(table: str, tmp_path: Path) -> None:
    path = change(OLD, tmp_path, f"drop table rocpd_{table}{{u}}")
    found = units(outcomes(rocpd.FORMAT, path))
    assert sum(found.values()) == rows(path)
    assert found.get("measurement", 0) == (0 if table == "info_kernel_symbol" else 4)


def test_no_kernels_and_damage(tmp_path: Path) -> None:
    assert units(outcomes(rocpd.FORMAT, change(OLD, tmp_path, "drop table rocpd_kernel_dispatch{u}"))) == {"reject": 1}
    data = OLD.read_bytes()
    for cut in (100, 5_000, len(data) // 2, len(data) - 3_000):
        path = tmp_path / "cut.db"
        path.write_bytes(data[:cut])
        assert units(outcomes(rocpd.FORMAT, path)).get("reject", 0) >= 1


def test_it_alone_recognises_its_files() -> None:
    for path in (OLD, MERGED):
        head = InputFile(str(path)).head()
        assert [f.name for f in FORMATS if isinstance(f, FileFormat) and f.recognise(head)] == ["rocpd"]
    assert not rocpd.recognise(Head("gfx942.db", b"SQLite format 3\0 create table perf_db"))


def test_a_database_in_any_folder_is_read_and_no_copy_of_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "50%41? #1"  # SQLite gets the path inside a URL
    folder.mkdir()
    shutil.copy(OLD, folder / OLD.name)
    packed = folder / f"{OLD.name}.gz"
    packed.write_bytes(gzip.compress(OLD.read_bytes()))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    store = open_store(tmp_path / "store", create=True)
    for path in (folder / OLD.name, packed):
        (found,) = ingest([str(path)], store)
        assert (found.format, found.units["measurement"]) == ("rocpd", 4)
    assert {path.name for path in folder.iterdir()} == {OLD.name, packed.name}
