from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analyzers.evidence.tables import Settings, Tables
from analyzers.findings import exposed_communication
from analyzers.recommend.documents import report
from analyzers.recommend.ranking import recommend
from analyzers.recommend.verdict import verdict
from logparse.model import Gain
from logparse.store import Store
from tests.analyzers.build import facts, tables
from tests.analyzers.ingested import read

GRADIENTS = "operator record_param_comms bfloat16(8816192|1) =allreduce =8"
KERNEL = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"


def kernel(us: float, calls: int, name: str, op: str = "", operator: str | None = None) -> dict[str, object]:
    row = {"source_id": "trace", "run": "r", "op": op, "problem": None, "operator": operator, "kernel": name}
    return row | {"calls": calls, "total_us": us, "min_us": us / calls, "max_us": us / calls}


def make_trace_tables(alone_us: float, **more: str) -> Tables:
    known = {"gpu_busy_us": "1000.0", "gpu_window_us": "1000.0", "gpu_communication_alone_us": str(alone_us), **more}
    rows = [
        kernel(400.0, 2, KERNEL, "record_param_comms", GRADIENTS),
        kernel(600.0, 50, "relu_kernel", "aten::relu"),
        kernel(20.0, 4, "cross_device_reduce_1stage", "_C_custom_ar::all_reduce"),
    ]
    return tables(kernels=rows, facts=facts("trace", **known))


def planted() -> Tables:
    """Return a trace of two steps of 500 µs. For 300 µs of this 1 ms, the GPU only communicates."""
    return make_trace_tables(300.0, profiler_steps="2", profiler_steps_us="1000.0")


def test_communication_that_nothing_hides() -> None:
    [found] = exposed_communication.find(planted(), Settings())
    assert found.message == (
        "the GPU runs only collectives for 150 µs of 500 µs per step (30%, called exposed communication). Under the "
        "profiler, all collectives together take 210 µs per step: allreduce of 17.6 MB among 8 ranks, once per step, "
        "200 µs each, 88.2 GB/s; _C_custom_ar::all_reduce, 2 times per step, 5 µs each. These times include the time "
        "in which ranks wait for the slowest rank"
    )
    assert (found.problem, found.saving_us, found.override) == (None, None, None), "what can be had is not known"
    assert "First compare the traces of several ranks" in found.advice


@pytest.mark.parametrize(("alone", "found"), [(0.0, 0), (29.0, 0), (30.0, 1)])
def test_what_is_below_the_floor_is_no_finding(alone: float, found: int) -> None:
    assert len(exposed_communication.find(make_trace_tables(alone), Settings(min_gain=0.03))) == found


def test_the_verdict_names_it_as_the_most_that_can_be_had() -> None:
    recommendation = recommend(planted(), Settings())
    assert report(recommendation, []).count("exposed-communication: the GPU runs only collectives for 150 µs") == 1
    assert not recommendation.findings
    conclusion = verdict(recommendation)
    assert conclusion.headline == (
        "hide communication behind computation: up to 150 of 500 µs a step, how much of it can really be saved is not "
        "known"
    )
    assert [(x.name, x.gain, x.sureness) for x in conclusion.todo] == [
        ("exposed-communication", Gain(500.0, 350.0), "unknown")
    ]


@pytest.mark.parametrize(
    ("name", "trains", "change"),
    [
        ("allreduce", True, "first trace all ranks; if none is late, try another bucket_cap_mb (DDP)"),
        (
            "_reduce_scatter_base",
            True,
            "first trace all ranks; if none is late, prefetch parameters (FSDP)",
        ),
        ("_allgather_base", True, "first trace all ranks; if none is late, prefetch parameters (FSDP)"),
        ("all_to_all", True, "first trace all ranks; if none is late, use fewer ranks or send less data"),
        (
            "allreduce",
            False,
            "first trace all ranks; if none is late, use fewer ranks or send less data",
        ),  # of tensor parallelism
    ],
)
def test_advice_fits_the_kind_of_collective(name: str, trains: bool, change: str) -> None:
    """The advice against waiting for communication fits the kind of collective.

    For example, an option of DistributedDataParallel has no effect on FSDP or tensor parallelism.
    """
    known = facts("trace", gpu_busy_us="900", gpu_window_us="900", gpu_communication_alone_us="300")
    rows = [
        kernel(300.0, 2, KERNEL, "record_param_comms", GRADIENTS.replace("allreduce", name)),
        kernel(600.0, 9, "relu_kernel", "aten::threshold_backward" if trains else "aten::relu"),
    ]
    found = recommend(tables(kernels=rows, facts=known), Settings())
    [todo] = verdict(found).todo
    assert todo.changes == change
    advice = found.remarks[0].advice or ""
    assert [x for x in ("bucket_cap_mb", "FSDP") if x in advice] == [
        x for x in ("bucket_cap_mb", "FSDP") if x in change
    ]


def test_a_store_of_before_holds_no_message() -> None:
    before = "operator record_param_comms [?(8816192|1)] = = =0 = =[] =[] =0 =1 =8"
    known = facts("trace", gpu_busy_us="10", gpu_window_us="10", gpu_communication_alone_us="5")
    rows = [kernel(8.0, 1, KERNEL, "record_param_comms", before)]
    [found] = exposed_communication.find(tables(kernels=rows, facts=known), Settings())
    assert (
        "Under the profiler, all collectives together take 8 µs: record_param_comms, once, 8 µs each." in found.message
    )


def collective(at: float, args: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the two trace events of a collective: an operator with the given arguments, and its kernel of 100 µs."""
    event = {"ph": "X", "pid": 1, "tid": 1}
    known = {"External id": int(at), "Record function id": 0} | args
    return [
        {**event, "cat": "cpu_op", "name": "record_param_comms", "ts": at, "dur": 5.0, "args": known},
        {**event, "cat": "kernel", "name": KERNEL, "ts": at + 10, "dur": 100.0,
         "args": {"External id": int(at), "device": 0, "stream": 4}},
    ]  # fmt: skip


INPUTS = {"Input Dims": [[[64]], []], "Input Strides": [[[1]], []], "Input type": ["TensorList", ""],
          "Concrete Inputs": ["", "8"]}  # fmt: skip
NAMED = {"Collective name": "allgather_into_tensor", "dtype": "Float8_e4m3fn", "In msg nelems": 1_000,
         "Out msg nelems": 8_000, "Group size": 8}  # fmt: skip


@pytest.mark.parametrize("spelled", [True, False], ids=["kineto", "written again"])
@pytest.mark.parametrize("args", [NAMED | INPUTS, INPUTS | NAMED, NAMED], ids=["before", "after", "without inputs"])
def test_a_trace_names_the_collective_and_its_message(
    args: dict[str, Any], spelled: bool, store: Store, tmp_path: Path
) -> None:
    events = [*collective(1_000.0, args), *collective(2_000.0, args | {"In msg nelems": 9_000})]
    text = json.dumps({"schemaVersion": 1, "traceEvents": events}, indent=1 if spelled else None)
    found = read(store, tmp_path, {"rank0.pt.trace.json": text})
    assert sorted(found.kernels["operator"]) == [
        f"operator record_param_comms float8_e4m3fn({count}|1) =allgather_into_tensor =8" for count in (8_000, 9_000)
    ]
    [finding] = exposed_communication.find(found, Settings())
    assert "allgather_into_tensor of 8 kB among 8 ranks, once, 100 µs each, 0.08 GB/s" in finding.message
