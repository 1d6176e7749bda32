"""Which of the offered solutions a race tries: all, or the few that measured problems and the library's order suggest.

What each costs and loses: ``docs/proposers.md``.  The pick is always tried, and a tenth of the problems is searched
widely, so that a wrong model shows: the report states what the proposed solutions alone would have lost there.  Pure:
the scheduler gives a worker what is near its problem.  Of cuDNN's plans and hipBLASLt's solutions only the first are
proposed before the race; ``plan_search`` chooses each other one by the times so far, and those that one problem did not
need are left to others.
PyTorch's settings of a convolution are few, but in benchmark mode each searches all plans by itself: ``CLOSE`` ones
are proposed, and where cuDNN's plans race too, benchmark mode only after these have shown that it could help.
"""

from __future__ import annotations

import heapq
import itertools
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

import numpy as np

from analyzers.measure.plan_search import WORTHWHILE, PlanSearch, parsed
from analyzers.measure.results import environment_key
from analyzers.times.nearness import Coordinates, coordinates, distance
from logparse.errors import InputError
from logparse.model import DEFAULT, ConvProblem, Measurement, Problem, Solution, solution_from_text
from logparse.target import BY_NAME, Facts, arch, same_build

S = TypeVar("S")
Further: TypeAlias = Callable[[Mapping[str, float | None]], Solution | None]
"""What to try after these times (µs) by text, None of what did not run; returns None when enough was tried."""

NEAR = 8
"""Nearest measured problems whose fastest solutions are proposed."""
KEPT = 32
"""Nearest measured problems that a worker is given; the portfolio is made of these."""
FASTEST = 200
"""Solutions of each that a worker is given."""
WIDELY = 10
"""One problem in so many is searched widely."""
FIRST = 4
"""Plans of a search that are proposed before the race, the pick among them."""
MOST = 2
"""A search takes at most so many times the plans that one problem has on average."""
CLOSE = 1.05
"""A convolution's setting is proposed where it took at most so many times as long as a near problem's fastest one."""
PROMISING = 0.98
"""PyTorch's benchmark mode is tried where a plan takes at most this share of the time of the setting without it."""
_PLANS = "cudnn"
SEARCHED: Mapping[str, float] = {_PLANS: WORTHWHILE, "hipblaslt": WORTHWHILE / 10}
"""The libraries whose solutions are searched, of which no problem has two, and the expected improvement at which a
search ends: hipBLASLt's solutions need not be built before they are timed.
"""
_SETTINGS = "torch"
"""The library whose solutions are settings of the whole program."""
_BENCHMARK, _STORED = "benchmark", "stored"
"""Words of a setting: it searches all plans by itself; its operands lie in its layout already."""
_BY_INDEX = frozenset({"hipblaslt", "rocblas"})
_LAYOUT = re.compile(r"layout=\w+,stored,")


@dataclass(frozen=True)
class Measured:
    """A measured problem: the time (µs) of each solution that ran, by its text, and those that did not run."""

    problem: Problem
    times_us: Mapping[str, float]
    refused: frozenset[str] = frozenset()


Order: TypeAlias = Callable[[Sequence[Solution], Sequence[Measured]], Iterable[Solution]]
"""The solutions of one library, the most promising first.  Measured problems are given with the nearest first."""


@dataclass(frozen=True)
class Proposer:
    """A member of ``PROPOSERS``.  ``learns``: without ``NEAR`` measured problems it proposes everything.  ``searches``:
    after the first plans of ``order`` it chooses each next one by the times so far.
    """

    name: str
    about: str
    order: Order
    learns: bool = True
    searches: bool = False


def heuristic(offered: Sequence[Solution], near: Sequence[Measured]) -> list[Solution]:
    """The library's order; where it has one per layout, by turns."""
    layouts: dict[str, list[Solution]] = {}
    for solution in offered:
        found = _LAYOUT.match(solution.id)
        layouts.setdefault(found[0] if found else "", []).append(solution)
    return in_turn(*layouts.values())


def winners(offered: Sequence[Solution], near: Sequence[Measured]) -> list[Solution]:
    """The fastest of each near problem, the nearest first, then the second fastest, and so on."""
    at_hand = {x.text: x for x in offered}
    ranks = [sorted((x for x in y.times_us if x in at_hand), key=y.times_us.__getitem__) for y in near[:NEAR]]
    return [at_hand[x] for x in in_turn(*ranks)]


