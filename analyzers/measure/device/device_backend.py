"""The base of all backends for real devices: one torch device, the operands of one problem, one shared workspace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from analyzers.measure.backend import Conditions, Place, UnsupportedError
from analyzers.measure.device.attention_operands import operands_of
from analyzers.measure.device.operands import ConvOperands, GemmOperands
from analyzers.measure.device.operator_operands import OperatorOperands
from analyzers.measure.device.torch_device import Tensor, TorchDevice, torch_device
from logparse.model import ConvProblem, GemmProblem, OperatorProblem, Problem

AnyOperands: TypeAlias = "GemmOperands | ConvOperands | OperatorOperands"


class OperandCache:
    """The operands of the current problem: all its solutions run on the same ones."""

    def __init__(self, device: TorchDevice) -> None:
        self._device = device
        self._held: dict[tuple[str, Conditions], AnyOperands] = {}

    def operands(self, problem: Problem, conditions: Conditions) -> AnyOperands:
        """Allocated and filled at first use.  Raises UnsupportedError, OutOfMemoryError."""
        key = (problem.text, conditions)
        if key not in self._held:
            if isinstance(problem, GemmProblem):
                self._held[key] = GemmOperands(self._device, problem, conditions)
            elif isinstance(problem, ConvProblem):
                self._held[key] = ConvOperands(self._device, problem, conditions)
            elif isinstance(problem, OperatorProblem):
                self._held[key] = operands_of(self._device, problem, conditions)
            else:
                raise UnsupportedError("a family is no problem")
        return self._held[key]

    def fill(self, seed: int) -> None:
        """Write the random data of another seed into all operands."""
        for held in self._held.values():
            held.fill(seed)

    def clear(self) -> None:
        """Forget all operands; runnables that use them keep them alive."""
        self._held.clear()


class DeviceBackend:
    """A subclass adds ``solutions`` and ``prepare``, its library's version, and clears its own plans in ``release``."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._device = torch_device(place.device)
        self._cache = OperandCache(self._device)
        self._workspace: Any = None
        self.cache_bytes = self._device.cache_bytes

    def environment(self) -> Mapping[str, str]:
        """Device, driver and versions."""
        return self._device.facts

    def refresh(self, seed: int) -> None:
        """Write the random data of another seed into the operands."""
        self._cache.fill(seed)

    def release(self) -> None:
        """Free operands and workspace."""
        self._cache.clear()
        self._workspace = None
        self._device.empty_cache()

    def healthy(self) -> bool:
        """Whether the device still computes."""
        return self._device.healthy()

    def _reserve(self, need_bytes: int) -> Tensor:
        """The workspace that all solutions of a problem share, since they never run at once."""
        if self._workspace is None or self._workspace.numel() < need_bytes:
            torch = self._device.torch
            self._workspace = torch.empty(max(need_bytes, 1), dtype=torch.uint8, device=self._device.device)
        return self._workspace
