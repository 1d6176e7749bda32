"""The member for hipBLASLt's tuning files: remarks on what ``hipblaslt_reader`` makes of one, merging, conversion."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from logparse.errors import InputError
from logparse.formats.format import Emission, Head
from logparse.formats.hipblaslt import bench, tuning_file
from logparse.formats.hipblaslt.columns import TUNING_COLUMNS
from logparse.formats.hipblaslt.tuning_lines import BLANKS, COUNTED, FIRST, Dropped, Taken, Version
from logparse.formats.hipblaslt.tuning_reader import (
    RETUNE,
    REWRITE,
    Context,
    Entry,
    entries,
    own_facts,
    read,
    tried,
)
from logparse.formats.override_format import (
    Conversion,
    Merging,
    OverrideFile,
    OverrideFormat,
    Report,
    bytes_of,
    records_of,
)
from logparse.formats.reading import Note, Offer, Reading, Rule, text_of
from logparse.formats.reading import remarks as row_remarks
from logparse.formats.tunableop.solutions import hipblaslt_index
from logparse.model import GemmProblem, Override, Problem, Solution, problem_from_text

# ------------------------------------------------------------------------------------------------ rules about entries


def _other_reader(entry: Entry, context: Context) -> str | None:
    if context.version.number is not None or isinstance(entry.taken, Dropped) or entry.header is None:
        return None
    if len(entry.values) == len(TUNING_COLUMNS):
        return None
    return f"{len(entry.values)} values: read by ROCm 7.0 and later, ignored by 6.4, which wants {len(TUNING_COLUMNS)}"


def _no_header_of_new(entry: Entry, context: Context) -> str | None:
    if context.version.number is not None or isinstance(entry.taken, Dropped) or entry.header is not None:
        return None
    return "values without a header line: read by ROCm 6.4, ignored by 7.0 and later"


def _ragged(entry: Entry, context: Context) -> str | None:
    if entry.header is None or len(entry.values) == len(entry.header) or isinstance(entry.taken, Dropped):
        return None
    return f"{len(entry.values)} values for a header of {len(entry.header)}: values may stand under the wrong name"


def _loose(entry: Entry, context: Context) -> str | None:
    if isinstance(entry.taken, Dropped):
        return None
    cells = entry.taken.cells
    odd = [f"{name} {cells[name]!r}" for name in COUNTED if not re.fullmatch(r"\d+\r?", cells.get(name, "1"))]
    return f"{', '.join(odd)}: read as far as it is a number" if odd else None


def _other_compute(entry: Entry, context: Context) -> str | None:
    if isinstance(entry.taken, Dropped):
        return None
    given, read = entry.taken.cells["compute_type"], entry.taken.key.rpartition(",")[2]
    return f"the library reads compute type {given!r} as {read}" if given != read else None


def _trans(entry: Entry, context: Context) -> str | None:
    if isinstance(entry.taken, Dropped):
        return None
    trans = {x: entry.taken.cells.get(x, "N") for x in ("transA", "transB")}
    odd = [f"{name} {x!r}" for name, x in trans.items() if x not in ("N", "T", *("C" if entry.taken.whole else ""))]
    return f"{', '.join(odd)}: the library reads anything but N as T" if odd else None


def _grouped(entry: Entry, context: Context) -> str | None:
    if entry.cells.get("grouped_gemm", "0") in ("0", "false"):
        return None
    return "an entry of a grouped GEMM: the library takes it for a single one of these sizes"


def _other_cus(entry: Entry, context: Context) -> str | None:
    if isinstance(entry.taken, Taken) and entry.taken.whole:
        return None
    mine, theirs = entry.cells.get("CUs", ""), context.facts.get("cu_count", "")
    if not mine or not theirs or mine in ("0", theirs):
        return None
    return f"tuned with {mine} CUs, the target has {theirs}: the best solution may be another"


def _repeated(entry: Entry, context: Context) -> str | None:
    twins = [x for x in _twins(entry, context) if x.line < entry.line and x.index == entry.index]
    return f"the same entry as line {twins[0].line}" if twins else None


def _conflict(entry: Entry, context: Context) -> str | None:
    others = [x for x in _twins(entry, context) if x.index != entry.index]
    if not others:
        return None
    other = others[0] if context.version.by_name else others[-1]
    both = f"line {other.line} has the same key with solution {other.index}"
    if context.version.by_name is None:
        return f"{both}; which of them is used depends on the version"
    if context.version.by_name:
        return f"{both}; the first one whose index the build has is used" if other.line < entry.line else None
    return f"{both}, and ROCm 6.4 tries the latest first" if other.line > entry.line else None


def _twins(entry: Entry, context: Context) -> Sequence[Entry]:
    return [] if entry.key is None else context.same_key[entry.key]


ROW_RULES: tuple[Rule[Entry, Context], ...] = (
    Rule("37-values", "warning", None, _other_reader, REWRITE),
    Rule("no-header", "warning", None, _no_header_of_new, REWRITE),
    Rule("columns", "warning", None, _ragged, REWRITE),
    Rule("number", "warning", None, _loose, REWRITE),
    Rule("compute-type", "warning", None, _other_compute, RETUNE),
    Rule("trans", "warning", None, _trans, RETUNE),
    Rule("grouped", "warning", None, _grouped, "remove it"),
    Rule("cu-count", "warning", None, _other_cus, RETUNE),
    Rule("duplicate", "info", None, _repeated, "remove it"),
    Rule("conflict", "error", None, _conflict, "keep the faster one"),
)


# ------------------------------------------------------------------------------------- calls through the C++ object


def reported(name: str, reading: Reading[Context], messages: Iterable[tuple[str, str]]) -> dict[str, Report]:
    """Calls through the C++ object that have another key than those of the C functions."""
    out = {}
    for problem in object_calls(messages):
        own, other = (key(problem, reading.key_facts) for key in (tuning_file.key, tuning_file.object_key))
        if other is not None and own != other:
            compute = other.rpartition(",")[2]
            what = "find no row" if compute == tuning_file.NO_ROW else f"find only rows of compute type {compute}"
            why = f"calls of these types through hipBLASLt's C++ object, as rocBLAS makes them, {what}"
            out[problem.text] = Report(other, None, why=f"{why} up to version 1.2.2")
    return out


def object_calls(messages: Iterable[tuple[str, str]]) -> list[Problem]:
    """The problems that a run's logs (function and text of messages) name as called through the C++ object."""
    return [problem_from_text(text) for function, text in messages if function == bench.OBJECT]


