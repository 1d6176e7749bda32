"""Tests of how a change is timed in a running job: some steps with it and some without it, in turns."""

# The tests check the order of the turns, the interval of the gain, and when the timing ends. The tests need no PyTorch.

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import pytest

from logparse.capture.in_job.logparse_in_job import pairs
from logparse.capture.in_job.logparse_in_job.pairs import (
    Block,
    Comparison,
    is_decided,
    is_faster,
    pair_of,
    widen_interval,
)
from logparse.capture.in_job.logparse_in_job.signed_rank import Interval, interval
from tests.conftest import sized

UNIT_US = 50_000.0


def brute_confidence(count: int, rank: int) -> float:
    """Compute the confidence (0 to 1) of an interval of ``count`` measured values by trying all combinations of signs.

    The interval reaches from the ``rank``-th smallest to the ``rank``-th largest Walsh average.
    """
    # Walsh averages are the averages of all pairs of values, sorted. Each value is equally likely to be too large or
    # too small.
    below = 0
    for signs in itertools.product((0, 1), repeat=count):
        below += sum(place for place, sign in enumerate(signs, 1) if sign) < rank
    return 1 - 2 * below / 2**count


@pytest.mark.parametrize("count", range(1, 13))
def test_the_interval_is_that_of_the_signed_rank_test(count: int) -> None:
    values = [math.sin(7 * x) for x in range(count)]
    averages = sorted((x + y) / 2 for i, x in enumerate(values) for y in values[i:])
    ranks = [k for k in range(1, len(averages) + 1) if brute_confidence(count, k) >= 0.95]
    found = interval(values)
    if not ranks:
        assert found is None
        assert count < 6
        return
    assert found is not None
    assert (found.low, found.high) == (averages[max(ranks) - 1], averages[-max(ranks)])
    middle = len(averages) // 2
    assert found.value == pytest.approx((averages[middle] + averages[-1 - middle]) / 2)


def test_a_long_block_moves_the_interval_little() -> None:
    values = [0.01 * x for x in range(16)]
    usual, spoilt = interval(values), interval([*values[:-1], 5.0])
    assert usual is not None
    assert spoilt is not None
    assert spoilt.high < 2 * usual.high


def states(comparison: Comparison, blocks: int, times: Callable[[Block], pairs.Times]) -> str:
    """Return the order of blocks of steps in which a change is timed, one letter per block.

    A is a block without the change, B one with the change, and c a control block.
    """
    # A control block is treated like B, but the change stays off.
    out = ""
    for _ in range(blocks):
        block = comparison.next
        out += ("c" if block.control else "B") if block.on else "A"
        comparison.add(times(block))
    return out


def steady(ratio: float = 1.0, noise: Callable[[], float] = lambda: 0.0) -> Callable[[Block], pairs.Times]:
    """Return a function that simulates the step times (µs) of a job in one turn with or without a change.

    With the change, a step takes ``ratio`` times as long. ``noise`` returns the logarithm of another factor.
    """
    # noise returns a random number for each step. The step takes exp(noise) times as long.

    def times(block: Block) -> pairs.Times:
        acts = block.on and not block.control
        return {"a": [UNIT_US * math.exp(noise()) * (ratio if acts else 1.0) for _ in range(block.units - 1)]}

    return times


def test_the_order_is_abba_and_baab_with_a_control_every_third() -> None:
    comparison = Comparison(UNIT_US)
    assert comparison.next == Block(True, False, 7), "the first visit, until its times have settled"
    assert states(comparison, 1, steady()) == "B"
    comparison._floor = 0.5  # then nothing is decided
    quads = states(comparison, 24, steady())
    assert [quads[i : i + 4] for i in range(0, 24, 4)] == ["ABBA", "BAAB", "AccA", "BAAB", "ABBA", "cAAc"]
    assert len(comparison.control) == 4


def test_blocks_are_as_long_as_a_job_bears() -> None:
    assert Comparison(40_000.0).next.units == 7
    for unit_us, expected, timed in (
        (40_000.0, 0, 4),
        (1_000.0, 0, 64),
        (1e6, 0, 2),
        (1_000.0, 200, 2),
        (1_000.0, 60, 1),
    ):
        comparison = Comparison(unit_us, expected)
        states(comparison, 1, steady())
        assert comparison.next.units == 1 + timed


def test_a_first_visit_lasts_until_its_times_have_settled() -> None:
    comparison = Comparison(UNIT_US)
    times = iter([9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, *[1.0] * 40])
    while comparison._is_first:
        block = comparison.next
        assert block.on
        comparison.add({"a": [next(times) for _ in range(block.units - 1)]})
    assert 15 <= 47 - len([*times]) <= 30


