"""Measure what the observer costs per outermost call of a module, per module within it, and per optimizer step.

    python benchmarks/observer_cost.py                 # on the GPU, if there is one
    python benchmarks/observer_cost.py --device cpu

A process without the observer and a process with it run at the same time and measure in turns, so that other work on
the machine affects both alike.  Each process measures three loops many times and keeps the least time of each loop.
The cost is the difference of the two processes.  The fraction of a step is the cost of one outermost call with 150
modules within it (as in GPT-2) plus one step of an optimizer, divided by 30 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

LIMITS = {"outermost_us": 40.0, "inner_us": 1.5, "step_share": 0.001}
"""Limits: µs per outermost call, µs per module within it, and fraction of a step of 30 ms."""
INNER, ROUNDS, CALLS, STEP_US = 150, 40, 60, 30e3


def child(device: str) -> None:
    """Measure each loop once for each line of standard input."""
    import time

    import torch
    from torch import nn

    leaf, tree = nn.Identity(), nn.Sequential(*[nn.Identity() for _ in range(INNER)])
    x = torch.ones(1, 8, device=device)
    weight = nn.Parameter(torch.zeros(1, device=device))
    weight.grad = torch.zeros_like(weight)
    optimizer = torch.optim.SGD([weight], lr=0.0)

    def round_of(function: Callable[[], Any], calls: int) -> float:
        if device != "cpu":
            torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(calls):
            function()
        return 1e6 * (time.perf_counter() - began) / calls

    with torch.inference_mode():
        for _ in range(400):  # The observer's windows are traced during this loop.
            leaf(x)
    print("ready", flush=True)
    for _ in sys.stdin:
        with torch.inference_mode():
            found = {"leaf": round_of(lambda: leaf(x), CALLS), "tree": round_of(lambda: tree(x), CALLS // 4)}
        found["step"] = round_of(optimizer.step, CALLS)
        print(json.dumps(found), flush=True)


def started(device: str, environ: Mapping[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--child", "--device", device]
    return subprocess.Popen(command, env=dict(environ), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def asked(process: subprocess.Popen[str]) -> dict[str, float]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    found: dict[str, float] = json.loads(process.stdout.readline())
    return found


def cost(plain: Sequence[Mapping[str, float]], observed: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the least time of each loop in the observed process minus that in the process without the observer."""

    def more(name: str) -> float:
        return min(x[name] for x in observed) - min(x[name] for x in plain)

    outermost, tree, step = more("leaf"), more("tree"), more("step")
    inner = (tree - outermost) / INNER
    return {
        "outermost_us": outermost,
        "inner_us": inner,
        "optimizer_us": step,
        "step_share": (outermost + INNER * inner + step) / STEP_US,
    }


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="")
    parser.add_argument("--child", action="store_true")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args(words)
    if options.child:
        child(options.device)
        return 0
    import torch

    from logparse.capture import with_overrides

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    plain: list[dict[str, float]] = []
    observed: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        environ = with_overrides.with_torch(os.environ, with_overrides.UNITS_FILE)
        environ |= {"LOGPARSE_TRACE_DIR": folder, "LOGPARSE_TRACE_UNITS": "2"}
        pair = [(started(device, os.environ), plain), (started(device, environ), observed)]
        for process, _ in pair:
            assert process.stdout is not None
            process.stdout.readline()
        for turn in range(options.rounds):
            for process, found in pair if turn % 2 else pair[::-1]:
                found.append(asked(process))
        for process, _ in pair:
            process.communicate()
    result = cost(plain, observed)
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    for key, value in result.items():
        limit = LIMITS.get(key)
        against = f", owed at most {limit:g}: {'held' if value <= limit else 'MISSED'}" if limit else ""
        print(f"{name} torch {torch.__version__}: {key} {value:.4g}{against}")
    typical = {key: round(statistics.median(x[key] for x in plain), 2) for key in plain[0]}
    print(f"plain medians (us): {typical}")
    return int(any(result[key] > limit for key, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
