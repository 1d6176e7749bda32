"""Which of cuDNN's plans and hipBLASLt's solutions a race tries, where not all: those that measured problems and the
library's order suggest.  Pure: the scheduler gives a worker what is near its problem.

What it saves and loses: ``docs/proposers.md``.  The pick is always tried, and a few more before the race;
``plan_search`` chooses each other one by the times so far.  Other libraries offer fewer, which are all tried.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from analyzers.replay.experience import Measured, coordinates, distance
from analyzers.replay.plan_search import WORTHWHILE, PlanSearch
from logparse.model import Problem, Solution

S = TypeVar("S")
Further: TypeAlias = Callable[[Mapping[str, float | None]], Solution | None]
"""What to try after these times (µs) by text, None of what did not run; returns None when enough was tried."""

NEAR = 8
"""Nearest measured problems whose fastest solutions are proposed; with fewer of a library all its solutions are."""
FIRST = 4
"""Plans of a search that are proposed before the race, the pick among them."""
MOST = 2
"""A search takes at most so many times the ``least`` and ``share`` of a ``Proposal``; of no more all are tried."""
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
    """What a worker needs to choose among the solutions offered for ``problem``: the measured problems ``near`` it, the
    nearest first.
    """

    problem: Problem
    near: tuple[Measured, ...] = ()
    least: int = 16
    share: float = 0.1

    def chosen(self, offered: Sequence[Solution], known: Iterable[str] = ()) -> list[Solution]:
        """Those to try before ``further``, in the order of ``offered``; its first one, the pick, always.

        ``known`` solutions are among them and count: a second call proposes no others.
        """
        mine, near = self._searched(offered)
        if not near:
            return list(offered)
        kept = {x.text for x in mine}.intersection(known)
        if len(kept) < FIRST:
            order = dict.fromkeys([mine[0], *by_turns(mine, near)])
            kept |= {x.text for x in itertools.islice(order, FIRST)}
        return [x for x in offered if x.library not in SEARCHED or x.text in kept or x == offered[0]]

    def further(self, offered: Sequence[Solution], known: Iterable[str] = ()) -> Further | None:
        """The search: what is tried beside those ``chosen``, one by one; None without."""
        mine, near = self._searched(offered)
        texts = {x.text for x in mine}
        if not near or len(texts.intersection(known)) >= FIRST:
            return None
        far = [(self._far(x), x.times_us) for x in near]
        search, most = PlanSearch(mine, far, SEARCHED[mine[0].library]), MOST * self._count(mine)

        def following(tried: Mapping[str, float | None]) -> Solution | None:
            so_far = {x: us for x, us in tried.items() if x in texts}
            return search.next(so_far) if len(so_far) < most else None

        return following

    def _searched(self, offered: Sequence[Solution]) -> tuple[list[Solution], list[Measured]]:
        """The solutions of the library that is searched, and their times near the problem; no times where all are
        tried.
        """
        mine = [x for x in offered if x.library in SEARCHED]
        near = [x for y in self.near if (x := y.of(SEARCHED.keys())).times_us]
        return mine, near if len(mine) > self._count(mine) and len(near) >= NEAR else []

    def _count(self, offered: Sequence[Solution]) -> int:
        return max(self.least, math.ceil(self.share * len(offered)))

    def _far(self, other: Measured) -> float:
        here, there = coordinates(self.problem), coordinates(other.problem)
        return distance(here, there) if here and there else math.inf


def _in_turn(*lists: Sequence[S]) -> list[S]:
    """One of each list by turns, each value once."""
    return list(dict.fromkeys(x for row in itertools.zip_longest(*lists) for x in row if x is not None))
