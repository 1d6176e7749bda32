"""Test whether actions save as much GPU time per training step as ``recommend`` predicts.

    python benchmarks/actions.py [--models resnet50,llama] [--device cuda] [--steps 3] [--small] [--out FILE]
    python benchmarks/actions.py --models torchvision.densenet121,transformers.BertForMaskedLM    # other people's
    python benchmarks/actions.py --merge FILE… --out FILE

Each model runs unchanged under a profiler, and its trace is ingested.  ``replay`` times each problem under each action.
``recommend`` predicts the time under each action.  Then the model runs under every action, each time in a process of
its own with the generated ``apply.py`` (because PyTorch keeps cuDNN's plans for the life of a thread).  The GPU time
per step in that run's trace is compared with the prediction.  GPU time is the time of all kernels of a trace.  If
kernels of one operator overlap, the time in which any of them runs counts.

On a CPU, the operators' own times are used in place of kernels (``as_device``).  This only tests that the program runs.

For each model and action, the record holds both times and the interval.  The summary states the requirements:

- The predicted time is within 5 % of the measured time for 90 % of the pairs.
- The sign is right if the change exceeds 2 %.
- The action that is ranked first is the measured best, or within 1 % of it.

Models in the record of an earlier call stay there.  Several calls at once, one per GPU (``CUDA_VISIBLE_DEVICES``),
write a file each; ``--merge`` joins the files.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from action_models import MODELS
from action_runs import BY_HAND, Run, train

from analyzers.actions import ACTIONS
from analyzers.compare.both_runs import by_group
from analyzers.evidence.runs import tables_of
from analyzers.evidence.tables import Settings
from analyzers.job.gpu_time import steps, traced_us
from analyzers.recommend import apply_module
from analyzers.recommend.apply_module import NAME
from analyzers.recommend.documents import report
from analyzers.recommend.verb import advise, write
from analyzers.replay.replay import Options, replay
from analyzers.replay.results import Method
from logparse.executors.processes import started
from logparse.ingest import ingest
from logparse.store import Store, open_store

WITHIN, SIGN, BEST = 0.05, 0.02, 0.01
_MOST_S = 600
"""A run of a model is ended after this many seconds."""
_IMPORTS = ("torch", "torch.profiler", "analyzers.replay.worker")
"""Modules that every run of a model and every worker process of a replay needs.

One process imports them in advance for all.
"""
_ENVIRONMENT = ("device", "pytorch", "cudnn", "small")
"""Names of the facts that must be equal in all records that are merged."""


# ------------------------------------------------------------------------------------------------ one model


def measure_model(name: str, options: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Run a model unchanged and with each change, and yield its record after each change.

    The record has the time without changes, and for each change the predicted and the measured time.
    """
    store = open_store(str(folder / "store"), create=True)
    begun = time.monotonic()
    _run(name, options, folder / "as_is.json")
    ingest([str(folder / "as_is.json")], store, run="as_is")
    traced = time.monotonic()
    method = Method(cache="hot", turns=2) if options.small else Method()
    replay(store, Options(devices=options.devices, run="as_is", only="actions", method=method))
    replayed = time.monotonic()
    settings = Settings()
    found = advise(store, settings, "as_is")
    write(found, settings, folder / "overrides")
    for line in report(found, []).splitlines():
        _say(f"  {line}")
    now = _per_step(store, "as_is")
    module, usable = folder / "overrides" / NAME, [x for x in found.actions if apply_module.has_lines(x)]
    rows: list[dict[str, Any]] = []

    def record() -> dict[str, Any]:
        return {
            "now_us": now,
            "steps": options.steps,
            "trace_s": round(traced - begun, 1),
            "replay_s": round(replayed - traced, 1),
            "runs_s": round(time.monotonic() - replayed, 1),
            "problems": len({x.label for y in found.actions for x in y.parts}),
            "actions": rows,
            "not_run": [x.action.name for x in usable[len(rows) :]],
            "by_hand": [x.action.name for x in found.actions if x not in usable],
            "not_offered": [x.name for x in ACTIONS if x.name not in {y.action.name for y in found.actions}],
        }

    yield record()
    with ThreadPoolExecutor(1) as runs:  # one run after another; each trace is ingested while the next run goes on
        traces = [(x.action.name, folder / f"{x.action.name}.json") for x in usable]
        ran = [runs.submit(_run, name, options, trace, module, action) for action, trace in traces]
        for x, run in zip(usable, ran, strict=True):
            rows.append(_row(name, x, now, folder, store, run))
            yield record()


