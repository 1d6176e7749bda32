"""Which plan of a convolution to try next, by the times of those tried so far.  Pure.

What is expected of a plan before any time is known: its mean over the near measured problems, each weighted by its
distance (``nearness``), of the logarithm of its time over that problem's best.  Two plans are the more alike the less
these logarithms differ from problem to problem, whatever their names; where a problem did not time a plan, those of
like names stand in.  Each time corrects what is expected of the plans that are alike (a Gaussian process: Rasmussen and
Williams 2006, chapter 2), and the next plan is the one of the largest expected improvement (Jones, Schonlau and Welch
1998).  Times that surprise widen what is thought possible of all others (a Student-t process: Shah, Wilson and
Ghahramani 2014), so the search ends early where near problems predict well, and goes on where they do not.

How good it is, and by which records the constants were chosen: ``docs/proposers.md``.
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
"""Distances of measured problems, and the times (µs) of their solutions by text."""

WORTHWHILE = 1e-3
"""Expected improvement of the logarithm of the best time below which nothing more is tried."""
_SLOW = math.log(3)
"""Logarithm of the ratio to the best from which on all plans count alike."""
_FAR = 0.5
"""Distance over which a problem's weight falls by e."""
_SPREAD, _UNLIKE = 2 / 3, 2.0
"""Variance of a plan, and how far the logarithms of two differ (root mean square) where their correlation is 1/e."""
_OWN, _SAMPLE, _LEVEL = 1e-5, 1e-4, 4.0
"""Variances: of a plan's own, of one sample, and of the level of a problem's times, which is unknown before the first.
"""
_DOUBT = 4.0
"""Degrees of freedom: how many times it takes to change by half how much times are thought to surprise."""
_OTHER_ENGINE, _OTHER_KNOB = 10.0, 1.0
"""How unlike two names are, in exponents of e, by each differing part."""


class PlanSearch:
    """The search of one problem among ``offered``, learning from at least one of ``near``."""

    def __init__(self, offered: Sequence[Solution], near: Near) -> None:
        self._left = {x.text: (i, x) for i, x in enumerate(offered)}
        self._best, self._surprise, self._times = math.inf, _DOUBT, _DOUBT
        weights = np.exp((min(far for far, _ in near) - np.array([far for far, _ in near])) / _FAR)
        weights /= weights.sum()
        profiles = _profiles(list(self._left), [times_us for _, times_us in near])
        self._mean: Floats = profiles @ weights
        at = profiles * np.sqrt(weights)
        squares = (at**2).sum(axis=1)
        apart = np.sqrt(np.maximum(squares[:, None] + squares - 2 * at @ at.T, 0))
        self._cov: Floats = _SPREAD * np.exp(-apart / _UNLIKE) + _OWN * np.eye(len(at)) + _LEVEL

    def next(self, tried: Mapping[str, float | None]) -> Solution | None:
        """What to try after these times (µs) by text, of which only new ones matter; None where no more is worth it.

        A plan that did not run has None as its time and says nothing of others.
        """
        # The fastest first: a time counts up to a multiple of the best so far, and the first one says what level is.
        for time_us, text in sorted((us or math.inf, x) for x, us in tried.items() if x in self._left):
            number = self._left.pop(text)[0]
            if time_us < math.inf:
                self._observe(number, math.log(time_us))
        if not self._left:
            return None
        left = list(self._left.values())
        gains = self._improvement([i for i, _ in left])
        likeliest = int(gains.argmax())
        return left[likeliest][1] if gains[likeliest] >= WORTHWHILE else None

    def _observe(self, number: int, log_us: float) -> None:
        first, self._best = self._best == math.inf, min(self._best, log_us)
        variance = self._cov[number, number] + _SAMPLE
        error = min(log_us, self._best + _SLOW) - self._mean[number]
        if not first:  # which only says what the level is
            self._surprise += error**2 / variance
            self._times += 1
        gain = self._cov[:, number] / variance
        self._mean = self._mean + gain * error
        self._cov = self._cov - np.outer(gain, self._cov[number])

    def _improvement(self, left: Sequence[int]) -> Floats:
        """Expected improvement of the logarithm of the best time; before any time infinite for the likeliest."""
        mean, variance = self._mean[left], np.maximum(np.diag(self._cov)[left], 1e-9)
        if self._best == math.inf:
            return np.where(mean == mean.min(), math.inf, 0.0)
        spread = np.sqrt(variance * self._surprise / self._times)
        z = (self._best - mean) / spread
        below = np.array([math.erfc(-x / math.sqrt(2)) / 2 for x in z])
        out: Floats = spread * (z * below + np.exp(-z * z / 2) / math.sqrt(2 * math.pi))
        return out


def parsed(text: str) -> tuple[str, ...]:
    """Layout and engine, then the knobs of a plan's name: ``("cudnn:layout=NHWC,stored", "eng67", "k2=5", …)``."""
    plan, *knobs = text.split("_")
    layout, _, engine = plan.rpartition(",")
    return layout, engine.rpartition(":")[2], *knobs


def _profiles(offered: Sequence[str], near: Sequence[Mapping[str, float]]) -> Floats:
    """Plan × near problem: the logarithm of the plan's time over the best there."""
    names = list(dict.fromkeys([*offered, *(x for times_us in near for x in times_us)]))
    number = {x: i for i, x in enumerate(names)}
    alike = _alike(names, len(offered))
    out = np.empty((len(offered), len(near)))
    for column, times_us in enumerate(near):
        logs = np.log(np.array(list(times_us.values())))
        ratios = np.minimum(logs - logs.min(), _SLOW)
        at = np.array([number[x] for x in times_us])
        weights = alike[:, at]
        out[:, column] = weights @ ratios / weights.sum(axis=1)
        mine = at < len(offered)
        out[at[mine], column] = ratios[mine]
    return out


def _alike(names: Sequence[str], count: int) -> Floats:
    """How alike the first ``count`` names are to all; never 0."""
    plans = [parsed(x) for x in names]
    columns = [([x[i] for x in plans], _OTHER_ENGINE) for i in (0, 1)]
    knobs = [dict(y.partition("=")[::2] for y in x[2:]) for x in plans]
    columns += [([x.get(k, "") for x in knobs], _OTHER_KNOB) for k in sorted({k for x in knobs for k in x})]
    apart = np.zeros((count, len(names)))
    for values, unlike in columns:
        codes = np.unique(values, return_inverse=True)[1]
        apart += unlike * (codes[:count, None] != codes)
    return np.exp(-apart)