def portfolio(offered: Sequence[Solution], near: Sequence[Measured]) -> Iterable[Solution]:
    """Each next solution is the one that lowers the summed log ratios to the fastest most, over all near problems.

    Greedy, as the portfolios of Xu, Hoos and Leyton-Brown (Hydra, AAAI 2010).
    """
    least = [min(x.times_us.values()) for x in near]
    ratios = [[y.times_us.get(x.text, math.inf) / us for y, us in zip(near, least, strict=True)] for x in offered]
    logs = np.log(np.minimum(ratios, _WORST))
    now, left = np.full(len(near), math.log(_WORST)), list(range(len(offered)))
    while left:
        best = left.pop(int(np.minimum(now, logs[left]).sum(axis=1).argmin()))
        now = np.minimum(now, logs[best])
        yield offered[best]


_WORST = 10.0
"""Ratio at which a solution that was not tried counts in a portfolio."""


def neighbours(offered: Sequence[Solution], near: Sequence[Measured]) -> list[Solution]:
    """By turns: the winners of near problems, and the library's order, which holds what none of them had."""
    return in_turn(winners(offered, near), heuristic(offered, near))


PROPOSERS: tuple[Proposer, ...] = (
    Proposer(
        "neighbours",
        "what was fastest for similar problems, the first of the library's order, and what their times then suggest",
        neighbours,
        searches=True,
    ),
    Proposer("portfolio", "the fewest solutions that serve all similar problems well", portfolio),
    Proposer("heuristic", "the first ones of the library's own order", heuristic, learns=False),
    Proposer("all", "every solution that is offered", lambda offered, near: offered, learns=False),
)


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What a worker needs to choose: of each library at least ``least`` and ``share`` of the offered solutions.

    ``problem``: whose plans are searched one by one (None: all are proposed before the race).  ``spare``: plans that
    searches before this one left over; below 0: that they took more.
    """

    proposer: str = "all"
    least: int = 16
    share: float = 0.1
    near: tuple[Measured, ...] = ()
    problem: Problem | None = None
    spare: int = 0

    def searches_widely(self, problem: Problem) -> bool:
        """Whether all is tried although fewer would be proposed; always the same for a problem."""
        return self.proposer != "all" and zlib.crc32(problem.text.encode()) % WIDELY == 0

    def chosen(self, offered: Sequence[Solution], known: Iterable[str] = ()) -> list[Solution]:
        """Those to try before ``further``, in the order of ``offered``; its first one, the pick, always.

        ``known`` solutions are among them and count: a second call proposes no others.
        """
        measured, kept = frozenset(known), {offered[0].text} if offered else set()
        for library in {x.library for x in offered}:
            kept |= self._of_library(library, [x for x in offered if x.library == library], measured)
        later = self._after_plans(offered, measured)
        return [x for x in offered if x.text in kept and x not in later]

    def further(self, offered: Sequence[Solution], known: Iterable[str] = ()) -> Further | None:
        """What is tried beside those ``chosen``, one by one; None where that is nothing."""
        measured = frozenset(known)
        search, settings = self._search(offered, measured), self._after_plans(offered, measured)
        if search is None and not settings:
            return None

        def following(tried: Mapping[str, float | None]) -> Solution | None:
            plan = search(tried) if search else None
            return plan or next((x for x in settings if x.text not in tried and _may_help(x, tried)), None)

        return following

    def tried(
        self, offered: Sequence[Solution], times_us: Mapping[str, float], known: Iterable[str] = ()
    ) -> list[Solution]:
        """All that it would try where these are the times (µs) by text; those without one do not run."""
        before = frozenset(known)
        chosen, following = self.chosen(offered, before), self.further(offered, before)
        found = {x.text: times_us.get(x.text) for x in chosen}
        while following is not None and (one := following(found)) is not None:
            chosen.append(one)
            found[one.text] = times_us.get(one.text)
        return chosen

    def left_over(self, offered: Sequence[Solution], tried: Iterable[str], known: Iterable[str] = ()) -> int:
        """How many plans a search left of those that a problem has on average; below 0: that it took more."""
        mine = [x for x in offered if x.library in SEARCHED]
        took = len({x.text for x in mine} & frozenset(tried))
        return self._count(mine) - took if self._searches(mine, frozenset(known)) else 0

    def _search(self, offered: Sequence[Solution], known: frozenset[str]) -> Further | None:
        """The search among the solutions of a library."""
        mine = [x for x in offered if x.library in SEARCHED]
        if not self._searches(mine, known):
            return None
        near = self._near(*SEARCHED)
        end = SEARCHED[mine[0].library]
        search = PlanSearch(_hopeful(mine, near), [(self._far(x), x.times_us) for x in near], end)
        texts, most = {x.text for x in mine}, self._most(mine)

        def following(tried: Mapping[str, float | None]) -> Solution | None:
            so_far = {x: us for x, us in tried.items() if x in texts}
            return search.next(so_far) if len(so_far) < most else None

        return following

    def _after_plans(self, offered: Sequence[Solution], known: frozenset[str]) -> list[Solution]:
        """Benchmark modes of close settings, which wait for cuDNN's plans of their layout."""
        mine, near = [x for x in offered if x.library == _SETTINGS], self._near(_SETTINGS)
        if not self._chooses_settings(near) or not any(x.library == _PLANS for x in offered):
            return []
        if known & {x.text for x in mine[1:]}:
            return []  # a second call proposes no others
        close = _close(near)
        return [x for x in mine if _BENCHMARK in x.id.split(",") and close & {x.text, *_without_search(x)}]

    def _of_library(self, library: str, offered: Sequence[Solution], known: frozenset[str]) -> set[str]:
        proposer, count, near = proposer_named(self.proposer), self._count(offered), self._near(library)
        everything = {x.text for x in offered}
        held = everything & known
        if self.proposer == "all" or (proposer.learns and len(near) < NEAR):
            return everything
        if library == _SETTINGS and self._chooses_settings(near):
            return held if held - {offered[0].text} else held | _close(near)
        if len(offered) <= count:
            return everything
        order = (x.text for x in proposer.order(_hopeful(offered, near), near))
        if library in SEARCHED and self._searched(offered):
            first = itertools.islice(dict.fromkeys([offered[0].text, *order]), FIRST)
            return held if len(held) >= FIRST else held | set(first)
        return held | set(itertools.islice((x for x in order if x not in held), max(0, count - len(held))))

    def _chooses_settings(self, near: Sequence[Measured]) -> bool:
        """Whether not all settings of PyTorch are tried."""
        is_searched = proposer_named(self.proposer).searches and isinstance(self.problem, ConvProblem)
        return is_searched and len(near) >= NEAR

    def _searches(self, offered: Sequence[Solution], known: frozenset[str]) -> bool:
        return self._searched(offered) and sum(x.text in known for x in offered) < FIRST

    def _searched(self, offered: Sequence[Solution]) -> bool:
        """Whether all but the first of these are proposed one by one."""
        enough = len(offered) > self._count(offered) and len(self._near(*SEARCHED)) >= NEAR
        placed = self.problem is not None and coordinates(self.problem) is not None
        return proposer_named(self.proposer).searches and enough and placed

    def _count(self, offered: Sequence[Solution]) -> int:
        return max(self.least, math.ceil(self.share * len(offered)))

    def _most(self, offered: Sequence[Solution]) -> int:
        count = self._count(offered)
        return min(count + self.spare, MOST * count)

    def _near(self, *libraries: str) -> list[Measured]:
        return [x for y in self.near if (x := _of(y, frozenset(libraries))).times_us]

    def _far(self, other: Measured) -> float:
        here, there = coordinates(self.problem) if self.problem else None, coordinates(other.problem)
        return distance(here, there) if here and there else math.inf


