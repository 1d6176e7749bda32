"""Compare ``replay --propose neighbours`` on a GPU with all plans of cuDNN, in the same session.

    python benchmarks/searched.py [--direction F B W] [--per-model 7] [--wheels DIR] [--smoke]
    python benchmarks/searched.py --find-db gfx942130.HIP.fdb.txt.bz2 --every 8       # whole replays

BF16 convolutions of torchvision's models at batch 32, sampled as by ``gpu_replay.py wgrads --of-models``, are raced
three times, each time by new processes:

* ``all``: every plan.  This is the truth for the other two.
* ``held out``: a tenth of the plans, proposed by the records of an earlier day (``fprops-models-*`` …).  A problem
  learns neither from its own models nor from the same problem in another model.
* ``from nothing``: as ``logparse replay --propose neighbours`` on an empty store.  It tries at least 16 plans per
  problem, and learns from its own measurements.

PyTorch's own settings race along, as in a replay, but only cuDNN's plans are compared.

``lost`` is the total time of the fastest tried plans over the total time of the fastest of all plans, minus one, by the
times of ``all``. ``worst`` is the same for one problem.  ``winners`` has both figures for the plans that won the race
itself, whose times vary, too.  ``plans`` is the fraction of plans that ran.  ``gpu`` is the time of all executions
(from the samples) divided by the time of 16 samples of every plan.  Wall times include everything, also the start of
the worker and PyTorch's settings.

``--find-db`` takes backward weights of the file: one in ``--every`` of the 375 that ``scale.py --gpu`` replays.  They
are raced and confirmed twice on an empty store, as ``logparse replay`` does with ``--propose all`` and with ``--propose
neighbours``.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(Path(__file__).parents[1]))

from gpu_replay import KINDS, unpack_wheels
from inputs import model_convolutions, sampled_wgrads
from proposers import PLANS_OF, RECORDS, SETTINGS, Case, latest, library_of, near_of, recorded

from analyzers.evidence.confirmations import Pairs, judge_all
from analyzers.replay.device_workers import LocalDevice
from analyzers.replay.experience import Experience
from analyzers.replay.proposer import Proposal
from analyzers.replay.racing import Rules
from analyzers.replay.results import Method, Result, environment_key
from analyzers.replay.sampler import executions
from analyzers.replay.scheduler import Limits, Outcome, Scheduler
from logparse.libraries.kinds.backend import Place
from logparse.model import Problem

Raced: TypeAlias = Mapping[str, Any]
"""A measured convolution of the record. Its rows are ``[kernel, status, time_us, samples_us]``."""
PROBLEMS = 375
"""The number of convolutions in the record of replays on several GPUs (``scale.py``)."""
_CHECKS = 3
"""How often a kernel is run for checks before its samples: once for its result, twice for faults."""


def main() -> int:
    """Time the kernels in three ways, write the record, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--direction", nargs="+", choices=tuple(KINDS), default=list(KINDS))
    parser.add_argument("--per-model", type=int, default=7, help="problems of each model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--backend", nargs="+", default=["torch", "cudnn"])
    parser.add_argument("--results", default=str(Path(__file__).parent / "results"))
    parser.add_argument("--find-db", help="MIOpen find-db text (.bz2 allowed): whole replays of its backward weights")
    parser.add_argument("--every", type=int, default=8, help="of these, one in so many")
    parser.add_argument("--wheels", help="folder of wheels to put on the path")
    parser.add_argument("--budget", type=float, help="seconds of each race")
    parser.add_argument("--smoke", action="store_true", help="a few problems, to see that it works")
    parser.add_argument("--table", nargs="+", default=[], metavar="RECORD", help="print the table of records instead")
    options = parser.parse_args()
    if options.table:
        for path in options.table:
            print("\n".join(table(json.loads(gzip.decompress(Path(path).read_bytes())))))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        unpack_wheels(options.wheels, folder)
        if options.find_db:
            record = _replayed(options)
            print("\n".join([str(_written(options, record)), *table(record)]), flush=True)
            return 0
        for direction in options.direction:
            record = _measured(options, direction)
            print("\n".join([str(_written(options, record)), *table(record)]), flush=True)
    return 0


