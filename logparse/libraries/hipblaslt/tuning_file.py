"""hipBLASLt's tuning file: which kernel the library uses for which GEMM.

``HIPBLASLT_TUNING_FILE=tuning.txt hipblaslt-bench …`` writes the file.  The library reads it with
``HIPBLASLT_TUNING_OVERRIDE_FILE=tuning.txt``.  ROCm 6.4 writes exactly 37 values per row and no header.  From 7.0 on
each row has a header line of its own::

    Git Version: d5f81531
        T,N,0,1,57344,2048,8192,1,8192,469762048,0,8192,16777216,57344,117440512,57344,117440512,bf16_r,bf16_r,bf16_r,
    bf16_r,f32_r,0,0,0,0,0,none,0,f32_r,512,491987,287.653,3910.97,105597,gfx942:sramecc+:xnack-,304

A file of one revision may have either layout, so each row is read by its own layout.  This module has the layout, the
reader of a file, the library's key and the writer.  ``tuning_rules`` describes which rows a version of the library
keeps. Source: ROCm/hipBLASLt ``UserDrivenTuningParser.cpp``, ``clients/include/testing_matmul.hpp``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from logparse.devices import too_fast
from logparse.errors import EmissionError
from logparse.libraries.hipblaslt import tuning_cache
from logparse.libraries.hipblaslt.arguments import problem_of_row, sizes, tight_strides
from logparse.libraries.hipblaslt.enums import SCALE_CODES
from logparse.libraries.kinds.bad_cell import reason_of
from logparse.libraries.kinds.format import Emission, FileFormat, Head, Line, Origin, Outcome, Source, Writer
from logparse.libraries.kinds.fp8 import FNUZ, OCP, fnuz_only, on_arch
from logparse.libraries.kinds.reading import parse_leading_number
from logparse.model import (
    COMPLEX,
    Fact,
    GemmProblem,
    Measurement,
    Override,
    Problem,
    Record,
    Reject,
    Solution,
    SolutionName,
)
from logparse.quoting import Shell

FIRST = "Git Version: "
BLANKS = " \t\n\r\f\v"
INDEX = "solution_index"
TUNING_COLUMNS: tuple[str, ...] = (
    *("transA", "transB", "grouped_gemm", "batch_count", "m", "n", "k", "alpha", "lda", "stride_a", "beta"),
    *("ldb", "stride_b", "ldc", "stride_c", "ldd", "stride_d", "a_type", "b_type", "c_type", "d_type", "compute_type"),
    *("scaleA", "scaleB", "scaleC", "scaleD", "amaxD", "activation_type", "bias_vector", "bias_type"),
    *("rotating_buffer", "hipblaslt-Gflops", "hipblaslt-GB/s", "us", "solution_index", "gcnArchName", "CUs"),
)
"""The 37 columns of a tuning file row in ROCm 6.4, which writes no column names.

The names used here are the ones that hipblaslt-bench prints from ROCm 7.0 on.
"""
_NUMBERS = ("batch_count", "m", "n", "k")
_TYPES = ("a_type", "b_type", "c_type")
_WANTED = ("transA", "transB", *_NUMBERS, *_TYPES, "compute_type", INDEX)
_PLACED_TYPES = frozenset({"f16_r", "bf16_r", "f32_r", "f64_r", "i8_r", "i32_r", "f8_r", "bf8_r"})
_NAMED_TYPES = _PLACED_TYPES | frozenset(FNUZ.values())
_NEWER_TYPES = _NAMED_TYPES | {"f6_r", "bf6_r", "f4_r"} | COMPLEX
"""Data types that the newest hipBLASLt versions read in a tuning file.

