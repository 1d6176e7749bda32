"""aiter's tables of tuned and untuned shapes: GEMMs (also of its tuner gradlib) and fused MoE.

::

    gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,tflops,bw
    gfx942,304,64,256,5120,False,torch.bfloat16,torch.float32,False,False,hipblaslt,192883,0,10.91,Cijk…,0.0,15,306

    gfx,cu_num,M,N,K,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio           (a8w8…, a4w4…, batched: with B)
    M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle                    (untuned; 8- and 4-bit: M,N,K, batched: B,M,N,K)
    cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,…,kernelName1,us,…,_tag

``AITER_TUNE_GEMM=1`` writes untuned tables, ``gradlib/gradlib/gemm_tuner.py`` tuned tables.  Columns are found by name,
because nine generations of the bf16 header exist.  Older headers have ``soltimes`` instead of ``us``, and lack ``gfx``,
``cu_num``, ``splitK`` … .  Times are µs.
Source: ROCm/aiter aiter/tuned_gemm.py, aiter/configs/.

Row-major Y[M,N] = X[M,K]·W[N,K]ᵀ becomes the column-major call that the library gets: m = N, n = M, layout TN, A is
W.  The tuner's tensors are contiguous, so each leading dimension equals the number of rows.  Beta is 0.

| cell | meaning |
|---|---|
| ``us`` inf | memory fault or hang |
| ``us`` -1 | error or unsupported call |
| ``solidx`` -1 | the backend's heuristic |

Fused MoE (``tuned_fmoe.csv``, ``untuned_fmoe.csv``) is not one product.  So its rows become messages of function
``fused_moe_table`` and not calls or measurements.  The text of a message is the row's key, and for a tuned row also the
kernels and the time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from logparse.devices import too_fast
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
"""Data type by its name in aiter's tables, for example ``torch.bfloat16``."""
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
    """Return True if the column names show that aiter wrote a table.

    A table that only has sizes must also have ``untuned`` in its file name.
    """
    columns = set(header.columns)
    if set(_MOE) <= columns:
        return True
    if not {"M", "N", "K"} <= columns:
        return False
    # A list of 8- or 4-bit products has only sizes, which other programs write too.
    if columns <= _SIZES:
        return "untuned" in header.name
    # Any other table needs a column that only aiter's tuning programs write.
    return bool(columns & _SOLUTION) if columns & _TUNED else bool(columns & _UNTUNED)


def _renamed(names: list[str]) -> list[str]:
    # A batched table of 2026 names its sizes in small letters.
    if "libtype" in names:
        return [name.upper() if name.upper() in _SIZES else name for name in names]
    return names


class _Table:
    """Reads an aiter table row by row.

    * A product that is still to be tuned gives a call.
    * A tuned product gives a measurement.
    * A row about fused MoE gives a message.
    """

    def __init__(self, header: Header) -> None:
        self._header = header
        # The GPUs that the rows name are collected here.
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
        """State for which GPU the rows of this aiter table were tuned.

        If the rows name several GPUs, the result lists all of them.  Such a list differs from the name of every single
        GPU.
        """
        devices = self._devices
        facts = [Fact(ours, " ".join(sorted(devices[name]))) for name, ours in _DEVICE.items() if devices[name]]
        yield Outcome("fact", facts, lines=0)


def _values(row: Row) -> dict[str, str]:
    columns, cells = row.columns, row.values
    place = columns.index("splitK") if "splitK" in columns else len(cells)
    # The first version with a column splitK wrote rows without its value, so the time stands in its place.
    if len(cells) == len(columns) - 1 and place < len(cells) and "." in cells[place]:
        cells = [*cells[:place], "", *cells[place:]]
    return dict(zip(columns, cells, strict=False))


def _records(values: Mapping[str, str], file_name: str) -> list[Record]:
    """Convert one row of an aiter table to a record: a call to be tuned, a measurement or a message.

    Raises KeyError for a missing column and ValueError for a bad value.
    """
    if "model_dim" in values:
        return [_fused_moe(values)]
    problem = problem_of_row(values, file_name)
    if not _TUNED & set(values):
        return [Call(problem=problem, category="untuned", count=None)]
    solution = solution_of_row(values)
    time_us, status, error_text = _time(values.get("us") or values.get("soltimes") or "")
    if wrong := too_fast(problem.flops, time_us, {ours: values.get(name, "") for name, ours in _DEVICE.items()}):
        raise ValueError(wrong)
    measured = Measurement(
        problem=problem, solution=solution, origin=ORIGIN, status=status, time_us=time_us, error=error_text,
        key_text=",".join(values[n] for n in _KEY if n in values),
    )  # fmt: skip
    kernel = values.get("kernelName")
    named = [SolutionName(solution=solution, kernel_name=kernel)] if kernel and kernel != values.get("libtype") else []
    return [measured, *named]


