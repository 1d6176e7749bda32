"""Tests that ``logparse replay`` reports within a second what it lacks, before it imports anything large."""

from __future__ import annotations

import subprocess
import sys

import pytest

from analyzers.replay import verb
from analyzers.replay.replay import Options
from logparse.errors import InputError
from logparse.libraries.kinds.backend import BackendType
from logparse.store import Store
from tests.analyzers.replay.fakes import FAKE
from tests.conftest import ROOT
from tests.program import run


def test_the_cpu_is_measured_only_if_the_user_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "has_gpu_files", lambda: False)
    with pytest.raises(InputError, match=r"no GPU on this machine: .* or measure this machine's CPU with --device cpu"):
        verb.refuse_what_cannot_run(Options())
    verb.refuse_what_cannot_run(Options(devices=("cpu",)))
    verb.refuse_what_cannot_run(Options(engine="ray"))
    verb.refuse_what_cannot_run(Options(backends=("tests.analyzers.replay.fakes:FAKE",)))
    monkeypatch.setattr(verb, "has_gpu_files", lambda: True)
    monkeypatch.setattr(verb, "local_devices", lambda names: ("cpu",))
    with pytest.raises(InputError, match="no GPU"):
        verb.refuse_what_cannot_run(Options())
    monkeypatch.setattr(verb, "local_devices", lambda names: ("cuda:0",))
    verb.refuse_what_cannot_run(Options())


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = {"json": "json", "no_such_module": "such-a-package", "no_such.module": "another"}
    lacking = BackendType("lacking", "for tests", FAKE.open, needs=needs)
    assert lacking.missing() == ["such-a-package", "another"]
    monkeypatch.setattr(verb, "BACKENDS", (lacking,))
    with pytest.raises(InputError, match="--backend lacking needs such-a-package and another: pip install such-a"):
        verb.refuse_what_cannot_run(Options(backends=("lacking",), devices=("cpu",)))


def test_the_verb_refuses_before_it_plans(monkeypatch: pytest.MonkeyPatch, samples: Store) -> None:
    monkeypatch.setattr(verb, "has_gpu_files", lambda: False)
    monkeypatch.setattr(verb, "replay", lambda *_: pytest.fail("measured"))
    out = run("replay", "--store", samples.url)
    assert (out.returncode, "no GPU on this machine" in out.stderr) == (1, True)


def test_nothing_heavy_is_imported_for_the_question() -> None:
    code = "import sys; from analyzers.replay import verb; verb.has_gpu_files(); print('torch' in sys.modules)"
    asked = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert asked.stdout == "False\n"
