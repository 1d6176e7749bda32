"""Measure what it costs that ``ingest`` stores data durably: this code and another checkout's code, in turns.

    git worktree add --detach ../before REVISION && (cd ../before && python setup.py build_ext --inplace)
    python benchmarks/lasting.py --before ../before

It times whole calls of `logparse ingest` into a new store, from start to end of the program, with one process.  Inputs
are a log of 300 MB, a find-db of 30 MB, 600 small files, and one small file.  Prints the medians of wall and CPU time
(user and system), and the median over the rounds of each pair's ratio.  If others use the machine, only the CPU time is
meaningful.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ingest import write_find_db, write_log

ROOT = Path(__file__).parents[1]
SMALL = ROOT / "sample_logs" / "hipblaslt" / "trace_4242.log"


def inputs(folder: Path) -> dict[str, Path]:
    out = {name: folder / name for name in ("300 MB log", "30 MB find-db", "600 small files", "1 small file")}
    for path in out.values():
        path.mkdir()
    write_log(out["300 MB log"] / "hipblaslt_1.log", "bench", 300_000_000, 1_000)
    write_find_db(out["30 MB find-db"] / "gfx942130.HIP.fdb.txt", 30_000_000)
    text = SMALL.read_text()
    for number in range(600):
        (out["600 small files"] / f"hipblaslt_{number}.log").write_text(text)
    (out["1 small file"] / "hipblaslt_1.log").write_text(text)
    return out


def timed(code: Path, logs: Path, store: Path) -> tuple[float, float]:
    """Ingest the logs once, and return the wall and CPU seconds."""
    shutil.rmtree(store, ignore_errors=True)
    os.sync()
    command = [sys.executable, "-P", "-m", "logparse", "ingest", str(logs), "--store", str(store), "--jobs", "1"]
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(code)}, check=True, capture_output=True)
    wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the code to compare with")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--folder", type=Path, help="where logs and stores are written, on a disk")
    options = parser.parse_args()
    codes = {"before": options.before.resolve(), "now": ROOT}
    print("| input | wall before, now | ratio | CPU before, now | ratio |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for name, logs in inputs(Path(folder)).items():
            taken: dict[str, list[tuple[float, float]]] = {code: [] for code in codes}
            for number in range(options.rounds + 1):
                for code in sorted(codes, reverse=bool(number % 2)):
                    taken[code].append(timed(codes[code], logs, Path(folder, "store")))
            cells = [name]
            for which in (0, 1):
                # The first pair compiles the modules, so it is left out.
                before, now = ([pair[which] for pair in taken[code][1:]] for code in codes)
                ratio = statistics.median(x / y for x, y in zip(now, before, strict=True))
                cells += [f"{statistics.median(before):.3f}, {statistics.median(now):.3f} s", f"{ratio:.3f}"]
            print(f"| {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
