"""TunableOp's results CSV (``tunableop_results0.csv``): the winner of every tuned key, read and written.

::

    Validator,PT_VERSION,2.9.1
    Validator,HIP_VERSION,701
    Validator,HIPBLASLT_VERSION,100000-3b3d59eb
    Validator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-
    Validator,ROCBLAS_VERSION,5.0.0.5b515cf1bc
    GemmTunableOp_BFloat16_TN,tn_4096_512_1024_ld_1024_1024_4096,Gemm_Hipblaslt_477479,0.0558656
    GemmAndBiasTunableOp_Half_TN,tn_768_2048_3072_ld_3072_3072_768,Default,0.101268

Produced by ``PYTORCH_TUNABLEOP_ENABLED=1`` (tuning is on by default); ``PYTORCH_TUNABLEOP_BLAS_LOG=1`` adds a fifth
field ``BLAS_PARAMS: - { function: matmul, … }``.  Times are milliseconds.  ``inf`` means that every candidate failed.
The time of the default is in the file only where it won; the verbose log has all of them.

PyTorch's reader (pytorch/pytorch aten/src/ATen/cuda/tunable/Tunable.cpp): split at every comma, no trimming, no quotes;
of rows with one key the *first* wins, of validators with one key the last; two fields and less are skipped.  Rows that
PyTorch would not use are kept with the reason.  A row that was appended to a file without final newline is glued to the
last one (``…,Default,0.5GemmTunableOp_…``): it is split off and counted as a further outcome with ``lines=0``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from logparse.errors import EmissionError
from logparse.formats.decimals import MS_TO_US, shifted
from logparse.formats.format import Emission, FileFormat, Head, Origin, Outcome, Source, Writer
from logparse.formats.patterns import regex
from logparse.formats.tunableop import signature, validators
from logparse.formats.tunableop.solutions import name, solution, why_no_candidate
from logparse.model import Fact, Measurement, Override, Reject, Status

ORIGIN = "tunableop"
FILE_NAME = "tunableop_results"
_BOM = "\ufeff"
_EMPTY_NAME = regex(r"(?!.*untuned)(?:.*tunableop.*|results\d.*|.*_results\d.*)\.csv\Z", re.IGNORECASE)
_BEGIN = regex(
    r"(?:Validator,|(?:ScaledGemm|Gemm(?:StridedBatched|AndBias)?)TunableOp_[^,\n]*,[^,\n]*,(?!BLAS_PARAMS:))"
)
_NUMBER = regex(r"\s*([-+]?(?:inf(?:inity)?|nan|(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?))", re.IGNORECASE)
_BLAS_PARAMS = "BLAS_PARAMS:"


def recognise(head: Head) -> bool:
    """A file that begins with a validator or a row, or an empty one of TunableOp's name."""
    text = head.data.decode("utf-8", "replace").removeprefix(_BOM).lstrip("\r\n")
    return bool(_BEGIN.match(text) if text else _EMPTY_NAME.match(head.name))


@dataclass
class _File:
    """What the rows so far have in common."""

    validators: dict[str, str] = field(default_factory=dict)
    first_line: dict[str, int] = field(default_factory=dict)
    libraries: set[str] = field(default_factory=set)
    leading_dims: set[bool] = field(default_factory=set)
    rows: int = 0
    bom: bool = False
    crlf: bool = False


def read(source: Source) -> Iterator[Outcome]:
    """Every line as a fact (validator), a measurement (row), a reject or blank; the file's facts come last."""
    seen = _File()
    for number, line in enumerate(source.lines(), start=1):
        text = line.text
        skipped = 0
        if number == 1 and text.startswith(_BOM):
            seen.bom, text, skipped = True, text.removeprefix(_BOM), len(_BOM.encode())
        if text.endswith("\r"):
            seen.crlf, text = True, text[:-1]
        for ordinal, (start, piece) in enumerate(_pieces(text)):
            at = line.offset + skipped + start
            yield _outcome(piece, number, at, seen, glued=ordinal > 0)
    yield Outcome("fact", _facts(seen), lines=0)


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """The line, split where a further row is glued to a time; with the byte offset of each piece."""
    starts = [0, *(m.start() for m in signature.OP.finditer(text) if m.start() and text[m.start() - 1] not in ",")]
    if text.startswith("Validator,"):
        starts = [0]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        yield len(text[:start].encode()), text[start:end]


