"""Choose which solution (below: plan) to try next, from the times of the plans tried so far.  Pure.

Before any time is known, each plan has an expected value.  It comes from measured problems that are near: the logarithm
of the plan's time over the best time of the near problem.  These logarithms are averaged over the near problems, with
weights that fall with distance (``experience``).

Two plans are alike if these logarithms differ little from problem to problem, whatever the plans are called.  If a near
problem did not time a plan, plans with similar names are used in its place.  A name that is only an index shows no
similarity, so such a plan is taken to be slow (near problems state their fastest plans).

Each time corrects the expectation for the plans that are alike (a Gaussian process: Rasmussen and Williams 2006,
chapter 2).  The next plan is the plan with the largest expected improvement (Jones, Schonlau and Welch 1998).  Times
that surprise widen the range that is thought possible for all other plans (a Student-t process: Shah, Wilson and
Ghahramani 2014).  So the search ends early if near problems predict well, and goes on if they do not.

``docs/proposers.md`` states how good the search is, and by which records the constants were chosen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from logparse.model import Solution

Floats: TypeAlias = npt.NDArray[np.float64]
Near: TypeAlias = Sequence[tuple[float, Mapping[str, float]]]
"""Near measured problems: the distance of each, and the times (µs) of its solutions by text."""

WORTHWHILE = 1e-3
"""Smallest expected improvement (of the logarithm of the best time) for which another plan is built and timed."""
_SLOW = math.log(3)
"""Largest logarithm of time over best time.  All slower plans count as equally slow."""
_FAR = 0.5
"""Distance at which a near problem's weight has fallen by a factor of e."""
_SPREAD, _UNLIKE = 2 / 3, 2.0
"""Variance between plans, and the difference of two plans (root mean square, logarithms) at a correlation of 1/e."""
_OWN, _SAMPLE, _LEVEL = 1e-5, 1e-4, 4.0
"""Three variances: of a single plan, of one sample, and of a problem's general level before its first time."""
_DOUBT = 4.0
"""Degrees of freedom: the number of times after which the estimate of surprise rests half on them."""
_OTHER_ENGINE, _OTHER_KNOB = 10.0, 1.0
"""Differences between two names, as exponents of e: per differing layout or engine, and per differing knob."""


