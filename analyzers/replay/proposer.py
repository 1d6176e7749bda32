"""Choose which of cuDNN's plans and hipBLASLt's solutions a race tries, if not all.  Pure.

Measured problems and the library's order suggest them.  The scheduler gives a worker the problems near its own.
``docs/proposers.md`` states what this saves and loses.  The pick is always tried, and a few more before the race.
``plan_search`` chooses each further solution by the times so far.  Other libraries offer fewer solutions, and all of
them are tried.
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
"""Function that takes times (µs) by text and returns the solution to try next, or None once enough was tried.

A solution that did not run has None for its time.
"""

NEAR = 8
"""Number of nearest measured problems whose fastest solutions are proposed.

With fewer measured problems of a library, all its solutions are tried.
"""
FIRST = 4
"""Number of plans, including the pick, that a search proposes before the race."""
MOST = 2
"""Largest number of plans in a search, as a multiple of ``Proposal._count`` (from ``least`` and ``share``).

If a library offers at most ``Proposal._count`` solutions, all are tried.
"""
SEARCHED: Mapping[str, float] = {"cudnn": WORTHWHILE, "hipblaslt": WORTHWHILE / 10}
"""The libraries whose solutions are searched, and the expected improvement at which a search ends.

No problem has solutions of both libraries.  hipBLASLt's limit is smaller, because its solutions need not be built
before they are timed.
"""
_LAYOUT = re.compile(r"layout=\w+,stored,")


def by_turns(offered: Sequence[Solution], near: Sequence[Measured]) -> list[Solution]:
    """Order solutions by what near problems found fast, by turns with the library's own order.

    The near problems give the fastest of each problem, the nearest problem first, then the second fastest, and so on.
    The library's order adds the solutions that no near problem had.  If it has one order per layout, these take turns
    too.
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
    """The facts by which a worker chooses among the solutions for ``problem``.

    ``near`` are measured problems near it, the nearest first.  A search tries at most ``MOST`` times ``least``
    solutions, or ``MOST`` times the ``share`` (0 to 1) of the offered ones if that is more.
    """

    problem: Problem
    near: tuple[Measured, ...] = ()
    least: int = 16
    share: float = 0.1

    def chosen(self, offered: Sequence[Solution], known: Iterable[str] = ()) -> list[Solution]:
        """Return the solutions to try before ``further``, in the order of ``offered``.

        The first one of ``offered``, the pick, is always among them.  ``known`` solutions are among them and count, so
        that a second call proposes no others.
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
        """Return the search that gives further solutions one by one, beside the ``chosen`` ones.

        Return None without a search.
        """
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
        """Return the solutions of the library that is searched, and their times near the problem.

        The times are empty if all solutions are tried.
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
    """Take one value from each list by turns.  Each value comes once."""
    return list(dict.fromkeys(x for row in itertools.zip_longest(*lists) for x in row if x is not None))
