"""Time matrix products in PyTorch: the default formulation and its alternatives.

The default is the call that a framework would make for D = act(op(A)·op(B) + bias): ``mm``, ``addmm`` or ``bmm``.  The
BLAS library's heuristic chooses the kernel.  The activation is a separate kernel.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from logparse.libraries.kinds.backend import Place, UnsupportedError
from logparse.libraries.kinds.device.operands import GemmOperands, dtype_of, matrices
from logparse.libraries.kinds.device.torch_device import Around, Call, Tensor, TorchDevice
from logparse.libraries.pytorch.replay_ways import Way, name_way, without_mkldnn
from logparse.model import GemmProblem

_PADS = (8, 64)
_BLAS = {False: ("cublas", "cublaslt"), True: ("cublas", "cublaslt", "ck")}
"""The BLAS libraries that a user of PyTorch can choose, by PyTorch's names: False for NVIDIA GPUs, True for ROCm.

On ROCm ``cublas`` means rocBLAS (hipBLAS), and ``cublaslt`` means hipBLASLt.
"""
_ROCM_BLAS = {"cublas": "rocblas", "cublaslt": "hipblaslt", "ck": "ck"}


def gemm_ways(device: TorchDevice, problem: GemmProblem, place: Place) -> list[Way]:
    """Return the different ways in which PyTorch can compute a matrix product, for timing. The default comes first.

    Raises UnsupportedError if PyTorch has no ordinary call for the product.
    """
    _refuse(device, problem)
    short, default = problem.compute_type == "xf32_r" or place.tf32, partial(_default, device)
    around = partial(_precision, device, short=short)
    ways = [Way(name_way(), default, around)]
    if device.is_gpu and problem.a_type == "f32_r" and problem.compute_type in (None, "f32_r"):
        ways.append(Way(name_way("tf32"), default, partial(_precision, device, short=True), raced=False))
    if problem.batch_count == 1 and problem.beta != "nonzero":
        ways += _epilogue_ways(device, problem, around)
    if problem.bias and problem.batch_count == 1:
        ways.append(Way(name_way("unfused"), partial(_unfused, device), around))
    if device.is_gpu:
        for word in _BLAS[device.is_rocm]:
            name = f"blas={_ROCM_BLAS[word] if device.is_rocm else word}"
            ways.append(Way(name_way(name), default, partial(_blas, device, word, around)))
    else:
        ways.append(Way(name_way("mkldnn=off"), default, partial(without_mkldnn, device)))
    if problem.beta != "nonzero" and not problem.bias and problem.activation in (None, "none"):
        for pad in _PADS:
            if any((size or 0) % pad for size in (problem.m, problem.n, problem.k)):
                padded = partial(_padded, device, pad=pad)
                ways.append(Way(name_way(f"pad={pad}"), padded, around))
                ways.append(Way(name_way(f"pad={pad}", "stored"), partial(padded, stored=True), around))
    return ways


def _epilogue_ways(device: TorchDevice, problem: GemmProblem, around: Around) -> list[Way]:
    """Return further ways to compute a product with bias and activation, for example in one kernel.

    A program may contain another form of GELU, whose results differ from the default's.  Such ways are timed only if
    the user asks for them.
    """
    ways = []
    if problem.activation in ("relu", "gelu"):
        ways.append(Way(name_way("fused"), partial(_fused, device), around, raced=bool(problem.bias)))
    for form in ("gelu=erf", "gelu=written") if problem.activation == "gelu" else ():
        ways.append(Way(name_way(form), partial(_default, device, gelu=form), around, raced=False))
        if problem.bias:
            ways.append(Way(name_way("unfused", form), partial(_unfused, device, gelu=form), around, raced=False))
    return ways


def _refuse(device: TorchDevice, p: GemmProblem) -> None:
    if p.gradient or p.aux:
        raise UnsupportedError(
            "the product also computes a gradient, or writes an auxiliary output, in the same kernel (epilogue), "
            "which cannot be measured"
        )
    if p.activation not in (None, "none", "relu", "gelu"):
        raise UnsupportedError(f"activation {p.activation}")
    scales = (p.scale_a, p.scale_b, p.scale_c, p.scale_d)
    if any(x not in (None, "none") for x in scales) or p.scale_alpha_vector or p.swizzle_a or p.swizzle_b:
        raise UnsupportedError(
            "the product's operands are scaled or have a swizzled memory layout (reordered blocks), which cannot "
            "be measured"
        )
    if p.converted:
        raise UnsupportedError("the product converts its operands to another type, which cannot be measured")
    types = {matrix.dtype for matrix in matrices(p).values()}
    if len(types) > 1 or dtype_of(device, types.pop()).itemsize < 2:
        raise UnsupportedError("the product has mixed or 8-bit types, which cannot be measured")


def _default(device: TorchDevice, o: GemmOperands, gelu: str | None = None) -> Call:
    product = _product(device, o)
    activate = _activation(device, o.problem.activation, gelu)
    if activate is None:
        return product
    return lambda i: activate(product(i), o.d[i])


def _product(device: TorchDevice, o: GemmOperands) -> Call:
    torch, added = device.torch, o.c or o.bias
    plain, adding = (torch.bmm, torch.baddbmm) if o.batch > 1 else (torch.mm, torch.addmm)
    if o.c and o.bias:
        return lambda i: adding(o.c[i], o.x[i], o.y[i], out=o.d[i]).add_(o.bias[i])
    if added:
        return lambda i: adding(added[i], o.x[i], o.y[i], out=o.d[i])
    return lambda i: plain(o.x[i], o.y[i], out=o.d[i])


def _activation(
    device: TorchDevice, name: str | None, gelu: str | None = None
) -> Callable[[Tensor, Tensor], Tensor] | None:
    """Return a function that applies an activation in a separate kernel, or None if there is no activation.

    With ``gelu=erf`` it is one kernel.  With ``gelu=written`` the formula is written out, which takes several kernels.
    """
    if name == "relu":
        return lambda value, out: value.relu_()
    if gelu == "gelu=written":
        return lambda value, out: _written_gelu(device.torch, value)
    if name == "gelu":
        approximate = "none" if gelu == "gelu=erf" else "tanh"
        return lambda value, out: device.torch.ops.aten.gelu.out(value, approximate=approximate, out=out)
    return None


def _written_gelu(torch: Any, x: Tensor) -> Tensor:
    """Compute GELU by its formula ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), as some programs write it."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


