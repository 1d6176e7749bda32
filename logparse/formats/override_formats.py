"""The list of override formats: files by which a library takes solutions from outside."""

from __future__ import annotations

from logparse.formats.aiter import rules as aiter
from logparse.formats.format import Writer
from logparse.formats.hipblaslt import tuning_rules as hipblaslt_tuning
from logparse.formats.miopen import find_db_rules as miopen_find_db
from logparse.formats.miopen import perf_db_rules as miopen_perf_db
from logparse.formats.moe import rules as moe_config
from logparse.formats.override_format import OverrideFormat
from logparse.formats.rocblas import rules as rocblas
from logparse.formats.tunableop import results_rules as tunableop
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
