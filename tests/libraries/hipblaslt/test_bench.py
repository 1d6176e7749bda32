"""Tests of reading and writing hipblaslt-bench commands, of which hipBLASLt logs one for each call.

The commands are from all versions, typed by hand, damaged in a log, or written by logparse.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.errors import EmissionError
from logparse.libraries.hipblaslt import bench
from logparse.libraries.hipblaslt.enums import EPILOGUES
from logparse.libraries.own import library_errors
from logparse.links import find_link_level
from logparse.model import Call, GemmProblem, Member, Message, Solution
from tests.libraries.hipblaslt.texts import SAMPLES, Launch

from . import texts


def call(text: str) -> Call:
    outcome = bench.read(text)
    assert outcome.unit == "call", outcome
    record = outcome.records[0]
    assert isinstance(record, Call)
    return record


def gemm(text: str) -> GemmProblem:
    problem = call(text).problem
    assert isinstance(problem, GemmProblem)
    return problem


def sample(name: str) -> list[Call]:
    return [call(line) for line in (SAMPLES / "forms" / name).read_text().splitlines()]


def test_all_versions_give_the_same_problem() -> None:
    forms = ("bench_no_api_method.log", "bench_no_index.log", "bench_rotating.log")
    written = [[c.problem.text for c in sample(name)] for name in forms]
    assert written[0] == written[1] == written[2]
    assert "activation=relu,0 aux=0,- bias=1,f16_r,d" in written[0][-1]
    assert [c.solution for c in sample(forms[0])] == [None] * 5
    solutions = [c.solution.text for c in sample(forms[2]) if c.solution]
    assert solutions == [
        "hipblaslt:105597",
        "hipblaslt:98211",
        "hipblaslt:91033",
        "hipblaslt:105420",
        "hipblaslt:56073",
    ]
    assert [c.problem.text for c in sample("bench_alphai.log")][:4] == written[0][:4]
    assert not any(c.by_tool for name in (*forms, "bench_alphai.log") for c in sample(name))


def test_grouped() -> None:
    problem = sample_grouped()
    assert problem.kind == "grouped"
    assert [(x.m, x.n, x.k, x.lda) for x in problem.members] == [(1408, n, 2048, 2048) for n in (384, 96, 1024)]


def sample_grouped() -> GemmProblem:
    return gemm((SAMPLES / "forms" / "grouped.log").read_text().splitlines()[0])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("$ ", ""),
        ("./", ""),
        ("/opt/rocm/bin/", ""),
        ("HIPBLASLT_LOG_MASK=32 ", ""),
        ("user@host:~$ ", ""),
        ("", "--print_kernel_info"),
        ("", "-i 50 -j 10"),
        ("", "| tee out.txt"),
    ],
)
def test_typed_commands_are_by_tool(before: str, after: str) -> None:
    line = texts.bench(Launch()).replace("--rotating 0 --cold_iters 0 --iters 0 ", "")
    read = call(before + line.replace("--any_stride ", "") + after)
    assert read.by_tool
    assert read.problem.text == gemm(texts.bench(Launch())).text


@pytest.mark.parametrize("name", ["rotating", "cold_iters", "iters"])
def test_iterations_mark_the_tools_own_lines(name: str) -> None:
    assert not call(texts.bench(Launch())).by_tool
    assert call(texts.bench(Launch()).replace(f"--{name} 0", f"--{name} 7")).by_tool


@pytest.mark.parametrize(
    "later", ["--compute_input_typeA bf16_r --compute_input_typeB bf16_r", "--of_a_later_version 3 --and_a_switch"]
)
def test_flags_of_later_versions_cost_no_call(later: str) -> None:
    line = texts.bench(Launch())
    assert call(f"{line}{later} ") == call(line)
    for torn in (line.replace("--iters 0", "--of_a_later_version 3 --iters 0"), f"{line}--scal-", f"{line}x"):
        assert bench.read(torn).unit == "reject"
    assert bench.read(f"./{line.replace('--iters 0', '--iters 5')}--typo 3").unit == "reject"


def test_a_person_may_state_other_sizes_before_m() -> None:
    before = "hipblaslt-bench --stride_a 0 --lda 96 --precision f16_r -m 96 -n 64 -k 32 --ldb 32 -i 5"
    assert call(before) == call(
        "hipblaslt-bench -m 96 -n 64 -k 32 --stride_a 0 --lda 96 --ldb 32 --precision f16_r -i 5"
    )
    assert bench.read(before.replace("-i 5", "-m 7 -i 5")).unit == "reject"


def test_documented_defaults_of_a_typed_command() -> None:
    read = call("./hipblaslt-bench --precision f32_r -v")
    problem = read.problem
    assert isinstance(problem, GemmProblem)
    assert (problem.m, problem.n, problem.k, problem.ldd, problem.d_type) == (128, 128, 128, 128, "f32_r")
    assert (problem.trans_a, problem.compute_type, problem.beta, read.solution) == ("N", "f32_r", "zero", None)
    # the line gives no precision, and the default has changed
    assert gemm("$ hipblaslt-bench -m 8 -n 8 -k 8 -v").a_type is None


def test_a_typed_layout_is_raised_to_the_least_one_as_the_tool_does() -> None:
    line = "hipblaslt-bench -m 256 -n 64 -k 32 --transA T --precision f16_r --batch_count 4 -v"
    wanted = gemm(line)
    assert (wanted.lda, wanted.stride_a, wanted.ldd, wanted.stride_d) == (32, 32 * 256, 256, 256 * 64)
    assert gemm(f"{line} --lda 0 --ldb 31 --ldc 0 --ldd 0 --stride_a 0 --stride_b 7") == wanted
    assert gemm(f"{line} --any_stride --stride_a 0").stride_a == 0
    assert gemm(f"{line} --lda 40 --stride_b 5000").lda == 40
    assert gemm(f"{line} --lda 40 --stride_b 5000").stride_a == 40 * 256
    assert gemm(f"{line} --lda 40 --stride_b 5000").stride_b == 5000


def test_what_an_edited_line_lacks() -> None:
    line = texts.bench(Launch(a="f8_r", d="f8_r")).split(" --activation_type")[0].replace("--scaleA 0 --scaleB 0", "")
    problem = gemm(line)
    assert (problem.activation, problem.scale_a, problem.scale_c) == (None, None, "none")


@pytest.mark.parametrize(
    ("flag", "word"),
    [
        ("--scaleA", "scalar"),
        ("--scaleA s", "scalar"),
        ("--scaleA v", "row"),
        ("--scaleA 2", "row"),
        ("--scaleA 3", "block32"),
    ],
)
def test_scales(flag: str, word: str) -> None:
    assert gemm(texts.bench(Launch()).replace("--scaleA 0", flag)).scale_a == word


def test_a_type_that_the_library_cannot_name() -> None:
    problem = gemm(texts.bench(Launch(epilogue="BIAS")).replace("--bias_type bf16_r ", "--bias_type  "))
    assert problem.bias_type == "bf16_r"  # D's type is the default
    assert gemm(texts.bench(Launch()).replace("--d_type bf16_r", "--d_type ")).d_type is None


@pytest.mark.parametrize(
    "line",
    [
        "hipblaslt-bench --api_methodhipblaslt-bench --api_method c -m 1",
        texts.bench(Launch())[:150],
        texts.bench(Launch()).removesuffix("--iters 0 "),
        texts.bench(Launch()).replace("--lda 64", "--lda"),
        texts.bench(Launch()).replace("--lda 64", "--lda 64 --lda 64"),
        texts.bench(Launch()).replace("-m 96", "-m 96 -m 96"),
        texts.bench(Launch()).replace("bf16_r", "bf1", 1),
        texts.bench(Launch()).replace("--transA T", "--transA X"),
        texts.bench(Launch()) + "stray",
        "./hipblaslt-bench --api_method c \\",
    ],
)
def test_torn_lines_are_rejects(line: str) -> None:
    outcome = bench.read(line)
    assert outcome.unit == "reject", outcome


def test_what_is_no_command() -> None:
    assert bench.read("please run hipblaslt-bench first").unit == "foreign"
    assert bench.read("./hipblaslt-bench --yaml list.yaml").unit == "message"


@pytest.mark.parametrize(
    ("line", "starts"),
    [
        ("hipblaslt-bench -m 1", [0]),
        ("     12 hipblaslt-bench -m 1", [8]),
        ("$ A=1 B=2 /opt/rocm/bin/hipblaslt-bench -m 1", [0]),
        ("9/20 [00:01<00:01, 6.5it/s]hipblaslt-bench -m 1", [27]),
        ("hipblaslt-bench --api_methodhipblaslt-bench --api_method c", [0, 28]),
        ("run hipblaslt-bench", []),
    ],
)
def test_where_a_record_begins(line: str, starts: list[int]) -> None:
    assert [match.start() for match in re.finditer(bench.FORMAT.start, line.encode())] == starts


sizes = st.integers(1, 10**6)
kinds = st.sampled_from(["f16_r", "bf16_r", "f32_r", "f8_r", "i8_r"])
epilogues = st.sampled_from(sorted(EPILOGUES)).map(lambda name: EPILOGUES[name]._asdict())


@st.composite
def problems(draw: st.DrawFn) -> GemmProblem:
    batch = draw(st.sampled_from([1, 2, 64]))
    fields = {name: draw(sizes) for name in ("lda", "ldb", "ldc", "ldd")}
    fields |= {f"stride_{x}": draw(st.integers(0, 2**40)) for x in "abcd"}
    members = draw(st.lists(st.builds(Member, **dict.fromkeys(("m", "n", "k", *fields), sizes)), max_size=3))
    if not members:
        fields |= {name: draw(sizes) for name in "mnk"}
    tail = draw(epilogues)
    return GemmProblem(
        **({} if members else fields),
        **tail,
        members=tuple(members),
        trans_a=draw(st.sampled_from("NT")),
        trans_b=draw(st.sampled_from("NT")),
        batch_count=batch,
        batch_mode="strided" if members else draw(st.sampled_from(["strided", "pointer"])),
        **{f"{x}_type": draw(kinds) for x in "abcd"},
        compute_type=draw(st.sampled_from(["f32_r", "xf32_r", "f32_bf16_r"])),
        scale_type="f32_r",
        bias_type=draw(kinds),
        aux_type=draw(kinds),
        scale_a=draw(st.sampled_from(["none", "scalar", "row", "block32"])),
        scale_b=draw(st.sampled_from(["none", "scalar", "row"])),
        scale_c=draw(st.sampled_from(["none", "scalar"])),
        scale_d=draw(st.sampled_from(["none", "scalar"])),
        scale_alpha_vector=draw(st.booleans()),
        swizzle_a=draw(st.booleans()),
        swizzle_b=draw(st.booleans()),
        compute_input_a_type=draw(kinds),
        compute_input_b_type=draw(kinds),
        sm_count=0,
        beta=draw(st.sampled_from(["zero", "nonzero"])),
    )


def test_types_that_operands_are_converted_to_make_another_problem() -> None:
    line = texts.bench(Launch())
    given = line.replace(" --algo_method", " --compute_input_typeA f8_r --compute_input_typeB bf8_r --algo_method")
    plain, converted = call(line).problem, call(given).problem
    assert isinstance(converted, GemmProblem)
    assert find_link_level(plain, converted) is None
    assert converted.text == plain.text + " input=f8_r,bf8_r"
    assert "--compute_input_typeA f8_r --compute_input_typeB bf8_r" in bench.command(converted)
    assert "compute_input" not in bench.command(plain)


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("-r h --compute_type s", "-r f16_r --compute_type f32_r"),
        ("-r d --compute_type d", "-r f64_r --compute_type f64_r"),
        ("-r s --compute_type x", "-r f32_r --compute_type xf32_r"),
        ("--a_type i8 --b_type i8 --c_type i --d_type i --compute_type i",
         "--a_type i8_r --b_type i8_r --c_type i32_r --d_type i32_r --compute_type i32_r"),
    ],
)  # fmt: skip
def test_two_words_of_one_type_are_one_problem(short: str, full: str) -> None:
    one, other = (call(f"./hipblaslt-bench -m 64 -n 32 -k 16 {x}") for x in (short, full))
    assert one.problem.text == other.problem.text


@given(problems())
def test_command_reads_back(problem: GemmProblem) -> None:
    read = call(bench.command(problem, Solution("hipblaslt", "77")))
    assert read.problem.text == problem.text
    assert read.solution == Solution("hipblaslt", "77")
    assert call(f"{bench.command(problem)} --print_kernel_info").by_tool


@pytest.mark.parametrize("path", sorted((SAMPLES / "forms").glob("bench_*")), ids=lambda path: path.name)
def test_command_of_every_sample_reads_back(path: Path) -> None:
    for read in sample(path.name):
        assert isinstance(read.problem, GemmProblem)
        assert call(bench.command(read.problem, read.solution)).problem.text == read.problem.text


def test_written_options_for_scales_have_a_value() -> None:
    """If logparse writes a hipblaslt-bench command, each option for a scale has a value, for example ``--scaleD 1``.

    hipBLASLt logs ``--scaleD`` without a value, but its own tool of ROCm 7.2.4 then fails: "Invalid value for
    --scaleD".
    """
    one = sample("bench_rotating.log")[0].problem
    assert isinstance(one, GemmProblem)
    command = bench.command(replace(one, scale_c="none", scale_d="scalar"))
    assert " --scaleD 1 " in command
    assert "--scaleC" not in command
    assert call(command).problem == call(command.replace("--scaleD 1 ", "--scaleD ")).problem


def test_command_needs_the_shape() -> None:
    with pytest.raises(EmissionError, match="transA"):
        bench.command(GemmProblem(m=1, n=1, k=1))


@pytest.mark.parametrize("more", ["--adaptive", "--adaptive --adaptive_noise 0.01", "--adaptive_min_iters 10 -v"])
def test_options_of_adaptive_timing_cost_no_call(more: str) -> None:
    typed = "./hipblaslt-bench -m 64 -n 32 -k 16 -r bf16_r"
    assert call(f"{typed} {more}").problem == call(typed).problem
    assert call(texts.bench(Launch()).replace("--iters 0", f"{more} --iters 5")).by_tool


@pytest.mark.parametrize("kind", ["f4_r", "f6_r", "bf6_r"])
def test_missing_scales_of_block_types_are_unknown(kind: str) -> None:
    """If a data type needs scales per block but the log line states none, the scales are stored as unknown."""
    # A remark says so. hipBLASLt builds of 2026 do not log these scales. The hipblaslt-bench command that logparse
    # writes for the product still has a scale, because the types need one.
    line = texts.bench(Launch()).replace("--a_type bf16_r --b_type bf16_r", f"--a_type {kind} --b_type {kind}")
    read, message = bench.read(line).records
    assert isinstance(read, Call)
    assert isinstance(message, Message)
    assert isinstance(read.problem, GemmProblem)
    assert (read.problem.scale_a, read.problem.scale_b) == (None, None)
    assert library_errors.meaning(message.text)
    scaled = call(line.replace("--scaleA 0 --scaleB 0", "--scaleA 3 --scaleB 3")).problem
    assert isinstance(scaled, GemmProblem)
    assert find_link_level(read.problem, scaled) in ("layout", "shape")
    assert "--scaleA 3 --scaleB 3" in bench.command(read.problem)
    (plain,) = bench.read(texts.bench(Launch())).records
    assert isinstance(plain, Call)
    assert "--scaleA 0 --scaleB 0" in bench.command(plain.problem)
    (mixed, _) = bench.read(line.replace(f"--b_type {kind}", "--b_type f8_r")).records
    assert isinstance(mixed, Call)
    assert "scale=?,?" in mixed.problem.text


def test_8_bit_products_logged_without_scale_have_unknown_scales() -> None:
    """If hipBLASLt logs an 8-bit matrix product without scales, the product may still have had scales."""
    # hipBLASLt builds of 2026 do not log scales per block (MX), see rocm-libraries 12024. So logparse stores "unknown"
    # and not "none". FNUZ types, the 8-bit types of gfx942, cannot have such scales. So for them "none" is stored.

    def of(kind: str, scales: str = "--scaleA 0 --scaleB 0") -> str:
        given = f"--a_type {kind} --b_type {kind}"
        line = texts.bench(Launch()).replace("--a_type bf16_r --b_type bf16_r", given)
        return line.replace("--scaleA 0 --scaleB 0", scales)

    logged, message = bench.read(of("f8_r")).records
    assert isinstance(logged, Call)
    assert isinstance(message, Message)
    assert "scale=?,?" in logged.problem.text
    assert library_errors.meaning(message.text)
    for scales in ("--scaleA 3 --scaleB 3", "--scaleA 1 --scaleB 1"):
        [stated] = bench.read(of("f8_r", scales)).records
        assert isinstance(stated, Call)
        assert find_link_level(logged.problem, stated.problem) in ("layout", "shape")
    [of_gfx942] = bench.read(of("f8_fnuz_r")).records
    assert isinstance(of_gfx942, Call)
    assert "scale=none,none" in of_gfx942.problem.text, "gfx942 has no products that are scaled in blocks"
    typed = call("./hipblaslt-bench -m 64 -n 32 -k 16 --a_type f8_r --b_type f8_r --c_type bf16_r --d_type bf16_r")
    assert "scale=none,none" in typed.problem.text
    assert isinstance(logged.problem, GemmProblem)
    assert "--scaleA 0 --scaleB 0" in bench.command(logged.problem), "every build has a solution without scales"
