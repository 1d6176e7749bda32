"""The measured records of the README, one command each, on a machine with torch and a GPU (no store, no DuckDB).

    python benchmarks/gpu_replay.py gemms  --log cublaslt_mask31_588.log.gz [--wheels DIR] [--smoke]
    python benchmarks/gpu_replay.py wgrads --find-db gfx942130.HIP.fdb.txt.bz2 [--wheels DIR] [--smoke]

``gemms``: every GEMM of a cuBLASLt (or hipBLASLt) log, the library's pick against the best of its heuristic list.  It
fails by itself when the median regret exceeds 1.05: over ordinary shapes that would mean that we measure wrongly.
``wgrads``: a seeded sample of backward-weight convolutions of a MIOpen find-db above 2 GFLOP: PyTorch's default,
benchmark mode, channels_last with and without its transposes, and all of cuDNN's plans.

Two checks of the method itself, on fewer of the same problems (``repeatability-`` and ``null-`` records):

    python benchmarks/gpu_replay.py wgrads --repeat --find-db …     # the same replay twice, in other processes
    python benchmarks/gpu_replay.py wgrads --null --find-db …       # PyTorch's default against copies of itself

``--repeat`` fails below 95 % of findings that confirm again; ``--null`` above 1 % of false findings.

Raw samples, device, driver, versions and date go into one JSON file per record.  ``--wheels`` names a folder of wheels
(nvmath-python, nvidia-cudnn-frontend) to use without installing them.
"""

from __future__ import annotations

import argparse
import bz2
import datetime
import gzip
import importlib.util
import json
import os
import random
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import method_checks

from analyzers.measure.backend import Place, UnsupportedError
from analyzers.measure.backends.torch_operands import conv_shapes
from analyzers.measure.confirm import judge, judge_all
from analyzers.measure.crew import Crew, Limits, Outcome
from analyzers.measure.drift import idle_facts, noise
from analyzers.measure.stats import median
from analyzers.measure.trial import Confirmed, Method, Result
from logparse.formats.hipblaslt import log as blaslt_log
from logparse.formats.miopen.problem_key import problem_from_key
from logparse.model import Call, ConvProblem, GemmProblem, Problem

LARGEST_MEDIAN_REGRET = 1.05
LEAST_FLOPS = 2e9


def main() -> int:
    """Parse, measure, write the record, print a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", choices=("gemms", "wgrads"))
    parser.add_argument("--log", help="cuBLASLt or hipBLASLt log with Trace lines (.gz allowed)")
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
    parser.add_argument("--repeat", action="store_true", help="the same problems twice: how many findings come again")
    parser.add_argument("--null", action="store_true", help="the default against itself: how many findings are false")
    options = parser.parse_args()
    if options.repeat or options.null:
        options.budget, options.count = min(options.budget, 110.0), min(options.count, 16)
    if options.smoke:
        options.budget, options.count = min(options.budget, 55.0), min(options.count, 4)
    with tempfile.TemporaryDirectory() as folder:
        unpack_wheels(options.wheels, folder)
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    if options.record == "gemms":
        problems, workspaces, about = _gemms(options)
        backends = _backends(options, ("cublaslt", "nvmath"))
    else:
        problems, workspaces, about = sampled_wgrads(options.find_db, options.count, options.seed), {}, {}
        backends = _backends(options, ("torch", "torch"), ("cudnn", "cudnn"))
    if options.null:
        return method_checks.null(options, problems[: options.count], _replayed)
    if options.repeat:
        return method_checks.repeat(options, backends, problems[: options.count], workspaces, _replayed)
    quiet = dict(idle_facts(options.device))
    started = time.monotonic()
    outcomes, finished = _replayed(options, backends, problems, workspaces, options.budget)
    record = _record(options, outcomes, about) | {
        "backends": backends,
        "before": quiet,
        "remarks": noise(quiet),
        "finished": finished,
        "seconds": round(time.monotonic() - started, 1),
        "problems_planned": len(problems),
    }
    return _finish(options, record)


def _replayed(
    options: argparse.Namespace,
    backends: Sequence[str],
    problems: Sequence[Problem],
    workspaces: Mapping[str, int],
    budget_s: float,
) -> tuple[list[Outcome], bool]:
    """Race and confirm in fresh processes; the outcomes, and whether the budget sufficed."""
    outcomes: list[Outcome] = []

    def sink(outcome: Outcome, device: str) -> None:
        outcomes.append(outcome)
        print(_line(outcome), flush=True)

    method = Method(limit=options.limit, seed=options.seed)
    crew = Crew(backends, [Place(device=options.device)], method, Limits(budget_s=budget_s), sink)
    return outcomes, crew.run(problems, workspaces)


# ------------------------------------------------------------------------------------------------ what to measure


def _gemms(options: argparse.Namespace) -> tuple[list[Problem], dict[str, int], dict[str, Any]]:
    """Distinct GEMMs of the log, most called first, with the workspace and the pick that it tells."""
    calls: Counter[Problem] = Counter()
    workspaces: dict[str, int] = {}
    picks: dict[str, set[str]] = {}
    for line in _lines(options.log):
        for call in blaslt_log.read(line).records:
            if not isinstance(call, Call) or not isinstance(call.problem, GemmProblem) or call.problem.members:
                continue
            calls[call.problem] += call.count or 1
            text = call.problem.text
            if call.workspace_bytes is not None:
                workspaces[text] = max(workspaces.get(text, 0), call.workspace_bytes)
            if call.solution is not None:
                picks.setdefault(text, set()).add(call.solution.text)
    problems: list[Problem] = [problem for problem, _ in calls.most_common(6 if options.smoke else None)]
    about = {
        problem.text: {"calls": count, "logged_picks": sorted(picks.get(problem.text, ()))}
        for problem, count in calls.items()
    }
    return problems, workspaces, about


def sampled_wgrads(find_db: str | None, count: int, seed: int) -> list[Problem]:
    """A seeded sample of a find-db's W problems above 2 GFLOP that torch can state."""
    found = set()
    for line in _lines(find_db):
        try:
            problem = problem_from_key(line.partition("=")[0])
        except ValueError:
            continue
        if _is_wanted(problem):
            found.add(problem)
    ordered = sorted(found, key=lambda problem: problem.text)
    return random.Random(seed).sample(ordered, min(count, len(ordered)))