def _close(near: Sequence[Measured]) -> set[str]:
    """The solutions that were about as fast as the fastest of a near problem."""
    return {x for y in near[:NEAR] for x, us in y.times_us.items() if us <= CLOSE * min(y.times_us.values())}


def _without_search(setting: Solution) -> list[str]:
    """The setting without benchmark mode, first with its operands stored in its layout."""
    words = [x for x in setting.id.split(",") if x != _BENCHMARK]
    if not words:
        return [DEFAULT.text]
    return [Solution(_SETTINGS, ",".join(x)).text for x in (dict.fromkeys([*words, _STORED]), words)]


def _may_help(setting: Solution, tried: Mapping[str, float | None]) -> bool:
    """Whether a plan of its layout is faster than the setting without benchmark mode, or that is not known."""
    alone = [us for x in _without_search(setting) if (us := tried.get(x))]
    layout = ",".join(x for x in setting.id.split(",") if x not in (_BENCHMARK, _STORED))
    mine = f"{_PLANS}:{layout},{_STORED}" if layout else ""
    plans = [us for x, us in tried.items() if us and x.startswith(f"{_PLANS}:") and parsed(x)[0] == mine]
    return not plans or not alone or min(plans) <= PROMISING * alone[0]


def _hopeful(offered: Sequence[Solution], near: Sequence[Measured]) -> list[Solution]:
    """Without what the nearest problems refused."""
    vain = {x for y in near[:NEAR] for x in y.refused}.difference(*(y.times_us for y in near[:NEAR]))
    return [x for x in offered if x.text not in vain]