Source: ``string_to_hip_datatype`` in ROCm/rocm-libraries ``hipblaslt_type_strings.hpp`` (2026).
"""

# ------------------------------------------------------------------------------------------- layout, and what is there


@dataclass(frozen=True)
class TuningRow:
    """One row of a hipBLASLt tuning file: a line of values, with the line of column names before it if there is one.

    * ``line`` is the line number, counted from 1.
    * ``values`` are the values in the line.
    * ``header`` holds the names in the line before it, or None.
    * ``index`` is the number of the kernel as the library reads it.
    * ``taken`` maps each column to the text that the library reads for it.
    * ``key`` is the text by which the library finds the row for a call.  It is empty if the library drops the row,
      which the library does without a message.
    * ``rule`` and ``why`` are the lint rule and the reason if the library drops the row.
    * ``claim`` is True if the row is a copy of a timed row with other sizes.  The copy was never timed, so its time is
      not used.
    """

    line: int
    values: tuple[str, ...]
    header: tuple[str, ...] | None
    index: int | None = None
    taken: Mapping[str, str] = field(default_factory=dict)
    key: str = ""
    rule: str = ""
    why: str = ""
    claim: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns in this row of a hipBLASLt tuning file.

        They come from the line of names above the row.  Without such a line, they are the 37 columns of ROCm 6.4.
        """
        return TUNING_COLUMNS if self.header is None else self.header

    @cached_property
    def cells(self) -> dict[str, str]:
        """Maps each column of the row to its value. Blanks around names and values are removed."""
        return {name.strip(BLANKS): x.strip(BLANKS) for name, x in zip(self.names, self.values, strict=False)}

    @property
    def time_us(self) -> float | None:
        """The measured time in this row of a tuning file, in µs.

        None if the row states no time, or if the row was copied from the row of a product with other sizes (``claim``).
        """
        value = self._number("us")
        return value if 0 < value < math.inf and not self.claim else None

    @property
    def stated_flops(self) -> float:
        """Number of operations that follows from the row's rate in Gflop/s and its time in µs.

        The number is 0 if the rate or the time is missing.
        """
        # hipblaslt-bench computed the rate for the product that was really timed, even if the row's sizes were changed
        # later.
        value = self._number("hipblaslt-Gflops") * self._number("us") * 1e3
        return value if 0 < value < math.inf else 0.0

    def _number(self, column: str) -> float:
        try:
            return float(self.cells.get(column, "nan"))
        except ValueError:
            return math.nan

    @property
    def text(self) -> str:
        """The lines of a file that hold this row: the names of its columns, if they are known, and its values."""
        lines = filter(None, (self.header, self.values))
        return "\n".join("    " + ",".join(words).rstrip("\r") for words in lines)

    @property
    def solution(self) -> Solution | None:
        return None if self.index is None else Solution("hipblaslt", str(self.index))

    @property
    def problem(self) -> GemmProblem | None:
        """The matrix product for which this row of a tuning file states a kernel, as hipBLASLt reads the row.

        Numbers that hipBLASLt does not compare, such as strides, may have any value.
        """
        # hipBLASLt reads every transpose except N as T, and never reads a grouped GEMM.
        read = {name: "N" if self.taken.get(name) == "N" else "T" for name in ("transA", "transB")}
        read |= {
            x: str(size)
            for x in (*_NUMBERS, INDEX)
            if (size := parse_leading_number(self.taken.get(x, ""))) is not None
        }
        if self.key:
            read["compute_type"] = self.key.rpartition(",")[2]
        for names in (self.cells, _WANTED):
            cells = {x: self.cells[x] for x in names if x in self.cells}
            try:
                return problem_of_row({**cells, **read, "grouped_gemm": "0"})
            except ValueError:
                continue
        return None


def split(line: str) -> tuple[str, ...]:
    """Split a line of a tuning file at its commas.

    An empty last value is dropped, because the library (``std::getline``) drops it too.
    """
    cells = line.lstrip(BLANKS).split(",")
    return tuple(cells[:-1] if len(cells) > 1 and not cells[-1] else cells)


def recognise(head: Head) -> bool:
    """Return True if a file is a hipBLASLt tuning file, because it begins with ``Git Version: ``."""
    return head.data.startswith(FIRST.encode())


