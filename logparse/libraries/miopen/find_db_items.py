"""Check each entry of a MIOpen find-db: does MIOpen read it, match it with convolutions and use it?

An entry (item) is one solver with its time in a record.  Every reader of a find-db uses this module: ``lint`` and
``coverage`` to judge entries, ``ingest`` for measurements.  An entry that MIOpen does not use becomes a measurement
with the status ``skipped``, the reason and no time.  An entry without a solver is a ``Reject``.

MIOpenDriver's search (Find) and immediate mode (a choice without a search) treat two faults differently:

========================================  =================  ==============================
fault                                     search             immediate mode
========================================  =================  ==============================
the item's algorithm is not its solver's  runs ``UNKNOWN``   does not look at the algorithm
negative time                             counts as no time  ranks by the time
========================================  =================  ==============================

Here an entry is judged as the search does.  Blanks and a carriage return around a value are harmless, because MIOpen
reads values with ``>>``.

Source: ROCm/MIOpen ``src/db_record.cpp``, ``src/find_db.cpp``, ``src/conv/problem_description.cpp``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from logparse.libraries.kinds.decimals import microseconds
from logparse.libraries.kinds.format import Outcome
from logparse.libraries.kinds.reading import Breach, Row, Rule, Verdicts, judge, parse_whole_number, why_unused
from logparse.libraries.miopen import records as miopen_records
from logparse.libraries.miopen.problem_key import is_key, key_of, problem_from_key
from logparse.libraries.miopen.records import Item, items_of
from logparse.libraries.miopen.solvers import (
    ALGORITHMS,
    TUNABLE,
    algorithm_name,
    is_registered,
    known_algorithm,
)
from logparse.model import ConvProblem, Direction, Measurement, Reject, Solution, fault
from logparse.target import Facts

ORIGIN = "find-db"
DUPLICATE_KEY = "the record has the key of an earlier record, and MIOpen uses the first record of a key"
REFIND = "let MIOpen search again on the target (MIOPEN_FIND_MODE=1), or let `logparse recommend` write the file"
BLANKS = " \t\n\r\f\v"
"""The characters that C++ treats as white space."""
# Memory of an MI355X, bytes.  MIOpen allocates the workspace that a row states, so a larger workspace fails.
_MOST_MEMORY = 288 * 10**9
_PLAIN = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z")
_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d*)?)", re.ASCII)
_BYTES = re.compile(r"\d{1,18}\Z", re.ASCII)


# -------------------------------------------------------------------------------------------------- rules about items


def _bad_key(item: Item, target: Facts) -> str | None:
    if item.key.startswith("\ufeff"):
        return "the line has a byte order mark before its key"
    if not is_key(item.key):
        return f"MIOpen makes no key like {item.key[:80]!r}"
    return None


def _spelling(item: Item, target: Facts) -> str | None:
    return f"MIOpen spells the key {item.spelled}" if item.spelled else None


def _few_values(item: Item, target: Facts) -> str | None:
    if not item.solver or len(item.values) >= 3 or _old_form(item):
        return None
    return f"the item has {len(item.values)} values, so MIOpen throws Bad algorithm when it reads the item"


def _old_form(item: Item) -> bool:
    """Return True if an entry of MIOpen's solver database has the older form, which begins with the algorithm."""
    return item.text.partition(":")[0] in ALGORITHMS


def _ill_formed(item: Item, target: Facts) -> str | None:
    if not _old_form(item) or item.text.count(",") >= 3:
        return None
    return (
        "the item has MIOpen's older form (the algorithm comes first), but no comma follows its workspace size, so "
        "MIOpen ignores the item"
    )


def _blank_in_name(item: Item, target: Facts) -> str | None:
    if set(BLANKS).isdisjoint(item.solver):
        return None
    return f"the solver's name {item.solver!r} contains a blank, and MIOpen knows no such solver"


def _other_family(item: Item, target: Facts) -> str | None:
    family = known_algorithm(item.solver) if is_registered(item.solver) else None
    if family is None or item.problem is None or len(item.values) < 3 or _algorithm(item, target):
        return None
    name, own = item.values[2].strip(BLANKS), algorithm_name(family, item.problem.direction)
    if name == own or own not in ALGORITHMS:
        return None
    return (
        f"the item lists {item.solver} under {name}, but this solver's algorithm is {own}: MIOpen may run UNKNOWN, a "
        "solution that does not exist"
    )


def _algorithm(item: Item, target: Facts) -> str | None:
    if len(item.values) < 3 or item.problem is None:
        return None
    name = item.values[2].strip(BLANKS)  # MIOpen reads the name with >>, which skips blanks.
    direction = ALGORITHMS.get(name)
    if direction is None:
        return f"MIOpen does not know the algorithm {name!r} and throws Bad algorithm"
    if direction != item.problem.direction:
        return (
            f"the item names {name} in a record of direction {item.problem.direction}, so MIOpen throws Bad algorithm"
        )
    return None


