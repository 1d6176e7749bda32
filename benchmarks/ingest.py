"""Measure how fast logs are ingested, in turns with shell tools that read the same logs.

    python benchmarks/ingest.py                    # 1 GB of each kind (find-db and trace-json 500 MB), three rounds
    python benchmarks/ingest.py --gigabytes 10 --kinds bench adversarial --rounds 1
    LOGPARSE_NATIVE=0 python benchmarks/ingest.py  # without the native counter

Kinds:

- ``bench``: mask 32.
- ``trace``: mask 2, random addresses.
- ``mixed``: 40 % library lines, 59 % application, 1 % torn or binary.
- ``adversarial``: every line distinct.
- ``find-db``: rows of real files, repeated with other batch sizes.
- ``trace-json``: events of a real torch.profiler trace, repeated with other ids and times.

Rivals are ``sort | uniq -c`` for bench, ``sed | sort | uniq -c`` and mawk for trace, and ``json.load`` for trace-json.
``wc -l`` shows the limit of any reader.  The output has MB/s, ratios of the medians, and the peak memory (sum of PSS
over all processes).  The memory is measured in a call that is not timed.  ``--record FILE`` appends the output to a
file; ``benchmarks/results/ingest.txt`` holds such records.

A time covers a whole call, including start and end of the program, as for a user.  The programs run in a new
environment, without the code that a developer's environment starts from ``.pth`` files.  An earlier call on the log's
first MB, which is not timed, compiles the modules, whatever PYTHONDONTWRITEBYTECODE is.
"""

from __future__ import annotations

import argparse
import bz2
import datetime
import gzip
import importlib.metadata
import os
import platform
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from logparse.executors.local import usable_cores
from logparse.ingest.counting import PlainCounter, new_counter

ROOT = Path(__file__).parents[1]
REAL_ROWS = ROOT.parent / "shared" / "corpus" / "miopen" / "gfx942130.HIP.fdb.txt.bz2"
REAL_TRACE = ROOT.parent / "shared" / "corpus" / "h200" / "resnet50.trace.json.gz"
SAMPLE_TRACE = ROOT / "sample_logs" / "traces" / "job.trace.json"
SAMPLE_ROWS = ROOT / "sample_logs" / "miopen" / "gfx942130.HIP.fdb.txt"

PROBLEMS = 2_000
STRIP = r"s/^\[[^]]*\]//; s/0x[0-9a-f]*//g"
MAWK = r'gsub(/0x[0-9a-f]+/, ""); n[substr($0, 22)]++'
RIVALS = {
    "bench": {"sort|uniq -c": "LC_ALL=C sort {log} | uniq -c > {out}"},
    "trace": {
        "sed|sort|uniq -c": f"sed '{STRIP}' {{log}} | LC_ALL=C sort | uniq -c > {{out}}",
        "mawk": "mawk '{{" + MAWK + "}} END {{for (k in n) print n[k], k}}' {log} > {out}",
    },
    "mixed": {},
    "adversarial": {},
    "find-db": {},
    "trace-json": {"json.load": sys.executable + " -c 'import json; json.load(open(\"{log}\"))'"},
}
HALVES = ("find-db", "trace-json")
FILES = {"find-db": "gfx942130.HIP.fdb.txt", "trace-json": "job.trace.json"}


def problems(rng: random.Random) -> list[tuple[int, int, int, str]]:
    sizes = [64 * x for x in range(1, 129)]
    return [
        (rng.choice(sizes), rng.choice(sizes), rng.choice(sizes), rng.choice(("NN", "TN", "NT")))
        for _ in range(PROBLEMS)
    ]


def bench_line(m: int, n: int, k: int, trans: str, index: int) -> str:
    lda, ldb = (k if trans[0] == "T" else m), (n if trans[1] == "T" else k)
    return (
        f"hipblaslt-bench --api_method c -m {m} -n {n} -k {k} --lda {lda} --ldb {ldb} --ldc {m} --ldd {m}  --stride_a 0"
        " --stride_b 0 --stride_c 0 --stride_d 0  --alpha 1.000000 --beta 0.000000"
        f" --transA {trans[0]} --transB {trans[1]} --batch_count 1 --scaleA 0 --scaleB 0 "
        " --a_type bf16_r --b_type bf16_r --c_type bf16_r --d_type bf16_r --scale_type f32_r --bias_type f32_r  "
        f" --compute_type f32_r --algo_method index --solution_index {index} --activation_type none --any_stride"
        " --rotating 0 --cold_iters 0 --iters 0 \n"
    )


