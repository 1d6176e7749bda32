"""Tests of which kernels ``logparse replay`` tries. The times are made up, so no GPU is needed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from analyzers.replay.experience import Experience, Measured
from analyzers.replay.proposer import FIRST, NEAR, Proposal
from analyzers.replay.replay import Options, experience_of, history, replay
from analyzers.replay.results import measured, not_measured
from analyzers.replay.trial import RaceTask, Task
from analyzers.replay.worker import Handle
from logparse.model import DEFAULT, Measurement, Problem, Solution, solution_from_text
from tests.analyzers.replay.fakes import NAME
from tests.analyzers.replay.problems import gemm, named, store_of

OFFERED = [Solution("cudnn", f"eng{i // 10}_k2={i % 10}") for i in range(60)]
OTHER = gemm(99)


def near(times: Mapping[str, float], count: int = NEAR, **more: Any) -> tuple[Measured, ...]:
    return tuple(Measured(gemm(64 + i), times, **more) for i in range(count))


def texts(solutions: list[Solution]) -> list[str]:
    return [x.text for x in solutions]


def rows(problem: Problem, times: Mapping[str, float]) -> list[Measurement]:
    return [measured(problem, solution_from_text(x), (us,)) for x, us in times.items()]


def of(*, problem: Problem = OTHER, **more: Any) -> Proposal:
    return Proposal(problem=problem, **more)


def test_a_library_that_is_not_searched_is_tried_whole() -> None:
    narrow = of(least=5, near=near({"cublaslt:id=3": 1.0, "cublaslt:id=4": 2.0}))
    offered = [Solution("cublaslt", f"id={i}") for i in range(60)]
    assert narrow.chosen(offered) == offered
    assert narrow.further(offered) is None
    assert narrow.chosen([]) == []


def test_neighbours_take_their_winners_and_the_library_s_first_by_turns() -> None:
    times = {x.text: 10.0 for x in OFFERED if "eng5" not in x.id} | {"cudnn:eng3_k2=3": 1.0, "cudnn:gone": 0.5}
    chosen = texts(of(least=3, share=0, near=near(times)).chosen([DEFAULT, *OFFERED]))
    assert (chosen[0], len(chosen)) == (DEFAULT.text, 1 + FIRST), "the pick of another library, too"
    assert "cudnn:eng3_k2=3" in chosen
    assert [x.text for x in OFFERED if x.text in chosen] == chosen[1:], "in the library's order"
    stored = [Solution("cudnn", f"layout=NHWC,stored,{x.id}") for x in OFFERED]
    both = texts(of(least=3, share=0, near=near(times)).chosen([*OFFERED, *stored]))
    assert stored[0].text in both, "two layouts are taken by turns"


def test_without_enough_near_problems_everything_is_tried() -> None:
    few = near({OFFERED[3].text: 1.0}, NEAR - 1)
    assert len(of(least=4, near=few).chosen(OFFERED)) == 60
    other = near({"cublaslt:id=66": 1.0})
    assert len(of(least=4, near=other).chosen(OFFERED)) == 60, "of another library"


def test_experience_gives_the_nearest_problems_of_its_environment() -> None:
    experience = Experience()
    times = {"cudnn:eng1": 2.0, "torch:way": 3.0}
    for environment in ("here", "elsewhere"):
        for m in (64, 128, 4096):
            failed = not_measured(gemm(m), Solution("cudnn", "eng9"), "unsupported", "no")
            experience.add(environment, gemm(m), [*rows(gemm(m), times), failed])
    found = experience.near("here", gemm(65))
    assert [x.problem for x in found] == [gemm(m) for m in (64, 128, 4096)]
    assert [set(x.times_us) for x in found] == [set(times)] * 3
    experience.add("here", gemm(64), rows(gemm(64), {"cudnn:eng2": 1.0}))
    assert set(experience.near("here", gemm(65))[0].times_us) == {*times, "cudnn:eng2"}, "more of a known problem"
    assert experience.near("other", gemm(65)) == ()


NAMES = [f"s{i}" for i in range(20)]


def test_a_replay_learns_as_it_goes_and_tries_fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the kernels of several matrix products are measured, results of earlier products are used for later ones.

    The test looks at what is sent to the measuring process, because it cannot patch functions inside that process.
    """
    given: list[Proposal] = []
    send = Handle.send

    def sent(handle: Handle, task: Task) -> None:
        if isinstance(task, RaceTask) and task.proposal:
            given.append(task.proposal)
        send(handle, task)

    monkeypatch.setattr(Handle, "send", sent)
    problems = [named("fast", *NAMES, m=16 + i) for i in range(NEAR + 1)]
    store = store_of(tmp_path, problems)
    report = replay(store, Options(backends=(NAME,), devices=("cpu",), neighbours=True))
    assert [len(x.rows) for x in report.results] == [21] * (NEAR + 1), "a library that is not searched"
    assert [len(x.near) for x in given] == list(range(NEAR + 1))
    [environment] = history(store).races
    later = experience_of(history(store)).near(environment, problems[0])
    assert {x.problem.text for x in later} == {x.text for x in problems}


def test_records_replayed_are_held_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """``benchmarks/proposers.py`` computes the right sums for six made-up matrix products.

    To choose kernels for a product, it may not use the times of products of the same model.
    """
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    proposers = importlib.import_module("proposers")
    times = {f"cudnn:eng{i}": 10.0 + i for i in range(12)}
    cases = [
        proposers.Case(gemm(64 + i), times | {f"cudnn:eng{11 - i % 2}": 5.0}, frozenset({"even" if i % 2 else "odd"}))
        for i in range(6)
    ]
    both = proposers.Case(gemm(99), times, frozenset({"even", "odd"}))
    assert proposers.near_of(both, cases) == [], "a problem of two models learns from neither"
    assert {x.problem for x in proposers.near_of(cases[0], cases)} == {x.problem for x in cases[1::2]}
    near_all = {x.problem.text: proposers.near_of(x, cases) for x in cases}
    found = proposers.summed(cases, near_all, proposers.BY_TURNS, 3)
    assert found["plans"] == 1.0, "too little is near to choose by"
    assert (found["lost"], found["worst"]) == (0.0, 0.0)
    assert proposers.summed(cases, None, proposers.SEARCH, 3)["plans"] == 1.0, "from an empty store"
