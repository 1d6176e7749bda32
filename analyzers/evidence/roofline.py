"""The least time that a device allows a problem: the one roofline, over ``Device.least_us``.  Pure.

``roofline_us`` is that of the direct algorithm with all operands in device memory, the reference of efficiency;
``bound_us`` is what no algorithm and no cache can beat, which ends a race.  The peaks are data-sheet values
(``devices.csv``), which no kernel exceeds.  A device or type that is not in that table has no roofline.
"""

from __future__ import annotations

from collections.abc import Mapping

from analyzers.evidence.devices import device_of
from logparse.model import ConvProblem, Family, GemmProblem, Problem


def input_type(problem: Problem, facts: Mapping[str, str]) -> str | None:
    """The type whose matrix peak bounds this problem: of single precision the format that may be used.

    A compute type or a replay's settings (its facts) allow TF32 or refuse it.
    """
    if isinstance(problem, ConvProblem):
        return "f32_r" if problem.in_type == "FP32" and facts.get("replay_conv_tf32") == "0" else problem.in_type
    if isinstance(problem, GemmProblem):
        short = problem.compute_type not in (None, "f32_r") or facts.get("replay_tf32") == "1"
        return "xf32_r" if problem.a_type == "f32_r" and short else problem.a_type
    return None


def roofline_us(problem: Problem, facts: Mapping[str, str]) -> float | None:
    """The longer of computing the problem directly and moving its operands once, µs; None where that is not known."""
    device, dtype = device_of(facts), input_type(problem, facts)
    if device is None or dtype is None or isinstance(problem, Family) or problem.flops is None or not problem.bytes:
        return None
    return device.least_us(problem.flops, problem.bytes, dtype)


def bound_us(problem: Problem, facts: Mapping[str, str], *, hot: bool = False) -> float | None:
    """No solution takes less than this many µs on the device that ``facts`` name; None where that is not known.

    With ``hot`` operands (they may lie in the cache) only the arithmetic bounds.
    """
    device, dtype = device_of(facts), input_type(problem, facts)
    if device is None or dtype is None or isinstance(problem, Family) or problem.flops is None:
        return None
    moved = 0.0 if hot or problem.bytes is None else _cold_bytes(problem.bytes, device.cache_bytes)
    return device.least_us(_least_flops(problem), moved, dtype)


def _cold_bytes(least_bytes: float, cache_bytes: int) -> float:
    """What must cross HBM while timing: the output of one execution may still lie in the cache when the next begins."""
    return max(0.0, least_bytes - cache_bytes)


def _least_flops(problem: GemmProblem | ConvProblem) -> float:
    """Fewest operations of any algorithm.

    Winograd with output tiles m×m needs (m + r − 1)² products where the direct sum needs m²·r²: in the limit of large
    tiles (and of FFTs) the window r² drops out.
    """
    flops = float(problem.flops or 0)
    if isinstance(problem, ConvProblem):
        return flops / ((problem.filter_d or 1) * (problem.filter_h or 1) * (problem.filter_w or 1))
    return flops
