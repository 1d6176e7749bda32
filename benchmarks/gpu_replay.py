"""Make the measured records of docs/results.md, one command each, on a machine with torch and a GPU.

    python benchmarks/gpu_replay.py gemms  --log cublaslt_mask31_588.log.gz [--wheels DIR] [--smoke]
    python benchmarks/gpu_replay.py gemms  --log profile_mask64.log         # hipBLASLt's profile lines do as well
    python benchmarks/gpu_replay.py wgrads --find-db gfx942130.HIP.fdb.txt.bz2 [--wheels DIR] [--smoke]
    python benchmarks/gpu_replay.py wgrads --flagged --find-db …            # only problems that are slow in the find-db
    python benchmarks/gpu_replay.py wgrads --direction F --find-db …        # ``fprops``; B: ``dgrads``
    python benchmarks/gpu_replay.py wgrads --of-models [--direction F]      # ``wgrads-models``, ``fprops-models`` …

They need no store and no DuckDB.

``gemms`` measures every GEMM of a cuBLASLt or hipBLASLt log (Trace, bench or profile lines): the library's pick against
the best of its heuristic list.  It fails if the median regret exceeds 1.05, because over ordinary shapes that would be
an error of measurement.

``wgrads`` measures a seeded sample of backward-weight convolutions of a MIOpen find-db above 2 GFLOP: PyTorch's
default, benchmark mode, channels_last with and without its transposes, and all of cuDNN's plans.  ``logparse
recommend`` calls some of them slow in the find-db (on AMD's device).  The output counts how many of them are confirmed
here, and lists the others.

``--of-models`` measures convolutions of torchvision's models in BF16 instead, a seeded sample of each, with the names
of the models.  Their winners are not confirmed, because ``records.py`` needs only the times.

Two checks of the method itself run on 16 of the same problems in 220 s (``repeatability-`` and ``null-`` records):

    python benchmarks/gpu_replay.py wgrads --repeat --find-db …     # the same replay twice, in other processes
    python benchmarks/gpu_replay.py wgrads --null --find-db …       # PyTorch's default against copies of itself

``--repeat`` fails if fewer than 95 % of the findings confirm again.  ``--null`` fails above 1 % of false findings.

Raw samples, device, driver, versions and date go into one JSON file per record.  ``--wheels`` names a folder of wheels
(nvmath-python, nvidia-cudnn-frontend) to use without installing them.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import method_checks
from inputs import gemms_of, model_convolutions, sampled_wgrads, slow_wgrads

from analyzers.evidence.confirmations import judge, judge_all
from analyzers.evidence.statistics.intervals import median
from analyzers.replay.device_workers import LocalDevice
from analyzers.replay.drift import idle_facts, noise
from analyzers.replay.results import Confirmed, Method, Result
from analyzers.replay.scheduler import Limits, Outcome, Scheduler
from logparse.libraries.kinds.backend import Place
from logparse.model import Problem

LARGEST_MEDIAN_REGRET = 1.05

KINDS = {"W": "wgrads", "F": "fprops", "B": "dgrads"}
"""The name of the record for each direction of a convolution, for example ``wgrads`` for W (weight gradient)."""


def main() -> int:
    """Read the command line, measure, write the record, and print a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", choices=("gemms", "wgrads"))
    parser.add_argument("--log", help="cuBLASLt or hipBLASLt log with Trace, bench or profile lines (.gz allowed)")
    parser.add_argument("--find-db", help="MIOpen find-db text (.bz2 allowed)")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--backend", help="comma-separated; default: what is importable")
    parser.add_argument("--results", default=str(Path(__file__).parent / "results"))
    parser.add_argument("--wheels", help="folder of wheels to put on the path")
    parser.add_argument("--budget", type=float, default=280.0, help="seconds in all, confirmations included")
    parser.add_argument("--count", type=int, default=64, help="problems of the wgrads sample")
    parser.add_argument("--limit", type=int, default=200, help="solutions per problem")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="few problems in a minute, to see that it works")
    parser.add_argument("--flagged", action="store_true", help="wgrads: only what the find-db shows as slow")
    parser.add_argument("--direction", choices=tuple(KINDS), default="W", help="wgrads: another pass instead")
    parser.add_argument("--of-models", action="store_true", help="wgrads: convolutions of torchvision's models")
    parser.add_argument("--per-model", type=int, default=9, help="problems of each model")
    parser.add_argument("--repeat", action="store_true", help="the same problems twice: how many findings come again")
    parser.add_argument("--null", action="store_true", help="the default against itself: how many findings are false")
    options = parser.parse_args()
    if options.repeat or options.null:
        options.budget, options.count = min(options.budget, 220.0), min(options.count, 16)
    if options.smoke:
        options.budget, options.count = min(options.budget, 55.0), min(options.count, 4)
    with tempfile.TemporaryDirectory() as folder:
        unpack_wheels(options.wheels, folder)
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    slow: list[Problem] = []
    workspaces: Mapping[str, int] = {}
    about: Mapping[str, Mapping[str, Any]] = {}
    if options.record == "gemms":
        gemms = gemms_of(options.log)
        problems, workspaces, about = gemms.problems[: 6 if options.smoke else None], gemms.workspaces, gemms.about
        options.kind = "-".join(["gemms", *sorted(set(gemms.categories) - {"trace"})])
        backends = _backends(options, ("cublaslt", "nvmath"))
    elif options.of_models:
        found = model_convolutions(options.direction, options.per_model, options.seed)
        problems, about = list(found), {x.text: {"models": models} for x, models in found.items()}
        options.kind = f"{KINDS[options.direction]}-models"
        backends = _backends(options, ("torch", "torch"), ("cudnn", "cudnn"))
    else:
        slow = slow_wgrads(options.find_db) if options.direction == "W" else []
        sampled = sampled_wgrads(options.find_db, options.count, options.seed, options.direction)
        problems = slow[: options.count] if options.flagged else sampled
        options.kind = "wgrads-flagged" if options.flagged else KINDS[options.direction]
        backends = _backends(options, ("torch", "torch"), ("cudnn", "cudnn"))
    if options.null:
        return method_checks.null(options, problems[: options.count], _replayed)
    if options.repeat:
        return method_checks.repeat(options, backends, problems[: options.count], workspaces, _replayed)
    quiet = dict(idle_facts(options.device))
    started = time.monotonic()
    outcomes, finished = _replayed(options, backends, problems, workspaces, options.budget)
    record = _record(options, outcomes, about) | {
        "input": "torchvision" if options.of_models else Path(options.log or options.find_db).name,
        "backends": backends,
        "before": quiet,
        "remarks": noise(quiet),
        "finished": finished,
        "seconds": round(time.monotonic() - started, 1),
        "problems_planned": len(problems),
    }
    if options.kind == KINDS["W"]:
        record["slow_in_find_db"] = _said_slow(slow, record)
    return _finish(options, record)


