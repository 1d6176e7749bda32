"""Time attention in PyTorch: ``scaled_dot_product_attention`` on each of its backends.

``Default`` is the backend to which the recorded operator belongs.  A forward pass runs before each timing of a
gradient, because a trace does not contain its data.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

from logparse.libraries.kinds.backend import UnsupportedError
from logparse.libraries.kinds.device.attention_backends import BACKENDS, ELSEWHERE
from logparse.libraries.kinds.device.attention_operands import Attention, AttentionOperands
from logparse.libraries.kinds.device.torch_device import Around, Call, Tensor, TorchDevice
from logparse.libraries.kinds.patterns import regex
from logparse.libraries.pytorch.replay_ways import Way, name_way

_REFUSED = regex(r".*(?:No available kernel|No viable backend|No valid execution plans|not support).*", re.DOTALL)
"""Pattern of the messages with which PyTorch and cuDNN refuse inputs of an attention."""
_NO_REASON = regex(r".*kernel not used because.*|.*(?:been )?runtime disabled.*", re.DOTALL)


def attention_ways(device: TorchDevice, attention: Attention) -> list[Way]:
    """Return the different ways in which PyTorch can compute an attention, for timing. The default comes first.

    Each backend (flash, math …) is one way.  If a backend does not support the inputs, it refuses them only when it is
    called.
    """
    offered = [x for x in BACKENDS if x not in ELSEWHERE.get(device.facts["backend"], ())]
    solutions = [(name_way(), attention.backend), *((name_way(f"sdpa={x}"), x) for x in offered)]
    ways = []
    for solution, backend in solutions:
        around = partial(_on, device, BACKENDS[backend], training=attention.grad is not None)
        ways.append(Way(solution, partial(_call, device, around), around))
    return ways


@contextlib.contextmanager
def _on(device: TorchDevice, backend: str, *, training: bool) -> Iterator[None]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel([getattr(SDPBackend, backend)]), device.torch.set_grad_enabled(training):
        yield


def _call(device: TorchDevice, around: Around, o: AttentionOperands) -> Call:
    """Return a function that computes the attention with one of PyTorch's backends.

    Raises UnsupportedError with PyTorch's reason if the backend does not support the inputs.
    """
    torch, of = device.torch, o.attention
    more: dict[str, Any] = {"dropout_p": of.dropout, "is_causal": of.causal, "scale": of.scale}
    if of.query.sizes[1] != of.key.sizes[1]:
        more["enable_gqa"] = True

    def forward(i: int) -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(o.q[i], o.k[i], o.v[i], o.mask[i], **more)

    def made(i: int) -> Tensor:
        with around():
            return forward(i)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            outputs = [made(i) for i in range(o.sets if of.grad is not None else 1)]
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            if _REFUSED.match(str(error)) is None:
                raise
            raise UnsupportedError(_reason(error, [str(x.message) for x in said])) from error
    if of.grad is None:
        return forward
    return lambda i: torch.autograd.grad(outputs[i], (o.q[i], o.k[i], o.v[i]), o.grad[i], retain_graph=True)


def _reason(error: RuntimeError, said: list[str]) -> str:
    """Return the reason why PyTorch refused the inputs of an attention operator.

    It is in PyTorch's warnings, except for warnings about backends that are switched off here.  Without a warning it is
    the text of the error.
    """
    reasons = [x.partition(" (Triggered internally")[0].splitlines()[0] for x in said if not _NO_REASON.match(x)]
    return " ".join(dict.fromkeys(reasons)) or str(error).splitlines()[0]
