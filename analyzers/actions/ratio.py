"""Ratio of a call's time under an action to its time now. One replay took the samples of both. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analyzers.actions.action import Change
from analyzers.actions.job import Work
from analyzers.evidence.action_times import Samples
from analyzers.evidence.statistics.intervals import median

_LEAST_SHARE = 0.8
"""Least value of (time in the job) / (time alone) that caches can explain for a convolution.

Caches saved at most 20 % in the record that ``Ratio.in_job`` names. A larger difference comes from the clock, which
changes all times alike.
"""


@dataclass(frozen=True)
class Ratio:
    """Ratio (time of a call under an action) / (its time now), with an interval.

    ``now_us``: the time now of a call that runs alone, µs.
    """

    value: float
    low: float
    high: float
    now_us: float = 0.0

    def in_job(self, call_us: float) -> Ratio:
        """Return the ratio for a convolution that takes ``call_us`` in the job.

        The ratio changes only if ``call_us`` is shorter than ``now_us``. Then the operators before the convolution have
        left its operands in the caches. The caches save a fixed time, not a fixed fraction of the time. A slower
        solution reads the same operands, so it saves the same time. A faster solution makes fewer passes over the
        operands, so it saves less: about ratio^(3/2) times as much. This was measured on the 120 convolutions whose
        kernels changed in ``benchmarks/results/in-job-NVIDIA-H200-2026-11-22.json.gz``.
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
    """Return the additional time that the host takes to enqueue the call under the action, µs.

    The least sample of each time is used, because disturbances only make a sample longer. The result contains 0 for a
    call that was not timed.
    """
    both = ((host.get((x.problem.text, x.solution)), y) for x, y in zip(passes, changes, strict=True) if not x.replaced)
    pairs = ((now, host.get((y.problem.text, y.solution))) for now, y in both if y.problem is not None)
    return sum(min(then[1]) - min(now[1]) for now, then in pairs if now and then)


def _now(work: Work, samples: Samples) -> tuple[str, Sequence[float]] | None:
    """Return the text and samples of the present solution. If no replay runs it, return the mean of the trace as
    sample.
    """
    if not work.replaced:
        return samples.get((work.problem.text, work.solution))
    return ("trace", [work.us / work.calls]) if work.us and work.calls else None


def _times(was: tuple[str, Sequence[float]], after: tuple[str, Sequence[float]]) -> tuple[float, float, float]:
    """Return the time after the change, with its interval.

    If one process sampled both solutions in turn, the interval comes from the ratio of the two.
    """
    now, then = median(was[1]), median(after[1])
    if was[0] != after[0] or len(was[1]) != len(after[1]):
        return then, min(after[1]), max(after[1])
    ratios = [now * y / x for x, y in zip(was[1], after[1], strict=True)]
    return then, min(*ratios, then), max(*ratios, then)
