"""Run a program with and without logparse's observer, the code that counts, times and traces a job's steps.

The programs run in child processes of one process that has already imported torch.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logparse.capture.with_overrides import FOLDER, UNITS_FILE
from tests.capture.observing import Behaviour, behaviour_of


@dataclass(frozen=True)
class Ran:
    """The result of running a program: its visible behaviour, and the files that logparse's observer wrote about it.

    The observer is logparse's code in a user's job.
    """

    behaviour: Behaviour
    units: list[dict[str, Any]] = field(default_factory=list)
    traces: list[Path] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """Return how many steps the program made, for each kind of step, for example {"optimizer": 60}.

        Processes without steps are left out. For example, PyTorch 2.8 starts processes that compile code. They import
        torch, so logparse's observer starts in them, too.
        """
        return {
            x["logparse_units"]: sum(kind["count"] for kind in x["kinds"].values()) for x in self.units if x["kinds"]
        }

    @property
    def notes(self) -> list[str]:
        return [note for x in self.units for note in x.get("notes", [])]


@dataclass(frozen=True)
class Job:
    """A program to run: its file, its folder, its arguments, and additional environment variables.

    If ``observed`` is true, the program runs with logparse's observer (its code in a user's job).
    """

    program: Path
    folder: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    words: Sequence[str] = ()
    observed: bool = True

    @property
    def request(self) -> dict[str, Any]:
        return {
            "program": str(self.program),
            "words": [*self.words],
            "folder": str(self.folder),
            "observer": str(FOLDER) if self.observed else "",
            "environ": dict(self.environ),
        }


def observer_environ(logs: Path) -> dict[str, str]:
    """Return the variables with which a job is observed, and writes its records and traces to the folder ``logs``."""
    return {
        "LOGPARSE_TRACE_DIR": str(logs),
        "LOGPARSE_TRACE_UNITS": "2",
        "LOGPARSE_WITH_TORCH": str(UNITS_FILE),
    }


class Server:
    """A process that has imported torch once, and runs programs in its child processes."""

    def __init__(self) -> None:
        program = str(Path(__file__).with_name("fork_server.py"))
        self._process = subprocess.Popen(
            [sys.executable, program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._answer() == "ready"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def behaviours(self, *jobs: Job) -> list[Behaviour]:
        """Run jobs at the same time, each in a new folder, and return their exit codes, outputs and written files."""
        for job in jobs:
            (job.folder / "cwd").mkdir(parents=True)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([job.request for job in jobs]) + "\n")
        self._process.stdin.flush()
        codes = json.loads(self._answer())
        outputs = [[(job.folder / name).read_bytes() for name in ("stdout", "stderr")] for job in jobs]
        return [
            behaviour_of(code, out, err, job.folder / "cwd")
            for code, (out, err), job in zip(codes, outputs, jobs, strict=True)
        ]

    def output_of(self, text: str, folder: Path, environ: Mapping[str, str]) -> tuple[str, str]:
        """Run a program with this source text under logparse's observer, and return what it printed.

        The program must end with exit code 0.
        """
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "program.py").write_text(text, encoding="utf-8")
        (found,) = self.behaviours(Job(folder / "program.py", folder / "job", environ))
        assert found.code == 0, found
        return found.out.decode().strip(), found.err.decode()

    def run(self, program: Path, folder: Path, observed: bool, environ: dict[str, str]) -> Ran:
        """Run a program in a new folder below ``folder``, with or without logparse's observer.

        The observer is the code that counts, times and traces a job's steps.
        """
        here = folder / ("observed" if observed else "plain")
        logs = here / "logs"
        logs.mkdir(parents=True)
        ours = observer_environ(logs) | environ
        (found,) = self.behaviours(Job(program, here, ours if observed else {}, observed=observed))
        units = [json.loads(x.read_text()) for x in sorted(logs.glob("units_*.json"))] if logs.is_dir() else []
        return Ran(found, units, sorted(logs.glob("trace_*.json.gz")))

    def both(self, program: Path, folder: Path, **environ: str) -> tuple[Ran, Ran]:
        """Run a program without logparse's observer, then with it. Returns both results."""
        return self.run(program, folder, False, environ), self.run(program, folder, True, environ)

    def close(self) -> None:
        self._process.communicate()
