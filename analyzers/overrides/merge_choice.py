"""What files say of one key, which of it a merged file takes, and what is told of the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from analyzers.overrides.rules import Row
from logparse.formats.format import Emission

Contents: TypeAlias = Sequence[tuple[str, str, bytes]]
"""Path, name and bytes of each file."""


@dataclass(frozen=True)
class Choice:
    """What one file says of a key: its solution, and the time (µs) where it has one."""

    file: str
    line: int
    solution: str
    time_us: float | None


@dataclass(frozen=True)
class Conflict:
    """A key for which files name different solutions; ``taken`` is the one that was written."""

    key: str
    taken: Choice
    others: tuple[Choice, ...]


@dataclass(frozen=True)
class Merged:
    """The files to write (one per GPU for TunableOp), how many keys they hold, the conflicts, and what was left out."""

    emissions: tuple[Emission, ...]
    keys: int
    conflicts: tuple[Conflict, ...]
    notes: tuple[str, ...]


def order(choice: Choice) -> tuple[float, str]:
    """The fastest first, without a time last; equal times by the solution's text, whatever the order of the files."""
    return (math.inf if choice.time_us is None else choice.time_us, choice.solution)


def choose(
    found: Mapping[str, Sequence[Choice]], *, in_order: bool = False
) -> tuple[dict[str, Choice], tuple[Conflict, ...]]:
    """The fastest of each key, rows with a time before those without, and the keys with several solutions.

    ``in_order``: where no time decides, the first file's row is taken.
    """
    rank = (lambda choice: order(choice)[0]) if in_order else order
    taken = {key: min(choices, key=rank) for key, choices in found.items()}
    conflicts = [
        Conflict(key, taken[key], tuple(x for x in choices if x.solution != taken[key].solution))
        for key, choices in sorted(found.items())
        if len({x.solution for x in choices}) > 1
    ]
    return taken, tuple(conflicts)


def unusable(row: Row) -> bool:
    """Whether no call could be served by the row, also in a file without other faults."""
    return False in (row.verdicts.matched, row.verdicts.honoured)


def left_out(path: str, line: int, why: str) -> str:
    return f"{path}, line {line}: left out: {why}"
