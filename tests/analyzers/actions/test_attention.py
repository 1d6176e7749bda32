"""Tests of switching attention to another of PyTorch's implementations (flash, memory-efficient, math).

The tests check which implementations are timed and how results are compared, and that a training step on a CPU computes
the same as before.
"""

from __future__ import annotations

import atexit
import gc
import importlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from analyzers.actions import attention  # noqa: E402
from analyzers.actions.action import Change  # noqa: E402
from analyzers.actions.job import Job, Work  # noqa: E402
from analyzers.actions.totals import estimate_result  # noqa: E402
from analyzers.evidence.tables import Settings  # noqa: E402
from analyzers.recommend.verb import advise  # noqa: E402
from analyzers.replay.replay import Options, replay  # noqa: E402
from logparse.ingest import ingest  # noqa: E402
from logparse.libraries.kinds.backend import Conditions, Place, UnsupportedError  # noqa: E402
from logparse.libraries.kinds.device.attention_operands import attention_of  # noqa: E402
from logparse.libraries.kinds.device.torch_device import torch_device  # noqa: E402
from logparse.libraries.pytorch.replay import BACKEND  # noqa: E402
from logparse.libraries.torch_profiler.inputs import contiguous_strides  # noqa: E402
from logparse.model import Operand, OperatorProblem  # noqa: E402
from logparse.store import open_store  # noqa: E402
from tests.analyzers.actions.test_loop import METHOD, write_trace  # noqa: E402
from tests.conftest import ROOT  # noqa: E402

ACTIONS = {x.name: x for x in attention.ALL}
CPU = "aten::_scaled_dot_product_flash_attention_for_cpu"


def tensor(*sizes: int, dtype: str = "float32") -> Operand:
    return Operand(dtype, sizes, tuple(contiguous_strides(sizes)))


Q, LSE, HALF = tensor(2, 4, 24, 16), tensor(2, 4, 24), tensor(4, 197, 12, 64, dtype="bfloat16")
FORWARD = OperatorProblem(CPU, (Q, Q, Q, "0.", "True", "", ""))
BACKWARD = OperatorProblem(f"{CPU}_backward", (Q, Q, Q, Q, Q, LSE, "0.", "True", "", ""))
SHARED = OperatorProblem(CPU, (Q, tensor(2, 2, 24, 16), tensor(2, 2, 24, 16), "0.", "False", "", "0.5"))
MASKED = OperatorProblem(CPU, (Q, Q, Q, "0.", "False", Operand("bool", (2, 1, 24, 24), (576, 576, 24, 1)), ""))
ROCM = OperatorProblem(  # recorded on an MI300X with a PyTorch of 2024
    "aten::_flash_attention_forward",
    (HALF, HALF, HALF, "", "", "197", "197", "0.", "False", "False", "0.125", "", "", "", ""),
)


@pytest.fixture
def backend() -> Iterator[Any]:
    opened = BACKEND.open(Place())
    yield opened
    opened.release()


@pytest.mark.parametrize("problem", [FORWARD, BACKWARD, SHARED, MASKED], ids=["forward", "backward", "shared", "mask"])
def test_every_backend_of_a_cpu_computes_the_same(backend: Any, problem: OperatorProblem) -> None:
    ways, results = backend.solutions(problem, 9), []
    assert [x.text for x in ways] == ["Default", "torch:sdpa=flash", "torch:sdpa=math"]
    for way in ways:
        ready = backend.prepare(problem, way, Conditions(sets=2))
        results.append(ready._call(0))
        assert ready.sample_us(3) > 0
        torch.testing.assert_close(results[-1], results[0])


def test_a_gradient_can_be_timed_again_with_new_inputs(backend: Any) -> None:
    """The backward pass of attention can be timed again after its inputs were replaced by new random values.

    logparse replaces the inputs before each series of timed calls.
    """
    ready = backend.prepare(BACKWARD, backend.solutions(BACKWARD, 9)[0], Conditions(sets=2))
    first = ready._call(0)
    backend.refresh(7)
    assert ready.sample_us(3) > 0
    torch.testing.assert_close(ready._call(0), first)


def test_a_refused_call_has_a_reason(backend: Any) -> None:
    """If an implementation of attention refuses a call, the error states the reason.

    Here flash attention on a CPU refuses values whose head size differs from the head size of the keys.
    """
    values = tensor(2, 4, 24, 8)
    problem = OperatorProblem(CPU, (Q, Q, values, "0.", "False", "", ""))
    with pytest.raises(UnsupportedError, match=r"No available kernel|No viable backend|same"):
        backend.prepare(problem, backend.solutions(problem, 9)[1], Conditions())
    backend.prepare(problem, backend.solutions(problem, 9)[2], Conditions())


def test_operators_are_read_by_the_names_of_their_schema() -> None:
    device = torch_device("cpu")
    found = attention_of(device, ROCM)
    assert found is not None
    assert (found.backend, found.query.sizes, found.scale) == ("flash", (4, 12, 197, 64), 0.125)
    assert found.query.strides == (197 * 12 * 64, 64, 12 * 64, 1)
    packed = OperatorProblem(ROCM.name, (*ROCM.inputs[:3], tensor(5), tensor(5), *ROCM.inputs[5:]))
    assert attention_of(device, packed) is None, "sequences of several lengths"
    window = OperatorProblem(ROCM.name, (*ROCM.inputs[:11], "128", *ROCM.inputs[12:]))
    assert attention_of(device, window) is None
    short, bias = tensor(2, 24, 4, 16), tensor(2, 4, 24, 24)
    efficient = "aten::_efficient_attention_backward"
    inputs = (*[short] * 4, bias, short, "", "", "24", "24", LSE, "0.1", "", "", "1", "False", "", "", "", "True")
    assert attention_of(device, OperatorProblem(efficient, inputs)) is None, "a mask and a causal one"
    of = attention_of(device, OperatorProblem(efficient, (*inputs[:4], "", *inputs[5:])))
    assert of is not None
    assert (of.causal, of.dropout, of.mask, of.query.sizes) == (True, 0.1, None, (2, 4, 24, 16))
    assert of.grad == of.query
    learned = (*inputs[:14], "0", "True", *inputs[16:])
    assert attention_of(device, OperatorProblem(efficient, learned)) is None, "a gradient of the mask"
    assert attention_of(device, OperatorProblem("aten::add", (short, short))) is None


