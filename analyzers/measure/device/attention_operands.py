"""Queries, keys and values of a recorded attention, and what its results are compared with.

An operator of attention is read by the names in its schema, so that a trace of another version of PyTorch is read too:
what is read is all that ``scaled_dot_product_attention`` takes.  What that does not compute (sequences of different
lengths in one batch, windows, slopes, pages) is not read, and is replayed as any other operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analyzers.actions.attention import backend_of
from analyzers.measure.backend import Conditions, UnsupportedError
from analyzers.measure.correctness import ROUNDOFF, tolerance
from analyzers.measure.device.operator_operands import Inputs, OperatorOperands, value_of
from analyzers.measure.device.torch_device import Tensor, TorchDevice
from logparse.model import Argument, Operand, OperatorProblem

_TYPES = frozenset({"float16", "bfloat16", "float32", "float64"})
_MORE = ("cum_seq_q", "cum_seq_k", "cu_seqlens_q", "cu_seqlens_k", "seqused_k", "seqlen_k", "alibi_slopes")
_WITHOUT = (*_MORE, "block_table", "window_size_left", "window_size_right", "window_size")
"""Arguments of which a value asks for something else than ``scaled_dot_product_attention`` computes."""
_TOKENS_FIRST = frozenset({"flash", "efficient"})
"""Backends whose own operators take (batch, tokens, heads, size), all others (batch, heads, tokens, size)."""
_SCORES = 1 << 26
"""Elements of scores that the reference computes at once."""


@dataclass(frozen=True, kw_only=True)
class Attention:
    """What a recorded operator computes.  Each operand is (batch, heads, tokens, size); ``grad`` of the output: the
    operator is a gradient.
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

    @property
    def heads(self) -> tuple[int, int]:
        """Of queries, and of keys and values: fewer where several queries share them."""
        return self.query.sizes[1], self.key.sizes[1]


def attention_of(device: TorchDevice, problem: OperatorProblem) -> Attention | None:
    """The attention that a recorded operator computes; None where it computes none, or an input is not readable."""
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
        kind = value("custom_mask_type", 0)  # of CUTLASS: 1 causal from the upper left corner, 2 from the lower right
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
    """(batch, tokens, heads, size) as (batch, heads, tokens, size), in the same memory."""
    if len(x.sizes) != 4:
        return x
    sizes, strides = ((y[0], y[2], y[1], y[3]) for y in (x.sizes, x.strides))
    return replace(x, sizes=sizes, strides=strides)


def _is_plain(x: Attention, *, from_corner: bool) -> bool:
    """Whether sizes and types fit each other.  A causal mask ``from_corner`` of the last query and key is PyTorch's own
    only where there are as many queries as keys.
    """
    parts = x.query, x.key, x.value
    tensors = (*parts, x.grad) if x.grad is not None else parts
    if any(len(part.sizes) != 4 or 0 in part.sizes or part.dtype not in _TYPES for part in tensors):
        return False
    queries, keys = x.heads
    fits = x.key.sizes[:3] == x.value.sizes[:3] and x.query.sizes[0] == x.key.sizes[0] and queries % keys == 0
    fits = fits and x.query.sizes[3] == x.key.sizes[3] and len({part.dtype for part in parts}) == 1
    if x.mask is not None and (len(x.mask.sizes) > 4 or x.causal or x.mask.dtype not in _TYPES | {"bool"}):
        return False
    return fits and not (x.causal and from_corner and x.query.sizes[2] != x.key.sizes[2])


