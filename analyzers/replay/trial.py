"""The work of one worker process: time the kernels for one GEMM or convolution, or compare two of them again.

Times are taken only while the GPU's clock is steady.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias, TypeVar

from analyzers.evidence.origins import ACTION, HOST
from analyzers.replay.confirm import interleave
from analyzers.replay.drift import SteadyClock, UnsettledError
from analyzers.replay.racing import Race, WithdrawnError, race
from analyzers.replay.results import KNOWN, Confirmed, Method, Result, not_measured
from analyzers.replay.sampler import Announce, Sampler
from logparse.libraries.kinds.backend import Backend, Conditions, OutOfMemoryError, Place, Runnable, UnsupportedError
from logparse.libraries.kinds.correctness import error_bound
from logparse.model import DEFAULT, GemmProblem, Measurement, Problem, Solution, problem_from_text

T = TypeVar("T")

REFERENCE = problem_from_text(
    "gemm trans=N,N mnk=1024,1024,1024 batch=1,- ld=1024,1024,1024,1024 stride=-,-,-,- type=f32_r,f32_r,f32_r,f32_r "
    "compute=f32_r,f32_r activation=none,0 aux=0,- bias=0,-,- scale=-,-,-,-,? swizzle=-,- beta=zero"
)
"""A matrix product that every device runs again and again to check its clock.

If its time changes, the clock changed or another program uses the device.
"""


@dataclass(frozen=True, kw_only=True)
class RaceTask:
    """A task for a worker process: time the kernels for a GEMM or convolution against each other.

    * ``known``: earlier measurements in this environment, by the kernel's name. These kernels are not measured again,
      except the library's choice and the best known kernel, because new times must be compared with these two.
    * ``lost``: measurements of kernels that crashed a worker. These kernels are not run again.
    * ``workspace_bytes``: workspace that the job gave this GEMM or convolution, if a log states it.
    * ``only``: time just these kernels, fast and slow ones alike, without a search.
    """

    problem: Problem
    only: tuple[Solution, ...] = ()
    known: Mapping[str, Measurement] = field(default_factory=dict)
    lost: tuple[Measurement, ...] = ()
    workspace_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class ConfirmTask:
    """A task for a worker process: measure the fastest kernel against the library's choice once more.

    Several processes do this, and ``turn`` is the number of the process, from 0.
    """

    problem: Problem
    pick: Solution
    winner: Solution
    workspace_bytes: int | None = None
    turn: int = 0


Task: TypeAlias = RaceTask | ConfirmTask


class WorkerContext:
    """The state of a worker process: the opened libraries (backends), and a matrix product.

    The time of the matrix product shows whether the GPU's clock is steady.
    """

    def __init__(self, backends: Mapping[str, Backend], place: Place, method: Method, announce: Announce) -> None:
        self.backends, self.place, self.method, self.announce = backends, place, method, announce
        self.facts = {name: value for backend in backends.values() for name, value in backend.environment().items()}
        self.facts |= {"replay_cache": method.cache, "replay_tf32": str(int(place.tf32))}
        self.facts |= {"replay_conv_tf32": str(int(place.conv_tf32))}
        self.facts |= {"replay_workspace_bytes": str(method.workspace_bytes)} if method.workspace_bytes else {}
        self._reference = self._prepared_reference()
        gpu = place.device != "cpu" and self._reference is not None
        self._clock = SteadyClock(self._reference_us) if gpu else None
        if self._clock is not None:
            with contextlib.suppress(UnsettledError):  # Each race and confirmation settles again, or refuses.
                self._clock.settle()

    def run(self, task: Task) -> Result | Confirmed:
        """Do one task of a worker process: time all kernels for a GEMM or convolution, or compare two of them again.

        Raises UnsettledError if the device's clock does not become steady before such a comparison.
        """
        started = time.perf_counter()
        if isinstance(task, ConfirmTask) and self._clock is not None:
            self._clock.ready()
        try:
            trial = Trial(self, task)
            # If several processes compare the same two kernels, each uses other random data.
            done = trial.race(task) if isinstance(task, RaceTask) else trial.confirm(task)
        finally:
            self.release()
        return replace(done, seconds=time.perf_counter() - started, facts=self.facts)

    def release(self) -> None:
        for backend in self.backends.values():
            backend.release()

    @property
    def cache_bytes(self) -> int:
        return max((backend.cache_bytes for backend in self.backends.values()), default=0)

    def conditions(self, problem: Problem, workspace_bytes: int | None = None) -> Conditions:
        """Choose how many copies of the operands a measurement uses, so that it does not find its data in the cache."""
        held, cache = problem.bytes, self.cache_bytes
        tf32 = self.place.tf32 if isinstance(problem, GemmProblem) else self.place.conv_tf32
        known = Conditions(seed=self.method.seed, workspace_bytes=workspace_bytes, tf32=tf32)
        if self.method.cache == "hot" or not held or not cache:
            return known
        # All copies together are larger than the last-level cache, and each execution uses another copy. If even the
        # largest allowed number of copies fits the cache, the cache is evicted before each sample.
        sets = 1 + math.ceil(self.method.rotate * cache / held)
        return replace(known, sets=min(self.method.max_sets, sets), evict=sets > self.method.max_sets)

    def steady(self, sample: Callable[[], T], **limits: float) -> T:
        """Take a sample while the device's clock is steady. Raises UnsettledError if the clock keeps changing."""
        return sample() if self._clock is None else self._clock.held(sample, **limits)

    def _prepared_reference(self) -> Runnable | None:
        """Prepare the matrix product whose time shows whether the GPU's clock is steady.

        Returns None if no backend can run it.
        """
        for backend in self.backends.values():
            try:
                picks = backend.solutions(REFERENCE, 1)
                if picks:
                    return backend.prepare(REFERENCE, picks[0], Conditions())
            except (UnsupportedError, OutOfMemoryError):
                continue
            finally:
                backend.release()
        return None

    def _reference_us(self) -> float:
        assert self._reference is not None
        return self._reference.sample_us(8)


