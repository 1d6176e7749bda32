"""Tests of how matrix products and convolutions are recognised from PyTorch's operators in a trace.

The products are compared with what PyTorch's TunableOp wrote for the same calls.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logparse.libraries.torch_profiler.inputs import Backend
from logparse.libraries.torch_profiler.operators import OPERATORS, operation
from logparse.model import ConvProblem, GemmProblem

NAMES = {"float": "float", "half": "c10::Half", "bf16": "c10::BFloat16"}


def args(types: list[str], dims: list[Any], strides: list[Any], values: list[str] | None = None) -> dict[str, Any]:
    return {
        "Input type": types,
        "Input Dims": dims,
        "Input Strides": strides,
        "Concrete Inputs": values or [""] * len(types),
    }


def gemm(name: str, *rest: Any) -> GemmProblem:
    found = operation(name, args(*rest))
    assert found is not None
    (problem,) = found.problems
    assert isinstance(problem, GemmProblem)
    return problem


def row(p: GemmProblem) -> str:
    """Return the part of TunableOp's text for a matrix product that states its sizes.

    An example is ``tn_64_32_96_ld_96_96_64``.
    """
    letters = f"{p.trans_a}{p.trans_b}".lower()
    batch = f"_B_{p.batch_count}" if p.batch_count != 1 else ""
    return f"{letters}_{p.m}_{p.n}_{p.k}{batch}_ld_{p.lda}_{p.ldb}_{p.ldc}"


@pytest.mark.parametrize(
    ("name", "kind", "dims", "strides", "expected"),
    [
        ("mm", "float", [[512, 2048], [2048, 1024]], [[2048, 1], [1024, 1]], "nn_1024_512_2048_ld_1024_2048_1024"),
        ("linear", "float", [[100, 20], [200, 20]], [[20, 1], [20, 1]], "tn_200_100_20_ld_20_20_200"),
        ("linear", "bf16", [[4, 25, 64], [96, 64], [96]], [[1600, 64, 1], [64, 1], [1]], "tn_96_100_64_ld_64_64_96"),
        ("mm", "half", [[48, 64], [64, 80]], [[1, 48], [80, 1]], "nt_80_48_64_ld_80_48_80"),
        ("mm", "half", [[48, 64], [64, 80]], [[1, 48], [1, 64]], "tt_80_48_64_ld_64_48_80"),
        ("mm", "half", [[48, 64], [64, 80], [48, 80]], [[64, 1], [80, 1], [1, 48]], "tt_48_80_64_ld_64_80_48"),
        ("bmm", "bf16", [[6, 48, 64], [6, 64, 80]], [[3072, 64, 1], [5120, 80, 1]], "nn_80_48_64_B_6_ld_80_64_80"),
        ("bmm", "bf16", [[6, 32, 16], [6, 16, 40]], [[512, 16, 1], [640, 1, 16]], "tn_40_32_16_B_6_ld_16_16_40"),
        ("bmm", "bf16", [[1, 32, 16], [1, 16, 40]], [[512, 16, 1], [640, 1, 16]], "tn_40_32_16_ld_16_16_40"),
        ("mm", "bf16", [[48, 64], [64, 80]], [[256, 1], [512, 1]], "nn_80_48_64_ld_512_256_80"),
        ("mm", "bf16", [[48, 64], [64, 80]], [[256, 2], [512, 3]], "nn_80_48_64_ld_80_64_80"),  # copied first
    ],
)
def test_problem_is_what_the_library_is_asked(
    name: str, kind: str, dims: list[Any], strides: list[Any], expected: str
) -> None:
    assert row(gemm(f"aten::{name}", [NAMES[kind]] * len(dims), dims, strides)) == expected


@given(
    st.integers(2, 64),
    st.integers(2, 64),
    st.integers(2, 64),
    st.booleans(),
    st.booleans(),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_leading_dimensions_fit_the_letters(r: int, c: int, k: int, lt: bool, rt: bool, lp: int, rp: int) -> None:
    left = [1, r + lp] if lt else [k + lp, 1]
    right = [1, k + rp] if rt else [c + rp, 1]
    p = gemm("aten::mm", ["float"] * 2, [[r, k], [k, c]], [left, right])
    assert (p.m, p.n, p.k) == (c, r, k)
    assert (p.trans_a, p.lda) == (("T", k + rp) if rt else ("N", c + rp))
    assert (p.trans_b, p.ldb) == (("T", r + lp) if lt else ("N", k + lp))
    assert (p.lda or 0) >= (p.k if p.trans_a == "T" else p.m or 0)


def test_only_what_is_certain_is_filled() -> None:
    mm = gemm("aten::mm", ["c10::BFloat16"] * 2, [[48, 64], [64, 80]], [[64, 1], [80, 1]])
    assert (mm.bias, mm.beta, mm.compute_type, mm.activation) == (False, "zero", "f32_r", "none")
    assert "?" not in mm.text
    shapes = ["float"] * 3, [[80], [48, 64], [64, 80]], [[1], [64, 1], [80, 1]]
    addmm = gemm("aten::addmm", *shapes, ["", "", "", "1", "1"])
    assert (addmm.bias, addmm.beta, addmm.compute_type) == (None, None, None)
    assert gemm("aten::addmm", *shapes, ["", "", "", "0", "1"]).beta == "zero"
    scores = ["float"] * 3, [[6, 48, 80], [6, 48, 64], [6, 64, 80]], [[3840, 80, 1], [3072, 64, 1], [5120, 80, 1]]
    assert gemm("aten::baddbmm", *scores, ["", "", "", "1", "1"]).beta == "nonzero"
    complex_ = gemm("aten::mm", ["c10::complex<float>"] * 2, [[48, 64], [64, 80]], [[1, 48], [80, 1]])
    assert (complex_.trans_a, complex_.trans_b) == ("N", None)  # a conjugate view looks the same


def test_scaled_mm() -> None:
    fp8 = ["c10::Float8_e4m3fn", "c10::Float8_e5m2", "float", "float", "c10::BFloat16", "", "Scalar", "Scalar"]
    dims = [[16, 64], [64, 32], [16, 1], [], [32], [], [], []]
    strides = [[64, 1], [1, 64], [1, 1], [], [1], [], [], []]
    p = gemm("aten::_scaled_mm", fp8, dims, strides, ["", "", "", "", "", "", "15", "False"])
    assert row(p) == "tn_32_16_64_ld_64_64_32"
    assert (p.a_type, p.b_type, p.d_type) == ("bf8_r", "f8_r", "bf16_r")
    assert (p.scale_a, p.scale_b, p.bias, p.bias_type) == ("scalar", "row", True, "bf16_r")


def conv(name: str, types: list[str], dims: list[Any], strides: list[Any], values: list[str]) -> list[ConvProblem]:
    rest = len(values) - len(dims)
    found = operation(name, args(types + ["Scalar"] * rest, dims + [[]] * rest, strides + [[]] * rest, values))
    assert found is not None
    return [p for p in found.problems if isinstance(p, ConvProblem)]


BACK = ["", "", "", "[0]", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "2", "[True, True, False]"]
Y, X, W = [8, 32, 7, 7], [8, 16, 14, 14], [32, 8, 3, 3]
NHWC = [[1568, 1, 224, 32], [3136, 1, 224, 16], [72, 1, 24, 8]]
NCHW = [[1568, 49, 7, 1], [3136, 196, 14, 1], [72, 9, 3, 1]]


def test_backward_is_stated_in_forward_terms() -> None:
    b, w = conv("aten::convolution_backward", ["c10::Half"] * 3, [Y, X, W], NCHW, BACK)
    assert (b.direction, w.direction) == ("B", "W")
    assert b.layer == w.layer
    expected = "in=8,16,1,14,14 k=32 filter=1,3,3 pad=0,1,1 stride=1,2,2 dilation=1,1,1 out=1,7,7 groups=2"
    assert expected in b.layer
    assert "layout=NCHW,NCHW,NCHW" in b.layer


@pytest.mark.parametrize(("mask", "ran"), [("[True, False, True]", "B"), ("[False, True, False]", "W")])
def test_only_the_gradients_that_ran(mask: str, ran: str) -> None:
    (problem,) = conv("aten::convolution_backward", ["c10::Half"] * 3, [Y, X, W], NCHW, [*BACK[:-1], mask])
    assert problem.direction == ran


def test_a_transposed_backward_is_forward_and_weights_of_the_plain_one() -> None:
    values = [*BACK[:7], "True", *BACK[8:]]
    f, w = conv("aten::convolution_backward", ["c10::Half"] * 3, [X, Y, [32, 8, 3, 3]], NCHW, values)
    assert (f.direction, w.direction) == ("F", "W")
    assert "in=8,16,1,14,14 k=32" in f.layer
    assert "out=1,7,7" in f.layer


def test_forward_has_the_output_that_follows() -> None:
    values = ["", "", "[3, 3]", "[2, 2]", "[1, 1]", "1", "False", "False", "True"]
    dims = [[32, 3, 224, 224], [64, 3, 7, 7]]
    strides = [[150528, 50176, 224, 1], [147, 49, 7, 1]]
    (problem,) = conv("aten::cudnn_convolution", ["c10::BFloat16"] * 2, dims, strides, values)
    assert (problem.direction, problem.out_h, problem.out_w, problem.in_type) == ("F", 112, 112, "BF16")


LAST = [[3136, 1, 224, 16], [144, 1, 48, 16]]
PLAIN = [[3136, 196, 14, 1], [144, 9, 3, 1]]


@pytest.mark.parametrize(
    ("kind", "strides", "cudnn", "miopen"),
    [
        ("float", PLAIN, "NCHW", "NCHW"),
        ("float", LAST, "NHWC", "NHWC"),
        ("float", [LAST[0], PLAIN[1]], "NHWC", "NHWC"),  # a permuted input: PyTorch copies the weights
        ("float", [PLAIN[0], LAST[1]], "NHWC", "NCHW"),  # MIOpen was given an input that no setting turned
        ("float", [[6272, 392, 28, 1], PLAIN[1]], "NCHW", "NCHW"),  # a view with gaps is copied
        ("double", LAST, "NCHW", "NHWC"),  # cuDNN has no NHWC for double
    ],
)
def test_the_layout_is_that_which_the_library_is_given(
    kind: str, strides: list[list[int]], cudnn: str, miopen: str
) -> None:
    values = ["", "", "[1, 1]", "[1, 1]", "[1, 1]", "1", "False", "False", "True"]
    dims = [[8, 16, 14, 14], [32, 16, 3, 3]]
    (one,) = conv("aten::cudnn_convolution", [kind] * 2, dims, strides, values)
    (other,) = conv("aten::miopen_convolution", [kind] * 2, dims, strides, ["", "", "", *values[2:]])
    assert {one.in_layout, one.weights_layout, one.out_layout} == {cudnn}
    assert {other.in_layout, other.weights_layout, other.out_layout} == {miopen}


@pytest.mark.parametrize(
    ("backend", "strides", "layout"),
    [
        ("cudnn", NCHW, "NCHW"),
        ("cudnn", [NCHW[0], NHWC[1], NCHW[2]], "NHWC"),
        ("cudnn", [NHWC[0], NCHW[1], NCHW[2]], "NCHW"),  # the choice does not depend on the gradient
        ("cudnn", [[0, 0, 0, 0], NCHW[1], NCHW[2]], "NCHW"),  # an expanded tensor is copied
        ("miopen", NCHW, "NCHW"),
        ("miopen", NHWC, None),  # a setting decides
        (None, NCHW, "NCHW"),
        (None, NHWC, None),
    ],
)
def test_layouts_of_a_backward_follow_from_input_and_weights(
    backend: Backend | None, strides: list[list[int]], layout: str | None
) -> None:
    inputs = args(["c10::Half"] * 3 + ["Scalar"] * 8, [Y, X, W, *[[]] * 8], [*strides, *[[]] * 8], BACK)
    found = operation("aten::convolution_backward", inputs, backend)
    assert found is not None
    for problem in found.problems:
        assert isinstance(problem, ConvProblem)
        assert {problem.in_layout, problem.weights_layout, problem.out_layout} == {layout}


def test_transposed_forward_is_the_input_gradient() -> None:
    values = ["", "", "[1, 1]", "[1, 1]", "[2, 2]", "[1, 1]", "1", "False", "False", "True"]
    dims = [[8, 32, 7, 7], [32, 16, 3, 3]]
    strides = [[1568, 49, 7, 1], [144, 9, 3, 1]]
    (problem,) = conv("aten::cudnn_convolution_transpose", ["float"] * 2, dims, strides, values)
    assert problem.direction == "B"
    assert "in=8,16,1,14,14 k=32" in problem.layer
    assert "out=1,7,7" in problem.layer


def test_one_dimension_is_height_one() -> None:
    values = ["", "", "", "[2]", "[1]", "[1]", "False", "[0]", "1"]
    (problem,) = conv("aten::convolution", ["float"] * 2, [[8, 4, 100], [6, 4, 3]], [[400, 100, 1], [12, 3, 1]], values)
    assert (problem.spatial, problem.h, problem.w, problem.filter_h, problem.pad_h, problem.out_w) == (
        2,
        1,
        100,
        1,
        0,
        50,
    )


VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 1 << 40) | st.text(max_size=8) | st.floats(),
    lambda inner: st.lists(inner, max_size=6),
    max_leaves=12,
)


@example("aten::matmul", args([], [None], []))
@given(
    st.sampled_from(sorted(OPERATORS)),
    st.fixed_dictionaries({}, optional=dict.fromkeys(args([], [], []), VALUE)),
)
def test_reading_never_raises(name: str, inputs: dict[str, Any]) -> None:
    operation(name, inputs)
