"""Images with their channels next to each other in memory."""

from __future__ import annotations

from typing import Any

import torch


def turn_images(module: torch.nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Give the images among a model's inputs the layout channels_last."""
    return tuple(x.to(memory_format=torch.channels_last) if torch.is_tensor(x) and x.dim() == 4 else x for x in inputs)
