"""Tests of remarks that calls may be counted twice, because logs do not state which process wrote them.

A remark names calls that are added up, calls that are left out, or files that may be the same log twice.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from analyzers.findings.completeness import missing
from analyzers.job.double_counts import remarks_of
from logparse.cli import app
from logparse.ingest import ingest
from logparse.store import Store
from tests.conftest import SAMPLES

RANK0, RANK1 = "hipblaslt/hipblaslt_rank0_4242.log", "hipblaslt/hipblaslt_rank1_4243.log"
ADDED, LEFT_OUT, ALIKE = "are the sum of 2 logs that do not name their process", "are not counted", "have the same size"
BESIDE = "added to the 122 of 1 known process (bench)"


@pytest.mark.parametrize(
    ("samples", "wanted"),
    [
        ({"a.log": RANK0}, []),
        ({"a_4242.log": RANK0, "b_4243.log": RANK1}, []),
        ({"a_4242.log": RANK0, "profile_4242.log": "hipblaslt/profile_4242.log"}, [LEFT_OUT]),
        ({"a.log": "hipblaslt/trace_4242.log", "profile_4242.log": "hipblaslt/profile_4242.log"}, [LEFT_OUT]),
        ({"a.log": RANK0, "b.log": RANK0}, [ADDED, ALIKE]),
        ({"a_4242.log": RANK0, "b_4242.log": RANK0}, [ALIKE]),
        ({"a.log": RANK0, "b.log": "hipblaslt/profile_4242.log"}, [LEFT_OUT]),
        ({"a_4242.log": RANK0, "b.log": RANK0}, [BESIDE]),
        ({"a_4242.log": RANK0, "v.log": "tunableop/tunableop_verbose.log"}, [BESIDE]),
        ({"a_4242.log": RANK0, "m.log": "miopen/miopen_cmd_4242.log"}, []),
        ({"out.txt": "hipblaslt/bench_output.txt", "a.log": RANK0}, []),
    ],
)
def test_what_is_unknown_is_reported(store: Store, tmp_path: Path, samples: dict[str, str], wanted: list[str]) -> None:
    for name, sample in samples.items():
        shutil.copy(SAMPLES / sample, tmp_path / name)
    ingest([str(tmp_path / name) for name in samples], store, run="run")
    said = remarks_of(store, "run")
    assert len(said) == len(wanted), said
    assert all(part in line for part, line in zip(wanted, said, strict=True)), said
    assert set(said) <= set(missing(store)), "status states it, too"


def test_what_graphs_ran_without_a_name_is_in_no_row(store: Store) -> None:
    ingest([str(SAMPLES / "graph" / "decode.trace.json")], store, run="run")
    remark = (
        "the calls of 34 µs of 133 µs of GPU time in the traces are not counted, because CUDA or HIP graphs launched "
        "their kernels, and no trace names"
    )
    (line,) = remarks_of(store, "run")
    assert line.startswith(remark)


def test_rocblas_calls_beside_hipblaslt_calls_are_not_counted(store: Store, tmp_path: Path) -> None:
    """If one log has calls of rocBLAS and of hipBLASLt, only hipBLASLt's calls are counted, and a remark says so.

    rocBLAS may pass its calls on to hipBLASLt. Then the log has each call twice.
    """
    lines = [line for line in (SAMPLES / RANK0).read_text().splitlines() if line.startswith("hipblaslt-bench ")]
    own = "./rocblas-bench -f gemm_ex --transposeA T --transposeB T -m 96 -n 64 -k 128 --alpha 1 --a_type bf16_r"
    own += " --lda 128 --b_type bf16_r --ldb 64 --beta 0 --c_type bf16_r --ldc 96 --d_type bf16_r --ldd 96"
    own += " --compute_type f32_r --algo 0 --solution_index 0 --flags 0"
    (tmp_path / "job_77.log").write_text("\n".join([*lines, own, own, ""]))
    ingest([str(tmp_path / "job_77.log")], store, run="run")
    (remark,) = remarks_of(store, "run")
    assert remark.startswith(
        "2 GEMM calls of job_77.log: rocblas_bench are not counted, because job_77.log: bench hold the same calls: "
    )


def test_where_the_numbers_are_shown(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.log", "b.log"):
        shutil.copy(SAMPLES / RANK0, tmp_path / name)
    ingest([str(tmp_path / "a.log"), str(tmp_path / "b.log")], store, run="run")
    for words in (["top"], ["coverage", str(SAMPLES / "hipblaslt/tuning_7.0.txt")]):
        with pytest.raises(SystemExit) as end:
            app([*words, "--store", store.url])
        assert end.value.code == 0
        assert f"note: 244 GEMM calls {ADDED}" in capsys.readouterr().out
