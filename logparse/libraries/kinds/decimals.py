"""Milliseconds written as decimals, as microseconds."""

from __future__ import annotations

import math


def microseconds(number: str | float) -> float:
    """The double nearest to ``number`` milliseconds; a float stands for the shortest decimal that reads as it.

    Multiplying doubles rounds twice: 1.7124 * 1000 is 1712.3999999999999, and two times that are written alike may
    then differ.  Raises ValueError where a text is no number.
    """
    value = float(number)
    if not math.isfinite(value):
        return value
    digits, _, exponent = str(number).strip().lower().partition("e")
    return float(f"{digits}e{int(exponent or 0) + 3}")


def from_milliseconds(text: str) -> float | None:
    """Microseconds; None for what is no time above 0."""
    try:
        time_us = microseconds(text)
    except ValueError:
        return None
    return time_us if 0 < time_us < math.inf else None
