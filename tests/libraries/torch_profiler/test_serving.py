"""Tests that matrix products are recognised in traces of inference engines, which call them by operators of their own.

Real traces are compared with the reports that the tool TraceLens made of them.
"""

from __future__ import annotations

import csv
from collections import Counter
from typing import Any

import pytest

from logparse.libraries.torch_profiler.inputs import contiguous_strides
from logparse.libraries.torch_profiler.operators import operation
from logparse.libraries.torch_profiler.profiler import FORMAT
from logparse.libraries.torch_profiler.serving import PRODUCTS
from logparse.model import Call, ConvProblem, GemmProblem, Kernel
from tests.conftest import CORPUS, needs_corpus
from tests.libraries.reading import outcomes
from tests.libraries.reading import records as records_of_outcomes

BF16, FP8, INT8, FP32, U8 = "c10::BFloat16", "c10::Float8_e4m3fnuz", "signed char", "float", "unsigned char"


def gemm(name: str, inputs: list[tuple[str, list[int]]], values: dict[int, str] | None = None) -> GemmProblem:
    """Return the matrix product that logparse recognises in an operator with the given types and sizes of tensors.

    If the operator states the sizes of the weights (tensor ``w``) as K×N, they are column-major.
    """
    at = PRODUCTS[name]
    strides = [contiguous_strides(dims) for _, dims in inputs]
    if at.columns:
        strides[at.w] = [1, inputs[at.w][1][0]]
    found = operation(
        name,
        {
            "Input type": [kind for kind, _ in inputs],
            "Input Dims": [dims for _, dims in inputs],
            "Input Strides": strides,
            "Concrete Inputs": [(values or {}).get(i, "") for i in range(len(inputs))],
        },
    )
    assert found is not None
    (problem,) = found.problems
    assert isinstance(problem, GemmProblem)
    return problem


@pytest.mark.parametrize(
    ("name", "inputs", "values", "label", "rest"),
    [
        (
            "aiter::gemm_a16w16", [(BF16, [32, 4096]), (BF16, [6144, 4096]), ("", []), ("Scalar", [])], {3: "6"},
            "TN 6144×32×4096 bf16_r", {"d_type": "f32_r", "bias": False, "compute_type": "f32_r"},
        ),
        (
            "vllm::rocm_unquantized_gemm", [(BF16, [2, 16, 4096]), (BF16, [1024, 4096]), (BF16, [1024])], {},
            "TN 1024×32×4096 bf16_r", {"d_type": "bf16_r", "bias": None, "beta": None},
        ),
        (
            "aiter::gemm_a8w8_ck",
            [(INT8, [64, 512]), (INT8, [256, 512]), (FP32, [64, 1]), (FP32, [1, 256]), (BF16, [64, 256])], {},
            "TN 256×64×512 i8_r", {"scale_a": "row", "scale_b": "row", "compute_type": "i32_r", "d_type": "bf16_r"},
        ),
        (
            "aiter::gemm_a8w8_blockscale_bpreshuffle_ck",
            [(FP8, [64, 512]), (FP8, [256, 512]), (FP32, [64, 4]), (FP32, [2, 4]), (BF16, [64, 256])], {},
            "TN 256×64×512 f8_fnuz_r swizzled A block128/block128x128 scales",
            {"scale_a": "block128x128", "scale_b": "block128", "swizzle_a": True},
        ),
        (
            "vllm::rocm_aiter_triton_gemm_a8w8_blockscale",
            [(FP8, [64, 512]), (FP8, [256, 512]), (FP32, [64, 4]), (FP32, [2, 4])], {},
            "TN 256×64×512 f8_fnuz_r block128/block128x128 scales", {"d_type": None, "swizzle_a": None, "bias": False},
        ),
        (
            "aiter::gemm_a4w4", [(U8, [32, 2048]), (U8, [512, 2048]), (U8, [256, 128]), (U8, [512, 128])], {},
            "TN 512×32×4096 f4_r block32 scales",
            {"scale_a": "block32", "scale_b": "block32", "lda": 4096, "ldb": 4096},
        ),
        (
            "_C::cutlass_scaled_mm",
            [(BF16, [16, 128]), (FP8, [16, 64]), (FP8, [64, 128]), (FP32, [1]), (FP32, [1]), (BF16, [128])], {},
            "TN 128×16×64 f8_fnuz_r", {"scale_a": "scalar", "scale_b": "scalar", "bias": None, "d_type": "bf16_r"},
        ),
        (
            "sgl_kernel::fp8_scaled_mm",
            [(FP8, [16, 64]), (FP8, [64, 128]), (FP32, [16, 1]), (FP32, [128, 1]), ("Scalar", [])], {4: "15"},
            "TN 128×16×64 f8_fnuz_r", {"scale_a": "row", "scale_b": "row", "bias": False, "d_type": "bf16_r"},
        ),
    ],
)  # fmt: skip
def test_the_product_of_an_operator(
    name: str, inputs: list[tuple[str, list[int]]], values: dict[int, str], label: str, rest: dict[str, Any]
) -> None:
    problem = gemm(name, inputs, values)
    assert problem.label == label
    assert {key: getattr(problem, key) for key in rest} == rest


@pytest.mark.parametrize("name", list(PRODUCTS))
def test_inputs_that_are_missing_are_no_product(name: str) -> None:
    for dims, types in (([], []), ([[4, 8]], [BF16]), ([[], []], ["", ""]), ([[4, 8], [8]], [BF16, BF16])):
        strides = [[1] * len(one) for one in dims]
        assert operation(name, {"Input Dims": dims, "Input Strides": strides, "Input type": types}) is None


@needs_corpus
@pytest.mark.parametrize("name", ["mi300_resnet_train", "mi300_vit"])
def test_counts_and_times_equal_the_reference_report(name: str) -> None:
    """logparse finds the same numbers of calls and the same times as the tool TraceLens in the same trace."""
    # TraceLens includes every kernel that aten::convolution launches, even the addition of its bias. It counts a
    # backward operator once, although the operator may compute two gradients. Here each computed the gradient of the
    # weights, so the other gradient is not counted.
    folder = CORPUS / "tracelens"
    counts, times = Counter[str](), Counter[str]()
    with (folder / f"{name}.report.csv").open() as file:
        for row in csv.DictReader(file):
            counts[row["table"]] += int(row["count"])
            times[row["table"]] += float(row["kernel_us_sum"])
    records = records_of_outcomes(outcomes(FORMAT, folder / f"{name}.json.gz"))
    ours, us = Counter[str](), Counter[str]()
    for record in records:
        if isinstance(record, Call):
            again = isinstance(record.problem, ConvProblem) and record.problem.direction == "B"
            ours[_table(record.problem)] += 0 if again else record.count or 0
        elif isinstance(record, Kernel) and record.problem is not None:
            us[_table(record.problem)] += record.total_us
    bias = sum(r.total_us for r in records if isinstance(r, Kernel) and r.op == "aten::add_" and name == "mi300_vit")
    assert ours == counts
    assert {table: us[table] + (bias if table == "CONV_fwd" else 0) for table in us} == pytest.approx(times, abs=0.01)


def _table(problem: object) -> str:
    if isinstance(problem, ConvProblem):
        return "CONV_fwd" if problem.direction == "F" else "CONV_bwd"
    return "GEMM"