def with_objects(overrides: Sequence[Override], called: Sequence[Problem], target: Mapping[str, str]) -> list[Override]:
    """The overrides, each followed by that of the calls through the C++ object, where such calls need one."""
    keys = {tuning_file.key(problem, target) for problem in called} - {None}
    out = []
    for override in overrides:
        other = tuning_file.for_object(override, target) if tuning_file.key(override.problem, target) in keys else None
        out += [override, other] if other else [override]
    return out


def kernels(problem: Problem) -> str | None:
    """The kind of kernels that a call needs: an index has those of one, and serves no call of another.

    Bias, activation, β, scales of whole matrices, leading dimensions and strides do not matter.  Of the 11,808 indices
    that version 1.2.2 offered on gfx90a for plain products, and 5,972 on gfx1201, it offered none for another kind.
    """
    if not isinstance(problem, GemmProblem) or problem.aux is None:
        return None
    words = []
    if problem.aux:
        words.append("an activation's gradient" if problem.gradient else "an auxiliary matrix")
    elif problem.gradient and problem.bias:
        words.append(f"a bias gradient from {(problem.bias_source or 'd').upper()}")
    if "row" in (problem.scale_a, problem.scale_b):
        words.append("scales per row")
    return " with ".join(words)


# ------------------------------------------------------------------------------------------------------- the file


def recognise(head: Head) -> bool:
    """As the format does, and files that lost their first line or have something before it."""
    data = head.data.removeprefix(b"\xef\xbb\xbf").lstrip(BLANKS.encode())
    return data.startswith(FIRST.encode()) or b"transA,transB,grouped_gemm,batch_count" in data


def remarks(name: str, data: bytes, reading: Reading[Context]) -> Iterator[Note]:
    """What else to know of a file and its entries."""
    if text_of(data)[1]:
        yield Note(1, "info", "byte-order-mark", "a byte order mark stands before the first line, without effect", "")
    if not reading.rows:
        yield Note(None, "error", "empty", "no entry in the file", RETUNE)
    for entry in reading.parsed.entries:
        yield from row_remarks(entry.line, entry, reading.parsed, ROW_RULES)


# ------------------------------------------------------------------------------------------- merged, kept, converted


def _header(name: str, data: bytes) -> list[tuple[str, str]]:
    """Revision, device and layout of a file.  Raises InputError where it has no revision."""
    text = text_of(data)[0]
    found = list(entries(text, Version(None)))
    revision = own_facts(text, found).get("hipblaslt_revision")
    if revision is None:
        raise InputError("it does not begin with 'Git Version: …': the hipBLASLt of its rows is unknown")
    device = (("arch", "gcnArchName"), ("cu_count", "CUs"))
    pairs = {(word, entry.cells.get(column, "")) for word, column in device for entry in found}
    pairs |= {("layout", _LAYOUTS[entry.header is not None]) for entry in found}
    return [("revision", revision), *sorted(x for x in pairs if x[1] not in ("", "0"))]


_LAYOUTS = ("values only (ROCm 6.4)", "a header line each (ROCm 7)")


def _merged(rows: Iterable[Offer], name: str, agreed: Mapping[str, str], gpus: int) -> list[Emission]:
    data = bytes_of([FIRST + agreed["revision"], *(row.text for row in rows)])
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
    reader=read,
    remarks=remarks,
    key=tuning_file.key,
    compared=("hipblaslt_revision",),
    tried=tried,
    reported=reported,
    kernels=kernels,
    signs=(
        (
            "the override file git version are not the same",
            "hipBLASLt refused the tuning file: it has another git revision, or cannot be opened",
        ),
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
