"""Run a program with and without logparse's observer, the code that counts, times and traces a job's steps.

The programs run in child processes of one process that has already imported torch.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logparse.capture.with_overrides import FOLDER, UNITS_FILE
from tests.capture.observing import Behaviour, behaviour_of


@dataclass(frozen=True)
class Ran:
    """The visible behaviour of a program in one run, and the files that logparse's observer wrote about it."""

    behaviour: Behaviour
    units: list[dict[str, Any]] = field(default_factory=list)
    traces: list[Path] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of steps of each sort: {sort: number}, for example {"optimizer": 60}.

        Processes without steps are left out. For example, PyTorch 2.8 starts processes that compile code. They import
        torch, so logparse's observer starts in them, too.
        """
        return {
            x["logparse_units"]: sum(kind["count"] for kind in x["kinds"].values()) for x in self.units if x["kinds"]
        }

    @property
    def notes(self) -> list[str]:
        return [note for x in self.units for note in x.get("notes", [])]


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

    def run(self, program: Path, folder: Path, observed: bool, environ: dict[str, str]) -> Ran:
        """Run a program in a new folder below ``folder``, with or without logparse's observer."""
        here = folder / ("observed" if observed else "plain")
        (here / "cwd").mkdir(parents=True)
        logs = here / "logs"
        logs.mkdir()
        ours = {
            "LOGPARSE_TRACE_DIR": str(logs),
            "LOGPARSE_TRACE_UNITS": "2",
            "LOGPARSE_WITH_TORCH": str(UNITS_FILE),
            **environ,
        }
        request = {
            "program": str(program),
            "folder": str(here),
            "observer": str(FOLDER) if observed else "",
            "environ": ours if observed else {},
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        code = json.loads(self._answer())
        found = behaviour_of(code, (here / "stdout").read_bytes(), (here / "stderr").read_bytes(), here / "cwd")
        units = [json.loads(x.read_text()) for x in sorted(logs.glob("units_*.json"))] if logs.is_dir() else []
        return Ran(found, units, sorted(logs.glob("trace_*.json.gz")))

    def both(self, program: Path, folder: Path, **environ: str) -> tuple[Ran, Ran]:
        """Run a program without logparse's observer, then with it. Returns both results."""
        return self.run(program, folder, False, environ), self.run(program, folder, True, environ)

    def close(self) -> None:
        self._process.communicate()
