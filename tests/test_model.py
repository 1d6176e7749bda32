"""Tests of the texts by which logparse names matrix products, convolutions and kernels.

The texts must be unique and readable, and logparse must be able to read them back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.model import (
    ConvProblem,
    Evidence,
    Finding,
    GemmProblem,
    Member,
    fast_replace,
    problem_from_text,
    with_plain,
)

TYPES = st.sampled_from(["f16_r", "bf16_r", "f32_r", "f64_r", "f8_r", "f8_fnuz_r", "i8_r", "f32_c"])
SIZES = st.integers(0, 1 << 40)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


members = st.builds(Member, m=SIZES, n=SIZES, k=SIZES, lda=maybe(SIZES), stride_d=maybe(SIZES))
gemms = st.builds(
    GemmProblem,
    trans_a=maybe(st.sampled_from("NTC")),
    trans_b=maybe(st.sampled_from("NTC")),
    **{x: maybe(SIZES) for x in ("m", "n", "k", "lda", "ldb", "ldc", "ldd", "stride_a", "stride_c")},
    batch_count=maybe(st.integers(1, 3)),
    batch_mode=maybe(st.sampled_from(["strided", "pointer"])),
    **{x: maybe(TYPES) for x in ("a_type", "b_type", "c_type", "d_type", "bias_type", "aux_type", "scale_type")},
    **{x: maybe(st.booleans()) for x in ("gradient", "aux", "bias", "scale_alpha_vector", "swizzle_a")},
    activation=maybe(st.sampled_from(["none", "relu", "gelu"])),
    bias_source=maybe(st.sampled_from("abd")),
    **{f"scale_{x}": maybe(st.sampled_from(["none", "scalar", "row", "block32"])) for x in "ac"},
    **{f"compute_input_{x}_type": maybe(TYPES) for x in "ab"},
    sm_count=maybe(st.sampled_from([0, 48])),
    beta=maybe(st.sampled_from(["zero", "nonzero"])),
    members=st.just(()) | st.lists(members, min_size=1, max_size=3).map(tuple),
)
convs = st.builds(
    ConvProblem,
    direction=st.sampled_from(["F", "B", "W", "B+W"]),
    spatial=st.sampled_from([2, 3]),
    **{x: maybe(SIZES) for x in ("n", "c", "h", "w", "k", "filter_h", "pad_d", "pad_h", "stride_w", "out_h", "groups")},
    in_type=maybe(st.sampled_from(["FP16", "BF16", "FP32", "INT8"])),
    in_layout=maybe(st.sampled_from(["NCHW", "NHWC"])),
    in_cast=st.sampled_from(["none", "FP8"]),
    bias=maybe(st.sampled_from([0, 1])),
    mode=maybe(st.sampled_from(["convolution", "transposed"])),
)


@given(gemms | convs)
def test_text_reads_back_as_the_normal_form(problem: GemmProblem | ConvProblem) -> None:
    back = problem_from_text(problem.text)
    assert back.text == problem.text
    assert back == problem.normal


@given(gemms)
def test_normal_form_is_a_fixed_point(problem: GemmProblem) -> None:
    assert problem.normal.normal == problem.normal
    assert problem.normal.text == problem.text
    assert problem.normal.shape == problem.shape
    assert problem.normal.flops == problem.flops
    again = replace(problem.normal)
    assert (again.irrelevant, again.text) == (problem.normal.irrelevant, problem.normal.text)


def test_a_family_of_an_older_store_is_a_problem_with_open_sizes() -> None:
    text = GemmProblem(m=7, n=64, k=32, lda=7).text.replace("gemm ", "family ").replace("=7", "=*")
    problem = problem_from_text(text)
    assert isinstance(problem, GemmProblem)
    assert (problem.m, problem.n, problem.lda) == (None, 64, None)


def test_what_a_plain_call_lacks_is_no_part_of_its_text() -> None:
    wide: dict[str, Any] = {f"{x}_type": "bf16_r" for x in "abcd"}
    assert GemmProblem(**with_plain(wide)).text.endswith("scale=-,-,-,-,? swizzle=-,- beta=?")
    unlogged = GemmProblem(**wide).text
    assert unlogged.endswith("scale=?,?,?,?,? swizzle=?,? beta=? input=?,? sms=?")
    narrow = {**wide, "a_type": "f8_r"}
    assert "scale=none,-,-,-" in GemmProblem(**with_plain(narrow)).text
    assert "scale=?,-,-,-" in GemmProblem(**with_plain(narrow, scaled=True)).text
    assert "scale=row,-,-,-" in GemmProblem(**with_plain({**wide, "scale_a": "row"})).text
    other = GemmProblem(**with_plain({**wide, "swizzle_b": True, "compute_input_a_type": "f8_r", "sm_count": 48}))
    assert other.text.endswith("swizzle=-,1 beta=? input=f8_r,- sms=48")
    assert other.label.endswith("bf16_r swizzled B as f8_r 48 SMs")


@pytest.mark.parametrize(
    ("type", "compute", "word"),
    [
        *(("f32_r", "xf32_r", " compute xf32_r"), ("f16_r", "f16_r", " compute f16_r"), ("bf16_r", "f32_r", "")),
        *(("f64_r", "f64_r", ""), ("i8_r", "i32_r", ""), ("f32_c", "f32_r", ""), ("f32_r", None, "")),
    ],
)
def test_an_unusual_compute_type_is_in_the_name(type: str, compute: str | None, word: str) -> None:
    """Otherwise two products of a table would have one name, although their kernels and times differ."""
    problem = GemmProblem(m=8, n=4, k=2, a_type=type, compute_type=compute)
    assert problem.label.endswith(type + word)


def test_texts_of_older_stores_can_be_read() -> None:
    """logparse can still read how an older version wrote a matrix product as text.

    Such a text ends with β and lacks newer fields. It is read as a product without swizzle and without scales.
    """
    text = GemmProblem(**with_plain({f"{x}_type": "bf16_r" for x in "abcd"})).text
    problem = problem_from_text(text)
    assert isinstance(problem, GemmProblem)
    assert (problem.swizzle_a, problem.scale_a, problem.compute_input_a_type, problem.sm_count) == (
        False,
        "none",
        "bf16_r",
        0,
    )
    assert problem.text == text


def test_epilogues() -> None:
    def epilogue(**fields: Any) -> str | None:
        return GemmProblem(**{"activation": "none", "bias": False, "gradient": False, "aux": False, **fields}).epilogue

    assert epilogue() == "DEFAULT"
    assert epilogue(bias=True) == "BIAS"
    assert epilogue(activation="relu", bias=True) == "RELU_BIAS"
    assert epilogue(activation="gelu", aux=True, bias=True) == "GELU_AUX_BIAS"
    assert epilogue(activation="gelu", gradient=True, aux=True) == "DGELU"
    assert epilogue(activation="gelu", gradient=True, aux=True, bias=True, bias_source="d") == "DGELU_BGRAD"
    assert epilogue(gradient=True, bias=True, bias_source="a") == "BGRADA"
    assert GemmProblem().epilogue is None


def test_flops_of_a_grouped_gemm_are_summed() -> None:
    grouped = GemmProblem(members=(Member(m=2, n=3, k=4), Member(m=1, n=1, k=1)))
    assert grouped.flops == 2 * 24 + 2
    assert grouped.kind == "grouped"


def test_the_gemms_of_a_group_are_problems_of_their_own() -> None:
    types: dict[str, Any] = {"a_type": "f16_r", "b_type": "f16_r", "d_type": "f32_r", "batch_count": 1, "beta": "zero"}
    grouped = GemmProblem(members=(Member(m=2, n=3, k=4, lda=5), Member(m=1, n=1, k=1)), **types)
    first, second = grouped.gemms
    assert first == GemmProblem(m=2, n=3, k=4, lda=5, **types)
    assert grouped.bytes == (8 + 12) * 2 + 6 * 4 + (1 + 1) * 2 + 4
    assert second.gemms == (second,)


def test_a_changed_finding_is_the_one_that_replace_makes() -> None:
    evidence = Evidence(source_id="a", details={"x": 1})
    finding = Finding(analyzer="a", message="b", problem=ConvProblem(direction="W", n=2), evidence=evidence)
    assert "file" not in evidence.shown
    placed = fast_replace(evidence, file="f")
    assert placed == replace(evidence, file="f")
    assert placed.shown == replace(evidence, file="f").shown
    assert fast_replace(finding, evidence=placed, calls=3) == replace(finding, evidence=placed, calls=3)
    assert finding.evidence is evidence
    assert finding.calls is None


def test_what_a_text_does_not_state_has_its_default() -> None:
    assert problem_from_text("conv F in=1,2,1,3,4") == ConvProblem(direction="F", n=1, c=2, h=3, w=4)
