"""In which order an action is switched on and off in a running job, and when what it does to a unit is known.

This module runs inside a user's job: Python 3.8 and later, the standard library alone, no PyTorch.

=============  ============================================================================================
a              is
=============  ============================================================================================
block          some units in one state, from an idle device on; the first one is not timed, see below
quad           four blocks: as it is, on, on, as it is; in every other quad the states are exchanged.  Drift
               that is linear over a quad cancels (ABBA: Georges, Buytaert and Eeckhout, "Statistically
               rigorous Java performance evaluation", OOPSLA 2007, on why runs alternate)
pair           the two neighbours of a quad that differ in their state: each quad has two
control        a quad, every third one, in which "on" is a switch that goes on and off again at once.  What
               it finds is no effect of the action but one of this process: new addresses, caches, the
               switching itself
=============  ============================================================================================

How many units leave a trace.  The *first visit* of the state "on" is not timed: libraries choose plans, allocators grow
and caches fill then.  It ends when the times have settled (``settling.py``, White's marginal confidence rule), after
``_MOST_FIRST`` units at the latest.  The job has been in the other state before.  A later visit finds all of that, and
drops one unit: it began on an idle device, and the period before it held the switch.

When it is known.  The logarithm of a pair's ratio is one value; the interval is that of the signed ranks
(``signed_rank.py``).  It is looked at after ``LOOKS`` pairs alone, each time with an error of 5 % / len(LOOKS), so that
all looks together are wrong in 5 % at most (Bonferroni's inequality; Dunn, "Multiple comparisons among means", Journal
of the American Statistical Association 56, 1961).  An action is done once its interval lies on one side of the floor
and, if it is faster, reaches at most ``WIDE`` to either side; or once it reaches at most ``NARROW``, wherever it lies.
"""

from __future__ import annotations

import math
from typing import List, Mapping, NamedTuple, Optional, Sequence

from .settling import settled
from .signed_rank import Interval, interval
from .units import OTHER

LOOKS = (8, 16, 24, 32, 48, 64)
"""After so many pairs the interval is looked at; after the last of them nothing is left to wait for."""
CONFIDENCE = 1 - 0.05 / len(LOOKS)
FLOOR, WIDE, NARROW = 0.01, 0.05, 0.02
"""Share of a unit by which an action must make it faster; shares of the ratio that its interval may reach to a side."""
_BLOCK_S, _LEAST, _MOST = 0.15, 2, 64
"""Seconds that a block times units for, and how many at least and at most."""
_SHORT_JOB = 400
"""Expected units below which blocks are as short as they may be."""
_FIRST, _MORE, _MOST_FIRST = 7, 4, 30
"""Units of a first visit at least, of which six are timed; how many follow as long as it has not settled; at most."""

Times = Mapping[str, Sequence[float]]
"""Times of units (µs) by their kind."""


class Block(NamedTuple):
    """The block that comes: its state, whether it is of a control, and how many units it holds, the first included."""

    on: bool
    control: bool
    units: int


class Pair(NamedTuple):
    """A pair of blocks: the logarithm of the ratio of a unit's time on over that as it is, and both means (µs)."""

    log: float
    before_us: float
    after_us: float


def pair_of(before: Times, after: Times) -> Optional[Pair]:
    """The pair of two blocks, of the kinds that both hold, each by its number in both; None where they share none.

    Units of the kind ``OTHER`` are not alike, so they count as shared by none.
    """
    kinds = [kind for kind in before if kind != OTHER and before[kind] and after.get(kind)]
    weights = {kind: min(len(before[kind]), len(after[kind])) for kind in kinds}
    total = sum(weights.values())
    if not total:
        return None
    a, b = (sum(weights[x] * sum(side[x]) / len(side[x]) for x in kinds) / total for side in (before, after))
    return Pair(math.log(b / a), a, b) if a > 0 and b > 0 else None


class Comparison:
    """One action.  ``next`` is the block that comes; ``add`` takes its times; ``over`` tells that no other one comes.

    ``unit_us`` is the usual time of a unit, ``expected`` how many units the job makes (0: unknown).
    """

    def __init__(self, unit_us: float, expected: int = 0, floor: float = FLOOR) -> None:
        self._floor = floor
        timed = _LEAST if 0 < expected < _SHORT_JOB else math.ceil(1e6 * _BLOCK_S / max(unit_us, 1.0))
        self._timed = min(max(timed, _LEAST), _MOST)
        self._blocks = 0
        self._quad: List[Times] = []
        self._first: List[float] = []
        self._is_first = True
        self.pairs: List[Pair] = []
        self.control: List[Pair] = []
        self.unlike = 0
        self.done = False

    @property
    def next(self) -> Block:
        """The block that comes."""
        if self._is_first:
            return Block(True, False, _MORE if self._first else _FIRST)
        quad, place = divmod(self._blocks, 4)
        on = (place in (1, 2)) != bool(quad % 2)
        return Block(on, quad % 3 == 2, 1 + self._timed)

    def add(self, times: Times) -> None:
        """Take the times of the block that has ended."""
        if self._is_first:
            self._first += [us for kind in times.values() for us in kind] or [0.0]
            self._is_first = not settled(self._first) and len(self._first) < _MOST_FIRST
            return
        control = self.next.control
        self._quad.append(times)
        self._blocks += 1
        if len(self._quad) == 4:
            quad, self._quad = self._quad, []
            turned = (self._blocks // 4 - 1) % 2
            for one, other in ((0, 1), (3, 2)):
                before, after = (quad[other], quad[one]) if turned else (quad[one], quad[other])
                pair = pair_of(before, after)
                if pair is None:
                    self.unlike += 1
                    self._timed = min(2 * self._timed, _MOST)
                else:
                    (self.control if control else self.pairs).append(pair)
            self._look()

    def _look(self) -> None:
        looks = [x for x in LOOKS if x <= len(self.pairs)]
        if not looks:
            self.done = self.unlike >= LOOKS[-1]
            return
        found = interval([x.log for x in self.pairs], CONFIDENCE)
        if len(self.pairs) in LOOKS and found is not None:
            self.done = is_decided(widened(found, [x.log for x in self.control]), self._floor)
        self.done = self.done or len(self.pairs) >= LOOKS[-1]


def widened(found: Interval, control: Sequence[float]) -> Interval:
    """The interval with what the process itself does: the middle of the controls is added to each side, as a square."""
    off = sorted(control)[len(control) // 2] if control else 0.0
    low = found.value - math.hypot(found.value - found.low, off)
    return Interval(found.value, low, found.value + math.hypot(found.high - found.value, off))


def is_faster(found: Interval, floor: float = FLOOR) -> bool:
    """Whether an interval of log ratios says that a unit takes less, by more than the floor."""
    return found.high < math.log1p(-floor)


def is_decided(found: Interval, floor: float = FLOOR) -> bool:
    """Whether an interval of log ratios answers: faster by more than the floor, not faster by it, or narrow."""
    reach = math.expm1(max(found.high - found.value, found.value - found.low))
    return reach <= (WIDE if is_faster(found, floor) else NARROW) or found.low > math.log1p(-floor)
