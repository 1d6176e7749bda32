"""Decimal texts become microseconds without a second rounding."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.formats.decimals import MS_TO_US, NS_TO_US, shifted

PLACES = st.integers(-9, 9)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9), PLACES)
def test_the_nearest_double_to_the_decimal(number: object, places: int) -> None:
    assert shifted(str(number), places) == float(Fraction(str(number)) * Fraction(10) ** places)


@given(st.floats(-1e15, 1e15), PLACES)
def test_a_float_stands_for_its_shortest_decimal(number: float, places: int) -> None:
    assert shifted(number, places) == float(Fraction(repr(number)) * Fraction(10) ** places)


def test_what_a_product_of_doubles_gets_wrong() -> None:
    assert (1.7124 * 1000, shifted("1.7124", MS_TO_US)) == (1712.3999999999999, 1712.4)
    assert shifted(" 2.5E-1 ", NS_TO_US) == 0.00025
    assert (shifted("-inf", 3), math.isnan(shifted(math.nan, 3))) == (-math.inf, True)
    with pytest.raises(ValueError, match="could not convert"):
        shifted("no number", 3)