def _outcome(text: str, number: int, at: int, seen: _File, glued: bool) -> Outcome:
    lines = 0 if glued else 1
    if not text:
        return Outcome("blank")
    parts = text.split(",", 4)
    if parts[0] == "Validator":
        if len(parts) < 3:
            return Outcome("reject", [Reject("validator without a value", 0, len(text.encode()))], at=at)
        seen.validators[parts[1]] = parts[2]
        return Outcome("fact")
    record = row(text)
    if isinstance(record, Reject):
        return Outcome("reject", [record], lines=lines, at=at)
    seen.rows += 1
    seen.libraries.add(record.solution.library)
    seen.leading_dims.add("_ld_" in parts[1])
    assert record.key_text is not None
    first = seen.first_line.setdefault(record.key_text, number)
    if glued:
        record = replace(record, error=f"glued to line {number}, PyTorch does not read it")
    elif first != number:
        record = replace(record, status="skipped", error=f"shadowed by line {first}")
    return Outcome("measurement", [record], lines=lines, at=at)


def row(text: str) -> Measurement | Reject:
    """One row of a results file, without line end."""
    parts = text.split(",", 4)
    if len(parts) < 3:
        return Reject("fewer than three fields", 0, len(text.encode()))
    try:
        problem = signature.problem(parts[0], parts[1])
    except signature.SignatureError as error:
        before = ",".join(parts[: error.part]) + "," * (error.part > 0)
        return Reject(str(error), len(before.encode()), len(parts[error.part].encode()))
    if len(parts) == 5 and parts[4].startswith(_BLAS_PARAMS):
        problem = signature.with_blas_params(problem, parts[4])
    time_us, status, error_text = _time(parts[3] if len(parts) > 3 else "")
    if not parts[2]:
        status, error_text = "failed", "no solution name"
    return Measurement(
        problem=problem,
        solution=solution(parts[2]),
        origin=ORIGIN,
        status=status,
        time_us=time_us,
        error=error_text,
        key_text=f"{parts[0]},{parts[1]}",
    )


def _time(text: str) -> tuple[float | None, Status, str | None]:
    """Milliseconds as C's atof reads them, to microseconds."""
    match = _NUMBER.match(text)
    value = shifted(match[1], MS_TO_US) if match else 0.0
    if value == math.inf:
        return None, "failed", "every candidate failed or was skipped"
    if math.isnan(value) or value <= 0:
        return None, "no_time", f"time {text!r}" if text else "no time in the row"
    return value, "ok", None


def _facts(seen: _File) -> list[Fact]:
    out = validators.facts(seen.validators)
    if set(seen.validators) == {"PT_VERSION"} and seen.libraries <= {"torch", "cublaslt"}:
        out.append(Fact("backend", "CUDA"))
    if seen.leading_dims:
        one = "ld" if True in seen.leading_dims else "no-ld"
        out.append(Fact("tunableop_keys", one if len(seen.leading_dims) == 1 else "mixed"))
    if seen.bom:
        out.append(Fact("byte_order_mark", "yes: PyTorch does not read the first line"))
    if seen.crlf:
        out.append(Fact("line_ends", "CRLF: PyTorch rejects the file"))
    out.append(Fact("rows", str(seen.rows)))
    return out


FORMAT = FileFormat(
    name="tunableop-results",
    about="PyTorch TunableOp results CSV: the tuned winner of each GEMM",
    recognise=recognise,
    read=read,
    origins=(Origin(ORIGIN, evidence=True),),
)


# ---------------------------------------------------------------------------------------------------------------- write

