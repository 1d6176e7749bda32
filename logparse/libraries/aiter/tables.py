"""aiter's tables: tuned and untuned GEMMs (gradlib's too), and fused MoE.

::

    gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,tflops,bw
    gfx942,304,64,256,5120,False,torch.bfloat16,torch.float32,False,False,hipblaslt,192883,0,10.91,Cijk…,0.0,15,306

    gfx,cu_num,M,N,K,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio           (a8w8…, a4w4…, batched: with B)
    M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle                    (untuned; 8- and 4-bit: M,N,K, batched: B,M,N,K)
    cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,…,kernelName1,us,…,_tag

``AITER_TUNE_GEMM=1`` writes untuned tables, ``gradlib/gradlib/gemm_tuner.py`` tuned tables.  Columns are found by name,
because nine generations of the bf16 header exist.  Older headers have ``soltimes`` instead of ``us``, and lack ``gfx``,
``cu_num``, ``splitK`` … .  Times are in µs.
Source: ROCm/aiter aiter/tuned_gemm.py, aiter/configs/.

Row-major Y[M,N] = X[M,K]·W[N,K]ᵀ becomes the column-major call that the library gets: m = N, n = M, layout TN, A is
W.  The tuner's tensors are contiguous, so each leading dimension equals the number of rows.  Beta is 0.

| cell | meaning |
|---|---|
| ``us`` inf | memory fault or hang |
| ``us`` -1 | error or unsupported call |
| ``solidx`` -1 | the backend's heuristic |

Fused MoE (``tuned_fmoe.csv``, ``untuned_fmoe.csv``) is not one product.  So its rows are neither problems nor
measurements but messages of function ``fused_moe_table``.  The text is the row's key.  A tuned row adds its kernels and
its time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from logparse.errors import EmissionError
from logparse.libraries.kinds.dtypes import TORCH_TYPES
from logparse.libraries.kinds.format import Emission, Origin, Outcome, Writer, one_per_key
from logparse.libraries.kinds.fp8 import on_arch
from logparse.libraries.kinds.table import Header, Row, TableFormat
from logparse.model import (
    NARROW,
    Call,
    Fact,
    GemmProblem,
    Measurement,
    Message,
    Override,
    Problem,
    Record,
    Solution,
    SolutionName,
    Status,
    with_plain,
)
from logparse.quoting import Shell

CATEGORY = "aiter"
ORIGIN = "aiter"
_TABLED = frozenset({"bf16_r", "f16_r", "f32_r", "i8_r", "f8_fnuz_r", "f8_r", "bf8_fnuz_r", "bf8_r", "f4_r"})
DTYPES: Mapping[str, str] = {x.python: x.blas for x in TORCH_TYPES if x.blas in _TABLED}
"""Types that aiter's tables name, by the names that the tables print."""
_BOOLS: Mapping[str, bool] = {"true": True, "false": False, "1": True, "0": False}
_TUNED = frozenset({"libtype", "solidx", "kernelId", "us", "soltimes"})
_UNTUNED = frozenset({"scaleAB", "outdtype", "q_dtype_w"})
_SOLUTION = frozenset({"solidx", "kernelId"})
_SIZES = frozenset({"B", "M", "N", "K"})
FUSED_MOE_TABLE = "fused_moe_table"
_MOE = ("token", "model_dim", "inter_dim", "expert", "topk", "act_type", "dtype", "q_dtype_a", "q_dtype_w", "q_type")
_MOE_SHOWN = (*_MOE, "use_g1u1", "doweight_stage1", "block_m", "ksplit", "kernelName1", "kernelName2", "us")
_BYTES_OF_MESSAGE = 4000


def is_ours(header: Header) -> bool:
    """Return True if the header has M, N, K and a column of the tuner, or the sizes of fused MoE.

    An untuned table of the 8- and 4-bit families has only sizes, as lists of other programs do.  It is recognised by
    the name that aiter's tuners give it.
    """
    columns = set(header.columns)
    if set(_MOE) <= columns:
        return True
    if not {"M", "N", "K"} <= columns:
        return False
    if columns <= _SIZES:
        return "untuned" in header.name
    return bool(columns & _SOLUTION) if columns & _TUNED else bool(columns & _UNTUNED)


