"""rocBLAS's trace log: every function that was called, with its arguments in the order of the C interface.

::

    rocblas_create_handle,atomics_not_allowed
    rocblas_gemm_ex,N,T,512,1024,256,1,0x7fba194f6000,f16_r,512,0x7fba19476000,f16_r,1024,0,0x7fba17500000,f16_r,512,
        0x7fba17500000,f16_r,512,f32_r,0,0,none,atomics_not_allowed                                       (one line)
    rocblas_sgemm_strided_batched,N,N,64,64,32,1,0x7f…,64,2048,0x7f…,32,2048,0,0x7f…,64,4096,12,atomics_not_allowed
    rocblas_internal,rocblas_gemm_tensile_backend,T,T,96,64,128,1,0x7f…,128,0x7f…,64,0,0x7f…,96,0x7f…,96,atomics_allowed

Produced by ``ROCBLAS_LAYER=1`` on standard error or in ``ROCBLAS_LOG_TRACE_PATH``; one line per call. Names of types
stand only in the ``_ex`` functions, the others have one by their letter. The mode of atomics at the end came with
rocBLAS 4. Functions that are no GEMM are messages. So are the lines of ``ROCBLAS_LAYER=8`` (ROCm 7), which name what
runs a GEMM whose call another line holds: Tensile, hipBLASLt or rocBLAS's own source kernels. A trace holds the
problems of a bench log (``ROCBLAS_LAYER=2``) and addresses, so that most lines differ: the bench log is the faster one
to read.
Source: ROCm/rocBLAS library/src/include/logging.hpp (``log_trace``), library/src/blas3/rocblas_gemm*_imp.hpp,
library/src/blas_ex/rocblas_gemm*_ex*.
"""

from __future__ import annotations

from logparse.formats.format import FOREIGN, LineFormat, Outcome
from logparse.formats.patterns import regex
from logparse.formats.rocblas.logs import FUNCTION, call_of
from logparse.model import Message, Reject

CATEGORY = "rocblas_trace"

_SIZES = ("transA", "transB", "M", "N", "K", "alpha")
_ARGUMENTS = {
    "": (*_SIZES, "a", "lda", "b", "ldb", "beta", "c", "ldc"),
    "_batched": (*_SIZES, "a", "lda", "b", "ldb", "beta", "c", "ldc", "batch_count"),
    "_strided_batched": (
        *(*_SIZES, "a", "lda", "stride_a", "b", "ldb", "stride_b", "beta"),
        *("c", "ldc", "stride_c", "batch_count"),
    ),
}
"""Arguments of the functions that have their type by a letter, by the kind of batching."""
_LAST = ("compute_type", "algo", "solution_index", "flags")


def _of_ex(batching: str) -> tuple[str, ...]:
    """Arguments of an ``_ex`` function: each matrix with type, leading dimension and, if strided, its stride."""
    strided = batching == "_strided_batched"
    a, b, c, d = ((x, f"{x}_type", f"ld{x}", *([f"stride_{x}"] if strided else [])) for x in "abcd")
    return (*_SIZES, *a, *b, "beta", *c, *d, *(["batch_count"] if batching else []), *_LAST)


_ARGUMENTS_OF_EX = {batching: _of_ex(batching) for batching in _ARGUMENTS}
_INTERNAL = "rocblas_internal"
_MODE = regex(r",atomics_(?:not_)?allowed\Z")
_CELLS = regex(r",(?![^(]*\))")
"""Commas outside the parentheses of a complex number."""
_LINE = regex(r"rocblas_\w+(?:,[^\s,]*)*\Z")
_ADDRESS = regex(r"\b0x[0-9a-fA-F]{5,16}\b")


def read(text: str) -> Outcome:
    """One line: a call of a GEMM, or a message for any other function."""
    text = text.strip()
    body = _MODE.sub("", text)
    name, *cells = _CELLS.split(body)
    gemm = FUNCTION.match(name)
    if name == _INTERNAL and cells and _LINE.match(text):
        return Outcome("message", [Message(category=CATEGORY, function=cells[0], text=_ADDRESS.sub("0x@", text))])
    if gemm is None:
        if body == text or not _LINE.match(text):
            return FOREIGN  # names in prose
        return Outcome("message", [Message(category=CATEGORY, function=name, text=_ADDRESS.sub("0x@", text))])
    arguments = (_ARGUMENTS_OF_EX if gemm[3] else _ARGUMENTS)[gemm[2] or ""]
    if len(cells) != len(arguments):
        if cells[:1] not in (["N"], ["T"], ["C"]):
            return FOREIGN
        return Outcome("reject", [Reject(f"{name} has {len(arguments)} arguments, not {len(cells)}")])
    given = dict(zip(arguments, cells, strict=True))
    if gemm[3] == "_ex3":
        given["compute_type"] = _COMPUTE_TYPES.get(given["compute_type"], "")
    return call_of({**given, "rocblas_function": name}, CATEGORY, text, 1)


_COMPUTE_TYPES = {"f32": "f32_r"}
"""Of the functions for 8-bit floats; the others name the types to which their operands are cast."""

FORMAT = LineFormat(
    name="rocblas-trace",
    about="rocBLAS trace log (ROCBLAS_LAYER=1)",
    markers=(b"rocblas_",),
    # A colon may stand before a name only as the end of a launcher's or of grep's mark, not in C++ as in ``std::``.
    start=rb"(?:(?<![\w./:-])|(?<=[\]>\d]:)|(?<=\.(?:log|txt|out|err):))(?<!rocblas_internal,)rocblas_[a-z]\w*(?=,\S)",
    read=read,
)
