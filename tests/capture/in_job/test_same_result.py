"""Tests of comparing a model's results with and without a change.

Results that differ only by rounding must be accepted as the same, and results of a wrong formula must be refused.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from logparse.capture.in_job.logparse_in_job.same_result import Comparison, NotRestoredError, call_of  # noqa: E402


def compare(model: Any, inputs: tuple[Any, ...], change: Any, roundoff: float = 0.0, **kwargs: Any) -> Any:
    """Compare the results of a model before and after ``change(True)``. ``change(False)`` undoes the change."""
    call = call_of(model, inputs, kwargs)
    return Comparison(call, roundoff).compare(lambda: change(True), lambda: change(False))


class Scaled(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A model of linear layers in which tests can set faults of any size: a factor, or another order of the sums."""

    def __init__(self, depth: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(depth))
        self.by, self.other_order, self.drops = 1.0, False, 0.0

    def forward(self, x: Any, **more: Any) -> Any:
        for layer in self.layers:
            if self.other_order:
                order = torch.randperm(64, generator=torch.Generator().manual_seed(1))
                layer_of = torch.nn.functional.linear(x[:, order], layer.weight[:, order], layer.bias)
            else:
                layer_of = layer(x)
            x = torch.tanh(layer_of)
        return {"logits": torch.nn.functional.dropout(x, self.drops, self.training) * self.by, "count": 3}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("depth", [1, 8])
def test_another_order_of_sums_is_the_same(dtype: Any, depth: int) -> None:
    model = Scaled(depth).to(dtype)
    found = compare(model, (torch.randn(8, 64, dtype=dtype),), lambda on: setattr(model, "other_order", on))
    assert found.is_same
    assert found.how == "output and gradients"


@pytest.mark.parametrize("by", [1.001, -1.0, float("nan"), float("inf")])
def test_a_planted_fault_is_not(by: float) -> None:
    model = Scaled()
    found = compare(model, (torch.randn(8, 64),), lambda on: setattr(model, "by", by if on else 1.0))
    assert not found.is_same
    assert found.deviation > 20 * found.allowed


@pytest.mark.parametrize("by", [1.0, 1.01])
def test_gradients_that_half_precision_cannot_hold_are_scaled(by: float) -> None:
    model = Scaled(1).half()
    model.layers[0].weight.data /= 1000  # tanh is not saturated
    rows = 1200 * torch.randn(20_000, 64).half()
    weights = torch.randn(len(rows), 64)
    (weights * model(rows)["logits"].float()).sum().backward()
    assert not model.layers[0].weight.grad.isfinite().all()
    found = compare(model, (rows,), lambda on: setattr(model, "by", by if on else 1.0))
    assert found.how == "output and gradients"
    assert found.is_same == (by == 1.0)


def test_what_an_action_claims_is_allowed() -> None:
    model = Scaled()
    change = lambda on: setattr(model, "by", 1.001 if on else 1.0)  # noqa: E731
    assert not compare(model, (torch.randn(8, 64),), change).is_same
    assert compare(model, (torch.randn(8, 64),), change, roundoff=2.0**-11).is_same


class Chaos(torch.nn.Module):
    """A chaotic model (logistic map), in which every step doubles the difference between two inputs.

    In evaluation mode the model is not chaotic, unless ``always`` is true.
    """

    def __init__(self, always: bool) -> None:
        super().__init__()
        self.first, self.always, self.by = torch.nn.Linear(64, 64), always, 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).sigmoid()
        for _ in range(40 if self.training or self.always else 0):
            x = 3.9 * x * (1 - x)
        return x * self.by


def test_results_that_amplify_rounding_are_compared_in_evaluation_mode() -> None:
    model = Chaos(always=False)
    for by in (1.0, -1.0):
        change = lambda on, by=by: setattr(model, "by", by if on else 1.0)  # noqa: E731
        found = compare(model, (torch.randn(8, 64),), change)
        assert found.tells
        assert found.is_same == (by == 1.0)
    assert found.how.endswith("in evaluation mode")


def test_results_that_tell_nothing_are_not_the_same() -> None:
    found = compare(Chaos(always=True), (torch.randn(8, 64),), lambda on: None)
    assert not found.tells
    assert not found.is_same


def test_models_with_changing_output_sizes_are_compared_in_training_mode() -> None:
    """If a model's results cannot be compared in evaluation mode, the comparison in training mode decides.

    For example, a detector that is not trained yet may return another number of boxes each time it is called.
    """

    class Detector(Chaos):
        boxes = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training:
                return super().forward(x)
            Detector.boxes += 1
            return self.first(x[:1]).expand(Detector.boxes, 64)

    model = Detector(always=True).requires_grad_(False)
    found = compare(model, (torch.randn(8, 64),), lambda on: None)
    assert Detector.boxes >= 2, "evaluation mode was tried"
    assert found.how == "output"
    assert not found.tells


def test_everything_is_as_it_was() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5))
    model(torch.randn(4, 8)).sum().backward()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    gradients = [(x.grad, x.grad.clone()) for x in model.parameters()]
    images = torch.randn(4, 8)
    state = torch.get_rng_state()
    assert compare(model, (images,), lambda on: None).deviation == 0.0
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    for (gradient, value), x in zip(gradients, model.parameters(), strict=True):
        assert x.grad is gradient
        assert torch.equal(gradient, value)
    assert model.training
    assert all(x.training for x in model.modules())
    assert not torch.nn.modules.module._global_forward_hooks


