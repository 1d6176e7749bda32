from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.evidence.expected import (
    ENOUGH,
    NEIGHBOURS,
    Comparable,
    _find_smallest_in_rows,
    _smallest_single,
    base_time_us,
    distinct_codes,
    groups_of,
)
from tests.conftest import sized

RANDOM = np.random.default_rng(3)


def measured(count: int = 400, noise: float = 0.02) -> Comparable:
    """Return matrix products of random sizes with made-up times.

    Their efficiency changes smoothly with the sizes, as on a real GPU, so that times can be estimated from similar
    sizes.
    """
    at = RANDOM.uniform(4, 14, (count, 3))
    base = base_time_us(2 * np.exp2(at.sum(axis=1)), np.exp2(at.max(axis=1) + 8), 1300.0, 5300.0)
    ratio = 1.2 + 0.05 * at[:, 0] + 0.03 * np.abs(at[:, 1] - at[:, 2])
    return Comparable(at, base, base * ratio * np.exp(RANDOM.normal(0, noise, count)))


def test_an_estimate_is_near_the_best_time_and_few_best_times_are_above_its_bound() -> None:
    known, asked = measured(), measured(300)
    found = known.estimates(asked.at, asked.base_us)
    there = np.isfinite(found.expected_us)
    assert there.mean() > 0.9
    assert np.median(np.abs(found.expected_us[there] / asked.time_us[there] - 1)) < 0.06
    assert (asked.time_us[there] > found.high_us[there]).mean() < 0.1


def test_the_estimate_is_the_weighted_mean_of_the_eight_nearest() -> None:
    known = measured()
    point = np.array([[9.1, 8.2, 10.3]])
    found = known.estimates(point, np.array([50.0]))
    squared = ((known.at - point) ** 2).sum(axis=1)
    nearest = np.argsort(squared)[:NEIGHBOURS]
    assert found.neighbours[0].tolist() == nearest.tolist()
    weights = 1 / (squared[nearest] + 0.05)
    mean = (weights * np.log(known.time_us / known.base_us)[nearest]).sum() / weights.sum()
    assert found.expected_us[0] == pytest.approx(50.0 * np.exp(mean))
    scaled = known.scaled_us(found.neighbours[0], 50.0)
    assert scaled == pytest.approx(50.0 * (known.time_us / known.base_us)[nearest])
    assert scaled.min() <= found.expected_us[0] <= scaled.max()


@given(st.integers(0, 2**32 - 1))
def test_an_estimate_depends_on_its_own_problem_alone(seed: int) -> None:
    asked = np.random.default_rng(seed).uniform(3, 15, (sized(20, 200), 3))
    base = np.full(len(asked), 100.0)
    together = KNOWN.estimates(asked, base)
    for i in (0, len(asked) - 1):
        alone = KNOWN.estimates(asked[i : i + 1], base[:1])
        assert np.array_equal(alone.expected_us, together.expected_us[i : i + 1], equal_nan=True)
        assert np.array_equal(alone.neighbours, together.neighbours[i : i + 1])


KNOWN = measured()


def test_the_nearest_of_a_cell_are_the_nearest() -> None:
    known = measured(3000)
    asked = RANDOM.uniform(4, 14, (2000, 3))
    found, squared = known.nearest(asked)
    every = np.sort(((known.at[None, :, :] - asked[:, None, :]) ** 2).sum(axis=2), axis=1)[:, :NEIGHBOURS]
    assert np.mean(np.isclose(squared, every, atol=1e-4)) > 0.99
    assert (found >= 0).all()


def test_its_own_measurement_does_not_count() -> None:
    known = measured()
    rows = np.arange(5)
    found = known.estimates(known.at[rows], known.base_us[rows], rows)
    assert not (found.neighbours == rows[:, None]).any()
    assert (known.estimates(known.at[rows], known.base_us[rows]).neighbours[:, 0] == rows).all()


def test_shuffled_times_say_nothing() -> None:
    known = measured()
    shuffled = Comparable(known.at, known.base_us, RANDOM.permutation(known.time_us))
    assert shuffled.calibration is None
    found = shuffled.estimates(known.at, known.base_us)
    assert np.isnan(found.expected_us).all()
    assert np.isnan(found.high_us).all()