def read(source: Source) -> Iterator[Outcome]:
    """Read a hipBLASLt tuning file: each row is the measured time of a kernel in µs.

    A row that is a copy of a measured row, with other sizes, is read without a time.
    """
    header: tuple[str, ...] | None = None
    lines: list[Line] = []
    rows: list[TuningRow] = []
    revisions: list[Fact] = []
    for number, line in enumerate(source.lines(), start=1):
        if not line.text.strip():
            yield Outcome("blank")
        elif line.text.lstrip().startswith(FIRST):
            # A build without a revision writes nothing behind the colon.
            revisions.append(Fact("hipblaslt_revision", line.text.strip()[len(FIRST) :].strip()))
            yield Outcome("fact", (revisions[-1],))
        elif "transA" in line.text:
            header = split(line.text)
            # A header line names columns and has no time.
            yield Outcome("fact")
        else:
            lines.append(line)
            rows.append(row_of(number, split(line.text), header, None))
            header = None
    # The revision, the GPU architecture and the number of compute units are recorded too. The time of a copied row was
    # never measured, so it is left out.
    known: set[Fact] = set(revisions)
    yield from (_outcome(row, line, known) for row, line in zip(with_claims(rows), lines, strict=True))


def _outcome(row: TuningRow, line: Line, known: set[Fact]) -> Outcome:
    if tuning_cache.is_header(row.header):
        return _cached(row, line, known)
    if row.why or row.solution is None:
        return _reject(line, f"tuning entry: {row.why}")
    try:
        gemm = problem_of_row(row.cells)
    except ValueError as error:
        return _reject(line, f"tuning entry: {reason_of(error, row.cells)}")
    if gemm is None:
        return _reject(
            line, ("the tuning entry is for a grouped GEMM, but does not state the sizes of the group's members")
        )
    facts = [Fact(ours, row.cells.get(theirs, "")) for ours, theirs in DEVICE.items()]
    if wrong := too_fast(gemm.flops, row.time_us, {fact.name: fact.value for fact in facts}):
        return _reject(line, f"tuning entry: {wrong}")
    records: list[Record] = [fact for fact in facts if fact.value and fact not in known]
    known.update(facts)
    measured = Measurement(
        problem=gemm,
        solution=row.solution,
        origin="tuning-file",
        status="ok" if row.time_us else "no_time",
        time_us=row.time_us,
        key_text=key(gemm, {}),
    )
    return Outcome("measurement" if row.time_us else "fact", [*records, measured])


_CUT_SHORT = "hipBLASLt ended this search early, because the time for tuning was used up"


def _cached(row: TuningRow, line: Line, known: set[Fact]) -> Outcome:
    """Read a row of hipBLASLt's runtime tuning cache as a measured time.

    The row states which library build measured it.  A row of another build than the file's is an error.
    """
    try:
        gemm, index, time_us = tuning_cache.problem(row.cells), int(row.cells["solution_index"]), float(row.cells["us"])
    except ValueError as error:
        return _reject(line, f"entry of the runtime tuning cache: {reason_of(error, row.cells)}")
    facts = [Fact(ours, row.cells.get(theirs, "")) for ours, theirs in DEVICE.items()]
    builds = {fact.value for fact in known if fact.name == "hipblaslt_revision"}
    if builds and row.cells.get("git_version") not in builds:
        own, given = row.cells.get("git_version"), " and ".join(sorted(builds))
        why = f"hipBLASLt build {own!r} measured this entry, but the file names build {given}"
        return _reject(line, f"entry of the runtime tuning cache: {why}")
    wrong = too_fast(gemm.flops, time_us, {fact.name: fact.value for fact in facts})
    if index < 0 or wrong:
        return _reject(line, f"entry of the runtime tuning cache: {wrong or f'solution index {index}'}")
    records: list[Record] = [fact for fact in facts if fact.value and fact not in known]
    known.update(facts)
    solution, timed = Solution("hipblaslt", str(index)), 0 < time_us < math.inf
    records.append(
        Measurement(
            problem=gemm,
            solution=solution,
            origin="tuning-file",
            status="ok" if timed else "no_time",
            time_us=time_us if timed else None,
            key_text=key(gemm, {}),
            error="hipBLASLt ended this search early, because the time for tuning was used up"
            if row.cells.get("complete") == "0"
            else None,
        )
    )
    if kernel := row.cells.get("kernel_name"):
        records.append(SolutionName(solution=solution, kernel_name=kernel))
    return Outcome("measurement" if timed else "fact", records)


DEVICE: Mapping[str, str] = {"arch": "gcnArchName", "cu_count": "CUs"}
"""The column of a tuning file for each fact about the GPU: its architecture and its number of compute units."""


def _reject(line: Line, reason: str) -> Outcome:
    return Outcome("reject", (Reject(reason, 0, len(line.text.encode())),), at=line.offset)


