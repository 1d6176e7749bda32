from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analyzers.evidence import families
from analyzers.evidence.expected import LAUNCH_US
from analyzers.evidence.families import parse_sizes
from logparse.devices import device_of
from logparse.model import ConvProblem, GemmProblem, problem_from_text
from logparse.store import Store
from tests.analyzers.example import W
from tests.analyzers.ingested import product


def family(problem: GemmProblem | ConvProblem) -> str | None:
    found = [name for kind in parse_sizes([problem.text]) for name, _ in kind.by_family()]
    return found[0] if found else None


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({}, "TN bf16_r"),
        ({"trans_a": "N"}, "NN bf16_r"),
        ({"b_type": None}, "TN bf16_r"),
        ({"b_type": "f16_r"}, "TN bf16_r/f16_r"),
        ({"a_type": "f32_r", "b_type": "f32_r"}, "TN f32_r"),
        ({"a_type": "f32_r", "b_type": "f32_r", "compute_type": "xf32_r"}, "TN f32_r xf32_r"),
        ({"a_type": "f8_r", "b_type": "f8_r", "scale_a": "row", "scale_b": "row"}, "TN f8_r row,row"),
        ({"swizzle_a": True}, "TN bf16_r swizzled"),
        ({"trans_a": None}, None),
        ({"a_type": None}, None),
        ({"m": None}, None),
        ({"sm_count": None}, "TN bf16_r"),
        ({"a_type": "f32_r", "b_type": None, "sm_count": None}, "TN f32_r"),
        ({"compute_input_a_type": "f16_r"}, None),
        ({"sm_count": 12}, None),
    ],
)
def test_families_of_products(change: dict[str, object], name: str | None) -> None:
    plain = replace(product(4096, 512, 1024), compute_input_a_type=None, compute_input_b_type=None)
    assert family(replace(plain, **change)) == name  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({}, "W 2D FP16 NCHW grouped"),
        ({"groups": 1}, "W 2D FP16 NCHW"),
        ({"groups": 256}, "W 2D FP16 NCHW depthwise"),
        ({"direction": "B"}, "B 2D FP16 NCHW grouped"),
        ({"direction": "B+W"}, None),
        ({"mode": "transposed"}, "W 2D FP16 NCHW grouped transposed"),
        ({"spatial": 3, "d": 8, "out_d": 8}, "W 3D FP16 NCHW grouped"),
        ({"in_layout": None}, None),
        ({"weights_layout": None}, "W 2D FP16 NCHW grouped"),
        ({"groups": None}, None),
    ],
)
def test_families_of_convolutions(change: dict[str, object], name: str | None) -> None:
    assert family(replace(W, **change)) == name  # type: ignore[arg-type]


def test_operators_and_groups_of_products_have_no_family() -> None:
    grouped = "grouped trans=T,N mnk=?,?,?"
    assert parse_sizes(["operator aten::add_ float(2|1)", grouped, product(1, 1, 1).text])[0].rows.tolist() == [2]
    assert parse_sizes([]) == ()


def test_texts_parsed_in_chunks_are_the_texts_parsed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [product(x, 3, 5).text for x in range(1, 6)] + ["operator x", W.text]
    texts += [product(7, 3, 5, trans_a="N", lda=7).text, "", replace(W, n=3, direction="F").text]
    whole = parse_sizes(texts)
    monkeypatch.setattr(families, "_CHUNK", 3)
    for one, other in zip(whole, parse_sizes(texts), strict=True):
        assert one.rows.tolist() == other.rows.tolist()
        assert [one.kinds[i] for i in one.kind] == [other.kinds[i] for i in other.kind]
        for name in ("at", "flops", "bytes"):
            assert np.array_equal(getattr(one, name), getattr(other, name))
    assert parse_sizes([]) == ()


def test_flops_and_bytes_of_tables_equal_those_of_single_products(samples: Store) -> None:
    """FLOPs and bytes that are computed for whole tables at once equal the values that are computed one by one.

    The test compares them for all matrix products and convolutions of the samples.
    """
    texts = [*samples.frames(None)["gemm_problems"]["problem"], *samples.frames(None)["conv_problems"]["problem"]]
    seen = 0
    for kind in parse_sizes(texts):
        for i, row in enumerate(kind.rows):
            problem = problem_from_text(texts[row])
            assert isinstance(problem, GemmProblem | ConvProblem)
            assert kind.flops[i] == problem.flops
            # Only the problem object knows that an operand of stride 0 is one matrix for the whole batch.
            shared = isinstance(problem, GemmProblem) and 0 in (problem.stride_a, problem.stride_b)
            assert kind.bytes[i] == problem.bytes or shared
            seen += 1
    assert seen > 100


def test_base_time_of_a_known_and_of_an_unknown_device() -> None:
    problem = product(4096, 512, 1024)
    [kind] = parse_sizes([problem.text])
    sheet = device_of({"arch": "gfx942", "cu_count": "304"})
    assert sheet is not None
    assert problem.flops is not None
    assert problem.bytes is not None
    known = problem.flops / (sheet.peaks["tf_bf16"] * 1e6) + problem.bytes / (sheet.hbm_gbs * 1e3) + LAUNCH_US
    assert kind.base_us("gfx942 304") == pytest.approx(np.array([known]))
    assert kind.base_us("gfx000 7")[0] > LAUNCH_US
