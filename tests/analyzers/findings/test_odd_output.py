from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analyzers.evidence.tables import Settings, Tables
from analyzers.findings import below_roofline, odd_output
from analyzers.recommend.ranking import recommend
from analyzers.recommend.verdict import verdict
from logparse.model import ChangeProgram, Finding, GemmProblem
from logparse.store import Store
from tests.analyzers.build import measurement, tables, trace_rows
from tests.analyzers.ingested import product, read
from tests.libraries.torch_profiler.made import MadeTrace

VOCABULARY, TOKENS, WIDTH = 30523, 1536, 704
FORWARD = product(VOCABULARY, TOKENS, WIDTH, trans_a="T", lda=WIDTH, ldb=WIDTH, ldd=VOCABULARY)
OF_INPUTS = product(WIDTH, TOKENS, VOCABULARY, trans_a="N", lda=WIDTH, ldb=VOCABULARY, ldd=WIDTH)


def planted() -> Tables:
    """Return a trace of an output layer with 30,523 outputs, whose two products take 900 µs instead of some 100 µs."""
    return tables(**trace_rows((FORWARD, 900.0), (OF_INPUTS, 900.0)))


def find(given: Tables) -> list[Finding]:
    return list(odd_output.find(given, Settings()))


def test_a_trace_of_an_odd_vocabulary_leads_to_a_padded_one(store: Store, tmp_path: Path) -> None:
    """``recommend`` says to which number of outputs the layer should be padded, and proposes no search."""
    made = MadeTrace()
    for number in range(2):
        strides = ((WIDTH, 1), (1, WIDTH))
        dims = ((TOKENS, WIDTH), (WIDTH, VOCABULARY))
        made.operator("aten::mm", number * 10_000.0, [("Cijk_", 900.0)], dims=dims, strides=strides)
    given = read(store, tmp_path, {"t.json": made.text})
    [found] = find(given)
    assert (found.calls, found.sureness) == (2, "estimated")
    assert "Rows of 30,523 outputs are not aligned to 16 bytes" in found.message
    todo = next(x for x in verdict(recommend(given, Settings())).todo if x.findings)
    assert isinstance(todo.remedy, ChangeProgram)
    assert (todo.name, todo.title) == ("padded_output", "pad the output layer to 30,528 outputs")
    assert todo.changes == "set the number of outputs (the vocabulary size) to 30,528; targets stay below 30,523"
    assert todo.rests_on == "padded products reach 50% of the roofline"


def test_all_products_of_the_layer_are_one_thing_to_do() -> None:
    assert {x.problem for x in find(planted())} == {FORWARD.normal, OF_INPUTS.normal}
    [todo] = [x for x in verdict(recommend(planted(), Settings())).todo if x.name == "padded_output"]
    assert len(todo.findings) == 2


def test_no_search_is_proposed_by_the_roofline() -> None:
    assert below_roofline.find(planted(), Settings()) == []


@pytest.mark.parametrize(
    "other",
    [
        {"m": 30528, "ldd": 30528},  # a multiple of 64
        {"m": 30536, "ldd": 30536},  # 16 bytes, which the wide kernels need
        {"ldd": 30528},  # the rows are padded already
        {"batch_count": 2, "batch_mode": "strided", "stride_a": 0, "stride_b": 0, "stride_d": VOCABULARY * TOKENS},
    ],
)
def test_another_product_is_not_reported(other: dict[str, Any]) -> None:
    slow: GemmProblem = replace(FORWARD, **other)
    assert find(tables(**trace_rows((slow, 6000.0)))) == []


def test_a_fast_product_is_not_reported() -> None:
    assert find(tables(**trace_rows((FORWARD, 150.0)))) == []


def test_measured_kernels_say_more_than_the_estimate() -> None:
    timed = [measurement(FORWARD.text, f"hipblaslt:{number}", 890.0 + number) for number in (1, 2)]
    assert find(tables(**trace_rows((FORWARD, 900.0)), measurements=timed)) == []
