"""The member for TunableOp's results CSVs: which rows PyTorch reads, matches and honours, and remarks on them.

Files are accepted or rejected whole (``tunableop_reader``, which is PyTorch's own reader).  Without a target the file's
own validators stand for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from logparse.errors import InputError
from logparse.formats.decimals import MS_TO_US, shifted
from logparse.formats.format import Emission
from logparse.formats.override_format import Conversion, Merging, OverrideFormat, bytes_of, records_of
from logparse.formats.reading import Note, Offer, Reading, Row, Rule, Verdicts, accepted, judge
from logparse.formats.reading import remarks as row_remarks
from logparse.formats.tunableop import results, signature, validators
from logparse.formats.tunableop import validated as reader
from logparse.formats.tunableop.solutions import solution, why_no_candidate
from logparse.formats.tunableop.validated import Entry, rejection
from logparse.formats.tunableop.validated import Reading as Validated
from logparse.model import GemmProblem, Measurement, Solution
from logparse.target import Facts

_PLAIN_HIPBLASLT = (2, 7)
_CUBLASLT = (2, 14)
_ORDINAL = re.compile(r"\d\Z")
_COPY = "copy the file again from the machine that wrote it, or write it with LF line ends"
_BOM = b"\xef\xbb\xbf"
_BYTE_ORDER_MARK = Note(
    1,
    "error",
    "byte-order-mark",
    "a byte order mark stands before the first line, which is then no validator",
    "save it without a byte order mark",
)
_RETUNE = "tune again on the target, or let `logparse recommend --target` write the file"


@dataclass(frozen=True)
class _Context:
    facts: Facts
    how: signature.Dialect | None
    torch: tuple[int, int] | None
    cuda: bool
    solution_at: Mapping[int, str]  # line → solution, to report whether a shadowed row differs


@dataclass(frozen=True)
class _Parsed:
    """The lines as PyTorch splits them, and what the rules need of the target."""

    lines: Validated
    context: _Context


# ----------------------------------------------------------------------------------------------- rules about rows


def _problem(entry: Entry) -> GemmProblem | None:
    try:
        return signature.problem(entry.op, entry.params)
    except signature.SignatureError:
        return None


def _shadowed(same: bool, entry: Entry, context: _Context) -> str | None:
    winner = entry.shadowed_by
    if winner is None or (context.solution_at.get(winner) == entry.solution) is not same:
        return None
    other = "" if same else f", with {context.solution_at.get(winner)} instead of {entry.solution}"
    return f"the key stands in line {winner} already and the first row wins{other}"


def _header(entry: Entry, context: _Context) -> str | None:
    if "tunableop" in entry.op.lower():
        return None
    return f"{entry.op[:40]!r} is no op of TunableOp: PyTorch loads the line and never uses it"


def _bad_key(entry: Entry, context: _Context) -> str | None:
    if _header(entry, context):
        return None
    try:
        signature.problem(entry.op, entry.params)
    except signature.SignatureError as error:
        return f"no call has this key: {error}"
    return None


def _leading_dims(entry: Entry, context: _Context) -> str | None:
    if context.how is None or _problem(entry) is None or ("_ld_" in entry.params) is context.how.leading_dims:
        return None
    return (
        "the key has no leading dimensions, this PyTorch (2.7 and later) always writes them"
        if context.how.leading_dims
        else "the key has leading dimensions, this PyTorch (before 2.7) writes none"
    )


def _other_spelling(entry: Entry, context: _Context) -> str | None:
    given = _problem(entry)
    if given is None or context.how is None or _leading_dims(entry, context):
        return None
    gemm = signature.gemm_of(given)
    if signature.missing(given, context.how) == ("kind",) and gemm is not None and not context.how.scaled:
        return "this PyTorch has no TunableOp for such a call"
    key = signature.key(given, context.facts)
    return f"this PyTorch writes {key} for the call" if key is not None and key != entry.key else None


def _carriage_return(entry: Entry, context: _Context) -> str | None:
    if not entry.solution.endswith("\r"):
        return None
    return "the row ends in a carriage return, which becomes part of the solution's name"


def _unknown(entry: Entry, context: _Context) -> str | None:
    named = solution(entry.solution)
    harmless = named.library != "torch" or named.text == "Default" or _problem(entry) is None
    if harmless or _carriage_return(entry, context):
        return None
    what = "the call raises RuntimeError" if not context.torch or context.torch < _CUBLASLT else "the default runs"
    return f"{entry.solution!r} is no name of a solution: {what}"


def _old_name(entry: Entry, context: _Context) -> str | None:
    letters = re.match(r"Gemm_Hipblaslt_([NT]{2})_", entry.solution)
    if context.torch is None or not entry.solution.startswith("Gemm_Hipblaslt_"):
        return None
    if context.torch >= _PLAIN_HIPBLASLT and letters:
        return "the solution's name has the layout in it, which PyTorch writes up to 2.6 only"
    if context.torch < _PLAIN_HIPBLASLT and not letters:
        return "the solution's name has no layout in it, which PyTorch before 2.7 wants"
    if letters and not entry.op.endswith(f"_{letters[1]}"):
        return f"a solution of layout {letters[1]} for {entry.op}"
    return None


def _no_candidate(entry: Entry, context: _Context) -> str | None:
    named, given = solution(entry.solution), _problem(entry)
    gemm = None if given is None else signature.gemm_of(given)
    return None if named.library == "torch" or gemm is None else why_no_candidate(named, gemm)


def _other_backend(entry: Entry, context: _Context) -> str | None:
    library = solution(entry.solution).library
    if context.cuda and library in ("hipblaslt", "rocblas"):
        return f"a {library} solution, and the target is a CUDA build"
    if library == "cublaslt" and not context.cuda and context.facts.get("backend") == "HIP":
        return "a cuBLASLt solution, and the target is a ROCm build"
    if library == "cublaslt" and context.torch is not None and context.torch < _CUBLASLT:
        return "PyTorch takes cuBLASLt solutions from 2.14 on"
    return None


def _all_failed(entry: Entry, context: _Context) -> str | None:
    return "the time is inf: every candidate failed when the key was tuned" if entry.time_ms == math.inf else None


def _time(entry: Entry, context: _Context) -> str | None:
    if entry.time_ms == math.inf or entry.time_ms > 0 or _header(entry, context):
        return None
    return "no time in the row; PyTorch never uses it, merging and verifying would"


_RULES: tuple[Rule[Entry, _Context], ...] = (
    Rule("duplicate", "warning", "read", lambda e, c: _shadowed(True, e, c), "remove the later row", fault=False),
    Rule(
        "conflict",
        "error",
        "read",
        lambda e, c: _shadowed(False, e, c),
        "`logparse merge` keeps the faster one",
        fault=False,
    ),
    Rule("no-op", "warning", "matched", _header, "remove it"),
    Rule("bad-key", "error", "matched", _bad_key, _RETUNE),
    Rule("key-dialect", "error", "matched", _leading_dims, _RETUNE),
    Rule("key-spelling", "error", "matched", _other_spelling, _RETUNE),
    Rule("carriage-return", "error", "honoured", _carriage_return, _COPY),
    Rule("unknown-solution", "error", "honoured", _unknown, _RETUNE),
    Rule("solution-dialect", "error", "honoured", _old_name, _RETUNE),
    Rule("no-candidate", "error", "honoured", _no_candidate, _RETUNE),
    Rule("backend", "error", "honoured", _other_backend, _RETUNE),
    Rule("every-candidate-failed", "warning", None, _all_failed, "look into the verbose log of the tuning run"),
    Rule("no-time", "info", None, _time),
)


# ---------------------------------------------------------------------------------------------- rules about the file


def _refusals(data: bytes, reading: Validated, target: Facts) -> Iterator[Note]:
    """Why PyTorch rejects the file."""
    if not data:
        yield Note(
            None, "error", "empty", "the file is empty", "a worker that was killed (PyTorch up to 2.9) leaves it"
        )
    if _mark_costs_a_validator(data, reading, target):
        yield _BYTE_ORDER_MARK
    if any(value.endswith("\r") for value in reading.validators.values()):
        message = "lines end in CR LF: the validators' values then end in a carriage return and match nothing"
        yield Note(None, "error", "line-ends", message, _COPY)
    yield from _validator_notes(reading, target)


def remarks(name: str, data: bytes, reading: Reading[_Parsed]) -> Iterator[Note]:
    """What else to know of a file and its rows."""
    lines, context = reading.parsed.lines, reading.parsed.context
    if data.startswith(_BOM) and not _mark_costs_a_validator(data, lines, reading.target):
        yield _BYTE_ORDER_MARK
    texts = data.decode("utf-8", "surrogateescape").split("\n")
    for line in lines.ignored:
        if texts[line - 1] not in ("\r", ""):
            message = "fewer than three fields: PyTorch ignores the line"
            yield Note(line, "warning", "few-fields", message, "remove it")
    for entry in lines.entries:
        yield from row_remarks(entry.line, entry, context, _RULES)
        for match in _glued(texts[entry.line - 1]):
            message = f"a row is glued to another and not read: {texts[entry.line - 1][match:][:60]}"
            yield Note(entry.line, "error", "glued", message, "put it on a line of its own (`logparse merge` does)")
    if lines.entries and not data.endswith(b"\n"):
        message = "no line end after the last row: PyTorch 2.10 and later glues the next tuned row to it"
        yield Note(len(texts), "warning", "no-final-newline", message, "append a line end")
    dialects = {"_ld_" in x.params for x in lines.entries if _problem(x) is not None}
    if len(dialects) > 1:
        message = "rows with and without leading dimensions: written by two versions of PyTorch"
        yield Note(None, "warning", "mixed-dialect", message, _RETUNE)
    yield from _name_notes(name, reading.target)


def _mark_costs_a_validator(data: bytes, reading: Validated, target: Facts) -> bool:
    """Whether PyTorch rejects the file for its byte order mark; without a target it is taken to."""
    running = running_validators(target)
    return data.startswith(_BOM) and (not running or rejection(reading.validators, running) is not None)


def _validator_notes(reading: Validated, target: Facts) -> Iterator[Note]:
    if "PT_VERSION" not in reading.validators:
        message = "no validator PT_VERSION: the file is rejected without a warning"
        yield Note(None, "error", "validators", message, "copy the Validator lines of a file that the target wrote")
        return
    blank = [key for key, value in reading.validators.items() if value != value.strip(" \t")]
    if blank:
        yield Note(None, "error", "validators", f"blanks around the value of {', '.join(blank)}", "remove them")
    running = running_validators(target)
    reason = rejection(reading.validators, running) if running else None
    if reason and not blank:
        yield Note(None, "error", "validators", f"PyTorch rejects the whole file: {reason}", _RETUNE)


def _name_notes(name: str, target: Facts) -> Iterator[Note]:
    stem = name.rpartition(".")[0] or name
    if not _ORDINAL.search(stem):
        message = f"PyTorch never opens {name} by itself: it puts the device's number before the last dot"
        remedy = f"name it {_with_ordinal(name)} and set PYTORCH_TUNABLEOP_FILENAME={name}, or pass it to read_file()"
        yield Note(None, "warning", "file-name", message, remedy)
        return
    ordinal = int(re.findall(r"\d+\Z", stem)[0])
    gpus = target.get("gpus", "")
    if gpus.isdigit() and ordinal >= int(gpus):
        message = f"the name is of device {ordinal}, and a process of the target sees devices 0 to {int(gpus) - 1}"
        yield Note(None, "error", "file-name", message, "`logparse merge --gpus N` writes one file per device")


def _with_ordinal(name: str) -> str:
    stem, dot, suffix = name.rpartition(".")
    return f"{stem}0.{suffix}" if dot else f"{name}0"


def _glued(text: str) -> list[int]:
    """Where further rows begin that were appended to a file without a final line end (``…,Default,0.5GemmTun…``)."""
    starts = [m.start() for m in signature.OP.finditer(text)]
    return [x for x in starts if text[:x].count(",") >= 2 and text[x - 1] != ","]


# ------------------------------------------------------------------------------------------------------- the file


def running_validators(target: Facts) -> dict[str, str]:
    """The validators of a target's PyTorch among its facts."""
    size = len(validators.PREFIX)
    return {name[size:]: value for name, value in target.items() if name.startswith(validators.PREFIX)}


