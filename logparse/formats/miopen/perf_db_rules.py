"""The member for MIOpen's perf-dbs in text: which items MIOpen reads and matches, and remarks on them.

A perf-db chooses no solver: its rows are the parameters at which a solver of the find-db runs.  The user's is found by
its name alone, as the find-db is; a row here is one item (solver) of a record.
Source: ROCm/MIOpen ``src/db_record.cpp``, ``src/ramdb.cpp``, ``src/conv/problem_description.cpp`` (``VisitAll``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from logparse.errors import InputError
from logparse.formats.miopen import find_db, perf_db
from logparse.formats.miopen import records as miopen_records
from logparse.formats.miopen.records import (
    Item,
    items,
    keyless,
    line_notes,
    odd_name,
    other_machine,
    unknown_solver,
    wanted,
)
from logparse.formats.miopen.solvers import TUNABLE
from logparse.formats.override_format import Merging, OverrideFormat
from logparse.formats.reading import Breach, Note, Reading, Row, Rule, Verdicts, text_of
from logparse.model import Solution
from logparse.target import Facts

SQLITE = b"SQLite format 3\0"
_NAME = re.compile(r"gfx\w+?\.db\.txt|gfx\w+?(?:_\d)*\.u?db")
_SIZE = r"(?:0|[1-9]\d*)"
# 2D problems have depth 1 and no pad, stride or dilation of it.
_KEYS = (
    re.compile(rf"2x(?:{_SIZE}x){{3}}1x(?:{_SIZE}x){{2}}1x(?:{_SIZE}x){{2}}(?:{_SIZE}x{_SIZE}x0x){{3}}.*", re.ASCII),
    re.compile(rf"3x(?:{_SIZE}x){{18}}.*", re.ASCII),
)
_LAYOUTS = frozenset({"NCHW", "NHWC", "CHWN", "NCHWc4", "NCHWc8", "CHWNc4", "CHWNc8", "NCDHW", "NDHWC"})
_PADDED = "Xdlops_Padded_Gemm"
"""Solvers that divide by their parameters 7 to 9 (factors by which M, N and K are padded) unchecked (MIOpen 3.5.1)."""
_NUMBER = re.compile(r"[ \t-\r]*[+-]?(?P<digits>\d+)", re.ASCII)
_RETUNE = "let MIOpen tune it on the target (MIOPEN_FIND_ENFORCE=3), or copy the row from a perf-db that it wrote"


# -------------------------------------------------------------------------------------------------- rules about items


def _bad_key(item: Item, target: Facts) -> str | None:
    if item.key.startswith("\ufeff"):
        return "a byte order mark stands before the key"
    if item.problem is None or not any(pattern.fullmatch(item.key) for pattern in _KEYS):
        return f"MIOpen makes no key like {item.key[:100]!r}"
    if item.key.split("x")[-3] not in _LAYOUTS:
        return f"MIOpen has no layout {item.key.split('x')[-3]}"
    return None


def _no_parameters(item: Item, target: Facts) -> str | None:
    if not item.solver or item.values[0].strip():
        return None
    return f"no parameters for {item.solver}: MIOpen warns of an invalid config and runs it at its defaults"


def _crash(item: Item, target: Facts) -> str | None:
    """A message if MIOpen may divide by a parameter that it reads as 0.

    It reads cells as ``strtol`` does into an int, up to the first one without a number, which is 0 unless it is empty.
    """
    if not item.solver.endswith(_PADDED):
        return None
    for number, cell in enumerate(item.values[0].split(",")[:9], start=1):
        found = _NUMBER.match(cell)
        digits = found["digits"].lstrip("0") if found else ""
        if number >= 7 and cell and (not digits or (len(digits) < 19 and int(digits) % (1 << 32) == 0)):
            return f"parameter {number} of {item.solver} is 0: MIOpen divides by it, which may end the process"
        if not found:
            return None
    return None


def _line_end(item: Item, target: Facts) -> str | None:
    return (
        "the line ends in a carriage return, which becomes part of the parameters" if item.text[-1:] == "\r" else None
    )


def _not_tunable(item: Item, target: Facts) -> str | None:
    if unknown_solver(item, target) or not item.solver or TUNABLE.match(item.solver):
        return None
    return f"{item.solver} is not known to have parameters"


_RULES = (
    *miopen_records.rules(
        "parameters",
        "put both records' items into one",
        _RETUNE,
        (
            Rule("bad-key", "error", "matched", _bad_key, _RETUNE),
            Rule("parameters", "error", "honoured", _no_parameters, _RETUNE),
            Rule("crash", "error", "honoured", _crash, _RETUNE),
            Rule("line-ends", "error", None, _line_end, "write it with LF line ends"),
        ),
    ),
    Rule("not-tunable", "info", None, _not_tunable, ""),
)


# ------------------------------------------------------------------------------------------------------- the file


def _split(id: str, rest: str) -> tuple[str, Sequence[str]]:
    return id, (rest,)


def _refusals(name: str, target: Facts) -> Iterator[Note]:
    """Why MIOpen never opens a file of this name."""
    if perf_db.of_batch_norms(name):
        return
    match = find_db.FILE_NAME.fullmatch(name)
    user = match is not None and match["kind"] == "udb" and match["version"]
    if not user and not _NAME.fullmatch(name):
        message = f"{name} is no name under which MIOpen looks for a perf-db"
        yield Note(None, "error", "file-name", message, _wanted(target))
        return
    if match is not None and name.endswith(".udb.txt") and (why := odd_name(name, match)):
        yield Note(None, "error", "file-name", f"MIOpen looks for no file of this name: {why}", _wanted(target))
    own = {fact.name: fact.value for fact in perf_db.facts_of_file(name)}
    yield from other_machine(own, target, _wanted(target))
    if user and re.match(r"[012]\.|3\.[01]\.", own.get("miopen_version", "")):
        message = f"MIOpen {own['miopen_version']} keeps its perf-db in sqlite and reads no text (it does from 3.2 on)"
        yield Note(None, "error", "file-name", message, _RETUNE)


def _wanted(target: Facts) -> str:
    return wanted(target, "udb", "it has the name of the .ufdb.txt beside it, with .udb.txt at the end")


def read(name: str, data: bytes, target: Facts) -> Reading[Sequence[Item]]:
    """What MIOpen takes from the file; without facts of a target its name is taken to be right where it is one.

    A sqlite database has no rows here: MIOpen before 3.2 alone reads it.  Nor has one of batch normalisations.
    """
    own = {fact.name: fact.value for fact in perf_db.facts_of_file(name)}
    found = tuple(items(_text(name, data), perf_db.problem_from_perf_key, _split))
    return miopen_records.reading(name, own, target, list(_refusals(name, target)), found, _RULES, _row)


def _text(name: str, data: bytes) -> str:
    """The file as MIOpen reads it for convolutions: a byte order mark is part of the first key."""
    text, bom = text_of(b"" if data.startswith(SQLITE) or perf_db.of_batch_norms(name) else data)
    return "\ufeff" * bom + text


def remarks(name: str, data: bytes, reading: Reading[Sequence[Item]]) -> Iterator[Note]:
    """What else to know of a file and its items."""
    text = _text(name, data)
    yield from line_notes(keyless(text))
    if data.startswith(SQLITE):
        message = "a sqlite database: read by MIOpen before 3.2 only, its rows are not judged here"
        yield Note(None, "info", "sqlite", message, "`logparse ingest` reads it")
    elif perf_db.of_batch_norms(name):
        message = "the perf-db of batch normalisations, which MIOpen reads beside that of convolutions: not judged here"
        yield Note(None, "info", "batch-norm", message, "")
    elif not text.strip("\ufeff\r\n "):
        yield Note(None, "error", "empty", "no record in the file", _RETUNE)
    yield from miopen_records.remarks(reading, _RULES)


def _row(item: Item, verdicts: Verdicts, breaches: tuple[Breach, ...]) -> Row:
    text = item.text.rstrip("\r")
    return Row(
        line=item.line,
        key=item.key,
        problem=item.problem,
        solution=Solution("miopen", item.solver, text) if item.solver else None,
        verdicts=verdicts,
        text=text,
        breaches=breaches,
    )


def _header(name: str, data: bytes) -> list[tuple[str, str]]:
    if data.startswith(SQLITE):
        raise InputError("a sqlite database, as MIOpen before 3.2 keeps it: MIOpen itself merges those")
    if perf_db.of_batch_norms(name):
        raise InputError("parameters of batch normalisations, which are not merged: copy one of the files as it is")
    return miopen_records.header("udb")(name, data)


OVERRIDE_FORMAT = OverrideFormat(
    name=perf_db.FORMAT.name,
    kinds=frozenset({"conv"}),
    recognise=perf_db.recognise,
    reader=read,
    remarks=remarks,
    key=perf_db.key,
    compared=("miopen_version", "miopen_tweak"),
    selects=False,
    writer=perf_db.WRITER,
    lines=miopen_records.lines,
    keep_refusal=miopen_records.keep_refusal,
    merging=Merging(header=_header, write=miopen_records.write, slot=miopen_records.slot, in_order=True),
)
