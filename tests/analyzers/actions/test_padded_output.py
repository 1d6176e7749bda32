"""Tests of padding a model's output layer with ``apply.py``: the model must compute and train as before.

The models resemble heads of well-known libraries (BERT, BART).
"""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from analyzers.actions import padded_output
from analyzers.actions.action import ActionResult
from analyzers.actions.job import Job, Work
from analyzers.recommend import apply_module
from logparse.model import Operand, OperatorProblem, Problem
from tests.analyzers.actions.test_promises import linear

torch = pytest.importorskip("torch")

VOCABULARY, PADDED, WIDTH, ROWS = 515, 576, 32, 24


def job(*problems: Problem, trains: bool = True) -> Job:
    work = tuple(Work(problem=x, calls=2.0, us=10.0) for x in problems)
    return Job(work=work, total_us=100.0, steps=1.0, backend="CUDA", trains=trains)


@pytest.fixture
def applied(tmp_path: Path) -> Any:
    """Generate an ``apply.py`` that pads a model's output layer, and import it."""
    application = padded_output.ACTION.application(job(*linear(VOCABULARY, WIDTH, ROWS)))
    assert application is not None
    times = {"now_us": 2.0, "then_us": 1.0, "low_us": 1.0, "high_us": 1.0}
    made = apply_module.module([ActionResult(action=padded_output.ACTION, application=application, parts=(), **times)])
    assert made is not None
    (tmp_path / made.name).write_bytes(made.data)
    spec = importlib.util.spec_from_file_location("apply", tmp_path / made.name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Masked(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A model that uses one weight matrix for its embedding and its output layer, as BERT does.

    The model also refers to the output layer's bias a second time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.decoder = torch.nn.Linear(WIDTH, VOCABULARY)
        self.decoder.weight = self.embedding.weight
        self.bias = self.decoder.bias
        torch.nn.init.normal_(self.bias)

    def forward(self, ids: Any) -> Any:
        return self.decoder(torch.tanh(self.embedding(ids)))


class Summed(Masked):
    """A model that adds a buffer of the vocabulary's size to its outputs, as BART does."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last_bias", torch.randn(1, VOCABULARY))

    def forward(self, ids: Any) -> Any:
        return super().forward(ids) + self.last_bias


def optimized(model: Any) -> Any:
    return torch.optim.AdamW(model.parameters(), lr=0.05)


def losses(model: Any, optimizer: Any, steps: int = 4) -> list[float]:
    """Train the model for some steps and return the loss of each step.

    The outputs are reshaped to the original size of the vocabulary, although the layer may be padded. Libraries do the
    same.
    """
    source = torch.Generator().manual_seed(1)
    ids, labels = (torch.randint(0, VOCABULARY, (2, ROWS // 2), generator=source) for _ in range(2))
    out = []
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(model(ids).view(-1, VOCABULARY), labels.view(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        out.append(loss.item())
    return out


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("kind", [Masked, Summed])
def test_training_is_as_before(kind: Any, early: bool, applied: Any) -> None:
    """A model with a padded output layer has the same losses as before, and training does not change the added rows.

    If ``early`` is true, the optimizer is made before the padding, so it already refers to the model's parameters.
    """
    torch.manual_seed(0)
    plain = kind()
    model = copy.deepcopy(plain)
    optimizer = optimized(model) if early else None
    model = applied.model(model)
    assert model.decoder.weight is model.embedding.weight, "tied as before"
    assert model.decoder.weight.shape == (PADDED, WIDTH)
    assert model.bias is model.decoder.bias, "no parameter is left without a gradient"
    assert losses(model, optimizer or optimized(model)) == pytest.approx(losses(plain, optimized(plain)), rel=1e-5)
    added = model.decoder.weight[VOCABULARY:]
    assert not added.any(), "no step changes the added rows"


def test_a_copy_of_the_model_is_as_good_as_the_model(applied: Any) -> None:
    model = applied.model(Masked())
    ids = torch.arange(ROWS)
    assert torch.equal(copy.deepcopy(model)(ids), model(ids))
    again = applied.model(Masked())
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(ids), model(ids))


def test_a_model_without_such_a_layer_is_refused(applied: Any) -> None:
    with pytest.raises(ValueError, match=f"no torch.nn.Linear with {VOCABULARY} outputs"):
        applied.model(torch.nn.Linear(WIDTH, VOCABULARY + 1))


def test_products_and_weights_change_and_the_view_s_gradient_is_charged() -> None:
    layer = linear(VOCABULARY, WIDTH, ROWS)
    weights = Operand("float32", (VOCABULARY, WIDTH), (WIDTH, 1))
    outputs = Operand("float32", (ROWS, VOCABULARY), (VOCABULARY, 1))
    known = job(*layer, *(OperatorProblem("aten::mul", (x, x)) for x in (weights, outputs)))
    after = [padded_output.ACTION.change(x, known) for x in known.work]
    assert [x and x.problem for x in after[:3]] == list(linear(PADDED, WIDTH, ROWS))
    grown = Operand("float32", (PADDED, WIDTH), (WIDTH, 1))
    assert [x and x.problem for x in after[3:]] == [OperatorProblem("aten::mul", (grown, grown)), None]

    outputs, other = (Operand(x, (ROWS, VOCABULARY), (VOCABULARY, 1)) for x in ("bfloat16", "float32"))
    view = Operand("bfloat16", (ROWS, VOCABULARY), (PADDED, 1))
    casts = [OperatorProblem("aten::copy_", (*x, "False")) for x in ((other, outputs), (outputs, other))]
    softmax = OperatorProblem("aten::_log_softmax", (outputs, "1", "False"))
    known = job(*layer, *casts, softmax)
    assert [x and x.problem for x in (padded_output.ACTION.change(x, known) for x in known.work[3:])] == [
        OperatorProblem("aten::copy_", (other, view, "False")),
        None,  # the cast of the gradient
        OperatorProblem("aten::_log_softmax", (view, "1", "False")),
    ]

    kind = "bfloat16"
    whole, view = (Operand(kind, (ROWS, size), (PADDED, 1)) for size in (PADDED, VOCABULARY))
    gradient = Operand(kind, (ROWS, VOCABULARY), (VOCABULARY, 1))
    assert [(x.problem, x.calls) for x in padded_output.ACTION.added(known)] == [
        (OperatorProblem("aten::fill_", (whole, "0")), 2.0),
        (OperatorProblem("aten::copy_", (view, gradient, "False")), 2.0),
    ]
    assert padded_output.ACTION.added(job(*layer, trains=False)) == (), "no gradient, no copy"
