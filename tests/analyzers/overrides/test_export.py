"""Tests that a matrix product or convolution that is exported to a file and read back is the same as before."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.evidence.tables import Tables
from analyzers.overrides.export import export, select
from logparse.errors import InputError
from logparse.ingest import ingest
from logparse.libraries.hipblaslt import bench
from logparse.libraries.miopen import driver
from logparse.libraries.tunableop import untuned
from logparse.model import Call, ConvProblem, GemmProblem, Problem
from logparse.store import Store
from tests.analyzers.build import tables, work
from tests.analyzers.example import W, gemm
from tests.conftest import SAMPLES

CUDA = {"validator:PT_VERSION": "2.14.0", "pytorch_version": "2.14.0", "backend": "CUDA"}


@pytest.fixture
def run(store: Store) -> Tables:
    ingest([str(SAMPLES / "hipblaslt/hipblaslt_rank0_4242.log")], store)
    return Tables(run=store.latest_run(), **store.frames())


def calls(records: object) -> list[Problem]:
    return [x.problem for x in records if isinstance(x, Call)]  # type: ignore[attr-defined]


def test_selection() -> None:
    t = tables(workload=[work(gemm().text, 3), work(gemm(8).text, 9), work(W.text, None), work(gemm().text, 4, pid=2)])
    assert [p.text for p in select(t)] == [gemm(8).text, gemm().text, W.text]
    assert [p.text for p in select(t, kind="gemm", n=1)] == [gemm(8).text]


def test_bench_lines_come_back(run: Tables) -> None:
    chosen = select(run)
    known = {p.text for p in chosen if isinstance(p, GemmProblem) and not p.members and "?" not in p.text}
    assert len(known) > 5
    made = export(chosen, "bench")
    lines = made.files[0].data.decode().splitlines()
    assert made.count == len(lines)
    assert known <= {p.text for line in lines for p in calls(bench.read(line).records)}


def test_driver_and_untuned() -> None:
    chosen: list[Problem] = [gemm(), W]
    made = export(chosen, "driver")
    line = made.files[0].data.decode().strip()
    assert [p.text for p in calls(driver.read(line).records)] == [W.text]
    assert len(made.refused) == 1
    made = export(chosen, "untuned", CUDA)
    record = untuned.row(made.files[0].data.decode().strip())
    assert isinstance(record, Call)
    assert (made.count, len(made.files), len(made.refused)) == (1, 2, 1)
    assert export(chosen, "untuned").files == ()
    with pytest.raises(InputError, match="--to xml"):
        export(chosen, "xml")


def test_nothing_to_export(tmp_path: Path) -> None:
    assert export([], "bench").files == ()
    assert isinstance(W, ConvProblem)
