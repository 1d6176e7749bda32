"""Cells of a DataFrame as Python's types: pandas has None, NaN and NA for what is unknown, Python None."""

from __future__ import annotations

from typing import Any

from logparse.lazy import pd


def text_of(value: object) -> str | None:
    """A text; None for an unknown or empty one."""
    return str(value) if isinstance(value, str) and value else None


def number_of(value: Any) -> float | None:
    """A number; None for an unknown one."""
    return None if _unknown(value) else float(value)


def count_of(value: Any) -> int | None:
    """A whole number; None for an unknown one."""
    return None if _unknown(value) else int(value)


def is_true(cells: pd.Series) -> pd.Series:
    """Which cells are true, as plain bools: an unknown one is not (pandas 2 warns at ``fillna`` of objects)."""
    return cells.astype("boolean").fillna(False).astype(bool)


def _unknown(value: Any) -> bool:
    return bool(pd.isna(value))
