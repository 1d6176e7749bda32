"""What hipBLASLt itself takes from a line of a tuning file: its key with the types as read, its index, or why not.

There are two readers.  ROCm 6.4 takes every line of exactly 37 values by their places.  From 7.0 on (library version
1500) a line that contains ``transA`` names the columns of the line after it, whatever that is; eleven columns are
collected in one order, the first of each name that is next.  Both remove blanks in front of a line and nowhere else,
take any transpose but ``N`` for T, and numbers as far as they are numbers (``4096.0``, ``101917abc``).

The reader by name takes a compute type that it does not know for ``f32_r``; since rocm-libraries PR 6557 (after version
1.2.2) the fast types have that key too.  The older reader takes the compute type for a data type.

Of several lines of one key the newer library takes the first whose index its build has; where that solution cannot run
the call it takes its own choice, and no later line.

Compared with libhipblaslt 1.2.2 (ROCm 7.2.4) over a virtual GPU in ``tests/conformance/test_hipblaslt_files.py`` and,
as recorded, in ``tests/analyzers/overrides/test_hipblaslt_reader.py``.
Source: ROCm/hipBLASLt ``library/src/amd_detail/rocblaslt/src/UserDrivenTuningParser.cpp`` (6.4, 7.0),
ROCm/rocm-libraries ``projects/hipblaslt``, the same file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from analyzers.evidence.target import Facts
from analyzers.evidence.target import arch as arch_of
from analyzers.overrides.reading import Note, Reading, Row, Rule, accepted, judge, text_of
from logparse.formats.fp8 import FNUZ, fnuz_only
from logparse.formats.hipblaslt import tuning_file
from logparse.formats.hipblaslt.columns import TUNING_COLUMNS, problem
from logparse.model import GemmProblem, Solution

WANTED = ("transA", "transB", "batch_count", "m", "n", "k", "a_type", "b_type", "c_type", "compute_type")
INDEX = "solution_index"
BLANKS = " \t\n\r\f\v"
FIRST = "Git Version: "
REWRITE = "let `logparse recommend --target` write the file"
RETUNE = "tune again with the target's hipblaslt-bench (HIPBLASLT_TUNING_FILE)"
COUNTED = ("batch_count", "m", "n", "k", INDEX)
_NUMBERS = ("batch_count", "m", "n", "k")
_TYPES = ("a_type", "b_type", "c_type")
_INT = re.compile(r"[ \t\n\v\f\r]*([+-]?\d+)", re.ASCII)

_DATA = frozenset({"f16_r", "bf16_r", "f32_r", "f64_r", "i8_r", "i32_r", "f8_r", "bf8_r"})
_NAMED_DATA = _DATA | frozenset(FNUZ.values())
_NEWER_DATA = _NAMED_DATA | {"f6_r", "bf6_r", "f4_r"}
_COMPUTES = frozenset({"f32_r", "f64_r", "i32_r", "xf32_r"})
_FAST = frozenset({"f32_f16_r", "f32_bf16_r"})
_DATA_COMPUTES = frozenset({"f16_r", "f32_r", "f64_r", "i32_r"})


@dataclass(frozen=True)
class Version:
    """Which reader a library has; ``number`` as ``hipblasLtGetVersion`` returns it, None where it is unknown."""

    number: int | None

    @property
    def by_name(self) -> bool | None:
        return None if self.number is None else self.number >= 1500

    @property
    def folds_fast(self) -> bool | None:
        """Whether the fast compute types have the key of ``f32_r``."""
        return None if self.number is None else self.number > 100_202


@dataclass(frozen=True)
class Taken:
    """A line as the library keeps it: a call of this key gets this solution.

    ``no_call`` is why calls of this library have no such key.
    """

    key: str
    index: int
    cells: Mapping[str, str]
    no_call: str = ""


@dataclass(frozen=True)
class Dropped:
    """A line that the library ignores without a message; ``rule`` names the rule of lint that it breaks."""

    rule: str
    why: str


def split(line: str) -> tuple[str, ...]:
    """The cells of a line as ``std::getline`` splits them: an empty last one is dropped."""
    cells = line.lstrip(BLANKS).split(",")
    return tuple(cells[:-1] if len(cells) > 1 and not cells[-1] else cells)


def take(header: Sequence[str] | None, values: Sequence[str], version: Version, arch: str | None) -> Taken | Dropped:
    """What the library keeps of a line of values after this header line (None: after none).

    Where the version is unknown, the reader that its layout is for.  ``arch`` is the one of the rows of the file.
    """
    by_name = version.by_name if version.by_name is not None else header is not None
    if not by_name:
        if len(values) != len(TUNING_COLUMNS):
            why = f"{len(values)} values: ROCm 6.4 silently ignores any number but {len(TUNING_COLUMNS)}"
            return Dropped("37-values", why)
        return _parsed(dict(zip(TUNING_COLUMNS, values, strict=True)), version, by_name, arch)
    if header is None:
        return Dropped("no-header", "values without a header line: ROCm 7.0 and later do not read them")
    cells = _collected(header, values)
    if len(cells) < len(WANTED) + 1:
        return Dropped("columns", _why_not_collected(header, values))
    return _parsed(cells, version, by_name, arch)


def _collected(header: Sequence[str], values: Sequence[str]) -> dict[str, str]:
    cells: dict[str, str] = {}
    wanted = iter((*WANTED, INDEX))
    following = next(wanted)
    for name, value in zip(header, values, strict=False):
        if name == following:
            cells[name] = value
            following = next(wanted, "")
    return cells


def _why_not_collected(header: Sequence[str], values: Sequence[str]) -> str:
    missing = [name for name in (*WANTED, INDEX) if name not in header]
    if missing:
        padded = [name for name in missing if name in {x.strip(BLANKS) for x in header}]
        blanks = " (blanks around a name are part of it)" if padded else ""
        return f"the header has no column {', '.join(missing)}{blanks}"
    if len(_collected(header, header)) <= len(WANTED):
        return "the header's columns are not in the order in which the library looks for them"
    return (
        f"{len(values)} values for a header of {len(header)}: the library takes the line after a header for its values"
    )


def number(text: str, bits: int = 64) -> int | None:
    """C++'s ``std::stol`` (or ``stoi``): the number at the start, None where it would throw."""
    match = _INT.match(text)
    return int(match[1]) if match and -(1 << (bits - 1)) <= int(match[1]) < 1 << (bits - 1) else None


