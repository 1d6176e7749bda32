"""Recognise files of other known tools that logparse does not read, and tell the user what to capture instead.

A file is recognised by its beginning: the columns of a table, the first member of an object, the magic number of a
database, or lines that no other tool writes.  It is still counted as a file that cannot be read.  The only difference
is that the user gets a remark about it.

Sources: ROCm/rocprofiler ``bin/tblextr.py`` (columns of rocprof v1), ROCm/rocprofiler-sdk ``source/lib/output/
generateJSON.cpp``, NVIDIA's cuDNN API log (``CUDNN_LOGINFO_DBG``, ``CUDNN_LOGLEVEL_DBG``), JuliaGPU/CUDA.jl
``lib/cudnn/src/cuDNN.jl`` (the same log behind ``Debug:``), pytorch/pytorch ``torch/_inductor/select_algorithm.py``,
``torch/_logging`` and ``torch/csrc/profiler/standalone/execution_trace_observer.cpp``, ROCm/rocBLAS
``library/src/include/logging.hpp``, microsoft/onnxruntime ``core/framework/tunable.h``, ggml-org/llama.cpp
``tests/test-backend-ops.cpp``.
"""

from __future__ import annotations

from collections.abc import Sequence

from logparse.libraries.kinds.format import Head
from logparse.libraries.kinds.patterns import regex
from logparse.libraries.moe import config as moe_config

_SQLITE = b"SQLite format 3\x00"
_TRACE = (
    "logparse reads the output of these commands: `rocprofv3 --kernel-trace --output-format csv -- JOB` (tables), "
    "`logparse capture --trace` (a trace with the sizes of each call)"
)
_KINDS: Sequence[tuple[str, bytes, str]] = (
    (
        "",
        rb'"?Name"?,"?Calls"?,"?TotalDurationNs"?,"?AverageNs"?,"?Percentage"?\r?(?:\n|\Z)',
        f"kernel statistics of rocprof (v1), which logparse cannot read; {_TRACE}",
    ),
    ("", rb'"?Index"?,"?KernelName"?,"?gpu-id"?,', f"kernels of rocprof (v1), which logparse cannot read; {_TRACE}"),
    ("", rb'\s*\{\s*"rocprofiler-sdk-tool"\s*:', f"rocprofv3's JSON, which logparse cannot read; {_TRACE}"),
    (
        "",
        rb'\s*\{\s*"schema"\s*:\s*"[^"\n]*"\s*,\s*"pid"\s*:',
        (
            "the file is an execution trace of PyTorch, which has no times of kernels; `logparse capture --trace` "
            "writes a trace with the sizes and times of each call"
        ),
    ),
    (r"\.pftrace$", rb"", f"a Perfetto trace, which logparse cannot read; {_TRACE}"),
    (
        r"\.u?kdb$",
        _SQLITE,
        (
            "the file has MIOpen's compiled kernels and no times. MIOpen's choices are in its files *.fdb.txt and "
            "*.ufdb.txt, and a job's calls are in MIOpen's log (`logparse capture`)"
        ),
    ),
    (
        r"\.(?:udb|db)$",
        rb"SQLite format 3\x00(?:(?!rocpd_)[\s\S])*perf_db",
        (
            "the file is MIOpen's perf-db in sqlite, from before ROCm 6.2, which has parameters of solvers and no "
            "times. logparse reads MIOpen's find-db (*.ufdb.txt) and MIOpen's log (`logparse capture`)"
        ),
    ),
    (
        r"\.sqlite$",
        _SQLITE,
        (
            "the file is a database such as an export of Nsight Systems, which logparse cannot read; `logparse "
            "capture --trace` writes a trace with the sizes of each call"
        ),
    ),
    (
        "",
        rb"SQLite format 3\x00(?![\s\S]*rocpd_)",
        "an sqlite database, but not rocpd of rocprofv3, the only one that logparse reads; for rocprof (v1) or "
        f"Nsight, {_TRACE}",
    ),
    (
        "",
        rb"(?:[^\n]*\n){0,20}(?:(?:[IWE]!|[^\n]{0,4}Debug:) CuDNN \(v|\[cudnn_frontend\])",
        (
            "the file is cuDNN's log, which has no times. A trace has the calls and times of convolutions "
            "(`logparse capture --trace`), and `logparse replay --backend cudnn` measures convolutions"
        ),
    ),
    (
        "",
        rb"(?:[^\n]*\n){0,20}(?:[^\n]*torch/_inductor/|[^\n]*AUTOTUNE \w+\()",
        (
            "the file is a log of TorchInductor, and no override file can choose TorchInductor's kernels. A trace "
            "of the job has its calls and their times (`logparse capture --trace`)"
        ),
    ),
    (
        "",
        rb"(?:[^\n]*\n){0,20}rocblas_[a-z0-9_]+,(?:0x[0-9a-f]+,)?(?:[^\n]*,)?atomics_(?:not_)?allowed",
        "rocBLAS's trace (ROCBLAS_LAYER=1), which logparse does not read. ROCBLAS_LAYER=2 logs the same calls as "
        "commands, and ROCBLAS_LAYER=4 logs each problem once, with its number of calls",
    ),
    (
        "",
        rb"(?:[^\n]*\n){0,20}[^\n]*onnxruntime[^\n]*(?:tunable\.h|TunableOp)",
        "a log of ONNX Runtime's TunableOp, which logparse does not read, because its ids name no kernel of a "
        "library. Let hipBLASLt and rocBLAS log the calls of ONNX Runtime instead (`logparse capture`)",
    ),
    (
        "",
        rb"(?:[^\n]*\n){0,20}\s*MUL_MAT(?:_ID)?\(type_a=",
        "times of llama.cpp's test-backend-ops, which logparse does not read, because they are times of ggml's "
        "operators, and not of calls of hipBLASLt and rocBLAS. Let these libraries log the calls of a job instead "
        "(`logparse capture -- llama-bench ...`)",
    ),
)
_TABLE = tuple((regex(name), regex(data), why) for name, data, why in _KINDS)


def advice(head: Head) -> str | None:
    """Help a user whose file logparse cannot read: say which tool wrote the file, and what to capture instead.

    Returns None if the tool is unknown.
    """
    for name, data, why in _TABLE:
        if name.search(head.name) and data.match(head.data):
            return why
    return moe_config.advice(head)
