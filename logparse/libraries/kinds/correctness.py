"""Limits for how far a kernel's result may be from a reference of higher precision.  All functions are pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
"""The unit roundoff of each data type: the largest relative error of rounding a number to this type."""

_OUTPUT = 4.0
_PARTIALS = 16.0
_ACCUMULATION = 64.0
_GELU = 1e-3  # libraries approximate GELU, by tanh or worse


def depth(problem: Problem) -> int:
    """Return how many products are added up to compute one element of the output.

    For a matrix product this is K.  For a convolution it is the K of the equivalent matrix product.
    """
    if isinstance(problem, GemmProblem):
        return problem.k or 1
    if not isinstance(problem, ConvProblem):
        return 1
    window = (problem.filter_d or 1) * (problem.filter_h or 1) * (problem.filter_w or 1)
    if problem.direction == "W":
        return (problem.n or 1) * (problem.out_d or 1) * (problem.out_h or 1) * (problem.out_w or 1)
    channels = problem.c if problem.direction == "F" else problem.k
    return window * (channels or 1) // (problem.groups or 1)


def error_bound(problem: Problem, *, tf32: bool = False) -> float:
    """Return how large the relative error ‖out − ref‖ / ‖ref‖ of a kernel's result may be if only rounding causes it.

    A result with a missing tile or a wrong index has a far larger error.  The bound is a sum of four terms.  (A
    roundoff is the largest relative error of rounding a number to a type.)

    * 4 roundoffs of the output's type.  One is not enough for weight gradients that are computed in slices of K
      (split-K) and added up in this type.
    * 4 roundoffs of the input's format, if the inputs are first rounded to a shorter format.
    * 64·(1 + √K) roundoffs of the accumulator's type.  The rounding errors of a sum grow as a random walk, and
      Winograd's transforms multiply them by ten and more.
    * 0.001 if GELU is computed, because libraries approximate it.
    """
    out = _output_type(problem)
    short, wide = _formats(problem, tf32)
    inputs = ROUNDOFF.get(short, 0.0)
    grown = _ACCUMULATION * ROUNDOFF[wide] * (1 + math.sqrt(depth(problem)))
    gelu = _GELU if isinstance(problem, GemmProblem) and problem.activation == "gelu" else 0.0
    return _OUTPUT * (ROUNDOFF.get(out or "", 2.0**-8) + inputs) + grown + gelu


@dataclass(frozen=True)
class Tolerance:
    """The factors from which the largest allowed error of one element of a result is computed.  It is the sum of:

    * ``output`` times the magnitude of the element;
    * ``partials`` times the root mean square of all elements;
    * ``products`` times the sum of the magnitudes of the products that the element adds up (an element of |A|·|B|).
    """

    output: float
    partials: float
    products: float


def tolerance(problem: Problem, *, tf32: bool = False) -> Tolerance:
    """Return the limits for the error of a single element that rounding can explain.

    Elements are checked one by one, because an average over all elements would hide one wrong tile.  A roundoff is the
    largest relative error of rounding a number to a type.  The three limits are:

    * ``output``: 4 roundoffs of the output's type, and 16 for a convolution.
    * ``products``: 8 + √K roundoffs of the accumulator's type.  A sum of K products in any order has an error of at
      most γ·|a|·|b|, with γ about √K roundoffs for random signs (Higham and Mary, SIAM J. Sci. Comput. 41 (2019)).  The
      8 allows for short sums.  Inputs that are first rounded to a shorter format add two roundoffs.  For 8-bit inputs
      2⁻¹³ is used instead, because Hopper's matrix units add 8-bit products with 13 fractional bits.  For a convolution
      the accumulator's part is 16 times as large, because its transforms (Winograd) multiply the errors.
    * ``partials``: 16 roundoffs of the output's type.  Libraries may compute slices of K and add the sums in the
      output's type (cuBLASLt's split-K reductions INPLACE and OUTPUT_TYPE, which PyTorch allows for half precision).
      Each addition has a rounding error that depends on the size of the partial sum, even if later terms cancel that
      sum.  16 roundoffs are enough for the worst of a million elements after about ten slices.  With four roundoffs,
      cuBLASLt's own choice of nine slices at K = 50,257 on an H200 was rejected.
    """
    out, kind = _output_type(problem), problem.kind
    short, wide = _formats(problem, tf32)
    inputs = problem.a_type if isinstance(problem, GemmProblem) else getattr(problem, "in_type", None)
    accumulator = 2.0**-13 if "8" in (inputs or "") else ROUNDOFF[wide] * (8 + math.sqrt(depth(problem)))
    products = 2 * ROUNDOFF.get(short, 0.0) + accumulator * (16 if kind == "conv" else 1)
    roundoff = ROUNDOFF.get(out or "", 2.0**-8)
    return Tolerance(_OUTPUT * roundoff * (4 if kind == "conv" else 1), _PARTIALS * roundoff, products)


def approximate(problem: Problem) -> bool:
    """Return True if libraries compute this activation (GELU) only approximately, so that their results differ."""
    return isinstance(problem, GemmProblem) and problem.activation not in (None, "none", "relu")


def integer_choices(problem: Problem) -> int:
    """Return how rare 1 and -1 must be among random inputs of 0, 1 and -1, so that a kernel's result is exact.

    If n is returned, +1 and -1 must have the probability 1/n each.  Then every sum of products is exact in the output's
    type and in the accumulator's type.  The reason: sums of K such products have a standard deviation of 2·√K/n, and n
    is chosen so that seven standard deviations stay below the largest integer up to which the type holds all integers.
    For convolutions this largest integer is at most 64, because their transforms round.
    """
    wide = _formats(problem, False)[1]
    limit = 1 / max(ROUNDOFF.get(_output_type(problem) or "", 2.0**-8), ROUNDOFF[wide])
    limit = min(limit, 64.0) if problem.kind == "conv" else limit
    return max(3, math.ceil(14 * math.sqrt(depth(problem)) / limit))


def _formats(problem: Problem, tf32: bool) -> tuple[str, str]:
    """Return the data type in which a kernel multiplies and the one in which it adds.

    The inputs are first rounded to the first type, for example to TF32.  An empty text means that they are not rounded.
    """
    out, compute = _output_type(problem), problem.compute_type if isinstance(problem, GemmProblem) else None
    short = "xf32_r" if tf32 and out in ("f32_r", "FP32") else (compute or "").removeprefix("f32_")
    wide = "f64_r" if out in ("f64_r", "FP64") else "f16_r" if compute == "f16_r" else "f32_r"
    return "" if compute == "f16_r" else short, wide


def _output_type(problem: Problem) -> str | None:
    if isinstance(problem, GemmProblem):
        return problem.d_type or problem.a_type
    if isinstance(problem, ConvProblem):
        by_direction = {"B": problem.in_type, "W": problem.weights_type}
        return by_direction.get(problem.direction, problem.out_type) or problem.in_type
    return None


def is_acceptable(error: float, bound: float) -> bool:
    """Return True if the relative error of a kernel's result is small enough.

    NaN is never small enough.  It means that an element was not written or overflowed.
    """
    return math.isfinite(error) and error <= bound
