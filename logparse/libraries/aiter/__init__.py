"""Everything that is specific to aiter: its log and its tables of tuned kernels."""

from __future__ import annotations

from logparse.model import Override


def may_write(override: Override) -> bool:
    """Return True if aiter's tables of kernels may be able to state which kernel to use for this product.

    The override (the user's choice of a kernel for a product) fits in two cases:

    * aiter itself measured the product.  Then ``override.key_text`` contains commas, as a row of aiter's tables does.
    * The kernel belongs to no other library, for example not to hipBLASLt.
    """
    own = "," in (override.key_text or "")
    return own or override.solution.library not in ("hipblaslt", "rocblas", "cublaslt", "torch", "miopen")
