"""Simulations of measurements that compare two kernels in several new processes, to confirm that one is faster.

They check the error rates that ``docs/measurement.md`` claims, with the noise of an H200. Between processes the log
ratio of two times has a standard deviation of 0.32 %. A single process measures its own log ratio with a standard error
of 0.11 %, from 12 blocks with a deviation of 0.3 % each.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from analyzers.evidence.confirmations import BETWEEN_PROCESSES, Confirmation, Pairs, judge, judge_all
from analyzers.replay.results import Method
from tests.conftest import sized

BETWEEN, BLOCK = 0.0032, 0.0030
BLOCKS, PROCESSES = Method().blocks, Method().processes
GENERATOR = np.random.default_rng


def measured(
    generator: np.random.Generator, speedup: float, processes: int = PROCESSES, between: float = BETWEEN
) -> Pairs:
    """Simulate how several processes measure two kernels, whose times have the true ratio ``speedup``.

    Each process has a random error of its own, with the standard deviation ``between``.
    """
    ratios = (
        math.log(speedup)
        + generator.normal(0, between, (processes, 1))
        + generator.normal(0, BLOCK, (processes, BLOCKS))
    )
    winner = np.exp(generator.normal(0, 0.02, ratios.shape))
    return Pairs(tuple((winner * np.exp(ratios)).ravel()), tuple(winner.ravel()), (BLOCKS,) * processes)


def run(generator: np.random.Generator, speedups: list[float], **more: float) -> list[Confirmation]:
    """Simulate how several pairs of kernels are measured, and judge all pairs together, as ``replay`` does.

    ``speedups`` has the true ratio of the two times of each pair.
    """
    pairs = {i: measured(generator, x, **more) for i, x in enumerate(speedups)}  # type: ignore[arg-type]
    return list(judge_all(pairs)[0].values())


def outside(judged: Confirmation, value: float = 1.0) -> bool:
    return not judged.speedup.low <= value <= judged.speedup.high


@pytest.mark.parametrize("pairs_of_a_run", [1, 2, 5, 25])
def test_intervals_of_copies_exclude_one_in_at_most_6_percent(pairs_of_a_run: int) -> None:
    generator, trials = GENERATOR(pairs_of_a_run), 1500 // pairs_of_a_run
    wrong = sum(outside(x) for _ in range(trials) for x in run(generator, [1.0] * pairs_of_a_run))
    assert wrong / (trials * pairs_of_a_run) <= 0.06


@pytest.mark.parametrize("pairs_of_a_run", [1, 25])
def test_a_fresh_process_lies_inside_the_prediction_in_at_least_90_percent(pairs_of_a_run: int) -> None:
    generator, trials, inside = GENERATOR(3), 1000 // pairs_of_a_run, 0
    for _ in range(trials):
        speedups = list(generator.uniform(0.98, 1.5, pairs_of_a_run))
        for judged, speedup in zip(run(generator, speedups), speedups, strict=True):
            fresh = judge(measured(generator, speedup, processes=1)).speedup.value
            half = math.log(judged.speedup.high / judged.speedup.value) * math.sqrt(judged.processes + 1)
            inside += abs(math.log(fresh / judged.speedup.value)) <= half
    assert inside / (trials * pairs_of_a_run) >= 0.90


def test_findings_between_3_and_5_percent_come_again_in_at_least_90_percent() -> None:
    generator, found, again = GENERATOR(4), 0, 0
    for _ in range(40):
        speedups = list(generator.uniform(1.0, 1.06, 60))
        first, second = (run(generator, speedups) for _ in range(2))
        for one, other in zip(first, second, strict=True):
            if one.confirmed and one.speedup.value < 1.05:
                found, again = found + 1, again + other.confirmed
    assert found >= 300
    assert again / found >= 0.90


@pytest.mark.parametrize("real", [1, 5])
def test_a_few_true_gains_are_found_among_a_thousand_pairs(real: int) -> None:
    """Among a thousand kernels, the few that are really faster are reported, and hardly any others.

    * A kernel is reported if it gains more than 3 %.
    * One or five kernels gain 5 % and should be reported.
    * All others gain exactly 3 %, which is the hardest case.
    * Measurements are drawn at random. To save time, each drawn value stands for the mean of 12 measurements.
    """
    generator, found, shares, tail, runs = GENERATOR(real), 0, [], 0, sized(8, 60)
    truth = np.where(np.arange(1000) < real, math.log(1.05), math.log(1.03))
    for _ in range(runs):
        noise = generator.normal(0, math.hypot(BETWEEN, 0.0011), (1000, PROCESSES))
        ratios = np.exp(truth[:, None] + noise)
        pairs = {i: Pairs(tuple(x), (1.0,) * PROCESSES, (1,) * PROCESSES) for i, x in enumerate(ratios)}
        judged, kept = judge_all(pairs)
        false = sum(key >= real for key in kept)
        found += len(kept) - false
        shares.append(false / max(1, len(kept)))
        tail += sum(x.p <= 1e-3 for key, x in judged.items() if key >= real)
    assert found / (runs * real) >= 0.90, "power"
    assert float(np.mean(shares)) <= 0.05, "false-discovery rate"
    assert tail <= runs + 3 * math.sqrt(runs), "of a thousand true hypotheses one has p ≤ 0.001"


def test_intervals_are_right_if_kernels_vary_differently() -> None:
    """The 95 % intervals stay right even if some kernels vary more from process to process than others.

    logparse estimates one deviation for all kernels together, although in fact large and small kernels differ in it.
    """
    generator, wrong, total = GENERATOR(6), 0, 0
    for _ in range(100):
        deviations = BETWEEN * np.exp(generator.normal(0, 0.4, 20))
        pairs = {i: measured(generator, 1.0, between=float(x)) for i, x in enumerate(deviations)}
        judged = judge_all(pairs)[0]
        wrong, total = wrong + sum(map(outside, judged.values())), total + len(judged)
    assert wrong / total <= 0.06


@pytest.mark.parametrize("shape", ["two points", "exponential", "one process in twenty is ten times as far off"])
@pytest.mark.parametrize("pairs_of_a_run", [1, 10])
def test_unusual_noise_makes_at_most_15_percent_of_intervals_wrong(shape: str, pairs_of_a_run: int) -> None:
    """Even with unusual noise, at most 15 % of the 95 % intervals miss the true ratio of two times."""
    # With only four processes no interval can be exact for every kind of noise. For example, if the noise is either +1
    # or -1, all four values are equal in one case of eight. The interval then has no width.
    generator, wrong, trials = GENERATOR(8), 0, 600 // pairs_of_a_run
    size = (pairs_of_a_run, PROCESSES)
    for _ in range(trials):
        between = {
            "two points": lambda: generator.choice((-1.0, 1.0), size),
            "exponential": lambda: generator.exponential(1.0, size) - 1.0,
        }.get(shape, lambda: generator.normal(0, 1, size) * np.where(generator.random(size) < 0.05, 10.0, 1.0))()
        ratios = np.exp(BETWEEN * between + generator.normal(0, 0.0011, size))
        pairs = {i: Pairs(tuple(x), (1.0,) * PROCESSES, (1,) * PROCESSES) for i, x in enumerate(ratios)}
        wrong += sum(map(outside, judge_all(pairs)[0].values()))
    assert wrong / (trials * pairs_of_a_run) <= 0.15


def test_devices_do_not_lend_each_other_their_deviation() -> None:
    generator = GENERATOR(7)
    quiet = {f"q{i}": measured(generator, 1.0, between=0.0005) for i in range(10)}
    rough = {f"r{i}": measured(generator, 1.0, between=0.02) for i in range(10)}
    apart = judge_all(quiet | rough, device={x: x[0] for x in quiet | rough})[0]
    assert apart["q0"] == judge_all(quiet)[0]["q0"]
    assert apart["r0"] == judge_all(rough)[0]["r0"]


def test_the_interval_of_a_single_process_is_wider() -> None:
    """If only one process measured two kernels, the interval of their ratio is made wider."""
    # The ratio differs by 0.3 % from process to process. So the interval must be at least that wide, even if the 12
    # blocks of measurements in the single process agree to 0.01 %.
    old = Pairs(tuple(100.0 + 0.01 * (i % 3) for i in range(12)), (100.0,) * 12)
    judged = judge(old)
    assert judged.processes == 1
    assert judged.speedup.high / judged.speedup.low > 1 + 3 * BETWEEN_PROCESSES
    assert judge(Pairs((), ())).p == 1.0


def test_pairs_are_cut_and_joined_by_process() -> None:
    one, other = Pairs((1.0, 2.0), (3.0, 4.0)), Pairs((5.0,), (6.0,))
    both = Pairs((), ()).joined(one).joined(other)
    assert both == Pairs((1.0, 2.0, 5.0), (3.0, 4.0, 6.0), (2, 1))
    assert both.by_process == (one, other)


def test_one_process_that_is_off_widens_the_interval() -> None:
    steady = Pairs((105.0,) * 12 + (105.1,) * 12 + (104.9,) * 12, (100.0,) * 36, (12, 12, 12))
    off = Pairs((105.0,) * 12 + (105.1,) * 12 + (99.0,) * 12, (100.0,) * 36, (12, 12, 12))
    assert judge(steady).confirmed
    assert not judge(off).confirmed
