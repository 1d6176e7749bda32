"""Tests of measuring hipBLASLt's kernels, with AMD's real Python bindings and a fake library that the tests compile."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("rocm.bindings.hipblaslt")

from analyzers.evidence.confirmations import judge
from analyzers.replay.results import Method
from analyzers.replay.trial import ConfirmTask, RaceTask, WorkerContext
from logparse.libraries.hipblaslt.replay import BACKEND
from logparse.libraries.kinds.backend import Backend, Conditions, Place
from logparse.libraries.kinds.correctness import error_bound, is_acceptable
from logparse.model import GemmProblem, Solution
from tests.analyzers.replay.compiled import loaded, planted_times
from tests.analyzers.replay.problems import gemm

SOURCE = Path(__file__).with_name("fake_hipblaslt.c")
NAME = "libhipblaslt.so"
SLOW, FAST, WRONG = (Solution("hipblaslt", index) for index in ("4711", "17", "23"))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the fake hipBLASLt and load it into this process. AMD's bindings then find it by its soname."""
    return loaded(SOURCE, tmp_path_factory.mktemp("hipblaslt") / NAME)


@pytest.fixture
def calls(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    planted_times(library, monkeypatch)
    for name in ("ROCM_PATH", "ROCM_HOME"):  # the bindings would load the library from there
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FAKE_HIPBLASLT_LOG", str(tmp_path / "calls"))
    return tmp_path / "calls"


@pytest.fixture
def backend(calls: Path) -> Backend:
    return BACKEND.open(Place())


@pytest.mark.parametrize(
    "problem",
    [
        gemm(trans_a="T", lda=60),
        gemm(trans_b="T", bias=True, activation="relu", bias_type="f32_r"),
        gemm(beta="nonzero", batch_count=2, stride_a=4000, stride_b=2970, stride_c=2400, stride_d=2400),
        gemm(scale_alpha_vector=True),
    ],
    ids=lambda p: p.label,
)
def test_the_slow_pick_is_found_and_the_wrong_solution_never_wins(
    backend: Backend, calls: Path, problem: GemmProblem
) -> None:
    context = WorkerContext({"hipblaslt": backend}, Place(), Method(), lambda what: None)
    result = context.run(RaceTask(problem=problem))
    assert [(row.solution, row.status) for row in result.rows] == [(SLOW, "ok"), (FAST, "ok"), (WRONG, "wrong")]
    assert (result.pick, result.best) == (SLOW, FAST)
    assert judge(context.run(ConfirmTask(problem=problem, pick=SLOW, winner=FAST)).pairs).confirmed
    called = {tuple(line.split()) for line in calls.read_text().splitlines()}
    assert called == {("4711", "0"), ("17", "64"), ("23", "128")}
    assert context.facts["hipblaslt_version"] == "100200"
    assert context.facts["hipblaslt_revision"] == "fa4e"


@pytest.mark.parametrize(
    ("problem", "fault"),
    [
        (gemm(bias=True, activation="relu", bias_type="f32_r", aux=True, aux_type="f32_r"), "an element of aux "),
        (gemm(trans_a="T", gradient=True, bias=True, bias_type="f32_r", bias_source="a"), "an element of bias "),
        (gemm(scale_a="row", scale_b="scalar"), "an element differs "),
    ],
    ids=["RELU_AUX_BIAS", "BGRADA", "scaled"],
)
def test_second_outputs_are_checked(backend: Backend, problem: GemmProblem, fault: str) -> None:
    """A kernel that computes a wrong result is refused, even if only its second output is wrong.

    There are three cases: a wrong auxiliary matrix, a wrong bias gradient, and a wrong main result of a product with
    scales.
    """
    right, wrong = (backend.prepare(problem, x, Conditions()) for x in (FAST, WRONG))
    assert (right.fault(), is_acceptable(right.error(), error_bound(problem))) == ("", True)
    assert wrong.fault().startswith(fault)
    assert not is_acceptable(wrong.error(), error_bound(problem))


def test_a_solution_that_needs_more_workspace_is_not_offered(backend: Backend) -> None:
    assert backend.solutions(gemm(), 200, 64) == [SLOW, FAST]


def test_exhaustive_is_not_cut_to_the_limit(backend: Backend) -> None:
    assert backend.solutions(gemm(), 2) == [SLOW, FAST]
    everything = BACKEND.open(Place(exhaustive=True))
    assert everything.solutions(gemm(), 2) == [SLOW, FAST, WRONG]
