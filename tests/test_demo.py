"""Test that the demo, the first command of the README, runs to its end. It runs the installed program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import SAMPLES


def test_the_demo_runs_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "sample_logs").symlink_to(SAMPLES)
    environ = {**os.environ, "LOGPARSE_STORE": str(tmp_path / "store")}
    environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environ["PATH"]])
    done = subprocess.run(
        ["sh", "sample_logs/demo.sh"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
    assert "$ logparse export" in done.stdout
