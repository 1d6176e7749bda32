"""Ratio of a call's time under an action to its time now, from samples of both that one replay took. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analyzers.actions.action import Change
from analyzers.actions.job import Work
from analyzers.evidence.action_times import Samples
from analyzers.evidence.statistics.intervals import median

_LEAST_SHARE = 0.8
"""Least share of its time alone that a convolution is taken to need because of caches.

Caches saved at most 20 % in the record that ``Ratio.in_job`` names. A larger difference is explained by the clock,
which changes all times alike.
"""


@dataclass(frozen=True)
class Ratio:
    """Time of a call under an action / its time now, with an interval.

    ``now_us``: the time now, alone, µs.
    """

    value: float
    low: float
    high: float
    now_us: float = 0.0

    def in_job(self, call_us: float) -> Ratio:
        """Return the ratio for a convolution that takes ``call_us`` in the job.

        The ratio changes only if ``call_us`` is shorter than the time alone. The operators before the convolution then
        leave its operands in the caches. That saves a time, not a share of the time. A slower solution reads the same
        operands and saves as much. A faster solution makes fewer passes over them and saves less: about ratio^(3/2)
        times as much. This was seen in the 120 convolutions whose kernels changed in
        ``benchmarks/results/in-job-NVIDIA-H200-2026-11-22.json.gz``.
        """
        share = max(_LEAST_SHARE, call_us / self.now_us) if self.now_us else 1.0
        if share >= 1:
            return self
        kept = [(x - (1 - share) * min(1.0, x) ** 1.5) / share for x in (self.value, self.low, self.high)]
        return Ratio(kept[0], min(kept), max(kept), self.now_us)


def ratio(passes: Sequence[Work], changes: Sequence[Change], samples: Samples) -> Ratio | None:
    """Return (time under the action) / (time now). Return None if one of the two is not timed."""
    before = [_now(one, samples) for one in passes]
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
    """Return the additional time that the host takes to enqueue the call under the action, undisturbed, µs.

    A call that was not timed counts as 0.
    """
    both = ((host.get((x.problem.text, x.solution)), y) for x, y in zip(passes, changes, strict=True) if not x.replaced)
    pairs = ((now, host.get((y.problem.text, y.solution))) for now, y in both if y.problem is not None)
    return sum(min(then[1]) - min(now[1]) for now, then in pairs if now and then)


def _now(work: Work, samples: Samples) -> tuple[str, Sequence[float]] | None:
    """Return the samples of the present solution. If no replay runs it, return the mean of the trace."""
    if not work.replaced:
        return samples.get((work.problem.text, work.solution))
    return ("trace", [work.us / work.calls]) if work.us and work.calls else None


def _times(was: tuple[str, Sequence[float]], after: tuple[str, Sequence[float]]) -> tuple[float, float, float]:
    """Return the time after, with its interval.

    If both were sampled in turn in one process, it is the interval of their ratio.
    """
    now, then = median(was[1]), median(after[1])
    if was[0] != after[0] or len(was[1]) != len(after[1]):
        return then, min(after[1]), max(after[1])
    ratios = [now * y / x for x, y in zip(was[1], after[1], strict=True)]
    return then, min(*ratios, then), max(*ratios, then)
