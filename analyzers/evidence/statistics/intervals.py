"""Statistics of times: medians, intervals of paired ratios, tests, and corrections for many tests.

Logarithms of times are compared, because disturbances multiply times. The functions do no input or output.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analyzers.evidence.statistics.distributions import (
    digamma,
    inverse_trigamma,
    student_t_quantile,
    student_t_tail,
    trigamma,
)

Floats = npt.NDArray[np.float64]
TIE = 1e-9
"""Relative tolerance when a time is compared with a threshold, because of rounding errors.

A time exceeds a threshold only if it is larger by more than this. So a time that is exactly 3 times another time does
not exceed a threshold of 3. No clock resolves 1e-9, and the rounding of doubles is smaller.
"""
_LEAST_VARIANCE = 1e-12
"""Smallest variance that is used for log(ratio), so that identical samples do not give a variance of zero.

It is a deviation of one in a million, which no timer resolves.
"""


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval."""

    value: float
    low: float
    high: float


def median(samples: Sequence[float]) -> float:
    """Return the median, or NaN if there are no samples."""
    # ``statistics.median`` is faster than numpy here: races call this function often, with few samples.
    return float(statistics.median(samples)) if len(samples) else math.nan


def relative_spread(samples: Sequence[float]) -> float:
    """Return the relative spread of the samples (0.01 means 1 %), or NaN for fewer than two samples.

    The spread is the scaled median absolute deviation of the logarithms, because a few outliers do not change it.
    """
    if len(samples) < 2:
        return math.nan
    logs = np.log(np.asarray(samples, dtype=np.float64))
    return float(1.4826 * np.median(np.abs(logs - np.median(logs))))


def pooled_spread(groups: Sequence[Sequence[float]]) -> float:
    """Return the common relative spread of several groups of times (0.01 means 1 %).

    Each time is compared with the median of its own group. NaN if no group has two times.
    """
    deviations: list[Floats] = []
    for group in groups:
        if len(group) > 1:
            logs = np.log(np.asarray(group, dtype=np.float64))
            # In a group of n, deviations from the median are too small by √(n/(n−1)), so they are multiplied by it.
            deviations.append(np.abs(logs - np.median(logs)) * math.sqrt(len(group) / (len(group) - 1)))
    return float(1.4826 * np.median(np.concatenate(deviations))) if deviations else math.nan


def log_ratios(numerator: Sequence[float], denominator: Sequence[float]) -> Floats:
    """Return log(numerator / denominator) for each pair of samples.

    Raises ValueError if the two sequences differ in length or are empty.
    """
    if len(numerator) != len(denominator) or not len(numerator):
        raise ValueError(
            f"samples cannot be paired: there are {len(numerator)} and {len(denominator)}, but both numbers must be "
            "equal and above 0"
        )
    above, below = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    return np.asarray(np.log(above) - np.log(below), dtype=np.float64)


@dataclass(frozen=True)
class Variance:
    """A variance and its degrees of freedom."""

    value: float
    degrees: float

    def half_width(self, confidence: float = 0.95) -> float:
        return student_t_quantile((1 + confidence) / 2, self.degrees) * math.sqrt(self.value)

    def scaled(self, factor: float) -> Variance:
        """Return the variance of values that are all multiplied by the square root of ``factor``.

        The variance itself is multiplied by ``factor``. Its degrees of freedom do not change.
        """
        return Variance(self.value * factor, self.degrees)


def variance_of_median(values: Floats) -> Variance:
    """Return how uncertain the median of the values is, as a variance: π/2·σ²/n for normally distributed values.

    The result is infinite for fewer than two values.
    """
    count = len(values)
    if count < 2:
        return Variance(math.inf, 1.0)
    deviation = 1.4826 * float(np.median(np.abs(values - np.median(values)))) * math.sqrt(count / (count - 1))
    # σ from the median absolute deviation is as precise as a standard deviation of 37 % of the values (Rousseeuw and
    # Croux, J. Am. Stat. Assoc. 88 (1993)). So the degrees of freedom are 0.37·(n − 1), at least 1.
    return Variance(math.pi / 2 * deviation**2 / count, max(1.0, 0.37 * (count - 1)))


def moderate_variances(variances: Sequence[Variance]) -> list[Variance]:
    """Make the variances of small groups more reliable by moving them towards their common value.

    All groups must have been measured in the same way. The method is empirical Bayes (Smyth, Stat. Appl. Genet. Mol.
    Biol. 3 (2004), article 3, section 6.2). It assumes that the true variances have a scaled inverse chi-squared
    distribution. The scale and the degrees of freedom of that distribution are fitted to the mean and the variance of
    the logarithms of the sample variances.

    A simulation showed that without three limits, t-intervals are too narrow if there are few groups or unlike groups:

    * The scale is at least the mean variance.
    * The fitted degrees are at most the number of groups minus one.
    * The fitted degrees plus a group's own degrees are at most the degrees of all groups together.
    """
    if len(variances) < 2:
        return list(variances)
    halves = [x.degrees / 2 for x in variances]
    terms = zip(variances, halves, strict=True)
    logs = [math.log(max(x.value, _LEAST_VARIANCE)) - digamma(half) + math.log(half) for x, half in terms]
    surplus = statistics.variance(logs) - statistics.fmean(map(trigamma, halves))
    prior = min(2 * inverse_trigamma(surplus) if surplus > 0 else math.inf, len(variances) - 1.0)
    total = sum(x.degrees for x in variances)
    fitted = math.exp(statistics.fmean(logs) + digamma(prior / 2) - math.log(prior / 2))
    scale = max(fitted, sum(x.value * x.degrees for x in variances) / total)
    return [
        Variance((prior * scale + x.degrees * x.value) / (prior + x.degrees), min(prior + x.degrees, total))
        for x in variances
    ]


def greater_p(value: float, variance: Variance) -> float:
    """Return the one-sided p-value of a t-test. The tested hypothesis is that the mean is at most 0.

    ``value`` is an estimate of the mean, and ``variance`` the variance of this estimate. Its errors are assumed to be
    normal.
    """
    if variance.value <= 0:
        return 0.0 if value > 0 else 1.0
    return student_t_tail(value / math.sqrt(variance.value), variance.degrees)


def benjamini_hochberg(p_values: Sequence[float], rate: float = 0.05) -> list[bool]:
    """Tell which p-values are significant, if at most the fraction ``rate`` of the significant ones may be false.

    Source: Benjamini and Hochberg, J. R. Stat. Soc. B 57 (1995).
    """
    ranked = sorted(p_values)
    # The k smallest p-values are significant, where k is the largest number with p₍ₖ₎ ≤ k·rate/n.
    passing = [p for rank, p in enumerate(ranked, 1) if p <= rank * rate / len(ranked)]
    return [p <= max(passing, default=-1.0) for p in p_values]
