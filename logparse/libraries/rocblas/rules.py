"""Rules for rocBLAS's override files: which rows its kernel library Tensile reads and matches, and remarks on them.

* Tensile skips a line without a message unless the line has 15 or 18 cells.
* Tensile reads a number up to the first character that is no part of it (``64x`` is 64).
* Tensile compares the input type and the output type.  It does not compare the compute type itself, but only if the
  compute type is wider than the input type.
* If several rows match a call, Tensile takes the latest row.
* Solution indices are valid for one build and one GPU.  The file names neither, and rocBLAS checks neither.

Source: ROCm/Tensile ``Tensile/Source/lib/source/UserDrivenTuningParser.cpp``, rocBLAS ``tensile_host.cpp``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from logparse.libraries.kinds.format import Emission, Head, Source
from logparse.libraries.kinds.override_format import Conversion, Merging, OverrideFormat, Report, bytes_of
from logparse.libraries.kinds.reading import Note, Offer, Reading, Rule, Table, parse_leading_number, text_of, with_key
from logparse.libraries.rocblas import logs as rocblas
from logparse.model import COMPLEX, GemmProblem, Problem, Record, Solution, problem_from_text
from logparse.quoting import Shell
from logparse.target import Facts

_HEADING = "transA"
_COUNTS = (15, 18)
_SIZES = ("m", "n", "batch", "k")
_FLOAT = re.compile(
    r"[ \t\n\v\f\r]*([+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|inf|nan))", re.ASCII | re.IGNORECASE
)
_WIDTHS = (1, 4, 2, 2, 4, 8, 8, 18)
_BYTES: Mapping[str, int] = {
    **dict(zip(("i8_r", "i32_r", "bf16_r", "f16_r", "f32_r", "f64_r", "f32_c", "f64_c"), _WIDTHS, strict=True)),
    **dict(zip("hsdcz", _WIDTHS[3:], strict=True)),
}
"""Size in bytes of each data type that Tensile reads in an override file, from Tensile's own table.

