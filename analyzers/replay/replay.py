"""The command ``logparse replay``: measure the GEMMs and convolutions of a job on this machine's or a cluster's GPUs.

Each result is stored at once, so the next call continues after it.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from analyzers.actions import ACTIONS
from analyzers.actions.totals import list_kernels_to_time
from analyzers.evidence import ladders
from analyzers.evidence.confirmations import Confirmation, Pairs, confirmation_text, judge, judge_all
from analyzers.evidence.origins import ACTION, CONFIRM, PICK, RACE
from analyzers.evidence.runs import tables_of, tables_to_analyse
from analyzers.evidence.tables import Settings
from analyzers.evidence.units import units_of_facts
from analyzers.replay.device_workers import opened_devices
from analyzers.replay.plan import Item, plan
from analyzers.replay.results import Confirmed, Method, Result, environment_key
from analyzers.replay.scheduler import History, Limits, Outcome, Scheduler
from analyzers.replay.sharing import Borrowed, measurements_of, without_checks
from analyzers.replay.trial import RaceTask
from analyzers.replay.worker import backend_named
from logparse.errors import UsageError
from logparse.executors import ray_address
from logparse.ingest import record
from logparse.libraries.kinds.backend import Place
from logparse.location import make_absolute
from logparse.model import Fact, Measurement, Record, solution_from_text
from logparse.store import Store

FORMAT = "replay"
_DEVICE = re.compile(r"cpu(:[0-9]+)?|cuda:(0|[1-9][0-9]*)")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a replay: what to measure and how.

    * ``engine``: ``local``, or Ray (``logparse.executors``).
    * ``devices``: device names. Empty means all GPUs that torch or Ray sees, otherwise the CPU.
    * ``run``: name of the run, None for the latest.
    * ``ladder``: a step between sizes n, for rows between measured sizes (``analyzers/evidence/ladders.py``). If it is
      given, sizes in the middle between two matrix products are measured, too.
    * ``only``: ``actions`` times only the kernels that proposed changes of the job would use, without a search.
      ``races`` only searches for better kernels. None does both.

    Raises UsageError if an engine or device name is invalid, and for a ladder without hipBLASLt.
    """

    backends: tuple[str, ...] = ("torch",)
    devices: tuple[str, ...] = ()
    engine: str = "local"
    run: str | None = None
    kind: str | None = None
    direction: str | None = None
    top: int | None = None
    ladder: int | None = None
    resume: bool = True
    exhaustive: bool = False
    method: Method = field(default_factory=Method)
    limits: Limits = field(default_factory=Limits)
    only: str | None = None

    def __post_init__(self) -> None:
        if self.engine != "local":
            ray_address(self.engine)
        for name in self.devices:
            if not _DEVICE.fullmatch(name):
                raise UsageError(f"--device {name}: must be cpu or the numbers of GPUs, such as 0,1")
        if self.ladder and ladders.LIBRARY not in ",".join(self.backends).lower():
            raise UsageError(
                f"--ladder times kernels of hipBLASLt only, for its tuning file: add --backend {ladders.LIBRARY}"
            )


@dataclass(frozen=True, kw_only=True)
class ReplayStep:
    """One result of measuring a job's GEMMs and convolutions, with the progress and the seconds that are left."""

    done: int
    total: int
    outcome: Outcome
    confirmation: Confirmation | None
    eta_s: float | None


@dataclass(kw_only=True)
class ReplayReport:
    """The result of a replay, which times a job's GEMMs and convolutions alone.

    * ``confirmations``: second comparisons of the fastest kernel.
    * ``kept``: operators whose gain survives correction for many tests.
    * ``resume``: the next replay skips what was measured.
    """

    run: str
    total: int
    finished: bool = True
    interrupted: bool = False
    results: list[Result] = field(default_factory=list)
    # The keys are texts of GEMMs and convolutions.
    confirmations: dict[str, Confirmation] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    remarks: list[str] = field(default_factory=list)
    seconds: float = 0.0
    # It skips only if the options are the same.
    resume: bool = True


def plan_replay(store: Store, options: Options, begins: Callable[[str], None] = lambda stage: None) -> list[Item]:
    """Return the GEMMs and convolutions that ``logparse replay`` would measure, in the order of work.

    ``begins`` is called with the name of each of the two stages before it begins. Raises StoreError if
    nothing was ingested, InputError if a backend is unknown.
    """
    for name in options.backends:
        backend_named(name)
    run = store.latest_run(options.run)
    per_backend = 8 if options.backends == ("torch",) else 40
    begins("reading the store")
    tables = tables_of(store, run)
    begins("planning")
    return plan(
        tables,
        Settings(),
        kind=options.kind,
        direction=options.direction,
        top=options.top,
        ladder=options.ladder,
        solutions=min(options.method.limit, per_backend),
    )


