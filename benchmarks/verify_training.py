"""Is a real training loop as much faster as logparse predicts?  Before, flagged, applied, after, verified.

    python benchmarks/verify_training.py [--apply model|layers] [--wheels DIR] [--smoke]

A small network of RegNet's kind (1×1, grouped 3×3 with stride 2, 1×1) trains in NCHW under ``torch.profiler``.  Its
trace goes into a store, ``logparse replay`` measures its convolutions, ``logparse recommend`` reports which are slow
and what a setting would save.  The settings that it proposes are applied: ``channels_last`` to the model (``--apply
layers``: to the flagged convolutions alone, each with its transposes), benchmark mode to the process.  The same loop
runs again, and ``logparse verify BEFORE AFTER`` compares the two traces with the prediction.  Steps without the
profiler are timed as well, before and after taking turns, so that the end-to-end gain is one of a training loop.

One command, below three minutes on a GPU; needs torch and logparse's own packages (``--wheels`` names a folder with
those that are missing).  The raw record goes to ``benchmarks/results``.  Without a GPU sizes are tiny, each operator of
the trace is given one kernel as long as itself, and no record is written: it shows that every step of the way works.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from gpu_replay import unpack_wheels
from models import Residual, convolution
from torch import nn

from analyzers.measure.drift import idle_facts, noise

ROOT = Path(__file__).parents[1]
WARM_UP, BLOCKS = 5, 8


@dataclass(frozen=True)
class Settings:
    """What is applied: where channels_last, and whether cuDNN (MIOpen) may measure first."""

    channels_last: frozenset[str] = frozenset()
    whole_model: bool = False
    benchmark: bool = False


class ChannelsLast(nn.Module):
    """One convolution in channels_last amid a model in NCHW; both transposes are part of the step."""

    def __init__(self, inner: nn.Conv2d) -> None:
        super().__init__()
        self.inner = inner.to(memory_format=torch.channels_last)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The convolution's result, in NCHW again."""
        return self.inner(x.contiguous(memory_format=torch.channels_last)).contiguous()


