"""What rocblas-bench prints on standard output: the build, the device, and a header and a row per run.

::

    rocBLAS version: 5.2.0.
    Device ID 0 : AMD Instinct MI210 gfx90a:sramecc+:xnack-
    transA,transB,M,N,K,alpha,lda,beta,ldb,ldc,ldd,batch_count,cold_iters,hot_iters,rocblas-Gflops,us
    N,T,512,1024,256,1,512,0,1024,512,512,1, 1, 3, 2975.41, 90.218
    function,a_type,b_type,c_type,d_type,compute_type,transA,transB,M,…,us        (with --log_function_name 1
    gemm_ex,f16_r,f16_r,f16_r,f16_r,f32_r,N,T,512,…, 90.218                        and --log_datatype 1)

Produced by ``rocblas-bench -f gemm_ex … -i 10``; columns are read by name.  **Types stand in a row only with
``--log_datatype 1``** (or ``-z 1``): without them a row has no type and links to no other problem.  No version prints
the solution: it is rocBLAS's own choice unless the command has ``--solution_index``, so it is ``rocblas:?`` here.
Times are microseconds, the mean over the hot iterations.  Functions that are no GEMM are messages.
Source: ROCm/rocBLAS clients/include/argument_model.hpp, clients/benchmarks/client.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from logparse.formats.format import BlockFormat, Line, Origin, Outcome
from logparse.formats.patterns import regex
from logparse.formats.ranks import ranked
from logparse.formats.rocblas.logs import problem_of
from logparse.model import Fact, Measurement, Message, Record, Reject, Solution, Status

ORIGIN = "rocblas-bench"
CATEGORY = "rocblas_bench_output"

_VERSION = "rocBLAS version: "
_GFLOPS = "rocblas-Gflops"
_HEADER = regex(r"[\w,/-]+,rocblas-Gflops,(?:rocblas-GB/s,)?us(?:,[\w-]+)*\Z")
_DEVICE = regex(r"Device ID (\d+) : (.*\S)\s+(gfx\S+)\Z")
_PREAMBLE = regex(
    r"(?:rocBLAS|Tensile)-commit-hash: |hipBLASLt: |Query device success: |with [\d.]+ GB memory|maxGridDimX \d"
    r"|-{10,}\Z|rocBLAS info: "
)
_ROW = regex(r"(?:\w+,){0,6}[NTCULR],[\w.]")
_PATIENCE = 20
"""Lines of others that may fall behind the version, and between a header and its row."""


class _Reader:
    """The build and device that were printed, and the header whose row comes next."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._patience = 0
        self._stated: set[Fact] = set()

    @property
    def awake(self) -> bool:
        return self._patience > 0

    def take(self, line: Line) -> Outcome | None:
        text = line.text.strip()
        if text.startswith(_VERSION):
            self._patience = _PATIENCE
            return Outcome("fact", self._facts(rocblas_version=text[len(_VERSION) :].rstrip(".")))
        if _HEADER.match(text):
            self._names, self._patience = tuple(text.split(",")), _PATIENCE
            return Outcome("measurement")
        if self._patience <= 0:
            return None
        return self._preamble(text) or self._row(text)

    def close(self) -> Iterable[Record]:
        if self._names:
            yield Message(category="partial", text="rocblas-bench: the output ends between a header and its row")
        self._names = ()

    def _preamble(self, text: str) -> Outcome | None:
        device = _DEVICE.match(text)
        if device is not None:
            return Outcome("fact", self._facts(device=device[2], arch=device[3]) if device[1] == "0" else ())
        return Outcome("fact") if _PREAMBLE.match(text) else None

    def _row(self, text: str) -> Outcome | None:
        if not (self._names and _ROW.match(text)):
            self._patience -= bool(text)
            if self._patience <= 0:
                self._names = ()
            return None
        names, self._names, self._patience = self._names, (), 0
        cells = [cell.strip() for cell in text.split(",")]
        if len(cells) != len(names):
            return Outcome("reject", [Reject(f"a row of {len(cells)} values under {len(names)} names")])
        return _measured(dict(zip(names, cells, strict=True)), text)

    def _facts(self, **values: str) -> list[Record]:
        """Facts that the stream has not stated yet: a script runs the tool hundreds of times."""
        new = [fact for fact in (Fact(name, value) for name, value in values.items()) if fact not in self._stated]
        self._stated.update(new)
        return [*new]


def _measured(row: Mapping[str, str], text: str) -> Outcome:
    strided, ex = "stride_a" in row, "ldd" in row
    batched = not strided and row.get("batch_count", "1") != "1"
    batching = "_strided_batched" if strided else "_batched" if batched else ""
    function = row.get("function") or f"gemm{batching}{'_ex' if ex else ''}"
    try:
        problem = problem_of({**row, "rocblas_function": function})
        time_us = float(row["us"])
    except ValueError as error:
        return Outcome("reject", [Reject(f"rocblas-bench row: {error}")])
    if problem is None or "K" not in row:
        return Outcome("message", [Message(category=CATEGORY, function=function, text=text)])
    status: Status = "ok" if math.isfinite(time_us) and time_us > 0 else "no_time"
    measured = Measurement(
        problem=problem,
        solution=Solution("rocblas", "?"),
        origin=ORIGIN,
        status=status,
        time_us=time_us if status == "ok" else None,
    )
    return Outcome("measurement", [measured])


_MARKERS = (_VERSION.encode(), _GFLOPS.encode())

FORMAT = BlockFormat(
    name="rocblas-bench-output",
    about="standard output of rocblas-bench: build, device, and a row per run",
    markers=_MARKERS,
    begin=ranked(_MARKERS, _Reader),
    origins=(Origin(ORIGIN, evidence=True),),
)
