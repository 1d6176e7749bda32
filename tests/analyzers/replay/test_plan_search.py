"""Tests of the search for a fast plan (kernel with settings) among all plans of cuDNN.

The times are made up, so no GPU is needed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import pytest

from analyzers.replay import proposer
from analyzers.replay.experience import Measured
from analyzers.replay.plan_search import WORTHWHILE, PlanSearch, parsed
from analyzers.replay.proposer import FIRST, MOST, NEAR, Proposal
from analyzers.replay.racing import WithdrawnError, race
from analyzers.replay.results import Method, not_measured
from analyzers.replay.trial import RaceTask, WorkerContext
from logparse.libraries.kinds.backend import Place
from logparse.model import ConvProblem, Solution, problem_from_text, solution_from_text
from tests.analyzers.replay.fakes import FAKE
from tests.analyzers.replay.problems import named

OFFERED = [Solution("cudnn", f"{x}eng{i // 10}_k2={i % 10}") for x in ("", "layout=NHWC,stored,") for i in range(30)]


def conv(c: int = 64) -> ConvProblem:
    out = problem_from_text(
        f"conv F spatial=2 in=32,{c},1,28,28 k=128 filter=1,3,3 pad=0,1,1 stride=1,1,1 dilation=1,1,1 out=1,28,28 "
        "groups=1 type=BF16,BF16,BF16 layout=NCHW,NCHW,NCHW cast=none,none,none bias=0 mode=convolution"
    )
    assert isinstance(out, ConvProblem)
    return out


def planted(fast: int, seed: int = 0) -> dict[str, float]:
    """Return made-up times of all plans (kernels with settings) of cuDNN: {plan: time}. They vary by 5 % at random.

    Plans of engine 1 in channels_last are fast. The nearer the tile of such a plan is to ``fast``, the faster it is.
    """
    draw = random.Random(seed)
    return {
        x.text: draw.gauss(1, 0.05) * (12 + i % 7 if "stored,eng1" not in x.id else 3 + abs(int(x.id[-1]) - fast))
        for i, x in enumerate(OFFERED)
    }


def near(*times: Mapping[str, float], count: int = NEAR) -> tuple[Measured, ...]:
    return tuple(Measured(conv(64 + 8 * i), times[i % len(times)]) for i in range(1, count + 1))


def search_of(*times: Mapping[str, float]) -> PlanSearch:
    return PlanSearch(OFFERED, [(0.1 * i, x) for i, x in enumerate(times)])


def searched(search: PlanSearch, times: Mapping[str, float]) -> list[str]:
    """Return the plans that the search tries, in order, if the plans have these times.

    The first plan is the library's own choice.
    """
    tried: dict[str, float | None] = {OFFERED[0].text: times[OFFERED[0].text]}
    while (found := search.next(tried)) is not None:
        assert found.text not in tried
        tried[found.text] = times[found.text]
    return list(tried)


def test_a_plan_s_name() -> None:
    assert parsed("cudnn:layout=NHWC,stored,eng10_k2=5_k12=-1") == (
        "cudnn:layout=NHWC,stored",
        "eng10",
        "k2=5",
        "k12=-1",
    )
    assert parsed("cudnn:eng0") == ("", "eng0")


def test_what_was_fast_for_near_problems_comes_first() -> None:
    assert search_of(planted(4), planted(5)).next({}) == Solution("cudnn", "layout=NHWC,stored,eng1_k2=4")


def test_a_nearer_problem_counts_more() -> None:
    close, far = planted(2), planted(8)
    assert PlanSearch(OFFERED, [(0.0, close), (3.0, far)]).next({}) == solution_from_text(
        min(close, key=close.__getitem__)
    )
    assert PlanSearch(OFFERED, [(3.0, close), (0.0, far)]).next({}) == solution_from_text(min(far, key=far.__getitem__))


def test_it_ends_where_near_problems_are_right_and_goes_on_where_they_are_not() -> None:
    """The search ends early if the plans that were fast for similar convolutions are fast here, too.

    Only the ratios of the times may matter: all times here are 7 times as long as for the similar convolutions.
    """
    close = [planted(4, x) for x in range(8)]
    easy = searched(search_of(*close), {x: 7 * us for x, us in planted(4, 9).items()})
    here = {x.text: 30.0 if "stored,eng1" in x.id else planted(4, 9)[x.text] for x in OFFERED}
    hard = searched(search_of(*close), here)
    assert OFFERED[44].text in easy, "the best one"
    assert min(hard, key=here.__getitem__) == min(here, key=here.__getitem__), "of engines that were slow elsewhere"
    assert 2 * len(easy) < len(hard)


def test_plans_that_behaved_alike_are_expected_to_again() -> None:
    """If one plan of an engine is slow, the search expects the other plans of the same engine to be slow, too.

    It learns this from similar convolutions: for one of them engine 1 is fast and the others are slow, for the other
    one it is the reverse. So if engine 1 is slow here, plans of the other engines are tried next.
    """
    one = {x.text: 3.0 if "eng1" in x.id else 6.0 for x in OFFERED}
    other = {x.text: 6.0 if "eng1" in x.id else 3.0 for x in OFFERED}
    search = search_of(one, other)
    first = search.next({OFFERED[0].text: 6.0})
    assert first is not None
    assert "eng1" in first.id
    second = search_of(one, other).next({OFFERED[0].text: 3.0, OFFERED[10].text: 6.0})
    assert second is None or "eng1" not in second.id


def test_a_plan_that_no_near_problem_offers_is_expected_to_be_as_those_of_like_names() -> None:
    """A plan that was never measured is expected to be as fast as plans with similar names.

    Two such plans have the same engine in two layouts. For similar convolutions this engine is fast in channels_last
    and slow in the other layout. So the plan in channels_last is tried first.
    """
    new = [Solution("cudnn", f"{x}eng1_k2=77") for x in ("", "layout=NHWC,stored,")]
    search = PlanSearch([OFFERED[0], *new], [(0.1 * x, planted(4, x)) for x in range(8)])
    assert search.next({OFFERED[0].text: 12.0}) == new[1]


def test_of_indices_what_no_near_problem_names_counts_as_slow() -> None:
    """If kernels are only known by an index, an index that was never measured is expected to be slow.

    For similar products only the fastest kernels are recorded, here by hipBLASLt's index. Neighbouring indices may have
    quite different times.
    """
    offered = [Solution("hipblaslt", str(i)) for i in range(60)]
    close = [{f"hipblaslt:{i}": 10.0 + abs(i - 20 - x) for i in range(15, 30)} for x in range(4)]
    search = PlanSearch(offered, [(0.1 * i, x) for i, x in enumerate(close)])
    tried: dict[str, float | None] = {}
    while (found := search.next(tried)) is not None:
        tried[found.text] = close[0].get(found.text, 30.0)
    assert next(iter(tried)) == "hipblaslt:21", "the fastest on average"
    assert set(tried) < set(close[0])
    assert len(tried) < len(list(searched_to(1e-9, offered, close)))


def searched_to(end: float, offered: list[Solution], close: list[dict[str, float]]) -> Iterator[str]:
    """Yield the kernels that the search tries if it stops at an expected improvement of ``end``."""
    search, tried = PlanSearch(offered, [(0.1 * i, x) for i, x in enumerate(close)], end), dict[str, float | None]()
    while (found := search.next(tried)) is not None:
        tried[found.text] = close[0].get(found.text, 30.0)
        yield found.text


def test_a_plan_that_does_not_run_says_nothing() -> None:
    search = search_of(planted(4), planted(4))
    tried: dict[str, float | None] = {OFFERED[0].text: None}
    for _ in range(len(OFFERED) - 1):
        found = search.next(tried)
        assert found is not None, "nothing is known of this problem"
        tried[found.text] = None
    assert search.next(tried) is None, "all were tried"


# ------------------------------------------------------------------------------------------------ what is proposed


def proposal_of(*times: Mapping[str, float], **more: object) -> Proposal:
    given: dict[str, object] = {"least": 6, "share": 0.0, "near": near(*times), "problem": conv()}
    return Proposal(**(given | more))  # type: ignore[arg-type]


def tried_by(proposal: Proposal, times: Mapping[str, float], offered: list[Solution] = OFFERED) -> list[Solution]:
    """Return the kernels that ``logparse replay`` tries with this proposal, if the kernels have these times in µs."""
    chosen, following = proposal.chosen(offered), proposal.further(offered)
    found: dict[str, float | None] = {x.text: times.get(x.text) for x in chosen}
    while following is not None and (one := following(found)) is not None:
        chosen.append(one)
        found[one.text] = times.get(one.text)
    return chosen


def test_the_first_ones_are_proposed_before_the_race_and_the_others_in_it() -> None:
    proposal = proposal_of(*(planted(4, x) for x in range(8)), least=12)
    chosen = proposal.chosen(OFFERED)
    assert {OFFERED[0], OFFERED[30], OFFERED[44]} < set(chosen), "the pick, the other layout's first, and a winner"
    assert len(chosen) == FIRST
    tried = tried_by(proposal, planted(4, 9))
    assert tried[:FIRST] == chosen
    assert FIRST < len(set(tried)) < 12, "the near ones were right"


def test_a_search_takes_at_most_so_many_times_as_much() -> None:
    close = [planted(4, x) for x in range(8)]
    here = planted(4, 9) | {x.text: 30.0 for x in OFFERED if "stored,eng1" in x.id}
    assert len(tried_by(proposal_of(*close), here)) == 6 * MOST


def test_a_second_call_proposes_no_others() -> None:
    proposal = proposal_of(planted(4))
    known = [x.text for x in tried_by(proposal, planted(7, 1))]
    assert {x.text for x in proposal.chosen(OFFERED, known)} == set(known)
    assert proposal.further(OFFERED, known) is None


def test_without_enough_near_problems_nothing_is_searched() -> None:
    few = proposal_of(planted(4), near=near(planted(4), count=NEAR - 1))
    assert (len(few.chosen(OFFERED)), few.further(OFFERED)) == (len(OFFERED), None)


def test_a_race_takes_one_more_after_each_first_sample() -> None:
    times = {"pick": 10.0, "a": 9.0, "b": 5.0, "slow": 40.0, "wrong": 1.0}
    asked: list[dict[str, float | None]] = []

    def further(firsts: Mapping[str, float | None]) -> str | None:
        asked.append(dict(firsts))
        return next((x for x in ("wrong", "slow", "b") if x not in firsts), None)

    def sample(solution: str) -> float:
        if solution == "wrong":
            raise WithdrawnError("wrong")
        return times[solution]

    ran = race(["pick", "a"], sample, further=further)
    assert ran.best == "b"
    assert asked[0] == {"pick": 10.0, "a": 9.0}
    assert asked[-1] == {"pick": 10.0, "a": 9.0, "wrong": None, "slow": 40.0, "b": 5.0}
    assert ran.dropped["slow"] == "hopeless"


def test_a_race_whose_first_ones_withdraw_goes_on_with_others() -> None:
    def sample(solution: str) -> float:
        if solution in ("pick", "a", "b"):
            raise WithdrawnError("unsupported")
        return 5.0

    def further(firsts: Mapping[str, float | None]) -> str | None:
        return next((x for x in ("b", "c", "d") if x not in firsts), None)

    ran = race(["pick", "a"], sample, further=further)
    assert ran.best == "c"
    assert set(ran.samples_us) == {"c", "d"}
    with pytest.raises(WithdrawnError, match="every solution withdrew"):
        race(["pick", "a"], sample, further=lambda firsts: None if "b" in firsts else "b")


def test_a_worker_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """If different kernels are fastest for similar products, the measuring process searches and finds the fast kernel.

    This kernel is neither among the library's first kernels nor the fastest one for any similar product.
    """
    monkeypatch.setattr(proposer, "SEARCHED", {"fake": WORTHWHILE})
    names = ["pick", *(f"s{i}" for i in range(19)), "fast", "slow"]
    close = [{f"fake:{x}": random.Random(f"{x} {i}").uniform(10, 20) for x in names} for i in range(NEAR)]
    close = [x | {"fake:fast": 1.05 * min(x.values())} for x in close]
    near = tuple(Measured(named(*names, m=2000 + i), x) for i, x in enumerate(close))
    context = WorkerContext({"fake": FAKE.open(Place())}, Place(), Method(), lambda what: None)
    given = Proposal(near=near, problem=named(*names, m=16))
    assert Solution("fake", "fast") not in given.chosen([Solution("fake", x) for x in names])
    result = context.run(RaceTask(problem=given.problem, proposal=given))
    assert FIRST < len(result.rows) < len(names)
    assert result.best == Solution("fake", "fast")


def test_a_search_goes_on_after_solutions_that_ended_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a kernel crashed the measuring process, the search continues and never runs this kernel again.

    The kernel has no time, so the search learns nothing from it.
    """
    monkeypatch.setattr(proposer, "SEARCHED", {"fake": WORTHWHILE})
    names = ["pick", *(f"s{i}" for i in range(19)), "fast"]
    close = [{f"fake:{x}": random.Random(f"{x} {i}").uniform(10, 20) for x in names} for i in range(NEAR)]
    near = tuple(Measured(named(*names, m=2000 + i), x | {"fake:fast": 10.5}) for i, x in enumerate(close))
    given = Proposal(near=near, problem=named(*names, m=1))
    problem = given.problem
    offered = [Solution("fake", x) for x in names]
    gone = [*given.chosen(offered)[1:], offered[7]]
    lost = [not_measured(problem, x, "failed", "the worker ended") for x in gone]
    assert len({x.solution for x in lost}) == FIRST
    context = WorkerContext({"fake": FAKE.open(Place())}, Place(), Method(), lambda what: None)
    task = RaceTask(problem=problem, lost=tuple(lost), proposal=given)
    found = {x.solution: x.status for x in context.run(task).rows}
    assert [found[x.solution] for x in lost] == ["failed"] * len(lost)
    assert sum(x == "ok" for x in found.values()) > 1, "others than the pick"
