"""Texts for people, and what people write: control characters, durations, shares.  No pandas, no pyarrow."""

from __future__ import annotations

from logparse.errors import InputError


def parse_share(text: str) -> float:
    """``3%`` or ``0.03`` as a share.  Raises InputError."""
    number = text.strip().removesuffix("%")
    try:
        value = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InputError(f"{text}: give a share such as 3% or 0.03")
    return value


def printable(text: str) -> str:
    """Text from outside, its control and escape characters made visible."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
