"""Write the sample traces in ``sample_logs/traces/``. Run it from any folder; the files are always the same.

The events follow the profilers' documentation. Nothing of logparse is imported, so that a mistake in logparse's readers
cannot be in the samples, too.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "traces"
PID = 4242
TENSORS = ("Concrete Inputs", "Input type", "Input Strides", "Input Dims")
GEMM = "Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64"


def operator(id: int, start: float, us: float, name: str, **inputs: Any) -> dict[str, Any]:
    """Return the trace event of a PyTorch operator (``cpu_op``).

    ``inputs`` are its inputs in the form that ``tensors`` returns.
    """
    args: dict[str, Any] = {"External id": id, "Record function id": 0, **inputs, "Ev Idx": id}
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": PID, "tid": PID, "ts": start, "dur": us, "args": args}


def tensors(types: list[str], dims: list[Any], strides: list[Any], values: list[str] | None = None) -> dict[str, Any]:
    """Return the inputs of an operator in the form in which the profiler records them with ``record_shapes=True``."""
    return dict(zip(TENSORS, (values or [""] * len(types), types, strides, dims), strict=True))


def launched(id: int, start: float, us: float, name: str, correlation: int, at: float = 0) -> list[dict[str, Any]]:
    """Return the trace events of a kernel: its launch, the kernel itself, and both ends of the arrow between them."""
    at = at or start - 20
    common = {"pid": PID, "tid": PID}
    runtime = {"External id": id, "cbid": 211, "correlation": correlation}
    args = {"External id": id, "device": 0, "stream": 3, "correlation": correlation, "grid": [304, 1, 1]}
    arrow = {"id": correlation, "cat": "ac2g", "name": "ac2g"}
    return [
        {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "hipExtModuleLaunchKernel",
            **common,
            "ts": at,
            "dur": 5,
            "args": runtime,
        },
        {"ph": "s", **arrow, **common, "ts": at},
        {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 3, "ts": start, "dur": us, "args": args},
        {"ph": "f", **arrow, "pid": 0, "tid": 3, "ts": start, "bp": "e"},
    ]


BF16, HALF = "c10::BFloat16", "c10::Half"
LIST, SCALAR = "ScalarList", "Scalar"


def steps(category: str) -> list[dict[str, Any]]:
    """Return the trace events by which ``profiler.step()`` marks two steps, on the host and on the GPU."""
    out = []
    for number, start, us in ((3, 95.0, 600.0), (4, 695.5, 450.25)):
        step = {"ph": "X", "name": f"ProfilerStep#{number}"}
        args = {"External id": 100 + number, "Record function id": 0, "Ev Idx": 100 + number}
        out += [
            {**step, "cat": category, "pid": PID, "tid": PID, "ts": start, "dur": us, "args": args},
            {**step, "cat": "gpu_user_annotation", "pid": 0, "tid": 3, "ts": start + 40, "dur": us - 70,
             "args": {"External id": 100 + number}},
        ]  # fmt: skip
    return out


def job(category: str = "user_annotation") -> list[dict[str, Any]]:
    """Return the trace events of a small job of two steps.

    ``category`` is the category of the events that mark the steps.

    The job has a linear layer under autocast with its gradients, attention scores, two convolutions with their backward
    pass, and a matrix product whose bias and GELU are separate operators.
    """
    bias = [[3072], [2048, 768], [768, 3072], [], []]
    turned = [[1], [768, 1], [1, 768], [], []]
    image, weight = [32, 64, 56, 56], [128, 64, 3, 3]
    out = [32, 128, 28, 28]
    strides = {4: [200704, 3136, 56, 1], 3: [576, 9, 3, 1], 2: [100352, 784, 28, 1]}
    forward = ["", "", "", "[1, 1]", "[2, 2]", "[1, 1]", "1", "False", "False"]
    backward = ["", "", "", "[0]", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, False]"]
    back = tensors(
        [HALF] * 3 + [LIST] * 4 + [SCALAR, LIST, SCALAR, LIST],
        [out, image, weight, *[[]] * 8],
        [strides[2], strides[4], strides[3], *[[]] * 8],
        backward,
    )
    mm = tensors([BF16, BF16], [[2048, 3072], [3072, 768]], [[3072, 1], [768, 1]])
    wide = tensors([BF16, BF16], [[3072, 2048], [2048, 768]], [[1, 4096], [768, 1]])
    bmm = tensors([BF16, BF16], [[48, 512, 64], [48, 64, 512]], [[32768, 64, 1], [32768, 1, 64]])
    conv = tensors(
        [HALF, HALF, "", LIST, LIST, LIST, SCALAR, SCALAR, SCALAR],
        [image, weight, *[[]] * 7],
        [strides[4], strides[3], *[[]] * 7],
        forward,
    )
    up = tensors([BF16, BF16], [[2048, 768], [768, 3072]], [[768, 1], [1, 768]])
    added = tensors([BF16, BF16, SCALAR], [[2048, 3072], [3072], []], [[3072, 1], [1], []], ["", "", "1"])
    ones = ["", "", "", "1", "1"]
    types = ["float", "float", "float", SCALAR, SCALAR]
    return [
        operator(1, 100, 90, "aten::addmm", **tensors(types, bias, turned, ones)),
        operator(2, 105, 20, "aten::copy_", **tensors([BF16, "float"], [[3072], [3072]], [[1], [1]])),
        *launched(2, 140, 2.5, "void at::native::cast(std::array<char*, 2ul>, {lambda(float)#1}, {lambda()#2})", 11),
        operator(3, 130, 55, "aten::addmm", **tensors([BF16, BF16, BF16, SCALAR, SCALAR], bias, turned, ones)),
        *launched(3, 170, 41.25, GEMM + "_GELU", 12),
        operator(4, 200, 40, "aten::mm", **mm),
        *launched(4, 230, 38.5, GEMM, 13),
        operator(5, 250, 40, "aten::mm", **mm),
        *launched(5, 280, 39.5, GEMM, 14),
        operator(6, 300, 40, "aten::mm", **wide),
        *launched(6, 330, 47.0, "Cijk_Ailk_Bjlk_BBS_BH_MT128x128x32", 15),
        operator(7, 350, 40, "aten::bmm", **bmm),
        *launched(7, 380, 9.25, "Cijk_Alik_Bljk_BBS_BH_MT64x64x64", 16),
        operator(8, 400, 40, "aten::miopen_convolution", **conv),
        *launched(8, 430, 61.0, "igemm_fwd_gtcx3_nhwc_fp16_bx0_ex1_bt256x128x32", 17),
        operator(9, 500, 80, "aten::convolution_backward", **back),
        *launched(9, 530, 70.0, "igemm_bwd_gtcx3_nhwc_fp16_bx0_ex1_bt256x128x32", 18),
        *launched(9, 610, 3.0, "SubTensorOpWithScalar1d", 19, 540),
        *launched(9, 620, 90.0, "igemm_wrw_gtcx3_nhwc_fp16_bx0_ex1_bt256x128x32", 20, 550),
        operator(10, 700, 80, "aten::convolution_backward", **back),
        *launched(10, 730, 71.0, "Cijk_Alik_Bljk_HHS_BH_MT128x128x32", 21),
        *launched(10, 810, 6.0, "Cijk_Ailk_Bljk_HHS_BH_MT32x32x32", 22, 740),
        *launched(10, 820, 91.0, "Cijk_Ailk_Bjlk_HHS_BH_MT256x128x32", 23, 750),
        operator(11, 900, 40, "aten::mm"),
        *launched(11, 930, 38.5, GEMM, 24),
        operator(12, 950, 10, "aten::relu", **tensors([BF16], [[2048, 3072]], [[3072, 1]])),
        *launched(12, 970, 4.0, "void at::native::relu_kernel<\"half\">()", 25),
        {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "pid": 0, "tid": 3, "ts": 990, "dur": 1.5,
         "args": {"External id": 12, "device": 0, "stream": 3, "correlation": 26, "bytes": 4}},
        operator(13, 1000, 40, "aten::mm", **up),
        *launched(13, 1030, 40.0, GEMM, 27),
        operator(14, 1050, 10, "aten::add_", **added),
        *launched(14, 1075, 5.5, "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<BFloat16>>()", 28),
        operator(15, 1100, 10, "aten::gelu", **tensors([BF16, ""], [[2048, 3072], []], [[3072, 1], []], ["", "none"])),
        *launched(15, 1120, 6.25, "void at::native::vectorized_elementwise_kernel<4, GeluCUDAKernelImpl>()", 29),
        *steps(category),
        {"name": "process_name", "ph": "M", "ts": 90, "pid": PID, "tid": 0, "args": {"name": "python3"}},
    ]  # fmt: skip


HEADER = {
    "schemaVersion": 1,
    "deviceProperties": [
        {"id": 0, "name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4, "warpSize": 64, "numSms": 304}
    ],
    "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
    "hip_runtime_version": 70152802,
    "record_shapes": 1,
}


AUTOGRAD = 4300
"""Number of the thread in which autograd runs the backward pass."""


def function(id: int, parent: int, start: float, us: float, name: str) -> dict[str, Any]:
    """Return the trace event of a call of a Python function, as ``with_stack=True`` records it."""
    args: dict[str, Any] = {"Python parent id": parent, "Python id": id, "Ev Idx": 200 + id}
    at = {"pid": PID, "tid": PID, "ts": start, "dur": us}
    return {"ph": "X", "cat": "python_function", "name": name, **at, "args": args}


def stacks() -> list[dict[str, Any]]:
    """Return the trace events of a step of a program with two functions that call the same matrix product.

    The backward pass runs in a thread of its own, without functions. Its operators have the sequence number of the
    forward operator.
    """
    mm = tensors([BF16, BF16], [[2048, 3072], [3072, 768]], [[3072, 1], [768, 1]])
    grad = tensors([BF16, BF16], [[2048, 768], [768, 3072]], [[768, 1], [1, 768]])
    engine = "autograd::engine::evaluate_function: MmBackward0"
    events = [
        operator(1, 120, 40, "aten::mm", **{"Sequence number": 7, "Fwd thread id": 0}, **mm),
        *launched(1, 140, 30.0, GEMM, 11, 130),
        operator(2, 220, 40, "aten::mm", **{"Sequence number": 8, "Fwd thread id": 0}, **mm),
        *launched(2, 240, 50.0, GEMM, 12, 230),
        operator(3, 400, 60, engine, **{"Sequence number": 8, "Fwd thread id": 1}),
        operator(4, 405, 50, "MmBackward0", **{"Sequence number": 8, "Fwd thread id": 1}),
        operator(5, 410, 40, "aten::mm", **grad),
        *launched(5, 430, 35.0, GEMM + "_B", 13, 420),
        function(1, 0, 100, 900, "train.py(31): step"),
        function(2, 1, 105, 200, "nn.Module: Block_0"),
        function(3, 2, 106, 190, "torch/nn/modules/module.py(1787): _call_impl"),
        function(4, 3, 110, 180, "model.py(12): forward"),
        function(5, 4, 115, 50, "torch/nn/functional.py(90): product"),
        function(6, 5, 118, 45, "<built-in method mm of type object at 0x7f1c33e93460>"),
        function(7, 4, 200, 80, "model.py(20): attention"),
        function(8, 7, 210, 60, "contextlib.py(78): inner"),
        function(9, 1, 350, 600, "torch/_tensor.py(566): backward"),
    ]
    backward = {event["args"]["External id"]: AUTOGRAD for event in events if event.get("ts") in (400, 405, 410)}
    return [
        {**event, "tid": AUTOGRAD}
        if event.get("cat") in ("cpu_op", "cuda_runtime") and event["args"]["External id"] in backward
        else event
        for event in events
    ]


def kineto(events: list[dict[str, Any]], **more: Any) -> str:
    """Return a trace as text in the layout in which the profiler (Kineto) writes it.

    An event takes several lines, with its arguments on one line. ``more`` are further entries of the header.
    """
    texts = []
    for event in events:
        head = {key: value for key, value in event.items() if key not in ("ts", "dur", "args")}
        lines = ["    " + json.dumps(head)[1:-1]]
        lines[0] += f',\n    "ts": {event["ts"]:.3f}'
        if "dur" in event:
            lines[0] += f', "dur": {event["dur"]:.3f}'
        if "args" in event:
            lines[0] += ',\n    "args": {\n      ' + json.dumps(event["args"])[1:-1] + "\n    }"
        texts.append("  {\n" + lines[0] + "\n  }")
    header = json.dumps({**HEADER, **more}, indent=2)[:-2]
    return header + ',\n  "traceEvents": [\n' + ",\n".join(texts) + '\n  ],\n  "traceName": "job.trace.json"\n}'


def without_ids(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events as an older ROCm build would record them, a second later.

    Kernels and launches then lack the "External id", which links them to their operator. Without the second, the trace
    would be a copy of the other one.
    """
    gpu = ("kernel", "cuda_runtime", "gpu_memset")
    later = [{**event, "ts": event["ts"] + 1_000_000} if "ts" in event else event for event in events]
    return [
        {**event, "args": {k: v for k, v in event["args"].items() if k != "External id"}}
        if event.get("cat") in gpu
        else event
        for event in later
    ]


