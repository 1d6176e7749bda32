"""The least time that a device allows a problem: the one roofline, over ``Device.least_us``.  Pure.

``roofline_us`` is that of the direct algorithm with all operands in device memory at the data sheet's peaks
(``devices.csv``), the reference of efficiency; ``bound_us`` is what no library's algorithm, clock and cache can beat,
which ends a race.  A device or type that is not in that table has no roofline.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np

from logparse.devices import device_of
from logparse.model import ConvProblem, GemmProblem, Problem

Size: TypeAlias = Literal["m", "n", "k"]


def matrices(problem: GemmProblem) -> dict[str, tuple[Size, Size]]:
    """Which sizes are the rows and the columns of the column-major A, B, C and D in memory."""
    a: tuple[Size, Size] = ("m", "k") if problem.trans_a == "N" else ("k", "m")
    b: tuple[Size, Size] = ("k", "n") if problem.trans_b == "N" else ("n", "k")
    return {"a": a, "b": b, "c": ("m", "n"), "d": ("m", "n")}


def resized(problem: GemmProblem, size: Size, value: int | None) -> GemmProblem:
    """The problem with another ``size`` (None: left open), and with the leading dimensions and batch strides that
    follow from it: those of matrices without a gap.
    """
    out: dict[str, Any] = {size: value}
    after = replace(problem, **out)
    for name, (rows, cols) in matrices(problem).items():
        ld, stride = getattr(problem, f"ld{name}"), getattr(problem, f"stride_{name}")
        new = out[f"ld{name}"] = getattr(after, rows) if ld == getattr(problem, rows) else ld
        if ld and stride and stride == ld * (getattr(problem, cols) or 0):
            width = getattr(after, cols)
            out[f"stride_{name}"] = None if new is None or width is None else new * width
    return replace(after, **out)


def input_type(problem: Problem, facts: Mapping[str, str]) -> str | None:
    """The type whose matrix peak bounds this problem: of single precision the format that may be used.

    A compute type or a replay's settings (its facts) allow TF32 or refuse it.
    """
    if isinstance(problem, ConvProblem):
        return "f32_r" if problem.in_type == "FP32" and facts.get("replay_conv_tf32") == "0" else problem.in_type
    if isinstance(problem, GemmProblem):
        if problem.a_type != "f32_r":
            return problem.a_type
        short = problem.compute_type not in (None, "f32_r") or facts.get("replay_tf32") == "1"
        return _ROUNDED.get(problem.compute_type or "", "xf32_r" if short else "f32_r")
    return None


_ROUNDED = {"f32_f16_r": "f16_r", "f32_bf16_r": "bf16_r"}
"""Compute types that round single-precision operands to a half-precision format (CUBLAS_COMPUTE_32F_FAST_16F)."""


def roofline_us(problem: Problem, facts: Mapping[str, str]) -> float | None:
    """The longer of computing the problem directly and moving its operands once, µs; None where that is not known."""
    device, dtype = device_of(facts), input_type(problem, facts)
    if device is None or dtype is None or problem.flops is None or not problem.bytes:
        return None
    return device.least_us(problem.flops, problem.bytes, dtype)


def bound_us(problem: Problem, facts: Mapping[str, str], *, hot: bool = False, cache_bytes: int = 0) -> float | None:
    """No solution takes less than this many µs on the device that ``facts`` name; None where that is not known.

    With ``hot`` operands (they may lie in the cache) only the arithmetic bounds.  ``cache_bytes``: the last-level cache
    that the device reports, which may be larger than the data sheet's.
    """
    device, dtype, least = device_of(facts), input_type(problem, facts), _least_work(problem)
    if device is None or dtype is None or least is None:
        return None
    # What must cross HBM while timing: as much as the cache holds may be left there by the executions before.
    flops, bytes = least
    moved = 0.0 if hot else max(0.0, bytes - max(device.cache_bytes, cache_bytes))
    return device.least_us(flops / device.boost, moved, dtype)


def _least_work(problem: Problem) -> tuple[float, float] | None:
    """Fewest operations and bytes of any algorithm that libraries have; None where they are not known.

    Operands whose bytes are not known may all lie in the cache.
    """
    if isinstance(problem, ConvProblem):
        return _of_convolution(problem)
    if isinstance(problem, GemmProblem) and problem.flops is not None:
        return problem.flops, problem.bytes or 0.0
    return None


def _of_convolution(problem: ConvProblem) -> tuple[float, float] | None:
    """Work of a convolution without its window, and without what only padding or a stride leaves over.

    Winograd with output tiles m×m needs (m + r − 1)² products where the direct sum needs m²·r²: in the limit of large
    tiles (and of FFTs) the window r² drops out.  A window that lies in the padding needs no product, and a pointwise
    filter of stride 2 reads one input of four.  What is written is written wholly.
    """
    p, axes = problem, [_axis(problem, name) for name in "dhw"]
    if p.flops is None or p.operand_bytes is None or None in axes or p.mode == "transposed":
        return None
    inputs, windows, taps = (math.prod(shares) for shares in zip(*(x for x in axes if x is not None), strict=True))
    x, w, y = p.operand_bytes
    window = math.prod(int(size or 1) for size in (p.filter_d, p.filter_h, p.filter_w))
    x *= 1.0 if "B" in p.direction else inputs
    w *= 1.0 if "W" in p.direction else taps
    y *= 1.0 if "F" in p.direction else windows
    return p.flops / window * windows, x + w + y


def _axis(problem: ConvProblem, name: str) -> tuple[float, float, float] | None:
    """Shares of one axis: inputs that a window covers, windows that cover an input, and taps that do."""
    words = ("", "out_", "filter_", "pad_", "stride_", "dilation_")
    given = [getattr(problem, f"{word}{name}") for word in words]
    if None in given:
        return None
    size, out, taps, pad, stride, dilation = given
    places = (np.arange(out) * stride - pad)[:, None] + np.arange(taps) * dilation
    inside = (places >= 0) & (places < size)
    if not inside.any():
        return 0.0, 0.0, 0.0
    covered = len(np.unique(places[inside]))
    return covered / size, float(inside.any(axis=1).mean()), float(inside.any(axis=0).mean())
