"""Everything that is specific to aiter: its log and its tables of tuned kernels."""

from __future__ import annotations

from logparse.model import Override


def may_write(override: Override) -> bool:
    """Return True if aiter's tables can hold the override (the user's choice of a solution for a product).

    A product that aiter measured has the key of a table row, with commas.  Without such a key, the solution must be a
    kernel that only aiter has.
    """
    own = "," in (override.key_text or "")
    return own or override.solution.library not in ("hipblaslt", "rocblas", "cublaslt", "torch", "miopen")
