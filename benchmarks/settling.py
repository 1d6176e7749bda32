"""Compare rules that decide when the times of a job's steps have become steady, on simulated times.

    python benchmarks/settling.py                    # one core, below 3 minutes; the tables of docs/measurement.md
    python benchmarks/settling.py --series 200       # a first look

Each cell is a percentage of series. *At n*: the rule decides that the first n times are settled. *By n*: the rule is
asked after every step from the sixth (``--first``) to the n-th, and has decided so at least once. Some cases are
defined by the whole series (a warm-up of its first half, a drift over it). They are drawn anew for each n.

The rules are computed for many series at once. The chosen rule is also compared with ``settling.is_settled``, on some
series of every cell. The exit status is 1 if the two differ.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from logparse.capture.in_job.logparse_in_job.settling import is_settled

Times: TypeAlias = NDArray[np.float64]
"""Simulated times of steps, as an array with a row for each series and a column for each step."""
Shares: TypeAlias = Mapping[int, tuple[float, float]]
"""Two fractions (0 to 1) of simulated series of step times, for each number of steps n.

The first is the fraction that a rule calls settled at n steps. The second is the fraction that it has called settled at
least once by then.
"""
Draw: TypeAlias = Callable[[np.random.Generator, int, int], Times]
Rule: TypeAlias = Callable[[Times], NDArray[np.bool_]]

COUNTS = (6, 10, 20, 50, 100, 199)
BRIEF = (20, 199)
HELD = 20
"""How many series of each kind are used to check that the fast rule of this benchmark agrees with the real function."""
NOISE = 0.02
"""Standard deviation of the noise in simulated warm-ups, drifts and jumps, relative to the time."""


@dataclass(frozen=True)
class Case:
    """A kind of simulated step times, for example with a warm-up. A rule is tested on such times.

    * ``wanted`` is the right answer.
    * ``whole`` is True if the times depend on the total number of steps.
    """

    name: str
    wanted: str
    draw: Draw
    whole: bool = False


def percent(share: float) -> str:
    return f"{100 * share:.0f}"


# ---------------------------------------------------------------------------------------------------------------- cases


def white(deviation: float) -> Draw:
    return lambda random, series, count: np.exp(deviation * random.standard_normal((series, count)))


def spikes(share: float, factor: float) -> Draw:
    """Make a function that draws times with noise of 1 % and some spikes.

    A fraction (``share``) of the steps takes ``factor`` times as long.
    """

    def draw(random: np.random.Generator, series: int, count: int) -> Times:
        return white(0.01)(random, series, count) * np.where(random.random((series, count)) < share, factor, 1.0)

    return draw


def autoregressive(correlation: float, deviation: float = 0.05) -> Draw:
    def draw(random: np.random.Generator, series: int, count: int) -> Times:
        values = random.standard_normal((series, count))
        for unit in range(1, count):
            fresh = (1 - correlation**2) ** 0.5 * values[:, unit]
            values[:, unit] = correlation * values[:, unit - 1] + fresh
        return np.exp(deviation * values)

    return draw


def shaped(shape: Callable[[int], Times]) -> Draw:
    """Make a function that draws step times along a curve (``shape``), with random noise of ``NOISE``."""
    return lambda random, series, count: white(NOISE)(random, series, count) * shape(count)


def warm_up(units: int | None, factor: float) -> Draw:
    """Make a function that draws step times with a warm-up: the first steps take ``factor`` times as long.

    ``units`` is the number of slow steps. Without ``units``, the first half of the steps (rounded up) is slow.
    """
    return shaped(lambda count: np.where(np.arange(count) < (units or (count + 1) // 2), factor, 1.0))


def decay(share: float) -> Draw:
    """Make a function that draws step times that fall from 3 to 1, as in a slow warm-up.

    The time constant is ``share`` × the length of the series.
    """
    return shaped(lambda count: 1 + 2 * np.exp(-np.arange(count) / (share * count)))


def drift(change: float) -> Draw:
    return shaped(lambda count: np.linspace(1.0, 1.0 - change, count))


def step(count: int) -> Times:
    return np.where(np.arange(count) >= count - count // 3, 1.1, 1.0)


CASES = (
    *(Case(f"noise of {percent(share)} %", "yes", white(share)) for share in (0.01, 0.05, 0.2)),
    Case("5 % of units 1.5×", "yes", spikes(0.05, 1.5)),
    Case("1 % of units 10×", "yes", spikes(0.01, 10.0)),
    *(Case(f"noise of 5 %, AR(1) {x}", "yes", autoregressive(x)) for x in (0.5, 0.9)),
    *(
        Case(f"first {units} units {factor:g}×", f"yes above {2 * units}", warm_up(units, factor))
        for units in (3, 10)
        for factor in (1.3, 3.0, 30.0)
    ),
    *(Case(f"first half {factor:g}×", "no", warm_up(None, factor), True) for factor in (1.3, 3.0, 30.0)),
    *(Case(f"decay, constant n/{part}", "no", decay(1 / part), True) for part in (4, 2)),
    *(Case(f"drift of {percent(change)} %", "no", drift(change), True) for change in (0.01, 0.05, 0.2)),
    Case("last third +10 %", "no", shaped(step), True),
)

# ---------------------------------------------------------------------------------------------------------------- rules


def kept(values: Times, least: int, unbiased: bool = False) -> NDArray[np.int_]:
    """Cut the warm-up off each series of step times by MSER. Returns how many values of each series remain.

    At least ``least`` values remain. ``unbiased`` uses the unbiased variance (White's rule).
    """
    # Of all possible cuts, the one with the smallest error of the mean is chosen. With m remaining values x, the error
    # is sum((x - mean)^2) / m^2 (the rule MSER), or s^2 / m (White's rule), where s^2 is the unbiased variance.
    count = values.shape[1]
    held = np.arange(1, count + 1)
    last_first = (values - np.median(values, axis=1, keepdims=True))[:, ::-1]
    total, squares = np.cumsum(last_first, axis=1), np.cumsum(last_first**2, axis=1)
    error = np.maximum(held * squares - total**2, 0.0) / (held**2 * np.maximum(held - unbiased, 1))
    error[:, : least - 1] = np.inf
    from_largest = np.argmin(error[:, ::-1], axis=1)  # if several rests have the least error, the largest rest counts
    return np.asarray(count - from_largest)


def quarter(count: int) -> int:
    return max(3, -(-count // 4))


def less_than_half(values: Times, least: int, unbiased: bool = False) -> NDArray[np.bool_]:
    count = values.shape[1]
    return np.asarray(count - kept(values, least, unbiased) < count // 2)


def rank_times(times: Times) -> Times:
    return np.argsort(np.argsort(times, axis=1), axis=1).astype(float)  # Drawn times are never equal.


def batched(values: Times, size: int) -> Times:
    """Divide each series into batches of ``size`` consecutive values, and return the sum of each batch.

    Batches are counted from the end of the series, so values at the beginning may be left over. Sums give the same
    answers as means.
    """
    series, count = values.shape
    return np.asarray(values[:, count % size :].reshape(series, count // size, size).sum(axis=2))


def batches_of_ranks(times: Times) -> NDArray[np.bool_]:
    batches = batched(2 * rank_times(times), max(1, times.shape[1] // 40))
    return less_than_half(batches, quarter(batches.shape[1]), unbiased=True)


def before(times: Times) -> NDArray[np.bool_]:
    """Tell for each series of step times whether it is steady, by the rule MSER of earlier versions of logparse.

    A series is not steady if more than half of it is cut off as warm-up.
    """
    # MSER finds the end of the warm-up and cuts the warm-up off. At least three times remain.
    count = times.shape[1]
    return np.asarray(count - kept(times, 3) <= count // 2)


def rest_of_a_quarter(times: Times) -> NDArray[np.bool_]:
    """Tell for each series of step times whether the warm-up is over: if MSER cuts off less than half of the times.

    At least a quarter of the times remain.
    """
    return less_than_half(times, quarter(times.shape[1]))


def winsorised(times: Times) -> NDArray[np.bool_]:
    """Tell for each series of step times whether it is steady, by MSER after outliers were clipped.

    MSER is a rule that cuts the warm-up off. Times are clipped at three median absolute deviations from the median.
    """
    middle = np.median(times, axis=1, keepdims=True)
    width = 3 * np.median(np.abs(times - middle), axis=1, keepdims=True)
    return less_than_half(np.clip(times, middle - width, middle + width), quarter(times.shape[1]))


def ranks_alone(times: Times) -> NDArray[np.bool_]:
    """Tell for each simulated series of step times whether the job's warm-up is over, by a simplified rule."""
    # The rule replaces each time by its position in the sorted series (1st, 2nd, …). It then cuts the warm-up off. The
    # warm-up is over if less than half of the series was cut. The rule that logparse uses adds up several consecutive
    # positions first.
    return less_than_half(rank_times(times), quarter(times.shape[1]), unbiased=True)


def mser_5(times: Times) -> NDArray[np.bool_]:
    """Tell for each series whether its times are settled, by MSER-5 (Hoad, Robinson and Davies, 2010).

    Fewer than 30 times are never settled.
    """
    # MSER-5 finds the end of the warm-up. It works on means of five times and may not cut within the last five means.
    if times.shape[1] < 30:
        return np.zeros(len(times), dtype=bool)
    return less_than_half(batched(times, 5), 6)


def mann_whitney(times: Times) -> NDArray[np.bool_]:
    """Tell for each series whether its times are settled, by the Mann-Whitney test at 5 %.

    They are settled if the third quarter of the times does not differ from the last quarter.
    """
    count = times.shape[1]
    last = count // 4
    ranks = rank_times(times[:, count - 2 * last :]) + 1
    above = ranks[:, :last].sum(axis=1) - last * (last + 1) / 2 - last**2 / 2
    return np.asarray(np.abs(above) <= 1.96 * (last**2 * (2 * last + 1) / 12) ** 0.5)


FULL: Mapping[str, Rule] = {
    "batches of ranks": batches_of_ranks,
    "before": before,
    "ranks alone": ranks_alone,
    "winsorised": winsorised,
}
MORE: Mapping[str, Rule] = {
    "rest of a quarter": rest_of_a_quarter,
    "MSER-5": mser_5,
    "Mann-Whitney": mann_whitney,
}

# ------------------------------------------------------------------------------------------------------------ measuring


def shares(rule: Rule, drawn: Mapping[int, Times], whole: bool, first: int | None) -> Shares:
    """Measure how often a rule says that simulated step times have become steady ("settled").

    ``drawn`` has many series of step times for each number of steps n. For each n, two fractions of the series are
    returned:

    * the fraction that the rule calls settled after n steps,
    * the fraction that the rule has called settled at least once until then. For this the rule is asked after every
      step from ``first`` on. Without ``first`` this fraction is NaN.
    """
    found = {}
    ever, asked = np.zeros(len(drawn[COUNTS[0]]), dtype=bool), first
    for count in COUNTS:
        times = drawn[count]
        at = rule(times)
        if asked is None or first is None:
            found[count] = float(at.mean()), float("nan")
            continue
        if whole:
            ever, asked = np.zeros(len(times), dtype=bool), first
        for units in range(asked, count):
            unsettled = np.flatnonzero(~ever)
            if unsettled.size:
                ever[unsettled] = rule(times[unsettled, :units])
        if count >= first:
            ever, asked = ever | at, count
        found[count] = float(at.mean()), float(ever.mean())
    return found


def draw(case: Case, series: int, seed: Sequence[int]) -> Mapping[int, Times]:
    random = np.random.default_rng(seed)
    if case.whole:
        return {count: case.draw(random, series, count) for count in COUNTS}
    longest = case.draw(random, series, COUNTS[-1])
    return {count: longest[:, :count] for count in COUNTS}


def differences(drawn: Mapping[int, Times]) -> int:
    """Count how often two implementations of the same rule about steady step times disagree. The result should be 0."""
    # The rule decides when step times have become steady. One implementation judges many series of times at once. The
    # other one is the function settled of logparse. Both judge the same simulated series.
    return sum(
        int(at) != is_settled(times.tolist())
        for count in COUNTS
        for times, at in zip(drawn[count][:HELD], batches_of_ranks(drawn[count][:HELD]), strict=True)
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, *rows)]
    return "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:]])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--series", type=int, default=5000, help="series of each cell")
    parser.add_argument("--first", type=int, default=6, help="units before the rule is asked first")
    parser.add_argument("--seed", type=int, default=48)
    options = parser.parse_args()
    started = time.monotonic()
    found: dict[str, dict[str, Shares]] = {name: {} for name in (*FULL, *MORE)}
    different = 0
    for number, case in enumerate(CASES):
        drawn = draw(case, options.series, (options.seed, number))
        different += differences(drawn)
        for name, rule in (*FULL.items(), *MORE.items()):
            found[name][case.name] = shares(rule, drawn, case.whole, options.first if name in FULL else None)
    for name in FULL:
        print(f"{name}: % of series settled at n / by n\n")
        rows = [
            [case.name, case.wanted, *(" / ".join(map(percent, found[name][case.name][count])) for count in COUNTS)]
            for case in CASES
        ]
        print(table(["times", "wanted", *(f"n = {count}" for count in COUNTS)], rows) + "\n")
    print("% of series settled at n = " + " / ".join(map(str, BRIEF)) + "\n")
    rows = [
        [case.name, *(" / ".join(percent(found[name][case.name][count][0]) for count in BRIEF) for name in found)]
        for case in CASES
    ]
    print(table(["times", *found], rows) + "\n")
    print(f"{options.series:,} series a cell, seed {options.seed}, {time.monotonic() - started:.0f} s")
    if different:
        print(f"the chosen rule and settling.settled differ on {different} series", file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