def own_facts(reading: Validated) -> dict[str, str]:
    """Facts of the PyTorch that wrote the file, from its validators and its rows (CUDA)."""
    values = {key: value.strip() for key, value in reading.validators.items()}
    out = {fact.name: fact.value for fact in validators.facts(values)}
    libraries = {solution(x.solution.strip()).library for x in reading.entries}
    if set(values) == {"PT_VERSION"} and not libraries & {"hipblaslt", "rocblas"}:
        out["backend"] = "CUDA"
    return out


def read(name: str, data: bytes, target: Facts) -> Reading[_Parsed]:
    """What PyTorch takes from the file; without facts of one, a PyTorch like the one that wrote it."""
    lines = reader.read(data)
    own, running = own_facts(lines), running_validators(target)
    by = target if signature.torch_version(target) else {**own, **target}
    refusals, certain = tuple(_refusals(data, lines, target)), bool(running)
    context = _Context(
        by,
        signature.dialect(by),
        signature.torch_version(by),
        by.get("backend") == "CUDA",
        {entry.line: entry.solution for entry in lines.entries},
    )
    taken = accepted(refusals, certain)
    rows = []
    texts = data.decode("utf-8", "surrogateescape").split("\n")
    for entry in lines.entries:
        text = texts[entry.line - 1]
        starts = _glued(text)
        rows.append(_row(entry, context, taken, text[: starts[0]] if starts else text))
        rows += _glued_rows(entry.line, text, starts)
    rows.sort(key=lambda row: row.line)
    parsed = _Parsed(lines, context)
    return Reading(rows=tuple(rows), refusals=refusals, certain=certain, facts=own, target=target, parsed=parsed)


