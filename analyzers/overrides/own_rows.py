"""A user's own override rows beside the new ones: a library reads one file, which would take the place of the user's.

Rows of other keys are kept as they stand; of a key that both have the new row counts.  The own file must be one that
the target's library reads (validators, revision, file name, layout); else nothing of it is kept, and that is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analyzers.evidence.target import Facts
from analyzers.overrides.lint import inspect, rules_of
from analyzers.overrides.rules import OverrideFile, text_of
from logparse.errors import InputError
from logparse.formats.format import Emission
from logparse.formats.hipblaslt import tuning_file
from logparse.formats.miopen import find_db, perf_db
from logparse.formats.tunableop import results
from logparse.ingest.input_file import InputFile

_BY_NAME = frozenset({find_db.FORMAT.name, perf_db.FORMAT.name})
"""Formats whose files a library finds by the name, which tells device and build."""
KEPT = _BY_NAME | {results.FORMAT.name, tuning_file.FORMAT.name}
"""Formats of which rows can be kept."""


def with_own(files: Sequence[Emission], paths: Sequence[str], target: Facts) -> tuple[list[Emission], list[str]]:
    """The emitted files with the rows of the user's own that they do not have, and what became of each own file.

    Raises InputError for an own file that cannot be read or is of a format of which no rows can be kept.
    """
    made, notes = list(files), []
    for path in paths:
        file = InputFile(path)
        try:
            with file.open() as stream:
                data = stream.read()
        except OSError as error:
            raise InputError(f"--own {path}: {error.strerror or error}") from error
        format = rules_of(file.name, data).format
        if format not in KEPT:
            raise InputError(f"--own {path}: of {format} no rows can be kept; of {', '.join(sorted(KEPT))} they can")
        own, same = inspect(file.name, data, target), [i for i, x in enumerate(made) if _is(x, format)]
        why = _why_not(own, made[same[0]] if same else None)
        if why is not None:
            notes.append(f"nothing of {path} is kept: {why}")
            continue
        for place in same:
            made[place], count = _joined(made[place], own, text_of(data)[0])
        notes.append(f"{count:,} rows of {path} kept in {', '.join(made[x].name for x in same)}")
    return made, notes


def _is(file: Emission, format: str) -> bool:
    try:
        return rules_of(file.name, file.data).format == format
    except InputError:  # a script
        return False


def _why_not(own: OverrideFile, emitted: Emission | None) -> str | None:
    if emitted is None:
        return "no file of its kind is written, so it stays in use"
    if own.format in _BY_NAME and own.name != emitted.name:
        return f"its name is of another device or build than {emitted.name}"
    if own.format == tuning_file.FORMAT.name and _depth(own) != _depth(inspect(emitted.name, emitted.data, {})):
        return "its layout is of another version of hipBLASLt"
    if own.accepted is False:
        return next((x.message for x in own.notes if x.line is None and x.severity == "error"), "it is not accepted")
    return None


def _depth(file: OverrideFile) -> int:
    """Lines of one row: hipBLASLt's newer files have a line of names before each."""
    return 2 if file.format == tuning_file.FORMAT.name and file.rows and file.rows[0].line > 2 else 1


def _joined(file: Emission, own: OverrideFile, text: str) -> tuple[Emission, int]:
    new = inspect(file.name, file.data, {})
    mine = {row.key for row in new.rows}
    lines = text.replace("\r\n", "\n").split("\n")
    depth = _depth(own)
    kept: dict[str, str] = {}
    for row in own.rows:
        if row.live and row.key not in mine:
            kept.setdefault(row.key, "\n".join(lines[row.line - depth : row.line]))
    data = file.data + "".join(f"{line}\n" for line in kept.values()).encode("utf-8", "surrogateescape")
    return replace(file, data=data), len(kept)
