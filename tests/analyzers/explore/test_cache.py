"""What is kept beside a store is used while it is true, and never after."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pandas as pd
import pytest

from analyzers.analyzer import Settings, Tables
from analyzers.explore import queries
from analyzers.explore.load import cache
from analyzers.explore.load.analysis import analyse
from analyzers.explore.page.data import PageData
from analyzers.explore.point_table import found
from analyzers.recommend.ranking import recommend
from analyzers.times.picks import compare
from logparse.ingest import ingest
from logparse.store import Store, open_store
from tests.conftest import SAMPLES

FIND_DB = SAMPLES / "miopen" / "gfx942130.HIP.fdb.txt"
RESULTS = SAMPLES / "tunableop" / "tunableop_results0.csv"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = open_store(tmp_path / "store", create=True)
    ingest([str(FIND_DB)], made, run="demo", jobs=1)
    return made


def finished(store: Store) -> tuple[pd.DataFrame, PageData]:
    """The page's table once the analyzers' results are there."""
    data = PageData(store.url)
    data.wait(60.0)
    assert data.error == ""
    with data.cursor() as con:
        return con.execute("select * from points order by id").df(), data


@pytest.mark.usefixtures("read_here")
def test_a_second_look_reads_nothing_and_shows_the_same(store: Store) -> None:
    first, data = finished(store)
    said = (data.verdict, data.run)
    data.close()
    kept = cache.place(store, "demo", None)
    assert kept is not None
    assert (kept / "judged.duckdb").is_file()
    again, data = finished(store)
    assert data.reading.restored, "nothing was read a second time"
    assert (data.verdict, data.run) == said
    pd.testing.assert_frame_equal(again, first)
    with data.cursor() as con:
        row = queries.one(con, str(again["id"].iloc[0]))
    assert row is not None
    assert len(data.tries(row))
    data.close()


def test_what_was_made_of_fewer_files_is_never_used(store: Store) -> None:
    before = cache.place(store, "demo", None)
    ingest([str(RESULTS)], store, run="demo", jobs=1)
    after = cache.place(store, "demo", None)
    assert after != before
    assert cache.place(store, "demo", (store, "demo")) not in (before, after), (
        "with a run beside it, it is another page"
    )


def test_a_changed_program_makes_everything_anew(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    before = cache.place(store, "demo", None)
    monkeypatch.setattr(cache, "_program", lambda: ["an analyzer was edited"])
    assert cache.place(store, "demo", None) != before


def test_a_kill_leaves_nothing_that_is_read_and_it_is_swept(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made"
    made.mkdir()
    (made / "run.json").write_text("{}")
    kept = cache.place(store, "demo", None)
    assert kept is not None

    class Killed(BaseException):
        pass

    copy = shutil.copytree

    def half(source: Path, target: Path, **how: object) -> None:
        copy(source, target)
        raise Killed

    monkeypatch.setattr("shutil.copytree", half)
    with pytest.raises(Killed):
        cache.keep(made, kept)
    monkeypatch.setattr("shutil.copytree", copy)
    assert not cache.restore(kept, tmp_path / "restored")
    (torn,) = kept.parent.iterdir()
    os.utime(torn, (0, 0))
    for name in ("older", "old"):
        (kept.parent / name).mkdir()
        os.utime(kept.parent / name, (1, 1) if name == "older" else (2, 2))
    cache.keep(made, kept)
    assert sorted(x.name for x in kept.parent.iterdir()) == sorted([kept.name, "old"])
    assert cache.restore(kept, tmp_path / "restored")


@pytest.mark.parametrize("links", [True, False])
def test_what_is_kept_takes_no_room_twice_where_the_file_system_has_links(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that is closed right after its verdict had no time to copy hundreds of megabytes, and kept nothing."""
    made, kept, again = (tmp_path / name for name in ("made", "explore/key", "again"))
    made.mkdir()
    (made / "judged.duckdb").write_text("rows")

    def none(source: str, target: str) -> None:
        raise OSError

    if not links:
        monkeypatch.setattr("os.link", none)
    kept.parent.mkdir()
    cache.keep(made, kept)
    assert cache.restore(kept, again)
    assert (again / "judged.duckdb").read_text() == "rows"
    assert (again / "judged.duckdb").samefile(made / "judged.duckdb") == links


@pytest.mark.usefixtures("read_here")
def test_a_sweep_and_forget_leave_the_store_readable(store: Store) -> None:
    _, data = finished(store)
    data.close()
    assert store.folder is not None
    kept = list((store.folder / cache.FOLDER).iterdir())
    assert store.sweep(older_than_s=0) == 0
    assert kept
    assert all(x.is_dir() for x in kept)
    store.forget("demo")
    assert store.runs() == []


def test_a_folder_that_cannot_be_written_keeps_nothing(store: Store, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    cache.keep(tmp_path, blocked / "explore" / "key")
    assert blocked.read_text() == ""


def test_the_page_agrees_with_recommend(sampled: Store) -> None:
    """It hands the analyzers less than the whole store, and nothing of what they find may change by that."""
    settings = Settings()
    tables = Tables(run="demo", **sampled.frames())
    result, said = recommend(tables, settings), analyse(sampled)
    pd.testing.assert_frame_equal(said.found, found(result.findings))
    assert sorted(said.lines) == sorted(x.message for x in result.remarks)
    keys = ["problem", "pick"]
    columns = ["problem", "pick", "best", "best_us", "basis"]
    left, right = (
        x.sort_values(keys)[columns].reset_index(drop=True) for x in (said.compared, compare(tables, settings))
    )
    pd.testing.assert_frame_equal(left, right, check_dtype=False)


def test_the_page_of_a_find_db_agrees_with_recommend(store: Store) -> None:
    result, said = recommend(Tables(run="demo", **store.frames()), Settings()), analyse(store)
    assert result.findings
    pd.testing.assert_frame_equal(said.found, found(result.findings))