def _replayed(
    options: argparse.Namespace,
    backends: Sequence[str],
    problems: Sequence[Problem],
    workspaces: Mapping[str, int],
    budget_s: float,
) -> tuple[list[Outcome], bool]:
    """Time the kernels for each GEMM or convolution, and confirm the fastest in fresh processes.

    Returns the results, and whether the time (``budget_s``) was enough.
    """
    outcomes: list[Outcome] = []

    def sink(outcome: Outcome, device: str) -> None:
        outcomes.append(outcome)
        print(_line(outcome), flush=True)

    processes = 0 if options.of_models else Method.processes
    method = Method(limit=options.limit, seed=options.seed, processes=processes)
    device = LocalDevice(Place(device=options.device))
    scheduler = Scheduler(backends, [device], method, Limits(budget_s=budget_s), sink)
    return outcomes, scheduler.run(problems, workspaces)


def _backends(options: argparse.Namespace, *wanted: tuple[str, str]) -> list[str]:
    if options.backend:
        return str(options.backend).split(",")
    names = [name for name, module in wanted if importlib.util.find_spec(module)]
    return names or ["torch"]


def unpack_wheels(wheels: str | None, folder: str) -> None:
    """Unpack Python wheels into ``folder``, and make them importable in this process and its workers.

    Ends the program if a package that logparse needs is still missing.
    """
    # Machines with GPUs often lack packages that logparse needs, and then a long run would read no trace.
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    for wheel in sorted(Path(wheels).glob("*.whl")) if wheels else ():
        if version in wheel.name or "-none-any" in wheel.name:
            zipfile.ZipFile(wheel).extractall(folder)
    if wheels:
        sys.path.append(folder)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), folder)))
    if missing := [x for x in ("duckdb", "msgspec", "xxhash") if importlib.util.find_spec(x) is None]:
        sys.exit(f"error: {', '.join(missing)} cannot be imported; download the wheels and name their folder: --wheels")


# ------------------------------------------------------------------------------------------------ what came out


def _line(outcome: Outcome) -> str:
    if isinstance(outcome, Confirmed):
        judged = judge(outcome.pairs)
        ratio, word = judged.speedup, "confirmed" if judged.confirmed else "not confirmed"
        return f"  {word} {ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}] {outcome.problem.label}"
    gain = f"{outcome.pick_us:9.2f} → {outcome.best_us:9.2f} µs" if outcome.pick_us and outcome.best_us else "no time"
    return f"{gain} {len(outcome.rows):3d} solutions {outcome.seconds:5.1f} s ({outcome.ended}) {outcome.problem.label}"