class Trial:
    """Measures one GEMM or convolution: times all its kernels, or compares the best two a second time."""

    def __init__(self, context: WorkerContext, task: Task) -> None:
        self._context, self._problem, given = context, task.problem, task.workspace_bytes
        self._workspace_bytes = context.method.workspace_bytes if given is None else given
        self._rows: dict[str, Measurement] = {}
        self._owners: dict[str, Backend] = {}

    # ------------------------------------------------------------------ a race

    def race(self, task: RaceTask) -> Result:
        """Time the kernels for this GEMM or convolution against each other, and return all their times.

        Kernels that were measured before are not timed again.
        """
        self._rows.update({row.solution.text: row for row in task.lost})
        if task.only:
            return self._time_requested(task)
        offered, refused = self._offers()
        if not offered:
            row = not_measured(self._problem, DEFAULT, "unsupported", refused)
            return Result(problem=self._problem, rows=(row,), ended=f"unsupported: {refused}")
        entrants = self._entrants(offered, task.known)
        if not entrants:
            return replace(self._known_result(offered[0], task.known), offered=len(offered))
        return replace(self._race_entrants(offered[0], entrants), offered=len(offered))

    def _known_result(self, pick: Solution, known: Mapping[str, Measurement]) -> Result:
        """Return which kernel is the fastest for a GEMM or convolution, from earlier measurements on this machine.

        * ``known``: the times of all kernels.
        * ``pick``: the library's choice, also the result if no other is much faster.
        """
        timed = [row for row in known.values() if row.status == "ok" and row.time_us]
        picked = next((row for row in timed if row.solution == pick), None)
        best = min(timed, key=lambda row: row.time_us or math.inf, default=None)
        worth = 1 - self._context.method.rules.threshold
        if picked and best and (best.time_us or 0.0) > (picked.time_us or 0.0) * worth:
            best = picked
        return self._result(picked, best, KNOWN)

    def _result(self, pick: Measurement | None, best: Measurement | None, ended: str) -> Result:
        return Result(
            problem=self._problem,
            pick=pick.solution if pick and pick.status == "ok" else None,
            best=best.solution if best else None,
            pick_us=pick.time_us if pick else None,
            best_us=best.time_us if best else None,
            ended=ended,
        )

    def _race_entrants(self, pick: Solution, entrants: Sequence[Solution]) -> Result:
        sampler = self._sampler()
        ran: Race[Solution] | None = None
        ended = ""
        try:
            ran = race(
                entrants,
                lambda x: self._context.steady(lambda: sampler.take(x)),
                rules=self._context.method.rules,
            )
        except (WithdrawnError, UnsettledError) as reason:
            ended = str(reason)
        # Not even the operands fit, so the problem is skipped. The message states the size.
        except OutOfMemoryError as error:
            ended = f"out of memory: {error}"
            self._rows.setdefault(pick.text, not_measured(self._problem, pick, "out_of_memory", str(error)))
        self._rows |= sampler.refused
        for solution, taken in (ran.samples_us if ran else {}).items():
            self._rows[solution.text] = sampler.measured(solution, taken)
        order = dict.fromkeys([*(x.text for x in entrants), *self._rows])
        rows = [self._rows[text] for text in order if text in self._rows]
        picked, best = self._rows.get(pick.text), self._rows.get(ran.best.text) if ran else None
        return replace(self._result(picked, best, ran.ended if ran else ended), rows=tuple(rows))

    def _offers(self) -> tuple[list[Solution], str]:
        """Return all kernels that the backends (libraries) offer for this GEMM or convolution.

        The second result is a text with the reasons why other backends cannot run it.
        """
        out: list[Solution] = []
        reasons: list[str] = []
        for name, backend in self._context.backends.items():
            self._context.announce(f"solutions of {name}")
            try:
                offered = backend.solutions(self._problem, self._context.method.limit, self._workspace_bytes)
            except UnsupportedError as error:
                reasons.append(f"{name}: {error}")
                continue
            for solution in offered:
                if solution.text not in self._owners:
                    self._owners[solution.text] = backend
                    out.append(solution)
        return out, "; ".join(reasons) or "no backend offers a solution"

    def _entrants(self, offered: Sequence[Solution], known: Mapping[str, Measurement]) -> list[Solution]:
        """Return the kernels that still have to be timed, and two others with which they are compared.

        The two are the library's choice and the best known kernel. If all kernels have been timed, nothing is returned.
        """
        fresh = [x for x in offered if x.text not in known and x.text not in self._rows]
        if not fresh:
            return []
        timed = [row for x in offered if (row := known.get(x.text)) and row.status == "ok" and row.time_us]
        best = min(timed, key=lambda row: row.time_us or math.inf).solution if timed else None
        anchors = [x for x in (offered[0], best) if x is not None and x.text not in self._rows]
        failed = {text for text, row in known.items() if row.status != "ok"}
        return [x for x in dict.fromkeys([*anchors, *fresh]) if x.text not in failed]

    def _sampler(self) -> Sampler:
        context = self._context
        conditions = context.conditions(self._problem, self._workspace_bytes)
        bound = error_bound(self._problem, tf32=conditions.tf32)
        return Sampler(
            self._problem,
            self._owners,
            method=context.method,
            conditions=conditions,
            bound=bound,
            announce=context.announce,
        )

    # ------------------------------------------------------------------ solutions that an action chooses

    def _time_requested(self, task: RaceTask) -> Result:
        """Time only the requested kernels, without a search.

        They take turns, so that a drift affects all of them alike.
        """
        if all(x.text in task.known for x in task.only):
            return Result(problem=self._problem, ended=KNOWN)
        wanted = [x for x in task.only if x.text not in self._rows]
        sampler = self._sampler()
        taken: dict[str, list[float]] = {x.text: [] for x in wanted}
        hosts: dict[Solution, list[float]] = {x: [] for x in wanted}
        backends = self._context.backends  # Actions name solutions of torch's, which may not be the first open backend.
        backend = backends.get("torch", next(iter(backends.values())))
        self._owners.update({x.text: backend for x in wanted})
        for turn in range(1 + self._context.method.turns):
            for solution in wanted:
                if solution.text in sampler.refused:
                    continue
                with contextlib.suppress(WithdrawnError):
                    time_us = self._context.steady(lambda x=solution: sampler.unchecked(x))  # type: ignore[misc]
                    if turn:
                        taken[solution.text].append(time_us)
                        us = sampler.ready(solution).host_us
                        hosts[solution] += [us] if us is not None else []
        timed = {x.text: sampler.measured(x, taken[x.text]) for x in wanted if taken[x.text]}
        self._rows |= {text: replace(row, origin=ACTION) for text, row in (timed | sampler.refused).items()}
        samples = ((x, tuple(us)) for x, us in hosts.items() if us)
        of_host = (Measurement(problem=self._problem, solution=x, origin=HOST, samples_us=us) for x, us in samples)
        return Result(problem=self._problem, rows=tuple(self._rows.values()), hosts=tuple(of_host), ended="timed")

    # ------------------------------------------------------------------ a confirmation

    def confirm(self, task: ConfirmTask) -> Confirmed:
        """Measure the library's choice and the fastest kernel again, in turns.

        The results of both are checked once, and each block of samples has fresh inputs.
        """
        pick, winner = task.pick, task.winner
        self._offers()
        sampler, method = self._sampler(), self._context.method
        for solution in (pick, winner):
            sampler.enter(solution)
        first = task.turn * method.blocks
        pairs = interleave(
            pick,
            winner,
            lambda solution, block: sampler.take_in_block(solution, first + block),
            blocks=method.blocks,
            floor=method.floor,
            held=partial(self._context.steady, every_s=0.0),
        )
        return Confirmed(problem=task.problem, pick=pick, winner=winner, pairs=pairs)
