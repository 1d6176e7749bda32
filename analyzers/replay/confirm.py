"""Confirm that the fastest kernel is really faster than the library's choice, in fresh processes.

The fastest of many kernels was partly lucky (the winner's curse), and the library's choice (the pick) was timed at
another moment. So both run again, in blocks that alternate between the orders ABBA and BAAB, with fresh inputs in each
block. Only the ratio of the two times of a block is used. Slow drift cancels in that ratio, and the cost of running
first in a block affects both kernels alike. A block in which the clock changed is measured again.
``analyzers/evidence/confirmations.py`` judges the pairs of times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from analyzers.evidence.confirmations import Pairs

S = TypeVar("S")

DOUBTFUL = 4
"""If the fastest kernel gained too little in each of the first blocks, the measurement ends after this many blocks."""


def interleave(
    pick: S,
    winner: S,
    sample: Callable[[S, int], float],
    *,
    blocks: int,
    floor: float = 0.03,
    held: Callable[[Callable[[], list[float]]], list[float]] = lambda block: block(),
) -> Pairs:
    """Time two kernels in turns (ABBA, then BAAB, and so on), and return one pair of times per block.

    A block is one group of four samples, for example ABBA.

    * ``sample(solution, block)`` takes one sample on the inputs of the block, and returns its time, µs.
    * ``held`` runs a whole block. If the clock changed meanwhile, it runs the block again.
    * If the winner gains less than ``floor`` in each of the first ``DOUBTFUL`` blocks, the measurement ends early.
    """
    above: list[float] = []
    below: list[float] = []
    for block in range(blocks):
        outer, inner = (pick, winner) if block % 2 == 0 else (winner, pick)
        order = (outer, inner, inner, outer)
        times = held(lambda block=block, order=order: [sample(solution, block) for solution in order])  # type: ignore[misc]
        means = ((times[0] + times[3]) / 2, (times[1] + times[2]) / 2)
        above.append(means[block % 2])
        below.append(means[1 - block % 2])
        if block + 1 >= DOUBTFUL and is_refuted(Pairs(tuple(above), tuple(below)), floor):
            break
    return Pairs(tuple(above), tuple(below))


def is_refuted(pairs: Pairs, floor: float) -> bool:
    """Return True if the supposedly faster kernel gained less than ``floor`` in every block of measurements.

    A ``floor`` of 0.03 means 3 %.
    """
    return all(a <= b * (1 + floor) for a, b in zip(pairs.pick_us, pairs.winner_us, strict=True))
