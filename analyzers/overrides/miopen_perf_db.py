"""What can be wrong with a MIOpen perf-db in text, and which of its items MIOpen reads and matches.

A perf-db chooses no solver: its rows are the parameters at which a solver of the find-db runs.  The user's is found by
its name alone, as the find-db is; a row here is one item (solver) of a record.
Source: ROCm/MIOpen ``src/db_record.cpp``, ``src/ramdb.cpp``, ``src/conv/problem_description.cpp`` (``VisitAll``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from analyzers.evidence.target import Facts, arch
from analyzers.overrides.miopen_find_db import parts_of
from analyzers.overrides.rules import Note, OverrideFile, Row, Rule, Rules, judge, text_of
from logparse.errors import EmissionError
from logparse.formats.format import Head
from logparse.formats.miopen import find_db, perf_db
from logparse.formats.miopen.solvers import TUNABLE, direction_of_solver, known_algorithm
from logparse.model import ConvProblem, Solution

SQLITE = b"SQLite format 3\0"
_NAME = re.compile(r"gfx\w+?\.db\.txt|gfx\w+?(?:_\d)*\.u?db")
_SIZE = r"(?:0|[1-9]\d*)"
# 2D problems have depth 1 and no pad, stride or dilation of it.
_KEYS = (
    re.compile(rf"2x(?:{_SIZE}x){{3}}1x(?:{_SIZE}x){{2}}1x(?:{_SIZE}x){{2}}(?:{_SIZE}x{_SIZE}x0x){{3}}.*", re.ASCII),
    re.compile(rf"3x(?:{_SIZE}x){{18}}.*", re.ASCII),
)
_LAYOUTS = frozenset({"NCHW", "NHWC", "CHWN", "NCHWc4", "NCHWc8", "CHWNc4", "CHWNc8", "NCDHW", "NDHWC"})
_RETUNE = "let MIOpen tune it on the target (MIOPEN_FIND_ENFORCE=3), or copy the row from a perf-db that it wrote"


@dataclass(frozen=True)
class Item:
    """One item of a record; ``first`` is the line of the record that wins, where it is another one."""

    line: int
    key: str
    problem: ConvProblem | None
    text: str
    first: int | None
    repeated: bool

    @property
    def solver(self) -> str:
        return self.text.partition(":")[0] if ":" in self.text else ""

    @property
    def parameters(self) -> str:
        return self.text.partition(":")[2]


# -------------------------------------------------------------------------------------------------- rules about items


def _shadowed(item: Item, context: None) -> str | None:
    return None if item.first is None else f"the key stands in line {item.first} already and the first record wins"


def _no_item(item: Item, context: None) -> str | None:
    return None if item.solver else f"no 'solver:parameters' in {item.text[:60]!r}"


def _repeated(item: Item, context: None) -> str | None:
    return f"{item.solver} stands in the record already, the first item wins" if item.repeated else None


def _bad_key(item: Item, context: None) -> str | None:
    if item.key.startswith("\ufeff"):
        return "a byte order mark stands before the key"
    if item.problem is None or not any(pattern.fullmatch(item.key) for pattern in _KEYS):
        return f"MIOpen makes no key like {item.key[:100]!r}"
    if item.key.split("x")[-3] not in _LAYOUTS:
        return f"MIOpen has no layout {item.key.split('x')[-3]}"
    return None


def _no_parameters(item: Item, context: None) -> str | None:
    if not item.solver or item.parameters.strip():
        return None
    return f"no parameters for {item.solver}: MIOpen warns of an invalid config and runs it at its defaults"


def _line_end(item: Item, context: None) -> str | None:
    return (
        "the line ends in a carriage return, which becomes part of the parameters" if item.text[-1:] == "\r" else None
    )


def _solver_direction(item: Item, context: None) -> str | None:
    direction = direction_of_solver(item.solver)
    if item.problem is None or direction in (None, item.problem.direction):
        return None
    return f"{item.solver} is a solver of direction {direction}, the record is of {item.problem.direction}"


def _unknown_solver(item: Item, context: None) -> str | None:
    if not item.solver or known_algorithm(item.solver) is not None:
        return None
    return f"{item.solver} does not look like a solver: MIOpen never asks for its parameters"


def _not_tunable(item: Item, context: None) -> str | None:
    if _unknown_solver(item, context) or not item.solver or TUNABLE.match(item.solver):
        return None
    return f"{item.solver} is not known to have parameters"


ROW_RULES: tuple[Rule[Item, None], ...] = (
    Rule("duplicate", "error", "read", _shadowed, "put both records' items into one"),
    Rule("item", "error", "read", _no_item, _RETUNE),
    Rule("duplicate", "warning", "read", _repeated, "remove it"),
    Rule("bad-key", "error", "matched", _bad_key, _RETUNE),
    Rule("parameters", "error", "honoured", _no_parameters, _RETUNE),
    Rule("line-ends", "error", None, _line_end, "write it with LF line ends"),
    Rule("solver-direction", "error", "honoured", _solver_direction, _RETUNE),
    Rule("unknown-solver", "warning", None, _unknown_solver, _RETUNE),
    Rule("not-tunable", "info", None, _not_tunable, ""),
)


# ------------------------------------------------------------------------------------------------------- the file


def items(text: str) -> Iterator[Item]:
    """Every item of every record, in order."""
    for part in parts_of(text, perf_db.problem_from_perf_key):
        yield Item(part.line, part.key, part.problem, part.text, part.winner, part.repeated)


def _line_notes(text: str) -> Iterator[Note]:
    for number, line in enumerate(text.split("\n"), start=1):
        key, equals, _ = line.partition("=")
        if line.strip() and (not equals or not key):
            yield Note(number, "error", "no-key", "no 'key=' in the line: MIOpen skips it with an error", "remove it")


def _name_notes(name: str, target: Facts) -> Iterator[Note]:
    match = find_db.FILE_NAME.fullmatch(name)
    user = match is not None and match["kind"] == "udb" and match["version"]
    if not user and not _NAME.fullmatch(name):
        message = f"{name} is no name under which MIOpen looks for a perf-db"
        yield Note(None, "error", "file-name", message, _wanted(target))
        return
    own = {fact.name: fact.value for fact in perf_db.facts_of_file(name)}
    theirs = {**target, "arch": arch(target) or ""}
    own["arch"] = arch(own) or ""
    words = ("arch", "cu_count", "backend", "miopen_version", "miopen_tweak")
    wrong = [x for x in words if own.get(x) and theirs.get(x) and own[x] != theirs[x]]
    if wrong:
        said = ", ".join(f"{x} {own[x]} (target: {theirs[x]})" for x in wrong)
        message = f"the name is of another device or build, the target's MIOpen never opens it: {said}"
        yield Note(None, "error", "file-name", message, _wanted(target))
    if user and re.match(r"[012]\.|3\.[01]\.", own.get("miopen_version", "")):
        message = f"MIOpen {own['miopen_version']} keeps its perf-db in sqlite and reads no text (it does from 3.2 on)"
        yield Note(None, "error", "file-name", message, _RETUNE)


def _wanted(target: Facts) -> str:
    try:
        return f"name it {find_db.file_name(target, 'udb')}"
    except EmissionError:
        return "it has the name of the .ufdb.txt beside it, with .udb.txt at the end"


def recognise(head: Head) -> bool:
    """As the format does, sqlite files too (they are judged by their name alone)."""
    return perf_db.recognise(head)


def inspect(name: str, data: bytes, target: Facts) -> OverrideFile:
    """Judge the file for a target; without facts of one its name is taken to be right where it is one at all."""
    text, bom = text_of(b"" if data.startswith(SQLITE) else data)
    text = "\ufeff" * bom + text
    notes = [*_name_notes(name, target), *_line_notes(text)]
    if data.startswith(SQLITE):
        message = "a sqlite database: read by MIOpen before 3.2 only, its rows are not judged here"
        notes.append(Note(None, "info", "sqlite", message, "`logparse ingest` reads it"))
    elif not text.strip("\ufeff\r\n "):
        notes.append(Note(None, "error", "empty", "no record in the file", _RETUNE))
    ignored = any(note.rule == "file-name" for note in notes)
    known = all(target.get(word) for word in ("arch", "cu_count", "miopen_version", "miopen_tweak"))
    accepted = False if ignored else True if known else None
    rows = []
    for item in items(text):
        judged, more = judge(item.line, item, None, ROW_RULES, accepted, "MIOpen never opens a file of this name")
        notes += more
        solution = Solution("miopen", item.solver, item.parameters) if item.solver else None
        rows.append(Row(line=item.line, key=item.key, problem=item.problem, solution=solution, verdicts=judged))
    return OverrideFile(
        format=perf_db.FORMAT.name,
        name=name,
        accepted=accepted,
        facts={fact.name: fact.value for fact in perf_db.facts_of_file(name)},
        target=target,
        rows=tuple(rows),
        notes=tuple(sorted(notes, key=lambda note: note.line or 0)),
    )


RULES = Rules(
    format=perf_db.FORMAT.name,
    kinds=frozenset({"conv"}),
    recognise=recognise,
    inspect=inspect,
    key=perf_db.key,
    selects=False,
)
