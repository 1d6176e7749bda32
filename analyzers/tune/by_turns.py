"""Measure what changes gain: run the job with and without them, in turns, and time only its steps.

No profiler runs and no logs are written, because both slow the job. The two jobs take turns so that disturbances affect
both alike (a device that gets warmer, a host that others use). If the job can run twice at once, a turn is a few steps
(``side_by_side.py``). Otherwise a turn is a whole run. The runs are not stored: the times are read from the files that
the job wrote. A step is called a unit here, because it may also be a request.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from analyzers.compare.unit_time import SideBySide, Times, unit_time
from analyzers.evidence.units import Units, units_of_facts
from analyzers.tune.side_by_side import AloneError, NotAppliedError, Proves, Side, find_nothing_missing, pair
from analyzers.tune.starts import Starts
from logparse.capture import job
from logparse.capture.applied import FOLDER
from logparse.capture.run import Say
from logparse.libraries.own import job_units

PAIRS, MOST_PAIRS = 3, 4
"""Usual and largest number of pairs of runs. A pair is a run without the changes and a run with them, at the same time.

A fourth pair is run only if three pairs do not show whether the job got faster. Two pairs are usually too few, because
their confidence interval is 3.6 times as wide as the interval from three pairs.
"""
RUNS = 3
"""How often the job is run without and with the changes, if the two cannot run at the same time.

At least three runs are needed to estimate how much runs differ. If the user allows more than ``PAIRS`` pairs, there are
at most two runs for each pair.
"""
_EARLY = 0.99
"""If the result is clear with this confidence (0 to 1), the measurement ends early."""
_MOST_S = 300.0
"""After this many seconds, two pairs of runs are enough, unless the user asked for more pairs."""
AT_MOST_S = 120.0
"""If a run of the job takes longer than this (s), the job is not run a second time only to time it.

