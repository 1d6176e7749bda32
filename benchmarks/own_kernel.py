"""Whether the action ``own_kernel`` keeps its promise: GPU time per step, and what its calls cost the host.

    python benchmarks/own_kernel.py [--models vocabulary,relu,narrow] [--solution module:callable …] [--small]

Three training steps whose products suit no kernel of the library: an output layer of 32,003, a layer of odd width with
a bias and ReLU, and a product of 7 by 3.  The kernels are those of ``docs/examples``, or ``--solution``; the one in
CUDA C++ is compiled before anything is timed, and left out where that fails, with the reason.  Each model runs as it
is, ``replay`` times it, and it runs again with the generated ``apply.py``, as in ``actions.py``.  Then a fresh process
times what the host takes to enqueue whole steps, with and without the overrides in turn, against the replay's promise.

On a CPU (``--small``, with a ``--solution`` of PyTorch's own operators) it shows that all parts fit together.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(1, str(Path(__file__).parents[1] / "docs/examples"))

import actions
import torch
from action_models import OWN_KERNEL
from action_runs import WARM_UP, Run, prepared

from analyzers.actions import ACTIONS
from analyzers.actions.own_kernel import NAME
from analyzers.actions.totals import results
from analyzers.analyzer import Settings
from analyzers.times.action_times import host_costs, samples_of
from analyzers.times.runs import tables_of
from logparse.executors.processes import started
from logparse.store import open_store

KERNELS = ("triton_gemm:gemm", "cuda_gemm:gemm")
_TURNS, _STEPS = 15, 15
_COMPILE = "import cuda_gemm; cuda_gemm._library()"


def usable(kernels: Sequence[str], device: str) -> dict[str, str]:
    """By kernel: empty, or why it cannot run here."""
    found = {}
    for name in kernels:
        found[name] = ""
        if name == "cuda_gemm:gemm" and device == "cuda":
            made = subprocess.run([sys.executable, "-c", _COMPILE], capture_output=True, text=True, check=False)
            found[name] = made.stderr.strip().splitlines()[-1][-300:] if made.returncode else ""
        else:
            try:
                importlib.import_module(name.partition(":")[0])
            except ImportError as error:
                found[name] = str(error)
    return found


def measured(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The record of one model."""
    with tempfile.TemporaryDirectory(prefix="logparse-own-kernel-") as folder:
        *_, record = actions.measured(name, options, Path(folder))
        tables = tables_of(open_store(str(Path(folder) / "store")), "as_is")
        costs = host_costs(tables, samples_of(tables, Settings()))
        record["costs"] = [{"problem": x, "solution": y, **asdict(cost)} for (x, y), cost in costs.items()]
        record["host"] = None
        for result in results(tables, ACTIONS, Settings()):
            if result.action.name == NAME:
                apply, out, steps = Path(folder) / "overrides" / actions.NAME, Path(folder) / "host", result.steps or 1
                run = Run(
                    model=name, device=options.device, small=options.small, steps=0, trace="", apply=str(apply),
                    action=NAME,
                )  # fmt: skip
                started(host, run, str(out), imports=("torch",)).join(300)
                record["host"] = {
                    "promised_us": [result.action.least_host_us / steps, result.action.host_us / steps],
                    "measured_us": json.loads(out.read_text(encoding="utf-8")) if out.exists() else None,
                    "put_in": result.application.settings,
                }
        return record


def host(run: Run, out: str) -> None:
    """Write what a step takes the host more with the overrides than without (µs), the median of several turns, and all.

    The model is the same in both; a step is over for the host when all of it is enqueued.
    """
    step, module = prepared(run)
    wait = torch.cuda.synchronize if run.device == "cuda" else lambda: None
    for _ in range(WARM_UP):
        step()
    turns = []
    for _ in range(_TURNS):
        own_us = _step_us(step, wait)
        for put_in in module._PUT_IN.values():
            put_in.remove()
        module._PUT_IN.clear()
        turns.append(own_us - _step_us(step, wait))
        module.settings(run.action)
    Path(out).write_text(json.dumps({"median": median(turns), "turns": turns}), encoding="utf-8")


def _step_us(step: Callable[[], None], wait: Callable[[], None]) -> float:
    """Median of several steps; the first is not counted."""
    taken = []
    for _ in range(1 + _STEPS):
        wait()
        begun = time.perf_counter_ns()
        step()
        taken.append((time.perf_counter_ns() - begun) / 1e3)
    wait()
    return median(taken[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(OWN_KERNEL), help="names, joined by commas")
    parser.add_argument("--solution", nargs="+", default=KERNELS, help="kernels, module:callable")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cuda", "cpu"))
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="sizes for a test on a CPU")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.devices = ("cuda:0",) if options.device == "cuda" else ("cpu",)
    options.only = (NAME, "fused_epilogue")
    paths = [str(Path(__file__).parents[1] / "docs/examples"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))  # of the workers and the runs
    if options.device == "cpu":
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    device = torch.cuda.get_device_name().replace(" ", "-") if options.device == "cuda" else "cpu"
    out = options.out or Path(__file__).parent / "results" / f"own-kernel-{device}-{datetime.date.today()}.json"
    kernels = usable(options.solution, options.device)
    options.kernels = tuple(x for x, why in kernels.items() if not why)
    record: dict[str, Any] = {"device": device, "pytorch": torch.__version__, "kernels": kernels, "models": {}}
    for name in options.models.split(","):
        record["models"][name] = measured(name, options)
        record["summary"] = actions.summary(record["models"])
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    host_times = {name: model["host"] for name, model in record["models"].items()}
    print(json.dumps({"summary": record["summary"], "host": host_times}, indent=1))
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
