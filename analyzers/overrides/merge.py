"""One override file from several: of several GPUs, jobs or people, for one device and one build of the library.

Files of other validators, revisions, devices or builds are refused: their times and indices mean something else.  Of
one key (and, in MIOpen, one solver) the fastest finite time wins; where a format has no times the first file's row is
taken.  Where files disagree it is listed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from analyzers.overrides.lint import content_of, format_of
from analyzers.overrides.override_format import OverrideFormat, bytes_of
from analyzers.overrides.reading import Row, text_of
from logparse.errors import InputError
from logparse.formats.format import Emission


@dataclass(frozen=True)
class Choice:
    """One file's row of a key."""

    file: str
    row: Row

    @property
    def line(self) -> int:
        return self.row.line

    @property
    def time_us(self) -> float | None:
        return self.row.time_us

    @property
    def solution(self) -> str:
        """The solution as the file spells it."""
        named = self.row.solution
        return "" if named is None else named.raw or named.text


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


def merge(paths: Sequence[str], gpus: int = 1) -> Merged:
    """Merge files of one format.

    Raises InputError where one cannot be read, and where they are of several formats, devices or builds.
    """
    contents = [(path, *content_of(path)) for path in paths]
    full = [x for x in contents if x[2].strip()]
    notes = [f"{path}: empty, nothing taken" for path, _, data in contents if not data.strip()]
    if not full:
        raise InputError("nothing to merge: every file is empty")
    format = _one_format({path: format_of(name, data) for path, name, data in full})
    merging = format.merging
    if gpus > 1 and not merging.per_device:
        raise InputError(f"--gpus: only TunableOp reads one file per device, these are {format.name}")
    notes += [merging.note] if merging.note else []
    agreed: dict[str, tuple[str, str]] = {}
    choices: list[Choice] = []
    for path, name, data in full:
        clean = bytes_of(text_of(data)[0].replace("\r\n", "\n").removesuffix("\n").split("\n"))
        try:
            header = merging.header(name, clean)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        _agree(agreed, path, header)
        for row in format.reader(name, clean, {}).rows:
            if row.solution is None or row.verdicts.fault:
                notes.append(f"{path}, line {row.line}: left out: {row.verdicts.fault or 'no solution'}")
            else:
                choices.append(Choice(path, row))
    rank = _time if merging.in_order else _order
    slots = _grouped(choices, lambda choice: merging.slot(choice.row))
    taken = [min(mine, key=rank).row for _, mine in sorted(slots.items())]
    common = {name: value for name, (value, _) in agreed.items()}
    emissions = tuple(merging.write(taken, full[0][1], common, gpus))
    conflicts = tuple(_conflicts(choices, format, rank))
    return Merged(emissions, len({row.key for row in taken}), conflicts, tuple(notes))


def _one_format(formats: Mapping[str, OverrideFormat]) -> OverrideFormat:
    if len({format.name for format in formats.values()}) > 1:
        named = ", ".join(f"{path} is {format.name}" for path, format in formats.items())
        raise InputError(f"files of several formats cannot be merged: {named}")
    return next(iter(formats.values()))


def _agree(agreed: dict[str, tuple[str, str]], path: str, header: Iterable[tuple[str, str]]) -> None:
    """Compare a file's header with those before it, each value with the file that has it."""
    for name, value in header:
        first, where = agreed.setdefault(name, (value, path))
        if first != value:
            both = path if path == where else f"{path} and {where}"
            raise InputError(
                f"{both} cannot be merged, the rows are of different devices or builds: {name} is {value}, not {first}"
            )


def _time(choice: Choice) -> tuple[float, str]:
    return math.inf if choice.time_us is None else choice.time_us, ""


def _order(choice: Choice) -> tuple[float, str]:
    """The fastest first, without a time last; equal times by the solution's text, whatever the order of the files."""
    return _time(choice)[0], choice.solution


def _grouped(choices: Iterable[Choice], key: Callable[[Choice], str]) -> dict[str, list[Choice]]:
    out: dict[str, list[Choice]] = {}
    for choice in choices:
        out.setdefault(key(choice), []).append(choice)
    return out


def _conflicts(
    choices: Sequence[Choice], format: OverrideFormat, rank: Callable[[Choice], tuple[float, str]]
) -> Iterable[Conflict]:
    """The keys with several solutions; where a key's rows stand beside each other, by the fastest of each file."""
    merging = format.merging
    keys = _grouped(choices, lambda choice: choice.row.key if merging.several else merging.slot(choice.row))
    for key, mine in sorted(keys.items()):
        rivals = mine
        if merging.several:
            rivals = [min(x, key=rank) for x in _grouped(mine, lambda choice: choice.file).values()]
        best = min(rivals, key=rank)
        others = tuple(x for x in rivals if x.solution != best.solution)
        if others:
            yield Conflict(key, best, others)