ROCPROF_TRACE = """\
"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id",\
"Start_Timestamp","End_Timestamp","LDS_Block_Size"
"KERNEL_DISPATCH","Agent 4",1,1,4242,1,10,"Cijk_Ailk_Bljk_BBS_BH_MT256x256x64",1,1000000,1038500,0
"KERNEL_DISPATCH","Agent 4",1,1,4242,2,10,"Cijk_Ailk_Bljk_BBS_BH_MT256x256x64",2,1040000,1079500,0
"KERNEL_DISPATCH","Agent 4",1,1,4242,3,13,"void relu_kernel<float>(float*, float const*, int)",3,1090000,1094000,0
"KERNEL_DISPATCH","Agent 4",1,1,4242,4,13,"void relu_kernel<float>(float*, flo
"""

ROCPROF_STATS = """\
"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"
"Cijk_Ailk_Bljk_BBS_BH_MT256x256x64",2,78000,39000.000000,95.12,38500,39500,7.07e+02
"void relu_kernel<float>(float*, float const*, int)",1,4000,4000.000000,4.88,4000,4000,0.00000000e+00
"""

ROCPROF_MARKERS = """\
"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"
"MARKER_CORE_RANGE_API","hipblasLtMatmul",4242,4242,5,990000,999000
"MARKER_CORE_RANGE_API","hipblasLtMatmul",4242,4242,6,1030000,1039000
"""

