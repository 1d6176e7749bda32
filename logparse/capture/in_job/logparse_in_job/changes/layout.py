"""Convert images to a memory layout in which the channels of a pixel lie next to each other (channels_last)."""

from __future__ import annotations

from typing import Any

import torch


def turn_images(module: torch.nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a module's inputs with the images (tensors of 4 dimensions) in the memory layout channels_last.

    This is a forward pre-hook: PyTorch calls it with the module and its inputs.
    """
    return tuple(x.to(memory_format=torch.channels_last) if torch.is_tensor(x) and x.dim() == 4 else x for x in inputs)
