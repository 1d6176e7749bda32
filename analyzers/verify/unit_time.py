"""Is a unit of work faster, by its wall time without a profiler?  The difference of two runs, with an interval of 95 %.

Units are compared kind by kind, and kinds weighed by equal counts in both runs.  Of several runs of the job by turns
the interval is that of the runs' means: what differs between two starts of a program is in it.  Of one long run it is
that of the means of consecutive blocks of units, since the times of neighbours are alike (batch means; Schmeiser,
"Batch size effects in the analysis of simulation output", Operations Research 30, 1982: ten blocks are about enough).
The two variances add up to one whose degrees of freedom are Welch's (Biometrika 34, 1947).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analyzers.statistics.intervals import Variance
from analyzers.times.units import Units

_BLOCKS = 10
_WORTH = 0.04
"""Of a unit's time: a gain that a user would not want to miss."""
_LEAST = 3
"""Units of a kind, or runs, from which a variance is estimated at least."""


@dataclass(frozen=True)
class UnitTime:
    """Wall time of an average unit in µs before and after, and the interval of what was gained.

    ``runs`` is how many runs by turns each of the two times is of; 0: units of one run.
    """

    before_us: float
    after_us: float
    low_us: float
    high_us: float
    runs: int = 0

    @property
    def gained_us(self) -> float:
        return self.before_us - self.after_us

    @property
    def faster(self) -> bool:
        return self.low_us > 0

    @property
    def undecided(self) -> bool:
        """Whether the interval holds both no gain and one of more than ``_WORTH``: neither is shown."""
        return self.low_us <= 0 and self.high_us > _WORTH * self.before_us


@dataclass(frozen=True)
class _Mean:
    us: float
    variance: Variance


def unit_time(before: Sequence[Units], after: Sequence[Units], counts: Mapping[str, float]) -> UnitTime | None:
    """Compare runs of a job as it was with runs of it as it is: one of each, or at least three by turns.

    ``counts`` weigh the kinds.  None where those that were timed often enough in every run are less than half of these
    units.
    """
    kinds = [name for name in counts if all(name in timed(x) for x in (*before, *after))]
    total = math.fsum(counts[name] for name in kinds)
    if not total or total < math.fsum(counts.values()) / 2 or not before or not after:
        return None
    weights = {name: counts[name] / total for name in kinds}
    runs = min(len(before), len(after))
    a, b = ((_of_runs if runs >= _LEAST else _of_units)(x, weights) for x in (before, after))
    parts = (a.variance, b.variance)
    value = math.fsum(x.value for x in parts)
    off = Variance(value, _degrees(parts)).half_width() if value > 0 else 0.0
    gained = a.us - b.us
    return UnitTime(a.us, b.us, gained - off, gained + off, runs if runs >= _LEAST else 0)


def timed(units: Units) -> Mapping[str, tuple[float, ...]]:
    """The times of each kind of which enough units ran without the profiler; no warm-up."""
    return {x.name: x.late_us for x in units.kinds if len(x.late_us) >= _LEAST}


def _of_runs(runs: Sequence[Units], weights: Mapping[str, float]) -> _Mean:
    means = [math.fsum(weight * statistics.fmean(timed(x)[name]) for name, weight in weights.items()) for x in runs]
    return _mean(means)


def _of_units(runs: Sequence[Units], weights: Mapping[str, float]) -> _Mean:
    """Of the last run alone, where there are several that are too few."""
    times = timed(runs[-1])
    each = {name: _mean(_blocks(times[name])) for name in weights}
    parts = [each[name].variance.scaled(weight**2) for name, weight in weights.items()]
    us = math.fsum(weight * statistics.fmean(times[name]) for name, weight in weights.items())
    return _Mean(us, Variance(math.fsum(x.value for x in parts), _degrees(parts)))


def _blocks(times: Sequence[float]) -> list[float]:
    return [float(x.mean()) for x in np.array_split(np.asarray(times), min(_BLOCKS, len(times)))]


def _mean(values: Sequence[float]) -> _Mean:
    """The mean of independent values and the variance of that mean."""
    return _Mean(statistics.fmean(values), Variance(statistics.variance(values) / len(values), len(values) - 1.0))


def _degrees(parts: Sequence[Variance]) -> float:
    """Degrees of freedom of a sum of variances."""
    least = min(x.degrees for x in parts)
    known = math.fsum(x.value**2 / x.degrees for x in parts)
    return max(least, math.fsum(x.value for x in parts) ** 2 / known) if known else least