ROCPROF_COUNTERS = """\
"Guid","Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id","Grid_Size","Kernel_Id",\
"Kernel_Name","Counter_Name","Counter_Value","Start_Timestamp","End_Timestamp"
"00006409-00d1","1","1","GPU 3",1,4242,4242,1024,10,"Cijk_Ailk_Bljk_BBS_BH_MT256x256x64","SQ_WAVES",64.0,1000000,1041000
"00006409-00d1","1","1","GPU 3",1,4242,4242,1024,10,"Cijk_Ailk_Bljk_BBS_BH_MT256x256x64","SQ_BUSY",9.5,1000000,1041000
"00006409-00d1","2","2","GPU 3",1,4242,4242,1024,10,"Cijk_Ailk_Bljk_BBS_BH_MT256x256x64","SQ_WAVES",64.0,1050000,1089000
"00006409-00d1","2","2","GPU 3",1,4242,4242,1024,10,"Cijk_Ailk_Bljk_BBS_BH_MT256x256x64","SQ_BUSY",9.1,1050000,1089000
"""

ROCPROF_AGENTS = """\
"Node_Id","Logical_Node_Id","Agent_Type","Cpu_Cores_Count","Simd_Count","Cu_Count","Name","Vendor_Name","Product_Name",\
"Model_Name"
0,0,"CPU",96,0,96,"AMD EPYC 9654 96-Core Processor","CPU","AMD EPYC 9654 96-Core Processor",""
1,1,"GPU",0,1216,304,"gfx942","AMD","AMD Instinct MI300X","ip discovery"
2,2,"GPU",0,1216,304,"gfx942","AMD","AMD Instinct MI300X","ip discovery"
"""

