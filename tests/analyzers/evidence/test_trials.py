"""Tests of combining measurements: several processes of a job try the same change, and logparse states one result."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from analyzers.evidence.trials import Tried, combine_starts
from logparse.libraries.own.job_trials import Record, Seen


def seen(ratio: float, pairs: int = 16, noise: float = 0.01, control: float = 0.0, seed: int = 0, **more: Any) -> Seen:
    """Make the record of a process that tried a change in the running job, with made-up times.

    * ``ratio`` is (time with the change) / (time without it).
    * ``control`` is the logarithm of this ratio for two equal versions.
    """
    # Ideally control is 0.
    draw = random.Random(seed)
    logs = [math.log(ratio) + draw.gauss(0.0, noise) for _ in range(pairs)]
    made = {"name": "channels_last", "ended": "decided", "seconds": 5.0, "same": (1e-7, 1e-6, "output"), **more}
    return Seen(pairs=tuple((x, 1e5, 1e5 * math.exp(x)) for x in logs), control=(control,) * 4, **made)


@pytest.mark.parametrize(
    ("processes", "outcome"),
    [
        ([seen(0.75), seen(0.75, seed=1)], "measured"),
        ([seen(0.75)], "faster once"),
        ([seen(0.75), seen(1.0, seed=1)], "not faster"),
        ([seen(1.0)], "not faster"),
        ([seen(1.2)], "not faster"),
        ([seen(0.9, noise=0.5)], "undecided"),
        ([seen(0.75, pairs=5, ended="units")], "undecided"),
        ([seen(0.75, pairs=5), seen(0.75, pairs=5, seed=1)], "measured"),
        ([seen(1.0, pairs=64, noise=0.3)], "within noise"),
        ([Seen("channels_last", "refused", "why not")], "refused"),
        ([seen(0.75), Seen("channels_last", "broken", "OutOfMemoryError")], "broken"),
        ([], "not tried"),
    ],
)
def test_the_outcome(processes: list[Seen], outcome: str) -> None:
    found = Tried("channels_last", tuple(processes))
    if outcome == "not faster" and len(processes) == 2:
        assert found.outcome != "measured", "two processes that differ measure nothing"
    else:
        assert found.outcome == outcome


@pytest.mark.parametrize(
    ("process", "outcome", "shows_no_gain"),
    [
        (seen(1.2), "not faster", True),
        (seen(1.0, pairs=64, noise=0.3), "within noise", True),
        (seen(1.05, pairs=8, noise=0.1, ended="units"), "undecided", True),
        (seen(0.9, noise=0.5, ended="units", seed=3), "undecided", False),
        (seen(0.75, pairs=4, ended="units"), "undecided", False),
        (seen(0.75), "faster once", False),
    ],
)
def test_only_a_trial_without_a_gain_excludes_a_change(process: Seen, outcome: str, shows_no_gain: bool) -> None:
    """A change is given up only if trying it in the running job showed that it gains nothing."""
    # If it looks faster but is not proven yet, or was measured too rarely, it may still be tested by starting the job
    # with and without it.
    found = Tried("channels_last", (process,))
    assert (found.outcome, found.shows_no_gain) == (outcome, shows_no_gain)


def test_times_are_of_the_ratio_and_the_unit_as_it_is() -> None:
    found = Tried("channels_last", (seen(0.75, noise=0.001), seen(0.75, noise=0.001, seed=1)))
    assert found.now_us == 1e5
    assert found.gain is not None
    assert found.gain.now_us == 1e5
    assert found.gain.then_us == pytest.approx(75_000, rel=0.002)
    low, high = found.gain.ends_us
    assert low < found.gain.then_us < high
    assert (len(found.pairs), len(found.timed), found.seconds) == (32, 2, 10.0)


def test_processes_that_disagree_widen_the_interval() -> None:
    """If two processes measure different ratios, the interval of the result contains both ratios.

    Here the ratios differ by 6 %.
    """
    alike = Tried("x", (seen(0.75, noise=0.001), seen(0.75, noise=0.001, seed=1))).ratio
    apart = Tried("x", (seen(0.73, noise=0.001), seen(0.775, noise=0.001, seed=1))).ratio
    biased = Tried("x", (seen(0.75, noise=0.001, control=0.03), seen(0.75, noise=0.001, seed=1, control=0.03))).ratio
    assert alike is not None
    assert apart is not None
    assert biased is not None
    assert alike.high / alike.low < 1.005
    assert apart.low < 0.735
    assert apart.high > 0.77
    assert biased.high / biased.low == pytest.approx(math.exp(0.06), rel=0.01)


@pytest.mark.parametrize(
    ("process", "why"),
    [
        (seen(0.75, pairs=5, ended="units"), "the job did too few steps: 5 pairs of blocks"),
        (seen(0.75, pairs=5, unlike=40), "the job's steps are of many kinds: 40 pairs of blocks"),
        (seen(0.9, noise=0.5), "the interval of the action's effect is still wider than ±2%"),
        (Seen("x", "refused", "it computes something else"), "it computes something else"),
    ],
)
def test_why_nothing_is_known(process: Seen, why: str) -> None:
    assert Tried("x", (process,)).why.startswith(why)


def test_the_best_come_first() -> None:
    def record(name: str, ratio: float, processes: int = 2) -> list[Record]:
        return [Record("optimizer", 99, True, "", "", 0, (seen(ratio, seed=i, name=name),)) for i in range(processes)]

    records = [*record("a", 0.9), *record("b", 0.7), *record("c", 0.5, 1), *record("d", 1.3)]
    found = combine_starts(["a", "b", "c", "d", "e"], records)
    assert [x.name for x in found] == ["b", "a", "c", "d", "e"]
    assert [x.outcome for x in found] == ["measured", "measured", "faster once", "not faster", "not tried"]


def test_an_action_that_the_end_of_the_job_left_out_says_so() -> None:
    why = "the job ended with KeyboardInterrupt"
    [interrupted] = combine_starts(["a"], [Record("", 0, True, why, "", 0, ())])
    assert (interrupted.outcome, interrupted.why) == ("not tried", why)
    [short] = combine_starts(["a"], [Record("", 0, True, "", "", 0, ())])
    assert short.why.startswith("the job did too few steps")
