"""The list of formats."""

from __future__ import annotations

from logparse.libraries.aiter import log as aiter_log
from logparse.libraries.aiter import tables as aiter
from logparse.libraries.flashinfer import autotuner
from logparse.libraries.hipblaslt import bench as hipblaslt_bench
from logparse.libraries.hipblaslt import bench_output as hipblaslt_bench_output
from logparse.libraries.hipblaslt import log as hipblaslt_log
from logparse.libraries.hipblaslt import profile as hipblaslt_profile
from logparse.libraries.hipblaslt import tuning_cache as hipblaslt_tuning_cache
from logparse.libraries.hipblaslt import tuning_file as hipblaslt_tuning_file
from logparse.libraries.kinds.format import Format
from logparse.libraries.miopen import driver as miopen_driver
from logparse.libraries.miopen import driver_output as miopen_driver_output
from logparse.libraries.miopen import find_db as miopen_find_db
from logparse.libraries.miopen import log as miopen_log
from logparse.libraries.miopen import perf_db as miopen_perf_db
from logparse.libraries.miopen import performance_log as miopen_performance_log
from logparse.libraries.moe import config as moe_config
from logparse.libraries.own import applied_marks, bundle, job_units, library_errors, machine_facts
from logparse.libraries.rocblas import bench_output as rocblas_bench_output
from logparse.libraries.rocblas import logs as rocblas
from logparse.libraries.rocprof import rocpd as traces_rocpd
from logparse.libraries.rocprof import rocprof as traces_rocprof
from logparse.libraries.tensile import launches
from logparse.libraries.torch_profiler import profiler as traces_torch_profiler
from logparse.libraries.transformer_engine import cache as transformer_engine
from logparse.libraries.tunableop import results as tunableop_results
from logparse.libraries.tunableop import untuned as tunableop_untuned
from logparse.libraries.tunableop import verbose as tunableop_verbose
from logparse.libraries.user_table import table as plain_table

FORMATS: tuple[Format, ...] = (
    hipblaslt_log.FORMAT,
    hipblaslt_bench.FORMAT,
    hipblaslt_profile.FORMAT,
    hipblaslt_bench_output.FORMAT,
    hipblaslt_tuning_file.FORMAT,
    hipblaslt_tuning_cache.LOG,
    transformer_engine.FORMAT,
    transformer_engine.LOG,
    miopen_driver.FORMAT,
    miopen_driver_output.FORMAT,
    miopen_log.FORMAT,
    miopen_performance_log.FORMAT,
    miopen_find_db.FORMAT,
    miopen_perf_db.FORMAT,
    tunableop_results.FORMAT,
    tunableop_untuned.FORMAT,
    tunableop_verbose.FORMAT,
    rocblas.BENCH,
    rocblas.PROFILE,
    rocblas.TUNE,
    rocblas_bench_output.FORMAT,
    launches.FORMAT,
    library_errors.FORMAT,
    aiter.FORMAT,
    aiter_log.FORMAT,
    plain_table.FORMAT,
    traces_torch_profiler.FORMAT,
    traces_rocprof.FORMAT,
    traces_rocpd.FORMAT,
    moe_config.LOG,
    autotuner.FORMAT,
    machine_facts.FORMAT,
    bundle.FORMAT,
    job_units.FORMAT,
    applied_marks.FORMAT,
)
"""Every format that can be read.  Of whole-file formats the first that recognises a file reads it."""
