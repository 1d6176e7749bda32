"""What ckProfiler prints: every kernel of Composable Kernel that was timed for one matrix product.

::

    a_m_k: dim 2, lengths {3840, 4096}, strides {4096, 1}
    b_k_n: dim 2, lengths {4096, 4096}, strides {1, 4096}
    c_m_n: dim 2, lengths {3840, 4096}, strides {4096, 1}
    found 38 instances
    Perf:    1.10017 ms, 117.117 TFlops, 87.6854 GB/s, DeviceGemmXdlUniversal<…> BlkSize: 256, …, KBatch 2
    DeviceGemm_Xdl_CShuffle<Default, 256, …> LoopScheduler: Default, … does not support this problem
    Best Perf for datatype = f16 ALayout =  RowMajor BLayout =  ColumnMajor M = 3840 N = 4096 K = 4096 StrideA = 4096
        StrideB = 4096 StrideC = 4096 KBatch = 2 : 1.08153 ms, 119.136 TFlops, 89.1972 GB/s, DeviceGemm…     (one line)

Produced by ``ckProfiler gemm 1 1 0 1 0 1 3840 4096 4096 -1 -1 -1`` and the other operations whose tensors are a, b and
c (``gemm_universal``, ``gemm_splitk``, ``batched_gemm`` …) or, with further operands, e (``gemm_add_fastgelu`` …: what
is done to the product stays unknown).  A row is a measurement of the solution ``ck:NAME``, with the split of K or the
grid behind its name.  Milliseconds, the mean over the iterations.  The last line repeats the best row; ``gemm`` times
that kernel once more, over more iterations, which is a measurement of its own.  Alone (``grep Best``) it is one, too.

The type is that of C, in the last line only.  A and B have it too if the bytes of a row (GB/s times ms) are those of
three matrices of that type; with other bytes (8-bit operands) their type stays unknown.  The row-major product becomes
the column-major call with its operands exchanged.  Convolutions are not read: the tool prints neither their strides
nor their pads.
Source: ROCm/composable_kernel profiler/include/profiler/profile_gemm*_impl.hpp, profile_batched_gemm_impl.hpp,
library/src/utility/host_tensor.cpp (``HostTensorDescriptor``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from logparse.formats.format import BlockFormat, Line, Origin, Outcome
from logparse.formats.patterns import regex
from logparse.formats.ranks import ranked
from logparse.model import TYPE_BYTES, GemmProblem, Measurement, Message, Record, Reject, Solution, Status, Trans

ORIGIN = "ck-profiler"
CATEGORY = "ck_profiler"

_TENSOR = regex(
    r"(?P<name>[abcde]\d?_(?:g_)?[mnk]_[mnk]): dim (?P<dim>\d), lengths \{(?P<lengths>\d{1,18}(?:, \d{1,18})*)\},"
    r" strides \{(?P<strides>\d{1,18}(?:, \d{1,18})*)\}\Z"
)
_ROW = regex(
    r"Perf: +(?P<ms>\S+) ms, (?P<tflops>\S+) TFlops, (?P<rate>\S+) GB/s(?:, (?P<name>.*?)"
    r"(?P<tail>(?:, (?:KBatch|SplitK|Grid_size) \d+)*(?:, streamk selection strategy ?\d+)?))?\Z"
)
_BEST = regex(
    r"Best Perf(?: for datatype = (?P<type>\w+))?(?: ALayout = +(?P<a>\w+))?(?: BLayout = +(?P<b>\w+))?"
    r"(?: CLayout = +(?P<c>\w+))?(?P<sizes>(?: [A-Z][\w -]{0,40}? = \d{1,18})*) ?: (?P<ms>\S+) ms,"
    r" (?P<tflops>\S+) TFlops, (?P<rate>\S+) GB/s, (?P<name>\S.*)\Z"
)
_SIZE = regex(r" ([A-Z][\w -]*?) = (\d{1,18})")
_UNSUPPORTED = " does not support this problem"
_KERNEL = regex(r"[Dd]evice\w+|\w*Gemm\w*")
_NOTES = regex(r"found \d+ instances\Z|rotating count: \d|Error: Incorrect results")
_TYPES = {"f32": "f32_r", "f16": "f16_r", "bf16": "bf16_r", "int8": "i8_r", "fp8": "f8_r"}
_PATIENCE = 1000
"""Lines of others that may fall between two rows: with its log switched on, the tool prints whole matrices."""
_MOST_ROWS = 10_000
_TOLERANCE = 1e-3
"""Of the bytes of a row: both of its factors have six digits."""

Layout = Literal["RowMajor", "ColumnMajor"]


@dataclass(frozen=True)
class _Timed:
    """A row: a kernel with its time, or one that cannot run the problem."""

    solution: Solution
    ms: float | None
    bytes: float | None
    status: Status


@dataclass
class _Table:
    """One problem while its rows come."""

    tensors: dict[str, tuple[list[int], list[int]]] = field(default_factory=dict)
    rows: list[_Timed] = field(default_factory=list)
    patience: int = _PATIENCE


class _Reader:
    """The problem under way in one stream."""

    def __init__(self) -> None:
        self._table: _Table | None = None

    @property
    def awake(self) -> bool:
        return self._table is not None and self._table.patience > 0

    def take(self, line: Line) -> Outcome | None:
        text = line.text.strip()
        best = _BEST.match(text)
        if best is not None:
            return self._best(best, text)
        tensor = _TENSOR.match(text)
        if tensor is not None:
            return self._tensor(tensor)
        return self._row(text) if self._table is not None else None

    def close(self) -> Iterable[Record]:
        if self._table is not None:
            yield Message(category="partial", text="ckProfiler: the output ends before the best kernel")
        yield from self._flush(None)

    # ------------------------------------------------------------------------------------ one method per kind of line

    def _tensor(self, found: re.Match[str]) -> Outcome:
        lengths, strides = ([int(x) for x in found[name].split(",")] for name in ("lengths", "strides"))
        held: list[Record] = []
        if found["name"] in ("a_m_k", "a_g_m_k", "a0_m_k"):  # each operation prints A first
            held = self._flush(None)
            self._table = _Table()
        if self._table is None or not len(lengths) == len(strides) == int(found["dim"]):
            return Outcome("message", [*held, Message(category=CATEGORY, text=found[0])])
        self._table.tensors[found["name"]] = (lengths, strides)
        return Outcome("measurement", held)

    def _row(self, text: str) -> Outcome | None:
        table = self._table
        assert table is not None
        row = _ROW.match(text)
        if row is not None and len(table.rows) < _MOST_ROWS:
            timed = _timed(row)
            if timed is None:
                return Outcome("reject", [Reject("ckProfiler: a row whose numbers cannot be read")])
            table.rows.append(timed)
            table.patience = _PATIENCE
            return Outcome("measurement")
        if text.endswith(_UNSUPPORTED) and _KERNEL.match(text) and len(table.rows) < _MOST_ROWS:
            table.rows.append(_Timed(_solution(text.removesuffix(_UNSUPPORTED)), None, None, "unsupported"))
            table.patience = _PATIENCE
            return Outcome("measurement")
        if _NOTES.match(text):
            return Outcome("message", [Message(category=CATEGORY, text=text)])
        table.patience -= 1
        return None

    def _best(self, found: re.Match[str], text: str) -> Outcome:
        timed = _timed(found)
        if timed is None:
            return Outcome("reject", [Reject("ckProfiler: a best kernel whose numbers cannot be read")])
        table = self._table
        stated = {name: int(value) for name, value in _SIZE.findall(found["sizes"])}
        if table is None:  # the line alone
            problem = _problem_of_line(found, stated)
            if problem is None:
                return Outcome("message", [Message(category=CATEGORY, text=text)])
            timed = replace(timed, solution=_with_options(timed.solution, stated))
            return Outcome("measurement", _records(problem, [timed], found["type"]))
        if not any(x.solution.raw == timed.solution.raw and x.ms == timed.ms for x in table.rows):
            table.rows.append(replace(timed, solution=_with_options(timed.solution, stated)))
        return Outcome("measurement", self._flush(found["type"]))

    def _flush(self, type: str | None) -> list[Record]:
        """The measurements of the table, when all of its rows are known."""
        table, self._table = self._table, None
        if table is None or not table.rows:
            return []
        problem = _problem(table.tensors)
        if problem is None:
            texts = (f"{x.solution.text} {x.status} {x.ms} ms" for x in table.rows)
            return [Message(category=CATEGORY, text=text) for text in texts]
        return _records(problem, table.rows, type)


def _timed(found: re.Match[str]) -> _Timed | None:
    try:
        ms, rate = float(found["ms"]), float(found["rate"])
    except ValueError:
        return None
    ok = math.isfinite(ms) and ms > 0
    size = ms * rate * 1e6 if ok and math.isfinite(rate) else None
    tail = found.groupdict().get("tail") or ""
    return _Timed(_solution(found["name"] or "?", tail), ms if ok else None, size, "ok" if ok else "no_time")


def _solution(name: str, tail: str = "") -> Solution:
    """The kernel, named without blanks; its options (split of K, grid) behind it."""
    options = re.sub(r", (\w+)(?: selection strategy)? ?(\d+)", r",\1=\2", tail)
    id = re.sub(r"[, ]+", ",", name.replace(": ", ":")) + options
    return Solution("ck", id, raw=name)


def _with_options(solution: Solution, stated: Mapping[str, int]) -> Solution:
    """Options that the last line states in front of the kernel's name."""
    names = {"KBatch": "KBatch", "Grid_size": "Grid_size", "Stream-K selection strategy": "streamk"}
    options = "".join(f",{ours}={stated[theirs]}" for theirs, ours in names.items() if theirs in stated)
    return replace(solution, id=solution.id + options)


