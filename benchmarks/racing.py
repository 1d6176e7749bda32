"""Measure what racing saves: the same problems are raced, timed exhaustively, and tuned as TunableOp does.

    python benchmarks/racing.py --find-db gfx942130.HIP.fdb.txt.bz2 [--wheels DIR] [--budget 230] [--smoke]
    python benchmarks/racing.py --recorded benchmarks/results/wgrads-….json.gz      # no GPU: drawn from raw samples

* racing: the race of ``logparse replay``, including its checks for correctness and of the clock.
* exhaustive: every solution gets as many samples as a race's finalist (16), and is checked.  The best median wins.
* TunableOp (pytorch ``aten/src/ATen/cuda/tunable/TunableOp.h``): every solution gets 3 executions, and is dropped if
  its mean is above 1.5× the best mean.  It gets 10 more, and is dropped above 1.15×.  Then it runs for 30 ms (at most
  100 executions), and the best mean wins.  Its warm-up and rotation are the same as ours.

The order of the three changes from problem to problem.  GPU seconds are the seconds of the solutions' executions.
Building plans and their first, warming execution are left out, because they cost all three the same.  Each choice is
timed again, interleaved with the others, and only that time counts, because the minimum of many times is biased low.

Exit status 1 if a target is missed.  The targets: within 1 % of exhaustive timing's total, at ≤ 1/8 of its GPU time,
and at ≤ 1/2 of TunableOp's.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from gpu_replay import unpack_wheels
from inputs import sampled_wgrads

from analyzers.evidence.statistics.intervals import median
from analyzers.replay.results import Method
from analyzers.replay.sampler import executions
from analyzers.replay.trial import RaceTask, WorkerContext
from analyzers.replay.worker import backend_named
from logparse.libraries.kinds.backend import Backend, Conditions, Place, Runnable, UnsupportedError
from logparse.libraries.kinds.correctness import error_bound, is_acceptable
from logparse.model import Problem, Solution, problem_from_text, solution_from_text

LARGEST_REGRET, OF_EXHAUSTIVE, OF_TUNABLEOP = 1.01, 1 / 8, 1 / 2
NEAR = 3.0
"""A kernel is called near the best if it takes at most this many times the best time.

The output also states how long the exhaustive measurement would take with only such kernels.
"""
JUDGING_SAMPLES = 9


class OutOfTimeError(Exception):
    """Raised if the time is over while an operator is measured. The operator is then left out."""


class TooLongError(Exception):
    """Raised if timing all kernels for an operator would take too much of the benchmark's time."""


class Metered:
    """Gives access to the kernels of a GPU library, and adds up how much GPU time they use.

    A kernel that was made ready to run is reused, until ``forget`` is called.
    """

    cache_bytes = 0

    def __init__(self, inner: Backend, deadline: float = math.inf) -> None:
        self._inner, self._deadline = inner, deadline
        self.cache_bytes = inner.cache_bytes
        self._held: dict[str, MeteredRunnable | Exception] = {}
        self.gpu_us = 0.0

    def environment(self) -> Mapping[str, str]:
        return self._inner.environment()

    def solutions(self, problem: Problem, limit: int, workspace_bytes: int | None = None) -> Sequence[Solution]:
        return self._inner.solutions(problem, limit, workspace_bytes)

    def prepare(self, problem: Problem, solution: Solution, conditions: Conditions) -> MeteredRunnable:
        if solution.text not in self._held:
            try:
                self._held[solution.text] = MeteredRunnable(self, self._inner.prepare(problem, solution, conditions))
            except Exception as error:  # A library may raise any error. The error is raised again for each strategy.
                self._held[solution.text] = error
        held = self._held[solution.text]
        if isinstance(held, Exception):
            raise held
        return held

    def refresh(self, seed: int) -> None:
        self._inner.refresh(seed)

    def release(self) -> None:
        """Do nothing. Prepared kernels are kept, because the next way to choose a kernel needs them again."""

    def healthy(self) -> bool:
        return self._inner.healthy()

    def forget(self) -> None:
        """Free all prepared kernels before the next operator."""
        self._held.clear()
        self._inner.release()

    def add(self, us: float) -> None:
        self.gpu_us += us
        if time.monotonic() > self._deadline:
            raise OutOfTimeError


class MeteredRunnable:
    def __init__(self, meter: Metered, inner: Runnable) -> None:
        self._meter, self._inner = meter, inner
        self._once_us = 0.0

    @property
    def workspace_bytes(self) -> int | None:
        return self._inner.workspace_bytes

    @property
    def host_us(self) -> float | None:
        return self._inner.host_us

    def error(self) -> float:
        """Measure the error of the kernel's result.

        For this the kernel runs once, and the time of this execution is added to the GPU time that the benchmark
        counts.
        """
        self._meter.add(self._once_us)
        return self._inner.error()

    def fault(self) -> str:
        """Look for faults in the kernel's result, such as wrong elements.

        For this the kernel runs twice, and the time of both executions is added to the GPU time that the benchmark
        counts.
        """
        self._meter.add(2 * self._once_us)
        return self._inner.fault()

    def sample_us(self, count: int) -> float:
        us = self._inner.sample_us(count)
        self._once_us = self._once_us or us
        self._meter.add(us * count)
        return us


