"""Test that several parts of logparse can use one store (Parquet folder) at the same time.

An HTML page, a measurement of kernels and the reading of logs must have the same results as if each ran alone.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

pytest.importorskip("flask", reason="the extra `explore` is not installed")

from analyzers.explore import queries
from analyzers.explore.page.data import PageData
from analyzers.explore.selection import Selection
from analyzers.replay.replay import Options, ReplayReport, replay
from analyzers.replay.results import Method
from analyzers.replay.scheduler import Limits
from logparse.ingest import ingest
from logparse.store.compaction import compact
from tests.analyzers.replay.fakes import NAME
from tests.analyzers.replay.problems import named, store_of
from tests.conftest import SAMPLES

LOGS = [str(x) for x in (SAMPLES / "hipblaslt/hipblaslt_rank0_4242.log", SAMPLES / "miopen/miopen_cmd_4242.log")]

PROBLEMS, ROUNDS = 6, 12


@pytest.mark.nightly
def test_a_page_a_replay_and_an_ingest_on_one_store_at_once(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store", [named("pick", "fast", m=16 + 8 * n) for n in range(PROBLEMS)])
    runs = list[str]()
    reports, failures = list[ReplayReport](), list[BaseException]()

    def measure() -> None:
        options = Options(backends=(NAME,), devices=("cpu",), limits=Limits(hang_s=30.0), method=Method(processes=1))
        reports.append(replay(store, options))

    def read_logs() -> None:
        for number in range(ROUNDS):
            copies = [tmp_path / f"{number}-{Path(log).name}" for log in LOGS]
            for log, copy in zip(LOGS, copies, strict=True):
                copy.write_bytes(Path(log).read_bytes())
            results = ingest(map(str, copies), store, run=f"round {number}")
            assert [x.state for x in results] == ["new", "new"]
            runs.append(f"round {number}")
            if number % 3 == 2:
                compact(store)

    def guarded(work: threading.Thread) -> threading.Thread:
        run = work.run

        def kept() -> None:
            try:
                run()
            except BaseException as error:
                failures.append(error)

        work.run = kept  # type: ignore[method-assign]
        return work

    working = [guarded(threading.Thread(target=x)) for x in (measure, read_logs)]
    for thread in working:
        thread.start()
    pages = 0
    while pages < 1 or any(thread.is_alive() for thread in working):
        page = PageData(store.url, "r")
        try:
            assert page.wait(300), page.error
            with page.cursor() as con:
                assert int(queries.totals(con, Selection())["problems"]) == PROBLEMS
            assert page.error == ""
        finally:
            page.close()
        pages += 1
    for thread in working:
        thread.join()
    assert failures == []
    assert reports[0].finished
    assert sorted(store.runs()) == sorted(["r", *runs])
    assert store.damage() == []
    counts = store.sql("select run, sum(calls) as calls from workload where run like 'round %' group by run")["calls"]
    assert counts.nunique() == 1, "every round counts the same calls"
