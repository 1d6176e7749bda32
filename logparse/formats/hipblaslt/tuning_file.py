"""hipBLASLt's tuning file: which solution to use for which GEMM.

Written by ``HIPBLASLT_TUNING_FILE=tuning.txt hipblaslt-bench …``, read by the library under
``HIPBLASLT_TUNING_OVERRIDE_FILE=tuning.txt``.  ROCm 6.4 writes values only, exactly 37 of them; from 7.0 on each
entry has its header line::

    Git Version: d5f81531
        T,N,0,1,57344,2048,8192,1,8192,469762048,0,8192,16777216,57344,117440512,57344,117440512,bf16_r,bf16_r,bf16_r,
    bf16_r,f32_r,0,0,0,0,0,none,0,f32_r,512,491987,287.653,3910.97,105597,gfx942:sramecc+:xnack-,304

The cache of ``HIPBLASLT_TUNING_MODE=tune`` has the second layout with more columns: ``kernel_name`` and
``solution_name`` (by which a later build checks the index), ``git_version``, ``schema_version`` (1: the library matches
the whole problem and the device; 2: also what was searched) and the rest of the key.  It may lack the first line.
Source: ROCm/rocm-libraries projects/hipblaslt ``TuningCacheStore.hpp``, ``clients/tests/src/tuning_cache_test.cpp``,
``docs/how-to/how-to-use-hipblaslt-offline-tuning.rst`` (pull request 10424); not tried on a file of a released build.

Both layouts occur under one revision, so an entry is read by what it looks like.  The library compares the first line
with its own git revision, matches an entry by transA, transB, a, b and c type, compute type, m, n, k and batch count,
and reads nothing else but the solution index.  Source: ROCm/hipBLASLt ``UserDrivenTuningParser.cpp``,
``clients/include/testing_matmul.hpp``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from logparse.errors import EmissionError
from logparse.formats.format import Emission, FileFormat, Head, Line, Origin, Outcome, Source, Writer
from logparse.formats.fp8 import OCP, on_arch
from logparse.formats.hipblaslt.columns import TUNING_COLUMNS, problem, row
from logparse.formats.hipblaslt.enums import SCALE_CODES, tight_leading_dimensions
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

_FIRST = "Git Version: "
_INDEX = ("solution_index", "soulution_index")
_SCHEMAS = ("", "0", "1", "2")
"""Values of ``schema_version`` that are known; the library ignores rows of any other."""

# ------------------------------------------------------------------------------------------- reading


def recognise(head: Head) -> bool:
    """Its first line, or a header of the runtime's tuning cache."""
    if head.data.startswith(_FIRST.encode()):
        return True
    columns = head.data.lstrip().split(b"\n", 1)[0].strip().split(b",")
    return columns[:2] == [b"transA", b"transB"] and {b"solution_index", b"schema_version"} <= set(columns)


def read(source: Source) -> Iterator[Outcome]:
    """Each entry as a measurement (microseconds); the revision, arch and CU count as facts."""
    names: tuple[str, ...] = ()
    told: set[Fact] = set()
    for line in source.lines():
        text = line.text.strip()
        if not text:
            yield Outcome("blank")
        elif line.text.lstrip().startswith(_FIRST):  # a build without a revision writes nothing behind the colon
            yield Outcome("fact", (Fact("hipblaslt_revision", text[len(_FIRST) :].strip()),))
        elif "transA" in text:
            names = tuple(text.split(","))
            yield Outcome("measurement")
        else:
            yield _entry(line, names or TUNING_COLUMNS, told, headed=bool(names))
            names = ()


