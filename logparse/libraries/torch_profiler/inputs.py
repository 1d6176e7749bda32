"""Read the inputs of an operator from an event of PyTorch's profiler.

The module also defines ``Operation``, the matrix product or convolution that the operator computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from logparse.model import LIMIT, Problem, is_whole

Backend: TypeAlias = Literal["cudnn", "miopen"]
"""The name of the library that computes convolutions on a device."""
STEP_KINDS = "step_kinds"
"""Name of the fact that a trace states if its steps are of several kinds (``step_kinds``)."""
UNREAD = (
    "the trace lacks sizes or strides of this call (set record_shapes=True; PyTorch of 2023 records no strides), or "
    "they are not readable"
)
"""The text of the message about a matrix product or convolution whose sizes are unknown."""


@dataclass(frozen=True)
class Operation:
    """The matrix product or convolution that one operator computes.

    * ``problems``: one entry, or one for each gradient of a backward pass, the input gradient first.
    * ``whole``: one convolution for both gradients, or None if ``ConvProblem`` cannot express it.
    """

    problems: tuple[Problem, ...]
    whole: Problem | None = None


@dataclass(frozen=True)
class Inputs:
    """The recorded inputs of an operator in a trace: for each input its size, strides, C++ type and value.

    ``backend`` is the library that computes convolutions on the trace's GPU, or None if it is unknown.
    """

    dims: Sequence[Any]
    strides: Sequence[Any]
    types: Sequence[Any]
    # A value is a text, which is empty for a tensor.
    values: Sequence[Any]
    backend: Backend | None = None

    def tensor(self, i: int) -> tuple[list[int], list[int]]:
        """Return the sizes and the strides of input ``i``.  Raises ValueError if this input is not a tensor."""
        dims, strides = self.dims[i], self.strides[i]
        good = isinstance(dims, list) and isinstance(strides, list) and len(dims) == len(strides)
        if not good or not all(map(is_whole, [*dims, *strides])) or math.prod(dims) >= LIMIT:
            raise ValueError(f"input {i} is not a tensor")
        return dims, strides

    def has(self, i: int) -> bool:
        """Return True if the operator has an input ``i`` that is a tensor with sizes."""
        return i < len(self.dims) and bool(self.dims[i])

    def value(self, i: int) -> str:
        return str(self.values[i]) if i < len(self.values) else ""

    def type(self, i: int) -> str:
        return str(self.types[i]) if i < len(self.types) else ""


def inputs_of(args: Mapping[str, Any], backend: Backend | None = None) -> Inputs | None:
    """Return an operator's inputs from the arguments of its trace event.

    Returns None if they were not recorded.  The profiler records them only with ``record_shapes=True``.
    """
    parts = [args.get(key) for key in ("Input Dims", "Input Strides", "Input type")]
    if not all(isinstance(part, list) for part in parts):
        return None
    dims, strides, types = (part if isinstance(part, list) else [] for part in parts)
    values = args.get("Concrete Inputs")
    return Inputs(dims, strides, types, values if isinstance(values, list) else [], backend)


Reader: TypeAlias = Callable[[Inputs], "Operation | None"]
"""A function that turns an operator's inputs into the matrix product or convolution that the operator computes.

The function raises ValueError, IndexError or OverflowError if the inputs do not suffice.
"""


def contiguous_strides(dims: Sequence[int]) -> list[int]:
    """Return the strides of a tensor without gaps, in the order of its dimensions."""
    return [math.prod(dims[i + 1 :]) for i in range(len(dims))]
