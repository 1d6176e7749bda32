"""Judge whether a change makes a running job faster, from the times of its steps with and without the change. Pure.

The change is switched on and off while the job runs. Each process times pairs of blocks of steps, one block with the
change and one without (``logparse/capture/in_job/logparse_in_job/pairs.py``). The pairs of all processes are one sample
here. The confidence interval (from signed ranks) is widened twice, each time by the root of the sum of squares:

* by the difference found in control pairs, in which nothing was changed
* by half the range of the processes' medians, because each process has a bias that taking turns does not remove

A change is called *measured* if two processes agree that it is faster.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from analyzers.evidence.tables import Tables
from logparse.capture.in_job.logparse_in_job.pairs import (
    CONFIDENCE,
    FLOOR,
    LOOKS,
    NARROW,
    is_decided,
    is_faster,
    widen_interval,
)
from logparse.capture.in_job.logparse_in_job.signed_rank import Interval, interval
from logparse.libraries.own.job_trials import TRIAL, Record, Seen, seen_of
from logparse.model import Gain

Outcome: TypeAlias = Literal[
    "measured", "faster once", "not faster", "within noise", "undecided", "differs", "refused", "broken", "not tried"
]
"""The answer after a change was tried in a running job, as one word:

* ``measured``: the job is faster by more than the smallest gain (the floor) in at least two processes.
* ``faster once``: the job is faster, but fewer than two processes agree.
* ``not faster``: the job gains less than the floor.
* ``within noise``: all planned pairs of blocks were timed, but they do not show whether the gain is above the floor.
* ``undecided``: too few pairs of blocks were timed.
* ``differs``: the job computes something else with the change.
* ``refused``, ``broken``: the change could not be switched on, or it caused an error.
* ``not tried``: no process tried the change.
"""
AGREE = 2
"""In this many processes a change must be faster before its gain is called measured."""


@dataclass(frozen=True)
class Tried:
    """The results of trying one change in a running job, from all processes. Times are in µs per step.

    * ``seen``: each process's results.
    * ``floor``: the smallest gain that matters, 0.03 for 3 %.
    """

    name: str
    # In the results, ``ratio`` is (time with the change) / (time without it).
    seen: tuple[Seen, ...] = ()
    floor: float = FLOOR
    # Why the trial ended early, for example ``the job ended with KeyboardInterrupt``. Else empty.
    ended: str = ""

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
        """The largest deviation of the job's results that a change caused: the deviation, its tolerance, a description.

        A deviation beyond its tolerance comes before a larger one within its tolerance. None if no process compared
        results.
        """
        found = [x.same for x in self.seen if x.same is not None]
        return max(found, key=lambda x: (x[0] > x[1], x[0])) if found else None

    @property
    def logs(self) -> Interval | None:
        """The logarithm of ``ratio`` (time with the change / time without it), with its confidence interval.

        None if there are too few pairs of times.
        """
        logs = [pair[0] for pair in self.pairs]
        found = interval(logs, CONFIDENCE) or interval(logs)
        if found is None:
            return None
        found = widen_interval(found, [x for y in self.seen for x in y.control])
        middles = [statistics.median(pair[0] for pair in x.pairs) for x in self.timed]
        return widen_interval(found, [(max(middles) - min(middles)) / 2])

    @property
    def ratio(self) -> Interval | None:
        found = self.logs
        return None if found is None else Interval(*map(math.exp, found))

    @property
    def now_us(self) -> float | None:
        """Median time of a step without the change, µs."""
        return statistics.median(pair[1] for pair in self.pairs) if self.pairs else None

    @property
    def gain(self) -> Gain | None:
        """The measured time of a step of the job without the change and with it. None if nothing was measured.

        The time with the change is the time without it (``now_us``) multiplied by ``ratio``, with an interval.
        """
        ratio, now = self.ratio, self.now_us
        return None if ratio is None or now is None else Gain(now, *(now * x for x in ratio))

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
        """True if trying the change gave a clear answer: faster (in two processes), or not faster."""
        return self.outcome in ("measured", "not faster")

    @property
    def is_lost(self) -> bool:
        """True if the change is of no use for this job: it is not faster, causes an error, or alters the results."""
        return self.outcome in ("not faster", "differs", "broken")

    @property
    def shows_no_gain(self) -> bool:
        """True if the change gained nothing when it was tried in the running job, failed, or altered the results.

        ``tune`` then makes no further, slower tests of the change.
        """
        if self.is_lost or self.outcome == "within noise":
            return True
        return self.outcome == "undecided" and self.logs is not None and self.logs.value > math.log1p(-self.floor)

    @property
    def why(self) -> str:
        """Why the change was refused or failed, or why its effect is unknown. Empty if its effect is known."""
        why = next((x.why for x in self.seen if x.ended in ("differs", "refused", "broken") and x.why), "")
        if why or self.outcome not in ("undecided", "not tried"):
            return why
        unlike = sum(x.unlike for x in self.seen)
        if unlike > len(self.pairs):
            return f"the job's steps are of many kinds: {unlike} pairs of blocks of steps had no kind in common"
        if self.logs is None and self.ended:
            return self.ended
        if self.logs is None:
            return (
                f"the job did too few steps: {len(self.pairs)} pairs of blocks of steps were timed, and an interval "
                "needs 6"
            )
        return f"the interval of the action's effect is still wider than ±{NARROW:.0%}"


def read_tried_changes(tables: Tables) -> tuple[Tried, ...]:
    """Return the results of all changes that were tried while the job ran, the best change first.

    The result is empty if no change was tried.
    """
    facts = tables.facts[(tables.facts["run"] == tables.run) & tables.facts["name"].str.startswith(TRIAL)]
    seen = [seen_of(json.loads(value)) for value in facts["value"]]
    return tuple(_rank_changes(dict.fromkeys(x.name for x in seen), seen, FLOOR))


def combine_starts(names: Iterable[str], starts: Sequence[Record], floor: float = FLOOR) -> list[Tried]:
    """Combine what several starts of the job measured, so that there is one result for each change.

    The changes that save most come first.
    """
    ended = next((record.why for record in reversed(starts) if record.why), "")
    found = _rank_changes(names, [x for record in starts for x in record.seen], floor)
    return [replace(x, ended=ended) for x in found]


def _rank_changes(names: Iterable[str], seen: Sequence[Seen], floor: float) -> list[Tried]:
    return sorted((Tried(name, tuple(x for x in seen if x.name == name), floor) for name in names), key=_rank)


_ORDER: Sequence[Outcome] = (
    "measured", "faster once", "undecided", "within noise", "not faster", "differs", "refused", "broken", "not tried",
)  # fmt: skip


def _rank(x: Tried) -> tuple[int, float]:
    return _ORDER.index(x.outcome), x.logs.value if x.logs else 0.0
