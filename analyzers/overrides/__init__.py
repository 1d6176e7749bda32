"""Override files: how each library reads its own, and everything that is written over that."""

from __future__ import annotations

from analyzers.overrides import aiter, hipblaslt_tuning, miopen_find_db, miopen_perf_db, moe_config, rocblas, tunableop
from analyzers.overrides.override_format import OverrideFormat
from logparse.formats.format import Writer
from logparse.formats.tunableop import untuned

OVERRIDE_FORMATS: tuple[OverrideFormat, ...] = (
    hipblaslt_tuning.OVERRIDE_FORMAT,
    miopen_find_db.OVERRIDE_FORMAT,
    miopen_perf_db.OVERRIDE_FORMAT,
    tunableop.OVERRIDE_FORMAT,
    aiter.OVERRIDE_FORMAT,
    aiter.KERNEL_TABLES,
    moe_config.OVERRIDE_FORMAT,
    rocblas.OVERRIDE_FORMAT,
)
"""Every override format whose library's reader is known; rocBLAS last: it is converted from a tool's whole output."""

WRITERS: tuple[Writer, ...] = (*(x.writer for x in OVERRIDE_FORMATS if x.writer is not None), untuned.WRITER)
"""What ``recommend`` writes: override files, and the list that TunableOp tunes from."""
