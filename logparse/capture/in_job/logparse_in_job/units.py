"""Count and time the steps of a job, and find out what its steps are.

A step is also called a unit of work. There are several ways (sorts) to recognise one:

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

The first sort in this order with at least ``LEAST`` units is used. If no sort has so many, the first sort with at least
one unit is used. There is an exception: a job may warm up with optimizer steps or calls, and then only replay a graph
(``Series.leads``). Calls with gradients (``forward``) are used only after ``LEAST`` calls, because an optimizer's step
may follow the first calls. They are not used if an optimizer steps at least once in ``_ACCUMULATED`` calls.

This module imports no PyTorch.
"""

from __future__ import annotations

import collections
import statistics
from typing import Any, Deque, Dict, List, Mapping, Optional, Tuple

from .settling import is_settled
from .unpatched import Python

ORDER = ("named", "optimizer", "request", "module", "graph", "forward")
PERIODS = frozenset({"optimizer", "forward"})
"""Sorts of steps that last from the end of one event to the end of the next. A step of any other sort is one call."""
LEAST = 6
_KINDS, _TIMES = 64, 2000
"""Largest number of names under which steps are counted, and largest number of times that are kept for each name."""
OTHER = "other"
"""Name under which steps are counted if there are too many different names. These steps have different input sizes."""
_ACCUMULATED = 64
_ALONE, _LONGER = 50, 10
"""Number of replays in a row after which a replay counts as a step of the job, and its ratio to earlier such numbers.

See ``Series.repeated_alone``.
"""
_RARE = 0.05
"""Steps of one name need not be traced if they are a smaller fraction of all steps than this."""
_LEAST_SETTLED, _ENOUGH_UNITS, _ENOUGH_S = 10, 20, 2.0
_MOST_UNITS, _MOST_S = 200, 30.0


class Kind:
    """All steps of a job (such as training steps) that have the same input sizes.

    ``us`` are their times without the profiler, and ``host_us`` the host's times to issue their work, in microseconds.
    """

    def __init__(self) -> None:
        # ``count`` is the number of steps, of which the profiler has recorded ``traced``.
        self.count = self.traced = 0
        self.us: Deque[float] = collections.deque(maxlen=_TIMES)
        self.host_us: Deque[float] = collections.deque(maxlen=_TIMES)

    def record(self) -> Dict[str, Any]:
        """Return the counts and times as a dictionary, in the form in which the file ``units_PID.json`` holds them."""
        out = {"count": self.count, "traced": self.traced, "us": [round(us, 3) for us in self.us]}
        return {**out, "host_us": [round(us, 3) for us in self.host_us]} if self.host_us else out