def timed_of(store: Store, options: Options) -> list[RaceTask]:
    """Return the measurements that show what a change of the job, such as TF32, would gain.

    Each task times the kernels that calls would use with the change. The list is empty in three cases:

    * The user measures without the backend ``torch``, because the changes are settings of PyTorch.
    * The user selected some GEMMs or convolutions, so a whole change cannot be judged.
    * The user asked only for searches for better kernels (``only`` is ``races``).
    """
    if "torch" not in options.backends or options.kind or options.direction or options.top or options.only == "races":
        return []
    found = list_kernels_to_time(tables_to_analyse(store, options.run), ACTIONS, Settings())
    return [RaceTask(problem=problem, only=tuple(map(solution_from_text, texts))) for problem, texts in found]


def replay(store: Store, options: Options, progress: Callable[[ReplayStep], None] | None = None) -> ReplayReport:
    """Time the kernels for the GEMMs and convolutions of a job, confirm the fastest ones, and store the results.

    * To confirm a kernel, it is compared with the library's choice a second time.
    * ``progress`` is called after each result.
    * Ctrl-C ends the replay. What was measured is kept (``ReplayReport.interrupted``).
    * Raises StoreError if nothing was ingested, InputError if a backend or engine is unknown, MeasuringError if a
      backend cannot be opened.
    """
    for name in options.backends:
        backend_named(name)
    run = store.latest_run(options.run)
    items = plan_replay(store, options) if options.only != "actions" else []
    timed = timed_of(store, options)
    report = ReplayReport(run=run, total=len(timed) + len(items), resume=options.resume)
    recorder = _Recorder(store, report, options, progress)
    found, convs = units_of_facts(store.facts(run)), not traced_without_tf32(store, run)
    tf32 = found is not None and "tf32" in found.settings
    place = Place(store=make_absolute(store.url), exhaustive=options.exhaustive, conv_tf32=convs, tf32=tf32)
    known, borrowed = without_checks(history(store), store) if options.resume else (History(), Borrowed())
    workspaces = {x.problem.text: x.workspace_bytes for x in items if x.workspace_bytes is not None}

    try:
        with opened_devices(options.engine, place, options.devices) as (devices, remarks):
            report.remarks.extend(remarks)
            scheduler = Scheduler(options.backends, devices, options.method, options.limits, recorder.take, known)
            recorder.confirming_s = scheduler.confirming_s
            report.finished = scheduler.run([item.problem for item in items], workspaces, timed)
            report.remarks.extend(scheduler.remarks)
    except KeyboardInterrupt:
        report.finished, report.interrupted = False, True
    recorder.close()
    store.take_inventory()
    report.remarks.extend(borrowed.report(report.results))
    return report


def traced_without_tf32(store: Store, run: str | None = None) -> bool:
    """Return True if the run's traces show single-precision convolutions, but no convolution in TF32.

    The name of cuDNN's kernel shows the type: ``…_tf32f32_…``, or ``sgemm``, ``ffma`` or ``simt`` for a kernel that
    does not use matrix units.
    """
    frame = store.query(
        """select distinct k.kernel from kernels k join conv_problems p using (problem)
           where p.dtype = 'FP32' and k.kernel is not null""",
        run,
    )
    names = [str(x).lower() for x in frame["kernel"]]
    full = any(word in x for x in names for word in ("sgemm", "ffma", "simt"))
    return full and not any("tf32" in x for x in names)


def history(store: Store) -> History:
    """Return what earlier replays stored: times of kernels, and pairs of kernels that were compared a second time.

    A replay times the job's GEMMs and convolutions alone.
    """
    # A kernel is measured only once for each GEMM or convolution, machine and set of library versions (environment).
    rows = store.query(
        f"""select m.problem, m.solution, m.origin, m.status, m.time_us, f.value as environment
            from measurements m join facts f using (source_id)
            where m.origin in ('{RACE}', '{ACTION}') and f.name = 'environment' order by m.source_id"""
    )
    confirmed: dict[str, set[tuple[str, str, str]]] = defaultdict(set)
    facts = store.query("select f.value as pair, e.value as environment from facts f join facts e using (source_id) "
                        "where f.name = 'confirmation' and e.name = 'environment'")  # fmt: skip
    for text, environment in zip(facts["pair"], facts["environment"], strict=True):
        pair = json.loads(text)
        if pair.get("complete"):
            confirmed[environment].add((pair["problem"], pair["pick"], pair["winner"]))
    raced, taken = (_best(rows[rows["origin"] == origin]) for origin in (RACE, ACTION))
    return History(raced, confirmed, taken)


