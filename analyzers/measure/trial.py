"""One problem on one device, in the worker: every solution prepared, checked, raced; or one pair confirmed.

Before each step that a library may crash or hang in, ``tell`` says which solution is in hand, so that the parent knows
whom to blame when the process dies.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn, TypeAlias

from analyzers.measure.backend import (
    Backend,
    CacheState,
    Conditions,
    OutOfMemoryError,
    Place,
    Runnable,
    UnsupportedError,
)
from analyzers.measure.check import acceptable, error_bound
from analyzers.measure.confirm import Pairs, interleave
from analyzers.measure.drift import VOLATILE, Drift
from analyzers.measure.racing import Race, Rules, WithdrawnError, race
from analyzers.measure.roofline import bound_us
from analyzers.measure.stats import median, spread
from logparse.model import DEFAULT, Family, GemmProblem, Measurement, Problem, Solution, Status

Tell: TypeAlias = Callable[[Solution | str], None]
"""Takes the solution that is in hand, or the name of another step."""

RACE, CONFIRM = "replay", "replay-confirm"
"""Origins of measurements: a race's samples; the paired samples of a confirmation, entry by entry of one block."""

_BANDS = ((20.0, 64), (100.0, 24), (1_000.0, 6), (10_000.0, 2))
"""Executions per sample, by latency below … µs: about 1 ms, long for the timer, short for the budget."""

_HICCUP_US = 1_000.0
"""A single execution that takes longer, and far too long, is believed: timing it again is what makes races dear."""


class SickError(Exception):
    """The device no longer answers in this process: only a new process will measure right."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """How everything is measured (``docs/measurement.md``)."""

    rules: Rules = field(default_factory=Rules)
    cache: CacheState = "cold"
    workspace_bytes: int | None = None
    limit: int = 200
    blocks: int = 12
    floor: float = 0.03
    seed: int = 0
    rotate: float = 2.0
    """Operands of all sets together are this many times the last-level cache."""
    max_sets: int = 64


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came out of one problem.  ``rows`` are in the order in which the solutions were offered, the pick first."""

    problem: Problem
    rows: tuple[Measurement, ...] = ()
    pick: Solution | None = None
    best: Solution | None = None
    pick_us: float | None = None
    best_us: float | None = None
    ended: str = ""
    drift: float | None = None
    drifted: bool = False
    seconds: float = 0.0
    samples: int = 0
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def worth_confirming(self) -> bool:
        """Another solution than the pick won the race."""
        return self.pick is not None and self.best is not None and self.pick != self.best


@dataclass(frozen=True, kw_only=True)
class Confirmed:
    """Paired samples of a pick and a winner."""

    problem: Problem
    pick: Solution
    winner: Solution
    pairs: Pairs
    drifted: bool = False
    seconds: float = 0.0
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> tuple[Measurement, ...]:
        """Two measurements, the pick first; their samples are pairs."""
        timed = ((self.pick, self.pairs.pick_us), (self.winner, self.pairs.winner_us))
        return tuple(measured(self.problem, s, samples, origin=CONFIRM) for s, samples in timed)


def environment_key(facts: Mapping[str, str]) -> str:
    """A short name for everything that must be equal for two times to be comparable."""
    lasting = sorted((name, value) for name, value in facts.items() if name not in VOLATILE)
    return hashlib.sha256(repr(lasting).encode()).hexdigest()[:12]


def measured(
    problem: Problem,
    solution: Solution,
    samples: Sequence[float],
    *,
    origin: str = RACE,
    workspace_bytes: int | None = None,
    error: float | None = None,
) -> Measurement:
    """A measurement from raw samples (µs); its time is their median.  ``error`` is the checked relative error."""
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
    """A measurement that has a reason instead of a time."""
    return Measurement(problem=problem, solution=solution, origin=RACE, status=status, error=why)


def executions(time_us: float) -> int:
    """How many executions make one sample."""
    return next((count for below, count in _BANDS if time_us < below), 1)


REFERENCE = GemmProblem(
    trans_a="N",
    trans_b="N",
    m=1024,
    n=1024,
    k=1024,
    batch_count=1,
    **dict.fromkeys(("lda", "ldb", "ldc", "ldd"), 1024),  # type: ignore[arg-type]
    **dict.fromkeys(("a_type", "b_type", "c_type", "d_type", "compute_type", "scale_type"), "f32_r"),  # type: ignore[arg-type]
    activation="none",
    gradient=False,
    aux=False,
    bias=False,
    beta="zero",
)
"""A product that every device runs; its time tells a change of clocks or a busy neighbour."""


