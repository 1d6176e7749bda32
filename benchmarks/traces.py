"""Compare logparse with AMD-AGI/TraceLens on traces of torch.profiler: wall time, CPU time and memory.

    python benchmarks/traces.py TRACES --rival VENV/bin/TraceLens_generate_perf_report_pytorch
    python benchmarks/traces.py TRACES --rival … --before CHECKOUT --rounds 5 --only mi300

TRACES is a folder.  For the table in docs/results.md it is ``tests/traces`` of a checkout of TraceLens.  A file is used
if it holds kernels and is no capture of a graph (``capture_traces``).  For each trace and round these programs run one
after the other, each as a process of its own, and in the opposite order in every second round:

    ours     ``logparse ingest TRACE`` into a new store, then ``logparse recommend``, which writes its files
    before   the same of an earlier version (``--before``)
    rival    ``TraceLens_generate_perf_report_pytorch``, which writes its report (xlsx)

CPU counts all threads and child processes.  Memory is the largest resident set of a process.  For ours it is the larger
one of ``ingest`` and ``recommend`` (both are one process, like the rival).  Both programs run once before, so that
Python has compiled their modules.  The record has each round.  The output has the medians.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import os
import platform
import re
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from processes import Cost, cost

ROOT = Path(__file__).absolute().parents[1]
KERNEL = re.compile(rb'"cat":\s*"kernel"')
FASTER, LIGHTER = 4.0, 4.0
"""Goals for logparse: how many times faster it is than the rival, and how many times less memory it needs."""
CPU_S = 1.5
"""Goal for ``recommend`` on the data of one trace, CPU seconds."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    parser.add_argument("--rival", required=True, type=Path, help="TraceLens_generate_perf_report_pytorch of a venv")
    parser.add_argument("--before", type=Path, help="checkout of an earlier version, with its native modules built")
    parser.add_argument("--only", default="", help="part of the traces' paths")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--note", default="", help="what the record must say of the versions and the machine")
    parser.add_argument("--out", type=Path, help="[default: benchmarks/results/traces-host-DATE.json]")
    given = parser.parse_args()
    folder, rival = given.traces.absolute(), given.rival.absolute()
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    record: dict[str, Any] = {
        "date": now,
        "note": given.note,
        "machine": {"cores": os.cpu_count(), "load before": os.getloadavg()[0], "python": platform.python_version()},
        "rounds": given.rounds,
        "traces": {},
    }
    found = {str(x.relative_to(folder)): x for x in with_kernels(folder) if given.only in str(x)}
    trees = {"ours": ROOT, **({"before": given.before.absolute()} if given.before else {})}
    out = given.out.absolute() if given.out else ROOT / "benchmarks" / "results" / f"traces-host-{now[:10]}.json"
    # This setting is needed because `python -m` prefers modules of the working folder to modules of PYTHONPATH.
    os.chdir(tempfile.gettempdir())
    print(*head("before" in trees), sep="\n")
    for number, (name, path) in enumerate(found.items()):
        rounds = [*compare_readers(path, trees, rival, given.rounds + (not number))]
        record["traces"][name] = {"bytes": size_of(path), "rounds": rounds[not number :]}
        print(line(name, record["traces"][name]), flush=True)
    record["machine"]["load after"] = os.getloadavg()[0]
    out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(out)
    print(summary(record["traces"]))
    return 0


def with_kernels(folder: Path) -> Iterator[Path]:
    """Yield the traces of the folder that contain kernels, the smallest first."""
    paths = [x for x in folder.rglob("*.json*") if "capture_traces" not in x.parts and x.is_file()]
    for path in sorted(paths, key=lambda x: (x.stat().st_size, x)):
        text = opened(path)
        if b'"traceEvents"' in text and KERNEL.search(text):
            yield path


