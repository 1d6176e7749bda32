"""Tests of files from known tools that logparse cannot read.

A message names the tool and says what to record instead.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from logparse.libraries import FORMATS
from logparse.libraries.kinds.format import FileFormat, Head
from logparse.libraries.own.foreign_files import advice
from tests.conftest import SAMPLE_FILES
from tests.program import run

V1_STATISTICS = '"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n"k.kd",8437,21227225205,2515968,56.2\n'
V1_KERNELS = '"Index","KernelName","gpu-id","queue-id","queue-index","pid"\n0,"k.kd",0,0,0,3670615\n'
V3_JSON = '{\n  "rocprofiler-sdk-tool": [\n    {"metadata": {"pid": 7}}\n  ]\n}\n'
EXECUTION = '{\n  "schema": "1.1.1", "pid": 42, "time": "2026-05-05 12:00:00",\n  "nodes": [\n'
CUDNN_JULIA = "┌ Debug: CuDNN (v91900 56) function cudnnConvolutionForward() called:\n│ mode: type=int; val=1;\n"
CUDNN = "\nI! CuDNN (v91900 56) function cudnnConvolutionForward() called:\ni!     handle: type=cudnnHandle_t\n"
FRONTEND = "[cudnn_frontend]      CUDNN_BACKEND_TENSOR_DESCRIPTOR :\n         Id: 120\n"
INDUCTOR = "AUTOTUNE mm(4096x1024, 1024x512)\n  triton_mm_1 0.0123 ms 100.0%\n"
INDUCTOR_LOG = "V0523 12:00:00.1 42 torch/_inductor/select_algorithm.py:35] [0/0] choice\n"
ROCBLAS = "rocblas_create_handle,atomics_not_allowed\nrocblas_set_stream,0x560ee8f6d5c0,atomics_not_allowed\n"
ROCBLAS_CALL = "rocblas_sgemm,N,T,64,64,64,1,0x7f,64,0x7f,64,0,0x7f,64,atomics_not_allowed\n"
ORT = "2023-08-29 07:55:17.3 [V:onnxruntime:Default, tunable.h:255 FindFastestImpl] finding fastest for GemmTunableOp\n"
LLAMA = "  MUL_MAT(type_a=bf16,type_b=f32,m=4096,n=512,k=14336,bs=[1,1]):    72 runs - 14260.00 us/run\n"
MOE = '{"triton_version": "3.4.0", "1": {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32}}'
CASES = {
    "E=8,N=64,device_name=AMD_Instinct_MI325X.json": (MOE, "a fused-MoE table of vLLM or SGLang", "logparse lint"),
    "rocblas_trace.log": (ROCBLAS, "rocBLAS's trace", "ROCBLAS_LAYER=2"),
    "rocblas_call.log": (ROCBLAS_CALL, "rocBLAS's trace", "ROCBLAS_LAYER=2"),
    "ort.log": (ORT, "ONNX Runtime's TunableOp", "logparse capture"),
    "perf.txt": (LLAMA, "test-backend-ops", "logparse capture"),
    "standard.stats.csv": (V1_STATISTICS, "kernel statistics of rocprof (v1)", "rocprofv3 --kernel-trace"),
    "results.csv": (V1_KERNELS.replace('"', ""), "kernels of rocprof (v1)", "rocprofv3 --kernel-trace"),
    "4242_results.json": (V3_JSON, "rocprofv3's JSON", "--output-format csv"),
    "et_0.json": (EXECUTION, "an execution trace of PyTorch", "logparse capture --trace"),
    "4242_results.pftrace": ("\n\x0b", "a Perfetto trace", "--output-format csv"),
    "cudnn.log": (CUDNN, "cuDNN's log", "--backend cudnn"),
    "julia.log": (CUDNN_JULIA, "cuDNN's log", "--backend cudnn"),
    "frontend.log": (FRONTEND, "cuDNN's log", "capture --trace"),
    "inductor.log": (INDUCTOR, "TorchInductor", "capture --trace"),
    "inductor.err": (INDUCTOR_LOG, "TorchInductor", "capture --trace"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_to_capture_instead(name: str) -> None:
    text, what, instead = CASES[name]
    why = advice(Head(name, text.encode()))
    assert why is not None
    assert what in why
    assert instead in why


@pytest.mark.parametrize(
    ("name", "table", "what"),
    [
        ("gfx906_60.ukdb", "kern_db(id integer)", "MIOpen's compiled kernels"),
        ("gfx906_60_1.1.0.udb", "perf_db(id integer, solver text)", "MIOpen's perf-db in sqlite, from before ROCm 6.2"),
        ("report1.sqlite", "CUPTI_ACTIVITY_KIND_KERNEL(id integer)", "Nsight Systems"),
        ("results.db", "api(id integer)", "not rocpd of rocprofv3"),
    ],
)
def test_databases(name: str, table: str, what: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / name)) as db:
        db.execute(f"create table {table}")
        db.commit()
    why = advice(Head(name, (tmp_path / name).read_bytes()))
    assert why is not None
    assert what in why


def test_no_file_that_is_read_is_called_foreign() -> None:
    for path in SAMPLE_FILES:
        head = Head(path.name, path.read_bytes()[: 1 << 16])
        if path.suffix == ".db":
            continue  # a database's tables may stand beyond its head, and ingest asks only for foreign files
        if any(isinstance(x, FileFormat) and x.recognise(head) for x in FORMATS):
            assert advice(head) is None, path


def test_ingest_states_it_also_beside_files_that_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results.csv").write_text(V1_KERNELS, encoding="utf-8")
    (tmp_path / "job.log").write_text(
        "MIOpenDriver conv -n 1 -c 8 -H 8 -W 8 -k 8 -y 1 -x 1 -p 0 -q 0 -F 1 -t 1\n", encoding="utf-8"
    )
    done = run("ingest", "--store", "store", "results.csv", "job.log")
    assert "results.csv: kernels of rocprof (v1)" in done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize(("above", "indent", "line"), [("```\n", "", 2), ("Results:\n\n.. code::\n\n", "   ", 5)])
def test_ingest_tells_where_a_table_begins_in_a_text(
    above: str, indent: str, line: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "Validator,PT_VERSION,2.8.0\nGemmTunableOp_float_TN,tn_96_64_32,Gemm_Rocblas_11,0.25\n"
    (tmp_path / "notes.md").write_text(above + "".join(f"{indent}{row}\n" for row in rows.splitlines()) + "```\n")
    done = run("ingest", "--store", "store", "notes.md")
    assert f"notes.md: a table of the format tunableop-results begins at line {line}." in done.stderr
    (tmp_path / "notes.md").write_text("Some text.\n\n| m | n | k | solution | time_us |\n")
    assert "a table" not in run("ingest", "--store", "store", "notes.md").stderr
