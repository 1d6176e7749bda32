"""What a PyTorch operator asks of the math library: inputs of a profiler event to a problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from logparse.formats.traces.torch.convolutions import CONVOLUTION_OPERATORS
from logparse.formats.traces.torch.gemms import GEMM_OPERATORS
from logparse.formats.traces.torch.inputs import Inputs, Operation, Reader

OPERATORS: Mapping[str, Reader] = {**GEMM_OPERATORS, **CONVOLUTION_OPERATORS}
"""Operators that are problems, by name."""


def operation(name: str, args: Mapping[str, Any]) -> Operation | None:
    """What the operator ``name`` (``aten::mm`` …) computes; None where the event does not say enough.

    ``args`` are the event's arguments; shapes are only there when the profiler ran with ``record_shapes=True``.
    """
    reader = OPERATORS.get(name)
    parts = [args.get(key) for key in ("Input Dims", "Input Strides", "Input type", "Concrete Inputs")]
    if reader is None or not all(isinstance(part, list) for part in parts[:3]):
        return None
    dims, strides, types, values = (part if isinstance(part, list) else [] for part in parts)
    try:
        return reader(Inputs(dims, strides, types, values))
    except (ValueError, IndexError, OverflowError):
        return None
