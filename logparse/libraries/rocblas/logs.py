"""rocBLAS: bench and profile logs, the tables of ``rocblas-gemm-tune``, and the override file that Tensile reads.

::

    ./rocblas-bench -f gemm_ex --transposeA N --transposeB T -m 512 -n 1024 -k 256 --alpha 1 --a_type f16_r --lda 512 …
        --compute_type f32_r --algo 0 --solution_index 0 --flags 0 --atomics_allowed                      (one line)
    - { rocblas_function: "rocblas_gemm_ex", transA: "N", transB: "T", M: 512, N: 1024, K: 256, …, call_count: 4 }
    { rocblas_function: "rocblas_dgemv", transA: "C", M: 1, N: 1, lda: 0, incx: 1, incy: 0, call_count: 4 }   (old form)
    transA,transB,M,N,batch_count,K,alpha,beta,lda,ldb,ldc,input_type,output_type,compute_type,solution_index
    N,N,320,588,1,4096,1,0,320,6144,320,f32_r,f32_r,f32_r,3788

``ROCBLAS_LAYER=2`` writes the bench log and ``4`` the profile log (at exit), on stderr or into ``ROCBLAS_LOG_…_PATH``.
``rocblas-gemm-tune --yaml FILE`` writes the table.  ``ROCBLAS_TENSILE_GEMM_OVERRIDE_PATH=FILE`` reads it back.

A line of the bench log states the handle's atomics mode only if it is not the default mode, and PyTorch's handle is
not in the default mode.  The line then ends with ``--atomics_allowed`` from rocBLAS 4 on, and with
``--atomics_not_allowed`` before.  If a line has a flag that only the tool takes (``-i``, ``--verify`` …), or words
of the shell (``>> gemm.txt``), a person typed the line, and it is ``by_tool``.

With bit 0x10 (``ROCBLAS_LAYER=0x12``) the command ends in a comment, ``# source=tensile kernel=Cijk_… parent_api=…``.
It states the library that ran the call, its kernel, and the function that the program called (rocBLAS documentation,
logging).

The table's index is Tensile's index, counted from 1.  rocBLAS's own index of a Tensile solution is negative:
``file = -index - 10`` (ROCm/rocm-libraries#9985).  So the solution of the row above is ``rocblas:-3798``.  rocBLAS 4
and earlier numbered their own solutions differently, but their files have Tensile's index too.  So the files of all
these versions can be compared with each other.  Since
ROCm/rocm-libraries#10766 (after 5.2) rocblas-gemm-tune writes rocBLAS's own index.  logparse reads both forms.

Tensile compares transposes, sizes, batch, *beta's value*, leading dimensions, strides, input and output type, and
whether the compute type is wider.  It does not compare alpha (ROCm/Tensile ProblemOverride, CachingLibrary_test.cpp).
For a single product the strides that rocBLAS passes depend on the function:

* ``rocblas_gemm_ex`` passes strides of 1.  A row without strides (15 cells) means strides of 1, so it matches.
* ``rocblas_sgemm`` and the like (``rocblas_dgemm`` …) pass strides of 0.  PyTorch calls them for float and double.
  These calls need a row of 18 cells.

Source: ROCm/rocBLAS library/src/include/logging.hpp, library/src/tensile_host.cpp.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from logparse.errors import EmissionError
from logparse.libraries.hipblaslt.enums import tight_leading_dimensions
from logparse.libraries.kinds.format import BlockFormat, Emission, Line, LineFormat, Origin, Outcome, Writer
from logparse.libraries.kinds.line_prefixes import make_rank_readers
from logparse.libraries.kinds.patterns import regex
from logparse.libraries.kinds.reading import parse_whole_number
from logparse.libraries.kinds.typed_command import end_of_command
from logparse.model import (
    Beta,
    Call,
    GemmProblem,
    Measurement,
    Message,
    Override,
    Problem,
    Record,
    Reject,
    Solution,
    with_plain,
)
from logparse.quoting import Shell

RESERVED = 10
"""Number of kernel numbers that rocBLAS reserves: ``Tensile index = -own index - RESERVED``.