Tensile compares these sizes to find out whether a compute type is wider than a type of the data.
"""
_REWRITE = "let `logparse recommend --target` or rocblas-gemm-tune write the row again"


@dataclass(frozen=True)
class OverrideRow:
    """One row of a rocBLAS override file (a user's list of kernels to use).

    ``native`` is True if rocBLAS on the target machine accepts the negative numbers of its own kernels in the file, or
    None if this is unknown.
    """

    line: int
    # These are the row's values, split at the commas in the same way as by rocBLAS's kernel library Tensile
    # (``std::getline``).
    cells: tuple[str, ...]
    native: bool | None = None
    time_us: float | None = None

    @cached_property
    def key(self) -> str:
        """The part of this row that rocBLAS compares with a call, as one text (see the function ``key``).

        The text is empty if Tensile, rocBLAS's kernel library, does not read the row.
        """
        if not self.whole or any(rule(self, None) for rule in (_bad_number, _bad_index, _bad_type)):
            return ""
        n = {name: value or 0 for name, value in self.numbers.items()}
        a, d, compute = self.types
        trans = ["N" if cell == "N" else "T" for cell in self.cells[:2]]
        strides = (n["sa"], n["sb"], n["sc"]) if "sa" in n else (1, 1, 1)
        if n["batch"] > 1 and "sa" not in n:
            tight_a = n["lda"] * (n["k"] if trans[0] == "N" else n["m"])
            tight_b = n["ldb"] * (n["n"] if trans[1] == "N" else n["k"])
            strides = (tight_a, tight_b, n["ldc"] * n["n"])
        return _text(trans, n, self.beta or 0.0, strides, a, d, _BYTES[compute] > _BYTES[a])

    @property
    def text(self) -> str:
        return ",".join(self.cells)

    @property
    def problem(self) -> Problem | None:
        return rocblas.row(self.text.rstrip("\r"))

    @property
    def solution(self) -> Solution | None:
        index = self.numbers["index"] if self.whole else None
        return None if index is None or -rocblas.RESERVED <= index <= 0 else rocblas.solution_of(index)

    @cached_property
    def numbers(self) -> dict[str, int | None]:
        """Maps each number in the row from its name: sizes, leading dimensions, strides and the kernel's number.

        A value that is no number becomes None.
        """
        c = self.cells
        out = {
            name: parse_leading_number(x)
            for name, x in zip((*_SIZES, "lda", "ldb", "ldc"), (*c[2:6], *c[8:11]), strict=True)
        }
        if len(c) == _COUNTS[1]:
            out |= {name: parse_leading_number(x) for name, x in zip(("sa", "sb", "sc"), c[11:14], strict=True)}
        return out | {"index": parse_leading_number(c[-1], 32)}

    @property
    def types(self) -> tuple[str, str, str]:
        a, d, compute = self.cells[-4:-1]
        return a, d, compute

    @property
    def beta(self) -> float | None:
        match = _FLOAT.match(self.cells[7])
        return float(match[1]) if match else None

    @property
    def whole(self) -> bool:
        """True if the line has 15 or 18 values.  rocBLAS skips any other line."""
        return len(self.cells) in _COUNTS


@dataclass(frozen=True)
class _Context:
    bom: bool
    same_key: Mapping[str, Sequence[OverrideRow]]


# ------------------------------------------------------------------------------------------------ rules about rows


def _count(entry: OverrideRow, context: object) -> str | None:
    return (
        None
        if entry.whole
        else f"the row has {len(entry.cells)} values, and Tensile silently ignores rows that do not have 15 or 18"
    )


def _bad_number(entry: OverrideRow, context: object) -> str | None:
    if not entry.whole:
        return None
    wrong = [name for name, value in entry.numbers.items() if value is None] + ["beta"] * (entry.beta is None)
    return f"the row's {', '.join(wrong)} is not a number that Tensile can read" if wrong else None


def _bad_index(entry: OverrideRow, context: object) -> str | None:
    index = entry.numbers["index"] if entry.whole else None
    if index is None or index > 0:
        return None
    if index >= -rocblas.RESERVED:
        return (
            f"solution index {index} counts Tensile's solutions from 1; rocBLAS's own indices are below "
            f"-{rocblas.RESERVED}"
        )
    return (
        f"{_own(index)}: only rocBLAS after 5.2 reads a row with rocBLAS's own index" if entry.native is False else None
    )


def _own_index(entry: OverrideRow, context: object) -> str | None:
    index = entry.numbers["index"] if entry.whole else None
    if entry.native is not None or index is None or index >= -rocblas.RESERVED:
        return None
    return f"{_own(index)}: rocBLAS after 5.2 reads such a row (rocm-libraries PR 10766), earlier versions drop it"


def _own(index: int) -> str:
    return f"solution index {index} is rocBLAS's own index; Tensile's index is {-index - rocblas.RESERVED}"


def reads_native(target: Facts) -> bool | None:
    """Return True if rocBLAS on the target machine accepts the numbers of its own kernels in an override file.

    These numbers are negative.  Returns None if the version of rocBLAS is unknown.
    """
    match = re.match(r"(\d+)\.(\d+)", target.get("rocblas_version", ""))
    return (int(match[1]), int(match[2])) > (5, 2) if match else None


def _bad_type(entry: OverrideRow, context: object) -> str | None:
    wrong = [x for x in entry.types if x not in _BYTES] if entry.whole else []
    return f"Tensile does not know the type {', '.join(map(repr, wrong))}" if wrong else None


def _no_call(entry: OverrideRow, context: object) -> str | None:
    if not entry.whole:
        return None
    low = [x for x, value in entry.numbers.items() if x != "index" and value is not None and value < (x in _SIZES)]
    beta = entry.beta
    if beta is not None and math.isnan(beta):
        low.append("beta")
    return f"the row is used for no call, because no call has its {', '.join(low)}" if low else None


def _marked(entry: OverrideRow, context: _Context) -> str | None:
    if context.bom and entry.line == 1:
        return "the file begins with a byte order mark, so Tensile reads transA of the first row as T"
    return None


def _trans(entry: OverrideRow, context: object) -> str | None:
    cells = [cell.removeprefix("\ufeff") for cell in entry.cells[:2]] if entry.whole else []
    odd = [cell for cell in cells if cell != "N" and cell.strip().upper() not in ("T", "C")]
    return (
        f"the row has {', '.join(map(repr, odd))} for transA or transB, and Tensile reads every value but N as T, so "
        "it uses the row for another product"
        if odd
        else None
    )


def _unbatched_strides(entry: OverrideRow, context: object) -> str | None:
    if len(entry.cells) != _COUNTS[1] or entry.numbers["batch"] != 1:
        return None
    strides = {entry.numbers[name] for name in ("sa", "sb", "sc")}
    return (
        None
        if strides in ({0}, {1})
        else (
            "the row is for a batch of one product, so its three strides must be all 0 or all 1, as in rocBLAS's "
            "calls of one product. They have other values, so rocBLAS never uses the row"
        )
    )


def _conflict(entry: OverrideRow, context: _Context) -> str | None:
    others = [x for x in context.same_key.get(entry.key, ()) if x.numbers["index"] != entry.numbers["index"]]
    return f"line {others[0].line} has the same key with another solution" if others else None


_WRITE_INDEX = (
    "write Tensile's index into the row: rocBLAS's own index without the minus sign, less 10 (-100 becomes 90)"
)
_RULES: tuple[Rule[OverrideRow, _Context], ...] = (
    Rule("15-or-18-values", "error", "read", _count, _REWRITE),
    Rule("number", "error", "read", _bad_number, _REWRITE),
    Rule(
        "index",
        "error",
        "read",
        _bad_index,
        _WRITE_INDEX,
    ),
    Rule(
        "index",
        "warning",
        None,
        _own_index,
        _WRITE_INDEX,
    ),
    Rule("type", "error", "read", _bad_type, _REWRITE),
    Rule("no-call", "error", "matched", _no_call, _REWRITE),
    Rule("trans", "warning", None, _marked, "save the file without a byte order mark", fault=True),
    Rule(
        "trans",
        "warning",
        None,
        _trans,
        "write transA and transB as N, T or C, in capitals and without blanks",
        fault=True,
    ),
    Rule(
        "strides",
        "warning",
        None,
        _unbatched_strides,
        (
            "write strides of 0 for calls of rocblas_sgemm and similar functions; leave out the strides for calls "
            "of rocblas_gemm_ex"
        ),
    ),
    Rule("conflict", "error", None, _conflict, "keep only the faster row"),
)


# ------------------------------------------------------------------------------------------------------- the file


def recognise(head: Head) -> bool:
    """Return True if a file is a rocBLAS override file (a user's list of kernels to use).

    Such a file begins with the heading of rocblas-gemm-tune, or with a row.
    """
    text, _ = text_of(head.data)
    first = next((line for line in text.split("\n") if line.strip()), "")
    return first.startswith("transA,transB,M,N,batch_count,K,") or _is_row(first)


def _is_row(line: str) -> bool:
    cells = line.split(",")
    return len(cells) in _COUNTS and {*cells[:2]} <= {"N", "T", "C"} and all(x.strip().isdigit() for x in cells[2:6])


def entries(text: str, native: bool | None) -> Iterator[OverrideRow]:
    """Yield the rows of a rocBLAS override file (a user's list of kernels to use).

    A line is a row if it has a comma and is no heading.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if "," in line and _HEADING not in line:
            cells = line.split(",")
            yield OverrideRow(number, tuple(cells[:-1] if cells[-1] == "" else cells), native)


def key(problem: Problem, target: Facts) -> str | None:
    """Return the text by which rocBLAS finds a matrix product in an override file (a user's list of kernels to use).

    Returns None if a value that rocBLAS compares is unknown, or if rocBLAS cannot run ``problem``.
    """
    if not isinstance(problem, GemmProblem) or problem.bias or problem.activation not in (None, "none"):
        return None
    row = rocblas.key(problem, target)
    if row is None or problem.a_type != problem.b_type:
        return None
    cells = row.replace("xf32_r", "f32_r").split(",")
    own = OverrideRow(0, (*cells, "1")).key
    if not own or problem.a_type not in COMPLEX:
        return own or None
    # No row states a conjugated operand, so no row serves a call with such an operand.
    trans = ["C" if cell == "C" else word for cell, word in zip(cells[:2], own.split(","), strict=False)]
    return ",".join((*trans, *own.split(",")[2:]))


def find_reports(name: str, reading: Reading[Any], messages: Iterable[tuple[str, str]]) -> dict[str, Report]:
    """Find a job's matrix products that rocBLAS computes through another function than ``rocblas_gemm_ex``.

    Returns a dictionary. Its keys are the texts of the products. Its values tell why another function computes the
    product, and how a row for this function begins.
    """
    out = {}
    for function, call in messages:
        own = key(problem_from_text(call), reading.key_facts) if function in _FOUND else None
        if own is not None:
            # Such products need a row with other strides. Strides of ``-`` mean that no row can be found.
            strides, why = _FOUND[function]
            cells = own.split(",")
            out[call] = Report(",".join((*cells[:10], *strides, *cells[13:])), None, why=why)
    return out


_FOUND: Mapping[str, tuple[Sequence[str], str]] = {
    rocblas.PLAIN: (
        ("0", "0", "0"),
        (
            "for calls of rocblas_sgemm and similar functions, rocBLAS uses only rows with 18 values in which all "
            "three strides are 0"
        ),
    ),
    rocblas.BATCH_OF_ONE: (
        ("-", "-", "-"),
        (
            "the job calls a function of rocBLAS for batches, though with only one product. For such calls, logparse "
            "can write no row that rocBLAS finds"
        ),
    ),
}
"""The strides that an override row must have for calls of some rocBLAS functions, each with the reason.

The keys are the marks of logged calls (``logs.PLAIN`` and ``logs.BATCH_OF_ONE``).  A stride of ``-`` means that no row
can be used for the call.
"""


def _text(
    trans: Sequence[str], n: Mapping[str, int], beta: float, strides: Sequence[int], a: str, d: str, wider: bool
) -> str:
    sizes = (n["m"], n["n"], n["batch"], n["k"], f"{beta:g}", n["lda"], n["ldb"], n["ldc"], *strides)
    words = (*trans, *sizes, rocblas.PRECISIONS.get(a, a), rocblas.PRECISIONS.get(d, d), "wider" if wider else "same")
    return ",".join(map(str, words))


def read(name: str, data: bytes, target: Facts) -> Reading[Table[OverrideRow, _Context]]:
    """Read a rocBLAS override file (list of kernels to use) as rocBLAS would, and return its rows with remarks.

    The file does not state its library build, so it is unknown if its kernel numbers are valid on the target machine.
    """
    text, bom = text_of(data)
    found = tuple(entries("\ufeff" * bom + text, reads_native(target)))
    table = Table(found, _Context(bom, with_key(found)), _RULES, [_BUILD if found else _EMPTY])
    return table.reading("", certain=False, facts={}, target=target)


_EMPTY = Note(None, "error", "empty", "the file has no rows", _REWRITE)
_BUILD = Note(
    None,
    "info",
    "build",
    (
        "the file does not state the rocBLAS version and the GPU for which its indices are valid, and rocBLAS does "
        "not check them"
    ),
    "use the file only with the rocBLAS build and the GPU for which it was made",
)


# ------------------------------------------------------------------------------------------------- merged, converted


def _merge_rows(rows: Iterable[Offer], name: str, agreed: Mapping[str, str], gpus: int) -> list[Emission]:
    data = bytes_of([rocblas.HEADING, *(row.text for row in rows)])
    return [Emission("rocblas_override.csv", data, Shell("export ROCBLAS_TENSILE_GEMM_OVERRIDE_PATH={path}"))]


def _records(file: Source) -> Iterator[tuple[int, Record]]:
    """Yield the rows in the output of rocblas-gemm-tune, each with its line number.

    Other lines between the rows are left out.
    """
    reader = rocblas.TUNE.begin()
    for number, line in enumerate(file.lines(), start=1):
        outcome = reader.take(line)
        yield from () if outcome is None else ((number, record) for record in outcome.records)


OVERRIDE_FORMAT = OverrideFormat(
    name=rocblas.TUNE.name,
    order="if several rows have the same key, Tensile uses the last row",
    kinds=frozenset({"gemm"}),
    recognise=recognise,
    reader=read,
    key=key,
    probe_order=lambda rows, facts: rows[::-1],
    reported=find_reports,
    signs=(
        (
            "rocBLAS warning: One or more problem overrides failed to load",
            "rocBLAS ignored rows of the override table, or found no row in the table",
        ),
    ),
    writer=rocblas.WRITER,
    merging=Merging(
        header=lambda name, data: (),
        write=_merge_rows,
        in_order=True,
        note=(
            "the files do not state the rocBLAS version and the GPU for which their indices are valid, so merge "
            "only files of the same build and GPU"
        ),
    ),
    conversion=Conversion(
        word="rocblas",
        # The table may begin anywhere in the output of rocblas-gemm-tune.
        recognise=lambda head: True,
        read=_records,
        takes=lambda given, rocblas_version: given if given.library == "rocblas" else None,
        matched=(
            "rocBLAS uses a row only for calls that it runs with Tensile, not for calls that it passes to hipBLASLt"
        ),
        asked_last=True,
    ),
)
