"""Tests of the rule that decides whether a job's step times have settled, so that the warm-up is over.

The rule is compared with a simple computation of its formula, and tried on simulated times with fixed seeds.
"""

from __future__ import annotations

import ast
import math
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logparse.capture.in_job.logparse_in_job import settling
from logparse.capture.in_job.logparse_in_job.settling import is_settled
from tests.conftest import sized

LEAST = 6
LONG = 199
SERIES = 300

Course = Callable[[random.Random, int, int], float]
"""A function that gives the time of a step without noise, from the number of the step and the number of all steps."""

times = st.lists(st.floats(1e-3, 1e9), max_size=120)
repeating = st.lists(st.integers(1, 6), min_size=LEAST, max_size=250)
"""Random lists of step times, many of them equal.

For a list of 80 times or more, the rule takes neighbouring times together in batches of at least two.
"""


def by_the_formula(values: Sequence[float]) -> bool:
    """Decide whether step times have become steady, by the formula in the docstring of ``is_settled``.

    The formula is computed literally and with fractions, so that there is no rounding.
    """
    ranks = [
        Fraction(sum(other < value for other in values)) + Fraction(values.count(value) - 1, 2) for value in values
    ]
    size = max(1, len(values) // 40)
    left_over = len(values) % size
    means = [statistics.mean(ranks[start : start + size]) for start in range(left_over, len(ranks), size)]
    least = max(3, math.ceil(len(means) / 4))
    errors = {cut: statistics.variance(means[cut:]) / (len(means) - cut) for cut in range(len(means) - least + 1)}
    return min(errors, key=lambda cut: (errors[cut], cut)) < len(means) // 2


def share(course: Course, count: int, noise: float = 0.02) -> float:
    """Return for which fraction of simulated jobs logparse says that the step times have become steady.

    Each job has ``count`` steps. ``course`` gives the time of each step, and lognormal noise is added.
    """
    source = random.Random(f"{count} {noise}")
    series = (
        [course(source, unit, count) * math.exp(source.gauss(0, noise)) for unit in range(count)] for _ in range(SERIES)
    )
    return statistics.mean(map(is_settled, series))


def steady(_: random.Random, unit: int, count: int) -> float:
    return 1.0


def test_the_file_runs_in_a_job_of_python_3_8() -> None:
    tree = ast.parse(Path(settling.__file__).read_text(encoding="utf-8"), feature_version=(3, 8))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert imported <= set(sys.stdlib_module_names)


@given(repeating)
@example([2, 1, 1] * 67)
@example([3] * 100 + [1] * 99)
def test_the_formula(values: list[int]) -> None:
    assert is_settled(values) == by_the_formula(values)


@given(times, st.integers(-40, 40))
def test_the_unit_of_time_does_not_matter(values: list[float], exponent: int) -> None:
    assert is_settled([value * 2.0**exponent for value in values]) == is_settled(values)


@given(times)
def test_only_the_order_of_times_matters(values: list[float]) -> None:
    ranks = {value: rank for rank, value in enumerate(sorted(set(values)))}
    assert is_settled([float(ranks[value]) for value in values]) == is_settled(values)
    assert is_settled([-value for value in values]) == is_settled(values)


@given(times)
def test_times_are_not_changed(values: list[float]) -> None:
    before = list(values)
    is_settled(values)
    assert values == before
    assert is_settled(tuple(values)) == is_settled(values)


@pytest.mark.parametrize("value", [0.0, 1.0, 1e300])
def test_equal_times_settle_with_the_sixth(value: float) -> None:
    answers = [is_settled([value] * count) for count in range(250)]
    assert answers == [count >= LEAST for count in range(250)]


@given(st.lists(st.floats(1e-3, 1e9), max_size=LEAST - 1))
def test_fewer_than_six_times_never_settle(values: list[float]) -> None:
    assert not is_settled(values)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_times_that_are_not_finite_never_settle(bad: float) -> None:
    values = [1.0] * 20
    for place in (0, 10, 19):
        assert not is_settled([*values[:place], bad, *values[place:]])


@pytest.mark.parametrize("warm_up", [3, 10, 40])
def test_equal_times_after_a_warm_up_settle_once_they_are_more_than_half(warm_up: int) -> None:
    values = [30.0] * warm_up + [1.0] * 200
    seen = warm_up * 3 // 2 + 1  # fewer times after the warm-up are not seen, because they lie in the last quarter
    answers = [is_settled(values[:count]) for count in range(seen, len(values))]
    first = seen + answers.index(True)
    assert 2 * warm_up < first <= 2 * warm_up + 4  # a batch may lie across the end of the warm-up
    assert all(answers[first - seen :])


STEADY = {
    "white noise of 1 %": (steady, 0.01),
    "white noise of 20 %": (steady, 0.2),
    "5 % of units half as long again": (lambda source, unit, count: 1.5 if source.random() < 0.05 else 1.0, 0.01),
    "1 % of units ten times as long": (lambda source, unit, count: 10.0 if source.random() < 0.01 else 1.0, 0.01),
    "every tenth unit three times as long": (lambda source, unit, count: 3.0 if unit % 10 == 5 else 1.0, 0.02),
    "a first unit a hundred times as long": (lambda source, unit, count: 1.0 if unit else 100.0, 0.02),
}  # fmt: skip


@pytest.mark.parametrize("name", STEADY)
def test_steady_times_settle_and_the_sooner_the_more_there_are(name: str) -> None:
    course, noise = STEADY[name]
    assert share(course, 10, noise) > 0.6
    assert share(course, 20, noise) > 0.85
    assert share(course, 50, noise) > 0.97
    assert share(course, LONG, noise) > 0.97


@pytest.mark.parametrize(("correlation", "bounds"), [(0.5, (0.75, 0.95, 0.97)), (0.9, (0.4, 0.6, 0.85))])
def test_autocorrelated_times_settle_later(correlation: float, bounds: tuple[float, float, float]) -> None:
    source = random.Random(48)

    def one(count: int) -> list[float]:
        value, found = source.gauss(0, 1), []
        for _ in range(count):
            value = correlation * value + math.sqrt(1 - correlation**2) * source.gauss(0, 1)
            found.append(math.exp(0.05 * value))
        return found

    for count, bound in zip((20, 50, LONG), bounds, strict=True):
        assert statistics.mean(is_settled(one(count)) for _ in range(SERIES)) > bound


UNSTEADY: dict[str, Course] = {
    "first half 1.3 times as long": lambda _, unit, count: 1.3 if unit < (count + 1) // 2 else 1.0,
    "first half 30 times as long": lambda _, unit, count: 30.0 if unit < (count + 1) // 2 else 1.0,
    "decay with a constant of a quarter": lambda _, unit, count: 1 + 2 * math.exp(-4 * unit / count),
    "decay with a constant of a half": lambda _, unit, count: 1 + 2 * math.exp(-2 * unit / count),
    "drift of 20 %": lambda _, unit, count: 1 - 0.2 * unit / count,
    "last third 10 % longer": lambda _, unit, count: 1.1 if unit >= count - count // 3 else 1.0,
}


@pytest.mark.parametrize("count", [10, 20, 50, 100, LONG])
@pytest.mark.parametrize("name", UNSTEADY)
def test_times_that_still_change_do_not_settle(name: str, count: int) -> None:
    assert share(UNSTEADY[name], count) < 0.05


def test_a_small_drift_is_found_the_better_the_more_times_there_are() -> None:
    def drifting(_: random.Random, unit: int, count: int) -> float:
        return 1 - 0.05 * unit / count

    assert share(drifting, 60) > share(drifting, 120) > share(drifting, LONG)
    assert share(drifting, LONG) < 0.65


def test_the_benchmark_measures_this_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    import settling as benchmark

    for number, case in enumerate(benchmark.CASES):
        assert benchmark.differences(benchmark.draw(case, sized(2, 20), (1, number))) == 0
