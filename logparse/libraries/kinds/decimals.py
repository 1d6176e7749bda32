"""Convert decimal milliseconds to microseconds without rounding twice."""

from __future__ import annotations

import math


def microseconds(number: str | float) -> float:
    """Convert milliseconds to the microseconds that are nearest to the decimal number, for example 1.7124 to 1712.4.

    Raises ValueError if a text is not a number.
    """
    value = float(number)
    if not math.isfinite(value):
        return value
    # A plain ``ms * 1000`` rounds twice: 1.7124 * 1000 gives 1712.3999999999999. So the decimal point of the text is
    # moved instead. The text of a float is the shortest one that gives this float again.
    digits, _, exponent = str(number).strip().lower().partition("e")
    return float(f"{digits}e{int(exponent or 0) + 3}")


def from_milliseconds(text: str) -> float | None:
    """Convert a text with milliseconds to µs.  Returns None if the text is not a finite time above 0."""
    try:
        time_us = microseconds(text)
    except ValueError:
        return None
    return time_us if 0 < time_us < math.inf else None
