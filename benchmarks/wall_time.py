"""Measure the wall time of a replay's steps: listing, building, operands, warming, checks, samples (s per backend).

    python benchmarks/wall_time.py --find-db gfx942130.HIP.fdb.txt.bz2 [--backend torch,cudnn] [--count 24]
    python benchmarks/wall_time.py --smoke                  # no GPU: small products on the CPU

It races a seeded sample of backward weights in this process, and confirms each winner once in a fresh process.  A
step's own time leaves out the steps inside it.  With cuDNN it then builds the plans of eight of the problems in 1, 2, 4
and 8 processes at once, and in 4 threads of one process, without running them.  This shows what building side by side
could save.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(Path(__file__).parents[1]))

from inputs import sampled_wgrads

from analyzers.replay.drift import SteadyClock
from analyzers.replay.results import Method, Result
from analyzers.replay.trial import REFERENCE, ConfirmTask, RaceTask, WorkerContext
from analyzers.replay.worker import backend_named
from logparse.libraries.kinds.backend import Place, UnsupportedError
from logparse.libraries.kinds.device.device_backend import DeviceBackend
from logparse.libraries.kinds.device.torch_device import TorchRunnable
from logparse.model import Problem, Solution

PROCESSES = (1, 2, 4, 8)


def main() -> int:
    """Read the command line, measure, write the record, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--find-db", help="MIOpen find-db text (.bz2 allowed)")
    parser.add_argument("--backend", default="torch,cudnn", help="comma-separated")
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds after which no further race begins")
    parser.add_argument("--smoke", action="store_true", help="no GPU")
    parser.add_argument("--results", default=str(Path(__file__).parent / "results"))
    options = parser.parse_args()
    names = ["torch"] if options.smoke else options.backend.split(",")
    place = Place(device="cpu" if options.smoke else "cuda:0")
    problems: list[Problem] = (
        [replace(REFERENCE, m=64, k=64, n=64)]
        if options.smoke
        else sampled_wgrads(options.find_db, options.count, options.seed)
    )
    record: dict[str, Any] = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}
    record |= replayed(names, place, problems, options.budget)
    if "cudnn" in names:
        texts = [x for x in problems if "FP16" in x.text][:8]
        record["building"] = side_by_side(texts)
    folder = Path(options.results)
    folder.mkdir(parents=True, exist_ok=True)
    device = record["environment"]["device"].replace(" ", "-")
    target = folder / f"wall-time{'-smoke' if options.smoke else ''}-{device}-{record['date'][:10]}.json"
    target.write_text(json.dumps(record, indent=1), encoding="utf-8")
    print(target)
    return 0


# ------------------------------------------------------------------------------------------------ one worker