def _entry(line: Line, names: tuple[str, ...], told: set[Fact], *, headed: bool) -> Outcome:
    text = line.text.strip()
    cells = row(names, text)
    if cells is None:
        ending = "its header has" if headed else "without a header, and the library ignores any number but"
        return _reject(line, f"tuning entry of {text.count(',') + 1} values; {ending} {len(names)}")
    if cells.get("schema_version", "") not in _SCHEMAS:
        return _reject(line, f"tuning entry of the unknown schema_version {cells['schema_version'][:20]!r}")
    index = next((cells[name] for name in _INDEX if name in cells), "")
    try:
        gemm, time_us = problem(cells), float(cells.get("us", "nan"))
        solution = Solution("hipblaslt", str(int(index)), raw=index)
    except ValueError as error:
        return _reject(line, f"tuning entry: {error}")
    if gemm is None:
        return _reject(line, "tuning entry of a grouped GEMM: it does not contain the members")
    columns = (("arch", "gcnArchName"), ("cu_count", "CUs"), ("hipblaslt_revision", "git_version"))
    facts = [Fact(ours, cells.get(theirs, "")) for ours, theirs in columns]
    records: list[Record] = [fact for fact in facts if fact.value and fact not in told]
    told.update(facts)
    timed = math.isfinite(time_us) and time_us > 0
    records.append(
        Measurement(
            problem=gemm,
            solution=solution,
            origin="tuning-file",
            status="ok" if timed else "no_time",
            time_us=time_us if timed else None,
            key_text=key(gemm, {}),
        )
    )
    name, kernel = cells.get("solution_name") or None, cells.get("kernel_name") or None
    if name or kernel:
        records.append(SolutionName(solution=solution, name=name, kernel_name=kernel))
    return Outcome("measurement", records)


def _reject(line: Line, reason: str) -> Outcome:
    return Outcome("reject", (Reject(reason, 0, len(line.text.encode())),), at=line.offset)


FORMAT = FileFormat(
    name="hipblaslt-tuning-file",
    about="hipBLASLt tuning file (6.4 and 7.0+ layout) and runtime tuning cache (HIPBLASLT_TUNING_CACHE_PATH)",
    recognise=recognise,
    read=read,
    origins=(Origin("tuning-file", evidence=True),),
)

# ------------------------------------------------------------------------------------------- writing

_KEY_FIELDS = ("trans_a", "trans_b", "batch_count", "m", "n", "k", "a_type", "b_type", "c_type", "compute_type")
_DATA_TYPE_COMPUTES = frozenset({"f16_r", "f32_r", "f64_r", "i32_r"})
"""ROCm 6.4 reads the compute type as a data type and drops entries with any other text."""
_OBJECT_COMPUTES = {"f16_r": "f32_f16_r", "bf16_r": "f32_bf16_r"}
NO_ROW = "-"
"""In place of the compute type in a key that no row has."""
_FAST_COMPUTES = frozenset({"f32_f16_r", "f32_bf16_r"})
_COMPUTES = frozenset({"f32_r", "f64_r", "i32_r", "xf32_r"})
_FOLDS_FAST = 100_203
"""The first version whose fast compute types may have the key of f32_r (rocm-libraries PR 6557)."""
_FIRST_NAMED = 1500
"""The first library version (0.15, development of ROCm 7.0) that reads columns by name."""


def key(problem: Problem, target: Mapping[str, str]) -> str | None:
    """``transA,transB,batch,m,n,k,a,b,c,compute``: what the library matches an entry by.

    None for grouped and complex GEMMs, where a key field is unknown, and for a compute type that the target's reader
    drops or reads as another (``logparse/formats/hipblaslt/tuning_reader.py``).  Leading dimensions, strides, scalars,
    epilogue, scales and swizzle are no part of it: problems that differ only there share an entry.  8-bit floats are
    those of the target's arch; a 6.4 target (``hipblaslt_version`` below 1500) has one name for both families.
    """
    if not isinstance(problem, GemmProblem) or problem.members:
        return None
    values = _key_values(problem, target)
    if any(value is None for value in values.values()) or problem.a_type in COMPLEX:
        return None
    return ",".join(str(value) for value in values.values())


def object_key(problem: Problem, target: Mapping[str, str]) -> str | None:
    """The key of a call through the C++ object (``hipblaslt_ext::Gemm``, which rocBLAS uses).

    Up to version 1.2.2 its compute type is that of A where that has 16 bits, so no row of ``f32_r`` serves it, and
    64-bit floats and integers find no row; so it is taken to be where the version is unknown. Later it is ``key``.
    Source: ROCm/rocm-libraries pull request 6557; 1.2.2 was asked in ``tests/conformance/test_hipblaslt_files.py``.
    """
    name, number = key(problem, target), version(target)
    if name is None or not isinstance(problem, GemmProblem) or (number is not None and number >= _FOLDS_FAST):
        return name
    *others, compute = name.split(",")
    kind = problem.a_type or ""
    if kind in _OBJECT_COMPUTES:
        compute = _OBJECT_COMPUTES[kind] if number is None or number >= _FIRST_NAMED else NO_ROW
    return ",".join((*others, NO_ROW if compute in ("f64_r", "i32_r") else compute))


