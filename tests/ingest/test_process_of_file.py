"""Tests of how logparse finds the id of the process that wrote a log.

If the log itself does not state it, it comes from the file's name or from the user.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from logparse.errors import UsageError
from logparse.ingest import ingest
from logparse.ingest.process_of_file import processes_in_names
from logparse.store import Store
from tests.conftest import SAMPLES

NONE = [
    *("Llama-2-70B.log", "mi300x.log", "cublaslt_mask31_torch_default.log", "gfx942130.HIP.fdb.txt", "a_70B_bench.log"),
    *("Llama-3.1.log", "torch_2.11.log", "gpt2.trace.json", "mixtral-8x7b.csv", "step100.log", "-", "", "frank3x.log"),
]


@pytest.mark.parametrize(
    ("names", "pids"),
    [
        (NONE, [None] * len(NONE)),
        (["hipblaslt_4242.log", "trace_4242.txt", "4243.log", "job.log.4244", "job_7"], [4242, 4242, 4243, 4244, 7]),
        (["Llama-2-70B_588.log", "cublaslt_mask31_588.log"], [588, 588]),
        (["pid=77.log", "x_pid78_y.log", "rank-3.err", "a.rank12.b.log"], [77, 78, 3, 12]),
        (["rank0_2026.log", "rank1_2026.log"], [0, 1]),  # the date is the same in all names
        (["rank0_4242.log", "rank1_4243.log"], [4242, 4243]),
        (["rank0_4242.log", "rank0_4243.log"], [4242, 4243]),
    ],
)
def test_only_a_place_of_processes_is_read(names: list[str], pids: list[int | None]) -> None:
    shuffled = random.Random(1).sample(names, len(names))
    found = processes_in_names(shuffled)
    assert [found[name].pid for name in names] == pids


def copies(folder: Path, **names: str) -> list[str]:
    out = []
    for name, sample in names.items():
        out.append(str(folder / name.replace("DOT", ".")))
        Path(out[-1]).write_bytes((SAMPLES / "hipblaslt" / sample).read_bytes())
    return out


def processes(store: Store) -> list[tuple[object, object]]:
    rows = store.query("select coalesce(pid, 0) as pid, coalesce(pid_from, '') as f from sources order by path")
    return [(pid, origin) for pid, origin in rows.values.tolist()]


@pytest.mark.parametrize(
    ("pid", "wanted"),
    [
        (None, [(5, "name"), (4242, "prefix")]),
        ("none", [(0, ""), (4242, "prefix")]),
        ("9", [(9, "option"), (4242, "prefix")]),  # a process that a line states stays
    ],
)
def test_the_user_states_it(store: Store, tmp_path: Path, pid: str | None, wanted: list[tuple[int, str]]) -> None:
    paths = copies(tmp_path, a_5DOTlog="hipblaslt_rank0_4242.log", b_6DOTlog="trace_4242.log")
    ingest(paths, store, pid=pid)
    assert processes(store) == wanted


def test_calls_of_two_models_are_not_taken_for_one_process(store: Store, tmp_path: Path) -> None:
    paths = copies(
        tmp_path, **{"Llama-2-70BDOTlog": "hipblaslt_rank0_4242.log", "Yi-70BDOTlog": "hipblaslt_rank1_4243.log"}
    )
    ingest(paths, store)
    assert processes(store) == [(0, "")] * 2
    assert int(store.query("select sum(calls) as n from workload")["n"][0]) > 122


@pytest.mark.parametrize("pid", ["x", "-1", "1.5", "", "٣", "9" * 19])
def test_what_is_no_process_is_refused(store: Store, pid: str) -> None:
    with pytest.raises(UsageError, match="--pid"):
        ingest([], store, pid=pid)