def _renamed(names: list[str]) -> list[str]:
    if "libtype" in names:  # a batched table of 2026 names its sizes in small letters
        return [name.upper() if name.upper() in _SIZES else name for name in names]
    return names


class _Table:
    """Reader of a table: each row is a call (untuned), a measurement or a message.

    It also collects the rows' devices.
    """

    def __init__(self, header: Header) -> None:
        self._header = header
        self._devices: dict[str, set[str]] = {"gfx": set(), "cu_num": set()}

    def open(self) -> Iterator[Outcome]:
        yield Outcome("fact", [Fact("columns", ",".join(self._header.columns))])

    def take(self, row: Row) -> Sequence[Record]:
        values = _values(row)
        for name, seen in self._devices.items():
            seen.update([values[name]] if values.get(name) else [])
        try:
            return _records(values, self._header.name)
        except KeyError as error:
            raise ValueError(f"column {error} is missing") from error

    def close(self) -> Iterator[Outcome]:
        """Yield the facts about the device on which the rows were made.

        A file may hold rows of several devices.  Then the fact names all of them and equals no target.
        """
        devices = self._devices
        facts = [Fact(ours, " ".join(sorted(devices[name]))) for name, ours in _DEVICE.items() if devices[name]]
        yield Outcome("fact", facts, lines=0)


def _values(row: Row) -> dict[str, str]:
    columns, cells = row.columns, row.values
    place = columns.index("splitK") if "splitK" in columns else len(cells)
    # The first rows of the generation that introduced splitK lack it, and a time stands in its place.
    if len(cells) == len(columns) - 1 and place < len(cells) and "." in cells[place]:
        cells = [*cells[:place], "", *cells[place:]]
    return dict(zip(columns, cells, strict=False))


def _records(values: Mapping[str, str], file_name: str) -> list[Record]:
    """Return the records of a row.  Raises KeyError for a missing column, ValueError for a bad cell."""
    if "model_dim" in values:
        return [_fused_moe(values)]
    problem = problem_of_row(values, file_name)
    if not _TUNED & set(values):
        return [Call(problem=problem, category="untuned", count=None)]
    solution = solution_of_row(values)
    time_us, status, error_text = _time(values.get("us") or values.get("soltimes") or "")
    measured = Measurement(
        problem=problem, solution=solution, origin=ORIGIN, status=status, time_us=time_us, error=error_text,
        key_text=",".join(values[n] for n in _KEY if n in values),
    )  # fmt: skip
    kernel = values.get("kernelName")
    named = [SolutionName(solution=solution, kernel_name=kernel)] if kernel and kernel != values.get("libtype") else []
    return [measured, *named]


def _fused_moe(values: Mapping[str, str]) -> Message:
    """Return the message of a row of fused MoE.  Raises ValueError if the row lacks sizes or types."""
    # A table of grouped fused MoE has a topk of -1 in rows of expert parallelism.
    sizes = (values.get(name, "").removeprefix("-" if name == "topk" else "") for name in _MOE[:5])
    if not all(map(str.isdecimal, sizes)) or not all(x in values for x in _MOE):
        raise ValueError("aiter: a row of fused MoE without its sizes or types")
    shown = " ".join(f"{name}={values[name]}" for name in _MOE_SHOWN if values.get(name))
    return Message(category=CATEGORY, function=FUSED_MOE_TABLE, text=shown[:_BYTES_OF_MESSAGE])


_KEY = ("gfx", "cu_num", "B", "M", "N", "K", "bias", "dtype", "outdtype", "scaleAB", "bpreshuffle", "q_dtype_w")
_DEVICE = {"gfx": "arch", "cu_num": "cu_count"}