def for_object(override: Override, target: Mapping[str, str]) -> Override | None:
    """The override with whose row a call through the C++ object is served; None where the row of others does, or no
    row can.
    """
    name = object_key(override.problem, target)
    if name is None or name == key(override.problem, target) or not isinstance(override.problem, GemmProblem):
        return None
    compute = name.rpartition(",")[2]
    return None if compute == NO_ROW else replace(override, problem=replace(override.problem, compute_type=compute))


def accepts(override: Override) -> bool:
    """Whether this writer is meant: a hipBLASLt index above 0 (the library refuses 0) for a single GEMM."""
    index = override.solution.id
    gemm = isinstance(override.problem, GemmProblem) and not override.problem.members
    return gemm and override.solution.library == "hipblaslt" and index.isdigit() and int(index) > 0


def write(overrides: Sequence[Override], target: Mapping[str, str]) -> Sequence[Emission]:
    """One file; the 6.4 layout for a target with ``hipblaslt_version`` below 1500, else header and values per entry.

    The 7.0 layout keeps to the 37 columns of 6.4: a 6.4 reader skips its header lines and takes its values, so it is
    also what a target of unknown version gets.  What the library ignores is the problem's own value where it is
    known, else:

    =======================  ==========================================================
    grouped_gemm, amaxD      0
    alpha                    1
    beta                     1 if β is nonzero, else 0
    lda ldb ldc ldd          tight
    stride_a … stride_d      leading dimension × columns
    d_type                   c_type
    scaleA … scaleD          0
    activation_type          none
    bias_vector, bias_type   0, f32_r
    rotating_buffer          512, hipblaslt-bench's value while it tunes
    Gflops, GB/s, us         computed from the override's time, 0 without one
    gcnArchName, CUs         the target's; 0 CUs where it is unknown
    =======================  ==========================================================

    Raises EmissionError where the target lacks ``hipblaslt_revision`` (the library compares it; some builds have an
    empty one) or ``arch`` (an index
    means another kernel elsewhere), a key field is unknown, or two overrides of one key want different solutions.
    """
    for fact, why in (("hipblaslt_revision", "the library compares it"), ("arch", "an index holds for one arch only")):
        if target.get(fact) is None or (fact == "arch" and not target[fact]):
            raise EmissionError(f"tuning file: {fact} of the target is unknown ({why}); give --target {fact}=…")
    entries: dict[str, tuple[Override, str]] = {}
    for override in overrides:
        name = _checked_key(override, target)
        known = entries.get(name)
        if known and known[0].solution != override.solution:
            both = f"{known[0].solution.text} and {override.solution.text}"
            raise EmissionError(f"tuning file: {both} for one key of the library ({name}); it can hold one of them")
        entries.setdefault(name, (override, ",".join(_values(override, target))))
    number = version(target)
    headed = number is None or number >= _FIRST_NAMED
    lines = [_FIRST + target["hipblaslt_revision"]]
    for _, values in entries.values():
        lines += ["    " + ",".join(TUNING_COLUMNS)] * headed + ["    " + values]
    data = ("\n".join(lines) + "\n").encode()
    return (Emission(name="hipblaslt_tuning.txt", data=data, use=_USE),) if entries else ()


_USE = """\
export HIPBLASLT_TUNING_OVERRIDE_FILE={path}
# Verify: under HIPBLASLT_LOG_MASK=32 the call's --solution_index is the file's; under 8, "Find solution with index".\
"""


def _checked_key(override: Override, target: Mapping[str, str]) -> str:
    name = key(override.problem, target)
    if name is not None and accepts(override):
        return name
    gemm = override.problem
    if isinstance(gemm, GemmProblem) and not gemm.members:
        known = _key_values(gemm, target)
        compute = gemm.normal.compute_type
        if compute is not None and known["compute_type"] is None:
            raise EmissionError(f"tuning file: the target's reader has no entry for calls of compute type {compute}")
        unknown = [field for field, value in known.items() if value is None]
        if unknown:
            raise EmissionError(
                f"tuning file: {', '.join(unknown)} of {gemm.label} is unknown and the library matches by it; "
                "a bench or profile log (HIPBLASLT_LOG_MASK=32 or 64) states it, no --target can"
            )
    raise EmissionError(f"tuning file: no entry can name {override.solution.text} for {gemm.label}")


