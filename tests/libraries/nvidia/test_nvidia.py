"""Tests of reading cuBLASLt's log: the number of calls, the properties of a call, and the log of a real program."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from logparse.libraries.hipblaslt import log as lt_log
from logparse.model import Call, GemmProblem, Problem, Record, Reject
from tests import conftest
from tests.conftest import needs_corpus
from tests.libraries.reading import read_lines

SAMPLES, CORPUS = conftest.SAMPLES / "nvidia", conftest.CORPUS / "nvidia"
MAKER = conftest.SAMPLES / "make_nvidia.py"


def read(path: Path) -> tuple[list[Record], Counter[str]]:
    return read_lines(path.read_bytes(), (lt_log.FORMAT,))


def calls(records: Sequence[Record]) -> list[Call]:
    return [record for record in records if isinstance(record, Call)]


def counted(records: Sequence[Record]) -> Counter[Problem]:
    return Counter(call.problem for call in calls(records))


@pytest.fixture(scope="module")
def maker() -> dict[str, Any]:
    return runpy.run_path(str(MAKER))


def test_every_product_is_counted(maker: dict[str, Any]) -> None:
    """Every matrix product in a cuBLASLt log is counted, including calls of cuBLAS's older functions.

    Those are logged with function names that state the data types.
    """
    records, units = read(SAMPLES / "cublaslt_5150.log")
    assert sorted(counted(records).values()) == sorted(g.calls for g in maker["JOB"])
    assert (units["foreign"], units["reject"]) == (0, 0)


def test_a_log_whose_lines_have_no_time_is_read_alike(tmp_path: Path) -> None:
    """Older versions of cuBLASLt write no time before ``[cublasLt]``."""
    timed = (SAMPLES / "cublaslt_5150.log").read_text()
    untimed = re.sub(r"^\[[^]]*\](?=\[cublasLt\])", "", timed, flags=re.MULTILINE)
    assert untimed.startswith("[cublasLt][")
    (tmp_path / "untimed.log").write_text(untimed)
    records, units = read(tmp_path / "untimed.log")
    assert sum(counted(records).values()) > 0
    assert counted(records) == counted(read(SAMPLES / "cublaslt_5150.log")[0])
    assert (units["foreign"], units["reject"]) == (0, 0)


def test_a_line_whose_time_is_cut_is_rejected(tmp_path: Path) -> None:
    line = (SAMPLES / "cublaslt_5150.log").read_text().partition("\n")[0]
    (tmp_path / "cut.log").write_text(line[9:] + "\n")
    assert read(tmp_path / "cut.log")[1]["reject"] == 1


def test_types_strides_workspace_and_the_pick_of_a_trace_line() -> None:
    found = {call.problem.label: call for call in calls(read(SAMPLES / "cublaslt_5150.log")[0])}
    split = found["NN 512×300×256 f32_r 132 SMs"]
    assert (split.workspace_bytes, split.solution and split.solution.text) in [
        (3933519, "cublaslt:id=55,tile=64x64,stages=8x3,splitk=4,reduction=COMPUTE_TYPE"),
        (0, "cublaslt:id=55,tile=64x64,stages=8x3"),
    ]
    (batch,) = [call.problem for label, call in found.items() if "f64_r" in label]
    assert isinstance(batch, GemmProblem)
    assert (batch.batch_count, batch.batch_mode, batch.stride_a, batch.stride_b, batch.stride_d) == (
        6, "strided", 6144, 2560, 3840
    )  # fmt: skip
    assert (batch.compute_type, batch.trans_a, batch.lda) == ("f64_r", "N", 96)


# ------------------------------------------------------------------------------------------------- memory orders


ROW = " order=ORDER_ROW"


def ordered(dtype: str = "R_32F", trans: str = "", epilogue: str = "", **order: str) -> str:
    """Return a Trace line of a 32×64×16 product.  ``order`` has the text of the order by the name of the matrix."""
    shapes = {"A": (16, 32) if trans else (32, 16), "B": (16, 64), "C": (32, 64), "D": (32, 64)}
    descs = []
    for x, (rows, cols) in shapes.items():
        text = f"type={dtype} rows={rows} cols={cols} ld={cols if order.get(x) == ROW else rows}{order.get(x, '')}"
        descs.append(f"{x}=0X0 {x}desc=[{text}]")
    compute = f"computeDesc=[computeType=COMPUTE_32F scaleType=R_32F{trans}{epilogue}]"
    tail = "algo=[algoId=39] workSpace=0X0 workSpaceSizeInBytes=0 beta=0 stream=0X0"
    return f"[2026-11-21 05:15:08][cublasLt][588][Trace][cublasLtMatmul] {' '.join(descs)} {compute} {tail}"


def product(line: str) -> tuple[object, ...]:
    (call,) = calls(read_lines(line.encode(), (lt_log.FORMAT,))[0])
    gemm = call.problem
    assert isinstance(gemm, GemmProblem)
    return gemm.trans_a, gemm.trans_b, gemm.m, gemm.n, gemm.k, gemm.lda, gemm.ldb, gemm.ldd


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (ordered(A=" order=ORDER_COL"), ("N", "N", 32, 64, 16, 32, 16, 32)),
        (ordered(A=ROW), ("T", "N", 32, 64, 16, 16, 16, 32)),
        (ordered(B=ROW), ("N", "T", 32, 64, 16, 32, 64, 32)),
        (ordered(trans=" transa=OP_T", A=ROW), ("N", "N", 32, 64, 16, 32, 16, 32)),
        (ordered(trans=" transa=OP_C", A=ROW), ("N", "N", 32, 64, 16, 32, 16, 32)),
        # Dᵀ is 64×32, and its first operand is B.
        (ordered(A=ROW, B=ROW, C=ROW, D=ROW), ("N", "N", 64, 32, 16, 64, 16, 64)),
        (ordered(A=ROW, C=ROW, D=ROW), ("T", "N", 64, 32, 16, 16, 16, 64)),
        (ordered(C=ROW, D=ROW), ("T", "T", 64, 32, 16, 16, 32, 64)),
    ],
)
def test_a_matrix_that_is_stored_row_by_row_is_a_transposed_matrix(line: str, wanted: tuple[object, ...]) -> None:
    assert product(line) == wanted


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (ordered(A=" order=ORDER_COL32"), "order=ORDER_COL32"),
        (ordered(D=ROW), "C and D have different memory orders"),
        (ordered(C=ROW, D=ROW, epilogue=" epilogue=EPILOGUE_BIAS"), "a vector (bias or alpha)"),
        (ordered("C_32F", trans=" transa=OP_C", A=ROW), "conjugated but not transposed"),
    ],
)
def test_a_memory_order_without_a_usual_product_is_rejected(line: str, reason: str) -> None:
    records, units = read_lines(line.encode(), (lt_log.FORMAT,))
    (reject,) = records
    assert isinstance(reject, Reject)
    assert reason in reject.reason
    assert units["reject"] == 1


# ---------------------------------------------------------------------------------------- logs of real programs


@needs_corpus
def test_a_real_log_of_cublaslt() -> None:
    records, units = read(CORPUS / "cublaslt_mask31_torch_default.log")
    assert (len(calls(records)), len(counted(records))) == (27, 25)  # one 8-bit product is scaled in two ways
    assert (units["reject"], units["foreign"]) == (0, 0)
