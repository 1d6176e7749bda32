"""Tests of finding the range in which an event of a trace lies. A program can mark ranges, also within each other.

The innermost range must be found. The result is compared with a simple, slow search.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from logparse.libraries.kinds.marker_ranges import innermost

RANGE = st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(0, 1))
MOMENT = st.tuples(st.integers(-2, 45), st.integers(0, 2))


def nested(ranges: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return the ranges (start, end, thread) except for those which partly overlap another range of their thread.

    A range may lie inside another one.
    """
    out: list[tuple[int, int, int]] = []
    for start, length, thread in ranges:
        end = start + length
        apart = all(
            t != thread or end < s or e < start or (s <= start and end <= e) or (start <= s and e <= end)
            for s, e, t in out
        )
        if apart:
            out.append((start, end, thread))
    return out


@given(st.lists(RANGE, max_size=12), st.lists(MOMENT, max_size=12))
def test_innermost_is_the_shortest_that_holds_the_moment(
    ranges: list[tuple[int, int, int]], moments: list[tuple[int, int]]
) -> None:
    rows = nested(ranges)
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
    asked = np.array(moments, dtype=np.int64).reshape(-1, 2)
    found = innermost(columns[:, 0], columns[:, 1], columns[:, 2], asked[:, 0], asked[:, 1])
    for (at, thread), index in zip(moments, found.tolist(), strict=True):
        holding = [e - s for s, e, t in rows if t == thread and s <= at <= e]
        assert (index >= 0) == bool(holding)
        if holding:
            start, end, of = rows[index]
            assert of == thread
            assert start <= at <= end
            assert end - start == min(holding)
