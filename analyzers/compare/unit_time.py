"""Is a unit of work faster, by its wall time without a profiler?  The difference of two runs, with an interval of 95 %.

Units are compared kind by kind, and kinds weighed by equal counts in both runs.

Two runs of a job that live at the same time do a few units each by turns.  What others do on the machine comes and goes
within seconds and makes a host slower by up to 1.8 times, so turns are compared one for one: what a pair of runs gained
is the median of their turns' ratios, its time the lower quartile of their geometric means (after Chen & Revels, "Robust
benchmarking in noisy environments", 2016, who take the minimum).  Two starts of a program differ, too, whatever the
number of turns.  So a pair is one value, and the interval is that of Student's t over pairs.  Where pairs follow as
long as they decide nothing, fewer decide at 99 % (``by_turns.py``): of 12 pairs at most, no gain at all counts as one
in 3 to 4 of 100 jobs, in 8 to 10 if fewer decide at 95 % (simulated, starts 2.5 % apart).

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

from analyzers.evidence.statistics.intervals import Floats, Variance
from analyzers.evidence.units import Units
from analyzers.job.step.answer import WORTH

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

    def unit_time(self, counts: Mapping[str, float], confidence: float = 0.95) -> UnitTime | None:
        """Compare the sides.

        ``counts`` weigh the kinds.  None where those in ``LEAST_TURNS`` turns of every run take less than half of the
        time.  Of one pair alone the interval is that of thirds of its turns, without what differs between two starts.
        """
        turns = [{x: _turns(pair, x) for x in counts} for pair in self.pairs]
        kinds = [x for x in counts if all(np.isfinite(pair[x]).sum(axis=0).min() >= LEAST_TURNS for pair in turns)]
        total = math.fsum(counts[x] for x in kinds)
        seen = {x: [us for pair in turns for us in pair[x][np.isfinite(pair[x])]] for x in counts}
        if not _most(counts, kinds, {x: statistics.fmean(us) for x, us in seen.items() if us}):
            return None
        weights, parts = np.array([counts[x] / total for x in kinds]), _PARTS if len(turns) == 1 else 1
        each = [{x: pair[x][i::parts] for x in kinds} for pair in turns for i in range(parts)]
        runs = np.log([weights @ [_sides(pair[x], LEAST_TURNS // parts) for x in kinds] for pair in each])
        (a, b), gained = runs.mean(axis=0), runs[:, 0] - runs[:, 1]
        off = Variance(float(gained.var(ddof=1)) / len(runs), len(runs) - 1.0).half_width(confidence)
        before, after = math.exp(a), math.exp(b)
        low, high = (before - after * math.exp(x) for x in (off, -off))
        times = tuple((math.exp(x), math.exp(y)) for x, y in runs) if parts == 1 else ()
        least = sum(min(map(len, x)) for x in self.pairs)
        return UnitTime(before, after, low, high, len(self.pairs), least, times, tuple(kinds))


def _turns(pair: Pair, kind: str) -> Floats:
    """The times of a kind in each turn of both sides, number × 2; NaN where one did none."""
    rows = ([x if (x := turn.get(kind, 0.0)) > 0 else math.nan for turn in both] for both in zip(*pair, strict=False))
    return np.array([*rows], dtype=np.float64).reshape(-1, 2)


def _sides(turns: Floats, least: int) -> tuple[float, float]:
    """The time of each side; where both did the kind in fewer turns than ``least``, turns are not compared one for one.

    Of jobs that choose among many kinds at random, two sides seldom do the same one in a turn.
    """
    both = turns[np.isfinite(turns).all(axis=1)]
    if len(both) < least:
        before, after = np.nanquantile(turns, _QUARTILE, axis=0)
        return float(before), float(after)
    us = float(np.quantile(np.sqrt(both.prod(axis=1)), _QUARTILE))
    half = math.sqrt(float(np.median(both[:, 0] / both[:, 1])))
    return us * half, us / half


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