def _is_wanted(problem: Problem) -> bool:
    if not isinstance(problem, ConvProblem) or problem.direction != "W" or (problem.flops or 0) <= LEAST_FLOPS:
        return False
    try:
        conv_shapes(problem)
    except UnsupportedError:
        return False
    return problem.in_layout == "NCHW"


def _lines(path: str | None) -> Iterator[str]:
    if path is None:
        sys.exit("this record needs its input: --log for gemms, --find-db for wgrads")
    opened: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(Path(path).suffix, open)
    with opened(path, "rt", encoding="utf-8", errors="replace") as stream:
        for line in stream:
            yield line.rstrip("\n")


def _backends(options: argparse.Namespace, *wanted: tuple[str, str]) -> list[str]:
    if options.backend:
        return str(options.backend).split(",")
    names = [name for name, module in wanted if importlib.util.find_spec(module)]
    return names or ["torch"]


def unpack_wheels(wheels: str | None, folder: str) -> None:
    """Wheels are zip files: unpacked onto the path of this process and of its workers."""
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    for wheel in sorted(Path(wheels).glob("*.whl")) if wheels else ():
        if version in wheel.name or "-none-any" in wheel.name:
            zipfile.ZipFile(wheel).extractall(folder)
    if wheels:
        sys.path.append(folder)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), folder)))


# ------------------------------------------------------------------------------------------------ what came out


def _line(outcome: Outcome) -> str:
    if isinstance(outcome, Confirmed):
        judged = judge(outcome.pairs)
        ratio, word = judged.speedup, "confirmed" if judged.confirmed else "not confirmed"
        return f"  {word} {ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}] {outcome.problem.label}"
    gain = f"{outcome.pick_us:9.2f} → {outcome.best_us:9.2f} µs" if outcome.pick_us and outcome.best_us else "no time"
    return f"{gain} {len(outcome.rows):3d} solutions {outcome.seconds:5.1f} s ({outcome.ended}) {outcome.problem.label}"


def _record(options: argparse.Namespace, outcomes: Sequence[Outcome], about: dict[str, Any]) -> dict[str, Any]:
    results = [x for x in outcomes if isinstance(x, Result)]
    confirmed = [x for x in outcomes if isinstance(x, Confirmed)]
    judged, kept = judge_all({x.problem.text: x.pairs for x in confirmed})
    regrets = [_regret(result) for result in results]
    known = sorted(x for x in regrets if x is not None)
    return {
        "record": options.record,
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
            "drifted": sum(x.drifted for x in results),
        },
        "results": [_result(x) | about.get(x.problem.text, {}) for x in results],
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


def _regret(result: Result) -> float | None:
    """The pick's median over the best median of all solutions that were right."""
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
        "drift": result.drift,
        "drifted": result.drifted,
        "seconds": result.seconds,
        "rows": rows,
    }


def _finish(options: argparse.Namespace, record: dict[str, Any]) -> int:
    device = str(record["environment"].get("device", "unknown")).replace(" ", "-")
    folder = Path(options.results)
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{options.record}{'-smoke' if options.smoke else ''}-{device}-{record['date'][:10]}.json"
    (folder / name).write_text(json.dumps(record, indent=1), encoding="utf-8")
    print(json.dumps(record["summary"], indent=1))
    print(f"{record['seconds']} s on {device}; {folder / name}")
    regret = record["summary"]["median_regret"]
    if options.record == "gemms" and not regret <= LARGEST_MEDIAN_REGRET:
        print(f"median regret {regret:.3f} is above {LARGEST_MEDIAN_REGRET}: this measurement is not to be trusted")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
