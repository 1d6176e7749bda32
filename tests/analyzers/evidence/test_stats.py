"""Tests of the statistical functions against known formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.evidence.statistics.distributions import (
    digamma,
    inverse_trigamma,
    student_t_quantile,
    student_t_tail,
    trigamma,
)
from analyzers.evidence.statistics.intervals import (
    Variance,
    benjamini_hochberg,
    greater_p,
    log_ratios,
    median,
    moderate_variances,
    pooled_spread,
    relative_spread,
    variance_of_median,
)

TIMES = st.lists(st.floats(1e-2, 1e6), min_size=1, max_size=30)
FACTOR = st.floats(0.01, 100)


def test_what_is_no_pair_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be paired"):
        log_ratios([1.0], [])
    with pytest.raises(ValueError, match="cannot be paired"):
        log_ratios([], [])


@pytest.mark.parametrize(
    ("degrees", "p", "t"),
    [
        (1, 0.975, 12.706),
        (2, 0.975, 4.303),
        (2, 0.9995, 31.599),
        (10, 0.95, 1.812),
        (30, 0.995, 2.750),
        (1e7, 0.975, 1.960),
    ],
)
def test_quantiles_of_student_are_those_of_the_tables(degrees: float, p: float, t: float) -> None:
    assert student_t_quantile(p, degrees) == pytest.approx(t, abs=6e-4)
    assert student_t_tail(t, degrees) == pytest.approx(1 - p, rel=2e-3)
    assert student_t_tail(-t, degrees) == pytest.approx(p, rel=2e-3)


def test_small_tail_probabilities_of_student_are_exact() -> None:
    """Very small tail probabilities of Student's t distribution are still exact.

    With two degrees of freedom the tail has a closed form: P(T > t) = (1 − t/√(2 + t²)) / 2.
    """
    for t in (5.0, 100.0, 1e4):
        assert student_t_tail(t, 2) == pytest.approx(1 / (2 + t * t) / (1 + t / math.sqrt(2 + t * t)), rel=1e-6)
    assert student_t_tail(math.inf, 2) == 0.0


def test_digamma_and_trigamma() -> None:
    assert digamma(1) == pytest.approx(-0.5772156649015329)
    assert trigamma(1) == pytest.approx(math.pi**2 / 6)
    for x in (0.01, 0.5, 3.0, 400.0):
        assert inverse_trigamma(trigamma(x)) == pytest.approx(x)


def test_p_is_uniform_without_a_difference() -> None:
    generator = np.random.default_rng(2)
    values = generator.normal(0, 1, (4000, 3))
    p = [greater_p(float(x.mean()), Variance(float(x.var(ddof=1)) / 3, 2)) for x in values]
    for level in (0.001, 0.01, 0.05, 0.5):
        assert np.mean(np.array(p) <= level) == pytest.approx(level, abs=4 * math.sqrt(level / 4000))


def test_many_small_groups_of_one_variance_know_it_well() -> None:
    generator = np.random.default_rng(5)
    own = [Variance(float(x.var(ddof=1)), 2) for x in generator.normal(0, 0.003, (200, 3))]
    shrunk = moderate_variances(own)
    spread_of_own, spread_of_shrunk = (np.std([math.log(x.value) for x in y]) for y in (own, shrunk))
    assert spread_of_shrunk < spread_of_own / 4
    assert np.mean([x.value for x in shrunk]) == pytest.approx(0.003**2, rel=0.2)
    assert min(x.degrees for x in shrunk) > 4
    assert moderate_variances(own[:1]) == own[:1], "one group keeps its own"
    assert max(x.degrees for x in moderate_variances(own[:2])) <= 4, "two groups know no more than both together"


def test_groups_of_unlike_variances_borrow_little() -> None:
    generator = np.random.default_rng(6)
    own = [
        Variance(float(x.var(ddof=1)), 2)
        for x in generator.normal(0, 1, (200, 3)) * np.exp(generator.normal(0, 2, (200, 1)))
    ]
    assert max(x.degrees for x in moderate_variances(own)) < 4


def test_the_variance_of_a_median_is_known_and_an_outlier_does_not_move_it() -> None:
    generator = np.random.default_rng(8)
    draws = generator.normal(0, 1, (2000, 12))
    true = float(np.median(draws, axis=1).var())
    assert float(np.median([variance_of_median(x).value for x in draws])) == pytest.approx(true, rel=0.35)
    quiet = np.array([0.0, 0.1, -0.1, 0.05, -0.05, 0.02])
    assert variance_of_median(np.append(quiet, 9.0)).value < 4 * variance_of_median(quiet).value
    assert variance_of_median(np.array([1.0])).value == math.inf


@given(st.lists(st.floats(0, 1), max_size=40), st.floats(0.01, 0.5))
def test_benjamini_hochberg_rejects_the_smallest_p(p_values: list[float], rate: float) -> None:
    kept = benjamini_hochberg(p_values, rate)
    assert len(kept) == len(p_values)
    rejected = [p for p, keep in zip(p_values, kept, strict=True) if keep]
    rest = [p for p, keep in zip(p_values, kept, strict=True) if not keep]
    assert all(p <= rate for p in rejected)
    assert not rejected or not rest or max(rejected) <= min(rest)
    bonferroni = [p <= rate / max(1, len(p_values)) for p in p_values]
    assert all(keep for keep, strict in zip(kept, bonferroni, strict=True) if strict)


def test_benjamini_hochberg_steps_up() -> None:
    assert benjamini_hochberg([0.04, 0.045, 0.049], 0.05) == [True, True, True]
    assert benjamini_hochberg([0.04, 0.2, 0.049], 0.05) == [False, False, False]


@given(TIMES, FACTOR)
def test_spread_is_relative(times: list[float], factor: float) -> None:
    if len(times) > 1:
        assert relative_spread([x * factor for x in times]) == pytest.approx(relative_spread(times), abs=1e-9)
    else:
        assert math.isnan(relative_spread(times))


def test_pooled_spread_of_many_small_groups_is_that_of_one_large() -> None:
    generator = np.random.default_rng(3)
    groups = [list(1000 * (i + 1) * np.exp(generator.normal(0, 0.03, 4))) for i in range(200)]
    assert pooled_spread(groups) == pytest.approx(0.03, rel=0.25)
    assert math.isnan(pooled_spread([[1.0], [2.0]]))
    assert math.isnan(median([]))
