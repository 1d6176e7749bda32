"""Find out whether a step or request of a job became faster, by its wall time without a profiler.

Steps may be of several kinds, which are compared kind by kind. Both runs are given the same number of steps of each
kind. The result is the difference of two runs with a 95 % interval.

Two runs of a job may exist at the same time and take turns: each does a few steps while the other waits. Other load on
the machine comes and goes within seconds and makes a host slower by up to 1.8 times. So each turn is compared with the
turn of the other run next to it:

* The gain of a pair of runs is the median of the ratios of its turns.
* The time of a pair is the lower quartile of the geometric means of its turns (after Chen & Revels, "Robust
  benchmarking in noisy environments", 2016, who take the minimum).

Two starts of one program also differ, whatever the number of turns. So each pair of runs gives one value, and the
interval is Student's t interval over pairs. Pairs may be added until they decide. Then the first pairs decide only at
99 % (``by_turns.py``), so that with at most 12 pairs a job without any gain is called faster in 3 to 4 of 100 cases.
With 95 % it would be 8 to 10 of 100 cases (simulated, starts 2.5 % apart).

If several runs took place one after another, the interval comes from the means of the runs. For one long run, it comes
from the means of consecutive blocks of steps, because the times of neighbouring steps are correlated (batch means;
Schmeiser, Operations Research 30, 1982: ten blocks are about enough). The sum of the two runs' variances has Welch's
degrees of freedom (Biometrika 34, 1947).
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
from logparse.model import Gain

_BLOCKS = 10
_LEAST = 3
"""If there are fewer step times (or runs) than this, no variance is estimated from them."""
LEAST_TURNS = 6
"""A kind of step is compared only if both runs of a pair did it in at least this many turns."""
_QUARTILE, _PARTS = 0.25, 3
Turn: TypeAlias = Mapping[str, float]
"""The mean time (µs) of each kind of step in one turn of a run.

Two runs of a job take turns on the machine: one does a few steps while the other waits.
"""
Times: TypeAlias = tuple[Sequence[Units], Sequence[Units]]
"""Times of a job's steps from one or several runs before a change, and from one or several runs after it."""
Pair: TypeAlias = tuple[Sequence[Turn], Sequence[Turn]]
"""The step times of two runs, before and after a change, that took turns on the machine."""


@dataclass(frozen=True, kw_only=True)
class UnitTime(Gain):
    """How long an average step or request takes without and with a change, in wall time.

    * ``runs``: the number of runs from which each of the two times comes. 0 if the times come from the steps of one
      run.
    * ``turns``: the number of turns. 0 if the runs took no turns.
    * ``each``: the times of the two runs of each pair, µs.
    * ``kinds``: the kinds of steps that were timed often enough.
    """

    runs: int = 0
    turns: int = 0
    each: tuple[tuple[float, float], ...] = ()
    kinds: tuple[str, ...] = ()

    @property
    def faster(self) -> bool:
        return self.ends_us[1] < self.now_us

    @property
    def undecided(self) -> bool:
        """True if the times do not show whether the change gains something.

        The interval of the gain then contains both no gain and a gain worth having (``WORTH``).
        """
        return not self.faster and self.now_us - self.ends_us[0] > WORTH * self.now_us


