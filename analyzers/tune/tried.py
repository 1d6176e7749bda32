"""What trials in the job say of an action: faster, not faster, or why nothing is known.  Pure.

Each process that tried it gives pairs of blocks (``logparse/capture/in_job/logparse_in_job/pairs.py``), which are one
sample here.  The interval of their signed ranks is widened twice, each time by the root of the sum of squares: by what
control pairs found, which is no effect of the action, and by half of what the middles of processes differ by, since one
process has a bias of its own that turns do not remove.  An action counts as *measured* once two processes agree that it
is faster.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

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

Outcome: TypeAlias = Literal["measured", "faster once", "not faster", "undecided", "refused", "broken", "not tried"]
"""``measured``: faster by more than the floor in two processes.  ``undecided``: too few pairs to tell."""
AGREE = 2
"""Processes that must find an action faster before it is called measured."""


@dataclass(frozen=True)
class Seen:
    """What one process says of one action: how its trial ended, pairs as (log ratio, µs as it is, µs on), controls.

    ``same``: by how much its result deviated, and how much rounding may; None where it was not compared.
    """

    name: str
    ended: str
    why: str = ""
    detail: str = ""
    pairs: tuple[tuple[float, float, float], ...] = ()
    control: tuple[float, ...] = ()
    unlike: int = 0
    seconds: float = 0.0
    same: tuple[float, float, str] | None = None


@dataclass(frozen=True)
class Record:
    """One process: its unit of work, how many it made, what was on when it wrote last, and what it tried."""

    sort: str
    units: int
    kinds: int
    over: bool
    why: str
    on: str
    rank: int
    seen: tuple[Seen, ...]


@dataclass(frozen=True)
class Tried:
    """What all processes say of an action.  Times in µs of a unit; ``ratio`` is the time on over that as it is."""

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
        """The comparison that deviates most beyond what it may."""
        found = [x.same for x in self.seen if x.same is not None]
        return max(found, key=lambda x: (x[0] > x[1], x[0])) if found else None

    @property
    def logs(self) -> Interval | None:
        """The logarithm of the ratio with its interval; None of too few pairs."""
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
        """The usual time of a unit as it is."""
        return statistics.median(pair[1] for pair in self.pairs) if self.pairs else None

    @property
    def then_us(self) -> Interval | None:
        """The time of a unit with the action, as its ratio and the usual time as it is say."""
        ratio, now = self.ratio, self.now_us
        return None if ratio is None or now is None else Interval(*(now * x for x in ratio))

    @property
    def outcome(self) -> Outcome:
        ways = {x.ended for x in self.seen}
        if "broken" in ways:
            return "broken"
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
        return "undecided" if len(self.pairs) < LOOKS[-1] else "not faster"

    @property
    def why(self) -> str:
        """Why it is refused, or broken, or nothing is known."""
        why = next((x.why for x in self.seen if x.ended in ("refused", "broken") and x.why), "")
        if why or self.outcome not in ("undecided", "not tried"):
            return why
        unlike = sum(x.unlike for x in self.seen)
        if unlike > len(self.pairs):
            return f"the job's units are of many kinds: {unlike} pairs of blocks had none in common"
        if self.logs is None:
            return f"the job makes too few units: {len(self.pairs)} pairs of blocks, and an interval needs 6"
        return f"its interval is still wider than {NARROW:.0%} to a side"


def read(folder: Path) -> list[Record]:
    """The records of all processes of a job, by their ranks.  One that was cut off is left out."""
    found = []
    for path in sorted(folder.glob("try_*.json")):
        try:
            found.append(_record(json.loads(path.read_bytes())))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return sorted(found, key=lambda x: x.rank)


def _record(found: Mapping[str, Any]) -> Record:
    return Record(
        sort=str(found["unit"]),
        units=int(found["units"]),
        kinds=int(found["kinds"]),
        over=bool(found["over"]),
        why=str(found["why"]),
        on=str(found["on"]),
        rank=int(found.get("rank", 0)),
        seen=tuple(map(_seen, found["actions"])),
    )


def _seen(found: Mapping[str, Any]) -> Seen:
    same = found.get("same")
    return Seen(
        name=str(found["name"]),
        ended=str(found["ended"]),
        why=str(found["why"]),
        detail=str(found["detail"]),
        pairs=tuple((float(a), float(b), float(c)) for a, b, c in found.get("pairs", ())),
        control=tuple(float(x[0]) for x in found.get("control", ())),
        unlike=int(found.get("unlike", 0)),
        seconds=float(found["seconds"]),
        same=(float(same["deviation"]), float(same["allowed"]), str(same["how"])) if same else None,
    )


def gathered(names: Iterable[str], starts: Sequence[Record], floor: float = FLOOR) -> list[Tried]:
    """What all starts say of each action, those that save most first."""
    found = [Tried(name, tuple(x for record in starts for x in record.seen if x.name == name), floor) for name in names]
    return sorted(found, key=_rank)


_ORDER: Sequence[Outcome] = (
    "measured", "faster once", "undecided", "not faster", "refused", "broken", "not tried",
)  # fmt: skip


def _rank(x: Tried) -> tuple[int, float]:
    return _ORDER.index(x.outcome), x.logs.value if x.logs else 0.0
