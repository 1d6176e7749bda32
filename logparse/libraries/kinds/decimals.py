"""Conversion of decimal milliseconds to microseconds without rounding twice."""

from __future__ import annotations

import math


def microseconds(number: str | float) -> float:
    """Return the double nearest to ``number`` milliseconds, in µs.

    A float is taken as the shortest decimal text that gives this float when it is read.

    The product of two doubles is rounded twice: 1.7124 * 1000 is 1712.3999999999999.  Then two times with the same text
    could differ.  Raises ValueError if a text is no number.
    """
    value = float(number)
    if not math.isfinite(value):
        return value
    digits, _, exponent = str(number).strip().lower().partition("e")
    return float(f"{digits}e{int(exponent or 0) + 3}")


def from_milliseconds(text: str) -> float | None:
    """Return the time in µs, or None if the text is no finite time above 0."""
    try:
        time_us = microseconds(text)
    except ValueError:
        return None
    return time_us if 0 < time_us < math.inf else None