def _thrown(item: Item, target: Facts) -> str | None:
    """Return a message if MIOpen cannot use a database entry because another entry of the same record is bad."""
    if not item.thrown or item.thrown == item.text:
        return None
    # MIOpen converts the algorithms of all solvers of a record before it uses any of them. A bad algorithm makes it
    # throw an exception, so it can use no solver of the record.
    return f"MIOpen throws Bad algorithm because of another item of the record: {item.thrown[:80]!r}"


def _us(text: str) -> float:
    """Return the time that an entry of MIOpen's solver database states, in µs.  0 if it states no number."""
    # The text is read in the same way as C++'s ``operator>>`` reads a float: only the number at its start counts.
    match = _NUMBER.match(text)
    return microseconds(match[1]) if match and match[1][-1] not in "eE+-" else 0.0


def _time(item: Item, target: Facts) -> str | None:
    if not item.values or _us(item.values[0]) != 0:
        return None
    if not _NUMBER.match(item.values[0]):
        return (
            f"the item's time {item.values[0]!r} is not a number; MIOpen reads 0, and sorts the item before all others"
        )
    return f"the item's time is {item.values[0]} ms, so MIOpen sorts the item before all others"


def _loose(item: Item, target: Facts) -> str | None:
    if not item.values or _us(item.values[0]) == 0 or _PLAIN.match(item.values[0]):
        return None
    return f"MIOpen reads the time {item.values[0]!r} as {_us(item.values[0]) / 1000:g}"


def _negative(item: Item, target: Facts) -> str | None:
    if not item.values or "-" not in item.values[0] or _us(item.values[0]) >= 0:
        return None
    return (
        f"the item's time is {item.values[0]} ms: MIOpen uses another solver with a time, or runs UNKNOWN if there is "
        "none"
    )


def _workspace(item: Item, target: Facts) -> str | None:
    if len(item.values) < 2 or (item.values[1].isascii() and item.values[1].isdigit()):
        return None
    return f"the item's workspace {item.values[1]!r} is not a number of bytes, but MIOpen checks the workspace"


def _beyond_memory(item: Item, target: Facts) -> str | None:
    space = item.values[1].strip(BLANKS) if len(item.values) > 2 else ""
    size = parse_whole_number(space)
    if not (space.isascii() and space.isdigit()) or (size is not None and size <= _MOST_MEMORY):
        return None
    shown = f"{size:,}" if size is not None else f"{space[:24]}{'…' * (len(space) > 24)}"
    return f"the item's workspace of {shown} bytes is more than the memory of any GPU, so MIOpen drops the solver"


def _default_parameters(item: Item, target: Facts) -> str | None:
    if not TUNABLE.match(item.solver):
        return None
    return (
        f"{item.solver} is tunable: it runs with default parameters unless the perf-db also has a row for this "
        "convolution"
    )


_COPY_WORKSPACE = (
    "correct the item's workspace: copy this solver's workspace size from a find-db line that MIOpen wrote"
)
RULES = (
    *miopen_records.rules(
        "values",
        "keep only one line with this key (`logparse merge` makes one line with the fastest time of each solver)",
        REFIND,
        (
            Rule("item", "error", "read", _ill_formed, REFIND),
            Rule("bad-key", "error", "matched", _bad_key, REFIND),
            Rule("key-spelling", "error", "matched", _spelling, REFIND),
            Rule("unknown-solver", "error", "honoured", _blank_in_name, REFIND),
            Rule("few-values", "error", "honoured", _few_values, REFIND),
            Rule(
                "workspace",
                "error",
                "honoured",
                _beyond_memory,
                _COPY_WORKSPACE,
            ),
            Rule("algorithm", "error", "honoured", _algorithm, REFIND),
            Rule("algorithm", "error", "honoured", _other_family, REFIND),
            Rule("algorithm", "error", "honoured", _thrown, "remove the item that this message quotes", fault=False),
        ),
    ),
    Rule("time", "warning", None, _time, REFIND, fault=True),
    Rule("time", "warning", None, _loose, REFIND),
    Rule("time", "error", "honoured", _negative, REFIND),
    Rule(
        "workspace",
        "error",
        None,
        _workspace,
        _COPY_WORKSPACE,
    ),
    Rule(
        "default-parameters",
        "info",
        None,
        _default_parameters,
        "give the target also the .udb.txt file, whose rows have the tuned parameters",
    ),
)


# -------------------------------------------------------------------------------------------------- what they become


def items(key: str, payload: str, problem: ConvProblem | None, line: int = 1, first: int = 1) -> Sequence[Item]:
    """Split a line of MIOpen's solver database (find-db) into its entries, one for each solver.

    ``first`` is the number of the first line with this key. Each entry also gets two texts about the whole line:

    * ``thrown`` is the entry at which MIOpen throws an exception.  It is empty if MIOpen throws none.
    * ``spelled`` is the key as MIOpen would spell it.  It is empty if the line already spells it so.
    """
    found = tuple(items_of(line, key, payload, first, problem, _split))
    own = key_of(problem) if problem is not None else None
    thrown = next((x.text for x in found if not _usual(x) and _makes_miopen_throw(x)), "")
    spelled = "" if own in (None, key) else own or ""
    return [replace(x, thrown=thrown, spelled=spelled) for x in found] if thrown or spelled else found


