"""Estimate how fast a GEMM or convolution can run, from the best measured times of similar ones. Pure.

"Problem" in this module means a GEMM or a convolution with all its sizes and types. Only measured problems on the same
kind of GPU (arch and CU count) and of the same family (kind, type, operations or direction, layout) are used. A time is
used only if its kernel won against other kernels.

Every problem has a *base time*, a smooth form of the roofline (Williams, Waterman, Patterson, CACM 52 (2009)) that
includes the launch of one kernel:

    base = flops / peak + bytes / bandwidth + LAUNCH_US

The logarithm of time / base changes little between problems of similar sizes. So it is averaged over the ``NEIGHBOURS``
problems whose logarithms of sizes are nearest (k-nearest-neighbour regression, Cover, IEEE Trans. Inf. Theory 14
(1968); weights by distance: Shepard, ACM National Conference (1968)):

    log(expected / base) = Σ wᵢ · log(timeᵢ / baseᵢ) / Σ wᵢ,   wᵢ = 1 / (dᵢ² + SOFTENING)

Distances dᵢ are in doublings: a distance of 1 means that one size is twice as large. The spread of one estimate is
√(weighted variance of the neighbours' logarithms + FLOOR²).

The spread is calibrated by cross-validation:

1. Sizes that round to the same powers of two are one group. The groups are distributed over ``FOLDS`` folds.
2. The times in each fold are estimated from the other folds.
3. Each spread is multiplied by one factor, the quantile of error / spread.

This is normalised conformal prediction (Papadopoulos, Gammerman, Vovk, ECAI 2008) with cross-validation (Barber,
Candès, Ramdas, Tibshirani, Annals of Statistics 49 (2021)). So at most 5 % of the problems that run at their best are
above ``high_us``.

The estimate is *unknown* (NaN) in these cases:

| case | reason |
|---|---|
| the measured problems are of fewer than ``ENOUGH`` groups of sizes | no quantile can be estimated |
| the cross-validation explains less than ``SKILL`` of the variance of log(time) | the neighbours predict too little |
| the neighbours are farther away than for 95 % of the cross-validated problems | their error is unknown |

The expected time is valid for the libraries that made the measurements. A newer library may be faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.intp]
Bools: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = npt.NDArray[np.int32]
"""Row numbers of measurements. They have 32 bits, because a million problems have 8 million neighbours."""

NEIGHBOURS = 8
SOFTENING = 0.05
"""Keeps a very similar measurement from dominating an estimate: all very near ones get almost the same weight.

The constant is added to the squared distance, so "very near" means within about a quarter of a doubling of the sizes.
The unit is squared doublings.
"""
LAUNCH_US = 4.0
"""Time to launch, start and end one kernel, µs. No measured matrix product takes less."""
FLOOR = 0.03
"""Smallest uncertainty of an estimated time, as a standard deviation of its logarithm (0.03 is about 3 %).

Two measurements of the same GEMM or convolution already differ this much.
"""
LEVEL = 0.95
FOLDS = 10
"""Number of parts into which the measured times are divided to test the estimates (cross-validation).

The times in each part are estimated from the other parts. So a time is never estimated from itself, nor from times of
similar sizes.
"""
ENOUGH = 20
"""Number of groups of similar sizes that must be measured. With fewer, no times of other sizes are estimated.

The 95 % quantile (``LEVEL``) of the errors needs 1 / (1 − LEVEL) = 20 values.
"""
SKILL = 0.5
_CALIBRATED = 1500
"""Largest number of measured GEMMs or convolutions that are used to test the estimates.

More of them would take longer and would hardly change the result.
"""
_COARSE, _FINE = (2.0, 400), (0.5, 40)
"""Settings of two grids that speed up the search for GEMMs or convolutions of similar sizes.

Each setting is a pair: the width of a grid cell in doublings of sizes, and the number of measurements that are kept for
each cell. The kept ones are nearest to the centre of the cell.
"""
_CHUNK = 1 << 17
"""Largest number of distances that are computed at once. A core's cache holds them."""
_ONE_THREAD = 1 << 18
"""Largest number of multiplications in one matrix product for which OpenBLAS starts no threads.

Sizes are vectors of few numbers. For such products the threads take more CPU time than the work itself.
"""
_COLUMN = (1 << 29) - 1
"""The bits of a 64-bit float that are 0 if its value is a 32-bit float. ``_smallest_single`` puts a column there."""
_MOST_CODE = 1 << 62
"""Largest number that ``_distinct`` may use to encode a row of whole numbers. Above it, 64 bits could overflow."""


