"""One cell of a DataFrame as Python's type: pandas has None, NaN and NA for what is unknown, Python None."""

from __future__ import annotations

from typing import Any


def text_of(value: object) -> str | None:
    """A text; None for an unknown or empty one."""
    return str(value) if isinstance(value, str) and value else None


def number_of(value: Any) -> float | None:
    """A number; None for an unknown one."""
    return None if _unknown(value) else float(value)


def count_of(value: Any) -> int | None:
    """A whole number; None for an unknown one."""
    return None if _unknown(value) else int(value)


def _unknown(value: Any) -> bool:
    import pandas as pd  # here: what checks or merges files imports this module, and makes no DataFrame

    return bool(pd.isna(value))
