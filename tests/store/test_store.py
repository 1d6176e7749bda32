"""Tests of the store, the folder of Parquet files into which logs are read.

Its SQL views keep their columns, its schema has a version, and a user's SQL can do no harm.
"""

from __future__ import annotations

import json
import os
from multiprocessing import active_children
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import logparse
from logparse.errors import InputError, QueryError, StoreError
from logparse.ingest import ingest
from logparse.model import problem_from_text
from logparse.sql import _child, query
from logparse.store import Store, open_store
from logparse.store.parts import Attempt
from logparse.store.schema import SCHEMAS, VIEWS, Commit
from tests.conftest import ROOT, SAMPLES
from tests.store.contents import unrecord

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

CONTRACT = {
    "sources": "source_id run path format bytes lines splits call_lines message_lines measurement_lines"
    " fact_lines reject_lines foreign_lines blank_lines pid pid_from",
    "calls": "source_id run category kind problem pid first_seen last_seen solution count by_tool",
    "workload": "run pid kind problem calls calls_from",
    "messages": "source_id run category function text count",
    "gemm_problems": "problem shape trans_a trans_b m n k batch_count lda ldb ldc ldd a_type b_type c_type d_type"
    " compute_type activation bias epilogue flops",
    "conv_problems": "problem shape direction n c d h w k filter_d filter_h filter_w pad_d pad_h pad_w"
    " stride_d stride_h stride_w dilation_d dilation_h dilation_w out_d out_h out_w groups layout dtype flops",
    "links": "problem other level fan",
    "measurements": "source_id run origin kind problem library solution status time_us min_us max_us std_us samples_us"
    " workspace_bytes error key_text",
    "solutions": "library build solution name kernel_name algorithm",
    "kernels": "source_id run device op problem kernel calls total_us min_us max_us unit",
    "collectives": "source_id run device ranks kernel start_us us alone_us",
    "facts": "source_id run name value",
    "rejects": "source_id path offset length count reason",
    "findings": "run analyzer kind problem message saving_us saving_share",
}


@pytest.fixture
def filled(samples: Store) -> Store:
    return samples


@pytest.mark.parametrize("view", CONTRACT)
def test_views_have_the_columns_that_were_promised(store: Store, filled: Store, view: str) -> None:
    for one in (store, filled):
        columns = list(one.query(f"select * from {view}").columns)
        assert not set(CONTRACT[view].split()) - set(columns)
    assert set(CONTRACT) == set(VIEWS)


def test_a_store_of_an_earlier_version_names_formats_as_today(store: Store) -> None:
    """If an earlier version stored the name of a log format in an older spelling, the present spelling is shown.

    Some names had an underscore then.
    """
    row = Commit(attempt="a", source_id="s", run="r", path="/x", format="rocblas_bench+rocblas_tune", content_hash="h",
                 start=0, end=1, bytes=1, lines=1)  # fmt: skip
    assert Attempt("a", store.place).commit(row)
    assert store.sources()["format"].tolist() == ["rocblas-bench+rocblas-tune"]
    assert [x.format for x in (*store.commits(), *store.commits_of("/x"))] == ["rocblas-bench+rocblas-tune"] * 2


@pytest.mark.parametrize("view", [v for v in CONTRACT if v != "findings"])
def test_every_view_has_a_method_that_gives_it(filled: Store, view: str) -> None:
    opened = logparse.open(filled.url)
    assert len(getattr(opened, view)()) == filled.query(f"select count(*) as n from {view}")["n"][0]


@pytest.mark.parametrize(
    ("view", "keys"),
    [
        ("sources", "source_id"),
        ("calls", "source_id category kind problem solution pid device first_seen by_tool workspace_bytes"),
        ("workload", "run pid problem"),
        ("messages", "source_id category function text"),
        ("gemm_problems", "problem"),
        ("conv_problems", "problem"),
        ("links", "problem other"),
        ("measurements", "source_id problem solution ordinal"),
        ("facts", "source_id name value"),
    ],
)
def test_rows_are_as_the_contract_states(filled: Store, view: str, keys: str) -> None:
    columns = ", ".join(keys.split())
    twice = filled.query(f"select {columns}, count(*) as n from {view} group by all having n > 1")
    assert twice.empty, twice.to_string()