def test_the_bound_holds_for_unmeasured_weight_matrices() -> None:
    """If a weight matrix was never measured, the estimated times of its matrix products still have a valid upper bound.

    At most 10 % of the products take longer than their bound.
    """
    # The measured times belong to a few other weight matrices, each with many numbers of tokens. Times with the same
    # weight matrix are alike. A bound that ignored this would be too low.
    random, tokens = np.random.default_rng(8), np.arange(0, 12, 0.25)
    weights = random.uniform(4, 14, (400, 2))
    at = np.array([(m, n, k) for m, k in weights for n in tokens])
    base = np.full(len(at), 50.0)
    time_us = base * np.exp(0.3 * at[:, 1] + np.repeat(random.normal(0, 0.2, len(weights)), len(tokens)))
    known = np.arange(len(at)) < len(at) // 2
    table = Comparable(at[known], base[known], time_us[known])
    assert len(np.unique(table.lines)) == 200
    found = table.estimates(at[~known], base[~known])
    there = np.isfinite(found.high_us)
    assert there.mean() > 0.9
    assert (time_us[~known] > found.high_us)[there].mean() < 0.1


def test_series_are_numbered_in_the_order_of_their_sizes() -> None:
    at = np.random.default_rng(3).integers(0, 5, (300, 4)).astype(np.float64) * 0.7
    table = Comparable(at, np.ones(300), np.ones(300))
    plain = [np.unique(np.delete(at, free, axis=1), axis=0, return_inverse=True)[1] for free in range(4)]
    assert table.lines.tolist() == min(plain, key=max).tolist()


def test_few_groups_say_nothing() -> None:
    known = measured(60)
    first = np.flatnonzero(groups_of(known.at) < ENOUGH - 1)
    few = Comparable(known.at[first], known.base_us[first], known.time_us[first])
    assert known.calibration is not None
    assert few.calibration is None


def test_far_away_is_unknown_but_can_be_ordered() -> None:
    known = measured()
    found = known.estimates(np.array([[30.0, 30.0, 30.0]]), np.array([1e6]))
    assert np.isnan(found.expected_us[0])
    assert np.isfinite(found.guess_us[0])


def test_fewer_than_eight_measured() -> None:
    known = Comparable(KNOWN.at[:3], KNOWN.base_us[:3], KNOWN.time_us[:3])
    found = known.estimates(KNOWN.at[:1], KNOWN.base_us[:1])
    assert sorted(found.neighbours[0].tolist()) == [-1] * 5 + [0, 1, 2]
    assert np.isnan(found.expected_us[0])
    assert len(known.scaled_us(found.neighbours[0], 1.0)) == 3


def test_arrays_of_one_length() -> None:
    with pytest.raises(ValueError, match="must have the same length"):
        Comparable(KNOWN.at, KNOWN.base_us[:1], KNOWN.time_us)


def test_products_with_similar_sizes_are_grouped() -> None:
    """Matrix products with nearly equal sizes are put into one group.

    Here each product is described by ten numbers. The numbers have so many combinations that 64 bits cannot count them,
    and the groups are right nevertheless.
    """
    at = np.random.default_rng(1).integers(-(10**4), 10**4, (50, 10)).astype(float)
    both = np.concatenate([at, at + 0.2])
    groups = groups_of(both)
    assert len(set(groups.tolist())) == 50
    assert groups[:50].tolist() == groups[50:].tolist()
    assert groups[:50].tolist() == np.argsort(np.argsort(at[:, 0])).tolist(), "the groups are in ascending order"


@pytest.mark.parametrize("width", [3, 8, 40, 512, 600])
def test_the_smallest_by_keys_are_the_smallest(width: int) -> None:
    far = np.random.default_rng(width).uniform(0, 300, (50, width)).astype(np.float32)
    far[:, 0], far[3], far[4, : width // 2] = 0.0, np.inf, np.inf
    columns, values = _smallest_single(far, NEIGHBOURS)
    assert np.array_equal(columns, _find_smallest_in_rows(far.astype(np.float64))[0])
    assert np.array_equal(values, _find_smallest_in_rows(far.astype(np.float64))[1])
    first = list(range(min(width, NEIGHBOURS)))
    equal = _smallest_single(np.ones((1, width), dtype=np.float32), NEIGHBOURS)[0][0]
    assert equal.tolist()[: len(first)] == first, "the first of equal values"


@pytest.mark.parametrize("most", [1, 9, 10**9])
def test_distinct_codes_are_ranked_and_the_first_of_each_is_found(most: int) -> None:
    codes = np.random.default_rng(most).integers(0, most, 200)
    _, first, rank = np.unique(codes, return_index=True, return_inverse=True)
    found = distinct_codes(codes)
    assert np.array_equal(found[0], first)
    assert np.array_equal(found[1], rank)
    assert [len(x) for x in distinct_codes(codes[:0])] == [0, 0]
