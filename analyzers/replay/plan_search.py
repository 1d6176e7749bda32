"""Which solution (below: plan) to try next, by the times of those tried so far.  Pure.

What is expected of a plan before any time is known: its mean over the near measured problems, each weighted by its
distance (``experience``), of the logarithm of its time over that problem's best.  Two plans are the more alike the less
these logarithms differ from problem to problem, whatever their names.  Where a problem did not time a plan, those of
like names stand in; names that are indices say nothing, so there a plan counts as slow (near problems state their
fastest).  Each time corrects what is expected of the plans that are alike (a Gaussian process: Rasmussen and Williams
2006, chapter 2), and the next plan is the one of the largest expected improvement (Jones, Schonlau and Welch 1998).
Times that surprise widen what is thought possible of all others (a Student-t process: Shah, Wilson and Ghahramani
2014), so the search ends early where near problems predict well, and goes on where they do not.

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
"""Expected improvement of the logarithm of the best time below which no further plan is worth being built and timed."""
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
    """The search of one problem among ``offered``, learning from at least one of ``near``; it ends where the expected
    improvement of the logarithm of the best time is below ``worthwhile``.
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
        """For each time: what it took off the covariance, as the vector whose outer product that is."""

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
        return left[likeliest][1] if gains[likeliest] >= self._worthwhile else None

    def _observe(self, number: int, log_us: float) -> None:
        first, self._best = self._best == math.inf, min(self._best, log_us)
        column = self._covariance(number)
        variance = column[number] + _SAMPLE
        error = min(log_us, self._best + _SLOW) - self._mean[number]
        if not first:  # which only says what the level is
            self._surprise += error**2 / variance
            self._times += 1
        self._mean = self._mean + column / variance * error
        self._seen.append(column / math.sqrt(variance))
        self._variance = self._variance - self._seen[-1] ** 2

    def _covariance(self, number: int) -> Floats:
        """Of one plan with all, after the times so far.  Thousands of plans are never held against each other."""
        apart = np.sqrt(((self._at - self._at[number]) ** 2).sum(axis=1))
        out: Floats = _SPREAD * np.exp(-apart / _UNLIKE) + _LEVEL
        out[number] += _OWN
        for seen in self._seen:
            out -= seen * seen[number]
        return out

    def _improvement(self, left: Sequence[int]) -> Floats:
        """Expected improvement of the logarithm of the best time; before any time infinite for the likeliest."""
        mean, variance = self._mean[left], np.maximum(self._variance[left], 1e-9)
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
