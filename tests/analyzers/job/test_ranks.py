"""Tests that compare two ranks of a job: collectives, waits and idle times, with results computed by hand."""

from __future__ import annotations

import pytest

from analyzers.evidence.tables import Settings
from analyzers.findings.exposed_communication import find as exposed
from analyzers.findings.host_bound import find as host_bound
from analyzers.job.gpu_time import COMMUNICATION, gpu_time
from analyzers.job.ranks import ranks
from analyzers.recommend.render import gpu_time_lines
from tests.analyzers.build import tables

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def fact(source: str, name: str, value: object) -> dict[str, object]:
    return {"source_id": source, "run": "r", "name": name, "value": str(value)}


def of_rank(rank: int, compute: float, calls: list[tuple[float, float]], window: float = 100.0):  # type: ignore[no-untyped-def]
    """Return made-up data of one rank in one step: facts, kernels and collective operations.

    ``compute`` is in µs. ``calls`` has two times in µs for each collective: all, and the part outside computation.
    """
    # The second time of a collective is the part that does not overlap computation.
    source = f"t{rank}"
    alone = sum(x for _, x in calls)
    known = {
        "rank": rank,
        "profiler_steps": 1,
        "gpu_window_us": window,
        "gpu_busy_us": compute + alone,
        "gpu_compute_us": compute,
        "gpu_communication_alone_us": alone,
    }
    kernels = [
        {"op": "aten::mm", "problem": None, "kernel": "gemm", "calls": 1, "total_us": compute},
        {"op": "record_param_comms", "kernel": NCCL, "calls": len(calls), "total_us": sum(x for x, _ in calls)},
    ]
    held = [
        {"ranks": "[0, 1]", "kernel": NCCL, "start_us": 10.0 * i, "us": us, "alone_us": alone}
        for i, (us, alone) in enumerate(calls)
    ]
    place = {"source_id": source, "run": "r", "device": 0}
    return (
        [fact(source, name, value) for name, value in known.items()],
        [place | x for x in kernels],
        [place | x for x in held],
    )


def job(*each):  # type: ignore[no-untyped-def]
    facts, kernels, held = ([row for rows in x for row in rows] for x in zip(*each, strict=True))
    return tables(facts=facts, kernels=kernels, collectives=held)


def test_the_last_rank_does_not_wait() -> None:
    """The rank that enters a collective last does not wait. The extra time of another rank in it is a wait.

    Rank 1 computes for 60 of 100 µs and rank 0 for only 20 µs, so rank 1 comes last. Rank 1 needs 10 and 5 µs for the
    two collectives. Rank 0 spends 30 and 25 µs in them, of which 30 and 20 µs do not overlap computation. So rank 0
    waits for (30 − 10) + (20 − 5) = 35 µs.
    """
    found = ranks(job(of_rank(0, 20, [(30, 30), (25, 20)]), of_rank(1, 60, [(10, 10), (5, 5)])))
    assert found is not None
    assert found.matched == 1
    assert [(x.rank, x.compute_us, x.exposed_us, x.waiting_us, x.host_us) for x in found.ranks] == [
        (0, 20, 50, 20 + 15, 30),
        (1, 60, 15, 0, 25),
    ]
    assert found.slowest.rank == 1
    assert found.waiting_us == 17.5


def test_a_device_that_only_waits_is_idle_and_the_sum_is_at_most_the_window() -> None:
    both = job(of_rank(0, 20, [(60, 60)]), of_rank(1, 25, [(10, 10)]))
    time = gpu_time(both)
    assert time is not None
    assert {x.name: x.us for x in time.parts} == {COMMUNICATION: 20, "GEMM": 45}
    assert (time.alone_us, time.waiting_us, time.busy_us, time.idle_us) == (70, 50, 65, 135)
    assert time.exposed_us == 20
    lines = [" ".join(x.split()) for x in gpu_time_lines(time)]
    assert lines[2].startswith("exposed communication 10 µs")
    assert lines[3:] == [
        "idle 67.5 µs 67.5%",
        "of the idle time, 25 µs are collectives that wait for another rank",
    ]
    assert sum(x.us for x in time.parts) + (time.idle_us or 0) == time.window_us
    assert time.waits
    [finding] = host_bound(both, Settings())
    assert "is idle in the rest" in finding.message
    assert finding.evidence.at_most_us == 135