def _fused_moe(values: Mapping[str, str]) -> Message:
    """Summarise a row of aiter's table for fused mixture-of-experts kernels, in the form ``name=value name=value``.

    Raises ValueError if the row lacks sizes or types.
    """
    # In a table of grouped fused MoE, topk is -1 in rows for expert parallelism.
    sizes = (values.get(name, "").removeprefix("-" if name == "topk" else "") for name in _MOE[:5])
    if not all(map(str.isdecimal, sizes)) or not all(x in values for x in _MOE):
        raise ValueError("the row of aiter's table for fused MoE lacks a size or a type")
    shown = " ".join(f"{name}={values[name]}" for name in _MOE_SHOWN if values.get(name))
    return Message(category=CATEGORY, function=FUSED_MOE_TABLE, text=shown[:_BYTES_OF_MESSAGE])


_KEY = ("gfx", "cu_num", "B", "M", "N", "K", "bias", "dtype", "outdtype", "scaleAB", "bpreshuffle", "q_dtype_w")
_DEVICE = {"gfx": "arch", "cu_num": "cu_count"}


def device_of_key(key_text: str, columns: Collection[str]) -> dict[str, str]:
    """Return the GPU architecture and the number of compute units for which a row of an aiter table was tuned.

    * ``key_text`` holds the values that identify the row, separated by commas.
    * ``columns`` are the columns of the table.
    """
    cells = dict(zip((x for x in _KEY if x in columns), key_text.split(","), strict=False))
    return {ours: cells[theirs] for theirs, ours in _DEVICE.items() if cells.get(theirs)}


def problem_of_row(values: Mapping[str, str], file_name: str) -> GemmProblem:
    """Return the matrix product in a row of an aiter table, as the column-major call to a BLAS library.

    Raises KeyError if a column is missing, and ValueError for a bad value.
    """
    rows, columns, k = int(values["M"]), int(values["N"]), int(values["K"])
    weights = _type(values.get("q_dtype_w") or values.get("dtype"))
    inputs = _type(values.get("dtype"))
    kind = "bf16" if {"bias", "dtype"} <= values.keys() else _kind(file_name)
    if weights is None:
        weights = inputs = _type_of_operator(kind, file_name, values.get("gfx"))
    output = _type(values.get("outdtype"))
    floating = weights is not None and weights != "i8_r"
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


def _type_of_operator(kind: str, file_name: str, arch: str | None) -> str | None:
    """Return the data type of the operands in an aiter table that has no column for it, or None if it is unknown.

    Source: ROCm/aiter ``aiter/utility/dtypes.py`` and ``gemm_a8w8_blockscale_tune.py``.
    """
    # The operator in the file's name decides. For ``a8w8_blockscale`` the type is the 8-bit float type of the GPU
    # architecture, so it is unknown if the row states no ``gfx``.
    if kind.startswith("a8w8_blockscale"):
        return on_arch("f8_r", arch) if arch else None
    return {"bf16_": "bf16_r", "a4w4_": "f4_r"}.get(file_name[:5])


def _kind(file_name: str) -> str:
    """Return which operator of aiter a table is for, according to its file name.

    For example, it is ``a8w8_blockscale`` for ``a8w8_blockscale_tuned_gemm.csv``.  Returns an empty text if the name
    contains no operator.
    """
    found = re.search(r"(bf16|a\dw\d(?:_blockscale)?(?:_bpreshuffle)?)_(?:un)?tuned", file_name)
    return found[1] if found else ""


def _weights(values: Mapping[str, str], kind: str) -> dict[str, bool | None]:
    """Tell whether the weights of a row in an aiter table were shuffled in memory (the GEMM field ``swizzle_a``).

    Returns None as the value if this is unknown.
    """
    stated = _BOOLS.get(values.get("bpreshuffle", "").lower())
    # The operator for 4-bit weights takes weights with and without shuffle, and the table does not tell which.
    by_operator = None if not kind or kind.startswith("a4w4") else kind.endswith("_bpreshuffle")
    return {"swizzle_a": by_operator if stated is None else stated}


