"""Tests of logparse's code that runs when a job's Python starts, and when the job imports torch.

Here torch is a small fake package.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from logparse.capture.with_overrides import FOLDER, with_torch

PACKAGE = FOLDER / "logparse_in_job"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Return environment variables for a job: it finds a fake torch, and runs a given file when it imports torch."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text(
        "import sys\nstate = 'plain'\nloader = type(__spec__.loader).__name__\n"
    )
    (tmp_path / "torch/part.py").write_text("")
    (tmp_path / "with.py").write_text(
        "import torch\ntorch.state = 'changed'\ndef function(): pass\ntorch.f = function\n"
    )
    return with_torch({**os.environ, "PYTHONPATH": str(tmp_path)}, tmp_path / "with.py")


def output_of(code: str, environ: dict[str, str], python: str = sys.executable) -> str:
    done = subprocess.run([python, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert done.stderr == "", done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "lookup",
    [
        "",
        "import importlib.util; assert importlib.util.find_spec('torch') is not None",
        "import importlib.util; [importlib.util.find_spec('torch') for _ in range(3)]",
        "import pkgutil; pkgutil.find_loader('torch') if sys.version_info < (3, 12) else None",
        "import importlib.metadata; list(importlib.metadata.distributions())",
        "import threading; t = threading.Thread(target=__import__, args=('torch',)); t.start(); t.join()",
        "import torch.part",
    ],
)
def test_files_run_once_torch_is_executed_however_it_was_looked_up(lookup: str, environ: dict[str, str]) -> None:
    code = "import sys, warnings; warnings.simplefilter('ignore')\n" + lookup
    code += "\nimport torch; left = 'exec_module' in vars(torch.__spec__.loader)"
    code += "\nprint(torch.state, torch.loader, left, torch.f.__module__)"
    assert output_of(code, environ) == "changed SourceFileLoader False __logparse__"


def test_a_lookup_without_an_import_changes_nothing(environ: dict[str, str]) -> None:
    code = (
        "import importlib.util, sys; spec = importlib.util.find_spec('torch'); print(spec.name, 'torch' in sys.modules)"
    )
    assert output_of(code, environ) == "torch False"


def test_a_torch_that_fails_to_import_fails_as_without_us(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "torch/__init__.py").write_text("raise ImportError('no library')\n")
    found = []
    for each in (environ, {**environ, "PYTHONPATH": str(tmp_path)}):
        done = subprocess.run(
            [sys.executable, "-c", "import torch"], env=each, capture_output=True, text=True, check=False
        )
        found.append((done.returncode, done.stderr))
    assert found[0] == found[1]
    assert "no library" in found[0][1]


def test_a_file_run_in_the_job_can_be_imported(environ: dict[str, str]) -> None:
    """If logparse runs a file in the job, the job can also import this file as a module.

    PyTorch's compiler (Dynamo) imports the module of each function that it compiles.
    """
    code = "import importlib, torch; print(importlib.import_module(torch.f.__module__).function is torch.f)"
    assert output_of(code, environ) == "True"


def pythons() -> list[str]:
    """Return the paths of all Pythons on this machine, from version 2.7 on."""
    folders = sorted(Path.home().glob(".pyenv/versions/*/bin"))
    folders += [Path(x) for x in (*os.environ.get("PATH", "").split(os.pathsep), "/usr/bin") if x]
    found = {}
    for name in ("python2.7", *(f"python3.{minor}" for minor in range(6, 16))):
        found[name] = next((str(x / name) for x in folders if os.access(x / name, os.X_OK)), "")
    return [path for path in found.values() if path]


@pytest.mark.parametrize("python", pythons())
def test_any_python_starts_as_without_logparse(python: str, environ: dict[str, str], tmp_path: Path) -> None:
    """Any Python that a job starts, of any version, works as it would without logparse.

    It must find all of its own modules and print nothing.
    """
    code = "import sys; print(sys.modules['sitecustomize'].__file__)"
    assert output_of(code, environ, python).endswith(("sitecustomize.py", "sitecustomize.pyc"))
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.own = 'kept'\nsys.path.append('added')\n")
    code = "import sys, sitecustomize; print('%s %s %d' % (sys.own, sitecustomize.sys.own, sys.path.count('added')))"
    assert output_of(code, environ, python) == "kept kept 1"
    (tmp_path / "sitecustomize.py").write_text("import no_such_module\n")
    alone = {**environ, "PYTHONPATH": str(tmp_path)}
    errors = [
        subprocess.run([python, "-c", "print(1)"], env=x, capture_output=True, text=True, check=False)
        for x in (environ, alone)
    ]
    assert errors[0].stdout == errors[1].stdout
    assert errors[0].stderr.splitlines()[:1] == errors[1].stderr.splitlines()[:1], "and Python's own line about it"


@pytest.mark.parametrize("python", [sys.executable, *pythons()])
def test_starting_python_imports_little(python: str, environ: dict[str, str], tmp_path: Path) -> None:
    """A Python that starts in the job imports only very few modules for logparse.

    Every child process of the job needs time for these imports, even if it does not use torch. ``typing`` alone would
    take longer than all of them.
    """
    code = "import sys; print(' '.join(sys.modules))"
    plain = set(output_of(code, {**environ, "PYTHONPATH": str(tmp_path)}, python).split())
    observed = set(output_of(code, environ, python).split())
    ours = {"logparse_in_job", "logparse_in_job.start", "logparse_in_job.when_executed", "__future__", "sitecustomize"}
    assert observed - plain <= ours


def test_the_package_is_written_for_the_oldest_python_that_has_a_pytorch_of_ours() -> None:
    for path in [*PACKAGE.rglob("*.py"), FOLDER / "trace_units.py"]:
        ast.parse(path.read_text(), feature_version=(3, 8))
    ast.parse((FOLDER / "sitecustomize.py").read_text(), feature_version=(3, 4))


def test_code_in_the_job_imports_only_torch() -> None:
    """logparse's code in a user's job imports only torch and Python's standard library.

    The job's Python may have no other packages.
    """
    known = {"torch", "logparse_in_job", "sitecustomize", *sys.stdlib_module_names}
    for path in [*PACKAGE.rglob("*.py"), FOLDER / "sitecustomize.py", FOLDER / "trace_units.py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [x.name for x in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            assert {x.partition(".")[0] for x in names} <= known, path


def test_code_in_the_job_calls_functions_that_a_test_of_the_job_cannot_replace() -> None:
    """A module of ours calls ``Python.monotonic``. A job may have replaced ``time.monotonic`` with a mock."""
    kept = next(x for x in ast.parse((PACKAGE / "unpatched.py").read_text()).body if isinstance(x, ast.ClassDef))
    functions = {ast.unparse(x.value) for x in kept.body if isinstance(x, ast.Assign)}
    assert {"open", "time.monotonic", "json.dumps"} <= functions
    before_the_job = {"unpatched.py", "start.py", "when_executed.py"}  # They run when the job imports torch, or before
    for path in PACKAGE.rglob("*.py"):
        if path.name not in before_the_job:
            tree = ast.parse(path.read_text())
            names = {ast.unparse(x) for x in ast.walk(tree) if isinstance(x, (ast.Attribute, ast.Name))}
            assert names & functions == set(), path
