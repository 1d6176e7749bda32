"""The step's simulation: ``--speed`` times it on synthetic jobs, ``--traces FILE …`` shows what it makes of real ones.

A synthetic job has ranks that launch kernels on two streams, wait for events and meet in collectives.  "build" makes
the graph from events in memory, "simulate" runs it once with other kernel times; reading JSON is timed apart, on one
file that holds as many kernels as a rank of the first job.  Each job has a process of its own, whose peak memory it is.

    python benchmarks/steps.py --speed
    python benchmarks/steps.py --traces trace_1.json.gz trace_2.json.gz
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from analyzers.job.step.answer import Step, answer, unchanged
from analyzers.job.step.build import build
from analyzers.job.step.graph import times
from analyzers.job.step.traces import Call, RankTrace, Unit, Work, read_trace
from logparse.formats.traces.torch.records import KernelIdentity
from logparse.ingest.input_file import InputFile

JOBS = ((8, 6_250), (8, 50_000), (1, 10_000), (1, 100_000), (1, 1_000_000))
"""Ranks and kernels of each: the first has 50,000 in all, the second on each rank."""
_EVERY = 100
"""Kernels from one collective to the next."""


def synthetic(rank: int, kernels: int) -> RankTrace:
    """One step: a kernel of 20 µs every 25 µs, a tenth of them on a second stream, and collectives on a third."""
    calls: list[Call] = []
    works: list[Work] = []
    thread = ("1", "1")
    for i in range(kernels):
        at, correlation = 25.0 * i, i + 1
        if i % _EVERY == _EVERY - 1:
            calls.append(Call("wait", thread, at - 1, at, 10 * kernels + i))
            works.append(Work((0, 20), at + 6 + rank, 14.0 - rank, correlation, i, ranks="[0]"))
        else:
            works.append(Work((0, 8 if i % 10 == 5 else 7), at + 6, 18.0, correlation, i))
        calls.append(Call("launch", thread, at, at + 4, correlation))
    calls.append(Call("device", thread, 25.0 * kernels, 25.0 * kernels + 30, 0))
    identities = [KernelIdentity("aten::mm", None, f"kernel{i % 50}") for i in range(kernels)]
    units = [Unit(0.0, 25.0 * kernels + 40, "")]
    return RankTrace(rank, "", thread, calls, works, units=units, identities=identities)


def as_json(trace: RankTrace, path: Path) -> None:
    """The trace as a file, as Kineto's have it."""

    def events() -> Iterator[dict[str, object]]:
        for x in trace.calls:
            name = {"wait": "cudaStreamWaitEvent", "device": "cudaDeviceSynchronize"}.get(x.kind, "cudaLaunchKernel")
            place = {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": x.start}
            yield place | {"dur": x.end - x.start, "args": {"correlation": x.correlation}}
        for i, y in enumerate(trace.works):
            name = "ncclDevKernel_AllReduce" if y.ranks is not None else trace.identities[y.kernel].kernel
            id, args = i + 1, {"device": 0, "stream": y.stream[1], "correlation": y.correlation}
            operator = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1}
            yield operator | {"ts": 25.0 * i - 2, "dur": 20.0, "args": {"External id": id}}
            place = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": y.stream[1], "ts": y.start}
            yield place | {"dur": y.us, "args": {"External id": id, **args}}

    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": list(events())}), encoding="utf-8")


def speed(job: tuple[int, int]) -> str:
    """One row of the table: seconds of CPU, so that other processes of the machine do not count."""
    ranks, kernels = job
    traces = [synthetic(rank, kernels) for rank in range(ranks)]
    before = time.process_time()
    graph = build(traces)
    built = time.process_time()
    first = times(graph)
    once = time.process_time()
    times(graph, graph.us * 0.5, 0.9)
    twice = time.process_time()
    assert len(first) == len(graph.a)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds = f"{built - before:8.2f} {once - built:9.2f} {twice - once:9.2f}"
    return f"{ranks:5} {kernels * ranks:9} {len(first):9} {seconds} {peak:8.0f}"


def speeds() -> None:
    print("ranks   kernels     nodes  build s  first  s simulate s  peak MB")
    context = multiprocessing.get_context("spawn")
    for job in JOBS:
        with context.Pool(1) as pool:
            print(pool.apply(speed, (job,)), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        as_json(synthetic(0, JOBS[0][1]), path)
        before = time.process_time()
        trace = read_trace(InputFile(str(path)))
        seconds, size = time.process_time() - before, os.path.getsize(path) / 1e6
        print(f"reading a rank's trace of {len(trace.works)} kernels, {size:.1f} MB of JSON: {seconds:.2f} s")


def show(path: str) -> None:
    """What limits the steps of one trace, as traced."""
    step = Step([build([read_trace(InputFile(path))])], {})
    found = answer(step, {})
    ends = found.ceilings
    print(f"{Path(path).name}: {step.us(unchanged, 1.0):.0f} us, limited by {found.limit}")
    print("   " + ", ".join(f"{name} {part:.0%}" for name, part in found.shares.items()))
    print(
        f"    fast host {ends.fast_host_us:.0f} us, free communication {ends.free_communication_us:.0f} us, "
        f"host alone {step.us(lambda x: np.zeros_like(x.us), 1.0):.0f} us; kernels at half: "
        f"{step.us(lambda x: x.scaled(np.full(len(x.identities), 0.5)), 1.0):.0f} us"
    )
    for note in found.notes:
        print(f"    {note}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speed", action="store_true", help="time build and simulation on synthetic jobs")
    parser.add_argument("--traces", nargs="*", default=[], help="traces of torch.profiler to simulate")
    given = parser.parse_args()
    if given.speed:
        speeds()
    for path in given.traces:
        show(path)


if __name__ == "__main__":
    main()
