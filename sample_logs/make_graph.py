"""Write the sample traces in ``sample_logs/graph/``. Run it from any folder; the files are always the same.

A server runs its decode step as a HIP graph. One trace shows how the graph is captured, the other one how it is
launched. The events follow the profiler's documentation. Nothing of logparse is imported.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "graph"
PID = 4242
NORM, GEMM, COPY = "_ZN5aiter18rmsnorm_quantE", "Cijk_Alik_Bljk_BBS_BH_MT64x32x256", "void at::native::copy_kernel<8>"
BF16 = "c10::BFloat16"
HEADER = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "AMD Instinct MI300X", "numSms": 304, "warpSize": 64}],
    "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
    "roctracer_version": 4.1,
    "hip_runtime_version": 70253211,
}


def operator(id: int, start: float, name: str, dims: list[Any], strides: list[Any]) -> dict[str, Any]:
    """Return the trace event of a PyTorch operator (``cpu_op``) with the sizes and strides of its inputs."""
    args = {"External id": id, "Concrete Inputs": [""] * len(dims), "Input type": [BF16] * len(dims)}
    args |= {"Input Strides": strides, "Input Dims": dims}
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": PID, "tid": PID, "ts": start, "dur": 9.0, "args": args}


def runtime(name: str, start: float, **args: Any) -> dict[str, Any]:
    """Return the trace event of a call of a function of the HIP runtime."""
    common = {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": PID, "tid": PID, "ts": start, "dur": 2.0}
    return {**common, "args": args}


def launch(name: str, start: float, id: int, kernel: str) -> dict[str, Any]:
    """Return the trace event of a kernel launch while a graph is captured.

    The event names the kernel, but the kernel does not run yet.
    """
    return runtime(name, start, **{"External id": id, "kernel": kernel, "correlation": id})


def captured(rows: int, at: float, id: int) -> list[dict[str, Any]]:
    """Return the trace events of capturing a graph with two layers, for a batch of ``rows`` rows."""
    out = [runtime("hipStreamBeginCapture", at, cid=219, correlation=id)]
    for layer in range(2):
        first, start = id + 10 * layer, at + 10 + 100 * layer
        dims, strides = [[rows, 512], [512, 1024]], [[512, 1], [1, 512]]
        out += [
            operator(first + 1, start, "aiter::rmsnorm", [[rows, 512]], [[512, 1]]),
            launch("hipLaunchKernel", start + 3, first + 1, NORM),
            operator(first + 2, start + 20, "aten::mm", dims, strides),
            launch("hipExtModuleLaunchKernel", start + 23, first + 2, GEMM),
        ]
    return [*out, runtime("hipStreamEndCapture", at + 300, cid=220, correlation=id + 90)]


def replay(at: float, correlation: int, us: list[float], names: list[str]) -> list[dict[str, Any]]:
    """Return the trace events of launching a captured graph once: the launch, and kernels with these times in µs."""
    out = [runtime("hipGraphLaunch", at, cid=215, correlation=correlation)]
    for place, (name, time) in enumerate(zip(names, us, strict=True)):
        args = {"device": 0, "stream": 3, "correlation": correlation, "kind": "Dispatch Task"}
        start = at + 50 + 100 * place
        out.append(
            {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 3, "ts": start, "dur": time, "args": args}
        )
    return out


def main() -> None:
    """Write both sample traces."""
    OUT.mkdir(exist_ok=True)
    step = [NORM, GEMM] * 2
    decode = [
        *replay(1000.0, 700, [3.0, 20.0, 3.5, 21.0], step),
        *replay(3000.0, 701, [3.0, 22.0, 3.5, 23.0], step),
        *replay(5000.0, 702, [3.0, 24.0, 7.0], [NORM, GEMM, COPY]),
    ]
    files = {"capture.trace.json": captured(32, 100.0, 100), "decode.trace.json": decode}
    for name, events in files.items():
        text = json.dumps({**HEADER, "traceEvents": events}, indent=2)
        (OUT / name).write_text(text + "\n", encoding="utf-8", newline="")


if __name__ == "__main__":
    main()