Its name in rocBLAS is ``c_rocblas_solutions_reserved``.
"""

PLAIN = "rocblas_gemm"
"""Marks a message about a logged call of ``rocblas_sgemm`` or a similar function, in the field ``function``.

The text of the message describes the matrix product.  The message is needed because such a call uses other rows of an
override file than a call of ``rocblas_gemm_ex``.
"""

BATCH_OF_ONE = "rocblas_gemm_batch"
"""Marks a message about a logged call of a batched function for a single product, in the field ``function``.

Such a call uses no row of an override file that logparse writes.
"""

PRECISIONS: Mapping[str, str] = {"h": "f16_r", "s": "f32_r", "d": "f64_r", "c": "f32_c", "z": "f64_c"}
_SPELLED = {"i_r32": "i32_r", **PRECISIONS}
FUNCTION = regex(r"(?:rocblas_)?([hsdcz])?gemm(_strided_batched|_batched)?(_ex3|_ex)?(?:_64)?\Z")
_BENCH_FLAGS: Mapping[str, str] = {
    "--transposeA": "transA",
    "--transposeB": "transB",
    "-m": "M",
    "-n": "N",
    "-k": "K",
    "-r": "precision",
    "-f": "rocblas_function",
}
_SWITCHES = frozenset({"--atomics_allowed", "--atomics_not_allowed", "--any_stride", "--outofplace"})
"""Flags of rocblas-bench that take no value."""
_OF_THE_TOOL = frozenset(
    {"-i", "--iters", "-j", "--cold_iters", "-v", "--verify", "-z", "--log_datatype", "--log_function_name", "--device"}
    | {"--initialization", "--workspace", "--flush_batch_count", "--flush_memory_size", "--any_stride", "--outofplace"}
)
"""Flags that rocBLAS never logs.  A line with such a flag was typed by a person."""
_PAIR = regex(r"""['"]?(\w+)['"]?: *(?:"([^"]*)"|'([^']*)'|(\[[^\]]*\]|\([^)]*\)|[^,{}]*?))\s*(?=[,}])""")
_RECORD = regex(r"\s*(?:- )?\{.*\}\s*\Z")


def problem_of(given: Mapping[str, str]) -> GemmProblem | None:
    """Return the matrix product that a record of rocBLAS's log describes.  ``given`` maps field names to texts.

    Returns None if the record's function is no GEMM.  Raises ValueError if a value is no number.
    """
    match = FUNCTION.match(given.get("rocblas_function", ""))
    if match is None:
        return None
    letter, batching, _ = match.groups()
    common = PRECISIONS.get(letter or "") or _type(given.get("precision", "").lower() or None)
    batched = batching is not None
    values: dict[str, Any] = {name: int(given[name]) for name in ("lda", "ldb", "ldc") if given.get(name)}
    values |= {name.lower(): int(given[name]) for name in "MNK" if given.get(name)}
    values["ldd"] = int(given["ldd"]) if given.get("ldd") else values.get("ldc") if "_ex" not in match[0] else None
    values["batch_count"] = int(given.get("batch_count") or 0) or (None if batched else 1)
    if batched:
        values["batch_mode"] = "pointer" if batching == "_batched" else "strided"
        values |= {f"stride_{x}": int(given[f"stride_{x}"]) for x in "abcd" if given.get(f"stride_{x}")}
        if "_ex" not in match[0] and "stride_c" in values:
            values.setdefault("stride_d", values["stride_c"])  # The function has no D and writes C.
    for x in "abcd":
        values[f"{x}_type"] = _type(given.get(f"{x}_type")) or common
    for side in "AB":
        trans = given.get(f"trans{side}", "").upper()
        values[f"trans_{side.lower()}"] = trans if trans in ("N", "T", "C") else None
    values["beta"] = _beta(given.get("beta", "") + given.get("betai", ""))
    values["compute_type"] = _type(given.get("compute_type")) or common
    # rocblas-bench has a flag for the mode of the handle.  1 is ``rocblas_xf32_xdl_math_op``, and changes only float.
    if given.get("math_mode") == "1" and values["compute_type"] == values["a_type"] == "f32_r":
        values["compute_type"] = "xf32_r"
    # rocBLAS has no epilogues.
    values |= {"activation": "none", "gradient": False, "aux": False, "bias": False, "scale_alpha_vector": False}
    return GemmProblem(**with_plain(values))


def _type(name: str | None) -> str | None:
    """Return logparse's name of a data type in a rocBLAS log or command, for example ``f32_r`` for the letter ``s``.

    Only two spellings differ: rocblas-bench also accepts a letter, and rocBLAS 5.2 misspells ``i32_r`` in its logs.
    """
    return _SPELLED.get(name or "", name)


def _beta(text: str) -> Beta | None:
    """Tell whether the scalar β in a rocBLAS log is ``zero`` or ``nonzero``.  Return None if the text is empty or nan.

    rocBLAS prints nan if it got no pointer to the scalar, or if it does not read the pointer.
    """
    if not text or "nan" in text.lower():
        return None
    return "nonzero" if re.search(r"[1-9]|inf", text, re.IGNORECASE) else "zero"


def call_of(given: Mapping[str, str], category: str, text: str, count: int | None, *, by_tool: bool = False) -> Outcome:
    """Turn a call in rocBLAS's log into a call record, if its function is a GEMM. Any other function gives a message.

    A value that is not a number gives an error.
    """
    try:
        problem = problem_of(given)
        index = int(given.get("solution_index") or 0)
    except ValueError as error:
        return Outcome("reject", [Reject(str(error), 0, len(text.encode()))])
    if problem is None:
        function = given.get("rocblas_function", "")
        return Outcome("message", [Message(category=category, function=function, text=text.strip())])
    # rocblas-bench raises leading dimensions that are too small, so the call has the raised ones.
    if by_tool and problem.trans_a and problem.trans_b:
        given_ld = {name: x for name in ("lda", "ldb", "ldc", "ldd") if (x := getattr(problem, name)) is not None}
        least = tight_leading_dimensions(problem)
        problem = replace(problem, **{name: max(x, least.get(name, x)) for name, x in given_ld.items()})
    solution = Solution("rocblas", str(index)) if index else None
    call = Call(problem=problem, category=category, count=count, solution=solution, by_tool=by_tool)
    other = "" if by_tool else _other_rows(given.get("rocblas_function", ""), problem)
    message = [Message(category=category, function=other, text=problem.text)] if other else []
    return Outcome("call", [call, *message])


def _other_rows(function: str, problem: GemmProblem) -> str:
    """Tell whether a call needs other rows of an override file than a call of ``rocblas_gemm_ex`` for the same product.

    An override file is a user's list of kernels to use.

    * ``PLAIN``: the function is, for example, ``rocblas_sgemm``, and needs rows with strides of 0.
    * ``BATCH_OF_ONE``: the function is batched but gets one product, and rocBLAS finds no row that logparse writes.
    * An empty text: rocBLAS finds the same rows.
    """
    match = FUNCTION.match(function)
    if match is None or problem.batch_count != 1:
        return ""
    _, batching, suffix = match.groups()
    return BATCH_OF_ONE if batching else PLAIN if suffix is None else ""


def read_bench(text: str) -> Outcome:
    """Read one line of rocBLAS's log that has the form of a ``rocblas-bench`` command. It is one call."""
    text, quoted, _ = text.partition("`")  # Issues quote a command as `rocblas-bench …`.
    command, _, comment = text.partition(" # ")
    end = end_of_command(command)
    try:
        given, by_tool = _flags(shlex.split(command[:end])[1:])
    except ValueError as error:
        return Outcome("reject", [Reject(str(error), 0, len(text.encode()))])
    made = call_of(given, "rocblas_bench", text, 1, by_tool=by_tool or bool(quoted) or end < len(command))
    return _with_kernel(made, dict(word.partition("=")[::2] for word in comment.split()))


def _with_kernel(made: Outcome, comment: Mapping[str, str]) -> Outcome:
    """Add to a logged call the kernel that the comment at the end of its line names.

    If the command itself names a kernel, that one stays.
    """
    kernel = comment.get("kernel", "")
    if comment.get("source") != "tensile" or not kernel:
        return made
    tensile = Solution("tensile", kernel)
    records = [replace(x, solution=x.solution or tensile) if isinstance(x, Call) else x for x in made.records]
    return replace(made, records=records)


def _flags(words: Sequence[str]) -> tuple[dict[str, str], bool]:
    """Return the flags of a rocblas-bench command as a dictionary.  The names are those in rocBLAS's profile log.

    The second result is True if a person typed the line.  Raises ValueError if the line is damaged.
    """
    given: dict[str, str] = {}
    left = iter(words)
    for flag in left:
        if not re.match(r"--?[A-Za-z]", flag):
            raise ValueError(f"the rocblas-bench command has {flag!r} in the place of a flag")
        if flag in _SWITCHES:
            continue
        value = next(left, "--")
        if value.startswith("--"):
            raise ValueError(f"the rocblas-bench command is damaged: {flag} has no value")
        given[_BENCH_FLAGS.get(flag, flag.lstrip("-"))] = value
    if "rocblas_function" not in given:
        raise ValueError("the rocblas-bench command is damaged: -f is missing")
    return given, not _OF_THE_TOOL.isdisjoint(words)


def read_profile(text: str) -> Outcome:
    """Read one record of rocBLAS's profile log: a call and how often the job made it (``call_count``).

    A record without ``call_count`` comes from a list of products to tune, so its count stays unknown.
    """
    if not _RECORD.match(text):
        return Outcome("reject", [Reject("the rocBLAS profile record is damaged", 0, len(text.encode()))])
    given = {name: a or b or c for name, a, b, c in _PAIR.findall(text)}
    count = given.get("call_count", "")
    calls = parse_whole_number(count) if count else None
    if count and (calls is None or calls < 0):
        return Outcome(
            "reject", [Reject(f"call_count is {count[:40]!r}, not a possible number of calls", 0, len(text.encode()))]
        )
    return call_of(given, "rocblas_profile", text, calls)


BENCH = LineFormat(
    name="rocblas-bench",
    about="rocBLAS's bench log: a rocblas-bench command for each call (ROCBLAS_LAYER=2)",
    markers=(b"rocblas-bench -",),
    start=rb"(?:\./)?rocblas-bench -",
    read=read_bench,
    seen="rocBLAS 5.2",
    example="./rocblas-bench -f gemm_ex --transposeA N …",
    gives="calls",
    how="`ROCBLAS_LAYER=2`, which writes to standard error or to the file `ROCBLAS_LOG_BENCH_PATH`",
)
PROFILE = LineFormat(
    name="rocblas-profile",
    about=(
        "rocBLAS's profile log: each matrix product with its number of calls (ROCBLAS_LAYER=4); input of "
        "rocblas-gemm-tune"
    ),
    markers=(b"rocblas_function",),
    start=rb"(?:- )?\{ ?['\"]?rocblas_function",
    read=read_profile,
    seen="rocBLAS 5.2 and an older one",
    example='- { rocblas_function: "rocblas_gemm_ex", … }',
    gives="counted calls",
    how="set `ROCBLAS_LAYER=4` for a job; rocBLAS writes the log when the process ends",
)


# ------------------------------------------------------------------------------------------- gemm-tune's table

HEADING = "transA,transB,M,N,batch_count,K,alpha,beta,lda,ldb,ldc,input_type,output_type,compute_type,solution_index"
_STRIDED = HEADING.replace("ldc,", "ldc,stride_a,stride_b,stride_c,")
_HEADER = "transA,transB,M,N,batch_count,K,"
_ROW = regex(r"[NTC], ?[NTC], ?\d+, ?\d+, ?\d+, ?\d+,")


class _Table:
    """Reads the rows of a table that rocblas-gemm-tune prints under a header line.

    The table ends at the first line that is no row.
    """

    def __init__(self) -> None:
        self._columns: list[str] = []

    @property
    def awake(self) -> bool:
        return bool(self._columns)

    def take(self, line: Line) -> Outcome | None:
        text = line.text.rstrip()
        if text.startswith(_HEADER):
            self._columns = [name.strip() for name in text.split(",")]
            return Outcome("message", [Message(category="rocblas_tune", text=text)])
        if not self._columns:
            return None
        if not _ROW.match(text):
            self._columns = []
            return None
        record = _measured(text)
        if record is None:
            return Outcome("reject", [Reject("the line is not a row of rocblas-gemm-tune", 0, len(text.encode()))])
        return Outcome("measurement", [record])

    def close(self) -> Iterable[Record]:
        return ()


def solution_of(index: int) -> Solution:
    """Return the kernel that a row of rocblas-gemm-tune's output names by a number.

    A positive number is Tensile's, counted from 1.  A negative number is rocBLAS's own.
    """
    return Solution("rocblas", str(index if index < 0 else -index - RESERVED), raw=str(index))


def row(text: str) -> Problem | None:
    """Return the matrix product of a result line of rocblas-gemm-tune, or None if the text is no such line."""
    measured = _measured(text)
    return None if measured is None else measured.problem


def _measured(text: str) -> Measurement | None:
    cells = [cell.strip() for cell in text.split(",")]
    if len(cells) not in (15, 18):
        return None
    row = dict(zip((_STRIDED if len(cells) == 18 else HEADING).split(","), cells, strict=True))
    try:
        index = int(row["solution_index"])
        single = int(row["batch_count"]) == 1
        given = {x: cell for x, cell in row.items() if not (single and x.startswith("stride_"))}
        given["rocblas_function"] = "gemm_strided_batched_ex" if "stride_a" in given else "gemm_ex"
        given |= {f"{x}_type": row["input_type"] for x in "ab"} | {f"{x}_type": row["output_type"] for x in "cd"}
        problem = problem_of({**given, "ldd": row["ldc"]})
    except ValueError:
        return None
    if problem is None or -RESERVED <= index <= 0:
        return None
    return Measurement(
        problem=problem,
        solution=solution_of(index),
        origin="rocblas-tune",
        status="no_time",
        error="rocblas-gemm-tune prints no time for this solution",
        key_text=",".join(row.values()).rpartition(",")[0],
    )


TUNE = BlockFormat(
    name="rocblas-tune",
    about="the table of rocblas-gemm-tune, which is also rocBLAS's override file",
    markers=(_HEADER.encode(),),
    begin=make_rank_readers((_HEADER.encode(),), _Table),
    origins=(Origin("rocblas-tune", evidence=False),),
    order="the rows of a table come after its heading, and other lines may lie between the rows",
    seen="what its documentation prints",
    example="N,N,320,588,1,4096,1,0,…,f32_r,3788",
    gives="override rows",
    how=(
        "run `rocblas-gemm-tune --yaml FILE`; rocBLAS uses the table if `ROCBLAS_TENSILE_GEMM_OVERRIDE_PATH` is "
        "set to it"
    ),
)
FORMATS = (BENCH, PROFILE, TUNE)


def key(problem: Problem, target: Mapping[str, str]) -> str | None:
    """Return the part of a rocBLAS override row that identifies the matrix product, without the kernel's number.

    An override row says which kernel to use.  Returns None if a value that rocBLAS compares is unknown.
    """
    return None if not isinstance(problem, GemmProblem) or _unknown(problem) else _key(problem)


def _unknown(gemm: GemmProblem) -> list[str]:
    names = ["trans_a", "trans_b", "m", "n", "k", "batch_count", "lda", "ldb", "a_type", "d_type", "compute_type"]
    names += ["stride_a", "stride_b"] if gemm.batch_count != 1 else []
    unknown = [name for name in names if getattr(gemm, name) is None]
    if gemm.beta != "zero":
        unknown.append("beta's value" if gemm.beta else "beta")
    pairs = [("ldc", gemm.ldd), ("stride_c", gemm.stride_d)][: 1 if gemm.batch_count == 1 else 2]
    return unknown + [name for name, of_d in pairs if getattr(gemm, name) is None and of_d is None]


def _key(gemm: GemmProblem) -> str:
    ldc = gemm.ldd if gemm.ldc is None else gemm.ldc
    row = [gemm.trans_a, gemm.trans_b, gemm.m, gemm.n, gemm.batch_count, gemm.k, 1, 0, gemm.lda, gemm.ldb, ldc]
    if gemm.batch_count != 1:
        row += [gemm.stride_a, gemm.stride_b, gemm.stride_d if gemm.stride_c is None else gemm.stride_c]
    return ",".join(map(str, [*row, gemm.a_type, gemm.d_type, gemm.compute_type]))


def plain_key(gemm: GemmProblem) -> str | None:
    """Return the start of the override row that ``rocblas_sgemm`` and similar functions use for a product.

    An override row says which kernel to use.  The kernel's number, at its end, is left out.  Returns None if no such
    function computes the product.
    """
    if gemm.batch_count != 1 or {gemm.b_type, gemm.d_type, gemm.compute_type} != {gemm.a_type}:
        return None
    if gemm.a_type not in PRECISIONS.values():
        return None
    *sizes, a, d, compute = _key(gemm).split(",")
    # The strides in such a row are 0.
    return ",".join((*sizes, "0", "0", "0", a, d, compute))


def accepts(override: Override) -> bool:
    """Return True if a rocBLAS override file (list of kernels to use) can select this kernel for this product.

    The product must be a GEMM without epilogue.  The kernel must be one of rocBLAS's own, from its library Tensile.
    """
    gemm, solution = override.problem, override.solution
    if not isinstance(gemm, GemmProblem) or gemm.members or gemm.bias or gemm.activation not in (None, "none"):
        return False
    tensile = re.fullmatch(r"-\d+", solution.id) is not None and int(solution.id) < -RESERVED
    return solution.library == "rocblas" and tensile and gemm.batch_mode != "pointer" and gemm.a_type == gemm.b_type


def write(overrides: Sequence[Override], target: Mapping[str, str]) -> list[Emission]:
    """Write overrides (kernels to use for some products) as a rocBLAS override file.

    If ``rocblas_sgemm`` or a similar function can compute a product too, a second row is written for its calls
    (``plain_key``).  Alpha is written as 1, because Tensile does not compare it.

    Raises EmissionError in these cases:

    * The target's rocBLAS is not known to be version 5 or later.  Earlier versions number kernels differently.
    * A value that Tensile compares is unknown.  This is always true if beta is not 0, because logparse knows only that
      it is not 0.
    """
    major = re.match(r"(\d+)\.", target.get("rocblas_version", ""))
    if major is None or int(major[1]) < 5:
        raise EmissionError(
            "rocBLAS: logparse can write rows only for version 5 or later, and the target's version is older or "
            "unknown. State it with --target rocblas_version=…, or name a TunableOp results CSV of the target"
        )
    rows: dict[str, int] = {}
    for override in overrides:
        gemm = override.problem
        unknown = _unknown(gemm) if isinstance(gemm, GemmProblem) else ["kind"]
        if unknown or not isinstance(gemm, GemmProblem):
            raise EmissionError(
                f"rocBLAS: no row can be written for {gemm.text}, because its {', '.join(unknown)} is unknown"
            )
        for text in filter(None, (_key(gemm), plain_key(gemm))):
            rows.setdefault(text, -int(override.solution.id) - RESERVED)
    body = "".join(f"{text},{index}\n" for text, index in sorted(rows.items()))
    return [Emission("rocblas_override.csv", f"{HEADING}\n{body}".encode(), _USE)]


_USE = Shell("""\
export ROCBLAS_TENSILE_GEMM_OVERRIDE_PATH={path}
# Only calls that rocBLAS gives to Tensile see it, not those served by hipBLASLt (ROCBLAS_USE_HIPBLASLT).
# rocBLAS prints one warning, "One or more problem overrides failed to load", when a row is not taken.
""")

WRITER = Writer(
    "rocblas",
    "rocBLAS's GEMM override file, a CSV (ROCBLAS_TENSILE_GEMM_OVERRIDE_PATH)",
    accepts,
    key,
    write,
    file="override CSV",
    read_when="`ROCBLAS_TENSILE_GEMM_OVERRIDE_PATH` is set to the file",
)
