"""Which solutions a race tries: planted times, no device."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analyzers.measure.backend import Place
from analyzers.measure.proposer import (
    NEAR,
    PROPOSERS,
    WIDELY,
    Experience,
    Measured,
    Proposal,
    portfolio,
    proposer_named,
    same_names,
)
from analyzers.measure.replay import Options, Report, experience_of, history, replay
from analyzers.measure.results import Method, environment_key, measured, not_measured
from analyzers.measure.trial import WorkerContext
from analyzers.measure.verb import report_lines
from logparse.errors import InputError
from logparse.model import DEFAULT, Measurement, Problem, Solution, problem_from_text, solution_from_text
from tests.analyzers.measure.fakes import FAKE, NAME
from tests.analyzers.measure.problems import gemm, named, store_of

OFFERED = [Solution("cudnn", f"eng{i // 10}_k2={i % 10}") for i in range(60)]
HERE = {"device": "H", "cudnn_version": "91900"}
CONV = problem_from_text(
    "conv F spatial=2 in=32,64,1,56,56 k=64 filter=1,3,3 pad=0,1,1 stride=1,1,1 dilation=1,1,1 out=1,56,56 "
    "groups=1 type=BF16,BF16,BF16 layout=NCHW,NCHW,NCHW cast=none,none,none bias=0 mode=convolution"
)


def near(times: Mapping[str, float], count: int = NEAR, **more: Any) -> tuple[Measured, ...]:
    return tuple(Measured(gemm(64 + i), times, **more) for i in range(count))


def texts(solutions: list[Solution]) -> list[str]:
    return [x.text for x in solutions]


def rows(problem: Problem, times: Mapping[str, float]) -> list[Measurement]:
    return [measured(problem, solution_from_text(x), (us,)) for x, us in times.items()]


@pytest.mark.parametrize("proposer", PROPOSERS, ids=lambda x: x.name)
def test_the_pick_and_so_many_of_a_long_list(proposer: Any) -> None:
    proposal = Proposal(proposer=proposer.name, least=5, near=near({"cudnn:eng3_k2=3": 1.0, "cudnn:eng3_k2=4": 2.0}))
    chosen = proposal.chosen(OFFERED)
    assert chosen[0] == OFFERED[0]
    assert len(chosen) in ((60,) if proposer.name == "all" else (6, 7)), "a tenth of 60, and the pick"
    assert [x for x in OFFERED if x in chosen] == chosen, "in the library's order"
    assert texts(proposal.chosen(OFFERED[:5])) == texts(OFFERED[:5]), "a short list is tried whole"
    assert proposal.chosen([]) == []


def test_neighbours_take_their_winners_and_the_library_s_first_by_turns() -> None:
    times = {x.text: 10.0 for x in OFFERED if "eng5" not in x.id} | {"cudnn:eng3_k2=3": 1.0, "cudnn:gone": 0.5}
    chosen = texts(Proposal(proposer="neighbours", least=3, share=0, near=near(times)).chosen(OFFERED))
    assert chosen == ["cudnn:eng0_k2=0", "cudnn:eng0_k2=1", "cudnn:eng3_k2=3"]


def test_without_enough_near_problems_everything_is_tried() -> None:
    few = near({OFFERED[3].text: 1.0}, NEAR - 1)
    assert len(Proposal(proposer="neighbours", least=4, near=few).chosen(OFFERED)) == 60
    other = near({"cublaslt:id=66": 1.0})
    assert len(Proposal(proposer="neighbours", least=4, near=other).chosen(OFFERED)) == 60, "of another library"
    assert len(Proposal(proposer="heuristic", least=4, share=0).chosen(OFFERED)) == 4, "which learns nothing"


def test_each_library_has_its_own_count() -> None:
    ways = [Solution("torch", f"way{i}") for i in range(4)]
    chosen = Proposal(proposer="heuristic", least=4, share=0).chosen([*ways, *OFFERED])
    assert texts(chosen) == texts([*ways, *OFFERED[:4]])


def test_settings_that_were_slow_for_near_problems_are_not_tried() -> None:
    """Few as they are: in benchmark mode each builds and times all plans by itself."""
    ways = [DEFAULT, *(Solution("torch", x) for x in ("benchmark", "layout=NHWC", "layout=NHWC,stored"))]
    times = {"Default": 20.0, "torch:benchmark": 15.0, "torch:layout=NHWC": 10.4, "torch:layout=NHWC,stored": 10.0}
    proposal = Proposal(proposer="neighbours", near=near(times), problem=CONV)
    found = ["Default", "torch:layout=NHWC", "torch:layout=NHWC,stored"]
    assert texts(proposal.chosen(ways)) == found
    assert texts(replace(proposal, near=near(times | {"torch:benchmark": 10.4})).chosen(ways, found)) == found
    assert texts(proposal.chosen(ways, ["Default"])) == found, "a time of the pick alone says nothing of the others"
    assert len(replace(proposal, near=near(times, NEAR - 1)).chosen(ways)) == 4
    assert len(replace(proposal, proposer="portfolio").chosen(ways)) == 4
    assert len(replace(proposal, problem=gemm(64)).chosen(ways)) == 4, "none of a product searches by itself"


def test_benchmark_mode_waits_for_the_plans_of_its_layout() -> None:
    """It can run no other plans than these; where they are not faster than the setting alone, it cannot help."""
    words = ("benchmark", "layout=NHWC,stored", "layout=NHWC,benchmark", "layout=NHWC,stored,benchmark")
    settings = [DEFAULT, *(Solution("torch", x) for x in words)]
    plans = [Solution("cudnn", x) for x in ("eng0", "layout=NHWC,stored,eng0", "layout=NHWC,stored,eng1")]
    times = dict.fromkeys((x.text for x in settings), 10.0) | dict.fromkeys((x.text for x in plans), 10.0)
    proposal = Proposal(proposer="neighbours", near=near(times), problem=CONV)
    offered = [*settings, *plans]
    before = ["Default", "torch:layout=NHWC,stored", *texts(plans)]
    assert texts(proposal.chosen(offered)) == before, "so few plans are tried whole"
    assert texts(proposal.tried(offered, times)) == before
    assert proposal.tried(offered, times | {"cudnn:eng0": 9.0})[-1] == settings[1]
    both = texts(proposal.tried(offered, times | {"cudnn:layout=NHWC,stored,eng1": 9.7}))
    assert both[len(before) :] == ["torch:layout=NHWC,benchmark", "torch:layout=NHWC,stored,benchmark"]
    no_plan = {x: us for x, us in times.items() if not x.startswith("cudnn")}
    assert len(proposal.tried(offered, no_plan)) == len(offered), "none ran: nothing is known of them"
    slow = near(times | {"Default": 20.0, "torch:benchmark": 20.0})
    assert settings[1] not in replace(proposal, near=slow).tried(offered, times | {"cudnn:eng0": 9.0})
    assert len(proposal.chosen(settings)) == len(settings), "without plans nothing is waited for"
    assert proposal.further(offered, before) is None, "a second call proposes no others"


def test_two_layouts_are_taken_by_turns() -> None:
    stored = [Solution("cudnn", f"layout=NHWC,stored,{x.id}") for x in OFFERED]
    chosen = Proposal(proposer="heuristic", least=4, share=0).chosen([*OFFERED, *stored])
    assert texts(chosen) == texts([*OFFERED[:2], *stored[:2]])


def test_what_near_problems_refused_is_not_built_again() -> None:
    refused = frozenset(x.text for x in OFFERED[1:30])
    close = near({"cudnn:eng5_k2=9": 1.0, OFFERED[7].text: 2.0}, refused=refused)
    chosen = texts(Proposal(proposer="neighbours", least=6, near=close).chosen(OFFERED))
    assert set(chosen) & refused == {OFFERED[7].text}, "which ran elsewhere"


def test_a_portfolio_serves_every_problem() -> None:
    """``b`` is second on all, ``a`` and ``c`` win half each: two suffice, and they are these."""
    half = (
        Measured(gemm(64), {"x:a": 1.0, "x:b": 1.5, "x:c": 4.0}),
        Measured(gemm(65), {"x:a": 4.0, "x:b": 1.5, "x:c": 1.0}),
    )
    offered = [Solution("x", name) for name in "dcab"]
    assert [x.id for x in portfolio(offered, half)] == ["b", "c", "a", "d"]


def test_another_library_s_times_do_not_hide_a_loss_within_this_one() -> None:
    """Of ``torch`` something is far faster on half of the problems, which is no reason to serve these less well."""
    times = {"cudnn:eng1_k2=1": 5.0, "cudnn:eng2_k2=2": 20.0}, {"cudnn:eng1_k2=1": 20.0, "cudnn:eng2_k2=2": 5.0}
    both = [Measured(gemm(64 + i), times[i % 2] | ({"torch:way": 0.1} if i % 2 else {})) for i in range(NEAR)]
    chosen = Proposal(proposer="portfolio", least=2, share=0, near=tuple(both)).chosen(OFFERED)
    assert texts(chosen[1:]) == ["cudnn:eng1_k2=1", "cudnn:eng2_k2=2"]


def test_what_is_known_counts_and_is_not_replaced() -> None:
    proposal = Proposal(proposer="heuristic", least=4, share=0)
    known = texts(proposal.chosen(OFFERED))
    assert texts(proposal.chosen(OFFERED, known)) == known
    later = Proposal(proposer="neighbours", least=4, share=0, near=near({OFFERED[50].text: 1.0}))
    assert texts(later.chosen(OFFERED, known)) == known, "also where more was learned meanwhile"
    assert len(replace(proposal, least=9).chosen(OFFERED, known)) == 9


def test_a_tenth_of_the_problems_is_searched_widely() -> None:
    problems = [gemm(m) for m in range(1, 401)]
    proposal = Proposal(proposer="neighbours")
    wide = [x for x in problems if proposal.searches_widely(x)]
    assert 0.5 < WIDELY * len(wide) / len(problems) < 1.5
    assert not any(replace(proposal, proposer="all").searches_widely(x) for x in problems)


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
    experience = Experience("neighbours")
    times = {"cudnn:eng1": 2.0, "torch:way": 3.0}
    for facts in (HERE, HERE | {"device": "G"}, HERE | {"device": "F", "cudnn_version": "1"}):
        for m in (64, 128, 4096):
            failed = not_measured(gemm(m), Solution("cudnn", "eng9"), "unsupported", "no")
            experience.add(facts, environment_key(facts), gemm(m), [*rows(gemm(m), times), failed])
    found = experience.proposal(gemm(65), HERE).near
    assert [x.problem for x in found] == [gemm(m) for m in (64, 64, 64, 128, 128, 128, 4096, 4096, 4096)]
    assert [set(x.times_us) for x in found[:3]] == [set(times), set(times), {"torch:way"}]
    assert [bool(x.refused) for x in found[:3]] == [True, False, False], "another environment may support more"
    assert experience.proposal(named("pick"), HERE).near
    assert Experience("all").proposal(gemm(65), HERE) == Proposal()


NAMES = [f"s{i}" for i in range(20)]


def test_a_worker_tries_what_is_proposed_and_all_of_what_is_searched_widely() -> None:
    place = Place()
    context = WorkerContext({"fake": FAKE.open(place)}, place, Method(), lambda what: None)
    proposal = Proposal(proposer="neighbours", near=near({"fake:fast": 1.0, "fake:s3": 2.0}))
    problems = [named("pick", "slow", *NAMES, "fast", m=16 + i) for i in range(30)]
    narrow = context.measure(next(x for x in problems if not proposal.searches_widely(x)), proposal=proposal)
    assert (len(narrow.rows), narrow.offered, narrow.best) == (16, 23, Solution("fake", "fast"))
    assert narrow.proposed_us is None
    problem = next(x for x in problems if proposal.searches_widely(x))
    wide = context.measure(problem, proposal=proposal)
    assert (len(wide.rows), wide.best) == (23, Solution("fake", "fast"))
    assert wide.proposed_us == pytest.approx(50, rel=0.01)
    alone = context.measure(problem, proposal=replace(proposal, near=()))
    assert (len(alone.rows), alone.proposed_us) == (23, None), "nothing was proposed that could be judged"
    astray = context.measure(problem, proposal=replace(proposal, least=3, near=near({"fake:slow": 1.0})))
    assert astray.proposed_us == pytest.approx(60, rel=0.01), "so that a wrong model shows"
    [line] = [x for x in report_lines(Report(run="r", total=2, results=[wide, astray])) if "widely" in x]
    assert "searched widely: 2 problems, of which the proposed solutions alone would have lost 10" in line


@pytest.mark.parametrize("exhaustive", [False, True], ids=["", "of all that the library has"])
def test_a_replay_learns_as_it_goes_and_tries_fewer(exhaustive: bool, tmp_path: Path) -> None:
    problems = [named("fast", *NAMES, m=16 + i) for i in range(30)]
    narrow = [x for x in problems if not Proposal(proposer="neighbours").searches_widely(x)][: NEAR + 1]
    store = store_of(tmp_path, narrow)
    report = replay(store, Options(backends=(NAME,), devices=("cpu",), proposer="neighbours", exhaustive=exhaustive))
    assert [len(x.rows) for x in report.results] == [21] * NEAR + [16]
    before = history(store)
    [(environment, facts)] = before.facts.items()
    found = experience_of(before, "neighbours").proposal(problems[-1], {"device": "other"}).near
    assert (found, facts["device"], list(before.races)) == ((), "fake", [environment]), "no name of another device's"


def test_an_unknown_proposer() -> None:
    with pytest.raises(InputError, match="no proposer 'guess'; there is neighbours"):
        proposer_named("guess")


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
    table = proposers.Table("planted", cases, proposers.as_record(cases, 0), 0)
    whole = table.row("all", 0, lambda case, near: case.offered)
    assert (whole["plans"], whole["lost"], whole["worst"]) == (1.0, 0.0, 0.0)
    few = table.row("library's order", 3, proposers.library_order(3))
    assert few["plans"] == pytest.approx(3 / 12)
    assert few["lost"] == few["worst"] == pytest.approx(1.0), "10 µs where 5 is possible"
    assert few["gpu"] < whole["gpu"] < 1
    assert {k: table.raced("heuristic", 3)[k] for k in ("plans", "lost")} == {k: few[k] for k in ("plans", "lost")}
    others = table.in_other_orders(3, 0)["other_orders"]
    assert [x["plans"] for x in others] == [1.0] * proposers.ORDERS, "too little is near to choose by"
    assert len(proposers.met([whole | {"strategy": "neighbours"}])) == 1
    assert json.dumps(few)
