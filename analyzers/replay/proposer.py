"""Choose which of cuDNN's plans and hipBLASLt's solutions a race tries, if it does not try all.  Pure.

Two sources suggest solutions: measured problems near the raced problem, which the scheduler sends to the worker, and
the library's order.  The pick is always tried, and a few more solutions before the race.  ``plan_search`` chooses each
further solution by the times so far.  Other libraries offer fewer solutions, and all of them are tried.
``docs/proposers.md`` states what this saves and loses.
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
"""Function that takes times (µs) by text and returns the solution to try next, or None if no more should be tried.

A solution that did not run has None for its time.
"""

NEAR = 8
"""Number of nearest measured problems whose fastest solutions are proposed.

If a library has fewer measured problems, all its solutions are tried.
"""
FIRST = 4
"""Number of plans, including the pick, that a search proposes before the race."""
MOST = 2
"""Factor that limits a search: it tries at most ``MOST`` × ``Proposal._count`` plans (from ``least`` and ``share``).

If a library offers at most ``Proposal._count`` solutions, all are tried.
"""
SEARCHED: Mapping[str, float] = {"cudnn": WORTHWHILE, "hipblaslt": WORTHWHILE / 10}
"""Libraries whose solutions are searched, each with the expected improvement below which a search ends.

No problem has solutions of both libraries.  hipBLASLt's limit is smaller, because its solutions need not be built
before they are timed.
"""
_LAYOUT = re.compile(r"layout=\w+,stored,")


def by_turns(offered: Sequence[Solution], near: Sequence[Measured]) -> list[Solution]:
    """Order solutions: take turns between the fastest of near problems and the library's own order.

    The near problems give their fastest solutions, the nearest problem first, then their second fastest, and so on.
    The library's order adds the solutions that no near problem had.  If the library has one order per layout, these
    orders take turns too.
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
    """Facts by which a worker chooses among the solutions for ``problem``.

    ``near`` are measured problems near ``problem``, the nearest first.  A search tries at most ``MOST`` × ``least``
    solutions.  If ``share`` (0 to 1) × the number of offered solutions is more than ``least``, it replaces ``least``.
    """

    problem: Problem
    near: tuple[Measured, ...] = ()
    least: int = 16
    share: float = 0.1

    def chosen(self, offered: Sequence[Solution], known: Iterable[str] = ()) -> list[Solution]:
        """Return the solutions to try before ``further``, in the order of ``offered``.

        The first solution of ``offered``, the pick, is always returned.  ``known`` solutions are returned too and count
        towards ``FIRST``, so that a second call proposes no others.
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
        """Return the function that proposes further solutions one by one, in addition to the ``chosen`` solutions.

        Return None if nothing is searched.
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
        """Return the solutions of the library that is searched, and the near problems with times of such solutions.

        The list of near problems is empty if all solutions are to be tried.
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
    """Take one value from each list by turns.  Each distinct value is taken once."""
    return list(dict.fromkeys(x for row in itertools.zip_longest(*lists) for x in row if x is not None))
