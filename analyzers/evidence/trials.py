"""Judge an action by its trials in the running job: faster, not faster, or the reason why nothing is known. Pure.

Each process that tried the action gives pairs of blocks of units, one block with the action and one without
(``logparse/capture/in_job/logparse_in_job/pairs.py``). The pairs of all processes are one sample here. The interval of
their signed ranks is widened twice, each time by the root of the sum of squares:

* by the effect found in control pairs, which is no effect of the action
* by half the range of the processes' medians, because each process has a bias that taking turns does not remove

An action is *measured* once two processes agree that it is faster.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from analyzers.evidence.tables import Tables
from logparse.capture.in_job.logparse_in_job.pairs import (
    CONFIDENCE,
    FLOOR,
    LOOKS,
    NARROW,
    is_decided,
    is_faster,
    widened,
)
from logparse.capture.in_job.logparse_in_job.signed_rank import Interval, interval
from logparse.libraries.own.job_trials import TRIAL, Record, Seen, seen_of

Outcome: TypeAlias = Literal[
    "measured", "faster once", "not faster", "within noise", "undecided", "differs", "refused", "broken", "not tried"
]
"""Outcome of the trials of an action.

* ``measured``: faster by more than the floor in two processes.
* ``within noise``: as many pairs as a trial takes, and the interval still holds both a gain beyond the floor and none.
* ``undecided``: too few pairs to tell.
* ``differs``: the job computes something else with the action.
"""
AGREE = 2
"""Number of processes that must find an action faster before it is called measured."""


@dataclass(frozen=True)
class Tried:
    """The trials of an action in all processes. Times in µs per unit.

    ``ratio`` is (time with the action) / (time without the action).
    """

    name: str
    seen: tuple[Seen, ...] = ()
    floor: float = FLOOR

    @property
    def timed(self) -> tuple[Seen, ...]:
        return tuple(x for x in self.seen if x.pairs)

    @property
    def pairs(self) -> tuple[tuple[float, float, float], ...]:
        return tuple(pair for x in self.seen for pair in x.pairs)

    @property
    def seconds(self) -> float:
        return math.fsum(x.seconds for x in self.seen)

    @property
    def detail(self) -> str:
        return next((x.detail for x in self.seen if x.detail), "")

    @property
    def same(self) -> tuple[float, float, str] | None:
        """The worst comparison of results with and without the action: deviation, tolerance and description.

        A comparison beyond its tolerance is worse than any other. None if no process compared results.
        """
        found = [x.same for x in self.seen if x.same is not None]
        return max(found, key=lambda x: (x[0] > x[1], x[0])) if found else None

    @property
    def logs(self) -> Interval | None:
        """The logarithm of ``ratio`` with its interval. None if there are too few pairs."""
        logs = [pair[0] for pair in self.pairs]
        found = interval(logs, CONFIDENCE) or interval(logs)
        if found is None:
            return None
        found = widened(found, [x for y in self.seen for x in y.control])
        middles = [statistics.median(pair[0] for pair in x.pairs) for x in self.timed]
        return widened(found, [(max(middles) - min(middles)) / 2])

    @property
    def ratio(self) -> Interval | None:
        found = self.logs
        return None if found is None else Interval(*map(math.exp, found))

    @property
    def now_us(self) -> float | None:
        """Median time of a unit without the action, µs."""
        return statistics.median(pair[1] for pair in self.pairs) if self.pairs else None

    @property
    def then_us(self) -> Interval | None:
        """Time of a unit with the action, µs: ``ratio`` · ``now_us``."""
        ratio, now = self.ratio, self.now_us
        return None if ratio is None or now is None else Interval(*(now * x for x in ratio))

    @property
    def outcome(self) -> Outcome:
        ways = {x.ended for x in self.seen}
        if "broken" in ways:
            return "broken"
        if "differs" in ways:
            return "differs"
        if "refused" in ways:
            return "refused"
        found = self.logs
        if found is None:
            return "undecided" if self.seen else "not tried"
        if is_faster(found, self.floor):
            bound = math.log1p(-self.floor)
            agree = sum(statistics.median(pair[0] for pair in x.pairs) < bound for x in self.timed)
            return "measured" if agree >= AGREE else "faster once"
        if found.low > math.log1p(-self.floor) or is_decided(found, self.floor):
            return "not faster"
        return "undecided" if len(self.pairs) < LOOKS[-1] else "within noise"

    @property
    def is_known(self) -> bool:
        """True if the effect was measured: the action is faster in two processes, or it is not faster."""
        return self.outcome in ("measured", "not faster")

    @property
    def is_lost(self) -> bool:
        """True if the trials show that the action does not help this job, or breaks or changes it."""
        return self.outcome in ("not faster", "differs", "broken")

    @property
    def why(self) -> str:
        """The reason why the action is refused or broken, or why nothing is known. Empty if its effect is known."""
        why = next((x.why for x in self.seen if x.ended in ("differs", "refused", "broken") and x.why), "")
        if why or self.outcome not in ("undecided", "not tried"):
            return why
        unlike = sum(x.unlike for x in self.seen)
        if unlike > len(self.pairs):
            return f"the job's units of work are of many kinds: {unlike} pairs of blocks of units had no kind in common"
        if self.logs is None:
            return (
                f"the job did too few units of work: {len(self.pairs)} pairs of blocks of units were timed, and an "
                "interval needs 6"
            )
        return f"the interval of its effect is still wider than ±{NARROW:.0%}"


def tried(tables: Tables) -> tuple[Tried, ...]:
    """Return the results of the run's trials for each action, best first. Empty if the run has no trials."""
    facts = tables.facts[(tables.facts["run"] == tables.run) & tables.facts["name"].str.startswith(TRIAL)]
    seen = [seen_of(json.loads(value)) for value in facts["value"]]
    return tuple(_sorted(dict.fromkeys(x.name for x in seen), seen, FLOOR))


def gathered(names: Iterable[str], starts: Sequence[Record], floor: float = FLOOR) -> list[Tried]:
    """Return the results of all starts of the job for each action. Actions that save most come first."""
    return _sorted(names, [x for record in starts for x in record.seen], floor)


def _sorted(names: Iterable[str], seen: Sequence[Seen], floor: float) -> list[Tried]:
    return sorted((Tried(name, tuple(x for x in seen if x.name == name), floor) for name in names), key=_rank)


_ORDER: Sequence[Outcome] = (
    "measured", "faster once", "undecided", "within noise", "not faster", "differs", "refused", "broken", "not tried",
)  # fmt: skip


def _rank(x: Tried) -> tuple[int, float]:
    return _ORDER.index(x.outcome), x.logs.value if x.logs else 0.0
