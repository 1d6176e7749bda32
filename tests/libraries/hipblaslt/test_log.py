"""Tests of log lines with hipBLASLt's prefix: Trace lines, messages and damaged lines.

Each Trace line is compared with the bench line of the same call. cuBLASLt's lines look similar and must be told apart.
"""

from __future__ import annotations

import gzip
import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.libraries.hipblaslt import bench, log
from logparse.libraries.hipblaslt.enums import EPILOGUES, epilogue
from logparse.links import find_link_level
from logparse.model import Call, GemmProblem, Message
from tests.conftest import CORPUS, needs_corpus
from tests.libraries.hipblaslt.texts import FLAGS, Launch

from . import texts


def problem(format_read, text: str) -> GemmProblem:
    outcome = format_read(text)
    assert outcome.unit == "call", outcome
    call = outcome.records[0]
    assert isinstance(call, Call)
    assert isinstance(call.problem, GemmProblem)
    return call.problem


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("bias_type", [None, "f32_r"])
def test_trace_and_bench_of_one_call_differ_in_what_a_trace_cannot_state(name: str, bias_type: str | None) -> None:
    launch = Launch(epilogue=name, bias_type=bias_type if FLAGS[name][1] else None)
    check_trace(launch)


UNSTATED = ("scale_a", "scale_b", "scale_c", "scale_d", "swizzle_a", "swizzle_b")
UNSTATED += ("compute_input_a_type", "compute_input_b_type", "sm_count")


def check_trace(launch: Launch) -> None:
    """Check that logparse reads the same matrix product from the Trace line and the bench line of a call."""
    # A Trace line does not print all properties. The others are unknown, and logparse must still see that both lines
    # may be for the same product.
    trace, whole = problem(log.read, texts.trace(launch)), problem(bench.read, texts.bench(launch))
    assert {getattr(trace, x) for x in UNSTATED} == {None}
    assert replace(trace, **{x: getattr(whole, x) for x in UNSTATED}).text == whole.text
    assert find_link_level(trace, whole) == "layout"
    assert find_link_level(trace, replace(whole, swizzle_a=True)) == "layout", "unknown, so it may be either"


launches = st.builds(
    Launch,
    ta=st.sampled_from("NT"),
    tb=st.sampled_from("NT"),
    m=st.integers(1, 2**31 - 1),
    n=st.integers(1, 9999),
    k=st.integers(1, 9999),
    batch=st.sampled_from([1, 2, 48]),
    a=st.sampled_from(["f16_r", "bf16_r", "f32_r"]),
    d=st.sampled_from(["f16_r", "bf16_r", "f32_r"]),
    compute=st.sampled_from(["f32_r", "xf32_r", "f32_f16_r"]),
    epilogue=st.sampled_from(sorted(FLAGS)),
    beta=st.sampled_from([0.0, 1.0, -0.5]),
    bias_type=st.none(),
    alpha_vector=st.booleans(),
).filter(lambda x: x.batch == 1 or x.m * max(x.n, x.k) < 2**31)


@given(launches)
def test_trace_and_bench_agree_for_any_call(launch: Launch) -> None:
    check_trace(launch)


def test_a_trace_fills_only_what_it_states() -> None:
    p = problem(log.read, texts.trace(Launch(m=267, beta=1.0, epilogue="GELU_BIAS", a="f8_r", d="f8_r")))
    assert (p.m, p.epilogue, p.beta) == (267, "GELU_BIAS", "nonzero")
    assert (p.scale_a, p.scale_d, p.swizzle_a) == (None, None, None)
    assert p.bias_type is None  # the default for an 8-bit D depends on the other types


def test_beta_is_only_trusted_where_the_scale_type_is_f32() -> None:
    line = texts.trace(Launch()).replace("scaleType=R_32F", "scaleType=R_64F")
    assert problem(log.read, line).beta is None
    assert problem(log.read, texts.trace(Launch()).replace("beta=0", "beta=0x@")).beta is None


def test_a_wrapped_number_is_unknown() -> None:
    line = texts.trace(Launch(batch=2)).replace("batch_stride=6144", "batch_stride=-2147477504", 1)
    assert problem(log.read, line).stride_a is None


def test_the_library_that_cannot_name_its_epilogue_or_type() -> None:
    line = (
        texts.trace(Launch()).replace("EPILOGUE_DEFAULT", "Invalid epilogue").replace("type=R_16BF", "type=Invalid", 1)
    )
    p = problem(log.read, line)
    assert (p.activation, p.bias, p.epilogue, p.a_type, p.b_type) == (None, None, None, None, "bf16_r")


def test_the_names_of_the_library_have_a_prefix() -> None:
    assert epilogue("ROCBLASLT_EPILOGUE_RELU_AUX_BIAS") == EPILOGUES["RELU_AUX_BIAS"]


@pytest.mark.parametrize("name", EPILOGUES)
def test_a_problem_names_its_epilogue_as_the_table(name: str) -> None:
    assert GemmProblem(**EPILOGUES[name]._asdict()).epilogue == name


@pytest.mark.parametrize(
    ("line", "category", "function", "text"),
    [
        ("[HIPBLASLT][Api][rocblaslt_create] handle[out]=0x@ ", "api", "rocblaslt_create", "handle[out]=0x@"),
        ("[HIPBLASLT][Error][f] invalid buf size=4 ", "error", "f", "invalid buf size=4"),
        ("[HIPBLASLT][1][Hints][f] x", "hints", "f", "x"),
        (
            "[cublasLt][Hint][cublasLtMatmulAlgoGetHeuristic] pad it",
            "hints",
            "cublasLtMatmulAlgoGetHeuristic",
            "pad it",
        ),
        ("[HIPBLASLT][Api][h] final returnAlogCount=1 ", "api", "h", "final returnAlogCount=1"),
        (
            "[2026-01-16 01:55:05][HIPBLASLT][Info][initialize] Using library: C:\\a",
            "info",
            "initialize",
            "Using library: C:\\a",
        ),
    ],
)
def test_messages(line: str, category: str, function: str, text: str) -> None:
    outcome = log.read(line)
    assert outcome.unit == "message"
    assert list(outcome.records) == [Message(category=category, function=function, text=text)]


