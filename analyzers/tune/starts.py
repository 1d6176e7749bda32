"""Start a job several times under equal conditions: the same standard input and the same initial state.

A second run may do less work if it continues from files of the first. A command can remove them (``--before-each``).
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from analyzers.evidence.units import Units
from logparse.capture import job
from logparse.capture.kept_input import KeptInput
from logparse.capture.notes import read_observed_steps
from logparse.capture.plan import timing
from logparse.capture.run import Say
from logparse.errors import InputError
from logparse.text import make_printable

_FEWER = 0.9
"""If a run does fewer steps than this fraction (0 to 1) of the first run's steps, the user is warned.

Such a run probably did not do the same work.
"""


@dataclass
class Starts:
    """Starts a job several times under equal conditions: with the same input, after the same preparation.

    * ``before_each``: a shell command, or empty.
    * ``timed_s``: seconds of the last start that only timed steps.
    """

    stdin: KeptInput = field(default_factory=KeptInput)
    before_each: str = ""
    # It is 0 if there was no such start.
    timed_s: float = 0.0
    _told: set[str] = field(default_factory=set)

    def prepare(self, environ: Mapping[str, str]) -> None:
        """Run the user's command that must run before each start of the job. Raises InputError if the command fails.

        Its output goes to standard error.
        """
        if not self.before_each:
            return
        command = ["sh", "-c", self.before_each]
        done = subprocess.run(command, env=dict(environ), stdin=subprocess.DEVNULL, stdout=2, check=False)
        if done.returncode:
            raise InputError(
                f"--before-each {make_printable(self.before_each)}: ended with exit code {done.returncode}, so the job "
                "is not started"
            )

    def timed(self, command: Sequence[str], environ: Mapping[str, str], folder: Path, unit: str, say: Say) -> job.Ended:
        """Run a job to its end without logs and profiler, and let it time its steps.

        The job's processes write the times into ``folder``.
        """
        self.prepare(environ)
        made, begun = timing(folder, unit, environ), time.monotonic()
        ended = job.run(command, made, stdin=self.stdin)
        self.timed_s = time.monotonic() - begun
        for line in read_observed_steps(folder).lines():
            if line not in self._told:
                self._told.add(line)
                say(make_printable(line))
        return ended

    def fewer(self, first: Units, now: Units | None) -> str:
        """Return a warning if a run of the job did fewer steps than the first run, otherwise an empty text."""
        made = now.count if now else 0
        if made >= _FEWER * first.count:
            return ""
        units = f"{made:,} steps in this run but {first.count:,} in the first run"
        if self.before_each:
            return (
                f"the job did {units}, although `--before-each` ran. Does it resume from something else that it wrote?"
            )
        return (
            f"the job did {units}. Does the job resume from files that it wrote? `--before-each CMD` runs a command "
            "before every start that can remove these files, such as --before-each 'rm -rf checkpoints'"
        )
