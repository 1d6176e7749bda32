"""Rebuild the inputs of a PyTorch operator: tensors of the recorded sizes, strides and types, and other values."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from logparse.libraries.kinds.backend import Conditions, UnsupportedError
from logparse.libraries.kinds.device.torch_device import Tensor, TorchDevice
from logparse.libraries.kinds.dtypes import TORCH_TYPES
from logparse.model import Argument, Operand, OperatorProblem

Inputs: TypeAlias = "tuple[Sequence[Any], Mapping[str, Any]]"
"""The positional and the keyword arguments of a call."""


class OperatorOperands:
    """The inputs of a PyTorch operator that a trace recorded, allocated on the device in several copies.

    ``arguments`` holds one list of inputs per copy.  The tensors have the recorded shapes, but other values.
    """

    def __init__(self, device: TorchDevice, problem: OperatorProblem, conditions: Conditions) -> None:
        self._device, self.problem = device, problem
        self.sets, self.evict = conditions.sets, conditions.evict
        # Results are not checked, because the operator is PyTorch's own.
        self._filled: list[Tensor] = []
        with device.memory_errors(problem.bytes * conditions.sets):
            self.arguments = [self._arguments() for _ in range(conditions.sets)]
            self.fill(conditions.seed)

    @cached_property
    def overload(self) -> Any:
        return overload_of(self._device, self.problem)

    def _arguments(self) -> Inputs:
        values: list[Any] = []
        named: dict[str, Any] = {}
        for argument, given in zip(self.overload._schema.arguments, self.problem.inputs, strict=True):
            value = self._value(given, argument)
            if argument.kwarg_only:
                named[argument.name] = value
            else:
                values.append(value)
        return values, named

    def _value(self, given: Argument, argument: Any) -> Any:
        if isinstance(given, Operand):
            return self._tensor(given)
        if isinstance(given, tuple):
            return [self._tensor(x) for x in given]
        if given == "" and argument.has_default_value():  # the profiler records no strings
            return argument.default_value
        return value_of(self._device, given, str(argument.type))

    def _tensor(self, operand: Operand) -> Tensor:
        torch = self._device.torch
        dtype = getattr(torch, operand.dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise UnsupportedError(f"a tensor of type {operand.dtype}")
        empty = 0 in operand.sizes
        pairs = zip(operand.sizes, operand.strides, strict=True)
        span = 0 if empty else 1 + sum((size - 1) * stride for size, stride in pairs)
        memory = torch.empty(span, dtype=dtype, device=self._device.device)
        self._filled.append(memory)
        return memory.as_strided(operand.sizes, operand.strides)

    def fill(self, seed: int) -> None:
        """Write random normal values into all input tensors.

        Integer tensors get zeros and ones, because their values may be indices.
        """
        torch = self._device.torch
        generator = torch.Generator(device=self._device.device).manual_seed(seed)
        for memory in self._filled:
            if memory.dtype.is_floating_point and memory.dtype.itemsize > 1:
                memory.normal_(generator=generator)
            else:
                memory.copy_(torch.randint(0, 2, memory.shape, generator=generator, device=memory.device))

    def poison(self) -> None:
        """Do nothing, because results are checked only for matrix products and convolutions.

        For matrix products and convolutions, the method of this name fills the output with NaN before a check.
        """

    def error(self, output: Tensor) -> float:
        """Return 0, because the results of operators are not checked."""
        return 0.0

    def fault(self, run: Callable[[], Tensor]) -> str:
        """Return an empty text, which means that no fault was found. The results of operators are not checked."""
        return ""


def overload_of(device: TorchDevice, problem: OperatorProblem) -> Any:
    """Return the overload of a PyTorch operator that accepts the recorded inputs.

    Raises UnsupportedError if none does.
    """
    space, _, name = problem.name.partition("::")
    packet = getattr(getattr(device.torch.ops, space, None), name, None)
    for overload in packet.overloads() if packet is not None else ():
        found = getattr(packet, overload)
        arguments = found._schema.arguments
        if len(arguments) == len(problem.inputs) and all(
            (given == "" and x.has_default_value()) or _takes(device, str(x.type), given)
            for x, given in zip(arguments, problem.inputs, strict=True)
        ):
            return found
    raise UnsupportedError(f"no overload of {problem.name} accepts these inputs")


def _takes(device: TorchDevice, type: str, given: Argument) -> bool:
    if isinstance(given, Operand):
        return type in ("Tensor", "Optional[Tensor]")
    if isinstance(given, tuple):
        return type in ("List[Tensor]", "List[Optional[Tensor]]")
    try:
        value_of(device, given, type)
    except UnsupportedError:
        return False
    return True


def value_of(device: TorchDevice, text: str, type: str) -> Any:
    """Turn a text from a trace, such as ``[1, 1]``, into the value that an operator's argument of this type needs.

    Raises UnsupportedError if the text cannot be read as this type.
    """
    if type.startswith("Optional["):
        return None if text in ("", "None") else value_of(device, text, type[len("Optional[") : -1])
    if type in ("List[int]", "List[SymInt]", "List[bool]", "List[float]") and text.startswith("["):
        inner = type[len("List[") : -1]
        return [value_of(device, part, inner) for part in text[1:-1].split(",") if part]
    if type == "bool" and text in ("True", "False", "0", "1"):
        return text in ("True", "1")
    if type in ("number", "Scalar", "int", "SymInt", "float"):
        try:
            # PyTorch prints ``1.`` and ``True``, so the number is spelled as in JSON.
            spelled = {"True": "1", "False": "0"}.get(text, f"{text}0" if text.endswith(".") else text)
            value = math.inf if text == "inf" else -math.inf if text == "-inf" else json.loads(spelled)
        except ValueError:
            raise UnsupportedError(f"{text!r} is not a number") from None
        if isinstance(value, (int, float)) and not (type in ("int", "SymInt") and isinstance(value, float)):
            return float(value) if type == "float" else value
    if type in ("ScalarType", "dtype") and text.isdigit():
        names = {x.number: x.python.removeprefix("torch.") for x in TORCH_TYPES} | {4: "int64", 11: "bool"}
        return getattr(device.torch, names.get(int(text), ""), None)
    raise UnsupportedError(f"{text!r} instead of a {type}")