def _row(entry: Entry, context: _Context, taken: bool | None, text: str) -> Row:
    verdicts, breaches = judge(entry.line, entry, context, _RULES, taken, "PyTorch rejects the whole file")
    timed = 0 < entry.time_ms < math.inf
    return Row(
        line=entry.line,
        key=entry.key,
        problem=_problem(entry),
        solution=solution(entry.solution) if entry.solution else None,
        time_us=shifted(entry.time_ms, MS_TO_US) if timed else None,
        verdicts=verdicts,
        text=text.rstrip("\r"),
        breaches=breaches,
    )


def _glued_rows(line: int, text: str, starts: Sequence[int]) -> list[Row]:
    """The rows that stand behind the first one of a line; nothing is wrong with them but their place."""
    verdicts = Verdicts(read=False, why=f"glued to line {line}, PyTorch does not read it")
    out = []
    for start, end in zip(starts, [*starts[1:], None], strict=False):
        record = results.row(text[start:end])
        if isinstance(record, Measurement):
            out.append(
                Row(
                    line=line,
                    key=str(record.key_text),
                    problem=record.problem,
                    solution=record.solution,
                    verdicts=verdicts,
                    time_us=record.time_us,
                    text=text[start:end].rstrip("\r"),
                )
            )
    return out


def foreign(key: str, facts: Facts) -> str | None:
    """Why this PyTorch makes no such key (leading dimensions, spelling), or None."""
    op, _, params = key.partition(",")
    context = _Context(
        facts, signature.dialect(facts), signature.torch_version(facts), facts.get("backend") == "CUDA", {}
    )
    entry = Entry(0, op, params, "Default", 0.0, 3)
    return _leading_dims(entry, context) or _other_spelling(entry, context)


