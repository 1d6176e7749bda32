"""Jobs with a recommendation's files and settings: ``run --with``, and what runs once a job has imported torch.

torch is a package of the test's own: starting the real one takes seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from logparse.capture import with_overrides
from logparse.errors import InputError
from tests.program import run

JOB = "import sitecustomize, torch, os; print(torch.setting, os.environ.get('FROM_SHELL'), os.environ.get('OWN'))"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A job's environment with a torch and a ``sitecustomize`` of its own."""
    (tmp_path / "own/torch").mkdir(parents=True)
    (tmp_path / "own/torch/__init__.py").write_text("setting = 'default'\n")
    (tmp_path / "own/sitecustomize.py").write_text("import os\nos.environ['OWN'] = 'kept'\n")
    return {**os.environ, "PYTHONPATH": str(tmp_path / "own")}


@pytest.fixture
def overrides(tmp_path: Path) -> Path:
    folder = tmp_path / "overrides"
    (folder / "gfx942").mkdir(parents=True)
    (folder / "apply.py").write_text("import torch\nif __name__ == '__logparse__':\n    torch.setting = 'applied'\n")
    (folder / "gfx942/apply.sh").write_text("export FROM_SHELL=sourced\n")
    return folder


def output_of(command: list[str], environ: dict[str, str]) -> tuple[str, str]:
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    return done.stdout.strip(), done.stderr


def test_settings_files_and_the_jobs_own_start(environ: dict[str, str], overrides: Path) -> None:
    job = [sys.executable, "-c", JOB]
    assert output_of(job, environ)[0] == "default None kept"
    assert output_of(*with_overrides.applied(job, overrides, environ))[0] == "applied sourced kept"
    (overrides / "apply.py").unlink()
    assert output_of(*with_overrides.applied(job, overrides, environ))[0] == "default sourced kept"
    (overrides / "gfx942/apply.sh").unlink()
    with pytest.raises(InputError, match=r"no apply\.sh below it and no apply\.py"):
        with_overrides.applied(job, overrides, environ)


def test_a_file_that_fails_does_not_end_the_job(environ: dict[str, str], overrides: Path) -> None:
    (overrides / "apply.py").write_text("1 / 0\n")
    out, errors = output_of(*with_overrides.applied([sys.executable, "-c", JOB], overrides, environ))
    assert out == "default sourced kept"
    assert "apply.py failed, the job goes on without it" in errors
    assert "ZeroDivisionError" in errors


def test_the_exit_code_is_the_jobs(overrides: Path) -> None:
    assert run("run", "--with", str(overrides), "--", sys.executable, "-S", "-c", "raise SystemExit(7)").returncode == 7
    assert run("run", "--with", str(overrides / "none"), "--", "true").returncode == 1
