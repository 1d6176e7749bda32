"""Tests of the tables that divide GPU time by matrix product, operator and kernel, summed over several traces."""

from __future__ import annotations

import pytest

from analyzers.job.gpu_time import COPIES, gpu_time, part_of, traced_calls
from logparse.libraries.torch_profiler.busy import BEFORE
from tests.analyzers.build import call, facts, tables
from tests.analyzers.example import W, gemm


def kernel(op: str, name: str, us: float, problem: str | None = None, source: str = "trace") -> dict[str, object]:
    row = {"source_id": source, "run": "r", "op": op, "problem": problem, "kernel": name, "calls": 2}
    return row | {"total_us": us, "min_us": us / 2, "max_us": us / 2}


@pytest.mark.parametrize(
    ("op", "name", "problem", "part"),
    [
        ("aten::mm", "Cijk_Alik", gemm(1).text, "GEMM"),
        ("aten::mm", "Cijk_Alik", "", "GEMM"),
        ("", "nvjet_sm90_hsh_64x64", "", "GEMM"),
        ("aten::convolution_backward", "igemm_wrw_gtcx3", W.text, "convolution W"),
        ("aten::convolution_backward", "batched_transpose_32x32_half", W.text, "transposes and copies"),
        ("", "kernel_batched_gemm_xdlops_bwd_weight", "", "convolution W"),
        ("aten::cudnn_convolution", "volta_sgemm_32x128_nn", "", "convolution F"),
        ("aten::cudnn_convolution", "cudnn_infer_volta_scudnn_128x64_relu_small_nn_v1", "", "convolution F"),
        ("aten::cudnn_convolution", "void cudnn::ops::nchwToNhwcKernel<float>", "", COPIES),
        ("aten::cudnn_convolution_relu", "ampere_scudnn_128x64_relu_small_nn_v1", "", "convolution F"),
        ("aten::cudnn_convolution_transpose", "volta_sgemm_64x64_nt", "", "convolution B"),
        ("aten::_conv_depthwise2d", "void at::native::conv_depthwise2d_forward_kernel<3>", "", "convolution F"),
        ("aten::convolution_backward", "volta_sgemm_64x64_nt", "", "convolution B+W"),
        ("aten::convolution_backward", "void at::native::reduce_kernel<512>", "", "convolution B+W"),
        ("aten::convolution_backward", "cudnn_volta_scudnn_winograd_128x128_ldg1", "", "convolution B+W"),
        ("aten::convolution_backward", "void cudnn::detail::dgrad_engine<float>", "", "convolution B"),
        ("aten::convolution_backward", "void wgrad_alg0_engine<float>", "", "convolution W"),
        ("aten::addmm", "volta_sgemm_32x128_nn", "", "GEMM"),
        ("aten::addmm", "void splitKreduce_kernel<float>", "", "GEMM"),
        ("aten::_convert_weight_to_int4pack", "void at::native::matrix_to_m16n8k16_kernel", "", "other"),
        ("triton_poi_fused_convolution_relu_1", "triton_poi_fused_convolution_relu_1", "", "element-wise"),
        ("", "igemm_bwd_gtcx3_nhwc", "", "convolution B"),
        ("", "igemm_fwd_gtcx3_nhwc", "", "convolution F"),
        ("aten::_scaled_dot_product_flash_attention", "fmha_fwd", "", "attention"),
        ("aten::native_batch_norm", "void at::native::unrolled_elementwise_kernel", "", "normalisation"),
        ("aten::_foreach_add_", "multi_tensor_apply_kernel", "", "optimizer"),
        ("aten::copy_", "void at::native::vectorized_elementwise_kernel<8>", "", "transposes and copies"),
        ("aten::add_", "void at::native::vectorized_elementwise_kernel<8>", "", "element-wise"),
        ("aten::sum", "void at::native::reduce_kernel<512>", "", "reduction"),
        ("aten::max_pool2d_with_indices", "max_pool_forward_nchw", "", "pooling"),
        ("record_param_comms", "ncclDevKernel_Generic", "", "communication"),
        ("", "void vllm::cross_device_reduce_1stage", "", "communication"),
        ("aten::_softmax_backward_data", "aten::_softmax_backward_data", "", "softmax"),
        ("aten::_softmax", "void (anonymous namespace)::softmax_warp_forward<float>", "", "softmax"),
        ("aten::_log_softmax", "void (anonymous namespace)::softmax_warp_forward<float>", "", "loss"),
        ("aten::_log_softmax_backward_data", "void cunn_SoftMaxBackward", "", "loss"),
        ("aten::nll_loss_forward", "void at::native::nll_loss_forward_reduce_cuda_kernel_2d<float>", "", "loss"),
        ("aten::_foreach_copy_", "void at::native::multi_tensor_apply_kernel<TensorListMetadata>", "", COPIES),
        ("", "void at::native::multi_tensor_apply_kernel<at::native::Copy<float>>", "", COPIES),
        ("", "mfma_moe1_silu_mul_afp8_wfp4_fp8_t128x256x256", "", "GEMM"),
        ("", "mfma_moe2_afp4_wfp4_bf16_cshuffle_t32x128", "", "GEMM"),
        ("aiter::ck_moe_stage1", "void ck::kernel_moe_mxgemm_2lds<a, b>", "", "GEMM"),
        ("", "_ZN5aiter47fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_32x256E", "", "GEMM"),
        ("", "bmm_Bfloat16_E2m1E2m1_Fp32_t128x8x512", "", "GEMM"),
        ("", "void marlin_moe_wna16::Marlin<1, 2>", "", "GEMM"),
        ("aten::_grouped_mm", "some_kernel", "", "GEMM"),
        ("", "_matmul_ogs_NNT_bf16xbf16xmxfp4", "", "GEMM"),
        ("", "void vllm::moe::topkGatingSoftmax<4>", "", "expert routing"),
        ("", "opus_moe_sorting_entry", "", "expert routing"),
        ("", "void vllm::moe::moe_align_block_size_kernel<int>", "", "expert routing"),
        ("", "void at::native::compute_grad_weight<c10::BFloat16, float, long, false>", "", "embedding and indexing"),
        ("mine::thing", "thing_kernel", "", "other"),
    ],
)
def test_kinds_of_work(op: str, name: str, problem: str, part: str) -> None:
    assert part_of(op, name, problem) == part


