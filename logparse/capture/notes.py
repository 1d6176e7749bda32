"""Tell the user, after the job has ended, what logparse noted in each of its processes.

The notes say, for example, why a process was not traced.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from logparse.capture import kept_out
from logparse.capture.plan import TRACES
from logparse.libraries.own import job_units
from logparse.text import pluralize


@dataclass(frozen=True)
class Observed:
    """Notes that the processes of a job wrote about themselves: numbers of steps, and remarks for the user.

    * ``units`` is the number of steps of all ``processes`` together.
    * ``sorts`` says how the steps were recognised: ``optimizer``, ``named`` for calls of the function of ``--unit``, …
    * ``notes`` counts the processes by remark.
    """

    processes: int
    # Steps are training steps or requests.
    units: int
    sorts: frozenset[str]
    notes: Counter[str]

    @property
    def lacks_trace(self) -> bool:
        """True if a note of a process gives the reason for its missing trace."""
        return any(note.startswith("no trace:") for note in self.notes)

    def lines(self) -> Iterator[str]:
        """Yield the lines to print: each remark once, with the number of processes if several wrote the same remark."""
        for note, number in self.notes.items():
            yield note if number == 1 else f"{note} (in {pluralize(number, 'process')})"


def read_observed_steps(folder: Path) -> Observed:
    """Read how many steps the job's processes did, and their remarks for the user, from the files ``units_*.json``.

    ``folder`` holds these files. An incomplete file is ignored.
    """
    found, units, notes, sorts = 0, 0, Counter[str](), set[str]()
    for path in sorted(folder.glob("units_*.json")):
        try:
            facts = job_units.facts(path.read_bytes())
        except (OSError, ValueError):
            continue
        found += 1
        notes.update([*dict.fromkeys(fact.value for fact in facts if fact.name == job_units.NOTE)])
        units += sum(json.loads(fact.value)["count"] for fact in facts if fact.name.startswith(job_units.KIND))
        sorts.update(fact.value for fact in facts if fact.name == job_units.UNIT)
    return Observed(found, units, frozenset(sorts), notes)


def never_called(found: Observed, unit: str) -> str:
    """Return a sentence for the user if no process of the job called ``unit``, the function that ``--unit`` names.

    Returns an empty text if a process called it, if another remark tells why not, or if no process was seen.
    """
    told = any(note.startswith(f"--unit {unit}:") for note in found.notes)
    if not unit or not found.processes or "named" in found.sorts or told:
        return ""
    return (
        f"--unit {unit}: no process of the job called this function by this name, so the steps were found without it; "
        "check its module and spelling. Calls within code that torch.compile made are not seen"
    )


def explain_missing_trace(folder: Path, found: Observed, command: Sequence[str]) -> str:
    """Return a sentence that tells the user why there is no trace of the job, and what to do.

    Returns an empty text if the job's steps were counted, if there is a trace, or if a process of the job told why not.
    """
    if found.units or found.lacks_trace or any(folder.glob(TRACES)):
        return ""
    if not found.processes:
        why = kept_out.reason(command) or f"logparse saw no step of the job: {kept_out.NO_TORCH}"
        return f"nothing was traced: {why}"
    return (
        f"nothing was traced: {pluralize(found.processes, 'process')} imported torch, but repeated nothing that "
        "logparse knows as a unit of work; name the function of a step with `--unit package.module:Class.method` "
        "(`__main__:function` for a function of the script itself), or trace by time with `--trace 2s`"
    )
