"""Tests of reading times as decimal numbers: they are converted to microseconds and rounded only once."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.libraries.kinds.decimals import microseconds


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9))
def test_the_nearest_double_to_the_decimal(number: object) -> None:
    assert microseconds(str(number)) == float(Fraction(str(number)) * 1000)


@given(st.floats(-1e15, 1e15))
def test_a_float_stands_for_its_shortest_decimal(number: float) -> None:
    assert microseconds(number) == float(Fraction(repr(number)) * 1000)


def test_what_a_product_of_doubles_gets_wrong() -> None:
    assert (1.7124 * 1000, microseconds("1.7124")) == (1712.3999999999999, 1712.4)
    assert microseconds(" 2.5E-4 ") == 0.25
    assert (microseconds("-inf"), math.isnan(microseconds(math.nan))) == (-math.inf, True)
    with pytest.raises(ValueError, match="could not convert"):
        microseconds("no number")
