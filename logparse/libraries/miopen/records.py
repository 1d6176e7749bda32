"""Code that MIOpen's find-db and perf-db share.  Both have lines of the form ``key=id:values;id:values``.

MIOpen finds such a file by its name, which states the device and the build.  If the name does not fit, MIOpen ignores
the file without a message.  Keys are compared as text.  If several records have the same key, the first wins.  If a
record has several items of one solver, the first wins.

Source: ROCm/MIOpen ``src/db_record.cpp``, ``src/ramdb.cpp``, ``src/readonlyramdb.cpp``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from logparse.errors import InputError
from logparse.groups import in_groups
from logparse.libraries.kinds.format import Emission, Outcome
from logparse.libraries.kinds.override_format import Keep, OverrideFile, bytes_of
from logparse.libraries.kinds.reading import Note, Offer, Row, Rule
from logparse.libraries.miopen.db_names import FILE_NAME
from logparse.libraries.miopen.solvers import direction_of_solver, is_registered, known_algorithm
from logparse.model import ConvProblem, Measurement, Record, Reject
from logparse.quoting import Shell
from logparse.target import Facts


@dataclass(frozen=True)
class Item:
    """One solver with its values in a record of a MIOpen database, split at its first ``:`` and at commas.

    * ``solver``: the solver's name.  It is empty if the entry has no ``:``.
    * ``first``: the line number of an earlier record with the same key, otherwise None.  MIOpen uses the earlier
      record.
    * ``repeated``: True if the record has an earlier entry of the same solver.  MIOpen uses the earlier entry.
    * ``thrown``: the text of the entry that makes MIOpen throw an exception, otherwise empty.  MIOpen then uses no
      entry of the record.
    * ``spelled``: the key as MIOpen spells it.  It is empty if the file has the same spelling.
    """

    line: int
    key: str
    problem: ConvProblem | None
    text: str
    solver: str
    values: tuple[str, ...]
    first: int | None
    repeated: bool
    thrown: str = ""
    spelled: str = ""


Split = Callable[[str, str], tuple[str, Sequence[str]]]
"""A function that splits an entry of a MIOpen database into the solver and its values.

