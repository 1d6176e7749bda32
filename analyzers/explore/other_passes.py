"""The other passes of a layer: what F and B take where its backward weights are looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analyzers.explore.tries import Row, Try
from logparse.model import layer_of, pass_of

FASTEST = 3


@dataclass(frozen=True)
class Timed:
    """A solution of F or B (``direction``), and its time in µs."""

    direction: str
    solution: str
    time_us: float


def other_passes(problem: str) -> list[str]:
    """The texts of F and B of the layer of a backward-weight problem; empty for any other."""
    direction, layer = layer_of(problem) or ("", "")
    return [pass_of(other, layer) for other in "FB"] if direction == "W" else []


def passes(row: Row, tries_of: Callable[[Sequence[str]], Sequence[Try]]) -> Sequence[Timed]:
    """The fastest solutions of F, then those of B, of the layer of a row of ``points``, in the same file.

    ``tries_of``: the measurements of these problems' texts.
    """
    texts, made = other_passes(str(row["measured"])), list[Timed]()
    if not texts:
        return made
    place = (row["source_id"], row["origin"])
    good = [x for x in tries_of(texts) if x.timed and x.status == "ok" and (x.source_id, x.origin) == place]
    for direction, text in zip("FB", texts, strict=True):
        times: dict[str, float] = {}
        for x in good:
            if x.problem == text and x.solution is not None and x.time_us is not None:
                times[x.solution] = min(times.get(x.solution, x.time_us), x.time_us)
        fastest = sorted(times, key=lambda solution: (times[solution], solution))[:FASTEST]
        made += [Timed(direction, solution, times[solution]) for solution in fastest]
    return made
