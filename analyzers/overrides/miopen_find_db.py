"""What can be wrong with a MIOpen find-db, and which of its items MIOpen reads, matches and honours.

A user file is found by its name alone; a file of another name is ignored without a word.  Keys are compared as text.  A
row here is one item (solver) of a record.

Source: ROCm/MIOpen ``src/db_record.cpp``, ``src/find_db.cpp``, ``src/conv/problem_description.cpp``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from analyzers.evidence.target import Facts, arch
from analyzers.overrides.rules import Note, OverrideFile, Row, Rule, Rules, Verdicts, judge, text_of
from logparse.errors import EmissionError
from logparse.formats.miopen import find_db
from logparse.formats.miopen.find_db_record import read_item
from logparse.formats.miopen.problem_key import is_key, key_of, problem_from_key
from logparse.formats.miopen.solvers import ALGORITHMS, TUNABLE, direction_of_solver, known_algorithm
from logparse.model import ConvProblem, Measurement, Problem

_MOST = 10
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z")
_REFIND = "let MIOpen find it again on the target (MIOPEN_FIND_MODE=1), or let `logparse recommend` write the file"
_COPY = "write it with LF line ends"


@dataclass(frozen=True)
class Item:
    """One item of a record: ``id:values``; ``first`` is the line of the record that wins, where it is another one."""

    line: int
    key: str
    problem: ConvProblem | None
    text: str
    solver: str
    values: tuple[str, ...]  # ms, workspace, algorithm
    first: int | None
    repeated: bool


@dataclass(frozen=True)
class _Context:
    target: Facts


# -------------------------------------------------------------------------------------------------- rules about items


def _shadowed(item: Item, context: _Context) -> str | None:
    return None if item.first is None else f"the key stands in line {item.first} already and the first record wins"


def _no_item(item: Item, context: _Context) -> str | None:
    return None if ":" in item.text and item.solver else f"no 'solver:values' in {item.text[:60]!r}"


def _repeated(item: Item, context: _Context) -> str | None:
    return f"{item.solver} stands in the record already, the first item wins" if item.repeated else None


def _bad_key(item: Item, context: _Context) -> str | None:
    if item.key.startswith("\ufeff"):
        return "a byte order mark stands before the key"
    if not is_key(item.key):
        return f"MIOpen makes no key like {item.key[:80]!r}"
    return None


def _spelling(item: Item, context: _Context) -> str | None:
    own = key_of(item.problem) if item.problem is not None else None
    return f"MIOpen spells the key {own}" if own is not None and own != item.key else None


def _few_values(item: Item, context: _Context) -> str | None:
    if _no_item(item, context) or len(item.values) >= 3:
        return None
    return f"{len(item.values)} values: MIOpen throws Bad algorithm when it meets the item"


def _algorithm(item: Item, context: _Context) -> str | None:
    if len(item.values) < 3 or item.problem is None:
        return None
    name = item.values[2]
    if name.endswith("\r"):
        return "the line ends in a carriage return, which becomes part of the algorithm: MIOpen throws Bad algorithm"
    direction = ALGORITHMS.get(name)
    if direction is None:
        return f"MIOpen knows no algorithm {name!r} and throws Bad algorithm"
    if direction != item.problem.direction:
        return f"{name} in a record of direction {item.problem.direction}: MIOpen throws Bad algorithm"
    return None


def _solver_direction(item: Item, context: _Context) -> str | None:
    direction = direction_of_solver(item.solver)
    if item.problem is None or direction in (None, item.problem.direction):
        return None
    return f"{item.solver} is a solver of direction {direction}, the record is of {item.problem.direction}"


def _unknown_solver(item: Item, context: _Context) -> str | None:
    if _no_item(item, context) or known_algorithm(item.solver) is not None:
        return None
    return f"{item.solver} does not look like a solver: MIOpen ignores names that it does not know"


def _time(item: Item, context: _Context) -> str | None:
    if not item.values or (_NUMBER.match(item.values[0]) and float(item.values[0]) > 0):
        return None
    if not _NUMBER.match(item.values[0]):
        return f"the time {item.values[0]!r} is no number, is read as 0 and sorts before every other"
    return f"a time of {item.values[0]} ms: MIOpen ranks by it"


def _workspace(item: Item, context: _Context) -> str | None:
    if len(item.values) < 2 or item.values[1].isdigit():
        return None
    return f"the workspace {item.values[1]!r} is no number of bytes, and MIOpen checks it"


def _default_parameters(item: Item, context: _Context) -> str | None:
    if not TUNABLE.match(item.solver):
        return None
    return f"{item.solver} is tunable: it runs at default parameters unless the perf-db has a row for the problem too"


ROW_RULES: tuple[Rule[Item, _Context], ...] = (
    Rule("duplicate", "error", "read", _shadowed, "`logparse merge` keeps the fastest item of each solver"),
    Rule("item", "error", "read", _no_item, _REFIND),
    Rule("duplicate", "warning", "read", _repeated, "remove it"),
    Rule("bad-key", "error", "matched", _bad_key, _REFIND),
    Rule("key-spelling", "error", "matched", _spelling, _REFIND),
    Rule("few-values", "error", "honoured", _few_values, _REFIND),
    Rule("algorithm", "error", "honoured", _algorithm, _REFIND),
    Rule("solver-direction", "error", "honoured", _solver_direction, _REFIND),
    Rule("unknown-solver", "warning", None, _unknown_solver, _REFIND),
    Rule("time", "warning", None, _time, _REFIND),
    Rule("workspace", "error", None, _workspace, "copy it from a measured record"),
    Rule("default-parameters", "info", None, _default_parameters, "ship the .udb.txt rows with it"),
)


# ------------------------------------------------------------------------------------------------------- the file


@dataclass(frozen=True)
class Part:
    """One ``id:…`` of a record; ``winner`` is the line of an earlier record of the same key, if there is one."""

    line: int
    key: str
    problem: ConvProblem | None
    text: str
    id: str
    rest: str | None
    winner: int | None
    repeated: bool


def parts_of(text: str, problem_of: Callable[[str], ConvProblem]) -> Iterator[Part]:
    """The parts of every record of a MIOpen database, in order.  Lines without key or ``=`` give none."""
    first: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        key, equals, payload = line.partition("=")
        if not equals or not key:
            continue
        winner = first.setdefault(key, number)
        try:
            problem = problem_of(key)
        except ValueError:
            problem = None
        seen: set[str] = set()
        parts = payload.split(";")
        for part in parts[:-1] if len(parts) > 1 and not parts[-1].strip() else parts:
            id, colon, rest = part.partition(":")
            shadowed = winner if winner != number else None
            yield Part(number, key, problem, part, id, rest if colon else None, shadowed, id in seen)
            seen.add(id)


def items(text: str) -> Iterator[Item]:
    """Every item of every record, in order (see also ``_line_notes``)."""
    for part in parts_of(text, problem_from_key):
        values = part.rest.split(",") if part.rest is not None else []
        v1 = part.id in ALGORITHMS and bool(values)
        solver = values.pop(0) if v1 else part.id if part.rest is not None else ""
        if v1:
            values = [*values[:2], part.id] if len(values) >= 2 else values
        yield Item(part.line, part.key, part.problem, part.text, solver, tuple(values), part.winner, part.repeated)


def _line_notes(text: str) -> Iterator[Note]:
    for number, line in enumerate(text.split("\n"), start=1):
        key, equals, payload = line.partition("=")
        if line.strip() and (not equals or not key):
            yield Note(number, "error", "no-key", "no 'key=' in the line: MIOpen skips it with an error", "remove it")
        elif payload.count(";") >= _MOST:
            message = f"more than {_MOST} solvers: PyTorch's immediate mode aborts above {_MOST} usable ones"
            yield Note(number, "warning", "too-many", message, "keep the fastest few")


def _name_notes(name: str, target: Facts) -> Iterator[Note]:
    match = find_db.FILE_NAME.fullmatch(name)
    if match is None or match["kind"] not in ("ufdb", "fdb"):
        message = f"{name} is no name under which MIOpen looks for a find-db"
        yield Note(None, "error", "file-name", message, _wanted(target))
        return
    if match["kind"] == "ufdb" and not match["version"]:
        message = f"{name} has no version: MIOpen looks for <device>.HIP.<version>_<build>.ufdb.txt"
        yield Note(None, "error", "file-name", message, _wanted(target))
    own = {fact.name: fact.value for fact in find_db.facts_of_name(name)}
    theirs = {**target, "arch": arch(target) or ""}
    own["arch"] = arch(own) or ""
    wrong = [
        f"{word} {own[word]} (target: {theirs[word]})"
        for word in ("arch", "cu_count", "backend", "miopen_version", "miopen_tweak")
        if own.get(word) and theirs.get(word) and own[word] != theirs[word]
    ]
    if wrong:
        message = f"the name is of another device or build, the target's MIOpen never opens it: {', '.join(wrong)}"
        yield Note(None, "error", "file-name", message, _wanted(target))
    if match["kind"] == "ufdb" and match["version"] == "3_3_0":
        yield Note(None, "warning", "biased-times", find_db.BIASED, "find again with a later MIOpen")


def _wanted(target: Facts) -> str:
    try:
        return f"name it {find_db.file_name(target)}"
    except EmissionError:
        return "take the name from the line 'File is unreadable' of a MIOpen log of level 5"


def inspect(name: str, data: bytes, target: Facts) -> OverrideFile:
    """Judge the file for a target; without facts of one its name is taken to be right where it is one at all."""
    text, bom = text_of(data)
    text = "\ufeff" * bom + text
    notes = [*_name_notes(name, target), *_line_notes(text)]
    own = {fact.name: fact.value for fact in find_db.facts_of_name(name)}
    ignored = any(note.rule == "file-name" for note in notes)
    known = all(target.get(word) for word in ("arch", "cu_count", "miopen_version", "miopen_tweak"))
    accepted = False if ignored else True if known else None
    if not text.strip("\ufeff\r\n "):
        notes.append(Note(None, "error", "empty", "no record in the file", _REFIND))
    rows = []
    for item in items(text):
        refusal = "MIOpen never opens a file of this name"
        judged, more = judge(item.line, item, _Context(target), ROW_RULES, accepted, refusal)
        notes += more
        rows.append(_row(item, judged))
    return OverrideFile(
        format="miopen-find-db",
        name=name,
        accepted=accepted,
        facts=own,
        target=target,
        rows=tuple(rows),
        notes=tuple(sorted(notes, key=lambda note: note.line or 0)),
    )


def _row(item: Item, judged: Verdicts) -> Row:
    record = read_item(item.text, item.problem, item.key) if item.problem is not None else None
    known = record if isinstance(record, Measurement) else None
    return Row(
        line=item.line,
        key=item.key,
        problem=item.problem,
        solution=known.solution if known else None,
        time_us=known.time_us if known else None,
        workspace_bytes=known.workspace_bytes if known else None,
        verdicts=judged,
    )


def key(problem: Problem, target: Facts) -> str | None:
    """The find-db key of a call."""
    return find_db.key(problem, target)


RULES = Rules(
    format="miopen-find-db",
    kinds=frozenset({"conv"}),
    recognise=find_db.recognise,
    inspect=inspect,
    key=key,
    fastest=True,
)
