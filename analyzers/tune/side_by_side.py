"""Run the job with and without the changes at the same time: one does a few steps while the other waits.

A turn takes a fraction of a second. So both jobs run under the same load from other jobs on the machine. If whole runs
followed each other, the load could differ. The second job starts when the first has done its first steps and waits. So
each job starts up alone on the device. Some jobs cannot run twice at once (``AloneError``). Then the first run
continues without turns.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from analyzers.compare.unit_time import LEAST_TURNS, Pair, Turn
from analyzers.tune.starts import Starts
from logparse.capture import job
from logparse.capture.applied import FOLDER
from logparse.capture.plan import by_turns
from logparse.text import pluralize

Side: TypeAlias = tuple[Sequence[str], Mapping[str, str]]
"""A command and its environment: the job without or with the changes."""
_TURN_S = 0.15
"""Shortest time of the steps that are timed in one turn, s.

The number of steps in a turn is computed from this time and the times of the first steps. One more step comes before
the timed steps. It is not timed, because the device was idle before it.
"""
_MOST_TURNS = 120
_READY_S, _SLOW_S = 120.0, 60.0
"""Two limits in seconds: how long a job may take until its first steps are done, and how long one turn may take."""
_MEMORY = 0.45
"""Largest part of the device's memory (0 to 1) that a job may use if it is to run twice at the same time."""
_PORT = re.compile(r"--?(master[-_]port|rdzv[-_]endpoint|port|p)(=|$)")


Proves: TypeAlias = Callable[[Path], str]
"""Type of a function that checks whether a job really ran with its changes.

Each change that is made leaves a file in a folder, and the function gets this folder. If the job made its changes, the
function returns an empty text. Otherwise it returns the reason why nothing shows it.
"""


def find_nothing_missing(marks: Path) -> str:
    """Return an empty text, which means that nothing is missing. It is used for the job without changes.

    For the job with changes, another function returns what is missing to prove that the changes were made.
    """
    return ""


class NotAppliedError(Exception):
    """Raised if the job ran without its changes. The text names the change and the reason."""


class AloneError(Exception):
    """Raised if the job cannot run twice at the same time. The text is the reason, for example a fixed network port."""