# ------------------------------------------------------------------------------------------------------- the problem


def _records(problem: GemmProblem, rows: Sequence[_Timed], type: str | None) -> list[Record]:
    d_type = _TYPES.get(type or "")
    known = replace(problem, d_type=d_type)
    if d_type is not None and any(_is_one_type(problem, row.bytes, d_type) for row in rows):
        known = replace(known, a_type=d_type, b_type=d_type)
    return [
        Measurement(
            problem=known,
            solution=row.solution,
            origin=ORIGIN,
            status=row.status,
            time_us=None if row.ms is None else round(row.ms * 1e3, 6),
        )
        for row in rows
    ]


def _is_one_type(problem: GemmProblem, moved: float | None, type: str) -> bool:
    """Whether the bytes of a row are those of A, B and D of one type."""
    m, n, k, batch = (int(getattr(problem, name) or 0) for name in ("m", "n", "k", "batch_count"))
    expected = (m * k + k * n + m * n) * batch * TYPE_BYTES[type]
    return moved is not None and abs(moved - expected) <= _TOLERANCE * expected


def _problem(tensors: Mapping[str, tuple[list[int], list[int]]]) -> GemmProblem | None:
    """The product of the tensors that were printed; None where they are no product of two matrices."""
    found = [next((tensors[x] for x in names if x in tensors), None) for names in _NAMES]
    if any(x is None for x in found):
        return None
    (a, sa), (b, sb), (c, sc) = (x for x in found if x is not None)
    if not len(a) == len(b) == len(c) in (2, 3) or a[-1] != b[-2] or c[-2:] != [a[-2], b[-1]]:
        return None
    layouts = [_layout(size, stride) for size, stride in ((a, sa), (b, sb), (c, sc))]
    leading = [max(stride[-2:]) for stride in (sa, sb, sc)]
    batch = a[0] if len(a) == 3 else 1
    strides = [x[0] if len(x) == 3 else None for x in (sa, sb, sc)]
    others = {"activation": "none", "bias": False} if set(tensors) == set(_PLAIN[len(a)]) else {}
    return _column_major((a[-2], b[-1], a[-1]), layouts, leading, batch, strides, others)


