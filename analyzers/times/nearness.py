"""How near two problems are: the same operation, and sizes that differ by small factors.  Pure.

The coordinates are base-2 logarithms of what a kernel sees of a problem: a GEMM's sizes; of a convolution batch,
channels per group, output pixels, window, stride and groups.  A factor of two weighs 0.5 for a size, and 2 for window,
stride and groups, which decide what solutions there are.  Of a convolution it also counts what power of two divides
channels and pixels: the fast kernels load 16 bytes at a time, and a library that has to do without them takes longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from logparse.model import ConvProblem, GemmProblem, Problem

OTHER_TYPE, OTHER_LAYOUT = 4.0, 2.0
"""What another type, and another layout or transposition, adds to a distance (a size that differs 16-fold adds 2)."""
_SIZE, _WINDOW, _ALIGNED = 0.5, 2.0, 1.0


@dataclass(frozen=True)
class Coordinates:
    """``operation``: only problems of one operation are compared.  ``any_direction``: the operation without its
    direction, if it has one.  ``at``: weighted logarithms of the sizes.
    """

    operation: str
    any_direction: str
    type: str
    layout: str
    at: tuple[float, ...]


def coordinates(problem: Problem) -> Coordinates | None:
    """Where a problem lies; None for families, grouped GEMMs, other operators, and where a size is unknown."""
    if isinstance(problem, GemmProblem) and problem.kind == "gemm":
        sizes: tuple[int | None, ...] = (problem.m, problem.n, problem.k, problem.batch_count)
        type = f"{problem.a_type} {problem.d_type} {problem.compute_type}"
        return _at("gemm", "gemm", type, f"{problem.trans_a}{problem.trans_b}", sizes, ())
    if isinstance(problem, ConvProblem):
        x, groups = problem, problem.groups
        operation, any_direction = f"conv{x.spatial}d {x.direction} {x.mode}", f"conv{x.spatial}d {x.mode}"
        pixels = [x.out_d, x.out_h, x.out_w][-x.spatial :]
        window = [x.filter_d, x.filter_h, x.filter_w][-x.spatial :]
        stride = [x.stride_d, x.stride_h, x.stride_w][-x.spatial :]
        if None in (x.c, x.k, groups, *pixels, *window, *stride):
            return None
        per_group = [(x.c or 0) // (groups or 1), (x.k or 0) // (groups or 1)]
        sizes = (x.n, *per_group, _product(pixels))
        window_and_groups = (_product(window), _product(stride), groups)
        found = _at(operation, any_direction, str(x.in_type), str(x.in_layout), sizes, window_and_groups)
        inputs = [x.d, x.h, x.w][-x.spatial :]
        loaded = (*per_group, _product(pixels), _product(inputs))
        return found and replace(found, at=found.at + tuple(_ALIGNED * aligned(size) for size in loaded))
    return None


def aligned(size: int) -> float:
    """From 0, odd, to 1, a multiple of 8: 16 bytes of a two-byte type."""
    return next(i for i in (3, 2, 1, 0) if size % 2**i == 0) / 3


def work(problem: Problem) -> tuple[float, float] | None:
    """Flops and least bytes; None where either is unknown."""
    if not isinstance(problem, GemmProblem | ConvProblem) or not problem.flops or not problem.bytes:
        return None
    return float(problem.flops), float(problem.bytes)


def distance(one: Coordinates, other: Coordinates) -> float:
    """How far two problems of one operation lie apart; infinite for two operations."""
    if one.operation != other.operation:
        return math.inf
    apart = math.dist(one.at, other.at)
    return apart + OTHER_TYPE * (one.type != other.type) + OTHER_LAYOUT * (one.layout != other.layout)


def _at(
    operation: str,
    any_direction: str,
    type: str,
    layout: str,
    sizes: tuple[int | None, ...],
    window: tuple[int | None, ...],
) -> Coordinates | None:
    if None in sizes or None in window:
        return None
    logs = [_SIZE * math.log2(max(1, x or 1)) for x in sizes]
    logs += [_WINDOW * math.log2(max(1, x or 1)) / 2 for x in window]
    return Coordinates(operation, any_direction, type, layout, tuple(logs))


def _product(values: list[int | None]) -> int:
    return math.prod(x or 1 for x in values)
