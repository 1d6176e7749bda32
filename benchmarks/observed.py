"""Test whether the observer of ``capture --trace`` changes what programs do. Each runs with and without it, in turns.

    python benchmarks/observed.py                                 # one GPU, about 9 minutes
    python benchmarks/observed.py --only generate --pairs 1       # only some of the programs

These are compared:

* the exit code;
* the result (losses or outputs), which must be equal to the last bit;
* the number of compiled graphs;
* the program's own time of its steps after the observer has recorded: the ratio of the medians of the last quarters,
  together with the spread of the runs without observer.

Every observed run must leave a trace. The raw record goes to ``benchmarks/results/observed-DEVICE-DATE.json``.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from logparse.capture import with_overrides

PROGRAMS = Path(__file__).with_name("observed_programs.py")
RESULTS = Path(__file__).with_name("results")


def run(name: str, folder: Path | None, limit: float) -> dict[str, Any]:
    """Run a program once, and return its results. If ``folder`` is given, logparse observes it and traces it.

    The traces are written to ``folder``.
    """
    environ = dict(os.environ)
    if folder is not None:
        environ = with_overrides.with_torch(environ, with_overrides.UNITS_FILE)
        environ |= {"LOGPARSE_TRACE_DIR": str(folder), "LOGPARSE_TRACE_UNITS": "2"}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as here:
        environ["OUT_DIR"] = here
        command = [sys.executable, str(PROGRAMS), name]
        try:
            done = subprocess.run(
                command, env=environ, cwd=here, capture_output=True, text=True, check=False, timeout=limit
            )
        except subprocess.TimeoutExpired:
            return {"code": "timeout", "seconds": limit}
    found: dict[str, Any] = {"code": done.returncode, "seconds": round(time.monotonic() - began, 1)}
    lines = done.stdout.strip().splitlines()
    if not done.returncode and lines:
        found |= json.loads(lines[-1])
    found["stderr"] = done.stderr[-1500:]
    if folder is not None:
        found |= observation(folder)
    return found


def observation(folder: Path) -> dict[str, Any]:
    """Return what logparse recorded while it observed a run: the numbers of steps, traces and kernels.

    The numbers come from the files that it wrote into ``folder``.
    """
    units = [json.loads(path.read_text()) for path in folder.glob("units_*.json")]
    best = max(units, key=lambda x: sum(kind["count"] for kind in x["kinds"].values()), default=None)
    traces = sorted(folder.glob("trace_*.json.gz"))
    kernels = 0
    if traces:
        events = json.loads(gzip.decompress(traces[-1].read_bytes()))["traceEvents"]
        kernels = sum(x.get("cat") == "kernel" for x in events)
    kinds = best["kinds"] if best else {}
    return {
        "unit": best and best["logparse_units"],
        "tracing": best and best["tracing"],
        "units": {name: kind["count"] for name, kind in kinds.items()},
        "traces": len(traces),
        "captures": len(list(folder.glob("capture_traces/*"))),
        "kernels": kernels,
        "notes": [note for each in units for note in each.get("notes", [])],
    }


def late_ms(found: Mapping[str, Any]) -> float | None:
    """Return the median time of the last quarter of the program's steps, in ms. Returns None if there are no times.

    By then the observer of logparse, which records some steps, has ended its work.
    """
    times = found.get("ms") or []
    return statistics.median(times[-(len(times) // 4) :]) if times else None


def compare_with_observer(plain: Sequence[Mapping[str, Any]], seen: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Compare runs of a program with and without logparse's observer (code that traces a running job).

    The result states whether exit code and results are the same, and how much longer a step takes with the observer.
    """
    same = {key: all(x.get(key) == plain[0].get(key) for x in seen) for key in ("code", "result", "graphs")}
    repeatable = all(x.get("result") == plain[0].get("result") for x in plain)
    times = [late_ms(x) for x in plain], [late_ms(x) for x in seen]
    known = [[x for x in each if x] for each in times]
    ratio = statistics.median(known[1]) / statistics.median(known[0]) if all(known) else None
    spread = max(known[0]) / min(known[0]) if known[0] else None
    traced = all(x.get("traces") for x in seen)
    return {**same, "repeatable": repeatable, "traced": traced, "ratio": ratio, "plain_spread": spread}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=120.0)
    parser.add_argument("--budget", type=float, default=560.0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(words)
    import torch

    sys.path.insert(0, str(PROGRAMS.parent))
    import observed_programs

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    chosen = [x for x in observed_programs.PROGRAMS if not options.only or x in options.only.split(",")]
    record: dict[str, Any] = {
        "device": device,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
        "programs": {},
    }
    began, failed = time.monotonic(), 0
    for name in chosen:
        if time.monotonic() - began > options.budget:
            print(f"{name}: not run, the budget is used up")
            continue
        plain, seen = [], []
        for turn in range(options.pairs):
            for observed in (False, True) if turn % 2 == 0 else (True, False):
                with tempfile.TemporaryDirectory() as folder:
                    found = run(name, Path(folder) if observed else None, options.limit)
                (seen if observed else plain).append(found)
        verdict = compare_with_observer(plain, seen)
        good = verdict["code"] and verdict["graphs"] and verdict["traced"]
        good = good and (verdict["result"] or not verdict["repeatable"])
        failed += not good
        record["programs"][name] = {"verdict": verdict, "plain": plain, "observed": seen}
        last = seen[-1]
        ratio = f"{verdict['ratio']:.3f}" if verdict["ratio"] else "?"
        print(
            f"{name:40} {'same' if good else 'DIFFERS'} ratio {ratio} ({late_ms(plain[-1]) or 0:.2f} ms, plain spread "
            f"{verdict['plain_spread'] or 1:.2f}) "
            f"{last.get('unit')} {last.get('units')} {last.get('tracing')!r} traces {last.get('traces')} "
            f"captures {last.get('captures')} kernels {last.get('kernels')} {last.get('notes')}",
            flush=True,
        )
        if not good:
            print("   ", verdict, (last.get("stderr") or "")[-600:], flush=True)
    options.results.mkdir(exist_ok=True)
    path = options.results / f"observed-{device.replace(' ', '-')}-{record['date']}.json"
    for each in (run for x in record["programs"].values() for run in (*x["plain"], *x["observed"])):
        each.pop("stderr", None)  # Standard error is not compared, because it holds paths of the machine.
    path.write_text(json.dumps(record) + "\n")
    print(f"{len(record['programs'])} of {len(chosen)} programs ran, {failed} differ: {path}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