FORMAT = FileFormat(
    name="hipblaslt-tuning-file",
    about="hipBLASLt tuning file (6.4 and 7.0+ layout)",
    recognise=recognise,
    read=read,
    origins=(Origin("tuning-file", evidence=True),),
    order="if several rows have the same key, the first row is used",
    seen="ROCm 6.4 to 7.2",
    example="Git Version: d5f81531",
    gives="measurements",
    how="`HIPBLASLT_TUNING_FILE=tuning.txt hipblaslt-bench …`",
    since="ROCm 6.4",
)

# ------------------------------------------------------------------------------------------- the library's key

_KEY_FIELDS = ("trans_a", "trans_b", "batch_count", "m", "n", "k", "a_type", "b_type", "c_type", "compute_type")
_PLACED_COMPUTES = frozenset({"f16_r", "f32_r", "f64_r", "i32_r"})
"""Compute types that ROCm 6.4 reads in a tuning file.  That version drops rows with any other text in this column."""
BETWEEN = 1300
"""First hipBLASLt version that may read ``xf32_r`` in a tuning file as ``f32_r``, and finds columns by their place.

This behaviour is in ROCm/hipBLASLt@00ed225c, after ROCm 6.4 (0.12) and before columns were found by name (0.15, ROCm
7.0).  No release of ROCm has such a version.  6.4.0 to 6.4.2 drop rows with ``xf32_r`` (issue ROCm/hipBLASLt#2010).
"""
_COMPUTES = frozenset({"f32_r", "f64_r", "i32_r", "xf32_r"})
_FAST_COMPUTES = frozenset({"f32_f16_r", "f32_bf16_r"})
_OBJECT_COMPUTES = {"f16_r": "f32_f16_r", "bf16_r": "f32_bf16_r"}
NO_ROW = "-"
"""Text that replaces the compute type in a key if no row of a tuning file can be used for the call."""
_FOLDS_FAST = 100_203
"""First hipBLASLt version that may look up products of a fast compute type (such as ``f32_f16_r``) as f32_r.

Source: rocm-libraries PR 6557.
"""


def version(target: Mapping[str, str]) -> int | None:
    """Return the hipBLASLt version of the target machine as a number, for example 1201 or 100200.

    The fact ``hipblaslt_version`` states it.  A text with dots is converted: 0.12.1 gives 1201.  Returns None if the
    text is no version.
    """
    text = target.get("hipblaslt_version", "").partition("-")[0]
    parts = text.split(".")
    if not all(part.isdigit() for part in parts):
        return None
    numbers = [int(part) for part in (*parts, "0", "0")[:3]]
    return int(text) if len(parts) == 1 else numbers[0] * 100_000 + numbers[1] * 100 + numbers[2]


def by_name(number: int | None) -> bool | None:
    """Return True if this hipBLASLt version finds a tuning file's columns by name, False if by their place.

    Returns None for an unknown version, and for 0.15.x, because its builds differ.  Callers then look at each row: if
    it has a line of column names, it is read by name.

    0.15 is the development version of ROCm 7.0 from April 2025 on (ROCm/rocBLAS pull request 1613).  That version read
    by place until ROCm/hipBLASLt pull request 1962 of May.
    """
    return None if number is None or 1500 <= number < 100_000 else number >= 100_000


def folds_fast(number: int | None) -> bool | None:
    """Return True if this hipBLASLt version finds the same tuning rows for ``f32_f16_r`` and ``f32_r``.

    It then treats all fast compute types like ``f32_r`` when it looks for a row.  Returns None for an unknown version.
    """
    return None if number is None else number >= _FOLDS_FAST


def compute_as_read(text: str, number: int | None, named: bool) -> str | None:
    """Return the compute type that hipBLASLt reads in a row of a tuning file, or None if hipBLASLt drops the row.

    * ``number`` is the version of hipBLASLt.
    * ``named`` is True if this version finds the columns by name.
    """
    if not named:
        if text == "xf32_r" and number is not None and number >= BETWEEN:
            return "f32_r"
        return text if text in _PLACED_COMPUTES else None
    return text if text in _COMPUTES or (text in _FAST_COMPUTES and not folds_fast(number)) else "f32_r"