_NAMES = (
    ("a_m_k", "a_g_m_k", "a0_m_k"),
    ("b_k_n", "b_g_k_n", "b0_k_n"),
    ("c_m_n", "c_g_m_n", "e_m_n", "e_g_m_n"),
)
_PLAIN = {2: ("a_m_k", "b_k_n", "c_m_n"), 3: ("a_g_m_k", "b_g_k_n", "c_g_m_n")}


def _layout(lengths: Sequence[int], strides: Sequence[int]) -> Layout | None:
    """None where both are 1, as of a single row or column: either would do."""
    rows, columns = strides[-2:]
    if rows == columns:
        return None
    return "RowMajor" if columns == 1 else "ColumnMajor" if rows == 1 else None


def _problem_of_line(found: re.Match[str], stated: Mapping[str, int]) -> GemmProblem | None:
    names = ("M", "N", "K", "StrideA", "StrideB")
    if any(name not in stated for name in names) or not (found["a"] and found["b"]):
        return None
    leading = [stated["StrideA"], stated["StrideB"], stated.get("StrideC", stated.get("StrideE", 0))]
    layouts = [_WORDS.get(found[x] or "RowMajor") for x in "abc"]
    others = {"activation": "none", "bias": False} if "StrideC" in stated else {}
    return _column_major((stated["M"], stated["N"], stated["K"]), layouts, leading, 1, [None] * 3, others)


_WORDS: Mapping[str, Layout] = {"RowMajor": "RowMajor", "ColumnMajor": "ColumnMajor"}


def _column_major(
    sizes: tuple[int, int, int],
    layouts: Sequence[Layout | None],
    leading: Sequence[int],
    batch: int,
    strides: Sequence[int | None],
    others: Mapping[str, Any],
) -> GemmProblem:
    """The column-major call: of a row-major C the operands are exchanged, as its transpose is computed."""
    m, n, k = sizes
    a, b, c = range(3)
    exchanged = layouts[2] != "ColumnMajor"
    if exchanged:
        m, n, a, b = n, m, 1, 0
    as_it_is: Layout = "RowMajor" if exchanged else "ColumnMajor"
    trans: list[Trans | None] = [None if x is None else "N" if x == as_it_is else "T" for x in layouts]
    return GemmProblem(
        trans_a=trans[a], trans_b=trans[b], m=m, n=n, k=k,
        batch_count=batch, batch_mode="strided" if batch > 1 else None,
        lda=leading[a] or None, ldb=leading[b] or None, ldc=leading[c] or None, ldd=leading[c] or None,
        stride_a=strides[a], stride_b=strides[b], stride_c=strides[c], stride_d=strides[c],
        gradient=False, aux=False, beta="zero", **others,
    )  # fmt: skip


_MARKERS = (b"_m_k: dim ", b"Best Perf")

FORMAT = BlockFormat(
    name="ck-profiler",
    about="standard output of ckProfiler for matrix products: every kernel that was timed, and the best",
    markers=_MARKERS,
    begin=ranked(_MARKERS, _Reader),
    origins=(Origin(ORIGIN, evidence=True),),
)
