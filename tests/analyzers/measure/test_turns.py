"""Workers that share a device: one at a time uses it, and the others build meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from analyzers.measure.backend import BackendType, BuildsOnHost, Conditions, OutOfMemoryError, Place
from analyzers.measure.backends.cudnn import Cudnn
from analyzers.measure.backends.miopen import Miopen
from analyzers.measure.replay import Options, Step, replay
from analyzers.measure.results import Method
from analyzers.measure.scheduler import Limits
from analyzers.measure.turn import Turn
from logparse.model import Problem, Solution
from tests.analyzers.measure.fakes import Fake, Run
from tests.analyzers.measure.problems import named, store_of

PATIENCE_S = 30.0


class Builder(Fake):
    """Builds on the host, and fails a solution where something else runs on the device at the same time.

    ``meets…`` is built together with another worker's, or not at all; ``bad_…`` fail while they are built; ``wide``
    needs the memory that other workers use.
    """

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        assert place.turn is not None
        self._folder = Path(place.turn).parent
        self._built: set[tuple[str, str]] = set()

    def build(self, problem: Problem, solution: Solution, conditions: Conditions) -> None:
        if solution.id.startswith("meets"):
            mine = self._folder / f"building {solution.id} {os.getpid()}"
            mine.touch()
            until = time.monotonic() + PATIENCE_S
            while len(list(self._folder.glob(f"building {solution.id} *"))) < 2:
                assert time.monotonic() < until, "no other worker built meanwhile"
                time.sleep(0.001)
        if solution.id == "bad_crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if solution.id == "bad_hang":
            time.sleep(3600)
        if solution.id == "bad_raise":
            raise RuntimeError("no compiler")
        self._built.add((problem.text, solution.id))

    def prepare(self, problem: Problem, solution: Solution, conditions: Conditions) -> Run:
        assert (problem.text, solution.id) in self._built
        with self.alone():
            (self._folder / f"memory {os.getpid()}").touch()
            if solution.id == "wide" and len(list(self._folder.glob("memory *"))) > 1:
                raise OutOfMemoryError("needs 100.00 GiB")
            return Timed(self, solution.id)

    def release(self) -> None:
        (self._folder / f"memory {os.getpid()}").unlink(missing_ok=True)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """The device in use; another use of it at the same time is a failure."""
        with open(self._folder / "device", "x", encoding="utf-8"):
            time.sleep(0.0005)
        try:
            yield
        finally:
            (self._folder / "device").unlink()


class Timed(Run):
    _backend: Builder

    def sample_us(self, count: int) -> float:
        with self._backend.alone():
            return super().sample_us(count)


BUILDER = BackendType("builder", "for tests", Builder)
SHARED = Options(
    backends=(f"{__name__}:BUILDER",),
    devices=("cpu",),
    limits=Limits(hang_s=PATIENCE_S, workers=2),
    method=Method(processes=2),
)


def test_one_at_a_time_uses_the_device_and_the_others_build(tmp_path: Path) -> None:
    names = ("pick", "meets1", "fast", "meets2", "slow")
    problems = [named(*names, m=8 * i) for i in (1, 2)]
    store = store_of(tmp_path, problems)
    report = replay(store, SHARED)
    assert report.finished
    rows = store.query("select problem, solution, status, error from measurements where origin = 'replay'")
    assert set(rows["status"]) == {"ok"}, set(rows["error"])
    for problem in problems:
        mine = rows[rows["problem"] == problem.text]
        assert [x.removeprefix("fake:") for x in mine["solution"]] == list(names), "the order in which they are offered"
    assert [x.best for x in report.results] == [Solution("fake", "fast")] * 2
    assert len(report.kept) == 2


@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [("raise", "failed", "no compiler"), ("crash", "failed", "SIGSEGV"), ("hang", "timeout", "no message for")],
)
def test_a_fault_while_building_costs_that_solution_alone(tmp_path: Path, fault: str, status: str, reason: str) -> None:
    problems = [named("pick", f"bad_{fault}", "fast", m=8), named("pick", "fast", m=16)]
    store = store_of(tmp_path, problems)
    limits = Limits(hang_s=4.0 if fault == "hang" else PATIENCE_S, workers=2)
    report = replay(store, replace(SHARED, limits=limits, method=Method(processes=1)))
    assert report.finished
    rows = store.query("select solution, status, error from measurements where origin = 'replay' and status <> 'ok'")
    assert [(*x,) for x in zip(rows["solution"], rows["status"], strict=True)] == [(f"fake:bad_{fault}", status)]
    assert reason in rows["error"][0]
    assert [x.best for x in report.results] == [Solution("fake", "fast")] * 2


def test_what_does_not_fit_beside_another_worker_waits_until_it_is_alone(tmp_path: Path) -> None:
    problems = [named("pick", "meets1", "wide", "meets2", m=8 * i) for i in (1, 2)]
    store = store_of(tmp_path, problems)
    report = replay(store, replace(SHARED, method=Method(processes=1)))
    rows = store.query("select status, error from measurements where origin = 'replay'")
    assert report.finished
    assert set(rows["status"]) == {"ok"}, set(rows["error"])


def test_an_interrupt_keeps_what_was_measured(tmp_path: Path) -> None:
    store = store_of(tmp_path, [named("pick", "fast", m=8 * i) for i in range(1, 6)])

    def interrupt(step: Step) -> None:
        if step.done == 2:
            raise KeyboardInterrupt

    assert replay(store, SHARED, interrupt).interrupted
    assert store.query("select count(distinct problem) as n from measurements")["n"][0] == 2


def test_hot_operands_are_not_shared() -> None:
    assert SHARED.workers == 2
    assert replace(SHARED, method=Method(cache="hot")).workers == 1


def test_a_turn_is_one_workers_and_lent_while_it_builds(tmp_path: Path) -> None:
    ours, theirs = Turn(str(tmp_path / "turn")), Turn(str(tmp_path / "turn"))
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with theirs:
            entered.set()
            leave.wait(PATIENCE_S)

    thread = threading.Thread(target=other)
    with ours:
        thread.start()
        assert not entered.wait(0.05)
        with ours.lent():
            assert entered.wait(PATIENCE_S)
            leave.set()
    thread.join(PATIENCE_S)


def test_a_waiting_worker_reports_that_it_is_alive(tmp_path: Path) -> None:
    reported = threading.Event()
    holder = Turn(str(tmp_path / "turn"))
    waiting = Turn(str(tmp_path / "turn"), reported.set)

    def wait() -> None:
        with waiting:
            pass

    with holder:
        thread = threading.Thread(target=wait)
        thread.start()
        assert reported.wait(PATIENCE_S)
    thread.join(PATIENCE_S)


@pytest.mark.parametrize("backend", [Cudnn, Miopen])
def test_libraries_that_compile_build_on_the_host(backend: type) -> None:
    assert issubclass(backend, BuildsOnHost)
