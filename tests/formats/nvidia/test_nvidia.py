"""Logs of cuBLASLt and cuDNN of one job: counts, damage, logs of real programs."""

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
from logparse.formats.nvidia import cudnn
from logparse.formats.nvidia.cudnn import Operator, Tensor, convolution, plan
from logparse.model import Call, ConvProblem, GemmProblem, Problem, Record
from tests import conftest
from tests.conftest import needs_corpus
from tests.formats.reading import read_lines

SAMPLES, CORPUS = conftest.SAMPLES / "nvidia", conftest.CORPUS / "nvidia"
MAKER = conftest.SAMPLES / "make_nvidia.py"
FORMATS: Sequence[LineFormat | BlockFormat] = (lt_log.FORMAT, cudnn.FORMAT)


def read(path: Path) -> tuple[list[Record], Counter[str]]:
    return read_lines(path.read_bytes(), FORMATS)


def calls(records: Sequence[Record]) -> list[Call]:
    return [record for record in records if isinstance(record, Call)]


def counted(records: Sequence[Record]) -> Counter[Problem]:
    return Counter(call.problem for call in calls(records))


@pytest.fixture(scope="module")
def maker() -> dict[str, Any]:
    return runpy.run_path(str(MAKER))


def test_every_product_is_counted(maker: dict[str, Any]) -> None:
    """Classic calls of cuBLAS reach cuBLASLt's log by names with types."""
    records, units = read(SAMPLES / "cublaslt_5150.log")
    assert sorted(counted(records).values()) == sorted(g.calls for g in maker["JOB"])
    assert (units["foreign"], units["reject"]) == (0, 0)


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
def test_a_real_log_of_cublaslt() -> None:
    records, units = read(CORPUS / "cublaslt_mask31_torch_default.log")
    assert (len(calls(records)), len(counted(records))) == (27, 25)  # one 8-bit product is scaled in two ways
    assert (units["reject"], units["foreign"]) == (0, 0)


@needs_corpus
@pytest.mark.nightly
def test_a_real_log_of_level_3() -> None:
    records, units = read_lines(gzip.decompress((CORPUS / "cudnn_level3.log.gz").read_bytes()), FORMATS)
    assert len({(c.problem, c.solution) for c in calls(records)}) == 57
    assert Counter(getattr(c.problem, "direction", None) for c in calls(records)) == {"F": 20, "B": 19, "W": 18}
    assert {(c.pid, c.device) for c in calls(records)} == {(494, 0)}
    assert (units["call"], units["reject"], units["foreign"]) == (57, 0, 0)