def device_of_key(key_text: str, columns: Collection[str]) -> dict[str, str]:
    """Return the facts of the device that a row's key names.

    ``columns`` are the columns of its table (its fact ``columns``).
    """
    cells = dict(zip((x for x in _KEY if x in columns), key_text.split(","), strict=False))
    return {ours: cells[theirs] for theirs, ours in _DEVICE.items() if cells.get(theirs)}


def problem_of_row(values: Mapping[str, str], file_name: str) -> GemmProblem:
    """Return the column-major call of a row.  Raises KeyError for a missing column, ValueError for a bad cell."""
    rows, columns, k = int(values["M"]), int(values["N"]), int(values["K"])
    weights = _type(values.get("q_dtype_w") or values.get("dtype"))
    inputs = _type(values.get("dtype"))
    if weights is None:  # only the file's name states the type of such a table
        weights = inputs = {"bf16_": "bf16_r", "a4w4_": "f4_r"}.get(file_name[:5])
    output = _type(values.get("outdtype"))
    floating = weights is not None and weights != "i8_r"
    kind = "bf16" if {"bias", "dtype"} <= values.keys() else _kind(file_name)
    fields: dict[str, Any] = {
        "trans_a": "T", "trans_b": "N", "m": columns, "n": rows, "k": k,
        "batch_count": int(values.get("B") or 1), "batch_mode": "strided" if values.get("B") else None,
        "lda": k, "ldb": k, "ldc": columns, "ldd": columns,
        "a_type": weights, "b_type": inputs, "c_type": output, "d_type": output,
        "compute_type": "f32_r" if floating else None, "scale_type": "f32_r" if floating else None,
        "activation": "none", "gradient": False, "aux": False, "beta": "zero",
        "bias": _BOOLS.get(values.get("bias", "").lower()),
    }  # fmt: skip
    return GemmProblem(**with_plain(fields, scaled=True) | _weights(values, kind) | _scales(values, kind))


def _kind(file_name: str) -> str:
    """Return the operator of a table, by the words in the file's name by which aiter finds it.

    Empty if the name has none.
    """
    found = re.search(r"(bf16|a\dw\d(?:_blockscale)?(?:_bpreshuffle)?)_(?:un)?tuned", file_name)
    return found[1] if found else ""


def _weights(values: Mapping[str, str], kind: str) -> dict[str, bool | None]:
    """Return the field that tells if the weights were shuffled, from a column or from the operator.

    The operator of 4-bit weights takes shuffled weights and others, and its table does not tell which.
    """
    stated = _BOOLS.get(values.get("bpreshuffle", "").lower())
    by_operator = None if not kind or kind.startswith("a4w4") else kind.endswith("_bpreshuffle")
    return {"swizzle_a": by_operator if stated is None else stated}


def _scales(values: Mapping[str, str], kind: str) -> dict[str, str | None]:
    """Return how weights (A) and inputs (B) are scaled, by the operator.

    8-bit operands are scaled per row, or in blocks of 128.
    """
    if kind == "bf16":
        scaled = _BOOLS.get(values.get("scaleAB", "false").lower())
        return dict.fromkeys(("scale_a", "scale_b"), "none" if scaled is False else None)
    if "blockscale" in kind:
        block = ("block32", "block32") if kind.startswith("a4w4") else ("block128x128", "block128")
        return dict(zip(("scale_a", "scale_b"), block, strict=True))
    return dict.fromkeys(("scale_a", "scale_b"), "row" if kind.startswith("a8w8") else None)


def _type(name: str | None) -> str | None:
    if not name:
        return None
    if name not in DTYPES:
        raise ValueError(f"unknown type {name!r}")
    return DTYPES[name]


def solution_of_row(values: Mapping[str, str]) -> Solution:
    """Return the backend and its solution.  Raises KeyError for a missing column, ValueError for a bad cell."""
    library = values.get("libtype") or "aiter"
    number = int(values["solidx"] if "solidx" in values else values["kernelId"])
    split = values.get("splitK", "")
    raw = ",".join(filter(None, (values.get("libtype"), str(number), split)))
    if number < 0 and library != "rocblas":
        return Solution(library, "heuristic", raw=raw)
    if library in ("hipblaslt", "rocblas") or split in ("", "0"):
        return Solution(library, str(number), raw=raw)
    return Solution(library, f"{number},splitK={int(split)}", raw=raw)


