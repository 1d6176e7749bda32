"""Everything that is specific to aiter: its log and its tables of tuned kernels."""

from __future__ import annotations

from logparse.model import Override


def may_write(override: Override) -> bool:
    """Return True if a table of aiter (AMD's kernel library) may be able to name the wanted kernel for a product."""
    # If the product comes from a table of aiter, its key has commas. Such a table can also name kernels that are not
    # from hipBLASLt, rocBLAS, cuBLASLt, PyTorch or MIOpen.
    own = "," in (override.key_text or "")
    return own or override.solution.library not in ("hipblaslt", "rocblas", "cublaslt", "torch", "miopen")