def _parsed(cells: Mapping[str, str], version: Version, by_name: bool, arch: str | None) -> Taken | Dropped:
    sizes = {name: number(cells[name]) for name in _NUMBERS}
    bad = [name for name, value in sizes.items() if value is None]
    if bad:
        return Dropped("number", f"{', '.join(bad)} is no number")
    index = number(cells[INDEX], 32)
    if index is None or index <= 0:
        return Dropped("index", f"solution index {cells[INDEX]!r}: the library takes numbers from 1 to 2147483647 only")
    known = _DATA if not by_name else _NAMED_DATA if version.folds_fast is False else _NEWER_DATA
    wrong = [f"{name} {cells[name]!r}" for name in _TYPES if cells[name] not in known]
    if wrong:
        return Dropped("type", f"the library knows no {', '.join(wrong)}")
    compute, no_call = cells["compute_type"], ""
    if by_name:
        if compute not in _COMPUTES and not (compute in _FAST and version.folds_fast is False):
            compute = "f32_r"
    elif compute not in _DATA_COMPUTES:
        return Dropped("compute-type", f"ROCm 6.4 drops entries of compute type {compute!r}")
    if any((value or 0) <= 0 for value in sizes.values()):
        no_call = "no call has a size of 0 or less"
    types = [cells[name] for name in _TYPES]
    if version.number is None and not by_name and fnuz_only(arch):
        types = [FNUZ.get(x, x) for x in types]  # the older reader has one name, and its devices one family
    trans = ["N" if cells[name] == "N" else "T" for name in ("transA", "transB")]
    words = (*trans, *(str(sizes[name]) for name in _NUMBERS), *types, compute)
    return Taken(",".join(words), index, cells, no_call)


