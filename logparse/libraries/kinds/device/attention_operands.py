"""Rebuild the inputs (queries, keys, values) of an attention that a trace recorded.

The inputs of an operator are found by their names in its PyTorch schema, so traces of other PyTorch versions can be
read too.  Everything that ``scaled_dot_product_attention`` accepts is understood.  That function cannot compute
sequences of different lengths in one batch, sliding windows, ALiBi slopes or paged caches.  An operator with such
inputs is replayed like any other operator, without a comparison of attention backends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from logparse.libraries.kinds.backend import Conditions, UnsupportedError
from logparse.libraries.kinds.device.attention_backends import backend_of
from logparse.libraries.kinds.device.operator_operands import Inputs, OperatorOperands, value_of
from logparse.libraries.kinds.device.torch_device import Tensor, TorchDevice
from logparse.model import Argument, Operand, OperatorProblem

_TYPES = frozenset({"float16", "bfloat16", "float32", "float64"})
_MORE = ("cum_seq_q", "cum_seq_k", "cu_seqlens_q", "cu_seqlens_k", "seqused_k", "seqlen_k", "alibi_slopes")
_WITHOUT = (*_MORE, "block_table", "window_size_left", "window_size_right", "window_size")
"""Arguments of an attention operator that ``scaled_dot_product_attention`` does not have.

If one of them has a value, that function cannot compute the attention.  An empty text, ``None`` and ``-1`` mean that an
argument has no value.
"""
_TOKENS_FIRST = frozenset({"flash", "efficient"})
"""Backends whose own operators take tensors of (batch, tokens, heads, size).

The operators of all other backends take (batch, heads, tokens, size).
"""


@dataclass(frozen=True, kw_only=True)
class Attention:
    """An attention that an operator in a trace computed.  Each tensor has the shape (batch, heads, tokens, size).

    ``grad`` is the gradient of the output.  It is given only for an operator that computes gradients.
    """

    backend: str
    query: Operand
    key: Operand
    value: Operand
    grad: Operand | None = None
    mask: Operand | None = None
    dropout: float = 0.0
    causal: bool = False
    scale: float | None = None


def attention_of(device: TorchDevice, problem: OperatorProblem) -> Attention | None:
    """Return the attention that a recorded operator computes, with its inputs and options.

    Returns None if the operator is not an attention, or if one of its inputs cannot be read.
    """
    backend = backend_of(problem.name)
    packet = getattr(device.torch.ops.aten, problem.name.removeprefix("aten::"), None)
    if backend is None or packet is None:
        return None
    schema = packet.default._schema.arguments
    given: Mapping[str, Argument] = {x.name: value for x, value in zip(schema, problem.inputs, strict=False)}
    types = {x.name: str(x.type) for x in schema}

    def value(name: str, otherwise: Any) -> Any:
        text = given.get(name, "")
        return otherwise if text in ("", "None") else value_of(device, str(text), types[name])

    if len(problem.inputs) > len(schema) or any(given.get(name, "") not in ("", "None", "-1") for name in _WITHOUT):
        return None
    tokens_first = backend in _TOKENS_FIRST and "scaled_dot_product" not in problem.name
    operands = {
        name: _turned(operand) if tokens_first else operand
        for name in ("query", "key", "value", "grad_out", "grad_out_")
        if isinstance(operand := given.get(name), Operand)
    }
    masks = [x for name in ("bias", "attn_bias", "attn_mask") if isinstance(x := given.get(name), Operand)]
    try:
        kind = value("custom_mask_type", 0)  # CUTLASS: 1 is causal from the upper left corner, 2 from the lower right
        found = Attention(
            backend=backend,
            query=operands["query"],
            key=operands["key"],
            value=operands["value"],
            grad=operands.get("grad_out", operands.get("grad_out_")),
            mask=masks[0] if masks else None,
            dropout=value("dropout_p", 0.0),
            causal=value("is_causal", False) or kind != 0,
            scale=value("scale", None),
        )
        learned_mask = value("bias_requires_grad", False) or value("grad_input_mask", [False])[-1]
    except (KeyError, UnsupportedError):
        return None
    backward = problem.name.endswith("_backward")
    if backward is not (found.grad is not None) or (backward and found.mask is not None and learned_mask):
        return None
    return found if _is_plain(found, from_corner=kind == 2 or backend == "flash") else None


def _turned(x: Operand) -> Operand:
    """Swap the dimensions for tokens and heads in the description of a tensor.

    A tensor of (batch, tokens, heads, size) becomes (batch, heads, tokens, size).  Its memory stays the same.
    """
    if len(x.sizes) != 4:
        return x
    sizes, strides = ((y[0], y[2], y[1], y[3]) for y in (x.sizes, x.strides))
    return replace(x, sizes=sizes, strides=strides)


def _is_plain(x: Attention, *, from_corner: bool) -> bool:
    """Return True if ``scaled_dot_product_attention`` can run an attention operator with these sizes, types and mask.

    ``from_corner`` is True if the operator's causal mask starts at the last query and the last key.
    """
    parts = x.query, x.key, x.value
    tensors = (*parts, x.grad) if x.grad is not None else parts
    if any(len(part.sizes) != 4 or 0 in part.sizes or part.dtype not in _TYPES for part in tensors):
        return False
    fits = x.key.sizes[:3] == x.value.sizes[:3] and x.query.sizes[0] == x.key.sizes[0]
    fits = fits and x.query.sizes[1] % x.key.sizes[1] == 0  # several query heads may share one key head
    fits = fits and x.query.sizes[3] == x.key.sizes[3] and len({part.dtype for part in parts}) == 1
    if x.mask is not None and (len(x.mask.sizes) > 4 or x.causal or x.mask.dtype not in _TYPES | {"bool"}):
        return False
    # The causal mask of PyTorch's function starts at the first query and the first key. Both masks are equal only if
    # there are as many queries as keys.
    return fits and not (x.causal and from_corner and x.query.sizes[2] != x.key.sizes[2])


class AttentionOperands(OperatorOperands):
    """The inputs of an attention on the device: ``q``, ``k``, ``v``, ``mask`` and ``grad``.

    Each of them is a list of equal tensors, which are used in turn, so that the cache does not hold the data.
    """

    _is_filled = False

    def __init__(self, device: TorchDevice, problem: OperatorProblem, conditions: Conditions, of: Attention) -> None:
        self.attention = of
        super().__init__(device, problem, conditions)
        self.q, self.k, self.v = ([values[i] for values, _ in self.arguments] for i in range(3))
        self.mask: list[Tensor] = [more.get("mask") for _, more in self.arguments]
        self.grad: list[Tensor] = [more.get("grad") for _, more in self.arguments]

    def fill(self, seed: int) -> None:
        """Write random values into the inputs.  If a gradient is timed, only the first call writes."""
        # The gradient belongs to an output that is computed once, from the first values. Autograd raises an error if
        # the inputs were overwritten after the output was computed.
        if self.attention.grad is None or not self._is_filled:
            super().fill(seed)
            self._is_filled = True

    def _arguments(self) -> Inputs:
        parts = (self.attention.query, self.attention.key, self.attention.value)
        values = [self._tensor(x) for x in parts]
        more = {"mask": self.attention.mask, "grad": self.attention.grad}
        if self.attention.grad is not None:
            values = [x.requires_grad_() for x in values]
        return values, {name: self._tensor(x) for name, x in more.items() if x is not None}
