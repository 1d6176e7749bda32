"""Tests that a record is stored only if it can be read back unchanged and its numbers are possible.

Every other record is rejected with a reason.
"""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from pathlib import Path

import pytest

from logparse.ingest import ingest
from logparse.libraries.kinds.format import Outcome
from logparse.lookup.ranking import top
from logparse.model import (
    DEFAULT,
    MOST_CALLS,
    MOST_US,
    Call,
    Collective,
    ConvProblem,
    Fact,
    GemmProblem,
    Kernel,
    Measurement,
    Member,
    Message,
    Operand,
    OperatorProblem,
    Problem,
    Record,
    Reject,
    Solution,
    SolutionName,
    problem_fault,
    problem_from_text,
)
from logparse.store import Store
from logparse.store.storable import fault, storable
from tests.analyzers.example import W, gemm

TIME = Measurement(problem=gemm(), solution=Solution("hipblaslt", "7"), origin="table", time_us=3.5)
CALL = Call(problem=W, category="table", count=3)
KERNEL = Kernel(op="aten::mm", kernel="k", calls=2, total_us=5.0, min_us=2.0, max_us=3.0)
GROUPED = GemmProblem(members=(Member(m=8, n=0, k=4), Member(m=8, n=2, k=4)), a_type="bf16_r")
OPERATOR = OperatorProblem("aten::add_", (Operand("bfloat16", (0, 3), (3, 1)), "", "2"))
GOOD: tuple[Record, ...] = (
    TIME,
    replace(TIME, time_us=None, status="no_time"),
    replace(TIME, time_us=0.0, samples_us=(0.0, MOST_US), workspace_bytes=0),
    replace(TIME, solution=DEFAULT),
    replace(TIME, solution=Solution("kernel", "void f<a::b>(int, float)")),
    CALL,
    replace(CALL, count=None),
    replace(CALL, count=0, problem=GROUPED),
    KERNEL,
    replace(KERNEL, operator=OPERATOR, device=7),
    replace(KERNEL, min_us=None, max_us=None),
    Collective(kernel="k", ranks="0,1", start_us=-3.5, us=0.0, alone_us=0.0),
    Message(category="api", text="x"),
    SolutionName(solution=Solution("hipblaslt", "7"), name="x"),
    Fact("arch", "gfx942"),
)
BAD: tuple[tuple[Record, str], ...] = (
    (replace(TIME, problem=gemm(-64)), "m is -64: at least 1 is required"),
    (replace(TIME, problem=gemm(0)), "m is 0: at least 1 is required"),
    (replace(TIME, problem=gemm(1 << 63)), f"m is {1 << 63}: a number beyond 64 bits"),
    (replace(TIME, problem=gemm(10**5000)), "m is a number of more than 77 digits: a number beyond 64 bits"),
    (replace(TIME, problem=gemm(lda=-1)), "lda is -1: at least 0 is required"),
    (replace(TIME, problem=gemm(m="64")), "m is '64', which is not a whole number"),  # type: ignore[arg-type]
    (replace(TIME, problem=gemm(a_type="f16 r")), "a_type is 'f16 r', which a problem's text cannot hold"),
    (replace(TIME, problem=gemm(b_type="f16,r")), "b_type is 'f16,r', which a problem's text cannot hold"),
    (replace(TIME, problem=gemm(d_type="?")), "d_type is '?', which a problem's text cannot hold"),
    (replace(TIME, problem=gemm(a_type="16")), "a_type is '16', which a problem's text cannot hold"),
    (replace(TIME, problem=gemm(trans_a="X")), "trans_a is 'X', not one of N, T, C"),
    (replace(TIME, problem=gemm(bias="x")), "bias is 'x', not one of False, True"),
    (replace(CALL, problem=replace(W, in_layout="NC,HW")), "in_layout is 'NC,HW', which a problem's text cannot hold"),
    (replace(CALL, problem=replace(W, pad_h=-1)), "pad_h is -1: at least 0 is required"),
    (replace(CALL, problem=replace(W, direction="X")), "direction is 'X', not one of F, B, W, B+W"),
    (replace(CALL, problem=replace(GROUPED, members=(Member(m=-1, n=1, k=1),))), "m of a member is -1"),
    (replace(CALL, count=-1), "-1 calls: only 0 to 1,000,000,000,000 can be stored"),
    (replace(CALL, count=MOST_CALLS + 1), "1000000000001 calls"),
    (replace(CALL, solution=Solution("hipblaslt", "Default")), "solution 'Default' of library 'hipblaslt'"),
    (replace(CALL, workspace_bytes=-1), "workspace_bytes is -1"),
    (replace(CALL, workspace_bytes="x"), "workspace_bytes is 'x'"),  # type: ignore[arg-type]
    (replace(CALL, device=1 << 31), f"device is {1 << 31}"),
    *((replace(TIME, time_us=x), f"time_us is {x}: times must be") for x in (-1.0, math.inf, math.nan, 2 * MOST_US)),
    (replace(TIME, samples_us=(1.0, -1.0)), "a sample is -1.0: times must be"),
    (replace(TIME, std_us=-1.0), "std_us is -1.0: times must be"),
    (replace(TIME, solution=Solution("a:b", "c")), "solution 'c' of library 'a:b': its text 'a:b:c' could not be read"),
    (replace(KERNEL, total_us=-2.5), "total_us is -2.5: times must be"),
    (replace(KERNEL, calls=0), "0 calls of a kernel"),
    (replace(KERNEL, operator=OperatorProblem("a b", ())), "operator 'a b': its text could not be read back"),
    (replace(KERNEL, operator=replace(OPERATOR, inputs=(Operand("x", (-1,), ()),))), "operator 'aten::add_': a size"),
    (Collective(kernel="k", ranks="", start_us=math.nan, us=1.0, alone_us=0.0), "start_us is nan, not a time stamp"),
    (Message(category="api", text="x", count=-1), "-1 messages"),
)  # fmt: skip