def _fused(device: TorchDevice, o: GemmOperands) -> Call:
    """Return a function that computes a matrix product with its bias and activation in one kernel.

    It calls ``torch._addmm_activation``, a private function that torch's compiler uses too.  That function needs a
    bias, so a product without one gets zeros.
    """
    gelu = o.problem.activation == "gelu"
    bias = o.bias or [o.d[0].new_zeros(o.d[0].shape[-1])] * o.sets
    return lambda i: device.torch._addmm_activation(bias[i], o.x[i], o.y[i], use_gelu=gelu, out=o.d[i])


def _unfused(device: TorchDevice, o: GemmOperands, gelu: str | None = None) -> Call:
    """Return a function that computes a matrix product, its bias and its activation in separate kernels."""
    torch, activate = device.torch, _activation(device, o.problem.activation, gelu)

    def call(i: int) -> Tensor:
        out = torch.mm(o.x[i], o.y[i], out=o.d[i])
        if o.c:
            out.add_(o.c[i])
        out.add_(o.bias[i])
        return out if activate is None else activate(out, out)

    return call


def _padded(device: TorchDevice, o: GemmOperands, *, pad: int, stored: bool = False) -> Call:
    """Return a function that computes a product with m, n and k rounded up to a multiple of ``pad``.

    The time includes copying the operands into larger matrices, unless ``stored`` is True.
    """
    torch = device.torch
    product = torch.bmm if o.batch > 1 else torch.mm
    n, m = o.d[0].shape[-2:]

    def grown(tensor: Tensor) -> Tensor:
        rows, cols = tensor.shape[-2:]
        return torch.nn.functional.pad(tensor, (0, -cols % pad, 0, -rows % pad))

    if stored:
        xs, ys = o.derived(lambda i: grown(o.x[i])), o.derived(lambda i: grown(o.y[i]))
        return lambda i: product(xs[i], ys[i])[..., :n, :m]
    return lambda i: o.d[i].copy_(product(grown(o.x[i]), grown(o.y[i]))[..., :n, :m])


@contextlib.contextmanager
def _precision(device: TorchDevice, *, short: bool) -> Iterator[None]:
    """Context in which single-precision matrix products run in full precision, or in TF32 if ``short`` is True.

    The setting is restored when the context ends.
    """
    before = device.torch.get_float32_matmul_precision()
    device.torch.set_float32_matmul_precision("high" if short else "highest")
    try:
        yield
    finally:
        device.torch.set_float32_matmul_precision(before)


@contextlib.contextmanager
def _blas(device: TorchDevice, word: str, inner: Around) -> Iterator[None]:
    library = device.torch.backends.cuda.preferred_blas_library
    before = library()
    library(word)
    try:
        with inner():
            yield
    finally:
        library(before)
