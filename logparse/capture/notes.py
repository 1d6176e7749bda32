"""Notes that a job's processes wrote about their observation, for the user once the job has ended."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from logparse.capture.applied import processes
from logparse.capture.plan import TRACES
from logparse.libraries.own import job_units


@dataclass(frozen=True)
class Observed:
    """Number of processes that wrote counts, sum of the units that they counted, and number of processes per note."""

    processes: int
    units: int
    notes: Counter[str]

    def lines(self) -> Iterator[str]:
        """Yield each note once, with the number of processes if there are several."""
        for note, number in self.notes.items():
            yield note if number == 1 else f"{note} (in {processes(number)})"


def observed(folder: Path) -> Observed:
    """Read the counts and notes that a job's processes wrote into the folder of its capture.

    An incomplete file is left out.
    """
    found, units, notes = 0, 0, Counter[str]()
    for path in sorted(folder.glob("units_*.json")):
        try:
            facts = job_units.facts(path.read_bytes())
        except (OSError, ValueError):
            continue
        found += 1
        notes.update([*dict.fromkeys(fact.value for fact in facts if fact.name == job_units.NOTE)])
        units += sum(json.loads(fact.value)["count"] for fact in facts if fact.name.startswith(job_units.KIND))
    return Observed(found, units, notes)


def untraced(folder: Path, found: Observed) -> str:
    """Tell why a traced job has neither a unit of work nor a trace, and what the user can do.

    Return an empty text if the job has a unit or a trace.
    """
    if found.units or any(folder.glob(TRACES)):
        return ""
    if found.processes:
        seen = (
            f"{processes(found.processes)} imported torch, but repeated nothing that logparse knows as a unit of work"
        )
    else:
        seen = (
            "no process did a unit of work that logparse could see, because none imported torch or their Python "
            "did not get this command's environment (options -S, -I or -E, sudo, a container)"
        )
    named = (
        "name the function that repeats with `--unit package.module:Class.method`, or trace by time with `--trace 2s`"
    )
    return f"nothing was traced: {seen}; {named}"
