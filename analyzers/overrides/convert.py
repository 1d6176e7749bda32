"""One library's tuned GEMMs as another's file, where both count solutions alike.

=====================  =====================================================  ==================================
from                   index                                                  is
=====================  =====================================================  ==================================
TunableOp CSV          ``Gemm_Hipblaslt_N``                                   hipBLASLt's N
TunableOp CSV          ``Gemm_Rocblas_r``, r > 0, rocBLAS 5 and later         hipBLASLt's r − 1
TunableOp CSV          ``Gemm_Rocblas_r``, r < −10                            row −r − 10 of rocBLAS's table
tuning file            the index                                              hipBLASLt's
aiter table            ``hipblaslt,N``, and all of its online cache           hipBLASLt's N
rocBLAS override CSV   i                                                      ``rocblas:-i-10``
=====================  =====================================================  ==================================

An index means something for one build of the library on one arch, so a conversion needs to know that both sides are of
it.  The libraries do not match calls by the same fields: a row may serve more calls afterwards, or fewer; the notes say
so.  Source: hipblaslt_ext::getIndexFromAlgo, ROCm/rocm-libraries ``projects/rocblas/library/src/tensile_host.cpp``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from analyzers.evidence.target import Facts, arch, machine, seen_by, serves
from logparse.errors import EmissionError, InputError
from logparse.formats import aiter, rocblas
from logparse.formats.format import Emission, FileFormat, Writer
from logparse.formats.hipblaslt import tuning_file
from logparse.formats.tunableop import results, validators
from logparse.formats.tunableop.solutions import hipblaslt_index
from logparse.ingest.input_file import InputFile
from logparse.model import Fact, Measurement, Override, Record, Solution, SolutionName

WRITERS: Mapping[str, Writer] = {
    "tunableop": results.WRITER,
    "hipblaslt": tuning_file.WRITER,
    "aiter": aiter.WRITER,
    "rocblas": rocblas.WRITER,
}
"""What can be converted to, by the word of ``--to``."""

SOURCES: tuple[FileFormat, ...] = (results.FORMAT, tuning_file.FORMAT, aiter.FORMAT)
"""What can be converted, beside the table of rocBLAS (which is no file of its own)."""

_MATCHED = {
    "tunableop": "PyTorch matches leading dimensions and whether there is a bias: a row serves only calls like its own",
    "hipblaslt": "hipBLASLt does not match leading dimensions, strides, bias, epilogue: an entry serves all such calls",
    "aiter": "aiter looks its calls up by M, N, K, bias and types; calls that do not go through it are not served",
    "rocblas": "rocBLAS gives only calls to Tensile that hipBLASLt does not serve",
}


@dataclass(frozen=True)
class Converted:
    """The files, how many rows they hold, what was left out (reason → rows), and what else to know."""

    emissions: tuple[Emission, ...]
    rows: int
    refused: Mapping[str, int]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Rows:
    """What a file says: its measured rows, its facts, and names of kernels."""

    format: str
    measured: tuple[Measurement, ...]
    facts: Facts
    kernels: Mapping[Solution, str]


def convert(
    paths: Sequence[str], to: str, target: Facts | None = None, *, same_build: bool = False, gpus: int = 1
) -> Converted:
    """Write the rows of files as a file of another library (or of another PyTorch that has the same libraries).

    ``target`` are facts of the machine that will read it; what they leave open is taken from the files, which then must
    be of that machine.  ``same_build``: the user vouches for what no file tells.

    Raises InputError for an unknown ``to``, a file that cannot be converted, and where device or build of a file are
    known to be others than the target's, or not known and not vouched for.
    """
    if to not in WRITERS:
        raise InputError(f"--to {to}: one of {', '.join(WRITERS)}")
    files = [(path, _read(path)) for path in paths]
    facts: dict[str, str] = {}
    for path, rows in files:
        for name, value in rows.facts.items():
            if facts.setdefault(name, value) != value and name not in (target or {}):
                raise InputError(f"{path}: {name} is {value}, other files say {facts[name]}; convert them apart")
    _one_build(facts, target or {})
    facts |= target or {}
    overrides: list[Override] = []
    refused: Counter[str] = Counter()
    for path, rows in files:
        for measured in rows.measured:
            reason = _why_not(measured)
            solution = _as(to, measured.solution, rows.facts.get("rocblas_version", ""))
            if reason or solution is None:
                refused[reason or f"{_kind(measured.solution)} is no solution of {to}"] += 1
                continue
            _guard(path, solution.library, rows.facts, facts, same_build)
            overrides.append(_override(measured, solution, facts, rows, to))
    return _written(WRITERS[to], to, overrides, seen_by(gpus, facts), refused)


def _one_build(files: Facts, target: Facts) -> None:
    """Raises InputError where the target is of another build than the validators that would be written."""
    own = {name.removeprefix(validators.PREFIX): x for name, x in files.items() if name.startswith(validators.PREFIX)}
    for key, value in own.items():
        if validators.PREFIX + key in target:
            continue
        for fact in validators.facts({key: value}):
            told = target.get(fact.name, fact.value)
            if told != fact.value and (fact.name != "arch" or arch(target) != arch({"arch": value})):
                raise InputError(
                    f"--target: {fact.name} is {told}, the files' validator {key} says {value}; for another build "
                    "give --target a results CSV that it wrote"
                )


def _read(path: str) -> _Rows:
    file = InputFile(path)
    try:
        head = file.head()
        found = next((x for x in SOURCES if x.recognise(head)), None)
        records = list(_table(file)) if found is None else [r for o in found.read(file) for r in o.records]
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    measured = tuple(x for x in records if isinstance(x, Measurement))
    if not measured:
        known = ", ".join((*(x.name for x in SOURCES), rocblas.TUNE.name))
        raise InputError(f"{path}: no tuned GEMM in it; formats that can be converted: {known}")
    facts = machine({x.name: x.value for x in records if isinstance(x, Fact)})
    kernels = {x.solution: x.kernel_name for x in records if isinstance(x, SolutionName) and x.kernel_name}
    return _Rows(rocblas.TUNE.name if found is None else found.name, measured, facts, kernels)


def _table(file: InputFile) -> Iterator[Record]:
    reader = rocblas.TUNE.begin()
    for line in file.lines():
        outcome = reader.take(line)
        yield from () if outcome is None else outcome.records


def _why_not(measured: Measurement) -> str | None:
    """Why a row is not worth converting."""
    if measured.status not in ("ok", "no_time"):
        return f"{measured.status}: {measured.error or 'no time'}"
    if measured.solution.text == "Default":
        return "Default: there is nothing to override"
    return None


def _as(to: str, given: Solution, rocblas_version: str) -> Solution | None:
    """The solution as the other library counts it; None where it has no such number."""
    if to == "rocblas":
        return given if given.library == "rocblas" else None
    if to == "tunableop" and given.library in ("rocblas", "cublaslt"):
        return given
    if given.library == "rocblas" and given.id.lstrip("-").isdigit():
        index = hipblaslt_index(given, rocblas_version)
        return None if index is None else Solution("hipblaslt", str(index))
    if to == "aiter" and given.library in aiter.BACKENDS:
        return given
    return given if given.library == "hipblaslt" and given.id.isdigit() else None


def _kind(given: Solution) -> str:
    return f"{given.library}'s {'index' if given.id.lstrip('-').isdigit() else given.id}"


def _guard(path: str, library: str, mine: Facts, target: Facts, same_build: bool) -> None:
    fits = serves(mine, target, library)
    if fits is None and same_build:
        return
    if fits is not True:
        what = "is of another" if fits is False else "does not tell the"
        vouch = "" if fits is False else "; --same-build if you know that it is the target's"
        raise InputError(f"{path} {what} device or build of {library}: an index means another kernel there{vouch}")


def _override(measured: Measurement, solution: Solution, target: Facts, rows: _Rows, to: str) -> Override:
    """The row as an override; its key is taken along where it is already one of the library's own."""
    own = WRITERS[to].name in rows.format
    return Override(
        problem=measured.problem,
        solution=solution,
        target=target,
        time_us=measured.time_us,
        key_text=measured.key_text if own else None,
        parameters=rows.kernels.get(measured.solution),
    )