class Simulated:
    """Imitates a library's kernels without a GPU: their times are drawn at random from an earlier measurement."""

    # A drawn time is the kernel's median × a relative deviation. The deviation is taken at random from all samples of
    # the operator's kernels, because most kernels have only one sample.

    cache_bytes = 0

    def __init__(self, record: Mapping[str, Any], seed: int) -> None:
        self._facts = dict(record["environment"])
        self._medians: dict[str, dict[str, float]] = {}
        self._deviations: dict[str, list[float]] = {}
        self._random = random.Random(seed)
        for result in record["results"]:
            rows = [row for row in result["rows"] if row["status"] == "ok" and row["samples_us"]]
            self._medians[result["problem"]] = {row["solution"]: median(row["samples_us"]) for row in rows}
            several = [row["samples_us"] for row in rows if len(row["samples_us"]) > 1]
            deviations = [sample / median(samples) for samples in several for sample in samples]
            self._deviations[result["problem"]] = deviations or [1.0]

    @property
    def problems(self) -> list[Problem]:
        return [problem_from_text(text) for text, medians in self._medians.items() if len(medians) > 1]

    def environment(self) -> Mapping[str, str]:
        return self._facts

    def solutions(self, problem: Problem, limit: int, workspace_bytes: int | None = None) -> Sequence[Solution]:
        if problem.text not in self._medians:
            raise UnsupportedError("not recorded")
        return [solution_from_text(text) for text in self._medians[problem.text]][:limit]

    def prepare(self, problem: Problem, solution: Solution, conditions: Conditions) -> Drawn:
        text = problem.text
        return Drawn(self._medians[text][solution.text], self._deviations[text], self._random)

    def refresh(self, seed: int) -> None:
        """Do nothing. A real backend writes new inputs here, but random times need no inputs."""

    def release(self) -> None:
        """Do nothing, because no resource is in use."""

    def healthy(self) -> bool:
        return True


class Drawn:
    workspace_bytes = host_us = None

    def __init__(self, median_us: float, deviations: Sequence[float], generator: random.Random) -> None:
        self._median_us, self._deviations, self._random = median_us, deviations, generator

    def error(self) -> float:
        return 0.0

    def fault(self) -> str:
        return ""

    def sample_us(self, count: int) -> float:
        return self._median_us * self._random.choice(self._deviations)


# ------------------------------------------------------------------------------------------------ the strategies


class Bench:
    """Chooses the fastest kernel for an operator in three ways, and counts how much GPU time each way needs.

    The three ways are the one of ``logparse replay``, timing all kernels equally often, and the one of PyTorch's
    TunableOp.
    """

    def __init__(self, backend: Metered, method: Method, longest_s: float, place: Place) -> None:
        self.backend, self.method, self._longest_s = backend, method, longest_s
        self.near_gpu_s = 0.0
        self.context = WorkerContext({"metered": backend}, place, method, lambda what: None)

    def ready(self, problem: Problem) -> dict[Solution, MeteredRunnable]:
        """Prepare and check all kernels for an operator.

        Returns the kernels that run and give a right result, the library's choice first. Raises TooLongError if timing
        all of them would take too long.
        """
        self.backend.forget()
        seconds = 0.0
        conditions = self.context.conditions(problem)
        out = {}
        for solution in self.backend.solutions(problem, self.method.limit):
            try:
                runnable = self.backend.prepare(problem, solution, conditions)
                once_us = runnable.sample_us(1)
                bound = error_bound(problem, tf32=conditions.tf32)
                if is_acceptable(runnable.error(), bound) and not runnable.fault():
                    out[solution] = runnable
                    seconds += once_us * executions(once_us) * self.method.rules.rounds[-1] / 1e6
            except OutOfTimeError:
                raise
            except Exception as error:
                if not isinstance(error, UnsupportedError):
                    print(f"    {solution.text}: {str(error)[:80]}")
        if seconds > self._longest_s:
            raise TooLongError(f"exhaustive timing would take about {seconds:.0f} s")
        return out

    def racing(self, problem: Problem, ready: Mapping[Solution, MeteredRunnable]) -> Solution:
        """Choose the fastest kernel as ``logparse replay`` does: kernels that are clearly slower are dropped early."""
        result = self.context.run(RaceTask(problem=problem))
        return result.best or next(iter(ready))

    def exhaustive(self, problem: Problem, ready: Mapping[Solution, MeteredRunnable]) -> Solution:
        """Time every kernel for an operator equally often, and return the fastest one.

        ``near_gpu_s`` counts the GPU time (s) spent on kernels nearly as fast as the best one.
        """
        # logparse replay times only the most promising kernels so often.
        times, spent_us = {}, {}
        for solution, runnable in ready.items():
            before_us = self.backend.gpu_us
            count = executions(runnable.sample_us(1))
            runnable.error()
            times[solution] = median([runnable.sample_us(count) for _ in range(self.method.rules.rounds[-1])])
            spent_us[solution] = self.backend.gpu_us - before_us
        best = min(times, key=lambda x: times[x])
        self.near_gpu_s = sum(us for x, us in spent_us.items() if times[x] <= NEAR * times[best]) / 1e6
        return best

    def tunableop(self, problem: Problem, ready: Mapping[Solution, MeteredRunnable]) -> Solution:
        """Choose the fastest kernel as TunableOp does: slow kernels are dropped after 3 and after 10 executions."""
        best, least = next(iter(ready)), math.inf
        for solution, runnable in ready.items():
            if runnable.sample_us(3) > 1.5 * least:
                continue
            mean = runnable.sample_us(10)
            if mean > 1.15 * least:
                continue
            mean = runnable.sample_us(max(1, min(100, int(30e3 / mean))))
            if mean < least:
                best, least = solution, mean
        return best


