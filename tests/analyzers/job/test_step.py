"""Tests of the simulation that predicts the time of a step if its kernels took other times.

The traces are made up, and the expected results are computed by hand.
"""

from __future__ import annotations

import io
import json
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.evidence.runs import tables_at, tables_of
from analyzers.evidence.tables import Tables
from analyzers.job.step.answer import (
    ERROR,
    STARTS,
    Factor,
    Step,
    StepAnswer,
    StepUnknown,
    _find_factor,
    answer,
    factors_of,
    fit_waits,
    host_factor_of,
    step_of,
)
from analyzers.job.step.build import build
from analyzers.job.step.graph import HOST, Graph, times
from analyzers.job.step.traces import RankTrace, read_trace, trace_of
from logparse.ingest.input_file import InputFile
from logparse.libraries.kinds.format import Line, Source
from logparse.libraries.torch_profiler.events import read_events
from logparse.store import Store
from logparse.store.compaction import compact
from tests.analyzers.build import tables
from tests.analyzers.ingested import read
from tests.analyzers.job.machine import program, run
from tests.conftest import CORPUS, SAMPLES, needs_corpus, sized

Event = dict[str, Any]
UNCHANGED = attrgetter("us")
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


@dataclass
class Text:
    """A trace file whose content is in memory."""

    data: bytes
    name: str = "trace.json"

    def open(self) -> BinaryIO:
        return io.BytesIO(self.data)

    def lines(self) -> Iterator[Line]:
        raise NotImplementedError

    def local_path(self) -> str:
        raise NotImplementedError

    def beside(self) -> Iterator[Source]:
        return iter(())


