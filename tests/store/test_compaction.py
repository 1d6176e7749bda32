"""Tests that compaction, which merges the small files of a store (Parquet folder), changes no row of any SQL view."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from logparse.cli import main
from logparse.errors import StoreError
from logparse.ingest import ingest
from logparse.store import Store, open_store
from logparse.store.compaction import compact
from logparse.store.manifest import MERGED, Manifest
from tests.conftest import SAMPLES
from tests.store.contents import contents


@pytest.fixture(scope="module")
def three_runs(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = open_store(tmp_path_factory.mktemp("three_runs") / "store", create=True)
    for run, folder in (("one", "hipblaslt"), ("two", "tunableop"), ("three", "miopen")):
        ingest([str(SAMPLES / folder)], store, run=run)
    return store


@pytest.fixture(scope="module")
def wanted(three_runs: Store) -> dict[str, list[str]]:
    """Return the contents of a store (Parquet folder) before any test changes it: {view: rows as text}."""
    return contents(three_runs)


@pytest.fixture
def store(three_runs: Store, tmp_path: Path) -> Store:
    return open_store(shutil.copytree(three_runs.url, tmp_path / "store"))


def files(store: Store) -> Iterator[Path]:
    return (path for path in Path(store.url).rglob("*.parquet") if path.is_file())


def age(store: Store, seconds: float = 7200) -> None:
    """Change the times of the store's files as if all had been written ``seconds`` ago."""
    then = time.time() - seconds
    for path in files(store):
        os.utime(path, (then, then))


def test_the_views_stay_as_they_are_and_few_files_remain(store: Store, wanted: dict[str, list[str]]) -> None:
    before, after = compact(store)
    assert before > 100
    assert after < 30
    assert contents(store) == wanted
    age(store)
    store.sweep()
    assert contents(store) == wanted
    assert len(list(files(store))) == after
    assert compact(store) == (after, after)


def test_what_comes_later_is_merged_with_what_is_there(store: Store, tmp_path: Path) -> None:
    compact(store)
    extra = tmp_path / "hipblaslt_7.log"
    shutil.copy(SAMPLES / "hipblaslt" / "profile_4242.log", extra)
    ingest([str(extra)], store, run="later")
    assert [r.state for r in ingest([str(SAMPLES / "hipblaslt" / "api_4242.log")], store)] == ["unchanged"]
    wanted = contents(store)
    before, after = compact(store)
    assert after < before
    assert contents(store) == wanted
    age(store)
    compact(store)
    assert len(list(Path(store.url).glob("compactions/*"))) == 1
    assert contents(store) == wanted


def test_any_program_can_add_up_compacted_rows(store: Store, wanted: dict[str, list[str]]) -> None:
    """After logparse has joined small Parquet files into large ones, any program can count the rows of all files."""
    # No row occurs twice. Normally the small files stay for an hour, for programs that still read them. Here they are
    # deleted at once. Rows of logs that the user has deleted with logparse forget are gone.
    tables = ("calls/*/*", "messages/*/*", "measurements/*", "facts/*", "kernels/*", "rejects/*")

    def by_hand() -> dict[str, int]:
        parts = {table: Path(store.url).glob(f"{table}.parquet") for table in tables}
        return {table: sum(pq.read_metadata(x).num_rows for x in paths) for table, paths in parts.items()}

    whole = by_hand()
    compact(store, unread=True)
    assert by_hand() == whole
    store.forget("three")
    ingest([str(SAMPLES / "miopen")], store, run="three")
    compact(store, unread=True)
    assert by_hand() == whole
    found = contents(store)
    for name in ("calls", "measurements", "conv_problems"):
        assert len(found[name]) == len(wanted[name])


def test_readers_of_the_old_parts_can_finish(store: Store) -> None:
    with store.connect() as con:
        before = con.execute("select count(*) from measurements").fetchone()
        compact(store)
        store.sweep()
        assert con.execute("select count(*) from measurements").fetchone() == before


