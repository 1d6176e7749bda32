"""Measure the costs of many files and many GPUs, in one section per question. Without arguments, all but ``--gpu`` run.

    python benchmarks/scale.py --ingest      # 200 logs by 1 and 2 workers, local processes and Ray: efficiency, and
                                             # the efficiency of two plain loops, the most that this machine gives
    python benchmarks/scale.py --cores       # one log of 6 GB with 1, 2, 4 … of this machine's cores
    python benchmarks/scale.py --memory      # memory of the driver against the number of files, to 20,000 tiny ones
    python benchmarks/scale.py --plan        # planning a replay of 2,000 problems with 100 measured solutions each
    python benchmarks/scale.py --findings    # recommend over aiter tables of 2,000 to 100,000 timed rows of one family
    python benchmarks/scale.py --parts       # views over 10,000 part files, before and after `logparse compact`
    python benchmarks/scale.py --gpu 1,2 --find-db gfx942130.HIP.fdb.txt.bz2    # the same replay on 1 GPU and on 2
    python benchmarks/scale.py --gpu 1,2 --smoke                                # that, with a backend that sleeps

``--gpu`` first measures how long one GPU takes for a few backward-weight convolutions of a find-db. From that time it
chooses so many problems that one GPU should be busy for ``--busy`` seconds. It replays these problems on each number of
GPUs in turn, and on one GPU once more. The runs on several GPUs are compared with the faster of the two runs on one
GPU. It prints the ratio of the wall times with the start of the worker processes (torch alone takes seconds) and
without it. "Without the start" leaves out the time in which no worker was open. Exit status 1 if the ratio without the
start is below 1.9 (2 GPUs) or 3.7 (4 GPUs), or if fewer than 95 % of the findings come again.

Everything goes into one JSON file per call in ``--results``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from analyzers.evidence.confirmations import judge_all
from analyzers.replay.device_workers import LocalDevice
from analyzers.replay.results import Confirmed, Method, Result
from analyzers.replay.scheduler import Limits, Outcome, Scheduler
from analyzers.replay.worker import Handle, Ready, Reply, Worker
from logparse.executors.local import usable_cores
from logparse.libraries.kinds.backend import BackendType, Conditions, Place
from logparse.model import Problem, Solution

LEAST_RATIO = {2: 1.9, 4: 3.7}
LEAST_REPEATED = 0.95
CALIBRATION = 8
_SHARED_MEMORY = Path("/dev/shm")  # The folder is in memory, so that no fsync waits for a disk.
FOLDER = str(_SHARED_MEMORY) if os.access(_SHARED_MEMORY, os.W_OK) else tempfile.gettempdir()


def main() -> int:
    """Read the command line, measure, write the record, and print a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ingest", action="store_true")
    parser.add_argument("--cores", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--findings", action="store_true")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--gpu", metavar="1,2", help="numbers of GPUs, ascending, the first one 1")
    parser.add_argument("--files", type=int, default=200, help="logs of --ingest")
    parser.add_argument("--sources", type=int, default=5_000, help="logs of --parts, two part files and more each")
    parser.add_argument("--megabytes", type=float, default=8.0, help="size of each")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engines", nargs="+", default=["local", "ray"], choices=["local", "ray"])
    parser.add_argument("--counts", type=int, nargs="+", default=[2_000, 20_000], help="files of --memory")
    parser.add_argument("--find-db", help="MIOpen find-db text (.bz2 allowed)")
    parser.add_argument("--backend", default="torch", help="comma-separated")
    parser.add_argument("--busy", type=float, default=70.0, help="seconds of one GPU")
    parser.add_argument("--smoke", action="store_true", help="no GPU: solutions that sleep")
    parser.add_argument("--results", default=str(Path(__file__).parent / "results"))
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return _child(*options.child)
    record: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {"cores": usable_cores(), "load": os.getloadavg()[0], "python": platform.python_version()},
        "folder": FOLDER,
        "command": " ".join(word for word in sys.argv[1:] if word not in ("--results", options.results)),
    }
    sections = [
        name for name in ("ingest", "cores", "memory", "plan", "findings", "parts", "gpu") if getattr(options, name)
    ]
    failed = []
    for name in sections:
        record[name] = globals()[f"{name}_section"](options)
        failed += record[name].pop("failed", [])
    device = record.get("gpu", {}).get("environment", {}).get("device", "host").replace(" ", "-")
    folder = Path(options.results)
    folder.mkdir(parents=True, exist_ok=True)
    target = (
        folder / f"scale-{'-'.join(sections)}{'-smoke' if options.smoke else ''}-{device}-{record['date'][:10]}.json"
    )
    target.write_text(json.dumps(record, indent=1), encoding="utf-8")
    print(f"{target}")
    for line in failed:
        print(f"missed: {line}")
    return 1 if failed else 0


