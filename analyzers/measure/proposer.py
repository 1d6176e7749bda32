"""Which of the offered solutions a race tries, where not all: those that measured problems and the library's order
suggest.  Pure: the scheduler gives a worker what is near its problem.

What it costs and loses: ``docs/proposers.md``.  The pick is always tried, and a tenth of the problems is searched
widely, so that a wrong model shows: the report states what the proposed solutions alone would have lost there.  Of
cuDNN's plans and hipBLASLt's solutions only the first few are proposed before the race; ``plan_search`` chooses each
other one by the times so far.  PyTorch's settings of a convolution are few, but in benchmark mode each searches all
plans by itself: only ``CLOSE`` ones are proposed.
"""

from __future__ import annotations

import itertools
import math
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from analyzers.measure.experience import KEPT, Experience, Measured, coordinates, distance
from analyzers.measure.plan_search import WORTHWHILE, PlanSearch
from logparse.model import ConvProblem, Problem, Solution
from logparse.target import Facts

S = TypeVar("S")
Further: TypeAlias = Callable[[Mapping[str, float | None]], Solution | None]
"""What to try after these times (µs) by text, None of what did not run; returns None when enough was tried."""

NEAR = 8
"""Nearest measured problems whose fastest solutions are proposed; with fewer of a library all its solutions are."""
WIDELY = 10
"""One problem in so many is searched widely."""
FIRST = 4
"""Plans of a search that are proposed before the race, the pick among them."""
MOST = 2
"""A search takes at most so many times the plans that would be proposed without it."""
CLOSE = 1.05
"""A convolution's setting is proposed where it took at most so many times as long as a near problem's fastest one."""
SEARCHED: Mapping[str, float] = {"cudnn": WORTHWHILE, "hipblaslt": WORTHWHILE / 10}
"""The libraries whose solutions are searched, of which no problem has two, and the expected improvement at which a
search ends: hipBLASLt's solutions need not be built before they are timed.
"""
_LAYOUT = re.compile(r"layout=\w+,stored,")


def by_turns(offered: Sequence[Solution], near: Sequence[Measured]) -> list[Solution]:
    """The fastest of each near problem, the nearest first, then the second fastest, and so on; by turns with the
    library's order, which holds what none of them had (where it has one per layout, these by turns).
    """
    at_hand = {x.text: x for x in offered}
    ranks = [sorted((x for x in y.times_us if x in at_hand), key=y.times_us.__getitem__) for y in near[:NEAR]]
    layouts: dict[str, list[Solution]] = {}
    for solution in offered:
        found = _LAYOUT.match(solution.id)
        layouts.setdefault(found[0] if found else "", []).append(solution)
    return _in_turn([at_hand[x] for x in _in_turn(*ranks)], _in_turn(*layouts.values()))


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What a worker needs to choose: of each library at least ``least`` and ``share`` of the solutions offered for
    ``problem``, by the measured problems ``near`` it, the nearest first.
    """

    problem: Problem
    near: tuple[Measured, ...] = ()
    least: int = 16
    share: float = 0.1

    @property
    def searches_widely(self) -> bool:
        """Whether all is tried although fewer would be proposed; always the same for a problem."""
        return zlib.crc32(self.problem.text.encode()) % WIDELY == 0

    def chosen(self, offered: Sequence[Solution], known: Iterable[str] = ()) -> list[Solution]:
        """Those to try before ``further``, in the order of ``offered``; its first one, the pick, always.

        ``known`` solutions are among them and count: a second call proposes no others.
        """
        measured, kept = frozenset(known), {offered[0].text} if offered else set()
        for library in {x.library for x in offered}:
            kept |= self._of_library(library, [x for x in offered if x.library == library], measured)
        return [x for x in offered if x.text in kept]

    def further(self, offered: Sequence[Solution], known: Iterable[str] = ()) -> Further | None:
        """The search among a library's solutions: what is tried beside those ``chosen``, one by one; None without."""
        mine, near = [x for x in offered if x.library in SEARCHED], self._near(*SEARCHED)
        if not self._is_searched(mine, near) or len({x.text for x in mine}.intersection(known)) >= FIRST:
            return None
        far = [(self._far(x), x.times_us) for x in near]
        search = PlanSearch(_hopeful(mine, near), far, SEARCHED[mine[0].library])
        texts, most = {x.text for x in mine}, MOST * self._count(mine)

        def following(tried: Mapping[str, float | None]) -> Solution | None:
            so_far = {x: us for x, us in tried.items() if x in texts}
            return search.next(so_far) if len(so_far) < most else None

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

    def _of_library(self, library: str, offered: Sequence[Solution], known: frozenset[str]) -> set[str]:
        count, near = self._count(offered), self._near(library)
        everything = {x.text for x in offered}
        held = everything & known
        if len(near) < NEAR:
            return everything
        if library == "torch" and isinstance(self.problem, ConvProblem):
            return held if held - {offered[0].text} else held | _close(near)
        if len(offered) <= count:
            return everything
        order = [x.text for x in by_turns(_hopeful(offered, near), near)]
        if library in SEARCHED:
            first = itertools.islice(dict.fromkeys([offered[0].text, *order]), FIRST)
            return held if len(held) >= FIRST else held | set(first)
        return held | set(itertools.islice((x for x in order if x not in held), max(0, count - len(held))))

    def _is_searched(self, offered: Sequence[Solution], near: Sequence[Measured]) -> bool:
        return len(offered) > self._count(offered) and len(near) >= NEAR

    def _count(self, offered: Sequence[Solution]) -> int:
        return max(self.least, math.ceil(self.share * len(offered)))

    def _near(self, *libraries: str) -> list[Measured]:
        return [x for y in self.near if (x := y.of(frozenset(libraries))).times_us]

    def _far(self, other: Measured) -> float:
        here, there = coordinates(self.problem), coordinates(other.problem)
        return distance(here, there) if here and there else math.inf


def proposal(experience: Experience, problem: Problem, facts: Facts) -> Proposal:
    """What a worker in an environment of these ``facts`` is to choose by."""
    return Proposal(problem=problem, near=tuple(itertools.islice(experience.near(problem, facts), KEPT)))


def _close(near: Sequence[Measured]) -> set[str]:
    """The solutions that were about as fast as the fastest of a near problem."""
    return {x for y in near[:NEAR] for x, us in y.times_us.items() if us <= CLOSE * min(y.times_us.values())}


def _hopeful(offered: Sequence[Solution], near: Sequence[Measured]) -> list[Solution]:
    """Without what the nearest problems refused."""
    vain = {x for y in near[:NEAR] for x in y.refused}.difference(*(y.times_us for y in near[:NEAR]))
    return [x for x in offered if x.text not in vain]


def _in_turn(*lists: Sequence[S]) -> list[S]:
    """One of each list by turns, each value once."""
    return list(dict.fromkeys(x for row in itertools.zip_longest(*lists) for x in row if x is not None))
