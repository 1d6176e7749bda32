from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analyzers.evidence.tables import Settings, Tables
from analyzers.findings import below_roofline, leading_dimension, slower_than_comparable
from analyzers.recommend.ranking import recommend
from analyzers.recommend.verdict import verdict
from logparse.model import ChangeProgram, Finding, Gain, GemmProblem
from logparse.store import Store
from tests.analyzers.build import facts, tables, trace_rows
from tests.analyzers.findings.test_slower_than_comparable import DEVICE, best, evidence, half, us
from tests.analyzers.ingested import product, read
from tests.libraries.torch_profiler.made import MadeTrace

M, N, K = 3328, 1664, 2048
SLOW = product(M, N, K, lda=K, ldb=K, ldd=M)
FAST = replace(SLOW, lda=2112)


def planted() -> Tables:
    """Return a trace of one product with two leading dimensions. One takes 1.5 times as long as the other."""
    return tables(**trace_rows((FAST, 400.0), (SLOW, 600.0)))


def find(given: Tables) -> list[Finding]:
    return list(leading_dimension.find(given, Settings()))


def trace(*calls: tuple[int, float]) -> str:
    """Return a trace of ``aten::mm``: for each call the leading dimension of the right operand, and the time in µs."""
    made = MadeTrace()
    for number, (ld, time_us) in enumerate(calls):
        strides = ((K, 1), (1, ld))
        made.operator("aten::mm", number * 10_000.0, [("Cijk_", time_us)], dims=((N, K), (K, M)), strides=strides)
    return made.text


def test_a_trace_with_two_leading_dimensions_leads_to_a_change_of_the_program(store: Store, tmp_path: Path) -> None:
    """``recommend`` says to pad the operand, and proposes no search for the slow product."""
    given = read(store, tmp_path, {"t.json": trace((2112, 400.0), (K, 600.0), (2112, 400.0), (K, 600.0))})
    [found] = find(given)
    assert (found.per_call, found.calls, found.saving_us) == (Gain(600.0, 400.0), 2, 400.0)
    assert found.sureness == "estimated"
    assert "600 µs with lda 2048" in found.message
    assert "400 µs with lda 2112" in found.message
    assert found.advice is not None
    assert "give A the leading dimension 2112" in found.advice
    [todo] = [x for x in verdict(recommend(given, Settings())).todo if x.name == "pad-operand"]
    assert isinstance(todo.remedy, ChangeProgram)
    assert (todo.title, todo.sureness) == ("pad the operand", "estimated")
    assert todo.gain is not None
    assert todo.gain.saving_us == 400.0


@pytest.mark.parametrize(("slow_us", "count"), [(120.0, 1), (119.0, 0)])
def test_twenty_percent_is_the_limit(slow_us: float, count: int) -> None:
    assert len(find(tables(**trace_rows((FAST, 100.0), (SLOW, slow_us))))) == count


@pytest.mark.parametrize(
    "other",
    [
        {"m": M + 64, "ldd": M + 64},
        {"k": K - 64},
        {"trans_b": "T"},
        {"d_type": "f32_r"},
        {"bias": True},
        {"lda": None},
        {"batch_count": 2, "stride_a": 0},
    ],
)
def test_another_product_is_not_compared(other: dict[str, Any]) -> None:
    assert find(tables(**trace_rows((FAST, 100.0), (replace(SLOW, **other), 900.0)))) == []


def test_times_that_overlap_tell_no_difference() -> None:
    """A single slow call, for example the first one, does not make the mean of a product's calls slow."""
    rows = trace_rows((FAST, 100.0), (SLOW, 300.0))
    rows["kernels"][1] |= {"min_us": 99.0, "max_us": 900.0}
    assert find(tables(**rows)) == []
    rows["kernels"][1] |= {"min_us": None}
    assert find(tables(**rows)) == [], "nothing is known of the shortest call"


def test_the_leading_dimension_of_one_column_has_no_effect() -> None:
    one = replace(SLOW, n=1)
    assert find(tables(**trace_rows((one, 100.0), (replace(one, ldb=K + 64), 900.0)))) == []
    assert find(tables(**trace_rows((replace(one, lda=2112), 100.0), (one, 900.0)))) != []


def test_a_batch_is_compared_although_its_strides_differ() -> None:
    batch: dict[str, Any] = {"batch_count": 8, "batch_mode": "strided", "stride_b": K * N, "stride_d": M * N}
    fast, slow = (replace(x, stride_a=(x.lda or 0) * M, **batch) for x in (FAST, SLOW))
    assert [x.problem for x in find(tables(**trace_rows((fast, 100.0), (slow, 150.0))))] == [slow.normal]
    shared = replace(slow, stride_a=0)
    assert find(tables(**trace_rows((fast, 100.0), (shared, 150.0)))) == [], "one A for the whole batch is less to read"


def test_times_of_two_traces_are_not_compared() -> None:
    one, two = trace_rows((FAST, 100.0), source="one"), trace_rows((SLOW, 900.0), source="two")
    assert find(tables(**{name: one[name] + two[name] for name in one})) == []


def test_the_trace_with_the_smallest_difference_decides() -> None:
    one, two = (
        trace_rows((FAST, 100.0), (SLOW, 900.0), source="one"),
        trace_rows((FAST, 100.0), (SLOW, 101.0), source="two"),
    )
    assert find(tables(**{name: one[name] + two[name] for name in one})) == []


def test_a_smaller_leading_dimension_is_no_padding() -> None:
    [found] = find(tables(**trace_rows((FAST, 150.0), (SLOW, 100.0))))
    assert (found.problem, found.remedy) == (FAST.normal, leading_dimension.REPACK)


def test_no_search_is_proposed_by_the_roofline() -> None:
    def others(*times: tuple[GemmProblem, float]) -> set[object]:
        return {x.problem for x in below_roofline.find(tables(**trace_rows(*times)), Settings())}

    assert SLOW.normal in others((SLOW, 6000.0)), "far below the roofline"
    assert SLOW.normal not in others((SLOW, 6000.0), (FAST, 40.0))
    todo = verdict(recommend(tables(**trace_rows((SLOW, 6000.0), (FAST, 40.0))), Settings())).todo
    assert [x.name for x in todo] == ["pad-operand"]


def test_no_search_is_proposed_by_comparable_products() -> None:
    slow = half(1000, 1000, 1000)
    fast, time_us = replace(slow, lda=1088), us(1000, 1000, 1000)

    def others(*times: tuple[GemmProblem, float]) -> list[object]:
        rows = trace_rows(*times) | {"facts": [*facts("known", **DEVICE), *facts("trace", **DEVICE)]}
        given = tables(**rows, measurements=evidence(best()))
        return [x.problem for x in slower_than_comparable.find(given, Settings())]

    assert others((slow, 5 * time_us)) == [slow.normal]
    assert others((slow, 5 * time_us), (fast, time_us)) == []
