from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analyzers.evidence.tables import Settings, Tables
from analyzers.findings.naive_convolution import find, gemm_workspace
from analyzers.recommend.ranking import recommend
from analyzers.recommend.verdict import verdict
from logparse.libraries.miopen.problem_key import problem_from_key
from logparse.model import Advise, ConvProblem, Finding
from logparse.store import Store
from tests.analyzers.build import call, facts, measurement, tables, work
from tests.analyzers.example import B, F, W
from tests.analyzers.ingested import read

RADEON = {"arch": "gfx1201", "cu_count": "32"}
VIDEO = problem_from_key("64-10-200-300-3x3x3-64-8-198-298-1-0x0x0-1x1x1-1x1x1-0-NCDHW-FP32-F")
NAIVE = {
    x: f"naive_conv_ab_nonpacked_{word}_ncdhw_float_double_float"
    for x, word in zip("FBW", ("fwd", "bwd", "wrw"), strict=True)
}
SOLVER = {x: f"miopen:ConvDirectNaiveConv{word}" for x, word in zip("FBW", ("Fwd", "Bwd", "Wrw"), strict=True)}


def make_trace_tables(*rows: tuple[ConvProblem, str, int, float], calls: int = 10, **known: str) -> Tables:
    """Return made-up data of a trace from rows of (convolution, kernel, number of launches, µs per launch).

    ``calls`` is how often each convolution is called.
    """
    problems = sorted({x.text for x, *_ in rows})
    return tables(
        kernels=[
            {"source_id": "trace", "run": "r", "op": "aten::miopen_convolution", "problem": x.text, "kernel": kernel}
            | {"calls": n, "total_us": us * n, "min_us": us, "max_us": us}
            for x, kernel, n, us in rows
        ],
        calls=[call(x, count=calls, source_id="trace", category="profiler") for x in problems],
        workload=[work(x, calls, calls_from="profiler") for x in problems],
        facts=facts("trace", **known),
    )


def planted() -> Tables:
    """Return made-up data of a trace in which MIOpen ran a naive (very slow) solver, on an unknown GPU."""
    # There is only one short call. Other tests add these data to the data of further tests, where a long call would
    # hide everything else.
    return make_trace_tables((VIDEO, NAIVE["F"], 1, 2e4), (VIDEO, "add_bias", 1, 50.0), calls=1)


def find_all(given: Tables) -> list[Finding]:
    return list(find(given, Settings()))


def test_a_naive_forward_pass_has_an_estimated_saving() -> None:
    """If a convolution ran MIOpen's naive (very slow) solver, the saving is estimated from the GPU's peak rates.

    A good solver is assumed to reach half of the speed that the roofline allows. Here the naive forward pass takes 2 s.
    """
    given = make_trace_tables((VIDEO, NAIVE["F"], 10, 2e6), (VIDEO, "add_bias", 10, 50.0), **RADEON)
    (one,) = find_all(given)
    assert (one.problem, one.calls) == (VIDEO, 10)
    assert one.message.startswith(
        "F takes 2 s with the naive solver, 0.052 TFLOP/s; at half of the roofline the convolution would take "
    )
    assert one.message.endswith("the GEMM solver of this convolution needs 3.04 GiB of workspace")
    assert one.saving_us is not None
    assert 0.98 * 20e6 < one.saving_us < 20e6
    assert one.advice is not None
    assert "split the depth into 4 parts, which share 2 of the depth as input: a part needs 778 MiB" in one.advice
    found_in_all = recommend(given, Settings())
    assert not verdict(found_in_all).headline.startswith("no verdict")
    assert [x.analyzer for x in found_in_all.findings] == ["naive-convolution"], "not one of a replay beside it"


@pytest.mark.parametrize("direction", ["B", "W"])
def test_other_passes_and_unknown_devices(direction: str) -> None:
    problem = replace(VIDEO, direction=direction)  # type: ignore[arg-type]
    (one,) = find_all(make_trace_tables((problem, NAIVE[direction], 10, 2e6)))
    assert one.message.startswith(f"{direction} takes 2 s with the naive solver, 0.052")
    assert "no time of another solver is known" in one.message
    assert (one.per_call_us, one.saving_us) == (None, None)


@pytest.mark.parametrize(
    "rows",
    [
        [(VIDEO, NAIVE["F"], 1, 5e6), (VIDEO, "igemm_fwd_gtcx35", 18, 5e3)],  # a search within the first of ten calls
        [(VIDEO, NAIVE["F"], 10, 2e3)],  # no slower than half of the roofline
        [(replace(VIDEO, n=1, d=3, out_d=1, h=20, out_h=18, w=20, out_w=18), NAIVE["F"], 10, 9e4)],  # below 1 GFLOP
        [(VIDEO, "Cijk_Ailk_Bljk_SB_MT128x128x16", 10, 2e6)],
    ],
    ids=["search", "fast", "small", "other"],
)
def test_what_is_no_finding(rows: list[tuple[ConvProblem, str, int, float]]) -> None:
    assert find_all(make_trace_tables(*rows, **RADEON)) == []


