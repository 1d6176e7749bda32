"""Gains: the time that something takes now, and the time that it takes after a change.

Everything that promises or measures a saving has a gain. Its ``Sureness`` (``remedies.py``) says how surely it is
known.
"""

# Findings, changes, the list of things to do, simulated steps and measured runs have gains.

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Gain:
    """The time that something takes now and the time that it takes after a change, both in µs.

    The thing is one call, all calls of a problem, a step of the job, or the whole run.  For example, ``Gain(50, 40)``
    saves 10 µs.

    * ``low_us`` and ``high_us`` are the ends of an interval that contains the time after the change.  None means that
      an end is unknown.  ``low_us`` is the best case, because it is the shorter time.
    * A loss is a gain whose ``then_us`` is larger than ``now_us``.
    """

    now_us: float
    then_us: float
    low_us: float | None = None
    high_us: float | None = None

    @property
    def saving_us(self) -> float:
        """The time that the change saves, in µs.  It is negative if the change loses time."""
        return self.now_us - self.then_us

    @property
    def saving_low_us(self) -> float | None:
        """The least time that the change may save, in µs.  None if ``high_us`` is unknown."""
        return None if self.high_us is None else self.now_us - self.high_us

    @property
    def saving_high_us(self) -> float | None:
        """The most time that the change may save, in µs.  None if ``low_us`` is unknown."""
        return None if self.low_us is None else self.now_us - self.low_us

    @property
    def ends_us(self) -> tuple[float, float]:
        """The least and the most time in µs that is expected after the change.

        An unknown end of this interval is replaced by the expected time itself (``then_us``).
        """
        return (
            self.then_us if self.low_us is None else self.low_us,
            self.then_us if self.high_us is None else self.high_us,
        )

    @property
    def ratio(self) -> float:
        """(time after the change) / (time now).  NaN if the time now is 0."""
        return self.then_us / self.now_us if self.now_us else math.nan

    def times(self, count: float) -> Gain:
        """Multiply all times of this gain by ``count``, for example by the number of calls if it is for one call."""
        ends = (None if x is None else x * count for x in (self.low_us, self.high_us))
        return Gain(self.now_us * count, self.then_us * count, *ends)

    def per(self, count: float) -> Gain:
        """Divide all times of this gain by ``count``, for example to get the gain per step if it is for all steps."""
        ends = (None if x is None else x / count for x in (self.low_us, self.high_us))
        return Gain(self.now_us / count, self.then_us / count, *ends)


def total(gains: Iterable[Gain]) -> Gain | None:
    """Add up the gains of several changes.  The sum has no interval.  Return None if there are no gains."""
    known = list(gains)
    return Gain(math.fsum(x.now_us for x in known), math.fsum(x.then_us for x in known)) if known else None
