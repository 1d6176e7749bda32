"""The expected time of a problem: what the best solutions of comparable problems take on the device.  Pure.

Comparable are measured problems of one device (arch and CU count) and one family (kind, type, operations or direction,
layout), whose best time won against other solutions.  Every problem has a *base time*, a smooth form of the roofline
(Williams, Waterman, Patterson, CACM 52 (2009)) that includes the launch of one kernel:

    base = flops / peak + bytes / bandwidth + LAUNCH_US

The logarithm of time / base changes little between neighbours, so it is averaged over the ``NEIGHBOURS`` nearest ones
in the logarithms of the sizes (k-nearest-neighbour regression, Cover, IEEE Trans. Inf. Theory 14 (1968); weights by
distance: Shepard, ACM National Conference (1968)):

    log(expected / base) = Σ wᵢ · log(timeᵢ / baseᵢ) / Σ wᵢ,   wᵢ = 1 / (dᵢ² + SOFTENING)

with distances in doublings.  The spread of one estimate is √(weighted variance of the neighbours' logarithms +
FLOOR²).  What that spread is worth is measured by leaving groups out: groups of sizes (sizes that round to the same
powers of two) are dealt into ``FOLDS``, each fold is estimated from the others, and the quantile of error / spread is
the factor by which a spread is multiplied (normalised conformal prediction: Papadopoulos, Gammerman, Vovk, ECAI 2008;
over left-out parts: Barber, Candès, Ramdas, Tibshirani, Annals of Statistics 49 (2021)).  So at most 5 % of problems
that run at their best are above ``high_us``.

Limits.  The estimate is *unknown* (NaN)

| where | because |
|---|---|
| the measured problems are of fewer than ``ENOUGH`` groups of sizes | no quantile can be estimated |
| left-out estimates explain less than ``SKILL`` of the variance of log(time) | neighbours say no more than chance |
| neighbours are farther away than those of 95 % of the left-out problems | nothing calibrates the distance |

The expected time is that of the libraries that made the measurements: a newer library may be faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.intp]
Bools: TypeAlias = npt.NDArray[np.bool_]

NEIGHBOURS = 8
SOFTENING = 0.05
"""Squared doublings: neighbours nearer than a quarter of a doubling count alike."""
LAUNCH_US = 4.0
"""Launch, fill and drain of one kernel: no measured product takes less."""
FLOOR = 0.03
"""Spread of the logarithm of a time that even equal neighbours leave open: two measurements differ by as much."""
LEVEL = 0.95
FOLDS = 10
"""Parts of the groups: a problem's own group and a tenth of the groups around it are left out with it."""
ENOUGH = 20
"""Groups of sizes from which the quantile of ``LEVEL`` exists: 1 / (1 − LEVEL)."""
SKILL = 0.5
_CALIBRATED = 1500
"""Problems of a family on which it is calibrated; more change the quantile by less than its own error."""
_CELL, _FINE, _CANDIDATES = 0.5, 0.25, 40
"""Width (doublings) of the cells of the sizes, that of ``_DENSE`` measured problems and more, and how many of these
near its centre a cell looks at.
"""
_DENSE = 1000
_CHUNK = 1 << 22
"""Distances that are held at once."""


@dataclass(frozen=True, eq=False)
class Estimates:
    """Estimates of n problems: µs, NaN where unknown.

    ``high_us`` is above the time of 95 % of problems that run at their best.  ``guess_us`` is the estimate at any
    distance and from any neighbours, which only an order of work may use.  ``neighbours`` (n × 8, −1: none) are rows of
    the measured problems, the nearest first.
    """

    expected_us: Floats
    high_us: Floats
    guess_us: Floats
    neighbours: Ints


