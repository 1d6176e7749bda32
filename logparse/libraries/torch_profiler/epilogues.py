"""Find elementwise operators that run right after a matrix product, although an epilogue could do their work.

An epilogue is a part of the GEMM kernel: cuBLASLt, hipBLASLt and ``aten::_addmm_activation`` apply a bias and ReLU or
GELU while the result is still in registers.  A separate operator reads and writes the whole result once more.  The
elementwise operators behind a product are called its tail.  The tails are found while the trace is read, because the
store does not keep the order of kernels.

A trace does not show which operator reads the result of which other operator.  An operator is taken as part of a tail
if its kernel is the next kernel on the device and its output has as many elements as the product's.  Copies of other
sizes may come between, because autocast converts the next layer's weights there.

The fact ``epilogue_kernels`` (one value per problem and tail, JSON)::

    {"calls": 8, "problem": "gemm trans=N,N mnk=3072,2048,768 …", "tail": ["bias", "relu"], "us": [40.8, 38.2]}

``tail`` names the operators in order:

* ``bias``: a vector is added to every row;
* ``add``: two tensors are added, or a number;
* ``relu``, ``gelu`` (exact, by erf), ``gelu_tanh``;
* other operators by their name.

``us`` is the time of the kernels of each operator over all calls, µs.  A trace does not record the string that chooses
GELU's form.  The name of PyTorch's kernel shows the form by the place of its lambda, the first for tanh
(``aten/src/ATen/native/cuda/ActivationGeluKernel.cu``).

If a model computes GELU by a written-out formula, its gradient is a sequence of such operators around a
``tanh_backward``.  It may be anywhere in the trace.  The fact ``gelu_gradient_kernels`` (one value per size and
sequence)::

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
"""The largest number of elementwise operators after a matrix product that are listed.

A GELU written out by hand has eight operators, and copies between them.
"""

_PLAIN = ("silu", "sigmoid", "tanh", "pow", "mul", "sub", "div", "leaky_relu", "elu")
STEPS: Mapping[str, str] = {
    **{f"aten::{name}{place}": name for name in _PLAIN for place in ("", "_")},
    **dict.fromkeys(("aten::add", "aten::add_"), "add"),
    **dict.fromkeys(("aten::relu", "aten::relu_"), "relu"),
    **dict.fromkeys(("aten::clamp_min", "aten::clamp_min_"), "clamp_min"),  # relu() launches through it
    **dict.fromkeys(("aten::gelu", "aten::gelu_"), "gelu"),
    "aten::copy_": "copy",  # A copy changes the type or layout.  Autocast puts copies between the steps of a formula.
    "aten::tanh_backward": "tanh_backward",
}
"""The elementwise operators that may follow a matrix product, each with a short word for it."""
_GELU_GRADIENT = ("tanh_backward", "pow")
"""Two words that must occur in the gradient of a written-out GELU, ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))).

``tanh_backward`` is the gradient of the tanh, and ``pow`` belongs to the cube.
"""
_TANH = regex(r"\bGeluCUDAKernelImpl\([^)]*\)::\{lambda\(\)#1\}")


def is_tanh(kernel: str) -> bool:
    """Return True if a kernel of PyTorch computes GELU by its tanh approximation."""
    return _TANH.search(kernel) is not None


@dataclass(frozen=True)
class ElementWise:
    """An elementwise operator in a trace: a word for it, such as ``relu``, and the number of elements it writes."""

    word: str
    elements: int


def step(name: str, args: Mapping[str, Any]) -> ElementWise | None:
    """Return which elementwise operator of ``STEPS`` an event is, as a short word, and how many elements it writes.

    ``args`` are the arguments of its trace event.  Returns None if its inputs are not recorded or cannot be read.
    """
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
    """Return True if a value from a trace is a list of the sizes of a tensor.

    The tensor's number of elements must fit 64 bits.
    """
    return isinstance(dims, list) and all(map(is_whole, dims)) and math.prod(dims) < LIMIT


@dataclass(frozen=True)
class Kernels:
    """The kernels of a trace, as arrays with one element per kernel.

    * ``start``, ``us``: the kernel's start and duration in µs.
    * ``problem``: the index of the matrix product or convolution that it computes, or -1.
    * ``step``: the index of the elementwise operator that it computes, or -1.
    * ``tanh``: True if it computes GELU by the tanh approximation.
    """

    start: npt.NDArray[np.float64]
    us: npt.NDArray[np.float64]
    device: npt.NDArray[np.int64]
    operator: npt.NDArray[np.int64]
    problem: npt.NDArray[np.int64]
    step: npt.NDArray[np.int64]
    tanh: npt.NDArray[np.bool_]


def tails(kernels: Kernels, problems: Sequence[Problem], steps: Sequence[ElementWise]) -> list[Fact]:
    """Find elementwise operators right after a matrix product, such as a bias, which its own kernel could compute too.

    Returns one fact for each product and each sequence of operators after it, in the order in which they first ran.
    """
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
    """Find gradients of GELU that a program computes with many elementwise operators, although one would suffice.

    Returns one fact for each size and each sequence of operators.
    """
    words = [*(x.word for x in steps), ""]
    if "tanh_backward" not in words:
        return []
    order = np.lexsort((kernels.start, kernels.device))
    at, device, operator = (x[order] for x in (kernels.step, kernels.device, kernels.operator))
    elements, copies = np.array([*(x.elements for x in steps), 0], dtype=np.int64)[at], _copies(steps)[at]

    def beside(i: int, direction: int) -> list[int]:
        """Return the elementwise kernels of the same size before or after a kernel, the nearest first.

        ``direction`` is -1 for before and 1 for after.
        """
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
            continue  # it belongs to a gradient that was just counted
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
    """Return the number of elements in the output of a matrix product.

    Returns -1 if the number is unknown, and for a convolution or a grouped GEMM.
    """
    if not isinstance(problem, GemmProblem) or problem.members:
        return -1
    if problem.m is None or problem.n is None or problem.batch_count is None:
        return -1
    elements = problem.m * problem.n * problem.batch_count
    return elements if elements < LIMIT else -1


def _fact(problem: Problem, tail: Sequence[str], calls: Sequence[Sequence[float]]) -> Fact:
    us = [round(sum(step), 3) for step in zip(*calls, strict=True)]
    return Fact(FACT, json.dumps({"calls": len(calls), "problem": problem.text, "tail": list(tail), "us": us}))
