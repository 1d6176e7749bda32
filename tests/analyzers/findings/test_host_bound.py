from __future__ import annotations

import pytest

from analyzers.evidence.tables import Settings, Tables
from analyzers.findings import host_bound
from analyzers.job.gpu_time import steps
from tests.analyzers.build import facts, tables


def kernel(us: float, calls: int, name: str = "relu_kernel") -> dict[str, object]:
    row = {"source_id": "trace", "run": "r", "op": "aten::relu", "problem": None, "kernel": name, "calls": calls}
    return row | {"total_us": us, "min_us": us / calls, "max_us": us / calls}


def make_trace_tables(busy_us: float, window_us: float = 1000.0, **more: str) -> Tables:
    known = facts("trace", gpu_busy_us=str(busy_us), gpu_window_us=str(window_us), **more)
    return tables(kernels=[kernel(busy_us, 50)], facts=known)


def planted() -> Tables:
    """Return a trace of two steps of 500 µs. The GPU works for 540 µs of this 1 ms."""
    return make_trace_tables(540.0, profiler_steps="2", profiler_steps_us="1000.0")


def test_a_gpu_that_waits() -> None:
    [found] = host_bound.find(planted(), Settings())
    assert found.message == (
        "the GPU runs kernels in 54.0% of the time with the profiler (270 µs of 500 µs per step) and is idle in the "
        "rest. 25 kernels per step take 10.8 µs each on average. The "
        "profiler slows the host: time a step without the profiler first (`logparse capture --trace` does this)."
    )
    assert (found.problem, found.saving_us, found.advice) == (None, None, host_bound.GRAPHS)


@pytest.mark.parametrize(("busy", "found"), [(799.0, 1), (800.0, 0), (1000.0, 0)])
def test_the_bound(busy: float, found: int) -> None:
    assert len(host_bound.find(make_trace_tables(busy), Settings())) == found


def test_nothing_is_known_without_a_window() -> None:
    assert host_bound.find(tables(kernels=[kernel(5.0, 1)]), Settings()) == []


def test_unmarked_steps_are_stated() -> None:
    [found] = host_bound.find(make_trace_tables(100.0), Settings())
    assert "The trace marks no steps, so pauses between steps count as waiting." in found.message


@pytest.mark.parametrize(("step_us", "found"), [(300.0, 0), (400.0, 1)])
def test_the_host_is_judged_without_the_profiler(step_us: float, found: int) -> None:
    """logparse judges from a step's time without the profiler if the host (CPU) is too slow for the GPU.

    The profiler slows the host.
    """
    # On an H200 a ResNet-50 step took 30 ms without the profiler and 48 ms with it. The GPU worked for 27 ms.
    timed = make_trace_tables(540.0, profiler_steps="2", profiler_steps_us="1000.0", untraced_step_us=str(step_us))
    findings = host_bound.find(timed, Settings())
    assert len(findings) == found
    assert steps(timed, Settings()) == (2.0, 2 * step_us)
    assert not any("profiler" in x.message for x in findings)


def test_graphs_are_not_advised_where_they_are_launched() -> None:
    [found] = host_bound.find(make_trace_tables(100.0, graph_launches="7"), Settings())
    assert found.advice == host_bound.BEYOND_GRAPHS
