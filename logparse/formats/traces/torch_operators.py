"""What a PyTorch operator asks of the math library: inputs of a profiler event to a problem.

PyTorch's matrices are row-major; BLAS is told the transposed product, so that rows become ``n`` and columns ``m``
(except where the result is column-major).  Transposition letters and leading dimensions follow from the inputs' strides
by the rules of PyTorch ``aten/src/ATen/native/cuda/cuBlasCommonArgs.h`` (2-D) and ``Blas.cpp`` (batched), and
``CUDABlas.cpp`` where a size is 1.

=====================================  ===========================================================================
operator                               fields that stay None, because the operator alone does not tell
=====================================  ===========================================================================
mm, bmm, _int_mm                       compute and scale type of f16_r and f32_r (they depend on settings)
addmm, linear                          also bias and beta: a vector is an epilogue or a copy and beta 1, as it fits
_scaled_mm                             also the scale modes that are no scalar and no row
convolutions                           layouts where input and weights differ: the library converts one of them
=====================================  ===========================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from logparse.model import COMPLEX, Beta, ConvProblem, Direction, GemmProblem, Problem, Trans

GEMM_TYPES: Mapping[str, str] = {
    "float": "f32_r",
    "double": "f64_r",
    "c10::Half": "f16_r",
    "c10::BFloat16": "bf16_r",
    "c10::complex<float>": "f32_c",
    "c10::complex<double>": "f64_c",
    "signed char": "i8_r",
    "int": "i32_r",
    "c10::Float8_e4m3fn": "f8_r",
    "c10::Float8_e5m2": "bf8_r",
    "c10::Float8_e4m3fnuz": "f8_fnuz_r",
    "c10::Float8_e5m2fnuz": "bf8_fnuz_r",
}
"""Names of C++ types, as ``Input type`` prints them."""

_SCALAR_TYPES: Mapping[str, str] = {
    "5": "f16_r",
    "6": "f32_r",
    "7": "f64_r",
    "15": "bf16_r",
    "23": "bf8_r",
    "24": "f8_r",
    "25": "bf8_fnuz_r",
    "26": "f8_fnuz_r",
}
"""``c10::ScalarType`` as a number, as ``Concrete Inputs`` prints an output type."""

CONV_TYPES: Mapping[str, str] = {
    "float": "FP32",
    "double": "FP64",
    "c10::Half": "FP16",
    "c10::BFloat16": "BF16",
    "signed char": "INT8",
}

_COMPUTE = {"bf16_r": "f32_r", "f64_r": "f64_r", "i8_r": "i32_r"}
_SCALE = {"bf16_r": "f32_r", "f64_r": "f64_r"}


@dataclass(frozen=True)
class Operation:
    """What one operator computes: one problem, or those of the gradients that a convolution's backward ran.

    ``problems`` are in the order in which PyTorch computes them (input gradient first); ``whole`` stands for all of
    them together, None where the model has no word for that.
    """

    problems: tuple[Problem, ...]
    whole: Problem | None = None


@dataclass(frozen=True)
class _Inputs:
    dims: Sequence[Any]
    strides: Sequence[Any]
    types: Sequence[Any]
    values: Sequence[Any]

    def tensor(self, i: int) -> tuple[list[int], list[int]]:
        """Sizes and strides of input ``i``.  Raises ValueError where there is no such tensor."""
        dims, strides = self.dims[i], self.strides[i]
        good = isinstance(dims, list) and isinstance(strides, list) and len(dims) == len(strides)
        if not good or not all(isinstance(x, int) and x >= 0 for x in [*dims, *strides]):
            raise ValueError(f"input {i} is no tensor")
        return dims, strides

    def value(self, i: int) -> str:
        return str(self.values[i]) if i < len(self.values) else ""

    def type(self, i: int) -> str:
        return str(self.types[i]) if i < len(self.types) else ""


_Reader = Callable[[_Inputs], "Operation | None"]


def operation(name: str, args: Mapping[str, Any]) -> Operation | None:
    """What the operator ``name`` (``aten::mm`` …) computes; None where the event does not say enough.

    ``args`` are the event's arguments; shapes are only there when the profiler ran with ``record_shapes=True``.
    """
    reader = OPERATORS.get(name)
    parts = [args.get(key) for key in ("Input Dims", "Input Strides", "Input type", "Concrete Inputs")]
    if reader is None or not all(isinstance(part, list) for part in parts[:3]):
        return None
    dims, strides, types, values = (part if isinstance(part, list) else [] for part in parts)
    try:
        return reader(_Inputs(dims, strides, types, values))
    except (ValueError, IndexError, OverflowError):
        return None


# ------------------------------------------------------------------------------------------------- matrices


class _Matrix(NamedTuple):
    rows: int
    cols: int
    row_stride: int
    col_stride: int

    @property
    def contiguous(self) -> bool:
        """Row-major without gaps; strides of sizes of 1 do not matter."""
        return (self.cols == 1 or self.col_stride == 1) and (self.rows == 1 or self.row_stride == self.cols)

    @property
    def dense(self) -> bool:
        """No gaps and no overlap, in either order."""
        turned = _Matrix(self.cols, self.rows, self.col_stride, self.row_stride)
        return self.contiguous or turned.contiguous


def _matrix(tensor: tuple[list[int], list[int]]) -> _Matrix:
    (rows, cols), (row_stride, col_stride) = tensor
    return _Matrix(rows, cols, row_stride, col_stride)


def _prepared(x: _Matrix) -> tuple[bool, _Matrix]:
    """Whether BLAS sees the matrix transposed (it is row-major), and the matrix after a copy, if one is needed."""
    if x.dense:
        return x.contiguous, x
    if x.row_stride == 1 and x.col_stride >= max(1, x.rows):
        return False, x
    if x.col_stride == 1 and x.row_stride >= max(1, x.cols):
        return True, x
    return True, _Matrix(x.rows, x.cols, x.cols, 1)


def _multiply(left: _Matrix, right: _Matrix, out: _Matrix | None, a_type: str) -> GemmProblem:
    """The BLAS call of left · right.  Without ``out`` the result is new: row-major without gaps."""
    if left.cols != right.rows:
        raise ValueError("the sizes do not fit")
    swapped, result = _prepared(out or _Matrix(left.rows, right.cols, right.cols, 1))
    a_transposed, a = _prepared(right if swapped else left)
    b_transposed, b = _prepared(left if swapped else right)
    a_transposed, b_transposed = a_transposed != swapped, b_transposed != swapped
    m, n = (right.cols, left.rows) if swapped else (left.rows, right.cols)
    lda = a.col_stride if a_transposed == swapped else a.row_stride
    ldb = b.col_stride if b_transposed == swapped else b.row_stride
    ldc = result.row_stride if swapped else result.col_stride
    problem = _gemm(a_transposed, b_transposed, m, n, left.cols, (lda, ldb, ldc), a_type)
    return replace(problem, batch_count=1, stride_a=0, stride_b=0, stride_c=0, stride_d=0)


def _gemm(a_t: bool, b_t: bool, m: int, n: int, k: int, ld: tuple[int, int, int], a_type: str) -> GemmProblem:
    """Fields that every product has; leading dimensions are set right where a size is 1, as PyTorch does."""
    lda, ldb, ldc = ld
    if n <= 1:
        ldc = max(m, 1)
    if (m if a_t else k) <= 1:
        lda = max(k if a_t else m, 1)
    if (k if b_t else n) <= 1:
        ldb = max(n if b_t else k, 1)
    return GemmProblem(
        trans_a=_letter(a_t, a_type),
        trans_b=_letter(b_t, a_type),
        m=m,
        n=n,
        k=k,
        lda=lda,
        ldb=ldb,
        ldc=ldc,
        ldd=ldc,  # type: ignore[arg-type]
        **dict.fromkeys(("a_type", "b_type", "c_type", "d_type"), a_type),  # type: ignore[arg-type]
        compute_type=_COMPUTE.get(a_type),
        scale_type=_SCALE.get(a_type),
        activation="none",
        gradient=False,
        aux=False,
        scale_alpha_vector=False,
        bias=False,
        beta="zero",
    )


def _letter(transposed: bool, a_type: str) -> Trans | None:
    if not transposed:
        return "N"
    return None if a_type in COMPLEX else "T"  # a conjugate view has the strides of a plain one


def _type(text: str) -> str:
    if text not in GEMM_TYPES:
        raise ValueError(f"no type of a GEMM: {text}")
    return GEMM_TYPES[text]


def _mm(x: _Inputs) -> Operation:
    out = _matrix(x.tensor(2)) if len(x.dims) > 2 and x.dims[2] else None
    problem = _multiply(_matrix(x.tensor(0)), _matrix(x.tensor(1)), out, _type(x.type(0)))
    if x.type(2) == "Scalar":  # mm(…, out_dtype=…)
        problem = replace(problem, d_type=_SCALAR_TYPES.get(x.value(2)), c_type=None)
    return Operation((problem,))


def _int_mm(x: _Inputs) -> Operation:
    (problem,) = _mm(x).problems
    assert isinstance(problem, GemmProblem)
    return Operation((replace(problem, c_type="i32_r", d_type="i32_r"),))


def _addmm(x: _Inputs) -> Operation:
    out = _matrix(x.tensor(5)) if len(x.dims) > 5 and x.dims[5] else None
    problem = _multiply(_matrix(x.tensor(1)), _matrix(x.tensor(2)), out, _type(x.type(1)))
    if _number(x.value(3)) != 0:
        problem = replace(problem, bias=None, beta=None)
    return Operation((problem,))


def _addmm_activation(x: _Inputs) -> Operation:
    problem = _multiply(_matrix(x.tensor(1)), _matrix(x.tensor(2)), None, _type(x.type(1)))
    return Operation((replace(problem, bias=None, beta=None, activation=None),))


def _linear(x: _Inputs) -> Operation:
    dims, strides = x.tensor(0)
    rows, k = math.prod(dims[:-1]), dims[-1]
    folded = _Matrix(rows, k, k, 1)
    weight = _matrix(x.tensor(1))
    turned = _Matrix(weight.cols, weight.rows, weight.col_stride, weight.row_stride)
    problem = _multiply(_matrix((dims, strides)) if len(dims) == 2 else folded, turned, None, _type(x.type(0)))
    if len(dims) != 2 and strides != _contiguous(dims):
        problem = replace(problem, trans_b=None, ldb=None)
    if len(x.dims) > 2 and x.dims[2]:
        problem = replace(problem, bias=None, beta=None)
    return Operation((problem,))


def _scaled_mm(x: _Inputs) -> Operation:
    left, right = _matrix(x.tensor(0)), _matrix(x.tensor(1))
    a_type, b_type = _type(x.type(1)), _type(x.type(0))  # BLAS' A is the right matrix
    problem = _multiply(left, right, None, a_type)
    out_type = _SCALAR_TYPES.get(x.value(6)) if x.value(6) else b_type
    return Operation(
        (
            replace(
                problem,
                b_type=b_type,
                c_type=None,
                d_type=out_type,
                compute_type="f32_r",
                scale_type="f32_r",
                scale_a=_scale_mode(x.dims[3], right.cols),
                scale_b=_scale_mode(x.dims[2], left.rows),
                bias=bool(x.dims[4]) if x.type(4) else False,
                bias_type=GEMM_TYPES.get(x.type(4)),
            ),
        )
    )


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


class _Batched(NamedTuple):
    dims: list[int]
    strides: list[int]


def _prepared_batch(x: _Batched, swapped: bool, m: int, n: int) -> tuple[bool, int, int]:
    """Whether BLAS is told to transpose, the leading dimension and the batch stride."""
    fast, leading = (2, 1) if swapped else (1, 2)
    if x.strides[fast] == 1 and x.strides[leading] >= max(1, m):
        return False, x.strides[leading], x.strides[0]
    if x.strides[leading] == 1 and x.strides[fast] >= max(1, n):
        return True, x.strides[fast], x.strides[0]
    return not swapped, x.dims[2], x.dims[1] * x.dims[2]


def _batched(left: _Batched, right: _Batched, out: _Batched | None, a_type: str) -> GemmProblem:
    batch, rows, k = left.dims
    cols = right.dims[2]
    if right.dims[:2] != [batch, k]:
        raise ValueError("the sizes do not fit")
    dims, strides = out or _Batched([batch, rows, cols], [rows * cols, cols, 1])
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


def _batch(x: _Inputs, i: int) -> _Batched:
    dims, strides = x.tensor(i)
    if len(dims) != 3:
        raise ValueError("no batch of matrices")
    return _Batched(dims, strides)


def _bmm(x: _Inputs) -> Operation:
    out = _batch(x, 2) if len(x.dims) > 2 and x.dims[2] else None
    return Operation((_batched(_batch(x, 0), _batch(x, 1), out, _type(x.type(0))),))


def _baddbmm(x: _Inputs) -> Operation:
    out = _batch(x, 5) if len(x.dims) > 5 and x.dims[5] else None
    problem = _batched(_batch(x, 1), _batch(x, 2), out, _type(x.type(1)))
    factor = _number(x.value(3))
    beta: Beta | None = None if factor is None else "zero" if factor == 0 else "nonzero"
    return Operation((replace(problem, beta=beta),))


def _matmul(x: _Inputs) -> Operation:
    return _bmm(x) if len(x.dims[0]) == 3 else _mm(x)


# ------------------------------------------------------------------------------------------------- convolutions


@dataclass(frozen=True)
class _Places:
    """At which input a forward operator has what.  ``groups`` -1: as many as channels; -2: one."""

    stride: int
    padding: int
    dilation: int
    groups: int
    transposed: bool | int = False  # the input that tells, or whether it always is
    fused: bool = False


def _ints(text: str, count: int) -> list[int]:
    """A list as ``Concrete Inputs`` prints it; one number stands for every dimension."""
    if not (text.startswith("[") and text.endswith("]")):
        raise ValueError(f"no list: {text[:80]}")
    values = [int(part) for part in text[1:-1].split(",")]
    if len(values) == 1:
        values *= count
    if len(values) != count:
        raise ValueError(f"{len(values)} numbers for {count} dimensions")
    return values


def _contiguous(dims: Sequence[int]) -> list[int]:
    return [math.prod(dims[i + 1 :]) for i in range(len(dims))]


def _layout(tensor: tuple[list[int], list[int]]) -> str | None:
    """NCHW or NHWC as the strides say, by PyTorch's own rule for ambiguous ones (``c10/core/MemoryFormat.h``)."""
    dims, strides = tensor
    plain, last = {3: ("NCHW", "NHWC"), 4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}[len(dims)]
    least = 0
    for i in (1, *range(len(dims) - 1, 1, -1), 0):
        if strides[i] < least or (i == 0 and least == strides[1]):
            tight = zip(dims, strides, _contiguous(dims), strict=True)
            return plain if all(size == 1 or stride == want for size, stride, want in tight) else None
        least = strides[i] * max(dims[i], 1)
    return last