Strategy: TypeAlias = Callable[[Problem, Mapping[Solution, MeteredRunnable]], Solution]


def compare(bench: Bench, problem: Problem, generator: random.Random) -> dict[str, Any] | None:
    """Choose a kernel for one operator in three ways (strategies). Return the choices and the GPU time of each way.

    Returns None if there are fewer than two kernels.
    """
    ready = bench.ready(problem)
    if len(ready) < 2:
        return None
    strategies: list[tuple[str, Strategy]] = [
        ("racing", bench.racing),
        ("exhaustive", bench.exhaustive),
        ("tunableop", bench.tunableop),
    ]
    out: dict[str, Any] = {"problem": problem.text, "label": problem.label, "solutions": len(ready)}
    chosen: dict[str, Solution] = {}
    for name, strategy in generator.sample(strategies, len(strategies)):
        bench.backend.gpu_us, started = 0.0, time.perf_counter()
        chosen[name] = strategy(problem, ready)
        wall_s, gpu_s = time.perf_counter() - started, bench.backend.gpu_us / 1e6
        out[name] = {"solution": chosen[name].text, "gpu_s": gpu_s, "wall_s": wall_s}
    pick = next(iter(ready))
    times = _time_chosen_again(ready, dict.fromkeys([*chosen.values(), pick]), generator)
    for name, solution in chosen.items():
        out[name]["time_us"] = times[solution]
    out["exhaustive"]["near_gpu_s"] = bench.near_gpu_s
    return out | {"pick": {"solution": pick.text, "time_us": times[pick]}}


def _time_chosen_again(
    ready: Mapping[Solution, MeteredRunnable], chosen: Mapping[Solution, None], generator: random.Random
) -> dict[Solution, float]:
    """Time the chosen kernels once more, and return the median time of each.

    The kernels take turns, in a new random order in each round.
    """
    samples: dict[Solution, list[float]] = {solution: [] for solution in chosen}
    counts = {solution: executions(ready[solution].sample_us(1)) for solution in chosen}
    for _ in range(JUDGING_SAMPLES):
        for solution in generator.sample(list(chosen), len(chosen)):
            samples[solution].append(ready[solution].sample_us(counts[solution]))
    return {solution: median(held) for solution, held in samples.items()}


