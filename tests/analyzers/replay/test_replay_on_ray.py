"""Tests of ``logparse replay`` on a Ray cluster: it stores the same rows, whatever breaks on the cluster.

The cluster has no GPUs.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from analyzers.replay.replay import Options, ReplayStep, replay
from analyzers.replay.results import Method
from analyzers.replay.scheduler import Limits
from logparse.store import Store
from tests.analyzers.replay.fakes import NAME
from tests.analyzers.replay.problems import named, store_of
from tests.conftest import sized
from tests.executors.processes import processes
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("cluster")
FAKE = Options(backends=(NAME,), devices=("cpu", "cpu"), engine="ray", limits=Limits(hang_s=10.0))


def rows(store: Store) -> dict[tuple[str, str], str]:
    found = store.query("select problem, solution, status from measurements where origin = 'replay'")
    assert not found.duplicated(["problem", "solution"]).any()
    return dict(zip(zip(found["problem"], found["solution"], strict=True), found["status"], strict=True))


def test_a_cluster_gives_the_same_findings(tmp_path: Path) -> None:
    found = []
    for engine in ("local", "ray"):
        problem, other = named("pick", "fast", m=16), named("pick", m=24)
        store = store_of(tmp_path / engine, [problem, other])
        report = replay(store, replace(FAKE, engine=engine, method=Method(processes=sized(3, 4))))
        assert report.finished
        found.append((rows(store), {k: v.confirmed for k, v in report.confirmations.items()}, report.kept))
    assert found[0] == found[1]
    assert found[0][2] == {problem.text}


@pytest.mark.nightly
def test_a_solution_that_crashes_is_blamed_and_nothing_else(tmp_path: Path) -> None:
    store = store_of(tmp_path, [named("pick", "crash", "fast"), named("pick", "slow", m=40)])
    report = replay(store, replace(FAKE, devices=("cpu",)))
    assert report.finished
    statuses = {key: status for (_, key), status in rows(store).items()}
    assert statuses == {"fake:pick": "ok", "fake:crash": "failed", "fake:fast": "ok", "fake:slow": "ok"}
    assert "SIGSEGV" in store.query("select error from measurements where status = 'failed'")["error"][0]
    paths = store.sources()["path"]
    assert paths[paths.str.startswith("replay/")].str.contains(r"replay/[\d.]+/cpu/").all(), "the node is told"


def test_a_lost_actor_loses_only_the_problem_in_hand(tmp_path: Path) -> None:
    problems = [named("pick", "patient", "slow", m=8 * i) for i in range(1, sized(5, 7))]
    store = store_of(tmp_path, problems)
    killed: list[int] = []

    def kill(step: ReplayStep) -> None:
        if not killed:
            killed.append(processes(b"ray::_Host")[0])
            os.kill(killed[0], signal.SIGKILL)

    report = replay(store, FAKE, kill)
    assert killed
    assert report.finished
    assert set(rows(store).values()) == {"ok"}, "a lost machine is no solution's fault"
    assert len(rows(store)) == 3 * len(problems)


def test_interrupt_keeps_what_was_measured_and_ends_the_actors(tmp_path: Path) -> None:
    store = store_of(tmp_path, [named("pick", "patient", m=8 * i) for i in range(1, 6)])

    def interrupt(step: ReplayStep) -> None:
        raise KeyboardInterrupt

    report = replay(store, replace(FAKE, devices=("cpu",)), interrupt)
    assert report.interrupted
    assert len(rows(store)) == 2
    assert wait_until(lambda: not processes(b"ray::_Host"))
