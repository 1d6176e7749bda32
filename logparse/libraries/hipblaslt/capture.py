"""Settings that switch on hipBLASLt's log: bench lines (every launch) and profile records (exact counts at exit).

Source: ROCm/hipBLASLt library/src/amd_detail/rocblaslt/src/include/logging.h.
"""

from __future__ import annotations

from collections.abc import Iterator

from logparse.libraries.kinds.capture import Asked, Capture, Setting, names_of

_BENCH, _AT_EXIT = 32, 64 | 128


def _settings(asked: Asked) -> Iterator[Setting]:
    yield Setting("HIPBLASLT_LOG_LEVEL", None, "beats the mask, even when it is empty")
    yield Setting("HIPBLASLT_LOG_MASK", str(asked.mask), names_of(asked.mask))
    name = f"{asked.folder}/hipblaslt_%i.log"
    yield Setting("HIPBLASLT_LOG_FILE", name, "%i: a file per process (default: standard error)")
    if asked.markers:
        yield Setting("HIPBLASLT_ENABLE_MARKER", "1", "roctx ranges, for rocprofv3 --marker-trace")


def _doubts(asked: Asked) -> Iterator[str]:
    if asked.mask & _AT_EXIT and not asked.mask & _BENCH:
        yield (
            "profile records are written when a process ends by itself: those of a killed worker, or of one that "
            "leaves by os._exit, are lost; add 32 (bench), which is written line by line"
        )


CAPTURE = Capture(
    library="hipblaslt",
    platforms=("rocm",),
    settings=_settings,
    cancels={
        "HIPBLASLT_LOG_LEVEL": (
            lambda value: True,
            "beats HIPBLASLT_LOG_MASK, even when empty: no bench or profile lines",
        ),
        "HIPBLASLT_LOG_FILE": (
            lambda value: "%i" not in value,
            "without %i processes truncate each other's file",
        ),
    },
    doubts=_doubts,
)
