"""Tests of trying changes of settings or of the model in a running program ("trials").

The tests check which changes are tried, why a trial ends, and that no change stays on afterwards.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from analyzers.evidence.trials import Tried, combine_starts
from analyzers.tune.in_the_job import read
from logparse.capture.plan import make_trial_environment
from logparse.libraries.own.job_trials import Record
from tests.capture.in_job.observed import Server
from tests.capture.observing import ENVIRON, SET_OBSERVERS_CLOCK, Behaviour

pytest.importorskip("torch")

PROGRAM = f"""
import threading, time
import torch

now = [0.0]
time.perf_counter = lambda: now[0]  # the clock of units, which a test sets
{SET_OBSERVERS_CLOCK}
torch.manual_seed(0)


class Net(torch.nn.Sequential):
    def forward(self, images):
        in_forward()
        return super().forward(images)


def in_forward():
    pass


model = Net(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
images = torch.randn(2, 3, 6, 6)


def is_on():
    return model[0].weight.stride(1) == 1


def took():
    return 0.05 if is_on() else 0.1


def step(batch=2):
    optimizer.zero_grad()
    model(images[:1].expand(batch, 3, 6, 6).contiguous()).sum().backward()
    now[0] += took() * batch / 2
    optimizer.step()


def state():
    model.state_dict()
    kept = [model[0].weight, model[0].weight.grad, optimizer.state[model[0].weight].get("momentum_buffer")]
    return [x.stride() for x in kept if x is not None], len(model._forward_pre_hooks)

"""
"""Beginning of a job whose steps take half the time if its model is in channels_last.

Tests append the rest of the job.
"""
PLAIN = "([(27, 9, 3, 1), (27, 9, 3, 1), (27, 9, 3, 1)], 0)"


@dataclass(frozen=True)
class Ran:
    """The behaviour of a program that ran twice: alone, and while logparse tried a change in it.

    ``records`` and ``notes`` are what logparse wrote about the change.
    """

    plain: Behaviour
    tried: Behaviour
    records: list[Record]
    notes: list[str]

    @property
    def one(self) -> Record:
        (record,) = self.records
        return record

    def of(self, name: str) -> Tried:
        return next(x for x in combine_starts([name], self.records))


@pytest.fixture
def run(job_server: Server, tmp_path: Path) -> Any:
    def run(code: str, *actions: str, **more: Any) -> Ran:
        program, plan = tmp_path / "job.py", tmp_path / "asked.json"
        program.write_text(PROGRAM + code)
        plan.write_text(json.dumps({"actions": actions, "seconds": 60.0, "expected": 0, "floor": 0.01, **more}))
        plain, tried = job_server.both(program, tmp_path, LOGPARSE_TRACE_UNITS="0", LOGPARSE_TRY=str(plan))
        return Ran(plain.behaviour, tried.behaviour, read(tmp_path / "observed" / "logs"), tried.notes)

    return run


def test_an_action_is_timed_by_turns_and_taken_back(run: Any) -> None:
    ran = run("for _ in range(150): step()\nprint(state())", "channels_last", "padded_output", "tf32")
    assert ran.tried.out.decode().strip() == ran.plain.out.decode().strip() == PLAIN
    assert (ran.one.over, ran.one.why, ran.one.on) == (True, "", "")
    channels, padded, tf32 = ran.one.seen
    assert channels.ended == "decided"
    assert len(channels.pairs) == 8
    assert {round(x[0], 6) for x in channels.pairs} == {round(math.log(0.5), 6)}
    assert channels.pairs[0][1:] == pytest.approx((1e5, 5e4))
    assert channels.control == pytest.approx([0.0] * 2)
    assert channels.detail == "1 weight of a convolution"
    assert channels.same is not None
    assert 0 <= channels.same[0] <= channels.same[1]
    assert channels.same[2] == "output and gradients"
    assert (padded.ended, tf32.ended) == ("refused", "refused")
    assert "nothing to pad: every linear layer has fewer than 256 outputs" in padded.why
    assert "only on a GPU" in tf32.why
    assert ran.of("channels_last").outcome == "faster once", "one process is not enough"
    assert ran.notes == []


def test_calls_without_gradients_are_units_too(run: Any) -> None:
    ran = run(
        "def in_forward(): now[0] += took()\n"
        "with torch.no_grad():\n    for _ in range(150): model(images)\nprint(state())",
        "channels_last",
    )
    assert ran.one.sort == "module"
    assert ran.one.seen[0].ended == "decided"
    assert ran.one.seen[0].same is not None
    assert ran.one.seen[0].same[2] == "output"
    assert ran.tried.out == ran.plain.out == b"([(27, 9, 3, 1)], 0)\n"


def test_another_result_is_not_offered(run: Any) -> None:
    ran = run(
        "forward = Net.forward\n"
        "Net.forward = lambda self, images: forward(self, images) * (1.001 if is_on() else 1)\n"
        "for _ in range(60): step()\nprint(state())",
        "channels_last",
    )
    (seen,) = ran.one.seen
    assert seen.ended == "differs"
    assert seen.why.startswith("it computes something else: output and gradients differ by 1.0e-03")
    assert not seen.pairs
    assert ran.tried.out == ran.plain.out


@pytest.mark.parametrize(("by", "ended"), [("1 / is_on()", "refused"), ("1 / (not is_on())", "differs")])
def test_results_that_are_not_finite_are_refused(by: str, ended: str, run: Any) -> None:
    """If a model returns NaN or infinity, a change of it is not accepted, because the results cannot be compared.

    In the first case the numbers are not finite without the change, in the second case with it.
    """
    ran = run(
        "forward = Net.forward\n"
        f"Net.forward = lambda self, images: forward(self, images) * torch.tensor({by.split('/')[1]}, "
        "dtype=torch.float).reciprocal()\n"
        "optimizer.param_groups[0]['lr'] = 0.0\nfor _ in range(60): step()\nprint(state())",
        "channels_last",
    )
    (seen,) = ran.one.seen
    assert seen.ended == ended
    assert (
        "two equal calls of the model, both without the change, returned tensors of different sizes"
        if ended == "refused"
        else "differ by inf"
    ) in seen.why
    assert ran.tried.out == ran.plain.out


def test_dropout_does_not_make_results_look_wrong(run: Any) -> None:
    """If the model has dropout, its results with a change are still found to be right.

    The random mask of a dropout depends on the memory layout. So the results are compared in evaluation mode, without
    dropout.
    """
    ran = run("model.insert(1, torch.nn.Dropout(0.5))\nfor _ in range(80): step()\nprint(is_on())", "channels_last")
    assert ran.one.seen[0].same is not None
    assert ran.one.seen[0].same[2] == "output and gradients, in evaluation mode"
    assert ran.one.seen[0].pairs


def test_the_random_numbers_of_the_job_are_as_without_a_trial(run: Any) -> None:
    ran = run(
        "model.insert(1, torch.nn.Dropout(0.5))\nfor _ in range(25): step()\nprint(torch.rand(3))", "padded_output"
    )
    assert ran.one.seen[0].ended == "refused"
    assert ran.tried == ran.plain


RAISES = """
calls = [0]


def in_forward():
    calls[0] += is_on()
    if is_on() and calls[0] == 12:
        raise {error}


try:
    for _ in range(100): step()
except {kind} as error:
    print(type(error).__name__, error, state())
for _ in range(5): step()
print(state())
"""


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        ('torch.OutOfMemoryError("CUDA out of memory")', "torch.OutOfMemoryError", "OutOfMemoryError: CUDA out of me"),
        ("KeyboardInterrupt", "KeyboardInterrupt", "KeyboardInterrupt"),
        ("SystemExit(3)", "SystemExit", "SystemExit: 3"),
    ],
)
def test_an_exception_while_it_is_on_reaches_the_job_with_nothing_switched(
    error: str, kind: str, said: str, run: Any
) -> None:
    ran = run(RAISES.format(error=error, kind=kind), "channels_last", "padded_output")
    (seen,) = ran.one.seen
    assert (seen.ended, ran.one.over) == ("broken", True)
    assert seen.why.startswith(said)
    assert ran.one.why.startswith("channels_last was on when the job raised")
    first, last = ran.tried.out.decode().splitlines()
    assert first.startswith(said.partition(":")[0])
    assert PLAIN.partition(",")[0] in first, "the weight"
    assert last == PLAIN
    assert ran.tried.code == 0


def test_a_change_that_breaks_the_job_is_recorded(tmp_path: Path) -> None:
    """If a change makes the job fail, logparse records it as "broken", with the job's own exception as the reason."""
    # Here the change alters the strides of the parameters, and the job raises an exception because of that. The program
    # runs in a process of its own, because Python prints the exception only at the end of the process.
    program, plan = tmp_path / "job.py", tmp_path / "asked.json"
    check = "    assert model[0].weight.is_contiguous(), 'the layout'"
    program.write_text(f"{PROGRAM}\nfor _ in range(100):\n    step()\n{check}\n")
    plan.write_text(json.dumps({"actions": ["channels_last"], "seconds": 60.0, "floor": 0.01}))
    environ = make_trial_environment(tmp_path, "", ENVIRON, plan)
    ran = subprocess.run([sys.executable, str(program)], env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "AssertionError: the layout" in ran.stderr
    (record,) = read(tmp_path)
    (seen,) = record.seen
    assert (seen.ended, seen.why) == ("broken", "AssertionError: the layout")
    assert combine_starts(["channels_last"], [record])[0].outcome == "broken"


def test_an_error_of_the_job_s_own_is_no_action_s(run: Any) -> None:
    ran = run("for number in range(100):\n    step()\n    if number == 5: raise ValueError('its own')", "channels_last")
    assert (ran.tried.code, ran.tried.err) == (ran.plain.code, ran.plain.err)
    assert ran.one.seen == ()


def test_a_job_that_sets_it_itself(run: Any) -> None:
    ran = run(
        "for _ in range(80):\n    torch.backends.cuda.enable_flash_sdp(True)\n    step()\n"
        "print(torch.backends.cuda.flash_sdp_enabled(), state())",
        "attention_math",
        "channels_last",
    )
    attention, channels = ran.one.seen
    assert (attention.ended, attention.why) == (
        "refused",
        "the job itself sets torch.backends.cuda.enable_flash_sdp",
    )
    assert channels.pairs
    assert ran.tried.out == ran.plain.out


def test_a_job_that_changes_its_layout_itself(run: Any) -> None:
    ran = run(
        "for number in range(80):\n    step()\n    if number > 50: model.to(memory_format=torch.contiguous_format)\n"
        "print(state())",
        "channels_last",
    )
    (seen,) = ran.one.seen
    assert (seen.ended, seen.why) == ("refused", "the job itself changes the layout of its parameters")
    assert ran.tried.out == ran.plain.out


def test_a_job_that_looks_at_its_state_all_the_time(run: Any) -> None:
    ran = run("for _ in range(200):\n    step()\n    model.state_dict()\nprint(state())", "channels_last")
    (seen,) = ran.one.seen
    assert seen.ended == "refused"
    assert seen.why.startswith("too few steps could be compared: the change is switched off each time")
    assert ran.tried.out == ran.plain.out


def test_a_checkpoint_in_the_middle_holds_nothing_of_a_trial(run: Any) -> None:
    ran = run(
        "import io\nfor number in range(160):\n    step()\n    if number % 40 == 35:\n        file = io.BytesIO()\n"
        "        torch.save(model.state_dict(), file)\n"
        "        print([x.stride() for x in torch.load(io.BytesIO(file.getvalue())).values()])\nprint(state())",
        "channels_last",
    )
    assert ran.tried.out == ran.plain.out
    assert ran.one.seen[0].ended == "decided"
    assert {round(x[0], 6) for x in ran.one.seen[0].pairs} == {round(math.log(0.5), 6)}


def test_copies_pickles_and_processes_hold_nothing_of_a_trial(run: Any) -> None:
    ran = run(
        "import copy, os, pickle\n"
        "def seen(of): return [(x.stride(), getattr(x, 'grad', None) is None) for x in of.parameters()]\n"
        "for number in range(400):\n    step()\n"
        "    if number % 60 == 35: print(seen(copy.deepcopy(model)), len(copy.deepcopy(model)._forward_pre_hooks))\n"
        "    if number % 60 == 45: print(seen(pickle.loads(pickle.dumps(torch.nn.ModuleList([model])))))\n"
        "    if number % 60 == 55:\n        read, write = os.pipe()\n        child = os.fork()\n"
        "        if not child:\n            os.write(write, repr(seen(model)).encode())\n            os._exit(0)\n"
        "        os.waitpid(child, 0); print(os.read(read, 9999))\nprint(state())",
        "channels_last",
    )
    assert ran.tried.out == ran.plain.out
    seen = next(x for x in ran.records if x.seen).seen[0]
    assert seen.ended == "decided"
    assert {round(x[0], 6) for x in seen.pairs} == {round(math.log(0.5), 6)}


def test_a_copy_of_another_module_does_not_interrupt_a_trial(run: Any) -> None:
    ran = run(
        "import copy, pickle\nmetric = torch.nn.BatchNorm1d(3)\nfor number in range(150):\n    step()\n"
        "    copy.deepcopy(metric); pickle.dumps(metric); metric.state_dict()\nprint(state())",
        "channels_last",
    )
    assert ran.one.seen[0].ended == "decided"
    assert ran.tried.out == ran.plain.out


def test_pickling_during_a_trial_is_unchanged(run: Any) -> None:
    """While logparse tries a change, pickling a module gives the same bytes, tracebacks and warnings as without it.

    If the module has methods of its own for pickling, they are called.
    """
    ran = run(
        "import copy, pickle, traceback, warnings\n"
        "class Own(torch.nn.Linear):\n    def __reduce__(self): return Own, (3, self.out_features)\n"
        "class Mixin:\n    def __reduce_ex__(self, protocol): return list, ([protocol],)\n"
        "class Both(torch.nn.Linear, Mixin): pass\n"
        "class State(torch.nn.Linear):\n    def __getstate__(self):\n        warnings.warn('here', stacklevel=2)\n"
        "        return {**vars(self), 'more': 1}\n"
        "class Fails(torch.nn.Linear):\n    def __getstate__(self): raise ValueError('no state')\n"
        "def kept(x, protocol):\n    torch.manual_seed(3)\n    return pickle.dumps(x, protocol)\n"
        "for protocol in range(2, 6):\n    print(kept(torch.nn.Sequential(torch.nn.ReLU()), protocol))\n"
        "    print(kept(Own(3, 4), protocol), pickle.loads(kept(Both(3, 4), protocol)))\n"
        "print(copy.deepcopy(State(3, 4)).more, copy.copy(Own(3, 5)).out_features)\n"
        "for protocol in (0, 1, 4):\n    try: pickle.dumps(Fails(2, 2), protocol)\n"
        "    except ValueError: print(traceback.format_exc())\n",
        "channels_last",
    )
    assert ran.plain.code == 0
    assert ran.tried == ran.plain


ODD = """
model.append(torch.nn.Linear(2, 300))
optimizer.add_param_group({"params": list(model[4].parameters())})
for group in optimizer.param_groups:
    group["lr"] = 1e-6


def took():
    return 0.05 if len(model[4].weight) == 320 else 0.1


"""
"""Beginning of a job with a layer of 300 outputs. Its steps take half the time while the layer is padded."""
SIZES = "print([[tuple(y.shape) for y in (x, x.grad)] for x in model.parameters()], len(model[4]._forward_hooks))"


def test_a_state_is_loaded_into_the_sizes_of_the_job(run: Any) -> None:
    ran = run(
        f"{ODD}import copy\nbest = copy.deepcopy((model.state_dict(), optimizer.state_dict()))\n"
        "for number in range(200):\n    step()\n    if number % 40 == 35:\n        model.load_state_dict(best[0])\n"
        "        optimizer.load_state_dict(copy.deepcopy(best[1]))\n"
        f"    if number % 40 == 38: print([len(x['momentum_buffer']) for x in "
        "optimizer.state_dict()['state'].values()])\n"
        f"{SIZES}",
        "padded_output",
    )
    assert ran.plain.code == 0
    assert ran.tried == ran.plain
    assert ran.one.seen[0].pairs


def test_a_trial_works_if_the_job_keeps_a_loss(run: Any) -> None:
    """Changing a parameter's size can be tried even if the job keeps the loss of an earlier step.

    The kept loss refers to an autograd node that adds up gradients of the former size.
    """
    ran = run(
        f"{ODD}for _ in range(150):\n    loss = model(images).square().mean()\n    loss.backward()\n"
        f"    now[0] += took()\n    optimizer.step()\n    optimizer.zero_grad(set_to_none=False)\n{SIZES}",
        "padded_output",
    )
    assert ran.one.seen[0].ended == "decided"
    assert ran.tried == ran.plain


def test_a_gradient_that_crosses_the_steps_of_two_optimizers(run: Any) -> None:
    """The job's gradient is computed as without a trial, if the trial repeats a call in the middle of its computation.

    A GAN is such a job: its first optimizer steps before the gradient of the second one is computed.
    """
    ran = run(
        "model.insert(1, torch.nn.BatchNorm2d(4))\ncritic = torch.nn.Linear(2, 1)\n"
        "first = torch.optim.SGD(critic.parameters(), lr=1e-3)\nfor _ in range(150):\n    fake = model(images)\n"
        "    critic(fake.detach()).square().sum().backward()\n    now[0] += took()\n    first.step()\n"
        "    critic(fake).sum().backward()\n    optimizer.step(); optimizer.zero_grad(); first.zero_grad()\n"
        "print(model[1].running_mean, model[1].running_mean._version)",
        "channels_last",
    )
    assert ran.one.seen[0].ended == "decided", ran.one.seen[0].why
    assert ran.tried.out == ran.plain.out


def test_reading_the_state_before_backward_ends_the_trial(run: Any) -> None:
    """If the job reads its parameters between forward and backward pass, logparse stops trying a change in it."""
    # The change adds rows to a weight matrix. The rows cannot be removed at this moment, because the backward pass
    # would fail. The recorded result states this reason.
    ran = run(
        f"{ODD}for number in range(150):\n    loss = model(images).square().mean()\n"
        "    if len(model[4].weight) == 320 and optimizer.state and number > 25: model.state_dict()\n"
        "    loss.backward()\n    now[0] += took()\n    optimizer.step(); optimizer.zero_grad()\n",
        "padded_output",
    )
    (seen,) = ran.one.seen
    assert seen.ended == "refused"
    assert seen.why.startswith("the job read its state while the action was on: the job holds a view of its param")


def test_a_state_read_in_another_thread(run: Any) -> None:
    ran = run(
        "for number in range(60):\n    step()\n    if number == 40:\n"
        "        thread = threading.Thread(target=model.state_dict); thread.start(); thread.join()\nprint(state())",
        "channels_last",
    )
    (seen,) = ran.one.seen
    assert (seen.ended, seen.why) == (
        "refused",
        "the job reads the state of its model in another thread while it trains",
    )
    assert ran.tried.out == ran.plain.out


def test_no_switch_during_a_call_while_another_thread_saves(run: Any) -> None:
    """While a module computes, a change such as ``channels_last`` stays on, even if another thread saves."""
    # logparse switches the change on and off to measure its effect. If the main thread saves the model, the change is
    # switched off first, so that the saved model does not contain it.
    ran = run(
        "import io\ndef in_forward():\n    before = is_on()\n"
        "    thread = threading.Thread(target=torch.save, args=({'a': 1}, io.BytesIO()))\n"
        "    thread.start(); thread.join()\n"
        "    assert is_on() == before\nfor number in range(150): step()\nprint(state())",
        "channels_last",
    )
    assert ran.one.seen[0].ended == "decided"
    assert ran.tried == ran.plain


def test_units_that_end_within_a_backward_pass(run: Any) -> None:
    ran = run(
        "own = {x: torch.optim.SGD([x], lr=1e-3, momentum=0.9) for x in model.parameters()}\n"
        "def ready(x):\n    own[x].step(); own[x].zero_grad()\n"
        "for x in own: x.register_post_accumulate_grad_hook(ready)\n"
        "for _ in range(200):\n    now[0] += took()\n    model(images).sum().backward()\n"
        "print(state(), [x['momentum_buffer'].stride() for one in own.values() for x in one.state.values()])",
        "channels_last",
    )
    assert ran.one.seen[0].ended == "decided"
    assert {round(x[0], 6) for x in ran.one.seen[0].pairs} == {round(math.log(0.5), 6)}
    assert ran.tried.out == ran.plain.out


def test_an_optimizer_that_makes_its_first_step_while_an_action_is_on(run: Any) -> None:
    ran = run(
        f"{ODD}late = torch.optim.Adam(model[4].parameters())\nmade = []\nfor _ in range(150):\n    step()\n"
        "    if len(model[4].weight) == 320 and not made:\n        made.append(1); late.step()\n"
        "made or late.step()\nprint([len(x['exp_avg']) for x in late.state.values()])",
        "padded_output",
    )
    assert ran.one.seen[0].ended == "decided"
    assert ran.tried == ran.plain


ENDED_BY_EXCEPTION = """
class Enough(Exception):
    pass


class Outer(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.stops = inner, False

    def forward(self, x):
        out = self.inner(x)
        if self.stops:
            raise Enough
        return out


outer = Outer(model)
for _ in range(150):
    optimizer.zero_grad()
    outer(images).sum().backward()
    outer.stops = True
    try: outer(images)
    except Enough: outer.stops = False
    now[0] += took()
    optimizer.step()
print(state())
"""


def test_a_job_that_ends_its_calls_by_exceptions(run: Any) -> None:
    ran = run(ENDED_BY_EXCEPTION, "channels_last")
    assert (ran.one.seen[0].ended, ran.one.why) == ("decided", "")
    assert ran.tried == ran.plain


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_repeat_calls_within_the_backward_pass(reentrant: bool, run: Any) -> None:
    ran = run(
        "from torch.utils.checkpoint import checkpoint\nconv = model[0]\n"
        "class Repeated(torch.nn.Module):\n    def __init__(self):\n        super().__init__(); self.inner = conv\n"
        f"    def forward(self, x): return checkpoint(self.inner, x, use_reentrant={reentrant})\n"
        "model.insert(0, torch.nn.Conv2d(3, 3, 1)); model[1] = Repeated()\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)\n"
        "def is_on(): return conv.weight.stride(1) == 1\n"
        "for _ in range(150): step()\nprint(is_on(), conv.weight.grad.stride())",
        "channels_last",
    )
    (seen,) = ran.one.seen
    assert seen.ended == "decided"
    assert seen.same is not None
    assert seen.same[2] == ("output" if reentrant else "output and gradients")
    assert ran.tried == ran.plain


def test_a_model_that_serves_in_inference_mode_can_train_afterwards(run: Any) -> None:
    ran = run(
        "def in_forward(): now[0] += took()\nwith torch.inference_mode():\n    for _ in range(150): model(images)\n"
        "print(model[0].weight.is_inference()); step(); print(state())",
        "channels_last",
    )
    assert ran.one.seen[0].ended == "decided"
    assert ran.tried == ran.plain


def test_an_input_that_cannot_be_copied(run: Any) -> None:
    ran = run(
        "class Takes(torch.nn.Linear):\n    def forward(self, x, more): return super().forward(x)\n"
        "model, other = Takes(3, 3), torch.nn.Linear(3, 3)\noptimizer = torch.optim.SGD(model.parameters(), lr=1e-3)\n"
        "for _ in range(40):\n    model(other(torch.ones(2, 3)), (x for x in 'ab')).sum().backward(); now[0] += 0.1\n"
        "    optimizer.step()\n",
        "tf32",
    )
    assert ran.one.seen == ()
    assert ran.one.why.startswith("the input of its calls cannot be copied, so no result can be compared: TypeError")
    assert ran.tried == ran.plain


def test_an_input_with_tensors_that_the_job_has_computed(run: Any) -> None:
    ran = run(
        "from dataclasses import dataclass\n@dataclass\nclass Batch:\n    x: object\n"
        "class Takes(torch.nn.Conv2d):\n    def forward(self, batch): return super().forward(batch.x)\n"
        "before, model = torch.nn.Conv2d(3, 3, 1), Takes(3, 3, 3)\n"
        "def is_on(): return model.weight.stride(1) == 1\n"
        "optimizer = torch.optim.SGD([*before.parameters(), *model.parameters()], lr=1e-3)\n"
        "for _ in range(150):\n    model(Batch(before(images))).sum().backward(); now[0] += took()\n"
        "    optimizer.step()\n",
        "channels_last",
    )
    assert ran.one.seen[0].ended == "decided"
    assert ran.tried == ran.plain


def test_a_missing_request_changes_nothing(job_server: Server, tmp_path: Path) -> None:
    """A job runs as usual if the file that tells it to try a change does not exist any more.

    The file is deleted by the command that started the job, and a process may live longer than this command.
    """
    program = tmp_path / "job.py"
    program.write_text(PROGRAM + "for _ in range(30): step()\nprint(state())")
    plain, tried = job_server.both(program, tmp_path, LOGPARSE_TRACE_UNITS="0", LOGPARSE_TRY=str(tmp_path / "none"))
    assert tried.behaviour == plain.behaviour


def test_a_forward_that_is_compiled_after_we_switched(run: Any) -> None:
    ran = run(
        "whole = model\nfor number in range(60):\n    step()\n"
        "    if number == 40: model.compile(backend='eager')\nprint(state())",
        "channels_last",
        "padded_output",
    )
    assert ran.one.over
    assert ran.one.why.startswith("the job compiled its model with torch.compile")
    assert [x.ended for x in ran.one.seen] == ["refused"]
    assert ran.tried.out == ran.plain.out


def test_units_of_many_kinds_are_compared_within_a_kind(run: Any) -> None:
    ran = run("for number in range(1500): step(1 + number % 5)\nprint(state())", "channels_last")
    (seen,) = ran.one.seen
    assert seen.ended == "decided"
    assert {round(x[0], 6) for x in seen.pairs} == {round(math.log(0.5), 6)}, "whatever the batch"
    assert ran.tried.out == ran.plain.out


def test_units_that_are_never_alike(run: Any) -> None:
    ran = run("for number in range(200): step(1 + number)\nprint(state())", "channels_last")
    found = ran.of("channels_last")
    assert found.outcome == "undecided"
    assert found.why.startswith("the job's steps are of many kinds")
    assert ran.tried.out == ran.plain.out


def test_a_job_that_ends_too_early_leaves_what_is_known(run: Any) -> None:
    ran = run("for _ in range(40): step()\nprint(state())", "channels_last")
    (seen,) = ran.one.seen
    assert seen.ended == "units"
    found = ran.of("channels_last")
    assert found.outcome == "undecided"
    assert found.why.startswith("the job did too few steps")
    assert ran.tried.out == ran.plain.out


def test_a_job_of_known_length_begins_early(run: Any) -> None:
    ran = run("for _ in range(40): step()\nprint(state())", "channels_last", expected=40)
    assert len(ran.one.seen[0].pairs) >= 4
    assert ran.tried.out == ran.plain.out


def test_a_job_whose_units_never_settle_is_not_tried(run: Any) -> None:
    ran = run("for _ in range(8): step()\nprint(state())", "channels_last")
    assert (ran.one.seen, ran.one.over, ran.one.sort) == ((), True, "")
    assert ran.one.units == 8, "which lets the next start begin earlier"
    assert ran.tried.out == ran.plain.out


def test_units_of_several_threads(run: Any) -> None:
    ran = run(
        "from concurrent.futures import ThreadPoolExecutor as Pool\none, other = Pool(1), Pool(1)\n"
        "for _ in range(60): one.submit(step).result(); other.submit(step).result()\nprint(state())",
        "channels_last",
    )
    assert (ran.one.seen, ran.one.why) == ((), "the job runs its steps in several threads")
    assert ran.tried.out == ran.plain.out


@pytest.mark.parametrize(
    "program",
    [
        "from concurrent.futures import ThreadPoolExecutor as Pool\npool = Pool(1)\nfor _ in range(3): step()\n"
        "for _ in range(120): pool.submit(step).result()\nprint(pool.submit(state).result())",
        "thread = threading.Thread(target=step); thread.start(); thread.join()\n"
        "for _ in range(120): step()\nprint(state())",
    ],
    ids=["served by a thread of a pool", "after a thread that is over"],
)
def test_units_of_one_thread_at_a_time(run: Any, program: str) -> None:
    """A server may call its model first in the main thread, then in a thread. A job may warm up in a thread."""
    ran = run(program, "channels_last")
    assert [(x.ended, x.why) for x in ran.one.seen] == [("decided", "")]
    assert ran.tried.out == ran.plain.out


def test_another_thread_calls_the_model_during_the_trial(run: Any) -> None:
    ran = run(
        "from concurrent.futures import ThreadPoolExecutor as Pool\npool = Pool(1)\n"
        "for number in range(80): step() if number % 60 == 59 else pool.submit(step).result()\nprint(state())",
        "channels_last",
    )
    assert ran.one.why == "the job runs its steps in several threads"
    assert ran.tried.out == ran.plain.out


def test_steps_that_begin_after_many_calls_without_gradients(run: Any) -> None:
    """Reinforcement learning first collects experience with its model, and then trains it."""
    ran = run(
        "def play():\n    with torch.no_grad(): model(images)\n    now[0] += 0.01\n"
        "for _ in range(60): play()\n"
        "for _ in range(40):\n    play()\n    for _ in range(4): step()\nprint(state())",
        "channels_last",
    )
    assert [(x.name, x.ended) for x in ran.one.seen] == [("channels_last", "decided")]
    assert ran.one.sort == "optimizer"
    assert {round(x[0], 6) for x in ran.one.seen[0].pairs} == {round(math.log(0.5), 6)}
    assert ran.tried.out == ran.plain.out


def test_a_budget_that_is_over(run: Any) -> None:
    ran = run("for _ in range(80): step()\nprint(state())", "channels_last", "padded_output", seconds=0.0)
    assert (ran.one.seen, ran.one.why) == ((), "there was not enough time left to try the other actions")
    assert ran.tried.out == ran.plain.out