class PlanSearch:
    """Search for the fastest solution of one problem among ``offered``.

    The search learns from at least one problem in ``near``.  It ends if the expected improvement of the logarithm of
    the best time is below ``worthwhile``.
    """

    def __init__(self, offered: Sequence[Solution], near: Near, worthwhile: float = WORTHWHILE) -> None:
        self._worthwhile = worthwhile
        self._left = {x.text: (i, x) for i, x in enumerate(offered)}
        self._best, self._surprise, self._times = math.inf, _DOUBT, _DOUBT
        weights = np.exp((min(far for far, _ in near) - np.array([far for far, _ in near])) / _FAR)
        weights /= weights.sum()
        profiles = _profiles(list(self._left), [times_us for _, times_us in near])
        self._mean: Floats = profiles @ weights
        self._at: Floats = profiles * np.sqrt(weights)
        self._variance: Floats = np.full(len(profiles), _SPREAD + _OWN + _LEVEL)
        self._seen: list[Floats] = []
        """For each time, a vector whose outer product with itself was subtracted from the covariance."""

    def next(self, tried: Mapping[str, float | None]) -> Solution | None:
        """Return the next plan to try, given times (µs) by text.  Return None if no further plan is worth trying.

        Times that an earlier call had are ignored.  A plan that did not run has None as its time, and tells nothing
        about other plans.
        """
        # The fastest new time comes first, because the first time of all sets the level, and slower times are cut off
        # at a multiple of the best so far.
        for time_us, text in sorted((us or math.inf, x) for x, us in tried.items() if x in self._left):
            number = self._left.pop(text)[0]
            if time_us < math.inf:
                self._observe(number, math.log(time_us))
        if not self._left:
            return None
        left = list(self._left.values())
        gains = self._improvement([i for i, _ in left])
        likeliest = int(gains.argmax())
        return left[likeliest][1] if gains[likeliest] >= self._worthwhile else None

    def _observe(self, number: int, log_us: float) -> None:
        first, self._best = self._best == math.inf, min(self._best, log_us)
        column = self._covariance(number)
        variance = column[number] + _SAMPLE
        error = min(log_us, self._best + _SLOW) - self._mean[number]
        if not first:  # The first time only sets the level.
            self._surprise += error**2 / variance
            self._times += 1
        self._mean = self._mean + column / variance * error
        self._seen.append(column / math.sqrt(variance))
        self._variance = self._variance - self._seen[-1] ** 2

    def _covariance(self, number: int) -> Floats:
        """Return the covariance of one plan with all plans, after the times so far.

        Only one column is computed, because all pairs of thousands of plans would be too many.
        """
        apart = np.sqrt(((self._at - self._at[number]) ** 2).sum(axis=1))
        out: Floats = _SPREAD * np.exp(-apart / _UNLIKE) + _LEVEL
        out[number] += _OWN
        for seen in self._seen:
            out -= seen * seen[number]
        return out

    def _improvement(self, left: Sequence[int]) -> Floats:
        """Return the expected improvement of the logarithm of the best time.

        Before any time is known it is infinite for the likeliest plan and 0 for the others.
        """
        mean, variance = self._mean[left], np.maximum(self._variance[left], 1e-9)
        if self._best == math.inf:
            return np.where(mean == mean.min(), math.inf, 0.0)
        spread = np.sqrt(variance * self._surprise / self._times)
        z = (self._best - mean) / spread
        below = np.array([math.erfc(-x / math.sqrt(2)) / 2 for x in z])
        out: Floats = spread * (z * below + np.exp(-z * z / 2) / math.sqrt(2 * math.pi))
        return out


def parsed(text: str) -> tuple[str, ...]:
    """Split a plan's name into layout, engine and knobs: ``("cudnn:layout=NHWC,stored", "eng67", "k2=5", …)``."""
    plan, *knobs = text.split("_")
    layout, _, engine = plan.rpartition(",")
    return layout, engine.rpartition(":")[2], *knobs


def _profiles(offered: Sequence[str], near: Sequence[Mapping[str, float]]) -> Floats:
    """Return an array, plan × near problem: the logarithm of the plan's time over that problem's best time."""
    names = list(dict.fromkeys([*offered, *(x for times_us in near for x in times_us)]))
    number = {x: i for i, x in enumerate(names)}
    alike = _alike(names, len(offered)) if any(parsed(x)[2:] for x in offered) else None
    out = np.full((len(offered), len(near)), _SLOW)
    for column, times_us in enumerate(near):
        logs = np.log(np.array(list(times_us.values())))
        ratios = np.minimum(logs - logs.min(), _SLOW)
        at = np.array([number[x] for x in times_us])
        if alike is not None:
            weights = alike[:, at]
            out[:, column] = weights @ ratios / weights.sum(axis=1)
        mine = at < len(offered)
        out[at[mine], column] = ratios[mine]
    return out


def _alike(names: Sequence[str], count: int) -> Floats:
    """Return the similarity (above 0, at most 1) of each of the first ``count`` names to all names."""
    plans = [parsed(x) for x in names]
    columns = [([x[i] for x in plans], _OTHER_ENGINE) for i in (0, 1)]
    knobs = [dict(y.partition("=")[::2] for y in x[2:]) for x in plans]
    columns += [([x.get(k, "") for x in knobs], _OTHER_KNOB) for k in sorted({k for x in knobs for k in x})]
    apart = np.zeros((count, len(names)))
    for values, unlike in columns:
        codes = np.unique(values, return_inverse=True)[1]
        apart += unlike * (codes[:count, None] != codes)
    return np.exp(-apart)
