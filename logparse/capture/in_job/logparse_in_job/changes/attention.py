"""The order of the backends of ``scaled_dot_product_attention``."""

from __future__ import annotations


def prefer_attention(*names: str) -> object:
    """Let attention run on the first of these backends that takes its operands; a program's own choice goes before.

    The context that is returned is entered; it leaves when the process ends, or when ``__exit__`` is called.
    """
    import atexit

    from torch.nn.attention import SDPBackend, sdpa_kernel

    chosen = sdpa_kernel([getattr(SDPBackend, name) for name in names], set_priority=True)
    chosen.__enter__()
    atexit.register(chosen.__exit__, None, None, None)  # it ends where nothing holds it, and this module may be dropped
    return chosen