def test_drift_cancels_in_a_quad() -> None:
    comparison, now = Comparison(UNIT_US), itertools.count()
    states(comparison, 13, lambda block: {"a": [1e4 * math.exp(0.001 * next(now))] * (block.units - 1)})
    assert sum(x.log for x in comparison.pairs) == pytest.approx(0.0, abs=1e-9)
    assert len(comparison.pairs) == 4


def test_pairs_hold_units_of_one_kind() -> None:
    found = pair_of({"a": [10.0, 10.0], "b": [40.0], "c": [7.0]}, {"a": [5.0], "b": [20.0, 20.0], "d": [1.0]})
    assert found is not None
    assert math.exp(found.log) == pytest.approx(0.5)
    assert found[1:] == (25.0, 12.5)
    assert pair_of({"a": [1.0]}, {"b": [1.0]}) is None
    assert pair_of({"other": [1.0]}, {"other": [2.0]}) is None, "these are not alike"
    assert pair_of({"a": [0.0]}, {"a": [0.0]}) is None


def test_blocks_grow_while_they_share_no_kind() -> None:
    comparison, kinds = Comparison(UNIT_US), itertools.cycle("abcdefg")
    states(comparison, 100, lambda block: {next(kinds): [1.0] for _ in range(block.units - 1)})
    assert comparison.unlike
    assert comparison.pairs, "the kinds come again in longer blocks"


def test_units_that_are_never_alike_end_it() -> None:
    comparison, kinds = Comparison(UNIT_US), itertools.count()
    states(comparison, 200, lambda block: {f"{next(kinds)}": [1.0]})
    assert comparison.done
    assert not comparison.pairs


def run(ratio: float, noise: float, seed: int) -> tuple[Comparison, Interval]:
    """Simulate timing a job with and without a change in turns, until it is clear how much the change gains.

    Returns the measurements, and the interval of the ratio of both times.
    """
    # There are two random errors of equal size: one differs from step to step, the other is the same for all steps of a
    # turn.
    draw = random.Random(seed)
    comparison = Comparison(UNIT_US)
    while not comparison.done:
        block, whole = comparison.next, draw.gauss(0.0, noise)
        comparison.add(steady(ratio, lambda: whole + draw.gauss(0.0, noise))(block))  # noqa: B023
    found = interval([x.log for x in comparison.pairs], pairs.CONFIDENCE)
    assert found is not None
    return comparison, widen_interval(found, [x.log for x in comparison.control])


@pytest.mark.parametrize(
    ("ratio", "noise", "most_pairs"), [(0.75, 0.02, 16), (0.75, 0.1, 64), (0.97, 0.005, 16), (1.1, 0.01, 16)]
)
def test_what_is_clear_is_decided_soon_and_rightly(ratio: float, noise: float, most_pairs: int) -> None:
    runs = [run(ratio, noise, seed) for seed in range(sized(20, 200))]
    assert all(is_faster(found) == (ratio < 1) for _, found in runs)
    assert sorted(len(x.pairs) for x, _ in runs)[len(runs) // 2] <= most_pairs


def test_a_change_without_effect_is_rarely_a_gain() -> None:
    """A change without any effect is reported as a gain in at most 5 % of simulated trials.

    During a trial, logparse checks several times whether the gain is certain. The limit of 5 % is for all these checks
    together.
    """
    wrong, count = 0, sized(100, 1000)
    for seed in range(count):
        comparison, found = run(1.0, 0.03, seed + 1000)
        wrong += is_faster(found, 0.0) or found.low > 0
        assert len(comparison.pairs) <= pairs.LOOKS[-1]
    assert wrong <= 0.05 * count


def test_controls_widen_the_interval() -> None:
    found = Interval(-0.1, -0.13, -0.07)
    assert widen_interval(found, []) == found
    wider = widen_interval(found, [0.04, 0.04, 0.04])
    assert (wider.value, wider.low, wider.high) == pytest.approx((-0.1, -0.15, -0.05))


@pytest.mark.parametrize(
    ("found", "decided"),
    [
        (Interval(-0.3, -0.33, -0.27), True),
        (Interval(-0.3, -0.4, -0.2), False),  # faster, but not known well enough
        (Interval(0.1, 0.0, 0.2), True),
        (Interval(-0.01, -0.1, 0.08), False),
        (Interval(-0.012, -0.03, 0.005), True),  # at the floor, but narrow
    ],
)
def test_when_it_is_decided(found: Interval, decided: bool) -> None:
    assert is_decided(found) == decided
