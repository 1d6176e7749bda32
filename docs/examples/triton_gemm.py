"""A kernel of one's own in a replay: act(x·y + bias) in Triton, as one kernel.

    PYTHONPATH=docs/examples logparse replay --kind gemm --solution triton_gemm:gemm

The callable gets what the library's call would get, as torch tensors on the device: ``x`` (n×k) and ``y`` (k×m) with
the problem's own strides, ``out`` (n×m, full of NaN), and ``bias``, ``c`` and ``activation`` where the problem has
them.  It races, is checked and confirmed like any other solution, and stands in the store as
``kernel:triton_gemm:gemm``.  What it does not do it refuses by raising: that is recorded as its failure, and the replay
goes on.
"""

import torch
import triton
import triton.language as tl

# ruff: noqa: N803 (constants of a Triton kernel are in capitals)

ROWS, COLUMNS, DEPTH = 128, 128, 64


@triton.jit
def _kernel(
    x, y, bias, out, n, m, k, x_row, x_col, y_row, y_col, out_row, out_col,
    HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    col = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    depth = tl.arange(0, DEPTH)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for at in range(0, k, DEPTH):
        inner = at + depth
        left = tl.load(
            x + row[:, None] * x_row + inner[None, :] * x_col, mask=(row[:, None] < n) & (inner[None, :] < k), other=0.0
        )
        right = tl.load(
            y + inner[:, None] * y_row + col[None, :] * y_col, mask=(inner[:, None] < k) & (col[None, :] < m), other=0.0
        )
        total = tl.dot(left, right, total)
    if HAS_BIAS:
        total += tl.load(bias + col, mask=col < m, other=0.0).to(tl.float32)[None, :]
    if ACTIVATION == "relu":
        total = tl.maximum(total, 0.0)
    if ACTIVATION == "gelu":  # the tanh form, as the libraries' epilogues
        inside = 0.7978845608028654 * (total + 0.044715 * total * total * total)
        total = total * tl.sigmoid(2.0 * inside)
    tl.store(
        out + row[:, None] * out_row + col[None, :] * out_col, total.to(out.dtype.element_ty),
        mask=(row[:, None] < n) & (col[None, :] < m),
    )  # fmt: skip


def gemm(
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    bias: torch.Tensor | None,
    c: torch.Tensor | None,
    activation: str | None,
    out: torch.Tensor,
) -> None:
    """Fill ``out`` with act(x·y + bias).  Raises ValueError for a batch, a matrix C or another activation."""
    if x.dim() != 2 or c is not None or activation not in (None, "none", "relu", "gelu"):
        raise ValueError("one product with bias and relu or gelu at most")
    n, k = x.shape
    m = y.shape[1]
    grid = (triton.cdiv(n, ROWS), triton.cdiv(m, COLUMNS))
    _kernel[grid](
        x, y, x if bias is None else bias, out, n, m, k, *x.stride(), *y.stride(), *out.stride(),
        bias is not None, activation or "none", ROWS, COLUMNS, DEPTH, num_warps=8, num_stages=3,
    )  # fmt: skip