EVERYTHING = Proposal()
"""Every solution is tried."""


def proposer_named(name: str) -> Proposer:
    """A member of ``PROPOSERS``.  Raises InputError."""
    found = next((x for x in PROPOSERS if x.name == name), None)
    if found is None:
        raise InputError(f"no proposer {name!r}; there is {', '.join(x.name for x in PROPOSERS)}")
    return found


@dataclass
class _Environment:
    """The measured problems of one environment by text, each with its place."""

    facts: Facts
    measured: dict[str, tuple[Coordinates, Measured]] = field(default_factory=dict)


class Experience:
    """The measured problems of a store and of the running replay, by environment."""

    def __init__(self, proposer: str = "all") -> None:
        self._proposer = proposer_named(proposer)
        self._environments: dict[str, _Environment] = {}
        self._spare = 0

    def spend(self, left_over: int) -> None:
        """Take in how many plans a search left over, for those that follow."""
        self._spare += left_over

    def add(self, facts: Facts, environment: str, problem: Problem, rows: Sequence[Measurement]) -> None:
        """Take in what a race measured; more of a known problem is joined to it."""
        at = coordinates(problem) if self._proposer.learns else None
        times = {x.solution.text: x.time_us for x in rows if x.status == "ok" and x.time_us}
        if at is None or not times:
            return
        refused = frozenset(x.solution.text for x in rows if x.status == "unsupported")
        held = self._environments.setdefault(environment, _Environment(facts)).measured
        before = held[problem.text][1] if problem.text in held else Measured(problem, {})
        held[problem.text] = at, Measured(problem, {**before.times_us, **times}, before.refused | refused)

    def proposal(self, problem: Problem, facts: Facts) -> Proposal:
        """What a worker in an environment of these ``facts`` is to choose by."""
        if not self._proposer.learns:
            return Proposal(proposer=self._proposer.name)
        near = tuple(itertools.islice(self._near(problem, facts), KEPT))
        return Proposal(proposer=self._proposer.name, near=near, problem=problem, spare=self._spare)

    def _near(self, problem: Problem, facts: Facts) -> Iterator[Measured]:
        """The measured problems of the same operation whose solutions are known by these names here, nearest first."""
        at, mine = coordinates(problem), environment_key(facts)
        if at is None:
            return
        ranked = sorted(
            (distance(at, there), environment != mine, environment, text)
            for environment, held in self._environments.items()
            for text, (there, _) in held.measured.items()
            if there.operation == at.operation
        )
        for _, foreign, environment, text in ranked:
            held = self._environments[environment]
            found = _understood(held.measured[text][1], facts, held.facts) if foreign else held.measured[text][1]
            if found.times_us:
                yield fastest(found)


def same_names(library: str, one: Facts, other: Facts) -> bool:
    """Whether a solution's name means the same on both sides: in every build for names; in one build for plans and
    algorithms that a version numbers; in one build for one GPU arch for indices.
    """
    if library in BY_NAME or library == "kernel":
        return True
    return same_build(one, other, library) is True and (library not in _BY_INDEX or arch(one) == arch(other))


def _understood(measured: Measured, here: Facts, there: Facts) -> Measured:
    """The times of those solutions whose names mean the same here; what was refused there may run here."""
    libraries = {solution_from_text(x).library for x in measured.times_us}
    return replace(_of(measured, {x for x in libraries if same_names(x, here, there)}), refused=frozenset())


def _of(measured: Measured, libraries: Set[str]) -> Measured:
    """Only the solutions of these libraries ran."""
    times = {x: us for x, us in measured.times_us.items() if solution_from_text(x).library in libraries}
    return replace(measured, times_us=times)


def fastest(measured: Measured) -> Measured:
    """Only the ``FASTEST`` solutions of it."""
    times = heapq.nsmallest(FASTEST, measured.times_us.items(), key=lambda x: x[1])
    return replace(measured, times_us=dict(times))


def in_turn(*lists: Sequence[S]) -> list[S]:
    """One of each list by turns, each value once."""
    return list(dict.fromkeys(x for row in itertools.zip_longest(*lists) for x in row if x is not None))