def _time(text: str) -> tuple[float | None, Status, str | None]:
    try:
        value = float(text)
    except ValueError:
        return None, "no_time", f"time {text!r}" if text else "no time in the row"
    if value == math.inf:
        return None, "failed", "memory fault or hang while tuning"
    if value == -1:
        return None, "unsupported", "unsupported, or an error while tuning"
    return (value, "ok", None) if value > 0 else (None, "no_time", f"time {text!r}")


# ---------------------------------------------------------------------------------------------------- writing

KEY_COLUMNS = ("gfx", "cu_num", "M", "N", "K", "bias", "dtype", "outdtype", "scaleAB", "bpreshuffle")
"""Columns by which aiter looks a bf16 GEMM up.  Every one of them must exist (``set_index``)."""
COLUMNS = (*KEY_COLUMNS, "libtype", "solidx", "splitK", "us", "kernelName", "err_ratio", "tflops", "bw")
"""The newest bf16 header.  Readers from the introduction of ``cu_num`` on find all columns that they need in it.

The readers of 0.1.5 and 0.1.6 also compare ``kernelName`` of hipBLASLt's rows with the library's name.  They stop if it
differs.
"""
BY_KERNEL_NAME = frozenset({"asm", "flydsl"})
"""Backends for which aiter finds a kernel by its name, not by ``solidx``."""
BACKENDS = BY_KERNEL_NAME | {"hipblaslt", "opus", "skinny", "triton", "torch"}
"""``libtype`` texts of aiter's table ``solMap``.  Any other text raises a KeyError at the call."""
_NAMES = {ours: theirs for theirs, ours in DTYPES.items()}


def key(problem: Problem, target: Mapping[str, str]) -> str | None:
    """Return aiter's key of a call: ``gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle``.

    Return None for a problem that is no call of aiter (a layout other than TN, a batch, an epilogue, a β other than 0).
    Return None also if the device or a field is unknown.  Leading dimensions are not part of the key.  If no row has
    the call's own M, a row with a larger, padded M serves the call.  The padding depends on aiter's version.
    """
    cells = _cells(problem, target)
    return None if None in cells.values() else ",".join(str(cell) for cell in cells.values())


def _cells(problem: Problem, target: Mapping[str, str]) -> dict[str, object]:
    if not isinstance(problem, GemmProblem) or problem.members:
        return {"one GEMM": None}
    p = problem.normal
    if (p.trans_a, p.trans_b, p.batch_count, p.beta or "zero", p.activation or "none") != ("T", "N", 1, "zero", "none"):
        return {"a TN layout, one batch, β = 0 and no epilogue": None}
    if p.compute_type not in (None, "f32_r", "i32_r"):
        return {"a sum in f32_r or i32_r": None}
    arch = target.get("arch")
    dtype = _NAMES.get(on_arch(p.a_type, arch) or "") if on_arch(p.a_type, arch) == on_arch(p.b_type, arch) else None
    scales = {p.scale_a, p.scale_b}
    scaled = None if p.a_type in NARROW and None in scales else bool(scales - {None, "none"})
    row = (p.n, p.m, p.k, p.bias, dtype, _NAMES.get(p.d_type or ""), scaled, bool(p.swizzle_a))
    device = (target.get("arch", "").partition(":")[0] or None, target.get("cu_count") or None)
    return dict(zip(KEY_COLUMNS, (*device, *row), strict=True))


def accepts(override: Override) -> bool:
    """Return True for problems that aiter itself measured, and for kernels that only aiter has.

    A solution of hipBLASLt or torch counts only if aiter measured it, because other libraries use such solutions, too.
    """
    if not isinstance(override.problem, GemmProblem) or override.solution.library not in BACKENDS:
        return False
    own = (override.key_text or "").count(",") == len(KEY_COLUMNS) - 1
    return own or override.solution.library not in ("hipblaslt", "torch")


