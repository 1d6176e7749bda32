"""What a whole model gains from channels_last: a training step in both layouts, and what its convolutions foretold.

    python benchmarks/layouts.py [--batch 32] [--type FP16] [--budget 200] [--smoke]

Forward, backward and SGD of ResNet-50 and RegNetY-3.2GF, end to end as a training loop runs: images come in NCHW and
are transposed inside the step, weights were stored in the other layout once.  Both layouts take turns (ABBA, BAAB) on
fresh images in each block; the ratio is the median over the blocks with its 95 % interval.  Weights are half precision,
norms single; a step of both must give the same loss before it is timed.  With cuDNN's default choice, then in benchmark
mode.

Beside it, the *foretold* step: each distinct convolution replayed by itself, forward, backward data and backward
weights, in both layouts without transposes; the step in NCHW less the sum of the differences, plus the transpose of the
images.  It leaves out norms, ReLUs and sums, so the two differ by what those gain or lose.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from models import MODELS
from torch import nn

from analyzers.evidence.confirmations import judge
from analyzers.evidence.stats import median
from analyzers.measure.backend import Place, UnsupportedError
from analyzers.measure.backends.pytorch import BACKEND
from analyzers.measure.backends.torch_ways import named
from analyzers.measure.confirm import interleave
from analyzers.measure.device.operands import dtype_of
from analyzers.measure.device.torch_device import TorchDevice, torch_device
from analyzers.measure.drift import idle_facts, noise
from analyzers.measure.results import Method
from analyzers.measure.sampler import executions
from analyzers.measure.trial import WorkerContext
from logparse.model import DEFAULT, ConvProblem

LAYOUTS = {"NCHW": torch.contiguous_format, "channels_last": torch.channels_last}
LOSS_SCALE = 128.0  # half-precision gradients must not all vanish: zeros are timed too fast
SAME_LOSS = 0.02
ROUNDS = 5


@dataclass(frozen=True)
class Shape:
    """The inputs of a step."""

    batch: int
    size: int
    type: str
    steps: int
    blocks: int


class Training:
    """A model in one layout, with what a step needs."""

    def __init__(self, device: TorchDevice, build: Callable[[], nn.Module], layout: str, shape: Shape) -> None:
        torch.manual_seed(0)
        dtype = dtype_of(device, shape.type)
        self._device, self._format = device, LAYOUTS[layout]
        self.model = build().to(device.device, dtype).to(memory_format=self._format).train()
        for module in self.model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.float()
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3 / LOSS_SCALE, momentum=0.9)

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """One training step; the transpose of the images is part of it."""
        logits = self.model(images.contiguous(memory_format=self._format))
        loss = nn.functional.cross_entropy(logits.float(), labels)
        self._optimizer.zero_grad(set_to_none=True)
        (loss * LOSS_SCALE).backward()
        self._optimizer.step()
        return loss.detach()

    def step_us(self, images: torch.Tensor, labels: torch.Tensor, count: int) -> tuple[float, float]:
        """Mean time of a step in a loop of ``count``, and of the host's part of it (what it takes to enqueue)."""
        self._device.synchronize()
        begun = time.perf_counter_ns()
        if not self._device.is_gpu:
            for _ in range(count):
                self.step(images, labels)
            spent = (time.perf_counter_ns() - begun) / 1e3 / count
            return spent, spent
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(count):
            self.step(images, labels)
        end.record()
        host_us = (time.perf_counter_ns() - begun) / 1e3 / count
        end.synchronize()
        return start.elapsed_time(end) * 1e3 / count, host_us