class Laboratory:
    """The opened backends of one worker, and the reference whose drift is watched."""

    def __init__(self, backends: Mapping[str, Backend], place: Place, method: Method, tell: Tell) -> None:
        self.backends, self.place, self.method, self.tell = backends, place, method, tell
        self.facts = {name: value for backend in backends.values() for name, value in backend.environment().items()}
        self.facts |= {"replay_cache": method.cache, "replay_tf32": str(int(place.tf32))}
        self.facts |= {"replay_workspace_bytes": str(method.workspace_bytes)} if method.workspace_bytes else {}
        self.drift = Drift()
        self._before = self._reading()

    def measure(
        self,
        problem: Problem,
        known: Mapping[str, Measurement] | None = None,
        lost: Sequence[Measurement] = (),
        workspace_bytes: int | None = None,
    ) -> Result:
        """Race all solutions of ``problem``; once more where the reference moved meanwhile.

        ``known`` are measurements of this environment by solution text: what is in there is not measured again, except
        the pick and the best of them, which the new ones must be compared with.  ``lost`` are those that this problem
        has cost a worker: they stay out.  ``workspace_bytes`` is what the job gave this problem, where a log tells it.
        """
        started = time.perf_counter()
        result = self._once(Trial(self, problem, known or {}, lost, workspace_bytes))
        if result.drifted:
            result = self._once(Trial(self, problem, known or {}, lost, workspace_bytes))
        return replace(result, seconds=time.perf_counter() - started, facts=self.facts)

    def _once(self, trial: Trial) -> Result:
        before = self._before
        try:
            result = trial.run()
        finally:
            self.release()
        if not result.samples:
            return result
        self._before = after = self._reading()
        moved = before is not None and after is not None and self.drift.moved(before, after)
        return replace(result, drift=after, drifted=moved)

    def confirm(
        self, problem: Problem, pick: Solution, winner: Solution, workspace_bytes: int | None = None
    ) -> Confirmed:
        """Interleaved pairs of two solutions.  Pairs are safe from slow drift, so this is not watched."""
        started = time.perf_counter()
        try:
            pairs = Trial(self, problem, {}, (), workspace_bytes).pairs(pick, winner)
        finally:
            self.release()
        seconds = time.perf_counter() - started
        return Confirmed(problem=problem, pick=pick, winner=winner, pairs=pairs, seconds=seconds, facts=self.facts)

    def release(self) -> None:
        """Free what the last problem held."""
        for backend in self.backends.values():
            backend.release()

    def sets(self, problem: Problem) -> int:
        """Operand sets that together exceed the last-level cache."""
        held = None if isinstance(problem, Family) else problem.bytes
        cache = max((backend.cache_bytes for backend in self.backends.values()), default=0)
        if self.method.cache == "hot" or not held or not cache:
            return 1
        return min(self.method.max_sets, 1 + math.ceil(self.method.rotate * cache / held))

    def _reading(self) -> float | None:
        """The reference's time relative to the start; None where no backend runs it."""
        for backend in self.backends.values():
            try:
                picks = backend.solutions(REFERENCE, 1)
                if picks:
                    runnable = backend.prepare(REFERENCE, picks[0], Conditions())
                    runnable.sample_us(2)
                    return self.drift.read(median([runnable.sample_us(8) for _ in range(3)]))
            except (UnsupportedError, OutOfMemoryError):
                continue
            finally:
                backend.release()
        return None