_USE = """\
export PYTORCH_TUNABLEOP_ENABLED=1
export PYTORCH_TUNABLEOP_TUNING=0
export PYTORCH_TUNABLEOP_FILENAME={folder}/tunableop_results.csv
# PyTorch puts the device's number before the last dot: this name reads tunableop_results0.csv on device 0,
# tunableop_results1.csv on device 1 … .  With one visible GPU per process every process reads …0.csv.
# To see that rows are hit, run once with
#   export PYTORCH_TUNABLEOP_VERBOSE=3
# and look for "Loading results", for "ResultEntry found for <op>,<params>" and for no "Failed validator".
"""


def accepts(override: Override) -> bool:
    """GEMMs whose solution TunableOp lists among the op's candidates, and PyTorch's default."""
    gemm = signature.gemm_of(override.problem)
    return gemm is not None and signature.has_op(gemm) and why_no_candidate(override.solution, gemm) is None


def write(overrides: Sequence[Override], target: Mapping[str, str]) -> list[Emission]:
    """One results file per GPU of the target (fact ``gpus``, default 1), all with the same rows.

    Validators are copied from the target's ``validator:*`` facts.  A row is the key, the solution, and the time in
    milliseconds, which PyTorch never uses (0 where unknown).  Of several overrides with one key the fastest is taken.

    Raises EmissionError where the target's validators or dialect, a field of the key, or the solution's name in that
    dialect is not known, and where overrides of one key differ and have no times.
    """
    if any(override.solution.text != "Default" for override in overrides):
        signature.refuse_untunable(target)
    header = validators.lines(target)
    rows: dict[str, tuple[str, float | None]] = {}
    for override in overrides:
        key = key_of(override, target)
        try:
            named = name(override.solution, override.problem, target)
        except ValueError as error:
            raise EmissionError(f"TunableOp: {override.solution.text} for {key}: {error}") from error
        rows[key] = _better(key, rows.get(key), (named, override.time_us))
    body = [f"{key},{named},{_milliseconds(time_us)}" for key, (named, time_us) in sorted(rows.items())]
    data = "".join(f"{text}\n" for text in [*header, *body]).encode()
    gpus = int(target.get("gpus", "1"))
    return [Emission(f"{FILE_NAME}{gpu}.csv", data, _USE) for gpu in range(gpus)]


def key_of(override: Override, target: Mapping[str, str]) -> str:
    """The key that the target's PyTorch makes of this call.  Raises EmissionError naming what is not known."""
    how = signature.dialect(target)
    if how is None:
        raise EmissionError("TunableOp: PyTorch's version on the target is unknown; give --target a results CSV of it")
    # A key that a file gave is the library's own word, if it is of the target's dialect.
    given = override.key_text
    if given is not None and _fits(given, how):
        return given
    key = signature.key(override.problem, target)
    if key is None:
        unknown = ", ".join(signature.missing(override.problem, how))
        raise EmissionError(
            f"TunableOp: no key for {override.problem.text}: unknown {unknown}; a results or untuned CSV that PyTorch "
            "wrote for this call on the target supplies it"
        )
    return key


def _fits(key_text: str, how: signature.Dialect) -> bool:
    op, _, params = key_text.partition(",")
    try:
        signature.problem(op, params)
    except signature.SignatureError:
        return False
    return ("_ld_" in params) == how.leading_dims


def _better(key: str, old: tuple[str, float | None] | None, new: tuple[str, float | None]) -> tuple[str, float | None]:
    if old is None:
        return new
    if old[1] is not None and new[1] is not None:
        return min(old, new, key=lambda entry: (entry[1] or 0.0, entry[0]))
    if old[0] != new[0]:
        raise EmissionError(f"TunableOp: {old[0]} and {new[0]} for {key}, and no times to choose by")
    return old if old[1] is not None else new


def _milliseconds(time_us: float | None) -> str:
    """As C++ streams print it (six significant digits), never with an exponent; 0 where unknown."""
    if time_us is None or not math.isfinite(time_us) or time_us <= 0:
        return "0"
    text = f"{time_us / 1000:.6g}"
    return text if "e" not in text else f"{time_us / 1000:.12f}".rstrip("0").rstrip(".")


WRITER = Writer(
    name="tunableop",
    about="TunableOp results CSV, read by PyTorch with PYTORCH_TUNABLEOP_ENABLED=1",
    accepts=accepts,
    key=signature.key,
    write=write,
)
