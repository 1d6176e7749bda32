"""TunableOp's results file (``tunableop_results0.csv``): the fastest kernel of every tuned product.

::

    Validator,PT_VERSION,2.9.1
    Validator,HIP_VERSION,701
    Validator,HIPBLASLT_VERSION,100000-3b3d59eb
    Validator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-
    Validator,ROCBLAS_VERSION,5.0.0.5b515cf1bc
    GemmTunableOp_BFloat16_TN,tn_4096_512_1024_ld_1024_1024_4096,Gemm_Hipblaslt_477479,0.0558656
    GemmAndBiasTunableOp_Half_TN,tn_768_2048_3072_ld_3072_3072_768,Default,0.101268

PyTorch writes the file with ``PYTORCH_TUNABLEOP_ENABLED=1`` (tuning is on by default). ``PYTORCH_TUNABLEOP_BLAS_LOG=1``
adds a fifth field ``BLAS_PARAMS: - { function: matmul, … }``.  Times are milliseconds. ``inf`` means that every
candidate failed.  The file holds the time of the default only if the default won.  The verbose log holds the time of
every default.

PyTorch's reader (pytorch/pytorch aten/src/ATen/cuda/tunable/Tunable.cpp) works like this:

* It splits a line at every comma.  It trims nothing and knows no quotes.
* If several rows have the same key, the *first* row wins.
* If several validators have the same key, the last validator wins.
* It skips a line of two fields or fewer.

This reader keeps the rows that PyTorch would not use, with the reason.  If a row was appended to a file without a final
newline, it shares a line with the row before it (``…,Default,0.5GemmTunableOp_…``).  This reader splits such a line.
The second row is a further outcome with ``lines=0``.  ``results_rules`` describes which files and rows a given PyTorch
version takes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from logparse.errors import EmissionError
from logparse.libraries.kinds.decimals import microseconds
from logparse.libraries.kinds.format import Emission, FileFormat, Head, Origin, Outcome, Source, Writer, one_per_key
from logparse.libraries.kinds.patterns import regex
from logparse.libraries.tunableop import signature, validators
from logparse.libraries.tunableop.solutions import name, solution, why_no_candidate
from logparse.model import Fact, GemmProblem, Measurement, Override, Reject, Solution, Status, fault
from logparse.quoting import Shell

ORIGIN = "tunableop"
FILE_NAME = "tunableop_results"
BOM = "\ufeff"
_EMPTY_NAME = regex(r"(?!.*untuned)(?:.*tunableop.*|results\d.*|.*_results\d.*)\.csv\Z", re.IGNORECASE)
_BEGIN = regex(rf"(?:Validator,|{signature.OP_TEXT}[^,\n]*,[^,\n]*,(?!BLAS_PARAMS:))")
_NUMBER = regex(r"[ \t\v\f\r]*([-+]?(?:inf|nan|(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?))", re.IGNORECASE)
_BLAS_PARAMS = "BLAS_PARAMS:"

# ---------------------------------------------------------------------------------------------- layout: rows of a line


@dataclass(frozen=True)
class ResultsRow:
    """One row of a TunableOp results file, split in the same way as by PyTorch.

    * ``problem`` is missing (None) if no call can have this key.  ``error`` then gives the reason.
    * ``winner`` is an earlier row with the same key, which PyTorch uses instead of this row.
    * ``glued`` is True if the line end before the row is missing, so it follows another row in the same line.  PyTorch
      does not read it.
    """

    line: int
    text: str
    op: str
    params: str
    name: str
    time: str
    problem: GemmProblem | None
    error: signature.SignatureError | None = None
    winner: ResultsRow | None = None
    glued: bool = False

    @property
    def key(self) -> str:
        return f"{self.op},{self.params}"

    @cached_property
    def solution(self) -> Solution:
        return solution(self.name)

    @cached_property
    def time_ms(self) -> float:
        """The time of this row in ms, as C's ``atof`` reads it from the text.

        The time is the longest number at the start of the text, or 0 if there is no number.
        """
        match = _NUMBER.match(self.time)
        return float(match[1]) if match else 0.0

    @property
    def time_us(self) -> float | None:
        return microseconds(self.time_ms) if 0 < self.time_ms < math.inf else None


def fields(text: str) -> list[str]:
    """Split a line of a results file into its first four values and the rest.

    PyTorch splits it in the same way (``std::getline``), so an empty last value is dropped.
    """
    parts = text.split(",", 4)
    return parts[:-1] if len(parts) > 1 and not parts[-1] else parts


def pieces(line: str) -> Iterator[tuple[int, str]]:
    """Split a line of a results file that holds two rows because a line end is missing.

    Yields each row with its position in the line (characters).
    """
    found = [m.start() for m in signature.OP.finditer(line)]
    starts = [0, *(x for x in found if line[:x].count(",") >= 2 and line[x - 1] != ",")]
    for start, end in zip(starts, [*starts[1:], len(line)], strict=True):
        yield start, line[start:end]


@dataclass
class ResultsFile:
    """The content of a TunableOp results file, split into lines and values as PyTorch would.

    * ``validators`` maps each name that PyTorch checks (a version or the device) to its last value in the file.
    * ``rows`` holds all rows, in the order of the file.
    * ``ignored`` holds the numbers of the lines that PyTorch ignores.
    * ``first`` maps each key to the row that PyTorch uses, which is the first one.
    """

    validators: dict[str, str] = field(default_factory=dict)
    rows: list[ResultsRow] = field(default_factory=list)
    ignored: list[int] = field(default_factory=list)
    first: dict[str, ResultsRow] = field(default_factory=dict)

    def take(self, number: int, line: str) -> Iterator[tuple[int, str, ResultsRow | None]]:
        """Add a line of a TunableOp results file, and yield each row in it: position, text and parsed row.

        The position is in characters.  A text with fewer than three values has None as the parsed row.
        """
        cells = fields(line)
        if cells[0] == "Validator" and len(cells) > 2:
            self.validators[cells[1]] = cells[2]
            return
        # A line has several rows if a line end is missing.
        for start, text in pieces(line):
            found = row(text, number, glued=start > 0)
            if found is not None and not found.glued:
                winner = self.first.setdefault(found.key, found)
                found = found if winner is found else replace(found, winner=winner)
            if found is not None and (found.problem is not None or not found.glued):
                self.rows.append(found)
            elif text.strip("\r") and not start:
                self.ignored.append(number)
            yield start, text, found


def row(text: str, line: int, glued: bool = False) -> ResultsRow | None:
    """Parse one row of a TunableOp results file.  Return None if it has fewer than three values.

    ``winner`` stays empty, because the row that PyTorch uses for a key depends on the whole file.
    """
    parts = fields(text)
    if len(parts) < 3:
        return None
    op, params, named = parts[:3]
    problem, error = None, None
    try:
        problem = signature.problem(op, params)
        if len(parts) == 5 and parts[4].startswith(_BLAS_PARAMS):
            problem = signature.with_blas_params(problem, parts[4])
    except signature.SignatureError as wrong:
        error = wrong
    time = parts[3] if len(parts) > 3 else ""
    return ResultsRow(line, text.rstrip("\r"), op, params, named, time, problem, error, glued=glued)


# ------------------------------------------------------------------------------------------------- read what is there


def recognise(head: Head) -> bool:
    """Return True if a file is a TunableOp results file.

    Such a file begins with a validator (a line with a version) or a row. An empty file is one if it has a file name
    that TunableOp uses.
    """
    text = head.data.decode("utf-8", "replace").removeprefix(BOM).lstrip("\r\n")
    return bool(_BEGIN.match(text) if text else _EMPTY_NAME.match(head.name))


def lines_of(source: Source) -> Iterator[tuple[int, str]]:
    """Yield each line of a results file with its byte offset. A byte order mark and carriage returns are removed."""
    for number, line in enumerate(source.lines()):
        text = line.text.removesuffix("\r")
        bom = number == 0 and text.startswith(BOM)
        yield line.offset + len(BOM.encode()) * bom, text[bom:]


def read(source: Source) -> Iterator[Outcome]:
    """Read a TunableOp results file: the fastest kernels that PyTorch's GEMM tuner found, with their times.

    Lines ``Validator,…`` at the top give facts about the machine, which are yielded last.  A line that cannot be read
    gives an error.
    """
    file = ResultsFile()
    for number, (at, text) in enumerate(lines_of(source), start=1):
        found = list(file.take(number, text))
        for start, piece, one in found:
            place = at + len(text[:start].encode())
            yield replace(_outcome(piece, one), lines=0 if start else 1, at=place)
        if not found:
            wrong = next(filter(None, map(fault, _facts(file))), None)
            if wrong is not None:
                del file.validators[fields(text)[1]]
                yield Outcome("reject", [Reject(wrong, 0, len(text.encode()))], at=at)
            else:  # the device bounds the times below
                yield Outcome("fact", [fact for fact in _facts(file) if fact.name == "arch"])
    yield Outcome("fact", _facts(file), lines=0)


def _outcome(text: str, row: ResultsRow | None) -> Outcome:
    if not text:
        return Outcome("blank")
    if row is None:
        return Outcome("reject", [Reject("the line has fewer than three fields", 0, len(text.encode()))])
    if row.error is not None:
        before, wrong = (f"{row.op},", row.params) if row.error.part else ("", row.op)
        return Outcome("reject", [Reject(str(row.error), len(before.encode()), len(wrong.encode()))])
    return Outcome("measurement", [measurement(row)])


def measurement(row: ResultsRow) -> Measurement:
    """Return the time in a row of a TunableOp results file as a measurement.

    If PyTorch would not use the row, ``error`` states the reason.
    """
    assert row.problem is not None
    status: Status = "ok" if row.time_us else "no_time"
    error = None if row.time_us else f"time {row.time!r}" if row.time else "the row has no time"
    if row.time_ms == math.inf:
        status, error = (
            "failed",
            ("TunableOp found no kernel for this matrix product: each candidate failed or was skipped"),
        )
    if not row.name:
        status, error = "failed", "the row does not name its solution (kernel)"
    if row.glued:
        error = f"the row is joined to line {row.line} without a line end, so PyTorch does not read the row"
    elif row.winner is not None:
        status, error = "skipped", f"line {row.winner.line} with the same key is used instead"
    return Measurement(
        problem=row.problem,
        solution=row.solution,
        origin=ORIGIN,
        status=status,
        time_us=row.time_us,
        error=error,
        key_text=row.key,
    )


def _facts(file: ResultsFile) -> list[Fact]:
    rows = [row for row in file.rows if row.problem is not None]
    out = validators.facts(file.validators, {row.solution.library for row in rows})
    dialects = {"ld" if "_ld_" in row.params else "no-ld" for row in rows}
    if dialects:
        out.append(Fact("tunableop_keys", "mixed" if len(dialects) > 1 else dialects.pop()))
    return out


FORMAT = FileFormat(
    name="tunableop-results",
    about="PyTorch's TunableOp results CSV: the fastest solution of each tuned GEMM",
    recognise=recognise,
    read=read,
    origins=(Origin(ORIGIN, evidence=True, winners=True),),
    order="if several rows have the same key, the first row is used",
    seen="PyTorch 2.4 to 2.11, ROCm and CUDA",
    example="GemmTunableOp_BFloat16_TN,tn_…,Gemm_Hipblaslt_477479,0.0558656",
    gives="measurements, validators",
    how="`PYTORCH_TUNABLEOP_ENABLED=1`: writes `tunableop_results<device>.csv`",
)


# ---------------------------------------------------------------------------------------------------------------- write

USE = Shell("""\
export PYTORCH_TUNABLEOP_ENABLED=1
export PYTORCH_TUNABLEOP_TUNING=0
export PYTORCH_TUNABLEOP_FILENAME={folder}/{generic}
# PyTorch puts the device's number before the last dot: this name reads tunableop_results0.csv on device 0,
# tunableop_results1.csv on device 1 … .  With one visible GPU per process every process reads …0.csv.
# To see that rows are hit, run once with
#   export PYTORCH_TUNABLEOP_VERBOSE=3
# and look for "Loading results", for "ResultEntry found for <op>,<params>" and for no "Failed validator".
""")


def accepts(override: Override) -> bool:
    """Return True if a TunableOp results file can tell PyTorch to use this kernel for this product.

    The kernel must be PyTorch's default, or a kernel that TunableOp tries for this product.
    """
    gemm = override.problem
    has_op = isinstance(gemm, GemmProblem) and signature.has_op(gemm)
    return has_op and why_no_candidate(override.solution, gemm) is None


def write(overrides: Sequence[Override], target: Mapping[str, str]) -> list[Emission]:
    """Write overrides (kernels to use for some products) as TunableOp results files, one per GPU of the target.

    * The fact ``gpus`` is the number of GPUs (default 1).
    * All files have the same rows.  If several overrides have the same key, the fastest is written.
    * The validators are copied from the target's ``validator:*`` facts.
    * A row holds the key, the kernel and the time in milliseconds (0 if unknown).  PyTorch never uses the time.

    Raises EmissionError in these cases:

    * The target's PyTorch is a CUDA build before 2.14 and an override chooses another kernel than ``Default``.
    * The target's validators or its PyTorch version are unknown.
    * A field of the key is unknown.
    * The kernel has no known name in the target's PyTorch version.
    * Two overrides with the same key have different kernels, and one of them has no time.
    """
    if any(override.solution.text != "Default" for override in overrides):
        signature.refuse_untunable(target)
    header = validators.lines(target)
    body = []
    for key, override in sorted(one_per_key(overrides, partial(key_of, target=target)).items()):
        try:
            named = name(override.solution, override.problem, target)
        except ValueError as error:
            raise EmissionError(f"TunableOp: {override.solution.text} for {key}: {error}") from error
        body.append(f"{key},{named},{_milliseconds(override.time_us)}")
    data = "".join(f"{text}\n" for text in [*header, *body]).encode()
    gpus = int(target.get("gpus", "1"))
    return [Emission(f"{FILE_NAME}{gpu}.csv", data, USE) for gpu in range(gpus)]


def key_of(override: Override, target: Mapping[str, str]) -> str:
    """Return the text by which PyTorch on the target machine looks up the matrix product in a results file.

    Raises EmissionError if this text is unknown.  The error names the unknown fields.
    """
    how = signature.dialect(target)
    if how is None:
        raise EmissionError(
            "TunableOp: the target's version of PyTorch is unknown; give --target a results CSV that the target's "
            "PyTorch wrote"
        )
    # If a file stated the key, PyTorch itself wrote it.  Such a key is used if it fits the target's dialect.
    given = override.key_text
    if given is not None and _fits(given, how):
        return given
    key = signature.key(override.problem, target)
    if key is None:
        unknown = ", ".join(signature.missing(override.problem, how))
        raise EmissionError(
            f"TunableOp: no row can be written for {override.problem.text}, because its {unknown} is unknown. It is "
            "known from a results or untuned CSV that PyTorch wrote for this call on the target"
        )
    return key


def _fits(key_text: str, how: signature.Dialect) -> bool:
    op, _, params = key_text.partition(",")
    try:
        signature.problem(op, params)
    except signature.SignatureError:
        return False
    return ("_ld_" in params) == how.leading_dims


def _milliseconds(time_us: float | None) -> str:
    """Format a time in ms with six significant digits and without an exponent.  An unknown time becomes 0."""
    if time_us is None or not math.isfinite(time_us) or time_us <= 0:
        return "0"
    text = f"{time_us / 1000:.6g}"
    return text if "e" not in text else f"{time_us / 1000:.12f}".rstrip("0").rstrip(".")


WRITER = Writer(
    name="tunableop",
    about="TunableOp's results CSV, which PyTorch reads with PYTORCH_TUNABLEOP_ENABLED=1",
    accepts=accepts,
    key=signature.key,
    write=write,
    file="`tunableop_results0.csv`, one file per GPU",
    read_when=(
        "`PYTORCH_TUNABLEOP_ENABLED=1` is set, `PYTORCH_TUNABLEOP_FILENAME` is the file's name, and all Validator "
        "lines of the file (versions and device) equal PyTorch's own values"
    ),
)
