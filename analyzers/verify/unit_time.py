"""Is a unit of work faster, by its wall time without a profiler?  The difference of two runs, with an interval of 95 %.

Units are compared kind by kind, and kinds weighed by equal counts in both runs.

Two runs of a job that live at the same time do a few units each by turns.  What others do on the machine comes and goes
within seconds and mostly adds (moe of ``benchmarks/results/jobs-NVIDIA-H200-2026-11-27.json``: once warm, turns of one
process take 36 to 62 ms a unit), so the time of a side is the lower quartile of its turns (after Chen & Revels, "Robust
benchmarking in noisy environments", 2016, who take the minimum).  Two starts of a program that waits for its host
differ by 3 to 8 % (standard deviation; 0.2 % at most where kernels limit it: the same record), whatever the number of
turns.  So a run is one value, a side the geometric mean of its runs, and the interval is that of Student's t with the
variance that both sides share: two pairs of runs have two degrees of freedom.

Of several runs one after another the interval is that of the runs' means, of one long run that of the means of
consecutive blocks of units, since the times of neighbours are alike (batch means; Schmeiser, Operations Research 30,
1982: ten blocks are about enough).  The variances' sum has Welch's degrees of freedom (Biometrika 34, 1947).
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from analyzers.job.step.answer import WORTH
from analyzers.statistics.intervals import Variance
from analyzers.times.units import Units

_BLOCKS = 10
_LEAST = 3
"""Units of a kind, or runs, from which a variance is estimated at least."""
LEAST_TURNS = 6
"""Of a kind, in both runs of a pair, from which their quartiles are worth comparing."""
_QUARTILE, _PARTS = 0.25, 3
Turn: TypeAlias = Mapping[str, float]
"""The mean time (µs) of a turn's units, by kind."""
Times: TypeAlias = tuple[Sequence[Units], Sequence[Units]]
"""The units of one or several runs, before and after."""
Pair: TypeAlias = tuple[Sequence[Turn], Sequence[Turn]]
"""The turns of two runs side by side, before and after."""


@dataclass(frozen=True)
class UnitTime:
    """Wall time of an average unit in µs before and after, and the interval of what was gained.

    ``runs`` is how many runs each of the two times is of (0: units of one run), ``turns`` in how many turns (0: one run
    after another); ``each``: the times of the runs of each pair side by side.  Of the ``kinds`` of units, the others
    were not timed often enough.
    """

    before_us: float
    after_us: float
    low_us: float
    high_us: float
    runs: int = 0
    turns: int = 0
    each: tuple[tuple[float, float], ...] = ()
    kinds: tuple[str, ...] = ()

    @property
    def gained_us(self) -> float:
        return self.before_us - self.after_us

    @property
    def faster(self) -> bool:
        return self.low_us > 0

    @property
    def undecided(self) -> bool:
        """Whether the interval holds both no gain and one of more than ``WORTH``: neither is shown."""
        return self.low_us <= 0 and self.high_us > WORTH * self.before_us


@dataclass(frozen=True)
class SideBySide:
    """Pairs of runs that lived at the same time."""

    pairs: tuple[Pair, ...]

    @property
    def kinds(self) -> Mapping[str, float]:
        """In how many turns each kind of unit came."""
        return Counter(name for pair in self.pairs for side in pair for turn in side for name in turn)

    def unit_time(self, counts: Mapping[str, float]) -> UnitTime | None:
        """Compare the sides.

        ``counts`` weigh the kinds.  None where those in ``LEAST_TURNS`` turns of every run take less than half of the
        time.  Of one pair alone the interval is that of thirds of its turns, without what differs between two starts.
        """
        turns = [[{x: [y[x] for y in side if x in y] for x in counts} for side in pair] for pair in self.pairs]
        kinds = [x for x in counts if all(len(side[x]) >= LEAST_TURNS for pair in turns for side in pair)]
        total = math.fsum(counts[x] for x in kinds)
        seen = {x: [us for pair in turns for side in pair for us in side[x]] for x in counts}
        if not _most(counts, kinds, {x: statistics.fmean(us) for x, us in seen.items() if us}):
            return None
        weights = np.array([counts[x] / total for x in kinds])

        def us(side: Mapping[str, Sequence[float]]) -> float:
            return float(weights @ [np.quantile(side[x], _QUARTILE) for x in kinds])

        if len(turns) == 1:
            turns = [[{x: side[x][i::_PARTS] for x in kinds} for side in turns[0]] for i in range(_PARTS)]
        runs = np.log([[us(side) for side in pair] for pair in turns])
        (a, b), of_run = runs.mean(axis=0), float(runs.var(axis=0, ddof=1).mean())
        off = Variance(2 * of_run / len(runs), 2.0 * (len(runs) - 1)).half_width()
        before, after = math.exp(a), math.exp(b)
        low, high = (before - after * math.exp(x) for x in (off, -off))
        each = tuple((math.exp(x), math.exp(y)) for x, y in runs) if len(self.pairs) > 1 else ()
        least = sum(min(map(len, x)) for x in self.pairs)
        return UnitTime(before, after, low, high, len(self.pairs), least, each, tuple(kinds))


