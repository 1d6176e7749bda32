"""Matrix products of inference engines: custom operators of aiter, vLLM and SGLang, and the products that they compute.

These operators compute Y[M,N] = X[M,K]·W.  The weights W are stored as N×K (``linear``) or as a K×N view of N×K
(``scaled_mm``).  4-bit values are stored in pairs.  For every kernel the problem is described as the column-major BLAS
call of the same product (see ``gemms``).  So it can be linked to aiter's tables and to the rows of a BLAS library.  The
scale modes follow from the sizes of the scales:

| scales | mode |
|---|---|
| one value | ``scalar`` |
| one per row | ``row`` |
| others | ``block`` with the values per scale (``block128x128`` for two dimensions) |

Argument orders: ROCm/aiter ``aiter/tuned_gemm.py``, ``aiter/ops/gemm_op_a8w8.py``, ``gemm_op_a4w4.py``,
``gemm_op_a16w16.py``; vllm-project/vllm ``vllm/model_executor/layers/utils.py``, ``vllm/_aiter_ops.py``,
``csrc/torch_bindings.cpp``; sgl-project/sglang ``sgl-kernel/csrc/common_extension.cc``; AMD-AGI/TraceLens
``TraceLens/PerfModel/extensions/perf_model_extensions.py`` (the content of real traces).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from logparse.libraries.kinds.dtypes import TORCH_TYPES
from logparse.libraries.torch_profiler import gemms
from logparse.libraries.torch_profiler.inputs import Inputs, Operation, Reader, contiguous_strides
from logparse.model import NARROW, GemmProblem

_TYPES = {x.cpp: x.blas for x in TORCH_TYPES}


@dataclass(frozen=True)
class Product:
    """Describes the inputs of an operator of a serving engine that computes a matrix product: which argument is which.

    Each number is the position of an argument.  None means that the operator has no such argument.

    * ``bias``: the positions at which the bias may be, because versions differ.  An input there is the bias if it is a
      tensor.
    * ``columns``: True if the weights are a K×N view.
    * ``pairs``: True if an element of the inputs is two 4-bit values.
    * ``swizzled``: True if the weights were shuffled before.  None if this is unknown.
    """

    x: int = 0
    w: int = 1
    bias: tuple[int, ...] = ()
    x_scale: int | None = None
    w_scale: int | None = None
    out: int | None = None
    out_type: int | None = None
    columns: bool = False
    pairs: bool = False
    swizzled: bool | None = None


def product(at: Product) -> Reader:
    """Return a function that reads a matrix product from the recorded inputs of a serving engine's operator.

    ``at`` states the positions of the inputs, for example of the weights and of their scale.
    """

    def read(x: Inputs) -> Operation:
        (problem,) = _plain(x, at).problems
        assert isinstance(problem, GemmProblem)
        m, n, k = int(problem.m or 0), int(problem.n or 0), int(problem.k or 0)
        a_type = "f4_r" if at.pairs else gemms.type_of(x.type(at.w), _TYPES)
        b_type = "f4_r" if at.pairs else gemms.type_of(x.type(at.x), _TYPES)
        biased = any(map(x.has, at.bias))
        out = _out_type(x, at)
        changes: dict[str, object] = {
            "a_type": a_type, "b_type": b_type, "c_type": out, "d_type": out, "bias": None if biased else False,
            "beta": None if biased else "zero", "swizzle_a": at.swizzled, "scale_d": None if out in NARROW else "none",
            "compute_input_a_type": a_type, "compute_input_b_type": b_type,
        }  # fmt: skip
        if a_type in NARROW:
            changes |= {"compute_type": "i32_r" if a_type == "i8_r" else "f32_r", "scale_type": "f32_r"}
            changes |= {"scale_a": _scale(x, at.w_scale, m, k), "scale_b": _scale(x, at.x_scale, n, k)}
        return Operation((replace(problem, **changes),))  # type: ignore[arg-type]

    return read


def _plain(x: Inputs, at: Product) -> Operation:
    """Return the sizes and layout of the matrix product that an inference engine's operator computes.

    The product is described as if PyTorch's ``linear`` computed it, with one type for all matrices.
    """
    dims, strides = x.tensor(at.x)
    w_dims, w_strides = x.tensor(at.w)
    if len(w_dims) != 2:
        raise ValueError("no matrix of weights")
    if at.columns:
        w_dims, w_strides = w_dims[::-1], w_strides[::-1]
    if at.pairs:
        dims, w_dims = [*dims[:-1], 2 * dims[-1]], [w_dims[0], 2 * w_dims[1]]
        strides, w_strides = contiguous_strides(dims), contiguous_strides(w_dims)
    kind = "c10::BFloat16"  # any type is right here, because the layout does not depend on the type
    return gemms.linear(Inputs([dims, w_dims], [strides, w_strides], [kind, kind], ["", ""]))


def _out_type(x: Inputs, at: Product) -> str | None:
    """Return the data type of a matrix product's result, or None if it is unknown."""
    # It is the type of the output tensor, or the type that an argument names. If the call has neither, it is the type
    # of the input, unless the input has 8 bits or fewer.
    if at.out is not None:
        return gemms.type_of(x.type(at.out), _TYPES) if x.type(at.out) else None
    if at.out_type is not None and x.value(at.out_type):
        return gemms.OUTPUT_TYPES.get(x.value(at.out_type))
    plain = None if at.pairs else gemms.type_of(x.type(at.x), _TYPES)
    return None if plain in NARROW else plain


