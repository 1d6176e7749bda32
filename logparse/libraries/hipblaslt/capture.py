"""Settings that switch on hipBLASLt's log: bench lines (every launch) and profile records (exact counts at exit).

Source: ROCm/hipBLASLt library/src/amd_detail/rocblaslt/src/include/logging.h.
"""

from __future__ import annotations

from collections.abc import Iterator

from logparse.libraries.kinds.capture import Asked, Capture, Setting, names_of

_BENCH, _AT_EXIT = 32, 64 | 128


def _settings(asked: Asked) -> Iterator[Setting]:
    yield Setting("HIPBLASLT_LOG_LEVEL", None, "it would override the mask, even if empty")
    yield Setting("HIPBLASLT_LOG_MASK", str(asked.mask), names_of(asked.mask))
    name = f"{asked.folder}/hipblaslt_%i.log"
    yield Setting(
        "HIPBLASLT_LOG_FILE", name, "%i is the process number: one file per process (default: standard error)"
    )
    if asked.markers:
        yield Setting("HIPBLASLT_ENABLE_MARKER", "1", "marks calls as roctx ranges, for rocprofv3 --marker-trace")


def _doubts(asked: Asked) -> Iterator[str]:
    if asked.mask & _AT_EXIT and not asked.mask & _BENCH:
        yield (
            "profile records are written only when a process ends by itself; those of a worker that is killed or "
            "ends with os._exit are lost. Add 32 (bench) to --masks, which is written line by line"
        )


CAPTURE = Capture(
    library="hipblaslt",
    platforms=("rocm",),
    settings=_settings,
    cancels={
        "HIPBLASLT_LOG_LEVEL": (
            lambda value: True,
            "overrides HIPBLASLT_LOG_MASK, even if empty, so no bench or profile lines are written",
        ),
        "HIPBLASLT_LOG_FILE": (
            lambda value: "%i" not in value,
            "without %i, the processes truncate each other's file",
        ),
    },
    doubts=_doubts,
)
