"""Name a unit of work (a step or a request) by its input tensors, for example ``float32[16, 3, 224, 224]``."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Tuple

import torch

_MOST_TENSORS, _DEEPEST, _MOST_TEXTS = 2, 3, 1000
_KNOWN = (torch.Tensor, torch.nn.Parameter)
_modes = getattr(torch._C, "_len_torch_function_stack", lambda: 0)
_texts: Dict[Tuple[torch.dtype, torch.Size], str] = {}
"""Texts that were made before.  Making a text anew costs several µs per call."""


def sizes(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> str:
    """Return types and sizes of the first two tensors.  Positional arguments come first.

    Return an empty text if there are no tensors. A tensor of a subclass is not read, because the subclass may run code
    of its own. Tensors within tuples, lists and dictionaries are included.
    """
    found: List[str] = []
    _add(found, args, 0)
    if kwargs:
        _add(found, kwargs.values(), 0)
    return " ".join(found)


def _add(found: List[str], values: Iterable[Any], depth: int) -> None:
    """Add the sizes of the tensors among the values, until there are ``_MOST_TENSORS`` sizes."""
    for value in values:
        if len(found) == _MOST_TENSORS:
            return
        kind = type(value)
        if kind in _KNOWN:
            found.append(_text(value) if not _modes() else _without_modes(value))
        elif depth < _DEEPEST and kind in (tuple, list):
            _add(found, value[:8], depth + 1)
        elif depth < _DEEPEST and kind is dict:
            _add(found, list(value.values())[:8], depth + 1)


def _without_modes(tensor: torch.Tensor) -> str:
    with torch._C.DisableTorchFunction():  # Otherwise a mode (``torch.device(…)``) would be called for each attribute
        return _text(tensor)


def _text(tensor: torch.Tensor) -> str:
    if tensor.is_nested or tensor.layout is not torch.strided:
        return str(tensor.dtype)[6:]
    key = (tensor.dtype, tensor.shape)
    text = _texts.get(key)
    if text is None:
        if len(_texts) >= _MOST_TEXTS:
            _texts.clear()
        text = _texts[key] = f"{str(key[0])[6:]}{list(key[1])}"
    return text