# ------------------------------------------------------------------------------------------- merged, kept, converted


def _validator_pairs(name: str, data: bytes) -> list[tuple[str, str]]:
    """The validators, and which there are: PyTorch compares whole sets.  Raises InputError where there are none."""
    found = reader.read(data).validators
    if not found:
        raise InputError("no validators, so the PyTorch of its rows is unknown")
    return [*found.items(), ("the set of validators", ", ".join(sorted(found)))]


def _merged(rows: Iterable[Offer], name: str, agreed: Mapping[str, str], gpus: int) -> list[Emission]:
    # The set is the files' own, so complete whatever it holds: that is what a CUDA build's means to the writer.
    facts = {f"{validators.PREFIX}{key}": value for key, value in agreed.items() if " " not in key}
    head = validators.lines({**facts, "backend": "CUDA"})
    data = bytes_of([*head, *(row.text for row in rows)])
    use = f"export PYTORCH_TUNABLEOP_FILENAME={{folder}}/{results.FILE_NAME}.csv"
    return [Emission(f"{results.FILE_NAME}{gpu}.csv", data, use) for gpu in range(gpus)]


def _takes(given: Solution, rocblas_version: str) -> Solution | None:
    own = given.library in ("rocblas", "cublaslt") or (given.library == "hipblaslt" and given.id.isdigit())
    return given if own else None


OVERRIDE_FORMAT = OverrideFormat(
    name=results.FORMAT.name,
    kinds=frozenset({"gemm", "grouped"}),
    recognise=results.recognise,
    reader=read,
    remarks=remarks,
    key=signature.key,
    compared=(validators.PREFIX,),
    foreign=foreign,
    signs=(
        ("Failed validator", "PyTorch rejected the TunableOp file: a validator differs"),
        ("Unmatched validator", "PyTorch rejected the TunableOp file: its set of validators differs"),
        ("missing candidate", "PyTorch does not have a row's solution and ran the default"),
    ),
    writer=results.WRITER,
    keep_refusal=lambda own, emitted: None,
    merging=Merging(header=_validator_pairs, write=_merged, per_device=True),
    conversion=Conversion(
        word="tunableop",
        recognise=results.FORMAT.recognise,
        read=records_of(results.FORMAT),
        takes=_takes,
        matched="PyTorch matches leading dimensions and whether there is a bias: a row serves only calls like its own",
    ),
)
