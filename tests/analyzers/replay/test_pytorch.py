"""Tests of measuring PyTorch's own kernels, on the CPU.

Every way to compute a call must give the right result. One test runs a whole ``logparse replay``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from analyzers.replay.replay import Options, replay
from analyzers.replay.results import Method
from logparse.libraries.kinds.backend import Conditions, OutOfMemoryError, Place, UnsupportedError
from logparse.libraries.kinds.correctness import error_bound, is_acceptable
from logparse.libraries.pytorch.replay import BACKEND
from logparse.libraries.torch_profiler import profiler as torch_profiler
from logparse.model import DEFAULT, Call, ConvProblem, GemmProblem, Problem, with_plain
from tests.analyzers.replay.problems import SMALL_W, gemm, store_of
from tests.conftest import CORPUS, needs_corpus, sized
from tests.libraries.reading import outcomes, records

HALF = with_plain(dict.fromkeys(("a_type", "b_type", "c_type", "d_type"), "bf16_r"))
POINTWISE = {"filter_h": 1, "filter_w": 1, "pad_h": 0, "pad_w": 0, "stride_h": 1, "stride_w": 1, "groups": 1}
LAST = dict.fromkeys(("in_layout", "weights_layout", "out_layout"), "NHWC")
HALF_W = dict.fromkeys(("in_type", "weights_type", "out_type"), "BF16")

GEMMS = [
    gemm(),
    gemm(trans_a="T", lda=50),
    gemm(trans_b="T"),
    gemm(trans_a="T", trans_b="C", lda=60),
    gemm(**HALF),
    gemm(m=512, n=40, k=1024, lda=512, ldb=1024, ldc=512, ldd=512),
    gemm(beta="nonzero"),
    gemm(bias=True),
    gemm(bias=True, beta="nonzero"),
    gemm(bias=True, activation="relu"),
    gemm(bias=True, activation="gelu"),
    gemm(activation="gelu"),
    gemm(batch_count=3, stride_a=4000, stride_b=2970, stride_c=2310, stride_d=2400),
    gemm(batch_count=3, bias=True),
]
CONVS = [
    replace(x, direction=direction)
    for direction in ("F", "B", "W")
    for x in (
        SMALL_W,
        replace(SMALL_W, groups=1),
        replace(SMALL_W, out_h=10, out_w=10, **POINTWISE),
        replace(SMALL_W, **LAST),
        replace(SMALL_W, groups=16, **LAST),  # depthwise, of permuted views
        replace(SMALL_W, **HALF_W),
    )
]


@pytest.mark.parametrize("problem", [*GEMMS, *CONVS], ids=lambda p: p.label)
def test_every_way_is_right_on_fresh_inputs(problem: GemmProblem | ConvProblem) -> None:
    backend = BACKEND.open(Place(device="cpu"))
    solutions = backend.solutions(problem, 100)
    assert solutions[0] == DEFAULT
    assert len({x.text for x in solutions}) == len(solutions) >= 2
    runnables = [backend.prepare(problem, solution, Conditions(seed=1, sets=2)) for solution in solutions]
    for seed in (1, 2):
        backend.refresh(seed)
        for solution, runnable in zip(solutions, runnables, strict=True):
            assert is_acceptable(runnable.error(), error_bound(problem)), solution.text
    assert all(runnable.sample_us(3) > 0 for runnable in runnables)
    assert len(backend.solutions(problem, 1)) == 1
    backend.release()


@pytest.mark.parametrize(
    "problem",
    [
        gemm(trans_a=None),
        gemm(lda=3),
        gemm(**dict.fromkeys(("a_type", "b_type", "d_type"), "f8_r")),
        gemm(d_type="bf16_r"),
        gemm(activation="swish"),
        gemm(gradient=True),
        gemm(batch_mode="pointer", batch_count=2),
        replace(SMALL_W, out_h=9),
        replace(SMALL_W, direction="B+W"),
        replace(SMALL_W, in_layout=None),
        replace(SMALL_W, h=None),
    ],
    ids=lambda p: p.label,
)
def test_what_it_cannot_state_is_unsupported(problem: Problem) -> None:
    with pytest.raises(UnsupportedError):
        BACKEND.open(Place()).solutions(problem, 10)


def test_operands_that_do_not_fit_are_out_of_memory() -> None:
    huge = gemm(m=2_000_000, n=2_000_000, k=8, lda=2_000_000, ldb=8, ldc=2_000_000, ldd=2_000_000)
    backend = BACKEND.open(Place())
    with pytest.raises(OutOfMemoryError):
        backend.prepare(huge, DEFAULT, Conditions(sets=64))


@pytest.mark.usefixtures("torch_processes")
def test_replay_on_the_cpu_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    problems = [gemm(bias=True, activation="gelu"), SMALL_W]
    store = store_of(tmp_path, problems)
    method = Method(blocks=4, processes=sized(2, 4))
    report = replay(store, Options(backends=("torch",), devices=("cpu",), method=method))
    assert report.finished
    rows = store.query("select problem, solution, status, samples_us from measurements where origin = 'replay'")
    assert set(rows["problem"]) == {x.text for x in problems}
    assert set(rows["status"]) == {"ok"}
    assert all(len(samples) and min(samples) > 0 for samples in rows["samples_us"])
    assert list(rows["solution"]).count("Default") == 2
    facts = store.facts()
    assert {"device", "arch", "pytorch_version", "environment"} <= set(facts["name"])
    assert {x.ended for x in replay(store, Options(devices=("cpu",))).results} == {"known"}


@needs_corpus
def test_every_convolution_of_permuted_views_can_be_rebuilt() -> None:
    found = records(outcomes(torch_profiler.FORMAT, CORPUS / "nvidia/convnext_tiny.trace.json.gz"))
    convs = {x.problem for x in found if isinstance(x, Call) and isinstance(x.problem, ConvProblem)}
    backend = BACKEND.open(Place(device="cpu"))
    assert len(convs) == 23
    assert all(backend.solutions(problem, 100)[0] == DEFAULT for problem in convs)
    smallest = min((x for x in convs if (x.groups or 1) > 1), key=lambda x: (x.bytes or 0.0, x.text))
    reduced = replace(smallest, n=1, c=8, k=8, groups=8)
    runnable = backend.prepare(reduced, DEFAULT, Conditions(seed=1, sets=1))
    assert is_acceptable(runnable.error(), error_bound(reduced))
    backend.release()
