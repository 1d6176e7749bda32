"""Measure how long ``tune`` takes to answer about a short job, beside the time that it spends in the replay.

    python benchmarks/time_to_answer.py --wheels wheels --results OUT       # on a machine with a GPU
    python benchmarks/time_to_answer.py --smoke                             # tiny sizes, on a CPU: only that all runs

The job is a program of ``job_programs/`` that makes about 60 units of work, for example 60 training steps of 40 ms.
``tune`` starts it several times.  Each line that ``tune`` prints is kept with the second in which it was printed, so
that the record shows where the time goes.

A plain start of the job is timed before and after, because its imports are most of each start.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpu_replay import unpack_wheels
from jobs import JOBS, PROGRAMS, ROOT, _environment

LIMIT_S = 90.0
"""Aim: ``tune`` answers within this many seconds, not counting the time that the replay may take."""
_STAGE = re.compile(r"([1-5])/5 (\w[\w ]*)")


def timed_lines(
    command: Sequence[str], environ: Mapping[str, str], folder: Path
) -> tuple[int, list[tuple[float, str]]]:
    """Run a command in a folder. Return its exit code, and each line that it printed with the time of the line.

    Times are in seconds since the start.
    """
    begun, lines = time.monotonic(), list[tuple[float, str]]()
    with subprocess.Popen(
        command,
        cwd=folder,
        env=dict(environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append((round(time.monotonic() - begun, 2), line.rstrip("\n")))
            print(f"{lines[-1][0]:7.1f} s  {lines[-1][1]}", flush=True)
    lines.append((round(time.monotonic() - begun, 2), "(ended)"))
    return process.returncode, lines


def stages(lines: Sequence[tuple[float, str]]) -> dict[str, float]:
    """Return the seconds that each stage of ``tune`` took. The keys are the stage's number and first word.

    The time before the first stage has the key ``begin``.
    """
    begins = [(0.0, "begin")]
    begins += [(at, f"{found[1]} {found[2].split()[0]}") for at, line in lines if (found := _STAGE.match(line))]
    ends = [*(at for at, _ in begins[1:]), lines[-1][0]]
    return {name: round(end - at, 2) for (at, name), end in zip(begins, ends, strict=True)}


def time_tune(name: str, units: int, replay_s: float, smoke: bool, folder: Path) -> dict[str, Any]:
    """Run ``logparse tune`` on a job of about ``units`` steps.  Return how long it took, and what it printed."""
    job = JOBS[name]
    program = [sys.executable, str(PROGRAMS / job.program), name]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environ = {**os.environ, "PYTHONPATH": path, "JOB_SECONDS": "0.1", "JOB_UNITS": str(units)}
    if smoke:
        environ |= {"JOB_SMOKE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    plain = []
    words = [sys.executable, "-m", "logparse", "tune", "--budget", f"{replay_s:.0f}s"]
    words += ["--out", str(folder / "overrides"), "--store", str(folder / "store"), "--", *program]
    plain.append(_plain(program, environ))
    code, lines = timed_lines(words, environ, folder)
    plain.append(_plain(program, environ))
    of = stages(lines)
    replay = next((seconds for stage, seconds in of.items() if stage.startswith("2 ")), 0.0)
    return {
        "job": name,
        "units": units,
        "exit_code": code,
        "plain_start_s": plain,
        "seconds": lines[-1][0],
        "without_replay_s": round(lines[-1][0] - replay, 2),
        "limit_s": LIMIT_S,
        "stages_s": of,
        "lines": [[at, line.replace(str(folder), "FOLDER")] for at, line in lines],
    }


def _plain(program: Sequence[str], environ: Mapping[str, str]) -> float:
    begun = time.monotonic()
    subprocess.run(program, env=dict(environ), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return round(time.monotonic() - begun, 2)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", default="trainer", help="jobs of jobs.py, joined by commas")
    options.add_argument("--units", type=int, default=50, help="units after the first ten")
    options.add_argument("--replay", type=float, default=30.0, help="budget of the replay, s")
    options.add_argument("--smoke", action="store_true", help="tiny sizes, on a CPU")
    options.add_argument("--wheels", help="folder of wheels to unpack first")
    options.add_argument("--results", type=Path, help="folder to write the record to")
    given = options.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="wheels-") as wheels:
        unpack_wheels(given.wheels, wheels)
        for name in given.only.split(","):
            with tempfile.TemporaryDirectory(prefix="answer-", ignore_cleanup_errors=True) as folder:
                rows.append(time_tune(name, given.units, given.replay, given.smoke, Path(folder)))
            row = rows[-1]
            print(
                f"{name}: {row['seconds']:.0f} s from the command to the answer, {row['without_replay_s']:.0f} s "
                f"without the replay (limit {LIMIT_S:.0f} s); a plain start takes {min(row['plain_start_s']):.1f} s"
            )
    if given.results:
        given.results.mkdir(parents=True, exist_ok=True)
        today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        record = {"date": today, "environment": _environment(given.smoke), "jobs": rows}
        path = given.results / f"time-to-answer-{today}.json"
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