class Series:
    """Everything that the job did again and again in one way, for example all steps of an optimizer, with their times.

    The times are in the order in which the steps ended. ``leads`` is True if these are the job's steps, although other
    sorts come before in ``ORDER``. It is set for replays of graphs (``repeated_alone``).
    """

    def __init__(self) -> None:
        self.leads = False
        self._name = ""
        self._others = self._steps = self._alone = self._longest = 0
        self.kinds: Dict[str, Kind] = {}
        self.times: List[Tuple[Kind, float]] = []
        self.count = 0
        self.since_s = Python.monotonic()

    def kind(self, name: str) -> Kind:
        """Return the counts and times of the steps with this name. The name consists of the steps' input sizes.

        After ``_KINDS`` different names, all steps with a new name are counted together, under the name ``other``.
        """
        found = self.kinds.get(name)
        if found is None:
            name = name if len(self.kinds) < _KINDS else OTHER
            found = self.kinds.setdefault(name, Kind())
        return found

    def add(self, name: str, made: int = 1) -> Kind:
        """Count ``made`` more steps of the job with this name. The name states their input sizes.

        Returns the object that holds the number and the times of all steps with this name.
        """
        kind = self.kinds.get(name) or self.kind(name)
        kind.count += made
        self.count += made
        return kind

    def repeated_alone(self, name: str, others: int, steps: int) -> None:
        """Note that one more step with this name comes. ``others`` is the number of steps of all other series so far.

        If at least ``_ALONE`` steps of one name come without one of another series, and ``_LONGER`` times as many as
        ever before, this series leads. It leads no more once an optimizer makes a step again: ``steps`` is how many it
        has made.
        """
        if others != self._others or name != self._name:
            self._longest, self._alone = max(self._longest, self._alone), 0
        if steps != self._steps:
            self.leads = False
        self._others, self._name, self._steps = others, name, steps
        self._alone += 1
        self.leads = self.leads or self._alone >= max(_ALONE, _LONGER * self._longest)

    def add_time(self, kind: Kind, us: float) -> None:
        kind.us.append(us)
        if len(self.times) < _TIMES:
            self.times.append((kind, us))

    @property
    def usual_us(self) -> Optional[float]:
        """The median time of one step in microseconds, or None if no step was timed."""
        return statistics.median(us for _, us in self.times) if self.times else None

    def ready(self) -> str:
        """Return ``settled`` if the warm-up is over, so that tracing can begin. Return an empty text if it is not over.

        If the times never get steady, tracing begins all the same after ``_MOST_UNITS`` steps or ``_MOST_S`` seconds.
        Then the result is the reason, such as ``not settled after 200 units, 12.5 s``.

        The function ``is_settled`` decides whether the times are steady. Each time is first divided by the median time
        of the steps with the same input sizes. That function is not called before there are ``_ENOUGH_UNITS`` steps, or
        ``_LEAST_SETTLED`` steps and ``_ENOUGH_S`` seconds.
        """
        seconds = Python.monotonic() - self.since_s
        if self.count < _LEAST_SETTLED or (self.count < _ENOUGH_UNITS and seconds < _ENOUGH_S):
            return ""
        latest = self.times[-_MOST_UNITS:]
        by_kind: Dict[int, List[float]] = {}  # ``Kind.us`` may have been emptied since, which ``trial.py`` does
        for kind, us in latest:
            by_kind.setdefault(id(kind), []).append(us)
        usual = {key: statistics.median(times) or 1.0 for key, times in by_kind.items()}
        if is_settled([us / usual[id(kind)] for kind, us in latest]):
            return "settled"
        if self.count >= _MOST_UNITS or seconds > _MOST_S:
            return f"not settled after {self.count} units, {round(seconds, 1):g} s"
        return ""

    @property
    def all_traced(self) -> bool:
        """True if the profiler has recorded at least one step of every common input size."""
        return all(kind.traced for kind in self.kinds.values() if kind.count >= _RARE * self.count)


def unit_of(series: Mapping[str, Series]) -> Optional[str]:
    """Decide what is regarded as one step of this job, for example a step of its optimizer or a request.

    Returns a name such as ``optimizer`` from ``series``, the counts so far, or None if nothing was counted.
    """
    graph = series.get("graph")
    if graph is not None and graph.leads and "named" not in series:
        return "graph"
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
    """Return how many calls of the model (with gradients) are needed before each call counts as a step of the job."""
    # Usually an optimizer's step ends a step of the job. Calls of the model are regarded as steps only if the optimizer
    # steps very rarely or never.
    steps = series["optimizer"].count if "optimizer" in series else 0
    return max(LEAST, _ACCUMULATED * steps)


