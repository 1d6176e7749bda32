"""Tests of the results of a process that measured the kernels of one matrix product.

The kernels' times are made up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from analyzers.evidence.confirmations import judge
from analyzers.replay.results import Method
from analyzers.replay.trial import ConfirmTask, RaceTask, WorkerContext
from logparse.libraries.kinds.backend import Conditions, Place
from logparse.model import Problem, Solution
from tests.analyzers.replay.problems import gemm

PICK, COPY = Solution("x", "pick"), Solution("x", "copy")


class ColdAfterRefresh:
    """A fake library whose kernels have given times.

    The kernel that runs first on new data is slower, as on a real GPU.
    """

    cache_bytes = 0

    def __init__(self, times: Mapping[Solution, float]) -> None:
        self.times, self.cold, self.seeds = times, False, [0]
        self.ran: list[tuple[Solution, int]] = []

    def environment(self) -> Mapping[str, str]:
        return {}

    def solutions(self, problem: Problem, limit: int, workspace_bytes: int | None = None) -> Sequence[Solution]:
        return list(self.times)[:limit]

    def prepare(self, problem: Problem, solution: Solution, conditions: Conditions) -> Run:
        return Run(self, solution)

    def refresh(self, seed: int) -> None:
        self.cold = True
        self.seeds.append(seed)

    def release(self) -> None:
        pass

    def healthy(self) -> bool:
        return True


class Run:
    workspace_bytes = None

    def __init__(self, backend: ColdAfterRefresh, solution: Solution) -> None:
        self._backend, self._solution = backend, solution

    def error(self) -> float:
        return 0.0

    def fault(self) -> str:
        return ""

    host_us = None

    def sample_us(self, count: int) -> float:
        slower, self._backend.cold = 1.2 if self._backend.cold else 1.0, False
        self._backend.ran.append((self._solution, count))
        return self._backend.times[self._solution] * slower


def worker_context(backend: ColdAfterRefresh) -> WorkerContext:
    made = WorkerContext({"x": backend}, Place(), Method(), lambda what: None)
    backend.ran.clear()
    return made


def test_a_copy_of_the_pick_is_neither_winner_nor_confirmed() -> None:
    backend = ColdAfterRefresh({PICK: 100.0, COPY: 100.0})
    context = worker_context(backend)
    result = context.run(RaceTask(problem=gemm()))
    assert result.best == PICK
    assert {sample for row in result.rows for sample in row.samples_us} == {100.0}
    pairs = context.run(ConfirmTask(problem=gemm(), pick=PICK, winner=COPY)).pairs
    assert pairs.pick_us == pairs.winner_us
    assert not judge(pairs).confirmed
    assert len(set(backend.seeds)) > 3, "inputs were fresh"


def test_two_compared_kernels_run_equally_often() -> None:
    """If two kernels are compared, both run equally often in each measurement."""
    # A measurement also contains the time for starting and ending it. If one kernel ran 64 times and the other one 24
    # times, their times would differ by 0.5 % for a short kernel.
    backend = ColdAfterRefresh({PICK: 20.1, COPY: 19.9})
    worker_context(backend).run(ConfirmTask(problem=gemm(), pick=PICK, winner=COPY))
    assert {count for _, count in backend.ran if count > 1} == {64}


def test_what_an_action_chooses_has_the_time_of_the_host_beside_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    task = RaceTask(problem=gemm(), only=(PICK, COPY))
    assert worker_context(ColdAfterRefresh({PICK: 100.0, COPY: 90.0})).run(task).hosts == (), "a CPU has no other host"
    monkeypatch.setattr(Run, "host_us", 7.0)
    result = worker_context(ColdAfterRefresh({PICK: 100.0, COPY: 90.0})).run(task)
    assert [(x.solution, x.origin, x.time_us, x.samples_us) for x in result.hosts] == [
        (x, "replay-host", None, (7.0,) * Method().turns) for x in (PICK, COPY)
    ]
    assert [(x.origin, x.time_us) for x in result.rows] == [("replay-action", 100.0), ("replay-action", 90.0)]


@pytest.mark.parametrize(("slow_us", "singles"), [(400.0, 2), (1e6, 1)], ids=["perhaps a hiccup", "no hiccup"])
def test_a_hopeless_solution_runs_as_few_times_as_suffice(slow_us: float, singles: int) -> None:
    slow = Solution("x", "slow")
    backend = ColdAfterRefresh({PICK: 100.0, slow: slow_us})
    result = worker_context(backend).run(RaceTask(problem=gemm()))
    assert [count for solution, count in backend.ran if solution == slow] == [1] * singles
    assert (result.best, len(result.rows[1].samples_us)) == (PICK, 1)
