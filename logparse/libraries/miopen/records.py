"""What MIOpen's find-db and perf-db have in common: lines ``key=id:values;id:values``, in files found by their name.

The name contains device and build; a file of another name is silently ignored.  Keys are compared as text, and of
several records of one key, or items of one solver in a record, the first wins.

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
    """One item of a record, split at its first ``:`` and at commas; ``solver`` is empty where there is no ``:``.

    ``first`` is the line of an earlier record of the key, ``repeated`` whether the record has an earlier item of the
    solver: either wins.  ``thrown`` is the item of the record at which the library throws, so that no item serves;
    ``spelled`` is the key as the library spells it, where that is another.
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
"""Id and values of an item → its solver and its values as the newest version of the format orders them."""


def items(text: str, problem_of: Callable[[str], ConvProblem], split: Split) -> Iterator[Item]:
    """The items of every record, in order.  Lines without key or ``=`` have none."""
    first: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        key, equals, payload = line.partition("=")
        if equals and key:
            problem = problem_or_none(problem_of, key)
            yield from items_of(number, key, payload, first.setdefault(key, number), problem, split)


def problem_or_none(problem_of: Callable[[str], ConvProblem], key: str) -> ConvProblem | None:
    """The problem of a key; None where the text cannot be read as one."""
    try:
        return problem_of(key)
    except ValueError:
        return None


def items_of(
    number: int, key: str, payload: str, first: int, problem: ConvProblem | None, split: Split
) -> Iterator[Item]:
    """The items of one record; ``first`` is the line of the first record of its key."""
    seen: set[str] = set()
    parts = payload.split(";")
    for part in parts[:-1] if len(parts) > 1 and not parts[-1].strip() else parts:
        id, colon, rest = part.partition(":")
        solver, values = split(id, rest) if colon else ("", ())
        other = first if first != number else None
        yield Item(number, key, problem, part, solver, tuple(values), other, bool(solver) and solver in seen)
        seen.add(solver)


def read_record(
    text: str,
    problem_of: Callable[[str], ConvProblem],
    items: Callable[[str, str, ConvProblem], Iterable[Item]],
    measured: Callable[[Item, ConvProblem], Measurement | Reject],
) -> Outcome:
    """One line: a measurement per item, and a ``Reject`` where something cannot be read."""
    line = text.removesuffix("\r")
    if not line.strip():
        return Outcome("blank")
    key, equals, payload = line.partition("=")
    if not equals or not key:
        return Outcome("reject", [Reject("no key: a record is key=item;item")])
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
    return None if item.first is None else f"the key stands in line {item.first} already and the first record wins"


def _repeated(item: Item, target: Facts) -> str | None:
    return f"{item.solver} stands in the record already, the first item wins" if item.repeated else None


def _solver_direction(item: Item, target: Facts) -> str | None:
    direction = direction_of_solver(item.solver) if is_registered(item.solver) else None
    if item.problem is None or direction in (None, item.problem.direction):
        return None
    return f"{item.solver} is a solver of direction {direction}, the record is of {item.problem.direction}"


def unknown_solver(item: Item, target: Facts) -> str | None:
    """A message if no MIOpen that is known here has a solver of this name: a newer one may have it."""
    if not item.solver or known_algorithm(item.solver) is not None:
        return None
    return f"{item.solver} is no solver that is known here: a MIOpen that does not know it either ignores the item"


_HAS = "a MIOpen log of level 6 from the target lists the solvers that it has"


def rules(about: str, shadowed: str, remedy: str, own: Sequence[Rule[Item, Facts]]) -> list[Rule[Item, Facts]]:
    """The rules of a database: those of both, and its own between what it reads and what it knows."""

    def no_item(item: Item, target: Facts) -> str | None:
        return None if item.solver else f"no 'solver:{about}' in {item.text[:60]!r}"

    return [
        Rule("duplicate", "error", "read", _shadowed, shadowed, fault=False),
        Rule("item", "error", "read", no_item, remedy),
        Rule("duplicate", "warning", "read", _repeated, "remove it"),
        *own,
        Rule("solver-direction", "error", "honoured", _solver_direction, remedy),
        Rule("unknown-solver", "info", None, unknown_solver, _HAS),
    ]


# ------------------------------------------------------------------------------------------------------- the file


def line_notes(keyless: Iterable[int]) -> Iterator[Note]:
    """Notes on lines without a key."""
    for number in keyless:
        yield Note(number, "error", "no-key", "no 'key=' in the line: MIOpen skips it with an error", "remove it")


# ----------------------------------------------------------------------------------------------- merged, kept, cut


def lines(rows: Iterable[Row | Offer]) -> list[str]:
    """One record per key, its items in the order of the rows."""
    records = in_groups(rows, lambda row: row.key)
    return [f"{key}={';'.join(row.text for row in held)}" for key, held in records.items()]


def cut(data: bytes, rows: Iterable[Row], keep: Keep) -> bytes:
    """The database with some of its items; a record without any of them is dropped with its line."""
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
    """Rows compete per solver: a record has several."""
    return f"{row.key}={row.id}"


def keep_refusal(own: OverrideFile, emitted: OverrideFile) -> str | None:
    """A file of another name is of another device or build."""
    return None if own.name == emitted.name else f"its name is of another device or build than {emitted.name}"


def header(kind: str) -> Callable[[str, bytes], list[tuple[str, str]]]:
    """What databases must agree on: their name, which must be one under which MIOpen looks for a user's ``kind``."""

    def check(name: str, data: bytes) -> list[tuple[str, str]]:
        match = FILE_NAME.fullmatch(name)
        if match is None or match["kind"] != kind or not match["version"]:
            raise InputError("its name does not name a device and build, as those of MIOpen's user databases do")
        if match["fusion"]:
            raise InputError("records of fusion plans, which are not merged: copy one of the files as it is")
        return [("name", name)]

    return check


def write(rows: Iterable[Offer], name: str, agreed: Mapping[str, str], gpus: int) -> list[Emission]:
    """The merged database under the name of all."""
    return [Emission(name, bytes_of(lines(rows)), Shell("export MIOPEN_USER_DB_PATH={folder}"))]