def _scales(values: Mapping[str, str], kind: str) -> dict[str, str | None]:
    """Return how the weights (``scale_a``) and the inputs (``scale_b``) of a row in an aiter table are scaled.

    For example, 8-bit operands are scaled per row or in blocks of 128.  The value None means unknown.
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
    """Return the kernel that a row of a tuned table chooses, as a library and the library's number for the kernel.

    Raises KeyError for a missing column and ValueError for a bad value.
    """
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
        return None, "failed", "the kernel caused a memory fault or did not end during tuning"
    if value == -1:
        return None, "unsupported", "the kernel does not support this product, or failed during tuning"
    return (value, "ok", None) if value > 0 else (None, "no_time", f"time {text!r}")


# ---------------------------------------------------------------------------------------------------- writing

KEY_COLUMNS = ("gfx", "cu_num", "M", "N", "K", "bias", "dtype", "outdtype", "scaleAB", "bpreshuffle")
"""Columns by which aiter looks up a bf16 GEMM.

A table must have all of them, because aiter passes them to ``set_index``.
"""
COLUMNS = (*KEY_COLUMNS, "libtype", "solidx", "splitK", "us", "kernelName", "err_ratio", "tflops", "bw")
"""Columns that logparse writes into a table of bf16 products, so that old and new versions of aiter can read it.

Versions from before the column ``cu_num`` are not considered.  aiter 0.1.5 and 0.1.6 also compare ``kernelName`` of
hipBLASLt's rows with the kernel's name in the library, and stop if the two differ.
"""
BY_KERNEL_NAME = frozenset({"asm", "flydsl"})
"""Libraries whose kernels aiter finds by name (column ``kernelName``), not by number (``solidx``)."""
BACKENDS = BY_KERNEL_NAME | {"hipblaslt", "opus", "skinny", "triton", "torch"}
"""Libraries that a row may name in the column ``libtype``.

For any other text aiter raises a KeyError when the job calls the product, because its list ``solMap`` lacks it.
"""
_NAMES = {ours: theirs for theirs, ours in DTYPES.items()}


def key(problem: Problem, target: Mapping[str, str]) -> str | None:
    """Return the text by which aiter looks up a matrix product in its bf16 table.

    The text has the form ``gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle``, without leading dimensions.  If
    no row has the exact M, aiter uses a row with a larger, rounded M, which depends on aiter's version.

    Returns None in these cases:

    * aiter never makes such a call (a layout other than TN, a batch, an epilogue, or a β other than 0).
    * The GPU or a value of the key is unknown.
    """
    cells = _cells(problem, target)
    return None if None in cells.values() else ",".join(str(cell) for cell in cells.values())


def _cells(problem: Problem, target: Mapping[str, str]) -> dict[str, object]:
    if not isinstance(problem, GemmProblem) or problem.members:
        return {"a single GEMM (no group of GEMMs and no convolution)": None}
    p = problem.normal
    if (p.trans_a, p.trans_b, p.batch_count, p.beta or "zero", p.activation or "none") != ("T", "N", 1, "zero", "none"):
        return {"a single matrix product (batch of one) with transA = T, transB = N, β = 0 and no epilogue": None}
    if p.compute_type not in (None, "f32_r", "i32_r"):
        return {"the compute type f32_r or i32_r (the type in which products are summed)": None}
    arch = target.get("arch")
    dtype = _NAMES.get(on_arch(p.a_type, arch) or "") if on_arch(p.a_type, arch) == on_arch(p.b_type, arch) else None
    scales = {p.scale_a, p.scale_b}
    scaled = None if p.a_type in NARROW and None in scales else bool(scales - {None, "none"})
    row = (p.n, p.m, p.k, p.bias, dtype, _NAMES.get(p.d_type or ""), scaled, bool(p.swizzle_a))
    device = (target.get("arch", "").partition(":")[0] or None, target.get("cu_count") or None)
    return dict(zip(KEY_COLUMNS, (*device, *row), strict=True))


def accepts(override: Override) -> bool:
    """Return True if aiter's table of bf16 products can tell aiter to use this kernel for this product."""
    if not isinstance(override.problem, GemmProblem) or override.solution.library not in BACKENDS:
        return False
    # Other programs also measure kernels of hipBLASLt and torch. So these are accepted only if aiter itself measured
    # them, which the key shows. Other kernels that the table can name belong to aiter alone.
    own = (override.key_text or "").count(",") == len(KEY_COLUMNS) - 1
    return own or override.solution.library not in ("hipblaslt", "torch")


