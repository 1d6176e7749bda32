"""Measure what a change gains in a running job: switch it on and off in a fixed order until the effect is known.

A change, here called an action, is for example to allow TF32. A unit is a step of the job, such as a training step or a
request. This module runs inside a user's job: Python 3.8 and later, the standard library alone, no PyTorch.

=============  ============================================================================================
word           meaning
=============  ============================================================================================
block          some units in one state, from an idle device on; the first unit is not timed, see below
quad           four blocks: off, on, on, off; in every other quad the states are exchanged.  Drift that is
               linear over a quad cancels (ABBA: Georges, Buytaert and Eeckhout, "Statistically rigorous
               Java performance evaluation", OOPSLA 2007, on why runs alternate)
pair           two neighbours in a quad that differ in their state: each quad has two pairs
control        every third quad.  In it "on" is a switch that goes on and off again at once.  So it finds
               no effect of the action, but effects of this process: new addresses, caches, the switching
               itself
=============  ============================================================================================

Steps that are not timed. The *first visit* of the state "on" is not timed, because in it libraries choose plans,
allocators grow and caches fill. The first visit ends when the times have settled (``settling.py``, White's marginal
confidence rule), or after ``_MOST_FIRST`` units at the latest. The state "off" needs no such visit, because the job has
been in it before. A later visit finds plans, memory and caches ready. Only its first unit is dropped, because that unit
began on an idle device and its time contains the switching.

When the comparison ends. The logarithm of a pair's ratio is one value. The interval comes from the signed ranks of the
values (``signed_rank.py``). It is computed only after the numbers of pairs in ``LOOKS``. Each look has an error of 5 %
/ len(LOOKS), so that all looks together are wrong in at most 5 % (Bonferroni's inequality; Dunn, "Multiple comparisons
among means", Journal of the American Statistical Association 56, 1961). The comparison of an action ends in these
cases:

* The interval shows that the action is faster by more than the floor, and its ends are at most ``WIDE`` from the
  estimate.
* The interval shows that the action is not faster by the floor.
* The interval's ends are at most ``NARROW`` from the estimate, wherever the interval lies.
* All looks are over.
"""

from __future__ import annotations

import math
from typing import List, Mapping, NamedTuple, Optional, Sequence

from .settling import is_settled
from .signed_rank import Interval, interval
from .units import OTHER

LOOKS = (8, 16, 24, 32, 48, 64)
"""Numbers of pairs of measurements after which it is checked whether the effect of a change is known.

The comparison ends after the last number at the latest.
"""
CONFIDENCE = 1 - 0.05 / len(LOOKS)
FLOOR, WIDE, NARROW = 0.01, 0.05, 0.02
"""Limits relative to the time of a step: 0.01 is 1 %.

* ``FLOOR`` is the smallest gain that is worth reporting.
* ``WIDE`` is the largest allowed error of the estimate if the change is faster.
* ``NARROW`` is the largest allowed error of the estimate for any other result.
"""
_BLOCK_S, _LEAST, _MOST = 0.15, 2, 64
"""How long the job runs between two switches of a change: seconds, least and largest number of timed steps."""
_SHORT_JOB, SHORTEST_JOB = 400, 100
"""Job lengths, in steps, below which fewer steps are timed between two switches of the change.

In a job shorter than the first number, only ``_LEAST`` steps are timed, so that the change is compared as often as
possible. In a job shorter than the second number, one step is timed. Then one start of the job gives the eight pairs
that an answer needs.
"""
_FIRST, _MORE, _MOST_FIRST = 7, 4, 30
"""Numbers of steps to wait after a change was switched on for the first time, until the times are steady.

* ``_FIRST`` is the number at first. The first step is not timed, so six are.
* ``_MORE`` is the number to add as long as the times are not steady.
* ``_MOST_FIRST`` is the largest number.
"""

NO_TIME = "there was not enough time left to try the other actions"
"""Message to the user if the job ended before all changes were tested."""
Times = Mapping[str, Sequence[float]]
"""Times of steps in microseconds, by the steps' name."""


class Block(NamedTuple):
    """The job's next steps, which are timed together: all with the change that is measured, or all without it.

    ``control`` is True if only the cost of switching is measured.
    """

    on: bool
    control: bool
    # The number of steps includes the first one, which is not timed.
    units: int


class Pair(NamedTuple):
    """One comparison of some steps without the change and some steps with it.

    * ``log``: logarithm of (time per step with the change / without it).
    * ``before_us``, ``after_us``: mean time per step without and with it, in microseconds.
    """

    log: float
    before_us: float
    after_us: float