def _compute(compute: str | None, number: int | None) -> str | None:
    """The compute type by which the library of this version looks a call up; None where no entry has it."""
    if number is not None and number < _FIRST_NAMED:
        return compute if compute in _DATA_TYPE_COMPUTES else None
    if compute in _FAST_COMPUTES:
        return compute if number is None or number < _FOLDS_FAST else "f32_r"
    if compute == "f16_r":  # runs as f32_r, which bench lines of such calls state; Trace lines state what was asked for
        return "f32_r"
    return compute if compute in _COMPUTES else None


def _data_type(name: str | None, target: Mapping[str, str]) -> str | None:
    """A type of a call on this target, as its tuning file names it."""
    number = version(target)
    if number is not None and number < _FIRST_NAMED:
        return OCP.get(name or "", name)
    return on_arch(name, target.get("arch"))


def _key_values(problem: GemmProblem, target: Mapping[str, str]) -> dict[str, object]:
    p = problem.normal
    values: dict[str, Any] = {name: getattr(p, name) for name in _KEY_FIELDS}
    # At β = 0 normal form drops C's type.  The library has solutions for C of D's type alone: of 84 combinations with D
    # of 8 bits, version 1.2.2 offers some for six, in all of which C is of D's type.
    if p.beta == "zero":
        values["c_type"] = problem.c_type or p.d_type
    values |= {x: _data_type(values[x], target) for x in ("a_type", "b_type", "c_type")}
    return values | {"compute_type": _compute(p.compute_type, version(target))}


def version(target: Mapping[str, str]) -> int | None:
    """``hipblaslt_version`` as a number (1201, 100200); a text with dots (0.12.1) is put into that form."""
    text = target.get("hipblaslt_version", "").partition("-")[0]
    parts = text.split(".")
    if not all(part.isdigit() for part in parts):
        return None
    numbers = [int(part) for part in (*parts, "0", "0")[:3]]
    return int(text) if len(parts) == 1 else numbers[0] * 100_000 + numbers[1] * 100 + numbers[2]


def _values(override: Override, target: Mapping[str, str]) -> list[str]:
    given = override.problem
    assert isinstance(given, GemmProblem)
    p = given.normal
    known = _key_values(given, target)
    tight = tight_leading_dimensions(p)
    ld = {x: getattr(p, f"ld{x}") or (p.ldd if x == "c" else None) or tight[f"ld{x}"] for x in "abcd"}
    cols = {"a": p.k if p.trans_a == "N" else p.m, "b": p.n if p.trans_b == "N" else p.k, "c": p.n, "d": p.n}
    own = {x: None if p.batch_count == 1 else getattr(p, f"stride_{x}") for x in "abcd"}
    stride = {x: ld[x] * (cols[x] or 0) if own[x] is None else own[x] for x in "abcd"}
    scale = [SCALE_CODES.get(getattr(p, f"scale_{x}") or "none", "0") for x in "abcd"]
    words: list[object] = [known["trans_a"], known["trans_b"], 0, p.batch_count, p.m, p.n, p.k]
    words += [1, ld["a"], stride["a"], int(p.beta == "nonzero"), ld["b"], stride["b"]]
    words += [ld["c"], stride["c"], ld["d"], stride["d"]]
    d_type = _data_type(p.d_type, target) or known["c_type"]
    words += [known["a_type"], known["b_type"], known["c_type"], d_type, known["compute_type"], *scale, 0]
    words += [p.activation or "none", int(bool(p.bias)), p.bias_type or "f32_r", 512]
    words += [*_performance(p, override.time_us), override.solution.id, target["arch"], target.get("cu_count", "0")]
    return [str(word) for word in words]


def _performance(p: GemmProblem, time_us: float | None) -> tuple[str, str, str]:
    """Gflops (10⁹/s), GB/s (2³⁰ bytes/s, as hipblaslt-bench computes it) and us, six significant digits."""
    if not time_us:
        return "0", "0", "0"
    seconds = time_us * 1e-6
    return f"{(p.flops or 0) / seconds / 1e9:g}", f"{(p.bytes or 0) / seconds / 2**30:g}", f"{time_us:g}"


WRITER = Writer(
    name="hipblaslt-tuning-file",
    about="hipBLASLt tuning file for HIPBLASLT_TUNING_OVERRIDE_FILE (ROCm 6.4 and later)",
    accepts=accepts,
    key=key,
    write=write,
)
