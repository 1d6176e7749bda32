"""Tests that a copy of a log is not counted again in the same run, even if it is compressed or renamed.

A log is counted in each run into which it is read. Equal logs of two processes are both counted.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pytest

from logparse.ingest import ingest
from logparse.lookup import contents
from logparse.lookup.ranking import rank_problems
from logparse.store import Store, open_store
from logparse.store.copies import copies, identity
from tests.conftest import ROOT, SAMPLES

SUMS = """
    select (select sum(count) from calls), (select sum(calls) from workload), (select count(*) from measurements),
           (select sum(total_us) from kernels), (select count(*) from facts), (select sum(count) from messages),
           (select sum(count) from rejects)"""
CALLS = "select sum(count) from calls"
FILES = (
    *("hipblaslt/info_4242.log", "hipblaslt/hipblaslt_rank0_4242.log", "tunableop/tunableop_results0.csv"),
    *("miopen/gfx942130.HIP.fdb.txt", "traces/job.trace.json", "traces/4242_kernel_trace.csv", "aiter/server.log"),
)
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
TRACE, LOG = SAMPLES / "traces" / "job.trace.json", SAMPLES / "hipblaslt" / "hipblaslt_rank0_4242.log"


Sums: TypeAlias = tuple[object, ...]


def sums(store: Store, run: str | None = None) -> Sums:
    with store.reading(SUMS, run) as con:
        found: Sums = con.execute(SUMS).fetchall()[0]
    ranking = rank_problems(store, by="time", n=100, run=run)
    sums = (*found, ranking.problems, ranking.calls, ranking.total_us)
    return tuple(round(x, 6) if isinstance(x, float) else x for x in sums)  # DuckDB adds up in any order


@pytest.fixture(scope="module", params=FILES)
def read_once(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Store, Sums]:
    """Return the name of a sample, a store (Parquet folder) into which it was read, and the store's sums.

    Tests must not change the store.
    """
    made = open_store(tmp_path_factory.mktemp("once") / "store", create=True)
    ingest([str(SAMPLES / request.param)], made, run="run")
    return request.param, made, sums(made)


@pytest.mark.parametrize("suffix", PACKED)
def test_a_copy_that_is_ingested_later_changes_no_sum(
    tmp_path: Path, read_once: tuple[str, Store, Sums], suffix: str
) -> None:
    name, once, before = read_once
    store = open_store(shutil.copytree(once.url, tmp_path / "store"))
    copy = tmp_path / "copies" / f"{Path(name).name}{suffix}"
    copy.parent.mkdir()
    copy.write_bytes(PACKED[suffix]((SAMPLES / name).read_bytes()))
    [result] = ingest([str(copy)], store, run="run")
    assert result.remark.startswith("the same content as ")
    assert "count only once in run run" in result.remark
    assert sums(store) == before
    copied = store.sources().set_index("path")["copy_of"].dropna()
    assert list(copied.index) == [str(copy)]
    assert store.copies() == [(str(copy), str(SAMPLES / name))]


def test_status_counts_the_copies(tmp_path: Path, store: Store) -> None:
    ingest([str(LOG)], store, run="run")
    held = contents.list_contents(store).to_pylist()
    shutil.copy(LOG, tmp_path / "again.log")
    ingest([str(tmp_path / "again.log")], store, run="run")
    assert contents.list_contents(store).to_pylist() == held
    [hint] = contents.hints(store)
    assert hint.startswith("1 file with the content of another file")


@pytest.mark.parametrize("name", ["again.json", "a.json.gz"])
def test_a_copy_of_a_trace_in_the_same_ingest_is_ignored(tmp_path: Path, store: Store, name: str) -> None:
    """If a trace and a copy of it are read by one ``ingest``, the kernels are counted only once.

    Equal logs are all counted, because two processes may write equal logs. But two processes never write equal traces.
    """
    ingest([str(TRACE)], store, run="one")
    data = TRACE.read_bytes()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    ingest([str(tmp_path / name), str(TRACE)], store, run="two")
    assert [x.state for x in ingest([str(TRACE)], store, run="two")] == ["unchanged"]
    other = open_store(str(tmp_path / "other"), create=True)
    ingest([str(tmp_path / name), str(TRACE)], other, run="two")
    assert sums(other) == sums(store, "one")


def reversed_keys(value: object) -> object:
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    return [reversed_keys(each) for each in value] if isinstance(value, list) else value


def with_kernels_last(trace: dict[str, object]) -> dict[str, object]:
    events = trace["traceEvents"]
    assert isinstance(events, list)
    return trace | {"traceEvents": sorted(events, key=lambda x: x.get("cat") == "kernel")}


LAYOUTS: dict[str, Callable[[str], str]] = {
    "indented": lambda text: json.dumps(json.loads(text), indent=1),
    "compact": lambda text: json.dumps(json.loads(text), separators=(",", ":")),
    "other order of keys": lambda text: json.dumps(reversed_keys(json.loads(text))),
    "other order of events": lambda text: json.dumps(with_kernels_last(json.loads(text))),
    "other line ends": lambda text: json.dumps(json.loads(text), indent=0).replace("\n", "\r\n"),
}


def without_kernels(text: str) -> str:
    trace = json.loads(text)
    on_gpu = ("kernel", "gpu_memcpy", "gpu_memset")
    return json.dumps(trace | {"traceEvents": [x for x in trace["traceEvents"] if x.get("cat") not in on_gpu]})


@pytest.mark.parametrize(
    ("content", "layout", "suffix"),
    [*((str, layout, "") for layout in LAYOUTS), (str, "indented", ".gz"), (without_kernels, "indented", "")],
)
def test_a_trace_that_is_laid_out_in_another_way_is_a_copy(
    tmp_path: Path, store: Store, layout: str, content: Callable[[str], str], suffix: str
) -> None:
    first, copy = tmp_path / "job.json", tmp_path / f"copy.json{suffix}"
    first.write_text(content(TRACE.read_text()))
    ingest([str(first)], store, run="run")
    before = sums(store)
    copy.write_bytes(PACKED[suffix](LAYOUTS[layout](first.read_text()).encode()))
    [result] = ingest([str(copy)], store, run="run")
    assert result.remark.startswith("the same content as ")
    assert sums(store) == before
    other = open_store(str(tmp_path / "other"), create=True)
    ingest([str(first), str(copy)], other, run="run")
    assert sums(other) == before


def changed(text: str, **of_kernels: int) -> str:
    """Return the trace with numbers added to times (``ts``, ``dur``) and arguments of its last kernel."""
    trace = json.loads(text)
    kernel = [x for x in trace["traceEvents"] if x.get("cat") == "kernel"][-1]
    for name, more in of_kernels.items():
        at = kernel if name in kernel else kernel["args"]
        at[name] += more
    return json.dumps(trace)


@pytest.mark.parametrize("of_kernels", [{"ts": 1}, {"dur": 1}, {"stream": 1}, {"device": 1}, {"correlation": 1}])
def test_a_trace_with_another_kernel_is_no_copy(tmp_path: Path, store: Store, of_kernels: dict[str, int]) -> None:
    (tmp_path / "other.json").write_text(changed(TRACE.read_text(), **of_kernels))
    ingest([str(TRACE), str(tmp_path / "other.json")], store, run="run")
    assert not store.copies()


@pytest.mark.parametrize("content", [str, without_kernels])
def test_traces_of_two_ranks_are_no_copies(tmp_path: Path, store: Store, content: Callable[[str], str]) -> None:
    """The rank in the header tells two traces apart, even if every event of them is equal."""
    trace = json.loads(content(TRACE.read_text()))
    for rank in range(2):
        (tmp_path / f"{rank}.json").write_text(json.dumps(trace | {"distributedInfo": {"rank": rank}}))
    ingest([str(tmp_path)], store, run="run")
    assert not store.copies()


def test_a_copy_of_a_trace_that_an_earlier_version_read(tmp_path: Path, store: Store) -> None:
    """Earlier versions identified a trace by the hash of its text alone."""
    commits = {
        "source_id": ["a", "b"],
        "end": [9, 5],
        "identity": [identity("h1", 1.0), identity("events+h1", 2.0)],
        "run": ["run", "run"],
        "path": ["a.json", "b.json.gz"],
        "committed_at": [1.0, 2.0],
    }
    assert copies(pa.table(commits)) == {"b": "a"}


def test_two_runs_with_equal_files_are_two_runs(tmp_path: Path, store: Store) -> None:
    shutil.copy(LOG, tmp_path / "after.log")
    ingest([str(LOG)], store, run="before")
    [result] = ingest([str(tmp_path / "after.log")], store, run="after")
    assert not result.remark
    assert sums(store, "before") == sums(store, "after")


@pytest.mark.parametrize(
    ("names", "together", "count"),
    [
        (("job.log", "copy.log"), False, 1),
        (("job.log", "copy_4242.log"), False, 1),
        (("rank0.log", "rank1.log"), False, 2),
        (("0/stderr.log", "1/stderr.log"), False, 2),
        (("a/stderr.log", "b/stderr.log"), True, 2),
        (("a/stderr.log", "b/stderr.log.gz"), True, 1),
        (("job_4242.log", "old/job_4242.log"), False, 1),
    ],
)
def test_logs_of_two_processes_may_be_equal(
    tmp_path: Path, store: Store, names: tuple[str, str], together: bool, count: int
) -> None:
    """If two ranks wrote equal logs, both are counted.

    logparse sees that there are two ranks if the names of the logs differ by a rank, or if one ``ingest`` reads both
    logs.
    """
    paths = [tmp_path / name for name in names]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(PACKED[".gz" if path.suffix == ".gz" else ""](LOG.read_bytes()))
    for group in [paths] if together else [[path] for path in paths]:
        ingest([str(path) for path in group], store, run="run")
    with store.reading(CALLS) as con:
        assert con.execute(CALLS).fetchall() == [(122 * count,)]


def test_a_stated_process_makes_equal_logs_count(tmp_path: Path, store: Store) -> None:
    for number, name in enumerate(("a.log", "b.log")):
        shutil.copy(LOG, tmp_path / name)
        ingest([str(tmp_path / name)], store, run="run", pid=str(number))
    assert not store.copies()


def test_a_packed_copy_of_a_log_that_grew_is_ignored(tmp_path: Path, store: Store) -> None:
    """If a log was compressed and then grew, the compressed copy is not counted, because the log has its lines, too."""
    log, lines = tmp_path / "z.log", LOG.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:60]))
    ingest([str(log)], store, run="run")
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(log.read_bytes()))
    ingest([str(tmp_path / "a.log.gz")], store, run="run")
    log.write_bytes(b"".join(lines))
    ingest([str(log)], store, run="run")
    assert store.copies() == [(str(tmp_path / "a.log.gz"), str(log))]


def test_without_the_first_file_its_copy_counts(tmp_path: Path, store: Store) -> None:
    shutil.copy(LOG, tmp_path / "copy.log")
    ingest([str(LOG)], store, run="run")
    before = sums(store)
    ingest([str(tmp_path / "copy.log")], store, run="run")
    store.forget(str(LOG))
    assert sums(store) == before


def test_a_database_whose_name_states_another_device_is_no_copy(tmp_path: Path, store: Store) -> None:
    name = "gfx942130.HIP.fdb.txt"
    shutil.copy(SAMPLES / "miopen" / name, tmp_path / "gfx90a68.HIP.fdb.txt")
    ingest([str(SAMPLES / "miopen" / name)], store, run="run")
    ingest([str(tmp_path / "gfx90a68.HIP.fdb.txt")], store, run="run")
    assert not store.copies()


def test_a_stream_that_was_read_before_counts_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "logparse", "ingest", "-", "--run", "r", "--store", str(tmp_path / "s")]
    outs = [
        subprocess.run(command, input=LOG.read_text(), cwd=ROOT, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert ["the same content as an earlier stream" in out.stderr for out in outs] == [False, True]
    with open_store(str(tmp_path / "s")).reading(CALLS) as con:
        assert con.execute(CALLS).fetchall() == [(122,)]


def test_recommend_names_the_copies_of_traces(tmp_path: Path, store: Store) -> None:
    from analyzers.evidence.runs import tables_to_analyse

    shutil.copy(TRACE, tmp_path / "copy.json")
    ingest([str(TRACE)], store, run="run")
    before = tables_to_analyse(store)
    ingest([str(tmp_path / "copy.json")], store, run="run")
    after = tables_to_analyse(store)
    [left] = after.left_out
    assert (left.why, left.names, left.kernels > 0) == ("a copy of another trace", ("copy.json",), True)
    assert len(after.sources) == len(before.sources)
    assert len(after.kernels) == len(before.kernels)