class Comparison:
    """One model in both layouts."""

    def __init__(self, device: TorchDevice, name: str, shape: Shape) -> None:
        self._device, self._shape = device, shape
        self.trainings = {layout: Training(device, MODELS[name], layout, shape) for layout in LAYOUTS}
        size = (shape.batch, 3, shape.size, shape.size)
        self.images = torch.empty(size, dtype=dtype_of(device, shape.type), device=device.device)
        self.labels = torch.zeros(shape.batch, dtype=torch.int64, device=device.device)
        self._fresh(0)

    def _fresh(self, seed: int) -> None:
        generator = torch.Generator(device=self._device.device).manual_seed(seed)
        self.images.normal_(generator=generator)
        self.labels.random_(0, 1000, generator=generator)

    def losses(self) -> dict[str, float]:
        """The losses of one step on the same images; both models begin with the same weights."""
        return {layout: float(x.step(self.images, self.labels)) for layout, x in self.trainings.items()}

    def pairs(self) -> dict[str, Any]:
        """Times of both layouts, by turns."""
        host: dict[str, list[float]] = {layout: [] for layout in LAYOUTS}
        seen = -1

        def sample(layout: str, block: int) -> float:
            nonlocal seen
            training = self.trainings[layout]
            if block != seen:
                seen = block
                self._fresh(1 + block)
                training.step_us(self.images, self.labels, 1)  # the first on new images does not count
            time_us, host_us = training.step_us(self.images, self.labels, self._shape.steps)
            host[layout].append(host_us)
            return time_us

        blocks = self._shape.blocks
        for training in self.trainings.values():
            training.step_us(self.images, self.labels, 3)  # plans, kernels, memory
        pairs = interleave("NCHW", "channels_last", sample, blocks=blocks, doubtful=blocks + 1)
        ratio = judge(pairs).speedup
        return {
            "nchw_ms": median(pairs.pick_us) / 1e3,
            "channels_last_ms": median(pairs.winner_us) / 1e3,
            "speedup": ratio.value,
            "low": ratio.low,
            "high": ratio.high,
            "host_ms": {layout: median(times) / 1e3 for layout, times in host.items()},
            "nchw_us": pairs.pick_us,
            "channels_last_us": pairs.winner_us,
        }

    def transpose_us(self) -> float:
        """The time of transposing the images."""
        runs = [
            self._device.time_us(lambda _: self.images.contiguous(memory_format=torch.channels_last), 0, 20)
            for _ in range(ROUNDS)
        ]
        return median(runs)

    def convolutions(self) -> Counter[ConvProblem]:
        """Every convolution of a step, in all its directions, and how often it runs."""
        found: Counter[ConvProblem] = Counter()

        def seen(module: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            assert isinstance(module, nn.Conv2d)
            forward = _problem(module, inputs[0], output, self._shape.type)
            directions = "FBW" if inputs[0].requires_grad else "FW"  # images need no gradient
            found.update(replace(forward, direction=direction) for direction in directions)

        model = self.trainings["NCHW"].model
        hooks = [x.register_forward_hook(seen) for x in model.modules() if isinstance(x, nn.Conv2d)]  # type: ignore[arg-type]
        self.trainings["NCHW"].step(self.images, self.labels)
        for hook in hooks:
            hook.remove()
        return found


def _problem(conv: nn.Conv2d, x: torch.Tensor, y: torch.Tensor, kind: str) -> ConvProblem:
    (n, c, h, w), (_, k, out_h, out_w) = x.shape, y.shape
    (filter_h, filter_w), (pad_h, pad_w) = conv.kernel_size, conv.padding
    (stride_h, stride_w), (dilation_h, dilation_w) = conv.stride, conv.dilation
    return ConvProblem(
        direction="F",
        n=n,
        c=c,
        h=h,
        w=w,
        k=k,
        filter_h=filter_h,
        filter_w=filter_w,
        pad_h=int(pad_h),
        pad_w=int(pad_w),
        stride_h=stride_h,
        stride_w=stride_w,
        dilation_h=dilation_h,
        dilation_w=dilation_w,
        out_h=out_h,
        out_w=out_w,
        groups=conv.groups,
        **dict.fromkeys(("in_type", "weights_type", "out_type"), kind),
        **dict.fromkeys(("in_layout", "weights_layout", "out_layout"), "NCHW"),
        bias=0,
        mode="convolution",
    )


# ------------------------------------------------------------------------------------------------ foretold


def replayed(context: WorkerContext, problems: Counter[ConvProblem], deadline: float) -> list[dict[str, Any]] | None:
    """Each convolution by itself, in both layouts: medians in µs.  None when the time does not suffice."""
    backend = context.backends["torch"]
    stored = named("layout=NHWC", "stored")
    rows = []
    for problem, count in problems.items():
        if time.monotonic() > deadline:
            return None
        conditions = context.conditions(problem)
        try:
            both = [backend.prepare(problem, solution, conditions) for solution in (DEFAULT, stored)]
        except UnsupportedError as error:
            sys.exit(f"{problem.label}: {error}")
        counts = [executions(x.sample_us(1)) for x in both]
        times: list[list[float]] = [[], []]
        for _ in range(ROUNDS):
            for held, runnable, size in zip(times, both, counts, strict=True):
                held.append(runnable.sample_us(size))
        nchw, last = map(median, times)
        rows.append({"problem": problem.text, "count": count, "nchw_us": nchw, "channels_last_us": last})
        backend.release()
    return rows


def foretold(rows: list[dict[str, Any]], step_ms: float, transpose_us: float) -> dict[str, float]:
    """The expected step in the other layout, and the sums that it is computed from (ms)."""
    nchw, last = (sum(x["count"] * x[key] for x in rows) / 1e3 for key in ("nchw_us", "channels_last_us"))
    return {
        "convolutions_nchw_ms": nchw,
        "convolutions_channels_last_ms": last,
        "transpose_ms": transpose_us / 1e3,
        "channels_last_ms": step_ms - nchw + last + transpose_us / 1e3,
    }


# ------------------------------------------------------------------------------------------------ the program


def measured(device: TorchDevice, name: str, shape: Shape, deadline: float) -> dict[str, Any]:
    """One model: the same loss in both layouts, its step at both settings, and the step foretold."""
    out: dict[str, Any] = {"model": name}
    for setting, benchmark in (("default", False), ("benchmark", True)):
        with torch.backends.cudnn.flags(enabled=True, benchmark=benchmark, deterministic=False, allow_tf32=False):
            comparison = Comparison(device, name, shape)
            losses = comparison.losses()
            one, other = losses.values()
            if not abs(one - other) <= SAME_LOSS * abs(one):
                sys.exit(f"{name}: the losses differ, so one layout computes something else: {losses}")
            out[setting] = comparison.pairs() | {"first_losses": losses}
            out[setting]["last_losses"] = comparison.losses()
        print(_line(name, setting, out[setting]), flush=True)
        if setting == "default":
            problems, transpose_us = comparison.convolutions(), comparison.transpose_us()
        del comparison
        device.empty_cache()
    place = Place(device=device.name)
    context = WorkerContext({"torch": BACKEND.open(place)}, place, Method(), lambda what: None)
    rows = replayed(context, problems, deadline)
    if rows is None:
        print(f"{name}: no time to replay the {len(problems)} convolutions one by one")
        return out
    out["foretold"] = foretold(rows, out["default"]["nchw_ms"], transpose_us)
    out["convolutions"] = rows
    sums = out["foretold"]
    print(
        f"{name}: its {sum(problems.values())} convolutions ({len(problems)} distinct) take "
        f"{sums['convolutions_nchw_ms']:.2f} ms in NCHW, {sums['convolutions_channels_last_ms']:.2f} in channels_last: "
        f"foretold {sums['channels_last_ms']:.2f} ms, measured {out['default']['channels_last_ms']:.2f}",
        flush=True,
    )
    return out


def _line(name: str, setting: str, row: Mapping[str, Any]) -> str:
    low, high = row["low"], row["high"]
    word = "faster" if low > 1 else "slower" if high < 1 else "no difference shown"
    host = ", ".join(f"{ms:.2f}" for ms in row["host_ms"].values())
    return (
        f"{name} ({setting}): {row['nchw_ms']:.2f} → {row['channels_last_ms']:.2f} ms a step, "
        f"×{row['speedup']:.3f} [{low:.3f}, {high:.3f}] {word}; the host enqueues in {host} ms"
    )


def main() -> int:
    """Measure, print, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--type", default="FP16", choices=("FP16", "BF16", "FP32"))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=224, help="height and width of the images")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--results", default=str(Path(__file__).parent / "results"))
    parser.add_argument("--budget", type=float, default=200.0, help="seconds; what is foretold is left out beyond them")
    parser.add_argument("--smoke", action="store_true", help="small images and few steps, to see that it works")
    options = parser.parse_args()
    shape = Shape(options.batch, options.size, options.type, steps=5, blocks=12)
    if options.smoke:
        shape = Shape(2, 64, options.type, steps=1, blocks=2)
    started, quiet = time.monotonic(), dict(idle_facts(options.device))
    device = torch_device(Place(device=options.device))
    rows = [measured(device, name, shape, started + options.budget) for name in options.models.split(",")]
    record = {
        "record": f"layouts{'-smoke' if options.smoke else ''}",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "environment": dict(device.facts),
        "remarks": noise(quiet),
        "shape": vars(shape),
        "seconds": round(time.monotonic() - started, 1),
        "results": rows,
    }
    folder = Path(options.results)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record['record']}-{str(device.facts['device']).replace(' ', '-')}-{record['date'][:10]}.json"
    path.write_text(json.dumps(record, indent=1), encoding="utf-8")
    print(f"{record['seconds']} s on {device.facts['device']}; {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
