"""Problem lists of hipblaslt-bench: both styles, the tool's defaults, what is written and read back, damage."""

from __future__ import annotations

import pytest

from analyzers.overrides.export import export
from logparse.formats import FORMATS
from logparse.formats.format import FileFormat, Head
from logparse.formats.hipblaslt import problem_yaml, profile
from logparse.model import Call, GemmProblem, Reject
from tests.analyzers.example import gemm
from tests.conftest import SAMPLES
from tests.formats.reading import outcomes, records_of, units

FOLDER = SAMPLES / "hipblaslt/forms"
BLOCK, BRACES = ((FOLDER / f"problems_{x}.yaml").read_bytes() for x in ("block", "braces"))


def calls(data: bytes) -> list[Call]:
    return records_of(outcomes(problem_yaml.FORMAT, data), Call)


def problem(call: Call) -> GemmProblem:
    assert isinstance(call.problem, GemmProblem)
    return call.problem


def test_block_style() -> None:
    found = outcomes(problem_yaml.FORMAT, BLOCK)
    assert units(found) == {"foreign": 2, "call": 30, "blank": 1, "reject": 6}  # lines
    first, second = calls(BLOCK)
    assert (problem(first).label, first.count, first.category) == ("TN 4096×512×1024 bf16_r", None, "yaml")
    # The tool's defaults: one batch, tight leading dimensions, no epilogue.
    assert (problem(first).lda, problem(first).ldd, problem(first).beta) == (1024, 4096, "zero")
    assert problem(first).epilogue == "DEFAULT"
    assert (problem(second).label, second.count) == ("TN 512×512×128 b256 f16_r GELU_BIAS", 16)
    assert (problem(second).stride_a, problem(second).stride_b, problem(second).bias_type) == (65536, None, "f32_r")
    assert problem(second).compute_type == "f32_f16_r"
    assert [x.reason.partition(": ")[2] for x in records_of(found, Reject)] == [
        "'M: [128, 256]' is no key with one value",
        "transA cannot be 'X'",
        "function 'matmul_other' is no matmul",
    ]


def test_braces() -> None:
    scaled, plain = calls(BRACES)
    assert (problem(scaled).label, problem(scaled).scale_a) == ("TN 4096×512×1024 f8_r", "scalar")
    assert (problem(plain).label, problem(plain).beta) == ("NT 64×128×128 f32_r", "nonzero")
    assert (problem(plain).compute_type, problem(plain).ldb) == (None, 128)
    assert [x.reason for x in records_of(outcomes(problem_yaml.FORMAT, BRACES), Reject)] == [
        "an item of a problem list: no closing brace"
    ]


@pytest.mark.parametrize("wanted", [gemm(), gemm(64, n=7, bias=True)])
def test_what_is_exported_is_read_back(wanted: GemmProblem) -> None:
    (file,) = export([(wanted, 90)], "yaml-block").files
    assert file.data.startswith(b"- function: matmul\n  M: ")
    assert problem_yaml.recognise(Head(file.name, file.data))
    (call,) = calls(file.data)
    (logged,) = profile.read(profile.record(wanted, 90)).records
    assert isinstance(logged, Call)
    assert (call.problem.text, call.count) == (logged.problem.text, 90)


def test_a_log_and_other_lists_are_left_alone() -> None:
    log = (SAMPLES / "hipblaslt/profile_4242.log").read_bytes()
    others = (
        b"",
        b"- a: 1\n",
        b"- { rocblas_function: gemm_ex, M: 1 }\n",
        b"- x: 1\n- function: matmul\n",
        b"- {a, b}\n",
    )
    for data in (log, *others):
        assert not problem_yaml.recognise(Head("problems.yaml", data))
    for data in (BLOCK, BRACES):
        head = Head("problems.yaml", data)
        assert [x.name for x in FORMATS if isinstance(x, FileFormat) and x.recognise(head)] == ["hipblaslt-yaml"]