# --------------------------------------------------------------------------------------------------------- the file


@dataclass(frozen=True)
class Entry:
    """One line of values: ``header`` its column names (None: it has no header line), ``cells`` values by column without
    blanks, ``taken`` what the library keeps of it.
    """

    line: int
    values: tuple[str, ...]
    header: tuple[str, ...] | None
    cells: Mapping[str, str]
    taken: Taken | Dropped

    @property
    def key(self) -> str | None:
        """The key under which the library keeps it; None for one that it drops."""
        return self.taken.key if isinstance(self.taken, Taken) else None

    @property
    def index(self) -> int | None:
        return self.taken.index if isinstance(self.taken, Taken) else number(self.cells.get(INDEX, ""), 32)

    @property
    def text(self) -> str:
        """The entry as a file holds it: its header line, if it has one, and its values."""
        lines = [self.values] if self.header is None else [self.header, self.values]
        return "\n".join("    " + ",".join(words).rstrip("\r") for words in lines)


@dataclass(frozen=True)
class Context:
    """A file's entries, for a target; ``same_key`` are the kept ones by key."""

    facts: Facts
    version: Version
    entries: Sequence[Entry]
    same_key: Mapping[str, Sequence[Entry]]


def entries(text: str, version: Version, arch: str | None = None) -> Iterator[Entry]:
    """The lines of values, each with the header line before it, if there is one.

    ROCm 6.4 knows no header: its columns have their places, whatever stands above.
    """
    header: tuple[str, ...] | None = None
    for line, content in enumerate(text.split("\n"), start=1):
        words = split(content)
        if version.by_name is False and "transA" in content:
            continue  # 6.4 takes it for an entry, of sizes that are no numbers
        if header is None and version.by_name is not False and "transA" in content:
            header = words
        elif header is None and (FIRST in content or len(words) < 2):
            continue
        else:
            taken = take(header, words, version, arch)
            names = TUNING_COLUMNS if header is None else [x.strip(BLANKS) for x in header]
            cells = dict(zip(names, (x.strip(BLANKS) for x in words), strict=False))
            yield Entry(line, words, header, cells, taken)
            header = None


def _revision(text: str) -> str | None:
    """What the library compares with its own: the rest of the first line behind ``Git Version: ``, blanks included."""
    _, found, revision = text.partition("\n")[0].partition(FIRST)
    return revision if found else None


def _dropped(name: str, remedy: str) -> Rule[Entry, Context]:
    """The rule of one reason for which the library drops an entry."""

    def check(entry: Entry, context: Context) -> str | None:
        return entry.taken.why if isinstance(entry.taken, Dropped) and entry.taken.rule == name else None

    return Rule(name, "error", "read", check, remedy)


def _no_call(entry: Entry, context: Context) -> str | None:
    return entry.taken.no_call or None if isinstance(entry.taken, Taken) else None


def _other_arch(entry: Entry, context: Context) -> str | None:
    mine, theirs = entry.cells.get("gcnArchName", "").partition(":")[0], arch_of(context.facts)
    if not mine or theirs is None or mine == theirs:
        return None
    return f"tuned on {mine}, the target is {theirs}: the library does not check, and the index is another kernel there"


_RULES: tuple[Rule[Entry, Context], ...] = (
    *(_dropped(name, REWRITE) for name in ("37-values", "no-header", "columns")),
    *(_dropped(name, RETUNE) for name in ("index", "number", "type")),
    _dropped("compute-type", "ROCm 7.0 and later take it"),
    Rule("no-call", "error", "matched", _no_call, RETUNE),
    Rule("arch", "error", "honoured", _other_arch, RETUNE),
)