class AttentionOperands(OperatorOperands):
    """Operand sets of an attention: ``q``, ``k``, ``v``, ``mask`` and ``grad`` are lists over the sets.

    The result of the first set is compared with an attention in higher precision, each element with what rounding
    explains of it; with dropout, which every backend draws otherwise, it is not.  PyTorch allocates the results, which
    cannot be filled with NaN before.
    """

    def __init__(self, device: TorchDevice, problem: OperatorProblem, conditions: Conditions, of: Attention) -> None:
        self.attention = of
        self._remake: list[Callable[[], None]] = []
        self._reference: list[tuple[Tensor, Tensor]] = []
        super().__init__(device, problem, conditions)
        self.q, self.k, self.v = ([values[i] for values, _ in self.arguments] for i in range(3))
        self.mask: list[Tensor] = [more.get("mask") for _, more in self.arguments]
        self.grad: list[Tensor] = [more.get("grad") for _, more in self.arguments]
        self._allowed = tolerance(problem)

    def _arguments(self) -> Inputs:
        parts = (self.attention.query, self.attention.key, self.attention.value)
        values = [self._tensor(x) for x in parts]
        more = {"mask": self.attention.mask, "grad": self.attention.grad}
        if self.attention.grad is not None:
            values = [x.requires_grad_() for x in values]
        return values, {name: self._tensor(x) for name, x in more.items() if x is not None}

    def fill(self, seed: int) -> None:
        """Random normal values; what was derived from the ones before follows."""
        super().fill(seed)
        self._reference.clear()
        for remake in self._remake:
            remake()

    def derived(self, make: Callable[[int], Tensor]) -> list[Tensor]:
        """A tensor per set that is computed from its operands, and computed anew when they change."""
        held: list[Tensor] = []

        def remake() -> None:
            held[:] = []  # the memory of the old ones serves the new ones
            held.extend(make(i) for i in range(self.sets))

        remake()
        self._remake.append(remake)
        return held

    def error(self, output: Tensor | Sequence[Tensor]) -> float:
        """The largest ‖out − ref‖ / ‖ref‖ of the output, or of the three gradients."""
        torch, errors = self._device.torch, [0.0]
        for out, ref, _ in self._compared(output):
            if not bool(torch.isfinite(out).all()):
                return math.nan
            norm = torch.linalg.vector_norm
            errors.append(float(norm(out.to(ref.dtype) - ref)) / max(float(norm(ref)), 1e-30))
        return max(errors)

    def fault(self, run: Callable[[], Tensor | Sequence[Tensor]]) -> str:
        """Each element on random data; exponentials leave no integers on which results are exact."""
        products = self._allowed.products + 2 * ROUNDOFF[self.attention.query.dtype]  # weights rounded to this type
        for out, ref, size in self._compared(run()):
            mean = float(self._device.torch.linalg.vector_norm(ref)) / math.sqrt(ref.numel())
            limit = self._allowed.output * ref.abs() + self._allowed.partials * mean + products * size
            excess = float(((out.to(ref.dtype) - ref).abs() / limit.clamp_min(1e-30)).max())
            if not excess <= 1:
                return f"an element differs {excess:.1f} times as much as rounding explains"
        return ""

    def _compared(self, output: Tensor | Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Results of the first set, each with its reference and the sums of the magnitudes of its products."""
        if self.attention.dropout:
            return
        outputs = output if isinstance(output, (tuple, list)) else (output,)
        with self._device.torch.no_grad():
            if not self._reference:
                self._reference = self._computed()
            for out, (ref, size) in zip(outputs, self._reference, strict=True):
                yield out.detach(), ref, size

    def _computed(self) -> list[tuple[Tensor, Tensor]]:
        """The output, or the gradients of query, key and value, in higher precision, and the magnitudes."""
        torch, of = self._device.torch, self.attention
        wide = torch.float64 if of.query.dtype in ("float32", "float64") else torch.float32
        parts = of.query, of.key, of.value
        sizes = [x.sizes for x in parts] if of.grad else [(*of.query.sizes[:3], of.value.sizes[3])]
        found = [
            (torch.zeros(x, dtype=wide, device=self._device.device), torch.zeros(x, device=self._device.device))
            for x in sizes
        ]
        queries, keys = of.heads
        rows = max(1, _SCORES // of.key.sizes[2])
        for image in range(of.query.sizes[0]):
            for head in range(queries):
                for row in range(0, of.query.sizes[2], rows):
                    part = slice(row, row + rows)
                    if of.grad is None:
                        results = [self._output(image, head, part, wide)]
                        places = [(image, head, part)]
                    else:
                        results = self._gradients(image, head, part, wide)
                        shared = image, head * keys // queries, slice(None)
                        places = [(image, head, part), shared, shared]
                    for (ref, size), place, (value, magnitude) in zip(found, places, results, strict=True):
                        ref[place] += value
                        size[place] += magnitude
        return found

    def _weights(self, image: int, head: int, part: slice, wide: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, float]:
        """Query, key, value and softmax of the scores of some queries of a head, and the factor of the scores."""
        torch, of = self._device.torch, self.attention
        queries, keys = of.heads
        shared = head * keys // queries
        q, k, v = self.q[0][image, head, part].to(wide), *(x[0][image, shared].to(wide) for x in (self.k, self.v))
        scale = of.query.sizes[3] ** -0.5 if of.scale is None else of.scale
        scores = q @ k.T * scale
        if of.mask is not None:
            mask = self.mask[0].expand(*of.query.sizes[:3], of.key.sizes[2])[image, head, part]
            hidden = mask.dtype == torch.bool
            scores = scores.masked_fill(~mask, -math.inf) if hidden else scores + mask.to(wide)
        if of.causal:
            row, column = (torch.arange(n, device=q.device) for n in (of.query.sizes[2], of.key.sizes[2]))
            scores = scores.masked_fill(column[None, :] > row[part, None], -math.inf)
        return q, k, v, torch.softmax(scores, -1), scale

    def _output(self, image: int, head: int, part: slice, wide: Any) -> tuple[Tensor, Tensor]:
        _, _, v, weights, _ = self._weights(image, head, part, wide)
        return weights @ v, weights @ v.abs()

    def _gradients(self, image: int, head: int, part: slice, wide: Any) -> list[tuple[Tensor, Tensor]]:
        """Of query, key and value.  Every kernel takes the sum of gradient × output off the gradient of the weights, so
        that its products are part of the magnitudes.
        """
        q, k, v, weights, scale = self._weights(image, head, part, wide)
        grad = self.grad[0][image, head, part].to(wide)
        out = weights @ v
        inner = grad @ v.T - (grad * out).sum(-1, keepdim=True)
        of_scores = scale * weights * inner
        sizes = scale * weights * (inner.abs() + (grad * out).abs().sum(-1, keepdim=True))
        return [
            (of_scores @ k, sizes @ k.abs()),
            (of_scores.T @ q, sizes.T @ q.abs()),
            (weights.T @ grad, weights.T @ grad.abs()),
        ]


def operands_of(device: TorchDevice, problem: OperatorProblem, conditions: Conditions) -> OperatorOperands:
    """The operands of any operator."""
    found = attention_of(device, problem)
    if found is None:
        return OperatorOperands(device, problem, conditions)
    return AttentionOperands(device, problem, conditions, found)
