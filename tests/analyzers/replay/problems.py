"""Make matrix products, and stores (Parquet folders) with calls of them, for tests of measuring kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from analyzers.replay.trial import REFERENCE
from logparse.ingest import record
from logparse.model import Call, GemmProblem, Problem
from logparse.store import Store, open_store
from tests.analyzers.example import W

SMALL_W = replace(
    W, n=2, c=16, h=10, w=10, k=16, out_h=5, out_w=5, groups=4, in_type="FP32", weights_type="FP32", out_type="FP32"
)


def gemm(m: int = 65, **more: object) -> GemmProblem:
    """Return a small matrix product whose leading dimensions are larger than they need to be."""
    given: dict[str, object] = {"m": m, "n": 33, "k": 50, "lda": 80, "ldb": 90, "ldc": m + 5, "ldd": m + 7}
    return replace(REFERENCE, **(given | more))  # type: ignore[arg-type]


def named(*solutions: str, m: int = 64) -> GemmProblem:
    """Return a matrix product of M = ``m``, for which the fake library offers the kernels ``solutions``."""
    return gemm(m, activation="+".join(solutions))


def store_of(path: Path, problems: Sequence[Problem], run: str = "r") -> Store:
    """Return a store (Parquet folder) with a log that calls these products, the first one most often."""
    store = open_store(path, create=True)
    calls = [Call(problem=p, category="trace", count=1000 - i) for i, p in enumerate(problems)]
    record(store, calls, run=run, name="log", format="test")
    return store
