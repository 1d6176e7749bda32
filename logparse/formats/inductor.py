"""torch.compile's autotuning tables: what Inductor timed for a product before it chose a kernel.

::

    Autotune Choices Stats:
    {"num_choices": 21, "num_triton_choices": 19, "best_kernel": "triton_mm_11", "best_time": 0.008704000152647495}
    AUTOTUNE addmm(640x1536, 640x512, 512x1536)
    strides: [0, 1], [512, 1], [1, 512]
    dtypes: torch.bfloat16, torch.bfloat16, torch.bfloat16
      triton_mm_11 0.0087 ms 100.0% ACC_TYPE='tl.float32', ALLOW_TF32=False, BLOCK_K=64, BLOCK_M=64, …, num_warps=4
      bias_addmm 0.0092 ms 94.1%
    SingleProcess AUTOTUNE benchmarking takes 0.2897 seconds and 4.0169 seconds precompiling for 21 choices

Written to standard error by ``torch.compile(mode="max-autotune")`` or ``TORCHINDUCTOR_MAX_AUTOTUNE=1``; the ten fastest
by default (``TORCHINDUCTOR_AUTOTUNE_NUM_CHOICES_DISPLAYED``).  torch 2.0 has neither strides nor types, its rows end
after the share and its last line is ``SingleProcess AUTOTUNE takes 5.1835 seconds``; the statistics came with 2.8.
Milliseconds, also where the first release wrote ``0.0148s`` (pytorch/pytorch pull request 97486).  A notebook and a
document indent all lines of a table alike.  Source: pytorch/pytorch torch/_inductor/select_algorithm.py
(``log_results``, ``_log_autotune_choices_stats``, ``make_precompile_fn``), torch 2.0 to 2.13.

A table is one measurement per row.  The number in ``triton_mm_11`` counts the kernels of the process, so a solution is
named by its configuration (``triton:mm,BLOCK_K=64,…``), and is ``triton:?`` or ``ck:?`` where the table has none.
``aten:mm`` is PyTorch's own operator.  A choice that did not compile is a message, as are operators that are no single
product or convolution (``flex_attention``, ``mm_plus_mm`` …).  A symbolic stride, or none, leaves the layout unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from logparse.formats.format import BlockFormat, Line, Origin, Outcome
from logparse.formats.patterns import regex
from logparse.formats.ranks import ranked
from logparse.formats.torch_types import TORCH_TYPES
from logparse.formats.traces.torch.inputs import contiguous_strides
from logparse.formats.traces.torch.operators import operation
from logparse.model import (
    CONV_LAYOUT,
    ConvProblem,
    GemmProblem,
    Measurement,
    Message,
    Problem,
    Record,
    Reject,
    Solution,
    Status,
)

ORIGIN = "inductor"
CATEGORY = "inductor"

_TABLE = regex(r"AUTOTUNE (?P<op>[A-Za-z_]\w*)\((?P<sizes>[^)]*)\)\s*\Z")
_STRIDES = regex(r"strides: (?P<list>\[.*\])\s*\Z")
_TYPES = regex(r"dtypes: (?P<list>torch\.\w+(?:, torch\.\w+)*)\s*\Z")
_ROW = regex(
    r"  (?P<name>\S.*?) (?P<ms>\d+(?:\.\d+)?(?:e[-+]?\d+)?|inf|nan)(?: ms|s)"
    r" (?:[\d.]+%|inf%|nan%|<DIVIDED BY ZERO ERROR>) ?(?P<config>.*)\Z"
)
_END = regex(r"(?:Single|Sub)Process AUTOTUNE (?:benchmarking )?takes ")
_STATS = "Autotune Choices Stats:"
_LOGGED = regex(r"(?:[VDIWEC]\d{4} [\d:.]+ +\d+ )?\S*torch/_inductor/select_algorithm\.py:\d+\] (?:\[[\d/_]+\] )?")
_LIBRARIES = (
    ("triton_", "triton"),
    ("rocm_", "ck"),
    ("cutlass_", "cutlass"),
    ("cuda_cutlass_", "cutlass"),
    ("xpu_cutlass_", "cutlass"),
    ("cpp_", "cpp"),
    ("cutedsl_", "cutedsl"),
    ("nv_universal_gemm", "nv-universal-gemm"),
    ("decompose_k_", "inductor"),
    ("contiguous_", "inductor"),
)
"""Beginnings of Inductor's own kernel names; any other name is an operator that it calls."""
_BY_NAME = ("aten", "inductor")
"""Libraries whose kernels are named by what they do and not counted."""
_OPERATORS = {
    "mm": "aten::mm",
    "int_mm": "aten::_int_mm",
    "addmm": "aten::addmm",
    "bias_addmm": "aten::addmm",
    "bmm": "aten::bmm",
    "baddbmm": "aten::baddbmm",
    "scaled_mm": "aten::_scaled_mm",
}
_MATRICES = {"aten::addmm": 1, "aten::baddbmm": 1}
"""At which input the left matrix stands, where it is not the first."""
_CPP_TYPES = {x.python: x.cpp for x in TORCH_TYPES}
_BLAS_TYPES = {x.python: x.blas for x in TORCH_TYPES if x.blas != "f4_r"}  # whose sizes count pairs
_PATIENCE = 50
"""Lines of others that may fall between two lines of a table."""
_MOST_ROWS = 10_000