def key(problem: Problem, target: Mapping[str, str]) -> str | None:
    """Return the text by which hipBLASLt finds the row of a tuning file for a matrix product.

    The text has the form ``transA,transB,batch,m,n,k,a,b,c,compute``.  Products that differ only in other properties
    use the same row: in leading dimensions, strides, scalars, the epilogue, scales and swizzle.

    The names of 8-bit float types depend on the target's GPU architecture.  ROCm 6.4 (``hipblaslt_version`` below 1500)
    has the same name for both families of 8-bit floats.

    Returns None in these cases:

    * The GEMM is grouped or complex.
    * A field of the key is unknown.
    * The target's library drops rows of this compute type, or reads another compute type from them.
    """
    if not isinstance(problem, GemmProblem) or problem.members or problem.a_type in COMPLEX:
        return None
    values = _key_values(problem, target).values()
    return None if None in values else ",".join(map(str, values))


def _key_values(problem: GemmProblem, target: Mapping[str, str]) -> dict[str, object]:
    p, number = problem.normal, version(target)
    values: dict[str, Any] = {name: getattr(p, name) for name in _KEY_FIELDS}
    # At β = 0 the normal form drops C's type.  The library has solutions only for a C of D's type.  Of 84 combinations
    # with an 8-bit D, version 1.2.2 offers solutions for six, and in all six C has D's type.
    if p.beta == "zero":
        values["c_type"] = problem.c_type or p.d_type
    values |= {x: _data_type(values[x], target) for x in ("a_type", "b_type", "c_type")}
    named, compute = by_name(number) is not False, p.compute_type or ""
    # A call of f16_r runs as f32_r.  Bench lines of such calls state f32_r.  Trace lines state the requested type.
    known = not named or compute in _COMPUTES | _FAST_COMPUTES | {"f16_r"}
    return values | {"compute_type": compute_as_read(compute, number, named) if known else None}


def _data_type(name: str | None, target: Mapping[str, str]) -> str | None:
    """Return how a data type is written in a tuning file for the target machine.

    The name depends on the version of hipBLASLt and on the GPU architecture.
    """
    number = version(target)
    older = number is not None and number < BETWEEN
    return OCP.get(name or "", name) if older else on_arch(name, target.get("arch"))


def object_key(problem: Problem, target: Mapping[str, str]) -> str | None:
    """Return the text by which hipBLASLt finds a row for a call through its C++ object ``hipblaslt_ext::Gemm``.

    rocBLAS makes such calls.  Up to version 1.2.2 the text differs from the result of ``key``:

    * If A has 16 bits, the compute type follows A: ``f32_f16_r`` or ``f32_bf16_r``.  So no row of ``f32_r`` is used for
      the call.  ROCm 6.4 keeps no row with such a compute type, so there the call finds no row.
    * Calls of compute types ``f64_r`` and ``i32_r`` find no row.

    An unknown version is treated like 1.2.2.  In later versions the two texts are equal.

    Source: ROCm/rocm-libraries pull request 6557.  Version 1.2.2 was tried in
    ``tests/conformance/test_hipblaslt_files.py``.
    """
    name, number = key(problem, target), version(target)
    if name is None or not isinstance(problem, GemmProblem) or folds_fast(number):
        return name
    *others, compute = name.split(",")
    kind = problem.a_type or ""
    if kind in _OBJECT_COMPUTES:
        compute = NO_ROW if by_name(number) is False else _OBJECT_COMPUTES[kind]
    return ",".join((*others, NO_ROW if compute in ("f64_r", "i32_r") else compute))


# ------------------------------------------------------------------------------------------- what is kept of a row


class _DroppedError(Exception):
    """Raised if the library drops a row of a tuning file.  ``args`` are the name of the broken rule and the reason."""


def rows_of(text: str, number: int | None) -> list[TuningRow]:
    """Parse the rows of a hipBLASLt tuning file in the way in which this version of hipBLASLt reads them.

    ``number`` is the version, or None if it is unknown.
    """
    out: list[TuningRow] = []
    header: tuple[str, ...] | None = None
    for line, content in enumerate(text.split("\n"), start=1):
        values, names = split(content), "transA" in content
        if names and by_name(number) is False:
            continue  # 6.4 reads a header as a row without numbers, and drops it.
        if names and header is None:
            header = values
        # If the version is unknown, the columns of a row are named in the line directly above it. Without such a line
        # they are the columns of ROCm 6.4.
        elif header is not None or (FIRST not in content and len(values) > 1):
            out.append(row_of(line, values, header, number))
            header = None
    return with_claims(out)


