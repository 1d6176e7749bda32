"""Find measured GEMMs or convolutions that are similar to a given one, with the times of their kernels. Pure.

Only calls of the same operation are compared. Their distance is measured in base-2 logarithms of numbers that matter to
a kernel:

* GEMM: its sizes
* convolution: batch, channels per group, output pixels, window, stride and groups

A size that differs by a factor of two adds 0.5 to the distance. The factor adds 1 for groups, for the product of the
window's sizes and for the product of strides, because these numbers decide which kernels exist. So a 2D window that
doubles in both directions adds 2. A convolution is also compared by the power of two that divides channels and pixels,
because the fast kernels load 16 bytes at a time.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from logparse.model import ConvProblem, GemmProblem, Measurement, Problem, solution_from_text

OTHER_TYPE, OTHER_LAYOUT = 4.0, 2.0
"""How much another type, and another layout or transposition, add to the distance of two GEMMs or convolutions.

For comparison: a size that differs 16-fold adds 2.
"""
KEPT = 32
"""Number of similar, already measured GEMMs or convolutions that a worker process gets as examples."""
FASTEST = 200
"""Number of kernels that a worker process gets for each similar GEMM or convolution, the fastest first."""
_SIZE, _WINDOW = 0.5, 2.0


@dataclass(frozen=True)
class Coordinates:
    """The sizes and types of a GEMM or convolution, in a form in which similar ones can be found.

    Only two with the same ``operation`` are compared. ``at`` contains weighted logarithms of the sizes.
    """

    operation: str
    type: str
    layout: str
    at: tuple[float, ...]


def coordinates(problem: Problem) -> Coordinates | None:
    """Return the sizes and types of a GEMM or convolution in a form in which similar ones can be found.

    Returns None for grouped GEMMs and other operators, and if a size is unknown.
    """
    if isinstance(problem, GemmProblem) and problem.kind == "gemm":
        sizes: tuple[int | None, ...] = (problem.m, problem.n, problem.k, problem.batch_count)
        type = f"{problem.a_type} {problem.d_type} {problem.compute_type}"
        layout = f"{problem.trans_a}{problem.trans_b}"
        return None if None in sizes else Coordinates("gemm", type, layout, _logarithms(sizes, _SIZE))
    if not isinstance(problem, ConvProblem):
        return None
    x, last = problem, slice(-problem.spatial, None)
    pixels, inputs = [x.out_d, x.out_h, x.out_w][last], [x.d, x.h, x.w][last]
    window = [x.filter_d, x.filter_h, x.filter_w][last]
    stride = [x.stride_d, x.stride_h, x.stride_w][last]
    if x.n is None or x.c is None or x.k is None or not x.groups or None in (*pixels, *window, *stride):
        return None
    channels, out = (x.c // x.groups, x.k // x.groups), _product(pixels)
    at = _logarithms((x.n, *channels, out), _SIZE)
    at += _logarithms((_product(window), _product(stride), x.groups), _WINDOW / 2)
    at += tuple(map(aligned, (*channels, out, _product(inputs))))
    return Coordinates(f"conv{x.spatial}d {x.direction} {x.mode}", str(x.in_type), str(x.in_layout), at)


def aligned(size: int) -> float:
    """Return how well a size is aligned, from 0 for an odd size to 1 for a multiple of 8.

    8 elements of a two-byte type are 16 bytes.
    """
    return next(i for i in (3, 2, 1, 0) if size % 2**i == 0) / 3


def distance(one: Coordinates, other: Coordinates) -> float:
    """Return how different two GEMMs or convolutions are, as a number from 0. Different operations give infinity."""
    if one.operation != other.operation:
        return math.inf
    apart = math.dist(one.at, other.at)
    return apart + OTHER_TYPE * (one.type != other.type) + OTHER_LAYOUT * (one.layout != other.layout)


def _logarithms(sizes: Iterable[int | None], weight: float) -> tuple[float, ...]:
    return tuple(weight * math.log2(max(1, x or 1)) for x in sizes)


def _product(values: Iterable[int | None]) -> int:
    return math.prod(x or 1 for x in values)


@dataclass(frozen=True)
class Measured:
    """A GEMM or convolution that was measured, with a dictionary from kernels to their times (µs).

    Only kernels that ran are in it.
    """

    problem: Problem
    times_us: Mapping[str, float]

    def of(self, libraries: Set[str]) -> Measured:
        """Return the same measured GEMM or convolution with only those kernels that belong to ``libraries``."""
        times = {x: us for x, us in self.times_us.items() if solution_from_text(x).library in libraries}
        return replace(self, times_us=times)

    def fastest(self) -> Measured:
        times = heapq.nsmallest(FASTEST, self.times_us.items(), key=lambda x: x[1])
        return replace(self, times_us=dict(times))


class Experience:
    """All GEMMs and convolutions that were measured so far, with the times of their kernels.

    They come from earlier replays and from the running one. They are kept separate for each environment (machine and
    library versions), because a name may mean another kernel in another build or on another device.
    """

    def __init__(self) -> None:
        self._measured: dict[str, dict[str, tuple[Coordinates, Measured]]] = {}

    def add(self, environment: str, problem: Problem, rows: Sequence[Measurement]) -> None:
        """Remember the measured times of the kernels for one GEMM or convolution.

        If some times for it are already known, the new times are added to them.
        """
        at = coordinates(problem)
        times = {x.solution.text: x.time_us for x in rows if x.status == "ok" and x.time_us}
        if at is None or not times:
            return
        held = self._measured.setdefault(environment, {})
        before = held[problem.text][1].times_us if problem.text in held else {}
        held[problem.text] = at, Measured(problem, {**before, **times})

    def near(self, environment: str, problem: Problem) -> tuple[Measured, ...]:
        """Return the measured GEMMs or convolutions that are most similar to ``problem``, the most similar first."""
        at, held = coordinates(problem), self._measured.get(environment, {})
        if at is None:
            return ()
        far = ((distance(at, there), text) for text, (there, _) in held.items() if there.operation == at.operation)
        return tuple(held[text][1].fastest() for _, text in heapq.nsmallest(KEPT, far))