def write(overrides: Sequence[Override], target: Mapping[str, str]) -> list[Emission]:
    """Write overrides (kernels to use for some products) as ``bf16_tuned_gemm.csv``, which aiter reads.

    * For each key, only the fastest override is written.
    * The columns are the columns of the newest aiter version.
    * If the library finds kernels by name, ``kernelName`` is the override's ``parameters``.
    * ``us``, ``tflops`` and ``bw`` follow from the override's time.  Without a time they are empty.
    * ``err_ratio`` stays empty, because it was not measured.

    Raises EmissionError in these cases:

    * The target machine's GPU architecture or number of compute units, a value of the key, or a kernel's name is
      unknown.
    * Two overrides have the same key and different kernels, and one of them has no time.
    """

    def key_of(override: Override) -> str:
        cells = _cells(override.problem, target)
        unknown = [name for name, cell in cells.items() if cell is None]
        if unknown:
            raise EmissionError(
                f"aiter: no row can be written for {override.problem.text}. A row needs {', '.join(unknown)}; the "
                "call or the target has another value, or does not state it"
            )
        return ",".join(str(cell) for cell in cells.values())

    rows = sorted(one_per_key(overrides, key_of).items())
    body = [",".join((text, *_backend(x), *_speed(x))) for text, x in rows]
    data = "".join(f"{line}\n" for line in [",".join(COLUMNS), *body]).encode()
    return [Emission("bf16_tuned_gemm.csv", data, _USE)] if body else []


def _backend(override: Override) -> list[str]:
    """Return the three cells ``libtype,solidx,splitK`` by which a row of an aiter table names this kernel.

    Raises EmissionError if aiter's table cannot name the kernel.
    """
    given = override.solution
    if given.text == "Default":
        return ["torch", "0", "0"]
    index = re.fullmatch(r"(\d+|heuristic)(?:,splitK=(\d+))?", given.id)
    if given.library not in BACKENDS or index is None:
        raise EmissionError(f"aiter: a row of its table cannot choose the solution {given.text}")
    if given.library in BY_KERNEL_NAME and not override.parameters:
        raise EmissionError(f"aiter: a row must name the kernel of {given.text}, and this name is unknown")
    return [given.library, "-1" if index[1] == "heuristic" else index[1], index[2] or "0"]


def _speed(override: Override) -> list[str]:
    """Return the cells that describe how fast a kernel is: ``us,kernelName,err_ratio,tflops,bw``.

    The rates are computed in the same way as in aiter's tuning program, in 10¹² operations/s and 10⁹ bytes/s.
    """
    gemm, us, kernel = override.problem, override.time_us, override.parameters or ""
    assert isinstance(gemm, GemmProblem)
    if re.search(r'[,"\s]', kernel):
        raise EmissionError(f"aiter: {kernel!r} cannot be the name of a kernel")
    if us is None or not 0 < us < math.inf:
        return ["", kernel, "", "", ""]
    rate = [f"{(total or 0) / us / per:.2f}" for total, per in ((gemm.flops, 1e6), (gemm.bytes, 1e3))]
    return [f"{us:.4f}".rstrip("0").rstrip("."), kernel, "", *rate]


_USE = Shell("""\
export AITER_CONFIG_GEMM_BF16={path}
# aiter then reads this file, and not its own table. To let it read both, join their paths with a colon:
#   AITER_CONFIG_GEMM_BF16=<aiter>/configs/bf16_tuned_gemm.csv:{path}
# To see that rows are hit, set AITER_LOG_TUNED_CONFIG=1. aiter then prints "is tuned on cu_num" for each
# shape that has a row, and "not found tuned config" for each shape without a row.
""")


FORMAT = TableFormat(
    name="aiter",
    about="aiter's tuned and untuned tables of GEMMs and fused MoE",
    ours=is_ours,
    begin=_Table,
    rename=_renamed,
    fit="any",
    origins=(Origin(ORIGIN, evidence=True, winners=True),),
    seen="bf16 tables with the headers of nine generations of aiter; tables written by the tuners of aiter 0.1.7",
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
    read_when="`AITER_CONFIG_GEMM_BF16` is set to the file",
)