class Trial:
    """One problem in hand."""

    def __init__(
        self,
        lab: Laboratory,
        problem: Problem,
        known: Mapping[str, Measurement],
        lost: Sequence[Measurement],
        workspace_bytes: int | None,
    ) -> None:
        self._workspace_bytes = lab.method.workspace_bytes if workspace_bytes is None else workspace_bytes
        self._lab, self._problem, self._known = lab, problem, known
        self._rows = {row.solution.text: row for row in lost}
        self._owner: dict[str, str] = {}
        self._prepared: dict[str, Runnable] = {}
        self._errors: dict[str, float] = {}
        self._taken: dict[str, int] = {}
        self._single_us: dict[str, float] = {}
        self._seed = lab.method.seed
        self._fastest = math.inf
        self._bound = error_bound(problem, tf32=lab.place.tf32)

    # ------------------------------------------------------------------ a race

    def run(self) -> Result:
        """Offer, choose what is new, race it, and say how each ended."""
        offered, refused = self._offers()
        if not offered:
            row = not_measured(self._problem, DEFAULT, "unsupported", refused)
            return Result(problem=self._problem, rows=(row,), ended=f"unsupported: {refused}")
        entrants = self._entrants(offered)
        if not entrants:
            return self._known_result(offered[0])
        return self._raced(offered[0], entrants)

    def _known_result(self, pick: Solution) -> Result:
        """Nothing to measure: what earlier races of this environment said."""
        timed = [row for row in self._known.values() if row.status == "ok" and row.time_us]
        picked = next((row for row in timed if row.solution == pick), None)
        best = min(timed, key=lambda row: row.time_us or math.inf, default=None)
        worth = 1 - self._lab.method.rules.threshold
        if picked and best and (best.time_us or 0.0) > (picked.time_us or 0.0) * worth:
            best = picked
        return Result(
            problem=self._problem,
            pick=picked.solution if picked else None,
            best=best.solution if best else None,
            pick_us=picked.time_us if picked else None,
            best_us=best.time_us if best else None,
            ended="known",
        )

    def _raced(self, pick: Solution, entrants: Sequence[Solution]) -> Result:
        least = bound_us(self._problem, self._lab.facts, hot=self._lab.method.cache == "hot")
        ran: Race[Solution] | None = None
        ended = ""
        try:
            ran = race(entrants, self._sample, rules=self._lab.method.rules, bound_us=least)
        except WithdrawnError as reason:
            ended = str(reason)
        except OutOfMemoryError as error:  # the operands themselves: the problem is skipped with its size
            ended = f"out of memory: {error}"
            self._rows.setdefault(pick.text, not_measured(self._problem, pick, "out_of_memory", str(error)))
        for solution, samples in (ran.samples_us if ran else {}).items():
            self._rows[solution.text] = self._measured(solution, samples)
        order = dict.fromkeys([*(x.text for x in entrants), *self._rows])
        rows = [self._rows[text] for text in order if text in self._rows]
        picked, best = self._rows.get(pick.text), self._rows.get(ran.best.text) if ran else None
        return Result(
            problem=self._problem,
            rows=tuple(rows),
            pick=pick if picked and picked.status == "ok" else None,
            best=best.solution if best else None,
            pick_us=picked.time_us if picked else None,
            best_us=best.time_us if best else None,
            ended=ran.ended if ran else ended,
            samples=ran.count if ran else 0,
        )

    def _offers(self) -> tuple[list[Solution], str]:
        """The solutions of every backend that runs this problem, and why the others do not."""
        out: list[Solution] = []
        reasons: list[str] = []
        for name, backend in self._lab.backends.items():
            self._lab.tell(f"solutions of {name}")
            try:
                offered = backend.solutions(self._problem, self._lab.method.limit, self._workspace_bytes)
            except UnsupportedError as error:
                reasons.append(f"{name}: {error}")
                continue
            for solution in offered:
                if solution.text not in self._owner:
                    self._owner[solution.text] = name
                    out.append(solution)
        return out, "; ".join(reasons) or "no backend offers a solution"

    def _entrants(self, offered: Sequence[Solution]) -> list[Solution]:
        """Who races: what is not known yet, behind the pick, and the best known one to be compared with."""
        fresh = [x for x in offered if x.text not in self._known and x.text not in self._rows]
        if not fresh:
            return []
        timed = [row for x in offered if (row := self._known.get(x.text)) and row.status == "ok" and row.time_us]
        best = min(timed, key=lambda row: row.time_us or math.inf).solution if timed else None
        anchors = [x for x in (offered[0], best) if x is not None and x.text not in self._rows]
        failed = {text for text, row in self._known.items() if row.status != "ok"}
        return [x for x in dict.fromkeys([*anchors, *fresh]) if x.text not in failed]

    def _sample(self, solution: Solution) -> float:
        """One sample for the race.  The first tells whether a solution is hopeless; before the second it is checked."""
        taken = self._taken.get(solution.text, 0)
        self._lab.tell(solution)
        try:
            time_us = self._first_sample(solution) if taken == 0 else self._next_sample(solution, taken)
        except (WithdrawnError, SickError):
            raise
        except UnsupportedError as error:
            self._give_up(solution, "unsupported", str(error))
        except OutOfMemoryError as error:
            if not self._prepared:
                raise  # not even the operands fit: no other solution would fare better
            self._give_up(solution, "out_of_memory", str(error))
        except Exception as error:  # whatever a library raises is this solution's failure, not the run's
            self._failed(solution, error)
        self._taken[solution.text] = taken + 1
        self._fastest = min(self._fastest, time_us)
        return time_us

    def _first_sample(self, solution: Solution) -> float:
        """A single execution or a few where that tells enough, else a whole sample."""
        runnable, hopeless = self._ready(solution), self._lab.method.rules.hopeless * self._fastest
        once = runnable.sample_us(1)
        if 2 * hopeless < once < max(8 * hopeless, _HICCUP_US):
            once = min(once, runnable.sample_us(1))  # a hiccup is no verdict
        self._single_us[solution.text] = once
        if once > 2 * hopeless:  # twice, because a single execution is timed long by what surrounds it
            return once
        count = executions(once)
        if once > hopeless:
            glance = runnable.sample_us(max(1, count // 8))
            if glance > hopeless:
                return glance
        return runnable.sample_us(count)

    def _next_sample(self, solution: Solution, taken: int) -> float:
        runnable = self._ready(solution)
        if taken == 1:
            self._check(solution, runnable)
        # Other random data in each round of the race; within a round all solutions see the same.
        self._fresh_inputs(self._lab.method.seed + taken.bit_length() - 1, solution)
        return runnable.sample_us(executions(self._single_us[solution.text]))

    def _ready(self, solution: Solution) -> Runnable:
        if solution.text not in self._prepared:
            conditions = Conditions(
                seed=self._seed, sets=self._lab.sets(self._problem), workspace_bytes=self._workspace_bytes
            )
            backend = self._backend(solution)
            self._prepared[solution.text] = backend.prepare(self._problem, solution, conditions)
        return self._prepared[solution.text]

    def _backend(self, solution: Solution) -> Backend:
        return self._lab.backends[self._owner[solution.text]]

    def _check(self, solution: Solution, runnable: Runnable) -> None:
        error = self._errors[solution.text] = runnable.error()
        if not acceptable(error, self._bound):
            what = (
                f"relative error {error:.2e} above {self._bound:.2e}" if math.isfinite(error) else "not all was written"
            )
            self._give_up(solution, "wrong", what)

    def _fresh_inputs(self, seed: int, first: Solution) -> None:
        """Other random data, then a sample of whoever comes first that does not count.

        Whoever runs right after the data were written finds other caches and clocks than the rest, and that would
        always be the same one: without this, a copy of the pick beat it.
        """
        if seed != self._seed:
            self._seed = seed
            for backend in self._lab.backends.values():
                backend.refresh(seed)
            self._ready(first).sample_us(executions(self._single_us[first.text]))

    def _failed(self, solution: Solution, error: Exception) -> NoReturn:
        text = f"{type(error).__name__}: {error}"[:300]
        if not self._backend(solution).healthy():
            raise SickError(text) from error
        self._give_up(solution, "failed", text)

    def _give_up(self, solution: Solution, status: Status, why: str) -> NoReturn:
        self._rows[solution.text] = not_measured(self._problem, solution, status, why)
        self._prepared.pop(solution.text, None)
        raise WithdrawnError(status)

    def _measured(self, solution: Solution, samples: Sequence[float]) -> Measurement:
        runnable = self._prepared.get(solution.text)
        return measured(
            self._problem,
            solution,
            samples,
            workspace_bytes=runnable.workspace_bytes if runnable else None,
            error=self._errors.get(solution.text),
        )

    # ------------------------------------------------------------------ a confirmation

    def pairs(self, pick: Solution, winner: Solution) -> Pairs:
        """Both again, interleaved, checked once and with fresh inputs in each block."""
        self._offers()
        for solution in (pick, winner):
            self._lab.tell(solution)
            runnable = self._ready(solution)
            self._check(solution, runnable)
            self._single_us[solution.text] = runnable.sample_us(1)
        method = self._lab.method

        def sample(solution: Solution, block: int) -> float:
            self._lab.tell(solution)
            self._fresh_inputs(method.seed + block, solution)
            return self._ready(solution).sample_us(executions(self._single_us[solution.text]))

        return interleave(pick, winner, sample, blocks=method.blocks, floor=method.floor)
