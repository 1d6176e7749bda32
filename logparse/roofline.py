"""Roofline: the least time that a GPU needs for a matrix product or convolution (here called a problem).

It is the time of the direct algorithm with all operands in device memory, at the peak rates of the data sheet
(``devices.csv``).  All commands use this roofline, and state efficiency relative to it.  A GPU or type that is not in
the data sheet has no roofline.  The functions have no side effects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from logparse.devices import device_of
from logparse.model import ConvProblem, GemmProblem, Problem

Size: TypeAlias = Literal["m", "n", "k"]


def matrices(problem: GemmProblem) -> dict[str, tuple[Size, Size]]:
    """Return the number of rows and columns of the matrices A, B, C and D, as they lie in memory (column-major).

    For example, A of a product without transposition is ``("m", "k")``.
    """
    a: tuple[Size, Size] = ("m", "k") if problem.trans_a == "N" else ("k", "m")
    b: tuple[Size, Size] = ("k", "n") if problem.trans_b == "N" else ("n", "k")
    return {"a": a, "b": b, "c": ("m", "n"), "d": ("m", "n")}


def resized(problem: GemmProblem, size: Size, value: int | None) -> GemmProblem:
    """Return the matrix product with another value for one of the sizes m, n and k. None makes the size unknown."""
    out: dict[str, Any] = {size: value}
    after = replace(problem, **out)
    for name, (rows, cols) in matrices(problem).items():
        ld, stride = getattr(problem, f"ld{name}"), getattr(problem, f"stride_{name}")
        # If a matrix has no gap between its columns, its leading dimension and batch stride change with the size.
        # Otherwise they stay the same.
        new = out[f"ld{name}"] = getattr(after, rows) if ld == getattr(problem, rows) else ld
        if ld and stride and stride == ld * (getattr(problem, cols) or 0):
            width = getattr(after, cols)
            out[f"stride_{name}"] = None if new is None or width is None else new * width
    return replace(after, **out)


def input_type(problem: Problem, facts: Mapping[str, str]) -> str | None:
    """Return the data type whose peak rate limits this matrix product or convolution on a GPU.

    For single precision it may be another format in which the library multiplies, such as TF32.
    """
    if isinstance(problem, ConvProblem):
        return "f32_r" if problem.in_type == "FP32" and facts.get("replay_conv_tf32") == "0" else problem.in_type
    if isinstance(problem, GemmProblem):
        if problem.a_type != "f32_r":
            return problem.a_type
        # Whether TF32 is allowed is known from the compute type, or from the settings of a replay (in ``facts``).
        short = problem.compute_type not in (None, "f32_r") or facts.get("replay_tf32") == "1"
        return _ROUNDED.get(problem.compute_type or "", "xf32_r" if short else "f32_r")
    return None


_ROUNDED = {"f32_f16_r": "f16_r", "f32_bf16_r": "bf16_r"}
"""For some compute types, the half-precision format to which single-precision operands are rounded.

An example of such a compute type is CUBLAS_COMPUTE_32F_FAST_16F.
"""


def roofline_us(problem: Problem, facts: Mapping[str, str]) -> float | None:
    """Return the least time in µs that a GPU needs for a matrix product or convolution (the roofline).

    ``facts`` describe the GPU. Returns None if the time is unknown.
    """
    device, dtype = device_of(facts), input_type(problem, facts)
    if device is None or dtype is None or problem.flops is None or not problem.bytes:
        return None
    # The GPU must compute the result directly, and move each operand once. The result is the longer one of the two
    # times.
    return device.least_us(problem.flops, problem.bytes, dtype)