def trace_line(m: int, n: int, k: int, trans: str, index: int) -> str:
    """Return a hipBLASLt trace line with ``%s`` in place of the clock and ``%x`` in place of six addresses."""
    a, b = ((k, m) if trans[0] == "T" else (m, k)), ((n, k) if trans[1] == "T" else (k, n))
    return (
        "[%s][HIPBLASLT][4242][Trace][rocblaslt_matmul] A=0x%x"
        f" Adesc=[type=R_16BF rows={a[0]} cols={a[1]} ld={a[0]}]"
        f" B=0x%x Bdesc=[type=R_16BF rows={b[0]} cols={b[1]} ld={b[0]}]"
        f" C=0x%x Cdesc=[type=R_16BF rows={m} cols={n} ld={m}] D=0x%x Ddesc=[type=R_16BF rows={m} cols={n} ld={m}]"
        f" computeDesc=[computeType=COMPUTE_32F scaleType=R_32F transA=OP_{trans[0]} transB=OP_{trans[1]}"
        " epilogue=EPILOGUE_BIAS biasPointer=0x%x] workSpace=0x%x workSpaceSizeInBytes=33554432"
        " alpha=1 beta=0 stream=0 \n"
    )


APPLICATION = [
    "[rank0] step {0} loss 3.{1} lr 1.0e-4 tokens/s {2}\n",
    "INFO 2026-02-03 04:05:06 engine.py:{0}] Avg prompt throughput: {1}.{2} tokens/s, running {0} reqs\n",
    "  warnings.warn(f'gradient bucket view strides do not match {1} {2}')\n",
    "\n",
]