def _measured(options: argparse.Namespace, direction: str) -> dict[str, Any]:
    models = model_convolutions(direction, options.per_model, options.seed)
    problems = list(models)[: 4 if options.smoke else None]
    learned = latest(RECORDS[f"{direction} of models"])
    ways: Mapping[str, Way] = {
        "all": _All(),
        "held out": _HeldOut(models, recorded(learned, (PLANS_OF, SETTINGS))),
        "from nothing": _FromNothing(),
    }
    raced = {name: _raced(options, problems, way) for name, way in ways.items()}
    about = {"direction": direction, "learned": learned.name}
    return _record(options, "searched", raced, {x.text: y for x, y in models.items()}) | about


def _replayed(options: argparse.Namespace) -> dict[str, Any]:
    problems = sampled_wgrads(options.find_db, 100_000, options.seed)[:PROBLEMS][:: options.every]
    problems = problems[: 4 if options.smoke else None]
    ways: Mapping[str, Way] = {"all": _All(), "from nothing": _FromNothing()}
    raced = {name: _raced(options, problems, way, processes=Method().processes) for name, way in ways.items()}
    return _record(options, "searched-replays", raced, {}) | {"direction": "W", "every": options.every}


def _record(
    options: argparse.Namespace, kind: str, raced: Mapping[str, Run], models: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    return {
        "record": kind,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "seed": options.seed,
        "smoke": options.smoke,
        "environment": dict(next((x.facts for x in raced["all"].results if x.facts), {})),
        "seconds": {name: run.seconds for name, run in raced.items()},
        "confirmed": {name: run.confirmed for name, run in raced.items()},
        "results": {
            name: [_kept(x, models.get(x.problem.text, ())) for x in run.results] for name, run in raced.items()
        },
    }


def _written(options: argparse.Namespace, record: Mapping[str, Any]) -> Path:
    device = str(record["environment"].get("device", "unknown")).replace(" ", "-")
    kind = f"{record['record']}-{KINDS[record['direction']]}{'-smoke' if options.smoke else ''}"
    path = Path(options.results) / f"{kind}-{device}-{record['date'][:10]}.json.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(record).encode(), mtime=0))
    return path


# ------------------------------------------------------------------------------------------------ what is proposed


class _All:
    """Makes ``replay`` time every kernel for a convolution."""

    def propose(self, problem: Problem, facts: Mapping[str, str]) -> Proposal | None:
        return None

    def take(self, result: Result) -> None:
        """Do nothing with a result. Every kernel is tried anyway, so nothing can be learned."""


class _HeldOut:
    """Makes ``replay`` time only a tenth of cuDNN's plans (kernels for a convolution).

    The choice is learned from ``cases``, which are measured convolutions of other models.
    """

    def __init__(self, models: Mapping[Problem, tuple[str, ...]], cases: Sequence[Case]) -> None:
        self._models, self._cases = models, cases
        plans = sum(library_of(y) == PLANS_OF for x in cases for y in x.times_us)
        self._tenth = max(1, int(plans / len(cases) / 10))

    def propose(self, problem: Problem, facts: Mapping[str, str]) -> Proposal:
        near = near_of(Case(problem, {}, frozenset(self._models[problem])), self._cases)
        return Proposal(problem=problem, near=tuple(near), least=self._tenth, share=0.0)

    def take(self, result: Result) -> None:
        """Do nothing with a result, because the choice is learned only from the recorded cases."""


class _FromNothing:
    """Chooses kernels by the method of ``replay --propose neighbours``. At the beginning, nothing is known."""

    def __init__(self) -> None:
        self._experience = Experience()

    def propose(self, problem: Problem, facts: Mapping[str, str]) -> Proposal | None:
        return Proposal(problem=problem, near=self._experience.near(environment_key(facts), problem))

    def take(self, result: Result) -> None:
        self._experience.add(environment_key(result.facts), result.problem, result.rows)


Way: TypeAlias = _All | _HeldOut | _FromNothing


@dataclass(frozen=True)
class Run:
    """The results of a replay, the confirmed speed-ups by convolution, and the wall time (s)."""

    results: Sequence[Result]
    confirmed: Mapping[str, float]
    seconds: float


def _raced(options: argparse.Namespace, problems: Sequence[Problem], way: Way, processes: int = 0) -> Run:
    """Time the proposed kernels for each convolution. Then confirm the fastest in ``processes`` fresh processes."""
    results: list[Result] = []
    pairs: dict[str, Pairs] = {}

    def sink(outcome: Outcome, device: str) -> None:
        if isinstance(outcome, Result):
            way.take(outcome)
            results.append(outcome)
        else:
            pairs[outcome.problem.text] = outcome.pairs

    method, device = (
        Method(limit=10_000, seed=options.seed, processes=processes),
        LocalDevice(Place(device=options.device)),
    )
    scheduler = Scheduler(options.backend, [device], method, Limits(budget_s=options.budget), sink, propose=way.propose)
    started = time.monotonic()
    scheduler.run(problems)
    seconds = time.monotonic() - started
    judged, kept = judge_all(pairs)
    return Run(results, {x: judged[x].speedup.value for x in sorted(kept)}, seconds)


# ------------------------------------------------------------------------------------------------ what came out


def compared(truth: Sequence[Raced], results: Sequence[Raced]) -> dict[str, Any]:
    """Return which fraction of cuDNN's plans was timed in ``results``, and how much time their choices lose.

    Times are taken from ``truth``, which has all plans.
    """
    every = {x["problem"]: {y[0]: y[2] for y in plans_of([x])} for x in truth}
    tried = [(x, us := every[x["problem"]], {y[0]: y[2] for y in plans_of([x]) if y[0] in us}) for x in results]
    found = [(min(us[y] for y in mine), us[min(mine, key=mine.__getitem__)], min(us.values())) for _, us, mine in tried]
    least_us = sum(best for _, _, best in found)
    ratios = [us / best for us, _, best in found]
    worst = max(range(len(ratios)), key=ratios.__getitem__)
    return {
        "problems": len(found),
        "plans": sum(len(mine) for _, _, mine in tried) / sum(map(len, every.values())),
        "gpu": sum(map(_gpu_us, plans_of(results))) / sum(map(_whole_us, plans_of(truth))),
        "lost": sum(us for us, _, _ in found) / least_us - 1,
        "lost_by_winners": sum(us for _, us, _ in found) / least_us - 1,
        "worst": ratios[worst] - 1,
        "worst_by_winners": max(us / best for _, us, best in found) - 1,
        "worst_problem": tried[worst][0]["label"],
        "above_3_percent": sum(x > 1.03 for x in ratios),
    }


def table(record: Mapping[str, Any]) -> list[str]:
    """Return a line for each of the three ways to choose the kernels that are timed."""
    results, seconds = record["results"], record["seconds"]
    return [
        f"{record['direction']} {line(name, seconds[name], compared(results['all'], results[name]))}"
        for name in results
    ]


def line(way: str, seconds: float, row: Mapping[str, Any]) -> str:
    """Return a row of the table as text."""
    shares = f"plans {row['plans']:6.1%}  gpu {row['gpu']:6.2%}  lost {row['lost']:6.2%}  worst {row['worst']:6.1%}"
    winners = f"winners {row['lost_by_winners']:6.2%} {row['worst_by_winners']:6.1%}"
    return f"{way:12} {row['problems']:4} problems {seconds:6.1f} s  {shares}  {winners}  {row['worst_problem']}"


def plans_of(raced: Sequence[Raced]) -> list[Sequence[Any]]:
    """Return the rows of cuDNN's plans (kernels for a convolution) that ran."""
    rows = [row for x in raced for row in x["rows"]]
    return [row for row in rows if row[0].startswith("cudnn:") and row[1] == "ok" and row[2]]


def _gpu_us(row: Sequence[Any]) -> float:
    """Return the GPU time (µs) that the samples of one of cuDNN's plans took.

    The checks before the samples are included.
    """
    return sum(executions(x) * x for x in row[3]) + _CHECKS * float(row[2])


def _whole_us(row: Sequence[Any]) -> float:
    """Return the GPU time (µs) that one of cuDNN's plans would take with the full number of samples.

    The checks before the samples are included.
    """
    return (Rules().rounds[-1] * executions(row[2]) + _CHECKS) * float(row[2])


def _kept(result: Result, models: Sequence[str]) -> dict[str, Any]:
    rows = [[x.solution.text, x.status, x.time_us, x.samples_us] for x in result.rows]
    best = result.best.text if result.best else None
    about = {"problem": result.problem.text, "label": result.problem.label, "models": models, "best": best}
    return about | {"seconds": result.seconds, "ended": result.ended, "rows": rows}


if __name__ == "__main__":
    sys.exit(main())
