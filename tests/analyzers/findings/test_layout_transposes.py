from __future__ import annotations

from dataclasses import replace

import pytest

from analyzers.evidence.tables import Settings, Tables
from analyzers.findings import layout_transposes
from logparse.model import ConvProblem
from tests.analyzers.build import tables
from tests.analyzers.example import B, F, W

LAST = dict.fromkeys(("in_layout", "weights_layout", "out_layout"), "NHWC")


def kernel(problem: ConvProblem, name: str, us: float) -> dict[str, object]:
    row = {"source_id": "trace", "run": "r", "op": "aten::convolution_backward", "problem": problem.text}
    return row | {"kernel": name, "calls": 1, "total_us": us, "min_us": us, "max_us": us}


def planted() -> Tables:
    return tables(
        kernels=[
            kernel(W, "batched_transpose_32x32_half", 30_000.0),
            kernel(W, "igemm_wrw_gtcx3_nhwc", 50_000.0),
            kernel(B, "void cudnn::engines_precompiled::nchwToNhwcKernel<__half>", 10_000.0),
            kernel(B, "sm90_xmma_dgrad_implicit_gemm_nhwc", 60_000.0),
            kernel(F, "igemm_fwd_gtcx35_nchw", 50_000.0),
        ]
    )


def test_transposes_of_convolutions_in_nchw() -> None:
    [found] = layout_transposes.find(planted(), Settings())
    assert found.message == (
        "transposes to NHWC and back take 40 ms of 200 ms in the NCHW convolutions (20%; by direction: 10 ms of 70 ms "
        "in B, 30 ms of 80 ms in W), because 2 of 3 different convolutions run NHWC kernels"
    )
    assert (found.problem, found.saving_us) == (None, 40_000.0)
    assert found.advice is not None
    assert "channels_last" in found.advice


def test_times_are_per_step_where_steps_are_marked() -> None:
    facts = [
        {"source_id": "trace", "run": "r", "name": name, "value": value}
        for name, value in (("profiler_steps", "2"), ("profiler_steps_us", "1000.0"))
    ]
    [found] = layout_transposes.find(replace(planted(), facts=tables(facts=facts).facts), Settings())
    assert found.message.startswith("transposes to NHWC and back take 20 ms of 100 ms per step in the NCHW")
    assert found.saving_us == 40_000.0, "per run, as all savings"
    facts += [{**facts[0], "name": "unit", "value": "time"}]
    [found] = layout_transposes.find(replace(planted(), facts=tables(facts=facts).facts), Settings())
    assert "per window in the NCHW convolutions" in found.message


@pytest.mark.parametrize(("us", "found"), [(3.0, 1), (2.9, 0)])
def test_the_floor(us: float, found: int) -> None:
    rows = [kernel(W, "batched_transpose", us), kernel(W, "igemm_wrw", 100.0 - us)]
    assert len(layout_transposes.find(tables(kernels=rows), Settings())) == found


@pytest.mark.parametrize(("us", "found"), [(1_700.0, 1), (4_000.0, 0)])
def test_a_job_with_few_transposes_keeps_its_layout(us: float, found: int) -> None:
    """Another memory layout is proposed only if transposing images takes enough of the job's whole time."""
    # In a ViT on an MI300X, a step takes 1.7 ms and its transposes 12 µs. That is much compared with its only
    # convolution (26 %), but little compared with the step (12 / 1,700 = 0.7 %).
    other = {**kernel(W, "Cijk_other", us), "problem": None, "op": "aten::mm"}
    rows = [kernel(F, "batched_transpose", 30.0), kernel(F, "igemm_fwd", 50.0), other]
    assert len(layout_transposes.find(tables(kernels=rows), Settings())) == found


def test_what_channels_last_cannot_remove() -> None:
    last = replace(W, **LAST)
    open_ = replace(W, **dict.fromkeys(LAST))
    for problem in (last, open_):
        rows = [kernel(problem, "batched_transpose", 30.0), kernel(problem, "igemm_wrw", 50.0)]
        assert layout_transposes.find(tables(kernels=rows), Settings()) == []