@dataclass(frozen=True, eq=False)
class Estimates:
    """Estimated times (µs) of n GEMMs or convolutions. NaN means unknown.

    * ``expected_us``: the time that the best kernel should take.
    * ``high_us``: an upper bound of that time. 95 % of the calls that run their best kernel take less.
    * ``guess_us``: an estimate even if there are few similar measurements. Use it only to order work.
    * ``neighbours`` (n × 8): row numbers of the most similar measurements, the nearest first. Missing ones are −1.
    """

    expected_us: Floats
    high_us: Floats
    guess_us: Floats
    neighbours: Rows


@dataclass(frozen=True, eq=False)
class Comparable:
    """Measured times of GEMMs or convolutions of one kind of GPU, to estimate the times of other sizes.

    * ``at`` (n × number of sizes): logarithms to base 2.
    * ``base_us``: rough times (``base_time_us``), µs.
    * ``time_us``: best measured times, µs.
    """

    at: Floats
    base_us: Floats
    time_us: Floats

    def __post_init__(self) -> None:
        if not len(self.at) == len(self.base_us) == len(self.time_us):
            raise ValueError("the arrays `at`, `base_us` and `time_us` must have the same length")

    def scaled(self, factor: float) -> Comparable:
        """Return the same measurements with all times multiplied by ``factor``.

        The calibration stays the same, because it is about ratios of times.
        """
        return Comparable(self.at, self.base_us, self.time_us * factor).calibrated(self.calibration)

    def calibrated(self, calibration: Calibration | None) -> Comparable:
        """Return the same measurements with their calibration, which is known. So it is not computed again."""
        out = Comparable(self.at, self.base_us, self.time_us)
        vars(out)["calibration"] = calibration
        return out

    @cached_property
    def log_ratio(self) -> Floats:
        out: Floats = np.log(self.time_us / self.base_us)
        return out

    @cached_property
    def groups(self) -> Ints:
        """For each measured GEMM or convolution, the number of its group of similar sizes.

        Sizes that round to the same powers of two are one group.
        """
        return groups_of(self.at)

    @cached_property
    def lines(self) -> Ints:
        """Number the measured GEMMs or convolutions by series. The members of a series differ in one size only.

        The size is chosen so that there are as few series as possible.
        """
        out = np.zeros(len(self.at), dtype=np.intp)
        # For example, a tuner's table has one series for each weight matrix of a model, with all numbers of tokens.
        fewest = len(self.at) + 1
        # Ranks are whole numbers, so each row becomes one number. Such numbers are sorted much faster than rows.
        ranks = np.array([np.unique(size, return_inverse=True)[1] for size in self.at.T], dtype=np.float64).T
        for free in range(self.at.shape[1]):
            _, line = _distinct(np.delete(ranks, free, axis=1))
            if len(line) and line.max() < fewest:
                out, fewest = line, line.max()
        return out

    @cached_property
    def folds(self) -> tuple[Ints, Ints]:
        """For each measurement, the number of its part in the cross-validation, for two ways of division.

        Groups of similar sizes (``groups``) stay together, or series in which one size differs (``lines``).
        """
        return _deal_to_folds(self.groups), _deal_to_folds(self.lines)

    @cached_property
    def calibration(self) -> Calibration | None:
        """How wrong the estimated times are, found by estimating times that are known (cross-validation).

        None if too few GEMMs or convolutions were measured, or if the times cannot be predicted well enough from the
        sizes (see ``SKILL``).
        """
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
        )

    def _left_out(self, rows: Ints) -> tuple[Floats, Floats, Floats]:
        """Estimate times that were measured, as if they were unknown, to see how wrong such estimates are.

        Measurements of similar sizes are not used for the estimate (cross-validation). ``rows`` are the numbers of the
        GEMMs or convolutions to estimate. Returns three arrays with one value for each:

        * The estimate, as the logarithm of (time / rough time from a simple model).
        * How much this logarithm varies between the measurements that were used.
        * How much the sizes differ from those measurements. A distance of 1 is a factor of 2 in size.
        """
        found = np.full((len(rows), NEIGHBOURS), -1, dtype=np.intp)
        squared = np.full((len(rows), NEIGHBOURS), np.inf)
        one, two = (fold.astype(np.int8) for fold in self.folds)  # Small numbers are compared much faster.
        for part in _parts(len(rows), len(self.at)):
            here = rows[part, None]
            far = _squared_distances(self.at[rows[part]], self.at)
            np.putmask(far, (one[here] == one) | (two[here] == two), np.inf)
            found[part], squared[part] = _find_smallest_in_rows(far)
        return _weighted(self.log_ratio, found, squared)

    def estimates(self, at: Floats, base_us: Floats, own: Ints | None = None) -> Estimates:
        """Estimate how long GEMMs or convolutions take whose sizes were not measured, from the most similar sizes.

        * ``at``: the sizes, as logarithms to base 2.
        * ``base_us``: a rough time for each from a simple model (``base_time_us``).
        * ``own``: for each, the number of its own measurement, or −1 if it was not measured. Its own measurement is not
          used, because a time that predicts itself would seem exact.

        Each time is estimated alone, so the result does not depend on the other GEMMs or convolutions in the arrays.
        """
        expected, high, guess = (np.full(len(at), np.nan) for _ in range(3))
        found, known = np.empty((len(at), NEIGHBOURS), dtype=np.int32), self.calibration
        for part, rows, squared in self._search(at, own):
            mean, spread, distance = _weighted(self.log_ratio, rows, squared)
            guessed = base_us[part] * np.exp(mean)
            found[part], guess[part] = rows, guessed
            if known is not None:
                estimated = np.where((rows[:, -1] >= 0) & (distance <= known.reach), guessed, np.nan)
                expected[part], high[part] = estimated, estimated * np.exp(known.factor * spread)
        return Estimates(expected, high, guess, found)

    def scaled_us(self, neighbours: Rows, base_us: float) -> Floats:
        """Estimate the time (µs) of a GEMM or convolution from each of several measurements with similar sizes.

        * ``neighbours``: the row numbers of the measurements. Negative numbers are skipped.
        * ``base_us``: a rough time of the GEMM or convolution, from a simple model (``base_time_us``).

        For example, a measurement took 1.5 times as long as the model says. Then the estimate from that measurement is
        1.5 · ``base_us``. Returns one estimate for each measurement.
        """
        out: Floats = base_us * np.exp(self.log_ratio[neighbours[neighbours >= 0]])
        return out

    def nearest(self, at: Floats, own: Ints | None = None) -> tuple[Rows, Floats]:
        """Find the measured GEMMs or convolutions whose sizes are most similar to the given ones.

        * ``at``: logarithms to base 2 of the given sizes.
        * ``own``: their own row numbers, which are left out.

        Returns row numbers and squared distances.
        """
        found = np.empty((len(at), NEIGHBOURS), dtype=np.int32)
        squared = np.empty((len(at), NEIGHBOURS))
        for part, rows, far in self._search(at, own):
            found[part], squared[part] = rows, far
        return found, squared

    def _search(self, at: Floats, own: Ints | None) -> Iterator[tuple[Ints, Rows, Floats]]:
        """Yield for each point the nearest measured GEMMs or convolutions and their squared distances.

        Each yielded item begins with the row numbers of the points. A log may have a million points, but they lie in
        few cells of a grid. So the search takes three steps. It finds the measurements near each coarse cell, then
        among these the ones near each fine cell, and among those the ones nearest to each point.
        """
        fine, of_point = _cells(at, _FINE[0])
        coarse, of_fine = _cells(fine, _COARSE[0])
        count = min(_COARSE[1], len(self.at))
        near = np.empty((len(coarse), count), dtype=np.int32)
        for chunk in _parts(len(coarse), len(self.at)):
            far = _squared_distances(coarse[chunk], self.at)
            near[chunk] = np.sort(np.argpartition(far, count - 1, axis=1)[:, :count], axis=1)
        nearer = np.empty((len(fine), min(_FINE[1], count)), dtype=np.int32)
        for part, rows, _ in self._nearest_among(near, of_fine, fine, nearer.shape[1]):
            nearer[part] = np.sort(rows, axis=1)
        yield from self._nearest_among(nearer, of_point, at, NEIGHBOURS, own)

    def _nearest_among(
        self, candidates: Rows, cell: Ints, at: Floats, count: int, own: Ints | None = None
    ) -> Iterator[tuple[Ints, Rows, Floats]]:
        """Yield for each point the ``count`` nearest measured GEMMs or convolutions, and their squared distances.

        Each yielded item begins with the row numbers of the points. To save time, only a few candidates are searched:
        the ones that belong to the grid cell in which the point lies.

        * ``candidates``: row numbers of the candidates of each cell, ascending.
        * ``cell``: the number of the cell in which each point lies.
        * ``own``: the row number of each point's own measurement, which is left out.
        """
        varied = [x for x in range(self.at.shape[1]) if np.ptp(self.at[:, x]) > 0 or (at[:, x] != self.at[0, x]).any()]
        columns = [self.at[:, x].astype(np.float32)[candidates] for x in varied]
        points = at[:, varied].astype(np.float32)
        by_cell = np.argsort(cell, kind="stable")  # A core's cache holds the candidates of a few cells.
        for chunk in _parts(len(at), candidates.shape[1]):
            part = by_cell[chunk]
            here = cell[part]
            far = np.zeros((len(here), candidates.shape[1]), dtype=np.float32)
            for column, size in zip(columns, points[part].T, strict=True):
                apart = column[here]
                apart -= size[:, None]
                apart *= apart
                far += apart
            if own is not None:
                far[candidates[here] == own[part][:, None]] = np.inf
            place, squared = _smallest_single(far, count)
            found = candidates.reshape(-1)[here[:, None] * candidates.shape[1] + place]
            yield part, np.where(place >= 0, found, np.int32(-1)), squared


