"""Units of work, counted and timed by kind; which of the things that a job repeats is its unit.

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

The unit is the first sort in this order of which the job made ``LEAST`` units, else the first of which it made one.
Calls with gradients are units from ``LEAST`` of them on, since an optimizer's step may follow the first ones; and not
at all if an optimizer steps at least once in ``_ACCUMULATED`` calls.
This module knows no PyTorch.
"""

from __future__ import annotations

import collections
import statistics
import time
from typing import Any, Deque, Dict, List, Mapping, Optional, Tuple

from .settling import settled

ORDER = ("named", "optimizer", "request", "module", "graph", "forward")
PERIODS = frozenset({"optimizer", "forward"})
"""Sorts whose unit reaches from one end to the next; a unit of the others is one call."""
LEAST = 6
_KINDS, _TIMES = 64, 2000
"""Kinds with a count of their own, and times that are kept of each."""
OTHER = "other"
"""The kind of all units beyond these kinds, which are not alike."""
_ACCUMULATED = 64
_RARE = 0.05
"""Share of the units below which a kind need not be traced."""
_LEAST_SETTLED, _ENOUGH_UNITS, _ENOUGH_S = 10, 20, 2.0
_MOST_UNITS, _MOST_S = 200, 30.0


class Kind:
    """Units of one kind: how many ran and were traced, times (µs) without a profiler, and the host's own times (µs)."""

    def __init__(self) -> None:
        self.count = self.traced = 0
        self.us: Deque[float] = collections.deque(maxlen=_TIMES)
        self.host_us: Deque[float] = collections.deque(maxlen=_TIMES)

    def record(self) -> Dict[str, Any]:
        """The kind as ``units_PID.json`` holds it."""
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
        """The kind of this name; "other" once there are too many kinds."""
        found = self.kinds.get(name)
        if found is None:
            name = name if len(self.kinds) < _KINDS else OTHER
            found = self.kinds.setdefault(name, Kind())
        return found

    def add(self, name: str, made: int = 1) -> Kind:
        """Count units."""
        kind = self.kind(name)
        kind.count += made
        self.count += made
        return kind

    def add_time(self, kind: Kind, us: float) -> None:
        kind.us.append(us)
        if len(self.times) < _TIMES:
            self.times.append((kind, us))

    @property
    def usual_us(self) -> Optional[float]:
        """Median time of a unit; None if none was timed."""
        return statistics.median(us for _, us in self.times) if self.times else None

    def ready(self) -> str:
        """``settled``, or why tracing begins all the same; "" if it must wait.

        ``settled`` is asked for the times, each over the median of its kind, after each unit: from ``_ENOUGH_UNITS``
        units on, or from ``_LEAST_SETTLED`` units and ``_ENOUGH_S`` seconds on.  Tracing begins at the latest after
        ``_MOST_UNITS`` units or ``_MOST_S`` seconds.
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
        """Whether every kind that is not rare was traced."""
        return all(kind.traced for kind in self.kinds.values() if kind.count >= _RARE * self.count)


def unit_of(series: Mapping[str, Series]) -> Optional[str]:
    """The sort that is the job's unit; None if there is no unit yet."""
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
    """How many calls with gradients must come before they are units."""
    steps = series["optimizer"].count if "optimizer" in series else 0
    return max(LEAST, _ACCUMULATED * steps)


class Leader:
    """Follows one of several things that a job repeats, so that each of its turns ends one unit.

    The first one that comes leads.  Another one takes over once it came ``_SUCCESSION`` times while the leader did not
    come: the job has gone on to a second phase.  A discriminator that is trained five times for each step of the
    generator does not take over, nor does any optimizer of a job that has one for each parameter.
    """

    _SUCCESSION = 10

    def __init__(self) -> None:
        self._leader: Optional[int] = None
        self._since: Dict[int, int] = {}
        self.changes = 0

    def comes(self, key: int) -> int:
        """How many units end now, as the thing with this key comes: 0, 1, or all that a new leader made until now."""
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
        """Forget a key, whose object the job has dropped."""
        self._since.pop(key, None)
        if key == self._leader:
            self._leader = None
