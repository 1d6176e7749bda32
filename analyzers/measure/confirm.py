"""Confirmation: the winner of a race and the library's pick again, interleaved, in a fresh process.

The winner of many was lucky in part (the winner's curse), and the pick was timed at another moment.  So both run in
ABBA and BAAB order by turns with fresh inputs in each block, and only the ratio of a block's pair counts: what drifts
slowly cancels, and whatever the first place in a block costs falls on both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from analyzers.evidence.stats import Interval, benjamini_hochberg, faster_p, paired_ratio

S = TypeVar("S")
K = TypeVar("K")


@dataclass(frozen=True)
class Pairs:
    """Paired samples, µs: entry i of both is of one block, the mean of its two samples."""

    pick_us: tuple[float, ...]
    winner_us: tuple[float, ...]


@dataclass(frozen=True)
class Confirmation:
    """``speedup`` is pick over winner with a 95 % interval; ``p`` that it is not above 1 + ``floor``.

    ``confirmed``: the whole interval lies above 1 + ``floor``.
    """

    speedup: Interval
    p: float
    floor: float

    @property
    def confirmed(self) -> bool:
        return self.speedup.low > 1 + self.floor


def interleave(
    pick: S, winner: S, sample: Callable[[S, int], float], *, blocks: int = 12, doubtful: int = 4, floor: float = 0.03
) -> Pairs:
    """Samples in ABBA and BAAB order by turns; ``sample(solution, block)`` gives one time, µs, on that block's inputs.

    Stops early, after ``doubtful`` blocks, where every block was below the floor: such a winner cannot confirm.
    """
    above: list[float] = []
    below: list[float] = []
    for block in range(blocks):
        outer, inner = (pick, winner) if block % 2 == 0 else (winner, pick)
        times = [sample(solution, block) for solution in (outer, inner, inner, outer)]
        means = ((times[0] + times[3]) / 2, (times[1] + times[2]) / 2)
        above.append(means[block % 2])
        below.append(means[1 - block % 2])
        if block + 1 >= doubtful and all(a <= b * (1 + floor) for a, b in zip(above, below, strict=True)):
            break
    return Pairs(tuple(above), tuple(below))


def judge(pairs: Pairs, *, floor: float = 0.03) -> Confirmation:
    """The verdict on paired samples.  Needs no device, so a stored pair can be judged again at another floor."""
    if not pairs.pick_us:
        return Confirmation(Interval(math.nan, math.nan, math.nan), 1.0, floor)
    ratio = paired_ratio(pairs.pick_us, pairs.winner_us)
    return Confirmation(ratio, faster_p(pairs.pick_us, pairs.winner_us, floor=floor), floor)


def judge_all(
    pairs: Mapping[K, Pairs], *, floor: float = 0.03, rate: float = 0.05
) -> tuple[dict[K, Confirmation], set[K]]:
    """Every pair judged, and the keys that stay confirmed under false-discovery control over all of them."""
    judged = {key: judge(x, floor=floor) for key, x in pairs.items()}
    keys: Sequence[K] = list(judged)
    kept = benjamini_hochberg([judged[key].p for key in keys], rate)
    return judged, {key for key, keep in zip(keys, kept, strict=True) if keep and judged[key].confirmed}
