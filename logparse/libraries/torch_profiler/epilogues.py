"""Elementwise operators that run right after a matrix product, on all that it wrote: what an epilogue could have done.

cuBLASLt, hipBLASLt and ``aten::_addmm_activation`` apply a bias and ReLU or GELU while the result is still in
registers; an operator of its own reads and writes it once more.  A trace contains the order of kernels, which the store
does not keep, so the reader counts these tails.  A step belongs to a tail when its kernel is the next one on the device
and its output has as many elements as the product's: both are in the trace, whose data flow is not.  Copies of other
sizes may stand between steps: autocast makes those of the next layer's weights there.

The fact ``epilogue_kernels`` (one value per problem and tail, JSON)::

    {"calls": 8, "problem": "gemm trans=N,N mnk=3072,2048,768 …", "tail": ["bias", "relu"], "us": [40.8, 38.2]}

``tail`` names the steps in order: ``bias`` (a vector added to every row), ``add`` (of two tensors, or a number),
``relu``, ``gelu`` (exact, by erf), ``gelu_tanh`` and other operators by their name; ``us`` is what the kernels of each
step took over all calls.  A trace does not record the string that chooses GELU's form: PyTorch's kernel names it by the
place of its lambda, the first for tanh (``aten/src/ATen/native/cuda/ActivationGeluKernel.cu``).

The gradient of a GELU that is written out is a run of such steps around a ``tanh_backward``, wherever it stands; the
fact ``gelu_gradient_kernels`` (one value per size and steps)::

    {"calls": 12, "elements": 25165824, "steps": ["copy", "mul", "tanh_backward", …], "us": 5120.5}
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from logparse.libraries.kinds.patterns import regex
from logparse.model import LIMIT, Fact, GemmProblem, Problem, is_whole

FACT = "epilogue_kernels"
GRADIENT = "gelu_gradient_kernels"
LONGEST = 12
"""Steps of a tail that are followed; GELU written out by hand has eight, and copies between them."""

_PLAIN = ("silu", "sigmoid", "tanh", "pow", "mul", "sub", "div", "leaky_relu", "elu")
STEPS: Mapping[str, str] = {
    **{f"aten::{name}{place}": name for name in _PLAIN for place in ("", "_")},
    **dict.fromkeys(("aten::add", "aten::add_"), "add"),
    **dict.fromkeys(("aten::relu", "aten::relu_"), "relu"),
    **dict.fromkeys(("aten::clamp_min", "aten::clamp_min_"), "clamp_min"),  # relu() launches through it
    **dict.fromkeys(("aten::gelu", "aten::gelu_"), "gelu"),
    "aten::copy_": "copy",  # of type or layout; autocast puts it between the steps of a formula
    "aten::tanh_backward": "tanh_backward",
}
"""Operators that may be a step, and their word."""
_GELU_GRADIENT = ("tanh_backward", "pow")
"""Steps of the gradient of ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))): of its tanh and of its cube."""
_TANH = regex(r"\bGeluCUDAKernelImpl\([^)]*\)::\{lambda\(\)#1\}")


def is_tanh(kernel: str) -> bool:
    """Whether a kernel of PyTorch computes GELU by its tanh approximation."""
    return _TANH.search(kernel) is not None


@dataclass(frozen=True)
class ElementWise:
    """One elementwise operator: its word, and how many elements it writes."""

    word: str
    elements: int


def step(name: str, args: Mapping[str, Any]) -> ElementWise | None:
    """What an operator of ``STEPS`` does; None where its inputs are not recorded or not readable."""
    dims, values = args.get("Input Dims"), args.get("Concrete Inputs")
    if not isinstance(dims, list) or not dims or not all(_sizes(x) for x in dims[:1]):
        return None
    texts = [str(x) for x in values] if isinstance(values, list) else []
    word = STEPS[name]
    if word == "add" and len(dims) > 1 and _sizes(dims[1]) and len(dims[1]) == 1 < len(dims[0]):
        word = "bias" if dims[1][0] == dims[0][-1] else "add"
    elif word == "clamp_min":
        word = "relu" if texts[1:2] in (["0"], ["0."], ["0.0"]) else word
    elif word == "gelu" and texts[1:2] == ["tanh"]:
        word = "gelu_tanh"
    return ElementWise(word, max(math.prod(x) for x in dims[:2] if _sizes(x)))


def _sizes(dims: object) -> bool:
    """Whether these are the sizes of a tensor: the number of its elements has 64 bits."""
    return isinstance(dims, list) and all(map(is_whole, dims)) and math.prod(dims) < LIMIT


@dataclass(frozen=True)
class Kernels:
    """Kernels of a trace as columns: start and duration (µs), device, operator, the indices of the problem and the
    step that each belongs to (-1: none), and whether it is a GELU by tanh.
    """

    start: npt.NDArray[np.float64]
    us: npt.NDArray[np.float64]
    device: npt.NDArray[np.int64]
    operator: npt.NDArray[np.int64]
    problem: npt.NDArray[np.int64]
    step: npt.NDArray[np.int64]
    tanh: npt.NDArray[np.bool_]


def tails(kernels: Kernels, problems: Sequence[Problem], steps: Sequence[ElementWise]) -> list[Fact]:
    """One fact per problem and tail, in the order in which they first come."""
    if not steps or not len(kernels.us):
        return []
    order = np.lexsort((kernels.start, kernels.device))
    problem, at, device, tanh = (x[order] for x in (kernels.problem, kernels.step, kernels.device, kernels.tanh))
    written = np.array([*(_written(x) for x in problems), -1], dtype=np.int64)[problem]
    read = np.array([*(x.elements for x in steps), 0], dtype=np.int64)[at]
    copies = _copies(steps)[at]
    follows = np.zeros(len(order), dtype=bool)
    follows[:-1] = (written[:-1] > 0) & (read[1:] == written[:-1]) & (device[1:] == device[:-1])
    found: dict[tuple[int, tuple[str, ...]], list[list[float]]] = {}
    for first in np.flatnonzero(follows).tolist():
        words: list[str] = []
        us: list[float] = []
        last, i = -1, first + 1
        while i < len(order) and device[i] == device[first]:
            if read[i] != written[first]:
                if not copies[i]:
                    break
                i += 1
                continue
            operator = int(kernels.operator[order[i]])
            if operator != last:
                if len(words) == LONGEST:
                    break
                word = steps[at[i]].word
                words.append("gelu_tanh" if word == "gelu" and tanh[i] else word)
                us.append(0.0)
            us[-1] += float(kernels.us[order[i]])
            last, i = operator, i + 1
        found.setdefault((int(problem[first]), tuple(words)), []).append(us)
    return [_fact(problems[index], tail, calls) for (index, tail), calls in found.items()]


def gelu_gradients(kernels: Kernels, steps: Sequence[ElementWise]) -> list[Fact]:
    """One fact per size and steps of the gradients of GELUs that are written out."""
    words = [*(x.word for x in steps), ""]
    if "tanh_backward" not in words:
        return []
    order = np.lexsort((kernels.start, kernels.device))
    at, device, operator = (x[order] for x in (kernels.step, kernels.device, kernels.operator))
    elements, copies = np.array([*(x.elements for x in steps), 0], dtype=np.int64)[at], _copies(steps)[at]

    def beside(i: int, direction: int) -> list[int]:
        """The steps of the same size on one side of a kernel, the nearest first."""
        out, j = [], i + direction
        while 0 <= j < len(order) and device[j] == device[i] and (elements[j] == elements[i] or copies[j]):
            if elements[j] == elements[i]:
                out.append(j)
            j += direction
        return out

    found: dict[tuple[int, tuple[str, ...]], list[float]] = {}
    last = -1
    for i in np.flatnonzero(np.array([x == "tanh_backward" for x in words])[at]).tolist():
        if i <= last:
            continue  # one more of the same run
        run = [*reversed(beside(i, -1)), i, *beside(i, 1)]
        last = run[-1]
        named = [x for n, x in enumerate(run) if not n or operator[x] != operator[run[n - 1]]]
        key = int(elements[i]), tuple(words[at[x]] for x in named)
        if all(x in key[1] for x in _GELU_GRADIENT):
            found.setdefault(key, []).append(float(kernels.us[order[run]].sum()))
    return [
        Fact(GRADIENT, json.dumps({"calls": len(us), "elements": size, "steps": run, "us": round(sum(us), 3)}))
        for (size, run), us in found.items()
    ]


def _copies(steps: Sequence[ElementWise]) -> npt.NDArray[np.bool_]:
    return np.array([*(x.word == "copy" for x in steps), False])


def _written(problem: Problem) -> int:
    """Elements that a plain product writes; -1 for anything else."""
    if not isinstance(problem, GemmProblem) or problem.members:
        return -1
    if problem.m is None or problem.n is None or problem.batch_count is None:
        return -1
    elements = problem.m * problem.n * problem.batch_count
    return elements if elements < LIMIT else -1


def _fact(problem: Problem, tail: Sequence[str], calls: Sequence[Sequence[float]]) -> Fact:
    us = [round(sum(step), 3) for step in zip(*calls, strict=True)]
    return Fact(FACT, json.dumps({"calls": len(calls), "problem": problem.text, "tail": list(tail), "us": us}))
