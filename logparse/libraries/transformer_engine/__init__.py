"""The file in which TransformerEngine keeps the solutions of hipBLASLt that it chose."""

from __future__ import annotations

from logparse.model import Override


def may_write(override: Override) -> bool:
    """Return True if a TransformerEngine cache file can state this kernel for this machine.

    The kernel must be from hipBLASLt, and it must be known how many columns the machine's TransformerEngine expects in
    the file.
    """
    return override.solution.library == "hipblaslt" and "transformer_engine_columns" in override.target
