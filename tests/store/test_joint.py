"""Tests of storing many small logs together in a few Parquet files, and of merging these files (compaction).

Neither changes any answer. At no moment is a row lost or there twice.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logparse.executors.executor import LostError
from logparse.executors.local import LocalExecutor
from logparse.ingest import Ingested, all_inputs, ingest, schedule
from logparse.lookup import ranking
from logparse.store import Store, open_store
from logparse.store.compaction import compact
from logparse.store.parts import Place
from logparse.store.schema import VIEWS
from tests.conftest import SAMPLE_FILES, SAMPLES, sized
from tests.store.contents import OF_THE_MOMENT, contents

LOG = (
    "hipblaslt-bench --api_method c -m {m} -n 64 -k 32 --lda {m} --ldb 32 --ldc {m} --ldd {m} --stride_a 0 "
    "--stride_b 0 --stride_c 0 --stride_d 0 --alpha 1.000000 --beta 0.000000 --transA N --transB N --batch_count 1 "
    "--scaleA 0 --scaleB 0 --a_type f16_r --b_type f16_r --c_type f16_r --d_type f16_r --scale_type f32_r "
    "--bias_type f32_r --compute_type f32_r --algo_method index --solution_index 7\n"
)
FILES = 6
VIEWS_OF_INGEST = [view for view in VIEWS if view != "findings"]


@pytest.fixture(autouse=True)
def two_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (all_inputs, schedule):
        monkeypatch.setattr(module, "MANY", 2)
    monkeypatch.setattr(schedule, "_TASKS", 1)  # all files together


@pytest.fixture
def unmerged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep ``ingest`` from merging the files of the store (Parquet folder) afterwards."""
    monkeypatch.setattr(Store, "unmerged_small", lambda *_: 0)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of logs that have some matrix products in common. Tests must not change it.

    The last line of one log has no line end yet, and one file has an unknown format.
    """
    folder = tmp_path_factory.mktemp("logs")
    for number in range(FILES):
        lines = [LOG.format(m=64 * m) for m in (1, 2, number + 1)]
        (folder / f"hipblaslt_{number}.log").write_text("".join(lines)[: -1 if number == 3 else None])
    (folder / "hipblaslt_foreign.log").write_text("an application's line\n")
    return folder


def contents_of(store: Store) -> dict[str, list[str]]:
    return contents(store, ("run", *OF_THE_MOMENT), VIEWS_OF_INGEST)


def assert_same(store: Store, wanted: dict[str, list[str]]) -> None:
    assert contents_of(store) == wanted
    assert store.damage() == []


@pytest.fixture(scope="module")
def wanted(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return the data that reading the test logs must give, to compare with the results of other ways of reading.

    Here the logs are read one by one, so that each log has Parquet files of its own.
    """
    single = open_store(tmp_path_factory.mktemp("single") / "store", create=True)
    for log in sorted(logs.iterdir()):
        ingest([str(log)], single)
    assert len(list(Path(single.url).glob("gemms/*"))) >= FILES
    return contents_of(single)


def parts(store: Store) -> set[Path]:
    return {path for path in Path(store.url).glob("*/**/*.parquet") if path.parts[-3] != "sources"}


