"""Train a model for a few steps under a profiler, in a process of its own. ``actions.py`` uses this module.

The model runs unchanged or with a change of the job, such as TF32.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from action_models import model_of

from logparse.libraries.torch_profiler.events import UNTRACED_STEP
from logparse.libraries.torch_profiler.operands import WITHOUT_KERNELS
from logparse.libraries.torch_profiler.operators import OPERATORS

BY_HAND = ".by_hand"
"""End of the name of a file beside a trace. It lists changes to the model that only a person can make.

``apply.py`` cannot make these changes.
"""
WARM_UP = 3
"""The number of steps before the first timed step.

At least two are needed, because a compiled model records its graphs in the second step.
"""
_TIMED = 10
"""The number of steps over which the wall time without the profiler is averaged."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """The settings of a training run on a device, whose trace is written to ``trace``.

    ``steps`` steps are profiled. ``apply`` is the path of a generated ``apply.py``, or empty if the model runs
    unchanged.
    """

    model: str
    device: str
    small: bool
    steps: int
    trace: str
    apply: str = ""
    action: str = ""


def train(run: Run, failed: str) -> None:
    """Train a model with the given settings and write its trace.

    If that fails, the traceback is written to the file ``failed``, and the error is raised again.
    """
    try:
        _train(run)
    except BaseException:
        Path(failed).write_text(traceback.format_exc(), encoding="utf-8")
        raise


def prepared(run: Run) -> tuple[Callable[[], None], Any]:
    """Return a function that does one training step of the model, and the module ``apply.py`` if it changed the model.

    If the model is not changed, None is returned in place of the module.
    """
    device, chosen = torch.device(run.device), model_of(run.model)
    torch.manual_seed(0)
    module = imported(run.apply) if run.apply else None
    if module:
        module.settings(run.action)
    with device:
        model, inputs, loss_of = chosen.make(device, run.small)
    if module:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = module.model(model, run.action)
        if notes := [str(x.message) for x in caught if x.filename == run.apply]:
            Path(run.trace).with_suffix(BY_HAND).write_text("; ".join(notes), encoding="utf-8")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step() -> None:
        cast = contextlib.nullcontext()
        if chosen.autocast is not None:
            cast = torch.autocast(device.type, dtype=chosen.autocast)  # type: ignore[assignment]
        with cast, torch.set_grad_enabled(chosen.trains):
            output = model(**inputs) if isinstance(inputs, dict) else model(*inputs)
        if not chosen.trains:
            return
        loss_of(output).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, module


def _train(run: Run) -> None:
    device = torch.device(run.device)
    step, _ = prepared(run)
    for _ in range(WARM_UP):
        step()
    trace = Path(run.trace)
    untraced_us = _step_us(step, device)
    trace.with_suffix(".step_us").write_text(str(untraced_us), encoding="utf-8")
    _profiled(step, device, run.steps, untraced_us).export_chrome_trace(str(trace))
    if device.type != "cuda":
        trace.write_text(json.dumps(as_device(json.loads(trace.read_text(encoding="utf-8")))), encoding="utf-8")


def _step_us(step: Callable[[], None], device: torch.device) -> float:
    """Return the wall time of a training step without the profiler, µs: the mean of several consecutive steps."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    begun = time.perf_counter_ns()
    for _ in range(_TIMED):
        step()
    wait()
    return (time.perf_counter_ns() - begun) / 1e3 / _TIMED


def _profiled(step: Callable[[], None], device: torch.device, count: int, untraced_us: float) -> torch.profiler.profile:
    """Run ``count`` training steps under PyTorch's profiler, and return the profile.

    ``untraced_us`` is the time of a step without the profiler. It is added to the profile's metadata, because traces of
    ``logparse capture`` contain it, too.
    """
    kinds = [torch.profiler.ProfilerActivity.CPU]
    kinds += [torch.profiler.ProfilerActivity.CUDA] if device.type == "cuda" else []
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=count, repeat=1)
    with torch.profiler.profile(activities=kinds, record_shapes=True, schedule=schedule) as profiler:
        for done in range(1 + count):
            step()
            if device.type == "cuda":
                torch.cuda.synchronize()
            if done == count:
                profiler.add_metadata_json(UNTRACED_STEP, f"{untraced_us:.3f}")  # only works while the profiler records
            profiler.step()
    return profiler


def imported(path: str) -> Any:
    """Import a generated ``apply.py`` from its path."""
    spec = importlib.util.spec_from_file_location("apply", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def as_device(trace: dict[str, Any]) -> dict[str, Any]:
    """Make the trace of a CPU look like the trace of a GPU, by adding a kernel for each operator."""
    # The kernel of a convolution or matrix product takes as long as the whole operator. The kernel of another operator
    # takes as long as the operator without the operators that it calls.
    events = [x for x in trace["traceEvents"] if x.get("cat") == "cpu_op" and x["name"].startswith("aten::")]
    kernels = []
    for thread in {x["tid"] for x in events}:
        rows = sorted((x for x in events if x["tid"] == thread), key=lambda x: (x["ts"], -x["dur"]))
        kernels += _kernels(rows)
    trace["traceEvents"] += kernels
    return trace


def _kernels(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Make up kernels for a CPU's trace, so that each operator seems to launch a kernel. Return the kernels.

    ``rows`` are the operators of one thread, sorted by start. An operator comes before the operators that it calls.
    """
    children: dict[int, list[int]] = {i: [] for i in range(-1, len(rows))}
    stack: list[int] = []
    for i, row in enumerate(rows):
        while stack and rows[stack[-1]]["ts"] + rows[stack[-1]]["dur"] <= row["ts"]:
            stack.pop()
        children[stack[-1] if stack else -1].append(i)
        stack.append(i)

    def holds_problem(i: int) -> bool:
        return any(rows[x]["name"] in OPERATORS or holds_problem(x) for x in children[i])

    out: list[dict[str, Any]] = []

    def visit(i: int) -> None:
        row = rows[i]
        inner = [x for x in children[i] if rows[x]["name"] not in WITHOUT_KERNELS]
        whole = not inner or (row["name"] in OPERATORS and not holds_problem(i))
        own = row["dur"] - (0 if whole else sum(rows[x]["dur"] for x in inner))
        if own > 0 and row["name"] not in WITHOUT_KERNELS:
            place = {"External id": row["args"]["External id"], "device": 0}
            kernel = {"ph": "X", "cat": "kernel", "name": row["name"], "pid": 0, "tid": 7, "ts": row["ts"], "dur": own}
            out.append({**kernel, "args": place})
        for x in [] if whole else children[i]:
            visit(x)

    for i in children[-1]:
        visit(i)
    return out
