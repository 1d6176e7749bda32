"""A user's own override rows beside the new ones: a library reads one file, which would take the place of the user's.

Rows of other keys are kept as they stand; of a key that both have the new row counts.  The own file must be one that
the target's library reads (validators, revision, file name, layout); else nothing of it is kept, and a note states why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analyzers.overrides.lint import content_of, format_of
from logparse.errors import InputError
from logparse.formats.format import Emission
from logparse.formats.override_format import OverrideFile, OverrideFormat, bytes_of
from logparse.formats.override_formats import OVERRIDE_FORMATS
from logparse.target import Facts


def with_own(files: Sequence[Emission], paths: Sequence[str], target: Facts) -> tuple[list[Emission], list[str]]:
    """The emitted files with the rows of the user's own that they do not have, and what became of each own file.

    Raises InputError for an own file that cannot be read or is of a format of which no rows can be kept.
    """
    made, notes = list(files), []
    for path in paths:
        name, data = content_of(path)
        format = format_of(name, data)
        if format.keep_refusal is None:
            kept = ", ".join(sorted(x.name for x in OVERRIDE_FORMATS if x.keep_refusal is not None))
            raise InputError(f"--own {path}: of {format.name} no rows can be kept; of {kept} they can")
        own = format.inspect(name, data, target)
        same = [place for place, file in enumerate(made) if _is(file, format)]
        why = _why_not(own, made[same[0]] if same else None, format)
        if why is not None:
            notes.append(f"nothing of {path} is kept: {why}")
            continue
        for place in same:
            made[place], count = _joined(made[place], own, format)
        notes.append(f"{count:,} rows of {path} kept in {', '.join(made[x].name for x in same)}")
    return made, notes


def _is(file: Emission, format: OverrideFormat) -> bool:
    try:
        return format_of(file.name, file.data) is format
    except InputError:  # a script
        return False


def _why_not(own: OverrideFile, emitted: Emission | None, format: OverrideFormat) -> str | None:
    if emitted is None or format.keep_refusal is None:
        return "no file of its kind is written, so it stays in use"
    refusal = format.keep_refusal(own, format.inspect(emitted.name, emitted.data, {}))
    if refusal is None and own.accepted is False:
        return next((x.message for x in own.notes if x.line is None and x.severity == "error"), "it is not accepted")
    return refusal


def _joined(file: Emission, own: OverrideFile, format: OverrideFormat) -> tuple[Emission, int]:
    """The file with the own rows of other keys, and how many keys these are."""
    new = {row.key for row in format.reader(file.name, file.data, own.target).rows}
    kept = [row for row in own.rows if row.live and row.key not in new]
    return replace(file, data=file.data + bytes_of(format.lines(kept))), len({row.key for row in kept})
