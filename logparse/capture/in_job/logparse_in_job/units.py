"""Count and time units of work by kind, and choose the job's unit among everything that the job repeats.

============  =========================================================================================
sort          a unit is
============  =========================================================================================
named         a call of ``LOGPARSE_TRACE_UNIT`` (``package.module:Class.method``)
optimizer     the time from the end of one step of the leading optimizer to the end of its next step
request       a call of transformers' ``generate``, or of a scheduler's ``step``
module        a call of an outermost module without gradients
graph         a replay of a captured graph
forward       the time from the end of one call of the leading module to the end of its next call, with gradients
============  =========================================================================================

The job's unit is the first sort in this order with at least ``LEAST`` units.  If no sort has so many units, the job's
unit is the first sort with at least one unit.  Calls with gradients become units only after ``LEAST`` calls, because an
optimizer's step may follow the first calls.  They are no units if an optimizer steps at least once in ``_ACCUMULATED``
calls.
This module imports no PyTorch.
"""

from __future__ import annotations

import collections
import statistics
import time
from typing import Any, Deque, Dict, List, Mapping, Optional, Tuple

from .settling import settled

ORDER = ("named", "optimizer", "request", "module", "graph", "forward")
PERIODS = frozenset({"optimizer", "forward"})
"""Sorts whose unit lasts from the end of one event to the end of the next.  A unit of any other sort is one call."""
LEAST = 6
_KINDS, _TIMES = 64, 2000
"""Largest number of kinds that are counted separately, and largest number of times that are kept per kind."""
OTHER = "other"
"""Name of the kind for the units of all further kinds.  Its units are not alike."""
_ACCUMULATED = 64
_RARE = 0.05
"""Fraction of all units.  A kind with a smaller fraction need not be traced."""
_LEAST_SETTLED, _ENOUGH_UNITS, _ENOUGH_S = 10, 20, 2.0
_MOST_UNITS, _MOST_S = 200, 30.0


class Kind:
    """Units of one kind: how many ran, how many were traced, their times without a profiler (µs), and the host's times
    (µs).
    """

    def __init__(self) -> None:
        self.count = self.traced = 0
        self.us: Deque[float] = collections.deque(maxlen=_TIMES)
        self.host_us: Deque[float] = collections.deque(maxlen=_TIMES)

    def record(self) -> Dict[str, Any]:
        """Return the counts and times of this kind of unit as a dictionary for the file ``units_PID.json``."""
        out = {"count": self.count, "traced": self.traced, "us": [round(us, 3) for us in self.us]}
        return {**out, "host_us": [round(us, 3) for us in self.host_us]} if self.host_us else out


class Series:
    """Units of one sort, in the order in which they ended."""

    def __init__(self) -> None:
        self.kinds: Dict[str, Kind] = {}
        self.times: List[Tuple[Kind, float]] = []
        self.count = 0
        self.since_s = time.monotonic()

    def kind(self, name: str) -> Kind:
        """Return the kind of this name.  Return the kind "other" if there are too many kinds."""
        found = self.kinds.get(name)
        if found is None:
            name = name if len(self.kinds) < _KINDS else OTHER
            found = self.kinds.setdefault(name, Kind())
        return found

    def add(self, name: str, made: int = 1) -> Kind:
        """Count units of a kind.  Return the kind."""
        kind = self.kinds.get(name) or self.kind(name)
        kind.count += made
        self.count += made
        return kind

    def add_time(self, kind: Kind, us: float) -> None:
        kind.us.append(us)
        if len(self.times) < _TIMES:
            self.times.append((kind, us))

    @property
    def usual_us(self) -> Optional[float]:
        """The median time of a unit, µs.  None if no unit was timed."""
        return statistics.median(us for _, us in self.times) if self.times else None

    def ready(self) -> str:
        """Return ``settled`` if the times have settled.  Otherwise return why tracing begins all the same.

        Return an empty text if tracing must wait.  After each unit, the function ``settled`` tests the times, each
        divided by the median of its kind.  The test needs ``_ENOUGH_UNITS`` units, or ``_LEAST_SETTLED`` units and
        ``_ENOUGH_S`` seconds.  Tracing begins after ``_MOST_UNITS`` units or ``_MOST_S`` seconds at the latest.
        """
        seconds = time.monotonic() - self.since_s
        if self.count < _LEAST_SETTLED or (self.count < _ENOUGH_UNITS and seconds < _ENOUGH_S):
            return ""
        usual = {id(kind): statistics.median(kind.us) or 1.0 for kind in self.kinds.values() if kind.us}
        if settled([us / usual[id(kind)] for kind, us in self.times[-_MOST_UNITS:]]):
            return "settled"
        if self.count >= _MOST_UNITS or seconds > _MOST_S:
            return f"not settled after {self.count} units, {round(seconds, 1):g} s"
        return ""

    @property
    def all_traced(self) -> bool:
        """True if every kind that is not rare was traced."""
        return all(kind.traced for kind in self.kinds.values() if kind.count >= _RARE * self.count)


def unit_of(series: Mapping[str, Series]) -> Optional[str]:
    """Return the sort that is the job's unit.  Return None if there is no unit yet."""
    sorts = list(series)
    if len(sorts) == 1 and sorts[0] != "forward":  # the common case in inference
        return sorts[0]
    first: Optional[str] = None
    for sort in ORDER:
        found = series.get(sort)
        if found is None or (sort == "forward" and found.count < _least_calls(series)):
            continue
        if found.count >= LEAST:
            return sort
        first = first or sort
    return first


def _least_calls(series: Mapping[str, Series]) -> int:
    """Return the least number of calls with gradients with which such calls are units."""
    steps = series["optimizer"].count if "optimizer" in series else 0
    return max(LEAST, _ACCUMULATED * steps)


class Leader:
    """Choice of the leader among several things (optimizers or modules) that a job repeats.  Each event of the leader
    ends a unit.

    The first thing with an event is the leader.  Another thing becomes the leader after ``_SUCCESSION`` events without
    an event of the old leader, because the job has then gone on to a second phase.  Two kinds of jobs keep their
    leader: a job that trains a discriminator five times per step of the generator, and a job with one optimizer per
    parameter.
    """

    _SUCCESSION = 10

    def __init__(self) -> None:
        self._leader: Optional[int] = None
        self._since: Dict[int, int] = {}
        self.changes = 0

    def comes(self, key: int) -> int:
        """Return the number of units that end with an event of this key: 0, 1, or all units that a new leader has made
        so far.
        """
        if self._leader is None:
            self._leader = key
        if key == self._leader:
            self._since.clear()
            return 1
        self._since[key] = made = self._since.get(key, 0) + 1
        if made < self._SUCCESSION:
            return 0
        self._leader, self.changes = key, self.changes + 1
        self._since.clear()
        return made

    def gone(self, key: int) -> None:
        """Forget a key, because the job has dropped its object."""
        self._since.pop(key, None)
        if key == self._leader:
            self._leader = None