# ------------------------------------------------------------------------------------------------ the program


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the ways to choose a kernel, and print and write the results. Returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recorded", help="a wgrads or gemms record (.json or .json.gz): no GPU")
    parser.add_argument("--find-db", help="MIOpen find-db text (.bz2 allowed)")
    parser.add_argument("--backend", default="cudnn")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--wheels", help="folder of wheels to put on the path")
    parser.add_argument("--results", default=str(Path(__file__).parent / "results"))
    parser.add_argument("--budget", type=float, default=230.0, help="seconds in all")
    parser.add_argument("--count", type=int, default=64, help="problems at most")
    parser.add_argument("--limit", type=int, default=200, help="solutions per problem")
    parser.add_argument("--longest", type=float, default=20.0, help="seconds of exhaustive timing per problem at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="three problems in half a minute, to see that it works")
    options = parser.parse_args(arguments)
    if options.smoke:
        options.budget, options.count = min(options.budget, 30.0), min(options.count, 3)
    with tempfile.TemporaryDirectory() as folder:
        unpack_wheels(options.wheels, folder)
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    deadline = time.monotonic() + options.budget
    backend: Backend
    place = Place() if options.recorded else Place(device=options.device)
    if options.recorded:
        backend = Simulated(_record(options.recorded), options.seed)
        problems = backend.problems[: options.count]
    else:
        problems = sampled_wgrads(options.find_db, options.count, options.seed)
        backend = backend_named(options.backend).open(place)
    longest_s = math.inf if options.recorded else options.longest
    bench = Bench(Metered(backend, deadline), Method(limit=options.limit, seed=options.seed), longest_s, place)
    left_out: list[str] = []
    generator, rows, started = random.Random(options.seed), [], time.monotonic()
    for done, problem in enumerate(problems, 1):
        try:
            row = compare(bench, problem, generator)
        except OutOfTimeError:
            print(f"the budget of {options.budget:.0f} s ended within problem {done} of {len(problems)}")
            break
        except (UnsupportedError, TooLongError) as error:
            left_out.append(f"{problem.label}: {error}")
            print(f"[{done}/{len(problems)}] left out: {left_out[-1]}", flush=True)
            continue
        if row is not None:
            rows.append(row)
            print(f"[{done}/{len(problems)} {time.monotonic() - started:4.0f} s] {_line(row)}", flush=True)
    if not rows:
        print("nothing was measured")
        return 1
    return _finish(options, bench, rows, left_out, time.monotonic() - started)


def _record(path: str) -> dict[str, Any]:
    opened: Any = gzip.open if path.endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8") as stream:
        record: dict[str, Any] = json.load(stream)
    return record


def _line(row: Mapping[str, Any]) -> str:
    names = ("racing", "exhaustive", "tunableop")
    times = " | ".join(f"{name} {row[name]['gpu_s']:7.3f} s {row[name]['time_us']:8.1f} µs" for name in names)
    return f"{times} | {row['solutions']} solutions {row['label']}"


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Compare the race of kernels with two other ways of choosing a kernel: timing all kernels, and TunableOp's search.

    Returns the total time of the chosen kernels, the GPU seconds and the wall seconds of each way.
    """
    # All matrix products and convolutions are added up. The race's totals divided by the totals of the other ways are
    # added.
    out: dict[str, float] = {"problems": len(rows), "solutions": sum(row["solutions"] for row in rows)}
    for name in ("racing", "exhaustive", "tunableop"):
        for key in ("gpu_s", "time_us", "wall_s"):
            out[f"{name}_{key}"] = sum(row[name][key] for row in rows)
    out["exhaustive_near_gpu_s"] = sum(row["exhaustive"]["near_gpu_s"] for row in rows)
    out["pick_time_us"] = sum(row["pick"]["time_us"] for row in rows)
    out["gpu_share_of_exhaustive_near"] = out["racing_gpu_s"] / out["exhaustive_near_gpu_s"]
    for name in ("exhaustive", "tunableop"):
        out[f"regret_against_{name}"] = out["racing_time_us"] / out[f"{name}_time_us"]
        out[f"gpu_share_of_{name}"] = out["racing_gpu_s"] / out[f"{name}_gpu_s"]
        out[f"wall_share_of_{name}"] = out["racing_wall_s"] / out[f"{name}_wall_s"]
    return out


def missed(totals: Mapping[str, float]) -> list[str]:
    """Return a line for each target of this benchmark that is missed."""
    targets = (
        ("regret_against_exhaustive", LARGEST_REGRET),
        ("gpu_share_of_exhaustive", OF_EXHAUSTIVE),
        ("gpu_share_of_tunableop", OF_TUNABLEOP),
    )
    return [f"{name} is {totals[name]:.4f}, above {most:g}" for name, most in targets if not totals[name] <= most]


def _finish(
    options: argparse.Namespace,
    bench: Bench,
    rows: Sequence[Mapping[str, Any]],
    left_out: Sequence[str],
    seconds: float,
) -> int:
    totals = summary(rows)
    device = str(bench.context.facts.get("device", "unknown")).replace(" ", "-")
    kind = f"racing{'-simulated' if options.recorded else ''}{'-smoke' if options.smoke else ''}"
    record = {
        "record": kind,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "from": Path(options.recorded).name if options.recorded else None,
        "seed": options.seed,
        "environment": dict(bench.context.facts),
        "seconds": round(seconds, 1),
        "summary": totals,
        "missed": missed(totals),
        "left_out": left_out,
        "results": rows,
    }
    folder = Path(options.results)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{kind}-{device}-{record['date'][:10]}.json"
    path.write_text(json.dumps(record, indent=1), encoding="utf-8")
    print(json.dumps(totals, indent=1))
    print(f"{seconds:.0f} s on {device}{', simulated' if options.recorded else ''}; {path}")
    for miss in missed(totals):
        print(f"missed: {miss}")
    return 1 if missed(totals) else 0


if __name__ == "__main__":
    sys.exit(main())