def test_the_compared_model_runs_as_in_the_job() -> None:
    """To compare results, the model is called as the job called it, for example with autocast or without gradients.

    The input is copied first, because the job may change it later.
    """
    model, x = Scaled(), torch.randn(8, 64)
    seen: list[Any] = []
    model.layers[0].register_forward_hook(lambda module, inputs, out: seen.append((out.dtype, float(inputs[0].sum()))))
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        call = call_of(model, (x,), {"more": [x]})
    total = float(x.sum())
    x.zero_()
    found = Comparison(call, 0.0).compare(lambda: None, lambda: None)
    assert found.how == "output"
    assert {dtype for dtype, _ in seen} == {torch.bfloat16}
    assert {of for _, of in seen} == {total}


def test_another_dropout_is_compared_without_it() -> None:
    model = Scaled()
    model.drops = 0.5

    def change(on: bool) -> None:
        model.drops = 0.4 if on else 0.5

    found = compare(model, (torch.randn(8, 64),), change)
    assert (found.is_same, found.how) == (True, "output and gradients, in evaluation mode")


def test_what_is_not_taken_back_is_found() -> None:
    model = Scaled()
    with pytest.raises(NotRestoredError, match="after the change was switched off again"):
        compare(model, (torch.randn(8, 64),), lambda on: setattr(model, "by", 1.0 if on else 0.5))


def test_an_error_of_the_model_comes_through_with_the_action_off() -> None:
    model, states = Scaled(), []

    def change(on: bool) -> None:
        states.append(on)
        model.layers[0].weight.data = torch.randn(64, 3) if on else torch.randn(64, 64)

    with pytest.raises(RuntimeError, match="shape"):
        compare(model, (torch.randn(8, 64),), change)
    assert states == [True, False]
    assert not torch.nn.modules.module._global_forward_hooks


class Remembers(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A model that draws random numbers of Python and NumPy in each call, and changes its own attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls = torch.nn.Linear(8, 8), 0
        self.seen, self.by_name, self.sizes = [0], {"calls": 0}, {0}
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        self.seen.append(self.calls)
        self.by_name["calls"] = self.calls
        self.sizes.add(self.calls)
        self.last = x
        self.mean = 0.9 * self.mean + x.detach().mean(0)
        return self.layer(x) * (1 + self.calls + random.random() + float(np.random.rand()))


def test_a_repeat_leaves_the_job_s_own_state_and_draws_the_same_numbers() -> None:
    model = Remembers()
    mean, own = model.mean, (random.getstate(), np.random.get_state()[1].tolist())
    names, containers = set(vars(model)), (model.seen, model.by_name, model.sizes)
    found = compare(model, (torch.randn(4, 8),), lambda on: None)
    assert found.deviation == 0.0, "each repeat draws the same numbers and counts the same calls"
    assert (random.getstate(), np.random.get_state()[1].tolist()) == own
    assert (model.calls, model.seen, model.by_name, model.sizes) == (0, [0], {"calls": 0}, {0})
    assert all(x is y for x, y in zip(containers, (model.seen, model.by_name, model.sizes), strict=True))
    assert set(vars(model)) == names
    assert model.mean is mean
    assert not mean.any()


class Checkpointed(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.first, self.by = torch.nn.Linear(8, 8), 1.0
        self.second = torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(self.second, self.first(x), use_reentrant=True) * self.by


def test_checkpoints_that_forbid_gradients_of_a_repeat() -> None:
    model = Checkpointed()
    found = compare(model, (torch.randn(4, 8),), lambda on: None)
    assert (found.is_same, found.how) == (True, "output")
    found = compare(model, (torch.randn(4, 8),), lambda on: setattr(model, "by", 1.01 if on else 1.0))
    assert not found.is_same
    assert all(x.grad is None for x in model.parameters())


class Functional(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A model that uses the parameters of its submodule without calling the submodule."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.child, self.other_order = torch.nn.Linear(64, 64, bias=False), False

    def forward(self, x: Any) -> Any:
        order = torch.randperm(64) if self.other_order else torch.arange(64)
        return torch.nn.functional.linear(x[:, order], self.child.weight[:, order])


def test_a_module_that_computes_with_its_child_s_parameters_is_rounded() -> None:
    model = Functional()
    found = compare(model, (torch.randn(8, 64),), lambda on: setattr(model, "other_order", on))
    assert found.deviation > 0
    assert found.is_same


class Experts(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.by = torch.nn.Parameter(torch.randn(2, 64, 2048)), 1.0

    def forward(self, x: Any) -> Any:
        return torch.einsum("bk,ekn->ben", x, self.weight) * self.by


def test_a_weight_of_several_matrices_sums_over_one_of_them() -> None:
    model = Experts()
    assert compare(model, (torch.randn(8, 64),), lambda on: None).allowed < 16 * 2048**0.5 * 2.0**-24


def test_inputs_are_copied_with_tensors_in_objects_but_without_modules() -> None:
    layer = torch.nn.Linear(3, 3)
    computed = layer(torch.ones(2, 3))
    batch = SimpleNamespace(x=computed, again=[computed], teacher=layer)
    (copied,) = call_of(layer, (batch,), {}).args
    assert copied.x is copied.again[0]
    assert copied.x is not computed
    assert (copied.x.is_leaf, copied.x.requires_grad) == (True, True)
    assert torch.equal(copied.x, computed)
    assert copied.teacher is layer


def test_a_call_in_inference_mode_is_repeated_in_it() -> None:
    class InPlace(torch.nn.Linear):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            seen.append(torch.is_inference_mode_enabled())
            return super().forward(x.mul_(0.5))

    seen: list[bool] = []
    model = InPlace(3, 3)
    with torch.inference_mode():
        call = call_of(model, (torch.ones(2, 3),), {})
    assert Comparison(call, 0.0).compare(lambda: None, lambda: None).how == "output"
    assert seen
    assert all(seen)
