"""Overrides to a library's file, each read back by the reader of its target first; files into a folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from analyzers.overrides.look_up import look_up
from logparse.errors import EmissionError, InputError
from logparse.libraries.kinds.format import Emission, Writer
from logparse.libraries.kinds.reading import Reading
from logparse.libraries.override_formats import format_of
from logparse.model import Override, fault
from logparse.output import Answer
from logparse.output.files import Rewrite
from logparse.output.own_files import remember
from logparse.quoting import Shell
from logparse.target import Facts
from logparse.text import short_path

if TYPE_CHECKING:
    from logparse.libraries.kinds.override_format import OverrideFormat

_SHOWN = 8


@dataclass(frozen=True)
class Made:
    """Files to write, how many rows, keys or problems they hold, and how many are left out for which reason.

    ``held`` are the overrides that the files hold, where they were made of some; ``notes`` are for their reader.
    """

    files: tuple[Emission, ...]
    count: int
    refused: Mapping[str, int]
    held: tuple[Override, ...] = ()
    notes: tuple[str, ...] = ()


def make(writer: Writer, overrides: Sequence[Override], target: Facts) -> Made:
    """The writer's files, with the overrides that it can write and that the target's reader then uses.

    Where they are valid alone and not together, the first of each key of the library is written.
    """
    valid, refused = readable(writer, overrides, target)
    firsts = {id(x) for x in {writer.key(x.problem, target): x for x in reversed(valid)}.values()}
    files: tuple[Emission, ...] = ()
    for held in (valid, [x for x in valid if id(x) in firsts], []):
        try:
            files = together(writer, held, target)
            break
        except EmissionError as error:
            why = str(error)
    counts = {reason: len(left) for reason, left in refused.items()}
    counts |= {why: len(valid) - len(held)} if len(held) < len(valid) else {}
    return Made(files, len(held), counts, tuple(held))


def readable(
    writer: Writer, overrides: Sequence[Override], target: Facts
) -> tuple[list[Override], dict[str, list[Override]]]:
    """The overrides that can be written so that the target's reader uses them, and the others by the reason.

    Each is written alone and read back, so one that is refused costs no other.  One with a fallback is kept without it
    where only that is not read.
    """
    held: list[Override] = []
    refused: dict[str, list[Override]] = {}
    for override in overrides:
        one, reason = override, _why_not(writer, override, target)
        if reason and override.fallback is not None:
            one = replace(override, fallback=None)
            reason = _why_not(writer, one, target)
        if reason:
            refused.setdefault(reason, []).append(override)
        else:
            held.append(one)
    return held, refused


def together(writer: Writer, overrides: Sequence[Override], target: Facts) -> tuple[Emission, ...]:
    """The writer's files.  Raises EmissionError where the target's reader would not use a row of them."""
    files = tuple(writer.write(overrides, target)) if overrides else ()
    for _, reading in _readings(writer, files, target):
        _all_live(reading)
    return files


def _why_not(writer: Writer, override: Override, target: Facts) -> str:
    """Why the override cannot be written, or its row is not used or not found by its call; empty where it is."""
    nouns = (override.problem, override.solution, *([override.fallback.solution] if override.fallback else []))
    wrong = next(filter(None, map(fault, nouns)), None)  # a store may be of another hand
    if wrong is not None:
        return wrong
    try:
        for format, reading in _readings(writer, writer.write([override], target), target):
            _all_live(reading)
            answer = look_up(format, reading, override.problem)
            if answer.key is not None and answer.row is None:
                return f"the target's library does not find its row: {answer.reason}"
    except EmissionError as error:
        return str(error)
    return ""


def _readings(
    writer: Writer, files: Sequence[Emission], target: Facts
) -> Iterator[tuple[OverrideFormat, Reading[object]]]:
    """What the target's library takes from each file; of a list that a tuner reads there is no reader."""
    format = format_of(writer)
    if format is not None:
        yield from ((format, format.reader(file.name, file.data, target)) for file in files)


def _all_live(reading: Reading[object]) -> None:
    dead = [row.verdicts.why for row in reading.rows if not row.live]
    if dead:
        raise EmissionError(f"the target's library does not use the row: {dead[0]}")


def write(files: Sequence[Emission], out: Path, read: Sequence[str] = ()) -> list[Emission]:
    """Write files into a folder, scripts executable, and remember them as our own (``logparse.output.own_files``).

    They change together (``logparse.output.files``).  Nothing to write makes no folder.  Raises InputError, and writes
    nothing, where a file would take the place of one of those that were ``read``.
    """
    for path in filter(os.path.exists, (out / file.name for file in files)):
        if any(os.path.exists(one) and os.path.samefile(one, path) for one in read):
            raise InputError(f"{path} is one of the files that are read: name another folder with --out")
    made = placed(files, out)
    write_placed(made, out)
    return made


def placed(files: Iterable[Emission], folder: Path) -> list[Emission]:
    """The files with their places in a folder, where nothing is written yet."""
    return [replace(file, path=folder / file.name) for file in files]


def write_placed(files: Sequence[Emission], out: Path) -> None:
    """Write files that have their places, in ``out`` or folders in it, as one change in this order.

    Raises OSError, and leaves all old files, where one of them cannot be written or lies outside ``out``.
    """
    with Rewrite(within=out) as rewrite:
        for file in files:
            assert file.path is not None, "a file without a place"
            file.path.parent.mkdir(parents=True, exist_ok=True)
            rewrite.add(file.path, file.data, executable=file.data.startswith(b"#!"))
    remember(file.path for file in files if file.path is not None and not file.shared)


def written(made: Made, lines: Sequence[str], out: Path, read: Sequence[str] = ()) -> Answer:
    """Write the files into the folder ``out``, and list them below ``lines``; exit code 1 where they hold nothing.
    ``read``: files that must stay.  Of several copies one has the lines of use.
    """
    alike = {file.data: file.name for file in made.files}
    files = [
        file if alike[file.data] == file.name else replace(file, use=Shell()) for file in write(made.files, out, read)
    ]
    return Answer([*lines, *wrote_lines(files)], code=int(not made.count))


def wrote_lines(files: Iterable[Emission]) -> Iterator[str]:
    """Each file that was written, and below it what makes its library read it, unless ``apply.sh`` does that."""
    for file in files:
        yield f"wrote {short_path(str(file.path))}"
        yield from (f"    {line}" for line in ([] if file.applied else file.lines))


def left_out_lines(reasons: Mapping[str, int], form: str) -> list[str]:
    """The most frequent reasons why something is left out, each in this form."""
    ranked = sorted(reasons.items(), key=lambda entry: (-entry[1], entry[0]))
    out = [form.format(count=count, reason=reason) for reason, count in ranked[:_SHOWN]]
    return [*out, *([f"  and {len(ranked) - _SHOWN:,} reasons more"] if len(ranked) > _SHOWN else [])]
