"""Choose which kernel to try next, from the times of the kernels tried so far. Pure.

A kernel is called a plan here, as in cuDNN. Before any time is known, each plan has an expected value. It comes from
measured GEMMs or convolutions that are similar: the logarithm of (the plan's time) / (the best time of the similar
one). These logarithms are averaged over the similar ones, with weights that fall with distance (``experience``).

Two plans are alike if these logarithms differ little from one similar GEMM or convolution to the next, whatever the
plans are called. If a plan was not timed there, plans with similar names are used in its place. A name that is only an
index shows no similarity, so such a plan is assumed to be slow (similar ones list their fastest plans).

Each time corrects the expectation for the plans that are alike (a Gaussian process: Rasmussen and Williams 2006,
chapter 2). The next plan is the plan with the largest expected improvement (Jones, Schonlau and Welch 1998). Times that
surprise widen the range that is considered possible for all other plans (a Student-t process: Shah, Wilson and
Ghahramani 2014). So the search ends early if similar ones predict well, and continues if they do not.

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
"""Similar GEMMs or convolutions that were measured: the distance of each, and the times (µs) of its kernels."""

WORTHWHILE = 1e-3
"""Another kernel is tried only if it is expected to improve the best time by at least this much.

It is the expected improvement of the logarithm of the time, so 0.001 means about 0.1 %.
"""
_SLOW = math.log(3)
"""Kernels slower than this are all treated alike: the logarithm of 3 means three times the best time."""
_FAR = 0.5
"""Distance at which a similar GEMM or convolution has only 1/e (37 %) of its full weight."""
_SPREAD, _UNLIKE = 2 / 3, 2.0
"""Two constants of the Gaussian process that predicts the times of kernels.

``_SPREAD`` is the variance between kernels. ``_UNLIKE`` is the difference of two kernels at which their correlation is
1/e. The difference is a root mean square of logarithms.
"""
_OWN, _SAMPLE, _LEVEL = 1e-5, 1e-4, 4.0
"""Variances of three random effects on the logarithm of a time.

* ``_OWN``: the deviation of a single kernel.
* ``_SAMPLE``: the noise of one sample.
* ``_LEVEL``: the general level of all times, before the first time is known.
"""
_DOUBT = 4.0
"""Number of measured times after which the search trusts its own estimate of how surprising times are by half.

Before, it trusts the assumption more. In statistics it is a number of degrees of freedom.
"""
_OTHER_ENGINE, _OTHER_KNOB = 10.0, 1.0
"""How much less similar two names of plans are for each differing layout or engine, and for each differing knob.

The values are exponents of e.
"""


class PlanSearch:
    """A search for the fastest of many kernels for one GEMM or convolution, without trying all of them.

    It learns from the times of similar ones (``near``, at least one). It ends when the expected improvement of the
    logarithm of the best time is below ``worthwhile``.
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
        """One vector per time that was observed, from which the covariance of the remaining kernels is computed.

        The outer product of each vector with itself was subtracted from the covariance.
        """

    def next(self, tried: Mapping[str, float | None]) -> Solution | None:
        """Return the next kernel to try, or None if no further one is worth trying.

        ``tried`` has the times (µs) so far, by the kernel's name. Times that were passed in an earlier call are
        ignored. A kernel that did not run has the time None, and nothing is concluded from it about other kernels.
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
        """Return the covariance of one kernel with all kernels, given the times so far.

        Only one column is computed, because all pairs of thousands of kernels would be too many.
        """
        apart = np.sqrt(((self._at - self._at[number]) ** 2).sum(axis=1))
        out: Floats = _SPREAD * np.exp(-apart / _UNLIKE) + _LEVEL
        out[number] += _OWN
        for seen in self._seen:
            out -= seen * seen[number]
        return out

    def _improvement(self, left: Sequence[int]) -> Floats:
        """Return how much each remaining kernel is expected to improve the logarithm of the best time.

        Before any time is known it is infinite for the likeliest kernel and 0 for the others.
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
    """Split the name of a cuDNN plan into layout, engine and knobs.

    For example: ``("cudnn:layout=NHWC,stored", "eng67", "k2=5", …)``.
    """
    plan, *knobs = text.split("_")
    layout, _, engine = plan.rpartition(",")
    return layout, engine.rpartition(":")[2], *knobs


def _profiles(offered: Sequence[str], near: Sequence[Mapping[str, float]]) -> Floats:
    """Return how slow each offered kernel is expected to be, judged by each similar GEMM or convolution.

    The result is an array (kernels × similar ones). Each value is the logarithm of (the kernel's time) / (the best time
    of the similar one).
    """
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
    """Return how similar the names of kernels are: each of the first ``count`` names compared with every name.

    The values are above 0 and at most 1. Equal names have 1.
    """
    plans = [parsed(x) for x in names]
    columns = [([x[i] for x in plans], _OTHER_ENGINE) for i in (0, 1)]
    knobs = [dict(y.partition("=")[::2] for y in x[2:]) for x in plans]
    columns += [([x.get(k, "") for x in knobs], _OTHER_KNOB) for k in sorted({k for x in knobs for k in x})]
    apart = np.zeros((count, len(names)))
    for values, unlike in columns:
        codes = np.unique(values, return_inverse=True)[1]
        apart += unlike * (codes[:count, None] != codes)
    return np.exp(-apart)