@pytest.mark.parametrize(("calls", "exposed_us", "waiting_us"), [([(400, 400)], 20, 35), ([(40, 40)] * 2, 55, None)])
def test_communication_fits_into_the_step_without_the_profiler(
    calls: list[tuple[float, float]], exposed_us: float, waiting_us: float | None
) -> None:
    """Computation and communication together never take longer than the step without the profiler."""
    # In the trace, rank 0 waited in a collective operation while the other rank started its profiler. An earlier
    # version added this wait to the step: it called a step of 38 ms "a step of 161 ms".
    of = of_rank(0, 20, calls, 500), of_rank(1, 25, [(10, 10)])
    time = gpu_time(job(*(([*x[0], fact(f"t{i}", "untraced_step_us", 50)], *x[1:]) for i, x in enumerate(of))))
    assert time is not None
    assert (time.window_us, time.exposed_us, time.waiting_us) == (100, exposed_us, waiting_us)
    assert sum(x.us for x in time.parts) + (time.idle_us or 0) == 100


def test_the_rank_that_the_others_wait_for_is_named_and_why_it_is_late() -> None:
    [slow] = exposed(job(of_rank(0, 20, [(60, 60)]), of_rank(1, 65, [(10, 10)])), Settings())
    assert slow.message.endswith("rank 0 waits 50 µs per step for rank 1 (idle 25 µs), which computes 45 µs longer")
    [host] = exposed(job(of_rank(0, 20, [(60, 60)]), of_rank(1, 21, [(10, 10)])), Settings())
    assert host.message.endswith("for rank 1 (idle 69 µs), which waits for its host to launch kernels")
    [even] = exposed(job(of_rank(0, 20, [(10, 10)]), of_rank(1, 21, [(10, 10)])), Settings())
    assert even.message.endswith("The ranks hardly wait for each other")
    [alone] = exposed(job(of_rank(0, 20, [(60, 60)])), Settings())
    assert alone.message.endswith("These times include the time in which ranks wait for the slowest rank")


@pytest.mark.parametrize(("name", "value", "missing"), [("ranks", 4, 2), ("ranks", 2, 0), ("ranks", "?", 0)])
def test_waits_are_lower_bounds_if_a_rank_has_no_trace(name: str, value: object, missing: int) -> None:
    """If a rank has no trace, logparse says that the other ranks wait "at least" for the computed time.

    All traced ranks may have waited for the missing rank, so their real waits may be longer than the traces show.
    """
    facts, kernels, held = of_rank(0, 20, [(60, 60)])
    stated = [*facts, fact("units_1", name, value)]
    both = job((stated, kernels, held), of_rank(1, 65, [(10, 10)]))
    found = ranks(both)
    assert found is not None
    assert found.missing == missing
    [finding] = exposed(both, Settings())
    assert ("waits at least 50 µs" in finding.message) == bool(missing)
    assert ("2 ranks left no trace" in finding.message) == bool(missing)


def test_traces_that_cannot_be_compared_leave_waiting_unknown() -> None:
    assert ranks(job(of_rank(0, 20, [(60, 60)]))) is None
    unlike = ranks(job(of_rank(0, 20, [(30, 30), (25, 20)]), of_rank(1, 60, [(10, 10)])))
    assert unlike is not None
    assert (unlike.matched, unlike.waiting_us) == (0, 0)
    time = gpu_time(job(of_rank(0, 20, [(30, 30), (25, 20)]), of_rank(1, 60, [(10, 10)])))
    assert time is not None
    assert time.waiting_us is None, "unknown, not nothing"
    alone = gpu_time(job(of_rank(0, 20, [(60, 60)])))
    assert alone is not None
    assert alone.waiting_us is None
    assert alone.busy_us == pytest.approx(80)
