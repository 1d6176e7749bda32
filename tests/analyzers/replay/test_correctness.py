"""Tests of how large the numerical error of a kernel's result may be before the kernel is refused."""

from __future__ import annotations

import math
from dataclasses import replace

from analyzers.replay.drift import noise
from analyzers.replay.sampler import executions
from logparse.libraries.kinds.correctness import depth, error_bound, is_acceptable
from tests.analyzers.replay.problems import SMALL_W, gemm

H200 = {"device": "NVIDIA H200", "arch": "sm_90", "cu_count": "132"}
HALF = dict.fromkeys(("a_type", "b_type", "d_type"), "bf16_r")


def test_bound_grows_with_depth_and_with_a_shorter_output() -> None:
    assert error_bound(gemm(k=50)) < error_bound(gemm(k=5000)) < 1e-3
    assert error_bound(gemm()) < error_bound(gemm(compute_type="xf32_r")) < error_bound(gemm(**HALF)) < 0.05
    assert error_bound(gemm()) < error_bound(gemm(), tf32=True)


def test_a_missing_tile_is_out_of_bounds() -> None:
    missing = math.sqrt(1 / 64)  # one of 64 tiles is zero, with this share of the norm
    assert not is_acceptable(missing, error_bound(gemm(**HALF)))
    assert not is_acceptable(math.nan, 1.0)
    assert not is_acceptable(math.inf, 1.0)


def test_depth_is_k_of_the_product_that_a_convolution_is() -> None:
    assert depth(replace(SMALL_W, direction="F")) == 16 // 4 * 9
    assert depth(replace(SMALL_W, direction="W")) == 2 * 5 * 5
    assert depth(gemm(k=77)) == 77


def test_an_operand_that_a_batch_shares_is_read_once() -> None:
    tight = {"n": 4096, "k": 4096, "lda": 4096, "ldb": 4096, "ldc": 4096, "ldd": 4096, "batch_count": 8}
    own = gemm(4096, **tight, stride_a=4096**2, stride_b=4096**2, stride_c=4096**2, stride_d=4096**2)
    assert own.bytes == 3 * 8 * 4096**2 * 4
    assert replace(own, stride_b=0).bytes == (2 * 8 + 1) * 4096**2 * 4


def test_a_machine_that_is_not_quiet_is_reported() -> None:
    assert noise({}) == []
    assert noise({"busy_percent": "1", "other_processes": "0", "load": "0.00"}) == []
    assert len(noise({"busy_percent": "80", "other_processes": "2", "load": "900"})) == 3


def test_samples_are_about_a_millisecond_long() -> None:
    assert [executions(t) for t in (5, 50, 500, 5_000, 50_000)] == [64, 24, 6, 2, 1]