def test_sums_of_a_run() -> None:
    found = gpu_time(
        tables(
            kernels=[
                kernel("aten::mm", "Cijk_", 30.0, gemm(1).text),
                kernel("aten::mm", "Cijk_", 10.0, gemm(1).text, "other"),
                kernel("aten::relu", "relu_kernel", 5.0),
                kernel(BEFORE, "Cijk_", 7.0),
            ],
            facts=[
                *facts("trace", gpu_window_us="100", gpu_busy_us="35", profiler_steps="2"),
                *facts("other", gpu_window_us="50", gpu_busy_us="10", profiler_steps="1", graph_unexplained_us="3"),
                *facts("no trace", gpu_window_us="9999"),
            ],
        )
    )
    assert found is not None
    assert [(x.name, x.us, x.kernels) for x in found.parts] == [("GEMM", 40.0, 4), ("element-wise", 5.0, 2)]
    assert (found.kernels_us, found.before_us, found.unexplained_us) == (45.0, 7.0, 3.0)
    assert (found.window_us, found.busy_us, found.idle_us, found.busy_share) == (150.0, 45.0, 105.0, 0.3)
    assert (found.traces, found.steps) == (2, 3.0)


def test_nothing_without_kernels() -> None:
    assert gpu_time(tables()) is None
    early = gpu_time(tables(kernels=[kernel(BEFORE, "Cijk_", 7.0)]))
    assert early is None


def test_a_call_is_named_after_its_main_kernel() -> None:
    """If a call launches several kernels, it is named after its main kernel, even if a helper seems to take longer.

    * The times of the main kernel are in two rows (5 + 5 µs), and a helper kernel has the longest single row (7 µs).
    * A kernel that transposes a tensor takes 9 µs, and the main kernel only 5 µs. A transpose is never the main kernel.
    """
    text, main, helper = gemm(1).text, "igemm_fwd_gtcx3_nhwc_fp16", "SubTensorOpWithScalar1d"
    rows = [
        kernel("aten::a", main, 5.0, text),
        kernel("aten::b", main, 5.0, text),
        kernel("aten::a", helper, 7.0, text),
    ]
    turned = [kernel("aten::a", main, 5.0, text), kernel("aten::a", "batched_transpose_32x32_half", 9.0, text)]
    for given in (rows, turned):
        held = tables(kernels=given, calls=[call(text, count=1, source_id="trace", category="profiler")])
        [row] = traced_calls(held.kernels, held.calls).to_dict("records")
        assert (row["kernel"], row["total_us"]) == (main, sum(float(str(x["total_us"])) for x in given))


def test_the_time_of_a_call() -> None:
    text = gemm(1).text
    rows = [kernel("aten::mm", "main", 30.0, text), kernel("aten::mm", "helper", 6.0, text)]
    given = tables(kernels=rows, calls=[call(text, count=3, source_id="trace", category="profiler")])
    [row] = traced_calls(given.kernels, given.calls).to_dict("records")
    assert (row["kernel"], row["total_us"], row["calls"], row["now_us"]) == ("main", 36.0, 3, 12.0)
    assert len(traced_calls(given.kernels, given.calls.iloc[:0])) == 0
