"""Tests of logs into which several threads or processes of the real rocBLAS and MIOpen write at the same time."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from logparse.ingest import ingest
from logparse.store import Store, open_store
from tests.conformance.rocm import HERE, Rocm

MACHINE = {"VGPU_ARCH": "gfx942:sramecc+:xnack-", "VGPU_CUS": "304"}
GEMMS = [["N", "T", m, 32, 48, 1, [m, 32, m], [0, 0, 0], 0, "f16_r", "f16_r", "f32_r"] for m in (64, 80, 96, 112)]
TIMES = 50
LAYERS = ("rocblas_bench", "rocblas_profile")
FIND = MACHINE | {
    "MIOPEN_ENABLE_LOGGING_CMD": "1",
    "MIOPEN_LOG_LEVEL": "5",
    "MIOPEN_DEBUG_GCN_ASM_KERNELS": "0",
    "MIOPEN_DEBUG_CONV_WINOGRAD": "0",
}
"""Settings for Debian's MIOpen.

They switch its assembler and Winograd solvers off, because their sources are missing.
"""


def start(rocm: Rocm, log: Path, settings: dict[str, str], driver: str, *words: object) -> subprocess.Popen[bytes]:
    """Start a job that appends its standard error to the log file."""
    command = [str(rocm.launcher), str(HERE / "drivers" / f"{driver}.py"), *map(json.dumps, words)]
    with open(log, "ab") as file:
        return subprocess.Popen(command, env=rocm.environment(settings), stdout=subprocess.DEVNULL, stderr=file)


def read(log: Path, store: Store) -> Store:
    ingest([str(log)], store)
    return store


def test_rocblas_writes_each_call_once(rocm: Rocm, store: Store, tmp_path: Path) -> None:
    """If four threads write into one rocBLAS log, logparse counts each call once.

    This is true for each kind of line: bench, profile and trace.
    """
    log = tmp_path / "stderr"
    settings = MACHINE | {"ROCBLAS_LAYER": "7", "ROCBLAS_USE_HIPBLASLT": "0"}
    assert start(rocm, log, settings, "rocblas_threads", GEMMS, TIMES).wait(300) == 0
    calls = read(log, store).frames()["calls"]
    counted = Counter({(row.problem, row.category): row.count for row in calls.itertuples()})
    assert set(counted.values()) == {TIMES}
    assert len(counted) == len(GEMMS) * len(LAYERS)
    assert store.frames()["workload"]["calls"].sum() == len(GEMMS) * TIMES


def test_a_second_process_overwrites_rocblas_file(rocm: Rocm, store: Store, tmp_path: Path) -> None:
    log = tmp_path / "bench.log"
    settings = MACHINE | {"ROCBLAS_LAYER": "2", "ROCBLAS_USE_HIPBLASLT": "0", "ROCBLAS_LOG_BENCH_PATH": str(log)}
    for times in (5, 3):
        start(rocm, tmp_path / "stderr", settings, "rocblas_threads", GEMMS[:1], times).wait(300)
    assert read(log, store).frames()["calls"]["count"].sum() == 3


def test_a_file_that_rocblas_cannot_open_costs_the_job(rocm: Rocm, tmp_path: Path) -> None:
    path = {"ROCBLAS_LAYER": "2", "ROCBLAS_LOG_BENCH_PATH": str(tmp_path / "no" / "log")}
    assert (
        start(rocm, tmp_path / "stderr", MACHINE | path, "rocblas_threads", GEMMS[:1], 1).wait(300) == -signal.SIGABRT
    )


@pytest.mark.parametrize("named", [False, True], ids=["no thread is named", "each line names its thread"])
def test_times_of_two_processes_are_not_confused(rocm: Rocm, tmp_path: Path, named: bool) -> None:
    """If two processes run MIOpen's Find into one log, no time is taken for a convolution of the other process.

    A time may be left out if its line does not name its thread.
    """

    def found(*groups: list[int]) -> set[tuple[object, ...]]:
        name = "_".join(f"{height}" for heights in groups for height in heights)
        log, jobs = tmp_path / f"{name}.log", []
        for heights in groups:
            calls = [[way, "f32_r", [2, 16, height, 8, 16, 3, 3], 1, 1, 1] for height in heights for way in "FBW"]
            folder = {"MIOPEN_USER_DB_PATH": str(tmp_path / name / f"{heights}")}
            folder["MIOPEN_CUSTOM_CACHE_DIR"] = str(tmp_path / "cache" / f"{heights}")
            folder["MIOPEN_ENABLE_LOGGING_MPMT"] = "1" if named else "0"
            jobs.append(start(rocm, log, FIND | folder, "miopen_job", calls, 0))
        assert [job.wait(300) for job in jobs] == [0] * len(jobs)
        measured = read(log, open_store(tmp_path / f"{name} store", create=True)).frames()["measurements"]
        return set(measured[["problem", "solution", "origin", "time_us"]].itertuples(index=False, name=None))

    apart = found([8]) | found([48])
    together = found([8], [48])
    assert together <= apart
    assert together
    assert not named or together == apart


def test_processes_share_a_user_find_db(rocm: Rocm, store: Store, tmp_path: Path) -> None:
    """If four processes run MIOpen's Find at the same time, their common file of solver times has every line once."""
    # All processes run one convolution, and each has two more. A lock that a killed process left behind does not
    # matter.
    folder = tmp_path / "db"
    lock = folder / "miopen-lockfiles" / "gfx942130.HIP.3_5_1_.ufdb.txt.lock.fslock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    own = [[40 + 2 * number, 41 + 2 * number] for number in range(4)]
    jobs = []
    for heights in own:
        calls = [["F", "f32_r", [1, 4, height, 6, 4, 3, 3], 1, 1, 1] for height in (8, *heights)]
        settings = {"MIOPEN_USER_DB_PATH": str(folder), "MIOPEN_CUSTOM_CACHE_DIR": str(tmp_path / f"{heights}")}
        jobs.append(start(rocm, tmp_path / "stderr", FIND | settings, "miopen_job", calls, 0))
    assert [job.wait(300) for job in jobs] == [0] * len(jobs)
    lines = (folder / "gfx942130.HIP.3_5_1_.ufdb.txt").read_text(encoding="utf-8").splitlines()
    found = Counter(line.split("-")[1] for line in lines)
    assert found == {str(height): 1 for height in (8, *(x for heights in own for x in heights))}
    sources = read(folder, store).frames()["sources"]
    assert sources[["measurement_lines", "reject_lines", "foreign_lines"]].to_numpy().tolist() == [[9, 0, 0]]
