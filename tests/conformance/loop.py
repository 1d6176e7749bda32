"""Run logparse with a real library on a virtual GPU, in all steps: capture, replay, apply, verify.

The virtual GPU gives the kernels the times and the faults that the test chooses.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.rocm import HERE, Rocm

DISTURBED = {"VGPU_NOISE": "0.02", "VGPU_DRIFT": "0.5", "VGPU_STEPS": "4000:1.1;20000:0.95"}
"""Settings of the virtual GPU for an unsteady clock, which makes measured times vary.

Times have 2 % of noise and grow by half in the first second of kernels. The clock also makes two sudden steps.
"""
FAULTS = ("WRONG", "HANG", "CRASH")
OWN_US, BEST_US, OTHER_US, WRONG_US = 40, 25, 60, 10
"""Chosen times of kernels in µs: the library's own choice, the fastest correct kernel, others, and a wrong kernel."""


@dataclass(frozen=True)
class Loop:
    """A folder in which a test runs logparse and a real library: from ``ingest`` of the job's log to ``verify``.

    Its commands get this process's environment and the variables in ``settings``.
    """

    rocm: Rocm
    folder: Path
    settings: dict[str, str] = field(default_factory=dict)

    def job(self, name: str, *arguments: object) -> list[str]:
        """Return the command that runs a program of the folder ``drivers`` as the job.

        Arguments are passed as JSON.
        """
        program = HERE / "drivers" / f"{name}.py"
        return [str(self.rocm.launcher), str(program), *(json.dumps(x) for x in arguments)]

    def plant(self, times: Iterable[tuple[float, str]], faults: Mapping[str, Sequence[str]] | None = None) -> None:
        """Decide how long kernels take on the virtual GPU (µs), and which of them are faulty.

        * ``times``: (time, part of a kernel's name).
        * ``faults``: parts of kernel names for each kind of fault.
        """
        # A kernel gets the time of the first entry that fits its name. The kinds of faults are in FAULTS.
        path = self.folder / "times.txt"
        path.write_text("".join(f"{us} {words}\n" for us, words in times), encoding="utf-8")
        self.settings["VGPU_TIMES"] = str(path)
        self.settings.update({f"VGPU_{name}": ";".join((faults or {}).get(name, ())) for name in FAULTS})

    def run(self, *command: str, sourced: str = "true") -> str:
        """Run a command and return what it prints. Raises AssertionError with the output if the command fails."""
        shell = ["bash", "-c", f'set -e; {sourced}; "$@"', "bash", *command]
        environment = self.rocm.environment(self.settings) | {"PYTHONPATH": str(HERE.parents[1]), "COLUMNS": "200"}
        ended = subprocess.run(
            shell, cwd=self.folder, env=environment, capture_output=True, text=True, check=False, timeout=900
        )
        assert ended.returncode == 0, f"{command}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def logparse(self, *arguments: str, python: str = sys.executable, sourced: str = "true") -> str:
        return self.run(python, "-m", "logparse", *arguments, "--store", "store", sourced=sourced)

    def capture(self, run: str, job: Sequence[str], sourced: str = "true") -> str:
        """Run the job under ``logparse capture``, which stores its logs as the named run. Returns what was printed."""
        return self.run(
            *(sys.executable, "-m", "logparse", "capture", "--store", "store", "--out", f"logs of {run}"),
            *("--run", run, "--", *job),
            sourced=sourced,
        )

    def replay(self, backend: str, *more: str) -> str:
        """Run ``logparse replay``, so that it times a library's kernels on the virtual GPU. Returns what it printed.

        If a process that measures reports nothing for 30 s, logparse kills it.
        """
        own = f"tests.conformance.virtual_device:{backend.upper()}"
        options = ["--backend", own, "--device", "cpu", "--silence", "30s", *more]
        return self.logparse("replay", *options, python=str(self.rocm.launcher))

    def rows(self, sql: str) -> list[dict[str, str]]:
        """Run an SQL query on the store (Parquet folder) and return the rows as dictionaries."""
        found: list[dict[str, str]] = json.loads(self.logparse("sql", "--format", "json", sql))
        return found

    def launches(self, run: str, job: Sequence[str], sourced: str = "true") -> list[str]:
        """Run the job under ``logparse capture``, and return the kernels that the virtual GPU ran, one line each."""
        path = self.folder / f"launches of {run}.txt"
        self.settings["VGPU_LOG"] = str(path)
        self.capture(run, job, sourced)
        del self.settings["VGPU_LOG"]
        return path.read_text(encoding="utf-8").splitlines()

    def plant_product(self, words: Mapping[int, str], *, better: bool) -> tuple[int, ...]:
        """Decide how long the kernels of a matrix product take on the virtual GPU, and which of them are faulty.

        ``words`` has a part of the name of each kernel, with the library's own choice first. If ``better`` is true:

        * the second kernel is the fastest correct one,
        * the third one is faster but computes wrong values,
        * the fourth one hangs,
        * the fifth one crashes.

        Returns the numbers of the second to the fifth kernel.
        """
        own, best, wrong, hanging, crashing = list(words)[:5]
        times = {own: OWN_US} | ({best: BEST_US, wrong: WRONG_US} if better else {})
        faults = {"WRONG": [words[wrong]], "HANG": [words[hanging]], "CRASH": [words[crashing]]}
        others = [(OTHER_US, "Cijk_A"), (2, "PostGSU")]
        self.plant([*((us, words[x]) for x, us in times.items()), *others], faults if better else None)
        self.settings.update(DISTURBED)
        return best, wrong, hanging, crashing

    def faults_found(self, library: str, wrong: int, hanging: int, crashing: int) -> None:
        """Check that ``logparse replay`` noticed three faulty kernels: one is wrong, one hangs, and one crashes."""
        rows = self.rows("select distinct solution, status from measurements where status <> 'ok'")
        statuses = {row["solution"]: row["status"] for row in rows}
        assert statuses[f"{library}:{wrong}"] == "wrong"
        assert statuses[f"{library}:{hanging}"] == "timeout"
        assert statuses[f"{library}:{crashing}"] == "failed"
