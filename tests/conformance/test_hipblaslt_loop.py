"""The loop with the real hipBLASLt: a job, its log, a replay, the tuning file, the job again, and the proof.

The times of its kernels are planted, so it is known what must come out.  Each product has about a dozen solutions.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.conformance.rocm import HERE, Rocm

BF16, F32 = 14, 0
CALL = ["T", "N", 96, 64, 128, 1, [BF16, BF16, F32, F32], 2, 0]
CALLS = 40
DISTURBED = {"VGPU_NOISE": "0.02", "VGPU_DRIFT": "0.5", "VGPU_STEPS": "4000:1.1;20000:0.95"}
PICK_US, BEST_US, OTHER_US, WRONG_US = 40, 25, 60, 10


@dataclass(frozen=True)
class Loop:
    """``solutions`` are the library's, its own choice first, each with the words of its launches."""

    rocm: Rocm
    folder: Path
    solutions: Mapping[int, Sequence[str]]
    settings: dict[str, str] = field(default_factory=dict)

    def job(self, most: int = 1, times: int = CALLS) -> list[str]:
        job = [str(self.rocm.launcher), str(HERE / "drivers/hipblaslt_job.py")]
        return [*job, json.dumps(CALL), str(times), str(most)]

    def words(self, index: int) -> str:
        """What a launch of the solution's first kernel, and of no other's, has in its name and sizes."""
        return self.solutions[index][0]

    def plant(self, times: Mapping[int, float]) -> None:
        """Give solutions these times (µs), and all others one that is worse."""
        path = self.folder / "times.txt"
        lines = [f"{us} {self.words(index)}" for index, us in times.items()] + [f"{OTHER_US} Cijk_A", "2 PostGSU"]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self.settings["VGPU_TIMES"] = str(path)

    def run(self, *command: str, sourced: str = "true") -> str:
        """What a command prints.  Raises CalledProcessError, with that, where it fails."""
        shell = ["bash", "-c", f'set -e; {sourced}; "$@"', "bash", *command]
        environment = self.rocm.environment(self.settings) | {"PYTHONPATH": str(HERE.parents[1]), "COLUMNS": "200"}
        ended = subprocess.run(
            shell, cwd=self.folder, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert ended.returncode == 0, f"{command}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def logparse(self, *arguments: str, python: str = sys.executable, sourced: str = "true") -> str:
        return self.run(python, "-m", "logparse", *arguments, sourced=sourced)

    def before(self) -> None:
        """The job under ``capture``, then a replay with the real library's solutions."""
        self.logparse("capture", "--store", "store", "--dir", "logs", "--run", "before", "--", *self.job())
        replay = ["--backend", "hipblaslt", "--device", "cpu", "--store", "store", "--silence", "15s"]
        self.logparse("replay", *replay, python=str(self.rocm.launcher))

    def statuses(self) -> dict[int, str]:
        """What the replay found of each solution that has no time."""
        sql = "select distinct solution, status from measurements where status <> 'ok'"
        rows = json.loads(self.logparse("sql", "--store", "store", "--format", "json", sql))
        return {int(row["solution"].partition(":")[2]): row["status"] for row in rows}


@pytest.fixture
def loop(rocm: Rocm, tmp_path: Path) -> Loop:
    listed = Loop(rocm, tmp_path, {}, {})
    lines = map(json.loads, listed.run(*listed.job(most=20, times=1)).splitlines())
    return Loop(rocm, tmp_path, dict(lines), {})


def test_the_planted_best_is_found_written_used_and_verified(loop: Loop) -> None:
    """Also where a faster kernel computes wrong values, one hangs, one crashes, and the clock is unsteady."""
    pick, best, wrong, hanging, crashing = list(loop.solutions)[:5]
    loop.plant({pick: PICK_US, best: BEST_US, wrong: WRONG_US})
    faults = {"VGPU_WRONG": wrong, "VGPU_HANG": hanging, "VGPU_CRASH": crashing}
    loop.settings.update(DISTURBED, **{name: loop.words(index) for name, index in faults.items()})
    loop.before()
    statuses = loop.statuses()
    assert statuses[wrong] == "wrong"
    assert statuses[hanging] == "timeout"
    assert statuses[crashing] == "failed"
    loop.logparse("recommend", "--store", "store")
    (tuning,) = loop.folder.glob("overrides/*/hipblaslt_tuning.txt")
    assert f",{best},gfx90a" in tuning.read_text(encoding="utf-8")
    launches = loop.folder / "launches.txt"
    loop.settings["VGPU_LOG"] = str(launches)
    again = ["capture", "--store", "store", "--dir", "logs2", "--run", "after", "--", *loop.job()]
    loop.logparse(*again, sourced=f". {tuning.parent / 'apply.sh'}")
    lines = launches.read_text(encoding="utf-8").splitlines()
    assert [line.startswith(loop.words(best).split()[0]) for line in lines] == [True] * CALLS
    verdict = loop.logparse("verify", "before", "after", str(tuning), "--store", "store")
    assert verdict.splitlines()[-1] == "verified"


def test_nothing_better_is_nothing_worth_doing(loop: Loop) -> None:
    loop.plant({next(iter(loop.solutions)): PICK_US})
    loop.settings.update(DISTURBED)
    loop.before()
    assert "nothing worth doing" in loop.logparse("recommend", "--store", "store")
    assert not list(loop.folder.glob("overrides/*/hipblaslt_tuning.txt"))
