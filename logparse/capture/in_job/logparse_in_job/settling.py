"""Decide from the times of a job's steps whether its warm-up is over.

This file runs inside a user's job, with Python 3.8 and only the standard library. For 200 times it takes about 50 µs.
"""

from __future__ import annotations

import math
from typing import Sequence  # Python 3.8 has no subscript of collections.abc.Sequence

_LEAST_REST = 3
"""Smallest number of batches of times that must remain after the warm-up, because a standard error needs some values.

At least twice as many times are needed for a decision.
"""
_BATCHES = 40
"""Number of batches into which the times are divided, if there are enough times. A batch has one or more times.

With fewer batches a smaller drift would be found, but more steady series would be rejected: with 25 batches 5 % of them
would be, however long they are.
"""


def is_settled(times: Sequence[float]) -> bool:
    """Return True if the job has warmed up: the times of its latest steps are steady.

    ``times`` are the times of the steps in their order, in any unit. The times are steady if less than half of them is
    warm-up. The result is False for fewer than 6 times, and if a time is not finite.

    The method is the marginal confidence rule, on batch means of ranks. Each time is replaced by its rank. Equal times
    share the mean of their ranks. ``max(1, n // 40)`` ranks in a row are a batch. Batches are counted from the end,
    so that the first ranks may be left over. The rule cuts off the first d of the b batch means x. The rule chooses d
    such that the squared standard error of the mean of the rest is least. m = b - d is the size of the rest, at least 3
    and at least a quarter of b::

        s^2 / m  =  sum((x - mean(x))^2) / (m (m - 1))

    If several rests are equally good, the largest is taken. The times have settled if d < b // 2, because a longer
    warm-up leaves too few times to tell.

    Sources. Rule: White, "An effective truncation heuristic for bias reduction in simulation output", Simulation 69,
    1997. Batches: White, Cobb and Spratt, "A comparison of five steady-state truncation heuristics for simulation",
    Winter Simulation Conference 2000. No cut in the second half, no small rest: Hoad, Robinson and Davies, "Automating
    warm-up length estimation", Journal of the Operational Research Society 61, 2010. Ranks: Conover and Iman, "Rank
    transformations as a bridge between parametric and nonparametric statistics", The American Statistician 35, 1981.

    How many series are found to be steady (``benchmarks/settling.py``; table in ``docs/measurement.md``):

    * Steady series, with white noise up to 20 % or with single long steps: 77 to 80 % with 6 or 10 times, 95 % with 20
      times, at least 99 % with 50 or more times.
    * Series with noise of 2 % whose first half is slower, that decay with a constant of n/4 or more, or that drift by
      20 %: at most 6 % with 6 times, below 1 % with 10 or more times.

    Limits:

    * A warm-up whose steps all take the same time looks steady until it ends. So does the start of a slow drift. If the
      rule is asked after every step, it says yes to most series at some time.
    * A change within the last quarter is not seen.
    * A drift within the noise looks steady. A drift of 2.5 standard deviations of the noise looks steady in 86 % of
      series with 50 times, and in 46 % of series with 199 times.
    * Noise that stays on one side for as long as the series cannot be told from a drift.
    """
    count = len(times)
    if count < 2 * _LEAST_REST or not math.isfinite(sum(times)):
        return False
    ranks = _doubled_ranks(times)
    size = max(1, count // _BATCHES)
    batches = [sum(ranks[end - size : end]) for end in range(count, size - 1, -size)]  # the last batch first
    least = max(_LEAST_REST, -(-len(batches) // 4))
    best, rest, total, squares = math.inf, 0, 0, 0
    for held, batch in enumerate(batches, 1):
        total += batch
        squares += batch * batch
        if held >= least:
            error = (held * squares - total * total) / (held * held * (held - 1))
            if error <= best:
                best, rest = error, held
    return len(batches) - rest < len(batches) // 2


def _doubled_ranks(times: Sequence[float]) -> list[int]:
    """Return twice the rank of each time, counted from the middle. For example, the times 5, 7 and 9 get −2, 0 and 2.

    Equal times get the mean of their ranks.
    """
    ordered = sorted(times)
    below = {time: rank for rank, time in enumerate(ordered)}
    ordered.reverse()
    above = {time: rank for rank, time in enumerate(ordered)}
    # Doubled ranks are whole numbers, so sums of them are exact.
    return [below[time] - above[time] for time in times]