def _written(writer: Writer, to: str, overrides: Sequence[Override], target: Facts, refused: Counter[str]) -> Converted:
    good: dict[str, list[Override]] = {}
    for override in overrides:
        try:
            writer.write([override], target)
        except EmissionError as error:
            refused[str(error).replace(override.problem.text, "such a call")] += 1
        else:
            key = writer.key(override.problem, target) or override.key_text or override.problem.text
            good.setdefault(key, []).append(override)
    clear = {key: rows for key, rows in good.items() if len({x.solution for x in rows}) == 1}
    clear |= {key: [min(rows, key=_time)] for key, rows in good.items() if key not in clear and _one_problem(rows)}
    for key, rows in good.items():
        if key not in clear:
            names = ", ".join(sorted({x.solution.text for x in rows}))
            refused[f"several problems share the key {key} and have different solutions: {names}"] += len(rows)
    made = writer.write([replace(x, target=target) for rows in clear.values() for x in rows], target) if clear else []
    return Converted(tuple(made), len(clear), dict(refused), (_MATCHED[to],) if clear else ())


def _time(override: Override) -> tuple[bool, float]:
    return override.time_us is None, override.time_us or 0.0


def _one_problem(rows: Sequence[Override]) -> bool:
    """Whether rows are of one and the same problem (of several files), so that the fastest is the better one."""
    return len({x.problem for x in rows}) == 1 and all(x.time_us is not None for x in rows)
