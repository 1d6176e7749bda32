"""The other passes of a layer: what F and B take where its backward weights are looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logparse.model import layer_of, pass_of

if TYPE_CHECKING:
    import pandas as pd

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


def passes(row: pd.Series, tries_of: Callable[[Sequence[str]], pd.DataFrame]) -> Sequence[Timed]:
    """The fastest solutions of F, then those of B, of the layer of a row of ``points``, in the same file.

    ``tries_of``: rows of the view ``measurements`` of these problems' texts.
    """
    texts, made = other_passes(str(row["measured"])), list[Timed]()
    if not texts:
        return made
    tries = tries_of(texts)
    same = (tries["source_id"] == row["source_id"]) & (tries["origin"] == row["origin"])
    good = tries[same & (tries["status"] == "ok") & (tries["time_us"] > 0)]
    for direction, text in zip("FB", texts, strict=True):
        times = good[good["problem"] == text].groupby("solution")["time_us"].min()
        best = times.sort_values(kind="stable").head(FASTEST)
        made += [Timed(direction, str(solution), float(time)) for solution, time in best.items()]
    return made
