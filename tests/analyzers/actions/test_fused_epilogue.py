"""Tests of fusing a matrix product with the operators after it, for example bias and GELU, into one kernel.

The tests check which fused forms are timed, that each form computes the same result, and what is reported.
"""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analyzers.actions import fused_epilogue
from analyzers.actions.action import ActionResult
from analyzers.actions.job import job_of
from analyzers.actions.totals import estimate_result, list_kernels_to_time
from analyzers.evidence.action_times import samples_of
from analyzers.evidence.origins import ACTION
from analyzers.evidence.runs import tables_of
from analyzers.evidence.tables import Settings
from analyzers.findings import missed_fusion
from analyzers.job.epilogues import Epilogue, epilogues
from analyzers.replay.results import make_measurement
from logparse.ingest import ingest, record
from logparse.model import DEFAULT, Fact, Problem, solution_from_text
from logparse.store import Store
from tests.analyzers.findings.test_missed_fusion import BY_HAND, OUT, K, M, N, addmm, after, trace
from tests.analyzers.ingested import HERE
from tests.analyzers.replay.problems import gemm

SMALL = Settings(min_gain=0.03)


def tail(*steps: str, bias: bool | None = None, activation: str = "none", form: Any = "") -> Epilogue:
    problem = replace(gemm(), bias=bias, beta=None if bias is None else "zero", activation="none")
    return Epilogue(problem, replace(problem, activation=activation, bias=None, beta=None), steps, 1, 1.0, form)


def test_the_pair_is_a_problem_and_two_solutions() -> None:
    linear = tail("relu", activation="relu")
    assert (linear.fused.bias, linear.fused.activation, linear.fused.beta) == (True, "relu", "zero")
    assert (linear.as_run, linear.in_library) == (DEFAULT.text, "torch:fused")
    plain = tail("relu", bias=False, activation="relu")
    assert (plain.fused.bias, plain.as_run) == (False, DEFAULT.text)
    added = tail("bias", bias=False)
    assert (added.fused.bias, added.as_run, added.in_library) == (True, "torch:unfused", DEFAULT.text)
    written = tail("bias", *BY_HAND, bias=False, activation="gelu", form="written")
    assert written.as_run == "torch:unfused,gelu=written"


@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
@pytest.mark.parametrize("bias", [True, False])
def test_every_form_computes_the_same(activation: str, bias: bool) -> None:
    pytest.importorskip("torch")
    from logparse.libraries.kinds.backend import Conditions, Place
    from logparse.libraries.pytorch.replay import BACKEND

    problem = gemm(bias=bias, activation=activation)
    backend = BACKEND.open(Place(device="cpu"))
    words = {"": ["fused"] if activation != "none" else []}
    if activation == "gelu":
        words |= {form: ["", *(["unfused"] if bias else [])] for form in ("gelu=erf", "gelu=written")}
    offered = {x.text for x in backend.solutions(problem, 100)}
    for form, names in words.items():
        for name in names:
            solution = solution_from_text("torch:" + ",".join(x for x in (name, form) if x))
            made = backend.prepare(problem, solution, Conditions(sets=2))
            assert made.error() < (1e-3 if activation == "gelu" else 1e-5), solution.text
            assert (solution.text in offered) is (solution.text == "torch:fused" and bias), "the rest is only timed"
    backend.release()


# ------------------------------------------------------------------------------------------------ what actions state


def ingest_trace(store: Store, folder: Path, steps: list[tuple[Any, ...]], trains: bool = False) -> None:
    """Make a trace of two linear layers (20 µs each), and read it into the store (Parquet folder).

    * ``steps`` are operators after the first layer.
    * ``trains`` adds the backward pass (``GRADIENT``).
    """
    # An operator after the first layer takes 10 µs, and an operator of the backward pass 5 µs.
    events = [after(2 + i, name, dims, 10.0, *values) for i, (name, dims, *values) in enumerate(steps)]
    back = [y for i, x in enumerate(GRADIENT) for y in after(90 + i, f"aten::{x}", OUT, 5.0)] if trains else []
    text = trace(addmm(1), *events, addmm(50), back)
    (folder / "t.json").write_text(text, encoding="utf-8")
    ingest([str(folder / "t.json")], store, run="run")


