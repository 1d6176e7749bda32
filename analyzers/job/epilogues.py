"""Find matrix products that are followed by separate kernels for a bias or an activation.

The library could do this work in the product's kernel (an epilogue), which saves time. Source of the data: the trace
(``logparse/libraries/torch_profiler/epilogues.py``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from analyzers.evidence.tables import Tables
from logparse.libraries.torch_profiler.epilogues import FACT, GRADIENT
from logparse.model import DEFAULT, GemmProblem, problem_from_text

ACTIVATIONS: Mapping[str, str] = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu"}
"""Activations that the library can compute in the kernel of the matrix product, each with the library's name."""
BY_HAND = ("mul", "pow", "mul", "add", "mul", "tanh", "add", "mul")
"""Operators in which PyTorch runs a GELU that the program writes out as ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))).

The multiplication by ½ may be at another place.
"""

Form: TypeAlias = Literal["", "erf", "written"]
"""The way in which the traced program computes a GELU.

* ``erf``: exactly, in one kernel.
* ``written``: with tanh, as a formula of many kernels.
* empty text: with tanh, in one kernel.
"""


@dataclass(frozen=True)
class Epilogue:
    """A matrix product and the kernels after it whose work the library could do in the product's own kernel.

    * ``problem``: the product without this work. ``asked``: the product with it.
    * ``steps``: the operations of the kernels, in the words of the trace.
    * ``calls``: the number of calls of the product.
    * ``us``: total time of the kernels, µs. ``bias_us``: the time of the kernels that add a bias, µs.
    * ``form``: how the program computes GELU (see ``Form``).
    """

    problem: GemmProblem
    asked: GemmProblem
    steps: tuple[str, ...]
    calls: int
    us: float
    form: Form = ""
    bias_us: float = 0.0

    @property
    def exact(self) -> bool:
        """True if the GELU is computed exactly, by erf. No library can do that in the kernel of a matrix product."""
        return self.form == "erf"

    @property
    def fused(self) -> GemmProblem:
        """The matrix product that also computes the bias and the activation in its own kernel.

        The tensor that ``addmm`` adds is assumed to be a bias.
        """
        bias = self.problem.bias is not False or self.adds_bias
        kind = self.problem.d_type if bias else None
        return replace(self.asked, bias=bias, bias_type=kind, beta="zero")

    @property
    def adds_bias(self) -> bool:
        """True if a separate kernel after the matrix product adds the bias."""
        return "bias" in self.steps

    @property
    def as_run(self) -> str:
        """The name of the variant that runs the matrix product and the kernels after it separately, as in the trace.

        Measurements of this variant are stored under this name, for example ``torch:unfused``.
        """
        words = [*(["unfused"] if self.adds_bias else []), *([f"gelu={self.form}"] if self.form else [])]
        return f"torch:{','.join(words)}" if words else DEFAULT.text

    @property
    def in_library(self) -> str:
        """The name of the variant in which the library computes product, bias and activation in one kernel."""
        # If only a bias is added, the library does that by default. If the activation is GELU, the library computes its
        # approximation by tanh.
        return DEFAULT.text if self.asked.activation == "none" else "torch:fused"


def trains(tables: Tables) -> bool:
    """Tell whether the job computes gradients. The operators in its traces or the convolutions in its logs show it."""
    kernels = tables.kernels[tables.kernels["run"] == tables.run]
    backward = kernels["op"].dropna().astype(str).str.contains("backward", case=False).any()
    problems = {*tables.workload["problem"], *kernels["problem"].dropna()}
    return bool(backward) or any(str(problem).startswith(("conv B", "conv W")) for problem in problems)


def epilogues(tables: Tables) -> list[Epilogue]:
    """Return the job's matrix products after which separate kernels do work that the product's own kernel could do."""
    rows = tables.facts[(tables.facts["run"] == tables.run) & (tables.facts["name"] == FACT)]
    found: dict[tuple[str, tuple[str, ...]], Epilogue] = {}
    for text in sorted(rows["value"]):
        one = _epilogue(json.loads(text))
        if one is None:
            continue
        old = found.get((one.problem.text, one.steps))
        if old is not None:
            one = replace(one, calls=one.calls + old.calls, us=one.us + old.us, bias_us=one.bias_us + old.bias_us)
        found[one.problem.text, one.steps] = one
    return [found[key] for key in sorted(found)]


@dataclass(frozen=True)
class Gradient:
    """The backward pass of a GELU that the program writes out as a formula.

    ``problem`` is the matrix product before the GELU. ``us`` is the total time of the kernels, µs.
    """

    problem: GemmProblem
    calls: int
    us: float


def gradients(tables: Tables) -> list[Gradient]:
    """Return the gradient of each GELU that the program writes out as a formula."""
    sizes: dict[int, GemmProblem] = {}
    for one in epilogues(tables):
        p = one.problem
        if one.form == "written" and p.m is not None and p.n is not None and p.batch_count == 1:
            # A trace does not show to which forward pass a gradient belongs. So a gradient is assigned to the matrix
            # product whose result has the same number of elements.
            sizes.setdefault(p.m * p.n, p)
    rows = tables.facts[(tables.facts["run"] == tables.run) & (tables.facts["name"] == GRADIENT)]
    values = [json.loads(text) for text in rows["value"]]
    out = []
    for size, problem in sizes.items():
        mine = [x for x in values if x["elements"] == size]
        if mine:
            out.append(Gradient(problem, sum(int(x["calls"]) for x in mine), sum(float(x["us"]) for x in mine)))
    return out


def _epilogue(value: Mapping[str, object]) -> Epilogue | None:
    words, times = value["tail"], value["us"]
    problem = problem_from_text(str(value["problem"]))
    if not isinstance(problem, GemmProblem) or not isinstance(words, list) or not isinstance(times, list):
        return None
    taken = 1 if words[:1] == ["bias"] else 0
    activation: str = "none"
    form: Form = ""
    rest = words[taken:]
    if rest[:1] and rest[0] in ACTIVATIONS:
        activation, form, taken = ACTIVATIONS[rest[0]], "erf" if rest[0] == "gelu" else "", taken + 1
    elif _count_operators_of_gelu(rest):
        activation, form, taken = "gelu", "written", taken + _count_operators_of_gelu(rest)
    if not taken:
        return None
    # The operator may leave values open (an addend may be a bias). They stay open.
    asked = replace(problem, activation=activation, bias=None, bias_type=None, bias_source=None, beta=None)
    bias_us = float(times[0]) if words[0] == "bias" else 0.0
    return Epilogue(
        problem, asked, tuple(words[:taken]), int(str(value["calls"])), float(sum(times[:taken])), form, bias_us
    )


def _count_operators_of_gelu(words: Sequence[str]) -> int:
    """Return how many operators at the beginning of the list compute a GELU that the program writes out as a formula.

    0 if the list does not begin with such a GELU.
    """
    places = [i for i, word in enumerate(words) if word != "copy"]
    if not words or words[0] == "copy":
        return 0
    for formula in (BY_HAND, BY_HAND[1:]):
        if tuple(words[i] for i in places[: len(formula)]) == formula:
            # Copies between and after the operators are counted, too: autocast computes a power in single precision,
            # and then converts the result for the next product.
            taken = places[len(formula) - 1] + 1
            return taken + ("copy" in words[:taken] and words[taken : taken + 1] == ["copy"])
    return 0