def write(overrides: Sequence[Override], target: Mapping[str, str]) -> list[Emission]:
    """Return ``bf16_tuned_gemm.csv`` of the newest generation, with the fastest override per key.

    ``parameters`` of an override is the kernel's name if the backend finds kernels by name.  ``us``, ``tflops`` and
    ``bw`` follow from the override's time and are empty without a time.  ``err_ratio`` was not measured and stays
    empty.

    Raises EmissionError if the target's arch or CU count, a field of the key or a kernel's name is not known.  Raises
    it also if overrides of one key differ and have no times.
    """

    def key_of(override: Override) -> str:
        cells = _cells(override.problem, target)
        unknown = [name for name, cell in cells.items() if cell is None]
        if unknown:
            raise EmissionError(f"aiter: no row for {override.problem.text} without {', '.join(unknown)}")
        return ",".join(str(cell) for cell in cells.values())

    rows = sorted(one_per_key(overrides, key_of).items())
    body = [",".join((text, *_backend(x), *_speed(x))) for text, x in rows]
    data = "".join(f"{line}\n" for line in [",".join(COLUMNS), *body]).encode()
    return [Emission("bf16_tuned_gemm.csv", data, _USE)] if body else []


def _backend(override: Override) -> list[str]:
    """Return ``libtype,solidx,splitK`` of the solution."""
    given = override.solution
    if given.text == "Default":
        return ["torch", "0", "0"]
    index = re.fullmatch(r"(\d+|heuristic)(?:,splitK=(\d+))?", given.id)
    if given.library not in BACKENDS or index is None:
        raise EmissionError(f"aiter: {given.text} is no solution that its table can name")
    if given.library in BY_KERNEL_NAME and not override.parameters:
        raise EmissionError(f"aiter: {given.text} is found by its kernel's name, which is not known")
    return [given.library, "-1" if index[1] == "heuristic" else index[1], index[2] or "0"]


def _speed(override: Override) -> list[str]:
    """Return ``us,kernelName,err_ratio,tflops,bw``, as aiter's tuner computes them (10¹² operations/s, 10⁹ bytes/s)."""
    gemm, us, kernel = override.problem, override.time_us, override.parameters or ""
    assert isinstance(gemm, GemmProblem)
    if re.search(r'[,"\s]', kernel):
        raise EmissionError(f"aiter: a kernel's name cannot be {kernel!r}")
    if us is None or not 0 < us < math.inf:
        return ["", kernel, "", "", ""]
    rate = [f"{(total or 0) / us / per:.2f}" for total, per in ((gemm.flops, 1e6), (gemm.bytes, 1e3))]
    return [f"{us:.4f}".rstrip("0").rstrip("."), kernel, "", *rate]


_USE = Shell("""\
export AITER_CONFIG_GEMM_BF16={path}
# This path alone takes the place of aiter's own table; to keep that, join both with a colon:
#   AITER_CONFIG_GEMM_BF16=<aiter>/configs/bf16_tuned_gemm.csv:{path}
# To see that rows are hit: AITER_LOG_TUNED_CONFIG=1 prints "is tuned on cu_num" for each shape,
# and "not found tuned config" without it.
""")


FORMAT = TableFormat(
    name="aiter",
    about="ROCm/aiter tuned and untuned tables of GEMMs and fused MoE",
    ours=is_ours,
    begin=_Table,
    rename=_renamed,
    fit="any",
    origins=(Origin(ORIGIN, evidence=True),),
    seen="tables of nine generations; 0.1.7's own tuners run",
    example="gfx,cu_num,M,N,K,bias,dtype,…",
    gives="measurements; calls of untuned tables",
)
WRITER = Writer(
    "aiter",
    "aiter bf16 GEMM table (AITER_CONFIG_GEMM_BF16)",
    accepts,
    key,
    write,
    file="bf16 GEMM table",
    read_when="`AITER_CONFIG_GEMM_BF16` names it",
)
