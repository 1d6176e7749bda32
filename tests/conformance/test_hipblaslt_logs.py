"""Tests that logparse finds the right calls in logs of the real hipBLASLt.

The tests vary the log settings, the number of threads, and the way in which the process ends.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from logparse.ingest import ingest
from logparse.store import Store
from tests.conformance.rocm import HERE, Rocm

CALLS = [["N", "N", 64 + 16 * number, 32, 96, 1, [14] * 4, 2, 0] for number in range(4)]
TIMES = 100
MACHINE = {"VGPU_ARCH": "gfx90a:sramecc+:xnack-"}


def job(rocm: Rocm, folder: Path, threads: int, end: str, **settings: str) -> bytes:
    """Run a job in which hipBLASLt writes log files into ``folder``, and return the job's standard error.

    ``threads`` threads call the library at once.
    """
    path = {"HIPBLASLT_LOG_FILE": str(folder / "hipblaslt_%i.log")}
    words = [json.dumps(x) for x in (CALLS[:threads], TIMES, end)]
    command = [str(rocm.launcher), str(HERE / "drivers/hipblaslt_threads.py"), *words]
    environment = rocm.environment(MACHINE | path | settings)
    return subprocess.run(command, env=environment, check=False, timeout=300, stderr=subprocess.PIPE).stderr


def counts(store: Store, folder: Path) -> dict[str, int]:
    """Read the job's log and return the number of calls of each log category: {category: number}."""
    (path,) = folder.glob("hipblaslt_*.log")
    ingest([str(path)], store, run="job")
    calls = store.frames()["calls"]
    assert {str(pid) for pid in calls["pid"]} == {path.stem.rpartition("_")[2]}, "%i is the process"
    assert calls["problem"].str.extract(r"mnk=(\d+),32,96 ")[0].astype(int).isin([x[2] for x in CALLS]).all()
    return {str(name): int(count) for name, count in calls.groupby("category")["count"].sum().items()}


@pytest.mark.parametrize("end", ["exit", "kill"])
def test_bench_lines_outlive_the_process(rocm: Rocm, store: Store, tmp_path: Path, end: str) -> None:
    """If a process is killed, hipBLASLt's log has the bench lines of its calls, but the profile lines are lost.

    hipBLASLt writes the profile only when the process exits.
    """
    job(rocm, tmp_path, 1, end, HIPBLASLT_LOG_MASK="0x60")
    assert counts(store, tmp_path) == {"bench": TIMES} | ({"profile": TIMES} if end == "exit" else {})


def test_if_threads_log_all_categories_only_the_profile_is_complete(rocm: Rocm, store: Store, tmp_path: Path) -> None:
    """If several threads log several categories at once, only the profile has every call.

    Lines of the categories bench, trace and API come from different source files of the library. Each file has a lock
    of its own, but all write into one buffer. So lines may be lost, torn, or written twice (under mask 31 in some 15 %
    of the runs). A log with only one category is complete. The profile is complete, too, because it is written at the
    end.
    """
    lines = Counter(alone(rocm, tmp_path, "32").splitlines())
    assert list(lines.values()) == [TIMES] * 4
    prefixed = list(filter(None, alone(rocm, tmp_path, "15").splitlines()))
    assert all(line.startswith(b"[20") and line.count(b"[HIPBLASLT]") == 1 for line in prefixed)
    assert sum(b"[Trace][rocblaslt_matmul]" in line for line in prefixed) == 4 * TIMES

    job(rocm, tmp_path, 4, "exit", HIPBLASLT_LOG_MASK="255")
    found, every = counts(store, tmp_path), 4 * TIMES
    assert (found["profile"], found["extended_profile"]) == (every, every)
    (log,) = tmp_path.glob("hipblaslt_*.log")
    written = log.read_bytes()
    assert every / 2 < found["bench"] <= sum(written.count(line.rstrip()) for line in lines)
    assert every / 2 < found["trace"] <= written.count(b"[Trace][rocblaslt_matmul]")
    assert store.frames()["workload"]["calls"].sum() == max(found.values())


def alone(rocm: Rocm, folder: Path, mask: str) -> bytes:
    """Run a job with four threads, and return the log that hipBLASLt writes with this log mask.

    The mask (``HIPBLASLT_LOG_MASK``) selects kinds of log lines, for example 32 for bench lines.
    """
    folder = folder / mask
    folder.mkdir()
    job(rocm, folder, 4, "exit", HIPBLASLT_LOG_MASK=mask)
    return next(folder.iterdir()).read_bytes()


def test_a_mask_with_a_comma_ends_there(rocm: Rocm, store: Store, tmp_path: Path) -> None:
    job(rocm, tmp_path, 1, "exit", HIPBLASLT_LOG_MASK="32,64")
    assert set(counts(store, tmp_path)) == {"bench"}


def test_an_empty_level_switches_the_log_off(rocm: Rocm, tmp_path: Path) -> None:
    assert job(rocm, tmp_path, 1, "exit", HIPBLASLT_LOG_MASK="96", HIPBLASLT_LOG_LEVEL="") == b""
    assert not list(tmp_path.iterdir())


def test_a_full_disk_makes_products_fail(rocm: Rocm, tmp_path: Path) -> None:
    """If the disk is full, writing the log makes hipBLASLt's matrix products fail, and the process aborts at its end.

    If the log file cannot be created, the library writes to standard error instead.
    """
    full = job(rocm, tmp_path, 1, "exit", HIPBLASLT_LOG_MASK="96", HIPBLASLT_LOG_FILE="/dev/full")
    assert b"hipblasLtMatmul returned 6" in full
    assert b"terminate called" in full
    shown = job(rocm, tmp_path, 1, "exit", HIPBLASLT_LOG_MASK="32", HIPBLASLT_LOG_FILE=str(tmp_path / "no" / "log"))
    assert shown.count(b"hipblaslt-bench --api_method") == TIMES