Such a run has so many steps that their times alone show how much they vary.
"""


def by_turns(
    before: Side,
    after: Side,
    unit: str,
    say: Say,
    most: int = MOST_PAIRS,
    counts: Mapping[str, float] | None = None,
    starts: Starts | None = None,
    proves: Proves = find_nothing_missing,
) -> Times | SideBySide | None:
    """Run the job with and without the changes several times, and return the times of its steps.

    Returns None if a run fails, times nothing, or was made without the changes.

    * ``before``, ``after``: the commands without and with the changes, each with its environment.
    * ``unit``: the callable whose calls are the steps, as the user gave it with ``--unit``.
    * ``most``: the largest number of pairs of runs.
    * ``counts``: how often each kind of step runs. It is used to decide whether more pairs follow.
    * ``proves``: a function that reads the files in a folder and tells why a run was made without the changes.

    Raises KeyboardInterrupt, and InputError if the user's command before a start fails (``Starts``).
    """
    starts = starts or Starts()
    most_s = _MOST_S if most <= MOST_PAIRS else math.inf
    try:
        return _side_by_side(before, after, unit, say, max(most, PAIRS), most_s, counts, starts, proves)
    except AloneError as why:
        say(f"    the runs are timed one after another, because {why}")
        return one_by_one(before, after, unit, say, 2 * most if most > PAIRS else RUNS, most_s, starts, proves)
    except NotAppliedError as why:
        say(f"    the runs cannot be timed in turns: {why}")
        return None


def _side_by_side(
    before: Side,
    after: Side,
    unit: str,
    say: Say,
    most: int,
    most_s: float,
    counts: Mapping[str, float] | None,
    starts: Starts,
    proves: Proves,
) -> SideBySide:
    """Run the job twice at the same time, with and without the changes, in new pairs until the result is clear.

    Raises AloneError if the job cannot run twice at once or too few steps were timed, and the errors of ``pair``.
    """
    if starts.before_each:
        raise AloneError("the command of `--before-each` may remove files that another run at the same time needs")
    say(
        "timing pairs of runs (with the changes, and without), without logs and profiler. The two runs of a pair start "
        f"together and do a few steps in turn. Number of pairs: {_at_most(PAIRS, most)}"
    )
    found, begun = SideBySide(()), time.monotonic()
    while True:
        try:
            found = SideBySide((*found.pairs, pair(before, after, unit, starts, proves)))
        except AloneError:
            if len(found.pairs) < PAIRS:
                raise
            return found
        if found.unit_time(counts or found.kinds) is None:
            # No kind of step was timed often enough.
            raise AloneError("while the two runs took turns, too few steps of the same kind were timed in both runs")
        if len(found.pairs) == most or (len(found.pairs) > 1 and time.monotonic() - begun > most_s):
            return found
        early = found.unit_time(counts or found.kinds, _EARLY) if len(found.pairs) >= PAIRS else None
        if early is not None and not early.undecided:
            return found


def one_by_one(
    before: Side,
    after: Side,
    unit: str,
    say: Say,
    most: int,
    most_s: float,
    starts: Starts | None = None,
    proves: Proves = find_nothing_missing,
) -> Times | None:
    """Measure how long the steps of a job take without and with some changes, by running the job in both ways in turn.

    Returns None if a run fails, times no step, or did not make the changes.
    """
    starts = starts or Starts()
    say(
        "timing runs with and without the changes, one run after the other, without logs and profiler. Number of runs "
        f"of each kind: {_at_most(RUNS, most)}"
    )
    found: tuple[list[Units], list[Units]] = [], []
    turn, turns, begun = 0, 2 * RUNS, time.monotonic()
    while turn < turns:
        with tempfile.TemporaryDirectory(prefix="logparse-") as folder:
            units = run_alone(
                (before, after)[turn % 2], Path(folder), unit, say, starts, proves if turn % 2 else find_nothing_missing
            )
        if units is None:
            say("the times of the traced runs are used instead")
            return None
        found[turn % 2].append(units)
        turn += 1
        if turn == turns < 2 * most and time.monotonic() - begun < most_s:
            wall = unit_time(*found, {x.name: float(x.count) for x in found[0][0].kinds})
            turns += 2 * (wall is not None and wall.undecided)
    return found


def _at_most(least: int, most: int) -> str:
    return f"{least}" + f", but up to {most} if {least} do not show whether the changes help" * (most > least)


def run_alone(
    job_as_it_is: Side,
    folder: Path,
    unit: str,
    say: Say,
    starts: Starts | None = None,
    proves: Proves = find_nothing_missing,
) -> Units | None:
    """Run the user's job once, without logs and profiler, and return how long its steps take. None if that fails.

    ``proves`` checks that the job made its changes. Raises InputError if the preparing command fails, KeyboardInterrupt
    after Ctrl-C.
    """
    command, environ = job_as_it_is
    marks = folder / FOLDER
    marks.mkdir(parents=True, exist_ok=True)
    ended = (starts or Starts()).timed(command, environ, folder, unit, say)
    if ended.code == job.INTERRUPTED:
        raise KeyboardInterrupt
    units = units_in(folder)
    if ended.code or units is None:
        say(f"a run of the job {f'ended with exit code {ended.code}' if ended.code else 'timed no step'}")
        return None
    if not ended.code and (why := proves(marks)):
        say(f"not every change was in force in a run of the job: {why}")
        return None
    return units


def units_in(folder: Path) -> Units | None:
    """Read how many steps a job did and how long they took, from the files that its processes wrote into ``folder``.

    Returns None if no process counted steps. An incomplete file is left out (the process was killed while it wrote).
    """
    rows = []
    for path in sorted(folder.glob("units_*.json")):
        try:
            facts = job_units.facts(path.read_bytes())
        except ValueError:
            continue
        rows += [{"source_id": path.name, "name": x.name, "value": x.value} for x in facts]
    return units_of_facts(pd.DataFrame(rows, columns=["source_id", "name", "value"]))
