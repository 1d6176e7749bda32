"""Tests of reading rocBLAS's logs, and of reading and writing its override file.

An override file is the user's choice of kernels.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.errors import EmissionError
from logparse.libraries.rocblas import logs as rocblas
from logparse.model import Call, GemmProblem, Measurement, Message, Override, Reject, Solution, Trans
from tests.analyzers.example import plain
from tests.conftest import CORPUS, SAMPLES, needs_corpus
from tests.libraries.reading import read_lines, records, stream

LOG = (SAMPLES / "tables/rocblas.log").read_text().splitlines()
REAL = CORPUS / "realrocm" / "rocblas-5.2"
TARGET = {"rocblas_version": "5.0.0.3b3d59eb"}


def call(text: str) -> Call:
    (record,) = (rocblas.read_bench if "rocblas-bench" in text else rocblas.read_profile)(text).records
    assert isinstance(record, Call), record
    return record


def test_bench_and_profile_give_the_same_problem() -> None:
    bench, profile = call(LOG[0]), call(LOG[6])
    assert bench.problem.text == profile.problem.text
    assert "?" not in bench.problem.text.replace("compute=f32_r,?", "")  # only the scale type is unknown
    assert (bench.category, bench.count, bench.solution) == ("rocblas_bench", 1, None)
    assert (profile.category, profile.count) == ("rocblas_profile", 16)
    assert call(LOG[2]).solution == Solution("rocblas", "-3798")


def test_strided_batched_with_one_precision() -> None:
    problem = call(LOG[3]).problem
    assert problem.label == "NT 80×48×64 b6 f32_r β≠0"
    assert isinstance(problem, GemmProblem)
    assert (problem.stride_a, problem.stride_c, problem.beta, problem.compute_type) == (5120, 3840, "nonzero", "f32_r")


@pytest.mark.parametrize("end", [" --atomics_allowed", " --atomics_not_allowed", " "])
def test_a_line_may_end_with_an_option_without_value(end: str) -> None:
    """A rocBLAS log line may end with an option that has no value, ``--atomics_allowed``.

    rocBLAS 4 and later write it if PyTorch allows atomic operations.
    """
    assert call(LOG[0] + end) == call(LOG[0])


def test_typed_lines() -> None:
    counted = f"{LOG[0]} --atomics_allowed\n{LOG[0]} -i 100\nset -x: {LOG[0]}\n"
    found, _ = read_lines(counted, [rocblas.BENCH])
    calls = [one for one in found if isinstance(one, Call)]
    assert [(one.count, one.by_tool, one.category) for one in calls] == [
        (1, False, "rocblas_bench"), (1, True, "rocblas_bench"), (1, False, "rocblas_bench"),
    ]  # fmt: skip
    assert len({one.problem for one in calls}) == 1


def test_a_typed_leading_dimension_is_raised_to_the_least_one_as_the_tool_does() -> None:
    small = re.sub(r"--ld([abc]) \d+", r"--ld\1 0", LOG[0])
    assert small != LOG[0]
    assert call(f"{small} -i 100").problem == call(f"{LOG[0]} -i 100").problem
    assert call(small).problem != call(LOG[0]).problem


@pytest.mark.parametrize(
    ("beta", "wanted"),
    [("0", "zero"), ("-0", "zero"), ("1e-05", "nonzero"), ("inf", "nonzero"), ("nan", None), ("-nan", None),
     ("0 --betai 1", "nonzero"), ("0 --betai 0", "zero")],
)  # fmt: skip
def test_beta_is_unknown_where_rocblas_has_no_value(beta: str, wanted: str | None) -> None:
    problem = call(LOG[3].replace("--beta 0.5", f"--beta {beta}")).problem
    assert isinstance(problem, GemmProblem)
    assert problem.beta == wanted


@pytest.mark.parametrize("line", [LOG[4], LOG[7]])
def test_other_functions_are_messages(line: str) -> None:
    outcome = (rocblas.read_bench if "bench" in line else rocblas.read_profile)(line)
    (record,) = outcome.records
    assert outcome.unit == "message"
    assert isinstance(record, Message)
    assert record.function in ("axpy", "rocblas_dgemv")


@pytest.mark.parametrize(
    "line",
    [
        LOG[5],
        LOG[8],
        "./rocblas-bench -f gemm './x",
        "./rocblas-bench -f gemm -m -n 4 -k",
        f"{LOG[0][:-2]} --atomics_allowed",
    ],
)
def test_torn_lines_are_rejects(line: str) -> None:
    outcome = (rocblas.read_bench if "bench" in line else rocblas.read_profile)(line)
    (record,) = outcome.records
    assert isinstance(record, Reject)
    assert record.length == len(line)


def test_the_tuning_table_ends_at_the_first_line_that_is_no_row() -> None:
    taken, _ = stream(rocblas.TUNE, "\n".join(LOG[9:]).encode())
    assert [o.unit if o else None for o in taken] == ["message", "measurement", "measurement", "reject", None]
    plain, strided = (r for r in records([o for o in taken if o]) if isinstance(r, Measurement))
    assert plain.solution == Solution("rocblas", "-3798")
    assert (plain.status, plain.key_text) == ("no_time", LOG[10].rpartition(",")[0])
    assert isinstance(strided.problem, GemmProblem)
    assert (strided.problem.batch_count, strided.problem.stride_c) == (1024, 10816)


def overrides() -> list[Override]:
    taken, _ = stream(rocblas.TUNE, "\n".join(LOG[9:12]).encode())
    rows = [r for r in records([o for o in taken if o]) if isinstance(r, Measurement)]
    return [Override(problem=r.problem, solution=r.solution, target=TARGET) for r in rows]


def test_the_override_file_is_written_back_byte_for_byte() -> None:
    given_ = overrides()
    assert all(rocblas.accepts(o) for o in given_)
    (file,) = rocblas.write(given_, TARGET)
    assert file.data.decode().splitlines() == [LOG[9], *sorted(LOG[10:12])]


def test_what_tensile_matches_is_never_guessed() -> None:
    good = overrides()[0]
    assert isinstance(good.problem, GemmProblem)
    with pytest.raises(EmissionError, match="rocblas_version"):
        rocblas.write([good], {})
    with pytest.raises(EmissionError, match="rocblas_version"):
        rocblas.write([good], {"rocblas_version": "4.4.0"})
    with pytest.raises(EmissionError, match="its beta's value is unknown"):
        rocblas.write([replace(good, problem=replace(good.problem, beta="nonzero"))], TARGET)
    with pytest.raises(EmissionError, match="its lda is unknown"):
        rocblas.write([replace(good, problem=replace(good.problem, lda=None))], TARGET)
    strided = overrides()[1].problem
    assert isinstance(strided, GemmProblem)
    batched = replace(good, problem=replace(strided, stride_c=None, stride_d=None))
    with pytest.raises(EmissionError, match="its stride_c is unknown"):
        rocblas.write([batched], TARGET)
    assert rocblas.key(replace(good.problem, beta=None), TARGET) is None
    for solution in (Solution("hipblaslt", "3"), Solution("rocblas", "-9"), Solution("rocblas", "12")):
        assert not rocblas.accepts(replace(good, solution=solution))


SINGLE = (
    "./rocblas-bench -f gemm -r f32_r --transposeA T --transposeB N -m 33 -n 96 -k 64 --alpha 1 --lda 67 --ldb 67 "
    "--beta 0 --ldc 33 "
)


def test_each_function_of_a_product_gets_a_row() -> None:
    """logparse writes two lines to rocBLAS's override file if two functions can compute the matrix product.

    An override file is the user's choice of kernels. ``tests/conformance/test_rocblas_files.py`` shows that rocBLAS 5.2
    uses both lines.
    """
    call, message = rocblas.read_bench(SINGLE).records
    assert isinstance(call, Call)
    assert message == Message(category="rocblas_bench", function=rocblas.PLAIN, text=call.problem.text)
    wanted = Override(problem=call.problem, solution=Solution("rocblas", "-21"), target=TARGET)
    (file,) = rocblas.write([wanted], TARGET)
    assert file.data.decode().splitlines()[1:] == [
        "T,N,33,96,1,64,1,0,67,67,33,0,0,0,f32_r,f32_r,f32_r,11",
        "T,N,33,96,1,64,1,0,67,67,33,f32_r,f32_r,f32_r,11",
    ]
    mixed = replace(call.problem, d_type="f32_r", a_type="bf16_r", b_type="bf16_r")  # type: ignore[arg-type]
    (file,) = rocblas.write([replace(wanted, problem=mixed)], TARGET)
    assert len(file.data.splitlines()) == 2


def test_the_misspelt_type_of_its_logs_is_read_as_the_override_file_spells_it() -> None:
    text = (
        "./rocblas-bench -f gemm_ex --transposeA N --transposeB T -m 7 -n 16 -k 1 --alpha 1 --a_type i8_r --lda 7 "
        "--b_type i8_r --ldb 16 --beta 0 --c_type i_r32 --ldc 7 --d_type i_r32 --ldd 7 --compute_type i_r32 --algo 0 "
        "--solution_index 0 --flags 0 "
    )
    (call,) = rocblas.read_bench(text).records
    assert isinstance(call, Call)
    assert rocblas.key(call.problem, TARGET) == "N,T,7,16,1,1,1,0,7,16,7,i8_r,i32_r,i32_r"


trans: st.SearchStrategy[Trans] = st.sampled_from(["N", "T"])
size = st.integers(1, 1 << 20)
problems = st.builds(
    lambda ta, tb, n, dtype, compute, batch, strides: plain(
        trans_a=ta, trans_b=tb, m=n[0], n=n[1], k=n[2], lda=n[3], ldb=n[4], ldc=n[5], ldd=n[5], batch_count=batch,
        batch_mode="strided" if batch > 1 else None, a_type=dtype, b_type=dtype, c_type=dtype, d_type=dtype,
        compute_type=compute, beta="zero", bias=False, activation="none", gradient=False, aux=False,
        scale_alpha_vector=False,
        **(dict(zip(("stride_a", "stride_b", "stride_c"), strides, strict=True)) if batch > 1 else {}),
    ),
    trans, trans, st.tuples(*[size] * 6), st.sampled_from(["f16_r", "bf16_r", "f32_r"]), st.just("f32_r"),
    st.integers(1, 64), st.tuples(*[size] * 3),
)  # fmt: skip


@given(st.lists(st.tuples(problems, st.integers(11, 1 << 30)), max_size=5, unique_by=lambda x: x[0]))
def test_object_to_text_to_object(entries: list[tuple[GemmProblem, int]]) -> None:
    wanted = [Override(problem=p, solution=Solution("rocblas", str(-i)), target=TARGET) for p, i in entries]
    (file,) = rocblas.write(wanted, TARGET)
    taken, _ = stream(rocblas.TUNE, file.data)
    got = [r for r in records([o for o in taken if o]) if isinstance(r, Measurement)]
    assert {(r.problem, r.solution) for r in got} == {(o.problem, o.solution) for o in wanted}


@needs_corpus
def test_the_corpus() -> None:
    for line in (CORPUS / "hipblaslt/rocblas_profile_layer4_pr444.log").read_text().splitlines():
        assert rocblas.read_profile(line).unit == "message"
    lines = (CORPUS / "hipblaslt/rocblas_gemm_tune_yaml_and_csv.log").read_text().splitlines()
    assert [call(line).problem.label for line in lines[:2]] == ["NN 320×588×4096 f32_r", "NN 512×3096×512 f16_r"]
    assert call(lines[0]).count is None
    taken, _ = stream(rocblas.TUNE, "\n".join(lines[2:]).encode())
    assert [o.unit for o in taken if o] == ["message", "measurement", "measurement"]


@needs_corpus
def test_the_real_library_logs_the_same_calls_in_both() -> None:
    formats = (rocblas.BENCH, rocblas.PROFILE)
    (bench, units), (profile, _) = (
        read_lines((REAL / f"rb_{x}.log").read_bytes(), formats) for x in ("bench", "profile")
    )
    of_bench, of_profile = ({x.problem.text for x in found if isinstance(x, Call)} for found in (bench, profile))
    assert of_bench == of_profile
    assert (units["call"], units["foreign"], units["reject"]) == (4, 0, 0)


@pytest.mark.parametrize("count", ["9" * 5001, "-1", "\N{ARABIC-INDIC DIGIT THREE}", "x"])
def test_a_wrong_number_of_calls_is_rejected(count: str) -> None:
    """A line of rocBLAS's profile log is rejected if its number of calls is no valid number."""
    # The number may have thousands of digits, for which Python's int raises an error. In an earlier version this ended
    # the reading of the whole file.
    line = f'{{ rocblas_function: "rocblas_dgemv", M: 1, N: 1, call_count: {count} }}'
    assert rocblas.read_profile(line).unit == "reject"
    assert rocblas.read_profile(line.replace(count, "3")).unit == "message"


