"""How much longer or shorter a call takes under an action: from samples of both, taken by one replay.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analyzers.actions.action import Change
from analyzers.actions.job import Work
from analyzers.evidence.action_times import Samples
from analyzers.evidence.statistics.intervals import median

_LEAST_SHARE = 0.8
"""Of the time alone: what caches explained at most in the record below; a clock explains the rest, of all alike."""


@dataclass(frozen=True)
class Ratio:
    """The time of what a call becomes over the time of what it is, and its interval.

    ``now_us`` is the time of what it is, alone.
    """

    value: float
    low: float
    high: float
    now_us: float = 0.0

    def in_job(self, call_us: float) -> Ratio:
        """The same of a convolution that takes ``call_us`` in the job, where it is shorter than alone.

        Its neighbours leave its operands in the caches.  What that saves is a time, not a share: a slower solution
        reads the same operands and saves as much; a faster one makes fewer passes over them and saves less, about its
        ratio to the power 3/2 of it (of the 120 convolutions whose kernels changed in
        ``benchmarks/results/in-job-NVIDIA-H200-2026-11-22.json.gz``).
        """
        share = max(_LEAST_SHARE, call_us / self.now_us) if self.now_us else 1.0
        if share >= 1:
            return self
        kept = [(x - (1 - share) * min(1.0, x) ** 1.5) / share for x in (self.value, self.low, self.high)]
        return Ratio(kept[0], min(kept), max(kept), self.now_us)


def ratio(passes: Sequence[Work], changes: Sequence[Change], samples: Samples) -> Ratio | None:
    """Time of what a call becomes over time of what it is; None where one of them is not timed."""
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
    """By how much longer the host takes to enqueue what a call becomes, µs, undisturbed; 0 where it was not timed."""
    both = ((host.get((x.problem.text, x.solution)), y) for x, y in zip(passes, changes, strict=True) if not x.replaced)
    pairs = ((now, host.get((y.problem.text, y.solution))) for now, y in both if y.problem is not None)
    return sum(min(then[1]) - min(now[1]) for now, then in pairs if now and then)


def _now(work: Work, samples: Samples) -> tuple[str, Sequence[float]] | None:
    """The samples of what a call is; where no replay runs it, the mean of the trace."""
    if not work.replaced:
        return samples.get((work.problem.text, work.solution))
    return ("trace", [work.us / work.calls]) if work.us and work.calls else None


def _times(was: tuple[str, Sequence[float]], after: tuple[str, Sequence[float]]) -> tuple[float, float, float]:
    """The time after and its interval; where both were sampled in turn in one process, that of their ratio."""
    now, then = median(was[1]), median(after[1])
    if was[0] != after[0] or len(was[1]) != len(after[1]):
        return then, min(after[1]), max(after[1])
    ratios = [now * y / x for x, y in zip(was[1], after[1], strict=True)]
    return then, min(*ratios, then), max(*ratios, then)