@pytest.mark.parametrize("record", GOOD, ids=repr)
def test_what_can_be_is_taken(record: Record) -> None:
    assert fault(record) is None
    outcome = Outcome("message", [record])
    assert storable(outcome) is outcome


@pytest.mark.parametrize(("record", "why"), BAD, ids=[why for _, why in BAD])
def test_what_cannot_be_is_a_reject_that_states_why(record: Record, why: str) -> None:
    out = storable(Outcome("message", [record], lines=1, at=7))
    (reject,) = out.records
    assert isinstance(reject, Reject)
    assert reject.reason.startswith(why)
    assert (out.unit, out.lines, out.at) == ("reject", 1, 7)


def test_beside_a_record_that_cannot_be_the_others_stay() -> None:
    out = storable(Outcome("measurement", [TIME, replace(TIME, time_us=-1.0), Fact("arch", "gfx942")]))
    assert out.unit == "measurement"
    assert [type(x) for x in out.records] == [Measurement, Reject, Fact]


@pytest.mark.parametrize("problem", [gemm(), W, GROUPED, OPERATOR], ids=lambda x: x.kind)
def test_records_are_stored_only_if_they_can_be_read_back(problem: Problem) -> None:
    """logparse stores a matrix product or convolution only if its text can be read back as the same product.

    The test changes each text field of a product to odd values such as "a,b" or "?".
    """
    assert problem_fault(problem) is None
    if isinstance(problem, OperatorProblem):
        return
    for field in fields(problem):
        for value in ("a b", "a,b", "?", "-", "*", "7", "é"):
            if not isinstance(getattr(problem, field.name), str):
                continue
            other = replace(problem, **{field.name: value})  # type: ignore[arg-type]
            try:
                same = problem_from_text(other.text) == other.normal
            except ValueError:
                same = False
            if problem_fault(other) is None:
                assert same
            elif same:  # the text reads back, but the value is no word of its field
                assert "not one of" in str(problem_fault(other))


