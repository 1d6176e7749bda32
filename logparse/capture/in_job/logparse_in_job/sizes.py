"""Name the kind of a unit by the types and sizes of its input tensors: ``float32[16, 3, 224, 224]``."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Tuple

import torch

_MOST_TENSORS, _DEEPEST = 2, 3
_KNOWN = (torch.Tensor, torch.nn.Parameter)
_modes = getattr(torch._C, "_len_torch_function_stack", lambda: 0)


def sizes(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> str:
    """Return types and sizes of the first two tensors.  Positional arguments come first.

    Return an empty text if there are no tensors. A tensor of a subclass is not read, because the subclass may run code
    of its own. Tensors within tuples, lists and dictionaries are included.
    """
    found = []
    for tensor in _tensors((*args, *kwargs.values()), 0):
        found.append(_size(tensor))
        if len(found) == _MOST_TENSORS:
            break
    return " ".join(found)


def _tensors(values: Any, depth: int) -> Iterator[torch.Tensor]:
    for value in values:
        kind = type(value)
        if kind in _KNOWN:
            yield value
        elif depth < _DEEPEST and kind in (tuple, list):
            yield from _tensors(value[:8], depth + 1)
        elif depth < _DEEPEST and kind is dict:
            yield from _tensors(list(value.values())[:8], depth + 1)


def _size(tensor: torch.Tensor) -> str:
    if not _modes():
        return _text(tensor)
    with torch._C.DisableTorchFunction():  # Otherwise a mode (``torch.device(…)``) would be called for each attribute
        return _text(tensor)


def _text(tensor: torch.Tensor) -> str:
    if tensor.is_nested or tensor.layout is not torch.strided:
        return str(tensor.dtype)[6:]
    return f"{str(tensor.dtype)[6:]}{list(tensor.shape)}"
