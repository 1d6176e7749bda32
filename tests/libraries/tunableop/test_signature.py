"""Tests of the texts ("keys") by which TunableOp names matrix products.

The tests check which properties of a product a key states, and that a key which is read and written again is the same.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.libraries.tunableop import signature
from logparse.model import GemmProblem, problem_from_text
from tests.analyzers.example import plain
from tests.conftest import CORPUS, needs_corpus

NEW, OLD, TF32 = ({"validator:PT_VERSION": v} for v in ("2.7.1", "2.5.1", "2.9.1"))


def gemm(key: str) -> GemmProblem:
    op, params = key.split(",")
    problem = signature.problem(op, params)
    assert isinstance(problem, GemmProblem)
    return problem


def test_a_plain_gemm_states_its_layout_and_that_it_has_no_epilogue() -> None:
    problem = gemm("GemmTunableOp_BFloat16_TN,tn_96_100_64_ld_64_65_96")
    assert problem == plain(
        trans_a="T", trans_b="N", m=96, n=100, k=64, batch_count=1, lda=64, ldb=65, ldc=96, ldd=96,
        a_type="bf16_r", b_type="bf16_r", c_type="bf16_r", d_type="bf16_r", compute_type="f32_r", scale_type="f32_r",
        activation="none", gradient=False, aux=False, bias=False,
        scale_alpha_vector=False,
    )  # fmt: skip
    assert problem.beta is None  # the key does not hold it
    assert problem.epilogue == "DEFAULT"


def test_gemm_and_bias_leaves_the_activation_open() -> None:
    problem = gemm("GemmAndBiasTunableOp_Half_NN,nn_80_48_64_ld_80_64_80")
    assert (problem.bias, problem.bias_type, problem.activation, problem.beta) == (True, "f16_r", None, "zero")
    assert problem.compute_type is None  # a CUDA build may accumulate in half precision


def test_batched() -> None:
    problem = gemm("GemmStridedBatchedTunableOp_double_NT,nt_80_48_64_B_6_ld_80_48_80")
    assert (problem.batch_count, problem.batch_mode, problem.stride_a, problem.a_type) == (6, "strided", None, "f64_r")


def test_conjugate_is_c_in_the_parameters_and_t_in_the_op() -> None:
    problem = gemm("GemmTunableOp_c10::complex<float>_TN,cn_80_48_64_ld_64_64_80")
    assert (problem.trans_a, problem.a_type) == ("C", "f32_c")
    assert "trans=C,N" in problem.text  # for complex types, C is not T


@pytest.mark.parametrize(
    ("key", "compute"),
    [
        ("GemmTunableOp_tf32_NN,nn_80_48_64_ld_80_64_80", "xf32_r"),
        ("GemmTunableOp_float_NN,nn_80_48_64_ld_80_64_80", "f32_r"),
        ("GemmTunableOp_float_NN,nn_80_48_64", None),  # up to version 2.6, float may also mean tf32
        ("GemmTunableOp_bfx9_NN,nn_80_48_64_ld_80_64_80", "bf16x9"),
        ("GemmTunableOp_float_NN,nn_80_48_64_ld_80_64_80_compute_bf16x9_r", "bf16x9"),
    ],
)
def test_compute_type_of_single_precision(key: str, compute: str | None) -> None:
    assert (gemm(key).a_type, gemm(key).compute_type) == ("f32_r", compute)


def test_scaled_types_contain_underscores() -> None:
    problem = gemm("ScaledGemmTunableOp_Float8_e4m3fnuz_Float8_e5m2fnuz_BFloat16_TN,tn_1_2_3_ld_3_3_1_rw_1_bias_Float")
    assert (problem.a_type, problem.b_type, problem.d_type) == ("f8_fnuz_r", "bf8_fnuz_r", "bf16_r")
    assert (problem.scale_a, problem.scale_b, problem.bias, problem.bias_type) == ("row", "row", True, "f32_r")
    other = gemm("ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_Half_TN,tn_1_2_3_ld_3_3_1_rw_0_bias_None_swz_1_0")
    assert (other.scale_a, other.bias, other.swizzle_a, other.swizzle_b) == (None, False, True, False)


def test_one_scale_per_operand_of_fnuz_types() -> None:
    """A TunableOp key of an 8-bit matrix product with FNUZ types means that each matrix has a single scale."""
    # The key itself says only that there is no scale for each row (rw_0). The scales could also be per block. But only
    # gfx950 has scales per block, and it has no FNUZ types, which belong to gfx942. Writing the key again gives the
    # same text.
    key = "ScaledGemmTunableOp_Float8_e4m3fnuz_Float8_e5m2fnuz_BFloat16_TN,tn_1_2_3_ld_3_3_1_rw_0_bias_None"
    assert (gemm(key).scale_a, gemm(key).scale_b) == ("scalar", "scalar")
    assert signature.key(gemm(key), TF32 | {"arch": "gfx942"}) == key


def test_scaled_on_cuda_from_2_15() -> None:
    tail = "_a_Float8_e4m3fn_b_Float8_e4m3fn_c_BFloat16_as_Float_bs_Float_ast_1_bst_1_dscale_0_fast_1_bias_None"
    problem = gemm(f"ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_BFloat16_TN,tn_64_16_32_ld_32_32_64{tail}")
    assert (problem.scale_a, problem.scale_b, problem.scale_d, problem.bias) == ("row", "row", "none", False)


@pytest.mark.parametrize(
    ("op", "params", "part"),
    [
        ("GemmTunableOp_int_TN", "tn_1_2_3", 0),
        ("GemmTunableOp_BFloat16_TN", "tn_96_*_64_ld_64_64_96", 1),
        ("gemmtunableop_Half_TN", "tn_1_2_3", 0),
        ("GemmTunableOp_Half_TN", "nn_1_2_3", 1),
        ("GemmTunableOp_Half_TN", "tn_1_2", 1),
        ("GemmTunableOp_Half_TN", "tn_1_2_3_ld_4_5", 1),
        ("GemmTunableOp_Half_TN", "tn_1_2_3_B_4", 1),
        ("GemmStridedBatchedTunableOp_Half_TN", "tn_1_2_3", 1),
        ("ScaledGemmTunableOp_Float8_e4m3fn_Half_TN", "tn_1_2_3", 0),
    ],
)
def test_a_text_that_is_no_key_names_the_wrong_part(op: str, params: str, part: int) -> None:
    with pytest.raises(signature.SignatureError) as error:
        signature.problem(op, params)
    assert error.value.part == part


def test_the_dialect_of_the_targets_rows_wins_over_its_version() -> None:
    problem = gemm("GemmTunableOp_BFloat16_TN,tn_96_100_64_ld_64_64_96")
    assert signature.key(problem, OLD) == "GemmTunableOp_BFloat16_TN,tn_96_100_64"
    assert (
        signature.key(problem, {**OLD, "tunableop_keys": "ld"}) == "GemmTunableOp_BFloat16_TN,tn_96_100_64_ld_64_64_96"
    )
    assert signature.key(problem, {}) is None


def test_tf32_is_float_before_2_8() -> None:
    problem = gemm("GemmTunableOp_tf32_NN,nn_80_48_64_ld_80_64_80")
    assert signature.key(problem, NEW) == "GemmTunableOp_float_NN,nn_80_48_64_ld_80_64_80"
    assert signature.key(problem, TF32) == "GemmTunableOp_tf32_NN,nn_80_48_64_ld_80_64_80"


def test_an_unknown_field_of_the_key_is_named_and_never_guessed() -> None:
    how = signature.dialect(TF32)
    assert how is not None
    short = gemm("GemmTunableOp_float_NN,nn_80_48_64")
    assert signature.missing(short, how) == ("lda", "ldb", "ldc", "compute_type")
    assert signature.key(short, TF32) is None
    rw0 = gemm("ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_Half_TN,tn_1_2_3_ld_3_3_1_rw_0_bias_None")
    assert signature.missing(rw0, how) == ("scale_a", "scale_b")


@pytest.mark.parametrize(
    "change",
    [{"gradient": True}, {"aux": True}, {"a_type": "i8_r"}, {"activation": "gelu"}, {"batch_mode": "pointer"},
     {"compute_type": "bf16x9"}, {"d_type": "f32_r"}],
)  # fmt: skip
def test_calls_that_no_op_makes_have_no_key(change: dict[str, object]) -> None:
    from dataclasses import replace

    problem = gemm("GemmTunableOp_BFloat16_TN,tn_96_100_64_ld_64_64_96")
    assert signature.key(replace(problem, **change), TF32) is None  # type: ignore[arg-type]


def test_blas_params_add_beta_strides_and_activation() -> None:
    plain = gemm("GemmStridedBatchedTunableOp_Half_NN,nn_80_48_64_B_6_ld_80_64_80")
    text = (
        "BLAS_PARAMS: - { function: matmul, M: 80, stride_a: 5120, stride_b: 3072, stride_c: 3840, stride_d: 3840, "
        "alpha: 1.0000, beta: 0.5000, batch_count: 6, scale_type: f32_r, compute_type: f32_r }"
    )
    full = signature.with_blas_params(plain, text)
    assert isinstance(full, GemmProblem)
    assert (full.stride_a, full.stride_d, full.beta, full.compute_type) == (5120, 3840, "nonzero", "f32_r")
    bias = signature.with_blas_params(
        gemm("GemmAndBiasTunableOp_BFloat16_TN,tn_96_100_64_ld_64_64_96"), "{ stride_a: 0, activation: GELU, x: 1 }"
    )
    assert isinstance(bias, GemmProblem)
    assert (bias.activation, bias.stride_a, bias.epilogue) == ("gelu", None, "GELU_BIAS")
    zero = signature.with_blas_params(
        gemm("GemmTunableOp_c10::complex<float>_NN,nn_8_8_8_ld_8_8_8"),
        "{ alpha: (1.0000, 0.0000), beta: (0.0000, 0.0000), compute_type: f32_r }",
    )
    assert isinstance(zero, GemmProblem)
    assert (zero.beta, zero.compute_type) == ("zero", None)


sizes = st.integers(1, 1 << 20)


@st.composite
def keys(draw: st.DrawFn) -> str:
    family = draw(st.sampled_from(["Gemm", "GemmStridedBatched", "GemmAndBias", "ScaledGemm"]))
    letters = "".join(draw(st.lists(st.sampled_from("nt"), min_size=2, max_size=2)))
    fp8 = ["Float8_e4m3fn", "Float8_e5m2", "Float8_e4m3fnuz", "Float8_e5m2fnuz", "Float4_e2m1fn_x2"]
    plain = ["float", "tf32", "double", "Half", "BFloat16", "c10::complex<float>", "c10::complex<double>"]
    if family == "ScaledGemm":
        d_type = draw(st.sampled_from([*fp8, "Half", "BFloat16", "float"]))
        types = f"{draw(st.sampled_from(fp8))}_{draw(st.sampled_from(fp8))}_{d_type}"
    else:
        types = draw(st.sampled_from(plain))
    batch = f"_B_{draw(st.integers(2, 999))}" if family == "GemmStridedBatched" else ""
    tail = (
        f"_rw_1_bias_{draw(st.sampled_from(['None', 'Half', 'BFloat16', 'Float']))}" if family == "ScaledGemm" else ""
    )
    dims = "_".join(str(draw(sizes)) for _ in range(3))
    lds = "_".join(str(draw(sizes)) for _ in range(3))
    return f"{family}TunableOp_{types}_{letters.upper()},{letters}_{dims}{batch}_ld_{lds}{tail}"


@given(keys())
def test_key_to_problem_to_key(text: str) -> None:
    problem = gemm(text)
    assert signature.key(problem, TF32) == text
    again = problem_from_text(problem.text)
    assert signature.key(again, TF32) == text, "the stored text of a problem must still give its key"


@given(st.text(alphabet="GemmScaledTunableOp_NTntc10:<>BFloat16Half,*ld_ 9\n", max_size=80), st.text(max_size=60))
def test_nothing_but_signature_error_is_raised(op: str, params: str) -> None:
    with contextlib.suppress(signature.SignatureError):
        signature.problem(op, params)


@needs_corpus
def test_every_key_of_the_corpus_is_read_and_written_alike() -> None:
    count = 0
    files = [*CORPUS.glob("tunableop/*.csv"), *CORPUS.glob("tunableop/real*/*.csv"), *CORPUS.glob("h200/*.csv")]
    for path in files:
        torch = "2.11.0"
        for line in path.read_text().splitlines():
            op, params, *rest = line.split(",")
            if op == "Validator":
                torch = rest[0] if params == "PT_VERSION" else torch
                continue
            problem = signature.problem(op, params)
            assert isinstance(problem, GemmProblem)
            assert f"{problem.trans_a}{problem.trans_b}".replace("C", "T") == op[-2:]
            assert signature.key(problem, {"validator:PT_VERSION": torch}) == f"{op},{params}"
            count += 1
    assert count == 9785


def test_a_key_mentions_a_swizzle_only_if_there_is_one() -> None:
    """A TunableOp key mentions a swizzle only if the scaled product has one and PyTorch is 2.15 or later.

    PyTorch 2.15 (ScaledGemmParams::Signature) appends for example ``_swz_0_1``. Earlier versions never do.
    """
    key = "ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_BFloat16_TN,tn_64_32_96_ld_96_96_64_rw_1_bias_None"
    newest = {"validator:PT_VERSION": "2.15.0"}
    plain, swizzled = gemm(key), gemm(key + "_swz_0_1")
    assert (plain.swizzle_a, plain.swizzle_b) == (False, False)
    assert (swizzled.swizzle_a, swizzled.swizzle_b) == (False, True)
    assert [signature.key(x, newest) for x in (plain, swizzled)] == [key, key + "_swz_0_1"]
    assert signature.key(replace(plain, swizzle_a=None, swizzle_b=None), newest) == key, "a log that names no swizzle"
    assert signature.key(swizzled, TF32) == key, "before 2.15 the key does not contain it"