def test_a_search_within_the_only_call_is_no_naive_pass() -> None:
    rows = [(VIDEO, NAIVE["F"], 1, 5e6), (VIDEO, "igemm_fwd_gtcx35", 9, 5e3)]
    assert find_all(make_trace_tables(*rows, calls=1, **RADEON)) == []


DRIVER = (
    "MIOpenDriver conv -n 1 -c 64 --in_d 10 -H 200 -W 300 -k 64 --fil_d 3 -y 3 -x 3 --pad_d 0 -p 0 -q 0 "
    "--conv_stride_d 1 -u 1 -v 1 --dilation_d 1 -l 1 -j 1 --spatial_dim 3 -m conv -g 1 -F 1 -t 1"
)
LOG = f"""\
MIOpen(HIP): Info [get_device_name] Raw device name: gfx1100
MIOpen(HIP): Command [LogCmdFindConvolution] ./bin/{DRIVER}
MIOpen(HIP): Warning [IsEnoughWorkspace] [EvaluateInvokers] Solver <GemmFwdRest>, workspace required: 3262643712, \
provided ptr: 0 size: 0
MIOpen(HIP): Info [EvaluateInvokers] ConvDirectNaiveConvFwd: naive_conv_ab_nonpacked_fwd: 900.5 < 3.40282e+38
MIOpen(HIP): Info [FillFindReturnParameters] FW Chosen Algorithm: ConvDirectNaiveConvFwd , 0, 900.5
"""
RAN = f"MIOpen(HIP): Command [LogCmdConvolution] ./bin/{DRIVER}\n"


def test_free_memory_if_a_workspace_did_not_fit(store: Store, tmp_path: Path) -> None:
    """If MIOpen skipped a fast solver because it needs too much workspace, the advice is to free memory.

    Splitting the convolution is another way out. Letting MIOpen search for solvers again is not, because it would skip
    the same solver again.
    """
    (one,) = find_all(read(store, tmp_path, {"job.log": LOG + RAN * 7}))
    assert (one.problem, one.calls) == (VIDEO, 7)
    assert "MIOpen skipped GemmFwdRest, which needs 3.04 GiB of workspace, because the call gave less" in one.message
    assert one.now_us == 900_500
    assert one.advice is not None
    assert one.advice.startswith("Leave 3.04 GiB of the device's memory free for the workspace")
    assert one.remedy == Advise(
        "make room for the workspace", "change the program: free memory, or split the convolution"
    )


@pytest.mark.parametrize(
    ("direction", "solver", "need", "op"),
    [
        ("F", "GemmFwdRest", 33_124_515_840, "convbfp16 -n 1 -c 384 --in_d 18 -H 240 -W 416 -k 384 --pad_d 0 -F 1"),
        ("B", "GemmBwdRest", 2_831_155_200, "convfp16 -n 2 -c 256 --in_d 10 -H 128 -W 160 -k 192 --pad_d 1 -F 2"),
    ],
)
def test_a_naive_pass_on_rdna4_is_in_the_list(
    store: Store, tmp_path: Path, direction: str, solver: str, need: int, op: str
) -> None:
    """On gfx1201, a naive forward or backward-data pass is reported if MIOpen refused the workspace of another one."""
    which, name = ("FW", "Fwd") if direction == "F" else ("BWD", "Bwd")
    line = (
        f"./bin/MIOpenDriver {op} --fil_d 3 -y 3 -x 3 -p 1 -q 1 --conv_stride_d 1 -u 1 -v 1 --dilation_d 1 -l 1 -j 1 "
        "--spatial_dim 3 -m conv -g 1 -t 1"
    )
    log = f"""\
MIOpen(HIP): Info [get_device_name] Raw device name: gfx1201
MIOpen(HIP): Command [LogCmdFindConvolution] {line}
MIOpen(HIP): Warning [IsEnoughWorkspace] [EvaluateInvokers] Solver <{solver}>, workspace required: {need}, \
provided ptr: 0 size: 0
MIOpen(HIP): Info [EvaluateInvokers] ConvDirectNaiveConv{name}: naive_conv_ab_nonpacked: 4123.5 < 3.40282e+38
MIOpen(HIP): Info [FillFindReturnParameters] {which} Chosen Algorithm: ConvDirectNaiveConv{name} , 0, 4123.5
MIOpen(HIP): Command [LogCmdConvolution] {line}
"""
    (one,) = find_all(read(store, tmp_path, {"job.log": log}))
    assert isinstance(one.problem, ConvProblem)
    assert (one.problem.direction, one.now_us, one.calls) == (direction, 4_123_500, 1)
    assert f"MIOpen skipped {solver}, which needs " in one.message
    assert one.per_call is not None, "the roofline of gfx1201 bounds the time"
    assert one.per_call.then_us < 0.2 * one.per_call.now_us