def call(name: str, start: float, end: float, correlation: int = 0, tid: int = 1) -> Event:
    args = {"correlation": correlation} if correlation else {}
    place = {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": tid}
    return place | {"ts": start, "dur": end - start, "args": args}


def launch(start: float, correlation: int, tid: int = 1) -> Event:
    return call("cudaLaunchKernel", start, start + 2, correlation, tid)


def kernel(name: str, start: float, end: float, correlation: int, stream: int = 7, **args: object) -> Event:
    category = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
    place = {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": stream, "ts": start, "dur": end - start}
    return place | {"args": {"device": 0, "stream": stream, "correlation": correlation, **args}}


def mark(number: int, start: float, end: float, tid: int = 1) -> Event:
    name = f"ProfilerStep#{number}"
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": tid, "ts": start, "dur": end - start}


def op(name: str, start: float, end: float, tid: int = 1) -> Event:
    place = {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": tid}
    return place | {"ts": start, "dur": end - start, "args": {}}


def text(*events: Event, rank: int = 0, clock: float = 0.0, **header: object) -> bytes:
    moved = [event | {"ts": event["ts"] + clock} for event in events]
    top = {"schemaVersion": 1, "deviceProperties": [], "distributedInfo": {"rank": rank}, **header}
    return json.dumps(top | {"traceEvents": moved}).encode()


def trace(*events: Event, rank: int = 0, clock: float = 0.0) -> RankTrace:
    return read_trace(Text(text(*events, rank=rank, clock=clock)))


def graph(*events: Event) -> Graph:
    return build([trace(*events)])


def simulate(found: Graph, scale: Mapping[str, float] | None = None, host_factor: float = 1.0) -> float:
    """Simulate a step with other times of kernels and host. Returns the mean time of all traced steps in µs.

    ``scale`` multiplies the times of kernels, and ``host_factor`` the times of the host's work.
    """
    # The keys of scale are matrix products, operators or names of kernels.
    changed = {name: Factor(x, x, x) for name, x in (scale or {}).items()}
    return Step([found], {}).us(lambda x: x.scaled(factors_of(x, changed)[0]), host_factor)


def error(found: StepAnswer) -> float:
    """Return by which fraction the time of a real step may differ from the simulated one."""
    # The host's speed differs between two starts of a job. So the fraction is larger if more of the step waits for the
    # host or for data.
    host = found.shares["host"] + found.shares["data loading"]
    return math.hypot(ERROR, 1.96 * math.sqrt(2) * STARTS * host)


TWO_STREAMS = (
    mark(1, 0, 165),
    launch(1, 11),
    kernel("first", 5, 105, 11),
    call("cudaEventRecord", 10, 11, 12),
    call("cudaStreamWaitEvent", 12, 13, 13),
    launch(20, 14),
    kernel("second", 106, 156, 14, stream=20),
    call("cudaDeviceSynchronize", 30, 160, 15),
)
STATED = {
    "ph": "X",
    "cat": "cuda_sync",
    "name": "Stream Wait Event",
    "pid": 0,
    "tid": 20,
    "ts": 12,
    "dur": 0,
    "args": {
        "cuda_sync_kind": "Stream Wait Event",
        "stream": 20,
        "correlation": 13,
        "device": 0,
        "wait_on_stream": 7,
        "wait_on_cuda_event_record_corr_id": 12,
    },
}


@pytest.mark.parametrize("stated", [True, False])
def test_two_streams_with_an_event(stated: bool) -> None:
    """In the simulation, a stream that waits for an event of another stream still waits if kernels get faster."""
    # If the kernel "first" takes half the time, it ends at 55 µs. The kernel "second" starts 1 µs later, at 56 µs, and
    # ends at 56 + 50 = 106 µs. The host's synchronisation returns 4 µs later, and the host works for 5 µs more.
    found = graph(*TWO_STREAMS, *[STATED] * stated)
    assert simulate(found) == pytest.approx(165)
    assert simulate(found, {"first": 0.5}) == pytest.approx(115)
    assert bool(found.notes) is not stated, "waits by observed order are reported"


def test_streams_without_an_event_run_side_by_side() -> None:
    """In the simulation, a stream does not wait for another stream unless an event makes it wait."""
    # The kernel "second" runs from 26 to 76 µs, no matter when "first" ends. The host's synchronisation returns 5 µs
    # after both kernels have ended.
    events = [x for x in TWO_STREAMS if "Event" not in x["name"] and x["name"] not in ("second", "ProfilerStep#1")]
    found = graph(
        *[x for x in events if "Sync" not in x["name"]],
        mark(1, 0, 115),
        kernel("second", 26, 76, 14, stream=20),
        call("cudaDeviceSynchronize", 30, 110, 15),
    )
    assert simulate(found) == pytest.approx(115)
    assert simulate(found, {"first": 0.5}) == pytest.approx(76 + 5 + 5)
    assert simulate(found, {"second": 2.0}) == pytest.approx(126 + 5 + 5)


@pytest.mark.parametrize("vendor", ["cuda", "hip"])
def test_an_event_does_not_wait_for_later_work(vendor: str) -> None:
    """A kernel that waits for an event does not wait for work that was launched after the event was recorded."""
    # Here "late" is launched after the event, so "second" does not wait for it. Some traces do not state the ids of
    # events. Then the simulation assumes that "second" waits for the kernel that ended last before it began.
    events = [
        mark(1, 0, 100),
        launch(1, 11),
        kernel("first", 5, 15, 11),
        call("EventRecord", 10, 11, 12),
        launch(12, 16),
        kernel("late", 16, 50, 16),
        call("StreamWaitEvent", 14, 15, 13),
        launch(60, 14),
        kernel("second", 66, 96, 14, stream=20),
        call("DeviceSynchronize", 70, 98, 15),
    ]
    names = ("EventRecord", "StreamWaitEvent", "DeviceSynchronize")
    named = [x | {"name": vendor + x["name"]} if x["name"] in names else x for x in events]
    assert simulate(graph(*named, STATED), {"late": 3.0}) == pytest.approx(16 + 102 + 2 + 2), "the device is awaited"
    assert simulate(graph(*named), {"late": 3.0}) == pytest.approx(118 + 1 + 30 + 2 + 2), "one gap later"


def ranks(clock: float = 0.0) -> Graph:
    """Return a simulated step of two ranks that meet in a collective.

    ``clock`` is added to the times of rank 1, as if its clock were wrong.
    """
    # Rank 0 computes for 20 µs, rank 1 for 80 µs, and the transfer takes 30 µs.

    def of(rank: int, compute: float) -> RankTrace:
        meets = 5 + compute + 1
        return trace(
            mark(1, 0, 125),
            launch(1, 11),
            kernel("gemm" if rank else "other", 5, 5 + compute, 11),
            launch(4, 12),
            kernel(NCCL, meets, 116, 12, **{"Process Group Ranks": "[0, 1]"}),
            call("cudaDeviceSynchronize", 8, 120, 13),
            rank=rank,
            clock=clock * rank,
        )

    return build([of(0, 20), of(1, 80)])


@pytest.mark.parametrize("clock", [0.0, 1e6])
def test_a_rendezvous_with_a_late_rank(clock: float) -> None:
    """A collective starts when the last rank enters it. With a change, this may be another rank than in the trace.

    ``gemm`` is a kernel of rank 1, which enters last in the trace.

    * If ``gemm`` takes half the time, rank 1 still enters last, at 46 µs. The transfer of 30 µs ends at 76 µs, and the
      step 9 µs later, at 85 µs.
    * If ``gemm`` takes no time, rank 0 enters last, at 26 µs. So the step takes 26 + 30 + 9 = 65 µs.
    """
    found = ranks(clock)
    assert simulate(found) == pytest.approx(125)
    assert simulate(found, {"gemm": 0.5}) == pytest.approx(85)
    assert simulate(found, {"gemm": 0.0}) == pytest.approx(26 + 30 + 9)
    assert simulate(found, {"other": 0.0}) == pytest.approx(125), "it waits for rank 1"
    step = answer(Step([found], {}), {})
    assert step.ceilings.free_communication_us == pytest.approx(86 + 9)
    assert step.ceilings.free_kernels_us == pytest.approx(8 + 30 + 9), "both come 4 after their launch"
    assert not found.outside


def test_a_collective_with_untraced_ranks_is_shortened() -> None:
    """If other ranks have no trace, the simulation shortens the collective's time to fit the step without the profiler.

    In the trace, the step took 60 µs, and the collective 50 µs of it, because it waited until another rank had started
    its profiler. Without the profiler the step takes 30 µs, which is 60 − 30 = 30 µs less. So the collective must take
    50 − 30 = 20 µs.
    """
    found = build([trace(mark(1, 0, 60), launch(1, 11), kernel(NCCL, 5, 55, 11), call("cudaDeviceSynchronize", 4, 57))])
    assert any("traces of some ranks are" in note for note in found.notes)
    assert simulate(found) == pytest.approx(60)
    step = fit_waits(Step([found], {}, 30.0))
    assert step.us(UNCHANGED, host_factor_of(step)) == pytest.approx(30, rel=1e-3)
    assert step.graphs[0].us.max() == pytest.approx(20, rel=1e-2)
    begun = build([trace(mark(1, 0, 60), kernel(NCCL, 1, 5, 9), launch(1, 11), kernel("k", 6, 55, 11))])
    assert not begun.notes, "launched before the trace: of a step that it does not hold"


@pytest.mark.parametrize(("factor", "us", "limit"), [(0.5, 100, "host"), (1.0, 100, "host"), (2.0, 181, "kernels")])
def test_the_host_can_limit_a_busy_gpu(factor: float, us: float, limit: str) -> None:
    """The host can limit a step even if the GPU is never idle in the trace."""
    # The GPU first has 1,000 µs of earlier work. Then kernels of 90 µs follow without gaps. But the host launches only
    # one kernel per 100 µs, so in the long run a step takes 100 µs.
    events = [kernel("before", 1, 1001, 5)]
    for i in range(3):
        at = 1002.0 + 91 * i
        events += [mark(1 + i, 100 * i, 100 * i + 100), launch(100 * i + 10, 11 + i), kernel("k", at, at + 90, 11 + i)]
    slower = {"k": Factor(factor, factor, factor)}
    step = Step([graph(*events)], {})
    assert step.us(lambda x: x.scaled(factors_of(x, slower)[0]), 1.0) == pytest.approx(us)
    assert answer(step, slower).limit == limit


def host_bound(steps: int = 2, untraced: float | None = None) -> Step:
    """Make steps of 500 µs that wait for the host, which launches a kernel of 10 µs every 50 µs.

    ``untraced`` is the time of a step without the profiler, in µs.
    """
    events = [mark(1 + s, 500 * s, 500 * s + 500) for s in range(steps)]
    for i in range(10 * steps):
        events += [launch(50 * i + 1, 100 + i), kernel("k", 50 * i + 7, 50 * i + 17, 100 + i)]
    return Step([graph(*events)], {}, untraced)


def test_a_host_bound_loop() -> None:
    """If the host limits a step, only a faster host makes it shorter. Faster kernels do not."""
    # The host needs 500 µs for a step of ten kernels. If each kernel takes 100 µs instead of 10 µs, the kernels become
    # the limit. With a gap of 1 µs after each kernel, the step then takes 10 · (100 + 1) = 1,010 µs.
    step = host_bound()
    (found,) = step.graphs
    assert simulate(found) == pytest.approx(500)
    assert simulate(found, {"k": 0.1}) == pytest.approx(500)
    assert simulate(found, host_factor=0.5) == pytest.approx(250)
    assert simulate(found, {"k": 10.0}) == pytest.approx(1010)
    assert answer(step, {}).limit == "host"
    assert answer(step, {"k": Factor(10, 10, 10)}).limit == "kernels"
    assert answer(step, {}).ceilings.fast_host_us == pytest.approx(110)
    assert step.us(lambda x: np.zeros_like(x.us), 1.0) == pytest.approx(500)


@pytest.mark.parametrize(
    ("us", "factor"),
    [
        (lambda x: 50 + 25 * x, 2.0),
        (lambda x: max(99.0, 10 * x, 1000 * (x - 3)), 3.1),
        (lambda x: max(60.0, min(100.0, 50 * x), 50 * x - 50), 2.0),
        (lambda x: 101 + x, 0.1),
        (lambda x: 90 + x, 4.0),
    ],
    ids=["line", "flat, then steep", "equal over a range", "always more", "always less"],
)
def test_the_factor_that_reaches_100_us(us: Callable[[float], float], factor: float) -> None:
    asked = set()

    def simulated(x: float) -> float:
        asked.add(x)
        return us(x)

    assert _find_factor(100.0, simulated, 0.1, 4.0) == pytest.approx(factor, abs=1e-4)
    assert len(asked) <= 32, "twice as many as bisection takes"


def test_the_host_is_scaled_to_the_untraced_step() -> None:
    """The simulation uses the host's speed without the profiler, because the profiler slows the host.

    A step takes 500 µs in the trace and 300 µs without the profiler, so the times of the host are multiplied by 300 /
    500 = 0.6. If kernels take 5 times as long, they limit the step: ten kernels of 50 µs with gaps of 1 µs take 10 ·
    (50 + 1) = 510 µs. With the host's traced times, the change from 500 to 510 µs would seem small.
    """
    step = host_bound(untraced=300.0)
    assert host_factor_of(step) == pytest.approx(0.6, rel=1e-3)
    found = answer(step, {"k": Factor(5.0, 2.0, 6.0)})
    assert found.now_us == 300
    assert found.then_us == pytest.approx(510, rel=2e-3)
    ends = (300 * (1 - ERROR), 610 * (1 + ERROR))
    assert (found.low_us, found.high_us) == tuple(pytest.approx(x, rel=2e-3) for x in ends)
    assert found.rough, "the profiler made the host 1.67 times as slow"
    assert not answer(host_bound(untraced=400.0), {}).rough


@pytest.mark.parametrize("slowed", [1.2, 1.8, 2.5])
def test_the_slowdown_by_the_profiler_is_found(slowed: float) -> None:
    """The simulation finds out by which factor the profiler slowed the host."""
    # Random programs run on a simulated machine, once without the profiler and once with a host that is slowed by a
    # known factor. This factor must be found if the host limits the program.
    found = 0
    for seed in range(20):
        steps = program(seed)
        untraced, _ = run(steps, {}, 1.0)
        traced, events = run(steps, {}, slowed)
        step = Step([graph(*events)], {}, untraced)
        factor = host_factor_of(step)
        assert step.us(UNCHANGED, factor) == pytest.approx(untraced, rel=2e-3)
        if abs(traced / untraced - slowed) < 0.02:
            found += 1
            assert factor == pytest.approx(1 / slowed, rel=0.02)
    assert found >= 5


def test_a_gpu_bound_step_keeps_the_traced_host_times() -> None:
    """If the GPU limits a step, the step's time without the profiler does not show how fast the host is."""
    # The step has a kernel of 400 µs and 100 µs of host work. Without the profiler the step takes 5 % longer. The host
    # cannot be the reason, so the simulation keeps the host's times of the trace.
    events = [mark(1 + s, 100 * s, 100 * s + 100) for s in range(3)]
    for i in range(3):
        events += [launch(100 * i + 1, 10 + i), kernel("k", 7 + 401 * i, 407 + 401 * i, 10 + i)]
    step = Step([graph(*events)], {}, 421.05)
    assert step.us(UNCHANGED, 1.0) == pytest.approx(401)
    assert host_factor_of(step) == 1.0
    found = answer(step, {"k": Factor(0.5, 0.5, 0.5)})
    assert found.then_us == pytest.approx(201 * 421.05 / 401)
    assert found.limit == "kernels"
    tenth = answer(step, {"k": Factor(0.1, 0.1, 0.1)})
    assert tenth.then_us == pytest.approx(100 * 421.05 / 401), "the host, as traced"
    whole = 421.05 / 401
    assert tenth.low_us == pytest.approx(100 / 1.5 * whole * (1 - error(tenth))), (
        "the host may be faster without the profiler"
    )
    known = answer(replace(step, host_us={"": 30.0}, host_range=(0.9, 1.1)), {"k": Factor(0.1, 0.1, 0.1)})
    assert known.host_factor == pytest.approx(0.3, rel=1e-3), "what the host took by itself tells"
    assert known.then_us == pytest.approx(41 * 421.05 / 401, rel=1e-3), "so the kernels of 40 µs are the limit"
    assert known.low_us == pytest.approx(41 * whole * (1 - error(known)), rel=1e-3)
    slower = answer(replace(step, host_us={"": 90.0}, host_range=(0.9, 1.1)), {"k": Factor(0.1, 0.1, 0.1)})
    assert (slower.limit, slower.host_factor) == ("host", pytest.approx(0.9, rel=1e-3))
    assert slower.low_us == pytest.approx(81 * whole * (1 - error(slower)), rel=1e-3), (
        "with the spread of the host's own times"
    )


@pytest.mark.parametrize(("most", "factor"), [(1.2, 0.58), (1.1, 0.5)])
def test_slow_steps_show_a_slower_host(most: float, factor: float) -> None:
    """If steps take longer than the host's measured time, the host is taken to be slower, as far as its spread allows.

    In the trace the host takes 100 µs for a step. Measured alone, without the profiler, it took 50 µs. But steps took
    58 µs. If the host's times spread so widely that 58 µs is possible, its traced times are multiplied by 58 / 100 =
    0.58. Otherwise they are multiplied by 50 / 100 = 0.5.
    """
    events = [mark(1 + s, 100 * s, 100 * s + 100) for s in range(3)]
    for i in range(3):
        events += [launch(100 * i + 1, 10 + i), kernel("k", 7 + 100 * i, 17 + 100 * i, 10 + i)]
    step = Step([graph(*events)], {}, 58.0, host_us={"": 50.0}, host_range=(1.0, most))
    assert host_factor_of(step) == pytest.approx(factor, rel=1e-2)


def test_unknown_host_speed_affects_both_times_alike() -> None:
    """If the speed of the host (CPU) is uncertain, the predicted gain of faster kernels is not less certain."""
    # Only the host's speed under the profiler is known. Here the host needs 100 µs for a step and the GPU only 10 µs,
    # so the host decides both the step's time before and the time after the change. Its unknown speed cancels out.
    events = [mark(1 + s, 100 * s, 100 * s + 100) for s in range(3)]
    for i in range(3):
        events += [launch(100 * i + 1, 10 + i), kernel("k", 7 + 100 * i, 17 + 100 * i, 10 + i)]
    step = Step([graph(*events)], {}, 100.0, host_us={"": 100.0}, host_range=(0.5, 1.5))
    found = answer(step, {"k": Factor(0.5, 0.5, 0.5)})
    assert (found.then_us, found.limit) == (pytest.approx(100, rel=1e-3), "host")
    assert error(found) == pytest.approx(math.hypot(ERROR, 1.96 * 2**0.5 * STARTS), rel=1e-3), "but two starts differ"
    assert found.low_us == pytest.approx(100 * (1 - error(found)), rel=1e-3)
    assert found.high_us == pytest.approx(100 * (1 + error(found)), rel=1e-3)


def test_a_removed_kernel_saves_its_launch_too() -> None:
    """A change of the model that removes a kernel also saves the host time of launching it."""
    # A step has 50 µs of host work. It includes two launches of 2 µs each: one of a convolution, and one of a kernel
    # that transposes the convolution's input. A change of the layout removes the transpose.
    events = [mark(1 + s, 50 * s, 50 * s + 50) for s in range(3)]
    for i in range(3):
        events += [launch(50 * i + 1, 10 + i), kernel("conv", 50 * i + 7, 50 * i + 9, 10 + i)]
        events += [launch(50 * i + 5, 20 + i), kernel("nchwToNhwc", 50 * i + 10, 50 * i + 12, 20 + i)]
    step = Step([graph(*events)], {}, 50.0)
    whole = float(step.graphs[0].host.sum())
    for factors, spared in (
        ({"conv": Factor(0.5, 0.5, 0.5)}, 0),
        ({"nchwToNhwc": Factor(0.0, 0.0, 0.0)}, 6),
        ({"conv": Factor(0.0, 0.0, 0.0), "nchwToNhwc": Factor(0.0, 0.0, 0.0)}, 12),
        ({"conv": Factor(0.5, 0.5, 0.5, host_us=-5.0)}, 3 * 5),
        ({"conv": Factor(0.5, 0.5, 0.5, -5.0), "another": Factor(1.0, 1.0, 1.0, 2.0)}, 3 * 3),
    ):
        found = answer(step, factors)
        assert found.then_us == pytest.approx(50 * (1 - spared / whole), rel=1e-3)
        assert found.limit == "host"
    fast = answer(replace(step, untraced_us=25.0), {"conv": Factor(0.5, 0.5, 0.5, -5.0)})
    assert (fast.host_factor, fast.then_us) == pytest.approx((0.5, 25 * (1 - 3 * 5 / (0.5 * whole))), rel=1e-3)


def test_a_kernel_with_a_wrong_correlation_id_has_no_launch() -> None:
    """If a kernel in a trace has a damaged correlation id, it is linked to no launch.

    A correlation id is the number that a kernel and its launch have in common.
    """
    # An id that is not a whole number is damaged. In particular, such a kernel must not get the id of the kernel before
    # it.
    odd = [kernel("k", 10, 20, 1) | {"args": {"device": 0, "stream": 7, "correlation": x}} for x in ([1], 1.0, True)]
    found = trace(mark(1, 0, 50), launch(1, 1), kernel("k", 5, 8, 1), *odd)
    assert sorted(x.correlation for x in found.works) == [-1, -1, -1, 1]


def test_what_the_host_spent_on_launches() -> None:
    """The host time of a launch begins where the operator's previous launch ended, or else at the launch itself.

    A convolution transposes its images before and after its kernel:

    * A fill and the first transpose take 3 µs, from the beginning of the fill to the end of the transpose's launch.
    * The launch of the convolution's kernel follows and takes 4 µs.
    * The transpose back takes 5 µs.

    The next operator launches two kernels. The second launch waits in the call until the GPU's queue has room. This
    wait is no work of the host, so only the 4 µs before the call are its host time.
    """
    first, second = {"External id": 5}, {"External id": 6}
    turned, back = "nchwToNhwcKernel", "nhwcToNchwKernel"
    found = graph(
        mark(1, 0, 200),
        op("aten::cudnn_convolution", 1, 40) | {"args": first},
        launch(10, 11) | {"name": "cudaMemsetAsync", "dur": 1},
        launch(11.5, 12) | {"dur": 1.5},
        launch(15, 13),
        launch(20, 14),
        op("aten::relu", 41, 199) | {"args": second},
        launch(44, 15),
        launch(50, 16) | {"dur": 140},
        kernel("Memset", 30, 31, 11) | {"cat": "gpu_memset"},
        *(kernel(x, 40 + i, 41 + i, 12 + i, **first) for i, x in enumerate((turned, "fprop", back))),
        *(kernel(x, 50 + i, 51 + i, 15 + i, **second) for i, x in enumerate(("relu", "relu_again"))),
    )
    of = {x.kernel: found.launches_us([y == x for y in found.identities]) for x in found.identities}
    assert of == {turned: 3, "fprop": 4, back: 5, "relu": 2, "relu_again": 4}


def test_the_limit_is_the_one_that_takes_most_of_all_steps() -> None:
    """If a job has several kinds of steps, the stated limit is the one that takes most of the time of all steps.

    One kind of step waits for its host. The other kind waits for kernels that take ten times the host's time. If 95 of
    100 steps are of the first kind, the host is the limit. If 50 are of the first kind, the kernels are the limit.
    """
    graphs = []
    for kind, us in (("host", 1.0), ("kernels", 1000.0)):
        events = [mark(1 + s, 100 * s, 100 * s + 100) for s in range(2)]
        for i in range(2):
            start = max(100 * i + 7, i * us + 8)
            events += [launch(100 * i + 1, 10 + i), kernel("k", start, start + us, 10 + i)]
        held = trace(*events)
        graphs.append(build([replace(held, units=[x._replace(kind=kind) for x in held.units])]))
    weighed = {x: answer(Step(graphs, {"host": x, "kernels": 100 - x}), {}).limit for x in (95, 50)}
    assert weighed == {95: "host", 50: "kernels"}


def test_a_graph_launch() -> None:
    """In the simulation, a kernel after a CUDA graph with two branches starts 1 µs after the later branch has ended."""
    # In the trace the branch "long" ends last. If it takes a tenth of the time, the other branch ends last, at 51 µs.
    # The next kernel then starts at 51 + 1 = 52 µs.
    found = graph(
        mark(1, 0, 80),
        call("cudaGraphLaunch", 10, 18, 11),
        kernel("root", 20, 30, 11),
        kernel("long", 31, 61, 11),
        kernel("branch", 31, 51, 11, stream=8),
        launch(25, 12),
        kernel("after", 62, 72, 12),
        call("cudaDeviceSynchronize", 30, 75, 13),
    )
    assert simulate(found) == pytest.approx(80)
    assert simulate(found, {"long": 0.1}) == pytest.approx(51 + 1 + 10 + 3 + 5)
    assert simulate(found, {"root": 0.5, "long": 0.0}) == pytest.approx(25 + 1 + 20 + 1 + 10 + 8)


def test_a_loader_wait() -> None:
    """If the data loader limits a step, neither faster kernels nor a faster host make it shorter.

    A batch of data comes every 1,000 µs. So a step takes 1,000 µs, unless its kernels or its host take longer.
    """
    events = []
    for i in range(4):
        at = 1000.0 * i
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        events += [
            mark(1 + i, at, at + 1000),
            op(name, at + 300, at + 900) | {"cat": "user_annotation"},
            launch(at + 910, 10 + i),
            kernel("k", at + 916, at + 1016, 10 + i),
        ]
    step = Step([graph(*events)], {})
    for factor in (0.0, 1.0, 3.0):
        assert simulate(step.graphs[0], {"k": factor}) == pytest.approx(1000)
    assert simulate(step.graphs[0], host_factor=0.5) == pytest.approx(1000)
    assert simulate(step.graphs[0], {"k": 15.0}) == pytest.approx(1500, rel=0.01)
    assert answer(step, {}).limit == "data loading"


def test_waits_for_data_are_shortened_alone() -> None:
    """If traced steps wait longer for data than the average step, the simulation shortens only the waits for data.

    * A traced step takes 1,000 µs, of which it waits for data for 700 µs. So the host's own work takes 1,000 − 700 =
      300 µs.
    * An average step takes 700 µs. The host's own work is the same, so the wait must be 700 − 300 = 400 µs.
    """
    events = []
    for i in range(2):
        at = 1000.0 * i
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        events += [mark(1 + i, at, at + 1000), op(name, at + 200, at + 900) | {"cat": "user_annotation"}]
        events += [launch(at + 910, 10 + i), kernel("k", at + 916, at + 990, 10 + i)]
    step = fit_waits(Step([graph(*events)], {"": 2.0}, 700.0, host_us={"": 300.0}))
    assert step.us(UNCHANGED, host_factor_of(step)) == pytest.approx(700, rel=1e-3)
    assert host_factor_of(step) == pytest.approx(1.0, rel=0.05), "its own work, without the waits"
    assert answer(step, {}).limit == "data loading"
    assert any(
        re.fullmatch(r"waits for data-loader workers.* are taken as 0\.\d\d of.*", x) for x in answer(step, {}).notes
    )


def test_no_predicted_limit_is_longer_than_the_step() -> None:
    """The predicted time of a step with an infinitely fast host is never longer than its present time."""
    # In this trace the simulation gives a longer time, so the present time is stated instead. With a fast host, the
    # first of two steps ends 890 µs earlier. But the data for the second step arrive as late as before, so the second
    # step gets longer.
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    waits = [op(name, start, end) | {"cat": "user_annotation"} for start, end in ((5, 10), (910, 1500))]
    launched = [launch(880, 10), kernel("k", 885, 890, 10), launch(1510, 11), kernel("k", 1515, 1595, 11)]
    step = Step([graph(mark(1, 0, 900), mark(2, 900, 1600), *waits, *launched)], {})
    now = step.us(UNCHANGED, 1.0)
    assert step.us(UNCHANGED, 0.0) > 1.5 * now
    assert answer(step, {}).ceilings.fast_host_us == now


def test_a_loader_without_workers_is_host_work() -> None:
    """A data loader without worker processes is work of the host, so a faster host makes the step shorter.

    The loader takes 800 of the step's 1,000 µs, in the host process.
    """
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    events = [mark(1, 0, 1000), op(name, 100, 900), launch(910, 11), kernel("k", 916, 926, 11)]
    step = Step([graph(*events)], {})
    found = answer(step, {})
    assert found.limit == "data loading"
    assert found.shares["data loading"] == pytest.approx(0.8)
    assert step.us(UNCHANGED, 0.5) == pytest.approx(500)


def test_a_copy_to_the_host_waits() -> None:
    """The host waits for a copy to pageable memory, so it continues earlier if the kernel before the copy is faster.

    If ``k`` takes half the time, it ends at 55 µs, the copy ends at 58 µs, and the host's call returns at 62 µs. From
    there the step takes:

    * 20 µs until the host launches ``k`` again,
    * 6 µs until ``k`` starts,
    * 25 µs for ``k``,
    * 2 + 10 µs until the host notices and the step ends.

    So the step takes 62 + 20 + 6 + 25 + 2 + 10 = 125 µs.
    """
    found = graph(
        mark(1, 0, 200),
        launch(1, 11),
        kernel("k", 5, 105, 11),
        call("cudaMemcpyAsync", 10, 112, 12),
        kernel("Memcpy DtoH (Device -> Pageable)", 106, 108, 12),
        launch(132, 13),
        kernel("k", 138, 188, 13),
        call("cudaDeviceSynchronize", 140, 190, 14),
    )
    assert simulate(found) == pytest.approx(200)
    assert simulate(found, {"k": 0.5}) == pytest.approx(62 + 20 + 6 + 25 + 2 + 10)
    assert simulate(found, {"k": 0.5}, host_factor=0.0) == pytest.approx(4 + 50 + 1 + 2 + 4 + 6 + 25 + 2)


def test_a_copy_on_an_idle_stream_starts_at_once() -> None:
    """If the GPU's stream is idle, a copy to the host starts as soon as the host asks for it.

    A host of half the speed asks later, so the copy starts later, too.
    """
    found = graph(
        mark(1, 0, 200),
        launch(1, 11),
        kernel("k", 5, 15, 11),
        call("cudaMemcpyAsync", 100, 112, 12),
        kernel("Memcpy DtoH (Device -> Pageable)", 106, 108, 12),
    )
    assert simulate(found) == pytest.approx(200)
    assert simulate(found, host_factor=2.0) == pytest.approx(2 * 100 + 12 + 2 * 88)


def test_a_stream_synchronisation_waits_for_the_stream_of_the_last_launch() -> None:
    found = graph(
        mark(1, 0, 220),
        launch(1, 11),
        kernel("other", 5, 205, 11),
        launch(10, 12),
        kernel("k", 16, 116, 12, stream=8),
        call("cudaStreamSynchronize", 20, 120, 13),
        launch(130, 14),
        kernel("k", 136, 186, 14, stream=8),
    )
    assert simulate(found) == pytest.approx(220)
    factors = {"k": 0.5, "other": 0.0}
    assert simulate(found, factors) == pytest.approx(66 + 4 + 100), "k 66, call 70, mark 100 after the call"


def test_the_caller_waits_for_the_autograd_thread() -> None:
    """The simulation knows that the main thread waits for the backward pass, which runs in another thread."""
    # So the backward pass comes between the forward pass and the optimizer. If the host takes half the time, the step
    # takes half the time.
    found = graph(
        mark(1, 0, 400),
        op("aten::loss", 10, 90),
        launch(50, 11),
        kernel("k", 56, 66, 11),
        op("autograd::engine::evaluate_function: A", 100, 180, tid=2),
        launch(120, 12, tid=2),
        op("autograd::engine::evaluate_function: B", 190, 290, tid=2),
        launch(200, 13, tid=2),
        kernel("k", 126, 136, 12),
        kernel("k", 206, 216, 13),
        op("aten::step", 300, 390),
        launch(310, 14),
        kernel("k", 316, 326, 14),
    )
    assert simulate(found) == pytest.approx(400)
    assert simulate(found, host_factor=0.5) == pytest.approx(200)
    assert simulate(found, {"k": 20.0}) == pytest.approx(56 + 4 * 200 + 3)


def test_a_full_queue_holds_the_host() -> None:
    """If the GPU's queue is full, the host waits in the launch of a kernel."""
    # The host launches 1,030 kernels of 1 ms, one per µs, but the queue has room for only 1,024. So the last launch
    # waits until 1,030 − 1,024 = 6 kernels have ended. The first kernel starts at 6 µs, so this is at 6 + 6 · 1,000 =
    # 6,006 µs.
    events, at = [], 0.0
    for i in range(1030):
        end = max(at + 1, 6 + 1000 * (i - 1023)) if i >= 1024 else at + 1
        events.append(call("cudaLaunchKernel", at, end, 10 + i))
        events.append(kernel("k", 6 + 1000 * i, 1006 + 1000 * i, 10 + i))
        at = end
    assert at == 6006
    found = graph(mark(1, 0, at), *events)
    launches = found.kind == HOST
    launches[found.bounds[0].last] = False  # without the end of the device's work
    for factor, end in ((1.0, 6006), (0.5, 3006), (2.0, 12006)):
        done = np.array(times(found, found.scaled(np.full(1030, factor))))
        assert done[launches].max() == pytest.approx(end)


def test_the_depth_of_the_queue_comes_from_the_trace() -> None:
    """The simulation finds out from the trace how many launched kernels the GPU's queue has room for.

    If the queue is full, the host waits in the launch.
    """
    # In an FP8 job on an H200 the queue had room for 1,022 kernels. If 1,024 were assumed, a simulated launch would
    # return too early, and the rest of the real wait would be mistaken for work of the host.
    events, at, depth = [], 0.0, 1022
    for i in range(1100):
        end = max(at + 1, 6 + 1000 * (i - depth + 1)) if i >= depth else at + 1
        events += [call("cudaLaunchKernel", at, end, 10 + i), kernel("k", 6 + 1000 * i, 1006 + 1000 * i, 10 + i)]
        at = end
    found = graph(mark(1, 0, at), *events)
    assert times(found, found.scaled(np.full(1100, 0.01)))[found.bounds[0].issued] == pytest.approx(1100, rel=0.1)


def test_kernels_of_an_operator_are_known_by_their_problem() -> None:
    inputs = {"Input Dims": [[64, 32], [32, 16]], "Input type": ["float", "float"], "Input Strides": [[32, 1], [16, 1]]}
    events = [
        mark(1, 0, 120),
        op("aten::mm", 1, 9) | {"args": {"External id": 5, **inputs}},
        launch(2, 11),
        kernel("sgemm", 8, 108, 11, **{"External id": 5}),
        call("cudaDeviceSynchronize", 10, 110, 12),
    ]
    found = read_trace(Text(text(*events, cuda_runtime_version=12040)))
    (identity,) = found.identities
    assert (identity.op, identity.kernel) == ("aten::mm", "sgemm")
    assert identity.problem
    assert simulate(build([found]), {identity.problem: 0.5, "aten::mm": 9.0}) == pytest.approx(70)
    assert simulate(build([found]), {"aten::mm": 0.5}) == pytest.approx(70)


def test_changes_of_other_operators_are_simulated() -> None:
    """The simulation also predicts changes of operators that are neither matrix products nor convolutions.

    Here attention takes 100 µs, or half of it with cuDNN's kernel. An earlier version ignored such a change.
    """
    name, sizes, strides = "aten::_scaled_dot_product_flash_attention", [8, 16, 64, 64], [65536, 4096, 64, 1]
    inputs = {"Input Dims": [sizes] * 3, "Input type": ["c10::BFloat16"] * 3, "Input Strides": [strides] * 3}
    found = read_trace(
        Text(
            text(
                mark(1, 0, 120),
                op(name, 1, 9) | {"args": {"External id": 5, **inputs}},
                launch(2, 11),
                kernel("flash_fwd_kernel", 8, 108, 11, **{"External id": 5}),
                call("cudaDeviceSynchronize", 10, 110, 12),
                cuda_runtime_version=12040,
            )
        )
    )
    (identity,) = found.identities
    assert identity.problem is not None
    assert identity.problem.startswith(f"operator {name} bfloat16(8,16,64,64")
    assert simulate(build([found]), {identity.problem: 0.5}) == pytest.approx(70)


def test_a_damaged_event_costs_only_this_event() -> None:
    """A trace is read correctly however its JSON is laid out. If an event in it is damaged, only this event is lost."""
    # For speed, the reader parses a whole block of events at once. Only if that fails, it parses the block event by
    # event.
    kineto = (SAMPLES / "traces" / "job.trace.json").read_bytes()
    held = read_trace(Text(kineto))
    assert read_trace(Text(json.dumps(json.loads(kineto)).encode())) == held
    name = held.identities[-1].kernel
    damaged = read_trace(Text(kineto.replace(f'"name": "{name}"'.encode(), f'"name": {name}"'.encode(), 1)))
    assert (damaged.units, damaged.handoffs) == (held.units, held.handoffs)
    assert len(damaged.works) == len(held.works) - 1 > 0


def test_an_empty_trace_has_no_units() -> None:
    assert build([trace()]).bounds == []
    (copied,) = trace(kernel("Memcpy HtoD (Pageable -> Device)", 5, 9, 11)).works
    assert (copied.kernel, copied.host_copy, copied.us) == (-1, True, 4)


HALF = {"gemm": Factor(0.5, 0.4, 0.6)}


@pytest.fixture
def two_ranks(store: Store, tmp_path: Path) -> Tables:
    """Return the tables of a job with two ranks whose traces show the same steps.

    Rank 1 computes for longer, so it determines the time of the step.
    """
    files = {}
    for rank, compute in enumerate((20, 80)):
        events = (
            mark(1, 0, 125),
            launch(1, 11),
            kernel("gemm", 5, 5 + compute, 11),
            launch(4, 12),
            kernel(NCCL, 6 + compute, 116, 12),
            call("cudaDeviceSynchronize", 8, 120, 13),
        )
        header = {"logparse_first_unit": 40, "logparse_untraced_step_us": 125}
        files[f"trace_{rank}.json"] = text(*events, rank=rank, **header).decode()
    return read(store, tmp_path, files)


def of_an_older_store(held: Tables) -> Tables:
    """Remove the timelines of the traces from the stored data, as if an older version had stored them.

    The simulation of a step needs the timelines. Versions of 2026 did not store them.
    """
    return replace(held, timeline=lambda source_id: None)


def test_a_step_needs_no_file_of_its_traces(two_ranks: Tables, tmp_path: Path) -> None:
    for path in tmp_path.glob("trace_*.json"):
        path.unlink()
    found = step_of(two_ranks, HALF)
    assert isinstance(found, StepAnswer)
    assert (found.now_us, found.then_us, found.host_factor) == (125, pytest.approx(85), 1)
    assert found.high_us == pytest.approx(93 * (1 + error(found)))
    assert not found.read_again
    assert not any("traces of some ranks are" in note for note in found.notes)


def test_a_step_of_an_older_store_is_read_from_the_trace_file(two_ranks: Tables, tmp_path: Path) -> None:
    """If an older version of logparse did not store a trace's timeline, it is read from the original trace file.

    If no usable file is left, there is no prediction.
    """
    # The simulation of a step needs the timeline. If a file is gone or has changed, a note names it and says what to
    # do.
    kept, held = step_of(two_ranks, HALF), of_an_older_store(two_ranks)
    found = step_of(held, HALF)
    assert isinstance(kept, StepAnswer)
    assert isinstance(found, StepAnswer)
    assert replace(found, notes=()) == replace(kept, notes=())
    assert re.search(
        r"older version of logparse.* read again: \S+trace_[01].json and 1 more: to store the events, run "
        r"`logparse forget` for the trace",
        found.read_again,
    )
    first, second = tmp_path / "trace_0.json", tmp_path / "trace_1.json"
    first.unlink()
    alone = step_of(replace(held), HALF)
    assert isinstance(alone, StepAnswer)
    assert any("trace_0.json" in note and "the file cannot be opened" in note for note in alone.notes)
    assert any("traces of some ranks are" in note for note in alone.notes)
    second.write_bytes(second.read_bytes().replace(b'"dur": 80', b'"dur": 70'))
    capture = held.sources.iloc[[0]].assign(path=str(tmp_path / "capture_traces/trace_1_g1.json"), source_id="g")
    gone = step_of(replace(held, sources=pd.concat([held.sources, capture])), HALF)
    assert isinstance(gone, StepUnknown)
    assert "trace_1.json: an older version of logparse" in gone.reason
    assert "the trace file has changed after that ingest: to store the events, run `logparse forget`" in gone.reason
    assert "capture_traces" not in gone.reason, "no unit ran in the capture of a graph"


def test_a_step_survives_compaction_and_a_temporary_store(store: Store, two_ranks: Tables, tmp_path: Path) -> None:
    found = step_of(two_ranks, HALF)
    compact(store, unread=True)
    assert step_of(tables_of(store), HALF) == found
    alone = step_of(tables_at(str(tmp_path / "trace_1.json")), HALF)
    assert isinstance(alone, StepAnswer)
    assert alone.now_us == 125


@given(st.integers(0, 1 << 30))
def test_a_stored_trace_is_unchanged(seed: int) -> None:
    """A trace that is stored as Parquet and read back is the same as before, even if one of its lists is empty."""
    steps = program(seed)
    (row,) = (x for one in read_events(Text(text(*run(steps, {}, 1.4)[1]))) for x in one.tables.values())
    sink = io.BytesIO()
    pq.write_table(row, sink)
    assert trace_of(pq.read_table(sink)) == trace_of(row)


def test_nothing_is_predicted_from_a_misleading_trace(store: Store, tmp_path: Path) -> None:
    """If the step in a trace takes far longer than a step without the profiler, logparse predicts nothing and says why.

    Here the trace has a kernel of 100 µs, but without the profiler a whole step takes only 20 µs.
    """
    events = (mark(1, 0, 120), launch(1, 11), kernel("k", 5, 105, 11), call("cudaDeviceSynchronize", 8, 110, 12))
    found = step_of(read(store, tmp_path, {"trace_1.json": text(*events, logparse_untraced_step_us=20).decode()}), HALF)
    assert isinstance(found, StepUnknown)
    assert found.reason == (
        "according to the run's traces, a step takes 110 µs, but without the profiler, a step takes 20 µs. These times "
        "differ by more than a factor of 1.3; trace other steps"
    )


def test_a_run_without_traces_has_no_step() -> None:
    assert isinstance(step_of(tables(run="r"), HALF), StepUnknown)


@pytest.mark.parametrize(("us", "why"), [(14.5, "too short to show a step"), (0.0, "damaged")])
def test_a_trace_of_one_kernel_is_too_short_and_not_damaged(store: Store, tmp_path: Path, us: float, why: str) -> None:
    correlation = {"External id": 1, "correlation": 7}
    of_kernel = {**correlation, "device": 0, "stream": 7}
    product: Event = {
        "Input Dims": [[64, 32], [32, 16]],
        "Input type": ["c10::BFloat16"] * 2,
        "Concrete Inputs": ["", ""],
    }
    product |= {**correlation, "Input Strides": [[32, 1], [16, 1]]}
    at = {"ph": "X", "pid": 1, "tid": 1}
    events = [
        {
            **at,
            "cat": "cpu_op",
            "name": "aten::mm",
            "ts": 1000.0,
            "dur": 20,
            "args": product,
        },
        {**at, "cat": "cuda_runtime", "name": "hipLaunchKernel", "ts": 1005.0, "dur": 3, "args": correlation},
        {**at, "cat": "kernel", "name": "Cijk_k", "ts": 1010.0, "dur": us, "args": of_kernel},
    ]
    text = json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "numSms": 304}], "traceEvents": events})
    found = step_of(read(store, tmp_path, {"one.json": text}), HALF)
    assert isinstance(found, StepUnknown)
    assert why in found.reason