# ------------------------------------------------------------------------------------------------ many files


def ingest_section(options: argparse.Namespace) -> dict[str, Any]:
    """Compare how long it takes to read logs with one and with two worker processes. The two take turns."""
    # A tenth of the files is read as well, which shows the cost of starting. Copies of a plain loop are timed, too, to
    # see how much faster two processes can be on this machine at all.
    from ingest import write_log

    seconds: dict[str, dict[str, list[float]]] = {"loop": {}}
    cpu: dict[str, list[float]] = {}
    counts = (max(2, options.files // 10), options.files)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        first = Path(folder, "log")
        write_log(first, "bench", int(options.megabytes * 1e6), 1_000)
        for count in counts:
            logs = Path(folder, f"logs{count}")
            logs.mkdir()
            for number in range(count):
                os.link(first, logs / f"hipblaslt_{number}.log")
        for _, engine in product(range(options.rounds), options.engines):
            for jobs in (1, 2):
                seconds["loop"].setdefault(f"{jobs}", []).append(_looped(jobs))
                print(f"{jobs} plain loop(s): {seconds['loop'][f'{jobs}'][-1]:.2f} s each", flush=True)
                for count in counts:
                    store = Path(folder, "store")
                    wall, used = _ingested(Path(folder, f"logs{count}"), store, engine, jobs)
                    shutil.rmtree(store)
                    seconds.setdefault(engine, {}).setdefault(f"{jobs}, {count} files", []).append(wall)
                    cpu.setdefault(f"{engine} {jobs}, {count} files", []).append(used)
                    print(f"{engine}, {jobs} worker(s), {count} files: {wall:.1f} s, CPU {used:.1f} s", flush=True)
    ceiling = min(seconds["loop"]["1"]) / min(seconds["loop"]["2"])
    out: dict[str, Any] = {"files": options.files, "megabytes": options.megabytes, "ceiling": ceiling}
    out |= {"seconds": seconds, "cpu_seconds": cpu}
    for engine in options.engines:
        few, all_ = ([min(seconds[engine][f"{jobs}, {count} files"]) for jobs in (1, 2)] for count in counts)
        more = [whole - part for part, whole in zip(few, all_, strict=True)]
        whole, steady = all_[0] / all_[1] / 2, more[0] / more[1] / 2
        of_ceiling = {"with start": whole / ceiling, "without start": steady / ceiling}
        out[f"efficiency {engine}"] = {"with start": whole, "without start": steady, "of the ceiling": of_ceiling}
        rate = (counts[1] - counts[0]) * options.megabytes / more[1]
        print(f"{engine}: best {all_[0]:.1f} → {all_[1]:.1f} s, efficiency {whole:.2f}; without the start {steady:.2f}"
              f", {rate:.0f} MB/s with 2 workers; two plain loops: {ceiling:.2f}, of which these are "
              f"{whole / ceiling:.2f} and {steady / ceiling:.2f}")  # fmt: skip
    return out


_LOOP = "import time; t = time.monotonic(); sum(i & 7 for i in range(75_000_000)); print(time.monotonic() - t)"


def _looped(copies: int) -> float:
    """Measure how well the machine runs several processes at once, by a simple counting loop in each of them.

    Returns the seconds of the slowest of the ``copies`` processes.
    """
    loops = [subprocess.Popen([sys.executable, "-c", _LOOP], stdout=subprocess.PIPE) for _ in range(copies)]
    return max(float(loop.communicate()[0]) for loop in loops)


def _ingested(logs: Path, target: Path, engine: str, jobs: int) -> tuple[float, float]:
    """Read the logs with ``jobs`` workers. Return the wall seconds and the CPU seconds.

    The CPU seconds do not include Ray's workers.
    """
    # The CPU seconds include this process and the processes that it started. Ray's workers belong to the cluster. The
    # cluster is started before the measurement, but its workers are not.
    from logparse.executors import open_executor
    from logparse.ingest import ingest
    from logparse.store import open_store

    store = open_store(target, create=True)
    with open_executor(engine, jobs) as executor:
        started, before = time.monotonic(), os.times()
        results = ingest([str(logs)], store, executor=executor)
        taken, after = time.monotonic() - started, os.times()
    assert all(x.state == "new" for x in results), [x.error for x in results][:3]
    return taken, sum(after[:4]) - sum(before[:4])


def cores_section(options: argparse.Namespace) -> dict[str, Any]:
    """Measure how long it takes to read one log with 1, 2, 4 … cores of this machine.

    One process reads the log, with at most one thread per core. The numbers of cores take turns.
    """
    from ingest import write_log

    ours = sorted(os.sched_getaffinity(0))
    counts = [count for count in (1, 2, 4, 8, 16, 32) if count <= len(ours)]
    seconds: dict[str, dict[int, list[float]]] = {}
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        part, log, store = Path(folder, "part"), Path(folder, "hipblaslt_1.log"), Path(folder, "store")
        for kind in ("bench", "mixed"):
            write_log(part, kind, 1_000_000_000, 1_000)
            with log.open("wb") as whole:
                for _ in range(6):
                    with part.open("rb") as copied:
                        shutil.copyfileobj(copied, whole, 1 << 20)
            command = [sys.executable, "-m", "logparse", "ingest", str(log), "--store", str(store)]
            for _, count in product(range(options.rounds), counts):
                os.sched_setaffinity(0, ours[:count])
                started = time.monotonic()
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                seconds.setdefault(kind, {}).setdefault(count, []).append(time.monotonic() - started)
                os.sched_setaffinity(0, ours)
                shutil.rmtree(store)
            shown = ", ".join(f"{count}: {min(taken):.2f} s" for count, taken in seconds[kind].items())
            print(f"{kind}, {log.stat().st_size / 1e9:.1f} GB, by cores: {shown}", flush=True)
    return {"bytes": 6_000_000_000, "seconds": seconds}


def parts_section(options: argparse.Namespace) -> dict[str, Any]:
    """Time SQL views over many Parquet files, before and after ``logparse compact`` has merged the files."""
    from ingest import write_log

    from logparse.executors import open_executor
    from logparse.ingest import ingest
    from logparse.store import open_store
    from logparse.store.compaction import compact

    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        logs = Path(folder, "logs")
        logs.mkdir()
        write_log(Path(folder, "long.log"), "bench", 20_000, 1_000)
        text = "".join(Path(folder, "long.log").read_text().splitlines(keepends=True)[:20])
        for number in range(options.sources):
            (logs / f"hipblaslt_{number}.log").write_text(text)
        store = open_store(Path(folder, "store"), create=True)
        with open_executor("local", 2) as executor:
            ingest([str(logs)], store, executor=executor)
        out: dict[str, Any] = {"parts": sum(len(store.files(table)) for table in ("calls", "gemms"))}
        for when in ("before", "after"):
            times: dict[str, float] = {}
            with timed(times, "commits"):
                store.commits()
            for view in ("calls", "workload", "gemm_problems"):
                with timed(times, view):
                    counted = store.query(f"select count(*) as n from {view}")["n"][0]
                assert out.setdefault(f"rows of {view}", int(counted)) == counted
            print(f"{when}: " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in times.items()), flush=True)
            out[when] = times
            if when == "before":
                with timed(out, "compaction"):
                    files, left = compact(store)
                out["files"] = {"before": files, "after": left}
                print(f"compaction: {files:,} files became {left:,}, {out['compaction']:.1f} s", flush=True)
    return out


def memory_section(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the peak memory of the main process while other processes read files for it.

    The same files are read twice. The second time they are all known already.
    """
    rows = []
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        for engine in options.engines:
            for count in options.counts:
                logs = Path(folder, f"logs{count}")
                if not logs.exists():
                    _tiny_logs(logs, count)
                for what in ("new", "known"):
                    command = [sys.executable, __file__, "--child", engine, str(logs), f"{folder}/{engine}{count}"]
                    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                    row = {"engine": engine, "files": count, "what": what} | json.loads(done.stdout.splitlines()[-1])
                    rows.append(row)
                    print(f"{engine}, {count:,} {what}: {row['peak_mb']:.0f} MB (start {row['start_mb']:.0f}), "
                          f"{row['seconds']:.0f} s", flush=True)  # fmt: skip
    return {"rows": rows}


def _tiny_logs(folder: Path, count: int) -> None:
    line = "[2026-02-03 04:05:06][HIPBLASLT][{pid}][Api][hipblasLtMatmul] rank={pid} something to say about itself\n"
    for number in range(count):
        host = folder / f"host{number // 8:05}"
        host.mkdir(parents=True, exist_ok=True)
        (host / f"hipblaslt_{number}.log").write_text(line.format(pid=number))


def _child(engine: str, logs: str, target: str) -> int:
    from logparse.executors import local, open_executor
    from logparse.ingest import ingest
    from logparse.store import open_store

    local._WORTH = 0  # so other processes read tiny files, too, and only the driver is measured
    store = open_store(target, create=True)
    with open_executor(engine, 2) as executor:
        begin = _peak_mb()
        started = time.monotonic()
        results = ingest([logs], store, executor=executor)
        seconds = time.monotonic() - started
        peak = _peak_mb()
    assert not [x for x in results if x.state == "failed"]
    print(json.dumps({"start_mb": begin, "peak_mb": peak, "seconds": seconds}))
    return 0


def _peak_mb() -> float:
    """Return the peak resident set (memory) of this process in MB.

    ``ru_maxrss`` cannot be used, because it includes the process that started this one.
    """
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found, "no VmHWM: this section needs Linux"
    return int(found[1]) * 1024 / 1e6


# ------------------------------------------------------------------------------------------------ many problems


def plan_section(options: argparse.Namespace) -> dict[str, Any]:
    """Measure how long it takes to plan a replay when 200,000 measurements are stored.

    The plan is the ordered list of operators to replay.
    """
    from dataclasses import replace

    from analyzers.evidence.runs import tables_of
    from analyzers.evidence.tables import Settings
    from analyzers.replay.plan import plan
    from analyzers.replay.replay import history
    from analyzers.replay.trial import REFERENCE
    from logparse.ingest import record
    from logparse.model import Call, Fact, Measurement
    from logparse.store import open_store

    problems = [replace(REFERENCE, m=64 + 8 * (n % 50), n=32 * (1 + n // 50), k=1024) for n in range(2_000)]
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        store = open_store(folder, create=True)
        calls = [Call(problem=problem, category="trace", count=1 + n) for n, problem in enumerate(problems)]
        record(store, calls, run="r", name="log", format="benchmark")
        for start in range(0, len(problems), 100):
            rows = [
                Measurement(problem=p, solution=Solution("hipblaslt", str(n)), origin="replay", time_us=50.0 + n)
                for p in problems[start : start + 100]
                for n in range(100)
            ]
            environment = Fact("environment", "one")
            record(store, [*rows, environment], run="r", name=f"replay/{start}", format="replay")
        times = {}
        with timed(times, "frames"):
            tables = tables_of(store)
        with timed(times, "plan"):
            items = plan(tables, Settings())
        with timed(times, "history"):
            history(store)
    assert len(items) == len(problems)
    print(", ".join(f"{name} {seconds:.2f} s" for name, seconds in times.items()))
    return {"problems": len(problems), "measurements": 100 * len(problems), "seconds": times}


ROWS = (2_000, 8_000, 19_088, 100_000)
MOST_SECONDS, SLACK = 6.0, 1.5


def findings_section(options: argparse.Namespace) -> dict[str, Any]:
    """Measure how long ``logparse recommend`` takes for tables of different lengths, and check two limits.

    * 19,088 rows: at most 6 s.
    * 100,000 rows: at most 1.5 times the expected time.
    """
    # The expected time is computed from the time for 19,088 rows. It grows like n log n.
    from math import log

    from analyzers.evidence.runs import tables_to_analyse
    from analyzers.evidence.tables import Settings
    from analyzers.recommend.ranking import recommend
    from logparse.ingest import ingest
    from logparse.libraries.aiter.tables import COLUMNS
    from logparse.store import open_store

    device, call, rest = "gfx942,304", "7168,2048,False,torch.bfloat16,torch.bfloat16,False,False", ",0.0,1,1"
    seconds, found = {}, {}
    for count in ROWS:
        lines = [",".join(COLUMNS)]
        for m in range(1, count + 1):
            # A tile has 512 rows, so its smallest size takes as long as its largest.
            us = 20 + m // 512 * 9.5 + m % 7 * 0.1
            lines.append(f"{device},{m},{call},hipblaslt,{m % 97},0,{us:.3f},kernel{rest}")
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            table = Path(folder, "bf16_tuned_gemm.csv")
            table.write_text("\n".join(lines) + "\n", encoding="utf-8")
            store = open_store(Path(folder, "store"), create=True)
            ingest([str(table)], store)
            tables = tables_to_analyse(store)
            with timed(seconds, str(count)):
                found[count] = len(recommend(tables, Settings()).findings)
    print(", ".join(f"{name} rows {took:.2f} s" for name, took in seconds.items()))
    some, many = ROWS[-2:]
    allowed = SLACK * seconds[str(some)] * many * log(many) / (some * log(some))
    failed = [f"{some:,} rows took {seconds[str(some)]:.1f} s"] * (seconds[str(some)] > MOST_SECONDS)
    failed += [f"{many:,} rows took more than {allowed:.1f} s"] * (seconds[str(many)] > allowed)
    return {"seconds": seconds, "findings": found, "failed": failed}


@contextmanager
def timed(into: dict[str, float], name: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    into[name] = time.monotonic() - started


# ------------------------------------------------------------------------------------------------ many GPUs


@dataclass
class Clock:
    """Measures for how long no worker process was running, by counting the workers that are running."""

    since: float = field(default_factory=time.monotonic)
    open: int = 0
    without: float = 0.0

    def change(self, by: int) -> None:
        now = time.monotonic()
        if self.open == 0:
            self.without += now - self.since
        self.since, self.open = now, self.open + by


class ClockedWorker(Worker):
    """A worker that reports its start and its stop to the ``Clock``."""

    clock: Clock
    counted = False

    def receive(self) -> Reply:
        reply = super().receive()
        if isinstance(reply, Ready):
            self.counted = True
            self.clock.change(+1)
        return reply

    def stop(self) -> None:
        if self.counted:
            self.counted = False
            self.clock.change(-1)
        super().stop()


@dataclass(frozen=True)
class ClockedDevice(LocalDevice):
    clock: Clock

    def open(self, backends: Sequence[str], method: Method) -> Handle:
        worker = ClockedWorker(backends, self.place, method)
        worker.clock = self.clock
        return worker


@dataclass
class Run:
    """The results of timing the kernels of many operators on ``gpus`` GPUs, and how long this took."""

    gpus: int
    wall_s: float
    without_start_s: float
    outcomes: list[Outcome]
    devices: list[str]

    @property
    def results(self) -> list[Result]:
        return [x for x in self.outcomes if isinstance(x, Result)]

    @property
    def findings(self) -> Mapping[str, float]:
        """The operators for which a faster kernel was confirmed, as {text of the operator: speed-up}."""
        judged, kept = judge_all({x.problem.text: x.pairs for x in self.outcomes if isinstance(x, Confirmed)})
        return {text: judged[text].speedup.value for text in kept}


def gpu_section(options: argparse.Namespace) -> dict[str, Any]:
    """Replay the same operators on different numbers of GPUs, and compare how long that takes."""
    counts = [int(x) for x in options.gpu.split(",")]
    problems = _problems(options)
    few = _replayed(options, 1, problems[:CALIBRATION])
    each = few.without_start_s / len(few.results)
    wanted = min(len(problems), max(4 * max(counts), round(options.busy / each)))
    print(f"{each:.2f} s per problem: {wanted} problems", flush=True)
    runs = [_replayed(options, count, problems[:wanted]) for count in counts]
    runs.append(_replayed(options, 1, problems[:wanted]))  # repeated with all kernels loaded
    first, failed = min((run for run in runs if run.gpus == 1), key=lambda run: run.without_start_s), []
    out: dict[str, Any] = {
        "backend": options.backend,
        "problems": wanted,
        "environment": dict(next((x.facts for x in first.outcomes if x.facts), {})),
        "runs": [_of_run(run) for run in runs],
        "ratios": {},
    }
    for run in (run for run in runs if run.gpus > 1):
        ratio, whole = first.without_start_s / run.without_start_s, first.wall_s / run.wall_s
        again = len(first.findings.keys() & run.findings.keys()) / max(1, len(first.findings))
        out["ratios"][run.gpus] = {"without_start": ratio, "with_start": whole, "findings_again": again}
        print(f"{run.gpus} GPUs: ×{ratio:.2f} (×{whole:.2f} with the start of the workers), "
              f"{again:.0%} of {len(first.findings)} findings again", flush=True)  # fmt: skip
        if ratio < LEAST_RATIO.get(run.gpus, 0.0) or again < LEAST_REPEATED:
            failed.append(f"{run.gpus} GPUs: ratio {ratio:.2f}, findings again {again:.0%}")
    return out | {"failed": failed}


def _replayed(options: argparse.Namespace, gpus: int, problems: Sequence[Problem]) -> Run:
    clock = Clock()
    outcomes: list[Outcome] = []
    devices: list[str] = []

    def sink(outcome: Outcome, device: str) -> None:
        outcomes.append(outcome)
        devices.append(device)

    kind = "cpu" if options.smoke else "cuda"
    workers = [ClockedDevice(Place(device=f"{kind}:{index}"), clock) for index in range(gpus)]
    backends = ["scale:SLEEPER"] if options.smoke else options.backend.split(",")
    started = time.monotonic()
    finished = Scheduler(backends, workers, Method(), Limits(), sink).run(problems)
    wall = time.monotonic() - started
    clock.change(0)
    assert finished
    print(f"{gpus} GPU(s): {len(problems)} problems, {wall:.1f} s, no worker open for {clock.without:.1f} s of it",
          flush=True)  # fmt: skip
    return Run(gpus, wall, wall - clock.without, outcomes, devices)


def _of_run(run: Run) -> dict[str, Any]:
    return {
        "gpus": run.gpus,
        "wall_s": run.wall_s,
        "without_start_s": run.without_start_s,
        "findings": run.findings,
        "outcomes": [
            {
                "problem": x.problem.text,
                "device": device,
                "confirmation": isinstance(x, Confirmed),
                "seconds": x.seconds if isinstance(x, Result) else None,
                "pick_us": x.pick_us if isinstance(x, Result) else x.pairs.pick_us,
                "best_us": x.best_us if isinstance(x, Result) else x.pairs.winner_us,
                "best": x.best.text if isinstance(x, Result) and x.best else None,
            }
            for x, device in zip(run.outcomes, run.devices, strict=True)
        ],
    }


def _problems(options: argparse.Namespace) -> list[Problem]:
    if options.smoke:
        from dataclasses import replace

        from analyzers.replay.trial import REFERENCE

        return [replace(REFERENCE, m=8 * n) for n in range(1, 400)]
    from inputs import sampled_wgrads

    return sampled_wgrads(options.find_db, 100_000, 0)


class Sleeper:
    """A replay backend without a device. It has two kernels that only sleep. The second one takes half as long."""

    cache_bytes = 0
    workspace_bytes, host_us = 0, None

    def __init__(self, place: Place, us: float = 2_000.0) -> None:
        self._us = us

    def environment(self) -> Mapping[str, str]:
        return {"device": "sleeper"}

    def solutions(self, problem: Problem, limit: int, workspace_bytes: int | None = None) -> Sequence[Solution]:
        return [Solution("sleeper", "pick"), Solution("sleeper", "fast")]

    def prepare(self, problem: Problem, solution: Solution, conditions: Conditions) -> Sleeper:
        return Sleeper(Place(), self._us if solution.id == "pick" else self._us / 2)

    def refresh(self, seed: int) -> None:
        pass

    def release(self) -> None:
        pass

    def healthy(self) -> bool:
        return True

    def error(self) -> float:
        return 0.0

    def fault(self) -> str:
        return ""

    def sample_us(self, count: int) -> float:
        started = time.monotonic()
        time.sleep(self._us * count / 1e6)
        return self._us * (1 + (time.monotonic() - started) % 1e-3)


SLEEPER = BackendType("sleeper", "no device", Sleeper)

if __name__ == "__main__":
    sys.exit(main())