@dataclass(frozen=True)
class _Mean:
    us: float
    variance: Variance


def unit_time(before: Sequence[Units], after: Sequence[Units], counts: Mapping[str, float]) -> UnitTime | None:
    """Compare runs of a job as it was with runs of it as it is: one of each, or at least three by turns.

    ``counts`` weigh the kinds.  None where those timed often enough in every run take less than half of the time.
    """
    kinds = [name for name in counts if all(name in timed(x) for x in (*before, *after))]
    total = math.fsum(counts[name] for name in kinds)
    us = {x.name: x.mean_us for side in (before, after) for y in side for x in y.kinds if x.mean_us is not None}
    if not before or not after or not _most(counts, kinds, us):
        return None
    weights = {name: counts[name] / total for name in kinds}
    runs = min(len(before), len(after))
    a, b = ((_of_runs if runs >= _LEAST else _of_units)(x, weights) for x in (before, after))
    parts = (a.variance, b.variance)
    value = math.fsum(x.value for x in parts)
    off = Variance(value, _degrees(parts)).half_width() if value > 0 else 0.0
    gained = a.us - b.us
    return UnitTime(a.us, b.us, gained - off, gained + off, runs if runs >= _LEAST else 0, kinds=tuple(kinds))


def _most(counts: Mapping[str, float], kinds: Sequence[str], us: Mapping[str, float]) -> bool:
    """Whether these kinds take half of the units' time; those of which no time is known count as the others' mean."""
    usual = statistics.fmean(us.values()) if us else 1.0
    each = {x: n * us.get(x, usual) for x, n in counts.items()}
    part = math.fsum(each[x] for x in kinds)
    return part > 0 and 2 * part >= math.fsum(each.values())


def timed(units: Units) -> Mapping[str, tuple[float, ...]]:
    """The times of each kind of which enough units ran without the profiler; no warm-up."""
    return {x.name: x.late_us for x in units.kinds if len(x.late_us) >= _LEAST}


def _of_runs(runs: Sequence[Units], weights: Mapping[str, float]) -> _Mean:
    means = [math.fsum(weight * statistics.fmean(timed(x)[name]) for name, weight in weights.items()) for x in runs]
    return _mean(means)


def _of_units(runs: Sequence[Units], weights: Mapping[str, float]) -> _Mean:
    """Of the last run alone, where there are several that are too few."""
    times = timed(runs[-1])
    blocks = {x: np.array_split(np.asarray(times[x]), min(_BLOCKS, len(times[x]))) for x in weights}
    each = {name: _mean([float(x.mean()) for x in made]) for name, made in blocks.items()}
    parts = [each[name].variance.scaled(weight**2) for name, weight in weights.items()]
    us = math.fsum(weight * statistics.fmean(times[name]) for name, weight in weights.items())
    return _Mean(us, Variance(math.fsum(x.value for x in parts), _degrees(parts)))


def _mean(values: Sequence[float]) -> _Mean:
    """The mean of independent values and the variance of that mean."""
    return _Mean(statistics.fmean(values), Variance(statistics.variance(values) / len(values), len(values) - 1.0))


def _degrees(parts: Sequence[Variance]) -> float:
    """Degrees of freedom of a sum of variances."""
    least = min(x.degrees for x in parts)
    known = math.fsum(x.value**2 / x.degrees for x in parts)
    return max(least, math.fsum(x.value for x in parts) ** 2 / known) if known else least
