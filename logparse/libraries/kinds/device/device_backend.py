"""Base class of the backends that run on a real device.

It holds one torch device, the tensors to compute with, and one shared workspace.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from logparse.libraries.kinds.backend import Conditions, Place, UnsupportedError
from logparse.libraries.kinds.device.attention_operands import AttentionOperands, attention_of
from logparse.libraries.kinds.device.operands import ConvOperands, GemmOperands
from logparse.libraries.kinds.device.operator_operands import OperatorOperands
from logparse.libraries.kinds.device.torch_device import Tensor, torch_device
from logparse.model import ConvProblem, GemmProblem, OperatorProblem, Problem

AnyOperands: TypeAlias = "GemmOperands | ConvOperands | OperatorOperands"


class DeviceBackend:
    """Base class for running a library's kernels on a real device, such as a GPU.

    A subclass adds ``solutions``, ``prepare`` and its library's version.  If it keeps plans, it overrides ``release``
    to drop them.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._device = torch_device(place.device)
        self._held: dict[tuple[str, Conditions], AnyOperands] = {}
        self._workspace: Any = None
        self.cache_bytes = self._device.cache_bytes

    def environment(self) -> Mapping[str, str]:
        return self._device.facts

    def refresh(self, seed: int) -> None:
        for held in self._held.values():
            held.fill(seed)

    def release(self) -> None:
        """Free the inputs, the outputs and the workspace.  Memory that a prepared kernel still uses stays allocated."""
        self._held.clear()
        self._workspace = None
        self._device.empty_cache()

    def healthy(self) -> bool:
        return self._device.healthy()

    def operands(self, problem: Problem, conditions: Conditions) -> AnyOperands:
        """Return the input and output tensors that all kernels for a matrix product or convolution use.

        Raises UnsupportedError if ``problem`` cannot run, and OutOfMemoryError if the tensors do not fit into memory.
        """
        key = (problem.text, conditions)
        # The tensors are allocated and filled at the first call.
        if key not in self._held:
            self._held[key] = self._made(problem, conditions)
        return self._held[key]

    def _made(self, problem: Problem, conditions: Conditions) -> AnyOperands:
        if isinstance(problem, GemmProblem):
            return GemmOperands(self._device, problem, conditions)
        if isinstance(problem, ConvProblem):
            return ConvOperands(self._device, problem, conditions)
        if not isinstance(problem, OperatorProblem):
            raise UnsupportedError("the exact sizes of this call are unknown, so the call cannot be measured")
        attention = attention_of(self._device, problem)
        if attention is not None:
            return AttentionOperands(self._device, problem, conditions, attention)
        return OperatorOperands(self._device, problem, conditions)

    def _reserve(self, need_bytes: int) -> Tensor:
        """Return a workspace of at least ``need_bytes`` bytes.

        All kernels share it, because they never run at the same time.  Raises OutOfMemoryError if it does not fit into
        the device's memory.
        """
        if self._workspace is None or self._workspace.numel() < need_bytes:
            torch = self._device.torch
            with self._device.memory_errors(float(need_bytes)):
                self._workspace = torch.empty(max(need_bytes, 1), dtype=torch.uint8, device=self._device.device)
        return self._workspace
