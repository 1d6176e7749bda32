"""Measure the simulation of a step: its speed, its result for real traces, and its errors in records of ``jobs.py``.

``--speed`` times the simulation on synthetic jobs.  ``--traces FILE …`` shows its result for real traces.  ``--record
FILE …`` compares its predictions in records of ``jobs.py`` with the times that were measured there.

A synthetic job has ranks that launch kernels on two streams, wait for events and meet in collectives. "build" makes the
graph from events in memory, "simulate" runs it once with other kernel times.  The last row measures the whole way from
the first job's trace files to one answer with factors, including the search for the host's factor.  Its time is the
fastest of five.  Its limits are 2 s of CPU and 1 GB. Each row has a process of its own, and shows that process's peak
memory.

    python benchmarks/steps.py --speed
    python benchmarks/steps.py --traces trace_1.json.gz trace_2.json.gz
    python benchmarks/steps.py --record benchmarks/results/jobs-….json

In a record, a pair is a job and an action with two results: recommend simulated the step, and the program timed its
units with only that action, in turns with its unchanged units.  The unchanged step is compared with the run without a
profiler that ``tune`` makes.  The changed step is compared with the truth, simulated again from the unchanged step
beside it, because the host behaves differently at another hour.  Required: the unchanged step is within 5 % in 9 of 10
jobs, and the measured time of 9 of 10 pairs lies in the simulated interval. *Held* is a pair whose step is within 5 %
or in an interval that reaches at most 10 % to either side.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analyzers.compare.unit_time import SideBySide, UnitTime
from analyzers.job.step.answer import Factor, Step, answer, error_of
from analyzers.job.step.build import build
from analyzers.job.step.graph import times
from analyzers.job.step.traces import Call, RankTrace, Unit, Work, read_trace
from logparse.ingest.input_file import InputFile
from logparse.libraries.torch_profiler.timeline import KernelIdentity

JOBS = ((8, 6_250), (8, 50_000), (1, 10_000), (1, 100_000), (1, 1_000_000))
"""The synthetic jobs: for each, the number of ranks, and the number of kernels per rank.

The first job has 50,000 kernels in all, the second 50,000 on each rank.
"""
NEAR, WIDEST, _KNOWN = 0.05, 0.10, 0.04
_STARTS_THEN = 0.02
"""The value of ``analyzers.job.step.answer.STARTS`` when the records up to 2026-11-28 were made.

Later records state it (``starts`` of a simulated step).
"""
_EVERY = 100
"""After this many kernels, a synthetic job has a collective."""


def synthetic(rank: int, kernels: int) -> RankTrace:
    """Make the trace of one step of a rank with invented times, to measure the speed of the simulation.

    It has a kernel of 20 µs every 25 µs, every tenth kernel on a second stream, and collectives on a third.
    """
    calls: list[Call] = []
    works: list[Work] = []
    thread = ("1", "1")
    for i in range(kernels):
        at, correlation = 25.0 * i, i + 1
        if i % _EVERY == _EVERY - 1:
            calls.append(Call("wait", thread, at - 1, at, 10 * kernels + i))
            works.append(Work((0, 20), at + 6 + rank, 14.0 - rank, correlation, i, ranks="[0]"))
        else:
            works.append(Work((0, 8 if i % 10 == 5 else 7), at + 6, 18.0, correlation, i))
        calls.append(Call("launch", thread, at, at + 4, correlation))
    calls.append(Call("device", thread, 25.0 * kernels, 25.0 * kernels + 30, 0))
    identities = [KernelIdentity("aten::mm", None, f"kernel{i % 50}") for i in range(kernels)]
    units = [Unit(0.0, 25.0 * kernels + 40, "")]
    return RankTrace(rank, "", thread, calls, works, units=units, identities=identities)


def as_json(trace: RankTrace, path: Path) -> None:
    """Write a trace as a file in the format of PyTorch's profiler (Kineto)."""

    def events() -> Iterator[dict[str, object]]:
        for x in trace.calls:
            name = {"wait": "cudaStreamWaitEvent", "device": "cudaDeviceSynchronize"}.get(x.kind, "cudaLaunchKernel")
            place = {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": x.start}
            yield place | {"dur": x.end - x.start, "args": {"correlation": x.correlation}}
        for i, y in enumerate(trace.works):
            name = "ncclDevKernel_AllReduce" if y.ranks is not None else trace.identities[y.kernel].kernel
            id, args = i + 1, {"device": 0, "stream": y.stream[1], "correlation": y.correlation}
            operator = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1}
            yield operator | {"ts": 25.0 * i - 2, "dur": 20.0, "args": {"External id": id}}
            place = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": y.stream[1], "ts": y.start}
            yield place | {"dur": y.us, "args": {"External id": id, **args}}

    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": list(events())}), encoding="utf-8")