def opened(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def size_of(path: Path) -> int:
    """Return the size of the trace's uncompressed JSON in bytes."""
    return len(opened(path))


def compare_readers(path: Path, trees: Mapping[str, Path], rival: Path, rounds: int) -> Iterator[dict[str, Any]]:
    """Run logparse and the rival on a trace ``rounds`` times, and yield the costs of each round.

    Raises SystemExit if a program fails.
    """
    for number in range(rounds):
        taken: dict[str, Any] = {}
        for name in [*trees, "rival"][:: -1 if number % 2 else 1]:
            with tempfile.TemporaryDirectory(prefix="logparse-") as folder:
                commands = report(rival, path, folder) if name == "rival" else answer(path, folder)
                env = environment(trees.get(name))
                taken[name] = {verb: asdict(run_or_exit(command, env)) for verb, command in commands.items()}
        yield taken


def answer(path: Path, folder: str) -> dict[str, list[str]]:
    """Return the two commands that analyse a trace: ``logparse ingest`` reads it, ``logparse recommend`` advises."""
    program = [sys.executable, "-m", "logparse"]
    store = ["--store", f"{folder}/store"]
    return {
        "ingest": [*program, "ingest", str(path), *store],
        "recommend": [*program, "recommend", *store, "--out", f"{folder}/overrides"],
    }


def report(rival: Path, path: Path, folder: str) -> dict[str, list[str]]:
    """Return the rival's command for one trace."""
    words = ["--profile_json_path", str(path), "--output_xlsx_path", f"{folder}/report.xlsx"]
    return {"report": [str(rival), *words]}


def environment(tree: Path | None) -> dict[str, str]:
    """Return the environment variables for the programs that this benchmark starts.

    They let Python store compiled modules. With ``tree``, they let Python import logparse from that folder.
    """
    out = {name: value for name, value in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}
    return out if tree is None else {**out, "PYTHONPATH": str(tree)}


def run_or_exit(command: Sequence[str], env: Mapping[str, str]) -> Cost:
    found = cost(command, env)
    if found.code:
        raise SystemExit(f"{' '.join(command)}: exit code {found.code}\n{found.output[-2000:]}")
    return replace(found, output="")


def medians(trace: Mapping[str, Any], program: str, *verbs: str) -> dict[str, float]:
    """Return the median wall and CPU seconds of a program, and the median of its largest memory (MB).

    If ``verbs`` are given, only these commands of the program are included.
    """
    # A program may consist of several commands. Their seconds are added up, and the largest memory is used.
    rounds = [[cost for verb, cost in x[program].items() if verb in verbs or not verbs] for x in trace["rounds"]]
    return {
        "wall_s": statistics.median(sum(x["wall_s"] for x in each) for each in rounds),
        "cpu_s": statistics.median(sum(x["cpu_s"] for x in each) for each in rounds),
        "resident_mb": statistics.median(max(x["resident_mb"] for x in each) for each in rounds),
    }


def head(before: bool = False) -> list[str]:
    """Return the heading of the Markdown table of results: the column names and the line below them."""
    names = ["trace", "MB", "rival, CPU s", "ours: ingest + recommend", "CPU", "wall", "rival, MB", "ours", "memory"]
    names += ["before, CPU s"] if before else []
    return [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]


def line(name: str, trace: Mapping[str, Any]) -> str:
    """Return one row of the Markdown table of results: how logparse and another tool performed on one trace.

    The row has our median times, and by how many times the other tool's time and memory are larger.
    """
    rival, ours = medians(trace, "rival"), medians(trace, "ours")
    ingest, answered = (medians(trace, "ours", verb)["cpu_s"] for verb in ("ingest", "recommend"))
    cells = [
        f"`{name.partition('.json')[0]}`",
        f"{trace['bytes'] / 1e6:.1f}",
        f"{rival['cpu_s']:.1f}",
        f"{ingest:.2f} + {answered:.2f}",
        *(f"×{rival[x] / ours[x]:.1f}" for x in ("cpu_s", "wall_s")),
        f"{rival['resident_mb']:.0f}",
        f"{ours['resident_mb']:.0f}",
        f"×{rival['resident_mb'] / ours['resident_mb']:.1f}",
    ]
    cells += [f"{medians(trace, 'before')['cpu_s']:.1f}"] if "before" in trace["rounds"][0] else []
    return f"| {' | '.join(cells)} |"


def summary(traces: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the sentence that says for how many traces logparse met each of its goals for speed and memory."""
    pairs = [(medians(x, "rival"), medians(x, "ours")) for x in traces.values()]
    answers = [medians(x, "ours", "recommend")["cpu_s"] for x in traces.values()]
    faster = sum(rival["wall_s"] >= FASTER * ours["wall_s"] for rival, ours in pairs)
    on_cpu = sum(rival["cpu_s"] >= FASTER * ours["cpu_s"] for rival, ours in pairs)
    lighter = sum(rival["resident_mb"] >= LIGHTER * ours["resident_mb"] for rival, ours in pairs)
    quick = sum(x <= CPU_S for x in answers)
    return (
        f"of {len(pairs)} traces: {faster} at least {FASTER:g} times faster ({on_cpu} on CPU), {lighter} in a part of "
        f"{1 / LIGHTER:g} of the memory; recommend within {CPU_S} s of CPU: {quick} (at most {max(answers):.2f} s)"
    )


if __name__ == "__main__":
    sys.exit(main())