def test_parts_of_an_older_version_lack_columns_and_are_read(store: Store) -> None:
    ingest([str(SAMPLES / "traces" / "4242_kernel_stats.csv")], store)
    (part,) = (Path(store.url) / "kernels").rglob("*.parquet")
    pq.write_table(pq.read_table(part, partitioning=None).drop_columns(["operator"]), part)
    unrecord(store)
    frame = open_store(store.url).kernels()
    assert len(frame) == 2
    assert frame["operator"].isna().all()


def test_parts_are_plain_parquet_split_by_category(filled: Store) -> None:
    folders = {p.name for p in (Path(filled.url) / "calls").iterdir()}
    assert {"category=bench", "category=trace", "category=profile"} <= folders
    frame = pq.read_table(Path(filled.url) / "calls" / "category=bench").to_pandas()
    assert len(frame)


def test_another_schema_version_names_both_and_the_remedy(store: Store) -> None:
    (Path(store.url) / "logparse-store.json").write_text(json.dumps({"schema": 99}))
    with pytest.raises(StoreError, match=r"schema 99.*writes 1.*new store"):
        open_store(store.url)


def test_a_store_below_a_folder_whose_name_is_not_utf_8_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = tmp_path / os.fsdecode(b"\xff")
    below.mkdir()
    monkeypatch.chdir(below)
    with pytest.raises(InputError, match="must be UTF-8"):
        open_store("store", create=True)


def test_a_missing_store_gives_the_next_command(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="ingest"):
        logparse.open(tmp_path / "nothing")


def test_an_unknown_run_names_those_there_are(filled: Store) -> None:
    with pytest.raises(StoreError, match="samples"):
        filled.latest_run("other")
    with pytest.raises(StoreError, match="no run 'other'"):
        query(filled.url, "select 1", run="other")


def test_files_of_unknown_formats_do_not_hide_the_last_job(store: Store, tmp_path: Path) -> None:
    """After logparse has read files of formats that it does not know, subcommands still use the data of the last job.

    Subcommands use the data that were read last. In an earlier version, these were then the unknown files, and nothing
    was found. Such files are easily read by mistake, for example with ``logparse ingest .`` in a folder with files of
    ``logparse recommend``. But an empty log is used, because it is from a job that wrote nothing.
    """
    (tmp_path / "report.md").write_text("# Report\n")
    (tmp_path / "empty.log").touch()
    ingest([str(tmp_path / "report.md")], store, run="notes")
    assert store.latest_run() == "notes", "where there is no other"
    ingest([str(SAMPLES / "hipblaslt/trace_4242.log")], store, run="job")
    ingest([str(tmp_path / "report.md")], store, run="again")
    (tmp_path / "more.md").write_text("# More\n")
    ingest([str(tmp_path / "more.md")], store, run="more")
    assert (store.runs(), store.latest_run(), store.latest_run("more")) == (["notes", "job", "more"], "job", "more")
    ingest([str(tmp_path / "empty.log")], store, run="killed")
    assert store.latest_run() == "killed", "the log of a job that wrote nothing"


def test_a_query_makes_the_views_that_it_names(filled: Store) -> None:
    assert set(VIEWS) <= set(filled.query("show tables")["name"]), "all, where none is named"
    with filled.connect() as con:
        for view in VIEWS:
            found = filled.query(f"SELECT * FROM {view.upper()} ORDER BY ALL")
            pd.testing.assert_frame_equal(found, con.execute(f"select * from {view} order by all").df())
    with filled.connect(sql="select * from workload") as con:
        assert {"calls", "workload"} == {x for (x,) in con.execute("show tables").fetchall() if not x.endswith("_")}


