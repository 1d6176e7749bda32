"""Everything that is specific to aiter: its log and its tables of tuned kernels."""

from __future__ import annotations

from logparse.model import Override


def may_write(override: Override) -> bool:
    """Return True if aiter's tables may be able to prescribe the wanted kernel for this matrix product.

    aiter is AMD's library of kernels.  ``override`` names a matrix product and the kernel that the user wants for it.
    A table of aiter may prescribe the kernel in two cases:

    * aiter itself measured the product.  Then ``override.key_text`` is a row of a table, so it contains commas.
    * The kernel does not come from hipBLASLt, rocBLAS, cuBLASLt, PyTorch or MIOpen.
    """
    own = "," in (override.key_text or "")
    return own or override.solution.library not in ("hipblaslt", "rocblas", "cublaslt", "torch", "miopen")