def test_the_time_of_a_smaller_convolution_is_scaled_up(store: Store, tmp_path: Path) -> None:
    """If MIOpen skipped a solver for lack of memory, its time is estimated from a smaller convolution.

    The smaller convolution has fewer slices, so its workspace fitted into memory. Its time is multiplied by the ratio
    of the numbers of operations.
    """
    key = "64-{}-200-300-3x3x3-64-{}-198-298-1-0x0x0-1x1x1-1x1x1-0-NCDHW-FP32-F"
    naive = "ConvDirectNaiveConvFwd:{},0,miopenConvolutionFwdAlgoDirect"
    rows = [
        f"{key.format(6, 4)}=GemmFwdRest:40,1631321856,miopenConvolutionFwdAlgoGEMM;{naive.format(450)}\n",
        f"{key.format(10, 8)}={naive.format(900.5)}\n",
    ]
    (one,) = find_all(read(store, tmp_path, {"gfx1100_48.HIP.3_5_1_abc.ufdb.txt": "".join(rows)}))
    assert one.problem == VIDEO
    assert "GemmFwdRest takes 40 ms for " in one.message
    assert "which scales to 80 ms for this convolution" in one.message
    assert one.per_call_us == pytest.approx(820_500)
    assert (one.calls, one.saving_us) == (None, None)


def test_another_solver_of_the_problem_or_another_pass_of_the_layer() -> None:
    slow = measurement(F.text, SOLVER["F"], 9e4, source_id="log", origin="miopen-chosen")
    called = {"calls": [call(F.text, count=5)], "workload": [work(F.text, 5)]}
    (one,) = find_all(tables(measurements=[slow, measurement(F.text, "miopen:GemmFwdRest", 300.0)], **called))
    assert one.message.startswith("F takes 90 ms with the naive solver")
    assert "GemmFwdRest takes 300 µs" in one.message
    assert one.saving_us == pytest.approx(5 * 89_700)
    passes = [measurement(B.text, "miopen:GemmBwdRest", 200.0), measurement(W.text, "miopen:GemmWrwUniversal", 500.0)]
    (one,) = find_all(tables(measurements=[slow, *passes], **called))
    assert "its W pass takes 500 µs" in one.message


def test_a_pick_that_is_naive_now_and_then_is_not_the_pass() -> None:
    rows = [measurement(F.text, x, 9e4, origin="miopen-chosen") for x in (SOLVER["F"], "miopen:A", "miopen:A")]
    assert find_all(tables(measurements=rows, workload=[work(F.text, 3)])) == []


def test_the_workspace_of_the_gemm_solver() -> None:
    """logparse computes the same workspace size for MIOpen's GEMM solver as the one in MIOpen's own files."""
    for key, size in (
        ("96-5-482-834-3x3x3-96-3-480-832-1-0x0x0-1x1x1-1x1x1-0-NCDHW-FP32-F", 12_421_693_440),
        ("3-224-224-7x7-64-112-112-16-3x3-2x2-1x1-0-NCHW-FP32-F", 7_375_872),
        ("256-28-28-3x3-256-56-56-64-1x1-2x2-1x1-0-NCHW-FP16-W_g32", 3_612_672),
    ):
        assert gemm_workspace(problem_from_key(key)) == size
    assert gemm_workspace(replace(VIDEO, out_w=None)) is None


def test_tensors_beyond_an_int() -> None:
    large = replace(VIDEO, n=700)
    (one,) = find_all(make_trace_tables((large, NAIVE["F"], 10, 3e8), **RADEON))
    assert "a tensor has 26,880,000,000 elements" in one.message
    assert one.advice is not None
    assert one.advice.startswith("Split the batch")


def test_a_depth_of_one_is_not_split() -> None:
    flat = replace(VIDEO, d=3, out_d=1, h=2000, w=900, out_h=1998, out_w=898)
    (one,) = find_all(make_trace_tables((flat, NAIVE["F"], 10, 2e6), **RADEON))
    assert one.advice is not None
    assert "split the height into 4 parts" in one.advice