def fixed_port(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Tell whether the command seems to use a fixed network port, which two jobs cannot share."""
    text = " ".join(command)
    launched = "torchrun" in text or "torch.distributed.run" in text or "torch.distributed.launch" in text
    return "MASTER_PORT" in environ or any(map(_PORT.match, command)) or (launched and "--standalone" not in command)


def pair(
    before: Side, after: Side, unit: str, starts: Starts | None = None, proves: Proves = find_nothing_missing
) -> Pair:
    """Run the job with and without the changes at the same time, and return the times of their steps.

    * AloneError: the job cannot run twice at once.
    * NotAppliedError: nothing shows that ``after`` made its changes.
    * KeyboardInterrupt: a signal came.
    """
    if fixed_port(*before):
        raise AloneError("the job seems to use a fixed network port")
    with (
        tempfile.TemporaryDirectory(prefix="logparse-") as folder,
        job.Together() as together,
        contextlib.ExitStack() as inputs,
    ):
        given = [inputs.enter_context(stdin.given()) for stdin in [(starts or Starts()).stdin] * 2]
        both = zip((before, after), given, strict=True)
        sides = [_Side(x, Path(folder) / str(i), unit, together, stream) for i, (x, stream) in enumerate(both)]
        try:
            # One job waits while the other does a few steps.
            found = _turns(sides)
        finally:
            for side in sides:
                side.go_on()
            together.wait()  # The sides must end before their standard input is closed.
        why = proves(sides[1].marks)
    if failed := next((x.code for x in sides if x.code), 0):
        raise AloneError(f"a run of the job ended with exit code {failed}")
    if why:
        raise NotAppliedError(why)
    return found


def _turns(sides: Sequence[_Side]) -> Pair:
    first = [us for side, most in zip(sides, (_MEMORY, 1.0), strict=True) for us in side.ready(most).values()]
    if not first:
        raise AloneError("the first steps of the job were not timed")
    units = 1 + math.ceil(_TURN_S / statistics.fmean(first) * 1e6)
    found: tuple[list[Turn], list[Turn]] = ([], [])
    for turn in range(1, 1 + _MOST_TURNS):
        both: dict[int, Turn] = {}
        for which in (0, 1) if turn % 2 else (1, 0):
            # Every other turn has one unit more. So if two kinds of units alternate, the untimed unit is not always of
            # the same kind.
            times = sides[which].turn(turn, units + turn % 2)
            if times is None:
                if len(found[0]) < LEAST_TURNS:
                    raise AloneError(
                        f"the job did {pluralize(len(found[0]), 'turn')} of {units} steps, which are too few to compare"
                    )
                return found
            both[which] = times
        for which, times in both.items():
            found[which].append(times)
    return found


class _Side:
    """One of two copies of the job that run alternately, with or without the changes.

    Its processes write the times of their steps into a folder.
    """

    def __init__(self, side: Side, folder: Path, unit: str, together: job.Together, streams: Mapping[int, int]) -> None:
        self.marks = folder / FOLDER
        self.marks.mkdir(parents=True)
        self._streams = streams
        self._side, self._folder, self._unit, self._together = side, folder, unit, together
        self._child: subprocess.Popen[bytes] | None = None

    def ready(self, most_memory: float) -> Turn:
        """Start the job, wait until it has done its first steps, and return their times.

        Raises AloneError if the job is late, has worker processes, or more than ``most_memory`` (0 to 1) of the
        device's memory is used.
        """
        command, environ = self._side
        with contextlib.suppress(OSError):
            self._child = self._together.start(command, by_turns(self._folder, self._unit, environ), self._streams)
        found = self._wait_for_ranks(0, _READY_S)
        if found is None:
            raise AloneError("the job reached no step at which it could pause while the other run continues")
        if any(x.get("workers") for x in found):
            raise AloneError(
                "the job's worker processes do not pause when the job pauses, so they would slow the other run"
            )
        if any(x.get("memory", 0.0) > most_memory for x in found):
            raise AloneError(
                f"the job uses over {most_memory:.0%} of the device's memory, so two runs at once may not fit"
            )
        return _mean(found)

    def turn(self, number: int, units: int) -> Turn | None:
        """Let the job do ``units`` steps and then wait. Returns the times of the steps.

        Returns None if the job has ended or took too long.
        """
        path = self._folder / f"{number}.go"
        path.with_suffix(".part").write_text(str(units))
        path.with_suffix(".part").rename(path)
        found = self._wait_for_ranks(number, _SLOW_S)
        return _mean(found) if found else None

    @property
    def code(self) -> int:
        """The job's exit code once it has ended. A negative code is the number of the signal that killed it."""
        return self._child.returncode if self._child else 0

    def go_on(self) -> None:
        """Let the job run to its end. Until now, it had to stop regularly to let the other job run."""
        (self._folder / "free").touch()

    def _wait_for_ranks(self, number: int, seconds: float) -> list[dict[str, Any]] | None:
        """Wait until all ranks of the job have reported the times of their latest steps, and return the reports.

        ``number``: the number of the turn. None if the job has ended, or a rank took too long.
        """
        by = time.monotonic() + seconds
        while time.monotonic() < by and self._child is not None:
            found = [json.loads(path.read_bytes()) for path in self._folder.glob(f"{number}_*.json")]
            if found and len(found) >= max(x["ranks"] for x in found):
                return found
            if self._child.poll() is not None:
                if self._together.interrupted:
                    raise KeyboardInterrupt
                return None
            self._together.pause(0.002)
        return None


def _mean(found: Sequence[Mapping[str, Any]]) -> Turn:
    """Return the mean time of each kind of step, over all ranks of the job."""
    kinds: dict[str, list[float]] = {}
    for each in found:
        for name, us in each["kinds"].items():
            kinds.setdefault(name, []).extend(us)
    return {name: statistics.fmean(us) for name, us in kinds.items() if us}
