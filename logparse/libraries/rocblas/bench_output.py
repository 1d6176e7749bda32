"""Output of rocblas-bench about matrix products: a header and one row for each product that it timed.

``rocblas-bench -f gemm …`` prints it (documentation of rocBLAS; a row follows its header, with blank lines between)::

    transA,transB,M,N,K,alpha,lda,beta,ldb,ldc,rocblas-Gflops,us
    N,T,4000,4000,4000,1,4000,0,4000,4000, 97190.6, 1317

Columns are found by name.  Only the output of ``gemm_ex`` and its variants has columns for types (``a_type`` …).  No
column states the kernel.  A field that a row does not state is unknown.  A time is the mean over the iterations, µs.
Rows of other functions (without M, N and K) are messages. Source: ROCm/rocBLAS ``clients/include/argument_model.hpp``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from logparse.libraries.kinds.bad_cell import reason_of
from logparse.libraries.kinds.format import BlockFormat, Line, Origin, Outcome
from logparse.libraries.kinds.line_prefixes import make_rank_readers
from logparse.libraries.kinds.patterns import regex
from logparse.libraries.rocblas.logs import problem_of
from logparse.model import Measurement, Message, Record, Reject, Solution

_HEADER = regex(r"\s*([A-Za-z][\w,-]*,rocblas-Gflops,\S*)\s*\Z")
_ROW = regex(r"\s*[\w.+-]+(?:\s*,\s*[\w.+-]+){5,}\s*\Z")
_PATIENCE = 20
"""How many lines of other programs may come between a header and its rows."""


class _Reader:
    """Reads the output of rocblas-bench.  It remembers the column names of the last header line."""

    def __init__(self) -> None:
        self._columns: tuple[str, ...] = ()
        self._patience = 0

    @property
    def awake(self) -> bool:
        return bool(self._columns)

    def take(self, line: Line) -> Outcome | None:
        text = line.text.rstrip()
        header = _HEADER.match(text)
        if header:
            self._columns, self._patience = tuple(header[1].split(",")), _PATIENCE
            return Outcome("fact")
        if not self._columns or not text:
            return None
        if not _ROW.match(text):
            self._patience -= 1
            self._columns = self._columns if self._patience > 0 else ()
            return None
        return self._row(text)

    def _row(self, text: str) -> Outcome:
        values = [value.strip() for value in text.split(",")]
        if len(values) != len(self._columns):
            reason = f"a row of rocblas-bench with {len(values)} values, but its header has {len(self._columns)} names"
            return Outcome("reject", (Reject(reason),))
        cells = dict(zip(self._columns, values, strict=True))
        if not {"M", "N", "K", "us"} <= cells.keys():
            return Outcome("message", (Message(category="rocblas_bench_output", text=text.strip()),))
        batching = "_strided_batched" if "stride_a" in cells else "_batched" if "batch_count" in cells else ""
        given = {**cells, "rocblas_function": f"gemm{batching}{'_ex' if 'ldd' in cells else ''}"}
        try:
            problem, time_us = problem_of(given), float(cells["us"])
        except ValueError as error:
            return Outcome("reject", (Reject(f"rocblas-bench row: {reason_of(error, cells)}"),))
        if problem is None or not (time_us > 0 and math.isfinite(time_us)):
            return Outcome("reject", (Reject(f"rocblas-bench row: a time of {cells['us']} µs"),))
        measured = Measurement(
            problem=problem, solution=Solution("rocblas", "?"), origin="rocblas-bench", status="ok", time_us=time_us
        )
        return Outcome("measurement", (measured,))

    def close(self) -> Iterable[Record]:
        return ()


_MARKERS = (b"rocblas-Gflops",)
FORMAT = BlockFormat(
    name="rocblas-bench-output",
    about="what rocblas-bench prints on standard output: times of matrix products",
    markers=_MARKERS,
    begin=make_rank_readers(_MARKERS, _Reader),
    # No column names the solution, so picks cannot be compared by these rows.
    origins=(Origin("rocblas-bench", evidence=False),),
    order="a row belongs to the header before it",
    seen="what its documentation prints",
    example="N,T,4000,4000,4000,1,4000,0,4000,4000, 97190.6, 1317",
    gives="times",
    how="standard output of `rocblas-bench -f gemm …`: a header and a row with its time",
)
