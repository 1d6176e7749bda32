"""Tests that kernels are measured under the right conditions.

Operands must not be in the cache, the host must be fast enough, and workspace and TF32 must be as in the job.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analyzers.replay.replay import traced_without_tf32
from analyzers.replay.results import Method
from analyzers.replay.trial import RaceTask, WorkerContext
from logparse.ingest import record
from logparse.libraries.kinds.backend import Conditions, HostBoundError, Place, UnsupportedError
from logparse.model import Kernel, Solution
from logparse.store import open_store
from tests.analyzers.replay.problems import SMALL_W, gemm
from tests.analyzers.replay.test_trial import COPY, PICK, ColdAfterRefresh


def context(cache_bytes: int, **method: Any) -> WorkerContext:
    backend = ColdAfterRefresh({PICK: 100.0})
    backend.cache_bytes = cache_bytes
    return WorkerContext({"x": backend}, Place(), Method(**method), lambda what: None)


@pytest.mark.parametrize("size", [16, 64, 256, 1024, 4096])
def test_copies_of_operands_exceed_the_cache(size: int) -> None:
    """To measure with a cold cache, enough copies of the operands are used to exceed the cache of 256 MB."""
    # There are at most 64 copies. If 64 copies of a small product's operands fit into the cache, the cache must be
    # cleared instead.
    problem = gemm(size, n=size, k=size, lda=size, ldb=size, ldc=size, ldd=size)
    made = context(256 << 20).conditions(problem)
    assert problem.bytes is not None
    assert made.evict or made.sets * problem.bytes > 256 << 20
    assert made.sets <= 64
    assert context(256 << 20, cache="hot").conditions(problem) == Conditions()


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def test_the_cache_is_evicted_before_every_sample(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from logparse.libraries.kinds.device.torch_device import TorchDevice
    from logparse.libraries.pytorch.replay import BACKEND

    evicted = []
    monkeypatch.setattr(TorchDevice, "evict", lambda self: evicted.append(self.cache_bytes))
    backend = BACKEND.open(Place())
    for evict in (True, False):
        runnable = backend.prepare(gemm(), backend.solutions(gemm(), 1)[0], Conditions(sets=4, evict=evict))
        evicted.clear()
        for _ in range(3):
            runnable.sample_us(4)
        assert len(evicted) == 3 * evict


def test_a_host_that_stays_too_slow_gives_no_time(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from logparse.libraries.kinds.device.torch_device import TorchDevice

    device, answers = TorchDevice("cpu"), [False, False, False]
    device.has_events = True
    monkeypatch.setattr(device, "_events_us", lambda call, first, count: (5.0, answers.pop(0)))
    with pytest.raises(HostBoundError, match="3 tries"):
        device.time_us(lambda i: None, 0, 1)
    answers += [False, True]
    assert device.time_us(lambda i: None, 0, 1) == 5.0


def test_host_time_covers_only_the_calls(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The measured host time covers only the calls, neither the timing events nor the wait for the GPU.

    Three calls take 2 ms each. Recording an event and waiting for the GPU take 20 ms each.
    """
    from logparse.libraries.kinds.device.torch_device import TorchDevice

    class Event:
        def record(self) -> None:
            time.sleep(0.02)

        synchronize = record

        def query(self) -> bool:
            return False

        def elapsed_time(self, other: Event) -> float:
            return 0.03

    device = TorchDevice("cpu")
    device.has_events = True
    monkeypatch.setattr(device, "_event", Event)
    monkeypatch.setattr(device, "_hold", lambda cycles: None)
    assert device.host_us is None
    assert device.time_us(lambda i: time.sleep(0.002), 0, 3) == pytest.approx(10)
    assert device.host_us is not None
    assert 2000 <= device.host_us < 12_000


class HostBound(ColdAfterRefresh):
    """A fake library whose kernel ``copy`` is so short that the host is too slow to measure it."""

    def prepare(self, problem: Any, solution: Solution, conditions: Conditions) -> Any:
        runnable = super().prepare(problem, solution, conditions)
        if solution == COPY:
            runnable.sample_us = _host_bound  # type: ignore[method-assign]
        return runnable


def _host_bound(count: int) -> float:
    raise HostBoundError("the host launched the kernels too slowly")


def test_a_host_bound_solution_is_marked_and_cannot_win() -> None:
    backend = HostBound({PICK: 100.0, COPY: 10.0})
    result = WorkerContext({"x": backend}, Place(), Method(), lambda what: None).run(RaceTask(problem=gemm()))
    assert result.best == PICK
    assert {row.solution.id: row.status for row in result.rows} == {"pick": "ok", "copy": "skipped"}
    assert "the host launched the kernels too slowly" in str(result.rows[1].error)


def test_a_cudnn_plan_that_needs_more_workspace_than_the_limit_is_refused() -> None:
    from logparse.libraries.cudnn.replay import Cudnn, _Graph

    class Graph:
        def build_plan_at_index(self, index: int) -> None:
            pass

        def get_workspace_size_plan_at_index(self, index: int) -> int:
            return 1 << 20

    backend: Any = object.__new__(Cudnn)
    backend._graphs = {SMALL_W.text: _Graph(Graph(), (0, 1, 2), ("x", "dy", "w"), {"eng0": 0})}
    backend._cudnn = type("Library", (), {"cudnnGraphNotSupportedError": RuntimeError})
    with pytest.raises(UnsupportedError, match="1048576 bytes of workspace, but the limit is 1000"):
        backend.prepare(SMALL_W, Solution("cudnn", "eng0"), Conditions(workspace_bytes=1000))


@pytest.mark.parametrize(("conv", "product"), [(True, False), (False, False), (True, True)])
def test_tf32_is_as_pytorch_sets_it_unless_given(torch: Any, conv: bool, product: bool) -> None:
    from logparse.libraries.kinds.device.torch_device import torch_device
    from logparse.libraries.pytorch.replay_convs import conv_ways
    from logparse.libraries.pytorch.replay_gemms import gemm_ways

    place = Place(conv_tf32=conv, tf32=product)
    device = torch_device(place.device)
    with conv_ways(device, SMALL_W, place)[0].around():
        assert torch.backends.cudnn.allow_tf32 == conv
    with gemm_ways(device, replace(gemm(), compute_type=None), place)[0].around():
        assert torch.get_float32_matmul_precision() == ("high" if product else "highest")
    if conv:
        assert torch.backends.cudnn.allow_tf32, "PyTorch's own default for convolutions"


@pytest.mark.parametrize(
    ("kernels", "without"),
    [
        ((), False),
        (("sm80_xmma_wgrad_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc",), False),
        (("implicit_convolve_sgemm<float, 1024>",), True),
        (("implicit_convolve_sgemm<float, 1024>", "cutlass_tensorop_s1688wgrad_optimized_tf32_128x64"), False),
        (("void at::native::copy",), False),
    ],
)
def test_a_trace_shows_convolutions_without_tf32(tmp_path: Path, kernels: tuple[str, ...], without: bool) -> None:
    store = open_store(tmp_path, create=True)
    rows = [
        Kernel(op="aten::conv", kernel=name, calls=1, total_us=1.0, min_us=1.0, max_us=1.0, problem=SMALL_W)
        for name in kernels
    ]
    record(store, rows or [elsewhere()], run="r", name="trace", format="test")
    assert traced_without_tf32(store, "r") == without


def elsewhere() -> Kernel:
    """Return a kernel of a trace that computes neither a matrix product nor a convolution."""
    return Kernel(op="x", kernel="sgemm", calls=1, total_us=1.0, min_us=1.0, max_us=1.0)
