"""Ranges of the numbers that files state.  A number outside of its range is damage, and its record becomes a reject.
=================================  =============================================================
sizes of a problem                 1 to 2^63 - 1 (from 0 for a member of a grouped GEMM, or a tensor)
leading dimensions, strides, pads  0 to 2^63 - 1
bytes of workspace                 0 to 2^63 - 1
calls of one record                0 to ``MOST_CALLS``
time of one call, µs               0 to ``MOST_US``, finite
=================================  =============================================================
"""

from __future__ import annotations

from typing import TypeGuard

LIMIT = 1 << 63
"""Smallest positive number that does not fit into 64 bits (signed)."""
MOST_US = 1e12
"""Longest time of one call that is accepted, in µs: 11.6 days.

A clock that is read wrongly gives decades.
"""
MOST_CALLS = 10**12
"""Largest number of calls that one record may state.

At one call per µs they take 11.6 days.  Sums over millions of records still fit 64 bits.
"""


def is_time(value: object) -> TypeGuard[float]:
    """Return True if a value can be the time of one call in µs: a finite number from 0 to ``MOST_US``."""
    return type(value) in (int, float) and 0 <= value <= MOST_US  # type: ignore[operator]  # NaN compares as False


def is_moment(value: object) -> TypeGuard[float]:
    """Return True if a value can be a time stamp: a finite number of at most 64 bits.

    The clock and the unit (µs or ns) do not matter.
    """
    return type(value) in (int, float) and -LIMIT < value < LIMIT  # type: ignore[operator]


def is_whole(value: object, least: int = 0, most: int = LIMIT - 1) -> TypeGuard[int]:
    """Return True if a value is an integer from ``least`` to ``most``.  True and False are not accepted."""
    return type(value) is int and least <= value <= most
