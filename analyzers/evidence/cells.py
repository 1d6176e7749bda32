"""Convert DataFrame cells to Python types. An unknown value is None, NaN or NA in pandas, and None in Python."""

from __future__ import annotations

from typing import Any

from logparse.lazy import pd


def text_of(value: object) -> str | None:
    """Return the cell as text. Return None if it is unknown or empty."""
    return str(value) if isinstance(value, str) and value else None


def number_of(value: Any) -> float | None:
    """Return the cell as a number. Return None if it is unknown."""
    return None if _unknown(value) else float(value)


def count_of(value: Any) -> int | None:
    """Return the cell as a whole number. Return None if it is unknown."""
    return None if _unknown(value) else int(value)


def is_true(cells: pd.Series) -> pd.Series:
    """Return the cells as bools. An unknown cell becomes False.

    The cells are converted before ``fillna``, because pandas 2 warns if ``fillna`` gets a column of objects.
    """
    return cells.astype("boolean").fillna(False).astype(bool)


def _unknown(value: Any) -> bool:
    return bool(pd.isna(value))