@dataclass(frozen=True)
class _Choice:
    """A row of a table: its solution and what is known of its time."""

    name: str
    solution: Solution
    config: str
    """Its description with a comma between entries; empty where the file has none."""
    ms: float | None = None
    error: str | None = None
    status: Status = "ok"


@dataclass
class _Table:
    """One table while its lines come."""

    title: str
    op: str
    sizes: list[list[int]]
    strides: list[list[int] | None] | None = None
    types: list[str] | None = None
    rows: list[_Choice] = field(default_factory=list)
    patience: int = _PATIENCE


class _Reader:
    """The table under way in one stream, and what was written ahead of it."""

    def __init__(self) -> None:
        self._table: _Table | None = None
        self._stats_follow = False
        self._indent = ""

    @property
    def awake(self) -> bool:
        return self._stats_follow or (self._table is not None and self._table.patience > 0)

    def take(self, line: Line) -> Outcome | None:
        text = line.text.rstrip("\r")
        bare = text.lstrip(" ")
        if bare.startswith((_STATS, "AUTOTUNE ")) or _LOGGED.match(bare):
            self._indent = text[: len(text) - len(bare)]
        text = text.removeprefix(self._indent)
        offset = line.offset + len(line.text.rstrip("\r")) - len(text)
        if self._stats_follow:
            self._stats_follow = False
            if text.startswith("{"):  # the fastest rows once more
                return Outcome("measurement")
        if text.startswith(_STATS):
            self._stats_follow = True
            return Outcome("measurement", self._flush())
        if text.startswith("AUTOTUNE "):
            return self._begin(text, offset)
        if _END.match(text):
            return Outcome("measurement", self._flush()) if self._table else _message(text)
        logged = _LOGGED.match(text)
        if logged:
            return _message(text[logged.end() :])
        return self._in_table(text) if self._table else None

    def close(self) -> Iterable[Record]:
        if self._table is not None:
            yield Message(category="partial", text=f"{self._table.title} has no last line")
        yield from self._flush()

    # ------------------------------------------------------------------------------------ one method per kind of line

    def _begin(self, text: str, offset: int) -> Outcome | None:
        match = _TABLE.match(text)
        if match is None:
            return None
        held = self._flush()
        try:
            sizes = [_sizes(part.strip()) for part in match["sizes"].split(",")]
        except ValueError:
            reason = Reject(f"autotune: sizes {match['sizes'][:80]!r} are no sizes", 0, len(text.encode()))
            return Outcome("reject", [*held, reason], at=offset)
        self._table = _Table(text.strip(), match["op"], sizes)
        return Outcome("measurement", held)

    def _in_table(self, text: str) -> Outcome | None:
        table = self._table
        assert table is not None
        row = _ROW.match(text)
        if row is not None and len(table.rows) < _MOST_ROWS:
            table.rows.append(_choice(row))
            return Outcome("measurement")
        if not table.rows and (match := _STRIDES.match(text)):
            table.strides = [_strides(part) for part in re.findall(r"\[([^\]]*)\]", match["list"])]
            return Outcome("measurement")
        if not table.rows and (match := _TYPES.match(text)):
            table.types = match["list"].split(", ")
            return Outcome("measurement")
        table.patience -= 1
        return None

    def _flush(self) -> list[Record]:
        """What the table gives, when all its rows are known."""
        table, self._table = self._table, None
        if table is None:
            return []
        problem = _problem(table)
        if problem is None:
            texts = [f"{table.title}: {row.solution.text} {row.status} {row.ms} ms" for row in table.rows]
            return [Message(category=CATEGORY, text=text) for text in texts]
        return [_measured(problem, row, table) for row in table.rows]


