"""Distribute the measurements of a replay among its GPUs, and continue after failures.

Each GPU has one worker process. First the kernels for each GEMM or convolution are timed against each other (a race),
the most valuable first. Then each gain is confirmed in several fresh workers on GPUs of the same environment (machine
and libraries). A worker that has run a race does not confirm. Results are passed to ``sink``. This module neither reads
nor writes files, and does not depend on the kind of machine.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from typing import TypeAlias

from analyzers.replay.confirm import is_refuted
from analyzers.replay.device_workers import Device
from analyzers.replay.results import Confirmed, Method, Result, environment_key, not_measured
from analyzers.replay.trial import ConfirmTask, RaceTask, Task
from analyzers.replay.worker import Failure, Handle, Lost, Ready
from logparse.errors import LogparseError
from logparse.model import DEFAULT, Measurement, Problem, Solution, Status

Known: TypeAlias = Mapping[str, Mapping[str, Measurement]]
"""Measurements of one environment (machine and library versions), in two levels of dictionaries.

The first key is the text of the GEMM or convolution, the second the kernel's name.
"""


class MeasuringError(LogparseError):
    """Raised if a backend cannot be opened on this machine, or if no GPU is left."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a replay.

    * ``budget_s``: seconds of the whole replay (None: no limit).
    * ``hang_s``: seconds without a message after which a worker process is killed.
    * ``opening_s``: the same limit while the worker starts.
    * ``losses``: a GEMM or convolution is given up after it has crashed this many workers. A device is given up after
      this many of its machines were lost.
    * ``confirmation_s``: the seconds that confirming a gain in one process is assumed to take, until one was measured.
    """

    budget_s: float | None = None
    hang_s: float = 60.0
    opening_s: float = 300.0
    losses: int = 4
    confirmation_s: float = 1.0


@dataclass(frozen=True)
class History:
    """Earlier measurements, which ``logparse replay`` need not repeat, by machine and library versions.

    * ``races``: to find the fastest kernel.
    * ``timed``: to predict a change's gain.
    * ``confirmed``: pairs of kernels measured a second time.
    """

    races: Mapping[str, Known] = field(default_factory=dict)
    # Two kernels are measured a second time to make sure that one is faster.
    confirmed: Mapping[str, Set[tuple[str, str, str]]] = field(default_factory=dict)
    timed: Mapping[str, Known] = field(default_factory=dict)


@dataclass
class _Pair:
    """Two kernels whose difference is confirmed: several worker processes, one after the other, time both.

    ``done`` has the times of all processes so far.
    """

    task: ConfirmTask
    environment: str
    done: Confirmed | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.task.problem.text, self.task.pick.text, self.task.winner.text

    def add(self, more: Confirmed) -> Confirmed:
        """Append the samples of another worker process, and return all samples so far."""
        if self.done is None:
            self.done = more
        else:
            pairs, seconds = self.done.pairs.joined(more.pairs), self.done.seconds + more.seconds
            self.done = replace(more, pairs=pairs, seconds=seconds)
        self.task = replace(self.task, turn=self.task.turn + 1)
        return self.done


@dataclass
class _Slot:
    """A GPU with its worker process and the task that the worker runs."""

    device: Device
    worker: Handle | None = None
    task: Task | None = None
    pair: _Pair | None = None  # The pair of a ConfirmTask.
    ready: bool = False
    used: bool = False  # This worker has raced, so it may not confirm.
    confirmed: set[tuple[str, str, str]] = field(default_factory=set)  # Pairs that this worker has measured.
    environment: str | None = None  # Environment of its workers, once one has reported it.
    lost: int = 0  # Machines lost since the last finished task.


Outcome: TypeAlias = Result | Confirmed
Sink: TypeAlias = Callable[[Outcome, str], None]
"""Type of a function that gets each result and the name of the GPU that measured it."""


class Scheduler:
    """Runs all measurements of ``logparse replay`` on one or several GPUs (``devices``).

    Each GPU has one worker process.
    """

    def __init__(
        self,
        backends: Sequence[str],
        devices: Sequence[Device],
        method: Method,
        limits: Limits,
        sink: Sink,
        history: History = History(),
    ) -> None:
        self._backends, self._method, self._limits, self._sink = tuple(backends), method, limits, sink
        self._history = history
        self._slots = [_Slot(device) for device in devices]
        self._races: deque[RaceTask] = deque()
        self._pairs: deque[_Pair] = deque()
        self.remarks: list[str] = []
        """Texts about pairs of kernels that could not be compared again, with the reason."""
        self._lost: dict[str, list[Measurement]] = {}
        self._machines_lost: Counter[str] = Counter()  # Machines lost, by the problem that was raced.
        self._opening_s = 0.0
        self._confirmation_s = limits.confirmation_s
        self._facts: Mapping[str, str] = {}
        self._started = time.monotonic()

    def run(
        self, problems: Sequence[Problem], workspaces: Mapping[str, int] | None = None, timed: Sequence[RaceTask] = ()
    ) -> bool:
        """Run all measurements: time the kernels for each GEMM or convolution, and confirm the gains.

        * ``timed``: tasks that are run first.
        * ``workspaces``: the bytes that the job gave a GEMM or convolution, by its text, if a log states them.

        Returns False if the time (budget) was over before everything was measured. Raises MeasuringError if a worker
        ends before it has opened its backends, or if no device is left. KeyboardInterrupt is passed on. By then all
        earlier results have been passed to the sink.
        """
        for task in [*timed, *(RaceTask(problem=x) for x in problems)]:
            self._races.append(replace(task, workspace_bytes=(workspaces or {}).get(task.problem.text)))
        self._started = time.monotonic()
        try:
            while True:
                for slot in self._slots:
                    self._assign(slot)
                left = bool(self._races or self._pairs)
                busy = [slot for slot in self._slots if slot.worker and (slot.task or (left and not slot.ready))]
                if not busy:
                    self._keep_pairs()
                    return not left
                self._poll(busy)
        except BaseException:
            self._keep_losses()
            self._keep_pairs()
            raise
        finally:
            for slot in self._slots:
                self._stop_worker(slot)

    # ------------------------------------------------------------------ assigning tasks

    def _assign(self, slot: _Slot) -> None:
        if slot.task is not None or (slot.worker and not slot.ready) or slot.lost >= self._limits.losses:
            return
        racing = bool(self._races) and self._left() > self.confirming_s()
        pairs = [pair for pair in self._pairs if slot.environment in (None, pair.environment)]
        if not racing and (not pairs or self._left() <= 0):
            return
        pending = None if slot.used else next((pair for pair in pairs if pair.key not in slot.confirmed), None)
        if slot.worker is None or (not racing and pending is None):
            self._stop_worker(slot)
            slot.worker = slot.device.open(self._backends, self._method)
            return
        if racing:
            task = self._races.popleft()
            text, slot.used = task.problem.text, True
            known = self._history.timed if task.only else self._history.races
            slot.task = replace(
                task,
                known=known.get(slot.environment or "", {}).get(text, {}),
                lost=tuple(self._lost.get(text, ())),
            )
        elif pending is not None:
            self._pairs.remove(pending)
            slot.confirmed.add(pending.key)
            slot.task, slot.pair = pending.task, pending
        if slot.task is not None:
            slot.worker.send(slot.task)

    def _left(self) -> float:
        budget = self._limits.budget_s
        return float("inf") if budget is None else budget - (time.monotonic() - self._started)

    def confirming_s(self) -> float:
        """Estimate how many seconds it takes to measure all faster kernels a second time, in fresh processes.

        All faster kernels that were found so far are included.
        """
        pairs = [*self._pairs, *(slot.pair for slot in self._slots if slot.pair)]
        left = [self._method.processes - pair.task.turn for pair in pairs]
        return self._opening_s * max(left, default=0) + self._confirmation_s * sum(left) / len(self._slots)

    # ------------------------------------------------------------------ receiving results

    def _poll(self, busy: Sequence[_Slot]) -> None:
        ready = wait([slot.worker.connection for slot in busy if slot.worker], timeout=0.5)
        for slot in busy:
            worker = slot.worker
            if worker is None:
                continue
            silent_s = self._limits.hang_s if slot.ready else self._limits.opening_s
            if worker.connection in ready:
                self._receive(slot, worker)
            elif time.monotonic() - worker.last_message_s > silent_s:
                worker.stop()
                self._worker_lost(slot, worker, "timeout", f"no message for {silent_s:.0f} s")
            elif slot.ready and isinstance(slot.task, RaceTask) and self._left() <= self.confirming_s():
                self._races.appendleft(slot.task)  # The budget ended during a race.
                self._stop_worker(slot)
                slot.task = None

    def _receive(self, slot: _Slot, worker: Handle) -> None:
        try:
            reply = worker.receive()
        except (EOFError, OSError):
            self._worker_lost(slot, worker, "failed", f"the worker {worker.death()}")
            return
        if isinstance(reply, Ready):
            slot.ready, self._facts = True, reply.facts
            slot.environment = environment_key(reply.facts)
            self._opening_s = max(self._opening_s, time.monotonic() - worker.started)
        elif isinstance(reply, Result | Confirmed):
            self._finish(slot, reply)
        elif isinstance(reply, Failure) and reply.fatal:
            worker.stop()
            self._worker_lost(slot, worker, "failed", reply.reason)
        elif isinstance(reply, Failure):
            self._skip(slot, reply.reason)
        elif isinstance(reply, Lost):
            self._machine_lost(slot, reply.why)

    def _finish(self, slot: _Slot, outcome: Outcome) -> None:
        task, pair = slot.task, slot.pair
        slot.task, slot.pair, slot.lost = None, None, 0
        if isinstance(outcome, Confirmed) and pair is not None:
            self._advance(pair, outcome, slot.device.place.device)
            return
        self._lost.pop(outcome.problem.text, None)  # The rows of a finished race include the lost solutions.
        if self._method.processes and isinstance(outcome, Result) and outcome.worth_confirming:
            assert outcome.pick
            assert outcome.best
            assert task
            pick, best, space = outcome.pick, outcome.best, task.workspace_bytes
            test = ConfirmTask(problem=outcome.problem, pick=pick, winner=best, workspace_bytes=space)
            won = _Pair(test, environment_key(outcome.facts))
            if won.key not in self._history.confirmed.get(won.environment, frozenset()):
                self._pairs.append(won)
        self._sink(outcome, slot.device.place.device)

    def _advance(self, pair: _Pair, more: Confirmed, device: str) -> None:
        """Add the times that one more process measured of two kernels, and decide whether another process must follow.

        No other process follows if all have run, or if the gain turned out to be too small.
        """
        done = pair.add(more)
        self._confirmation_s = more.seconds or self._confirmation_s
        if pair.task.turn >= self._method.processes or is_refuted(more.pairs, self._method.floor):
            self._sink(done, device)
        else:
            self._pairs.append(pair)

    def _keep_pairs(self) -> None:
        """Store the times of comparisons that were interrupted, so that they are not lost."""
        for pair in [*self._pairs, *(slot.pair for slot in self._slots if slot.pair)]:
            self._keep(pair)
        self._pairs.clear()

    def _keep(self, pair: _Pair) -> None:
        if pair.done is not None:
            self._sink(replace(pair.done, complete=False), self._slots[0].device.place.device)

    def _worker_lost(self, slot: _Slot, worker: Handle, status: Status, why: str) -> None:
        """Continue after a worker process has ended: the kernel that it ran is recorded as failed.

        Another worker continues without that kernel.
        """
        current, task, opened = worker.current, slot.task, slot.ready
        self._stop_worker(slot)
        if not opened:
            raise MeasuringError(f"cannot measure on {slot.device.place.device}: {why} (during: {current})")
        if isinstance(current, Solution) and isinstance(task, RaceTask):
            lost = self._lost.setdefault(task.problem.text, [])
            lost.append(not_measured(task.problem, current, status, why))
            if len(lost) < self._limits.losses:
                self._races.appendleft(task)
                slot.task = None
                return
        self._skip(slot, why, status)

    def _machine_lost(self, slot: _Slot, why: str) -> None:
        """Queue a task again after its machine was lost. Another machine or GPU then runs the task."""
        task, pair = slot.task, slot.pair
        self._stop_worker(slot)
        slot.environment = None
        slot.lost += 1
        if isinstance(task, RaceTask):
            self._machines_lost[task.problem.text] += 1
            if self._machines_lost[task.problem.text] >= self._limits.losses:
                self._skip(slot, why)
            else:
                self._races.appendleft(task)
        elif pair is not None:
            self._pairs.appendleft(pair)
        slot.task = slot.pair = None
        if all(slot.lost >= self._limits.losses for slot in self._slots):
            raise MeasuringError(f"no device is left to measure on: {why}")

    def _skip(self, slot: _Slot, why: str, status: Status = "failed") -> None:
        """Give up the task on which a worker is working, and record the reason."""
        task, slot.task = slot.task, None
        pair, slot.pair = slot.pair, None
        if pair is not None:
            self.remarks.append(f"{pair.task.problem.label}: not confirmed: {why}")
            self._keep(pair)
        if isinstance(task, RaceTask):
            rows = self._lost.pop(task.problem.text, None) or [not_measured(task.problem, DEFAULT, status, why)]
            facts = slot.worker.facts if slot.worker else self._facts
            self._sink(Result(problem=task.problem, rows=tuple(rows), ended=why, facts=facts), slot.device.place.device)

    def _keep_losses(self) -> None:
        """Store which kernels crashed in tasks that were interrupted, so that they are not tried again."""
        for rows in self._lost.values():
            result = Result(problem=rows[0].problem, rows=tuple(rows), ended="interrupted", facts=self._facts)
            self._sink(result, self._slots[0].device.place.device)
        self._lost.clear()

    def _stop_worker(self, slot: _Slot) -> None:
        if slot.worker is not None:
            slot.worker.stop()
        slot.worker, slot.ready, slot.used = None, False, False
        slot.confirmed.clear()
