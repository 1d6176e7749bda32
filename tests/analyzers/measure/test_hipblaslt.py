"""The hipBLASLt backend through AMD's real bindings, against a library that is compiled here."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("rocm.bindings.hipblaslt")

from analyzers.measure.crew import Limits
from analyzers.measure.replay import Options, replay
from analyzers.measure.trial import Method
from logparse.model import Solution
from tests.analyzers.measure.problems import gemm, store_of

SOURCE = Path(__file__).with_name("fake_hipblaslt.c")
OPTIONS = Options(backends=("hipblaslt",), devices=("cpu",), method=Method(blocks=4), limits=Limits(hang_s=120))


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The compiled library's folder, found by workers through the loader's path; and its call log."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    command = [compiler, "-O2", "-w", "-shared", "-fPIC", "-o", str(tmp_path / "libhipblaslt.so"), str(SOURCE), "-lm"]
    subprocess.run(command, check=True)
    for name in ("ROCM_PATH", "ROCM_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("FAKE_HIPBLASLT_LOG", str(tmp_path / "calls"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


@pytest.mark.parametrize(
    "problem",
    [
        gemm(trans_a="T", lda=60),
        gemm(trans_b="T", bias=True, activation="relu", bias_type="f32_r"),
        gemm(beta="nonzero", batch_count=2, stride_a=4000, stride_b=2970, stride_c=2400, stride_d=2400),
    ],
    ids=lambda p: p.label,
)
def test_the_slow_pick_is_found_and_the_wrong_solution_never_wins(library: Path, problem: object) -> None:
    store = store_of(library / "store", [problem])  # type: ignore[list-item]
    report = replay(store, OPTIONS)
    (result,) = report.results
    assert [(row.solution, row.status) for row in result.rows] == [
        (Solution("hipblaslt", "4711"), "ok"),
        (Solution("hipblaslt", "17"), "ok"),
        (Solution("hipblaslt", "23"), "wrong"),
    ]
    assert (result.pick, result.best) == (Solution("hipblaslt", "4711"), Solution("hipblaslt", "17"))
    assert all(x.confirmed for x in report.confirmations.values())
    called = {tuple(line.split()) for line in (library / "calls").read_text().splitlines()}
    assert called == {("4711", "0"), ("17", "64"), ("23", "128")}
    facts = store.facts().set_index("name")["value"]
    assert set(facts["hipblaslt_version"]) == {"100200"}
    assert set(facts["hipblaslt_revision"]) == {"fa4e"}


def test_a_solution_that_needs_more_workspace_is_not_offered(library: Path) -> None:
    store = store_of(library / "store", [gemm()])
    report = replay(store, replace(OPTIONS, method=Method(blocks=4, workspace_bytes=64)))
    assert [row.solution.id for row in report.results[0].rows] == ["4711", "17"]
