"""Each broken rule of a rocBLAS override CSV is named, and lint agrees with Tensile's own way of reading it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.overrides.lint import format_of, inspect
from analyzers.overrides.look_up import look_up
from logparse.formats.override_format import OverrideFile
from logparse.formats.rocblas import logs as rocblas
from logparse.formats.rocblas.rules import OVERRIDE_FORMAT, key
from logparse.model import Call, GemmProblem, Message, Override, Solution, problem_from_text
from tests.analyzers.example import gemm
from tests.conftest import CORPUS, SAMPLES, needs_corpus
from tests.formats.test_rocblas import TARGET, problems

HEAD = "transA,transB,M,N,batch_count,K,alpha,beta,lda,ldb,ldc,input_type,output_type,compute_type,solution_index\n"
ROW = "N,T,320,588,1,4096,1,0,320,588,320,f16_r,f16_r,f32_r,3788\n"
BATCH = "N,N,80,48,6,64,1,0,80,64,80,5120,3072,3840,f32_r,f32_r,f32_r,12\n"


def judged(text: str) -> OverrideFile:
    return inspect("o.csv", text.encode("utf-8", "surrogatepass"), {}, "rocblas-tune")


def rules(text: str) -> list[tuple[int | None, str, str]]:
    return [(note.line, note.severity, note.rule) for note in judged(text).notes if note.rule != "build"]


def test_what_the_writer_writes_is_clean() -> None:
    one = Override(problem=gemm(ldc=4096), solution=Solution("rocblas", "-3798"), target=TARGET)
    [made] = rocblas.write([one], TARGET)
    file = inspect(made.name, made.data, TARGET)
    assert (file.ok, [note.rule for note in file.notes]) == (True, ["build"])
    (row,) = file.rows
    assert (row.live, row.key, row.solution) == (True, key(one.problem, TARGET), one.solution)
    assert row.problem is not None
    assert row.problem.label == one.problem.label


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
        (HEAD + ROW.replace("320,588,1", "320,588x,1"), [(2, "warning", "number")]),
        (HEAD + ROW.replace("3788", "0"), [(2, "error", "index")]),
        (HEAD + ROW.replace("3788", "-3798"), [(2, "warning", "index")]),
        (HEAD + ROW.replace("3788", "-9"), [(2, "error", "index")]),
        (HEAD + ROW.replace("f16_r,f16_r", "f8_r,f16_r"), [(2, "error", "type")]),
        (HEAD + ROW.replace("f32_r", " f32_r"), [(2, "error", "type")]),
        (HEAD + ROW.replace("320,588,1,", "-320,588,1,"), [(2, "error", "no-call")]),
        (HEAD + ROW.replace("4096,1,0,", "4096,1,nan,"), [(2, "error", "no-call")]),
        (HEAD + ROW.replace("N,T", "n,T"), [(2, "warning", "trans")]),
        ("\ufeff" + ROW, [(1, "warning", "trans")]),
        ("\ufeff" + HEAD + ROW, []),
        (HEAD + BATCH.replace("80,48,6,64", "80,48,1,64"), [(2, "warning", "strides")]),
        (HEAD + ROW + ROW, [(3, "info", "duplicate")]),
        (HEAD + ROW + ROW.replace("3788", "7"), [(2, "error", "conflict"), (3, "error", "conflict")]),
        (HEAD + ROW + ROW.replace("f32_r,3788", "f64_r,3788"), [(3, "info", "duplicate")]),
        (HEAD, [(None, "error", "empty")]),
    ],
)
def test_rules(text: str, wanted: list[tuple[int | None, str, str]]) -> None:
    assert rules(text) == wanted


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


# ------------------------------------------------------------------------------------- Tensile's reader, transcribed

TYPES = {"f16_r": ("h", 2), "bf16_r": ("b", 2), "f32_r": ("s", 4), "f64_r": ("d", 8), "h": ("h", 2), "s": ("s", 4)}


def strtol(text: str) -> int:
    match = re.match(r"[ \t\n\v\f\r]*[+-]?[0-9]+", text)
    if match is None or not -(2**63) <= int(match[0]) < 2**63:
        raise ValueError(text)
    return int(match[0])


def tensile(text: str) -> dict[tuple[object, ...], set[int]]:
    """What Tensile compares → the lines that it would use for it (it is not known which of several)."""
    out: dict[tuple[object, ...], set[int]] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if "," not in line or "transA" in line:
            continue
        cells = line.split(",")
        cells = cells[:-1] if cells[-1] == "" else cells
        if len(cells) not in (15, 18):
            continue
        try:
            m, n, b, k = (strtol(x) for x in cells[2:6])
            lda, ldb, ldc = (strtol(x) for x in cells[8:11])
            match = re.match(r"\s*[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf|nan)", cells[7], re.I | re.A)
            if match is None:
                continue
            ta, tb = cells[0] != "N", cells[1] != "N"
            strides = [1, 1, 1]
            if b > 1:
                strides = [lda * (m if ta else k), ldb * (k if tb else n), ldc * n]
            if len(cells) == 18:
                strides = [strtol(x) for x in cells[11:14]]
            index = strtol(cells[-1])
            types = [TYPES[x] for x in cells[-4:-1]]
        except (ValueError, KeyError):
            continue
        if 0 < index < 2**31:
            wide = types[2][1] > types[0][1]
            sizes = [x % 2**64 for x in (m, n, b, k, lda, ldb, ldc, *strides)]
            out.setdefault((ta, tb, types[0][0], types[1][0], wide, float(match[0]), *sizes), set()).add(number)
    return out


def asked(p: GemmProblem) -> tuple[object, ...]:
    """A call as rocBLAS hands it to Tensile."""
    strides = (p.stride_a, p.stride_b, p.stride_c) if p.batch_count != 1 else (1, 1, 1)
    a, d, compute = (TYPES[str(x)] for x in (p.a_type, p.d_type, p.compute_type))
    sizes = (p.m, p.n, p.batch_count, p.k, p.lda, p.ldb, p.ldc)
    return (p.trans_a != "N", p.trans_b != "N", a[0], d[0], compute[1] > a[1], 0.0, *sizes, *strides)


EDITS = ("N", "T", "0", "-", " ", ",", "f16_r", "f64_r", "h", "x", "\r", "1", "\ufeff", "transA", "inf", ".5")


@given(st.lists(problems, min_size=1, max_size=5), st.data())
def test_a_dead_row_serves_no_call_and_a_live_one_its_own(written: list[GemmProblem], data: st.DataObject) -> None:
    """Damaged anywhere: what lint calls dead Tensile does not use, and what Tensile uses lint's key finds."""
    wanted = [Override(problem=p, solution=Solution("rocblas", "-20"), target=TARGET) for p in written]
    lines = rocblas.write(wanted, TARGET)[0].data.decode().split("\n")
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, len(lines) - 1))
        at, cut = data.draw(st.integers(0, len(lines[place]))), data.draw(st.integers(0, 3))
        lines[place] = lines[place][:at] + data.draw(st.sampled_from(EDITS)) + lines[place][at + cut :]
    text = "\n".join(lines)
    if text.startswith("\ufeff"):
        text = text[1:]  # a mark in the middle is a character like another; at the start see test_rules
    file, used = judged(text), tensile(text)
    rows = {row.line: row for row in file.rows}
    for problem in written:
        serving = used.get(asked(problem), set())
        assert not any(rows[line].dead for line in serving)
        assert all(rows[line].key == key(problem, TARGET) for line in serving)


