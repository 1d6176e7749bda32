"""Tests of traces in which a convolution first searches for the fastest solver.

logparse must distinguish the kernels of the search from the kernels of the convolution itself.
"""

from __future__ import annotations

import pytest

from logparse.libraries.torch_profiler.searches import find_search_kernels

NAIVE, IGEMM, WINO, IM2COL, GEMM, HELPER = (
    *("naive_conv_ab_nonpacked_fwd_nchw", "igemm_fwd_gtcx3_nhwc_fp16", "miopenSp3AsmConv_v30_3_1"),
    *("Im2d2Col", "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32", "batched_transpose_32x32_half"),
)
B, W, NAIVE_W = "igemm_bwd_gtcx3_nhwc", "igemm_wrw_gtcx3_nhwc", "naive_conv_ab_nonpacked_wrw_nchw"


@pytest.mark.parametrize(
    ("calls", "backward", "found"),
    [
        ([[NAIVE, IM2COL, GEMM, IM2COL, GEMM], [IM2COL, GEMM], [IM2COL, GEMM]], False, {0: {0, 1, 2}}),
        ([[NAIVE, IGEMM, WINO, WINO], [WINO], [WINO]], False, {0: {0, 1, 2}}),
        ([[IGEMM, WINO, GEMM], [WINO], [WINO]], False, {0: {0, 2}}),  # cuDNN: the solver that ran last is not its pick
        ([[NAIVE, IGEMM, WINO], [GEMM]], False, {0: {0, 1, 2}}),  # the call itself is not in the trace
        ([[B, NAIVE_W, W, B, W], [B, W], [B, W]], True, {0: {0, 1, 2}}),
        ([[B, NAIVE_W, W], [B, W]], True, {0: {1}}),
        ([["Cijk_A", "Cijk_B", "Cijk_C", "Cijk_B"], ["Cijk_B"]], False, {0: {0, 1, 2}}),  # TunableOp
        ([[NAIVE, IGEMM, WINO, WINO]], False, {0: {0, 1, 2}}),
        ([[NAIVE, IGEMM, WINO]], False, {0: {0, 1, 2}}),
        ([[NAIVE, W, IGEMM]], True, {0: {0, 1, 2}}),
    ],
)
def test_what_is_of_a_search(calls: list[list[str]], backward: bool, found: dict[int, set[int]]) -> None:
    assert find_search_kernels(calls, backward) == found


@pytest.mark.parametrize(
    ("calls", "backward"),
    [
        ([[NAIVE], [NAIVE]], False),  # the naive solver is what the job runs
        ([[NAIVE], [IGEMM]], False),
        ([[NAIVE]], False),
        ([[HELPER, HELPER, IGEMM, HELPER], [IGEMM], [IGEMM]], False),  # helpers alone search nothing
        ([[IGEMM], [HELPER, IGEMM], [IGEMM]], False),
        ([[IGEMM], [NAIVE, WINO, IGEMM], [IGEMM]], False),  # the search is not at the first call
        ([[B, NAIVE_W]], True),
        ([[B, W], [B, W]], True),
        ([["Cijk_A", "Cijk_B"]], False),
        ([[], []], False),
    ],
)
def test_what_is_no_search(calls: list[list[str]], backward: bool) -> None:
    assert find_search_kernels(calls, backward) == {}
