"""Compute by which factor a change multiplies the time of a call: (time with the change) / (time now).

The times were measured by ``logparse replay``, which runs the calls alone, outside the job. No files are read here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analyzers.actions.action import Change
from analyzers.actions.job import Work
from analyzers.evidence.action_times import Samples
from analyzers.evidence.statistics.intervals import median

_LEAST_SHARE = 0.8
"""The smallest believable ratio (time in the job) / (time alone) of a convolution, 0.8.

A convolution is faster in the job than alone if its inputs are still in the GPU's caches. But caches save at most 20 %.
If the difference is larger, the GPU's clock was different, and the ratio is raised to this value.
"""


@dataclass(frozen=True)
class Ratio:
    """How a change affects the time of one call: (time with the change) / (time now), with an interval.

    * ``low``, ``high``: the ends of the interval.
    * ``now_us``: the time that the call takes now if it runs alone, µs.
    """

    value: float
    low: float
    high: float
    now_us: float = 0.0

    def in_job(self, call_us: float) -> Ratio:
        """Return the ratio for a convolution in the job, where its inputs may still be in the GPU's caches.

        ``call_us`` is the time of the convolution in the job, µs. If it is shorter than ``now_us`` (its time alone),
        the caches helped. Then the ratio is corrected, because caches save a fixed time and not a fixed fraction:

        * A slower kernel reads the same inputs, so the caches save the same time.
        * A faster kernel reads its inputs fewer times, so the caches save less: about ratio^(3/2) times as much.

        This was measured on the 120 convolutions whose kernels changed in
        ``benchmarks/results/in-job-NVIDIA-H200-2026-11-22.json.gz``.
        """
        share = max(_LEAST_SHARE, call_us / self.now_us) if self.now_us else 1.0
        if share >= 1:
            return self
        kept = [(x - (1 - share) * min(1.0, x) ** 1.5) / share for x in (self.value, self.low, self.high)]
        return Ratio(kept[0], min(kept), max(kept), self.now_us)


def ratio(passes: Sequence[Work], changes: Sequence[Change], samples: Samples) -> Ratio | None:
    """Return (time of a call with the change) / (time now), with its interval. None if one of the two was not timed.

    The times of several ``passes``, such as a convolution's two gradients, are added.
    """
    before = [_find_times_without_change(one, samples) for one in passes]
    now = sum(median(x[1]) for x in before if x is not None)
    then = low = high = 0.0
    for was, change in zip(before, changes, strict=True):
        if change.problem is None:
            continue
        after = samples.get((change.problem.text, change.solution))
        if was is None or after is None:
            return None
        value, least, most = _times(was, after)
        then, low, high = then + value, low + least, high + most
    return Ratio(then / now, low / now, high / now, now) if now else Ratio(0.0, 0.0, 0.0)


def host_us(passes: Sequence[Work], changes: Sequence[Change], host: Samples) -> float:
    """Return how much longer the host takes to launch a call with the change than without, µs. Negative: it takes less.

    Passes (such as the two gradients of a convolution) without measured times add 0.
    """
    both = ((host.get((x.problem.text, x.solution)), y) for x, y in zip(passes, changes, strict=True) if not x.replaced)
    pairs = ((now, host.get((y.problem.text, y.solution))) for now, y in both if y.problem is not None)
    # The smallest of several measured times is used, because disturbances only make a time longer.
    return sum(min(then[1]) - min(now[1]) for now, then in pairs if now and then)


def _find_times_without_change(work: Work, samples: Samples) -> tuple[str, Sequence[float]] | None:
    """Return the measured times (µs) of a call without the change, and the name of the file with the times.

    None if the call was not timed.
    """
    if not work.replaced:
        return samples.get((work.problem.text, work.solution))
    # A call that cannot be run alone gets its mean time in the trace, and the name "trace".
    return ("trace", [work.us / work.calls]) if work.us and work.calls else None


def _times(was: tuple[str, Sequence[float]], after: tuple[str, Sequence[float]]) -> tuple[float, float, float]:
    """Return how long a call takes with a change, µs: the median, and the lower and upper bound of the measured times.

    * ``was``, ``after``: the measured times without and with the change. Each is a tuple of a file name and the times.
    * If one file has both, they were measured alternately. Then the bounds come from the ratios of two times that were
      measured one right after the other, because both are affected alike when the GPU slows down.
    """
    now, then = median(was[1]), median(after[1])
    if was[0] != after[0] or len(was[1]) != len(after[1]):
        return then, min(after[1]), max(after[1])
    ratios = [now * y / x for x, y in zip(was[1], after[1], strict=True)]
    return then, min(*ratios, then), max(*ratios, then)