def test_a_killed_compaction_leaves_what_was(
    store: Store, wanted: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("logparse.store.manifest.Manifest.put", killed)
        with pytest.raises(KeyboardInterrupt):
            compact(store)
    assert contents(store) == wanted
    assert any(path.name.startswith(MERGED) for path in files(store))
    age(store)
    compact(store)
    age(store)
    store.sweep()
    assert contents(store) == wanted
    parts = {str(path.relative_to(store.url)) for path in files(store) if path.name.startswith(MERGED)}
    assert parts == store.manifest().parts


def test_of_two_at_once_one_changes_nothing(
    store: Store, wanted: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = store.manifest()
    compact(store)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "manifest", lambda self: slow)
        with pytest.raises(StoreError, match="another compaction finished first"):
            compact(store)
    assert contents(store) == wanted


@pytest.mark.parametrize("swept", [False, True])
def test_what_is_forgotten_stays_forgotten(store: Store, swept: bool) -> None:
    compact(store)
    if swept:
        age(store)
        store.sweep()
    gone = store.forget("two")
    assert gone
    assert set(store.sources()["run"]) == {"one", "three"}
    assert not len(store.query("select * from measurements where run = 'two'"))
    compact(store)
    assert set(store.sources()["run"]) == {"one", "three"}
    attempts = set(store.manifest().attempts)
    for path in store.manifest().parts:
        assert set(pq.ParquetFile(Path(store.url) / path).read(["attempt"])["attempt"].to_pylist()) <= attempts
    ingest([str(SAMPLES / "tunableop")], store, run="two")
    assert set(store.sources()["run"]) == {"one", "two", "three"}


def test_a_log_that_grows_over_a_compaction_is_counted_once(store: Store, tmp_path: Path) -> None:
    text = (SAMPLES / "hipblaslt" / "hipblaslt_rank0_4242.log").read_text().splitlines(keepends=True)
    log, plain = tmp_path / "grown.log", open_store(tmp_path / "plain", create=True)
    log.write_text("".join(text[:50]) + text[50][:20])
    ingest([str(log)], store, run="grown")
    compact(store)
    age(store)
    log.write_text("".join(text))
    assert [r.state for r in ingest([str(log)], store)] == ["grown"]
    compact(store)
    ingest([str(log)], plain, run="grown")
    count = "select problem, sum(count) as n from calls where run = 'grown' group by problem order by problem"
    pd.testing.assert_frame_equal(store.query(count), plain.query(count))


def test_the_verb_reports_what_it_did(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["logparse", "compact", "--store", store.url])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert re.fullmatch(r"\d+ files before, \d+ now\n", capsys.readouterr().out)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_late_deleted_run_stays_deleted(store: Store, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """If a run is deleted (``forget``) just before a compaction (merging of files) ends, it stays deleted.

    At that time the compaction no longer looks for deleted runs. The run is deleted before or after the compaction
    writes its result.
    """
    put = Manifest.put

    def late(manifest: Manifest, *where: Any) -> bool:
        if when == "before":
            store.forget("two")
        done = put(manifest, *where)
        if when == "after":
            store.forget("two")
        return done

    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "put", late)
        compact(store)
    assert set(store.sources()["run"]) == {"one", "three"}
    assert store.manifest().stale
    with pytest.raises(StoreError, match="has no run or file called 'two'"):
        store.forget("two")
    ingest([str(SAMPLES / "tunableop")], store, run="two")
    wanted = contents(store)
    assert set(store.sources()["run"]) == {"one", "two", "three"}
    compact(store)
    assert contents(store) == wanted
    assert not store.manifest().stale
    attempts = set(store.manifest().attempts)
    for path in store.manifest().parts:
        assert set(pq.ParquetFile(Path(store.url) / path).read(["attempt"])["attempt"].to_pylist()) <= attempts


def test_what_was_forgotten_is_remembered_as_long_as_it_matters(store: Store) -> None:
    compact(store)
    store.forget("two")
    told = list(Path(store.url).glob("compactions/forgotten-*.json"))
    assert len(told) == 1
    os.utime(told[0], (0, 0))
    store.sweep()
    assert told[0].exists(), "the manifest still holds it"
    compact(store)
    store.sweep()
    assert not told[0].exists()
    assert set(store.sources()["run"]) == {"one", "three"}
    store.forget("one")
    store.sweep()
    assert len(list(Path(store.url).glob("compactions/forgotten-*.json"))) == 1, "a compaction may be at work"