@dataclass
class Steps:
    """Adds up how long each part of a program takes, and counts how often the part runs.

    The parts are named, and may contain each other. The time of an inner part is not counted for the outer part.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    _inside: list[float] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        self._inside.append(0.0)
        try:
            yield
        finally:
            taken, inner = time.perf_counter() - started, self._inside.pop()
            self.seconds[name] = self.seconds.get(name, 0.0) + taken - inner
            self.counts[name] = self.counts.get(name, 0) + 1
            if self._inside:
                self._inside[-1] += taken

    def watch(self, owner: Any, method: str, name: str | Callable[[Any], str]) -> None:
        """Make a method of ``owner`` record each of its calls as a step, with the time that it took."""
        inner = getattr(owner, method)

        def watched(this: Any, *args: Any, **kwargs: Any) -> Any:
            with self.step(name if isinstance(name, str) else name(this)):
                return inner(this, *args, **kwargs)

        setattr(owner, method, watched)

    def show(self, title: str) -> None:
        """Print the steps, the longest first."""
        print(f"{title}: {sum(self.seconds.values()):.1f} s")
        for name, seconds in sorted(self.seconds.items(), key=lambda x: -x[1]):
            print(f"  {seconds:7.2f} s  {self.counts[name]:6d} times  {name}", flush=True)


Pair: TypeAlias = tuple[Problem, Solution, Solution]


def replayed(names: Sequence[str], place: Place, problems: Sequence[Problem], budget_s: float) -> dict[str, Any]:
    """Time the kernels for each operator, and then time the fastest ones again in a new process.

    Returns how long each part of this work took, such as preparing kernels and timing them.
    """
    steps = Steps()
    context = opened(names, place, steps)
    deadline, results = time.monotonic() + budget_s, list[Result]()
    with steps.step("rest of the races"):
        for problem in problems:
            if time.monotonic() < deadline:
                results.append(context.run(RaceTask(problem=problem)))
    steps.show(f"races of {len(results)} problems")
    pairs = [(x.problem, x.pick, x.best) for x in results if x.worth_confirming and x.pick and x.best]
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
        confirmations = fresh.submit(confirmed, tuple(names), place, pairs).result()
    confirmations.show(f"confirmations of {len(pairs)} pairs in one of {context.method.processes} processes")
    each = [{"label": x.problem.label, "rows": len(x.rows), "seconds": x.seconds} for x in results]
    timed = {"races": vars(steps), "confirmations": vars(confirmations), "problems": each}
    return {"environment": dict(context.facts)} | timed


def opened(names: Sequence[str], place: Place, steps: Steps) -> WorkerContext:
    """Prepare this process to time kernels as ``logparse replay`` does, and to record how long each part of that takes.

    Parts of the work are, for example, preparing a kernel and taking samples. The durations are added to ``steps``.
    """
    with steps.step("opening"):
        backends = {name: backend_named(name).open(place) for name in names}
        context = WorkerContext(backends, place, Method(), lambda what: None)
    for name, backend in backends.items():
        steps.watch(type(backend), "solutions", f"{name}: solutions")
        steps.watch(type(backend), "prepare", f"{name}: rest of prepare")
        steps.watch(type(backend), "release", "release")
        steps.watch(type(backend), "refresh", "fresh inputs")
    if "cudnn" in backends:
        import cudnn

        steps.watch(cudnn.pygraph, "build_plan_at_index", "cudnn: build")
    steps.watch(DeviceBackend, "operands", "operands")
    steps.watch(TorchRunnable, "_warm_up", lambda runnable: f"warming, thread {runnable._thread}")
    steps.watch(TorchRunnable, "sample_us", "samples")
    steps.watch(TorchRunnable, "error", "check")
    steps.watch(TorchRunnable, "fault", "check")
    steps.watch(SteadyClock, "_steady", "clock checked")
    steps.watch(SteadyClock, "settle", "clock settles")
    return context


def confirmed(names: Sequence[str], place: Place, pairs: Sequence[Pair]) -> Steps:
    """Compare the two kernels of each pair in this process, and return the seconds of each part of the work.

    Parts of the work are, for example, preparing a kernel and taking samples.
    """
    steps = Steps()
    context = opened(names, place, steps)
    with steps.step("rest of the confirmations"):
        for problem, pick, winner in pairs:
            context.run(ConfirmTask(problem=problem, pick=pick, winner=winner))
    return steps


# ------------------------------------------------------------------------------------------------ building alone


def side_by_side(problems: Sequence[Problem]) -> dict[str, Any]:
    """Measure how long it takes to build all kernels of cuDNN for some convolutions, in several processes or threads.

    The results are in seconds.
    """
    out: dict[str, Any] = {}
    start = multiprocessing.get_context("spawn")
    for count in PROCESSES:
        barrier, queue = start.Barrier(count), start.Queue()
        texts = tuple(problems)
        workers = [start.Process(target=_built, args=(texts[i:] + texts[:i], barrier, queue)) for i in range(count)]
        for worker in workers:
            worker.start()
        rows = [queue.get(timeout=120) for _ in workers]
        for worker in workers:
            worker.join(30)
        out[f"{count} processes"] = rows
        slowest, plans = max(x["seconds"] for x in rows), sum(x["plans"] for x in rows)
        listing, again = (max(x[name] for x in rows) for name in ("listing_s", "again_s"))
        print(f"{count} processes: {plans} plans in {slowest:.2f} s, {1e3 * slowest / plans:.2f} ms each; "
              f"listing them {listing:.2f} s, building them again {again:.2f} s", flush=True)  # fmt: skip
    out["4 threads"] = _threaded(problems[0], 4)
    print(f"4 threads: {out['4 threads']}")
    return out


def _built(problems: Sequence[Problem], barrier: Any, queue: Any) -> None:
    """Measure how long it takes to build all of cuDNN's plans (kernels) for the convolutions. No plan is run.

    All plans are built twice, with new graphs each time, so that nothing of the first time can be used again.
    """
    backend: Any = backend_named("cudnn").open(Place(device="cuda:0"))
    backend._device.torch.zeros(1, device=backend._device.device)
    row: dict[str, Any] = {"plans": 0, "milliseconds": {}}
    barrier.wait()
    for name in ("seconds", "again_s"):
        listed = built = 0.0
        for problem in problems:
            started = time.perf_counter()
            made = backend._graph(problem)
            listed += time.perf_counter() - started
            for plan, index in made.plans.items():
                started = time.perf_counter()
                with suppress(backend._cudnn.cudnnGraphNotSupportedError, UnsupportedError):
                    made.graph.build_plan_at_index(index)
                taken = time.perf_counter() - started
                built += taken
                row["plans"] += name == "seconds"
                row["milliseconds"].setdefault(f"{name} {plan.partition('_')[0]}", []).append(round(taken * 1e3, 2))
        row[name], row["listing_s"] = built, listed
        backend.release()
    queue.put(row)


def _threaded(problem: Problem, count: int) -> dict[str, float]:
    """Measure how long it takes to build the plans for one convolution: one after another, then by several threads.

    The results are in seconds.
    """
    backend: Any = backend_named("cudnn").open(Place(device="cuda:0"))
    out = {}
    for threads in (1, 1, count):
        made = backend._graph(problem)
        left = list(made.plans.values())

        def work(made: Any = made, left: list[int] = left) -> None:
            while left:
                with suppress(backend._cudnn.cudnnGraphNotSupportedError, IndexError):
                    made.graph.build_plan_at_index(left.pop())

        running = [threading.Thread(target=work) for _ in range(threads)]
        started = time.perf_counter()
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        out[f"{threads} thread(s)"] = time.perf_counter() - started
        backend.release()
    return out


if __name__ == "__main__":
    sys.exit(main())
