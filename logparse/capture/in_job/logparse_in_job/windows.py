"""Choose the moments when windows are traced, and the number of their units.  This module imports no PyTorch.

=============  ============================================================================================
window         begins
=============  ============================================================================================
provisional    after the first unit; it traces the second unit, so that a short job has a trace, too
settled        once the times have settled (``Series.ready``), or at half of the ``expected`` units, if an
               earlier run of the job has told them; each further window ``_GAPS`` units after the last one
=============  ============================================================================================

Once a settled window is written, the provisional window is left out.  Settled windows are traced until the windows
contain every kind with at least 5 % of the units.  There are at least ``_FEW`` and at most ``MOST`` windows.

The ranks of a job begin their settled windows together.  For this, rank 0 announces the first unit in the store of
``torch.distributed``.  It does so early enough that no rank has passed that unit.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Optional

from .units import LEAST, Series

MOST = 8
_FEW, _GAPS = 3, (5, 11, 23, 47, 97, 193, 389, 0)
"""Least number of settled windows, and numbers of units between two windows.

The gaps are primes, so that they do not coincide with periods of the job.
"""
_AHEAD, _AHEAD_S, _MOST_AHEAD = 3, 0.5, 50
"""Number of units from rank 0's announcement until the ranks begin a window.

It is ``_AHEAD``, plus the number of units that take ``_AHEAD_S`` seconds, but at most ``_MOST_AHEAD`` more.
"""
_MOST_GIVEN_UP = 20
_ANNOUNCED = "logparse_trace_at"
BY_TIME = "by time"


class Window(NamedTuple):
    """Window to trace.

    ``number`` is the window's number (0: provisional).  The other fields are the number of units that are skipped
    first, and the number of units that are traced.
    """

    number: int
    warm_up: int
    units: int


class Ranks(NamedTuple):
    """The rank of a process and the number of ranks in its job.

    ``store`` has the methods ``set``, ``get`` and ``check``.  It has no value (None) if the process is alone.
    """

    store: Optional[Any] = None
    rank: int = 0


class Windows:
    """Windows of a process.

    ``units`` is the number of units that each window traces (0: none).  ``expected`` is the number of units that the
    job will make (0: unknown).
    """

    def __init__(self, units: int, expected: int = 0) -> None:
        self._units, self._expected = units, expected
        self.provisional = False
        self.done = 0 if units else MOST
        self.begin_at = 0
        self.ready = ""
        self._given_up = 0

    @property
    def over(self) -> bool:
        return self.done >= MOST

    def end(self) -> None:
        """Trace no further window."""
        self.done = MOST

    def next(self, series: Series, ranks: Ranks, one_call: bool = False) -> Optional[Window]:
        """Return the window that begins now.  Return None if none begins.

        The window begins after the last unit of the series.  If ``one_call`` is True, the window holds one call.
        """
        if self.over:
            return None
        if not self.provisional and series.count:
            self.provisional, self.ready = True, f"not settled: unit {series.count + 1} alone was traced"
            return Window(0, 0, 1)
        if not self._is_time(series, ranks):
            return None
        self.done += 1
        return Window(self.done, 0 if one_call else 1, 1 if one_call else self._units)

    def written(self, series: Series) -> None:
        """Plan the next window, because a settled window was written."""
        self.begin_at = series.count + 1 + _GAPS[self.done - 1]

    def given_up(self, number: int, series: Series) -> None:
        """Plan a window again that was given up.  If too many windows were given up, trace no more."""
        self._given_up += 1
        if self._given_up > _MOST_GIVEN_UP:
            self.end()
        elif not number:
            self.provisional = False
        else:
            self.done = max(self.done - 1, 0)
            self.begin_at = series.count + 1 + _GAPS[0]

    def go_on(self) -> None:
        """Trace further windows, because the job has gone on to a second phase."""
        self.done, self.begin_at = min(self.done, MOST - _FEW), 0

    def _is_time(self, series: Series, ranks: Ranks) -> bool:
        if self.done >= _FEW and series.all_traced:
            self.end()
            return False
        if self.begin_at:
            return series.count >= self.begin_at
        if ranks.store is None:
            ready = self._ready(series)
            self.ready = ready or self.ready
            return bool(ready)
        if ranks.rank == 0:
            self._announce(series, ranks.store)
        else:
            self._listen(series, ranks.store)
        return bool(self.begin_at) and series.count >= self.begin_at

    def _ready(self, series: Series) -> str:
        ready = series.ready()
        if not ready and self._expected and series.count >= max(self._expected // 2, 2):
            ready = f"not settled after {series.count} of {self._expected} units"
        return ready

    def _announce(self, series: Series, store: Any) -> None:
        ready = self._ready(series)
        if ready:
            usual = series.usual_us or math.inf
            self.ready = ready
            self.begin_at = series.count + _AHEAD + min(int(1e6 * _AHEAD_S / max(usual, 1.0)), _MOST_AHEAD)
            store.set(_ANNOUNCED, f"{self.begin_at} {ready}")

    def _listen(self, series: Series, store: Any) -> None:
        if series.count < LEAST or not store.check([_ANNOUNCED]):
            return
        at, _, self.ready = store.get(_ANNOUNCED).decode().partition(" ")
        self.begin_at = int(at)
        if series.count > self.begin_at:  # Windows with different units on the ranks cannot be compared
            self.done, self.begin_at = 1, self.begin_at + 1 + self._units + 1 + _GAPS[0]
