"""What a user's own kernel costs the host once it stands in PyTorch's place, timed with the code of ``apply.py``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from analyzers.actions.own_kernel import Call, call_of
from analyzers.evidence.action_times import HostCost
from analyzers.evidence.stats import median
from analyzers.measure.device.operands import GemmOperands
from analyzers.measure.device.torch_device import TorchDevice, TorchRunnable

_ROUNDS, _CALLS, _ROUND_US = 7, 64, 20_000.0
"""The median of so many rounds of so many calls, which a GPU's queue holds without making the host wait; fewer, where
the device takes longer than this for a round.
"""
_SIDE = 2
"""Of the products that show what a call costs the host alone: no device takes time for them."""


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
        calls = int(min(_CALLS, max(4.0, _ROUND_US / max(1.0, self.sample_us(1)))))
        if device.is_gpu:
            plain_us, kernel = self._host_us(product, calls), self._kernel
        else:
            plain_us, kernel = self._host_us(small), _nothing
        plain_small_us = self._host_us(small)
        overrides = OwnKernels("CUDA" if device.is_gpu else "CPU")
        try:
            overrides.add(
                kernel, "", covered.operator, covered.sizes, covered.dtype, covered.x_strides, covered.y_strides
            )
            own_us, other_us = self._host_us(product, calls), self._host_us(small)
        finally:
            overrides.remove()
        return HostCost(own_us=max(0.0, own_us - plain_us), other_us=max(0.0, other_us - plain_small_us))

    def _host_us(self, call: Callable[[], Any], calls: int = _CALLS) -> float:
        """Mean host time of a call, the median of several rounds; each begins with an idle device."""
        rounds = []
        with self._around():
            call()
            for _ in range(_ROUNDS):
                self._device.synchronize()
                begun = time.perf_counter_ns()
                for _ in range(calls):
                    call()
                rounds.append((time.perf_counter_ns() - begun) / 1e3 / calls)
            self._device.synchronize()
        return median(rounds)


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