ROCPROF_CALLS = """\
"Guid","Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"
"00006409-00d1","HIP_RUNTIME_API_EXT","hipExtModuleLaunchKernel",4242,4242,1,990000,999000
"00006409-00d1","HIP_RUNTIME_API_EXT","hipExtModuleLaunchKernel",4242,4242,2,1041000,1045000
"00006409-00d1","MARKER_CORE_RANGE_API","step",4242,4242,3,980000,1090000
"""

ROCPROF_CALL_STATS = """\
"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"
"hipExtModuleLaunchKernel",2,13000,6500.000000,100.00,4000,9000,3.53e+03
"""


def main() -> None:
    OUT.mkdir(exist_ok=True)
    events = job()
    (OUT / "job.trace.json").write_text(kineto(events), encoding="utf-8")
    (OUT / "stacks.trace.json").write_text(kineto(stacks(), with_stack=1), encoding="utf-8")
    old = json.dumps({**HEADER, "traceEvents": without_ids(job("cpu_op"))})
    with (
        (OUT / "job_without_ids.trace.json.gz").open("wb") as raw,
        gzip.GzipFile("", "wb", mtime=0, fileobj=raw) as file,
    ):
        file.write(old.encode())
    (OUT / "4242_kernel_trace.csv").write_text(ROCPROF_TRACE, encoding="utf-8")
    (OUT / "4242_kernel_stats.csv").write_text(ROCPROF_STATS, encoding="utf-8")
    (OUT / "4242_marker_api_trace.csv").write_text(ROCPROF_MARKERS, encoding="utf-8")
    (OUT / "rocpd_counter_collection.csv").write_text(ROCPROF_COUNTERS, encoding="utf-8")
    (OUT / "rocpd_agent_info.csv").write_text(ROCPROF_AGENTS, encoding="utf-8")
    (OUT / "rocpd_hip_api_trace.csv").write_text(ROCPROF_CALLS, encoding="utf-8")
    (OUT / "rocpd_hip_api_stats.csv").write_text(ROCPROF_CALL_STATS, encoding="utf-8")


if __name__ == "__main__":
    main()
