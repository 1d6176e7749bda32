"""Tests of times per step or request, averaged over all kinds of steps by how often they occur.

If kernels on two streams overlap, the common time counts only once.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pandas as pd
import pytest

from analyzers.evidence.tables import Settings, Tables
from analyzers.evidence.units import (
    as_alone,
    problem_weights,
    reweigh_kinds,
    scale_to_average_unit,
    unit_word,
    units,
    units_by_source,
    units_of_facts,
)
from analyzers.job.gpu_time import gpu_time, steps
from analyzers.recommend.render import gpu_time_lines
from logparse.libraries.torch_profiler.busy import BEFORE
from logparse.model import Gain
from tests.analyzers.build import tables, work
from tests.analyzers.example import W, gemm


def fact(source: str, name: str, value: object) -> dict[str, object]:
    return {"source_id": source, "run": "r", "name": name, "value": str(value)}


def kind(count: int, traced: int, *us: float) -> str:
    return json.dumps({"count": count, "traced": traced, "us": us})


def server(large: int = 30, small: int = 10) -> Tables:
    """Return made-up data of a server that answers large batches (100 µs of kernels) and small ones (10 µs).

    ``large`` and ``small`` are their numbers in the whole run. The trace has one large batch and three small ones.
    """
    # A large batch has 16 requests, a small one has 1.
    kernels = [
        {"op": "aten::mm", "kernel": "gemm", "calls": 2, "total_us": 100.0, "unit": "16"},
        {"op": "aten::mm", "kernel": "gemm", "calls": 3, "total_us": 30.0, "unit": "1"},
    ]
    facts = [
        fact("u", "unit", "module"),
        fact("u", "unit_tracing", "settled"),
        fact("u", "unit:16", kind(large, 1, 900.0, 200.0, 210.0)),
        fact("u", "unit:1", kind(small, 3, 50.0, 50.0)),
        fact("t", "unit_kinds", json.dumps({"16": 1, "1": 3})),
        fact("t", "profiler_steps", 4),
    ]
    place = {"source_id": "t", "run": "r", "device": 0}
    return tables(kernels=[place | x for x in kernels], facts=facts)


def test_kernel_times_are_weighted_by_batch_sizes_of_the_run() -> None:
    """Kernel times of a trace are weighted, as if it had large and small batches as often as the whole run.

    Of the run's 40 batches, 30 are large (100 µs of kernels) and 10 are small (10 µs). So an average batch takes (30 ·
    100 + 10 · 10) / 40 = 77.5 µs. Four batches were traced, so the weighted kernels must take 4 · 77.5 = 310 µs.
    """
    kernels = scale_to_average_unit(server()).kernels
    assert kernels["total_us"].sum() == pytest.approx(4 * 77.5)
    assert kernels["calls"].tolist() == pytest.approx([4 * 0.75 * 2, 4 * 0.25 * 1])
    assert server().kernels["total_us"].sum() == 130, "the input stays as it is"


def test_calls_of_large_and_small_batches_get_different_factors() -> None:
    """When the calls of a trace are scaled to the whole run, calls of large and small batches get different factors.

    One of four traced batches was large (25 %), but three of four batches of the run are large (75 %). So a call of a
    large batch gets the factor 75 / 25 = 3, and a call of a small batch the factor 25 / 75 = 1/3.
    """
    given = server()
    given = replace(given, kernels=given.kernels.assign(problem=["gemm large", "gemm small"]))
    assert problem_weights(scale_to_average_unit(given)).to_dict() == pytest.approx(
        {"gemm large": 3.0, "gemm small": 1 / 3}
    )


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        ([], "step"),
        ([fact("u", "unit", "time")], "window"),
        ([fact("u", "unit", "request")], "step"),  # no unit was counted
        ([fact("u", "unit", "request"), fact("u", "unit:a", kind(3, 1, 9.0)), fact("v", "unit", "time")], "request"),
    ],
)
def test_what_is_traced_by_time_is_a_window_and_no_step(facts: list[dict[str, object]], word: str) -> None:
    assert unit_word(tables(facts=facts).facts) == word


def test_a_trace_of_the_runs_own_mix_stays_as_it_is() -> None:
    same = server(large=10, small=30)
    assert scale_to_average_unit(same) is same


def test_the_time_of_a_unit_is_that_without_warm_up_and_profiler() -> None:
    found = units(server())
    assert found is not None
    assert found.mean_us == pytest.approx((30 * 205 + 10 * 50) / 40)
    assert steps(server(), Settings()) == (4, pytest.approx(4 * found.mean_us))
    assert found.untraced_share == 0


def test_what_was_never_traced_is_a_share_and_weighs_nothing() -> None:
    held = server()
    rare = [fact("u", "unit:64", kind(10, 0, 615.0))]
    more = replace(held, facts=pd.concat([held.facts, pd.DataFrame(rare)], ignore_index=True))
    found = units(more)
    assert found is not None
    assert found.untraced_share == pytest.approx(6150 / (6150 + 6150 + 500))
    assert gpu_time_lines(gpu_time(more))[-1].startswith("  kinds of steps that take 48.0% of")
    assert not any("are in no trace" in line for line in gpu_time_lines(gpu_time(held)))
    assert scale_to_average_unit(more).kernels["total_us"].sum() == pytest.approx(4 * 77.5)


def test_streams_that_overlap_share_their_time() -> None:
    rows = [{"op": "aten::mm", "kernel": x, "calls": 1, "total_us": 60.0, "source_id": "t", "run": "r"} for x in "ab"]
    rows.append({**rows[0], "op": BEFORE, "total_us": 40.0})
    known = {"gpu_compute_us": 90, "gpu_busy_us": 90, "gpu_window_us": 100}
    facts = [fact("t", name, value) for name, value in known.items()]
    both = scale_to_average_unit(tables(kernels=rows, facts=facts))
    assert both.kernels["total_us"].tolist()[:2] == [45, 45]
    time = gpu_time(both)
    assert time is not None
    assert time.busy_share == pytest.approx(0.9)
    shared = tables(kernels=[{**x, "total_us": 45.0} for x in rows[:2]], facts=facts)
    assert scale_to_average_unit(shared) is shared, (
        "kernels of one operator share their time as the trace is read, and only once"
    )


def test_mean_uses_the_later_half_of_each_process() -> None:
    """The mean step time uses the later half of each process's times, not the later half of all times together.

    Each of the two processes was still slow in its first half.
    """
    rows = [
        fact(source, name, value)
        for source, us in (("u0", (900.0, 800.0, 10.0, 10.0)), ("u1", (500.0, 400.0, 20.0, 20.0)))
        for name, value in (("unit", "optimizer"), ("unit:16", kind(4, 0, *us)))
    ]
    found = units(tables(facts=rows))
    assert found is not None
    assert found.mean_us == 15


def test_weighed_tables_can_be_weighed_by_other_counts() -> None:
    held = scale_to_average_unit(server())
    assert reweigh_kinds(held, {"16": 1, "1": 1}).kernels["total_us"].sum() == pytest.approx(4 * 55)
    alone = reweigh_kinds(held, {"1": 7}).kernels
    assert alone["total_us"].tolist() == pytest.approx([0, 40])
    assert alone["calls"].tolist() == pytest.approx([0, 4])
    assert reweigh_kinds(held, {"64": 1}) is held


def test_step_times_come_from_the_run_without_logs() -> None:
    """If a job ran with and without logs, the time of a step is taken from the run without logs."""
    # Writing logs made the job slower. The number of steps is taken from the run with logs: the other run made another
    # number of steps.
    held = server()
    alone = json.dumps({"count": 90, "traced": 0, "us": [400.0, 100.0, 110.0], "host_us": [90.0, 60.0, 61.0, 62.0]})
    more = [fact("v", "unit", "module"), fact("v", "unit_alone", "1"), fact("v", "unit:16", alone)]
    both = replace(held, facts=pd.concat([held.facts, pd.DataFrame(more)], ignore_index=True))
    found = units(both)
    assert found is not None
    assert found.alone
    assert {x.name: (x.count, x.mean_us) for x in found.kinds} == {"16": (30, 105), "1": (10, 50)}
    assert {x.name: x.late_host_us for x in found.kinds} == {"16": (61.0, 62.0), "1": ()}
    assert scale_to_average_unit(both).kernels["total_us"].sum() == pytest.approx(4 * 77.5)
    logged = units_of_facts(both.facts, alone=False)
    assert logged is not None
    assert (logged.alone, logged.mean_us) == (False, pytest.approx((30 * 205 + 10 * 50) / 40))


def test_a_run_beside_logs_gets_the_times_of_one_before_without_them() -> None:
    alone = json.dumps({"count": 9, "traced": 0, "us": [400.0, 100.0, 110.0], "host_us": [60.0]})
    more = [fact("v", "unit", "module"), fact("v", "unit_alone", "1"), fact("v", "unit:16", alone)]
    before, after = replace(server(), facts=pd.DataFrame(more)), server(large=20)
    found = units(as_alone(after, before, Gain(210, 84), ["16"]))
    assert found is not None
    assert found.alone
    assert {x.name: (x.count, x.mean_us) for x in found.kinds} == {"16": (20, 84), "1": (10, 50)}
    assert found.kinds[0].host_us == (120.0,), "alone a unit took 105, and 210 beside the one after"
    assert as_alone(after, server(), Gain(210, 84), ["16"]) is after, "no times without logs are known"


def test_traced_calls_are_scaled_to_the_whole_run() -> None:
    """If only the trace has some calls of a job, their number is scaled up to the whole run."""
    # The log has the matrix products of all 40 batches, the trace has the convolutions of only four. Without the
    # scaling, there would seem to be only a tenth of the convolutions.
    rows = [work(gemm().text, 80), work(W.text, 8, calls_from="profiler")]
    held = scale_to_average_unit(replace(server(), workload=tables(workload=rows).workload)).workload
    assert held["calls"].tolist() == [80, 80]
    alone = scale_to_average_unit(replace(server(), workload=tables(workload=rows[1:]).workload)).workload
    assert alone["calls"].tolist() == [8], "all are of the traces"


@pytest.mark.parametrize(("sort", "count"), [("optimizer", 60), ("named", 20)])
def test_a_helper_that_calls_a_model_more_often_is_not_the_job(sort: str, count: int) -> None:
    """A spawned process that samples data calls a model 600 times. The learner makes fewer steps, but is the job."""
    other = "module" if sort == "optimizer" else "optimizer"
    facts = [
        fact("job", "unit", sort), fact("job", "unit:x", kind(count, 0)),
        fact("helper", "unit", other), fact("helper", "unit:x", kind(600, 0)),
    ]  # fmt: skip
    assert list(units_by_source(pd.DataFrame(facts))) == ["helper", "job"]
