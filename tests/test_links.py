"""Links: the pure function and the SQL view agree, and levels and fans are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import duckdb
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from logparse.links import linked, links_sql
from logparse.model import ConvProblem, GemmProblem, Problem
from logparse.store.held import conv_row, gemm_row
from logparse.store.schema import SCHEMAS
from logparse.store.views import CONV_SHAPE

FULL = GemmProblem(
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
    **{f"{x}_type": "bf16_r" for x in "abcd"},
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
    assert linked(FULL, FULL) == "exact"
    assert linked(FULL, PARTIAL) == "layout"
    assert linked(FULL, COARSE) == "shape"
    assert linked(FULL, replace(PARTIAL, lda=32)) is None
    assert linked(FULL, replace(COARSE, m=65)) is None
    assert linked(FULL, ConvProblem(direction="W")) is None


def test_fnuz_and_ocp_are_one_type_for_links() -> None:
    assert linked(replace(COARSE, a_type="f8_r"), replace(COARSE, a_type="f8_fnuz_r")) == "shape"


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
    expected = {(a.text, b.text): level for a, b in product(problems, problems) if (level := linked(a, b))}
    assert {pair: level for pair, (level, _) in view(problems).items()} == expected