def store_times(store: Store, problem: Problem, times: dict[str, list[float]]) -> None:
    rows = [make_measurement(problem, solution_from_text(x), samples, origin=ACTION) for x, samples in times.items()]
    facts = [Fact(name, value) for name, value in (HERE | {"environment": "e"}).items()]
    record(store, [*facts, *rows], run="run", name="timed", format="replay")


def estimate_saving(store: Store, action: Any) -> ActionResult | None:
    tables = tables_of(store)
    return estimate_result(action, job_of(tables, Settings()), samples_of(tables, Settings()))


RELU = ("aten::relu", OUT)
GRADIENT = ("mul", "mul", "tanh_backward", "mul", "mul", "pow", "mul", "mul", "add")
"""Operators in the backward pass of a GELU that the model computes with single operators such as power and tanh.

Other functions with a hyperbolic tangent and a power have the same operators, so they do not prove that it is a GELU.
"""
WRITTEN = [(f"aten::{x}", OUT) for x in BY_HAND]


def test_a_tail_is_replayed_and_its_saving_stated(store: Store, tmp_path: Path) -> None:
    ingest_trace(store, tmp_path, [RELU])
    tables = tables_of(store)
    problem = epilogues(tables)[0].fused
    ((asked, solutions),) = list_kernels_to_time(tables, [fused_epilogue.EPILOGUE], SMALL)
    assert (asked, solutions) == (problem, ("Default", "torch:fused"))
    assert estimate_saving(store, fused_epilogue.EPILOGUE) is None, "nothing was timed"

    store_times(store, problem, {"Default": [30.0, 30.3], "torch:fused": [20.0, 20.2]})
    found = estimate_saving(store, fused_epilogue.EPILOGUE)
    assert found is not None
    assert (found.now_us, found.then_us) == (50.0, pytest.approx(50.0 - 30.0 / 3)), "one of two calls, and its ReLU"
    assert found.pays
    (finding,) = missed_fusion.find(tables_of(store), SMALL)
    assert "torch:fused" in finding.message
    assert "not measured" not in finding.message
    assert finding.saving_us is None, "the action states it, and it counts once"


def test_what_is_not_worth_it_is_no_finding(store: Store, tmp_path: Path) -> None:
    ingest_trace(store, tmp_path, [RELU])
    problem = epilogues(tables_of(store))[0].fused
    store_times(store, problem, {"Default": [30.0, 30.0], "torch:fused": [29.9, 30.1]})
    assert missed_fusion.find(tables_of(store), SMALL) == []
    found = estimate_saving(store, fused_epilogue.EPILOGUE)
    assert found is not None
    assert not found.pays


@pytest.mark.parametrize("trains", [True, False])
def test_a_gelu_that_is_written_out_becomes_one_kernel_in_training_too(
    trains: bool, store: Store, tmp_path: Path
) -> None:
    ingest_trace(store, tmp_path, WRITTEN, trains)
    tables = tables_of(store)
    asked = [x for x, solutions in list_kernels_to_time(tables, [fused_epilogue.ONE_KERNEL], SMALL)]
    labels = [f"aten::gelu {N}×{M} bfloat16", *([f"aten::gelu_backward {N}×{M} bfloat16"] if trains else [])]
    assert [x.label for x in asked] == labels
    assert estimate_saving(store, fused_epilogue.ONE_KERNEL) is None, "nothing was timed"
    for problem, samples in zip(asked, ([6.0, 6.2], [4.0, 4.2]), strict=False):
        store_times(store, problem, {"Default": samples})
    found = estimate_saving(store, fused_epilogue.ONE_KERNEL)
    assert found is not None
    saved_us = 10.0 * len(WRITTEN) - 6.1 + (5.0 * len(GRADIENT) - 4.1 if trains else 0.0)
    assert found.saving_us == pytest.approx(saved_us), "the trace's kernels, less those that take their place"
    assert found.pays
    finding = next(x for x in missed_fusion.find(tables_of(store), SMALL))
    assert ("one_kernel_gelu" in finding.advice) is trains


