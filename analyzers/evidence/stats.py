"""Statistics of times: medians, intervals of paired ratios, tests and their correction for many problems.  Pure.

Times are multiplicative (a clock 2 % lower makes every sample 2 % longer), so differences are taken of logarithms.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_EXACT = 12
_RESAMPLES = 4000


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval."""

    value: float
    low: float
    high: float


def median(samples: Sequence[float]) -> float:
    """The median; NaN of nothing."""
    return float(statistics.median(samples)) if len(samples) else math.nan  # a race asks it of few samples, often


def spread(samples: Sequence[float]) -> float:
    """Relative spread: scaled median absolute deviation of the logarithms, which a few hiccups do not move.

    0.01 reads as 1 %.  NaN below two samples.
    """
    if len(samples) < 2:
        return math.nan
    logs = np.log(np.asarray(samples, dtype=np.float64))
    return float(1.4826 * np.median(np.abs(logs - np.median(logs))))


def pooled_spread(groups: Sequence[Sequence[float]]) -> float:
    """The relative spread within groups that share one clock and timer; NaN where no group has two samples.

    Deviations from a group's own median are too small by √(n/(n−1)); that is put back.
    """
    deviations: list[Floats] = []
    for group in groups:
        if len(group) > 1:
            logs = np.log(np.asarray(group, dtype=np.float64))
            deviations.append(np.abs(logs - np.median(logs)) * math.sqrt(len(group) / (len(group) - 1)))
    return float(1.4826 * np.median(np.concatenate(deviations))) if deviations else math.nan


def paired_ratio(
    numerator: Sequence[float], denominator: Sequence[float], *, confidence: float = 0.95, seed: int = 0
) -> Interval:
    """Median of the ratios of paired samples, with its percentile bootstrap interval over the pairs.

    Raises ValueError where the two are not pairs or there are none.
    """
    ratios = _log_ratios(numerator, denominator)
    generator = np.random.default_rng(seed)
    draws = generator.integers(0, len(ratios), size=(_RESAMPLES, len(ratios)))
    medians = np.median(ratios[draws], axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(medians, (tail, 1 - tail))
    value = float(np.median(ratios))
    return Interval(math.exp(value), math.exp(min(float(low), value)), math.exp(max(float(high), value)))


def faster_p(numerator: Sequence[float], denominator: Sequence[float], *, floor: float = 0.0, seed: int = 0) -> float:
    """One-sided p-value that the paired ratio is no more than 1 + ``floor``: Wilcoxon's signed ranks of the log ratios.

    Ranks, because one hiccup among the pairs must not decide.  Exact up to 12 pairs (the smallest p of n pairs is
    2⁻ⁿ), drawn beyond.
    """
    excess = _log_ratios(numerator, denominator) - math.log1p(floor)
    count = len(excess)
    weights = (np.argsort(np.argsort(np.abs(excess))) + 1) * (excess != 0)
    seen = float(np.sum(np.sign(excess) * weights))
    if count <= _EXACT:
        bits = (np.arange(2**count)[:, None] >> np.arange(count)) & 1
        return float(np.mean((1 - 2 * bits) @ weights >= seen))
    signs = np.random.default_rng(seed).integers(0, 2, size=(_RESAMPLES, count)) * 2 - 1
    return float((1 + np.sum(signs @ weights >= seen)) / (_RESAMPLES + 1))


def benjamini_hochberg(p_values: Sequence[float], rate: float = 0.05) -> list[bool]:
    """Which hypotheses are rejected when a share of at most ``rate`` of the rejections may be false.

    Benjamini and Hochberg, J. R. Stat. Soc. B 57 (1995): reject the k smallest, k the largest with p₍ₖ₎ ≤ k·rate/n.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    largest = 0
    for rank, index in enumerate(order, 1):
        if p_values[index] <= rank * rate / len(order):
            largest = rank
    out = [False] * len(order)
    for index in order[:largest]:
        out[index] = True
    return out


def _log_ratios(numerator: Sequence[float], denominator: Sequence[float]) -> Floats:
    if len(numerator) != len(denominator) or not len(numerator):
        raise ValueError(f"{len(numerator)} and {len(denominator)} samples are no pairs")
    above, below = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    return np.asarray(np.log(above) - np.log(below), dtype=np.float64)
