"""The command ``logparse replay``: measure other kernels for the GEMMs and convolutions of a job, outside the job.

With ``--dry-run``, the command only shows what it would measure.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from glob import glob

import pandas as pd

from analyzers.evidence import ladders
from analyzers.evidence.runs import tables_of
from analyzers.evidence.tables import Settings
from analyzers.replay.device_workers import local_devices
from analyzers.replay.plan import Item
from analyzers.replay.replay import Options, ReplayReport, ReplayStep, plan_replay, replay, timed_of
from analyzers.replay.results import Result
from logparse.errors import InputError
from logparse.libraries.all_backends import BACKENDS
from logparse.output import Answer
from logparse.store import Store
from logparse.text import pluralize

STAGES = 3
"""The number of stages of ``plan``."""


def plan(store: Store, options: Options, begins: Callable[[str], None] = lambda stage: None) -> Answer:
    """Return a table of the GEMMs and convolutions that ``logparse replay`` would measure, and how long that takes.

    ``begins`` is called with the name of each stage before it begins. Raises InputError for a GPU that does
    not exist on this machine.
    """
    items = plan_replay(store, options, begins)
    if options.devices and options.engine == "local":
        local_devices(options.devices)
    begins("what to time for actions")
    timed = timed_of(store, options)
    count = sum(len(x.only) for x in timed)
    actions = [
        (
            f"only timed for actions, without a search: {pluralize(len(timed), 'problem')}, "
            f"{pluralize(count, 'solution')}"
        )
    ]
    if options.only == "actions":
        return Answer(actions, plan_rows([]), "replay")
    frame = plan_rows(items)
    line = f"{pluralize(len(items), 'problem')}, about {frame['cost_s'].sum():,.0f} s of device time"
    return Answer([frame.drop(columns="text"), line, *(actions if timed else ())], frame, "replay")


def measure(store: Store, options: Options, echo: Callable[[str], None]) -> Answer:
    """Time the kernels for the GEMMs and convolutions of a job, and print each result as it comes.

    The exit code is 130 if the user ended the command by Ctrl-C. Raises InputError in the cases of
    ``refuse_what_cannot_run``.
    """

    def take(step: ReplayStep) -> None:
        if not (isinstance(step.outcome, Result) and step.outcome.known):  # A known outcome is no news.
            echo(outcome_line(step))

    refuse_what_cannot_run(options)
    report = replay(store, options, take)
    ladder = (
        [] if options.ladder is None else ladders.choose_rungs(tables_of(store, report.run), Settings(), options.ladder)
    )
    return Answer([*(x.line for x in ladder), *report_lines(report)], code=130 * report.interrupted)


def refuse_what_cannot_run(options: Options) -> None:
    """Raise InputError if measuring would fail: a package is missing, or there is no GPU and no ``--device cpu``."""
    # Nothing is checked on a Ray cluster.
    if options.engine != "local":
        return
    # A backend that the user wrote is not checked either, because it may need neither package nor GPU.
    known = [backend for backend in BACKENDS if backend.name in options.backends]
    for backend in known:
        if packages := backend.missing():
            raise InputError(
                f"--backend {backend.name} needs {' and '.join(packages)}: pip install {' '.join(packages)}"
            )
    # A user must name the CPU, because times of a CPU are no times of a GPU.
    if known and not options.devices and not (has_gpu_files() and local_devices(()) != ("cpu",)):
        where = (
            "run `logparse replay` where the job ran (`logparse export --to bundle` takes the calls to that machine)"
        )
        raise InputError(f"no GPU on this machine: {where}, or measure this machine's CPU with --device cpu")


_GPU_FILES = ("/dev/kfd", "/dev/nvidia[0-9]*", "/dev/dxg")
"""Patterns of the files through which a Linux process reaches a GPU: AMD's, NVIDIA's, and those in WSL."""


def has_gpu_files() -> bool:
    """Tell whether this machine may have a GPU, without importing torch, which takes seconds."""
    return not sys.platform.startswith("linux") or any(map(glob, _GPU_FILES))


def outcome_line(step: ReplayStep) -> str:
    """Return a progress line about one measured GEMM or convolution.

    The line has the time of the kernel that the library chooses, the best time, and the seconds that are left for the
    whole command.
    """
    left = "" if step.eta_s is None else f", {step.eta_s:,.0f} s left"
    head = f"[{step.done}/{step.total}{left}] {step.outcome.problem.label}"
    if step.confirmation is not None:
        speedup, word = step.confirmation.speedup, "confirmed" if step.confirmation.confirmed else "not confirmed"
        return f"{head}: {word}, ×{speedup.value:.3f} [{speedup.low:.3f}, {speedup.high:.3f}]"
    assert isinstance(step.outcome, Result)
    pick, best = step.outcome.pick_us, step.outcome.best_us
    times = "no time" if pick is None or best is None else f"pick {pick:,.2f} µs, best {best:,.2f} µs"
    tried, offered = len(step.outcome.rows), step.outcome.offered
    of = f" of {offered}" if offered > tried else ""
    return f"{head}: {times}, {tried}{of} solutions ({step.outcome.ended})"


def plan_rows(items: Sequence[Item]) -> pd.DataFrame:
    """Return a table of the GEMMs and convolutions that will be measured, in this order.

    * ``cost_s`` (seconds of measuring) and ``saving_us`` are estimates.
    * ``basis`` states how ``time_us`` is known.
    """
    columns = ["problem", "calls", "time_us", "basis", "saving_us", "solutions", "cost_s", "text"]
    rows = [
        (x.problem.label, x.calls, x.time_us, x.basis, x.saving_us, x.solutions, x.cost_s, x.problem.text)
        for x in items
    ]
    return pd.DataFrame(rows, columns=columns)


def report_lines(report: ReplayReport) -> list[str]:
    if not report.total:
        return [f"run {report.run}: none of the requested problems can be measured", *report.remarks]
    counts = Counter(row.status for result in report.results for row in result.rows)
    statuses = ", ".join(f"{count:,} {status}" for status, count in sorted(counts.items())) or "nothing new"
    known = sum(result.known for result in report.results)
    before = f" ({known:,} of them known from earlier measurements)" if known else ""
    done = f"{len(report.results):,} of {report.total:,} problems{before}"
    out = [f"run {report.run}: {done}, {report.seconds:,.0f} s; {statuses}"]
    if report.confirmations or not known:
        flagged, kept = len(report.confirmations), len(report.kept)
        out.append(f"{flagged:,} with a faster solution, {kept:,} of them confirmed under false-discovery control")
    out.append("next: run `logparse recommend`, which ranks what to change in the job")
    goes_on = f"the same command {'' if report.resume else 'without --again '}continues from here"
    if report.interrupted:
        out.append(f"interrupted; all measurements are kept, and {goes_on}")
    elif not report.finished and not report.results:
        out.append("the time budget was spent before anything was measured; give a longer --budget")
    elif not report.finished:
        out.append(f"the time budget is spent; {goes_on}")
    return [*out, *report.remarks]