@needs_corpus
@pytest.mark.parametrize(
    "name", ["h200/gpt2.trace", "h200/resnet50.trace", "nvidia/convnext_tiny.trace", "tracelens/mi300_vit"]
)
def test_an_unchanged_trace_keeps_its_times(name: str) -> None:
    """If nothing is changed, each kernel of a real trace ends in the simulation at the same time as in the trace.

    If all kernels take no time, no kernel ends later than in the trace.
    """
    held = read_trace(InputFile(str(CORPUS / f"{name}.json.gz")))
    step = build([held])
    at = np.array(times(step))
    begin = min([x.start for x in held.calls] + [x.start for x in held.works] + [x.start for x in held.units])
    ends = sorted(x.end - begin for x in held.works if x.kernel >= 0)
    assert sorted(at[step.kernel >= 0]) == pytest.approx(ends, abs=0.01)
    assert (np.array(times(step, np.zeros_like(step.us))) <= at + 0.01).all()


@pytest.mark.parametrize("stated", [True, False])
def test_simulated_times_come_true(stated: bool) -> None:
    """The predicted times of steps with other kernel times are right, as a simulated machine shows."""
    # Random programs run on this machine with a profiler that makes the host 1.4 times as slow. This gives the trace.
    # Then the programs run without the profiler and with the other kernel times.
    errors = []
    for seed in range(sized(40, 400)):
        steps = program(seed)
        chance = random.Random(seed)
        factors = {f"kernel{i}": chance.choice([0.2, 0.5, 1.0, 1.0, 1.5]) for i in range(5)}
        _, events = run(steps, {}, 1.4)
        found = graph(*[x for x in events if stated or x["cat"] != "cuda_sync"])
        measured, _ = run(steps, factors, 1.0)
        given = factors_of(found, {name: Factor(x, x, x) for name, x in factors.items()})[0]
        at = times(found, found.scaled(given), 1 / 1.4)  # of the traced units, whether or not the device lags behind
        simulated = np.mean([at[x.last] - at[x.first] for x in found.bounds[1:]])
        errors.append(float(simulated) / measured - 1.0)
    assert np.mean(np.abs(errors)) < (1e-9 if stated else 0.01)
    assert np.max(np.abs(errors)) < (1e-9 if stated else 0.15), (
        "observed order may name a later event than the true one"
    )