def write_log(path: Path, kind: str, size: int, per_second: int) -> None:
    """Write a random log of about ``size`` bytes. Equal arguments give equal logs."""
    rng = random.Random(20260203)
    shapes = problems(rng)
    weights = [1 / (i + 1) for i in range(PROBLEMS)]
    bench = [bench_line(*shape, 1000 + i) for i, shape in enumerate(shapes)]
    trace = [trace_line(*shape, 1000 + i) for i, shape in enumerate(shapes)]

    def traced(i: int, line: int) -> str:
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(1_770_000_000 + line // per_second))
        return trace[i] % (clock, *(rng.getrandbits(36) | 0x7F0000000000 for _ in range(6)))

    def mixed(i: int, line: int) -> str:
        roll = rng.random()
        if roll < 0.40:
            return bench[i] if roll < 0.2 else traced(i, line)
        if roll < 0.99:
            return APPLICATION[i % len(APPLICATION)].format(i, line % 997, line % 1009)
        return bench[i][: i % 300] + (traced(i, line) if roll < 0.995 else "\x00\x01\udcff\n")

    kinds: dict[str, Callable[[int, int], str]] = {
        "bench": lambda i, line: bench[i],
        "adversarial": lambda i, line: bench[i].replace("--solution_index ", f"--solution_index {line}"),
        "trace": traced,
        "mixed": mixed,
    }
    written = line = 0
    with path.open("w", encoding="utf-8", errors="surrogateescape") as sink:
        while written < size:
            picked = rng.choices(range(PROBLEMS), weights, k=5_000)
            text = "".join(kinds[kind](i, line + j) for j, i in enumerate(picked))
            line += len(picked)
            sink.write(text)
            written += len(text)


def write_find_db(path: Path, size: int) -> None:
    """Write a large find-db from the rows of a real one, which are repeated with larger and larger batch sizes.

    ``size`` is the number of bytes to reach. If the real file is missing, the sample in the repository is used.
    """
    text = bz2.decompress(REAL_ROWS.read_bytes()).decode() if REAL_ROWS.exists() else SAMPLE_ROWS.read_text()
    rows = [re.match(r"(\d+-\d+-\d+-\d+x\d+-\d+-\d+-\d+-)(\d+)(-.*)", row) for row in text.split("\n")]
    with path.open("w", encoding="utf-8") as sink:
        for copy in range(1 << 30):
            for row in rows:
                if row is not None:
                    sink.write(f"{row[1]}{int(row[2]) + 1024 * copy}{row[3]}\n")
            if sink.tell() >= size:
                return


def write_trace_json(path: Path, size: int) -> None:
    """Write a large trace from the events of a real one, which are repeated with later ids and times.

    ``size`` is the number of bytes to reach. If the real file is missing, the sample in the repository is used.
    """
    text = gzip.decompress(REAL_TRACE.read_bytes()) if REAL_TRACE.exists() else SAMPLE_TRACE.read_bytes()
    start, end = text.index(b'"traceEvents": [\n') + len(b'"traceEvents": [\n'), text.rindex(b"\n  ]")
    number = re.compile(rb'("(?:External id|correlation|id|Ev Idx|ts)": )(\d+)')
    later = 1 + max(int(match[2]) for match in number.finditer(text) if match[1] != b'"ts": ')
    with path.open("wb") as sink:
        sink.write(text[:start])
        for copy in range(1 << 30):
            shift = copy * later
            sink.write(number.sub(lambda match: b"%s%d" % (match[1], int(match[2]) + shift), text[start:end]))  # noqa: B023
            if sink.tell() >= size:
                break
            sink.write(b",\n")
        sink.write(text[end:])


def pss_bytes(root: int) -> int:
    """Return the memory of a process and all its descendants in bytes (PSS: shared pages are counted in part)."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    total, todo = 0, [root]
    while todo:
        pid = todo.pop()
        todo += parents.get(pid, [])
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Pss:"))
    return total


def timed(command: str, environment: Mapping[str, str]) -> float:
    """Run a shell command and return the seconds that it took. Raises SystemExit if it fails."""
    started = time.monotonic()
    code = subprocess.run(["bash", "-c", command], stdout=subprocess.DEVNULL, env=environment, check=False).returncode
    seconds = time.monotonic() - started
    if code:
        raise SystemExit(f"failed ({code}): {command}")
    return seconds


def run_watched(command: str, environment: Mapping[str, str]) -> tuple[float, int]:
    """Run a shell command and return its seconds and the largest memory of its processes, in bytes.

    The command takes longer than with ``timed``, because reading the memory takes time.
    """
    started = time.monotonic()
    child = subprocess.Popen(["bash", "-c", command], stdout=subprocess.DEVNULL, env=environment)
    peak = 0
    while child.poll() is None:
        peak = max(peak, pss_bytes(child.pid))
        time.sleep(min(0.5, max(0.02, (time.monotonic() - started) / 100)))
    return time.monotonic() - started, peak


def machine() -> Iterator[str]:
    """Yield lines that describe the machine on which the times are measured."""
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", info.read_text()) if info.exists() else []
    counter = "Python" if isinstance(new_counter((), (), ()), PlainCounter) else "native code"
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("pyarrow", "numpy", "duckdb"))
    yield f"{datetime.date.today()}, {names[0] if names else platform.machine()}, {usable_cores()} cores"
    yield f"load {os.getloadavg()[0]:.1f} at the start (other work on the machine slows all of these alike)"
    yield f"Python {platform.python_version()}, {versions}; lines counted in {counter}; modules compiled before"


class Program:
    """The command line of logparse as users have it: without packages that only developers install."""

    def __init__(self, folder: Path) -> None:
        """Make a virtual environment without a developer's packages in ``folder``.

        Python's compiled bytecode is stored in this folder, too.
        """
        venv.create(folder / "plain", with_pip=False)
        path = [str(ROOT), *(entry for entry in sys.path if entry.endswith("site-packages"))]
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        added = {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "PYTHONPATH": os.pathsep.join(path)}
        self.environment = kept | added
        self.command = f"{folder / 'plain' / 'bin' / 'python'} -m logparse"
        self._folder = folder

    def warm(self, log: Path) -> None:
        """Ingest the first MB of a log, so that all modules that it needs are compiled."""
        start = self._folder / "start" / log.name
        start.parent.mkdir(exist_ok=True)
        with log.open("rb") as whole:
            start.write_bytes(whole.read(1 << 20))
        timed(f"{self.command} ingest {start} --store {self._folder / 'store'}", self.environment)


def measure(log: Path, kind: str, folder: Path, rounds: int, rivals: bool) -> tuple[float, list[str]]:
    """Measure how fast logparse reads a log. Other tools read the same log in turns with it.

    Returns the speed of logparse in MB/s, and lines to print.
    """
    store, out = folder / "store", folder / "counts.txt"
    program = Program(folder)
    program.warm(log)
    commands = {"logparse ingest": f"{program.command} ingest {log} --store {store}", "wc -l": f"wc -l {log}"}
    if rivals:
        commands |= {name: command.format(log=log, out=out) for name, command in RIVALS[kind].items()}
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            shutil.rmtree(store, ignore_errors=True)
            times[name].append(timed(command, program.environment))
    peaks = {}
    for name in commands.keys() & {"logparse ingest", "json.load"}:
        shutil.rmtree(store, ignore_errors=True)
        seconds, peaks[name] = run_watched(commands[name], program.environment)
        times[name] = times[name] or [seconds]
    shutil.rmtree(store, ignore_errors=True)
    size = log.stat().st_size / 1e6
    ours = statistics.median(times["logparse ingest"])
    lines = []
    for name, taken in ((name, taken) for name, taken in times.items() if taken):
        median = statistics.median(taken)
        spread = f"{min(taken):.2f} to {max(taken):.2f}"
        lines.append(f"  {name:18} {median:8.2f} s ({spread})  {size / median:6.0f} MB/s  ×{median / ours:.2f} of ours")
    lines.append(f"  peak memory of the ingest: {peaks['logparse ingest'] / 1e6:.0f} MB (PSS, all processes)")
    if "json.load" in peaks:
        lines.append(f"  peak memory of json.load: {peaks['json.load'] / 1e6:.0f} MB")
    return size / ours, lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--gigabytes", type=float, default=1.0, help="size of each log (find-db and trace-json: half of it)"
    )
    parser.add_argument("--kinds", nargs="+", default=["bench", "trace", "mixed", *HALVES], choices=list(RIVALS))
    parser.add_argument("--per-second", type=int, default=1_000, help="lines per second of the log's clock")
    parser.add_argument("--rounds", type=int, default=3, help="0: only the call whose memory is watched")
    parser.add_argument("--no-rivals", action="store_true")
    parser.add_argument("--folder", help="where the logs are made and kept [default: a temporary folder]")
    parser.add_argument("--record", type=Path, help="append the figures to this file")
    args = parser.parse_args()
    folder = Path(args.folder or tempfile.mkdtemp(prefix="logparse-benchmark-"))
    folder.mkdir(parents=True, exist_ok=True)
    printed: list[str] = []

    def report(*lines: str) -> None:
        printed.extend(lines)
        print(*lines, sep="\n", flush=True)

    report(*machine())
    speeds: dict[str, float] = {}
    for kind in args.kinds:
        size = int(args.gigabytes * (5e8 if kind in HALVES else 1e9))
        name = FILES.get(kind, f"{args.per_second}.log")
        log = folder / f"{kind}-{args.gigabytes:g}" / name
        if not log.exists():
            log.parent.mkdir(exist_ok=True)
            if kind == "find-db":
                write_find_db(log, size)
            elif kind == "trace-json":
                write_trace_json(log, size)
            else:
                write_log(log, kind, size, args.per_second)
        speeds[kind], lines = measure(log, kind, folder, args.rounds, not args.no_rivals)
        report(f"\n{kind}: {log.stat().st_size / 1e6:,.0f} MB, {args.per_second} lines per clock second", *lines)
    if {"bench", "mixed"} <= speeds.keys():
        report(f"\nmixed / bench: {speeds['mixed'] / speeds['bench']:.2f}")
    if args.record:
        with args.record.open("a", encoding="utf-8") as record:
            record.write("\n".join(printed) + "\n\n")
    if not args.folder:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
