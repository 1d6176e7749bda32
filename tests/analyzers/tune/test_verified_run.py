"""Tests of ``logparse run --with FOLDER --verify RUN``, which proves that a job uses its override files.

The machine is made up: a ``rocminfo`` that names a GPU, and a shell script as the job. The script writes the log that
hipBLASLt would write with or without the tuning file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.recommend.apply_script import script
from logparse.capture import plan as capturing
from logparse.capture import run as capture_run
from logparse.capture.applied import NOT_APPLIED
from logparse.ingest import ingest
from logparse.libraries.hipblaslt import tuning_file
from logparse.model import Override, Solution, problem_from_text
from logparse.output import CHECK_FAILED
from logparse.store import open_store
from tests.conftest import SAMPLES
from tests.program import Done, run

LOG = SAMPLES / "hipblaslt/hipblaslt_rank0_4242.log"
PICKED, TUNED = "91033", "91077"
TARGET = {
    "arch": "gfx942",
    "cu_count": "304",
    "hipblaslt_version": "100000",
    "hipblaslt_revision": "3b3d59eb",
}
ROCMINFO = """\
Agent 1
  Device Type:             GPU
  Name:                    gfx942
  Compute Unit:            304
"""
OBEYS = """
log=$(echo "$HIPBLASLT_LOG_FILE" | sed "s/%i/$$/")
if [ "$HIPBLASLT_TUNING_OVERRIDE_FILE" ]; then sed "s/index PICKED/index TUNED/" LOG; else cat LOG; fi > "$log"
echo trained
"""
IGNORES = OBEYS.replace("$HIPBLASLT_TUNING_OVERRIDE_FILE", "")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a store with the run ``before``, a machine with the GPU, and a folder with a tuning file.

    Returns the folder.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOGPARSE_STORE", raising=False)
    monkeypatch.setattr(capturing, "_gpus", lambda environ: {"rocm"})
    monkeypatch.setattr(capture_run, "facts_of_job", lambda command, environ: {})  # It would import torch.
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in {"rocminfo": f"cat <<'END'\n{ROCMINFO}END", "python": "exit 1", "python3": "exit 1"}.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "none"))
    store = open_store("logparse-store", create=True)
    ingest([str(LOG)], store, run="before")
    chosen = store.query("select distinct problem from calls where solution like ?", "before", [f"%{PICKED}%"])[
        "problem"
    ]
    out = tmp_path / "made/gfx942"
    out.mkdir(parents=True)
    overrides = [
        Override(problem=problem_from_text(x), solution=Solution("hipblaslt", TUNED), target=TARGET) for x in chosen
    ]
    files = tuning_file.write(overrides, TARGET)
    made = script(overrides, files, TARGET, str(out))
    assert made is not None
    for file in (*files, made):
        (out / file.name).write_bytes(file.data)
    return out


def check(folder: Path, job: str = OBEYS, before: str = "before") -> Done:
    text = job.replace("LOG", str(LOG)).replace("PICKED", PICKED).replace("TUNED", TUNED)
    text = text.replace(f"HIPBLASLT_{LOG}_FILE", "HIPBLASLT_LOG_FILE")
    return run("run", "--with", str(folder), "--verify", before, "--", "sh", "-c", text)


def labels() -> list[str]:
    return open_store("logparse-store").runs()


def test_the_files_are_used(folder: Path) -> None:
    for label in ("before", "after"):  # These folders are stores, which have the names of the runs.
        open_store(label, create=True)
    done = check(folder)
    assert done.returncode == 0, done.stderr
    assert "verify: took effect: 1 applied" in done.stderr
    assert labels() == ["before", "after"]
    check(folder)
    assert labels() == ["before", "after", "after2"], "each check has a run of its own"


def test_a_job_that_ignores_the_files_fails(folder: Path) -> None:
    done = check(folder, IGNORES)
    assert done.returncode == CHECK_FAILED
    assert "not verified: 1 not applied" in done.stderr


def test_on_another_machine_nothing_is_applied(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder.parents[1] / "bin/rocminfo").write_text(f"#!/bin/sh\ncat <<'END'\n{ROCMINFO.replace('304', '80')}END\n")
    done = check(folder)
    assert done.returncode == NOT_APPLIED
    assert "cu_count is 80 here, the files are for 304" in capfd.readouterr().err
    assert "not applied: apply.sh of gfx942: it refused this machine" in done.stderr


def test_the_jobs_own_exit_code(folder: Path) -> None:
    done = check(folder, "exit 7")
    assert done.returncode == 7
    assert "not verified, because the job ended with exit code 7" in done.stderr


def test_nothing_is_run_for_an_unknown_run_or_an_empty_folder(folder: Path, tmp_path: Path) -> None:
    done = check(folder, "touch ran", before="befor")
    assert done.returncode == 1
    assert "has no run 'befor'; its runs are before" in done.stderr
    (tmp_path / "empty").mkdir()
    done = check(tmp_path / "empty", "touch ran")
    assert "holds no override file" in done.stderr
    assert not (tmp_path / "ran").exists()
