"""Make an output layer larger by rows of zeros, because kernels are faster for some sizes.

The layer still returns only its own outputs.
"""

from __future__ import annotations

import functools

import torch


def pad_output(model: torch.nn.Module, size: int, padded: int) -> torch.nn.Module:
    """Pad the weight of each linear layer that has ``size`` outputs with rows of zeros, up to ``padded`` rows.

    The layers still return only ``size`` outputs. Raises ValueError if no layer has ``size`` outputs.
    """
    layers = [x for x in model.modules() if isinstance(x, torch.nn.Linear) and x.out_features == size]
    if not layers:
        raise ValueError(
            f"the model has no torch.nn.Linear with {size} outputs to pad; change the sizes in the model's code instead"
        )
    grown = {id(x): x for layer in layers for x in layer.parameters(recurse=False)}
    for tensor in grown.values():  # the same parameter grows: tied layers stay tied, and an optimizer has it already
        tensor.data = with_rows(tensor, padded)
    for layer in layers:
        layer.register_forward_hook(functools.partial(first_outputs, size))
    # Embeddings that share the weight of a layer grow, too.
    for module in model.modules():
        if id(getattr(module, "weight", None)) in grown:
            for name in ("out_features", "num_embeddings"):
                if hasattr(module, name):
                    setattr(module, name, padded)
    return model


def first_outputs(size: int, module: torch.nn.Module, inputs: object, output: torch.Tensor) -> torch.Tensor:
    """Return only the first ``size`` outputs of a layer that was padded to more outputs. They are a view, not a copy.

    This is a forward hook: PyTorch calls it with the module, its inputs and its output.
    """
    return output[..., :size]


def with_rows(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    """Return a copy of a tensor with rows of zeros added, so that it has ``rows`` rows."""
    out = torch.zeros((rows, *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)
    out[: len(tensor)] = tensor.detach()
    return out
