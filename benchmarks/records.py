"""Test what records of another machine save: for which convolutions they suffice, and how good their winners are.

    python benchmarks/records.py [--results FOLDER]

Two races of the same convolutions on H200s, hours apart and in two processes, are used as two machines: the records of
``gpu_replay.py wgrads --of-models`` (``results/*-models-*``) and of a later session (``results/searched-*``).  The
first record is exported as a bundle, and a store with the second record's problems takes the bundle.  Each recorded
winner is looked up among the second record's own times: ``lost`` is that time divided by the second record's best time.
No GPU is needed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from racing import _record

from analyzers.overrides.write import write
from analyzers.replay.replay import history
from analyzers.replay.results import environment_key
from analyzers.replay.sharing import HELD, bundled, take, without_checks
from logparse.ingest.all_inputs import record
from logparse.model import Call, Fact, Measurement, problem_from_text, solution_from_text
from logparse.store import Store, open_store

RESULTS = Path(__file__).parent / "results"
KINDS = ("fprops", "dgrads", "wgrads")


def timed(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the measured time (µs) of each kernel for one matrix product or convolution.

    ``result`` is an entry of a benchmark's result file. Kernels that failed are left out.
    """
    # In the files that searched.py writes, a kernel's entry is a list instead of a dictionary.
    rows = [x if isinstance(x, list) else [x["solution"], x["status"], x["time_us"]] for x in result["rows"]]
    return {x[0]: float(x[2]) for x in rows if x[1] == "ok"}


def machine(store: Store, results: Sequence[Mapping[str, Any]], environment: Mapping[str, str]) -> None:
    """Store the kernel times that one machine measured, as ``logparse replay`` stores them."""
    facts = {**environment, "environment": environment_key(environment), "pick": "Default"}
    for result in results:
        problem = problem_from_text(result["problem"])
        times = [
            Measurement(problem=problem, solution=solution_from_text(name), origin="replay", time_us=us)
            for name, us in timed(result).items()
        ]
        held = [*times, *(Fact(name, value) for name, value in facts.items())]
        record(store, held, run="first", name=result["label"], format="replay")


def compare(kind: str, results: Path) -> str:
    """Test how useful the times of one machine are on another one. Return a line of the table.

    ``kind`` is a kind of convolutions, of which both machines have measured kernels.
    """
    first = _record(str(max(results.glob(f"{kind}-models-*.json.gz"))))
    second = _record(str(max(results.glob(f"searched-{kind}-*.json.gz"))))
    own = {x["problem"]: x for x in second["results"]["all"]}
    with tempfile.TemporaryDirectory() as folder:
        here, there = (open_store(f"{folder}/{name}", create=True) for name in ("first", "second"))
        machine(here, first["results"], first["environment"])
        files, _ = bundled(here)
        write(files, Path(folder) / "shared")
        calls = [Call(category="bench", problem=problem_from_text(x)) for x in own]
        record(there, calls, run="job", name="job", format="bundle")
        take(there, f"{folder}/shared", None)
        races = history(there).races[environment_key(first["environment"])]
        _, borrowed = without_checks(history(there), there)
    lost = {}
    for text in sorted(own.keys() & races.keys()):
        recorded = min(races[text].values(), key=lambda x: x.time_us or 0.0).solution.text
        times = timed(own[text])
        if recorded in times:
            lost[text] = times[recorded] / min(times.values()) - 1
    tried = [lost[x] for _, x in borrowed.again if x in lost]
    size = sum(len(x.data) for x in files)
    held = sum(x <= HELD for x in lost.values())
    ordered = sorted(lost.values())
    return (
        f"| {kind} | {len(own)} | {len(lost)} | {held / len(lost):.0%} | {statistics.median(ordered):.2%} | "
        f"{ordered[int(0.95 * len(ordered))]:.1%} | {ordered[-1]:.1%} | "
        f"{sum(x <= HELD for x in tried)} of {len(tried)} | "
        f"{len(files)}, {size / 1e6:.1f} MB |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    print("| kind | problems | settled | held within 3 % | lost, median | 95 % | worst | the tenth: held | files |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind in KINDS:
        print(compare(kind, options.results), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
