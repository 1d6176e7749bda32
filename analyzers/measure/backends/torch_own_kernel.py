"""What a user's own kernel costs the host once it stands in PyTorch's place, timed with the code of ``apply.py``.

How much depends on what ran before, so each call is timed alone and in two conditions (docs/measurement.md).  Right
after an equal call its code is in the core's caches: no job pays less, and a call that comes once in a step pays
several times as much.  For the other condition a small training step runs before; before a call of the own kernel the
core's caches are emptied too, which makes that time about the most that a job pays.  Products that the override passes
on are frequent in a job, and keep their code there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

from analyzers.actions.own_kernel import Call, call_of
from analyzers.measure.device.operands import GemmOperands
from analyzers.measure.device.torch_device import TorchDevice, TorchRunnable
from analyzers.statistics.intervals import median
from analyzers.times.action_times import HostCost

_CALLS, _LEAST, _DEVICE_US = 32, 8, 100_000.0
"""Calls of which the median is taken; fewer, but at least so many, where the device takes longer than this for them."""
_SIDE = 2
"""Of the products that show what a call costs the host alone: no device takes time for them."""
_WIDTH, _TOKENS, _WORDS = 16, 8, 32
"""Of the small model whose steps run between calls."""

Host = Callable[[], Any]


class OwnKernelRunnable(TorchRunnable):
    """A user's own kernel, ready to run."""

    def __init__(
        self, device: TorchDevice, operands: GemmOperands, call: Any, kernel: Callable[..., Any], **more: Any
    ) -> None:
        super().__init__(device, operands, call, **more)
        self._gemm, self._kernel = operands, kernel

    def host_cost(self) -> HostCost | None:
        """Host time of a call through the override less that of PyTorch's; None where no override can stand for it.

        A CPU computes in the host's time, which the samples hold already: there the kernel is left out.
        """
        from analyzers.actions.kernel_overrides import OwnKernels

        covered, device = call_of(self._gemm.problem), self._device
        if covered is None:
            return None
        product, small = _product(device, self._gemm, covered), _small(device, self._gemm, covered)
        kernel = self._kernel if device.is_gpu else _nothing
        plain = self._times_us(product if device.is_gpu else small, small)
        overrides = OwnKernels("CUDA" if device.is_gpu else "CPU")
        try:
            overrides.add(
                kernel, "", covered.operator, covered.sizes, covered.dtype, covered.x_strides, covered.y_strides
            )
            with_override = self._times_us(product, small)
        finally:
            overrides.remove()
        least_own, own, least_other, other = (max(0.0, b - a) for a, b in zip(plain, with_override, strict=True))
        return HostCost(
            own_us=max(least_own, own),
            other_us=max(least_other, other),
            least_own_us=least_own,
            least_other_us=least_other,
        )

    def _times_us(self, product: Host, small: Host) -> list[float]:
        """Of each call the host's time right after an equal call, and after other work."""
        count = int(min(_CALLS, max(_LEAST, _DEVICE_US / max(1.0, self.sample_us(1)))))
        step = _training_step(self._device)
        orders = (product, product), (product, lambda: _emptied(step)), (small, small), (small, step)
        return [self._host_us(call, before, count) for call, before in orders]

    def _host_us(self, call: Host, before: Host, count: int) -> float:
        """Median host time of a call right after ``before``, which begins with an idle device."""
        taken = []
        with self._around():
            call()
            for _ in range(count):
                self._device.synchronize()
                before()
                begun = time.perf_counter_ns()
                call()
                taken.append((time.perf_counter_ns() - begun) / 1e3)
            self._device.synchronize()
        return median(taken)


def _emptied(step: Host) -> None:
    """The step, and then none of a core's own caches holds what it held."""
    step()
    _MEMORY[:] = bytes(_MEMORY)


_MEMORY = bytearray(4 << 20)
"""No core of a server has larger caches of its own."""


@cache
def _training_step(device: TorchDevice) -> Host:
    """A step of a small model, forward, backward and its update."""
    torch = device.torch
    nn, functional = torch.nn, torch.nn.functional
    with torch.device(device.device):
        parts = nn.Embedding(_WORDS, _WIDTH), nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, _WIDTH), nn.Linear(_WIDTH, _WORDS)
        words = torch.arange(2 * _TOKENS).reshape(2, _TOKENS) % _WORDS
    embedding, norm, inner, head = parts
    parameters = list(nn.ModuleList(parts).parameters())

    def step() -> None:
        with torch.enable_grad():
            x = norm(embedding(words))
            weights = functional.softmax(x @ x.transpose(1, 2), dim=-1)
            x = x + functional.gelu(inner(weights @ x))
            x = torch.cat([x, x.relu()], dim=1).mean(dim=1)
            functional.cross_entropy(head(x), words[:, 0]).backward()
        with torch.no_grad():
            torch._foreach_add_(parameters, [p.grad for p in parameters], alpha=-1e-3)
            for parameter in parameters:
                parameter.grad = None

    return step


def _nothing(*operands: Any, **more: Any) -> None:
    """Stands for a kernel whose time is known."""


def _product(device: TorchDevice, o: GemmOperands, covered: Call) -> Callable[[], Any]:
    return _called(device, covered.operator, o.x[0], o.y[0], o.bias[0] if o.bias else None)


def _small(device: TorchDevice, o: GemmOperands, covered: Call) -> Callable[[], Any]:
    """The operator on tiny operands, which no kernel covers."""
    made = {"dtype": o.x[0].dtype, "device": device.device}
    sides = (_SIDE,) * o.x[0].dim()
    x, y = (device.torch.ones(sides, **made) for _ in range(2))
    return _called(device, covered.operator, x, y, device.torch.ones(_SIDE, **made))


def _called(device: TorchDevice, operator: str, x: Any, y: Any, bias: Any) -> Callable[[], Any]:
    torch = device.torch
    if operator in ("mm", "bmm"):
        plain = getattr(torch, operator)
        return lambda: plain(x, y)
    if operator == "addmm":
        return lambda: torch.addmm(bias, x, y)
    return lambda: torch._addmm_activation(bias, x, y, use_gelu=operator == "gelu")