def _message(text: str) -> Outcome:
    return Outcome("message", [Message(category=CATEGORY, text=text.strip())])


def _choice(row: re.Match[str]) -> _Choice:
    name, config = row["name"], _canonical(row["config"])
    if name.startswith("ExternKernelCaller("):
        name = name[len("ExternKernelCaller(") :].rstrip(")").removeprefix("extern_kernels.")
    elif "=" in name:  # the configuration in the name's place, by a PyTorch of early 2024
        name, config = "", _canonical(name)
    library = next((library for start, library in _LIBRARIES if name.startswith(start)), "aten" if name else "triton")
    solution = Solution(library, name if library in _BY_NAME else _identity(name, config), raw=row["name"])
    ms = float(row["ms"])
    if not math.isfinite(ms):
        return _Choice(name, solution, config, status="failed", error="did not run (time inf)")
    if ms <= 0:
        return _Choice(name, solution, config, status="no_time", error="time 0")
    return _Choice(name, solution, config, ms)


def _canonical(config: str) -> str:
    return re.sub(r",? +", ",", config.strip())


def _template(name: str) -> str:
    """``mm`` of ``triton_mm_11``; empty for other libraries, whose configuration names the kernel whole."""
    return re.sub(r"_\d+\Z", "", name).removeprefix("triton_") if name.startswith("triton_") else ""


def _identity(name: str, config: str) -> str:
    """What names a kernel in another process too: its template and its configuration, or ``?``."""
    return ",".join(filter(None, (_template(name), config))) if config else "?"


def _measured(problem: Problem, row: _Choice, table: _Table) -> Measurement:
    return Measurement(
        problem=problem,
        solution=row.solution,
        origin=ORIGIN,
        status=row.status,
        time_us=None if row.ms is None else round(row.ms * 1e3, 6),
        error=row.error,
        key_text=table.title.removeprefix("AUTOTUNE "),
    )


# ------------------------------------------------------------------------------------------------------- the problem


def _sizes(text: str) -> list[int]:
    sizes = [int(part) for part in text.split("x")] if text else []
    if any(size < 0 for size in sizes):
        raise ValueError(text)
    return sizes


def _strides(text: str) -> list[int] | None:
    """None where a stride is a symbol (``s0``) or an expression of some."""
    try:
        return [int(part) for part in text.split(",")] if text.strip() else []
    except ValueError:
        return None


