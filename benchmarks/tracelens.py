"""Compare GPU times of traces with TraceLens's reports, and with a count that shares no code with logparse.

    python benchmarks/tracelens.py FOLDER

FOLDER is ``tests/traces`` of AMD-AGI/TraceLens. Each trace with a report beside it (``gpu_timeline.csv``) is ingested
into a store of its own. The output has a row per trace, with times in ms:

| column | meaning |
|---|---|
| linked | time in which work runs that TraceLens counts: ``busy_time``, and the count |
| all | time with a kernel, and total time of copies and fills: the count, and ``gpu_busy_us`` + ``gpu_copies_us`` |
| idle | time without linked work, from the first to the last: ``idle_time``, and the count |
| marked | time without kernels, from the first marked step to the last kernel or the end of the last marked step |
| kernels | number of kernels in the JSON and in the store |
| early | GPU time of work that was launched before the trace. It is in no other column |
| wait | time from the first mark to the first kernel. It is idle time of the marked step |

If the first kernel begins more than 0.5 ms after its launch, the GPU still does work of earlier steps. Then ``marked``
begins with the first kernel.

TraceLens counts work only if a flow (events ``ac2g``) links it with its launch. It states work that
``torch.utils.checkpoint`` computes again in a table of its own. Both explain why ``linked`` is less than ``all``:

| trace | work that is not linked | ms |
|---|---|---|
| normalization_layer_test | 5 fills. ROCm's profiler writes no flow from ``hipMemset`` | 0.027 |
| xdit_sd_3.5 | 1 fill, for the same reason | 0.002 |
| resnet_act_checkpoint | 81 fills, and work that is computed again | 1.195 |

In ``resnet_act_checkpoint``, another 0.245 ms of ``all`` are copies and fills that run beside kernels.

The last line states how many traces differ by more than 0.1 % and 0.001 ms.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from logparse.ingest import ingest
from logparse.store import open_store

SHARE, LEAST_MS = 0.001, 0.001
_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHES = ("cuda_runtime", "cuda_driver", "hip_runtime")
_STEPS = ("ProfilerStep", "step[", "execute_")
_BACKLOG_US = 500
_WIDTHS = (10, 10, 10, 10, 10, 10, 10, 10, 7, 7, 8, 9)
Event = Mapping[str, Any]


@dataclass(frozen=True)
class Counted:
    """How long the GPU was busy and idle during a trace (ms), and the number of kernels."""

    linked: float
    added: float
    idle: float
    idle_marked: float
    kernels: int
    early: float
    wait: float


def reports(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Yield each trace that has a report of TraceLens, with the report."""
    for trace in sorted(folder.rglob("*.json.gz")):
        name = trace.name.removesuffix(".json.gz")
        beside = [f"{name}_perf_report_csvs", f"{name}_recompute_perf_report_csvs", "perf_csvs"]
        found = [trace.parent / x / "gpu_timeline.csv" for x in beside]
        if "capture_traces" not in trace.parts:
            yield from ((trace, report) for report in found if report.exists())


def of_tracelens(report: Path) -> tuple[float, float]:
    """Read from a report of TraceLens for how long the GPU was busy and idle, in ms.

    Some reports have a second table, on recomputation. It is left out.
    """
    with report.open() as file:
        rows = [x for x in csv.DictReader(file) if x.get("is_recompute") != "True"]
    ms = {x["type"]: float(x["time ms"]) for x in rows}
    return ms["busy_time"], ms["idle_time"]


def sum_spans(spans: Iterable[tuple[float, float]]) -> float:
    total, end = 0.0, float("-inf")
    for start, stop in sorted(spans):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total


def compute_times(trace: Path) -> Counted:
    """Compute the times of a trace from its JSON file, without any code of logparse."""
    with gzip.open(trace, "rt", errors="replace") as file:
        read = json.load(file)["traceEvents"]
    events = [x for x in read if x.get("ph") == "X"]
    on_gpu = [x for x in events if x.get("cat") in _GPU]
    launched = {x["args"].get("correlation") for x in events if x.get("cat") in _LAUNCHES and x.get("args")}
    starts = [x["ts"] for x in on_gpu if x["cat"] == "kernel" and x["args"].get("correlation") in launched]
    kernels = sum(x["cat"] == "kernel" for x in on_gpu)
    first = min(starts, default=float("-inf"))
    early = [x for x in on_gpu if x["ts"] < first and x["args"].get("correlation") not in launched]
    mine = [x for x in on_gpu if x["args"].get("correlation") in launched] if early else on_gpu
    flows = {x["id"] for x in read if x.get("ph") == "s" and x.get("cat") == "ac2g"} - _computed_again(events)
    graphs = any("GraphLaunch" in x["name"] for x in events)  # TraceLens counts all work of a trace with graphs
    linked = _spans(x for x in mine if graphs or not flows or x["args"].get("correlation") in flows)
    of_kernels = _spans(x for x in mine if x["cat"] == "kernel")
    copies = sum(x["dur"] for x in mine if x["cat"] != "kernel")
    last = max(x for _, x in of_kernels)
    marks = [x for x in events if x.get("cat") == "user_annotation" and x["name"].startswith(_STEPS)]
    steps = [] if _waited(events, mine) else _spans(marks)
    begun = max([min(steps)[0], *(x for _, x in _spans(early))]) if steps else float("inf")
    last = max([last, *(x for _, x in steps)])
    begun = min([begun, *(x for x, _ in of_kernels)])
    busy, busy_kernels = sum_spans(linked), sum_spans(of_kernels)
    return Counted(
        linked=busy / 1e3,
        added=(busy_kernels + copies) / 1e3,
        idle=(max(x for _, x in linked) - min(x for x, _ in linked) - busy) / 1e3,
        idle_marked=(last - begun - busy_kernels) / 1e3,
        kernels=kernels,
        early=sum_spans(_spans(early)) / 1e3,
        wait=(min(x for x, _ in of_kernels) - begun) / 1e3,
    )


