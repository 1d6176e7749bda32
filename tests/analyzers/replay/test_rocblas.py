"""Tests of measuring rocBLAS's kernels, with a fake library that the tests compile."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from logparse.libraries.kinds.backend import Backend, Conditions, Place, UnsupportedError
from logparse.libraries.rocblas.replay import BACKEND
from logparse.model import DEFAULT, GemmProblem, Solution
from tests.analyzers.replay.compiled import loaded
from tests.analyzers.replay.problems import gemm

SOURCE = Path(__file__).with_name("fake_rocblas.c")
NAME = "librocblas.so"
RIGHT, WRONG, OTHER = (Solution("rocblas", index) for index in ("-4711", "-23", "-17"))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compile the fake rocBLAS and load it into this process, because logparse uses a copy that is already loaded."""
    loaded(SOURCE, tmp_path_factory.mktemp("rocblas") / NAME)


@pytest.fixture
def calls(library: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAKE_ROCBLAS_LOG", str(tmp_path / "calls"))
    return tmp_path / "calls"


@pytest.fixture
def backend(calls: Path) -> Backend:
    return BACKEND.open(Place())


@pytest.mark.parametrize(
    "problem",
    [
        gemm(trans_a="T", lda=60),
        gemm(beta="nonzero", batch_count=2, stride_a=4000, stride_b=2970, stride_c=2400, stride_d=2400),
    ],
    ids=lambda p: p.label,
)
def test_all_run_by_their_index_and_the_wrong_one_is_caught(
    backend: Backend, calls: Path, problem: GemmProblem
) -> None:
    faulty = {}
    for solution in backend.solutions(problem, 200):
        runnable = backend.prepare(problem, solution, Conditions())
        faulty[solution] = bool(runnable.fault())
        assert runnable.sample_us(2) > 0
    assert faulty == {DEFAULT: False, RIGHT: False, WRONG: True, OTHER: False}
    assert set(calls.read_text().split()) == {"0", "-4711", "-23", "-17"}
    assert backend.environment()["rocblas_version"] == "5.2.0.abc"


def test_a_limited_list_has_the_own_choice(backend: Backend) -> None:
    assert backend.solutions(gemm(), 200) == [DEFAULT, RIGHT, WRONG, OTHER]
    assert backend.solutions(gemm(), 2) == [DEFAULT, RIGHT]


@pytest.mark.parametrize("problem", [gemm(bias=True), gemm(activation="relu"), gemm(a_type="f8_r")])
def test_what_rocblas_does_not_have_is_not_supported(backend: Backend, problem: GemmProblem) -> None:
    with pytest.raises(UnsupportedError):
        backend.solutions(problem, 200)
