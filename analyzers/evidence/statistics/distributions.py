"""Student's t distribution and the functions that it needs. Pure.

Numbers such as 26.7.1 are formulas in Abramowitz and Stegun, Handbook of Mathematical Functions (1964).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

# SciPy has these functions too, but nothing else needs SciPy, and it would double the size of the download.

_ASYMPTOTIC_FROM = 12.0
_TINY = 1e-300


def student_t_tail(t: float, degrees: float) -> float:
    """Return P(T > t) for a variable T with Student's t distribution with ``degrees`` degrees of freedom.

    Source: Abramowitz and Stegun, formula 26.7.1.
    """
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    tail = incomplete_beta(degrees / (degrees + t * t), degrees / 2, 0.5) / 2
    return tail if t >= 0 else 1 - tail


@lru_cache(maxsize=4096)
def student_t_quantile(p: float, degrees: float) -> float:
    """Return the t with P(T ≤ t) = ``p``, where T has Student's t distribution. ``p`` is in [0.5, 1)."""
    return _solve_by_bisection(lambda t: student_t_tail(t, degrees), 1 - p)


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b).

    It is computed from its continued fraction (26.5.8) with Lentz's method.
    """
    if x <= 0 or x >= 1:
        return min(1.0, max(0.0, x))
    if x > (a + 1) / (a + b + 2):  # The fraction converges slowly here, so the symmetry 26.5.2 is used.
        return 1 - incomplete_beta(1 - x, b, a)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or _TINY)
    value = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        change = 1.0
        for term in (even, odd):
            d, c = 1 / (1 + term * d or _TINY), 1 + term / c or _TINY
            change = c * d
            value *= change
        if abs(change - 1) < 1e-14:
            break
    return math.exp(front) * value / a


def digamma(x: float) -> float:
    """Return the digamma function ψ(x), the derivative of ln Γ(x), for positive x.

    Sources: Abramowitz and Stegun, formulas 6.3.5 and 6.3.18.
    """
    if x < _ASYMPTOTIC_FROM:
        return digamma(x + 1) - 1 / x
    z = 1 / (x * x)
    return math.log(x) - 1 / (2 * x) - z * (1 / 12 - z * (1 / 120 - z * (1 / 252 - z / 240)))


def trigamma(x: float) -> float:
    """Return the trigamma function ψ′(x), the second derivative of ln Γ(x), for positive x.

    Sources: Abramowitz and Stegun, formulas 6.4.6 and 6.4.12.
    """
    if x < _ASYMPTOTIC_FROM:
        return trigamma(x + 1) + 1 / (x * x)
    z = 1 / (x * x)
    return 1 / x + z / 2 + z / x * (1 / 6 - z * (1 / 30 - z * (1 / 42 - z / 30)))


def inverse_trigamma(value: float) -> float:
    """Return the positive x at which the trigamma function ψ′(x) is ``value``."""
    return _solve_by_bisection(trigamma, value)


def _solve_by_bisection(falling: Callable[[float], float], value: float) -> float:
    """Return the positive x at which a falling function has this value, found by bisection."""
    low, high = 0.0, 1.0
    while falling(high) > value:
        low, high = high, high * 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > value else (low, middle)
    return (low + high) / 2
