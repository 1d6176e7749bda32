"""How fast logs become a store, against what people run by hand, in one run and taking turns.

    python benchmarks/ingest.py                    # 1 GB of each kind, three rounds
    python benchmarks/ingest.py --gigabytes 10 --kinds bench adversarial --rounds 1

Kinds: ``bench`` (mask 32), ``trace`` (mask 2, random addresses), ``mixed`` (40 % library lines, 59 % application,
1 % torn or binary) and ``adversarial`` (every line distinct).  Rivals: ``sort | uniq -c`` for bench, ``sed | sort |
uniq -c`` and mawk for trace, ``wc -l`` as the limit of any reader.  Prints MB/s, ratios of the medians and the peak
memory (sum of PSS over all processes of the ingest).
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

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
}


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
        f" --transA {trans[0]} --transB {trans[1]} --batch_count 1 --scaleA 0 --scaleB 0  --a_type bf16_r --b_type bf16_r"
        " --c_type bf16_r --d_type bf16_r --scale_type f32_r --bias_type f32_r   --compute_type f32_r --algo_method index"
        f" --solution_index {index} --activation_type none --any_stride --rotating 0 --cold_iters 0 --iters 0 \n"
    )


def trace_line(m: int, n: int, k: int, trans: str, index: int) -> str:
    """A template: ``%s`` for the clock, ``%x`` for six addresses."""
    a, b = ((k, m) if trans[0] == "T" else (m, k)), ((n, k) if trans[1] == "T" else (k, n))
    return (
        "[%s][HIPBLASLT][4242][Trace][rocblaslt_matmul] A=0x%x"
        f" Adesc=[type=R_16BF rows={a[0]} cols={a[1]} ld={a[0]}] B=0x%x Bdesc=[type=R_16BF rows={b[0]} cols={b[1]} ld={b[0]}]"
        f" C=0x%x Cdesc=[type=R_16BF rows={m} cols={n} ld={m}] D=0x%x Ddesc=[type=R_16BF rows={m} cols={n} ld={m}]"
        f" computeDesc=[computeType=COMPUTE_32F scaleType=R_32F transA=OP_{trans[0]} transB=OP_{trans[1]}"
        " epilogue=EPILOGUE_BIAS biasPointer=0x%x] workSpace=0x%x workSpaceSizeInBytes=33554432 alpha=1 beta=0 stream=0 \n"
    )


APPLICATION = [
    "[rank0] step {0} loss 3.{1} lr 1.0e-4 tokens/s {2}\n",
    "INFO 2026-02-03 04:05:06 engine.py:{0}] Avg prompt throughput: {1}.{2} tokens/s, running {0} reqs\n",
    "  warnings.warn(f'gradient bucket view strides do not match {1} {2}')\n",
    "\n",
]


def write_log(path: Path, kind: str, size: int, per_second: int) -> None:
    """A log of about ``size`` bytes, the same for the same arguments."""
    rng = random.Random(20260203)
    shapes = problems(rng)
    weights = [1 / (i + 1) for i in range(PROBLEMS)]
    bench = [bench_line(*shape, 1000 + i) for i, shape in enumerate(shapes)]
    trace = [trace_line(*shape, 1000 + i) for i, shape in enumerate(shapes)]
    written = lines = 0

    def traced(template: str) -> str:
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(1_770_000_000 + lines // per_second))
        return template % (clock, *(rng.getrandbits(36) | 0x7F0000000000 for _ in range(6)))

    with path.open("w", encoding="utf-8", errors="surrogateescape") as sink:
        while written < size:
            picked = rng.choices(range(PROBLEMS), weights, k=5_000)
            if kind == "bench":
                block = [bench[i] for i in picked]
            elif kind == "adversarial":
                block = [
                    bench[i].replace("--solution_index ", f"--solution_index {lines + j}") for j, i in enumerate(picked)
                ]
            elif kind == "trace":
                block = []
                for i in picked:
                    block.append(traced(trace[i]))
                    lines += 1
            else:
                block = []
                for i in picked:
                    roll = rng.random()
                    if roll < 0.40:
                        block.append(bench[i] if roll < 0.2 else traced(trace[i]))
                    elif roll < 0.99:
                        line = APPLICATION[i % len(APPLICATION)]
                        block.append(line.format(i, lines % 997, written % 1009) if i % len(APPLICATION) < 3 else line)
                    else:
                        block.append(bench[i][: i % 300] + (traced(trace[i]) if roll < 0.995 else "\x00\x01\udcff\n"))
                    lines += 1
            if kind in ("bench", "adversarial"):
                lines += len(block)
            text = "".join(block)
            sink.write(text)
            written += len(text)


def pss_bytes(root: int) -> int:
    """Proportional set size of a process and all its descendants."""
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


def timed(command: str) -> tuple[float, int]:
    """Seconds of a shell command, and the peak PSS of its processes."""
    started = time.monotonic()
    child = subprocess.Popen(["bash", "-c", command], stdout=subprocess.DEVNULL)
    peak = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.05):
            peak = max(peak, pss_bytes(child.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = child.wait()
    seconds = time.monotonic() - started
    done.set()
    watcher.join()
    if code:
        raise SystemExit(f"failed ({code}): {command}")
    return seconds, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--kinds", nargs="+", default=list(RIVALS), choices=list(RIVALS))
    parser.add_argument("--per-second", type=int, default=1_000, help="lines per second of the log's clock")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-rivals", action="store_true")
    parser.add_argument("--folder", help="where the logs are made and kept [default: a temporary folder]")
    args = parser.parse_args()
    folder = Path(args.folder or tempfile.mkdtemp(prefix="logparse-benchmark-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    speeds: dict[str, float] = {}
    for kind in args.kinds:
        log = folder / f"{kind}-{args.gigabytes:g}-{args.per_second}.log"
        if not log.exists():
            write_log(log, kind, int(args.gigabytes * 1e9), args.per_second)
        store, out = folder / "store", folder / "counts.txt"
        commands = {
            "logparse ingest": f"{sys.executable} -m logparse ingest {log} --store {store}",
            "wc -l": f"wc -l {log}",
        }
        if not args.no_rivals:
            commands |= {name: command.format(log=log, out=out) for name, command in RIVALS[kind].items()}
        times: dict[str, list[float]] = {name: [] for name in commands}
        peak = 0
        for _ in range(args.rounds):
            for name, command in commands.items():
                shutil.rmtree(store, ignore_errors=True)
                seconds, memory = timed(command)
                times[name].append(seconds)
                peak = max(peak, memory) if name == "logparse ingest" else peak
        size = log.stat().st_size / 1e6
        ours = statistics.median(times["logparse ingest"])
        speeds[kind] = size / ours
        print(f"\n{kind}: {size:,.0f} MB, {args.per_second} lines per clock second")
        for name, taken in times.items():
            median = statistics.median(taken)
            spread = f"{min(taken):.2f}–{max(taken):.2f}"
            print(f"  {name:18} {median:8.2f} s ({spread})  {size / median:8.0f} MB/s  ×{median / ours:.2f} of ours")
        print(f"  peak memory of the ingest: {peak / 1e6:.0f} MB (PSS, all processes)")
    if {"bench", "mixed"} <= speeds.keys():
        print(f"\nmixed / bench: {speeds['mixed'] / speeds['bench']:.2f}")
    if not args.folder:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