def with_claims(rows: Sequence[TuningRow]) -> list[TuningRow]:
    """Find rows that were not timed, but copied from a timed row with other sizes. Mark the copies (``claim``)."""
    timed = [(row, _timing(row), *_operations(row), row.stated_flops) for row in rows]
    best: dict[tuple[str, ...], tuple[float, int]] = {}
    # A copy shows by its rate, because hipblaslt-bench computes Gflop/s from the sizes and the time. If rows of several
    # sizes have the same kernel, time and rate, only the row whose sizes fit the rate best was timed.
    for _, timing, least, _, stated in timed:
        if least and stated:
            fit = abs(stated / least - 1), least
            best[timing] = min(best.get(timing, fit), fit)
    out = []
    for row, timing, least, most, stated in timed:
        # An epilogue adds some operations per element of D, so the number of operations has an upper limit too.
        fits = not least or not stated or least * (1 - _ROUNDED) <= stated <= most * (1 + _ROUNDED)
        own = fits and least == best.get(timing, (0.0, least))[1]
        out.append(row if own else replace(row, claim=True))
    return out


_EPILOGUE, _ROUNDED = 10, 0.02
"""Tolerances for the check whether a row's Gflop/s fit its sizes and its time.

The first is the largest number of operations per element of D that hipblaslt-bench adds for an epilogue.  The second is
the relative error of rounding.
"""


def _timing(row: TuningRow) -> tuple[str, ...]:
    return tuple(row.cells.get(x, "") for x in (INDEX, "us", "hipblaslt-Gflops"))


def _operations(row: TuningRow) -> tuple[int, int]:
    """Return the least and the most operations that the product of a tuning row can need.

    The least is without an epilogue, the most with the costliest epilogue.  Both are 0 if a size is not a number.
    """
    m, n, k, batch = (parse_leading_number(row.taken.get(x, "")) or 0 for x in ("m", "n", "k", "batch_count"))
    return 2 * m * n * k * batch, (2 * k + _EPILOGUE) * m * n * batch


def row_of(line: int, values: tuple[str, ...], header: tuple[str, ...] | None, number: int | None) -> TuningRow:
    """Read one row of a tuning file in the way in which the given version of the library reads it.

    ``number`` is the version, or None if it is unknown.
    """
    row = TuningRow(line, values, header)
    try:
        # Some versions find the values by the column names, others by position. For an unknown version the names are
        # used if the file has a line of column names.
        sure = by_name(number)
        named = header is not None if sure is None else sure
        cells = _by_name(row) if named else _by_place(row)
        index = parse_leading_number(cells[INDEX], 32)
        if index is None or index <= 0:
            what = f"solution index {cells[INDEX]!r}"
            raise _DroppedError("index", f"{what}: the library takes numbers from 1 to 2147483647 only")
        return replace(row, index=index, taken=cells, key=_key(cells, number, named))
    except _DroppedError as dropped:
        rule, why = dropped.args
        return replace(
            row, index=parse_leading_number(row.cells.get(INDEX, ""), 32), taken=row.cells, rule=rule, why=why
        )


def _by_place(row: TuningRow) -> dict[str, str]:
    if len(row.values) != len(TUNING_COLUMNS):
        why = f"{len(row.values)} values: ROCm 6.4 silently ignores rows that do not have {len(TUNING_COLUMNS)}"
        raise _DroppedError("37-values", why)
    return dict(zip(TUNING_COLUMNS, row.values, strict=True))


def _by_name(row: TuningRow) -> dict[str, str]:
    header, values = row.header, row.values
    if header is None:
        raise _DroppedError(
            "no-header", ("the row has values without a header line, and ROCm 7.0 and later do not read such rows")
        )
    cells = _collected(header, values)
    if len(cells) == len(_WANTED):
        return cells
    missing = _WANTED[len(_collected(header, header)) :]
    why = (
        f"{len(values)} values for a header of {len(header)} names; the library takes any line after a header for "
        "its values"
    )
    if missing:
        why = f"the header lacks the column {missing[0]} where the library looks for it (blanks are part of a name)"
    raise _DroppedError("columns", why)


