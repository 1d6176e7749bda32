"""Tests of "racing": measuring many kernels briefly and dropping the slow ones early, here with simulated times.

The tests check that the right kernel wins, how long it takes, and that no false winner is reported.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from analyzers.evidence.confirmations import Pairs, judge
from analyzers.evidence.statistics.intervals import median
from analyzers.replay.confirm import interleave
from analyzers.replay.racing import Race, Rules, WithdrawnError, race
from analyzers.replay.results import Method

BLOCKS = Method().blocks


def sampler(times: list[float], noise: float, seed: int) -> Callable[[int], float]:
    draws = random.Random(seed)
    return lambda index: times[index] * draws.lognormvariate(0, noise)


def run(times: list[float], noise: float = 0.01, seed: int = 0) -> Race[int]:
    return race(range(len(times)), sampler(times, noise, seed))


def plans(seed: int, count: int = 80) -> list[float]:
    """Return times with the spread of cuDNN's kernels: a few are close together, others are up to 300 times slower."""
    draws = random.Random(seed)
    return [100 * 300 ** (draws.random() ** 2) for _ in range(count)]


def test_racing_finds_nearly_the_best_of_plans_at_a_fraction_of_the_time() -> None:
    raced_us = exhaustive_us = chosen_us = best_us = 0.0
    for seed in range(60):
        times = plans(seed)
        result = run(times, seed=seed)
        raced_us += sum(sum(samples) for samples in result.samples_us.values())
        exhaustive_us += 16 * sum(times)
        chosen_us += times[result.best]
        best_us += min(times)
    assert chosen_us <= 1.01 * best_us
    assert raced_us <= exhaustive_us / 8


def test_a_clear_winner_wins_and_the_hopeless_get_one_sample() -> None:
    result = run([100, 101, 50, 400, 3000])
    assert result.best == 2
    assert [len(result.samples_us[i]) for i in (3, 4)] == [1, 1]
    assert result.dropped[3] == result.dropped[4] == "hopeless"


def test_pick_stays_where_nothing_is_worth_a_change() -> None:
    result = run([100, 99.8, 100.1, 130])
    assert result.best == 0


def test_a_lone_pick_is_measured_twice() -> None:
    assert len(run([100]).samples_us[0]) == 2


def test_withdrawn_solutions_neither_win_nor_stop_the_others() -> None:
    def sample(index: int) -> float:
        if index in (0, 2):
            raise WithdrawnError("wrong")
        return float(100 - index)

    result = race(range(4), sample)
    assert result.best == 3
    assert result.dropped[0] == result.dropped[2] == "wrong"
    assert set(result.samples_us) == {1, 3}


def test_a_solution_that_withdraws_at_its_second_sample_cannot_win() -> None:
    seen: dict[int, int] = {}

    def sample(index: int) -> float:
        seen[index] = seen.get(index, 0) + 1
        if index == 1 and seen[index] == 2:
            raise WithdrawnError("wrong")
        return [100.0, 10.0, 60.0][index]

    result = race(range(3), sample)
    assert result.best == 2


def test_all_withdrawn_is_reported() -> None:
    def sample(_: int) -> float:
        raise WithdrawnError("failed")

    with pytest.raises(WithdrawnError, match="every solution"):
        race(range(3), sample)


def test_equal_solutions_are_never_confirmed_as_faster() -> None:
    """If all kernels are equally fast, none is reported as faster than the default.

    Often one kernel seems fastest by luck. The second measurement, which must confirm it, has to reject it.
    """
    flagged = confirmed = 0
    for seed in range(300):
        sample = sampler([100.0] * 20, 0.02, seed)
        result = race(range(20), sample, rules=Rules(threshold=0.0))
        flagged += result.best != 0
        pairs = interleave(0, result.best or 1, lambda index, _, s=sample: s(index), blocks=BLOCKS)  # type: ignore[misc]
        confirmed += judge(pairs).confirmed
    assert flagged > 30  # without confirmation there would be false findings
    assert confirmed <= 3


def test_a_true_saving_is_confirmed_and_confirmed_again() -> None:
    verdicts = []
    for seed in range(60):
        sample, pairs = sampler([100.0, 90.0], 0.02, seed), Pairs((), ())
        for _ in range(Method().processes):
            pairs = pairs.joined(interleave(0, 1, lambda index, _, s=sample: s(index), blocks=BLOCKS))  # type: ignore[misc]
        verdicts.append(judge(pairs).confirmed)
    assert sum(verdicts) >= 57


def test_interleaving_cancels_a_drift_of_the_clock() -> None:
    clock = [1.0]

    def sample(index: int, block: int) -> float:
        clock[0] *= 1.01
        return 100 * clock[0]

    pairs = interleave(0, 1, sample, blocks=BLOCKS)
    assert judge(pairs).speedup.value == pytest.approx(1.0, abs=1e-3)
    assert median(pairs.pick_us) > 100


def test_a_doubtful_winner_ends_early() -> None:
    pairs = interleave(0, 1, lambda index, block: [100.0, 101.0][index], blocks=BLOCKS)
    assert len(pairs.pick_us) == 4