class Leader:
    """Chooses which optimizer or model marks the end of the job's steps, if the job has several of them.

    The first one that is used is chosen. If another one is then used several times while the first one is not, the
    other one is chosen, because the job has gone on to a second phase. How many times that must be depends on the job
    until then. *Run* is how often another one was used, at most, between two uses of the chosen one:

    =========================================================  ==================================
    case                                                       number of times
    =========================================================  ==================================
    the chosen one was used less than ``_SUCCESSION`` times    ``_SUCCESSION``
    the other one was used before, too                         2 run + 1, at least ``_SUCCESSION``
    the other one is new                                       2 run + 1, at least ``soon``
    =========================================================  ==================================

    In a job that trains a discriminator five times per step of the generator, and in a job with one optimizer per
    parameter, the choice stays the same.

    If the job deletes the chosen one, the next one that is used is chosen. It begins a phase if it does other work.

    * ``leader`` identifies the chosen one, and ``work`` describes its work (see ``follow``).
    * ``alone`` is True if the chosen one was used at least ``_SUCCESSION`` times, and no other one since its last use.
      Then its next use changes nothing here that matters, so ``lean.py`` need not tell it.
    * ``phase`` is the number of the present phase, from 0. If the job returns to an optimizer (or model), it returns to
      its phase. ``phases`` is the largest number so far.
    * ``changes`` tells how often another one was chosen.
    """

    _SUCCESSION = 10
    # fmt: off
    __slots__ = (
        "_first", "_longest", "_phases", "_run", "_since", "_soon", "_used",
        "alone", "changes", "leader", "phase", "phases", "work",
    )
    # fmt: on

    def __init__(self, soon: int = 3) -> None:
        self._soon = soon
        self.leader: Optional[int] = None
        self.work: Any = None
        self.alone = False
        # How often each other one was used since the last use of the chosen one.
        self._since: Dict[int, int] = {}
        self.phase = self.phases = self.changes = 0
        self._phases: Dict[int, int] = {}
        # How often the chosen one was used, and the longest runs: before its last use, and since then.
        self._used = self._longest = self._run = 0
        # How often the chosen one was used before the first use of each other one.
        self._first: Dict[int, int] = {}

    def follow(self, key: int, work: Any = None) -> None:
        """Choose this optimizer or model, because the job has deleted the one that was chosen, or had none.

        ``work`` tells two works apart, for example by the number of trained parameters. None: nothing is known.
        """
        known = self.work is not None and work is not None
        is_new = known and work != self.work and self._used >= self._SUCCESSION
        self._choose(key, self.phases + 1 if is_new else self.phase, 0)
        self.changes += is_new
        self.work = work

    def comes(self, key: int) -> int:
        """Note that an optimizer made a step (or a model was called). Return how many steps of the job that ends.

        Only one optimizer or model is chosen to show the job's steps:

        * For the chosen one the result is 1, for others 0.
        * When another one becomes the chosen one, the result is the number of times that it was used so far.

        ``key`` identifies the optimizer or model.
        """
        if self.leader is None:
            self.follow(key)
        if key == self.leader:
            self._used += 1
            if not self.alone:
                self._longest, self._run = max(self._longest, self._run), 0
                self._since.clear()
                self.alone = self._used >= self._SUCCESSION
            return 1
        self.alone = False
        self._since[key] = made = self._since.get(key, 0) + 1
        self._run = max(self._run, made)
        is_new = self._first.setdefault(key, self._used) == self._used
        if made < self._needed(is_new):
            return 0
        self._succeed(key, made)
        return made

    def _needed(self, is_new: bool) -> int:
        if self._used < self._SUCCESSION:
            return self._SUCCESSION
        return max(self._soon if is_new else self._SUCCESSION, 2 * self._longest + 1)

    def _succeed(self, key: int, made: int) -> None:
        left = self._used
        returns = key in self._phases
        self._choose(key, self._phases[key] if returns else self.phases + 1, made)
        self.changes += 1
        if returns and left < self._SUCCESSION:  # The few steps of the other one were no phase, and may come again
            self._longest = left

    def _choose(self, key: int, phase: int, used: int) -> None:
        self.leader, self.phase, self.phases = key, phase, max(self.phases, phase)
        self._phases[key] = phase
        self._used, self._longest, self._run = used, 0, 0
        self.alone = False
        self._since.clear()
        self._first.clear()

    @property
    def begun(self) -> int:
        """The number of steps of another optimizer (or calls of another model) that may be the start of a phase.

        They came after the last step of the job. It is 0 if the job has made as many between its steps before.
        """
        is_unusual = self._run > self._longest and (self._used >= self._SUCCESSION or self._run >= self._soon)
        return self._run if is_unusual else 0

    def gone(self, key: int) -> None:
        """Forget an optimizer (or model) that the job has deleted."""
        self._since.pop(key, None)
        self._first.pop(key, None)
        self._phases.pop(key, None)
        if key == self.leader:
            self.leader = None