def _makes_miopen_throw(item: Item) -> bool:
    parsed = item.solver and not item.repeated and _ill_formed(item, {}) is None
    return bool(parsed and (_few_values(item, {}) or _algorithm(item, {})))


def _split(id: str, rest: str) -> tuple[str, Sequence[str]]:
    """Split an entry of MIOpen's solver database into the solver's name and its values.

    The values are milliseconds, workspace and algorithm. The older form has the algorithm in front and the solver
    behind it.
    """
    values = rest.split(",")
    if id not in ALGORITHMS:
        return id, values
    return values[0], [*values[1:3], id] if len(values) > 2 else values[1:]


def read_record(text: str) -> Outcome:
    """Read one line of find-db, the file in which MIOpen keeps the fastest solvers of each convolution.

    Returns the measured times of the solvers in this line.
    """
    # MIOpen ignores a line if an earlier line describes the same convolution, but this is not checked here.
    return miopen_records.read_record(text, problem_from_key, items, read_time)


def read_time(item: Item, problem: ConvProblem, origin: str = ORIGIN) -> Measurement | Reject:
    """Return the time of a solver from an entry of MIOpen's database, or the reason why the entry states no time.

    Returns a Reject if the entry names no solver.
    """
    alone = item.first is None and not (item.repeated or item.thrown or item.spelled)
    why = "" if alone and _usual(item) else why_unused(item, {}, RULES)
    if not item.solver:
        return Reject(why)
    time_us = 0.0 if why else _us(item.values[0])
    timed = 0 < time_us < math.inf
    return Measurement(
        problem=problem,
        solution=_solution(item),
        origin=origin,
        status="skipped" if why else "ok" if timed else "no_time",
        time_us=time_us if timed else None,
        workspace_bytes=None if why else _bytes(item),
        error=why or (None if timed else no_time(item.values[0].strip(BLANKS))),
        key_text=item.key,
    )


def no_time(milliseconds: str) -> str:
    """Return the message that the time in an entry of MIOpen's solver database cannot be used."""
    return f"time is {milliseconds} ms"


def row_of(item: Item, verdicts: Verdicts, breaches: tuple[Breach, ...]) -> Row:
    """Describe an entry of MIOpen's solver database: its solver, its time, and what MIOpen does with the entry."""
    values, text = [x.strip(BLANKS) for x in item.values[:3]], item.text.rstrip(BLANKS)
    named = item.solver and item.problem is not None
    return Row(
        line=item.line,
        key=item.key,
        problem=item.problem,
        solution=_solution(item) if named else None,
        time_us=_us(item.values[0]) if named and values and _us(item.values[0]) >= 0 else None,
        workspace_bytes=_bytes(item) if named else None,
        verdicts=verdicts,
        text=f"{item.solver}:{','.join(values)}" if len(values) == 3 else text,
        breaches=breaches,
    )


def _solution(item: Item) -> Solution:
    algorithm = item.values[2].strip(BLANKS) if len(item.values) > 2 else ""
    return Solution("miopen", item.solver, item.solver, algorithm or None)


def _bytes(item: Item) -> int | None:
    space = item.values[1].strip(BLANKS) if len(item.values) > 1 else ""
    return int(space) if _BYTES.match(space) else None


def _usual(item: Item) -> bool:
    """Check an entry of MIOpen's solver database quickly.  True means that the entry alone is certainly valid.

    False means that the rules have to decide, which is slower.
    """
    if item.problem is None or len(item.values) != 3 or (_old_form(item) and item.text.count(",") < 3):
        return False
    time, space, algorithm = item.values
    return bool(
        _PLAIN.match(time)
        and time[0] != "-"
        and _BYTES.match(space)
        and int(space) <= _MOST_MEMORY
        and is_usable(item.solver, algorithm, item.problem.direction)
    )


@lru_cache(maxsize=1 << 12)
def is_usable(solver: str, algorithm: str, direction: Direction) -> bool:
    """Return True if MIOpen would use a database entry with this solver, algorithm and direction.

    Only these three are checked. The numbers in the entry and the key of its record are assumed to be usual.
    """
    key, numbers = f"1-1-1-1x1-1-1-1-1-0x0-1x1-1x1-0-NCHW-FP32-{direction}", ("1", "0", algorithm)
    item = Item(1, key, problem_from_key(key), f"{solver}:{','.join(numbers)}", solver, numbers, None, False)
    plain = fault(Solution("miopen", solver, solver, algorithm)) is None
    return plain and solver not in ALGORITHMS and not judge(1, item, {}, RULES, True, "")[1]
