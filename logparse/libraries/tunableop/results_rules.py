"""Rules for TunableOp results files: whether PyTorch accepts a file, and which of its rows it uses.

PyTorch compares the validators and accepts or rejects the whole file.  Without a target, the file's own validators are
used as the target's.  If only some facts of a target are known, each fact is compared with the validator that holds it.

``benchmarks/gpu_tunableop.py`` and ``torch_reader.py`` compare these rules with PyTorch's own reader.  Source:
pytorch/pytorch aten/src/ATen/cuda/tunable/Tunable.cpp (``TuningContext::ReadFile``,
``TuningResultsValidator::ValidateAll``), torch 2.3 to 2.15.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

from logparse.errors import InputError
from logparse.libraries.kinds.format import Emission
from logparse.libraries.kinds.override_format import Conversion, Merging, OverrideFormat, bytes_of, records_of
from logparse.libraries.kinds.reading import Note, Offer, Reading, Rule, Table
from logparse.libraries.tunableop import results, signature, untuned, validators
from logparse.libraries.tunableop.results import BOM, ResultsFile, ResultsRow
from logparse.libraries.tunableop.solutions import why_no_candidate
from logparse.model import Solution
from logparse.target import Facts

_PLAIN_HIPBLASLT = (2, 7)
_CUBLASLT = (2, 14)
_ORDINAL = re.compile(r"\d+\Z")
_COPY = (
    "copy the file again from the machine that wrote the file, or save the file with LF line ends and without blanks"
)
_RETUNE = "tune again on the target, or let `logparse recommend --target` write the file"


@dataclass(frozen=True)
class Context:
    """The facts that the checks of a results file need about the PyTorch that will read the file."""

    facts: Facts

    @cached_property
    def how(self) -> signature.Dialect | None:
        return signature.dialect(self.facts)

    @cached_property
    def torch(self) -> tuple[int, int] | None:
        return signature.torch_version(self.facts)


# ----------------------------------------------------------------------------------------------- rules about rows


def _glued(row: ResultsRow, context: Context) -> str | None:
    return (
        (
            f"the row is joined to another row of line {row.line} without a line end, so PyTorch does not read "
            f"{row.text[:60]!r}"
        )
        if row.glued
        else None
    )


def _shadowed(same: bool, row: ResultsRow, context: Context) -> str | None:
    winner = row.winner
    if winner is None or (winner.name == row.name) is not same:
        return None
    other = "" if same else f", with {winner.name} instead of {row.name}"
    return f"line {winner.line} already has this key, and PyTorch uses the first row{other}"


def _no_op(row: ResultsRow, context: Context) -> str | None:
    if "tunableop" in row.op.lower():
        return None
    return f"TunableOp has no op {row.op[:40]!r}, so PyTorch loads the row and never uses the row"


def _bad_key(row: ResultsRow, context: Context) -> str | None:
    return None if row.error is None or _no_op(row, context) else f"no call has the row's key: {row.error}"


def _leading_dims(row: ResultsRow, context: Context) -> str | None:
    if context.how is None or row.problem is None or ("_ld_" in row.params) is context.how.leading_dims:
        return None
    return (
        "the row's key lacks leading dimensions, which this PyTorch (2.7 and later) always writes"
        if context.how.leading_dims
        else "the row's key has leading dimensions, which this PyTorch (before 2.7) does not write"
    )


def _other_spelling(row: ResultsRow, context: Context) -> str | None:
    if row.problem is None or context.how is None or _leading_dims(row, context):
        return None
    if signature.missing(row.problem, context.how) == ("kind",) and not context.how.scaled:
        return "TunableOp does not handle a call of this kind in this version of PyTorch"
    key = signature.key(row.problem, context.facts)
    return f"this PyTorch writes {key} for the call" if key is not None and key != row.key else None


def _unknown(row: ResultsRow, context: Context) -> str | None:
    if row.solution.library != "torch" or row.solution.text == "Default" or row.problem is None:
        return None
    what = "the call raises RuntimeError" if not context.torch or context.torch < _CUBLASLT else "the default runs"
    return f"{row.name!r} is not the name of a solution: {what}"


def _old_name(row: ResultsRow, context: Context) -> str | None:
    letters = re.match(r"Gemm_Hipblaslt_([NT]{2})_", row.name)
    if context.torch is None or not row.name.startswith("Gemm_Hipblaslt_"):
        return None
    if context.torch >= _PLAIN_HIPBLASLT and letters:
        return (
            "the name of the row's solution contains the letters of its layout (such as NT). Only PyTorch up to 2.6 "
            "uses such names, so the target's PyTorch does not find the solution"
        )
    if context.torch < _PLAIN_HIPBLASLT and not letters:
        return (
            "the name of the row's solution does not contain the letters of its layout (such as NT), but PyTorch "
            "before 2.7 needs these letters"
        )
    if letters and not row.op.endswith(f"_{letters[1]}"):
        return f"the row names a solution for layout {letters[1]}, but the row's op is {row.op}"
    return None


def _no_candidate(row: ResultsRow, context: Context) -> str | None:
    if row.solution.library == "torch" or row.problem is None:
        return None
    return why_no_candidate(row.solution, row.problem)


def _other_backend(row: ResultsRow, context: Context) -> str | None:
    library, backend = row.solution.library, context.facts.get("backend")
    if backend == "CUDA" and library in ("hipblaslt", "rocblas"):
        return f"the row names a {library} solution, but the target has a CUDA build"
    if library == "cublaslt" and backend == "HIP":
        return "the row names a cuBLASLt solution, but the target has a ROCm build"
    if library == "cublaslt" and context.torch is not None and context.torch < _CUBLASLT:
        return "PyTorch accepts cuBLASLt solutions only from version 2.14 on"
    return None


def _all_failed(row: ResultsRow, context: Context) -> str | None:
    return (
        "the row's time is inf, so every candidate failed when this key was tuned" if row.time_ms == math.inf else None
    )


_APART = "put the row on a line of its own (`logparse merge` does this)"
_FASTER = "keep only the faster row (`logparse merge` does this)"
_RULES: tuple[Rule[ResultsRow, Context], ...] = (
    Rule("glued", "error", "read", _glued, _APART, fault=False),
    Rule("duplicate", "warning", "read", partial(_shadowed, True), "remove the later row", fault=False),
    Rule("conflict", "error", "read", partial(_shadowed, False), _FASTER, fault=False),
    Rule("no-op", "warning", "matched", _no_op, "remove the row"),
    Rule("bad-key", "error", "matched", _bad_key, _RETUNE),
    Rule("key-dialect", "error", "matched", _leading_dims, _RETUNE),
    Rule("key-spelling", "error", "matched", _other_spelling, _RETUNE),
    Rule("unknown-solution", "error", "honoured", _unknown, _RETUNE),
    Rule("solution-dialect", "error", "honoured", _old_name, _RETUNE),
    Rule("no-candidate", "error", "honoured", _no_candidate, _RETUNE),
    Rule("backend", "error", "honoured", _other_backend, _RETUNE),
    Rule(
        "every-candidate-failed",
        "warning",
        None,
        _all_failed,
        "look in the verbose log of the tuning run why every candidate failed",
    ),
)


# ------------------------------------------------------------------------------------------------------- the file


def split_into_values(data: bytes) -> ResultsFile:
    """Split a TunableOp results file into lines and values, in the same way as PyTorch.

    Lines end only at LF.  Every comma separates two values.
    """
    file = ResultsFile()
    for number, line in enumerate(data.decode("utf-8", "surrogateescape").split("\n"), start=1):
        for _ in file.take(number, line):
            pass
    return file


def read(name: str, data: bytes, target: Facts) -> Reading[Table[ResultsRow, Context]]:
    """Read a TunableOp results file as PyTorch would, and return its rows with remarks.

    If ``target`` states no PyTorch version, the version that wrote the file is assumed.
    """
    file = split_into_values(data)
    libraries = {row.solution.library for row in file.rows}
    own = {fact.name: fact.value.strip() for fact in validators.facts(file.validators, libraries)}
    context = Context(target if signature.torch_version(target) else {**own, **target})
    table = Table(file.rows, context, _RULES, list(_notes(name, data, file, target)))
    refusals, certain = list(_refusals(data, file, target)), validators.complete(target)
    why = refusals[0].message if refusals else ""
    return table.reading(why, refusals=refusals, certain=certain, facts=own, target=target)


def _refusals(data: bytes, file: ResultsFile, target: Facts) -> Iterator[Note]:
    """Yield an error note if PyTorch rejects the whole results file, for example because a version differs."""
    given = file.validators
    odd = [key for key, value in given.items() if value != value.strip()]
    if not data:
        remedy = "delete the file: up to PyTorch 2.9, a worker that is killed leaves an empty file behind"
        yield Note(None, "error", "empty", "the file is empty", remedy)
    elif "PT_VERSION" not in given:
        message = (
            "the file has no line Validator,PT_VERSION,… (the PyTorch version), so PyTorch rejects the file "
            "without a warning"
        )
        yield Note(
            None, "error", "validators", message, "copy the Validator lines from a results file that the target wrote"
        )
    elif odd:
        message = (
            f"the value of {', '.join(odd)} has blanks or a carriage return around it, so it equals no value of PyTorch"
        )
        yield Note(None, "error", "validators", message, _COPY)
    elif reason := validators.refusal(given, target):
        yield Note(None, "error", "validators", f"PyTorch rejects the whole file: {reason}", _RETUNE)


def _notes(name: str, data: bytes, file: ResultsFile, target: Facts) -> Iterator[Note]:
    """Warn about faults of a results file for which PyTorch does not reject the whole file.

    They are a byte order mark, ignored lines, a missing line end and a wrong file name.
    """
    if data.startswith(BOM.encode()):
        message = "the file begins with a byte order mark, so PyTorch does not read its first line as a validator"
        yield Note(1, "error", "byte-order-mark", message, "save the file without a byte order mark")
    for line in file.ignored:
        yield Note(
            line,
            "warning",
            "few-fields",
            "the line has fewer than three fields, so PyTorch ignores the line",
            "remove the line",
        )
    if file.rows and not data.endswith(b"\n"):
        message = "the last row has no line end, so PyTorch 2.10 and later joins the next tuned row to it"
        yield Note(data.count(b"\n") + 1, "warning", "no-final-newline", message, "append a line end to the file")
    yield from _name_notes(name, target)


def _name_notes(name: str, target: Facts) -> Iterator[Note]:
    stem, dot, suffix = name.rpartition(".") if "." in name else (name, "", "")
    ordinal, gpus = _ORDINAL.search(stem), target.get("gpus", "")
    if ordinal is None:
        message = f"PyTorch never opens {name} by itself, because it inserts the device number before the last dot"
        remedy = (
            f"name the file {stem}0{dot}{suffix} and set PYTORCH_TUNABLEOP_FILENAME={name}, or pass the file to "
            "read_file()"
        )
        yield Note(None, "warning", "file-name", message, remedy)
    elif gpus.isdigit() and int(ordinal[0]) >= int(gpus):
        message = f"the name is for device {ordinal[0]}, but a process of the target sees devices 0 to {int(gpus) - 1}"
        yield Note(None, "error", "file-name", message, "let `logparse merge --gpus N` write one file per device")


def not_in_this_build(key: str, facts: Facts) -> str | None:
    """Explain why this PyTorch build never uses a row of a TunableOp results file.  Return None if it may use the row.

    ``key`` is the part of the row that describes the matrix product.
    """
    row, context = results.row(f"{key},Default", 0), Context(facts)
    # For example, PyTorch before 2.7 describes products without leading dimensions, so it never finds a row that states
    # them.
    return None if row is None else _leading_dims(row, context) or _other_spelling(row, context)


# ------------------------------------------------------------------------------------------- merged, kept, converted


def _validator_pairs(name: str, data: bytes) -> list[tuple[str, str]]:
    """Return what two TunableOp results files must have in common before they are merged: versions and device.

    Raises InputError if the file has no lines ``Validator,…``, which state them.
    """
    found = split_into_values(data).validators
    if not found:
        raise InputError("the file has no Validator lines, so it is unknown which PyTorch version wrote its rows")
    # The last pair holds the names of all validators, because PyTorch compares whole sets of them.
    return [*found.items(), ("the set of validators", ", ".join(sorted(found)))]


def _merge_rows(rows: Iterable[Offer], name: str, agreed: Mapping[str, str], gpus: int) -> list[Emission]:
    # The validators come from the files themselves, so the set is complete.  With ``backend: CUDA``,
    # ``validators.lines`` does not require the validators of a ROCm build.
    facts = {f"{validators.PREFIX}{key}": value for key, value in agreed.items() if " " not in key}
    head = validators.lines({**facts, "backend": "CUDA"})
    data = bytes_of([*head, *(row.text for row in rows)])
    return [Emission(f"{results.FILE_NAME}{gpu}.csv", data, results.USE) for gpu in range(gpus)]


def _takes(given: Solution, rocblas_version: str) -> Solution | None:
    own = given.library in ("rocblas", "cublaslt") or (given.library == "hipblaslt" and given.id.isdigit())
    return given if own else None


OVERRIDE_FORMAT = OverrideFormat(
    name=results.FORMAT.name,
    order="if several rows have the same key, PyTorch uses the first row",
    kinds=frozenset({"gemm", "grouped"}),
    recognise=results.recognise,
    reader=read,
    key=signature.key,
    compared=(validators.PREFIX,),
    not_in_this_build=not_in_this_build,
    signs=(
        (
            "Failed validator",
            (
                "PyTorch rejected the TunableOp file, because one of its Validator lines (versions and device) differs "
                "from PyTorch's own value"
            ),
        ),
        (
            "Unmatched validator",
            (
                "PyTorch rejected the TunableOp file, because its Validator lines (versions and device) have other "
                "names than PyTorch's own"
            ),
        ),
        (
            "missing candidate",
            "PyTorch lacks the solution that a row of the TunableOp file names, and ran its default kernel",
        ),
    ),
    writer=results.WRITER,
    list_writer=untuned.WRITER,
    find_copy_obstacle=lambda own, emitted: None,
    merging=Merging(header=_validator_pairs, write=_merge_rows, per_device=True),
    conversion=Conversion(
        word="tunableop",
        recognise=results.FORMAT.recognise,
        read=records_of(results.FORMAT),
        takes=_takes,
        matched=(
            "PyTorch also compares leading dimensions and whether there is a bias, so a row is used only for "
            "exactly equal calls"
        ),
    ),
)
