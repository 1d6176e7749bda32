"""Whether what an action promises for a whole job comes true: predicted against measured GPU time per training step.

    python benchmarks/actions.py [--models resnet50,llama] [--device cuda] [--steps 5] [--small] [--out FILE]

Each model runs as it is, under a profiler; its trace is ingested, ``replay`` times what each problem runs under each
action, and the actions of ``recommend`` are what is promised.  Then the model runs under every action, each in a
process of its own with the generated ``apply.py`` (PyTorch keeps cuDNN's plans for the life of a thread), and the GPU
time per step of its trace is what was gained.  GPU time is the sum of all kernels of a trace.

On a CPU the operators' own times stand for kernels (``as_device``): it shows that all parts fit together.

The record holds, for each model and action, both times and the interval; the summary states what is owed: the predicted
time within 5 % of the measured for 90 % of the pairs, the right sign where the change exceeds 2 %, and the action that
is ranked first the measured best or within 1 % of it.  Models that are in the record of an earlier call stay there.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from action_models import MODELS

from analyzers.actions import ACTIONS
from analyzers.analyzer import Settings
from analyzers.evidence.gpu_time import steps, traced_us
from analyzers.evidence.runs import tables_of
from analyzers.measure.replay import Options, replay
from analyzers.proof.verify_actions import by_group
from analyzers.recommend.apply_module import NAME
from analyzers.recommend.render import lines
from analyzers.recommend.verb import advise, write
from logparse.formats.traces.torch.operands import WITHOUT_KERNELS
from logparse.formats.traces.torch.operators import OPERATORS
from logparse.ingest import ingest
from logparse.store import Store, open_store

WITHIN, SIGN, BEST = 0.05, 0.02, 0.01
_WARM_UP = 3


# ------------------------------------------------------------------------------------------------ one run, in a process


def run(name: str, device: torch.device, small: bool, count: int, trace: Path, apply: Path | None, action: str) -> None:
    """Train for a few steps, the last ``count`` under a profiler that writes ``trace``."""
    torch.manual_seed(0)
    module = _imported(apply) if apply else None
    if module:
        module.settings(action)
    chosen = MODELS[name]
    model, inputs, loss_of = chosen.make(device, small)
    if module:
        model = module.model(model, action)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step() -> None:
        cast = contextlib.nullcontext()
        if chosen.autocast is not None:
            cast = torch.autocast(device.type, dtype=chosen.autocast)  # type: ignore[assignment]
        with cast:
            output = model(*inputs)
        loss_of(output).backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(_WARM_UP):
        step()
    kinds = [torch.profiler.ProfilerActivity.CPU]
    kinds += [torch.profiler.ProfilerActivity.CUDA] if device.type == "cuda" else []
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=count, repeat=1)
    with torch.profiler.profile(activities=kinds, record_shapes=True, schedule=schedule) as profiler:
        for _ in range(1 + count):
            step()
            if device.type == "cuda":
                torch.cuda.synchronize()
            profiler.step()
    profiler.export_chrome_trace(str(trace))
    if device.type != "cuda":
        trace.write_text(json.dumps(as_device(json.loads(trace.read_text(encoding="utf-8")))), encoding="utf-8")


def _imported(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("apply", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def as_device(trace: dict[str, Any]) -> dict[str, Any]:
    """The trace of a CPU with a kernel for each operator: the whole time of a problem, else an operator's own time."""
    events = [x for x in trace["traceEvents"] if x.get("cat") == "cpu_op" and x["name"].startswith("aten::")]
    kernels = []
    for thread in {x["tid"] for x in events}:
        rows = sorted((x for x in events if x["tid"] == thread), key=lambda x: (x["ts"], -x["dur"]))
        kernels += _kernels(rows)
    trace["traceEvents"] += kernels
    return trace