@dataclass(frozen=True)
class SideBySide:
    """Step times of a job without and with a change. The two runs of each pair took turns on the machine."""

    pairs: tuple[Pair, ...]

    @property
    def kinds(self) -> Mapping[str, float]:
        """How often each kind of step, for example training or evaluation, was timed.

        The jobs with and without the change take turns. Each kind of step counts once in a turn.
        """
        return Counter(name for pair in self.pairs for side in pair for turn in side for name in turn)

    def unit_time(self, counts: Mapping[str, float], confidence: float = 0.95) -> UnitTime | None:
        """Return the time of an average step before and after a change, with the interval of the gain.

        * ``counts``: the weight of each kind of step.
        * Only kinds that occur in at least ``LEAST_TURNS`` turns of every run are compared. Returns None if these kinds
          take less than half of the time.
        * With a single pair of runs, the interval comes from thirds of its turns. It is then too narrow, because it
          does not contain the difference between two starts of the program.
        """
        turns = [{x: _turns(pair, x) for x in counts} for pair in self.pairs]
        kinds = [x for x in counts if all(np.isfinite(pair[x]).sum(axis=0).min() >= LEAST_TURNS for pair in turns)]
        total = math.fsum(counts[x] for x in kinds)
        seen = {x: [us for pair in turns for us in pair[x][np.isfinite(pair[x])]] for x in counts}
        if not _is_most_of_time(counts, kinds, {x: statistics.fmean(us) for x, us in seen.items() if us}):
            return None
        weights, parts = np.array([counts[x] / total for x in kinds]), _PARTS if len(turns) == 1 else 1
        each = [{x: pair[x][i::parts] for x in kinds} for pair in turns for i in range(parts)]
        runs = np.log([weights @ [_estimate_side_times(pair[x], LEAST_TURNS // parts) for x in kinds] for pair in each])
        (a, b), gained = runs.mean(axis=0), runs[:, 0] - runs[:, 1]
        off = Variance(float(gained.var(ddof=1)) / len(runs), len(runs) - 1.0).half_width(confidence)
        before, after = math.exp(a), math.exp(b)
        low, high = (after * math.exp(x) for x in (-off, off))
        times = tuple((math.exp(x), math.exp(y)) for x, y in runs) if parts == 1 else ()
        least = sum(min(map(len, x)) for x in self.pairs)
        return UnitTime(before, after, low, high, runs=len(self.pairs), turns=least, each=times, kinds=tuple(kinds))


def _turns(pair: Pair, kind: str) -> Floats:
    """Return the times of one kind of step in two runs that took turns on the machine, µs.

    The array has the shape (turns, 2). If a run did no step of this kind in a turn, the value is NaN.
    """
    rows = ([x if (x := turn.get(kind, 0.0)) > 0 else math.nan for turn in both] for both in zip(*pair, strict=False))
    return np.array([*rows], dtype=np.float64).reshape(-1, 2)


def _estimate_side_times(turns: Floats, least: int) -> tuple[float, float]:
    """Return how long a step takes in each of two runs that took turns, µs.

    ``turns`` has a row per turn and a column per run. Times of the same turn are compared, because both runs met the
    same conditions. If fewer than ``least`` turns have times of both runs, the lower quartile of each column is
    returned instead. That happens in a job that does many kinds of steps at random, because its two runs seldom do the
    same kind in one turn.
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
    """Return how long an average step takes in the unchanged and in the changed job, with the interval of the gain.

    * Before and after the change, there is one run or there are at least three.
    * ``counts`` are the weights of the kinds of steps.
    * Only kinds that were timed often enough in every run are compared. Returns None if these kinds take less than half
      of the time.
    """
    kinds = [name for name in counts if all(name in select_unprofiled_times(x) for x in (*before, *after))]
    total = math.fsum(counts[name] for name in kinds)
    us = {x.name: x.mean_us for side in (before, after) for y in side for x in y.kinds if x.mean_us is not None}
    if not before or not after or not _is_most_of_time(counts, kinds, us):
        return None
    weights = {name: counts[name] / total for name in kinds}
    runs = min(len(before), len(after))
    a, b = ((_of_runs if runs >= _LEAST else _of_units)(x, weights) for x in (before, after))
    parts = (a.variance, b.variance)
    value = math.fsum(x.value for x in parts)
    off = Variance(value, _degrees_of_freedom(parts)).half_width() if value > 0 else 0.0
    return UnitTime(a.us, b.us, b.us - off, b.us + off, runs=runs if runs >= _LEAST else 0, kinds=tuple(kinds))


def _is_most_of_time(counts: Mapping[str, float], kinds: Sequence[str], us: Mapping[str, float]) -> bool:
    """Tell whether some kinds of steps (``kinds``) together take at least half of the time of all steps.

    * ``counts``: the number of steps of each kind.
    * ``us``: the time of a step of each kind, µs.
    """
    # A kind whose time is unknown gets the mean time of the other kinds.
    usual = statistics.fmean(us.values()) if us else 1.0
    each = {x: n * us.get(x, usual) for x, n in counts.items()}
    part = math.fsum(each[x] for x in kinds)
    return part > 0 and 2 * part >= math.fsum(each.values())


def select_unprofiled_times(units: Units) -> Mapping[str, tuple[float, ...]]:
    """Map each kind of step to its times without the profiler, if there are at least three.

    Times of the warm-up are left out.
    """
    return {x.name: x.late_us for x in units.kinds if len(x.late_us) >= _LEAST}


def _of_runs(runs: Sequence[Units], weights: Mapping[str, float]) -> _Mean:
    means = [
        math.fsum(weight * statistics.fmean(select_unprofiled_times(x)[name]) for name, weight in weights.items())
        for x in runs
    ]
    return _mean(means)


def _of_units(runs: Sequence[Units], weights: Mapping[str, float]) -> _Mean:
    """Return the mean time of a step and the variance of this mean, both from the last run alone.

    It is used if there are too few runs to compare runs with each other.
    """
    times = select_unprofiled_times(runs[-1])
    blocks = {x: np.array_split(np.asarray(times[x]), min(_BLOCKS, len(times[x]))) for x in weights}
    each = {name: _mean([float(x.mean()) for x in made]) for name, made in blocks.items()}
    parts = [each[name].variance.scaled(weight**2) for name, weight in weights.items()]
    us = math.fsum(weight * statistics.fmean(times[name]) for name, weight in weights.items())
    return _Mean(us, Variance(math.fsum(x.value for x in parts), _degrees_of_freedom(parts)))


def _mean(values: Sequence[float]) -> _Mean:
    """Return the mean of independent values and the variance of that mean."""
    return _Mean(statistics.fmean(values), Variance(statistics.variance(values) / len(values), len(values) - 1.0))


def _degrees_of_freedom(parts: Sequence[Variance]) -> float:
    """Return the degrees of freedom of the sum of several variances, by the formula of Welch and Satterthwaite."""
    least = min(x.degrees for x in parts)
    known = math.fsum(x.value**2 / x.degrees for x in parts)
    return max(least, math.fsum(x.value for x in parts) ** 2 / known) if known else least