It takes the texts before and behind the first ``:`` of the entry.  The values have the order of the format's newest
version.
"""


def items(text: str, problem_of: Callable[[str], ConvProblem], split: Split) -> Iterator[Item]:
    """Yield the entries of a MIOpen database in the order of the file.  There is one entry for each solver in a line.

    Lines without a key or ``=`` are skipped.
    """
    first: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        key, equals, payload = line.partition("=")
        if equals and key:
            problem = problem_or_none(problem_of, key)
            yield from items_of(number, key, payload, first.setdefault(key, number), problem, split)


def problem_or_none(problem_of: Callable[[str], ConvProblem], key: str) -> ConvProblem | None:
    """Return the convolution that a key of a MIOpen database describes, or None if the text is not a key."""
    try:
        return problem_of(key)
    except ValueError:
        return None


def items_of(
    number: int, key: str, payload: str, first: int, problem: ConvProblem | None, split: Split
) -> Iterator[Item]:
    """Split one line of a MIOpen database into its entries, one for each solver of the convolution.

    * ``key`` describes the convolution, and ``payload`` is the rest of the line.
    * ``first`` is the number of the first line about the same convolution.
    """
    seen: set[str] = set()
    parts = payload.split(";")
    for part in parts[:-1] if len(parts) > 1 and not parts[-1].strip() else parts:
        id, colon, rest = part.partition(":")
        solver, values = split(id, rest) if colon else ("", ())
        # The entries of a line that repeats a key name the first line with this key.
        other = first if first != number else None
        yield Item(number, key, problem, part, solver, tuple(values), other, bool(solver) and solver in seen)
        seen.add(solver)


def read_record(
    text: str,
    problem_of: Callable[[str], ConvProblem],
    items: Callable[[str, str, ConvProblem], Iterable[Item]],
    measured: Callable[[Item, ConvProblem], Measurement | Reject],
) -> Outcome:
    """Read one line of a MIOpen database, and return a measurement for each solver in it.

    A part of the line that cannot be read gives a ``Reject``.
    """
    line = text.removesuffix("\r")
    if not line.strip():
        return Outcome("blank")
    key, equals, payload = line.partition("=")
    if not equals or not key:
        return Outcome("reject", [Reject("the line has no key, but a record must have the form key=item;item")])
    try:
        problem = problem_of(key)
    except ValueError as error:
        return Outcome("reject", [Reject(str(error), 0, len(key))])
    records: list[Record] = []
    at = len(key) + 1
    for item in items(key, payload, problem):
        record = measured(item, problem)
        records.append(replace(record, offset=at, length=len(item.text)) if isinstance(record, Reject) else record)
        at += len(item.text) + 1
    return Outcome("measurement" if any(isinstance(x, Measurement) for x in records) else "reject", records)


# -------------------------------------------------------------------------------------------------- rules about items


def _shadowed(item: Item, target: Facts) -> str | None:
    return None if item.first is None else f"line {item.first} already has this key, and MIOpen uses the first record"


def _repeated(item: Item, target: Facts) -> str | None:
    return f"{item.solver} occurs twice in the record, and MIOpen uses the first item" if item.repeated else None


def _solver_direction(item: Item, target: Facts) -> str | None:
    direction = direction_of_solver(item.solver) if is_registered(item.solver) else None
    if item.problem is None or direction in (None, item.problem.direction):
        return None
    return f"{item.solver} is a solver for direction {direction}, but the record is for {item.problem.direction}"


def unknown_solver(item: Item, target: Facts) -> str | None:
    """Return a message if no MIOpen version that logparse knows has a solver of this name.  A newer one may have it."""
    if not item.solver or known_algorithm(item.solver) is not None:
        return None
    return f"logparse does not know the solver {item.solver}; a MIOpen that does not know it either ignores the item"


_HAS = "compare the solver's name with a MIOpen log of level 6 from the target, which lists the solvers of this MIOpen"


def rules(about: str, shadowed: str, remedy: str, own: Sequence[Rule[Item, Facts]]) -> list[Rule[Item, Facts]]:
    """Return all rules for the entries of a MIOpen database: the common ones, and this database's own (``own``).

    The rules about reading come first, then ``own``, then the rules about solvers.
    """

    def no_item(item: Item, target: Facts) -> str | None:
        return None if item.solver else f"the item {item.text[:60]!r} does not have the form 'solver:{about}'"

    return [
        Rule("duplicate", "error", "read", _shadowed, shadowed, fault=False),
        Rule("item", "error", "read", no_item, remedy),
        Rule("duplicate", "warning", "read", _repeated, "remove the later item"),
        *own,
        Rule("solver-direction", "error", "honoured", _solver_direction, remedy),
        Rule("unknown-solver", "info", None, unknown_solver, _HAS),
    ]


# ------------------------------------------------------------------------------------------------------- the file


def line_notes(keyless: Iterable[int]) -> Iterator[Note]:
    """Yield an error for each line of a MIOpen database that has no key, because MIOpen skips such lines.

    ``keyless`` are the numbers of the lines.
    """
    for number in keyless:
        yield Note(
            number,
            "error",
            "no-key",
            "the line has no 'key=', so MIOpen skips the line with an error",
            "remove it",
        )


# ----------------------------------------------------------------------------------------------- merged, kept, cut


def lines(rows: Iterable[Row | Offer]) -> list[str]:
    """Write the lines of a MIOpen database from entries: one line for each key, with its solvers in the given order."""
    records = in_groups(rows, lambda row: row.key)
    return [f"{key}={';'.join(row.text for row in held)}" for key, held in records.items()]


def remove_entries(data: bytes, rows: Iterable[Row], keep: Keep) -> bytes:
    """Remove entries from a MIOpen database: those for which ``keep`` returns False.

    An entry is one solver in a record. If no entry of a record stays, the whole line is dropped.
    """
    records, out = {row.line for row in rows}, list[bytes]()
    for number, line in enumerate(data.split(b"\n"), start=1):
        key, equals, payload = line.partition(b"=")
        items = payload.split(b";")
        end = b";" + items.pop() if len(items) > 1 and not items[-1].strip() else b""
        kept = [x for x in items if number in records and keep(number, key + equals + x)]
        if kept or number not in records:
            out.append(key + equals + b";".join(kept) + end if kept else line)
    return b"\n".join(out)


def slot(row: Offer) -> str:
    """Return the text ``key=solver`` for an entry of a MIOpen database.

    A merged database holds only the better one of two entries with the same text.
    """
    return f"{row.key}={row.id}"


def find_copy_obstacle(own: OverrideFile, emitted: OverrideFile) -> str | None:
    """Explain why entries of one MIOpen database may not be copied to another one. Return None if they may.

    They may not if the files' names differ, because then the files are for different GPUs or builds.
    """
    return None if own.name == emitted.name else f"the file's name is for another device or build than {emitted.name}"


def header(kind: str) -> Callable[[str, bytes], list[tuple[str, str]]]:
    """Make the function that checks whether MIOpen database files can be merged with each other.

    It raises InputError if MIOpen never looks for a user database of this ``kind`` under the name, or if the file is
    for fused operations.
    """

    def check(name: str, data: bytes) -> list[tuple[str, str]]:
        match = FILE_NAME.fullmatch(name)
        if match is None or match["kind"] != kind or not match["version"]:
            raise InputError(
                "the file's name does not state a device and build, as the name of a user database of MIOpen must"
            )
        if match["fusion"]:
            raise InputError(
                "the file has records of fusion plans, which cannot be merged; copy one of the files unchanged"
            )
        # Only files with the same name are merged.
        return [("name", name)]

    return check


def write(rows: Iterable[Offer], name: str, agreed: Mapping[str, str], gpus: int) -> list[Emission]:
    """Write the content of several MIOpen databases into one. It gets the file name that they all have."""
    return [Emission(name, bytes_of(lines(rows)), Shell("export MIOPEN_USER_DB_PATH={folder}"))]
