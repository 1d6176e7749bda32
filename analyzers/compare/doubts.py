"""Tell the user why two runs cannot be compared, and what else the user must know about the comparison.

The results are sentences. ``both_runs.py`` has the times that are compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from analyzers.compare.both_runs import BothRuns
from analyzers.compare.changes_made import fact_values, find_changes_made, find_lost_changes, find_unknown_changes
from analyzers.compare.proof import SHARE, SHOWN
from analyzers.compare.unit_time import UnitTime, select_unprofiled_times
from analyzers.evidence.tables import Tables
from analyzers.evidence.units import KINDS, units_by_source
from logparse.libraries.own.applied_marks import ASKED, EXPORTED, undone
from logparse.libraries.own.job_units import UNIT

_ALIKE = 0.1
"""How much the numbers of steps of two ranks may differ, as a fraction (0.1 is 10 %), if the ranks do the same work."""


def find_doubts(both: BothRuns) -> Iterator[str]:
    """Yield the reasons why the two runs cannot be compared, for example that one has no trace."""
    for run, found, us in zip(both.runs, both.units, both.us, strict=True):
        if not us and both.share >= SHARE:
            ended = ": the job ended before the times of its steps became steady" if found and not found.tracing else ""
            yield f"{run.run} has no trace with GPU kernels{ended}"
    ranks = [_ranks(x) for x in both.runs]
    for what in ("units", "trace"):
        there = [x[what] for x in ranks]
        for run, mine in zip(both.runs, there, strict=True):
            lost = sorted(set().union(*there) - mine, key=lambda x: (len(x), x))
            if lost and all(there):
                which = f"rank {lost[0]}" if len(lost) == 1 else f"{len(lost)} ranks ({lost[0]} …)"
                yield f"{which} of {run.run} wrote no {what}: did the process die?"
    for run in both.runs:
        yield from _unlike_ranks(run)


def find_unapplied(both: BothRuns, names: Sequence[str], files: bool) -> Iterator[str]:
    """Yield a sentence for each change of a job that cannot be judged by comparing the job before and after it.

    Either the job already made the change before, or it did not make it or keep it afterwards.
    """
    marks = [find_changes_made(x) for x in both.runs]
    lost = find_lost(both, names)
    for name in names:
        if name in marks[0]:
            yield f"{both.before.run} also ran with {name}, so the job is compared with itself"
        if name in lost:
            yield undone(name, lost[name], both.after.run)
        elif name not in marks[1] and name in _read_asked(both, "settings"):
            yield f"{both.after.run} did not report that it applied {name}, so it ran without {name}"
    if files and _read_asked(both, "scripts") and not any(find_changes_made(both.runs[1], EXPORTED)):
        yield f"{both.after.run} did not report that it ran apply.sh, so it ran without the override files"


def find_lost(both: BothRuns, names: Sequence[str]) -> Mapping[str, set[str]]:
    """Return which of the changes were not in force any more when a process of the second run ended.

    The values name the settings of PyTorch that were set to another value.
    """
    return {name: undone for name, undone in find_lost_changes(both.runs[1]).items() if name in names}


def describe_unproven(both: BothRuns, names: Sequence[str]) -> str:
    """Return a sentence which warns that the job may not have made the changes. Empty if nothing suggests that."""
    unseen = [x for x in names if x not in find_changes_made(both.runs[1]) and x not in find_lost(both, names)]
    # A warning needs three things: the user asked for changes, no process reported them, the same kernels ran.
    if not unseen or not both.same or not len(fact_values(both.runs[1], ASKED)):
        return ""
    return f"no process of {both.after.run} reported that it applied {', '.join(unseen)}, and the same kernels ran"


def _read_asked(both: BothRuns, what: str) -> set[str]:
    return {name for text in fact_values(both.runs[1], ASKED).values() for name in json.loads(text).get(what, ())}


def find_notes(both: BothRuns, wall: UnitTime | None, names: Sequence[str]) -> Iterator[str]:
    """Yield further sentences that the user must know, for example that too few steps were timed."""
    for name in sorted(find_unknown_changes(both.runs[1]).intersection(names)):
        yield f"no process of {both.after.run} reported at its end whether {name} was still in force"
    for run, found in zip(both.runs, both.units, strict=True):
        if wall is None and (found is None or not select_unprofiled_times(found)):
            yield f"{run.run}: too few steps were timed without the profiler"
        elif found is not None and found.tracing.startswith("not settled"):
            yield f"{run.run}: the times of its steps are {found.tracing}"
    if wall is None and all(x is not None and select_unprofiled_times(x) for x in both.units) and both.share >= SHARE:
        yield "no kind of step (for example training steps) was timed without the profiler in both runs"


def _ranks(tables: Tables) -> Mapping[str, set[str]]:
    """Return which ranks of the job counted their steps (key ``units``), and which were traced (key ``trace``)."""
    of = fact_values(tables, "rank")
    return {
        what: {of[x] for x in fact_values(tables, name) if x in of}
        for what, name in (("units", UNIT), ("trace", KINDS))
    }


def _unlike_ranks(tables: Tables) -> Iterator[str]:
    """Yield a sentence if the ranks of one run do different work, because an average over them then means nothing."""
    of = fact_values(tables, "rank")
    found = units_by_source(tables.facts[tables.facts["run"] == tables.run])
    ranks = [x for source, x in found.items() if source in of and not x.alone]
    numbers = [x.count for x in ranks]
    if len({x.sort for x in ranks}) > 1 or (numbers and min(numbers) < (1 - _ALIKE) * max(numbers)):
        made = ", ".join(f"{x.count} of {x.word}" for x in ranks[:SHOWN])
        yield f"the ranks of {tables.run} do different work ({made} …)"