@given(st.text(alphabet="NT,0123456789.-f_rhx \r\n\ufeff", max_size=300))
def test_any_text_is_judged(noise: str) -> None:
    for text in (noise, HEAD + noise, HEAD + ROW + noise):
        file = judged(text)
        assert all(row.live or row.verdicts.why for row in file.rows)


@needs_corpus
def test_a_real_table() -> None:
    lines = (CORPUS / "hipblaslt/rocblas_gemm_tune_yaml_and_csv.log").read_text().splitlines(keepends=True)
    assert rules("".join(lines[2:])) == []


def test_rocblas_own_indices_are_read_after_5_2() -> None:
    """Since rocm-libraries PR 10766 a row may have rocBLAS's own index, which is negative."""
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


def test_of_several_rows_of_one_call_the_latest_counts() -> None:
    """As ``tests/conformance/test_rocblas_files.py`` sees it in the real library."""
    gemm = rocblas.row(ROW.rstrip())
    assert isinstance(gemm, GemmProblem)
    reading = OVERRIDE_FORMAT.reader("o.csv", (HEAD + ROW + ROW.replace("3788", "12")).encode(), {})
    assert look_up(OVERRIDE_FORMAT, reading, gemm).solution == rocblas.solution_of(12)


def test_calls_of_rocblas_sgemm_need_rows_with_strides_of_0() -> None:
    problem = problem_from_text(
        "gemm trans=T,N mnk=33,96,64 batch=1,- ld=67,67,-,33 stride=0,0,-,0 type=f32_r,f32_r,-,f32_r "
        "compute=f32_r,? activation=none,0 aux=0,- bias=0,-,- scale=-,-,-,-,0 swizzle=-,- beta=zero"
    )
    for strides, plain in (("", False), ("0,0,0,", True), ("1,1,1,", False), ("0,0,1,", None)):
        row = f"T,N,33,96,1,64,1,0,67,67,33,{strides}f32_r,f32_r,f32_r,11"
        reading = OVERRIDE_FORMAT.reader("file", f"{HEAD}{row}\n".encode(), {})
        report = OVERRIDE_FORMAT.reported("file", reading, [(rocblas.PLAIN, problem.text)])[problem.text]
        assert (look_up(OVERRIDE_FORMAT, reading, problem, key=report.key).row is not None) == (plain is True)
        assert (look_up(OVERRIDE_FORMAT, reading, problem).row is not None) == (plain is False)


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
        ("gemm_strided_batched_ex", STRIDES, "N", "f32_r", ["8704,4096,2048,"]),
        ("gemm_batched_ex", {}, "N", "f32_r", []),
        ("gemm_ex", {}, "T", "f32_c", ["", "1,1,1,"]),
        ("gemm_ex", {}, "C", "f32_c", []),
        ("gemm_ex", {}, "C", "f32_r", ["", "1,1,1,"]),
    ],
)
def test_rows_that_a_logged_call_finds(
    function: str, strides: dict[str, str], trans: str, kind: str, served: list[str]
) -> None:
    """As rocBLAS 5.2 was seen to take them: also of one product, each function has a row of its own or none."""
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
