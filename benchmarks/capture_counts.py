"""Test whether ``logparse capture`` counts all calls of a PyTorch job, by comparing its logs with the run's trace.

    python benchmarks/capture_counts.py [--steps 5] [--results FOLDER]

The job is a small transformer with a convolution in front, in float32, bfloat16 and float16, with PyTorch's defaults:
only ``capture`` sets anything.  It profiles itself.  The libraries' logs must contain the products of the trace,
operator by operator.  Prints the calls of both by input type, and writes them as JSON. Exit status 1 if they differ.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

ROOT = Path(__file__).parents[1]
COUNTS = """
    select run, p.a_type as type, cast(sum(w.calls) as bigint) as calls, count(distinct w.problem) as problems
    from workload w join gemm_problems p using (problem) group by all order by run, type"""


def job(trace: Path, steps: int) -> None:
    """Train a small model under the profiler in three number formats, one after the other, and write the trace."""
    import torch
    from capture_train import Model
    from torch.nn.functional import cross_entropy
    from torch.profiler import ProfilerActivity, profile

    images = torch.randn(4, 3, 224, 224, device="cuda")
    targets = torch.randint(5003, (4 * 14 * 14,), device="cuda")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as profiler:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            model = Model(768, 2, 5003).to("cuda", dtype)
            for _ in range(steps):
                cross_entropy(model(images.to(dtype)).flatten(0, 1).float(), targets).backward()
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(trace))


def main() -> int:
    """Run the job under ``capture``, and compare the numbers of calls in its logs with those in its trace."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--results", default=str(Path(__file__).parent / "results"))
    parser.add_argument("--job", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        job(options.job, options.steps)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        store, trace = f"{folder}/store", Path(folder) / "job.trace.json"
        logparse = [sys.executable, "-m", "logparse"]
        own = [sys.executable, __file__, "--job", str(trace), "--steps", str(options.steps)]
        for words in (
            ["capture", "--store", store, "--run", "logs", "--out", f"{folder}/logs", "--", *own],
            ["ingest", "--store", store, "--run", "trace", str(trace)],
        ):
            subprocess.run([*logparse, *words], cwd=ROOT, check=True)
        from logparse.store import open_store

        held = open_store(store)
        rows = held.query(COUNTS).to_dict("records")
        files = held.query("select run, format, lines, call_lines, message_lines, reject_lines from sources").to_dict(
            "records"
        )
        facts = held.query(
            "select distinct name, value from facts where name in ('device', 'pytorch_version', 'driver')"
        )
    by = {run: {row["type"]: int(row["calls"]) for row in rows if row["run"] == run} for run in ("logs", "trace")}
    made = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "facts": dict(zip(facts["name"], facts["value"], strict=True)),
        "steps": options.steps,
        "calls": by,
        "rows": rows,
        "files": files,
    }
    device = str(made["facts"].get("device", "cpu")).replace(" ", "-")
    where = Path(options.results) / f"capture-counts-{device}-{str(made['date'])[:10]}.json"
    where.write_text(json.dumps(made, indent=1, default=str) + "\n", encoding="utf-8")
    for kind in sorted({*by["logs"], *by["trace"]}):
        print(f"{kind:8} logs {by['logs'].get(kind, 0):6,} trace {by['trace'].get(kind, 0):6,}")
    print(where)
    return 0 if by["logs"] == by["trace"] else 1


if __name__ == "__main__":
    sys.exit(main())
