"""Convert decimal milliseconds to microseconds without rounding twice."""

from __future__ import annotations

import math


def microseconds(number: str | float) -> float:
    """Convert milliseconds to the microseconds that are nearest to the decimal number.

    A plain ``ms * 1000`` rounds twice: 1.7124 * 1000 gives 1712.3999999999999 instead of 1712.4.  So the decimal point
    of the text is moved instead.  A float is first written as the shortest text that gives this float again.  Raises
    ValueError if a text is not a number.
    """
    value = float(number)
    if not math.isfinite(value):
        return value
    digits, _, exponent = str(number).strip().lower().partition("e")
    return float(f"{digits}e{int(exponent or 0) + 3}")


def from_milliseconds(text: str) -> float | None:
    """Convert a text with milliseconds to µs.  Returns None if the text is not a finite time above 0."""
    try:
        time_us = microseconds(text)
    except ValueError:
        return None
    return time_us if 0 < time_us < math.inf else None
