"""Kernels as a user would write them, which a replay or a generated ``apply.py`` imports."""

from __future__ import annotations

from typing import Any

CALLS: list[str] = []


def product(x: Any, y: Any, *, bias: Any, c: Any, activation: str | None, out: Any) -> None:
    """act(x·y + bias), by PyTorch's own product, which an override must not call this for again."""
    import torch

    CALLS.append(activation or "none")
    value = torch.mm(x, y) if x.dim() == 2 else torch.bmm(x, y)
    value = value if bias is None else value + bias
    out.copy_(value.relu() if activation == "relu" else value)


def returned(x: Any, y: Any, *, bias: Any, **_: Any) -> Any:
    """As ``product``, but returns a result of its own."""
    CALLS.append("returned")
    return x @ y if bias is None else x @ y + bias


def wrong(x: Any, y: Any, *, out: Any, **_: Any) -> None:
    """Forgets half of the sum."""
    out.copy_(x @ y / 2)


def failing(x: Any, y: Any, **_: Any) -> None:
    """Refuses everything."""
    raise ValueError("no tensor cores here")
