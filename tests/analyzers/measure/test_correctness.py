"""Bounds of errors and of time."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.measure.correctness import acceptable, depth, error_bound
from analyzers.measure.drift import noise
from analyzers.measure.sampler import executions
from analyzers.times.roofline import bound_us
from logparse.devices import device_of
from logparse.model import ConvProblem, Direction
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
    flops = 2 * 8192**3 / 1.082  # an H200 clocks higher than its peaks are stated at
    assert bound_us(product, H200) == pytest.approx(flops / 66.9e6)
    assert bound_us(product, {**H200, "replay_tf32": "1"}) == pytest.approx(flops / 494.7e6)
    for compute in ("f32_f16_r", "f32_bf16_r"):
        assert bound_us(replace(product, compute_type=compute), H200) == pytest.approx(flops / 989.4e6)


def test_windows_may_be_transformed_away() -> None:
    pointwise = replace(SMALL_W, filter_h=1, filter_w=1, pad_h=0, pad_w=0)
    assert bound_us(SMALL_W, H200, hot=True) == pytest.approx(bound_us(pointwise, H200, hot=True))


def line(direction: Direction, size: int, taps: int, pad: int, stride: int, dilation: int) -> ConvProblem | None:
    """A convolution of one row, large enough that its bytes exceed any cache; None where the window does not fit."""
    out = (size + 2 * pad - (taps - 1) * dilation - 1) // stride + 1
    if out < 1:
        return None
    row = dict.fromkeys(("h", "out_h", "filter_h", "stride_h", "dilation_h", "groups"), 1)
    along = {"w": size, "out_w": out, "filter_w": taps, "pad_w": pad, "stride_w": stride, "dilation_w": dilation}
    return replace(SMALL_W, direction=direction, n=2**10, c=2**8, k=2**8, pad_h=0, **row, **along)


@given(
    st.sampled_from(("F", "B", "W")),
    *(st.integers(low, high) for low, high in ((1, 9), (1, 4), (0, 5), (1, 4), (1, 3))),
)
def test_no_bound_counts_what_a_kernel_may_leave_out(
    direction: Direction, size: int, taps: int, pad: int, stride: int, dilation: int
) -> None:
    """Held to a direct convolution that skips products with padding and never reads what no window covers."""
    problem = line(direction, size, taps, pad, stride, dilation)
    if problem is None:
        return
    places = [(o, t, o * stride - pad + t * dilation) for o in range(problem.out_w or 0) for t in range(taps)]
    inside = [place for place in places if 0 <= place[2] < size]
    n, c, k = 2**10, 2**8, 2**8
    device = device_of(H200)
    bound = bound_us(problem, H200, hot=True)
    assert device is not None
    assert bound is not None
    assert bound <= 2 * n * c * k * len(inside) / (494.7e6 * 1.082) * (1 + 1e-9)
    windows, read_taps, inputs = (len({place[i] for place in inside}) for i in range(3))
    x, w, y = (
        n * c * 4 * (size if direction == "B" else inputs),
        c * k * 4 * (taps if direction == "W" else read_taps),
        n * k * 4 * ((problem.out_w or 0) if direction == "F" else windows),
    )
    memory = max(0.0, x + w + y - device.cache_bytes) / 4800e3
    assert bound_us(problem, H200) == pytest.approx(max(bound, memory))


def test_an_operand_that_a_batch_shares_is_read_once() -> None:
    tight = {"n": 4096, "k": 4096, "lda": 4096, "ldb": 4096, "ldc": 4096, "ldd": 4096, "batch_count": 8}
    own = gemm(4096, **tight, stride_a=4096**2, stride_b=4096**2, stride_c=4096**2, stride_d=4096**2)
    assert own.bytes == 3 * 8 * 4096**2 * 4
    assert replace(own, stride_b=0).bytes == (2 * 8 + 1) * 4096**2 * 4


def test_what_a_larger_cache_may_hold_need_not_be_moved() -> None:
    thin = gemm(2**20, n=1, k=64, lda=2**20, ldb=64, ldc=2**20, ldd=2**20)
    small, large = bound_us(thin, H200), bound_us(thin, H200, cache_bytes=64 << 20)
    assert small is not None
    assert large is not None
    assert small - large == pytest.approx((4 << 20) / 4800e3)


def test_a_machine_that_is_not_quiet_is_reported() -> None:
    assert noise({}) == []
    assert noise({"busy_percent": "1", "other_processes": "0", "load": "0.00"}) == []
    assert len(noise({"busy_percent": "80", "other_processes": "2", "load": "900"})) == 3


def test_samples_are_about_a_millisecond_long() -> None:
    assert [executions(t) for t in (5, 50, 500, 5_000, 50_000)] == [64, 24, 6, 2, 1]
