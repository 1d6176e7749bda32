"""One line of a MIOpen find-db, read plainly: the readable truth that ``find_db_columns`` is held to.

What becomes of an item (library behaviour: ROCm/MIOpen ``src/find_db.cpp``, ``src/db_record.cpp``):

==============================================  =====================================================
a time above 0                                  ``ok``, milliseconds × 1000 in ``time_us``
a time ≤ 0, not finite or no number             ``no_time``, no time; the text is in ``error``
fewer than 3 values, or the algorithm of        ``failed``: MIOpen throws ``Bad algorithm`` when it
another direction                               meets such an item
a repeated solver in a line, a repeated key     ``skipped``: MIOpen uses the first; both are kept
no ``:`` or no id; a blank in a solver's name;  a ``Reject`` of its own, as MIOpen drops the item; the
an older item (algorithm in front) without a    line's other items count
comma behind its workspace
==============================================  =====================================================

Blanks and a carriage return around a value are harmless: MIOpen reads values with ``>>``.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from logparse.formats.decimals import MS_TO_US, shifted
from logparse.formats.format import Outcome
from logparse.formats.miopen.problem_key import problem_from_key
from logparse.formats.miopen.solvers import ALGORITHMS
from logparse.formats.patterns import regex
from logparse.model import ConvProblem, Measurement, Record, Reject, Solution, Status

ORIGIN = "find-db"
DUPLICATE_KEY = "duplicate key: MIOpen uses the first record"
DUPLICATE_ID = "duplicate id: MIOpen uses the first item"
BLANKS = " \t\n\r\f\v"
"""What C++ counts as blanks."""
_BLANKS = frozenset(BLANKS)

_NUMBER = regex(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:nan|inf)", re.ASCII)
_BYTES = regex(r"\d{1,18}", re.ASCII)


def read_record(text: str) -> Outcome:
    """One line: a measurement per item, and a ``Reject`` where something cannot be read."""
    line = text.removesuffix("\r")
    if not line.strip():
        return Outcome("blank")
    key, equals, payload = line.partition("=")
    if not equals or not key:
        return Outcome("reject", [Reject("no key: a record is key=item;item")])
    try:
        problem = problem_from_key(key)
    except ValueError as error:
        return Outcome("reject", [Reject(str(error), 0, len(key))])
    records: list[Record] = []
    seen: set[str] = set()
    at = len(key) + 1
    items = payload.split(";")
    if items[-1] == "" and len(items) > 1:
        items.pop()
    for item in items:
        record = read_item(item, problem, key)
        if isinstance(record, Reject):
            records.append(replace(record, offset=at, length=len(item)))
        else:
            solver = record.solution.id
            records.append(replace(record, status="skipped", error=DUPLICATE_ID) if solver in seen else record)
            seen.add(solver)
        at += len(item) + 1
    measured = any(isinstance(record, Measurement) for record in records)
    return Outcome("measurement" if measured else "reject", records)


def read_item(item: str, problem: ConvProblem, key: str, origin: str = ORIGIN) -> Measurement | Reject:
    """One item of a record: a solver's time for the problem of ``key``."""
    id, colon, rest = item.partition(":")
    values = rest.split(",")
    v1 = id in ALGORITHMS
    solver = values.pop(0) if v1 else id
    if not colon or not solver:
        return Reject("an item without id or ':'")
    if not _BLANKS.isdisjoint(solver):
        return Reject("a blank in the solver's name: MIOpen knows no such solver")
    if v1 and len(values) < 3:
        return Reject("an item with the algorithm in front, without a comma behind its workspace: ill-formed to MIOpen")
    fields = [x.strip(BLANKS) for x in values]
    milliseconds, workspace, algorithm = (*fields[:2], *([id] if v1 else fields[2:3]), *("",) * 3)[:3]
    status: Status
    status, error, time_us = "ok", None, None
    if len(values) < 3:
        status, error = "failed", "too few values: MIOpen throws Bad algorithm"
    elif ALGORITHMS.get(algorithm) != problem.direction:
        status, error = "failed", f"MIOpen throws Bad algorithm: {algorithm}"
    else:
        time_us = read_time(milliseconds)
        if time_us is None:
            status, error = "no_time", no_time(milliseconds)
    return Measurement(
        problem=problem,
        solution=Solution("miopen", solver, solver, algorithm or None),
        origin=origin,
        status=status,
        time_us=time_us,
        workspace_bytes=int(workspace) if _BYTES.fullmatch(workspace) else None,
        error=error,
        key_text=key,
    )


def read_time(milliseconds: str) -> float | None:
    """Microseconds; None for what is no time above 0."""
    if _NUMBER.fullmatch(milliseconds) and 0 < float(milliseconds) < math.inf:
        return shifted(milliseconds, MS_TO_US)
    return None


def no_time(milliseconds: str) -> str:
    """Why an item has no time."""
    return f"time is {milliseconds} ms"