@dataclass(frozen=True, eq=False)
class Comparable:
    """The measured problems of one device and family: ``at`` (n × sizes, in doublings), ``base_us`` and ``time_us``."""

    at: Floats
    base_us: Floats
    time_us: Floats

    def __post_init__(self) -> None:
        if not len(self.at) == len(self.base_us) == len(self.time_us):
            raise ValueError("sizes, base times and times of comparable problems differ in number")

    @cached_property
    def log_ratio(self) -> Floats:
        out: Floats = np.log(self.time_us / self.base_us)
        return out

    @cached_property
    def groups(self) -> Ints:
        """Number of the group of sizes of each problem: sizes that round to the same powers of two are one group."""
        return groups_of(self.at)

    @cached_property
    def folds(self) -> Ints:
        """Number of the fold that the group of each problem is dealt into."""
        dealt = np.random.default_rng(0).permutation(int(self.groups.max(initial=-1)) + 1) % FOLDS
        out: Ints = dealt[self.groups]
        return out

    @cached_property
    def calibration(self) -> Calibration | None:
        """What leaving groups out says of the estimates; None where the family says nothing."""
        if len(np.unique(self.groups)) < ENOUGH:
            return None
        rows = np.unique(np.linspace(0, len(self.at) - 1, _CALIBRATED).astype(np.intp))
        mean, spread, distance = self._left_out(rows)
        good = np.isfinite(mean)
        if good.sum() < ENOUGH:
            return None
        error = (self.log_ratio[rows] - mean)[good]
        variance = float(np.var(np.log(self.time_us[rows][good])))
        if float(np.mean(error**2)) > (1 - SKILL) * variance:
            return None
        return Calibration(
            factor=max(0.0, _quantile(error / spread[good])),
            reach=_quantile(distance[good]),
            problems=len(error),
            median_error=float(np.median(np.abs(np.expm1(-error)))),
            log_error=float(np.sqrt(np.mean(error**2))),
        )

    def _left_out(self, rows: Ints) -> tuple[Floats, Floats, Floats]:
        """Mean, spread and distance of each of ``rows`` without its own fold."""
        found = np.full((len(rows), NEIGHBOURS), -1, dtype=np.intp)
        squared = np.full((len(rows), NEIGHBOURS), np.inf)
        for part in _parts(len(rows), len(self.at)):
            far = _squared(self.at[rows[part]], self.at)
            far[self.folds[rows[part], None] == self.folds[None, :]] = np.inf
            found[part], squared[part] = _smallest(far)
        return _weighted(self.log_ratio, found, squared)

    def estimates(self, at: Floats, base_us: Floats, own: Ints | None = None) -> Estimates:
        """The estimates of problems of these sizes and base times.  Each depends on nothing but its own problem.

        ``own``: the row of each problem's own measurement, which does not count for it (−1: it has none).
        """
        found, squared = self.nearest(at, own)
        mean, spread, distance = _weighted(self.log_ratio, found, squared)
        guess, known = base_us * np.exp(mean), self.calibration
        if known is None:
            none = np.full(len(at), np.nan)
            return Estimates(none, none.copy(), guess, found)
        expected = np.where((found >= 0).all(axis=1) & (distance <= known.reach), guess, np.nan)
        return Estimates(expected, expected * np.exp(known.factor * spread), guess, found)

    def scaled_us(self, neighbours: Ints, base_us: float) -> Floats:
        """What these measured problems would take with a problem's base time: their times, scaled to its size."""
        out: Floats = base_us * np.exp(self.log_ratio[neighbours[neighbours >= 0]])
        return out

    def nearest(self, at: Floats, own: Ints | None = None) -> tuple[Ints, Floats]:
        """The measured problems nearest to each point, but not its ``own``, and their squared distances.

        The sizes are cut into cells, and a point looks at the ``_CANDIDATES`` that are nearest to the centre of its
        cell: a million points of a log are in some thousand cells.
        """
        width = _CELL if len(self.at) < _DENSE else _FINE
        cells, inverse = _distinct(np.rint(at / width))
        candidates = min(_CANDIDATES, len(self.at))
        near = np.empty((len(cells), candidates), dtype=np.intp)
        for part in _parts(len(cells), len(self.at)):
            far = _squared(cells[part] * width, self.at)
            near[part] = np.sort(np.argpartition(far, candidates - 1, axis=1)[:, :candidates], axis=1)
        columns = [size[near].astype(np.float32) for size in self.at.T]
        points = at.astype(np.float32)
        found = np.empty((len(at), NEIGHBOURS), dtype=np.intp)
        squared = np.empty((len(at), NEIGHBOURS))
        for part in _parts(len(at), candidates << 4):  # what a core's own cache holds
            cell = inverse[part]
            far = np.zeros((len(cell), candidates), dtype=np.float32)
            for column, size in zip(columns, points[part].T, strict=True):
                apart = column[cell]
                apart -= size[:, None]
                apart *= apart
                far += apart
            if own is not None:
                far[near[cell] == own[part][:, None]] = np.inf
            order, squared[part] = _smallest(far)
            found[part] = np.where(order >= 0, near[cell[:, None], order], -1)
        return found, squared


