"""Tests of rocBLAS's override files (CSV): ``logparse lint`` names each broken rule.

The tests also check that logparse finds the same row for a call as rocBLAS.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzers.overrides.lint import format_of, inspect, lines
from analyzers.overrides.look_up import look_up
from logparse.libraries.kinds.override_format import OverrideFile
from logparse.libraries.rocblas import logs as rocblas
from logparse.libraries.rocblas.rules import OVERRIDE_FORMAT, key
from logparse.model import Call, Message, Solution
from tests.analyzers.example import gemm
from tests.conftest import CORPUS, SAMPLES, needs_corpus

HEAD = "transA,transB,M,N,batch_count,K,alpha,beta,lda,ldb,ldc,input_type,output_type,compute_type,solution_index\n"
ROW = "N,T,320,588,1,4096,1,0,320,588,320,f16_r,f16_r,f32_r,3788\n"
BATCH = "N,N,80,48,6,64,1,0,80,64,80,5120,3072,3840,f32_r,f32_r,f32_r,12\n"


def inspect_text(text: str) -> OverrideFile:
    return inspect("o.csv", text.encode("utf-8", "surrogatepass"), {}, "rocblas-tune")


def rules(text: str) -> list[tuple[int | None, str, str]]:
    return [(note.line, note.severity, note.rule) for note in inspect_text(text).notes if note.rule != "build"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (HEAD + ROW + BATCH, []),
        (HEAD.replace("\n", "\r\n") + ROW.replace("\n", "\r\n"), []),
        (HEAD + ROW.replace("\n", ",\n"), []),
        (HEAD + ROW.replace(",3788", ",3788,1"), [(2, "error", "15-or-18-values")]),
        (HEAD + ROW.replace("320,588,1", "320,x,1"), [(2, "error", "number")]),
        (HEAD + ROW.replace("320,588,1", "320,,1"), [(2, "error", "number")]),
        (HEAD + ROW.replace("320,588,1", "320,9223372036854775808,1"), [(2, "error", "number")]),
        (HEAD + ROW.replace("3788", "2147483648"), [(2, "error", "number")]),
        (HEAD + ROW.replace("320,588,1", "320,588x,1"), []),
        (HEAD + ROW.replace("3788", "0"), [(2, "error", "index")]),
        (HEAD + ROW.replace("3788", "-3798"), [(2, "warning", "index")]),
        (HEAD + ROW.replace("3788", "-9"), [(2, "error", "index")]),
        (HEAD + ROW.replace("f16_r,f16_r", "f8_r,f16_r"), [(2, "error", "type")]),
        (HEAD + ROW.replace("f32_r", " f32_r"), [(2, "error", "type")]),
        (HEAD + ROW.replace("320,588,1,", "-320,588,1,"), [(2, "error", "no-call")]),
        (HEAD + ROW.replace("4096,1,0,", "4096,1,nan,"), [(2, "error", "no-call")]),
        (HEAD + ROW.replace("N,T", "n,T"), [(2, "warning", "trans")]),
        (HEAD + ROW.replace("N,T", "N, T"), []),  # Tensile reads T, as it is meant
        ("\ufeff" + ROW, [(1, "warning", "trans")]),
        ("\ufeff" + HEAD + ROW, []),
        (HEAD + BATCH.replace("80,48,6,64", "80,48,1,64"), [(2, "warning", "strides")]),
        (HEAD + ROW + ROW, []),
        (HEAD + ROW + ROW.replace("3788", "7"), [(2, "error", "conflict"), (3, "error", "conflict")]),
        (HEAD + ROW + ROW.replace("f32_r,3788", "f64_r,3788"), []),
        (HEAD, [(None, "error", "empty")]),
    ],
)
def test_rules(text: str, wanted: list[tuple[int | None, str, str]]) -> None:
    assert rules(text) == wanted


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (HEAD + ROW.replace("N,T", "N, N"), "in capitals and without blanks"),
        ("\ufeff" + ROW, "save the file without a byte order mark"),
    ],
)
def test_a_row_that_tensile_reads_as_another_product_has_a_fault(text: str, remedy: str) -> None:
    file = inspect_text(text)
    summary, *_ = lines(file)
    assert summary.endswith("1 of 1 rows are usable, 1 of them with a fault")
    (note,) = (note for note in file.notes if note.rule == "trans")
    assert note.remedy.endswith(remedy)
    (row,) = file.rows
    assert "as T" in row.verdicts.fault, "so that merge leaves the row out"


def test_recognised() -> None:
    for text in (HEAD + ROW, ROW, "\ufeff" + BATCH):
        assert format_of("x.csv", text.encode()).name == "rocblas-tune"
    assert format_of("t.txt", (SAMPLES / "hipblaslt/tuning_7.0.txt").read_bytes()).name == "hipblaslt-tuning-file"


def test_a_call_is_compared_as_tensile_does() -> None:
    call = gemm(ldc=4096)
    assert key(call, {}) == key(replace(call, compute_type="f64_r"), {}), "only whether it is wider counts"
    assert key(call, {}) != key(replace(call, compute_type="bf16_r"), {})
    for change in ({"lda": None}, {"beta": "nonzero"}, {"bias": True}, {"a_type": "f8_r", "b_type": "f8_r"}):
        assert key(replace(call, **change), {}) is None  # type: ignore[arg-type]


def test_a_batch_without_strides_lies_tight() -> None:
    tight = ROW.replace("320,588,1,4096", "320,588,3,4096")
    stated = tight.replace(",588,320,f16_r", f",588,320,{320 * 4096},{588 * 4096},{320 * 588},f16_r")
    (one,), (other,) = inspect_text(HEAD + tight).rows, inspect_text(HEAD + stated).rows
    assert one.live
    assert one.key == other.key
    assert inspect_text(HEAD + stated.replace(f",{320 * 588},", ",7,")).rows[0].key != one.key


@needs_corpus
def test_a_real_table() -> None:
    lines = (CORPUS / "hipblaslt/rocblas_gemm_tune_yaml_and_csv.log").read_text().splitlines(keepends=True)
    assert rules("".join(lines[2:])) == []


def test_rocblas_own_indices_are_read_after_5_2() -> None:
    """rocBLAS versions after 5.2 accept a row with a negative index, which names one of rocBLAS's own kernels.

    rocm-libraries PR 10766 added this.
    """
    own = ROW.rpartition(",")[0] + ",-3798\n"
    for version, verdicts in (("5.2.0", (False, "error")), ("5.3.0", (None, "")), ("", (None, "warning"))):
        file = inspect("x.csv", own.encode(), {"rocblas_version": version}, "rocblas-tune")
        (row,) = file.rows
        assert row.solution == Solution("rocblas", "-3798")
        severities = [note.severity for note in file.notes if note.rule == "index"]
        assert (row.verdicts.read, "".join(severities)) == verdicts
        assert bool(row.key) is (version != "5.2.0")
    (between,) = inspect("x.csv", own.replace("-3798", "-7").encode(), {}, "rocblas-tune").rows
    assert (between.solution, between.verdicts.read) == (None, False)


LINE = (
    "./rocblas-bench -f {function} --transposeA T --transposeB {trans} -m 64 -n 32 -k 128 --alpha 1 --a_type {kind} "
    "--lda 136 {a}--b_type {kind} --ldb 128 {b}--beta 0 --c_type {kind} --ldc 64 {c}--d_type {kind} --ldd 64 {d}"
    "--batch_count 1 --compute_type {kind} --algo 0 --solution_index 0 --flags 0"
)
STRIDES = {"a": "--stride_a 8704 ", "b": "--stride_b 4096 ", "c": "--stride_c 2048 ", "d": "--stride_d 2048 "}


@pytest.mark.parametrize(
    ("function", "strides", "trans", "kind", "served"),
    [
        ("gemm_ex", {}, "N", "f32_r", ["", "1,1,1,"]),
        ("gemm_strided_batched_ex", STRIDES, "N", "f32_r", []),
        ("gemm_batched_ex", {}, "N", "f32_r", []),
        ("gemm_ex", {}, "T", "f32_c", ["", "1,1,1,"]),
        ("gemm_ex", {}, "C", "f32_c", []),
        ("gemm_ex", {}, "C", "f32_r", ["", "1,1,1,"]),
    ],
)
def test_a_logged_call_finds_the_same_rows_as_in_rocblas(
    function: str, strides: dict[str, str], trans: str, kind: str, served: list[str]
) -> None:
    """logparse predicts which line of an override file rocBLAS uses for a call in a log.

    rocBLAS 5.2 was seen to use these lines. Even for the same matrix product, each function of rocBLAS uses another
    line or none.
    """
    given = dict.fromkeys("abcd", "") | strides
    outcome = rocblas.read_bench(LINE.format(function=function, trans=trans, kind=kind, **given))
    call, *messages = outcome.records
    assert isinstance(call, Call)
    reports = [(x.function, x.text) for x in messages if isinstance(x, Message)]
    found = []
    for cells in ("", "1,1,1,", "0,0,0,", "8704,4096,2048,"):
        row = f"T,{trans},64,32,1,128,1,0,136,128,64,{cells}{kind},{kind},{kind},11"
        reading = OVERRIDE_FORMAT.reader("file", f"{HEAD}{row}\n".encode(), {})
        report = OVERRIDE_FORMAT.reported("file", reading, reports).get(call.problem.text)
        key_of = report.key if report else None
        found += [cells] * (look_up(OVERRIDE_FORMAT, reading, call.problem, key=key_of).row is not None)
    assert found == served