ATTACKS = [
    "copy (select 1) to '{tmp}/out.csv'",
    "with x as (copy (select 1) to '{tmp}/out.csv') select * from x",
    "export database '{tmp}/out'",
    "attach '{tmp}/out.db' as o",
    "create table x as select 1",
    "drop view calls",
    "insert into calls select * from calls",
    "select * from read_csv('{root}/pyproject.toml')",
    "select * from read_text('{root}/pyproject.toml')",
    "select * from '{root}/pyproject.toml'",
    "select * from glob('{root}/*')",
    "select * from read_parquet('{root}/**/*.parquet')",
    "install httpfs",
    "load httpfs",
    "set enable_external_access = true",
    "set memory_limit = '100GB'",
    "pragma enable_profiling",
    "select 1; select 2",
    "call pragma_version()",
    "select * from frame",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_sql_cannot_write_read_files_or_change_settings(filled: Store, tmp_path: Path, attack: str) -> None:
    """A user's SQL cannot write files, read other files or change settings."""
    # Normally a child process runs the SQL. This test runs the child's code in its own process, to save time. The next
    # test tries two attacks in a real child process.
    frame = attack  # noqa: F841 - a Python name that a replacement scan would find
    sent: list[tuple[str, object]] = []
    sender = SimpleNamespace(send=sent.append, close=lambda: None)
    _child(cast("Connection", sender), filled.url, attack.format(tmp=tmp_path, root=ROOT), None, 1000)
    assert [kind for kind, _ in sent] == ["error"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("attack", ["copy (select 1) to '{tmp}/out.csv'", "select * from glob('{root}/*')"])
def test_the_process_of_a_query_cannot_either(filled: Store, tmp_path: Path, attack: str) -> None:
    with pytest.raises(QueryError):
        query(filled.url, attack.format(tmp=tmp_path, root=ROOT), timeout_s=30)
    assert not list(tmp_path.iterdir())


def test_a_query_that_hangs_is_stopped(filled: Store) -> None:
    before = set(active_children())
    with pytest.raises(QueryError, match="longer than 2 s"):
        query(filled.url, "select sum(a.range * b.range) from range(100000000) a, range(100000000) b", timeout_s=2)
    assert set(active_children()) <= before, "its process was killed: it would take days"


def test_too_many_rows_are_refused(filled: Store) -> None:
    with pytest.raises(QueryError, match="LIMIT"):
        query(filled.url, "select * from range(1000)", max_rows=10)
    assert query(filled.url, "select * from range(10)", max_rows=10).num_rows == 10


def test_a_run_limits_the_views(filled: Store) -> None:
    assert query(filled.url, "select count(*) as n from calls", run="samples")["n"][0].as_py() > 0
    assert filled.query("select count(*) as n from calls", "none")["n"][0] == 0


@pytest.mark.parametrize("old_first", [False, True])
def test_stores_whose_convolutions_have_a_layer_are_read(store: Store, tmp_path: Path, old_first: bool) -> None:
    rows = (SAMPLES / "miopen" / "gfx942130.HIP.fdb.txt").read_text().splitlines(keepends=True)
    for name, part in (("one", rows[::2]), ("two", rows[1::2])):
        (tmp_path / f"{name}.fdb.txt").write_text("".join(part))
        ingest([str(tmp_path / f"{name}.fdb.txt")], store)
    wanted = store.conv_problems().sort_values("problem").reset_index(drop=True)
    assert [f"conv {row.direction} {row.layer}" for row in wanted.itertuples()] == wanted["problem"].tolist()
    assert [problem_from_text(text).shape for text in wanted["problem"]] == wanted["shape"].tolist()
    parts = sorted(Path(store.url).glob("convs/*.parquet"))
    assert len(parts) == 2
    old = parts[0 if old_first else 1]
    table = pq.ParquetFile(old).read()
    pq.write_table(table.append_column("layer", table["problem"]), old)
    unrecord(store)
    for sealed in (False, True):
        with store.connect(sealed=sealed) as con:
            found = con.execute("select * from conv_problems order by problem").df()
        assert found.equals(wanted)


def _row(attempt: Attempt, path: str) -> Commit:
    told = dict.fromkeys(("source_id", "run", "format", "content_hash"), path)
    return Commit(attempt=attempt.name, path=path, start=0, end=1, bytes=1, lines=1, **told)


def test_files_of_a_running_ingest_are_kept(store: Store) -> None:
    """Files that a running ``ingest`` has written are kept, even if other programs clean up or delete runs.

    An ``ingest`` may run for hours.
    """
    working, done = store.attempt(), store.attempt()
    for attempt in (working, done):
        attempt.add("facts", pa.table({"name": ["arch"], "value": ["gfx942"]}))
    done.commit(_row(done, "other"))
    (part,) = Path(store.url).glob(f"facts/{working.name}-*")
    os.utime(part, (0, 0))
    working.add("facts", pa.table({"name": ["cu_count"], "value": ["304"]}))
    assert store.sweep() == 0
    store.forget("other")
    working.commit(_row(working, "mine"))
    assert sorted(store.facts()["name"]) == ["arch", "cu_count"]


def test_a_commit_reports_what_was_swept_away(store: Store) -> None:
    attempt = store.attempt()
    attempt.add("facts", pa.table({"name": ["arch"], "value": ["gfx942"]}))
    assert store.sweep(older_than_s=-1) == 1
    with pytest.raises(StoreError, match="Ingest the file again"):
        attempt.commit(_row(attempt, "mine"))
    assert not store.commits()


def test_an_open_store_notices_changes_by_others(store: Store) -> None:
    """A process that has a store (Parquet folder) open notices if another process deletes a log and reads it again."""
    # To notice it is difficult, because the store has a small file for each log, which is read only once. The new file
    # has the same name as the deleted one.
    log, other = SAMPLES / "hipblaslt" / "trace_4242.log", open_store(store.url)
    seen = []
    for _ in range(2):
        ingest([str(log)], other)
        (row,) = store.commits()
        seen.append((row.attempt, store.calls()["count"].sum()))
        other.forget(log.name)
    (first, calls), (second, again) = seen
    assert first != second
    assert calls == again > 0
    assert store.sources().empty


def test_findings_of_an_earlier_version_are_read(store: Store) -> None:
    store.write_findings(pd.DataFrame({"run": ["r"], "analyzer": ["slow-wrw"], "solution": ["miopen:X"]}))
    assert store.findings()["solution"].tolist() == ["miopen:X"]
    path = Path(store.root) / "findings" / "findings.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["solution"]).replace_schema_metadata(), path)
    assert store.findings()[["analyzer", "solution"]].isna().to_numpy().tolist() == [[False, True]]


def test_missing_columns_of_older_files_are_unknown(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a Parquet file of an earlier version lacks a column, all values of the column are unknown."""
    # A new version may add a column without changing the version of the schema. It did so when the texts of matrix
    # products got new fields.
    ingest([str(SAMPLES / "hipblaslt" / "bench_output.txt")], store, run="before")
    monkeypatch.setitem(SCHEMAS, "gemms", SCHEMAS["gemms"].append(pa.field("later", pa.string())))
    with store.connect() as con:
        [(rows, known)] = con.execute("select count(*), count(later) from gemms_").fetchall()
        assert rows > 0
        assert known == 0
    ingest([str(SAMPLES / "hipblaslt" / "hipblaslt_rank0_4242.log")], store, run="after")
    with store.connect() as con:
        assert con.execute("select count(*), count(later) from gemms_").fetchall()[0][0] >= rows, "beside newer parts"
