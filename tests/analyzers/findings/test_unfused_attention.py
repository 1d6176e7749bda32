"""Tests of the finding that attention is computed by separate matrix products and a softmax."""

from __future__ import annotations

import pytest

from analyzers.evidence.tables import Settings, Tables
from analyzers.findings import unfused_attention
from tests.analyzers.build import facts, tables


def make_trace_tables(softmax_us: float, op: str = "aten::_softmax") -> Tables:
    names = {op: softmax_us, "aten::bmm": 20_000.0 - softmax_us}
    rows = [
        {"source_id": "trace", "run": "r", "op": name, "problem": None, "kernel": "k", "calls": 4, "total_us": us,
         "min_us": us / 4, "max_us": us / 4}
        for name, us in names.items()
    ]  # fmt: skip
    return tables(kernels=rows, facts=facts("trace", profiler_steps="2"))


def planted() -> Tables:
    return make_trace_tables(15_000.0)


def test_its_time_and_its_remedy() -> None:
    [found] = unfused_attention.find(planted(), Settings())
    assert found.message == (
        "softmax takes 7.5 ms of 10 ms of kernel time per step (75%) in 2 kernels of its own, so attention is "
        "not fused and its scores go through memory"
    )
    assert "scaled_dot_product_attention" in found.advice


@pytest.mark.parametrize(
    ("us", "op"), [(990.0, "aten::_softmax"), (15_000.0, "aten::_log_softmax"), (15_000.0, "aten::add")]
)
def test_where_there_is_none(us: float, op: str) -> None:
    assert not unfused_attention.find(make_trace_tables(us, op), Settings())
