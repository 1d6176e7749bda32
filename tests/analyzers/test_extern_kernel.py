"""The library's kernel against those that torch.compile generates: who won, and what a call loses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analyzers import extern_kernel
from analyzers.analyzer import Settings, Tables
from analyzers.recommend.ranking import recommend
from logparse.ingest import ingest
from logparse.model import Finding
from logparse.store import Store
from tests.analyzers.build import measurement, tables, work
from tests.analyzers.example import gemm
from tests.analyzers.ingested import bench, read, tables_of
from tests.conftest import CORPUS, needs_corpus

ONE, TWO, THREE = gemm(4096), gemm(2048), gemm(77)
TABLE = """AUTOTUNE mm(512x8192, 8192x4096)
strides: [8192, 1], [1, 8192]
dtypes: torch.bfloat16, torch.bfloat16
  triton_mm_4 0.0400 ms 100.0% ACC_TYPE='tl.float32', BLOCK_K=64, BLOCK_M=128, BLOCK_N=128, num_stages=2, num_warps=8
  mm 0.0500 ms 80.0%
SingleProcess AUTOTUNE benchmarking takes 0.2897 seconds and 4.0169 seconds precompiling for 2 choices
"""


def row(problem: str, solution: str, us: float | None, source: str = "m") -> dict[str, object]:
    return measurement(problem, solution, us, origin="inductor", source_id=source)


def planted() -> Tables:
    """Triton wins one product, the library another; of a third only the library's time is there."""
    rows = [
        row(ONE.text, "triton:mm,BLOCK_M=128", 40.0),
        row(ONE.text, "triton:mm,BLOCK_M=64", 44.0),
        row(ONE.text, "aten:mm", 50.0),
        row(ONE.text, "ck:x", None),
        row(TWO.text, "aten:mm", 30.0),
        row(TWO.text, "triton:mm,BLOCK_M=128", 33.0),
        row(THREE.text, "aten:mm", 9.0),
    ]
    return tables(measurements=rows, workload=[work(ONE.text, 12), work(TWO.text, 12)])


def about(found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.problem is not None]


def test_a_run_of_other_calls_has_no_remark() -> None:
    """Another run's tables are of products that this one never calls."""
    given = planted()
    elsewhere = given.measurements.assign(run="tuned")
    assert extern_kernel.find(replace(given, measurements=elsewhere), Settings())
    other = tables(measurements=[], workload=[work(gemm(5).text, 12)]).workload
    assert extern_kernel.find(replace(given, measurements=elsewhere, workload=other), Settings()) == []


def test_who_won_and_what_a_call_loses() -> None:
    summary, lost = extern_kernel.find(planted(), Settings())
    assert summary.message == (
        "torch.compile timed 2 products beside the library's kernel, which won 1; it lost 1 (triton 1): it took 25.0% "
        "longer (median), at most 25.0%; of 1 more one side is not among the rows that the tables print."
    )
    assert (lost.problem, lost.calls, lost.per_call_us, lost.saving_us) == (ONE.normal, 12, 10.0, None)
    assert (lost.evidence.pick, lost.evidence.best) == ("aten:mm", "triton:mm,BLOCK_M=128")
    assert lost.message == "the library's aten:mm takes 50 µs, a Triton kernel of torch.compile 40 µs"


@pytest.mark.parametrize(("other", "loss"), [(41.0, 1.0), (47.0, None), (40.05, None)])
def test_of_several_files_the_least_loss_counts_and_the_last_digit_is_none(other: float, loss: float | None) -> None:
    rows = [row(ONE.text, "triton:a", 40.0, "x"), row(ONE.text, "aten:mm", other, "x")]
    more = [row(ONE.text, "triton:a", 40.0, "y"), row(ONE.text, "aten:mm", 50.0, "y")] if loss else []
    found = about([*extern_kernel.find(tables(measurements=rows + more), Settings())])
    assert [finding.per_call_us for finding in found] == ([loss] if loss else [7.0] if other == 47.0 else [])


def test_an_eager_job_beside_the_tables_of_a_compiled_one(store: Store, tmp_path: Path) -> None:
    """The better kernel is known for the calls of the log, through the link of the two problems."""
    given = read(store, tmp_path, {"autotune.err": TABLE, "job.log": bench(4096, 512, 8192, count=7)})
    (found,) = about([*extern_kernel.find(given, Settings())])
    assert (found.calls, round(found.per_call_us or 0, 3), found.saving_us) == (7, 10.0, None)
    kept = [finding for finding in recommend(given, Settings()).findings if finding.analyzer == extern_kernel.NAME]
    assert [finding.problem for finding in kept] == [found.problem]
    assert "max-autotune" in (kept[0].advice or "")


@needs_corpus
def test_a_real_log_of_torch_2_11(store: Store) -> None:
    ingest([str(CORPUS / "nvidia" / "inductor_autotune_torch2.11.err")], store)
    (summary,) = extern_kernel.find(tables_of(store), Settings())
    # Of four tables none of the ten rows is the library's; one product is a tie within the last digit.
    shown = {name: summary.evidence[name] for name in ("products", "extern_won", "extern_lost", "alone")}
    assert shown == {"products": 3, "extern_won": 2, "extern_lost": 0, "alone": 4}
