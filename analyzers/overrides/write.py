"""Write override files (lists of kernels that a library uses instead of its own choice), and check them.

Before a file is written, each of its entries is read back as the library will read it.
"""

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
    """Override files (or similar files) that are ready to be written.

    * ``count``: number of their entries.
    * ``refused``: number of rows left out, by reason.
    * ``held``: the kernels in the files.
    * ``notes``: remarks for the user.
    """

    files: tuple[Emission, ...]
    count: int
    refused: Mapping[str, int]
    # The library should use these kernels instead of its own choice. It is empty for files without such.
    held: tuple[Override, ...] = ()
    notes: tuple[str, ...] = ()


def make(writer: Writer, overrides: Sequence[Override], target: Facts) -> Made:
    """Write overrides (kernels to use for certain calls) as files in a library's format.

    An override is left out if it cannot be written, or if the library would not use it.
    """
    valid, refused = separate_refused(writer, overrides, target)
    firsts = {id(x) for x in {writer.key(x.problem, target): x for x in reversed(valid)}.values()}
    files: tuple[Emission, ...] = ()
    # If two overrides need the same row, only the first one is written.
    for held in (valid, [x for x in valid if id(x) in firsts], []):
        try:
            files = write_all_or_fail(writer, held, target)
            break
        except EmissionError as error:
            why = str(error)
    counts = {reason: len(left) for reason, left in refused.items()}
    counts |= {why: len(valid) - len(held)} if len(held) < len(valid) else {}
    return Made(files, len(held), counts, tuple(held))


def separate_refused(
    writer: Writer, overrides: Sequence[Override], target: Facts
) -> tuple[list[Override], dict[str, list[Override]]]:
    """Sort out which overrides (kernels to use for certain calls) the library will really use.

    Returns the usable overrides, and the refused ones by reason.
    """
    held: list[Override] = []
    refused: dict[str, list[Override]] = {}
    for override in overrides:
        # Each override is written alone and read back, so that a refused one does not spoil the others.
        one, reason = override, _why_not(writer, override, target)
        if reason and override.fallback is not None:
            # If only the fallback (a second kernel) is refused, the override is kept without it.
            one = replace(override, fallback=None)
            reason = _why_not(writer, one, target)
        if reason:
            refused.setdefault(reason, []).append(override)
        else:
            held.append(one)
    return held, refused


def write_all_or_fail(writer: Writer, overrides: Sequence[Override], target: Facts) -> tuple[Emission, ...]:
    """Write all these overrides (kernels to use for certain calls) in a library's format, and return the files.

    Raises EmissionError if the library would not use one of them.
    """
    files = tuple(writer.write(overrides, target)) if overrides else ()
    for _, reading in _read_back(writer, files, target):
        _all_live(reading)
    return files


def _why_not(writer: Writer, override: Override, target: Facts) -> str:
    """Return why an override (a kernel to use for a call) would have no effect. Empty if it has an effect."""
    nouns = (override.problem, override.solution, *([override.fallback.solution] if override.fallback else []))
    wrong = next(filter(None, map(fault, nouns)), None)  # The store may have been written by another program.
    if wrong is not None:
        return wrong
    try:
        for format, reading in _read_back(writer, writer.write([override], target), target):
            # The library may ignore the row, or not find it for the call.
            _all_live(reading)
            answer = look_up(format, reading, override.problem)
            if answer.key is not None and answer.row is None:
                return f"the target's library does not find the row for this call: {answer.reason}"
    except EmissionError as error:
        return str(error)
    return ""


def _read_back(
    writer: Writer, files: Sequence[Emission], target: Facts
) -> Iterator[tuple[OverrideFormat, Reading[object]]]:
    """Read new override files (lists of kernels for a library) back, as the library will read them, to check them."""
    format = format_of(writer)
    # No library reads a list of sizes that a tuner shall search, so nothing is yielded for it.
    if format is not None:
        yield from ((format, format.reader(file.name, file.data, target)) for file in files)


def _all_live(reading: Reading[object]) -> None:
    dead = [row.verdicts.why for row in reading.rows if not row.live]
    if dead:
        raise EmissionError(f"the target's library does not use the row: {dead[0]}")


def write(files: Sequence[Emission], out: Path, read: Sequence[str] = ()) -> list[Emission]:
    """Write files into a folder, either all or none, and make scripts executable.

    Raises InputError, and writes nothing, if a file would replace one of the input files in ``read``.
    """
    for path in filter(os.path.exists, (out / file.name for file in files)):
        if any(os.path.exists(one) and os.path.samefile(one, path) for one in read):
            raise InputError(f"{path} is also an input file; name another folder with --out")
    # If there is nothing to write, no folder is made. The names are stored in ``logparse.output.own_files``, so that
    # the files are known to be logparse's own.
    made = placed(files, out)
    write_placed(made, out)
    return made


def placed(files: Iterable[Emission], folder: Path) -> list[Emission]:
    """Return the files with the paths that they will have in a folder. Nothing is written yet."""
    return [replace(file, path=folder / file.name) for file in files]


def write_placed(files: Sequence[Emission], out: Path) -> None:
    """Write files, which already have their paths, into the folder ``out``, in the given order, either all or none.

    Raises OSError, and changes no file, if one cannot be written or is outside ``out``.
    """
    with Rewrite(within=out) as rewrite:
        for file in files:
            assert file.path is not None, "a file without a place"
            file.path.parent.mkdir(parents=True, exist_ok=True)
            rewrite.add(file.path, file.data, executable=file.data.startswith(b"#!"))
    remember(file.path for file in files if file.path is not None and not file.shared)


def write_files(made: Made, lines: Sequence[str], out: Path, read: Sequence[str] = ()) -> Answer:
    """Write the files into the folder ``out``, and return the text for the user: ``lines``, then a list of the files.

    ``read``: input files that must not be overwritten. The exit code is 1 without entries.
    """
    # Files with the same content are listed only once, with the commands that use the file.
    alike = {file.data: file.name for file in made.files}
    files = [
        file if alike[file.data] == file.name else replace(file, use=Shell()) for file in write(made.files, out, read)
    ]
    return Answer([*lines, *wrote_lines(files)], code=int(not made.count))


def wrote_lines(files: Iterable[Emission]) -> Iterator[str]:
    """Yield a line for each written file, and after it the shell commands that make the library read the file.

    The commands are left out if ``apply.sh`` contains them.
    """
    for file in files:
        yield f"wrote {short_path(str(file.path))}"
        yield from (f"    {line}" for line in ([] if file.applied else file.lines))


def left_out_lines(reasons: Mapping[str, int], form: str) -> list[str]:
    """Return lines for the user about kernels that could not be written into a file, the most frequent reason first.

    * ``reasons``: number of kernels for each reason.
    * ``form``: a text with ``{count}`` and ``{reason}``.
    """
    ranked = sorted(reasons.items(), key=lambda entry: (-entry[1], entry[0]))
    out = [form.format(count=count, reason=reason) for reason, count in ranked[:_SHOWN]]
    return [*out, *([f"  and {len(ranked) - _SHOWN:,} more reasons"] if len(ranked) > _SHOWN else [])]