def _convolution(
    x: _Inputs, at: _Places, input_: int, weight: int, grad_output: int | None
) -> tuple[dict[str, Any], bool]:
    """Fields of the forward problem that the library solves, and whether it is a transposed operator.

    A transposed convolution is computed as the input gradient of the plain one whose output is its input.
    """
    dims, weights = x.tensor(input_)[0], x.tensor(weight)[0]
    spatial = len(dims) - 2
    if spatial not in (1, 2, 3) or len(weights) != len(dims):
        raise ValueError("no image")
    one_d, rank = spatial == 1, max(spatial, 2)
    stride = _ints(x.value(at.stride), spatial)
    padding = _ints(x.value(at.padding), spatial)
    dilation = _ints(x.value(at.dilation), spatial) if at.dilation >= 0 else [1] * spatial
    transposed = x.value(at.transposed) == "True" if type(at.transposed) is int else bool(at.transposed)
    groups = {-1: dims[1], -2: 1}.get(at.groups) or int(x.value(at.groups))
    reach = [d * (f - 1) for d, f in zip(dilation, weights[2:], strict=True)]
    if grad_output is not None:
        out = x.tensor(grad_output)[0][2:]
    elif transposed:
        raise ValueError("the output's size of a transposed convolution depends on more than its inputs")
    else:
        out = [(i + 2 * p - r - 1) // s + 1 for i, p, r, s in zip(dims[2:], padding, reach, stride, strict=True)]
    inner, outer = (out, dims[2:]) if transposed else (dims[2:], out)
    c, k = (weights[1] * groups, weights[0]) if transposed else (dims[1], weights[0])
    if one_d:  # PyTorch runs a 1-D convolution as 2-D with height 1
        inner, outer, filter_ = [1, *inner], [1, *outer], [1, *weights[2:]]
        stride, padding, dilation = [1, *stride], [0, *padding], [1, *dilation]
    else:
        filter_ = weights[2:]
    values: dict[str, Any] = {"spatial": rank, "n": dims[0], "c": c, "k": k, "groups": groups}
    for stem, numbers in {"": inner, "out_": outer, "filter_": filter_}.items():
        values |= dict(zip((f"{stem}{axis}" for axis in "dhw"[3 - rank :]), numbers, strict=True))
    for stem, numbers in {"stride_": stride, "pad_": padding, "dilation_": dilation}.items():
        values |= dict(zip((f"{stem}{axis}" for axis in "dhw"[3 - rank :]), numbers, strict=True))
    in_type = CONV_TYPES.get(x.type(input_))
    values |= {"in_type": in_type, "weights_type": CONV_TYPES.get(x.type(weight)), "out_type": in_type}
    values |= {"mode": "convolution", "bias": None if at.fused else 0}
    return values, transposed


def _layouts(x: _Inputs, tensors: Sequence[int], library_converts: bool) -> dict[str, Any]:
    """Layouts where all tensors agree, else unknown: the library's wrapper turns one of them."""
    found = {_layout(x.tensor(i)) for i in tensors}
    one = found.pop() if len(found) == 1 else None
    if library_converts and one not in ("NCHW", "NCDHW"):  # MIOpen is given NHWC only where a setting says so
        one = None
    return dict.fromkeys(("in_layout", "weights_layout", "out_layout"), one)


def _forward(at: _Places, miopen: bool = False) -> _Reader:
    def read(x: _Inputs) -> Operation:
        values, _ = _convolution(x, at, 0, 1, None)
        return Operation((ConvProblem(direction="F", **values, **_layouts(x, (0, 1), miopen)),))

    return read


def _forward_transposed(at: _Places) -> _Reader:
    """The operator has no output among its inputs; its size follows from ``output_padding`` before ``stride``."""

    def read(x: _Inputs) -> Operation:
        dims, weights = x.tensor(0)[0], x.tensor(1)[0]
        spatial = len(dims) - 2
        extra = _ints(x.value(at.stride - 1), spatial)
        numbers = [_ints(x.value(i), spatial) for i in (at.stride, at.padding, at.dilation)]
        out = [
            (i - 1) * s - 2 * p + d * (f - 1) + e + 1
            for i, f, e, s, p, d in zip(dims[2:], weights[2:], extra, *numbers, strict=True)
        ]
        groups = int(x.value(at.groups))
        size = [dims[0], weights[1] * groups, *out]
        whole = _Inputs([*x.dims, size], [*x.strides, _contiguous(size)], x.types, x.values)
        values, _ = _convolution(whole, at, 0, 1, len(x.dims))
        return Operation((ConvProblem(direction="B", **values, **_layouts(x, (0, 1), True)),))

    return read


def _backward(shift: int) -> _Reader:
    """convolution_backward(grad_output, input, weight, [bias_sizes,] stride, padding, dilation, transposed, …)."""
    at = _Places(stride=3 + shift, padding=4 + shift, dilation=5 + shift, groups=8 + shift, transposed=6 + shift)

    def read(x: _Inputs) -> Operation | None:
        values, transposed = _convolution(x, at, 1, 2, 0)
        values |= _layouts(x, (0, 1, 2), True)
        mask = [part.strip() == "True" for part in x.value(9 + shift).strip("[]").split(",")]
        names: tuple[Direction, Direction] = ("F" if transposed else "B", "W")
        ran = [name for name, did in zip(names, mask[:2], strict=True) if did]
        problems = tuple(ConvProblem(direction=name, **values) for name in ran)
        if not problems:
            return None
        both: Literal["B+W"] = "B+W"
        whole = ConvProblem(direction=both, **values) if len(ran) == 2 and not transposed else None
        return Operation(problems, whole if len(ran) == 2 else problems[0])

    return read


_PLAIN = _Places(stride=3, padding=4, dilation=5, groups=8, transposed=6)
_FUSED = _Places(stride=3, padding=4, dilation=5, groups=6, fused=True)
_FUSED_ADD = _Places(stride=5, padding=6, dilation=7, groups=8, fused=True)
_MIOPEN = _Places(padding=3, stride=4, dilation=5, groups=6)
_DEPTHWISE = _Places(stride=4, padding=5, dilation=6, groups=-1)

OPERATORS: Mapping[str, _Reader] = {
    "aten::mm": _mm,
    "aten::_int_mm": _int_mm,
    "aten::addmm": _addmm,
    "aten::_addmm_activation": _addmm_activation,
    "aten::bmm": _bmm,
    "aten::baddbmm": _baddbmm,
    "aten::linear": _linear,
    "aten::matmul": _matmul,
    "aten::_scaled_mm": _scaled_mm,
    "aten::convolution": _forward(_PLAIN),
    "aten::_convolution": _forward(_PLAIN),
    "aten::convolution_overrideable": _forward(_PLAIN),
    "aten::cudnn_convolution": _forward(_Places(padding=2, stride=3, dilation=4, groups=5)),
    "aten::cudnn_convolution_relu": _forward(_FUSED),
    "aten::cudnn_convolution_add_relu": _forward(_FUSED_ADD),
    "aten::cudnn_convolution_transpose": _forward_transposed(
        _Places(padding=2, stride=4, dilation=5, groups=6, transposed=True)
    ),
    "aten::miopen_convolution": _forward(_MIOPEN, miopen=True),
    "aten::miopen_depthwise_convolution": _forward(_MIOPEN, miopen=True),
    "aten::miopen_convolution_relu": _forward(_FUSED, miopen=True),
    "aten::miopen_convolution_add_relu": _forward(_FUSED_ADD, miopen=True),
    "aten::miopen_convolution_transpose": _forward_transposed(
        _Places(padding=3, stride=5, dilation=6, groups=7, transposed=True)
    ),
    "aten::_conv_depthwise2d": _forward(_DEPTHWISE),
    "aten::conv_depthwise3d": _forward(_DEPTHWISE),
    "aten::_slow_conv2d_forward": _forward(_Places(stride=4, padding=5, dilation=-1, groups=-2)),
    "aten::convolution_backward": _backward(1),
    "aten::convolution_backward_overrideable": _backward(0),
}
"""Operators that are problems, by name.  Argument order: PyTorch ``aten/src/ATen/native/native_functions.yaml``."""
