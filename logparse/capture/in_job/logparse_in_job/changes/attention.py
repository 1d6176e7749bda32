"""Choose which of PyTorch's attention kernels is used first."""

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
