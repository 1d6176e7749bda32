"""Set the order in which PyTorch tries its attention kernels, and test whether this order is still set."""

from __future__ import annotations


def prefer_attention(*names: str) -> object:
    """Let attention (``scaled_dot_product_attention``) use the first backend in ``names`` that supports its inputs.

    For example ``prefer_attention("FLASH_ATTENTION", "MATH")``. The program's own choice has priority. The returned
    context is already entered.
    """
    import atexit

    from torch.nn.attention import SDPBackend, sdpa_kernel

    chosen = sdpa_kernel([getattr(SDPBackend, name) for name in names], set_priority=True)
    chosen.__enter__()
    # A context ends when nothing holds it, and this module may be dropped.
    atexit.register(chosen.__exit__, None, None, None)
    return chosen


def attention_comes_first(name: str) -> bool:
    """Tell whether attention tries the backend ``name`` first, for example ``FLASH_ATTENTION``.

    Raises AttributeError if PyTorch is older than 2.6, because it has no order of backends.
    """
    import torch
    from torch.nn.attention import SDPBackend

    first = torch._C._get_sdp_priority_order()[0]
    return int(first) == int(getattr(SDPBackend, name)) and allows_attention(name)


def allows_attention(name: str) -> bool:
    """Tell whether attention may use the backend ``name``, for example ``FLASH_ATTENTION``."""
    import torch

    asked = {"FLASH_ATTENTION": "flash", "EFFICIENT_ATTENTION": "mem_efficient", "CUDNN_ATTENTION": "cudnn"}
    return bool(getattr(torch.backends.cuda, asked.get(name, "math") + "_sdp_enabled")())