@dataclass(frozen=True)
class Calibration:
    """What leaving groups out measured over ``problems``: the factor of a spread, the distance within which estimates
    are known, the median of |expected / best − 1| and the root mean square of its logarithm.
    """

    factor: float
    reach: float
    problems: int
    median_error: float
    log_error: float


def base_time_us(flops: Floats, bytes: Floats, peak_tflops: Floats | float, hbm_gbs: Floats | float) -> Floats:
    """The base time of problems (µs): that of computing, of moving the operands once, and of a launch."""
    out: Floats = flops / (np.asarray(peak_tflops) * 1e6) + bytes / (np.asarray(hbm_gbs) * 1e3) + LAUNCH_US
    return out


def groups_of(at: Floats) -> Ints:
    """Number of the group of sizes of each point: points that round to the same powers of two are one group."""
    return _distinct(np.rint(at))[1]


def _quantile(values: Floats) -> float:
    """The quantile of ``LEVEL`` with the finite-sample correction of conformal prediction: of (n + 1) values."""
    rank = min(len(values), math.ceil((len(values) + 1) * LEVEL))
    return float(np.sort(values)[rank - 1])


def _weighted(log_ratio: Floats, found: Ints, squared: Floats) -> tuple[Floats, Floats, Floats]:
    """Weighted mean and spread of the neighbours' logarithms, and their root mean square distance; NaN without any."""
    there = found >= 0
    weights = np.where(there, 1 / (squared + SOFTENING), 0.0)
    total = weights.sum(axis=1)
    values = log_ratio[found]
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (weights * values).sum(axis=1) / total
        variance = (weights * (values - mean[:, None]) ** 2).sum(axis=1) / total
        distance = np.sqrt(np.where(there, squared, 0.0).sum(axis=1) / there.sum(axis=1))
    return mean, np.sqrt(variance + FLOOR**2), distance


def _squared(one: Floats, other: Floats) -> Floats:
    """Squared distances of each point of ``one`` to each of ``other``."""
    out: Floats = (one**2).sum(axis=1)[:, None] - 2 * (one @ other.T) + (other**2).sum(axis=1)[None, :]
    return np.maximum(out, 0.0, out=out)


def _smallest(far: Floats) -> tuple[Ints, Floats]:
    """Columns of the ``NEIGHBOURS`` smallest finite values of each row, ascending; −1 and infinite where there is none.

    Of equal values the smaller column comes first.
    """
    count = min(NEIGHBOURS, far.shape[1])
    columns = np.sort(np.argpartition(far, count - 1, axis=1)[:, :count], axis=1)
    values = np.take_along_axis(far, columns, axis=1)
    order = np.argsort(values, axis=1, kind="stable")
    columns, values = np.take_along_axis(columns, order, axis=1), np.take_along_axis(values, order, axis=1)
    missing = NEIGHBOURS - count
    columns = np.pad(columns, ((0, 0), (0, missing)), constant_values=-1)
    values = np.pad(values, ((0, 0), (0, missing)), constant_values=np.inf)
    return np.where(np.isfinite(values), columns, -1), values


def _distinct(rows: Floats) -> tuple[Floats, Ints]:
    """The distinct rows of whole numbers, and the number of each row's own."""
    if not len(rows):
        return rows, np.zeros(0, dtype=np.intp)
    code = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T.astype(np.int64):
        values, place = np.unique(column, return_inverse=True)
        code = np.unique(code * len(values) + place, return_inverse=True)[1]
    first = np.unique(code, return_index=True)[1]
    return rows[first], code


def _parts(count: int, width: int) -> Iterator[slice]:
    """Slices of ``count`` rows of ``width`` values, so that none holds more than ``_CHUNK`` values."""
    step = max(1, _CHUNK // max(1, width))
    return (slice(i, min(i + step, count)) for i in range(0, count, step))