def _best(rows: pd.DataFrame) -> dict[str, dict[str, dict[str, Measurement]]]:
    """Return the shortest time of each kernel, by environment and GEMM or convolution.

    An environment is a machine with one set of library versions.
    """
    out: dict[str, dict[str, dict[str, Measurement]]] = {}
    keys = ["environment", "problem", "solution"]
    fastest = rows.sort_values("time_us", kind="stable").drop_duplicates(keys)
    columns = (fastest[name] for name in keys)
    for environment, problem, solution, one in zip(*columns, measurements_of(fastest), strict=True):
        out.setdefault(environment, {}).setdefault(problem, {})[solution] = one
    return out


def seconds(text: str, option: str = "--budget") -> float:
    """Convert an option's value to seconds. The value is like ``90``, ``90s``, ``10m`` or ``1.5h``.

    Raises UsageError for any other text, and for 0 and less.
    """
    number, unit = (text[:-1], text[-1]) if text[-1:] in "smh" and text else (text, "s")
    try:
        value = float(number) * {"s": 1, "m": 60, "h": 3600}[unit]
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise UsageError(f"{option} {text}: must be a time above 0, such as 90 (seconds), 10m or 1.5h")
    return value


def racing_s(reached: Sequence[float], left: int) -> float:
    """Estimate how many seconds the ``left`` remaining GEMMs and convolutions take to measure.

    ``reached`` are the times (s) at which none, one, two … of them were done. Each remaining one is assumed to take as
    long as the mean of the last third of the finished ones, because the costliest come first.

    On the records of an H200, in this order and after a quarter of them, the estimate is 0.7 to 2.3 times the true
    time. An estimate from all finished ones would be 1.1 to 11 times the true time.
    """
    last = -(-(len(reached) - 1) // 3)
    return left * (reached[-1] - reached[-1 - last]) / last


class _Recorder:
    """Stores each measured result as soon as it arrives, and collects the report for the user."""

    def __init__(
        self, store: Store, report: ReplayReport, options: Options, progress: Callable[[ReplayStep], None] | None
    ) -> None:
        self._store, self._report, self._options, self._progress = store, report, options, progress
        self._pairs: dict[str, Pairs] = {}
        self.confirming_s: Callable[[], float] = lambda: 0.0
        """A function that estimates the seconds that are still needed to confirm the fastest kernels found so far."""
        self._started = time.monotonic()
        self._reached = [0.0]
        """The times (s) at which none, one, two … GEMMs or convolutions had been measured."""

    def take(self, outcome: Outcome, device: str) -> None:
        confirmation = None
        extra: dict[str, str] = {}
        if isinstance(outcome, Confirmed):
            confirmation = judge(outcome.pairs, floor=self._options.method.floor)
            self._pairs[outcome.problem.text] = outcome.pairs
            self._report.confirmations[outcome.problem.text] = confirmation
            names = outcome.problem.text, outcome.pick.text, outcome.winner.text
            extra["confirmation"] = confirmation_text(*names, outcome.pairs, confirmation, complete=outcome.complete)
        else:
            self._report.results.append(replace(outcome, facts={}))
        if outcome.pick is not None:
            extra[PICK] = outcome.pick.text
        if outcome.rows:
            facts = dict(outcome.facts) | extra | {"environment": environment_key(outcome.facts)}
            hosts = outcome.hosts if isinstance(outcome, Result) else ()
            records: list[Record] = [*outcome.rows, *hosts, *(Fact(*fact) for fact in sorted(facts.items()))]
            name = f"{FORMAT}/{device}/{outcome.problem.label}"
            record(self._store, records, run=self._report.run, name=name, format=FORMAT, evidence=(CONFIRM,))
        if self._progress:
            self._progress(self._step(outcome, confirmation))

    def _step(self, outcome: Outcome, confirmation: Confirmation | None) -> ReplayStep:
        done, seconds = len(self._report.results), time.monotonic() - self._started
        left = self._report.total - done
        self._reached += [seconds] * (done + 1 - len(self._reached))
        # Confirmations follow the races. The unfinished problems are assumed to have winners as often as the finished
        # problems.
        eta = racing_s(self._reached, left) + self.confirming_s() * self._report.total / done if done else None
        budget = self._options.limits.budget_s
        eta = eta if budget is None or eta is None else max(0.0, min(eta, budget - seconds))
        total = self._report.total
        return ReplayStep(done=done, total=total, outcome=outcome, confirmation=confirmation, eta_s=eta)

    def close(self) -> None:
        self._report.kept = judge_all(self._pairs, floor=self._options.method.floor)[1]
        self._report.seconds = time.monotonic() - self._started
