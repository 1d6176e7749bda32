from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.evidence.runs import tables_of
from analyzers.evidence.tables import Settings, Tables
from analyzers.findings import missed_fusion
from analyzers.job.epilogues import BY_HAND
from logparse.ingest import ingest
from logparse.libraries.torch_profiler.epilogues import STEPS
from logparse.store import Store
from tests.analyzers.build import call, tables, work
from tests.analyzers.ingested import product, read
from tests.conftest import CORPUS, needs_corpus

M, N, K = 3072, 2048, 768
BF16 = "c10::BFloat16"


def planted() -> Tables:
    """Return made-up data of a run in which a bias and a ReLU run as separate kernels after a matrix product."""
    return tables(facts=[tail(product(1024, 512, 512).text, ["bias", "relu"], 3, [9.0, 6.0])])


def tail(problem: str, steps: list[str], calls: int, us: list[float]) -> dict[str, object]:
    """Return a fact that says which elementwise operations follow a matrix product in the trace ``t``.

    ``us`` has the time of each operation in µs, summed over all calls.
    """
    value = json.dumps({"problem": problem, "tail": steps, "calls": calls, "us": us})
    return {"source_id": "t", "run": "r", "name": "epilogue_kernels", "value": value}


def operator(id: int, name: str, dims: list[Any], values: list[str] | None = None) -> dict[str, Any]:
    strides = [[*(d[1:] or []), 1][-len(d) :] if d else [] for d in dims]
    args = {"External id": id, "Input Dims": dims, "Input Strides": strides, "Input type": [BF16] * len(dims)}
    args["Concrete Inputs"] = values or [""] * len(dims)
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": id * 100, "dur": 90, "args": args}


def kernel(id: int, us: float, name: str = "k", at: float = 0) -> dict[str, Any]:
    args = {"External id": id, "device": 0, "stream": 7}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": at or id * 100 + 50, "dur": us,
            "args": args}  # fmt: skip


def addmm(id: int) -> list[dict[str, Any]]:
    """Return the trace events of one call of a linear layer, which turns N rows of K values into N rows of M values."""
    dims = [[M], [N, K], [K, M], [], []]
    return [operator(id, "aten::addmm", dims, ["", "", "", "1", "1"]), kernel(id, 20.0, "gemm")]


def after(
    id: int, name: str, dims: list[Any], us: float = 10.0, values: list[str] | None = None
) -> list[dict[str, Any]]:
    return [operator(id, name, dims, values), kernel(id, us)]


def trace(*events: list[dict[str, Any]]) -> str:
    return json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": [y for x in events for y in x]})


OUT = [[N, M]]


def test_gelu_after_a_linear_layer(store: Store, tmp_path: Path) -> None:
    steps = [*addmm(1), *after(2, "aten::gelu", OUT, 12.5, ["", "none"]), *addmm(3), *after(4, "aten::gelu", OUT, 7.5)]
    (found,) = missed_fusion.find(read(store, tmp_path, {"t.json": trace(steps)}), Settings())
    assert found.evidence.shown["steps"] == ("gelu",)
    assert (found.calls, found.evidence.shown["at_most_us"]) == (2, 20.0)
    assert (found.per_call_us, found.saving_us) == (None, None), "fusing was not measured"
    assert "exact" in found.message


@pytest.mark.parametrize("form", ["none", "tanh"])
def test_a_gelu_of_a_job_that_trains_is_refused_with_the_reason(form: str, store: Store, tmp_path: Path) -> None:
    back = after(9, "aten::gelu_backward", [[N, M], [N, M]])
    steps = [*addmm(1), *after(2, "aten::gelu", OUT, 12.5, ["", form]), *back]
    (found,) = missed_fusion.find(read(store, tmp_path, {"t.json": trace(steps)}), Settings())
    assert "in training PyTorch cannot fuse it" in found.message
    assert found.evidence.at_most_us is None, "no total counts what cannot be done"
    assert found.saving_us is None
    assert found.advice is not None
    assert "_addmm_activation" not in found.advice


