"""Logs of cuBLASLt, cuBLAS and cuDNN of one job: counts, problems that agree, damage, logs of real programs."""

from __future__ import annotations

import gzip
import runpy
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from logparse.formats.format import BlockFormat, LineFormat
from logparse.formats.hipblaslt import log as lt_log
from logparse.formats.nvidia import cublas, cudnn
from logparse.formats.nvidia.cudnn import Operator, Tensor, convolution, plan
from logparse.links import linked
from logparse.model import Call, ConvProblem, Fact, GemmProblem, Message, Problem, Record, Reject
from tests import conftest
from tests.conftest import needs_corpus
from tests.formats.reading import read_lines

SAMPLES, CORPUS = conftest.SAMPLES / "nvidia", conftest.CORPUS / "nvidia"
MAKER = conftest.SAMPLES / "make_nvidia.py"
FORMATS: Sequence[LineFormat | BlockFormat] = (lt_log.FORMAT, cublas.FORMAT, cudnn.FORMAT)


def read(path: Path) -> tuple[list[Record], Counter[str]]:
    return read_lines(path.read_bytes(), FORMATS)


def calls(records: Sequence[Record]) -> list[Call]:
    return [record for record in records if isinstance(record, Call)]


def counted(records: Sequence[Record]) -> Counter[Problem]:
    return Counter(call.problem for call in calls(records))


def rejects(records: Sequence[Record]) -> list[str]:
    return [record.reason for record in records if isinstance(record, Reject)]


@pytest.fixture(scope="module")
def maker() -> dict[str, Any]:
    return runpy.run_path(str(MAKER))


def test_the_samples_are_what_their_maker_writes(tmp_path: Path) -> None:
    (tmp_path / MAKER.name).write_bytes(MAKER.read_bytes())
    assert "logparse " not in MAKER.read_text().replace("logparse, so", "")
    runpy.run_path(str(tmp_path / MAKER.name), run_name="__main__")
    made = {path.name: path.read_bytes() for path in (tmp_path / "nvidia").iterdir()}
    assert made == {path.name: path.read_bytes() for path in SAMPLES.iterdir() if path.suffix != ".md"}


def test_every_product_of_both_logs_is_counted(maker: dict[str, Any]) -> None:
    """Classic calls reach cuBLASLt's log by names with types, and cuBLAS's log with their arguments."""
    through_lt, units = read(SAMPLES / "cublaslt_5150.log")
    assert sorted(counted(through_lt).values()) == sorted(g.calls for g in maker["JOB"])
    assert (units["foreign"], units["reject"]) == (0, 0)
    through_cublas, units = read(SAMPLES / "cublas.log")
    assert sorted(counted(through_cublas).values()) == sorted(g.calls for g in maker["JOB"] if not g.epilogue)
    assert (units["foreign"], units["reject"]) == (0, 0)
    for problem, times in counted(through_cublas).items():
        (same,) = [other for other in counted(through_lt) if linked(problem, other)]
        assert linked(problem, same) == "layout"
        assert counted(through_lt)[same] == times


def test_types_strides_workspace_and_the_pick_of_a_trace_line() -> None:
    found = {call.problem.label: call for call in calls(read(SAMPLES / "cublaslt_5150.log")[0])}
    split = found["NN 512×300×256 f32_r"]
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


def test_a_call_of_cublas_names_its_process_and_device() -> None:
    records, _ = read(SAMPLES / "cublas.log")
    assert {(call.pid, call.device, call.category, call.solution) for call in calls(records)} == {
        (5150, 0, "cublas", None)
    }
    assert {fact.name: fact.value for fact in records if isinstance(fact, Fact)} == {
        "cublas_version": "13.1.0",
        "backend": "CUDA",
    }
    assert {m.function for m in records if isinstance(m, Message)} == {"cublasSetMathMode", "cublasSdot_v2"}


