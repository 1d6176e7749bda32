"""Read the inputs of operators that no math library computes: batch norm, pooling, elementwise, copies and so on.

The inputs are kept exactly as in the trace, for a replay.  The type of tensors in a list is unknown, so it is ``?``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from logparse.libraries.kinds.dtypes import TORCH_TYPES
from logparse.libraries.kinds.patterns import regex
from logparse.libraries.torch_profiler.inputs import inputs_of
from logparse.model import Argument, Operand, OperatorProblem

_TYPES: Mapping[str, str] = {
    **{x.cpp: x.operand for x in TORCH_TYPES},
    "bool": "bool",
    "unsigned char": "uint8",
    "short": "int16",
    "short int": "int16",
    "long": "int64",
    "long int": "int64",
    "long long": "int64",
}
"""PyTorch's name of each data type, for the C++ name that a trace prints in ``Input type``.

Source: ``c10/core/ScalarType.h``.
"""

WITHOUT_KERNELS = frozenset(
    f"aten::{name}"
    for name in (
        *("view", "_unsafe_view", "reshape", "_reshape_alias", "as_strided", "transpose", "t", "permute", "expand"),
        *("unsqueeze", "squeeze", "slice", "select", "narrow", "split", "chunk", "unbind", "flatten", "unflatten"),
        *("detach", "detach_", "alias", "result_type", "contiguous", "to", "empty", "empty_like", "empty_strided"),
        *("resize_", "zeros", "zeros_like", "ones", "ones_like", "batch_norm", "conv2d", "layer_norm", "dropout"),
        *("_has_compatible_shallow_copy_type", "lift_fresh", "item", "is_nonzero", "local_scalar_dense"),
    )
)
"""Operators that launch no kernel themselves (views, allocations, and wrappers of another operator).

Their inputs are never read.
"""

COLLECTIVE = "record_param_comms"
"""The operator in a trace that stands for a collective.  Its arguments name the collective and the size of its message.
"""
_PLAIN = regex(r"[^\s;]*")
_SCALARS: Mapping[str, str] = {x.scalar: x.operand for x in TORCH_TYPES} | {
    "Bool": "bool", "Byte": "uint8", "Short": "int16", "Long": "int64",
}  # fmt: skip


def operator(name: str, args: Mapping[str, Any]) -> OperatorProblem | None:
    """Return an operator with its name and its inputs, from the arguments of its trace event.

    Returns None if its inputs are not recorded or cannot be read.
    """
    if name == COLLECTIVE:
        return _collective(args)
    x = inputs_of(args)
    if x is None or not x.dims or not len(x.dims) == len(x.strides) == len(x.types) or not _PLAIN.fullmatch(name):
        return None
    try:
        inputs = tuple(
            _input(*each, x.values[i] if i < len(x.values) else "")
            for i, each in enumerate(zip(x.dims, x.strides, x.types, strict=True))
        )
    except (TypeError, ValueError):
        return None
    return OperatorProblem(name, inputs)


def _collective(args: Mapping[str, Any]) -> OperatorProblem | None:
    """Describe a communication call (such as all-reduce) as an operator: its message, its name and its number of ranks.

    Source of the arguments: pytorch/pytorch torch/csrc/profiler/util.cpp, ``saveNcclMeta``.
    """
    kind, dtype, ranks = (args.get(key) for key in ("Collective name", "dtype", "Group size"))
    counts = [n for key in ("In msg nelems", "Out msg nelems") if type(n := args.get(key)) is int and n >= 0]
    if not isinstance(kind, str) or _PLAIN.fullmatch(kind) is None or not counts:
        return None
    # The size of the message is the larger of the data that a rank gives and the data that it gets, as in nccl-tests
    # (``doc/PERFORMANCE.md``). The number of ranks is empty if it is not recorded.
    message = Operand(_SCALARS.get(str(dtype), "?"), (max(counts),), (1,))
    return OperatorProblem(COLLECTIVE, (message, kind, str(ranks) if type(ranks) is int else ""))


def _input(dims: object, strides: object, type: object, value: object) -> Argument:
    if type == "TensorList" and isinstance(dims, list) and isinstance(strides, list):
        return tuple(Operand("?", *map(_numbers, pair)) for pair in zip(dims, strides, strict=True))
    if type in _TYPES and isinstance(dims, list) and value in ("", None):
        return Operand(_TYPES[str(type)], _numbers(dims), _numbers(strides))
    text = re.sub(r",\s+", ",", str(value))
    if _PLAIN.fullmatch(text) is None:
        raise ValueError(f"the value of an input has characters that its text cannot hold: {text[:40]}")
    return text


def _numbers(values: object) -> tuple[int, ...]:
    if not isinstance(values, Sequence) or not all(type(x) is int and x >= 0 for x in values):
        raise ValueError("sizes must be numbers")
    return tuple(values)
