"""Which solutions a race tries: planted times, no device."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analyzers.measure.backend import Place
from analyzers.measure.experience import Experience, Measured, same_names
from analyzers.measure.proposer import NEAR, WIDELY, Proposal, proposal
from analyzers.measure.replay import Options, Report, experience_of, history, replay
from analyzers.measure.results import Method, environment_key, measured, not_measured
from analyzers.measure.trial import WorkerContext
from analyzers.measure.verb import report_lines
from logparse.model import DEFAULT, Measurement, Problem, Solution, problem_from_text, solution_from_text
from tests.analyzers.measure.fakes import FAKE, NAME
from tests.analyzers.measure.problems import gemm, named, store_of

OFFERED = [Solution("cudnn", f"eng{i // 10}_k2={i % 10}") for i in range(60)]
HERE = {"device": "H", "cudnn_version": "91900"}
CONV = problem_from_text(
    "conv F spatial=2 in=32,64,1,56,56 k=64 filter=1,3,3 pad=0,1,1 stride=1,1,1 dilation=1,1,1 out=1,56,56 "
    "groups=1 type=BF16,BF16,BF16 layout=NCHW,NCHW,NCHW cast=none,none,none bias=0 mode=convolution"
)
OTHER = gemm(99)


def near(times: Mapping[str, float], count: int = NEAR, **more: Any) -> tuple[Measured, ...]:
    return tuple(Measured(gemm(64 + i), times, **more) for i in range(count))


def texts(solutions: list[Solution]) -> list[str]:
    return [x.text for x in solutions]


def rows(problem: Problem, times: Mapping[str, float]) -> list[Measurement]:
    return [measured(problem, solution_from_text(x), (us,)) for x, us in times.items()]


def of(*, problem: Problem = OTHER, **more: Any) -> Proposal:
    return Proposal(problem=problem, **more)


def test_the_pick_and_so_many_of_a_long_list() -> None:
    narrow = of(least=5, near=near({"cublaslt:id=3": 1.0, "cublaslt:id=4": 2.0}))
    offered = [Solution("cublaslt", f"id={i}") for i in range(60)]
    chosen = narrow.chosen(offered)
    assert chosen[0] == offered[0]
    assert len(chosen) == 6, "a tenth of 60"
    assert [x for x in offered if x in chosen] == chosen, "in the library's order"
    assert texts(narrow.chosen(offered[:5])) == texts(offered[:5]), "a short list is tried whole"
    assert narrow.chosen([]) == []
    known = texts(chosen)
    later = replace(narrow, near=near({offered[50].text: 1.0}))
    assert texts(later.chosen(offered, known)) == known, "a second call proposes no others, whatever was learned"
    assert len(replace(narrow, least=9).chosen(offered, known)) == 9


def test_neighbours_take_their_winners_and_the_library_s_first_by_turns() -> None:
    times = {x.text: 10.0 for x in OFFERED if "eng5" not in x.id} | {"cudnn:eng3_k2=3": 1.0, "cudnn:gone": 0.5}
    chosen = texts(of(least=3, share=0, near=near(times)).chosen(OFFERED))
    assert chosen[:2] == ["cudnn:eng0_k2=0", "cudnn:eng0_k2=1"]
    assert "cudnn:eng3_k2=3" in chosen
    stored = [Solution("cudnn", f"layout=NHWC,stored,{x.id}") for x in OFFERED]
    both = texts(of(least=3, share=0, near=near(times)).chosen([*OFFERED, *stored]))
    assert stored[0].text in both, "two layouts are taken by turns"


def test_without_enough_near_problems_everything_is_tried() -> None:
    few = near({OFFERED[3].text: 1.0}, NEAR - 1)
    assert len(of(least=4, near=few).chosen(OFFERED)) == 60
    other = near({"cublaslt:id=66": 1.0})
    assert len(of(least=4, near=other).chosen(OFFERED)) == 60, "of another library"


def test_settings_that_were_slow_for_near_problems_are_not_tried() -> None:
    """Few as they are: in benchmark mode each builds and times all plans by itself."""
    ways = [DEFAULT, *(Solution("torch", x) for x in ("benchmark", "layout=NHWC", "layout=NHWC,stored"))]
    times = {"Default": 20.0, "torch:benchmark": 15.0, "torch:layout=NHWC": 10.4, "torch:layout=NHWC,stored": 10.0}
    narrow = of(problem=CONV, near=near(times))
    found = ["Default", "torch:layout=NHWC", "torch:layout=NHWC,stored"]
    assert texts(narrow.chosen(ways)) == found
    assert texts(replace(narrow, near=near(times | {"torch:benchmark": 10.4})).chosen(ways, found)) == found
    assert texts(narrow.chosen(ways, ["Default"])) == found, "a time of the pick alone says nothing of the others"
    assert len(replace(narrow, near=near(times, NEAR - 1)).chosen(ways)) == 4
    assert len(replace(narrow, problem=gemm(64)).chosen(ways)) == 4, "none of a product searches by itself"


def test_what_near_problems_refused_is_not_built_again() -> None:
    refused = frozenset(x.text for x in OFFERED[1:30])
    close = near({"cudnn:eng5_k2=9": 1.0, OFFERED[7].text: 2.0}, refused=refused)
    chosen = texts(of(least=6, near=close).tried(OFFERED, {x.text: 1.0 for x in OFFERED}))
    assert set(chosen) & refused == {OFFERED[7].text}, "which ran elsewhere"


def test_a_tenth_of_the_problems_is_searched_widely() -> None:
    problems = [gemm(m) for m in range(1, 401)]
    wide = [x for x in problems if of(problem=x).searches_widely]
    assert 0.5 < WIDELY * len(wide) / len(problems) < 1.5


@pytest.mark.parametrize(
    ("library", "other", "same"),
    [
        ("torch", {}, True),
        ("miopen", {"miopen_version": "3.5.0"}, True),
        ("cudnn", {"cudnn_version": "91900", "arch": "sm_80"}, True),
        ("cudnn", {"cudnn_version": "90100"}, False),
        ("cudnn", {}, False),
        ("hipblaslt", {"hipblaslt_revision": "abc", "arch": "gfx942:sramecc+"}, True),
        ("hipblaslt", {"hipblaslt_revision": "abc", "arch": "gfx90a"}, False),
        ("hipblaslt", {"hipblaslt_revision": "def", "arch": "gfx942"}, False),
    ],
)
def test_where_a_name_means_the_same(library: str, other: Mapping[str, str], same: bool) -> None:
    here = {"cudnn_version": "91900", "hipblaslt_revision": "abc", "arch": "gfx942", "miopen_version": "3.4.0"}
    assert same_names(library, here, other) is same
    assert same_names(library, other, here) is same


def test_experience_gives_the_nearest_problems_whose_names_mean_the_same() -> None:
    experience = Experience()
    times = {"cudnn:eng1": 2.0, "torch:way": 3.0}
    for facts in (HERE, HERE | {"device": "G"}, HERE | {"device": "F", "cudnn_version": "1"}):
        for m in (64, 128, 4096):
            failed = not_measured(gemm(m), Solution("cudnn", "eng9"), "unsupported", "no")
            experience.add(facts, environment_key(facts), gemm(m), [*rows(gemm(m), times), failed])
    found = proposal(experience, gemm(65), HERE).near
    assert [x.problem for x in found] == [gemm(m) for m in (64, 64, 64, 128, 128, 128, 4096, 4096, 4096)]
    assert [set(x.times_us) for x in found[:3]] == [set(times), set(times), {"torch:way"}]
    assert [bool(x.refused) for x in found[:3]] == [True, False, False], "another environment may support more"
    assert proposal(experience, named("pick"), HERE).near


NAMES = [f"s{i}" for i in range(20)]


def test_a_worker_tries_what_is_proposed_and_all_of_what_is_searched_widely() -> None:
    place = Place()
    context = WorkerContext({"fake": FAKE.open(place)}, place, Method(), lambda what: None)
    close = near({"fake:fast": 1.0, "fake:s3": 2.0})
    given = [of(problem=named("pick", "slow", *NAMES, "fast", m=16 + i), near=close) for i in range(30)]
    few = next(x for x in given if not x.searches_widely)
    narrow = context.measure(few.problem, proposal=few)
    assert (len(narrow.rows), narrow.offered, narrow.best) == (16, 23, Solution("fake", "fast"))
    assert narrow.proposed_us is None
    whole = next(x for x in given if x.searches_widely)
    wide = context.measure(whole.problem, proposal=whole)
    assert (len(wide.rows), wide.best) == (23, Solution("fake", "fast"))
    assert wide.proposed_us == pytest.approx(50, rel=0.01)
    alone = context.measure(whole.problem, proposal=replace(whole, near=()))
    assert (len(alone.rows), alone.proposed_us) == (23, None), "nothing was proposed that could be judged"
    astray = context.measure(whole.problem, proposal=replace(whole, least=3, near=near({"fake:slow": 1.0})))
    assert astray.proposed_us == pytest.approx(60, rel=0.01), "so that a wrong model shows"
    [line] = [x for x in report_lines(Report(run="r", total=2, results=[wide, astray])) if "widely" in x]
    assert "searched widely: 2 problems, of which the proposed solutions alone would have lost 10" in line


def test_a_replay_learns_as_it_goes_and_tries_fewer(tmp_path: Path) -> None:
    problems = [named("fast", *NAMES, m=16 + i) for i in range(30)]
    narrow = [x for x in problems if not of(problem=x).searches_widely][: NEAR + 1]
    store = store_of(tmp_path, narrow)
    report = replay(store, Options(backends=(NAME,), devices=("cpu",), neighbours=True))
    assert [len(x.rows) for x in report.results] == [21] * NEAR + [16]
    before = history(store)
    [(environment, facts)] = before.facts.items()
    found = proposal(experience_of(before), problems[-1], {"device": "other"}).near
    assert (found, facts["device"], list(before.races)) == ((), "fake", [environment]), "no name of another device's"


def test_records_replayed_are_held_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """``benchmarks/proposers.py`` on six planted problems: the shares add up, and no case sees its own group."""
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
