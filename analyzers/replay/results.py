"""Settings and results of ``logparse replay``, which measures the kernels of a job outside the job.

Nothing here uses a GPU.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from analyzers.evidence.confirmations import Pairs
from analyzers.evidence.origins import CONFIRM, RACE
from analyzers.evidence.statistics.intervals import median, relative_spread
from analyzers.replay.racing import Rules
from logparse.libraries.kinds.backend import CacheState
from logparse.model import Measurement, Problem, Solution, Status

KNOWN = "known"
"""Value of ``Result.ended`` if everything had already been measured."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """Settings of how kernels are measured: rules, state of the cache, workspace, and so on.

    ``docs/measurement.md`` describes the method.
    """

    rules: Rules = field(default_factory=Rules)
    cache: CacheState = "cold"
    workspace_bytes: int | None = None
    limit: int = 200
    blocks: int = 6
    """Number of blocks in which one process confirms that a kernel is faster.

    It is small, because processes differ by more than blocks. See ``docs/measurement.md``.
    """
    processes: int = 4
    """Number of fresh processes that confirm that a kernel is faster. Each process measures ``blocks`` blocks.

    With 0 nothing is confirmed. In simulations, gains of 3 to 5 % are found again in 90 % of cases with 3 processes and
    in 94 % with 4 (``tests/analyzers/evidence/test_confirmations.py``).
    """
    floor: float = 0.03
    turns: int = 6
    """Number of samples of each kernel, if the kernels are timed for proposed changes of the job.

    The smallest and the largest of six samples enclose the median with a probability of 97 %.
    """
    seed: int = 0
    rotate: float = 2.0
    """How large all copies of the operands are together, as a multiple of the last-level cache.

    Each execution uses another copy, so that its data are not in the cache.
    """
    max_sets: int = 64
    """Largest number of copies of the operands. Each execution of a sample uses another copy.

    If so many copies still fit the cache, the cache is evicted before each sample.
    """


@dataclass(frozen=True, kw_only=True)
class Result:
    """The measured times of all kernels for one GEMM or convolution.

    * ``rows``: one measurement per kernel, in the order in which the library offers them, its own choice first.
    * ``hosts``: times that the host took to enqueue calls.
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
        """True if nothing was measured now, because all kernels had already been measured."""
        return self.ended == KNOWN and not self.rows

    @property
    def worth_confirming(self) -> bool:
        """True if a kernel was faster than the library's choice, so that the two should be compared a second time."""
        return self.pick is not None and self.best is not None and self.pick != self.best


@dataclass(frozen=True, kw_only=True)
class Confirmed:
    """Times from a second comparison of two kernels: the library's choice (``pick``) and the fastest one (``winner``).

    ``complete`` is True if all processes have measured, or if fewer were enough to show that the winner is not faster.
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
        """The measured times as two measurements: the library's choice, then the fastest kernel.

        Sample i of one was taken in the same block as sample i of the other.
        """
        timed = ((self.pick, self.pairs.pick_us), (self.winner, self.pairs.winner_us))
        return tuple(make_measurement(self.problem, s, samples, origin=CONFIRM) for s, samples in timed)


def environment_key(facts: Mapping[str, str]) -> str:
    """Return a short hash of an environment: the machine and library versions.

    Times are compared only if they have the same hash.
    """
    return hashlib.sha256(repr(sorted(facts.items())).encode()).hexdigest()[:12]


def make_measurement(
    problem: Problem,
    solution: Solution,
    samples: Sequence[float],
    *,
    origin: str = RACE,
    workspace_bytes: int | None = None,
    error: float | None = None,
) -> Measurement:
    """Make a measurement of a kernel from its single times (µs). Its time is their median.

    ``error`` is the relative error of the kernel's result.
    """
    noise = relative_spread(samples)
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
    """Make a measurement without a time, which states why the kernel could not be timed."""
    return Measurement(problem=problem, solution=solution, origin=RACE, status=status, error=why)