@dataclass(frozen=True)
class Calibration:
    """How large the errors of estimated times are, for GEMMs or convolutions that differ only in sizes.

    The errors were found by estimating times that are known (cross-validation).

    * ``factor``: the factor by which the spread of an estimate is multiplied.
    * ``reach``: no estimate is given if the similar measurements are farther away than this (doublings of sizes).
    * ``problems``: the number of GEMMs or convolutions in the cross-validation.
    * ``median_error``: the median of |expected / best − 1|.
    """

    factor: float
    reach: float
    problems: int
    median_error: float


def base_time_us(flops: Floats, bytes: Floats, peak_tflops: Floats | float, hbm_gbs: Floats | float) -> Floats:
    """Return a rough time (µs) of each GEMM or convolution: computing, moving all operands once, and one launch.

    * ``flops``, ``bytes``: the number of operations, and of bytes to move.
    * ``peak_tflops`` (TFLOP/s), ``hbm_gbs`` (GB/s): the rates of the GPU.
    """
    out: Floats = flops / (np.asarray(peak_tflops) * 1e6) + bytes / (np.asarray(hbm_gbs) * 1e3) + LAUNCH_US
    return out


def groups_of(at: Floats) -> Ints:
    """Group similar sizes, and return the number of each one's group.

    ``at`` has logarithms to base 2 of the sizes. If two round to the same whole numbers, they are in one group, for
    example the sizes 1000 and 1030.
    """
    return _distinct(np.rint(at))[1]