def _record(
    options: argparse.Namespace, outcomes: Sequence[Outcome], about: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    results = [x for x in outcomes if isinstance(x, Result)]
    confirmed = [x for x in outcomes if isinstance(x, Confirmed)]
    judged, kept = judge_all({x.problem.text: x.pairs for x in confirmed})
    regrets = [_regret(result) for result in results]
    known = sorted(x for x in regrets if x is not None)
    return {
        "record": options.kind,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "seed": options.seed,
        "smoke": options.smoke,
        "environment": dict(next((x.facts for x in outcomes if x.facts), {})),
        "summary": {
            "problems": len(results),
            "with_pick": len(known),
            "median_regret": median(known),
            "p90_regret": known[int(0.9 * len(known))] if known else None,
            "max_regret": known[-1] if known else None,
            "pick_total_us": sum(x.pick_us or 0.0 for x in results if x.pick_us and x.best_us),
            "best_total_us": sum(x.best_us or 0.0 for x in results if x.pick_us and x.best_us),
            "flagged": len(confirmed),
            "confirmed": len(kept),
            "statuses": dict(Counter(row.status for x in results for row in x.rows)),
        },
        "results": [_result(x) | dict(about.get(x.problem.text, {})) for x in results],
        "confirmations": [
            {
                "problem": x.problem.text,
                "pick": x.pick.text,
                "winner": x.winner.text,
                "pick_us": x.pairs.pick_us,
                "winner_us": x.pairs.winner_us,
                "speedup": judged[x.problem.text].speedup.value,
                "low": judged[x.problem.text].speedup.low,
                "high": judged[x.problem.text].speedup.high,
                "p": judged[x.problem.text].p,
                "confirmed": x.problem.text in kept,
            }
            for x in confirmed
        ],
    }


def _said_slow(slow: Sequence[Problem], record: Mapping[str, Any]) -> dict[str, Any]:
    """Test whether convolutions that MIOpen's file of measured times shows as slow are slow on this GPU, too.

    Returns counts, and lists of the convolutions that are slow and that are not.
    """
    # A convolution is slow here if a second measurement confirmed that another kernel is faster than PyTorch's default.
    measured = {row["problem"]: row for row in record["results"] if row["pick"]}
    tried = {row["problem"]: row for row in record["confirmations"]}
    confirmed: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for problem in slow:
        result, pair = measured.get(problem.text), tried.get(problem.text)
        if pair:
            values = {key: pair[key] for key in ("speedup", "low", "high", "winner")}
            (confirmed if pair["confirmed"] else others).append({"label": problem.label, **values})
        elif result:
            why = result["ended"] if result["best"] == result["pick"] else "no time to confirm it"
            others.append({"label": problem.label, "why": why})
    return {
        "in_find_db": len(slow),
        "measured": len(confirmed) + len(others),
        "confirmed": confirmed,
        "not_confirmed": others,
        "confirmed_by_stored_layout": sum("stored" in x["winner"] for x in confirmed),
    }


def _said_slow_lines(result: Mapping[str, Any]) -> list[str]:
    confirmed, others = result["confirmed"], result["not_confirmed"]
    head = (
        f"slow in the find-db: {result['in_find_db']} above 2 GFLOP, {result['measured']} measured here; "
        f"{len(confirmed)} confirmed, {len(others)} not confirmed "
        f"({result['confirmed_by_stored_layout']} of the confirmed by tensors stored in the other layout)"
    )

    def said_of(x: Mapping[str, Any]) -> str:
        if "why" in x:
            return f"{x['label']}: {x['why']}"
        return f"{x['label']}: ×{x['speedup']:.3f} [{x['low']:.3f}, {x['high']:.3f}] {x['winner']}"

    return [
        head,
        *(f"  confirmed     {said_of(x)}" for x in confirmed),
        *(f"  not confirmed {said_of(x)}" for x in others),
    ]


def _regret(result: Result) -> float | None:
    """Return how many times as long the library's choice takes as the fastest kernel with a right result.

    Both times are medians.
    """
    best = min((row.time_us for row in result.rows if row.status == "ok" and row.time_us), default=None)
    return result.pick_us / best if best and result.pick_us else None


def _result(result: Result) -> dict[str, Any]:
    rows = [
        {
            "solution": row.solution.text,
            "status": row.status,
            "time_us": row.time_us,
            "samples_us": row.samples_us,
            "workspace_bytes": row.workspace_bytes,
            "error": row.error,
        }
        for row in result.rows
    ]
    return {
        "problem": result.problem.text,
        "label": result.problem.label,
        "pick": result.pick.text if result.pick else None,
        "best": result.best.text if result.best else None,
        "ended": result.ended,
        "seconds": result.seconds,
        "rows": rows,
    }


def _finish(options: argparse.Namespace, record: dict[str, Any]) -> int:
    device = str(record["environment"].get("device", "unknown")).replace(" ", "-")
    folder = Path(options.results)
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{options.kind}{'-smoke' if options.smoke else ''}-{device}-{record['date'][:10]}.json"
    (folder / name).write_text(json.dumps(record, indent=1), encoding="utf-8")
    print(json.dumps(record["summary"], indent=1))
    for line in _said_slow_lines(record["slow_in_find_db"]) if "slow_in_find_db" in record else ():
        print(line)
    print(f"{record['seconds']} s on {device}; {folder / name}")
    regret = record["summary"]["median_regret"]
    if options.record == "gemms" and not regret <= LARGEST_MEDIAN_REGRET:
        print(f"median regret {regret:.3f} is above {LARGEST_MEDIAN_REGRET}: this measurement is not to be trusted")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
