"""What can be wrong with a hipBLASLt tuning file, and which of its entries the library reads, matches and honours.

``hipblaslt_reader`` is the library's own reader.  The target's ``hipblaslt_version`` decides which of the two it has
(1500 and later: by name); where that is unknown, an entry is judged by the one that its layout is for.

Source: ROCm/hipBLASLt ``library/src/amd_detail/rocblaslt/src/UserDrivenTuningParser.cpp``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from analyzers.evidence.target import Facts, arch
from analyzers.overrides.hipblaslt_reader import BLANKS, INDEX, WANTED, Dropped, Taken, Version, number, split, take
from analyzers.overrides.override_format import (
    Conversion,
    Merging,
    Note,
    OverrideFile,
    OverrideFormat,
    Row,
    Rule,
    bytes_of,
    in_order,
    judge,
    records_of,
    text_of,
)
from logparse.errors import InputError
from logparse.formats.format import Emission, Head
from logparse.formats.hipblaslt import tuning_file
from logparse.formats.hipblaslt.columns import TUNING_COLUMNS, problem
from logparse.formats.tunableop.solutions import hipblaslt_index
from logparse.model import GemmProblem, Solution

_FIRST = "Git Version: "
_COUNTED = ("batch_count", "m", "n", "k", INDEX)
_REWRITE = "let `logparse recommend --target` write the file"
_RETUNE = "tune again with the target's hipblaslt-bench (HIPBLASLT_TUNING_FILE)"


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
class _Context:
    facts: Facts
    version: Version
    same_key: Mapping[str, Sequence[Entry]] = field(default_factory=dict)


# ------------------------------------------------------------------------------------------------ rules about entries


def _dropped(name: str, remedy: str) -> Rule[Entry, _Context]:
    """The rule of one reason for which the library drops an entry."""

    def check(entry: Entry, context: _Context) -> str | None:
        return entry.taken.why if isinstance(entry.taken, Dropped) and entry.taken.rule == name else None

    return Rule(name, "error", "read", check, remedy)


def _no_call(entry: Entry, context: _Context) -> str | None:
    return entry.taken.no_call or None if isinstance(entry.taken, Taken) else None


def _other_reader(entry: Entry, context: _Context) -> str | None:
    if context.version.number is not None or isinstance(entry.taken, Dropped) or entry.header is None:
        return None
    if len(entry.values) == len(TUNING_COLUMNS):
        return None
    return f"{len(entry.values)} values: read by ROCm 7.0 and later, ignored by 6.4, which wants {len(TUNING_COLUMNS)}"


def _no_header_of_new(entry: Entry, context: _Context) -> str | None:
    if context.version.number is not None or isinstance(entry.taken, Dropped) or entry.header is not None:
        return None
    return "values without a header line: read by ROCm 6.4, ignored by 7.0 and later"


def _ragged(entry: Entry, context: _Context) -> str | None:
    if entry.header is None or len(entry.values) == len(entry.header) or isinstance(entry.taken, Dropped):
        return None
    return f"{len(entry.values)} values for a header of {len(entry.header)}: values may stand under the wrong name"


def _loose(entry: Entry, context: _Context) -> str | None:
    if isinstance(entry.taken, Dropped):
        return None
    cells = entry.taken.cells
    odd = [f"{name} {cells[name]!r}" for name in _COUNTED if not re.fullmatch(r"\d+\r?", cells[name])]
    return f"{', '.join(odd)}: read as far as it is a number" if odd else None


def _other_compute(entry: Entry, context: _Context) -> str | None:
    if isinstance(entry.taken, Dropped):
        return None
    given, read = entry.taken.cells["compute_type"], entry.taken.key.rpartition(",")[2]
    return f"the library reads compute type {given!r} as {read}" if given != read else None


def _trans(entry: Entry, context: _Context) -> str | None:
    if isinstance(entry.taken, Dropped):
        return None
    odd = [f"{x} {entry.taken.cells[x]!r}" for x in ("transA", "transB") if entry.taken.cells[x] not in ("N", "T")]
    return f"{', '.join(odd)}: the library reads anything but N as T" if odd else None


def _grouped(entry: Entry, context: _Context) -> str | None:
    if entry.cells.get("grouped_gemm", "0") in ("0", "false"):
        return None
    return "an entry of a grouped GEMM: the library takes it for a single one of these sizes"


def _other_arch(entry: Entry, context: _Context) -> str | None:
    mine, theirs = entry.cells.get("gcnArchName", "").partition(":")[0], arch(context.facts)
    if not mine or theirs is None or mine == theirs:
        return None
    return f"tuned on {mine}, the target is {theirs}: the library does not check, and the index is another kernel there"


def _other_cus(entry: Entry, context: _Context) -> str | None:
    mine, theirs = entry.cells.get("CUs", ""), context.facts.get("cu_count", "")
    if not mine or not theirs or mine in ("0", theirs):
        return None
    return f"tuned with {mine} CUs, the target has {theirs}: the best solution may be another"


def _repeated(entry: Entry, context: _Context) -> str | None:
    twins = [x for x in _twins(entry, context) if x.line < entry.line and x.index == entry.index]
    return f"the same entry as line {twins[0].line}" if twins else None


def _conflict(entry: Entry, context: _Context) -> str | None:
    others = [x for x in _twins(entry, context) if x.index != entry.index]
    if not others:
        return None
    other = others[0] if context.version.by_name else others[-1]
    both = f"line {other.line} has the same key with solution {other.index}"
    if context.version.by_name is None:
        return f"{both}; which of them is used depends on the version"
    if context.version.by_name:
        return f"{both}; the first one that runs the call is used" if other.line < entry.line else None
    return f"{both}, and ROCm 6.4 tries the latest first" if other.line > entry.line else None


def _twins(entry: Entry, context: _Context) -> Sequence[Entry]:
    return [] if entry.key is None else context.same_key[entry.key]


ROW_RULES: tuple[Rule[Entry, _Context], ...] = (
    *(_dropped(name, _REWRITE) for name in ("37-values", "no-header", "columns")),
    *(_dropped(name, _RETUNE) for name in ("index", "number", "type")),
    _dropped("compute-type", "ROCm 7.0 and later take it"),
    Rule("no-call", "error", "matched", _no_call, _RETUNE),
    Rule("37-values", "warning", None, _other_reader, _REWRITE),
    Rule("no-header", "warning", None, _no_header_of_new, _REWRITE),
    Rule("columns", "warning", None, _ragged, _REWRITE),
    Rule("number", "warning", None, _loose, _REWRITE),
    Rule("compute-type", "warning", None, _other_compute, _RETUNE),
    Rule("trans", "warning", None, _trans, _RETUNE),
    Rule("grouped", "warning", None, _grouped, "remove it"),
    Rule("arch", "error", "honoured", _other_arch, _RETUNE),
    Rule("cu-count", "warning", None, _other_cus, _RETUNE),
    Rule("duplicate", "info", None, _repeated, "remove it"),
    Rule("conflict", "error", None, _conflict, "keep the faster one"),
)


# ------------------------------------------------------------------------------------------------------- the file


def _gemm(entry: Entry) -> GemmProblem | None:
    """The problem that the library takes the entry for: never a grouped one, and every transpose but N is T.

    A number that it does not match by may be anything.
    """
    given = entry.taken.cells if isinstance(entry.taken, Taken) else entry.cells
    read = {name: "N" if given.get(name) == "N" else "T" for name in ("transA", "transB")}
    read |= {name: str(size) for name in _COUNTED if (size := number(given.get(name, ""))) is not None}
    if entry.key is not None:
        read["compute_type"] = entry.key.rpartition(",")[2]
    for names in (entry.cells, WANTED):
        try:
            return problem({**{x: entry.cells[x] for x in names if x in entry.cells}, **read, "grouped_gemm": "0"})
        except ValueError:
            continue
    return None


def recognise(head: Head) -> bool:
    """As the format does, and files that lost their first line or have something before it."""
    data = head.data.removeprefix(b"\xef\xbb\xbf").lstrip(BLANKS.encode())
    return data.startswith(_FIRST.encode()) or b"transA,transB,grouped_gemm,batch_count" in data


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
        elif header is None and (_FIRST in content or len(words) < 2):
            continue
        else:
            taken = take(header, words, version, arch)
            names = TUNING_COLUMNS if header is None else [x.strip(BLANKS) for x in header]
            cells = dict(zip(names, (x.strip(BLANKS) for x in words), strict=False))
            yield Entry(line, words, header, cells, taken)
            header = None


def _revision(text: str) -> str | None:
    """What the library compares with its own: the rest of the first line behind ``Git Version: ``, blanks included."""
    _, found, revision = text.partition("\n")[0].partition(_FIRST)
    return revision if found else None


def _file_notes(text: str, bom: bool, count: int, target: Facts) -> Iterator[Note]:
    mine, theirs = _revision(text), target.get("hipblaslt_revision")
    if bom:
        yield Note(1, "info", "byte-order-mark", "a byte order mark stands before the first line, without effect", "")
    if mine is None:
        message = "the first line is not 'Git Version: …': the library compares it and switches overriding off"
        yield Note(1, "error", "revision", message, _REWRITE)
    elif mine.endswith("\r"):
        message = "lines end in CR LF: the revision then ends in a carriage return and is not the library's"
        yield Note(1, "error", "line-ends", message, "write it with LF line ends")
    elif mine != mine.strip():
        message = f"blanks are part of the revision {mine!r}: it is no library's"
        yield Note(1, "error", "revision", message, "remove them")
    elif theirs is not None and mine != theirs:
        message = f"written by hipBLASLt {mine!r}, the target is {theirs!r}: the library refuses the whole file"
        yield Note(1, "error", "revision", message, _RETUNE)
    if not count:
        yield Note(None, "error", "empty", "no entry in the file", _RETUNE)


def inspect(name: str, data: bytes, target: Facts) -> OverrideFile:
    """Judge the file for a target; an unknown version is the one whose layout an entry has."""
    text, bom = text_of(data)
    version = Version(tuning_file.version(target))
    own = _own_facts(text, list(entries(text, version)))
    found = list(entries(text, version, arch(target) or own.get("arch")))
    notes = list(_file_notes(text, bom, len(found), target))
    refused = any(note.rule in ("revision", "line-ends") for note in notes)
    accepted = False if refused else True if target.get("hipblaslt_revision") is not None else None
    same: dict[str, list[Entry]] = {}
    for entry in found:
        same.setdefault(entry.key or "", []).append(entry)
    context = _Context(target, version, same)
    rows = []
    for entry in found:
        judged, more = judge(entry.line, entry, context, ROW_RULES, accepted, "the library refuses the whole file")
        notes += more
        rows.append(
            Row(
                line=entry.line,
                key=entry.key or "",
                problem=_gemm(entry),
                solution=None if entry.index is None else Solution("hipblaslt", str(entry.index)),
                verdicts=judged,
                text=entry.text,
                time_us=_positive(entry.cells.get("us", "")),
            )
        )
    return OverrideFile(
        format=tuning_file.FORMAT.name,
        name=name,
        accepted=accepted,
        facts=own,
        target=target,
        rows=tuple(rows),
        notes=in_order(notes),
    )


def _own_facts(text: str, found: Sequence[Entry]) -> dict[str, str]:
    out = {}
    revision = _revision(text)
    if revision is not None:
        out["hipblaslt_revision"] = revision.rstrip("\r")
    for name, column in (("arch", "gcnArchName"), ("cu_count", "CUs")):
        values = {entry.cells.get(column, "") for entry in found} - {"", "0"}
        if len(values) == 1:
            out[name] = values.pop()
    return out


def _positive(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None


# ------------------------------------------------------------------------------------------- merged, kept, converted


def _header(name: str, data: bytes) -> list[tuple[str, str]]:
    """Revision, device and layout of a file.  Raises InputError where it has no revision."""
    text = text_of(data)[0]
    found = list(entries(text, Version(None)))
    revision = _own_facts(text, found).get("hipblaslt_revision")
    if revision is None:
        raise InputError("it does not begin with 'Git Version: …': the hipBLASLt of its rows is unknown")
    device = (("arch", "gcnArchName"), ("cu_count", "CUs"))
    pairs = {(word, entry.cells.get(column, "")) for word, column in device for entry in found}
    pairs |= {("layout", _LAYOUTS[entry.header is not None]) for entry in found}
    return [("revision", revision), *sorted(x for x in pairs if x[1] not in ("", "0"))]


_LAYOUTS = ("values only (ROCm 6.4)", "a header line each (ROCm 7)")


def _merged(rows: Sequence[Row], name: str, agreed: Mapping[str, str], gpus: int) -> list[Emission]:
    data = bytes_of([_FIRST + agreed["revision"], *(row.text for row in rows)])
    return [Emission("hipblaslt_tuning.txt", data, "export HIPBLASLT_TUNING_OVERRIDE_FILE={path}")]


def _keep_refusal(own: OverrideFile, emitted: OverrideFile) -> str | None:
    layouts = [{"\n" in row.text for row in file.rows} for file in (own, emitted)]
    return None if layouts[0] == layouts[1] else "its layout is of another version of hipBLASLt"


def takes(given: Solution, rocblas_version: str) -> Solution | None:
    """An index of hipBLASLt, also one that rocBLAS passes to it."""
    if given.library == "rocblas" and given.id.lstrip("-").isdigit():
        index = hipblaslt_index(given, rocblas_version)
        return None if index is None else Solution("hipblaslt", str(index))
    return given if given.library == "hipblaslt" and given.id.isdigit() else None


OVERRIDE_FORMAT = OverrideFormat(
    name=tuning_file.FORMAT.name,
    kinds=frozenset({"gemm", "grouped"}),
    recognise=recognise,
    inspect=inspect,
    key=tuning_file.key,
    compared=("hipblaslt_revision",),
    signs=(
        ("the override file git version are not the same", "hipBLASLt refused the tuning file: another git revision"),
        ("No valid entries found in override file", "hipBLASLt found no usable entry in the tuning file"),
    ),
    writer=tuning_file.WRITER,
    keep_refusal=_keep_refusal,
    merging=Merging(header=_header, write=_merged, in_order=True),
    conversion=Conversion(
        word="hipblaslt",
        recognise=tuning_file.FORMAT.recognise,
        read=records_of(tuning_file.FORMAT),
        takes=takes,
        matched="hipBLASLt does not match leading dimensions, strides, bias, epilogue: an entry serves all such calls",
    ),
)
