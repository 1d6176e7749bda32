"""The method of a measurement and its result.  Nothing here touches a device."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from analyzers.evidence.confirmations import Pairs
from analyzers.evidence.origins import CONFIRM, RACE
from analyzers.evidence.statistics.intervals import median, spread
from analyzers.replay.racing import Rules
from logparse.libraries.kinds.backend import CacheState
from logparse.model import Measurement, Problem, Solution, Status

KNOWN = "known"
"""Value of ``Result.ended`` for a race in which everything had been measured before."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """The method by which everything is measured (``docs/measurement.md``)."""

    rules: Rules = field(default_factory=Rules)
    cache: CacheState = "cold"
    workspace_bytes: int | None = None
    limit: int = 200
    blocks: int = 6
    """Blocks of a confirmation in one process.  Processes differ by more than blocks (``docs/measurement.md``)."""
    processes: int = 4
    """Fresh processes that confirm a winner, with ``blocks`` blocks each.  With 0 no winner is confirmed.

    In simulations, findings of 3 to 5 % are found again in 90 % of cases with 3 processes and in 94 % with 4
    (``tests/analyzers/evidence/test_confirmations.py``).
    """
    floor: float = 0.03
    turns: int = 6
    """Number of samples of each solution that an action chooses.

    The smallest and the largest of six samples enclose the median with a probability of 97 %.
    """
    seed: int = 0
    rotate: float = 2.0
    """Total size of all operand sets, as a multiple of the last-level cache."""
    max_sets: int = 64
    """Largest number of operand sets, equal to the executions of one sample.

    If that many sets still fit the cache, the cache is evicted before each sample.
    """


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of one problem's race.

    ``rows`` are in the order in which solutions were offered, the pick first.  ``hosts`` are measurements of origin
    HOST.
    """

    problem: Problem
    rows: tuple[Measurement, ...] = ()
    hosts: tuple[Measurement, ...] = ()
    pick: Solution | None = None
    best: Solution | None = None
    pick_us: float | None = None
    best_us: float | None = None
    ended: str = ""
    seconds: float = 0.0
    offered: int = 0
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        """True if no solution was left to measure."""
        return self.ended == KNOWN and not self.rows

    @property
    def worth_confirming(self) -> bool:
        """True if another solution than the pick won the race."""
        return self.pick is not None and self.best is not None and self.pick != self.best


@dataclass(frozen=True, kw_only=True)
class Confirmed:
    """Paired samples of a pick and a winner.

    ``complete`` is True if no process is missing, or if the winner was given up.
    """

    problem: Problem
    pick: Solution
    winner: Solution
    pairs: Pairs
    complete: bool = True
    seconds: float = 0.0
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> tuple[Measurement, ...]:
        """Two measurements, first the pick's and then the winner's.

        Sample i of one belongs to sample i of the other.
        """
        timed = ((self.pick, self.pairs.pick_us), (self.winner, self.pairs.winner_us))
        return tuple(measured(self.problem, s, samples, origin=CONFIRM) for s, samples in timed)


def environment_key(facts: Mapping[str, str]) -> str:
    """Return a short name for the conditions under which times are comparable.

    Times of different environments must not be compared.
    """
    return hashlib.sha256(repr(sorted(facts.items())).encode()).hexdigest()[:12]


def measured(
    problem: Problem,
    solution: Solution,
    samples: Sequence[float],
    *,
    origin: str = RACE,
    workspace_bytes: int | None = None,
    error: float | None = None,
) -> Measurement:
    """Return a measurement from raw samples (µs).  Its time is their median.

    ``error`` is the checked relative error.
    """
    noise = spread(samples)
    return Measurement(
        problem=problem,
        solution=solution,
        origin=origin,
        time_us=median(samples),
        min_us=min(samples),
        max_us=max(samples),
        std_us=None if math.isnan(noise) else noise * median(samples),
        samples_us=tuple(samples),
        workspace_bytes=workspace_bytes,
        error=None if error is None else f"relative error {error:.2e}",
    )


def not_measured(problem: Problem, solution: Solution, status: Status, why: str) -> Measurement:
    """Return a measurement that has a reason instead of a time."""
    return Measurement(problem=problem, solution=solution, origin=RACE, status=status, error=why)
