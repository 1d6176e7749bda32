"""Convolutions in PyTorch: the default against settings and layouts."""

from __future__ import annotations

from functools import partial

from analyzers.measure.backend import Place
from analyzers.measure.backends.torch_ways import Way, named, without_mkldnn
from analyzers.measure.device.operands import ConvOperands, conv_shapes, convolve, dtype_of, memory_format
from analyzers.measure.device.torch_device import Around, Call, Tensor, TorchDevice
from logparse.model import ConvProblem

_OTHER = {"NCHW": "NHWC", "NHWC": "NCHW", "NCDHW": "NDHWC", "NDHWC": "NCDHW"}
_SEARCHED = "benchmark"
"""The thread of everything that runs in benchmark mode."""


def conv_ways(device: TorchDevice, problem: ConvProblem, place: Place) -> list[Way]:
    """The default first.  Raises UnsupportedError where PyTorch does not run the problem."""
    conv_shapes(problem)
    dtype_of(device, problem.in_type)
    memory_format(device, problem.in_layout, problem.spatial)
    plain, benchmark = _settings(device, place), _settings(device, place, benchmark=True)
    default, turned = partial(_default, device), partial(_other_layout, device)
    stored = partial(turned, stored=True)
    ways = [Way(named(), default, plain)]
    other = f"layout={_OTHER[problem.in_layout or 'NCHW']}"
    if device.is_gpu:
        ways.append(Way(named("benchmark"), default, benchmark, _SEARCHED))
    else:
        ways.append(Way(named("mkldnn=off"), default, partial(without_mkldnn, device)))
    ways += [Way(named(other), turned, plain), Way(named(other, "stored"), stored, plain)]
    if device.is_gpu:
        ways.append(Way(named(other, "benchmark"), turned, benchmark, _SEARCHED))
        ways.append(Way(named(other, "stored", "benchmark"), stored, benchmark, _SEARCHED))
    return ways


def _default(device: TorchDevice, o: ConvOperands) -> Call:
    return lambda i: convolve(device, o.problem, o.x[i], o.w[i], o.dy[i])


def _other_layout(device: TorchDevice, o: ConvOperands, *, stored: bool = False) -> Call:
    """The call in the other layout; the transposes of its inputs and of the result back are charged unless stored."""
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


def _settings(device: TorchDevice, place: Place, *, benchmark: bool = False) -> Around:
    """``torch.backends.cudnn`` (MIOpen on ROCm) as the user would set it; a benchmark tries every plan."""
    search = {"benchmark": benchmark, "benchmark_limit": 0 if benchmark else 10}
    flags = device.torch.backends.cudnn.flags
    return partial(flags, enabled=True, **search, deterministic=False, allow_tf32=place.conv_tf32)
