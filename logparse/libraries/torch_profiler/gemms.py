"""Turn PyTorch's matrix products into the calls that the math library gets.

PyTorch's matrices are row-major.  BLAS gets the transposed product, so that rows become ``n`` and columns ``m``, except
if the result is column-major.  Transposition letters and leading dimensions follow from the inputs' strides, by
PyTorch's rules in ``aten/src/ATen/native/cuda/cuBlasCommonArgs.h`` (2-D) and ``Blas.cpp`` (batched).  If a size is 1,
the rules of ``CUDABlas.cpp`` apply.

=====================================  ===========================================================================
operator                               fields that stay None, because the operator alone does not hold them
=====================================  ===========================================================================
mm, bmm, _int_mm                       compute and scale type of f16_r and f32_r (they depend on settings)
addmm, linear                          also bias and beta: a vector is an epilogue or a copy and beta 1, as it fits
_scaled_mm                             also the scale modes that are no scalar and no row
=====================================  ===========================================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from logparse.libraries.kinds.dtypes import TORCH_TYPES
from logparse.libraries.torch_profiler.inputs import Inputs, Operation, contiguous_strides
from logparse.model import COMPLEX, NARROW, Beta, GemmProblem, Trans, with_plain

_TYPES = {x.cpp: x.blas for x in TORCH_TYPES if x.blas != "f4_r"}  # a size of f4_r is a number of pairs
OUTPUT_TYPES = {str(x.number): x.blas for x in TORCH_TYPES}

_COMPUTE = {"bf16_r": "f32_r", "f64_r": "f64_r", "i8_r": "i32_r"}
_SCALE = {"bf16_r": "f32_r", "f64_r": "f64_r"}


class _Matrix(NamedTuple):
    rows: int
    cols: int
    row_stride: int
    col_stride: int

    @property
    def contiguous(self) -> bool:
        """True if the matrix is row-major without gaps.  The stride of a dimension of size 1 does not matter."""
        return (self.cols == 1 or self.col_stride == 1) and (self.rows == 1 or self.row_stride == self.cols)

    @property
    def dense(self) -> bool:
        """True if the matrix has no gaps and no overlap, in row-major or column-major order."""
        turned = _Matrix(self.cols, self.rows, self.col_stride, self.row_stride)
        return self.contiguous or turned.contiguous


def _matrix(tensor: tuple[list[int], list[int]]) -> _Matrix:
    (rows, cols), (row_stride, col_stride) = tensor
    return _Matrix(rows, cols, row_stride, col_stride)


def _prepare_for_blas(x: _Matrix) -> tuple[bool, _Matrix]:
    """Return whether PyTorch passes a matrix to BLAS as a transposed one, and the matrix that it passes.

    A row-major matrix is passed as transposed.  If BLAS cannot read the strides of the matrix, PyTorch passes a copy
    without gaps.
    """
    if x.dense:
        return x.contiguous, x
    if x.row_stride == 1 and x.col_stride >= max(1, x.rows):
        return False, x
    if x.col_stride == 1 and x.row_stride >= max(1, x.cols):
        return True, x
    return True, _Matrix(x.rows, x.cols, x.cols, 1)


def _multiply(left: _Matrix, right: _Matrix, out: _Matrix | None, a_type: str) -> GemmProblem:
    """Return the matrix product that a BLAS library gets from PyTorch when PyTorch computes left · right.

    Without ``out`` PyTorch allocates the result, which is row-major without gaps.
    """
    if left.cols != right.rows:
        raise ValueError("the sizes do not fit")
    swapped, result = _prepare_for_blas(out or _Matrix(left.rows, right.cols, right.cols, 1))
    a_transposed, a = _prepare_for_blas(right if swapped else left)
    b_transposed, b = _prepare_for_blas(left if swapped else right)
    a_transposed, b_transposed = a_transposed != swapped, b_transposed != swapped
    m, n = (right.cols, left.rows) if swapped else (left.rows, right.cols)
    lda = a.col_stride if a_transposed == swapped else a.row_stride
    ldb = b.col_stride if b_transposed == swapped else b.row_stride
    ldc = result.row_stride if swapped else result.col_stride
    problem = _gemm(a_transposed, b_transposed, m, n, left.cols, (lda, ldb, ldc), a_type)
    return replace(problem, batch_count=1, stride_a=0, stride_b=0, stride_c=0, stride_d=0)


def _gemm(a_t: bool, b_t: bool, m: int, n: int, k: int, ld: tuple[int, int, int], a_type: str) -> GemmProblem:
    """Return a matrix product with the values that all of PyTorch's operators for matrix products have in common.

    If a size is 1, the leading dimensions follow PyTorch's own rules for this case.
    """
    lda, ldb, ldc = ld
    if n <= 1:
        ldc = max(m, 1)
    if (m if a_t else k) <= 1:
        lda = max(k if a_t else m, 1)
    if (k if b_t else n) <= 1:
        ldb = max(n if b_t else k, 1)
    fields: dict[str, Any] = {
        "trans_a": _letter(a_t, a_type),
        "trans_b": _letter(b_t, a_type),
        "m": m,
        "n": n,
        "k": k,
        "lda": lda,
        "ldb": ldb,
        "ldc": ldc,
        "ldd": ldc,
        **dict.fromkeys(("a_type", "b_type", "c_type", "d_type"), a_type),
        "compute_type": _COMPUTE.get(a_type),
        "scale_type": _SCALE.get(a_type),
        "activation": "none",
        **dict.fromkeys(("gradient", "aux", "scale_alpha_vector", "bias"), False),
        "beta": "zero",
    }
    return GemmProblem(**with_plain(fields))


def _letter(transposed: bool, a_type: str) -> Trans | None:
    if not transposed:
        return "N"
    return None if a_type in COMPLEX else "T"  # a conjugate view has the same strides as a transposed view


def type_of(text: str, types: Mapping[str, str] = _TYPES) -> str:
    if text not in types:
        raise ValueError(f"{text} is not the type of a GEMM")
    return types[text]


def mm(x: Inputs) -> Operation:
    out = _matrix(x.tensor(2)) if x.has(2) else None
    problem = _multiply(_matrix(x.tensor(0)), _matrix(x.tensor(1)), out, type_of(x.type(0)))
    if x.type(2) == "Scalar":  # mm(…, out_dtype=…)
        problem = replace(problem, d_type=OUTPUT_TYPES.get(x.value(2)), c_type=None)
    return Operation((problem,))


def int_mm(x: Inputs) -> Operation:
    (problem,) = mm(x).problems
    assert isinstance(problem, GemmProblem)
    return Operation((replace(problem, c_type="i32_r", d_type="i32_r"),))


def addmm(x: Inputs) -> Operation:
    out = _matrix(x.tensor(5)) if x.has(5) else None
    problem = _multiply(_matrix(x.tensor(1)), _matrix(x.tensor(2)), out, type_of(x.type(1)))
    if _number(x.value(3)) != 0:
        problem = replace(problem, bias=None, beta=None)
    return Operation((problem,))


def addmm_activation(x: Inputs) -> Operation:
    problem = _multiply(_matrix(x.tensor(1)), _matrix(x.tensor(2)), None, type_of(x.type(1)))
    return Operation((replace(problem, bias=None, beta=None, activation=None),))


def linear(x: Inputs) -> Operation:
    dims, strides = x.tensor(0)
    rows, k = math.prod(dims[:-1]), dims[-1]
    folded = _Matrix(rows, k, k, 1)
    weight = _matrix(x.tensor(1))
    turned = _Matrix(weight.cols, weight.rows, weight.col_stride, weight.row_stride)
    problem = _multiply(_matrix((dims, strides)) if len(dims) == 2 else folded, turned, None, type_of(x.type(0)))
    if len(dims) != 2 and strides != contiguous_strides(dims):
        problem = replace(problem, trans_b=None, ldb=None)
    if x.has(2):
        problem = replace(problem, bias=None, beta=None)
    return Operation((problem,))


def scaled_mm(x: Inputs) -> Operation:
    left, right = _matrix(x.tensor(0)), _matrix(x.tensor(1))
    a_type, b_type = type_of(x.type(1)), type_of(x.type(0))  # the right matrix is A of the BLAS call
    problem = _multiply(left, right, None, a_type)
    out_type = OUTPUT_TYPES.get(x.value(6)) if x.value(6) else b_type
    problem = replace(
        problem,
        b_type=b_type,
        c_type=None,
        d_type=out_type,
        compute_input_b_type=b_type,
        compute_type="f32_r",
        scale_type="f32_r",
        scale_a=_scale_mode(x.dims[3], right.cols),
        scale_b=_scale_mode(x.dims[2], left.rows),
        scale_d=None if out_type in NARROW else "none",
        bias=bool(x.dims[4]) if x.type(4) else False,
        bias_type=_TYPES.get(x.type(4)),
    )
    return Operation((problem,))


def _scale_mode(dims: object, size: int) -> str | None:
    if not isinstance(dims, list):
        return None
    count = math.prod(dims)
    if count == 1 and (size != 1 or len(dims) < 2):
        return "scalar"
    return "row" if sorted(dims) == sorted([1, size]) and size > 1 else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


# ------------------------------------------------------------------------------------------------- batches


_Batched: TypeAlias = tuple[list[int], list[int]]
"""The sizes and the strides of a batch of matrices."""


def _prepared_batch(x: _Batched, swapped: bool, m: int, n: int) -> tuple[bool, int, int]:
    """Return how PyTorch passes a batch of matrices to BLAS: transposed or not, leading dimension and batch stride.

    The batch stride is in elements.
    """
    (dims, strides), (fast, leading) = x, (2, 1) if swapped else (1, 2)
    if strides[fast] == 1 and strides[leading] >= max(1, m):
        return False, strides[leading], strides[0]
    if strides[leading] == 1 and strides[fast] >= max(1, n):
        return True, strides[fast], strides[0]
    return not swapped, dims[2], dims[1] * dims[2]


def _batched(left: _Batched, right: _Batched, out: _Batched | None, a_type: str) -> GemmProblem:
    batch, rows, k = left[0]
    cols = right[0][2]
    if right[0][:2] != [batch, k]:
        raise ValueError("the sizes do not fit")
    dims, strides = out or ([batch, rows, cols], [rows * cols, cols, 1])
    if strides[1] == 1 and (dims[2] == 1 or strides[2] >= max(1, dims[1])):
        swapped, ldc = False, strides[2]
    elif strides[2] == 1 and (dims[1] == 1 or strides[1] >= max(1, dims[2])):
        swapped, ldc = True, strides[1]
    else:
        swapped, ldc, strides = False, dims[1], [dims[1] * dims[2], 1, dims[1]]
    m, n = (cols, rows) if swapped else (rows, cols)
    a_t, lda, stride_a = _prepared_batch(right if swapped else left, swapped, m, k)
    b_t, ldb, stride_b = _prepared_batch(left if swapped else right, swapped, k, n)
    problem = _gemm(a_t, b_t, m, n, k, (lda, ldb, ldc), a_type)
    if batch == 1:
        return replace(problem, batch_count=1, stride_a=0, stride_b=0, stride_c=0, stride_d=0)
    steps = {"stride_a": stride_a, "stride_b": stride_b, "stride_c": strides[0], "stride_d": strides[0]}
    return replace(problem, batch_count=batch, batch_mode="strided", **steps)  # type: ignore[arg-type]


def _batch(x: Inputs, i: int) -> _Batched:
    if len(x.tensor(i)[0]) != 3:
        raise ValueError("not a batch of matrices")
    return x.tensor(i)


def bmm(x: Inputs) -> Operation:
    out = _batch(x, 2) if x.has(2) else None
    return Operation((_batched(_batch(x, 0), _batch(x, 1), out, type_of(x.type(0))),))


def baddbmm(x: Inputs) -> Operation:
    out = _batch(x, 5) if x.has(5) else None
    problem = _batched(_batch(x, 1), _batch(x, 2), out, type_of(x.type(1)))
    factor = _number(x.value(3))
    beta: Beta | None = None if factor is None else "zero" if factor == 0 else "nonzero"
    return Operation((replace(problem, beta=beta),))


def matmul(x: Inputs) -> Operation:
    return bmm(x) if len(x.tensor(0)[0]) == 3 else mm(x)