def test_tf32_is_what_the_handle_allows() -> None:
    found = [call.problem for call in calls(read(SAMPLES / "cublas.log")[0])]
    types = {(p.a_type, p.compute_type, p.scale_type) for p in found if isinstance(p, GemmProblem)}
    assert types == {
        ("bf16_r", "f32_r", "f32_r"), ("f16_r", "f32_r", "f32_r"), ("f32_r", "f32_r", "f32_r"),
        ("f32_r", "xf32_r", "f32_r"), ("f64_r", "f64_r", "f64_r"), ("f32_c", "xf32_r", "f32_c"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("function", "mode", "a_type", "compute"),
    [
        ("cublasSgemm_v2_64", None, "f32_r", "f32_r"),
        ("cublasHgemm", None, "f16_r", "f16_r"),
        ("cublasZgemm3m", None, "f64_c", "f64_r"),
        ("cublasCgemm3mStridedBatched", "strided", "f32_c", "f32_r"),
        ("cublasSgemmBatched", "pointer", "f32_r", "f32_r"),
        ("cublasGemmBatchedEx", "pointer", "bf16_r", "f32_r"),
        ("cublasGemmEx_64", None, "bf16_r", "f32_r"),
        ("cublasSgemmEx", None, "bf16_r", "f32_r"),
    ],
)
def test_names_of_classic_products(function: str, mode: str | None, a_type: str, compute: str) -> None:
    text = (SAMPLES / "cublas.log").read_text().split("I! cuBLAS")
    block = next(x for x in text if "cublasGemmStridedBatchedEx" in x if "CUDA_R_16BF" in x)
    lines = ("I! cuBLAS" + block).replace("cublasGemmStridedBatchedEx", function).splitlines(keepends=True)
    drop = [] if "Ex" in function else ["Atype", "Btype", "Ctype", "computeType"]
    drop += ["computeType"] if function == "cublasSgemmEx" else []
    drop += [] if mode == "strided" else ["strideA", "strideB", "strideC"]
    drop += [] if mode else ["batchCount"]
    kept = "".join(line for line in lines if not any(f" {word}:" in line for word in drop))
    (call,) = calls(read_lines(kept, FORMATS)[0])
    assert isinstance(call.problem, GemmProblem)
    assert (call.problem.a_type, call.problem.compute_type) == (a_type, compute)
    assert call.problem.normal.batch_mode == mode
    assert call.problem.stride_a == (8192 if mode == "strided" else None)


def test_a_damaged_log_of_cublas() -> None:
    records, units = read(SAMPLES / "cublas_damaged.log")
    assert rejects(records) == ["cublasGemmEx: no ldb"]
    assert len(calls(records)) == 2
    assert units["foreign"] == 1  # "step 3 loss …", inside a block
    lost = [m for m in records if isinstance(m, Message) and "no end" in m.text]
    assert [m.function for m in lost] == ["cublasGemmEx"] * 2


# ---------------------------------------------------------------------------------------------------------- cuDNN


def test_executed_convolutions_are_counted(maker: dict[str, Any]) -> None:
    backend, units = read(SAMPLES / "cudnn_level3.log")
    assert (units["foreign"], units["reject"], units["call"]) == (0, 0, len(calls(backend)))
    assert sum(counted(backend).values()) == 3 * sum(3 - i % 3 for i in range(len(maker["CONVS"])))


def test_a_convolution_in_forward_terms() -> None:
    found = {call.problem.label: call for call in calls(read(SAMPLES / "cudnn_level3.log")[0])}
    call = found["W 8×64×56×56 k128 3×3 s2 FP16 NHWC"]
    p = call.problem
    assert isinstance(p, ConvProblem)
    assert (p.n, p.c, p.h, p.w, p.k, p.out_h, p.out_w, p.groups, p.bias, p.mode) == (
        8, 64, 56, 56, 128, 28, 28, 1, 0, "convolution"
    )  # fmt: skip
    assert call.solution is not None
    assert call.solution.text == "cudnn:eng68_k2=7_k13=0_k18=1_k25=0_k27=1_k28=2"
    assert (call.pid, call.device) == (5150, 0)
    groups = {q.groups: q.in_layout for q in (c.problem for c in found.values()) if isinstance(q, ConvProblem)}
    assert groups[96] == "NCHW"
    one_by_one = next(q for q in (c.problem for c in found.values()) if isinstance(q, ConvProblem) and q.filter_h == 1)
    assert one_by_one.weights_layout == "NHWC"  # its strides alone fit both: the other tensors decide


def test_warnings_are_messages() -> None:
    records, units = read(SAMPLES / "cudnn_level2.log")
    messages = Counter((m.function, m.text.partition(";")[0]) for m in records if isinstance(m, Message))
    assert messages == {
        ("cudnnBackendFinalize", "Warning: CUDNN_STATUS_SUCCESS"): 1,
        ("cudnnBackendExecute", "Warning: CUDNN_STATUS_NOT_SUPPORTED"): 8,
    }
    assert not units["foreign"]


def test_a_damaged_log_of_cudnn() -> None:
    records, _ = read(SAMPLES / "cudnn_damaged.log")
    assert rejects(records) == [
        "cudnnBackendExecute: the tensors do not fit the convolution",
        "cudnnBackendExecute: no strideA",
    ]
    assert len(calls(records)) == 1


X, W = Tensor("HALF", [2, 6, 8, 8], [384, 64, 8, 1]), Tensor("HALF", [4, 6, 3, 3], [54, 9, 3, 1])


def test_padding_before_and_after() -> None:
    y = Tensor("HALF", [2, 4, 7, 8], [224, 56, 8, 1])
    found = convolution("F", X, W, y, Operator([0, 1], [1, 1], [1, 1], [1, 1], True))
    assert (found.pad_h, found.pad_w, found.out_h) == (None, 1, 7)
    assert convolution("F", X, W, y, Operator([0, 1], [1, 1], [1, 1], [1, 1], False)).mode is None
    with pytest.raises(ValueError, match="do not fit"):
        convolution("F", X, W, y, Operator([1, 1], [1, 1], [1, 1], [1, 1], True))


def test_knobs_are_named_by_their_numbers() -> None:
    assert plan("3", {"WORKSPACE": "1", "TILE_SIZE": "5"}).text == "cudnn:eng3_k2=5_k25=1"
    assert plan("3", {"OF_A_LATER_VERSION": "1", "STAGES": "2"}).text == "cudnn:eng3_k14=2_kOF_A_LATER_VERSION=1"


def test_foreign_lines_stay_foreign() -> None:
    text = "i! no block is open\nW! CuDNN is what the paper uses\n at: home\n"
    records, units = read_lines(text, FORMATS)
    assert (records, units) == ([], Counter(foreign=3))


# ---------------------------------------------------------------------------------------- logs of real programs


@needs_corpus
@pytest.mark.parametrize(
    ("name", "times", "distinct"),
    [
        ("cublaslt_mask31_torch_default.log", 27, 25),  # one 8-bit product is scaled by one factor and per row
        ("cublas_log_torch2.11.log", 18, 16),
    ],
)
def test_real_logs(name: str, times: int, distinct: int) -> None:
    records, units = read(CORPUS / name)
    assert (len(calls(records)), len(counted(records))) == (times, distinct)
    assert (units["reject"], units["foreign"]) == (0, 0)


@needs_corpus
def test_every_classic_call_of_a_real_program_is_in_both_logs() -> None:
    lt = counted(read(CORPUS / "cublaslt_mask31_torch_default.log")[0])
    classic = counted(read(CORPUS / "cublas_log_torch2.11.log")[0])
    assert all([linked(p, other) for other in lt if linked(p, other)] == ["layout"] for p in classic)


@needs_corpus
@pytest.mark.nightly
def test_a_real_log_of_level_3() -> None:
    records, units = read_lines(gzip.decompress((CORPUS / "cudnn_level3.log.gz").read_bytes()), FORMATS)
    assert len({(c.problem, c.solution) for c in calls(records)}) == 57
    assert Counter(getattr(c.problem, "direction", None) for c in calls(records)) == {"F": 20, "B": 19, "W": 18}
    assert {(c.pid, c.device) for c in calls(records)} == {(494, 0)}
    assert (units["call"], units["reject"], units["foreign"]) == (57, 0, 0)
