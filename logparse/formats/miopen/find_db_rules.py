"""The member for MIOpen's find-dbs: which items MIOpen reads, matches and honours, and remarks on them.

A row here is one item (solver) of a record; ``miopen_records`` has what find-db and perf-db share.

A search (Find) as MIOpenDriver makes it runs ``UNKNOWN`` where an item's algorithm is not its solver's, and takes a
negative time for none; the immediate mode does not look at the former and ranks by the latter.  An item is judged by
what the search does.

Source: ROCm/MIOpen ``src/db_record.cpp``, ``src/find_db.cpp``, ``src/conv/problem_description.cpp``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby

from logparse.formats.format import Emission
from logparse.formats.miopen import find_db
from logparse.formats.miopen import records as miopen_records
from logparse.formats.miopen.find_db_file import FindDbFile, Judged
from logparse.formats.miopen.find_db_record import BLANKS, read_item
from logparse.formats.miopen.problem_key import is_key, key_of, problem_from_key
from logparse.formats.miopen.records import Item, items_of, line_notes, odd_name, other_machine, wanted
from logparse.formats.miopen.solvers import ALGORITHMS, TUNABLE, algorithm_name, known_algorithm
from logparse.formats.override_format import Merging, OverrideFormat
from logparse.formats.reading import Breach, Note, Offer, Reading, Row, Rule, Verdicts, judge, whole
from logparse.formats.reading import remarks as row_remarks
from logparse.model import ConvProblem, Measurement
from logparse.target import Facts

_MOST = 10
_MOST_MEMORY = 288 * 10**9  # of an MI355X; MIOpen provides the workspace that a row states
_PLAIN = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z")
_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d*)?)", re.ASCII)
_REFIND = "let MIOpen find it again on the target (MIOPEN_FIND_MODE=1), or let `logparse recommend` write the file"


# -------------------------------------------------------------------------------------------------- rules about items


def _bad_key(item: Item, target: Facts) -> str | None:
    if item.key.startswith("\ufeff"):
        return "a byte order mark stands before the key"
    if not is_key(item.key):
        return f"MIOpen makes no key like {item.key[:80]!r}"
    return None


@lru_cache(maxsize=1)  # the items of a record follow each other
def _own_key(problem: ConvProblem) -> str | None:
    return key_of(problem)


def _spelling(item: Item, target: Facts) -> str | None:
    own = _own_key(item.problem) if item.problem is not None else None
    return f"MIOpen spells the key {own}" if own is not None and own != item.key else None


def _few_values(item: Item, target: Facts) -> str | None:
    if not item.solver or len(item.values) >= 3 or _old_form(item):
        return None
    return f"{len(item.values)} values: MIOpen throws Bad algorithm when it meets the item"


def _old_form(item: Item) -> bool:
    """Whether it is an item of the older form, which has its algorithm in front."""
    return item.text.partition(":")[0] in ALGORITHMS


def _ill_formed(item: Item, target: Facts) -> str | None:
    if not _old_form(item) or item.text.count(",") >= 3:
        return None
    return "an item with the algorithm in front needs a comma behind its workspace: MIOpen drops it as ill-formed"


def _blank_in_name(item: Item, target: Facts) -> str | None:
    if set(BLANKS).isdisjoint(item.solver):
        return None
    return f"a blank in the solver's name {item.solver!r}: MIOpen knows no such solver"


def _other_family(item: Item, target: Facts) -> str | None:
    family = known_algorithm(item.solver)
    if family is None or item.problem is None or len(item.values) < 3 or _algorithm(item, target):
        return None
    name, own = item.values[2].strip(BLANKS), algorithm_name(family, item.problem.direction)
    if name == own or own not in ALGORITHMS:
        return None
    return f"{item.solver} under {name}, its own is {own}: MIOpen may run UNKNOWN, a solution that it does not find"


def _algorithm(item: Item, target: Facts) -> str | None:
    if len(item.values) < 3 or item.problem is None:
        return None
    name = item.values[2].strip(BLANKS)  # MIOpen reads it with >>
    direction = ALGORITHMS.get(name)
    if direction is None:
        return f"MIOpen knows no algorithm {name!r} and throws Bad algorithm"
    if direction != item.problem.direction:
        return f"{name} in a record of direction {item.problem.direction}: MIOpen throws Bad algorithm"
    return None


def _thrown(item: Item, target: Facts) -> str | None:
    """MIOpen converts the algorithms of all items of a record before it uses any."""
    if not item.thrown or item.thrown == item.text:
        return None
    return f"MIOpen throws Bad algorithm at another item of the record: {item.thrown[:80]!r}"


def _with_thrown(found: Sequence[Item], target: Facts) -> Iterator[Item]:
    """The items with the one of their record, of those that MIOpen parses, at which it throws."""
    thrown: dict[int, str] = {}
    for item in found:
        parsed = item.solver and not item.repeated and _ill_formed(item, target) is None
        if parsed and (_few_values(item, target) or _algorithm(item, target)):
            thrown.setdefault(item.line, item.text)
    return (replace(item, thrown=thrown.get(item.line, "")) for item in found)


def _ms(text: str) -> float:
    """The time as ``operator>>`` reads a float: as far as it is a number, 0 if it does not begin with one."""
    match = _NUMBER.match(text)
    return float(match[1]) if match and match[1][-1] not in "eE+-" else 0.0


def _time(item: Item, target: Facts) -> str | None:
    ms = _ms(item.values[0]) if item.values else math.inf
    if ms != 0:
        return None
    if not _NUMBER.match(item.values[0]):
        return f"the time {item.values[0]!r} is no number, is read as 0 and sorts before every other"
    return f"a time of {item.values[0]} ms sorts before every other"


def _loose(item: Item, target: Facts) -> str | None:
    if not item.values or _ms(item.values[0]) == 0 or _PLAIN.match(item.values[0]):
        return None
    return f"the time {item.values[0]!r} is read as {_ms(item.values[0]):g}"


def _negative(item: Item, target: Facts) -> str | None:
    if not item.values or _ms(item.values[0]) >= 0:
        return None
    return (
        f"a time of {item.values[0]} ms: MIOpen takes a solver with a time instead, and runs UNKNOWN where none is left"
    )


def _workspace(item: Item, target: Facts) -> str | None:
    if len(item.values) < 2 or (item.values[1].isascii() and item.values[1].isdigit()):
        return None
    return f"the workspace {item.values[1]!r} is no number of bytes, and MIOpen checks it"


def _beyond_memory(item: Item, target: Facts) -> str | None:
    space = item.values[1].strip(BLANKS) if len(item.values) > 2 else ""
    size = whole(space)
    if not (space.isascii() and space.isdigit()) or (size is not None and size <= _MOST_MEMORY):
        return None
    shown = f"{size:,}" if size is not None else f"{space[:24]}{'…' * (len(space) > 24)}"
    return f"a workspace of {shown} bytes, more than any GPU has: MIOpen drops the solver"


def _default_parameters(item: Item, target: Facts) -> str | None:
    if not TUNABLE.match(item.solver):
        return None
    return f"{item.solver} is tunable: it runs at default parameters unless the perf-db has a row for the problem too"


_RULES = (
    *miopen_records.rules(
        "values",
        "`logparse merge` keeps the fastest item of each solver",
        _REFIND,
        (
            Rule("item", "error", "read", _ill_formed, _REFIND),
            Rule("bad-key", "error", "matched", _bad_key, _REFIND),
            Rule("key-spelling", "error", "matched", _spelling, _REFIND),
            Rule("unknown-solver", "error", "honoured", _blank_in_name, _REFIND),
            Rule("few-values", "error", "honoured", _few_values, _REFIND),
            Rule("workspace", "error", "honoured", _beyond_memory, "copy it from a measured record"),
            Rule("algorithm", "error", "honoured", _algorithm, _REFIND),
            Rule("algorithm", "error", "honoured", _other_family, _REFIND),
            Rule("algorithm", "error", "honoured", _thrown, "remove that item", fault=False),
        ),
    ),
    Rule("time", "warning", None, _time, _REFIND, fault=True),
    Rule("time", "warning", None, _loose, _REFIND),
    Rule("time", "error", "honoured", _negative, _REFIND),
    Rule("workspace", "error", None, _workspace, "copy it from a measured record"),
    Rule("default-parameters", "info", None, _default_parameters, "ship the .udb.txt rows with it"),
)


# ------------------------------------------------------------------------------------------------------- the file


def _split(id: str, rest: str) -> tuple[str, Sequence[str]]:
    """Milliseconds, workspace and algorithm of an item; its older form has the algorithm in front, the solver after."""
    values = rest.split(",")
    if id not in ALGORITHMS:
        return id, values
    return values[0], [*values[1:3], id] if len(values) > 2 else values[1:]


def _too_many(file: FindDbFile) -> Iterator[Note]:
    for number in file.longer_than(_MOST):
        message = f"more than {_MOST} solvers: PyTorch's immediate mode aborts above {_MOST} usable ones"
        yield Note(number, "warning", "too-many", message, "keep the fastest few")


def _overwritten(rows: Iterable[Row]) -> Iterator[Note]:
    """Records of which every solver is unknown or drops out: MIOpen searches, and overwrites them with its own."""
    lost: dict[int, bool] = {}
    for row in rows:
        drops = any(breach.note.rule == "workspace" for breach in row.breaches)
        unknown = drops or (row.solution is not None and known_algorithm(row.solution.id) is None)
        lost[row.line] = lost.get(row.line, True) and unknown and not row.dead
    message = "no solver of the record can be used: MIOpen searches again and overwrites the record"
    for line in (line for line, all_lost in lost.items() if all_lost):
        yield Note(line, "warning", "overwritten", message, "add a solver that the target's build has")


def _convolutions(name: str, data: bytes) -> bytes:
    """The file without the records of fusion plans, whose keys are others: their lines are left, and are empty."""
    if not find_db.of_fusions(name):
        return data
    return b"\n".join(x if is_key(x.partition(b"=")[0].decode("latin-1")) else b"" for x in data.split(b"\n"))


def _refusals(name: str, target: Facts, *, holds: bool) -> Iterator[Note]:
    """Why MIOpen takes nothing of a file of this name for convolutions; ``holds``: it has records of such."""
    match = find_db.FILE_NAME.fullmatch(name)
    if match is None or match["kind"] not in ("ufdb", "fdb"):
        message = f"{name} is no name under which MIOpen looks for a find-db"
        yield Note(None, "error", "file-name", message, _wanted(target))
        return
    if match["kind"] == "ufdb" and not match["version"]:
        message = f"{name} has no version: MIOpen looks for <device>.HIP.<version>_<build>.ufdb.txt"
        yield Note(None, "error", "file-name", message, _wanted(target))
    elif match["kind"] == "fdb" and match["version"]:
        message = f"{name} has a version: a system find-db has none"
        yield Note(None, "error", "file-name", message, _wanted(target))
    elif match["kind"] == "ufdb" and (why := odd_name(name, match)):
        yield Note(None, "error", "file-name", f"MIOpen looks for no file of this name: {why}", _wanted(target))
    elif match["fusion"] and holds:
        message = "MIOpen reads it for fusion plans alone, and looks for convolutions in the file without .fusion"
        yield Note(None, "error", "fusion", message, f"name it {name.replace('.fusion', '')}")
    yield from other_machine({x.name: x.value for x in find_db.facts_of_name(name)}, target, _wanted(target))


def _wanted(target: Facts) -> str:
    return wanted(target, "ufdb", "take the name from the line 'File is unreadable' of a MIOpen log of level 5")


def read(name: str, data: bytes, target: Facts) -> Reading[FindDbFile]:
    """What MIOpen takes from the file; without facts of a target its name is taken to be right where it is one.

    A byte order mark is part of the first key, as it is to MIOpen.
    """
    own = {fact.name: fact.value for fact in find_db.facts_of_name(name)}
    records = _convolutions(name, data)
    refusals = tuple(_refusals(name, target, holds=bool(records.strip())))
    certain, taken, why = miopen_records.taken(target, refusals)

    def record(line: int, key: str, payload: str, first: int) -> Judged:
        found = tuple(items_of(line, key, payload, first, problem_from_key, _split))
        return [(x, _row(x, *judge(line, x, target, _RULES, taken, why))) for x in _with_thrown(found, target)]

    file = FindDbFile(records, record, lambda solver, algorithm, problem: _usual(solver, algorithm, problem, target))
    return Reading(rows=file, refusals=refusals, certain=certain, facts=own, target=target, parsed=file)


def _usual(solver: str, algorithm: str, problem: ConvProblem, target: Facts) -> bool:
    """Whether an item of usual numbers breaks no rule that stops it, and its solver is a known one."""
    if solver in ALGORITHMS or known_algorithm(solver) is None:
        return False
    numbers = ("1", "0", algorithm)
    item = Item(1, key_of(problem) or "", problem, f"{solver}:{','.join(numbers)}", solver, numbers, None, False)
    return not judge(1, item, target, _RULES, True, "")[1]


def remarks(name: str, data: bytes, reading: Reading[FindDbFile]) -> Iterator[Note]:
    """What else to know of a file and its items."""
    yield from line_notes(reading.parsed.keyless)
    yield from _too_many(reading.parsed)
    if find_db.of_fusions(name) and not _convolutions(name, data).strip() and data.strip():
        message = "records of fusion plans, which MIOpen reads beside those of convolutions: not judged here"
        yield Note(None, "info", "fusion", message, "")
    if not data.replace("\ufeff".encode(), b"").strip(b"\r\n "):
        yield Note(None, "error", "empty", "no record in the file", _REFIND)
    if reading.facts.get("miopen_version") == "3.3.0":
        yield Note(None, "warning", "biased-times", find_db.BIASED, "find again with a later MIOpen")
    for item, _, lines in reading.parsed.judged:
        for note in row_remarks(item.line, item, reading.target, _RULES):
            yield replace(note, others=lines[1:])
    if reading.accepted is not False:
        yield from _overwritten(reading.parsed.odd)


def _row(item: Item, verdicts: Verdicts, breaches: tuple[Breach, ...]) -> Row:
    text = item.text.rstrip(BLANKS)
    if len(item.values) >= 3:
        text = f"{item.solver}:{','.join(x.strip(BLANKS) for x in item.values[:3])}"
    record = read_item(text, item.problem, item.key) if item.problem is not None else None
    known = record if isinstance(record, Measurement) else None
    return Row(
        line=item.line,
        key=item.key,
        problem=item.problem,
        solution=known.solution if known else None,
        time_us=_rank_us(item, known) if known and item.values else None,
        workspace_bytes=known.workspace_bytes if known else None,
        verdicts=verdicts,
        text=text,
        breaches=breaches,
    )


def tried(rows: Sequence[Row], facts: Facts) -> Sequence[Row]:
    """The items of a record, the fastest first: one without a time last."""
    return sorted(rows, key=_rank)


def _rank(row: Row | Offer) -> float:
    return math.inf if row.time_us is None else row.time_us


def _rank_us(item: Item, known: Measurement) -> float | None:
    """The time by which MIOpen ranks, in µs; None for a negative one."""
    ms = _ms(item.values[0])
    if ms < 0:
        return None
    return known.time_us if ms > 0 and _PLAIN.match(item.values[0]) else ms * 1e3


def _merged(rows: Iterable[Offer], name: str, agreed: Mapping[str, str], gpus: int) -> Sequence[Emission]:
    """Of each record the fastest item first."""
    records = (sorted(record, key=lambda row: (_rank(row), row.text)) for _, record in groupby(rows, lambda x: x.key))
    lines = (f"{record[0].key}={';'.join(row.text for row in record)}" for record in records)
    return miopen_records.written(lines, name)


OVERRIDE_FORMAT = OverrideFormat(
    name=find_db.FORMAT.name,
    kinds=frozenset({"conv"}),
    recognise=find_db.recognise,
    reader=read,
    remarks=remarks,
    key=find_db.key,
    compared=("miopen_version", "miopen_tweak"),
    tried=tried,
    signs=(
        ("Bad algorithm", "MIOpen threw at an item of the find-db"),
        (
            "Not enough workspace has been provided",
            "MIOpen could not run a recorded solver: its workspace is larger",
        ),
    ),
    writer=find_db.WRITER,
    lines=miopen_records.lines,
    keep_refusal=miopen_records.keep_refusal,
    merging=Merging(
        header=miopen_records.header("ufdb"),
        write=_merged,
        slot=miopen_records.slot,
        several=True,
    ),
)