def _refusals(text: str, target: Facts) -> Iterator[Note]:
    """Why the library switches overriding off: the first line must state its own revision, to the letter."""
    mine, theirs = _revision(text), target.get("hipblaslt_revision")
    if mine is None:
        message = "the first line is not 'Git Version: …': the library compares it and switches overriding off"
        yield Note(1, "error", "revision", message, REWRITE)
    elif mine.endswith("\r"):
        message = "lines end in CR LF: the revision then ends in a carriage return and is not the library's"
        yield Note(1, "error", "line-ends", message, "write it with LF line ends")
    elif mine != mine.strip():
        message = f"blanks are part of the revision {mine!r}: it is no library's"
        yield Note(1, "error", "revision", message, "remove them")
    elif theirs is not None and mine != theirs:
        message = f"written by hipBLASLt {mine!r}, the target is {theirs!r}: the library refuses the whole file"
        yield Note(1, "error", "revision", message, RETUNE)


def read(name: str, data: bytes, target: Facts) -> Reading[Context]:
    """What the target's library takes from the file; an unknown version is the one whose layout an entry has."""
    text, _ = text_of(data)
    version = Version(tuning_file.version(target))
    own = own_facts(text, list(entries(text, version)))
    found = tuple(entries(text, version, arch_of(target) or own.get("arch")))
    refusals, certain = tuple(_refusals(text, target)), target.get("hipblaslt_revision") is not None
    same: dict[str, list[Entry]] = {}
    for entry in found:
        if entry.key is not None:
            same.setdefault(entry.key, []).append(entry)
    context = Context(target, version, found, same)
    rows = tuple(_row(entry, context, accepted(refusals, certain)) for entry in found)
    return Reading(rows=rows, refusals=refusals, certain=certain, facts=own, target=target, parsed=context)


def _row(entry: Entry, context: Context, taken: bool | None) -> Row:
    verdicts, breaches = judge(entry.line, entry, context, _RULES, taken, "the library refuses the whole file")
    return Row(
        line=entry.line,
        key=entry.key or "",
        problem=_gemm(entry),
        solution=None if entry.index is None else Solution("hipblaslt", str(entry.index)),
        verdicts=verdicts,
        text=entry.text,
        time_us=_positive(entry.cells.get("us", "")),
        breaches=breaches,
    )


def tried(rows: Sequence[Row], facts: Facts) -> Sequence[Row]:
    """The rows of one key in the order in which the library tries them: ROCm 6.4 the latest first."""
    return rows[::-1] if Version(tuning_file.version(facts)).by_name is False else rows


def own_facts(text: str, found: Sequence[Entry]) -> dict[str, str]:
    """The revision of the first line, and the device where all entries name one."""
    out = {}
    revision = _revision(text)
    if revision is not None:
        out["hipblaslt_revision"] = revision.rstrip("\r")
    for name, column in (("arch", "gcnArchName"), ("cu_count", "CUs")):
        values = {entry.cells.get(column, "") for entry in found} - {"", "0"}
        if len(values) == 1:
            out[name] = values.pop()
    return out


def _gemm(entry: Entry) -> GemmProblem | None:
    """The problem that the library takes the entry for: never a grouped one, and every transpose but N is T.

    A number that it does not match by may be anything.
    """
    given = entry.taken.cells if isinstance(entry.taken, Taken) else entry.cells
    read = {name: "N" if given.get(name) == "N" else "T" for name in ("transA", "transB")}
    read |= {name: str(size) for name in COUNTED if (size := number(given.get(name, ""))) is not None}
    if entry.key is not None:
        read["compute_type"] = entry.key.rpartition(",")[2]
    for names in (entry.cells, WANTED):
        try:
            return problem({**{x: entry.cells[x] for x in names if x in entry.cells}, **read, "grouped_gemm": "0"})
        except ValueError:
            continue
    return None


def _positive(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None