def speed(job: tuple[int, int]) -> str:
    """Simulate a synthetic job, and return the table row with the times that the simulation took.

    Times are seconds of CPU, so that other processes of the machine do not matter.
    """
    ranks, kernels = job
    traces = [synthetic(rank, kernels) for rank in range(ranks)]
    before = time.process_time()
    graph = build(traces)
    built = time.process_time()
    first = times(graph)
    once = time.process_time()
    times(graph, graph.us * 0.5, 0.9)
    twice = time.process_time()
    assert len(first) == len(graph.a)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds = f"{built - before:8.2f} {once - built:9.2f} {twice - once:9.2f}"
    return f"{ranks:5} {kernels * ranks:9} {len(first):9} {seconds} {peak:8.0f}"


def whole(paths: Sequence[str]) -> tuple[float, str]:
    """Measure how long logparse needs to read trace files and to predict the effect of faster kernels.

    Returns the CPU seconds, and a line of text for the table of results.
    """
    before = time.process_time()
    traces = [read_trace(InputFile(path)) for path in paths]
    read = time.process_time()
    graph = build(traces)
    built = time.process_time()
    untraced = 0.9 * Step([graph], {}).us(lambda x: x.us, 1.0)
    given = time.process_time()
    found = answer(Step([graph], {}, untraced), {f"kernel{i}": Factor(0.5, 0.4, 0.6) for i in range(0, 50, 2)})
    answered = time.process_time()
    assert abs(found.host_factor - 0.9) < 0.01
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    total = built - before + answered - given
    size, kernels = sum(map(os.path.getsize, paths)) / 1e6, sum(len(x.works) for x in traces)
    seconds = f"read {read - before:.2f}, build {built - read:.2f}, answer {answered - given:.2f}: {total:.2f} s"
    return total, f"{len(paths)} files, {kernels} kernels, {size:.1f} MB of JSON: {seconds}, {peak:.0f} MB"


def speeds() -> None:
    print("ranks   kernels     nodes  build s  first  s simulate s  peak MB")
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool, tempfile.TemporaryDirectory() as at:
        for job in JOBS:
            print(pool.apply(speed, (job,)), flush=True)
        ranks, kernels = JOBS[0]
        paths = [Path(at) / f"trace_{rank}.json" for rank in range(ranks)]
        for rank, path in enumerate(paths):
            as_json(synthetic(rank, kernels), path)
        print(min(pool.apply(whole, ([str(x) for x in paths],)) for _ in range(5))[1])


def show(path: str) -> None:
    """Simulate the steps of one trace, and print what limits them."""
    step = Step([build([read_trace(InputFile(path))])], {})
    found = answer(step, {})
    ends = found.ceilings
    print(f"{Path(path).name}: {step.us(lambda x: x.us, 1.0):.0f} us, limited by {found.limit}")
    print("   " + ", ".join(f"{name} {part:.0%}" for name, part in found.shares.items()))
    print(
        f"    fast host {ends.fast_host_us:.0f} us, free communication {ends.free_communication_us:.0f} us, "
        f"host alone {step.us(lambda x: np.zeros_like(x.us), 1.0):.0f} us; kernels at half: "
        f"{step.us(lambda x: x.scaled(np.full(len(x.identities), 0.5)), 1.0):.0f} us"
    )
    for note in found.notes:
        print(f"    {note}")


