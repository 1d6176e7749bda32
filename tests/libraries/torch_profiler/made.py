"""Write small traces in the form of torch.profiler, for tests.

A trace has a host thread, the kernels that it launches, and marks of steps.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MI300X: dict[str, Any] = {"id": 0, "name": "AMD Instinct MI300X", "numSms": 304, "warpSize": 64}
H200: dict[str, Any] = {
    "id": 0,
    "name": "NVIDIA H200",
    "numSms": 132,
    "computeMajor": 9,
    "computeMinor": 0,
    "warpSize": 32,
}
LAUNCH_US = 10.0
PRODUCT = ((4096, 4096), (4096, 4096))


class MadeTrace:
    """A made-up torch.profiler trace of one process. Times are in µs."""

    def __init__(self, pid: int = 7, device: dict[str, Any] | None = None, **header: Any) -> None:
        self.events: list[dict[str, Any]] = []
        self.header = {"schemaVersion": 1, "deviceProperties": [device or MI300X], **header}
        self._pid, self._ids = pid, 0

    def add(self, cat: str, name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> None:
        """Add an event of the host to the made-up trace.

        If ``tid`` is the number of a stream, it is an event of the GPU.
        """
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": self._pid, "tid": tid, "ts": ts, "dur": dur, "args": args}
        )

    def step(self, begin: float, end: float, name: str = "ProfilerStep#1") -> None:
        self.add("user_annotation", name, begin, end - begin)

    def operator(
        self,
        name: str,
        ts: float,
        kernels: Sequence[tuple[str, float]],
        *,
        dims: Sequence[Sequence[int]] = PRODUCT,
        strides: Sequence[Sequence[int]] | None = None,
        values: Sequence[str] = ("", ""),
        dtype: str = "c10::BFloat16",
        at: float | None = None,
        stream: int = 0,
        dur: float | None = None,
    ) -> float:
        """Add a PyTorch operator to the made-up trace, with kernels (name, µs) that run one after the other.

        The first kernel starts at ``at``, or by default ``LAUNCH_US`` after the operator. Returns the time at which the
        last kernel ends.
        """
        self._ids += 1
        own = self._ids
        begun = ts + LAUNCH_US if at is None else at
        for i, (kernel, us) in enumerate(kernels):
            self.launch(kernel, ts + i, us, at=begun, stream=stream, id=own)
            begun += us
        lasts = dur if dur is not None else LAUNCH_US + len(kernels)
        whole = [[*x] for x in dims]
        given = {
            "External id": own,
            "Input Dims": whole + [[]] * (len(values) - len(whole)),
            "Input Strides": [[*x] for x in strides or [_strides(x) for x in dims]] + [[]] * (len(values) - len(whole)),
            "Input type": [dtype] * len(whole) + ["Scalar"] * (len(values) - len(whole)),
            "Concrete Inputs": [*values],
        }
        self.add("cpu_op", name, ts, lasts, **given)
        return begun

    def convolution(self, ts: float, kernels: Sequence[tuple[str, float]], at: float | None = None) -> float:
        """Add a forward convolution that MIOpen computes to the made-up trace.

        Returns the time at which its last kernel ends.
        """
        values = ("", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1", "False", "False")
        dims = ((8, 64, 56, 56), (64, 64, 3, 3))
        return self.operator(
            "aten::miopen_convolution", ts, kernels, dims=dims, values=values, dtype="c10::Half", at=at
        )

    def launch(
        self, kernel: str, ts: float, us: float, *, at: float | None = None, stream: int = 0, id: int | None = None
    ) -> int:
        """Add a kernel and its launch. Returns the correlation id, a number that both have in common."""
        self._ids += 1
        more = {} if id is None else {"External id": id}
        self.add("cuda_runtime", "hipLaunchKernel", ts, 1.0, correlation=self._ids, **more)
        begun = ts + LAUNCH_US if at is None else at
        self.add("kernel", kernel, begun, us, stream, device=0, stream=stream, correlation=self._ids, **more)
        return self._ids

    def call(self, name: str, ts: float, dur: float) -> None:
        self._ids += 1
        self.add("cuda_runtime", name, ts, dur, correlation=self._ids)

    def graph(
        self, ts: float, kernels: Sequence[tuple[str, float]], at: float | None = None, dur: float = 5.0
    ) -> float:
        """Add the launch of a CUDA or HIP graph to the made-up trace. Returns the time at which its last kernel ends.

        ``kernels`` are the graph's kernels that the profiler recorded. The profiler may have missed some or all of
        them.
        """
        self._ids += 1
        self.add("cuda_runtime", "hipGraphLaunch", ts, dur, correlation=self._ids)
        begun = ts + LAUNCH_US if at is None else at
        for kernel, us in kernels:
            self.add("kernel", kernel, begun, us, 0, device=0, stream=0, correlation=self._ids)
            begun += us
        return begun

    def capture(self, begin: float, end: float, kernels: Sequence[str], operator: str = "") -> None:
        """Add the capture of a CUDA or HIP graph: launches of kernels that do not run yet.

        If ``operator`` is given, each kernel is launched by an operator of this name.
        """
        self.call("hipStreamBeginCapture", begin, 1.0)
        for i, kernel in enumerate(kernels):
            ts = begin + 2 + (end - begin - 3) * i / len(kernels)
            if operator:
                self.operator(operator, ts, [])
            more = {"External id": self._ids} if operator else {}
            self._ids += 1
            self.add("cuda_runtime", "hipLaunchKernel", ts, 0.5, correlation=self._ids, kernel=kernel, **more)
        self.call("hipStreamEndCapture", end - 1, 1.0)

    @property
    def text(self) -> str:
        return json.dumps({**self.header, "traceEvents": self.events})

    def write(self, path: Path) -> str:
        """Write the trace to a file, compressed if the name ends with ``.gz``. Returns the path as text."""
        path.parent.mkdir(parents=True, exist_ok=True)
        data = self.text.encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return str(path)


def _strides(dims: Sequence[int]) -> list[int]:
    out, step = [], 1
    for size in reversed(dims):
        out.append(step)
        step *= size
    return out[::-1]