def job(*names: str, backend: str = "CUDA") -> Job:
    work = tuple(Work(problem=OperatorProblem(f"aten::{x}", (HALF,)), calls=2.0, us=10.0) for x in names)
    return Job(work=work, total_us=100.0, steps=1.0, backend=backend)


@pytest.mark.parametrize(
    ("names", "backend", "offered"),
    [
        (["_flash_attention_forward", "_flash_attention_backward"], "CUDA", {"efficient", "cudnn", "math"}),
        (["_efficient_attention_forward"], "HIP", {"flash", "math"}),
        (["_scaled_dot_product_cudnn_attention", "_flash_attention_forward"], "CUDA",
         {"flash", "efficient", "cudnn", "math"}),
        (["_scaled_dot_product_flash_attention_for_cpu"], "CPU", {"math"}),
        (["mul", "scaled_dot_product_attention"], "CUDA", set()),
    ],
)  # fmt: skip
def test_what_is_offered(names: list[str], backend: str, offered: set[str]) -> None:
    known = job(*names, backend=backend)
    assert {x for x, action in ACTIONS.items() if action.application(known)} == {f"attention_{x}" for x in offered}


def test_the_calls_of_other_backends_change() -> None:
    known = job("_flash_attention_forward", "_cudnn_attention_backward", "add")
    flash, cudnn, other = known.work
    change = ACTIONS["attention_cudnn"].change
    assert change(flash, known) == Change(flash.problem, "torch:sdpa=cudnn")
    assert change(cudnn, known) is None
    assert change(other, known) is None
    text = flash.problem.text
    timed = {(text, "Default"): ("x", (4.0, 4.0)), (text, "torch:sdpa=cudnn"): ("x", (2.0, 2.0))}
    found = estimate_result(ACTIONS["attention_cudnn"], known, timed)
    assert found is not None
    assert (found.now_us, found.then_us, found.measured_share) == (100.0, 95.0, 1.0)


def test_the_chosen_backend_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code that logparse generates makes PyTorch prefer one implementation of attention, and keeps the others.

    The preference stays in force even after the module with the generated code is gone. ``logparse run --with`` may
    drop this module.
    """
    application = ACTIONS["attention_math"].application(job("_efficient_attention_forward"))
    assert application is not None
    at_exit: list[Callable[[], object]] = []
    monkeypatch.setattr(atexit, "register", lambda call, *words: at_exit.append(partial(call, *words)))
    before = torch._C._get_sdp_priority_order()
    try:
        lines = ("from __future__ import annotations", *application.helpers, *application.settings)
        exec("\n".join(lines), {})
        gc.collect()
        assert [int(x) for x in torch._C._get_sdp_priority_order()][:3] == [0, 2, 1], "math, efficient, flash"
        assert torch.backends.cuda.flash_sdp_enabled()
    finally:
        for end in at_exit:
            end()
    assert torch._C._get_sdp_priority_order() == before


@pytest.mark.parametrize(
    ("action", "device", "kept"),
    [("attention_flash", "CUDA", True), ("attention_cudnn", "CUDA", False), ("attention_flash", "HIP", False)],
)
def test_the_first_call_of_pytorch_does_not_overwrite_the_order(action: str, device: str, kept: bool) -> None:
    """On an H100, PyTorch sets its own order in its first attention call, unless an environment variable forbids it."""
    application = ACTIONS[action].application(job("_efficient_attention_forward", backend=device))
    assert application is not None
    assert (application.environment.get("TORCH_CUDNN_SDPA_DEPRIORITIZED") == "1") is kept
    assert ("TORCH_CUDNN_SDPA_DEPRIORITIZED=1 in the environment" in application.line) is kept


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = torch.nn.Linear(8, 3 * 32), torch.nn.Linear(32, 515)

    def forward(self, images: Any) -> Any:
        q, k, v = self.inner(images.flatten(2)[..., :96].reshape(4, 36, 8)).chunk(3, -1)
        heads = [x.view(4, 36, 2, 16).transpose(1, 2) for x in (q, k, v)]
        out = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.head(out.transpose(1, 2).flatten(2).mean(1))


def test_a_training_step_on_a_cpu(tmp_path: Path, torch_processes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    write_trace(Net(), tmp_path / "before.json", importlib.import_module("action_runs").as_device)
    store = open_store(tmp_path / "store", create=True)
    ingest([str(tmp_path / "before.json")], store, run="before")
    report = replay(store, Options(devices=("cpu",), run="before", method=METHOD, only="actions"))
    assert report.finished
    (found,) = [x for x in advise(store, Settings(), "before").actions if x.action.excludes == "attention"]
    assert found.action.name == "attention_math"
    assert {x.group for x in found.parts} == {CPU, f"{CPU}_backward"}
    assert found.measured_share == 1.0
    assert found.application.settings == ("torch.backends.cuda.enable_flash_sdp(False)",)
