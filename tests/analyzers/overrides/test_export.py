"""Exported problems come back as the same problems when their own reader reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from analyzers.analyzer import Tables
from analyzers.overrides.export import export, select
from logparse.errors import InputError
from logparse.formats.hipblaslt import bench, profile
from logparse.formats.miopen import driver
from logparse.formats.tunableop import untuned
from logparse.ingest import ingest
from logparse.model import Call, ConvProblem, GemmProblem, Member, Problem
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
    assert [(p.text, n) for p, n in select(t)] == [(gemm(8).text, 9), (gemm().text, 7), (W.text, None)]
    assert [n for _, n in select(t, kind="gemm", n=1)] == [9]


def test_bench_and_yaml_come_back(run: Tables) -> None:
    chosen = select(run)
    known = {p.text for p, _ in chosen if isinstance(p, GemmProblem) and not p.members and "?" not in p.text}
    assert len(known) > 5
    for as_, read in (("bench", bench.read), ("yaml", profile.read)):
        made = export(chosen, as_)
        lines = made.files[0].data.decode().splitlines()
        assert made.count == len(lines)
        back = {p.text for line in lines for p in calls(read(line).records)}
        assert known <= back
    items = yaml.safe_load(export(chosen, "yaml").files[0].data)
    assert all(item["function"] == "matmul" for item in items)
    grouped = GemmProblem(members=(Member(m=8, n=8, k=8), Member(m=8, n=16, k=8)), trans_a="N", a_type="f16_r")
    assert next(iter(export([(grouped, 1)], "yaml").refused)).startswith("no profile record without")


def test_profile_samples_come_back_as_text() -> None:
    lines = (SAMPLES / "hipblaslt/profile_4242.log").read_text().splitlines()
    for line in lines:
        [call] = [x for x in profile.read(line).records if isinstance(x, Call)]
        assert isinstance(call.problem, GemmProblem)
        again = profile.read(profile.record(call.problem, call.count or 0)).records[0]
        assert isinstance(again, Call)
        assert (again.problem.text, again.count) == (call.problem.text, call.count)


def test_golden_record() -> None:
    assert profile.record(gemm(), 8) == (
        "- { function: matmul, M: 4096, N: 512, K: 1024, lda: 1024, ldb: 1024, ldc: 4096, ldd: 4096, stride_a: 0, "
        "stride_b: 0, stride_c: 0, stride_d: 0, alpha: 1.000000, beta: 0.000000, transA: T, transB: N, batch_count: 1, "
        "scaleA: 0, scaleB: 0, scaleC: 0, scaleD: 0, swizzleA: false, swizzleB: false, scaleAlpha_vector: false, "
        "gradient: false, use_e: false, bias_vector: false, bias_source: d, a_type: bf16_r, b_type: bf16_r, "
        "c_type: bf16_r, d_type: bf16_r, scale_type: f32_r, compute_type: c_f32_r, activation_type: none, "
        "call_count: 8 }"
    )


def test_driver_and_untuned() -> None:
    chosen: list[tuple[Problem, int | None]] = [(gemm(), 3), (W, None)]
    made = export(chosen, "driver")
    line = made.files[0].data.decode().strip()
    assert [p.text for p in calls(driver.read(line).records)] == [W.text]
    assert len(made.refused) == 1
    made = export(chosen, "untuned", CUDA)
    record = untuned.row(made.files[0].data.decode().strip())
    assert isinstance(record, Call)
    assert (made.count, len(made.files), len(made.refused)) == (1, 2, 1)
    assert export(chosen, "untuned").files == ()
    with pytest.raises(InputError, match="--as xml"):
        export(chosen, "xml")


def test_nothing_to_export(tmp_path: Path) -> None:
    assert export([], "bench").files == ()
    assert isinstance(W, ConvProblem)
