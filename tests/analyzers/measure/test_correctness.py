"""Bounds of errors and of time."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from analyzers.evidence.roofline import bound_us
from analyzers.measure.correctness import acceptable, depth, error_bound
from analyzers.measure.drift import Drift, noise
from analyzers.measure.results import environment_key
from analyzers.measure.sampler import executions
from tests.analyzers.measure.problems import SMALL_W, gemm

H200 = {"device": "NVIDIA H200", "arch": "sm_90", "cu_count": "132"}
HALF = dict.fromkeys(("a_type", "b_type", "d_type"), "bf16_r")


def test_bound_grows_with_depth_and_with_a_shorter_output() -> None:
    assert error_bound(gemm(k=50)) < error_bound(gemm(k=5000)) < 1e-3
    assert error_bound(gemm()) < error_bound(gemm(compute_type="xf32_r")) < error_bound(gemm(**HALF)) < 0.05
    assert error_bound(gemm()) < error_bound(gemm(), tf32=True)


def test_a_missing_tile_is_out_of_bounds() -> None:
    missing = math.sqrt(1 / 64)  # one of 64 tiles is zero: that share of the norm
    assert not acceptable(missing, error_bound(gemm(**HALF)))
    assert not acceptable(math.nan, 1.0)
    assert not acceptable(math.inf, 1.0)


def test_depth_is_k_of_the_product_that_a_convolution_is() -> None:
    assert depth(replace(SMALL_W, direction="F")) == 16 // 4 * 9
    assert depth(replace(SMALL_W, direction="W")) == 2 * 5 * 5
    assert depth(gemm(k=77)) == 77


def test_roofline_is_below_what_was_ever_measured() -> None:
    big = gemm(m=8192, n=8192, k=8192, lda=8192, ldb=8192, ldc=8192, ldd=8192, **HALF)
    bound = bound_us(big, H200)
    assert bound is not None
    assert 1000 < bound < 2 * 8192**3 / 798e6  # 798 TFLOP/s were seen on an H200
    assert bound_us(big, {"device": "unknown"}) is None
    assert bound_us(big, H200, hot=True) == pytest.approx(bound)


def test_short_formats_bound_single_precision_where_they_may_be_used() -> None:
    single = replace(SMALL_W, in_type="FP32", n=64, c=4096, h=64, w=64, k=4096)
    default, full = bound_us(single, H200, hot=True), bound_us(single, {**H200, "replay_conv_tf32": "0"}, hot=True)
    assert default is not None
    assert full == pytest.approx(default * 494.7 / 66.9)
    product = gemm(m=8192, n=8192, k=8192, lda=8192, ldb=8192, ldc=8192, ldd=8192)
    assert bound_us(product, H200) == pytest.approx(2 * 8192**3 / 66.9e6)
    assert bound_us(product, {**H200, "replay_tf32": "1"}) == pytest.approx(2 * 8192**3 / 494.7e6)


def test_windows_may_be_transformed_away() -> None:
    flops = 2 * 16 * 10**3
    pointwise, window = replace(SMALL_W, filter_h=1, filter_w=1), SMALL_W
    assert flops > 0
    assert bound_us(window, H200, hot=True) == pytest.approx(bound_us(pointwise, H200, hot=True))


def test_drift_is_relative_to_the_start() -> None:
    drift = Drift(limit=0.05)
    before = drift.read(100.0)
    assert drift.read(102.0) == pytest.approx(1.01, abs=0.02)
    assert not drift.moved(before, 1.04)
    assert drift.moved(before, 1.06)
    assert drift.moved(1.06, before)


def test_a_machine_that_is_not_quiet_is_said() -> None:
    assert noise({}) == []
    assert noise({"busy_percent": "1", "other_processes": "0", "load": "0.00"}) == []
    assert len(noise({"busy_percent": "80", "other_processes": "2", "load": "900"})) == 3


def test_what_changes_by_the_minute_is_no_part_of_an_environment() -> None:
    assert environment_key(H200 | {"clock_mhz": "345"}) == environment_key(H200 | {"clock_mhz": "1980"})
    assert environment_key(H200) != environment_key(H200 | {"driver": "580"})


def test_samples_are_about_a_millisecond_long() -> None:
    assert [executions(t) for t in (5, 50, 500, 5_000, 50_000)] == [64, 24, 6, 2, 1]
