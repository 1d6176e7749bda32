"""Tests of ``logparse run --with FOLDER``, which runs a job with the files and settings that logparse recommended."""

# Code that runs when the job imports torch is tested, too. Here torch is a small fake package, because importing the
# real one takes seconds.

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from analyzers.actions import ACTIONS, ActionResult
from analyzers.actions.action import Application
from analyzers.recommend.apply_module import module
from analyzers.recommend.apply_script import script
from logparse.capture import with_overrides
from logparse.capture.applied import NOT_APPLIED, Asked, asked_of, missing, read_marks
from logparse.errors import InputError
from logparse.libraries.kinds.format import Emission
from logparse.quoting import Python, Shell
from logparse.store import open_store
from tests.conftest import ROOT
from tests.program import run

JOB = "import sitecustomize, torch, os; print(torch.setting, os.environ.get('FROM_SHELL'), os.environ.get('OWN'))"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Return environment variables with which a job finds a fake torch and a ``sitecustomize`` of its own."""
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
    assert output_of(*with_overrides.applied(job, overrides / "gfx942", environ))[0] == "default sourced kept"
    assert asked_of(overrides / "gfx942").scripts == ("gfx942",), "the folder of one machine works, too"
    (overrides / "gfx942/apply.sh").unlink()
    with pytest.raises(InputError, match=r"holds neither apply\.py nor a folder with apply\.sh"):
        with_overrides.applied(job, overrides, environ)


def test_a_file_that_fails_does_not_end_the_job(environ: dict[str, str], overrides: Path) -> None:
    (overrides / "apply.py").write_text("1 / 0\n")
    out, errors = output_of(*with_overrides.applied([sys.executable, "-c", JOB], overrides, environ))
    assert out == "default sourced kept"
    assert "apply.py failed, and the job continues without it" in errors
    assert "ZeroDivisionError" in errors


def test_the_exit_code_is_the_jobs(overrides: Path) -> None:
    assert run("run", "--with", str(overrides), "--", sys.executable, "-S", "-c", "raise SystemExit(7)").returncode == 7
    assert run("run", "--with", str(overrides / "none"), "--", "true").returncode == 1


# ------------------------------------------------------------------------------------------------------------ marks

TORCH = """
import types
class nn:
    class Module: pass
backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(benchmark=False))
setting = "default"
"""
PRINTS = "import torch; print(torch.backends.cudnn.benchmark)"


def made(folder: Path, *, settings: bool = True) -> Path:
    """Make a folder with an ``apply.py`` of the kind that ``logparse recommend`` generates.

    If ``settings`` is true, the file changes a setting when it is imported. Otherwise it changes nothing.
    """
    result = ActionResult(
        action=next(x for x in ACTIONS if x.name == "cudnn_benchmark"),
        application=Application(
            line="",
            settings=(Python("torch.backends.cudnn.benchmark = True"),),
            in_force={"torch.backends.cudnn.benchmark": Python("torch.backends.cudnn.benchmark")},
        ),
        now_us=20e3, then_us=10e3, low_us=9e3, high_us=11e3, parts=(), steps=4.0,
    )  # fmt: skip
    written = module([result], kept=[result] if settings else [])
    assert written is not None
    folder.mkdir()
    (folder / "apply.py").write_bytes(written.data)
    return folder


def run_with(overrides: Path, *command: str, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "logparse", "run", "--with", str(overrides), "--", *command]
    return subprocess.run(words, env=dict(environ), cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture
def with_torch(tmp_path: Path, environ: dict[str, str]) -> dict[str, str]:
    (tmp_path / "own/torch/__init__.py").write_text(TORCH)
    return environ


def test_run_says_what_was_applied_and_in_how_many_processes(tmp_path: Path, with_torch: dict[str, str]) -> None:
    two = f"{PRINTS}; import subprocess, sys; subprocess.run([sys.executable, '-c', {PRINTS!r}])"
    for program, processes in ((PRINTS, "1 process"), (two, "2 processes")):
        folder = made(tmp_path / processes)
        done = run_with(folder, sys.executable, "-uc", program, environ=with_torch)
        assert (done.returncode, set(done.stdout.split())) == (0, {"True"})
        assert done.stderr == f"logparse: applied cudnn_benchmark in {processes}\n"


@pytest.mark.parametrize(
    ("words", "program", "why"),
    [
        (["-S"], PRINTS, "Python was started with -S"),
        (["-X", "utf8", "-sE"], "print(False)", "Python was started with -E"),
        (["-Ic", "print(False)"], "", "Python was started with -I"),
        ([], "print(False)", "no process imported torch"),
        (
            [],
            f"import os, shutil; shutil.rmtree(os.environ['LOGPARSE_APPLIED']); {PRINTS}",
            "no process imported torch",
        ),
    ],
)
def test_a_change_that_was_not_applied_is_an_error(
    words: list[str], program: str, why: str, tmp_path: Path, with_torch: dict[str, str]
) -> None:
    """If the recommended change was not applied to the job, ``run --with`` ends with an error.

    In an earlier version it ended with 0, so that users who wanted to measure the gain compared the job with itself.
    """
    last = ["-c", program] if program else []
    done = run_with(made(tmp_path / "made"), sys.executable, *words, *last, environ=with_torch)
    assert done.returncode == NOT_APPLIED
    assert done.stdout in ("False\n", "True\n"), "and the job was not disturbed"
    (line,) = done.stderr.splitlines()
    assert line.startswith("logparse: not applied: cudnn_benchmark: ")
    assert why in line


def test_looking_for_torch_first_changes_nothing(tmp_path: Path, with_torch: dict[str, str]) -> None:
    """If a job looks for torch before it imports torch, the change is still applied, or an error is reported."""
    # The library transformers does this with find_spec. In an earlier version, this removed logparse's import hook:
    # nothing was applied, although the exit code was 0.
    program = f"import importlib.util; importlib.util.find_spec('torch'); {PRINTS}"
    done = run_with(made(tmp_path / "made"), sys.executable, "-c", program, environ=with_torch)
    assert (done.stdout, done.returncode) in (("True\n", 0), ("False\n", NOT_APPLIED))
    assert ("logparse: applied cudnn_benchmark in 1 process" in done.stderr) == (done.returncode == 0)


def test_the_jobs_own_error_comes_first(tmp_path: Path, with_torch: dict[str, str]) -> None:
    done = run_with(made(tmp_path / "made"), sys.executable, "-c", "raise SystemExit(7)", environ=with_torch)
    assert done.returncode == 7
    assert "not applied: cudnn_benchmark" in done.stderr


def test_scripts_leave_marks_and_one_that_refuses_leaves_none(tmp_path: Path, with_torch: dict[str, str]) -> None:
    folder = tmp_path / "overrides"
    for name, cu_count in (("here", None), ("elsewhere", "304")):
        (folder / name).mkdir(parents=True)
        file = Emission("my results.csv", b"", Shell(f"export TUNED='{name}'/{{path}}\nexport ALSO=1"))
        target = {"arch": "gfx942", "cu_count": cu_count} if cu_count else {}
        written = script([], [file], target, str(folder / name))
        assert written is not None
        (folder / name / "my results.csv").touch()
        (folder / name / "apply.sh").write_bytes(written.data)
    rocminfo = tmp_path / "bin/rocminfo"
    rocminfo.parent.mkdir()
    rocminfo.write_text("#!/bin/sh\necho '  Name:                    gfx1100'\n")
    rocminfo.chmod(0o755)
    environ = with_torch | {"PATH": f"{rocminfo.parent}:{with_torch['PATH']}"}
    words = ["sh", "-c", 'echo "$TUNED"; cat "$LOGPARSE_APPLIED"/applied_sh_*; cat "$LOGPARSE_APPLIED"/asked.json']
    done = run_with(folder, *words, environ=environ)
    assert done.returncode == 0
    tuned, mark, asked = done.stdout.splitlines()
    assert tuned.startswith("here")
    assert json.loads(mark) == {"logparse_applied": 1, "variables": ["TUNED", "ALSO"], "files": ["my results.csv"]}
    assert json.loads(asked)["asked"] == {"settings": [], "scripts": ["elsewhere", "here"]}
    assert done.stderr.splitlines()[-1] == "logparse: applied ALSO, TUNED by apply.sh"
    (folder / "here/apply.sh").unlink()
    refused = run_with(folder, "true", environ=environ)
    assert refused.returncode == NOT_APPLIED
    assert "apply.sh: not applied: arch is gfx1100 here, the files are for gfx942" in refused.stderr
    assert "logparse: not applied: apply.sh of elsewhere: it refused this machine" in refused.stderr


def test_a_module_that_leaves_no_marks_proves_nothing(overrides: Path, with_torch: dict[str, str]) -> None:
    done = run_with(overrides, sys.executable, "-c", "import torch", environ=with_torch)
    assert done.returncode == NOT_APPLIED
    assert (
        "not applied: apply.py: this apply.py does not report which changes it applies; write apply.py again with "
        "`logparse recommend`" in done.stderr
    )


def test_what_applies_nothing_by_itself_is_refused_before_the_job(tmp_path: Path, with_torch: dict[str, str]) -> None:
    done = run_with(made(tmp_path / "made", settings=False), "touch", str(tmp_path / "ran"), environ=with_torch)
    assert done.returncode == 1
    assert "apply.py does nothing unless the program calls it" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_marks_that_cannot_be_written_never_fail_the_job(tmp_path: Path, with_torch: dict[str, str]) -> None:
    folder = made(tmp_path / "made")
    program = f"import sys; sys.path.insert(0, {str(folder)!r}); import torch, apply; apply.settings(); print('fine')"
    for marks in (str(tmp_path / "gone"), "", "/dev/full/x", str(folder / "apply.py")):
        environ = with_torch | {"LOGPARSE_APPLIED": marks}
        assert output_of([sys.executable, "-c", program], environ) == ("fine", "")


def test_capture_stores_the_applied_changes(tmp_path: Path, with_torch: dict[str, str]) -> None:
    """If ``capture`` runs a job with ``logparse run --with``, it stores which changes the job made.

    ``logparse verify`` needs to know them.
    """
    places = ["--out", str(tmp_path / "logs"), "--store", str(tmp_path / "store"), "--run", "r"]
    inner = ["run", "--with", str(made(tmp_path / "made")), "--", sys.executable, "-c", PRINTS]
    words = [sys.executable, "-m", "logparse", "capture", "--trace", "2", *places, "--"]
    words += [sys.executable, "-m", "logparse", *inner]
    done = subprocess.run(words, env=with_torch, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
    facts = open_store(tmp_path / "store").facts().set_index("name")["value"]
    assert facts["applied:cudnn_benchmark"] == '{"setting": true, "at_end": "in force"}'
    assert sorted(json.loads(x)["settings"] for x in facts.loc[["applied_asked"]]) == [[], ["cudnn_benchmark"]]


def test_two_copies_of_the_module_in_one_process_leave_one_mark(tmp_path: Path, with_torch: dict[str, str]) -> None:
    folder = made(tmp_path / "made")
    (tmp_path / "marks").mkdir()
    program = f"import runpy, torch; [runpy.run_path({str(folder / 'apply.py')!r})['settings']() for _ in range(2)]"
    program += f"; runpy.run_path({str(folder / 'apply.py')!r})['_mark']('models', [{{'action': 'a', 'changed': 0}}])"
    output_of([sys.executable, "-c", program], with_torch | {"LOGPARSE_APPLIED": str(tmp_path / "marks")})
    found = read_marks(tmp_path / "marks")
    assert (found.settings, found.models, found.unchanged) == ({"cudnn_benchmark": 1}, {"a": 1}, ("a",))
    assert str(found) == "cudnn_benchmark in 1 process; a of the model in 1 process"


# ------------------------------------------------------------------------------------------- in force until the end

OFF = "torch.backends.cudnn.benchmark = False"
UNDONE = (
    "logparse: cudnn_benchmark was set, but it was not in force any more when {} ended: the job itself, or a library "
    "that it uses, sets torch.backends.cudnn.benchmark; remove that line, or call `apply.settings('cudnn_benchmark')` "
    "after it"
)
UNKNOWN = (
    "logparse: cudnn_benchmark was set in 1 process, but it is not known whether it was still in force at the end: "
    "a process that is killed or ends by os._exit cannot report it"
)
APPLIED = "logparse: applied cudnn_benchmark in 1 process"


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        ("import torch", 0, [APPLIED]),
        (f"import torch; {OFF}", NOT_APPLIED, [UNDONE.format("the job")]),
        (f"import torch; {OFF}; torch.backends.cudnn.benchmark = True", 0, [APPLIED]),
        (f"import torch; {OFF}; raise SystemExit(7)", 7, [UNDONE.format("the job")]),
        ("import os, torch; os.chdir('/'); os.environ.clear()", 0, [APPLIED]),
        (f"import os, torch; {OFF}; os._exit(0)", 0, [UNKNOWN]),
        ("import os, torch; os.kill(os.getpid(), 9)", 137, [UNKNOWN]),
        # A fork of a process leaves no mark of its own, and must not change the mark of the process.
        (f"import os, torch\nif not os.fork(): {OFF}; raise SystemExit\nos.wait()", 0, [APPLIED]),
        (f"import os, torch\nif os.fork(): os.wait(); {OFF}", NOT_APPLIED, [UNDONE.format("the job")]),
        # An error of the check is not the job's.
        ("import torch; del torch.backends", 0, [UNKNOWN]),
        ("import os, shutil, torch; shutil.rmtree(os.environ['LOGPARSE_APPLIED'])", NOT_APPLIED, ["not applied"]),
    ],
)
def test_a_setting_is_applied_only_if_it_is_in_force_at_the_end(
    program: str, code: int, said: list[str], tmp_path: Path, with_torch: dict[str, str]
) -> None:
    """If the job itself sets a recommended setting to another value, ``run --with`` ends with an error.

    In an earlier version, it said that the setting was applied, and ``tune`` compared the job with itself.
    """
    done = run_with(made(tmp_path / "made"), sys.executable, "-c", program, environ=with_torch)
    assert (done.returncode, done.stdout) == (code, "")
    lines = done.stderr.splitlines()
    assert len(lines) == len(said)
    assert all(expected in line for line, expected in zip(lines, said, strict=True))


def test_one_rank_that_lost_a_setting_is_an_error(tmp_path: Path, with_torch: dict[str, str]) -> None:
    ends = ["pass", OFF, "pass", "import os; os._exit(0)"]
    ranks = [["-c", f"import torch; {end}"] for end in ends]
    program = f"import subprocess, sys; [subprocess.run([sys.executable, *rank]) for rank in {ranks!r}]"
    done = run_with(made(tmp_path / "made"), sys.executable, "-c", program, environ=with_torch)
    assert done.returncode == NOT_APPLIED
    assert done.stderr.splitlines() == [
        "logparse: applied cudnn_benchmark in 2 processes", UNKNOWN, UNDONE.format("1 of 4 processes")
    ]  # fmt: skip


def test_a_call_after_the_jobs_own_line_counts(tmp_path: Path, with_torch: dict[str, str]) -> None:
    """If the program calls ``apply.settings()`` after its own line, the setting is in force.

    The process then has two copies of ``apply.py``: the program's, and the copy of ``run --with``.
    """
    folder = made(tmp_path / "made")
    program = f"import sys, torch; {OFF}; sys.path.insert(0, {str(folder)!r}); import apply; apply.settings(); "
    for end, code in (("", 0), (OFF, NOT_APPLIED)):
        done = run_with(folder, sys.executable, "-c", program + end, environ=with_torch)
        assert (done.returncode, done.stderr) == (code, f"{UNDONE.format('the job') if code else APPLIED}\n")


def test_a_mark_of_an_older_version_is_read_as_before(tmp_path: Path) -> None:
    mark: dict[str, object] = {"logparse_applied": 1, "settings": ["tf32"], "models": []}
    (tmp_path / "applied_1.json").write_text(json.dumps(mark))
    found = read_marks(tmp_path)
    assert (str(found), found.lost, found.notes) == ("tf32 in 1 process", {}, [])
    assert missing(Asked(("tf32",)), found, ["job"]) == []
    (tmp_path / "applied_2.json").write_text(json.dumps({**mark, "at_end": {"lost": {"tf32": "\x1b[31mred"}}}))
    found = read_marks(tmp_path)
    assert (found.settings, found.lost) == ({"tf32": 1}, {"tf32": 1})
    (line,) = missing(Asked(("tf32",)), found, ["job"])
    assert "1 of 2 processes" in line
    assert "\x1b" not in line
