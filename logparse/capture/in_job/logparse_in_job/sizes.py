"""Name a step of the job (or a request) by the sizes of its input, for example ``float32[16, 3, 224, 224]``."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Tuple

import torch

_MOST_TENSORS, _DEEPEST, _MOST_TEXTS = 2, 3, 1000
_KNOWN = (torch.Tensor, torch.nn.Parameter)
function_modes = getattr(torch._C, "_len_torch_function_stack", lambda: 0)
"""Function that returns how many modes (such as ``torch.device(…)``) see every attribute of a tensor that is read."""
_texts: Dict[Tuple[torch.dtype, torch.Size], str] = {}
"""Cache of the texts for tensors, by type and shape of the tensor. Making a text again costs several µs per call."""


def sizes(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> str:
    """Return the types and shapes of the first two tensors among a call's arguments, or an empty text without tensors.

    For example ``float32[16, 3, 224, 224] int64[16]``. Tensors within tuples, lists and dictionaries are included.
    """
    # Positional arguments come before keyword arguments. Tensors of a subclass are left out, because reading them may
    # run code of the subclass.
    found: List[str] = []
    _add(found, args, 0)
    if kwargs:
        _add(found, kwargs.values(), 0)
    return " ".join(found)


def _add(found: List[str], values: Iterable[Any], depth: int) -> None:
    """Add the types and shapes of the tensors in ``values`` to the list ``found``, up to ``_MOST_TENSORS`` tensors."""
    for value in values:
        if len(found) == _MOST_TENSORS:
            return
        kind = type(value)
        if kind in _KNOWN:
            found.append(_text(value) if not function_modes() else _without_modes(value))
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