def _row(name: str, x: Any, now: float, folder: Path, store: Store, run: Future[None]) -> dict[str, Any]:
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
    try:
        run.result()
    except RuntimeError as error:
        return {**row, "failed": str(error)[-400:]}
    trace = folder / f"{action}.json"
    if (note := trace.with_suffix(BY_HAND)).exists():
        return {**row, "by_hand": note.read_text(encoding="utf-8")}
    ingest([str(trace)], store, run=action)
    then = _per_step(store, action)
    row |= {"measured_us": then, "error": row["predicted_us"] / then - 1, "groups": _groups(x, store, action, per)}
    _say(f"{name} {action}: {now / 1e3:.3f} → predicted {row['predicted_us'] / 1e3:.3f}, measured {then / 1e3:.3f} ms")
    return row


def _groups(x: Any, store: Store, action: str, per: float) -> dict[str, list[float]]:
    """Return three times for each kind of operator, µs per step.

    They are the time without the change, the predicted time, and the measured time with the change.
    """
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


def _run(name: str, options: argparse.Namespace, trace: Path, apply: Path | None = None, action: str = "") -> None:
    """Run a model once in a process of its own. Raises RuntimeError with the traceback of the run if it fails."""
    run = Run(
        model=name,
        device=options.device,
        small=options.small,
        steps=options.steps,
        trace=str(trace),
        apply=str(apply or ""),
        action=action,
    )
    failed = trace.with_suffix(".error")
    process = started(train, run, str(failed), imports=_IMPORTS)
    process.join(_MOST_S)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise RuntimeError(f"no end within {_MOST_S} s")
    if process.exitcode:
        raise RuntimeError(failed.read_text(encoding="utf-8") if failed.exists() else f"exit {process.exitcode}")


def _say(text: str) -> None:
    print(text, flush=True)


# ------------------------------------------------------------------------------------------------ what is owed


def summary(models: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Summarise how well the predicted step times of all models agree with the measured ones.

    The result states for which fraction of the changes the prediction was right, and whether the goals of this
    benchmark are met.
    """
    pairs = [(name, model["now_us"], x) for name, model in models.items() for x in model["actions"] if "error" in x]
    within = [abs(x["error"]) <= WITHIN for _, _, x in pairs]
    moved = [(now, x) for _, now, x in pairs if abs(x["measured_us"] / now - 1) > SIGN]
    signs = [(x["measured_us"] < now) == (x["predicted_us"] < now) for now, x in moved]
    firsts = []
    for name, model in models.items():
        # Actions against waiting predict no GPU time, so they have no error.
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


def merge_records(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the results (records) of several calls of this program into one.

    If several records contain the same model, the last one is used. Raises ValueError if the records come from
    different machines or library versions.
    """
    out: dict[str, Any] = {"models": {}}
    for record in records:
        theirs = {x: record[x] for x in _ENVIRONMENT if x in record}
        if any(out.setdefault(x, value) != value for x, value in theirs.items()):
            ours = {x: out[x] for x in theirs}
            raise ValueError(f"records of different environments: {ours} and {theirs}")
        out["models"] |= record["models"]
    return {**out, "summary": summary(out["models"])}


def _write_record(record: Mapping[str, Any], out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="names, joined by commas")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cuda", "cpu"))
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="sizes for a test on a CPU")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--merge", type=Path, nargs="+", default=(), help="records to join, instead of measuring")
    options = parser.parse_args()
    results = Path(__file__).parent / "results"
    if options.merge:
        record = merge_records([json.loads(path.read_text(encoding="utf-8")) for path in options.merge])
        out = options.out or results / f"actions-{record['device']}-{datetime.date.today()}.json"
    else:
        record, out = _measure_models(options, results)
    _write_record(record, out)
    _say(json.dumps(record["summary"], indent=1))
    _say(f"wrote {out}")


def _measure_models(options: argparse.Namespace, results: Path) -> tuple[dict[str, Any], Path]:
    """Measure the models that the user chose. Return the results, and the path of the file in which they are."""
    # The file is written again after each change that was measured. Results of other models that the file contained
    # before are kept.
    options.devices = ("cuda:0",) if options.device == "cuda" else ("cpu",)
    if options.device == "cpu":
        # With more threads, the threads would wait for each other, and the times would depend on the machine's load.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    device = torch.cuda.get_device_name().replace(" ", "-") if options.device == "cuda" else "cpu"
    environment = (device, torch.__version__, torch.backends.cudnn.version(), options.small)
    out = options.out or results / f"actions-{device}-{datetime.date.today()}.json"
    before = [json.loads(out.read_text(encoding="utf-8"))] if out.exists() else []
    new: dict[str, Any] = {**dict(zip(_ENVIRONMENT, environment, strict=True)), "models": {}}
    record = merge_records([*before, new])
    for name in options.models.split(","):
        with tempfile.TemporaryDirectory(prefix="logparse-actions-") as folder:
            for model in measure_model(name, options, Path(folder)):
                new["models"][name] = model
                record = merge_records([*before, new])
                _write_record(record, out)
    return record, out


if __name__ == "__main__":
    main()
