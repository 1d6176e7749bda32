"""Laws of the statistics."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.evidence.stats import benjamini_hochberg, faster_p, median, paired_ratio, pooled_spread, spread

TIMES = st.lists(st.floats(1e-2, 1e6), min_size=1, max_size=30)
FACTOR = st.floats(0.01, 100)


@given(TIMES, FACTOR)
def test_interval_holds_the_value_and_scales_with_the_numerator(times: list[float], factor: float) -> None:
    ratio = paired_ratio([x * factor for x in times], times)
    assert ratio.low <= ratio.value <= ratio.high
    assert ratio.value == pytest.approx(factor)


@given(st.lists(st.tuples(st.floats(1, 1e3), st.floats(1, 1e3)), min_size=2, max_size=20))
def test_swapping_sides_inverts_the_interval(pairs: list[tuple[float, float]]) -> None:
    above, below = [a for a, _ in pairs], [b for _, b in pairs]
    one, other = paired_ratio(above, below), paired_ratio(below, above)
    assert one.value == pytest.approx(1 / other.value)
    assert one.low == pytest.approx(1 / other.high, rel=0.2)  # the same draws, the other tail


def test_interval_covers_a_true_ratio_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(7)
    hits = 0
    for seed in range(200):
        below = 100 * np.exp(generator.normal(0, 0.02, 12))
        above = 110 * np.exp(generator.normal(0, 0.02, 12))
        ratio = paired_ratio(above, below, seed=seed)
        hits += ratio.low <= 1.1 <= ratio.high
    assert 0.88 <= hits / 200 <= 1.0


def test_what_is_no_pair_is_refused() -> None:
    with pytest.raises(ValueError, match="no pairs"):
        paired_ratio([1.0], [])
    with pytest.raises(ValueError, match="no pairs"):
        paired_ratio([], [])


@given(st.lists(st.floats(1, 1e3), min_size=1, max_size=12))
def test_p_is_smallest_when_all_pairs_agree_and_one_when_none_does(times: list[float]) -> None:
    assert faster_p([2 * x for x in times], times) == pytest.approx(2.0 ** -len(times))
    assert faster_p(times, [2 * x for x in times]) == 1.0
    assert faster_p(times, times) == 1.0


@pytest.mark.parametrize("count", [8, 12, 20])
def test_p_is_uniform_enough_without_a_difference(count: int) -> None:
    generator = np.random.default_rng(count)
    low = 0
    for seed in range(400):
        above, below = np.exp(generator.normal(0, 0.05, (2, count)))
        low += faster_p(above, below, seed=seed) <= 0.05
    assert low / 400 <= 0.09


def test_one_hiccup_does_not_hide_a_difference() -> None:
    below = [100.0] * 12
    assert faster_p([110.0] * 11 + [50.0], below) < 0.02


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
        assert spread([x * factor for x in times]) == pytest.approx(spread(times), abs=1e-9)
    else:
        assert math.isnan(spread(times))


def test_pooled_spread_of_many_small_groups_is_that_of_one_large() -> None:
    generator = np.random.default_rng(3)
    groups = [list(1000 * (i + 1) * np.exp(generator.normal(0, 0.03, 4))) for i in range(200)]
    assert pooled_spread(groups) == pytest.approx(0.03, rel=0.25)
    assert math.isnan(pooled_spread([[1.0], [2.0]]))
    assert math.isnan(median([]))
