"""Whether the action ``own_kernel`` keeps its promise: GPU time per step, and what its calls cost the host.

    python benchmarks/own_kernel.py [--models vocabulary,relu,narrow] [--solution module:callable …] [--small]

Three training steps whose products suit no kernel of the library: an output layer of 32,003, a layer of odd width with
a bias and ReLU, and a product of 7 by 3.  The kernels are those of ``docs/examples``, or ``--solution``; the one in
CUDA C++ is compiled before anything is timed, and left out where that fails, with the reason.  Each model runs as it
is, ``replay`` times it, and it runs again with the generated ``apply.py``, as in ``actions.py``.  Then a fresh process
times what the host takes to enqueue each covered call, without and with the override, against the replay's promise.

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
from collections.abc import Sequence
from dataclasses import asdict, astuple
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(1, str(Path(__file__).parents[1] / "docs/examples"))

import actions
import torch
from action_models import OWN_KERNEL
from action_runs import imported

from analyzers.actions import ACTIONS
from analyzers.actions.own_kernel import NAME, Call, call_of
from analyzers.actions.totals import results
from analyzers.analyzer import Settings
from analyzers.evidence.action_times import host_costs, samples_of
from analyzers.evidence.runs import tables_of
from logparse.executors.processes import started
from logparse.model import problem_from_text
from logparse.store import open_store

KERNELS = ("triton_gemm:gemm", "cuda_gemm:gemm")
_ROUNDS, _CALLS = 21, 64
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
        put_in = [x for x in results(tables, ACTIONS, Settings()) if x.action.name == NAME]
        parts = {y.label for x in put_in for y in x.parts}
        entries = "".join(line for x in put_in for line in x.application.settings)
        costs = host_costs(tables, samples_of(tables, Settings()))
        calls = [
            (problem.text, solution, cost, call)
            for (text, solution), cost in costs.items()
            if f"'{solution.partition(':')[2]}'" in entries  # another kernel of the same product is not put in
            and (problem := problem_from_text(text)).label in parts
            and (call := call_of(problem)) is not None
        ]
        module = Path(folder) / "overrides" / actions.NAME
        out = Path(folder) / "host.json"
        covered = [astuple(call) for *_, call in calls]
        if covered:
            process = started(host, str(module), options.device, covered, str(out), imports=("torch",))
            process.join(300)
        held = json.loads(out.read_text(encoding="utf-8")) if out.exists() else [None] * len(calls)
        record["host"] = [
            {"problem": problem, "solution": solution, "promised": asdict(cost), "measured": found}
            for (problem, solution, cost, _), found in zip(calls, held, strict=True)
        ]
        return record


def host(module: str, device: str, covered: Sequence[tuple[Any, ...]], out: str) -> None:
    """Write what the host takes for each call without and with the overrides of a generated ``apply.py`` (µs)."""
    calls = [_called(Call(*x), device) for x in covered]
    other = torch.ones(2, 2, device=device, dtype=getattr(torch, covered[0][2]))
    before = [_host_us(call, device) for call in calls]
    plain = _host_us(lambda: torch.mm(other, other), device)
    imported(module).settings(NAME)
    after = [_host_us(call, device) for call in calls]
    passed = _host_us(lambda: torch.mm(other, other), device)
    rows = [
        {"plain_us": a, "own_us": b, "difference_us": b - a, "other_us": passed - plain}
        for a, b in zip(before, after, strict=True)
    ]
    Path(out).write_text(json.dumps(rows), encoding="utf-8")


def _called(call: Call, device: str) -> Any:
    """A call of PyTorch with operands of these strides."""
    *batch, n, k, m = call.sizes
    kind = getattr(torch, call.dtype)

    def operand(shape: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
        count = 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
        return torch.randn(count, device=device, dtype=torch.float32).to(kind).as_strided(shape, strides)

    x, y = operand((*batch, n, k), call.x_strides), operand((*batch, k, m), call.y_strides)
    bias = torch.zeros(m, device=device, dtype=kind)
    if call.operator == "addmm":
        return lambda: torch.addmm(bias, x, y)
    if call.operator in ("relu", "gelu"):
        return lambda: torch._addmm_activation(bias, x, y, use_gelu=call.operator == "gelu")
    return lambda: torch.bmm(x, y) if batch else torch.mm(x, y)


def _host_us(call: Any, device: str) -> float:
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    rounds = []
    call()
    for _ in range(_ROUNDS):
        wait()
        begun = time.perf_counter_ns()
        for _ in range(_CALLS):
            call()
        rounds.append((time.perf_counter_ns() - begun) / 1e3 / _CALLS)
    wait()
    return median(rounds)


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
    options.gpu_time, options.only = True, (NAME, "fused_epilogue")
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
    print(
        json.dumps(
            {"summary": record["summary"], "host": [y for x in record["models"].values() for y in x["host"]]}, indent=1
        )
    )
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