def test_views_do_not_depend_on_how_files_are_shared(
    samples: Store, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQL views are the same, however logs are divided into Parquet files.

    A log may have Parquet files of its own, or share them with other logs, and files may be merged later.
    """
    with monkeypatch.context() as patch:
        patch.setattr(Store, "unmerged_small", lambda *_: 0)
        ingest([str(SAMPLES)], store, run="samples")
    assert len(parts(store)) < 2 * len(SAMPLE_FILES)
    wanted = contents_of(samples)
    for _ in range(sized(1, 2)):
        assert contents_of(store) == wanted
        assert sorted(ranking.top(store, n=10_000)["problem"]) == sorted(ranking.top(samples, n=10_000)["problem"])
        compact(store, unread=True)


def test_an_ingest_merges_its_small_files(logs: Path, store: Store, wanted: dict[str, list[str]]) -> None:
    ingest([str(logs)], store)
    assert store.manifest().number == 1
    assert_same(open_store(store.url), wanted)
    assert {one.state for one in ingest([str(logs)], open_store(store.url))} == {"unchanged"}


def test_a_file_that_grew_is_read_on(logs: Path, tmp_path: Path, store: Store) -> None:
    growing = shutil.copytree(logs, tmp_path / "growing")
    ingest([str(growing)], store)
    calls = store.calls()["count"].sum()
    with (growing / "hipblaslt_3.log").open("a") as log:
        log.write("\n" + LOG.format(m=64))
    states = sorted(one.state for one in ingest([str(growing)], store))
    assert states == ["grown", *["unchanged"] * FILES]
    assert store.calls()["count"].sum() == calls + 1


@pytest.mark.usefixtures("unmerged")
@pytest.mark.parametrize("at", range(0, FILES + 2, sized(3, 1)))
def test_a_kill_between_two_commits_leaves_what_was_committed(
    at: int, logs: Path, store: Store, wanted: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        interrupt(patch, at, killed)
        with pytest.raises(KeyboardInterrupt):
            ingest([str(logs)], store)
    left = open_store(store.url)
    assert len(left.commits()) == at
    told = left.sources()["call_lines"].sum()
    assert left.calls()["count"].sum() == (told if at else 0)
    ingest([str(logs)], left)
    assert_same(left, wanted)
    compact(left)
    assert_same(left, wanted)


@pytest.mark.usefixtures("unmerged")
@pytest.mark.parametrize("at", range(sized(3, 0), FILES + 1, sized(9, 1)))
def test_a_compaction_that_sees_half_of_the_commits_doubles_nothing(
    at: int, logs: Path, store: Store, wanted: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        interrupt(patch, at, lambda: compact(open_store(store.url)))
        assert {one.state for one in ingest([str(logs)], store)} == {"new"}
    assert_same(open_store(store.url), wanted)
    compact(store)
    assert_same(store, wanted)
    store.sweep(older_than_s=-1)
    assert_same(store, wanted)


@pytest.mark.usefixtures("unmerged")
def test_parts_that_were_removed_meanwhile_are_no_commit(
    logs: Path, store: Store, wanted: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        interrupt(patch, 3, lambda: compact(open_store(store.url), unread=True))
        results = ingest([str(logs)], store)
    assert all("Ingest the file again" in one.error for one in results)
    left = open_store(store.url)
    assert len(left.commits()) == 3
    assert left.damage() == []
    ingest([str(logs)], left)
    assert_same(left, wanted)


@pytest.mark.usefixtures("unmerged")
def test_what_is_forgotten_of_joint_parts(logs: Path, store: Store) -> None:
    ingest([str(logs)], store, run="all")
    before = store.calls()["count"].sum()
    store.forget("hipblaslt_2.log")
    assert store.calls()["count"].sum() == before - 3
    assert 64 * 3 not in set(store.gemm_problems()["m"])
    assert store.damage() == []
    compact(store, unread=True)
    assert store.calls()["count"].sum() == before - 3
    ingest([str(logs)], store, run="all")
    assert store.calls()["count"].sum() == before
    store.forget("all")
    assert store.sources().empty


@pytest.mark.usefixtures("unmerged")
def test_joint_parts_go_with_their_last_source(logs: Path, store: Store) -> None:
    ingest([str(logs)], store, run="all")
    assert parts(store)
    store.forget("all")
    assert not parts(store)


@pytest.mark.usefixtures("unmerged")
def test_of_two_ingests_at_once_one_commits(
    logs: Path, store: Store, wanted: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        interrupt(patch, 0, lambda: ingest([str(logs)], open_store(store.url)))
        assert {one.state for one in ingest([str(logs)], store)} == {"unchanged"}
    assert_same(open_store(store.url), wanted)
    compact(store)
    assert_same(store, wanted)


def test_a_file_that_kills_its_worker_costs_no_other(logs: Path, store: Store, wanted: dict[str, list[str]]) -> None:
    class Deadly(LocalExecutor):
        def map_unordered(self, function: Any, items: Any, *_: Any) -> Iterator[Any]:
            for item in items:
                yield item, LostError("its worker died") if isinstance(item, tuple) else function(item)

    results = ingest([str(logs)], store, executor=Deadly(1))
    assert {one.state for one in results} == {"new"}
    assert_same(store, wanted)


def test_a_file_that_fails_fails_alone(logs: Path, tmp_path: Path, store: Store) -> None:
    damaged = shutil.copytree(logs, tmp_path / "damaged")
    (damaged / "hipblaslt_2.log").write_bytes(b"\x1f\x8b damaged")
    results: list[Ingested] = ingest([str(damaged)], store)
    assert [Path(one.path).name for one in results if one.state == "failed"] == ["hipblaslt_2.log"]
    assert len(store.sources()) == FILES


def interrupt(patch: pytest.MonkeyPatch, at: int, what: Callable[[], object]) -> None:
    """Make ``ingest`` call the function ``what`` just before it marks the file number ``at`` as complete.

    ``ingest`` completes one file at a time.
    """
    put, count, ended = Place.put_row, iter(range(1000)), False

    def interrupted(place: Place, *given: Any) -> bool:
        nonlocal ended
        if ended or next(count) == at:
            ended = what is killed
            what()
        return put(place, *given)

    patch.setattr("logparse.store.joint._PUT_TOGETHER", 1)
    patch.setattr(Place, "put_row", interrupted)


def killed() -> None:
    raise KeyboardInterrupt
