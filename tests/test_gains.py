"""Tests of the class ``Gain``, which has the time of a call before and after a change of the job.

The time after the change may have an interval.
"""

from __future__ import annotations

import math

from logparse.model import Gain
from logparse.model.gains import total


def test_the_shortest_time_is_the_largest_saving() -> None:
    """The shortest time after a change gives the largest saving, and the longest time the smallest one."""
    # Here 50 µs become 40 µs, or between 35 and 48 µs. So the saving is 50 − 40 = 10 µs, at least 50 − 48 = 2 µs and at
    # most 50 − 35 = 15 µs.
    gain = Gain(50.0, 40.0, low_us=35.0, high_us=48.0)
    assert (gain.saving_low_us, gain.saving_us, gain.saving_high_us) == (2.0, 10.0, 15.0)
    assert gain.ratio == 0.8


def test_an_unknown_end_of_an_interval_stays_unknown() -> None:
    """If only the longest time after a change is known, only the smallest saving is known, not the largest."""
    gain = Gain(50.0, 40.0, high_us=48.0)
    assert (gain.saving_low_us, gain.saving_high_us) == (2.0, None)
    assert gain.times(10) == Gain(500.0, 400.0, high_us=480.0)
    assert gain.times(10).per(10) == gain
    assert gain.ends_us == (40.0, 48.0)


def test_a_loss_is_a_negative_saving() -> None:
    assert Gain(40.0, 50.0).saving_us == -10.0


def test_a_new_call_has_no_ratio() -> None:
    """If a call takes no time before a change, the ratio of its times is not a number (NaN).

    For example, a change of the memory layout may add calls that convert tensors.
    """
    assert math.isnan(Gain(0.0, 5.0).ratio)


def test_a_sum_has_no_interval() -> None:
    """A sum of gains has no interval, even if some of the gains have one.

    The errors of the gains may have opposite signs, so the ends of their intervals must not be added.
    """
    assert total([Gain(50.0, 40.0, 39.0, 41.0), Gain(5.0, 4.0)]) == Gain(55.0, 44.0)
    assert total([]) is None
