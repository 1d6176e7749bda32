"""Convert cells of a DataFrame to Python types. An unknown cell (None, NaN or NA in pandas) becomes None."""

from __future__ import annotations

from typing import Any

from logparse.lazy import pd


def text_of(value: object) -> str | None:
    """Return a cell as text, or None if it is unknown or empty."""
    return str(value) if isinstance(value, str) and value else None


def number_of(value: Any) -> float | None:
    """Return a cell as a float, or None if it is unknown."""
    return None if _unknown(value) else float(value)


def count_of(value: Any) -> int | None:
    """Return a cell as an int, or None if it is unknown."""
    return None if _unknown(value) else int(value)


def is_true(cells: pd.Series) -> pd.Series:
    """Convert a column to bools. An unknown cell becomes False.

    The cells are converted before ``fillna``, because pandas 2 warns if ``fillna`` gets a column of objects.
    """
    return cells.astype("boolean").fillna(False).astype(bool)


def _unknown(value: Any) -> bool:
    return bool(pd.isna(value))