def _deal_to_folds(sets: Ints) -> Ints:
    """Distribute sets at random to the parts of the cross-validation, and return the part of each member of a set.

    ``sets`` has the number of the set to which each member belongs. The distribution is the same each time.
    """
    out: Ints = (np.random.default_rng(0).permutation(int(sets.max(initial=-1)) + 1) % FOLDS)[sets]
    return out


def _quantile(values: Floats) -> float:
    """Return the value below which 95 % (``LEVEL``) of such values lie, with a correction for few values."""
    # The rank ⌈(n + 1) · LEVEL⌉ of n, at most n, is the correction of conformal prediction.
    rank = min(len(values), math.ceil((len(values) + 1) * LEVEL))
    return float(np.sort(values)[rank - 1])


def _weighted(log_ratio: Floats, found: Ints | Rows, squared: Floats) -> tuple[Floats, Floats, Floats]:
    """Return for each row a weighted average of its neighbours' ``log_ratio``, their spread and mean distance.

    * ``found``: the neighbours' indices, −1 for none.
    * ``squared``: their squared distances.

    Results are NaN without neighbours.
    """
    found, squared = found.T.copy(), squared.T.copy()  # Whole rows are added twice as fast as the values of a row.
    there = found >= 0
    # Nearer neighbours have larger weights.
    weights = np.where(there, 1 / (squared + SOFTENING), 0.0)
    total, values = _sum(weights), log_ratio[found]
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = _sum(weights * values) / total
        variance = _sum(weights * (values - mean) ** 2) / total
        # The mean is the root mean square.
        distance = np.sqrt(_sum(np.where(there, squared, 0.0)) / there.sum(axis=0))
    return mean, np.sqrt(variance + FLOOR**2), distance


def _sum(rows: Floats) -> Floats:
    """Add the rows of a table in their order. NumPy's own order, and so its rounding, depends on the table's width."""
    out: Floats = reduce(np.add, rows)
    return out