@pytest.mark.parametrize(
    "line",
    [
        "[HIPBLASLT][Api][rocblaslt_ma",
        "[HIPBLASLT][Odd][f] x",
        texts.trace(Launch())[:300],
        texts.trace(Launch()).replace("stream=0", ""),
        texts.trace(Launch()).replace("beta=0", "beta=0 beta=0"),
        texts.trace(Launch()).replace("Bdesc=[type=R_16BF rows=64", "Bdesc=[type=R_16BF"),
    ],
)
def test_torn_lines_are_rejects(line: str) -> None:
    assert log.read(line).unit == "reject"


@pytest.mark.parametrize(
    ("printed", "scales"),
    [
        ("aScalePointer=0x@ bScalePointer=0x@ dScalePointer=0x0", ("scalar", "scalar", "none")),
        (
            "aScalePointer=0x@ bScalePointer=0x@ aScaleMode=OUTER_VEC_32F bScaleMode=OUTER_VEC_32F",
            ("row", "row", "none"),
        ),
        ("aScalePointer=0x@ dScalePointer=0x@ aScaleMode=VEC32_UE8M0", ("block32", "none", "scalar")),
        ("bScalePointer=0x@ bScaleMode=VEC16_UE4M3", ("none", "block16_e4m3", "none")),
        ("aScalePointer=0x@ aScaleMode=BLK128x128_32F", ("block128x128", "none", "none")),
        ("aScalePointer=0x@ aScaleMode=OF_A_LATER_VERSION", (None, "none", "none")),
        ("bScaleMode=VEC16_UE4M3", ("none", "none", "none")),
    ],
)
def test_scales_that_cublaslt_prints(printed: str, scales: tuple[str | None, ...]) -> None:
    (call,) = log.read(
        "[cublasLt][Trace][cublasLtMatmul] A=0X@ Adesc=[type=R_8F_E4M3 rows=256 cols=512 ld=256] B=0X@ "
        "Bdesc=[type=R_8F_E4M3 rows=256 cols=128 ld=256] C=0X@ Cdesc=[type=R_16BF rows=512 cols=128 ld=512] D=0X@ "
        "Ddesc=[type=R_16BF rows=512 cols=128 ld=512] computeDesc=[computeType=COMPUTE_32F scaleType=R_32F "
        f"transa=OP_T {printed}] algo=[algoId=66] workSpace=0X@ workSpaceSizeInBytes=1048576 beta=0 stream=0X0"
    ).records
    assert isinstance(call, Call)
    problem = call.problem
    assert isinstance(problem, GemmProblem)
    assert (problem.scale_a, problem.scale_b, problem.scale_d) == scales


@needs_corpus
def test_the_real_cublaslt_log() -> None:
    units: Counter[str] = Counter()
    problems, bias, splitk = set(), 0, 0
    lines = gzip.decompress((CORPUS / "h200" / "cublaslt_mask31_588.log.gz").read_bytes()).decode().splitlines()
    for line in lines:
        text = re.sub(r"^\[[^]]*\](\[cublasLt\])\[\d+\]", r"\1", line)
        outcome = log.read(text)
        record = outcome.records[0]
        if isinstance(record, Call):
            assert record.solution is not None
            assert record.workspace_bytes == 1 << 20
            assert record.solution.text.startswith("cublaslt:id=")
            assert isinstance(record.problem, GemmProblem)
            bias += bool(record.problem.bias)
            splitk += "splitk=11,reduction=INPLACE" in record.solution.id
            problems.add(record.problem.text)
        units[outcome.unit if isinstance(record, Call) else getattr(record, "category", "reject")] += 1
    assert units == {"call": 375, "info": 377, "hints": 3, "api": 7712}
    assert (bias, splitk, len(problems)) == (80, 5, 19)
    first = log.read(
        "[cublasLt][Trace][cublasLtMatmul] "
        "A=0X@ Adesc=[type=R_16BF rows=8 cols=4 ld=8 batchCount=3 stridedBatchOffset=32] "
        "B=0X@ Bdesc=[type=R_16BF rows=4 cols=6 ld=4 batchCount=3 stridedBatchOffset=24] "
        "C=0X@ Cdesc=[type=R_16BF rows=8 cols=6 ld=8 batchCount=3 stridedBatchOffset=48] "
        "D=0X@ Ddesc=[type=R_16BF rows=8 cols=6 ld=8 batchCount=3 stridedBatchOffset=48] "
        "computeDesc=[computeType=COMPUTE_32F scaleType=R_32F] algo=[algoId=66 tile=MATMUL_TILE_192x192 "
        "stages=MATMUL_STAGES_64xAUTO customOption=4 clusterShape=CLUSTER_SHAPE_2x1x1] workSpace=0X@ "
        "workSpaceSizeInBytes=1048576 beta=0 outOfPlace=0 stream=0X0"
    ).records[0]
    assert isinstance(first, Call)
    assert first.solution is not None
    assert first.solution.text == "cublaslt:id=66,tile=192x192,stages=64xAUTO,custom=4,cluster=2x1x1"
    assert first.problem.shape == "gemm 8x6x4x3 bf16_r"
