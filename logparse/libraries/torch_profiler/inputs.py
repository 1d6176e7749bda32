"""An operator's inputs as a profiler event holds them, and the operation that they describe."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from logparse.model import LIMIT, Problem, is_whole

Backend: TypeAlias = Literal["cudnn", "miopen"]
"""Name of the library that computes convolutions on a device."""
UNREAD = "sizes or strides are not recorded (record_shapes=True; PyTorch of 2023 records no strides), or not readable"
"""Text of a message about an operator that is a product or convolution whose sizes are unknown."""


@dataclass(frozen=True)
class Operation:
    """Computation of one operator: one problem, or the problems of the gradients that the backward pass of a
    convolution computed.

    ``problems`` are in the order in which PyTorch computes them (input gradient first).  ``whole`` is one problem for
    all of them together.  It stays None if the model cannot express them as one problem.
    """

    problems: tuple[Problem, ...]
    whole: Problem | None = None


@dataclass(frozen=True)
class Inputs:
    """Sizes, strides, C++ type and value of each input.  The value is text, and empty for a tensor.

    ``backend`` is the library of the trace's device.  None if the trace does not name it.
    """

    dims: Sequence[Any]
    strides: Sequence[Any]
    types: Sequence[Any]
    values: Sequence[Any]
    backend: Backend | None = None

    def tensor(self, i: int) -> tuple[list[int], list[int]]:
        """Return sizes and strides of input ``i``.  Raises ValueError if there is no such tensor."""
        dims, strides = self.dims[i], self.strides[i]
        good = isinstance(dims, list) and isinstance(strides, list) and len(dims) == len(strides)
        if not good or not all(map(is_whole, [*dims, *strides])) or math.prod(dims) >= LIMIT:
            raise ValueError(f"input {i} is not a tensor")
        return dims, strides

    def has(self, i: int) -> bool:
        """Return True if input ``i`` is a tensor with sizes."""
        return i < len(self.dims) and bool(self.dims[i])

    def value(self, i: int) -> str:
        return str(self.values[i]) if i < len(self.values) else ""

    def type(self, i: int) -> str:
        return str(self.types[i]) if i < len(self.types) else ""


def inputs_of(args: Mapping[str, Any], backend: Backend | None = None) -> Inputs | None:
    """Return the inputs in an event's arguments.  Return None if they were not recorded (``record_shapes=True``)."""
    parts = [args.get(key) for key in ("Input Dims", "Input Strides", "Input type")]
    if not all(isinstance(part, list) for part in parts):
        return None
    dims, strides, types = (part if isinstance(part, list) else [] for part in parts)
    values = args.get("Concrete Inputs")
    return Inputs(dims, strides, types, values if isinstance(values, list) else [], backend)


Reader: TypeAlias = Callable[[Inputs], "Operation | None"]
"""Function that returns the operation for inputs.

Raises ValueError, IndexError or OverflowError if the inputs do not suffice.
"""


def contiguous_strides(dims: Sequence[int]) -> list[int]:
    """Return the strides of a tensor without gaps, in the order of its dimensions."""
    return [math.prod(dims[i + 1 :]) for i in range(len(dims))]
