"""The list of formats."""

from __future__ import annotations

from logparse.formats import (
    applied_marks,
    bundle,
    flashinfer,
    job_units,
    library_errors,
    machine_facts,
    plain_table,
    tensile_launches,
)
from logparse.formats.aiter import log as aiter_log
from logparse.formats.aiter import tables as aiter
from logparse.formats.format import Format
from logparse.formats.hipblaslt import bench as hipblaslt_bench
from logparse.formats.hipblaslt import bench_output as hipblaslt_bench_output
from logparse.formats.hipblaslt import log as hipblaslt_log
from logparse.formats.hipblaslt import profile as hipblaslt_profile
from logparse.formats.hipblaslt import tuning_file as hipblaslt_tuning_file
from logparse.formats.miopen import driver as miopen_driver
from logparse.formats.miopen import driver_output as miopen_driver_output
from logparse.formats.miopen import find_db as miopen_find_db
from logparse.formats.miopen import log as miopen_log
from logparse.formats.miopen import perf_db as miopen_perf_db
from logparse.formats.moe import config as moe_config
from logparse.formats.rocblas import logs as rocblas
from logparse.formats.traces import rocpd as traces_rocpd
from logparse.formats.traces import rocprof as traces_rocprof
from logparse.formats.traces.torch import profiler as traces_torch_profiler
from logparse.formats.transformer_engine import cache as transformer_engine
from logparse.formats.tunableop import results as tunableop_results
from logparse.formats.tunableop import untuned as tunableop_untuned
from logparse.formats.tunableop import verbose as tunableop_verbose

FORMATS: tuple[Format, ...] = (
    hipblaslt_log.FORMAT,
    hipblaslt_bench.FORMAT,
    hipblaslt_profile.FORMAT,
    hipblaslt_bench_output.FORMAT,
    hipblaslt_tuning_file.FORMAT,
    transformer_engine.FORMAT,
    transformer_engine.LOG,
    miopen_driver.FORMAT,
    miopen_driver_output.FORMAT,
    miopen_log.FORMAT,
    miopen_find_db.FORMAT,
    miopen_perf_db.FORMAT,
    tunableop_results.FORMAT,
    tunableop_untuned.FORMAT,
    tunableop_verbose.FORMAT,
    rocblas.BENCH,
    rocblas.PROFILE,
    rocblas.TUNE,
    tensile_launches.FORMAT,
    library_errors.FORMAT,
    aiter.FORMAT,
    aiter_log.FORMAT,
    plain_table.FORMAT,
    traces_torch_profiler.FORMAT,
    traces_rocprof.FORMAT,
    traces_rocpd.FORMAT,
    moe_config.LOG,
    flashinfer.FORMAT,
    machine_facts.FORMAT,
    bundle.FORMAT,
    job_units.FORMAT,
    applied_marks.FORMAT,
)
"""Every format that can be read.  Of whole-file formats the first that recognises a file reads it."""
