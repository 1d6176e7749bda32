"""Ways to compute a convolution in PyTorch: the default, other settings or layouts, and a matrix product."""

from __future__ import annotations

from functools import partial

from logparse.libraries.kinds.backend import Place
from logparse.libraries.kinds.device.operands import (
    ConvOperands,
    conv_shapes,
    convolve,
    dtype_of,
    geometry,
    memory_format,
)
from logparse.libraries.kinds.device.torch_device import Around, Call, Tensor, TorchDevice
from logparse.libraries.pytorch.replay_ways import Way, name_way, without_mkldnn
from logparse.model import ConvProblem

_OTHER = {"NCHW": "NHWC", "NHWC": "NCHW", "NCDHW": "NDHWC", "NDHWC": "NCDHW"}
_SEARCHED = "benchmark"
"""Name of the thread in which all calls run with ``torch.backends.cudnn.benchmark`` switched on."""


def conv_ways(device: TorchDevice, problem: ConvProblem, place: Place) -> list[Way]:
    """Return the different ways in which PyTorch can compute a convolution, for timing. The default comes first.

    Raises UnsupportedError if PyTorch cannot run this convolution.
    """
    conv_shapes(problem)
    dtype_of(device, problem.in_type)
    memory_format(device, problem.in_layout, problem.spatial)
    plain, benchmark = _settings(device, place), _settings(device, place, benchmark=True)
    default, turned = partial(_default, device), partial(_other_layout, device)
    stored = partial(turned, stored=True)
    ways = [Way(name_way(), default, plain)]
    other = f"layout={_OTHER[problem.in_layout or 'NCHW']}"
    if device.is_gpu:
        ways.append(Way(name_way("benchmark"), default, benchmark, _SEARCHED))
    else:
        ways.append(Way(name_way("mkldnn=off"), default, partial(without_mkldnn, device)))
    ways += [Way(name_way(other), turned, plain), Way(name_way(other, "stored"), stored, plain)]
    if device.is_gpu:
        ways.append(Way(name_way(other, "benchmark"), turned, benchmark, _SEARCHED))
        ways.append(Way(name_way(other, "stored", "benchmark"), stored, benchmark, _SEARCHED))
    if _is_gemm(problem):
        ways.append(Way(name_way("gemm"), partial(_gemm, device), plain))
    return ways


def _default(device: TorchDevice, o: ConvOperands) -> Call:
    return lambda i: convolve(device, o.problem, o.x[i], o.w[i], o.dy[i])


def _other_layout(device: TorchDevice, o: ConvOperands, *, stored: bool = False) -> Call:
    """Return a function that computes the convolution in the other memory layout: NHWC instead of NCHW, or the reverse.

    The time includes the transposes of the inputs and of the result unless ``stored`` is True.
    """
    target = memory_format(device, _OTHER[o.problem.in_layout or "NCHW"], o.problem.spatial)
    back = o.formats[o.output]

    def turned(tensor: Tensor) -> Tensor:
        return tensor.contiguous(memory_format=target)

    if stored:
        xs, ws, dys = (o.derived(lambda i, t=t: turned(t[i]).clone()) for t in (o.x, o.w, o.dy))  # type: ignore[misc]
        return lambda i: convolve(device, o.problem, xs[i], ws[i], dys[i])
    if o.problem.direction == "F":
        return lambda i: convolve(device, o.problem, turned(o.x[i]), turned(o.w[i]), o.dy[i]).contiguous(
            memory_format=back
        )
    needs_x = o.problem.direction == "W"

    def call(i: int) -> Tensor:
        x, w = (turned(o.x[i]), o.w[i]) if needs_x else (o.x[i], turned(o.w[i]))
        return convolve(device, o.problem, x, w, turned(o.dy[i])).contiguous(memory_format=back)

    return call


def _is_gemm(problem: ConvProblem) -> bool:
    """Return True if a convolution is just a matrix product: a 1×1 window, stride 1, no padding and no groups."""
    stride, pad, _ = geometry(problem)
    window = (problem.filter_d, problem.filter_h, problem.filter_w)
    return problem.groups == 1 and set(window) == {1} and set(stride) == {1} and set(pad) == {0}


def _gemm(device: TorchDevice, o: ConvOperands) -> Call:
    """Return a function that computes a 1×1 convolution by matrix products, one for each image.

    For the gradient of the weights (direction W) it is one product over all images.
    """
    torch, p = device.torch, o.problem
    k, c = int(p.k or 0), int(p.c or 0)

    def forward(i: int) -> Tensor:
        y = torch.matmul(o.w[i].reshape(k, c), o.x[i].reshape(p.n, c, -1))
        return y.view(o.dy[i].shape)

    def backward(i: int) -> Tensor:
        dx = torch.matmul(o.w[i].reshape(k, c).t(), o.dy[i].reshape(p.n, k, -1))
        return dx.view(o.x[i].shape)

    def weights(i: int) -> Tensor:
        # One product over images and pixels.  In NCHW it needs transposes, and their time is included.
        dy = o.dy[i].transpose(0, 1).reshape(k, -1)
        x = o.x[i].transpose(0, 1).reshape(c, -1)
        return torch.mm(dy, x.t()).view(o.w[i].shape)

    return {"F": forward, "B": backward, "W": weights}[p.direction]


def _settings(device: TorchDevice, place: Place, *, benchmark: bool = False) -> Around:
    """Return a context that sets ``torch.backends.cudnn`` as a user's program would.

    On ROCm the settings apply to MIOpen.  With ``benchmark`` the library tries all of its kernels and takes the
    fastest.
    """
    search = {"benchmark": benchmark, "benchmark_limit": 0 if benchmark else 10}
    flags = device.torch.backends.cudnn.flags
    return partial(flags, enabled=True, **search, deterministic=False, allow_tf32=place.conv_tf32)
