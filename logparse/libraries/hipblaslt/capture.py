"""Settings that switch on hipBLASLt's log: a line for every launch, and exact counts of calls at exit.

Source: ROCm/hipBLASLt library/src/amd_detail/rocblaslt/src/include/logging.h.
"""

from __future__ import annotations

from collections.abc import Iterator

from logparse.libraries.kinds.capture import Asked, Capture, Setting, names_of

_BENCH, _AT_EXIT = 32, 64 | 128


def _settings(asked: Asked) -> Iterator[Setting]:
    yield Setting(
        "HIPBLASLT_LOG_LEVEL", None, ("HIPBLASLT_LOG_LEVEL would override HIPBLASLT_LOG_MASK, even if it is empty")
    )
    yield Setting("HIPBLASLT_LOG_MASK", str(asked.mask), names_of(asked.mask))
    name = f"{asked.folder}/hipblaslt_%i.log"
    yield Setting(
        "HIPBLASLT_LOG_FILE",
        name,
        "hipBLASLt writes one file per process, and replaces %i by the process number (default: standard error)",
    )
    if asked.markers:
        yield Setting(
            "HIPBLASLT_ENABLE_MARKER",
            "1",
            "hipBLASLt marks its calls as roctx ranges, which rocprofv3 --marker-trace records",
        )


def _doubts(asked: Asked) -> Iterator[str]:
    if asked.mask & _AT_EXIT and not asked.mask & _BENCH:
        yield (
            "hipBLASLt writes profile records only when a process ends by itself; the profile records of a "
            "worker that is killed or ends with os._exit are lost. Add 32 (bench) to --masks, because hipBLASLt "
            "writes bench lines at once"
        )


CAPTURE = Capture(
    library="hipblaslt",
    platforms=("rocm",),
    settings=_settings,
    cancels={
        "HIPBLASLT_LOG_LEVEL": (
            lambda value: True,
            (
                "HIPBLASLT_LOG_LEVEL overrides HIPBLASLT_LOG_MASK, even if it is empty, so hipBLASLt writes no "
                "bench or profile lines"
            ),
        ),
        "HIPBLASLT_LOG_FILE": (
            lambda value: "%i" not in value,
            "without %i in this name, the processes truncate each other's log file",
        ),
    },
    doubts=_doubts,
)