def _scale(x: Inputs, at: int | None, rows: int, k: int) -> str | None:
    """Tell how a matrix of ``rows`` by ``k`` values is scaled, from the shape of its tensor of scale factors.

    For example, the result is ``row`` if each row has a factor of its own.
    """
    dims = x.dims[at] if at is not None and at < len(x.dims) else None
    if not isinstance(dims, list) or not all(isinstance(size, int) and size > 0 for size in dims):
        return None
    sizes = [size for size in dims if size > 1]
    if not sizes:
        return "scalar"
    if sizes == [rows]:
        return "row"
    if len(dims) != 2:
        return None
    per_row, per_k = -(-rows // dims[0]), -(-k // dims[1])
    return f"block{per_k}" if per_row == 1 else f"block{per_row}x{per_k}"


_8_BIT = Product(x_scale=2, w_scale=3, out=4, bias=(5,))
_4_BIT = Product(x_scale=2, w_scale=3, out=4, bias=(5, 6), pairs=True)
_FP8 = Product(x_scale=2, w_scale=3)
_SCALED_MM = Product(x_scale=2, w_scale=3, out_type=4, bias=(5,), columns=True, swizzled=False)

PRODUCTS: Mapping[str, Product] = {
    "aiter::gemm_a16w16": Product(bias=(2,), out_type=3),
    "aiter::gemm_a16w16_asm": Product(out=2, bias=(3,)),
    "aiter::_gemm_a16w16_asm": Product(out=2, bias=(4,)),  # a semaphore comes before the bias
    "aiter::gemm_a8w8_ck": replace(_8_BIT, swizzled=False),
    "aiter::gemm_a8w8_blockscale_ck": replace(_8_BIT, swizzled=False),
    "aiter::gemm_a8w8_blockscale_cktile": replace(_8_BIT, swizzled=False),
    "aiter::flatmm_a8w8_blockscale_asm": _8_BIT,
    "aiter::gfx950_a8w8_blockscale_asm": _8_BIT,
    "aiter::gemm_a8w8_bpreshuffle_ck": replace(_8_BIT, swizzled=True),
    "aiter::gemm_a8w8_bpreshuffle_cktile": replace(_8_BIT, swizzled=True),
    "aiter::gemm_a8w8_blockscale_bpreshuffle_ck": replace(_8_BIT, swizzled=True),
    "aiter::gemm_a8w8_blockscale_bpreshuffle_cktile": replace(_8_BIT, swizzled=True),
    "aiter::gemm_a4w4": Product(x_scale=2, w_scale=3, pairs=True),
    "aiter::gemm_a4w4_asm": _4_BIT,
    "aiter::_gemm_a4w4_asm": _4_BIT,
    "aiter::gemm_a4w4_blockscale": _4_BIT,
    "vllm::rocm_unquantized_gemm": Product(bias=(2,)),
    "vllm::rocm_aiter_gemm_a8w8": Product(x_scale=2, w_scale=3, bias=(4,), out_type=5),
    "vllm::rocm_aiter_gemm_w8a8": Product(x_scale=2, w_scale=3, bias=(4,), out_type=5),
    "vllm::rocm_aiter_gemm_a8w8_blockscale": _FP8,
    "vllm::rocm_aiter_gemm_w8a8_blockscale": _FP8,
    "vllm::rocm_aiter_triton_gemm_a8w8_blockscale": _FP8,
    "_C::cutlass_scaled_mm": Product(x=1, w=2, x_scale=3, w_scale=4, bias=(5,), out=0, columns=True, swizzled=False),
    "sgl_kernel::fp8_scaled_mm": _SCALED_MM,
    "sgl_kernel::int8_scaled_mm": _SCALED_MM,
    "sgl_kernel::fp8_blockwise_scaled_mm": replace(_SCALED_MM, bias=()),
}
"""For each operator name, where the inputs of its matrix product are.

Fused MoE is not in the table, because it is not one product.  For its kernels only the operator's name is kept.
"""
