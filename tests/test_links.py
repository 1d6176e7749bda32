"""Tests that logparse recognises when two texts may describe the same matrix product or convolution ("links").

The Python function and the SQL view must find the same links, with the right counts.
"""

# A link also has a level, which says how sure it is: "exact", "layout" or "shape".

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.links import find_link_level, links_sql
from logparse.model import GEMM_FIELDS, ConvProblem, GemmProblem, Problem, problem_from_text, with_plain
from logparse.store.pending import conv_row, gemm_row
from logparse.store.schema import SCHEMAS
from logparse.store.views import CONV_SHAPE

FULL = GemmProblem(
    **with_plain({f"{x}_type": "bf16_r" for x in "abcd"}),
    trans_a="T",
    trans_b="N",
    m=64,
    n=32,
    k=16,
    batch_count=1,
    lda=16,
    ldb=16,
    ldc=64,
    ldd=64,
    compute_type="f32_r",
    scale_type="f32_r",
    activation="none",
    gradient=False,
    aux=False,
    bias=False,
    scale_alpha_vector=False,
    beta="zero",
)
PARTIAL = GemmProblem(
    trans_a="T",
    trans_b="N",
    m=64,
    n=32,
    k=16,
    batch_count=1,
    lda=16,
    ldb=16,
    ldc=64,
    ldd=64,
    a_type="bf16_r",
)
COARSE = GemmProblem(m=64, n=32, k=16, batch_count=1, a_type="bf16_r")


def view(problems: Sequence[Problem]) -> dict[tuple[str, str], tuple[str, int]]:
    con = duckdb.connect()
    gemms = {p.text: gemm_row(p) for p in problems if isinstance(p, GemmProblem)}
    convs = {p.text: conv_row(p) for p in problems if isinstance(p, ConvProblem)}
    con.register("g", pa.Table.from_pylist(list(gemms.values()), schema=SCHEMAS["gemms"]))
    con.register("c", pa.Table.from_pylist(list(convs.values()), schema=SCHEMAS["convs"]))
    con.execute(f"create view shaped as select *, {CONV_SHAPE} as shape from c")
    for name, sql in links_sql("g", "shaped").items():
        con.execute(f"create view {name} as {sql}")
    return {(a, b): (level, fan) for a, b, level, fan in con.execute("from links").fetchall()}


def test_levels() -> None:
    assert find_link_level(FULL, FULL) == "exact"
    assert find_link_level(FULL, PARTIAL) == "layout"
    assert find_link_level(FULL, COARSE) == "shape"
    assert find_link_level(FULL, replace(PARTIAL, lda=32)) is None
    assert find_link_level(FULL, replace(COARSE, m=65)) is None
    assert find_link_level(FULL, ConvProblem(direction="W")) is None


def test_fnuz_and_ocp_are_one_type_for_links() -> None:
    assert find_link_level(replace(COARSE, a_type="f8_r"), replace(COARSE, a_type="f8_fnuz_r")) == "shape"


def test_fan_counts_the_full_problems_that_a_partial_one_may_be() -> None:
    relu = replace(FULL, activation="relu")
    out = view([FULL, relu, PARTIAL])
    assert out[PARTIAL.text, FULL.text] == ("layout", 2)
    assert out[FULL.text, PARTIAL.text] == ("layout", 1)
    assert out[FULL.text, FULL.text] == ("exact", 1)
    assert (FULL.text, relu.text) not in out
    assert view([FULL, PARTIAL])[PARTIAL.text, FULL.text] == ("layout", 1)


def test_where_none_is_full_the_fuller_ones_are_counted() -> None:
    relu, none = replace(PARTIAL, activation="relu"), replace(PARTIAL, activation="none")
    assert view([relu, none, PARTIAL])[PARTIAL.text, relu.text] == ("layout", 2)