def test_relu_in_training_needs_the_form_that_has_a_gradient(store: Store, tmp_path: Path) -> None:
    back = after(9, "aten::threshold_backward", [[N, M], [N, M]])
    tables = read(store, tmp_path, {"t.json": trace(addmm(1), after(2, "aten::relu", OUT), back)})
    (found,) = missed_fusion.find(tables, Settings())
    assert found.advice is not None
    assert "apply.linear of the generated apply.py, which computes the gradient of ReLU" in found.advice


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([("aten::add", [[N, M], [M], []]), ("aten::relu", OUT)], ("bias", "relu")),
        ([("aten::relu_", [[4, N // 4, M]])], ("relu",)),  # the same elements in another shape
        ([("aten::gelu", OUT, ["", "tanh"]), ("aten::mul", [[N, M], [N, M]])], ("gelu_tanh",)),
        ([(f"aten::{x}", OUT) for x in BY_HAND], BY_HAND),
        ([("aten::add", [[N, M], [N, M], []])], None),  # a residual
        ([("aten::silu", OUT)], None),  # cuBLASLt has no such epilogue
        ([("aten::relu", [[N, K]])], None),  # the operator reads another tensor
        ([("aten::copy_", OUT), ("aten::relu", OUT)], None),
    ],
)
def test_what_an_epilogue_could_do(
    steps: list[tuple[Any, ...]], words: tuple[str, ...] | None, store: Store, tmp_path: Path
) -> None:
    events = [after(2 + i, name, dims, 3.0, *values) for i, (name, dims, *values) in enumerate(steps)]  # type: ignore[arg-type]
    found = missed_fusion.find(read(store, tmp_path, {"t.json": trace(addmm(1), *events)}), Settings())
    assert [x.evidence.shown["steps"] for x in found] == ([] if words is None else [words])
    assert [x.evidence.shown["at_most_us"] for x in found] == ([] if words is None else [3.0 * len(words)])


def test_a_longer_job_counts_its_share_of_calls() -> None:
    problem = product(M, N, K).text
    t = tables(
        calls=[call(problem, count=12, category="profiler", source_id="t")],
        workload=[work(problem, 1200)],
        facts=[tail(problem, ["relu"], 3, [30.0])],
    )
    (found,) = missed_fusion.find(t, Settings())
    assert found.calls == 300, "a quarter of the calls that the trace saw are followed by ReLU"


words = st.sampled_from(sorted({*STEPS.values(), "bias", "gelu_tanh"}))


@given(st.lists(words, max_size=12), st.integers(1, 9), st.floats(0.1, 100))
def test_no_saving_without_a_measurement(steps: list[str], calls: int, us: float) -> None:
    problem = product(M, N, K).text
    rows = [tail(problem, steps, calls, [us * calls] * len(steps))]
    for found in missed_fusion.find(tables(facts=rows, workload=[work(problem, 10)]), Settings()):
        assert (found.per_call_us, found.saving_us) == (None, None)
        assert 0 < float(str(found.evidence.shown["at_most_us"])) <= us * calls * len(steps) * (1 + 1e-9)


@needs_corpus
def test_the_cost_of_unfused_gelu_in_gpt2(store: Store, tmp_path: Path) -> None:
    """logparse computes the right cost for a GELU that GPT-2 computes with several unfused operators.

    The expected time is computed from the kernels of the trace by a few lines that do not use logparse.
    """
    path = CORPUS / "h200" / "gpt2.trace.json.gz"
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    names = {e["args"].get("External id"): e for e in events if e.get("cat") == "cpu_op"}
    kernels = sorted((e for e in events if e.get("cat") == "kernel"), key=lambda e: e["ts"])
    us, calls = 0.0, 0
    for i, e in enumerate(kernels):
        op = names.get(e["args"].get("External id"))
        if op and op["name"] == "aten::addmm" and op["args"]["Input Dims"][0] == [M]:
            calls += 1
            last = names[kernels[i + 9]["args"]["External id"]]
            after = [(k, names[k["args"]["External id"]]) for k in kernels[i + 10 : i + 13]]
            cast = next(k for k, x in after if x["name"] == "aten::copy_" and x["args"]["Input Dims"][0][1:] == [M])
            us += sum(k["dur"] for k in (*kernels[i + 1 : i + 10], cast))
            assert (last["name"], names[kernels[i + 3]["args"]["External id"]]["name"]) == ("aten::mul", "aten::pow")
    ingest([str(path)], store)
    (found,) = missed_fusion.find(tables_of(store), Settings())
    assert (found.calls, found.evidence.shown["at_most_us"]) == (calls, pytest.approx(us, abs=0.01))
    assert (calls, us) == (8, pytest.approx(1118.557, abs=0.01)), "140 µs after a product of 17"
