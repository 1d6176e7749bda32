"""Correctness before speed: how much a solution's result may differ from a higher-precision reference.  Pure."""

from __future__ import annotations

import math

from logparse.model import ConvProblem, GemmProblem, Problem

ROUNDOFF = {
    **dict.fromkeys(("f64_r", "FP64"), 2.0**-53),
    **dict.fromkeys(("f32_r", "FP32"), 2.0**-24),
    "xf32_r": 2.0**-11,
    **dict.fromkeys(("f16_r", "FP16"), 2.0**-11),
    **dict.fromkeys(("bf16_r", "BF16"), 2.0**-8),
    **dict.fromkeys(("f8_r", "f8_fnuz_r", "FP8"), 2.0**-4),
    **dict.fromkeys(("bf8_r", "bf8_fnuz_r", "BF8"), 2.0**-3),
    **dict.fromkeys(("i8_r", "i32_r", "INT8", "INT32"), 0.0),
}
"""Unit roundoff by type."""

_OUTPUT = 4.0
_ACCUMULATION = 64.0
_GELU = 1e-3  # libraries approximate it, by tanh or worse


def depth(problem: Problem) -> int:
    """Number of products summed into one output element (K of the GEMM that the problem is)."""
    if isinstance(problem, GemmProblem):
        return problem.k or max((member.k for member in problem.members), default=1)
    if not isinstance(problem, ConvProblem):
        return 1
    window = (problem.filter_d or 1) * (problem.filter_h or 1) * (problem.filter_w or 1)
    if problem.direction == "W":
        return (problem.n or 1) * (problem.out_d or 1) * (problem.out_h or 1) * (problem.out_w or 1)
    channels = problem.c if problem.direction == "F" else problem.k
    return window * (channels or 1) // (problem.groups or 1)


def error_bound(problem: Problem, *, tf32: bool = False) -> float:
    """The largest relative error ‖out − ref‖ / ‖ref‖ that rounding explains.

    4 roundoffs of the output (split-K weight gradients that are added up in the output type need more than one) plus
    64·√K roundoffs of the accumulator: rounding errors of a sum grow as a random walk, and Winograd's transforms
    multiply them by ten and more.  Where the inputs are rounded to a shorter format first, that counts like an output.
    A result with a missing tile or a wrong index lies far above.
    """
    out, compute = _output_type(problem), problem.compute_type if isinstance(problem, GemmProblem) else None
    short = "xf32_r" if tf32 and out in ("f32_r", "FP32") else (compute or "").removeprefix("f32_")
    inputs = ROUNDOFF.get(short, 0.0) if compute != "f16_r" else 0.0
    wide = "f64_r" if out in ("f64_r", "FP64") else "f16_r" if compute == "f16_r" else "f32_r"
    grown = _ACCUMULATION * ROUNDOFF[wide] * (1 + math.sqrt(depth(problem)))
    gelu = _GELU if isinstance(problem, GemmProblem) and problem.activation == "gelu" else 0.0
    return _OUTPUT * (ROUNDOFF.get(out or "", 2.0**-8) + inputs) + grown + gelu


def _output_type(problem: Problem) -> str | None:
    if isinstance(problem, GemmProblem):
        return problem.d_type or problem.a_type
    if isinstance(problem, ConvProblem):
        by_direction = {"B": problem.in_type, "W": problem.weights_type}
        return by_direction.get(problem.direction, problem.out_type) or problem.in_type
    return None


def acceptable(error: float, bound: float) -> bool:
    """Whether a relative error is within its bound; NaN (something was not written, or overflowed) never is."""
    return math.isfinite(error) and error <= bound