@dataclass(frozen=True)
class Pair:
    """How long a step takes without and with a change of a job, µs: measured, and simulated.

    * ``said_us``: the time that recommend printed for the change.
    * ``now_us``: the time of the unchanged step when it ran in turns with the changed step.
    * ``then_us`` and its interval: the changed step, simulated from ``now_us``.
    * ``measured_us``: ``now_us`` × the measured relative change.
    * ``spread``: half of the 95 % interval of the measured relative change.
    * ``limit``: what limits the simulated step.
    * ``inside``: True if the measured time lies in the interval, if that is made with today's ``answer.STARTS``.
    """

    job: str
    action: str
    said_us: float
    now_us: float
    then_us: float
    low_us: float
    high_us: float
    measured_us: float
    spread: float
    limit: str
    inside: bool

    @property
    def error(self) -> float:
        return self.then_us / self.measured_us - 1

    @property
    def held(self) -> bool:
        """True if the simulated time of the changed step is right. There are two ways to be right:

        * Its error is at most 5 %.
        * The measured time is in the simulated interval, which is at most ±10 % wide.
        """
        narrow = self.high_us - self.low_us <= 2 * WIDEST * self.then_us
        return abs(self.error) <= NEAR or (narrow and self.low_us <= self.measured_us <= self.high_us)


def pairs(jobs: Mapping[str, Any]) -> list[Pair]:
    """Return the measured and the simulated step time for each job and each change in a record.

    Changes that the program did not really make (``void``) are left out.
    """
    out = []
    for name, row in jobs.items():
        if not isinstance(row.get("step"), dict):
            continue
        alone = {row["actions"][0]: "after"} if len(row.get("actions", ())) == 1 else {}
        for action, side in {**alone, **{x: x for x in row.get("others", ())}}.items():
            found = compare_step_times(row.get("truth", {}), side) if action not in row.get("void", ()) else None
            if found is not None and (simulated := row["step"].get("beside", {}).get(action)):
                spread = (found.ends_us[1] - found.ends_us[0]) / 2 / found.now_us
                said = row["step"]["under"][action]["then_us"]
                of = {x: simulated[x] for x in ("now_us", "then_us", "low_us", "high_us", "limit")}
                measured = of["now_us"] * found.ratio
                low, high = today(simulated, row["step"].get("starts", _STARTS_THEN))
                inside = low <= measured <= high
                out.append(Pair(name, action, said_us=said, measured_us=measured, spread=spread, inside=inside, **of))
    return out


def today(simulated: Mapping[str, Any], starts: float) -> tuple[float, float]:
    """Return the interval of a recorded simulation, as today's constants make it, µs.

    ``starts`` is the relative spread between starts of a program with which the record was made.
    """
    then, now = (error_of(simulated["shares"], **x) for x in ({"starts": starts}, {}))
    return simulated["low_us"] / (1 - then) * (1 - now), simulated["high_us"] / (1 + then) * (1 + now)


def compare_step_times(truth: Mapping[str, Any], side: str) -> UnitTime | None:
    """Compare a job's step times with and without a change. The job measured the times with its own clock.

    * Returns None if there are no times.
    * The job was started in pairs: once without the change, and beside it once with the change. The times in each pair
      are compared.
    * The benchmark may have been called several times for one file. ``call`` tells in which call a time was measured.
    """
    before, after = truth.get("before", ()), truth.get(side, ())
    runs: list[tuple[Any, Any]] = []
    for call in dict.fromkeys(run.get("call", 0) for run in before):
        of_call = ([run for run in runs_of if run.get("call", 0) == call] for runs_of in (before, after))
        runs += zip(*of_call, strict=False)
    made = tuple(([{"": us} for us in a["turns_us"]], [{"": us} for us in b["turns_us"]]) for a, b in runs)
    return SideBySide(made).unit_time({"": 1.0}) if made else None


def unit_us(runs: Sequence[Mapping[str, Any]]) -> float | None:
    """Return how long a step of a job takes (µs), from the times that several starts of the same program have measured.

    Returns None if there are no times.
    """
    found = compare_step_times({"before": runs}, "before")
    return found.now_us if found is not None else None