def _collected(header: Sequence[str], values: Sequence[str]) -> dict[str, str]:
    cells: dict[str, str] = {}
    for name, value in zip(header, values, strict=False):
        if _WANTED[len(cells) :][:1] == (name,):
            cells[name] = value
    return cells


def _key(cells: Mapping[str, str], number: int | None, named: bool) -> str:
    sizes = {name: parse_leading_number(cells[name]) for name in _NUMBERS}
    bad = [name for name, value in sizes.items() if value is None]
    if bad:
        raise _DroppedError("number", f"{', '.join(bad)} is not a number")
    if named:
        known = _NAMED_TYPES if folds_fast(number) is False else _NEWER_TYPES
    else:
        # Only builds between 6.4 and 7.0 wrote fnuz types in this layout, so such a build wrote the file.
        known = _NAMED_TYPES if number is None or number >= BETWEEN else _PLACED_TYPES
    types = [cells[name] for name in _TYPES]
    wrong = [f"{name} {cells[name]!r}" for name in _TYPES if cells[name] not in known]
    if wrong:
        raise _DroppedError("type", f"the library does not know {', '.join(wrong)}")
    compute = compute_as_read(cells["compute_type"], number, named)
    if compute is None:
        raise _DroppedError("compute-type", f"ROCm 6.4 drops entries of compute type {cells['compute_type']!r}")
    if number is None and not named and fnuz_only(cells["gcnArchName"]):
        # Such a reader has one name for both families of 8-bit floats, and the device has only the FNUZ family.
        types = [FNUZ.get(x, x) for x in types]
    trans = ["N" if cells[name] == "N" else "T" for name in ("transA", "transB")]
    return ",".join((*trans, *map(str, sizes.values()), *types, compute))


# ------------------------------------------------------------------------------------------- writing


def accepts(override: Override) -> bool:
    """Return True if a tuning file can tell hipBLASLt to use this kernel for this product.

    The kernel must be hipBLASLt's own.  The product must be a single GEMM, not a grouped one.  hipBLASLt refuses the
    kernel number 0.
    """
    index = override.solution.id
    gemm = isinstance(override.problem, GemmProblem) and not override.problem.members
    return gemm and override.solution.library == "hipblaslt" and index.isdigit() and int(index) > 0


def write(overrides: Sequence[Override], target: Mapping[str, str]) -> Sequence[Emission]:
    """Write overrides (kernels to use for some products) as a hipBLASLt tuning file.

    * A target with ``hipblaslt_version`` below 1500 gets the layout of ROCm 6.4: only lines of values.
    * Any other target gets a line of column names before each line of values.  A target of unknown version gets this
      layout too, because ROCm 6.4 skips the names and reads the values.
    * A column that the library ignores holds the product's own value if it is known.  Otherwise it holds the value of a
      product without epilogue, scales and gaps.
    * Gflops, GB/s and µs are 0 if the time is unknown.

    Raises EmissionError in these cases:

    * The target lacks ``hipblaslt_revision``, which the library compares.  The text may be empty, as in some builds.
    * The target lacks ``arch``.  A number means another kernel on another GPU architecture.
    * A field by which the library finds the row is unknown.
    * The target's library reads no rows of this compute type.
    * A row cannot name the kernel (see ``accepts``).
    * Two overrides with the same key have different kernels.
    """
    for fact, why in (
        ("hipblaslt_revision", "hipBLASLt ignores a tuning file of another git revision than its own"),
        ("arch", "a solution's index is valid for one GPU architecture only"),
    ):
        if target.get(fact) is None or (fact == "arch" and not target[fact]):
            raise EmissionError(
                f"tuning file: {fact} of the target machine is unknown, but it is needed, because {why}; add "
                f"--target {fact}=VALUE"
            )
    rows: dict[str, tuple[Override, str]] = {}
    for override in overrides:
        name = _checked_key(override, target)
        known = rows.get(name)
        if known and known[0].solution != override.solution:
            both = f"{known[0].solution.text} and {override.solution.text}"
            raise EmissionError(
                f"tuning file: {both} are for calls that hipBLASLt does not distinguish ({name}), but the file can "
                "name only one kernel for such calls; give only one of the two kernels"
            )
        rows.setdefault(name, (override, ",".join(_values(override, target))))
    headed = by_name(version(target)) is not False
    lines = [FIRST + target["hipblaslt_revision"]]
    for _, values in rows.values():
        lines += ["    " + ",".join(TUNING_COLUMNS)] * headed + ["    " + values]
    data = ("\n".join(lines) + "\n").encode()
    return (Emission(name="hipblaslt_tuning.txt", data=data, use=_USE),) if rows else ()