def _waited(events: Sequence[Event], on_gpu: Sequence[Event]) -> bool:
    """Tell whether the first kernel began late after its launch, because the GPU still did work of earlier steps."""
    first = min((x for x in on_gpu if x["cat"] == "kernel"), key=lambda x: float(x["ts"]))
    correlation = first["args"].get("correlation")
    asked = [x["ts"] for x in events if x.get("cat") in _LAUNCHES and x["args"].get("correlation") == correlation]
    return bool(asked) and first["ts"] - max(asked) > _BACKLOG_US


def _computed_again(events: Sequence[Event]) -> set[object]:
    """Return the correlations of launches inside ``recompute_fn`` of ``torch.utils.checkpoint``."""
    again = [x for x in events if "torch/utils/checkpoint.py" in x["name"] and "recompute_fn" in x["name"]]
    calls = [x for x in events if x.get("cat") in _LAUNCHES] if again else []
    return {
        x["args"].get("correlation")
        for x in calls
        if any(y["tid"] == x["tid"] and y["ts"] <= x["ts"] <= y["ts"] + y["dur"] for y in again)
    }


def _spans(events: Iterable[Event]) -> Sequence[tuple[float, float]]:
    return [(float(x["ts"]), float(x["ts"]) + float(x["dur"])) for x in events]


def of_logparse(trace: Path) -> tuple[float, float, int]:
    """Return the GPU time, the idle time and the number of kernels of a trace that logparse has read."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"{folder}/store", create=True)
        ingest([str(trace)], store, run="run")
        with store.connect() as con:
            facts = dict(con.execute("select name, value from facts where name like 'gpu_%_us'").fetchall())
            ((kernels,),) = con.execute("select sum(calls) from kernels").fetchall()
    busy, window, copies = (float(facts.get(f"gpu_{x}_us", 0.0)) for x in ("busy", "window", "copies"))
    return (busy + copies) / 1e3, (window - busy) / 1e3, int(kernels or 0)


def differ(one: float, other: float) -> bool:
    return abs(one - other) > max(SHARE * max(one, other), LEAST_MS)


def compare(folder: Path) -> Iterator[str]:
    yield f"{'':<36}{'linked':^20}{'all':^20}{'idle':^20}{'marked':^20}{'kernels':^14}"
    heads = ["TraceLens", "counted", "counted", "ours", "TraceLens", "counted", "counted", "ours", "JSON", "ours"]
    heads += ["early", "wait"]
    yield f"{'trace':<36}" + "".join(f"{x:>{n}}" for x, n in zip(heads, _WIDTHS, strict=True))
    total, wrong = 0, 0
    for trace, report in reports(folder):
        (busy, idle), own, ours = of_tracelens(report), compute_times(trace), of_logparse(trace)
        pairs = ((busy, own.linked), (own.added, ours[0]), (idle, own.idle), (own.idle_marked, ours[1]))
        off = any(differ(*pair) for pair in pairs) or own.kernels != ours[2]
        total, wrong = total + 1, wrong + off
        name = str(trace.relative_to(folder)).removesuffix(".json.gz")[-35:]
        times = [f"{x:.3f}" for pair in pairs for x in pair]
        cells = (*times, own.kernels, ours[2], f"{own.early:.3f}", f"{own.wait:.3f}")
        yield f"{name:<36}" + "".join(f"{x:>{n}}" for x, n in zip(cells, _WIDTHS, strict=True)) + " *" * off
    yield f"{wrong} of {total} traces differ (*)"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="tests/traces of AMD-AGI/TraceLens")
    for line in compare(parser.parse_args().folder):
        print(line, flush=True)


if __name__ == "__main__":
    main()
