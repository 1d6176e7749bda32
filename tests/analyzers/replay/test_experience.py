"""Tests of the distance between two matrix products or convolutions.

A small distance means that the same kernels tend to be fast for both.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from analyzers.replay.experience import OTHER_LAYOUT, OTHER_TYPE, coordinates, distance
from logparse.model import ConvProblem, GemmProblem, Problem
from tests.analyzers.example import W
from tests.analyzers.replay.problems import gemm


def apart(one: Problem, other: Problem) -> float:
    here, there = coordinates(one), coordinates(other)
    assert here is not None
    assert there is not None
    assert distance(here, there) == distance(there, here)
    return distance(here, there)


@pytest.mark.parametrize("problem", [gemm(64), W], ids=["gemm", "conv"])
def test_sizes_count_by_their_ratio(problem: GemmProblem | ConvProblem) -> None:
    twice, four = (replace(problem, k=x * (problem.k or 1)) for x in (2, 4))
    assert apart(problem, problem) == 0
    assert apart(problem, twice) == pytest.approx(0.5)
    assert apart(problem, four) == pytest.approx(1.0)


def test_what_divides_a_convolution_s_channels_and_pixels_counts() -> None:
    """Two convolutions are far apart if different powers of 2 divide their channels or pixels.

    For 64 and 65 channels, the ratio 65/64 alone would give a distance of 0.01. But 65 is odd and 64 is a multiple of
    8, so the distance is 1.
    """
    even = replace(W, c=64, k=64, h=56, w=56, out_h=56, out_w=56, groups=1)
    assert apart(even, replace(even, c=72)) < 0.1 < apart(even, replace(even, c=68)) < apart(even, replace(even, c=65))
    assert apart(even, replace(even, h=55, w=55)) == pytest.approx(1.0), "pixels that go in count as well"
    assert apart(even, replace(even, c=65)) == pytest.approx(1.0, abs=0.01)


def test_window_type_and_layout_weigh_more_than_sizes() -> None:
    larger = replace(W, filter_h=2 * (W.filter_h or 1), filter_w=2 * (W.filter_w or 1))
    assert apart(W, larger) == pytest.approx(2.0)
    assert apart(W, replace(W, in_type="FP32")) == OTHER_TYPE
    assert apart(W, replace(W, in_layout="NHWC")) == OTHER_LAYOUT
    assert apart(gemm(64), replace(gemm(64), trans_a="T")) == OTHER_LAYOUT


def test_other_operations_and_unknown_sizes_are_nowhere_near() -> None:
    assert apart(W, replace(W, direction="F")) == math.inf
    assert apart(W, gemm(64)) == math.inf
    assert coordinates(replace(W, k=None)) is None
    assert coordinates(replace(gemm(64), m=None)) is None