ALL = replace(
    FULL,
    **{f"{x}_type": "f16_r" for x in ("a", "b", "c", "d", "aux", "bias")},
    compute_input_a_type="f16_r",
    compute_input_b_type="f16_r",
    batch_count=3,
    batch_mode="strided",
    **{f"stride_{x}": 1 << 20 for x in "abcd"},
    bias=True,
    bias_source="d",
    aux=True,
    activation="gelu",
    beta="nonzero",
)
"""A matrix product for which every field is set."""
DOMAINS: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(("trans_a", "trans_b"), ("N", "T")),
    **dict.fromkeys(
        ("m", "n", "k", "lda", "ldb", "ldc", "ldd", "stride_a", "stride_b", "stride_c", "stride_d"), (64, 72)
    ),
    "batch_count": (2, 3),
    "batch_mode": ("strided", "pointer"),
    **{f"{x}_type": ("f16_r", "bf16_r", "f8_r") for x in ("a", "b", "c", "d", "aux", "bias", "scale")},
    "compute_type": ("f32_r", "f32_f16_r", "xf32_r"),
    "activation": ("none", "relu", "gelu"),
    "bias_source": ("a", "b", "d"),
    **dict.fromkeys(("gradient", "aux", "bias", "scale_alpha_vector", "swizzle_a", "swizzle_b"), (False, True)),
    **{f"scale_{x}": ("none", "scalar", "row", "block32", "block128x128") for x in "abcd"},
    "beta": ("zero", "nonzero"),
    **dict.fromkeys(("compute_input_a_type", "compute_input_b_type"), ("f16_r", "bf16_r", "f8_r")),
    "sm_count": (48, 132),
}
WIDTHS = {"wide": ALL, "narrow": replace(ALL, **{f"{x}_type": "f8_r" for x in "abcd"})}


def test_the_law_below_is_over_all_fields() -> None:
    assert DOMAINS.keys() == set(GEMM_FIELDS)


@pytest.mark.parametrize("base", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("name", GEMM_FIELDS)
def test_every_field_separates_two_problems_or_is_marked_unknown(name: str, base: GemmProblem) -> None:
    known = [replace(base, **{name: value}) for value in DOMAINS[name]]
    unknown = replace(base, **{name: None})
    assert len({x.text for x in known}) == len(known)
    assert "?" in unknown.text
    pairs = view([*known, unknown])  # The level of a pair does not depend on other problems.
    for one, other in combinations(known, 2):
        assert find_link_level(one, other) is None
        assert (one.text, other.text) not in pairs
    for one in known:
        assert find_link_level(unknown, one) in (None, "layout", "shape")
        assert pairs.get((unknown.text, one.text), ("shape",))[0] != "exact"
        back = problem_from_text(one.text)
        assert (back.text, find_link_level(one, back)) == (one.text, find_link_level(one, one))
    assert find_link_level(problem_from_text(unknown.text), known[0]) == find_link_level(unknown, known[0])


def test_a_stated_number_of_compute_units_may_mean_all() -> None:
    """A call that states a number of compute units may be the same as a call that states none (all of them)."""
    # cuBLAS states the number with every call of its older functions: 132 on an H200, which is all of them. But a user
    # may have set a smaller number. So logparse says that the calls may be the same (level "shape"), not that they are
    # (level "exact").
    all_units, some, more = (replace(FULL, sm_count=x) for x in (0, 48, 132))
    assert [find_link_level(all_units, x) for x in (all_units, some)] == ["exact", "shape"]
    assert view([all_units, some])[some.text, all_units.text][0] == "shape"
    assert find_link_level(some, more) is None


few = st.sampled_from
partial_gemms = st.builds(
    GemmProblem,
    **{x: few([None, 8, 16]) for x in ("m", "n", "k", "lda", "ldc", "ldd", "stride_a")},
    trans_a=few([None, "N", "T", "C"]),
    trans_b=few([None, "N"]),
    batch_count=few([None, 1, 2]),
    **{f"{x}_type": few([None, "f16_r", "f8_r", "f8_fnuz_r"]) for x in "abc"},
    **{x: few([None, True, False]) for x in ("bias", "aux")},
    beta=few([None, "zero", "nonzero"]),
    scale_a=few([None, "none", "scalar"]),
    swizzle_a=few([None, False, True]),
    compute_input_a_type=few([None, "f16_r", "f8_r", "f8_fnuz_r"]),
    sm_count=few([None, 0, 48, 132]),
)
partial_convs = st.builds(
    ConvProblem,
    direction=few(["F", "W"]),
    **{x: few([None, 1, 2]) for x in ("n", "c", "h", "w", "k", "filter_h", "filter_w", "groups", "pad_h", "out_h")},
    in_type=few([None, "FP16"]),
    in_layout=few([None, "NCHW", "NHWC"]),
)


@given(st.lists(partial_gemms | partial_convs, max_size=12))
def test_the_view_agrees_with_the_function(problems: list[Problem]) -> None:
    expected = {(a.text, b.text): level for a, b in product(problems, problems) if (level := find_link_level(a, b))}
    assert {pair: level for pair, (level, _) in view(problems).items()} == expected
