"""Choose which of cuDNN's and hipBLASLt's many kernels are tried for a GEMM or convolution, if not all are. Pure.

Two sources suggest kernels: similar GEMMs or convolutions that were measured, and the library's own order. The
library's own choice is always tried, and a few more kernels. ``plan_search`` chooses each further kernel by the times
so far. Other libraries offer fewer kernels, and all of them are tried. ``docs/proposers.md`` states what this saves and
loses.
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
"""Type of a function that returns the kernel to try next, or None if no more should be tried.

It gets the times (µs) so far, by the kernel's name. A kernel that did not run has the time None.
"""

NEAR = 8
"""Number of similar GEMMs or convolutions whose fastest kernels are tried.

If fewer similar ones were measured with a library, all its kernels are tried.
"""
FIRST = 4
"""Number of kernels that are chosen before any is timed, including the library's own choice."""
MOST = 2
"""Factor that limits a search: it tries at most ``MOST`` × ``Proposal._count`` kernels.

``_count`` follows from ``least`` and ``share``. If a library offers at most that many kernels, all are tried.
"""
SEARCHED: Mapping[str, float] = {"cudnn": WORTHWHILE, "hipblaslt": WORTHWHILE / 10}
"""Libraries that offer too many kernels to try them all. The number is the limit at which a search ends.

A search ends when the expected improvement (of the logarithm of the best time) is below the limit. hipBLASLt's is
smaller, because its kernels need not be built before they are timed. No GEMM or convolution has kernels of both
libraries.
"""
_LAYOUT = re.compile(r"layout=\w+,stored,")


def by_turns(offered: Sequence[Solution], near: Sequence[Measured]) -> list[Solution]:
    """Order the kernels to try: the fastest of similar GEMMs or convolutions and the library's own order take turns.

    The similar ones give their fastest kernels, the most similar one first, then their second fastest, and so on. The
    library's order adds the kernels that no similar one had. If the library has one order per layout, these orders take
    turns too.
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
    """The data from which a worker process decides which kernels it tries for a GEMM or convolution (``problem``).

    ``near`` are similar measured ones, the most similar first. A search tries at most ``MOST`` × ``least`` kernels. If
    ``share`` (0 to 1) × the number of offered kernels is more than ``least``, it replaces ``least``.
    """

    problem: Problem
    near: tuple[Measured, ...] = ()
    least: int = 16
    share: float = 0.1

    def chosen(self, offered: Sequence[Solution], known: Iterable[str] = ()) -> list[Solution]:
        """Return the kernels that should be tried first. The function that ``further`` returns chooses more afterwards.

        The library's own choice (the first of ``offered``) is always among them. Kernels that were already measured
        (``known``) are returned too and count towards ``FIRST``, so that a second call chooses no others. The order is
        as in ``offered``.
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
        """Return a function that chooses further kernels to try, one by one, after the ``chosen`` ones were timed.

        Returns None if all kernels are tried anyway.
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
        """Return the kernels among which a search chooses, and similar GEMMs or convolutions whose times guide it.

        The second list is empty if all kernels are to be tried.
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
    """Merge lists by taking one value from each in turn. Each distinct value is taken once."""
    return list(dict.fromkeys(x for row in itertools.zip_longest(*lists) for x in row if x is not None))
