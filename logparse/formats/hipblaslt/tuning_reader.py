"""What hipBLASLt takes from a tuning file: which entries, under which key, with which index, and why not the others.

``hipblaslt_lines`` reads an entry as the released versions do, ``hipblaslt_rows`` as later ones will; here stands what
concerns the file: its revision, which entries there are, and which of one key is tried first.
Source: ROCm/hipBLASLt ``library/src/amd_detail/rocblaslt/src/UserDrivenTuningParser.cpp``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from logparse.formats.hipblaslt import tuning_file
from logparse.formats.hipblaslt import tuning_rows as hipblaslt_rows
from logparse.formats.hipblaslt.columns import TUNING_COLUMNS, problem
from logparse.formats.hipblaslt.tuning_lines import (
    BLANKS,
    COUNTED,
    FIRST,
    INDEX,
    WANTED,
    Dropped,
    Taken,
    Version,
    number,
    split,
    take,
)
from logparse.formats.reading import Note, Reading, Row, Rule, accepted, judge, text_of
from logparse.model import GemmProblem, Solution
from logparse.target import Facts
from logparse.target import arch as arch_of

REWRITE = "let `logparse recommend --target` write the file"
RETUNE = "tune again with the target's hipblaslt-bench (HIPBLASLT_TUNING_FILE)"


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


def _entries_by_row(text: str, version: Version, revision: str | None) -> Iterator[Entry]:
    """The same for a library that validates each row."""
    for line, header, values, stamp in hipblaslt_rows.pairs(text):
        taken = hipblaslt_rows.take(header, values, stamp, revision, version)
        cells = hipblaslt_rows.cells_of(TUNING_COLUMNS if header is None else header, values)
        yield Entry(line, values, header, cells, taken)


def _is_by_row(text: str, version: Version) -> bool:
    """Whether the library validates each row; where its version is unknown, whether the rows are written for that."""
    if version.by_row is not None:
        return version.by_row
    return any(hipblaslt_rows.SCHEMA in (header or ()) for _, header, _, _ in hipblaslt_rows.pairs(text))


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


def _other_device(entry: Entry, context: Context) -> str | None:
    if not isinstance(entry.taken, Taken) or not entry.taken.whole:
        return None
    pairs = (("gcnArchName", "arch"), ("CUs", "cu_count"))
    wrong = [
        f"{ours} {entry.cells[ours]}"
        for ours, fact in pairs
        if context.facts.get(fact) and entry.cells[ours] != context.facts[fact]
    ]
    return f"a row of another device ({', '.join(wrong)}), which the library matches" if wrong else None


def _other_arch(entry: Entry, context: Context) -> str | None:
    if isinstance(entry.taken, Taken) and entry.taken.whole:
        return None
    mine, theirs = entry.cells.get("gcnArchName", "").partition(":")[0], arch_of(context.facts)
    if not mine or theirs is None or mine == theirs:
        return None
    return f"tuned on {mine}, the target is {theirs}: the library does not check, and the index is another kernel there"


_RULES: tuple[Rule[Entry, Context], ...] = (
    *(_dropped(name, REWRITE) for name in ("37-values", "no-header", "columns")),
    *(_dropped(name, RETUNE) for name in ("index", "number", "type")),
    _dropped("compute-type", "ROCm 7.0 and later take it"),
    *(_dropped(name, RETUNE) for name in ("schema", "revision")),
    Rule("no-call", "error", "matched", _no_call, RETUNE),
    Rule("device", "error", "matched", _other_device, RETUNE),
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
        message = (
            f"written by hipBLASLt {mine!r}, the target is {theirs!r}: the library refuses the whole file "
            "(calls through its C++ object take the rows all the same, up to version 1.2.2)"
        )
        yield Note(1, "error", "revision", message, RETUNE)


def read(name: str, data: bytes, target: Facts) -> Reading[Context]:
    """What the target's library takes from the file; an unknown version is the one whose layout an entry has."""
    text, _ = text_of(data)
    version, revision = Version(tuning_file.version(target)), target.get("hipblaslt_revision")
    by_row = _is_by_row(text, version)
    if by_row:
        found = tuple(_entries_by_row(text, version, revision))
        own = own_facts(text, found)
    else:
        own = own_facts(text, list(entries(text, version)))
        found = tuple(entries(text, version, arch_of(target) or own.get("arch")))
    refusals, certain = () if by_row else tuple(_refusals(text, target)), revision is not None
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
        whole=isinstance(entry.taken, Taken) and entry.taken.whole,
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
