"""Times now and after a change."""

from __future__ import annotations

import math

from logparse.model import Gain
from logparse.model.gains import total


def test_the_best_case_of_the_time_is_the_largest_saving() -> None:
    """50 µs become 40 µs, or between 35 and 48 µs: the saving is 10 µs, at least 2 and at most 15 µs."""
    gain = Gain(50.0, 40.0, low_us=35.0, high_us=48.0)
    assert (gain.saving_low_us, gain.saving_us, gain.saving_high_us) == (2.0, 10.0, 15.0)
    assert gain.ratio == 0.8


def test_an_unknown_end_stays_unknown() -> None:
    """Only the longest time is known, so only the least saving is."""
    gain = Gain(50.0, 40.0, high_us=48.0)
    assert (gain.saving_low_us, gain.saving_high_us) == (2.0, None)
    assert gain.times(10) == Gain(500.0, 400.0, high_us=480.0)
    assert gain.times(10).per(10) == gain
    assert gain.ends_us == (40.0, 48.0)


def test_a_loss_is_a_negative_saving() -> None:
    assert Gain(40.0, 50.0).saving_us == -10.0


def test_what_takes_no_time_now_has_no_ratio() -> None:
    """An action may add calls, for example a conversion between layouts."""
    assert math.isnan(Gain(0.0, 5.0).ratio)


def test_a_sum_has_no_interval() -> None:
    """The errors of the summands may point in opposite directions."""
    assert total([Gain(50.0, 40.0, 39.0, 41.0), Gain(5.0, 4.0)]) == Gain(55.0, 44.0)
    assert total([]) is None