def starts(records: Sequence[Mapping[str, Any]], host: bool) -> list[float]:
    """Return for each job how much the step time differs from one start of its program to the next.

    It is a relative standard deviation. With ``host``, only jobs that wait for their host are used, otherwise only the
    others. It is computed from how the measured gain differs between pairs of runs, so only jobs with several pairs are
    used. The gains of two pairs differ by the effect of four starts.
    """
    out = []
    for row in (row for jobs in records for row in jobs.values() if isinstance(row.get("step"), dict)):
        if (row["step"]["now"]["limit"] in ("host", "data loading")) != host:
            continue
        found = [compare_step_times(row.get("truth", {}), side) for side in row.get("truth", ()) if side != "before"]
        gains = [np.diff(np.log(x.each), axis=1) for x in found if x is not None and x.each]
        if gains:
            out.append(math.sqrt(np.mean([x.var(ddof=1) for x in gains]) / 2))
    return out


def own_errors(jobs: Mapping[str, Any]) -> list[float]:
    """Return the relative errors of the simulated step times. Only changes that were measured precisely are included.

    So the errors are hardly errors of the measurement. Jobs whose step is limited by the host are left out.
    """
    return [x.error for x in pairs(jobs) if x.spread <= _KNOWN and x.limit != "host"]


def tabulate_predictions(jobs: Mapping[str, Any]) -> list[str]:
    """Return the lines of two tables that show how well logparse predicts step times. All times are in ms."""
    # The first table has the steps of the unchanged jobs, as simulated and as measured. The second table has the steps
    # of jobs to which a change was made, such as another precision.
    out = ["| job | untraced | simulated as traced | scaled | limited by |", "|" + "---|" * 5]
    near = []
    for name, row in jobs.items():
        step = row.get("step")
        if not isinstance(step, dict) or step["traced_us"] == step["now"]["now_us"]:
            why = step if isinstance(step, str) else "not known without the profiler"
            out.append(f"| {name} | {_ms(unit_us(row.get('truth', {}).get('before', ())))} | {why} | | |")
            continue
        now = step["now"]
        errors = [step[x] / now["now_us"] - 1 for x in ("traced_us", "scaled_us")]
        near.append([abs(x) <= NEAR for x in errors])
        both = " | ".join(f"{x:+.1%}" for x in errors)
        out.append(f"| {name} | {_ms(now['now_us'])} | {both} | {now['limit']} |")
    traced, scaled = (sum(x[i] for x in near) for i in (0, 1))
    out += [f"within 5 %: {scaled} of {len(near)}, as traced {traced}", ""]
    out += ["| job: action | now → foretold | measured: error |", "|" + "---|" * 3]
    all_pairs = pairs(jobs)
    for x in all_pairs:
        said = f"{_ms(x.now_us)}→{_ms(x.then_us)} [{_ms(x.low_us)},{_ms(x.high_us)}]"
        measured = f"{_ms(x.measured_us)}±{x.spread:.1%}: {x.error:+.1%}{'' if x.held else ', missed'}"
        out.append(f"| {x.job}: {x.action} | {said} | {measured} |")
    errors = own_errors(jobs)
    if errors:
        rms = math.sqrt(math.fsum(x * x for x in errors) / len(errors))
        out.append(
            f"of {len(errors)} pairs that are known well and not limited by the host the error is {rms:.1%} (RMS)"
        )
    for host, what in ((True, "wait for the host"), (False, "do not")):
        if apart := starts([jobs], host):
            out.append(f"starts of jobs that {what} differ by {' '.join(f'{x:.1%}' for x in sorted(apart))}")
    near_said = sum(abs(x.said_us / x.measured_us - 1) <= NEAR for x in all_pairs)
    out.append(f"within 5 % from the step of another hour, as recommend printed them: {near_said}")
    inside = sum(x.inside for x in all_pairs)
    out.append(f"measured times inside the intervals, with today's spread of starts: {inside} of {len(all_pairs)}")
    return [*out, f"held: {sum(x.held for x in all_pairs)} of {len(all_pairs)}"]


def _ms(us: float | None) -> str:
    return "?" if us is None else f"{us / 1e3:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speed", action="store_true", help="time build and simulation on synthetic jobs")
    parser.add_argument("--traces", nargs="*", default=[], help="traces of torch.profiler to simulate")
    parser.add_argument("--record", nargs="*", default=[], help="records of jobs.py")
    given = parser.parse_args()
    if given.speed:
        speeds()
    for path in given.traces:
        show(path)
    for path in given.record:
        print("\n".join(tabulate_predictions(json.loads(Path(path).read_text(encoding="utf-8"))["jobs"])))


if __name__ == "__main__":
    main()
