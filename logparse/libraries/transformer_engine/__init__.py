"""The file in which TransformerEngine keeps the solutions of hipBLASLt that it chose."""

from __future__ import annotations

from logparse.model import Override


def may_write(override: Override) -> bool:
    """Return True for solutions of hipBLASLt, if the target states which header its TransformerEngine reads."""
    return override.solution.library == "hipblaslt" and "transformer_engine_columns" in override.target
