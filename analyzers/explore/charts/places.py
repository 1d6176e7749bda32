"""Find places for the names of marks in a chart, so that a reader sees to which mark each name belongs.

A name stands beside its mark if no other mark is as near. Else a line leads from the mark to the name. A name overlaps
no other mark and no other text. Some marks get no name.

All places and sizes are in pixels of the smallest plot, from its left and lower edge. In a larger plot, marks are
further apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

PLOT = (700.0, 340.0)
"""Width and height of the smallest plot for which names are placed."""
_EDGE = 0.05
"""Width of the empty edge that plotly leaves around the marks, as a fraction of the plot."""
LETTER, BLANK, LINE = 6.9, 3.0, 15.0
"""Size of texts: the widest usual letter, the narrowest usual blank, the height of a line."""
_SAME_PLACE, GAP, _CLEAR = 2.0, 4.0, 14.0
"""Distances: of marks on one place, between a name and its mark, from a name without a line to any other mark."""
_LEADS = ((0, 32), (0, -32), (-40, 28), (40, 28), (-40, -28), (40, -28))
"""Where a line from a mark to its name ends: to the right and up."""


class Box(NamedTuple):
    """The ends of a text in the plot."""

    left: float
    right: float
    low: float
    high: float


class Name(NamedTuple):
    """The name of a mark, and where it stands.

    * ``mark``: the number of the mark. ``radius``: the radius of the largest mark on its place.
    * ``side``: the side of the mark on which the name stands, as plotly calls it. Empty if a line leads to the name.
    * ``lead``: where the line ends, to the right of the mark and up.
    """

    mark: int
    text: str
    radius: float
    side: str = ""
    lead: tuple[float, float] = (0.0, 0.0)


@dataclass
class _Others:
    """The other marks (``places``, ``radii``) and texts (``boxes``) that the name of one mark must not overlap."""

    places: np.ndarray
    radii: np.ndarray
    boxes: Sequence[Box]

    def leave_room(self, box: Box, gap: float) -> bool:
        """Tell whether a text fits into the plot, overlaps no text, and has this distance from every mark."""
        beside = np.maximum(np.maximum(box.left - self.places[:, 0], self.places[:, 0] - box.right), 0.0)
        above = np.maximum(np.maximum(box.low - self.places[:, 1], self.places[:, 1] - box.high), 0.0)
        inside = box.left >= 0 and box.right <= PLOT[0] and box.low >= 0 and box.high <= PLOT[1]
        apart = all(
            box.right <= x.left or x.right <= box.left or box.high <= x.low or x.high <= box.low for x in self.boxes
        )
        return bool(inside and apart and (np.hypot(beside, above) >= self.radii + gap).all())

    def let_pass(self, start: np.ndarray, lead: tuple[float, float]) -> bool:
        """Tell whether a line from ``start`` passes no mark at less than the usual distance."""
        along = np.array(lead, dtype="float64")
        to_mark = self.places - start
        share = np.clip(to_mark @ along / (along @ along), 0.0, 1.0)
        return bool((np.hypot(*(to_mark - share[:, None] * along).T) >= self.radii + GAP).all())


def to_pixels(marks: np.ndarray, others: np.ndarray, begin: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of marks and of other points of a chart, in pixels.

    All arguments are coordinates of the chart's axes. The axes begin at ``begin`` or at the lowest point.
    """
    drawn = np.vstack([marks, others, np.full((1, 2), begin)])
    low, spread = drawn.min(axis=0), np.ptp(drawn, axis=0)
    of_marks, of_others = (np.array(PLOT) * (_EDGE + (1 - 2 * _EDGE) * (x - low) / spread) for x in (marks, others))
    return of_marks, of_others


def place_names(
    places: np.ndarray,
    radii: np.ndarray,
    order: Iterable[int],
    text: Callable[[int, int], str],
    taken: Sequence[Box],
    most: int,
) -> list[Name]:
    """Find places for the names of at most ``most`` marks.

    * ``places``, ``radii``: all marks.
    * ``order``: numbers of marks, the most important first.
    * ``text``: returns the name of a mark. Its second argument is the number of other marks on the same place, which
      share the name.
    * ``taken``: the places of other texts.
    """
    boxes, out = list(taken), list[Name]()
    named = np.zeros(len(places), dtype=bool)
    for mark in order:
        if len(out) == most:
            break
        away = np.hypot(*(places - places[mark]).T)
        here = away <= _SAME_PLACE
        radius = float(radii[here].max())
        others = _Others(places[~here], radii[~here], boxes)
        # A name beside two overlapping marks would not show to which mark it belongs.
        if named[here].any() or (away[~here] < radius + others.radii + GAP).any():
            continue
        name = Name(mark, text(mark, int(here.sum()) - 1), radius)
        found = _place_beside(name, places[mark], others) or _place_by_line(name, places[mark], others)
        if found is not None:
            out.append(found[0])
            boxes.append(found[1])
            named |= here
    return out


def _place_beside(name: Name, place: np.ndarray, others: _Others) -> tuple[Name, Box] | None:
    """Find a side of the mark on which its name has room."""
    (x, y), width = map(float, place), LETTER * len(name.text)
    away, half = name.radius + GAP, LINE / 2
    left, right = x - width / 2, x + width / 2
    sides = {
        "middle left": Box(x - away - BLANK - width, x - away, y - half, y + half),
        "middle right": Box(x + away, x + away + BLANK + width, y - half, y + half),
        "top center": Box(left, right, y + LINE, y + 2 * LINE),
        "bottom center": Box(left, right, y - 2 * LINE, y - LINE),
    }
    # The names of marks in the right half are written to the left of them, if there is room.
    first = "middle left" if x > PLOT[0] / 2 else "middle right"
    for side in sorted(sides, key=lambda side: side != first):
        if others.leave_room(sides[side], _CLEAR):
            return name._replace(side=side), sides[side]
    return None


def _place_by_line(name: Name, place: np.ndarray, others: _Others) -> tuple[Name, Box] | None:
    """Find a place for the name to which a line can lead from the mark."""
    (x, y), width = map(float, place), LETTER * len(name.text)
    for lead in _LEADS:
        right, up = lead
        left = x + right - (width if right < 0 else 0 if right > 0 else width / 2)
        low = y + up - (LINE if up < 0 else 0)
        box = Box(left, left + width, low, low + LINE)
        if others.leave_room(box, GAP) and others.let_pass(place, lead):
            return name._replace(lead=lead), box
    return None
