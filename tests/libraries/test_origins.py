"""Tests of how each log format describes the times in its files."""

# A format states whether its times may be compared with others, whether they are the fastest ones of a search, and
# whether its files are logs of the job. These statements are stored with the times, so that no analyzer needs a list of
# formats.

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from analyzers.evidence.comparable import best_rows
from analyzers.evidence.origins import (
    EVIDENCE_BEFORE,
    NO_LOGS_BEFORE,
    WINNERS_BEFORE,
    is_evidence,
    is_job_log,
    is_winner,
)
from analyzers.evidence.picks import picks_vs_best
from analyzers.evidence.runs import tables_to_analyse
from analyzers.evidence.tables import Settings
from analyzers.findings import stale_override
from logparse.ingest import ingest, record, worker
from logparse.libraries import FORMATS
from logparse.libraries.kinds.format import Origin
from logparse.libraries.kinds.table import Row, TableFormat, each_row
from logparse.model import GemmProblem, Measurement, Record, Solution
from logparse.store import Store, open_store
from logparse.store.schema import RECORDED
from tests.conftest import SAMPLES


def test_every_origin_of_the_samples_is_declared_by_a_format(samples: Store) -> None:
    given = set(samples.measurements()["origin"])
    declared = {origin.name for format in FORMATS for origin in format.origins}
    assert len(given) > 5
    assert given <= declared


def test_an_origin_means_the_same_in_every_format() -> None:
    of_formats = set(chain.from_iterable(format.origins for format in FORMATS))
    assert len({origin.name for origin in of_formats}) == len(of_formats)


def test_a_finding_names_formats_that_exist() -> None:
    assert {*stale_override.EFFECT} <= {x.name for x in FORMATS if not x.job_log}
    assert {format.name for format in FORMATS} | {"replay"} >= NO_LOGS_BEFORE


def test_what_the_formats_state_is_stored_with_the_rows(samples: Store) -> None:
    origins = {origin.name: origin for format in FORMATS for origin in format.origins}
    rows = samples.query("select distinct origin, evidence, winner from measurements")
    assert len(rows) == rows["origin"].nunique()
    for name, evidence, winner in rows.itertuples(index=False):
        assert Origin(name, bool(evidence), bool(winner)) == origins[name]
    logs = {format.name: format.job_log for format in FORMATS} | {"foreign": False}
    sources = samples.query("select format, job_log from sources")
    for names, job_log in sources.itertuples(index=False):
        assert job_log is any(logs[name] for name in names.split("+")), names


TABLE = "kernel,m,n,k,us\nquick,64,32,16,5.5\nslow,64,32,16,9.5\n"


def read_row(row: Row) -> Iterator[Record]:
    problem = GemmProblem(m=row.whole("m"), n=row.whole("n"), k=row.whole("k"), batch_count=1)
    solution = Solution("mytuner", row["kernel"])
    yield Measurement(problem=problem, solution=solution, origin="mytuner", status="ok", time_us=row.real("us"))
    if solution.id == "slow":  # the program runs this solution by default
        default = Solution("torch", "Default")
        yield Measurement(problem=problem, solution=default, origin="mytuner", status="ok", time_us=row.real("us"))


def stating(origin: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make logparse read only a made-up format whose times come from the given kind of tool (``origin``)."""
    columns = ("kernel", "m", "n", "k", "us")
    format = TableFormat(name="mytuner", about="times", columns=columns, begin=each_row(read_row), origins=(origin,))
    monkeypatch.setattr(worker, "FORMATS", (format,))


@pytest.mark.parametrize("evidence", [True, False])
def test_a_new_format_decides_whether_its_times_are_compared(
    evidence: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times of a new log format are compared with other times if the format states that they may be.

    No other code needs to know the new format.
    """
    stating(Origin("mytuner", evidence), monkeypatch)
    (tmp_path / "times.csv").write_text(TABLE)
    store = open_store(tmp_path / "store", create=True)
    (result,) = ingest([str(tmp_path / "times.csv")], store, run="r", jobs=1)
    assert (result.format, result.lines) == ("mytuner", 3)
    rows = picks_vs_best(tables_to_analyse(store), Settings())
    assert list(rows["best"]) == (["mytuner:quick"] if evidence else [])


@pytest.mark.parametrize("winners", [True, False])
def test_a_lone_time_of_a_new_format_is_a_best_time_if_the_format_states_that_its_rows_won_a_search(
    winners: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stating(Origin("mytuner", evidence=True, winners=winners), monkeypatch)
    (tmp_path / "times.csv").write_text("kernel,m,n,k,us\nquick,64,32,16,5.5\n")
    store = open_store(tmp_path / "store", create=True)
    ingest([str(tmp_path / "times.csv")], store, run="r", jobs=1)
    rows = tables_to_analyse(store).measurements
    (source,) = rows["source_id"]
    best = best_rows(rows, {source: {"arch": "gfx942", "cu_count": "304"}})
    assert list(best["time_us"]) == ([5.5] if winners else [])


def test_a_store_of_an_earlier_version_is_read_by_the_names_of_its_origins(tmp_path: Path) -> None:
    problem, solution = GemmProblem(m=1, n=2, k=3, batch_count=1), Solution("torch", "Default")
    store = open_store(tmp_path / "store", create=True)
    rows = [Measurement(problem=problem, solution=solution, origin=x, status="ok", time_us=1.0) for x in ("aiter", "x")]
    # a source of an earlier version states nothing about its origins
    record(store, rows, run="r", name="old", format="aiter")
    found = store.measurements()
    assert found["evidence"].isna().all()
    assert found["winner"].isna().all()
    for test in (is_evidence, is_winner):
        assert dict(zip(found["origin"], test(found), strict=True)) == {"aiter": True, "x": False}
    assert "aiter" in EVIDENCE_BEFORE & WINNERS_BEFORE


def test_row_files_of_an_earlier_version_lack_the_columns_and_are_read(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", create=True)
    ingest(
        [str(SAMPLES / "tunableop" / "tunableop_results0.csv"), str(SAMPLES / "hipblaslt" / "bench_output.txt")], store
    )
    now = store.measurements()
    assert set(is_winner(now)) == {True, False}
    for path in (tmp_path / "store" / "sources").rglob("*.parquet"):
        rows = pq.ParquetFile(path).read()
        lacking = rows.drop_columns([RECORDED, "evidence", "winners", "job_log"])
        pq.write_table(lacking.replace_schema_metadata(), path)
    old = open_store(store.url)
    found = old.measurements()
    assert found[["evidence", "winner"]].isna().all(axis=None)
    for test in (is_evidence, is_winner):
        assert dict(zip(found["origin"], test(found), strict=True)) == dict(zip(now["origin"], test(now), strict=True))
    assert old.sources()["job_log"].isna().all()
    assert len(tables_to_analyse(old).measurements) == len(now)


def test_a_source_that_states_nothing_is_a_log_by_its_format() -> None:
    sources = pd.DataFrame({"format": ["aiter", "miopen-log", "aiter"], "job_log": [None, None, True]})
    assert list(is_job_log(sources)) == [False, True, True]
    assert list(is_job_log(sources[["format"]])) == [False, True, False]