def _squared_distances(one: Floats, other: Floats) -> Floats:
    """Return the squared distance of each point of ``one`` to each point of ``other``."""
    out = np.empty((len(one), len(other)))
    step = max(1, _ONE_THREAD // max(1, other.size))
    for begin in range(0, len(one), step):
        np.matmul(one[begin : begin + step], other.T, out=out[begin : begin + step])
    out *= -2
    out += (one**2).sum(axis=1)[:, None]
    out += (other**2).sum(axis=1)[None, :]
    return np.maximum(out, 0.0, out=out)


def _find_smallest_in_rows(far: Floats, wanted: int = NEIGHBOURS) -> tuple[Ints, Floats]:
    """Return the column numbers and values of the ``wanted`` smallest finite values of each row, in ascending order.

    Missing values are filled with column −1 and infinity.
    """
    count = min(wanted, far.shape[1])
    columns = np.sort(np.argpartition(far, count - 1, axis=1)[:, :count], axis=1)
    values = np.take_along_axis(far, columns, axis=1)
    # Of two equal values, the one with the smaller column comes first.
    order = np.argsort(values, axis=1, kind="stable")
    columns, values = np.take_along_axis(columns, order, axis=1), np.take_along_axis(values, order, axis=1)
    missing = wanted - count
    columns = np.pad(columns, ((0, 0), (0, missing)), constant_values=-1)
    values = np.pad(values, ((0, 0), (0, missing)), constant_values=np.inf)
    return np.where(np.isfinite(values), columns, -1), values


def _smallest_single(far: npt.NDArray[np.float32], wanted: int = NEIGHBOURS) -> tuple[Ints, Floats]:
    """Find the smallest values of each row and their columns, like ``_find_smallest_in_rows`` but in half the time."""
    count, missing = min(wanted, far.shape[1]), max(0, wanted - far.shape[1])
    # One whole number per value holds the value as a 64-bit float and, in its last bits, the column. They sort like the
    # floats, because the bits of floats that are not negative have the same order as the floats.
    keys = far.astype(np.float64).view(np.int64)
    keys |= np.arange(far.shape[1])
    keys.partition(count - 1, axis=1)
    keys = np.sort(keys[:, :count], axis=1)
    columns, values = keys & _COLUMN, (keys & ~_COLUMN).view(np.float64)
    columns[~np.isfinite(values)] = -1
    if missing:
        columns = np.pad(columns, ((0, 0), (0, missing)), constant_values=-1)
        values = np.pad(values, ((0, 0), (0, missing)), constant_values=np.inf)
    return columns, values


def _cells(at: Floats, width: float) -> tuple[Floats, Ints]:
    """Divide the points into cells of a grid.

    Returns the centres of the cells that contain points, and for each point the index of its cell.
    """
    cells, of_point = _distinct(np.rint(at / width))
    return cells * width, of_point


def _distinct(rows: Floats) -> tuple[Floats, Ints]:
    """Return the distinct rows of a table of whole numbers, sorted, and for each row its index among them."""
    if not len(rows):
        return rows, np.zeros(0, dtype=np.intp)
    code, most = np.zeros(len(rows), dtype=np.int64), 1
    for column in rows.T.astype(np.int64):
        least = int(column.min())
        span = int(column.max()) - least + 1
        if most * span > _MOST_CODE:
            code = np.unique(code, return_inverse=True)[1]
            most = int(code.max()) + 1
        code, most = code * span + (column - least), most * span
    first, place = distinct_codes(code)
    return rows[first], place


def distinct_codes(codes: npt.NDArray[np.int64]) -> tuple[Ints, Ints]:
    """Find the different numbers in an array of whole numbers that are not negative.

    Returns where each number first occurs, in ascending order of the numbers, and for each entry which number it is.
    """
    # For example, ``[7, 3, 7]`` gives ``[1, 0]`` and ``[1, 0, 1]``.
    count, most = len(codes), int(codes.max(initial=-1)) + 1
    if most > 2 * count:
        _, first, place = np.unique(codes, return_index=True, return_inverse=True)
        return first, place
    first = np.full(most, count, dtype=np.intp)
    np.minimum.at(first, codes, np.arange(count))
    there = np.flatnonzero(first < count)
    rank = np.zeros(most, dtype=np.intp)
    rank[there] = np.arange(len(there))
    return first[there], rank[codes]


def _parts(count: int, width: int) -> Iterator[slice]:
    """Cut ``count`` rows of ``width`` values into slices of at most ``_CHUNK`` values, so that memory is bounded."""
    step = max(1, _CHUNK // max(1, width))
    return (slice(i, min(i + step, count)) for i in range(0, count, step))