def _kernels(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """``rows`` are operators of one thread by their start, the outer ones first."""
    children: dict[int, list[int]] = {i: [] for i in range(-1, len(rows))}
    stack: list[int] = []
    for i, row in enumerate(rows):
        while stack and rows[stack[-1]]["ts"] + rows[stack[-1]]["dur"] <= row["ts"]:
            stack.pop()
        children[stack[-1] if stack else -1].append(i)
        stack.append(i)

    def holds_problem(i: int) -> bool:
        return any(rows[x]["name"] in OPERATORS or holds_problem(x) for x in children[i])

    out: list[dict[str, Any]] = []

    def visit(i: int) -> None:
        row = rows[i]
        inner = [x for x in children[i] if rows[x]["name"] not in WITHOUT_KERNELS]
        whole = not inner or (row["name"] in OPERATORS and not holds_problem(i))
        own = row["dur"] - (0 if whole else sum(rows[x]["dur"] for x in inner))
        if own > 0 and row["name"] not in WITHOUT_KERNELS:
            place = {"External id": row["args"]["External id"], "device": 0}
            kernel = {"ph": "X", "cat": "kernel", "name": row["name"], "pid": 0, "tid": 7, "ts": row["ts"], "dur": own}
            out.append({**kernel, "args": place})
        for x in [] if whole else children[i]:
            visit(x)

    for i in children[-1]:
        visit(i)
    return out


# ------------------------------------------------------------------------------------------------ one model


def measured(name: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The record of a model: as it is, what each action promises, and what it gives."""
    store = open_store(str(folder / "store"), create=True)
    started = time.monotonic()
    _child(name, options, folder / "as_is.json")
    ingest([str(folder / "as_is.json")], store, run="as_is")
    _say(f"{name}: traced in {time.monotonic() - started:.0f} s")
    started = time.monotonic()
    replay(store, Options(devices=options.devices, run="as_is", stages=frozenset({"actions"})))
    replayed = time.monotonic() - started
    settings = Settings()
    found = advise(store, settings, "as_is")
    write(found, settings, (), folder / "overrides")
    for line in lines(found):
        _say(f"  {line}")
    now = _per_step(store, "as_is")
    rows = [_row(name, x, now, options, folder, store) for x in found.actions]
    return {
        "now_us": now,
        "replay_s": round(replayed, 1),
        "problems": len({x.label for y in found.actions for x in y.parts}),
        "actions": rows,
        "not_offered": [x.name for x in ACTIONS if x.name not in {y.action.name for y in found.actions}],
    }


def _row(name: str, x: Any, now: float, options: argparse.Namespace, folder: Path, store: Store) -> dict[str, Any]:
    per, action = x.steps or 1.0, x.action.name
    row = {
        "action": action,
        "predicted_us": x.then_us / per,
        "low_us": x.low_us / per,
        "high_us": x.high_us / per,
        "changed_share": x.changed_us / x.now_us,
        "measured_share": x.measured_share,
        "losers": len(x.losers),
    }
    trace = folder / f"{action}.json"
    try:
        _child(name, options, trace, folder / "overrides" / NAME, action)
    except subprocess.CalledProcessError as error:
        return {**row, "failed": str(error.stderr)[-400:]}
    ingest([str(trace)], store, run=action)
    then = _per_step(store, action)
    row |= {"measured_us": then, "error": row["predicted_us"] / then - 1, "groups": _groups(x, store, action, per)}
    _say(f"{name} {action}: {now / 1e3:.3f} → predicted {row['predicted_us'] / 1e3:.3f}, measured {then / 1e3:.3f} ms")
    return row


def _groups(x: Any, store: Store, action: str, per: float) -> dict[str, list[float]]:
    """By kind of operator: µs per step as it is, predicted, and measured under the action."""
    before, after = (_by_group(store, run) for run in ("as_is", action))
    change: dict[str, float] = {}
    for part in x.parts:
        change[part.group] = change.get(part.group, 0.0) + (part.then_us - part.now_us) / per
    names = sorted({*before, *after, *change})
    return {
        key: [
            round(v, 2)
            for v in (before.get(key, 0.0), before.get(key, 0.0) + change.get(key, 0.0), after.get(key, 0.0))
        ]
        for key in names
        if max(before.get(key, 0.0), after.get(key, 0.0)) > 0.002 * x.now_us / per
    }


def _by_group(store: Store, run: str) -> dict[str, float]:
    tables = tables_of(store, run)
    count = steps(tables, Settings())[0] or 1.0
    return {name: us / count for name, us in by_group(tables).items()}


def _per_step(store: Store, run: str) -> float:
    tables = tables_of(store, run)
    return (traced_us(tables) or 0.0) / (steps(tables, Settings())[0] or 1.0)


def _child(name: str, options: argparse.Namespace, trace: Path, apply: Path | None = None, action: str = "") -> None:
    command = [sys.executable, __file__, "--run", name, "--device", options.device, "--trace", str(trace)]
    command += ["--steps", str(options.steps), *(["--small"] if options.small else [])]
    command += ["--apply", str(apply), "--action", action] if apply else []
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)


def _say(text: str) -> None:
    print(text, flush=True)


# ------------------------------------------------------------------------------------------------ what is owed


def summary(models: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What is owed, over all models of a record."""
    pairs = [(name, model["now_us"], x) for name, model in models.items() for x in model["actions"] if "error" in x]
    within = [abs(x["error"]) <= WITHIN for _, _, x in pairs]
    moved = [(now, x) for _, now, x in pairs if abs(x["measured_us"] / now - 1) > SIGN]
    signs = [(x["measured_us"] < now) == (x["predicted_us"] < now) for now, x in moved]
    firsts = []
    for name, model in models.items():
        ran = [x for x in model["actions"] if "error" in x]
        if ran:
            best = min(model["now_us"], *(x["measured_us"] for x in ran))
            first = min(ran, key=lambda x: x["predicted_us"])
            took = first["measured_us"] if first["predicted_us"] < model["now_us"] else model["now_us"]
            firsts.append({"model": name, "first": first["action"], "above_best": took / best - 1})
    return {
        "pairs": len(pairs),
        "within_5_percent": sum(within) / len(within) if within else None,
        "moved_by_2_percent": len(moved),
        "right_sign": sum(signs) / len(signs) if signs else None,
        "first_is_best": firsts,
        "kept": bool(pairs)
        and sum(within) >= 0.9 * len(within)
        and all(signs)
        and all(x["above_best"] <= BEST for x in firsts),
        "failed": [
            f"{name} {x['action']}" for name, model in models.items() for x in model["actions"] if "failed" in x
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="names, joined by commas")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cuda", "cpu"))
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="sizes for a test on a CPU")
    parser.add_argument("--out", type=Path)
    for name in ("--run", "--trace", "--apply", "--action"):
        parser.add_argument(name, default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.devices = ("cuda:0",) if options.device == "cuda" else ("cpu",)
    if options.run:
        apply = Path(options.apply) if options.apply else None
        trace, device = Path(options.trace), torch.device(options.device)
        run(options.run, device, options.small, options.steps, trace, apply, options.action)
        return
    device_name = torch.cuda.get_device_name().replace(" ", "-") if options.device == "cuda" else "cpu"
    out = options.out or Path(__file__).parent / "results" / f"actions-{device_name}-{datetime.date.today()}.json"
    record: dict[str, Any] = {"models": {}}
    if out.exists():
        record = json.loads(out.read_text(encoding="utf-8"))
    for name in options.models.split(","):
        with tempfile.TemporaryDirectory(prefix="logparse-actions-") as folder:
            record["models"][name] = measured(name, options, Path(folder))
        record |= {"device": device_name, "pytorch": torch.__version__, "small": options.small, "steps": options.steps}
        record |= {"cudnn": torch.backends.cudnn.version(), "summary": summary(record["models"])}
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    _say(json.dumps(record["summary"], indent=1))
    _say(f"wrote {out}")


if __name__ == "__main__":
    main()