@pytest.mark.parametrize(
    ("steps", "trains", "offered"),
    [
        ([RELU], False, {"fused_epilogue"}),
        ([RELU], True, {"fused_epilogue"}),
        ([("aten::gelu", OUT, ["", "tanh"])], False, {"fused_epilogue"}),
        ([("aten::gelu", OUT, ["", "tanh"])], True, set()),
        ([("aten::gelu", OUT, ["", "none"])], False, {"fused_gelu_tanh"}),
        ([("aten::gelu", OUT, ["", "none"])], True, set()),
        (WRITTEN, False, {"fused_epilogue", "one_kernel_gelu"}),
        (WRITTEN, True, {"one_kernel_gelu"}),
    ],
)
def test_what_can_be_fused(
    steps: list[tuple[Any, ...]], trains: bool, offered: set[str], store: Store, tmp_path: Path
) -> None:
    ingest_trace(store, tmp_path, steps, trains)
    job = job_of(tables_of(store), Settings())
    assert job.trains is trains
    assert {x.name for x in fused_epilogue.ALL if x.application(job) is not None} == offered
    text = json.dumps([x.problem.text for x in job.pairs])
    assert f"mnk={M},{N},{K}" in text


# ------------------------------------------------------------------------------------------------ what apply.py holds


def changes(name: str) -> Any:
    """Import a module of the package ``changes``.

    Its definitions are copied into the ``apply.py`` that logparse generates.
    """
    pytest.importorskip("torch")
    return importlib.import_module(f"logparse.capture.in_job.logparse_in_job.changes.{name}")


def test_the_fused_layer_has_the_gradient_of_the_plain_one() -> None:
    torch = pytest.importorskip("torch")
    epilogue = changes("epilogue")
    plain = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3, bias=False)).double()
    fused = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3, bias=False)).double()
    fused.load_state_dict(plain.state_dict())
    fused = epilogue.fuse_epilogues(fused, ("tanh",))
    x = torch.randn(2, 4, 5, dtype=torch.float64, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    out, same = plain(x), fused(y)
    assert torch.allclose(out, same)
    (out**2).sum().backward()
    (same**2).sum().backward()
    pairs = zip([x, *plain.parameters()], [y, *fused.parameters()], strict=True)
    assert all(torch.allclose(a.grad, b.grad) for a, b in pairs)
    assert list(fused.state_dict()) == ["0.weight", "0.bias", "2.weight"], "checkpoints keep their names"


def test_modules_that_write_gelu_out_become_one_kernel() -> None:
    torch = pytest.importorskip("torch")
    gelu = changes("gelu")
    from logparse.libraries.pytorch.replay_gemms import _written_gelu

    written = type("NewGELUActivation", (torch.nn.Module,), {"forward": lambda self, x: _written_gelu(torch, x)})
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), written(), torch.nn.Sequential(written()))
    x = torch.randn(3, 5)
    before = model(x)
    model = gelu.use_one_kernel_gelu(model)
    assert [type(m).__name__ for m in (model[1], model[2][0])] == ["GELU", "GELU"]
    assert torch.allclose(model(x), before, atol=1e-6)
    with pytest.warns(UserWarning, match="change the formula"):
        gelu.use_one_kernel_gelu(model)


def test_layers_and_activations_that_come_again_compute_what_they_did() -> None:
    torch = pytest.importorskip("torch")
    epilogue = changes("epilogue")
    layer, drop, relu = torch.nn.Linear(5, 5), torch.nn.Sigmoid(), torch.nn.ReLU()
    model = torch.nn.Sequential(layer, relu, torch.nn.Linear(5, 5), drop, torch.nn.Linear(5, 5), drop, relu, layer)
    x = torch.randn(3, 5)
    expected = model(x)
    fused = epilogue.fuse_epilogues(model, ("tanh",))
    assert [type(m).__name__ for m in fused][:2] == ["LinearRelu", "Identity"]
    assert torch.allclose(fused(x), expected, atol=1e-6)


def test_a_gelu_is_fused_only_without_a_gradient_and_where_its_form_is_meant() -> None:
    torch = pytest.importorskip("torch")
    epilogue = changes("epilogue")
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.GELU(approximate="tanh"), torch.nn.GELU())
    x = torch.randn(4, 5)
    before = model(x)
    model = epilogue.fuse_epilogues(model, ("tanh",))
    assert torch.allclose(model(x), before, atol=1e-6)
    model(x).sum().backward()
    with torch.no_grad():
        assert torch.allclose(model(x), before, atol=1e-3), "on a CPU this function takes erf"
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert model[0](x).dtype == torch.bfloat16
    with pytest.warns(UserWarning, match="call apply.linear"):
        epilogue.fuse_epilogues(torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.GELU()), ("tanh",))