_USE = Shell("""\
export HIPBLASLT_TUNING_OVERRIDE_FILE={path}
# To verify, run the job with HIPBLASLT_LOG_MASK=32: the --solution_index of a call must be the index in the call's row.
# With HIPBLASLT_LOG_MASK=8, the log of a call that has a row must contain "Find solution with index".\
""")


def _checked_key(override: Override, target: Mapping[str, str]) -> str:
    gemm, name = override.problem, key(override.problem, target)
    if name is not None and accepts(override):
        return name
    if isinstance(gemm, GemmProblem) and not gemm.members:
        unknown = [field for field, value in _key_values(gemm, target).items() if value is None]
        compute = gemm.normal.compute_type
        if compute is not None and "compute_type" in unknown:
            raise EmissionError(
                f"tuning file: the target's library reads no entries for calls of compute type {compute}"
            )
        if unknown:
            raise EmissionError(
                f"tuning file: a row for {gemm.label} needs these values, which are unknown: {', '.join(unknown)}. "
                "Log the call in a bench or profile log (HIPBLASLT_LOG_MASK=32 or 64) and ingest this log; --target "
                "cannot give such values"
            )
    raise EmissionError(
        f"tuning file: no row can select {override.solution.text} for {gemm.label}; a row needs a solution index of "
        "hipBLASLt above 0, and a single matrix product without complex numbers"
    )


def _values(override: Override, target: Mapping[str, str]) -> list[str]:
    given = override.problem
    assert isinstance(given, GemmProblem)
    p, known = given.normal, _key_values(given, target)
    size = sizes(p, p, "a row of a tuning file")
    seconds = (override.time_us or math.inf) * 1e-6
    cells: dict[str, object] = {
        **size,
        **(tight_strides(p, size) if p.batch_count == 1 else {}),
        "transA": p.trans_a,
        "transB": p.trans_b,
        "grouped_gemm": 0,
        "batch_count": p.batch_count,
        "alpha": 1,
        "beta": int(p.beta == "nonzero"),
        **{name: known[name] for name in ("a_type", "b_type", "c_type", "compute_type")},
        "d_type": _data_type(p.d_type, target) or known["c_type"],
        **{f"scale{x.upper()}": SCALE_CODES.get(getattr(p, f"scale_{x}") or "none", "0") for x in "abcd"},
        "amaxD": 0,
        "activation_type": p.activation or "none",
        "rotating_buffer": 512,
        "bias_vector": int(bool(p.bias)),
        "bias_type": p.bias_type or "f32_r",
        "hipblaslt-Gflops": f"{(p.flops or 0) / seconds / 1e9:g}",
        "hipblaslt-GB/s": f"{(p.bytes or 0) / seconds / 2**30:g}",  # The formula is hipblaslt-bench's.
        "us": f"{override.time_us or 0:g}",
        "solution_index": override.solution.id,
        "gcnArchName": target["arch"],
        "CUs": target.get("cu_count", "0"),
    }
    return [str(cells[name]) for name in TUNING_COLUMNS]


WRITER = Writer(
    name="hipblaslt-tuning-file",
    about="hipBLASLt's tuning file, for HIPBLASLT_TUNING_OVERRIDE_FILE (ROCm 6.4 and later)",
    accepts=accepts,
    key=key,
    write=write,
    file="`hipblaslt_tuning.txt`",
    read_when=(
        "`HIPBLASLT_TUNING_OVERRIDE_FILE` is set to the file, and the file's git revision equals the library's "
        "(ROCm 6.4 and later)"
    ),
)
