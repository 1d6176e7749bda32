"""Tests of measuring MIOpen's solvers through ctypes, with a fake library that the tests compile."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from analyzers.evidence.confirmations import judge
from analyzers.replay.results import Method
from analyzers.replay.trial import ConfirmTask, RaceTask, WorkerContext
from logparse.libraries.kinds.backend import Backend, Conditions, Place, UnsupportedError
from logparse.libraries.kinds.correctness import error_bound, is_acceptable
from logparse.libraries.miopen.replay import BACKEND
from logparse.libraries.miopen.solvers import SOLVERS, known_algorithm
from logparse.model import Direction, Solution
from tests.analyzers.replay.compiled import loaded, planted_times
from tests.analyzers.replay.problems import SMALL_W, gemm

SOURCE = Path(__file__).with_name("fake_miopen.c")
LAST = dict.fromkeys(("in_layout", "weights_layout", "out_layout"), "NHWC")
SMALL = replace(SMALL_W, n=1, c=8, k=12, groups=2)
SLOW = {"F": "GemmFwdRest", "B": "GemmBwdRest", "W": "GemmWrwUniversal"}
FAST = {
    "F": "ConvHipImplicitGemmGroupFwdXdlops",
    "B": "ConvHipImplicitGemmGroupBwdXdlops",
    "W": "ConvHipImplicitGemmGroupWrwXdlops",
}
NAIVE = {"F": "ConvDirectNaiveConvFwd", "B": "ConvDirectNaiveConvBwd", "W": "ConvDirectNaiveConvWrw"}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the fake MIOpen, load it into this process, and return its path.

    Another process lists the solvers, and finds the library through the loader's search path.
    """
    return loaded(SOURCE, tmp_path_factory.mktemp("miopen") / "libMIOpen.so.1")


@pytest.fixture
def calls(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    planted_times(library, monkeypatch)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    monkeypatch.setenv("FAKE_MIOPEN_LOG", str(tmp_path / "calls"))
    return tmp_path / "calls"


@pytest.fixture
def backend(calls: Path) -> Backend:
    return BACKEND.open(Place())


@pytest.mark.parametrize("layout", [{}, LAST], ids=["NCHW", "NHWC"])
@pytest.mark.parametrize("direction", ["F", "B", "W"])
def test_solvers_are_listed_pick_first_and_compute_what_they_should(
    backend: Backend, calls: Path, direction: Direction, layout: dict[str, str]
) -> None:
    problem = replace(SMALL, direction=direction, dilation_w=2, out_w=4, **layout)  # type: ignore[arg-type]
    solutions = backend.solutions(problem, 100)
    ids = [SLOW[direction], FAST[direction], NAIVE[direction], "id=900", "ConvOclBwdWrW1x1"]
    assert solutions == [Solution("miopen", x) for x in ids]
    assert str(solutions[0].algorithm).endswith("AlgoGEMM")
    assert backend.solutions(problem, 2) == solutions[:2]
    for solution in (*solutions[:2], solutions[3]):
        runnable = backend.prepare(problem, solution, Conditions(seed=3, sets=2))
        assert is_acceptable(runnable.error(), error_bound(problem)), solution.text
        backend.refresh(4)
        assert is_acceptable(runnable.error(), error_bound(problem)), solution.text
        assert runnable.sample_us(2) > 0
    assert runnable.workspace_bytes == 4096
    wrong = backend.prepare(problem, solutions[2], Conditions())
    assert not is_acceptable(wrong.error(), error_bound(problem))
    assert {line.split()[0] for line in calls.read_text().splitlines()} == {direction}
    assert f"{direction} 900 4096" in calls.read_text()
    backend.release()


def test_what_the_library_refuses_has_its_word(backend: Backend) -> None:
    with pytest.raises(RuntimeError, match="miopenConvolutionBackwardWeightsImmediate: InternalError"):
        backend.prepare(SMALL, Solution("miopen", "ConvOclBwdWrW1x1"), Conditions())
    with pytest.raises(UnsupportedError, match="does not offer"):
        backend.prepare(SMALL, Solution("miopen", "ConvAsm3x3U"), Conditions())
    half = replace(SMALL, **dict.fromkeys(("in_type", "weights_type", "out_type"), "BF16"))
    with pytest.raises(UnsupportedError, match="miopenSetTensorDescriptor: UnsupportedOp"):
        backend.solutions(half, 10)
    for problem in (gemm(), replace(SMALL, h=None), replace(SMALL, bias=1), replace(SMALL, in_type="INT8")):
        with pytest.raises(UnsupportedError):
            backend.solutions(problem, 10)


def test_a_solver_that_needs_more_workspace_is_not_offered(backend: Backend) -> None:
    assert [x.id for x in backend.solutions(SMALL, 100, 4095)] == [SLOW["W"], FAST["W"], NAIVE["W"], "ConvOclBwdWrW1x1"]
    assert backend.environment()["miopen_version"] == "3.4.0"


def test_all_that_apply_are_asked_of_a_process_without_the_find_db(calls: Path) -> None:
    backend = BACKEND.open(Place(exhaustive=True))
    names = [x.id for x in backend.solutions(SMALL, 100)]
    assert names[0] == SLOW["W"], "the pick is the one of the library as it is"
    assert names[5:] == ["ConvAsmBwdWrW3x3"]
    runnable = backend.prepare(SMALL, Solution("miopen", names[5]), Conditions())
    assert is_acceptable(runnable.error(), error_bound(SMALL))
    assert "MIOPEN_DEBUG_DISABLE_FIND_DB" not in os.environ


def test_the_slow_pick_is_found_and_confirmed(backend: Backend) -> None:
    context = WorkerContext({"miopen": backend}, Place(), Method(), lambda what: None)
    result = context.run(RaceTask(problem=SMALL))
    assert [(row.solution.id, row.status) for row in result.rows] == [
        (SLOW["W"], "ok"),
        (FAST["W"], "ok"),
        (NAIVE["W"], "wrong"),
        ("id=900", "ok"),
        ("ConvOclBwdWrW1x1", "failed"),
    ]
    pick, best = Solution("miopen", SLOW["W"]), Solution("miopen", FAST["W"])
    assert (result.pick, result.best) == (pick, best)
    assert judge(context.run(ConfirmTask(problem=SMALL, pick=pick, winner=best)).pairs).confirmed


def test_every_solver_of_the_registry_has_an_algorithm() -> None:
    assert {name for name in SOLVERS.values() if known_algorithm(name) is None} == set()
    assert len(set(SOLVERS.values())) == len(SOLVERS)