CASES = {
    "blank.csv": "m,n,k,a_type,solution,time_us\n64,8,8,bf16 r,a:1,3.5\n",
    "negative.csv": "m,n,k,a_type,solution,time_us\n-64,8,8,bf16_r,a:1,3.5\n",
    "calls.csv": "m,n,k,a_type,calls\n64,8,8,bf16_r,-3\n",
    "miopen.log": (
        "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver convfp16 -n 64 -c 256 -H 56 -W 56 -k 256 -y 3 -x 3"
        " -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 --in_layout NC,HW --fil_layout NCHW --out_layout NCHW -m conv -g 1 -F 4 -t 1\n"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_format_is_asked_in_the_same_place(store: Store, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(CASES[name])
    (result,) = ingest([str(tmp_path / name)], store)
    assert (result.state, result.units["reject"]) == ("new", 1)
    assert len(store.rejects()) == 1
    assert not len(top(store))


@pytest.mark.parametrize(
    "change", [{"workspace_bytes": "x"}, {"time_us": -1}, {"samples_us": [1, "y"]}, {"std_us": 1e99}]
)
def test_a_bundle_loses_no_more_than_the_bad_time(store: Store, tmp_path: Path, change: dict[str, object]) -> None:
    row = {"problem": gemm().text, "solution": "a:1", "origin": "replay", "time_us": 3.5}
    data = {"logparse_bundle": 1, "facts": {}, "times": [row, row | change], "calls": {}}
    (tmp_path / "record-1.json").write_text(json.dumps(data))
    (result,) = ingest([str(tmp_path / "record-1.json")], store)
    assert (result.state, result.units["measurement"], result.units["reject"]) == ("new", 1, 1)


def test_conv_defaults_read_back() -> None:
    assert problem_fault(ConvProblem(direction="F")) is None


CONV_3X3 = "conv F spatial=2 in=32,256,1,56,56 k=256 filter=1,3,3 pad=0,1,1 stride=1,1,1 dilation=1,1,1 out=1,56,56"
LIKE = f"{CONV_3X3} groups=1 type=FP16,FP16,FP16 layout=NCHW,NCHW,NCHW cast=none,none,none bias=0 mode=convolution"


@pytest.mark.parametrize(
    ("problem", "device", "us", "fine"),
    [
        (gemm(m=4096, n=4096, k=4096), {}, 50.0, True),
        (gemm(m=4096, n=4096, k=4096), {"arch": "gfx1100"}, 50.0, False),
        (gemm(m=4096, n=4096, k=4096), {"arch": "gfx1100"}, 1_500.0, True),
        (gemm(m=4096, n=4096, k=4096), {"device": "AMD Instinct MI300X"}, 200.0, True),
        (gemm(m=4096, n=4096, k=4096), {"device": "AMD Instinct MI300X"}, 20.0, False),
        (gemm(m=4096, n=4096, k=4096), {"device": ""}, 50.0, True),
        (problem_from_text(LIKE), {"arch": "gfx906", "cu_count": "60"}, 900.0, True),
        (problem_from_text(LIKE), {"arch": "gfx906", "cu_count": "60"}, 90.0, False),
    ],
)
def test_a_time_that_no_precision_of_the_device_reaches(
    problem: Problem, device: dict[str, str], us: float, fine: bool
) -> None:
    """A 3×3 convolution may take a ninth of the operations, by Winograd's algorithm or an FFT, but not fewer."""
    why = fault(replace(TIME, problem=problem, solution=Solution("miopen", "s"), time_us=us), device)
    assert (why is None) == fine
    assert fine or "Tflop/s, but " in str(why)


def test_the_device_that_a_file_states_bounds_its_times(tmp_path: Path, store: Store) -> None:
    rows = ["GemmTunableOp_Half_NN,nn_4096_4096_4096_ld_4096_4096_4096,Gemm_Hipblaslt_7,0.05"]
    rows += ["GemmTunableOp_Half_NN,nn_8192_4096_4096_ld_8192_4096_8192,Gemm_Hipblaslt_7,3.05"]
    path = tmp_path / "tunableop_results0.csv"
    path.write_text("\n".join(["Validator,PT_VERSION,2.7.0", "Validator,GCN_ARCH_NAME,gfx1100", *rows, ""]))
    ingest([str(path)], store, run="run")
    with store.connect() as con:
        assert con.execute("select time_us from measurements").fetchall() == [(3050.0,)]
        ((reason,),) = con.execute("select reason from rejects").fetchall()
    assert "Tflop/s, but PRO W7900/RX 7900 XTX" in reason


def test_each_row_of_aiter_is_bound_by_its_own_device(tmp_path: Path, store: Store) -> None:
    rows = ["gfx942,304,4096,4096,4096,7,0,20.0,k", "gfx950,256,4096,4096,4096,7,0,20.0,k"]
    path = tmp_path / "a8w8_tuned_gemm.csv"
    path.write_text("\n".join(["gfx,cu_num,M,N,K,kernelId,splitK,us,kernelName", *rows, ""]))
    ingest([str(path)], store, run="run")
    with store.connect() as con:
        assert con.execute("select key_text from measurements").fetchall() == [("gfx950,256,4096,4096,4096",)]
        ((reason,),) = con.execute("select reason from rejects").fetchall()
    assert "6,872 Tflop/s, but MI300X does less than 2,876 in any precision" in reason


_TIMED_LOGS = {
    "MIOpenDriver": """\
MIOpenDriver conv -n 4 -c 512 -H 256 -W 256 -k 512 -y 1 -x 1 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 4 -t 1
Timestamp: 2026-01-02 03:04:05 UTC; Host Name: n1; ROCm: 6.4.43484; MIOpen Driver: 3.5.1; GPU Model: 4 x {device}
MIOpen Backward Weights Conv. Algorithm: 5, Solution: 110/ConvAsmImplicitGemmGTCDynamicWrwXdlopsNHWC
GPU Kernel Time Backward Weights Conv. Elapsed: {ms} ms (average)
""",
    "rocblas-bench": """\
Query device success: there are 1 devices
Device ID 0 : {device} {arch}
with 17.2 GB memory, max. SCLK 2575 MHz, max. MCLK 1000 MHz, compute capability 10.3
transA,transB,M,N,K,alpha,lda,beta,ldb,ldc,ldd,batch_count,cold_iters,hot_iters,rocblas-Gflops,us
T,N,8192,4096,2048,1,2048,0,2048,8192,8192,1, 2, 10, 1.5e+06, {us}
""",
}
"""Logs of benchmark tools that print the GPU's name. Each times about 137 Gflop."""


@pytest.mark.parametrize("tool", _TIMED_LOGS)
@pytest.mark.parametrize(
    ("device", "arch", "us", "impossible"),
    [
        ("AMD Instinct MI210", "gfx90a", 20.0, True),
        ("AMD Instinct MI210", "gfx90a", 2000.0, False),
        ("AMD Instinct MI355X", "gfx950", 20.0, False),
        ("Some new GPU", "gfx1999", 20.0, False),
    ],
)
def test_a_log_that_names_its_gpu_bounds_its_times(
    tool: str, device: str, arch: str, us: float, impossible: bool, tmp_path: Path, store: Store
) -> None:
    path = tmp_path / "bench.log"
    path.write_text(_TIMED_LOGS[tool].format(device=device, arch=arch, us=us, ms=us / 1000))
    ingest([str(path)], store, run="run")
    with store.connect() as con:
        times = con.execute("select time_us from measurements where time_us is not null").fetchall()
        reasons = con.execute("select reason from rejects").fetchall()
    assert times == ([] if impossible else [(us,)])
    model = device.rpartition(" ")[2]
    assert [f"but {model} does less than" in reason for (reason,) in reasons] == [True] * impossible


def test_a_log_of_two_gpus_bounds_times_by_neither(tmp_path: Path, store: Store) -> None:
    slow, fast = (
        _TIMED_LOGS["rocblas-bench"].format(device=device, arch=arch, us=us)
        for device, arch, us in (("AMD Radeon RX 6800 XT", "gfx1030", 9000.0), ("AMD Instinct MI355X", "gfx950", 60.0))
    )
    path = tmp_path / "both.log"
    path.write_text(slow + fast)
    ingest([str(path)], store, run="run")
    with store.connect() as con:
        assert con.execute("select time_us from measurements order by 1").fetchall() == [(60.0,), (9000.0,)]
        assert con.execute("select reason from rejects").fetchall() == []