@pytest.mark.parametrize(
    ("comment", "solution"),
    [
        (
            " # source=tensile kernel=Cijk_Ailk_Bljk_SB_MT64x64x8 parent_api=rocblas_sgemm",
            "tensile:Cijk_Ailk_Bljk_SB_MT64x64x8",
        ),
        (" # source=tensile kernel=Cijk_A fallback_from=hipblaslt parent_api=rocblas_strsm", "tensile:Cijk_A"),
        (" # source=hipblaslt parent_api=rocblas_gemm_ex", None),
        ("", None),
    ],
)
def test_a_comment_behind_a_command_names_the_kernel(comment: str, solution: str | None) -> None:
    command = (
        "./rocblas-bench -f gemm_ex --transposeA N --transposeB N -m 64 -n 32 -k 16 --alpha 1 --a_type f32_r --lda 64 "
        "--b_type f32_r --ldb 16 --beta 0 --c_type f32_r --ldc 64 --d_type f32_r --ldd 64 --compute_type f32_r "
        "--algo 0 --solution_index 0 --flags 0"
    )
    (read,) = rocblas.read_bench(command + comment).records
    (bare,) = rocblas.read_bench(command).records
    assert isinstance(read, Call)
    assert isinstance(bare, Call)
    assert (read.problem, read.by_tool) == (bare.problem, False)
    assert (read.solution and read.solution.text) == solution


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("-r h", "-r f16_r"), ("-r S", "-r f32_r"), ("-r d", "-r f64_r"), ("-r c", "-r f32_c"),
        ("--a_type h --b_type h --c_type s --d_type s --compute_type s",
         "--a_type f16_r --b_type f16_r --c_type f32_r --d_type f32_r --compute_type f32_r"),
    ],
)  # fmt: skip
def test_two_words_of_one_type_are_one_problem(one: str, other: str) -> None:
    typed = "./rocblas-bench -f gemm_ex --transposeA N --transposeB T -m 64 -n 32 -k 16 --lda 64 --ldb 32 --ldc 64"
    first, second = (rocblas.read_bench(f"{typed} {x}").records[0] for x in (one, other))
    assert isinstance(first, Call)
    assert isinstance(second, Call)
    assert first.problem.text == second.problem.text


@pytest.mark.parametrize(
    ("flag", "compute"), [("", "f32_r"), (" --math_mode 0", "f32_r"), (" --math_mode 1", "xf32_r")]
)
def test_the_math_mode_of_a_command_is_part_of_the_product(flag: str, compute: str) -> None:
    command = (
        "./rocblas-bench -f gemm_ex --transposeA N --transposeB T -m 96 -n 40 -k 24 --alpha 1 --a_type f32_r --lda 96 "
        "--b_type f32_r --ldb 40 --beta 0 --c_type f32_r --ldc 96 --d_type f32_r --ldd 96 --compute_type f32_r"
    )
    [call] = rocblas.read_bench(command + flag).records
    assert isinstance(call, Call)
    assert isinstance(call.problem, GemmProblem)
    assert call.problem.compute_type == compute
