"""Tests of stores (Parquet folders) that older versions wrote, with matrix products that this version cannot read.

Subcommands answer without these products, and say how many rows they left out.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from logparse.ingest import ingest
from logparse.lookup.contents import hints
from logparse.lookup.ranking import top
from logparse.store import Store, open_store
from logparse.store.compaction import compact
from logparse.store.schema import commit_row
from logparse.store.unreadable import _pattern, _reads
from tests.program import run
from tests.store.test_storable import CASES

TABLE = "m,n,k,a_type,solution,time_us,calls\n64,8,8,bf16 r,a:1,3.5,7\n32,8,8,bf16_r,a:1,2.5,9\n"


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Return a store (Parquet folder) as earlier versions wrote it, in which some records cannot be read back.

    Earlier versions stored every record without checking this.
    """
    store = open_store(tmp_path / "older", create=True)
    (tmp_path / "files").mkdir()
    for name, text in {**CASES, "mixed.csv": TABLE}.items():
        (tmp_path / "files" / name).write_text(text)
    (tmp_path / "files" / "calls.csv").unlink()
    with monkeypatch.context() as patch:
        for module in ("worker", "stream"):
            patch.setattr(f"logparse.ingest.{module}.storable", lambda outcome, *_: outcome)
        patch.setattr("logparse.ingest.stream._outcomes", {})  # outcomes that this process remembers
        for module in ("parts", "joint"):
            patch.setattr(f"logparse.store.{module}.commit_row", lambda row: commit_row(row) | {"readable": None})
        read = ingest([str(tmp_path / "files")], store, run="old")
        assert {x.state for x in read} == {"new"}, [(x.path, x.error) for x in read if x.state != "new"]
    return open_store(tmp_path / "older")


@pytest.mark.parametrize("compacted", [False, True], ids=["parts", "compacted"])
def test_the_rest_is_answered_and_the_rows_are_counted(older: Store, tmp_path: Path, compacted: bool) -> None:
    if compacted:
        compact(older, unread=True)
        older = open_store(older.url)
    assert [any(word in text for text in older.unreadable()) for word in ("bf16 r", "NC,HW", "mnk=-64")] == [True] * 3
    assert top(older)["calls"].tolist() == [9]
    out = str(tmp_path / "out")
    for words in (("top",), ("recommend", "--out", out), ("report", "--out", f"{out}.html"), ("replay", "--dry-run")):
        done = run(*words, "--store", older.url)
        assert done.returncode in (0, 1, 3), done.stderr
        assert "cannot be read" not in done.stderr
    left_out = older.query("select count(*) as n from measurements")["n"].tolist()
    assert left_out == [1], "of the one row that reads"
    (hint,) = hints(older)
    assert hint.startswith(f"{older.left_out()} rows of an earlier version are left out")
    status = run("status", "--store", older.url)
    assert "rows of an earlier version are left out" in status.stdout + status.stderr


def test_a_store_of_today_asks_nothing(samples: Store) -> None:
    assert samples.unreadable() == []
    assert samples.left_out() == 0


def test_ingested_again_the_lines_are_rejects(older: Store, tmp_path: Path) -> None:
    older.forget("old")
    ingest([str(tmp_path / "files")], older, run="new")
    assert older.left_out() == 0
    assert len(older.rejects()) == 4


def test_the_pattern_takes_what_reads_and_nothing_else(samples: Store) -> None:
    with samples.reading() as con:
        sql = "select problem, regexp_full_match(problem, $p) from (select problem from gemm_problems union all "
        rows = con.execute(f"{sql} select problem from conv_problems)", {"p": _pattern()}).fetchall()
    assert len(rows) > 100
    assert all(usual for _, usual in rows), "all of them are asked inside DuckDB"
    assert all(_reads(text) for text, _ in rows)
    for text in ("gemm x", "conv", "gemm " + "a=1 " * 13, "operator a (b"):
        assert not _reads(text)
