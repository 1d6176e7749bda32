"""Settings that switch on cuBLASLt's log: trace lines (also of the classic calls of cuBLAS), hints and errors.

On an H200 a Trace line takes at most 0.01 ms and 0.6 KB (``benchmarks/results/nvidia-logs-…``).  Source: the cuBLAS
documentation (cuBLASLt Logging).
"""

from __future__ import annotations

from collections.abc import Iterator

from logparse.libraries.kinds.capture import Asked, Capture, Setting, names_of

_BITS, _LAUNCHES = 31, 32 | 64 | 128
_CALLS = 1 | 2 | 4
"""Bits of ``CUBLASLT_LOG_MASK`` with which cuBLASLt logs every call.

They are also set if the user asks for the log categories bench or profile, which only hipBLASLt has.
"""


def _settings(asked: Asked) -> Iterator[Setting]:
    # cuBLAS's own log stays off: it takes 0.16 ms and 5 KB a call (on the same H200), and adds no information.
    bits = asked.mask & _BITS | (_CALLS if asked.mask & _LAUNCHES else 0)
    yield Setting(
        "CUBLASLT_LOG_LEVEL",
        None,
        "CUBLASLT_LOG_MASK alone must choose the lines that cuBLASLt writes, and a log level could change this choice",
    )
    yield Setting(
        "CUBLASLT_LOG_MASK",
        str(bits),
        f"{names_of(bits)} (the log categories bench and profile do not exist in cuBLASLt)",
    )
    name = f"{asked.folder}/cublaslt_%i.log"
    yield Setting(
        "CUBLASLT_LOG_FILE",
        name,
        "cuBLASLt writes one file per process, and replaces %i by the process number (default: standard output)",
    )


CAPTURE = Capture(
    library="cublaslt",
    platforms=("cuda",),
    settings=_settings,
    cancels={
        "CUBLASLT_LOG_FILE": (
            lambda value: "%i" not in value,
            "without %i in this name, the processes overwrite each other's log file",
        )
    },
)
