"""Times written as decimals, in other units, as microseconds."""

from __future__ import annotations

import math

MS_TO_US, NS_TO_US, S_TO_US = 3, -3, 6
"""Decimal places by which ``shifted`` turns a time of that unit into microseconds."""


def shifted(number: str | float, places: int) -> float:
    """The double nearest to ``number`` × 10**``places``; a float stands for the shortest decimal that reads as it.

    Multiplying doubles rounds twice: 1.7124 * 1000 is 1712.3999999999999, and two times that are written alike may
    then differ.  Raises ValueError where a text is no number.
    """
    value = float(number)
    if not math.isfinite(value):
        return value
    digits, _, exponent = str(number).strip().lower().partition("e")
    return float(f"{digits}e{int(exponent or 0) + places}")


def from_milliseconds(text: str) -> float | None:
    """Microseconds; None for what is no time above 0."""
    try:
        time_us = shifted(text, MS_TO_US)
    except ValueError:
        return None
    return time_us if 0 < time_us < math.inf else None