def pair_of(before: Times, after: Times) -> Optional[Pair]:
    """Compare the times of some steps without a change (``before``) and some steps with it (``after``).

    Only steps with the same input sizes are compared: all steps with the same sizes are a kind. Returns None if no kind
    occurs on both sides. The result is an average over the kinds. The weight of a kind is its number of steps on the
    side that has fewer of them. Steps of the kind ``OTHER`` have different sizes, so they are left out.
    """
    kinds = [kind for kind in before if kind != OTHER and before[kind] and after.get(kind)]
    weights = {kind: min(len(before[kind]), len(after[kind])) for kind in kinds}
    total = sum(weights.values())
    if not total:
        return None
    a, b = (sum(weights[x] * sum(side[x]) / len(side[x]) for x in kinds) / total for side in (before, after))
    return Pair(math.log(b / a), a, b) if a > 0 and b > 0 else None


class Comparison:
    """Measures how much time a change, such as TF32, saves in a running job. The change is switched on and off.

    * ``next`` says which steps to measure next. ``add`` takes their times.
    * ``done`` is True if nothing more needs to be measured.
    * ``pairs`` has the results of the change so far, and ``control`` the results of the switching itself.
    * ``unlike`` is the number of pairs whose two sides had no steps with the same input sizes.

    The constructor takes ``unit_us``, the usual time of a step in microseconds, and ``expected``, the number of steps
    of the whole job (0: unknown).
    """

    def __init__(self, unit_us: float, expected: int = 0, floor: float = FLOOR) -> None:
        self._floor = floor
        self._timed = _timed_steps(unit_us, expected)
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
        """The steps to measure next: how many steps, and whether the change is on in them."""
        if self._is_first:
            return Block(True, False, _MORE if self._first else _FIRST)
        quad, place = divmod(self._blocks, 4)
        on = (place in (1, 2)) != bool(quad % 2)
        return Block(on, quad % 3 == 2, 1 + self._timed)

    def add(self, times: Times) -> None:
        """Add the times of the steps that were last measured. (``next`` has said how many steps, and which.)"""
        if self._is_first:
            self._first += [us for kind in times.values() for us in kind] or [0.0]
            self._is_first = not is_settled(self._first) and len(self._first) < _MOST_FIRST
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
            self.done = is_decided(widen_interval(found, [x.log for x in self.control]), self._floor)
        self.done = self.done or len(self.pairs) >= LOOKS[-1]


def _timed_steps(unit_us: float, expected: int) -> int:
    """Return how many steps are timed before the change is switched on or off again."""
    if 0 < expected < SHORTEST_JOB:
        return 1
    if 0 < expected < _SHORT_JOB:
        return _LEAST
    return min(max(math.ceil(1e6 * _BLOCK_S / max(unit_us, 1.0)), _LEAST), _MOST)


def widen_interval(found: Interval, control: Sequence[float]) -> Interval:
    """Return a wider confidence interval of a change's effect, because switching alone may have an effect, too.

    ``control`` holds measurements of the effect of switching alone.
    """
    off = sorted(control)[len(control) // 2] if control else 0.0
    # With the median m of ``control``, an end at the distance d from the middle moves to the distance √(d² + m²).
    low = found.value - math.hypot(found.value - found.low, off)
    return Interval(found.value, low, found.value + math.hypot(found.high - found.value, off))


def is_faster(found: Interval, floor: float = FLOOR) -> bool:
    """Return True if the measurements show that the change makes a step faster by more than ``floor`` (0.01 is 1 %).

    ``found`` is a confidence interval of the logarithm of (time with / time without).
    """
    # Even the slower end of the interval must be faster by more than ``floor``.
    return found.high < math.log1p(-floor)


def is_decided(found: Interval, floor: float = FLOOR) -> bool:
    """Return True if the measured effect of a change is known well enough to stop measuring.

    ``found`` is a confidence interval of the logarithm of (time with / time without), and ``floor`` the least saving
    (0.01 is 1 %).
    """
    # There are three cases: the change is faster by more than ``floor`` and the interval is fairly narrow (``WIDE``);
    # the change is certainly not faster by ``floor``; or the interval is narrow (``NARROW``).
    reach = math.expm1(max(found.high - found.value, found.value - found.low))
    return reach <= (WIDE if is_faster(found, floor) else NARROW) or found.low > math.log1p(-floor)
