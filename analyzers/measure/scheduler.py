"""Runs tasks on one worker per device, and goes on whatever breaks.

All races come first, the most valuable first; each winner is then confirmed by a worker that did not race it, on a
device of the same environment.  Nothing here knows of a store (outcomes go to ``sink``), nor on what machines the
seats are.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import TypeAlias

from analyzers.measure.backend import Place
from analyzers.measure.device_workers import Seat
from analyzers.measure.results import Confirmed, Method, Result, environment_key, not_measured
from analyzers.measure.worker import Answer, ConfirmTask, Failure, Handle, Lost, RaceTask, Ready, Task
from logparse.errors import LogparseError
from logparse.model import DEFAULT, Measurement, Problem, Solution, Status

Known: TypeAlias = Mapping[str, Mapping[str, Measurement]]
"""Measurements of one environment by problem text and solution text."""


class MeasuringError(LogparseError):
    """A backend that cannot be opened here."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Seconds: ``budget_s`` of the whole run (None: until done), ``hang_s`` of silence before a worker is killed,
    ``opening_s`` of silence while it starts; ``losses``: workers that one problem, or machines that one seat may cost.
    """

    budget_s: float | None = None
    hang_s: float = 60.0
    opening_s: float = 300.0
    losses: int = 4
    confirmation_s: float = 1.0


@dataclass(frozen=True)
class History:
    """What earlier runs measured and confirmed, by environment key."""

    races: Mapping[str, Known] = field(default_factory=dict)
    confirmed: Mapping[str, frozenset[tuple[str, str, str]]] = field(default_factory=dict)


@dataclass
class _Seat:
    """A device and who works on it."""

    at: Seat
    worker: Handle | None = None
    task: Task | None = None
    ready: bool = False
    used: bool = False  # this worker has raced: it may not confirm
    environment: str | None = None  # of its workers, once one has said it
    lost: int = 0  # machines, since it last finished anything

    @property
    def place(self) -> Place:
        return self.at.place


Outcome: TypeAlias = Result | Confirmed
Sink: TypeAlias = Callable[[Outcome, str], None]
"""Takes an outcome and the device it was made on."""


class Crew:
    """One worker per seat."""

    def __init__(
        self,
        backends: Sequence[str],
        seats: Sequence[Seat],
        method: Method,
        limits: Limits,
        sink: Sink,
        history: History = History(),
    ) -> None:
        self._backends, self._method, self._limits, self._sink = tuple(backends), method, limits, sink
        self._history = history
        self._seats = [_Seat(seat) for seat in seats]
        self._races: deque[Problem] = deque()
        self._confirmations: deque[tuple[str, ConfirmTask]] = deque()  # with the environment that they are for
        self._workspaces: Mapping[str, int] = {}
        self._lost: dict[str, list[Measurement]] = {}
        self._machines_lost: Counter[str] = Counter()  # by the problem in hand
        self._opening_s = 0.0
        self._facts: Mapping[str, str] = {}
        self._started = time.monotonic()

    def run(self, problems: Sequence[Problem], workspaces: Mapping[str, int] | None = None) -> bool:
        """Measure ``problems`` in order; False when the budget ended first.  Raises MeasuringError.

        ``workspaces``: bytes that the job gave a problem, by its text, where a log tells it.

        KeyboardInterrupt passes through; what had an outcome before it is in the sink.
        """
        self._races.extend(problems)
        self._workspaces = workspaces or {}
        self._started = time.monotonic()
        try:
            while True:
                for seat in self._seats:
                    self._assign(seat)
                left = bool(self._races or self._confirmations)
                busy = [seat for seat in self._seats if seat.worker and (seat.task or (left and not seat.ready))]
                if not busy:
                    return not left
                self._listen(busy)
        except BaseException:
            self._keep_losses()
            raise
        finally:
            for seat in self._seats:
                self._dismiss(seat)

    # ------------------------------------------------------------------ who does what

    def _assign(self, seat: _Seat) -> None:
        if seat.task is not None or (seat.worker and not seat.ready) or seat.lost >= self._limits.losses:
            return
        racing = bool(self._races) and self._left() > self._reserve()
        mine = next((pair for pair in self._confirmations if seat.environment in (None, pair[0])), None)
        if not racing and (mine is None or self._left() <= 0):
            return
        if seat.worker is None or (not racing and seat.used):
            self._dismiss(seat)
            seat.worker = seat.at.open(self._backends, self._method)
            return
        if racing:
            problem = self._races.popleft()
            seat.used = True
            known, lost = self._known(seat).get(problem.text, {}), tuple(self._lost.get(problem.text, ()))
            workspace = self._workspaces.get(problem.text)
            seat.task = RaceTask(problem=problem, known=known, lost=lost, workspace_bytes=workspace)
        elif mine is not None:
            self._confirmations.remove(mine)
            seat.task = mine[1]
        if seat.task is not None:
            seat.worker.send(seat.task)

    def _left(self) -> float:
        budget = self._limits.budget_s
        return float("inf") if budget is None else budget - (time.monotonic() - self._started)

    def _reserve(self) -> float:
        """Seconds of the budget that the confirmations at its end will need."""
        count = len(self._confirmations)
        return self._opening_s + self._limits.confirmation_s * count / len(self._seats) if count else 0.0

    def _known(self, seat: _Seat) -> Known:
        assert seat.worker
        return self._history.races.get(environment_key(seat.worker.facts), {})

    # ------------------------------------------------------------------ what comes back

    def _listen(self, busy: Sequence[_Seat]) -> None:
        ready = wait([seat.worker.connection for seat in busy if seat.worker], timeout=0.5)
        for seat in busy:
            worker = seat.worker
            if worker is None:
                continue
            if worker.connection in ready:
                self._hear(seat, worker)
            elif time.monotonic() - worker.heard > self._patience(seat):
                worker.stop()
                self._blame(seat, worker, "timeout", f"silent for {self._patience(seat):.0f} s")
            elif seat.ready and isinstance(seat.task, RaceTask) and self._left() <= self._reserve():
                self._races.appendleft(seat.task.problem)  # the budget is spent in the middle of a race
                self._dismiss(seat)
                seat.task = None

    def _patience(self, seat: _Seat) -> float:
        return self._limits.hang_s if seat.ready else self._limits.opening_s

    def _hear(self, seat: _Seat, worker: Handle) -> None:
        try:
            reply = worker.receive()
        except (EOFError, OSError):
            self._blame(seat, worker, "failed", f"the worker {worker.death()}")
            return
        if isinstance(reply, Ready):
            seat.ready, self._facts = True, reply.facts
            seat.environment = environment_key(reply.facts)
            self._opening_s = max(self._opening_s, time.monotonic() - worker.started)
        elif isinstance(reply, Answer):
            self._finish(seat, reply.outcome)
        elif isinstance(reply, Failure) and reply.fatal:
            worker.stop()
            self._blame(seat, worker, "failed", reply.reason)
        elif isinstance(reply, Failure):
            assert seat.task
            self._skip(seat, reply.reason)
        elif isinstance(reply, Lost):
            self._lose(seat, reply.why)

    def _finish(self, seat: _Seat, outcome: Outcome) -> None:
        seat.task, seat.lost = None, 0
        self._lost.pop(outcome.problem.text, None)  # a race's rows hold them
        self._sink(outcome, seat.place.device)
        if isinstance(outcome, Result) and outcome.worth_confirming and outcome.pick and outcome.best:
            pair = (outcome.problem.text, outcome.pick.text, outcome.best.text)
            environment = environment_key(outcome.facts)
            if pair not in self._history.confirmed.get(environment, frozenset()):
                workspace = self._workspaces.get(outcome.problem.text)
                task = ConfirmTask(
                    problem=outcome.problem, pick=outcome.pick, winner=outcome.best, workspace_bytes=workspace
                )
                self._confirmations.append((environment, task))

    def _blame(self, seat: _Seat, worker: Handle, status: Status, why: str) -> None:
        """The worker is gone: record what it had in hand, and let another one go on without that."""
        in_hand, task, opened = worker.in_hand, seat.task, seat.ready
        self._dismiss(seat)
        if not opened:
            raise MeasuringError(f"cannot measure on {seat.place.device}: {why} (while {in_hand})")
        if isinstance(in_hand, Solution) and isinstance(task, RaceTask):
            lost = self._lost.setdefault(task.problem.text, [])
            lost.append(not_measured(task.problem, in_hand, status, why))
            if len(lost) < self._limits.losses:
                self._races.appendleft(task.problem)
                seat.task = None
                return
        self._skip(seat, why, status)

    def _lose(self, seat: _Seat, why: str) -> None:
        """The worker's machine is gone: what it had in hand comes again, on whatever the seat finds or elsewhere."""
        task, environment = seat.task, seat.environment
        self._dismiss(seat)
        seat.environment = None
        seat.lost += 1
        if isinstance(task, RaceTask):
            self._machines_lost[task.problem.text] += 1
            if self._machines_lost[task.problem.text] >= self._limits.losses:
                self._skip(seat, why)
            else:
                self._races.appendleft(task.problem)
        elif isinstance(task, ConfirmTask) and environment is not None:
            self._confirmations.appendleft((environment, task))
        seat.task = None
        if all(seat.lost >= self._limits.losses for seat in self._seats):
            raise MeasuringError(f"no device is left: {why}")

    def _skip(self, seat: _Seat, why: str, status: Status = "failed") -> None:
        """Give a task up; the problem keeps a row that says why."""
        task, seat.task = seat.task, None
        if isinstance(task, RaceTask):
            rows = self._lost.pop(task.problem.text, None) or [not_measured(task.problem, DEFAULT, status, why)]
            facts = seat.worker.facts if seat.worker else self._facts
            self._sink(Result(problem=task.problem, rows=tuple(rows), ended=why, facts=facts), seat.place.device)

    def _keep_losses(self) -> None:
        """What a problem that was never finished has cost is recorded too: it must not be tried again."""
        for rows in self._lost.values():
            result = Result(problem=rows[0].problem, rows=tuple(rows), ended="interrupted", facts=self._facts)
            self._sink(result, self._seats[0].place.device)
        self._lost.clear()

    def _dismiss(self, seat: _Seat) -> None:
        if seat.worker is not None:
            seat.worker.stop()
        seat.worker, seat.ready, seat.used = None, False, False
