"""Everything that is specific to TunableOp, which makes PyTorch choose the fastest solution of several libraries."""

from __future__ import annotations

from logparse.model import GemmProblem, Override


def may_write(override: Override) -> bool:
    """Return True for every matrix product, because TunableOp's files can name kernels of several libraries."""
    return isinstance(override.problem, GemmProblem)
