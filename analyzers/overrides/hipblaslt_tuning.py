"""What can be wrong with a hipBLASLt tuning file, and which of its entries the library reads, matches and honours.

There are two readers.  ROCm 6.4 takes every line with a comma and wants exactly 37 values; 7.0 wants a header line
before each entry and finds eleven columns by name, in a fixed order.  The target's ``hipblaslt_version`` decides which
one it has (1500 and later: by name); where that is unknown, a row is judged by both.

Source: ROCm/hipBLASLt ``library/src/amd_detail/rocblaslt/src/UserDrivenTuningParser.cpp``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from analyzers.evidence.target import Facts, arch
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
from logparse.formats.hipblaslt.enums import BENCH_COMPUTE_TYPES, BENCH_TYPES
from logparse.formats.tunableop.solutions import hipblaslt_index
from logparse.model import GemmProblem, Solution

_FIRST = "Git Version: "
_BY_NAME = 1500
_WANTED = ("transA", "transB", "batch_count", "m", "n", "k", "a_type", "b_type", "c_type", "compute_type")
_NUMBERS = ("batch_count", "m", "n", "k")
_INDEX = ("solution_index", "soulution_index")
_REWRITE = "let `logparse recommend --target` write the file"
_RETUNE = "tune again with the target's hipblaslt-bench (HIPBLASLT_TUNING_FILE)"


@dataclass(frozen=True)
class Entry:
    """One line of values: ``header`` its column names (None: it has no header line), ``cells`` values by column."""

    line: int
    values: tuple[str, ...]
    header: tuple[str, ...] | None
    cells: Mapping[str, str]

    @property
    def index(self) -> str:
        return next((self.cells[name] for name in _INDEX if name in self.cells), "")

    @property
    def text(self) -> str:
        """The entry as a file holds it: its header line, if it has one, and its values."""
        lines = [self.values] if self.header is None else [self.header, self.values]
        return "\n".join("    " + ",".join(words) for words in lines)


@dataclass(frozen=True)
class _Context:
    facts: Facts
    by_name: bool | None
    keys: Mapping[int, str | None] = field(default_factory=dict)
    same_key: Mapping[str, Sequence[Entry]] = field(default_factory=dict)


# ------------------------------------------------------------------------------------------------ rules about entries


def _count(entry: Entry, context: _Context) -> str | None:
    if len(entry.values) == len(TUNING_COLUMNS) or context.by_name is True:
        return None
    if context.by_name is None and entry.header is not None:
        return None
    return f"{len(entry.values)} values: ROCm 6.4 silently ignores any number but {len(TUNING_COLUMNS)}"


def _count_of_old(entry: Entry, context: _Context) -> str | None:
    if len(entry.values) == len(TUNING_COLUMNS) or context.by_name is not None or entry.header is None:
        return None
    return f"{len(entry.values)} values: read by ROCm 7.0 and later, ignored by 6.4, which wants {len(TUNING_COLUMNS)}"


def _no_header(entry: Entry, context: _Context) -> str | None:
    if entry.header is not None or context.by_name is not True:
        return None
    return "values without a header line: ROCm 7.0 and later do not read them"


def _no_header_of_new(entry: Entry, context: _Context) -> str | None:
    if entry.header is not None or context.by_name is not None or _count(entry, context):
        return None
    return "values without a header line: read by ROCm 6.4, ignored by 7.0 and later"


def _columns(entry: Entry, context: _Context) -> str | None:
    if entry.header is None or context.by_name is False:
        return None
    places = [entry.header.index(name) if name in entry.header else -1 for name in _WANTED]
    places.append(max((entry.header.index(name) if name in entry.header else -1) for name in _INDEX))
    if min(places) < 0:
        names = [name for name, place in zip((*_WANTED, "solution_index"), places, strict=True) if place < 0]
        return f"the header has no column {', '.join(names)}"
    if places != sorted(places):
        return "the header's columns are not in the order in which the library looks for them"
    if len(entry.values) <= max(places):
        return f"{len(entry.values)} values for a header of {len(entry.header)}"
    return None


def _ragged(entry: Entry, context: _Context) -> str | None:
    if entry.header is None or len(entry.values) == len(entry.header) or _columns(entry, context):
        return None
    return f"{len(entry.values)} values for a header of {len(entry.header)}: values may stand under the wrong name"


def _bad_index(entry: Entry, context: _Context) -> str | None:
    if entry.index.isdigit() and int(entry.index) > 0:
        return None
    return f"solution index {entry.index!r}: the library takes numbers above 0 only" if entry.cells else None


def _bad_number(entry: Entry, context: _Context) -> str | None:
    wrong = [name for name in _NUMBERS if name in entry.cells and not entry.cells[name].isdigit()]
    return f"{', '.join(wrong)} is no number" if wrong else None


def _bad_type(entry: Entry, context: _Context) -> str | None:
    cells = entry.cells
    wrong = [f"{x} {cells[x]!r}" for x in ("a_type", "b_type", "c_type") if x in cells and cells[x] not in BENCH_TYPES]
    if "compute_type" in cells and cells["compute_type"] not in BENCH_COMPUTE_TYPES:
        wrong.append(f"compute_type {cells['compute_type']!r}")
    return f"the library knows no {', '.join(wrong)}" if wrong else None


def _compute_of_old(entry: Entry, context: _Context) -> str | None:
    gemm = _gemm(entry)
    if context.by_name is not False or gemm is None or _bad_type(entry, context):
        return None
    dropped = tuning_file.key(gemm, {}) is not None and tuning_file.key(gemm, {"hipblaslt_version": "1200"}) is None
    return f"ROCm 6.4 drops entries of compute type {gemm.compute_type}" if dropped else None


def _trans(entry: Entry, context: _Context) -> str | None:
    odd = [name for name in ("transA", "transB") if entry.cells.get(name, "N") not in ("N", "T")]
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
    both = f"line {others[-1].line} has the same key with solution {others[-1].index}"
    if context.by_name is False and others[-1].line > entry.line:
        return f"{both}, and ROCm 6.4 tries the latest first"
    return f"{both}; which of them is used depends on the version" if context.by_name is not False else None


def _twins(entry: Entry, context: _Context) -> Sequence[Entry]:
    key = context.keys.get(entry.line)
    return [] if key is None else context.same_key[key]


ROW_RULES: tuple[Rule[Entry, _Context], ...] = (
    Rule("37-values", "error", "read", _count, _REWRITE),
    Rule("37-values", "warning", None, _count_of_old, _REWRITE),
    Rule("no-header", "error", "read", _no_header, _REWRITE),
    Rule("no-header", "warning", None, _no_header_of_new, _REWRITE),
    Rule("columns", "error", "read", _columns, _REWRITE),
    Rule("columns", "error", None, _ragged, _REWRITE),
    Rule("index", "error", "read", _bad_index, _RETUNE),
    Rule("number", "error", "read", _bad_number, _RETUNE),
    Rule("type", "error", "read", _bad_type, _RETUNE),
    Rule("compute-type", "error", "read", _compute_of_old, "ROCm 7.0 and later take it"),
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
    read = {name: "N" if entry.cells.get(name) == "N" else "T" for name in ("transA", "transB")}
    for names in (entry.cells, _WANTED):
        try:
            return problem({**{x: entry.cells[x] for x in names if x in entry.cells}, **read, "grouped_gemm": "0"})
        except ValueError:
            continue
    return None


def recognise(head: Head) -> bool:
    """As the format does, and files that lost their first line or have a byte order mark before it."""
    data = head.data.removeprefix(b"\xef\xbb\xbf")
    return data.startswith(_FIRST.encode()) or b"transA,transB,grouped_gemm,batch_count" in data


def entries(text: str, by_name: bool | None = None) -> Iterator[Entry]:
    """The lines of values, each with the header line before it, if there is one.

    ROCm 6.4 (``by_name`` False) knows no header: its columns have their places, whatever stands above.
    """
    header: tuple[str, ...] | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        words = tuple(x.strip() for x in line.split(","))
        if by_name is False and "transA" in words:
            continue  # 6.4 takes it for an entry, of sizes that are no numbers
        if by_name is not False and "transA" in line:
            header = words
        elif line.startswith(_FIRST) or len(words) < 2:
            continue
        else:
            names = header if header is not None else TUNING_COLUMNS
            yield Entry(number, words, header, dict(zip(names, words, strict=False)))
            header = None


def _file_notes(text: str, bom: bool, count: int, target: Facts) -> Iterator[Note]:
    first = text.partition("\n")[0]
    if bom:
        message = "a byte order mark stands before the first line: the library finds no revision"
        yield Note(1, "error", "byte-order-mark", message, "save it without a byte order mark")
    if not first.startswith(_FIRST):
        message = "the first line is not 'Git Version: …': the library compares it and switches overriding off"
        yield Note(1, "error", "revision", message, _REWRITE)
    elif first.endswith("\r"):
        message = "lines end in CR LF: the revision then ends in a carriage return and is not the library's"
        yield Note(1, "error", "line-ends", message, "write it with LF line ends")
    mine, theirs = first[len(_FIRST) :].strip(), target.get("hipblaslt_revision", "")
    if first.startswith(_FIRST) and theirs and mine != theirs:
        message = f"written by hipBLASLt {mine}, the target is {theirs}: the library refuses the whole file"
        yield Note(1, "error", "revision", message, _RETUNE)
    if not count:
        yield Note(None, "error", "empty", "no entry in the file", _RETUNE)


def inspect(name: str, data: bytes, target: Facts) -> OverrideFile:
    """Judge the file for a target; without facts of one a row counts as read if either reader takes it."""
    text, bom = text_of(data)
    found = list(entries(text, _reads_names(target)))
    own = _own_facts(text, found)
    notes = list(_file_notes(text, bom, len(found), target))
    refused = any(note.rule in ("byte-order-mark", "revision", "line-ends") for note in notes)
    known = bool(target.get("hipblaslt_revision"))
    accepted = False if refused else True if known else None
    context = _context(found, target)
    rows = []
    for entry in found:
        refusal = "the library refuses the whole file"
        judged, more = judge(entry.line, entry, context, ROW_RULES, accepted, refusal)
        notes += more
        key = context.keys.get(entry.line)
        if key is None and judged.read is not False:
            none = "no call has this key"
            judged = replace(judged, matched=False, why=judged.why or none, fault=judged.fault or none)
        rows.append(
            Row(
                line=entry.line,
                key=key or "",
                problem=_gemm(entry),
                solution=Solution("hipblaslt", entry.index) if entry.index.isdigit() else None,
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


def _context(found: Sequence[Entry], target: Facts) -> _Context:
    keys: dict[int, str | None] = {}
    same: dict[str, list[Entry]] = {}
    for entry in found:
        gemm = _gemm(entry)
        key = keys[entry.line] = None if gemm is None else tuning_file.key(gemm, {})
        if key is not None:
            same.setdefault(key, []).append(entry)
    return _Context(target, _reads_names(target), keys, same)


def _reads_names(target: Facts) -> bool | None:
    version = target.get("hipblaslt_version")
    return None if not version else _number(version) >= _BY_NAME


def _number(version: str) -> int:
    """``1201``, or ``0.12.1`` (before ROCm 6.2) in that form; 0 where it is neither."""
    parts = version.partition("-")[0].split(".")
    if not all(part.isdigit() for part in parts):
        return 0
    numbers = [int(part) for part in (*parts, "0", "0")[:3]]
    return int(parts[0]) if len(parts) == 1 else numbers[0] * 100_000 + numbers[1] * 100 + numbers[2]


def _own_facts(text: str, found: Sequence[Entry]) -> dict[str, str]:
    out = {}
    first = text.partition("\n")[0]
    if first.startswith(_FIRST):
        out["hipblaslt_revision"] = first[len(_FIRST) :].strip()
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
    found = list(entries(text))
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
    """An index of hipBLASLt, also one that rocBLAS hands on."""
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
        ("No valid solution index found in override file", "hipBLASLt could not use an entry's solution for a call"),
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
