"""Decide when the profiler is started, and how many steps it records. This module imports no PyTorch.

A window is a period in which the profiler runs. A unit is a step of the job.

=============  ============================================================================================
window         begins
=============  ============================================================================================
provisional    after the first unit; it traces the second unit, so that a short job has a trace, too
settled        once the times have settled (``Series.ready``), or at half of the ``expected`` units, if an
               earlier run of the job has told them; each further window ``_GAPS`` units after the last one
=============  ============================================================================================

A later phase of the job, for example with another optimizer, has a provisional window as soon as it is noticed. Its
next window begins at its step ``_LATER``. All ranks notice a phase at the same step, so they need no announcement.

Once a settled window is written, the provisional window of the same phase is left out. Settled windows are traced until
the windows contain a step of every input size that at least 5 % of the steps have. There are at least ``_FEW`` and at
most ``MOST`` windows. Each later phase, up to ``_MOST_PHASES``, has ``_FEW`` more.

The ranks of a job begin their settled windows together. For this, rank 0 announces the first step in the store of
``torch.distributed``. Rank 0 does so early enough that no rank has passed that step.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Optional

from .units import LEAST, Series

MOST = 8
_FEW, _GAPS = 3, (5, 11, 23, 47, 97, 193, 389, 0)
"""Smallest number of regular traces, and numbers of steps between two of them.

The gaps are primes, so that they do not coincide with periods of the job.
"""
_AHEAD, _AHEAD_S, _MOST_AHEAD = 3, 0.5, 50
"""How many steps in advance rank 0 announces the step at which all ranks start the profiler.

The number is ``_AHEAD``, plus the number of steps that take ``_AHEAD_S`` seconds, but at most ``_MOST_AHEAD`` more.
"""
_LATER, _SOON = 10, 3
"""At which step of a later phase its first settled window begins, and how many steps after its beginning at least."""
_MOST_PHASES = 6
_MOST_GIVEN_UP = 20
_ANNOUNCED = "logparse_trace_at"
BY_TIME = "by time"


class Window(NamedTuple):
    """The plan for one trace: how many steps of the job the profiler skips (``warm_up``), and how many it records.

    A provisional trace is deleted once there is a better one.
    """

    number: int
    warm_up: int
    units: int
    provisional: bool = False


class Ranks(NamedTuple):
    """Lets the job's ranks agree when to start the profiler, through a key-value store.

    ``store`` has the methods ``set``, ``get`` and ``check``, or is None if the job has only one process. ``sort`` says
    how the steps are recognised. A rank may have traced other steps before, which the others have not done.
    """

    store: Optional[Any] = None
    rank: int = 0
    sort: str = ""

    @property
    def key(self) -> str:
        """The key of the store under which rank 0 announces the step."""
        return f"{_ANNOUNCED}_{self.sort}"


class Windows:
    """Decides when the profiler is started in this process.

    ``units`` is the number of steps (such as training steps) in each trace (0: nothing is traced). ``expected`` is the
    number of steps that the job will do (0: unknown).
    """

    def __init__(self, units: int, expected: int = 0) -> None:
        self._units, self._expected = units, expected
        self._numbers = 0
        self.begin_anew()

    def begin_anew(self) -> None:
        """Plan the traces from the start, because the steps that were traced are not the job's steps, as it turned out.

        The new traces get new numbers, so that the earlier traces are kept until there is a new one.
        """
        self.provisional = False
        self.done = 0 if self._units else MOST
        self.begin_at = 0
        self.ready = self._planned = ""
        self._given_up = 0
        # In the present phase of the job, there are at least this many windows, counted as in ``done``.
        self._least, self._phases = _FEW, 1

    @property
    def over(self) -> bool:
        return self.done >= MOST

    def end(self) -> None:
        """Plan no further trace, so that the profiler is not started any more."""
        self.done = MOST

    def next(self, series: Series, ranks: Ranks, one_call: bool = False) -> Optional[Window]:
        """Return the plan for the next trace if it must begin now. Otherwise return None.

        ``series`` holds the steps that the job has done so far. If ``one_call`` is True, a single call is traced.
        """
        if self.over:
            return None
        if not self.provisional and series.count:
            self.provisional = True
            if not self.done:
                self.ready = f"not settled: unit {series.count + 1} alone was traced"
            return Window(self._number(), 0, 1, provisional=True)
        if not self._is_time(series, ranks):
            return None
        self.done += 1
        return Window(self._number(), 0 if one_call else 1, 1 if one_call else self._units)

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers - 1

    def written(self, series: Series) -> None:
        """Note that a regular trace was written, and plan at which step the next one begins."""
        self.ready, self._planned = self._planned or self.ready, ""
        self.begin_at = series.count + 1 + _GAPS[self.done - 1 - (self._least - _FEW)]

    def given_up(self, plan: Window, series: Series) -> None:
        """Plan another trace, because this one could not be completed. After too many failures, stop tracing.

        For example, a trace cannot be completed if the job starts a profiler of its own.
        """
        self._given_up += 1
        if self._given_up > _MOST_GIVEN_UP:
            self.end()
        elif plan.provisional:
            self.provisional = False
        else:
            self.done = max(self.done - 1, 0)
            self.begin_at = series.count + 1 + _GAPS[0]

    def go_on(self, count: int, made: int) -> None:
        """Allow a few more traces, because the job now does other work than in the earlier traces.

        For example, it trains another model after the first one. The job has done ``count`` steps so far, ``made`` of
        them in the new phase.
        """
        if not self._units or self._phases == _MOST_PHASES:
            return
        self._phases += 1
        self.provisional = False
        if self.done:
            self.done = min(self.done, MOST - _FEW)
            self._least = self.done + _FEW
            self.begin_at = count + max(_LATER - made, _SOON)

    def _is_time(self, series: Series, ranks: Ranks) -> bool:
        if self.done >= self._least and series.all_traced:
            self.end()
            return False
        if self.begin_at:
            return series.count >= self.begin_at
        if ranks.store is None:
            ready = self._ready(series)
            self._planned = ready
            return bool(ready)
        if ranks.rank == 0:
            self._announce(series, ranks)
        else:
            self._listen(series, ranks)
        return bool(self.begin_at) and series.count >= self.begin_at

    def _ready(self, series: Series) -> str:
        ready = series.ready()
        if not ready and self._expected and series.count >= max(self._expected // 2, 2):
            ready = f"not settled after {series.count} of {self._expected} units"
        return ready

    def _announce(self, series: Series, ranks: Ranks) -> None:
        ready = self._ready(series)
        if ready:
            usual = series.usual_us or math.inf
            self._planned = ready
            self.begin_at = series.count + _AHEAD + min(int(1e6 * _AHEAD_S / max(usual, 1.0)), _MOST_AHEAD)
            assert ranks.store is not None
            ranks.store.set(ranks.key, f"{self.begin_at} {ready}")

    def _listen(self, series: Series, ranks: Ranks) -> None:
        store = ranks.store
        if series.count < LEAST or store is None or not store.check([ranks.key]):
            return
        at, _, self._planned = store.get(ranks.key).decode().partition(" ")
        self.begin_at = int(at)
        if series.count > self.begin_at:  # Windows with different units on the ranks cannot be compared
            self._numbers += 1
            self.done, self.begin_at = 1, self.begin_at + 1 + self._units + 1 + _GAPS[0]