def network(width: int) -> nn.Sequential:
    """A stem, three stages of two blocks whose first halves the image, a classifier."""
    layers: list[nn.Module] = [convolution(3, width // 2, 3, 2)]
    c = width // 2
    for k in (width, 2 * width, 4 * width):
        for stride in (2, 1):
            body = nn.Sequential(
                convolution(c, k), convolution(k, k, 3, stride, groups=k // 8), convolution(k, k, relu=False)
            )
            layers.append(Residual(body, c, k, stride))
            c = k
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, 1000))


class Training:
    """The loop in one setting."""

    def __init__(self, options: argparse.Namespace, settings: Settings) -> None:
        torch.manual_seed(0)
        self._device, self._settings = torch.device(options.device), settings
        self.model = network(options.width)
        for name, module in list(self.model.named_modules()):
            if isinstance(module, nn.Conv2d) and name in settings.channels_last and not settings.whole_model:
                parent, _, child = name.rpartition(".")
                setattr(self.model.get_submodule(parent), child, ChannelsLast(module))
        self._format = torch.channels_last if settings.whole_model else torch.contiguous_format
        self.model = self.model.to(self._device).train()
        if settings.whole_model:
            self.model = self.model.to(memory_format=torch.channels_last)
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self._images = torch.randn(options.batch, 3, options.size, options.size, device=self._device)
        self._labels = torch.randint(1000, (options.batch,), device=self._device)

    def step(self) -> None:
        """One training step; the transpose of the images is part of it."""
        with torch.autocast(self._device.type, dtype=torch.bfloat16):
            logits = self.model(self._images.contiguous(memory_format=self._format))
            loss = nn.functional.cross_entropy(logits.float(), self._labels)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()

    def steps(self, count: int) -> float:
        """Mean wall time (ms) of ``count`` steps, the device drained before and after."""
        with torch.backends.cudnn.flags(enabled=True, benchmark=self._settings.benchmark, allow_tf32=True):
            self._drain()
            begun = time.perf_counter()
            for _ in range(count):
                self.step()
            self._drain()
        return (time.perf_counter() - begun) * 1e3 / count

    def trace(self, path: Path, count: int) -> None:
        """A profiler's trace of ``count`` steps."""
        activities = [torch.profiler.ProfilerActivity.CPU]
        activities += [torch.profiler.ProfilerActivity.CUDA] * (self._device.type == "cuda")
        with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
            self.steps(count)
        profiler.export_chrome_trace(str(path))
        if self._device.type == "cpu":
            as_if_on_a_gpu(path)

    def _drain(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def as_if_on_a_gpu(path: Path) -> None:
    """Gives each convolution and product of a CPU's trace kernels of its own length, launched from within it."""
    trace = json.loads(path.read_text())
    roles = {"aten::mkldnn_convolution": ("fprop",), "aten::convolution_backward": ("dgrad", "wgrad")}
    roles |= dict.fromkeys(("aten::mm", "aten::addmm", "aten::bmm"), ("gemm",))
    added: list[dict[str, Any]] = []
    for event in trace["traceEvents"]:
        names = roles.get(event["name"], ()) if event.get("cat") == "cpu_op" else ()
        # The name shows what ran: another layout is another kernel of oneDNN.
        layout = "nhwc" if ", 1, " in str(event.get("args", {}).get("Input Strides")) else "nchw"
        for place, role in enumerate(names):
            number, share = len(added) + 1, event["dur"] / len(names)
            ids = {"correlation": number, "External id": event["args"].get("External id")}
            begin: dict[str, Any] = {"ph": "X", "ts": event["ts"] + place * share}
            launch = {"pid": event["pid"], "tid": event["tid"], "dur": share / 2, "args": ids}
            kernel = {"pid": 0, "tid": 7, "dur": share, "args": {**ids, "device": 0, "stream": 7}}
            added.append(begin | launch | {"cat": "cuda_runtime", "name": "cudaLaunchKernel"})
            added.append(begin | kernel | {"cat": "kernel", "name": f"{role}_{layout}"})
    trace["traceEvents"] += added
    trace["deviceProperties"] = [{"id": 0, "name": "CPU as if a GPU"}]
    path.write_text(json.dumps(trace))


def logparse(*words: str, accept: Sequence[int] = (0,)) -> str:
    """What the program prints.  Raises RuntimeError on another exit code than these."""
    print("$ logparse", *words, flush=True)
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "logparse", *words],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    print(done.stdout + done.stderr, flush=True)
    if done.returncode not in accept:
        raise RuntimeError(f"logparse {words[0]} ended with {done.returncode}")
    return done.stdout


def proposed(findings: Sequence[dict[str, Any]], model: nn.Module, options: argparse.Namespace) -> Settings:
    """The settings that the findings on convolutions propose, and to which layers."""
    solutions = {
        str(x["problem"]): str(x.get("solution") or "") for x in findings if x["kind"] == "conv" and x["saving_us"]
    }
    layout = {text for text, solution in solutions.items() if "layout=NHWC" in solution}
    layers = {name for name, conv in convolutions(model) if any(meant(conv, text) for text in layout)}
    benchmark = any("benchmark" in solution for solution in solutions.values())
    return Settings(frozenset(layers), bool(layers) and options.apply == "model", benchmark)


def convolutions(model: nn.Module) -> list[tuple[str, nn.Conv2d]]:
    return [(name, x) for name, x in model.named_modules() if isinstance(x, nn.Conv2d)]


def meant(conv: nn.Conv2d, text: str) -> bool:
    """Whether a problem may be of this layer: its channels, window, stride and groups."""
    from logparse.model import ConvProblem, problem_from_text

    p = problem_from_text(text)
    if not isinstance(p, ConvProblem):
        return False
    mine = (conv.in_channels, conv.out_channels, conv.kernel_size[0], conv.stride[0], conv.groups)
    return mine == (p.c, p.k, p.filter_h, p.stride_h, p.groups)


def main() -> int:
    """Before, flag, apply, after, verify; the exit code is ``verify``'s (0 where there is no GPU)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--apply", choices=("model", "layers"), default="model")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--width", type=int, default=128, help="channels of the first stage")
    parser.add_argument("--steps", type=int, default=10, help="steps in a trace, and in a timed block")
    parser.add_argument("--budget", default="75s", help="time of the replay")
    parser.add_argument("--top", type=int, default=24, help="convolutions to replay, the most valuable first")
    parser.add_argument("--results", default=str(Path(__file__).parent / "results"))
    parser.add_argument("--wheels", help="folder of wheels to put on the path (duckdb, where it is missing)")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, no record")
    options = parser.parse_args()
    if options.smoke or options.device == "cpu":
        options.batch, options.size, options.width, options.steps, options.top = 4, 32, 16, 2, 4
    with tempfile.TemporaryDirectory() as folder:
        unpack_wheels(options.wheels, folder)
        return verified(options, Path(folder))


def verified(options: argparse.Namespace, folder: Path) -> int:
    """Every step of the module's docstring."""
    begun, quiet = time.monotonic(), dict(idle_facts(options.device))
    store, findings = ("--store", str(folder / "store")), folder / "findings.json"
    first = Training(options, Settings())
    first.steps(WARM_UP)
    first.trace(folder / "before.trace.json", options.steps)
    logparse("ingest", str(folder / "before.trace.json"), "--run", "before", *store)
    device, gpu = options.device.removeprefix("cuda:"), options.device != "cpu"
    limits = ("--budget", options.budget, "--top", str(options.top), "--device", device)
    logparse("replay", "--run", "before", "--kind", "conv", *limits, *store)
    words = ("recommend", "--run", "before", "--out", str(folder / "overrides"), *store)
    logparse(*words)
    logparse(*words, "--format", "json", "--output", str(findings))
    found = json.loads(findings.read_text())
    settings = proposed(found, first.model, options)
    if not gpu and not settings.channels_last:  # a CPU gains nothing from it: all of it, so that the rest runs
        settings = Settings(frozenset(name for name, _ in convolutions(first.model)), options.apply == "model", True)
    print(f"applied: {settings}", flush=True)
    second = Training(options, settings)
    second.steps(WARM_UP)
    second.trace(folder / "after.trace.json", options.steps)
    logparse("ingest", str(folder / "after.trace.json"), "--run", "after", *store)
    ends = tuple(f"{folder / 'store'}#{run}" for run in ("before", "after"))
    printed = logparse("verify", *ends, accept=(0, 3))
    rows = json.loads(logparse("verify", *ends, "--format", "json", accept=(0, 3)) or "[]")
    blocks = timed_blocks(first, second, options.steps)
    record = {
        "record": "verify-training",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "environment": environment(options.device),
        "before": quiet,
        "remarks": noise(quiet),
        "options": {
            x: getattr(options, x) for x in ("apply", "batch", "size", "width", "steps", "budget", "top", "smoke")
        },
        "applied": {
            "channels_last": sorted(settings.channels_last),
            "whole_model": settings.whole_model,
            "benchmark": settings.benchmark,
        },
        "summary": summary(blocks, rows, options.steps),
        "step_ms": {"before": [x for x, _ in blocks], "after": [x for _, x in blocks]},
        "verify": rows,
        "findings": found,
        "said": printed.splitlines(),
        "seconds": round(time.monotonic() - begun, 1),
    }
    return finish(options, record, printed, gpu)


def timed_blocks(first: Training, second: Training, steps: int) -> list[tuple[float, float]]:
    """Step times (ms) before and after, both in each block, taking turns in going first."""
    out = []
    for block in range(BLOCKS):
        if block % 2:
            after, before = second.steps(steps), first.steps(steps)
        else:
            before, after = first.steps(steps), second.steps(steps)
        out.append((before, after))
    return out


def summary(blocks: Sequence[tuple[float, float]], rows: Sequence[dict[str, Any]], steps: int) -> dict[str, Any]:
    """Milliseconds per step: what was promised, what the flagged problems gained, what the whole loop gained."""
    before, after = (statistics.median(x[i] for x in blocks) for i in (0, 1))
    gains = sorted(a - b for a, b in blocks)
    known = [x for x in rows if x.get("gained_us") is not None]
    return {
        "promised_ms": sum(float(x["promised_us"] or 0) for x in rows) / 1e3 / steps,
        "flagged_gained_ms": sum(float(x["gained_us"]) for x in known) / 1e3 / steps,
        "step_before_ms": before,
        "step_after_ms": after,
        "step_gained_ms": statistics.median(gains),
        "step_gained_range_ms": [gains[0], gains[-1]],
        "speedup": before / after,
        "problems": len(rows),
        "changed": sum(x.get("effect") == "changed kernel" for x in rows),
    }


def environment(device: str) -> dict[str, str]:
    """The device and the libraries."""
    out = {"pytorch": torch.__version__, "cuda": str(torch.version.cuda), "hip": str(torch.version.hip)}
    if device == "cpu":
        return out | {"device": "CPU"}
    out |= {"device": torch.cuda.get_device_name(device), "cudnn": str(torch.backends.cudnn.version())}
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    with contextlib.suppress(OSError):
        done = subprocess.run(query, check=False, capture_output=True, text=True, timeout=30)
        out["driver"] = done.stdout.split("\n")[0].strip()
    return out


def finish(options: argparse.Namespace, record: dict[str, Any], printed: str, gpu: bool) -> int:
    """Print the comparison, write the record."""
    s = record["summary"]
    print(
        f"per step: promised {s['promised_ms']:.3f} ms on {s['problems']} problems, these gained "
        f"{s['flagged_gained_ms']:.3f} ms in the trace; the loop went from {s['step_before_ms']:.3f} to "
        f"{s['step_after_ms']:.3f} ms, gained {s['step_gained_ms']:.3f} ms end to end (×{s['speedup']:.3f})"
    )
    if not (options.smoke or not gpu):
        place = Path(options.results)
        place.mkdir(parents=True, exist_ok=True)
        device = record["environment"]["device"].replace(" ", "-")
        suffix = "" if options.apply == "model" else f"-{options.apply}"
        path = place / f"verify-training{suffix}-{device}-{record['date'][:10]}.json"
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"wrote {path}")
    return 3 if gpu and "not verified" in printed else 0


if __name__ == "__main__":
    sys.exit(main())
