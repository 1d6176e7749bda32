"""A kernel of one's own in a replay: act(x·y + bias) in CUDA C++, compiled by torch.utils.cpp_extension.

    PYTHONPATH=docs/examples logparse replay --kind gemm --solution cuda_gemm:gemm --solution triton_gemm:gemm

The callable gets what that of ``triton_gemm.py`` gets.  It is compiled at its first call, which takes a minute with
``nvcc`` (``hipcc`` on ROCm) and is no part of any time.  One block computes a tile of 64 × 64, each thread 4 × 4 of it,
from tiles of both operands in shared memory, with sums in float32: the textbook's product, without matrix units.
"""

from functools import cache
from typing import Any

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <ATen/Dispatch.h>
#include <ATen/cuda/CUDAContext.h>
#include <torch/extension.h>

constexpr int TILE = 64, DEPTH = 16, EACH = 4;  // a block has 16 x 16 threads

template <typename T>
__global__ void product(const T* x, const T* y, const T* bias, T* out, int n, int m, int k, int64_t x_row,
                        int64_t x_col, int64_t y_row, int64_t y_col, int64_t out_row, int64_t out_col, bool relu) {
  __shared__ float left[TILE][DEPTH + 1], right[DEPTH][TILE + 1];
  const int row = blockIdx.y * TILE, col = blockIdx.x * TILE;
  const int thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
  float sum[EACH][EACH] = {};
  for (int at = 0; at < k; at += DEPTH) {
    for (int i = thread; i < TILE * DEPTH; i += threads) {
      const int r = row + i / DEPTH, inner = at + i % DEPTH;
      left[i / DEPTH][i % DEPTH] = r < n && inner < k ? static_cast<float>(x[r * x_row + inner * x_col]) : 0.f;
      const int c = col + i % TILE, depth = at + i / TILE;
      right[i / TILE][i % TILE] = c < m && depth < k ? static_cast<float>(y[depth * y_row + c * y_col]) : 0.f;
    }
    __syncthreads();
    for (int inner = 0; inner < DEPTH; ++inner)
      for (int i = 0; i < EACH; ++i)
        for (int j = 0; j < EACH; ++j)
          sum[i][j] += left[threadIdx.y * EACH + i][inner] * right[inner][threadIdx.x * EACH + j];
    __syncthreads();
  }
  for (int i = 0; i < EACH; ++i)
    for (int j = 0; j < EACH; ++j) {
      const int r = row + threadIdx.y * EACH + i, c = col + threadIdx.x * EACH + j;
      if (r >= n || c >= m) continue;
      float value = sum[i][j] + (bias ? static_cast<float>(bias[c]) : 0.f);
      if (relu && value < 0.f) value = 0.f;
      out[r * out_row + c * out_col] = static_cast<T>(value);
    }
}

void gemm(at::Tensor x, at::Tensor y, std::optional<at::Tensor> bias, at::Tensor out, bool relu) {
  const int n = x.size(0), k = x.size(1), m = y.size(1);
  const dim3 grid((m + TILE - 1) / TILE, (n + TILE - 1) / TILE), block(TILE / EACH, TILE / EACH);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "product", [&] {
    product<scalar_t><<<grid, block, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), bias ? bias->data_ptr<scalar_t>() : nullptr,
        out.data_ptr<scalar_t>(), n, m, k, x.stride(0), x.stride(1), y.stride(0), y.stride(1), out.stride(0),
        out.stride(1), relu);
  });
  TORCH_CHECK(cudaGetLastError() == cudaSuccess, "the launch failed");
}
"""
DECLARED = "void gemm(at::Tensor x, at::Tensor y, std::optional<at::Tensor> bias, at::Tensor out, bool relu);"


@cache
def _library() -> Any:
    return load_inline("logparse_cuda_gemm", cpp_sources=DECLARED, cuda_sources=SOURCE, functions=["gemm"])


def gemm(
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    bias: torch.Tensor | None,
    c: torch.Tensor | None,
    activation: str | None,
    out: torch.Tensor,
) -> None:
    """Fill ``out`` with act(x·y + bias).  Raises ValueError for what the kernel does not do."""
    if x.dim() != 2 or c is not None or activation not in (None, "none", "relu"):
        raise ValueError("one product with bias and relu at most")
    if x.dtype == torch.float64 or (bias is not None and (bias.dtype != x.dtype or not bias.is_contiguous())):
        raise ValueError("a bias of the operands' type, and no float64, whose sums are of float32 here")
    _library().gemm(x, y, bias, out, activation == "relu")
