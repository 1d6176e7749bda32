"""Convert cells of a DataFrame to Python types. A missing cell (None, NaN or NA in pandas) becomes None."""

from __future__ import annotations

from typing import Any

from logparse.lazy import pd


def text_of(value: object) -> str | None:
    """Return a DataFrame cell as text, or None if the cell is missing or empty."""
    return str(value) if isinstance(value, str) and value else None


def number_of(value: Any) -> float | None:
    """Return a DataFrame cell as a float, or None if the cell is missing."""
    return None if _is_missing(value) else float(value)


def count_of(value: Any) -> int | None:
    """Return a DataFrame cell as an int, or None if the cell is missing."""
    return None if _is_missing(value) else int(value)


def is_true(cells: pd.Series) -> pd.Series:
    """Convert a DataFrame column to bools. A missing cell becomes False.

    The column is converted before ``fillna``, because pandas 2 warns if ``fillna`` gets a column of objects.
    """
    return cells.astype("boolean").fillna(False).astype(bool)


def _is_missing(value: Any) -> bool:
    return bool(pd.isna(value))