def _problem(table: _Table) -> Problem | None:
    """The problem of a table; None for operators that are no single product, and where sizes do not fit."""
    name = table.op.removeprefix("_")
    if name == "convolution":
        return _convolution(table)
    operator = _OPERATORS.get(name)
    if operator is None:
        return None
    found = _operation(operator, table)
    if not isinstance(found, GemmProblem):
        return _of_sizes(table, _MATRICES.get(operator, 0))
    # The type of the result is an argument, which the table does not print.
    chosen = operator == "aten::_scaled_mm" or any(row.name.endswith("_dtype") for row in table.rows)
    return replace(found, c_type=None, d_type=None) if chosen else found


def _operation(operator: str, table: _Table) -> Problem | None:
    """What the profiler's reader makes of the operator's inputs, where all of them are known."""
    strides = table.strides or []
    if table.types is None or None in strides or not len(strides) == len(table.sizes) == len(table.types):
        return None
    none: list[list[int]] = [[]] * 2  # optional tensors that were not given
    types = [_CPP_TYPES.get(name, name) for name in table.types]
    inputs = {"Input Dims": [*table.sizes, *none], "Input Strides": [*strides, *none], "Input type": types}
    found = operation(operator, {**inputs, "Concrete Inputs": []})
    return found.problems[0] if found else None


def _of_sizes(table: _Table, at: int) -> GemmProblem | None:
    """The product as far as sizes and types define it: layouts stay unknown.  The result is a new, row-major tensor."""
    sizes, types = table.sizes[at : at + 2], (table.types or [])[at : at + 2]
    if len(sizes) < 2 or len(sizes[0]) != len(sizes[1]) or len(sizes[0]) not in (2, 3):
        return None
    (*batch, rows, k), (*batches, same_k, columns) = sizes
    if k != same_k or batch != batches:
        return None
    a_type, b_type = (_BLAS_TYPES.get(name) for name in reversed(types if len(types) == 2 else ["", ""]))
    return GemmProblem(
        m=columns, n=rows, k=k, batch_count=batch[0] if batch else 1, a_type=a_type, b_type=b_type,
        activation="none", gradient=False, aux=False,
    )  # fmt: skip


def _convolution(table: _Table) -> Problem | None:
    """A forward convolution, where a Triton row states what the title does not.

    Inductor has a Triton template for convolutions without dilation and transposition only (``kernel/conv.py``).
    """
    config = next((row.config for row in table.rows if "KERNEL_H=" in row.config), None)
    if config is None or len(table.sizes) not in (2, 3) or table.types is None:
        return None
    entries = dict(entry.split("=", 1) for entry in config.split(",") if "=" in entry)
    axes = "DHW"[5 - len(table.sizes[0]) :]
    stride, padding = (
        f"[{','.join(entries.get(f'{word}_{axis}', '?') for axis in axes)}]" for word in ("STRIDE", "PADDING")
    )
    types = [_CPP_TYPES.get(name, name) for name in table.types]
    strides = table.strides or []
    unknown = None in strides or len(strides) != len(table.sizes)  # a symbol leaves the layout unknown
    if unknown:
        strides = [contiguous_strides(size) for size in table.sizes]
    args = {
        "Input Dims": [*table.sizes[:2], []], "Input Strides": [*strides[:2], []], "Input type": [*types[:2], ""],
        "Concrete Inputs": ["", "", "", stride, padding, "[1]", "False", "[0]", entries.get("GROUPS", "?")],
    }  # fmt: skip
    found = operation("aten::convolution", args)
    problem = found.problems[0] if found else None
    if unknown and isinstance(problem, ConvProblem):
        return replace(problem, **dict.fromkeys(CONV_LAYOUT))  # type: ignore[arg-type]
    return problem


_MARKERS = (
    b"AUTOTUNE ",
    _STATS.encode(),
    b"torch/_inductor/select_algorithm.py:",
)

FORMAT = BlockFormat(
    name="inductor-autotune",
    about="torch.compile's autotuning: AUTOTUNE tables, choices' statistics, choices that failed",
    markers=_MARKERS,
    begin=ranked(_MARKERS, _Reader),
    origins=(Origin(ORIGIN, evidence=True),),
)
