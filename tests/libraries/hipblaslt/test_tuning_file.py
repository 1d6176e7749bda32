"""Tests of reading and writing hipBLASLt's tuning files, in both of their layouts.

The keys must equal the library's own keys, and some lines must not be written.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from analyzers.overrides.lint import inspect
from logparse.errors import EmissionError
from logparse.libraries.hipblaslt import tuning_cache, tuning_file
from logparse.libraries.kinds.format import Head, Outcome
from logparse.model import Fact, GemmProblem, Measurement, Message, Override, Reject, Solution, problem_from_text
from tests.conftest import CORPUS, needs_corpus
from tests.libraries.hipblaslt.texts import SAMPLES
from tests.libraries.reading import outcomes

from .test_bench import problems

TARGET = {"hipblaslt_revision": "3b3d59eb", "arch": "gfx942:sramecc+:xnack-", "cu_count": "304"}
OLD, NEW = {**TARGET, "hipblaslt_version": "1201"}, {**TARGET, "hipblaslt_version": "100000-3b3d59eb"}


def read(data: bytes) -> list[Outcome]:
    return outcomes(tuning_file.FORMAT, data)


def read_times(data: bytes) -> list[Measurement]:
    return [record for outcome in read(data) for record in outcome.records if isinstance(record, Measurement)]


def overrides(data: bytes) -> list[Override]:
    return [
        Override(problem=m.problem, solution=m.solution, target=TARGET, time_us=m.time_us, key_text=m.key_text)
        for m in read_times(data)
    ]


def same_but_rounding(one: bytes, other: bytes) -> None:
    """Check that two tuning files have the same values, except for small differences in Gflops and GB/s.

    These two are computed from a time that was rounded to six digits.
    """
    for a, b in zip(one.decode().split("\n"), other.decode().split("\n"), strict=True):
        x, y = a.split(","), b.split(",")
        assert x[:31] + x[33:] == y[:31] + y[33:]
        assert [float(v) for v in x[31:33] if len(x) > 1 and v[0].isdigit()] == pytest.approx(
            [float(v) for v in y[31:33] if v[0].isdigit()], rel=1e-4
        )


def test_old_layout_text_to_text() -> None:
    data = (SAMPLES / "tuning_6.4.txt").read_bytes()
    assert [outcome.unit for outcome in read(data)] == ["fact"] + ["measurement"] * 17
    kept = [o for o in overrides(data) if isinstance(o.problem, GemmProblem) and not o.problem.bias]
    lines = [line for line in data.decode().split("\n") if not any(x in line for x in (",none,1,", ",gelu,1,"))]
    (emission,) = tuning_file.write(kept, OLD)
    same_but_rounding(emission.data, "\n".join(lines).encode())


@needs_corpus
def test_the_real_entry() -> None:
    data = (CORPUS / "hipblaslt" / "tuning_file_6.4_values_only.log").read_bytes()
    facts = {r.name: r.value for outcome in read(data) for r in outcome.records if isinstance(r, Fact)}
    assert facts == {"hipblaslt_revision": "d5f81531", "arch": "gfx942:sramecc+:xnack-", "cu_count": "304"}
    (entry,) = read_times(data)
    assert (entry.solution.text, entry.time_us, entry.origin) == ("hipblaslt:105597", 3910.97, "tuning-file")
    assert entry.key_text == "T,N,1,57344,2048,8192,bf16_r,bf16_r,bf16_r,f32_r"
    (emission,) = tuning_file.write(overrides(data), {**OLD, "hipblaslt_revision": "d5f81531"})
    same_but_rounding(emission.data, data)


def test_both_layouts_hold_the_same() -> None:
    old, new = ((SAMPLES / f"tuning_{v}.txt").read_bytes() for v in ("6.4", "7.0"))
    assert [o.unit for o in read(new)].count("measurement") == [o.unit for o in read(old)].count("measurement") == 17
    assert [(m.key_text, m.solution, m.time_us) for m in read_times(old)] == [
        (m.key_text, m.solution, m.time_us) for m in read_times(new)
    ]


def test_layout_follows_the_target() -> None:
    chosen = overrides((SAMPLES / "tuning_7.0.txt").read_bytes())[:2]
    old, new, unknown = (tuning_file.write(chosen, target)[0] for target in (OLD, NEW, TARGET))
    assert old.data.count(b"\n") == 3
    assert old.data.splitlines()[1].count(b",") == 36
    assert new.data.splitlines()[1].startswith(b"    transA,transB,")
    assert [line for line in new.data.splitlines() if b"transA" not in line] == old.data.splitlines()
    assert unknown.data == new.data
    assert "HIPBLASLT_TUNING_OVERRIDE_FILE={path}" in new.use


@given(problems().filter(lambda p: not p.members))
def test_what_is_written_is_read_back(problem: GemmProblem) -> None:
    override = Override(problem=problem, solution=Solution("hipblaslt", "4711"), target=NEW, time_us=1e11)
    stored = problem_from_text(problem.text)  # as it comes from the store: fields that cannot matter are gone
    for target in (OLD, NEW):
        key = tuning_file.key(problem, target)
        if key is None:
            with pytest.raises(EmissionError):
                tuning_file.write([override], target)
            continue
        (emission,) = tuning_file.write([override], target)
        (entry,) = read_times(emission.data)
        assert (entry.key_text, entry.solution.text, entry.time_us) == (key, "hipblaslt:4711", 1e11)
        if tuning_file.key(stored, target) is not None and problem.beta == "nonzero":
            assert tuning_file.write([replace(override, problem=stored)], target)[0].data == emission.data


def gemm() -> GemmProblem:
    problem = overrides((SAMPLES / "tuning_6.4.txt").read_bytes())[0].problem
    assert isinstance(problem, GemmProblem)
    return problem


def test_the_type_of_c_is_the_type_of_d_if_beta_is_zero() -> None:
    """If β = 0, so that C is not read, logparse writes the type of D as the type of C, also for 8-bit types.

    The library has no kernel for another type of C (``tests/conformance/test_hipblaslt_calls.py``).
    """
    for d_type in ("bf16_r", "f8_fnuz_r", "i8_r"):
        whole = replace(gemm(), c_type=d_type, d_type=d_type)
        stored = problem_from_text(whole.text)
        assert isinstance(stored, GemmProblem)
        assert stored.c_type is None
        assert tuning_file.key(stored, NEW) == tuning_file.key(whole, NEW)
        assert f",{d_type},f32_r" in str(tuning_file.key(whole, NEW))


def test_what_6_4_would_drop() -> None:
    xf32 = replace(gemm(), compute_type="xf32_r")
    assert tuning_file.key(xf32, OLD) is None
    assert tuning_file.key(xf32, NEW) == "T,N,1,12288,8192,4096,bf16_r,bf16_r,bf16_r,xf32_r"


def test_calls_in_16_bit_need_rows_in_32_bit() -> None:
    """If a program asks for 16-bit computation, new hipBLASLt builds look for a kernel chosen for 32 bits (f32_r)."""
    # f32_r means that 32 bits are used for computing, which hipBLASLt then does. Old builds look for a kernel that the
    # user chose for 16 bits (f16_r). The choices are lines of a tuning file.
    asked = replace(gemm(), compute_type="f16_r")
    assert tuning_file.key(asked, NEW) == tuning_file.key(gemm(), NEW) == tuning_file.key(asked, {})
    assert str(tuning_file.key(asked, OLD)).endswith(",f16_r")


@pytest.mark.parametrize("fact", ["hipblaslt_revision", "arch"])
def test_a_fact_that_matters_is_never_guessed(fact: str) -> None:
    override = Override(problem=gemm(), solution=Solution("hipblaslt", "1"), target=TARGET)
    target = {name: value for name, value in TARGET.items() if name != fact}
    with pytest.raises(EmissionError, match=f"--target {fact}="):
        tuning_file.write([override], target)


@pytest.mark.parametrize("field", ["trans_a", "m", "batch_count", "b_type", "compute_type"])
def test_a_field_of_the_key_is_never_guessed(field: str) -> None:
    override = Override(problem=replace(gemm(), **{field: None}), solution=Solution("hipblaslt", "1"), target=TARGET)
    with pytest.raises(EmissionError, match=field):
        tuning_file.write([override], TARGET)


def test_one_key_holds_one_solution() -> None:
    one = Override(problem=gemm(), solution=Solution("hipblaslt", "1"), target=TARGET)
    other = replace(one, problem=replace(gemm(), lda=8192))
    assert tuning_file.write([one, other], OLD)[0].data.count(b"\n") == 2
    with pytest.raises(EmissionError, match="calls that hipBLASLt does not distinguish"):
        tuning_file.write([one, replace(other, solution=Solution("hipblaslt", "2"))], OLD)


@pytest.mark.parametrize("solution", [Solution("hipblaslt", "0"), Solution("hipblaslt", "?"), Solution("rocblas", "3")])
def test_solutions_that_cannot_be_written(solution: Solution) -> None:
    override = Override(problem=gemm(), solution=solution, target=TARGET)
    assert not tuning_file.accepts(override)
    with pytest.raises(EmissionError):
        tuning_file.write([override], TARGET)


def test_nothing_to_write() -> None:
    assert tuning_file.write([], TARGET) == ()


def test_bad_entries() -> None:
    data = (SAMPLES / "tuning_6.4.txt").read_bytes()
    cut = data.replace(b",304\n", b"\n", 1).replace(b",98211,", b",ninety,", 1)
    outcomes = read(cut)
    assert [outcome.unit for outcome in outcomes[:4]] == ["fact", "reject", "reject", "measurement"]
    assert outcomes[2].at == cut.index(b"    N,N,0,1,4096")


def test_recognise() -> None:
    assert tuning_file.recognise(Head("any", b"Git Version: 1\n"))
    assert not tuning_file.recognise(Head("any", b"hipBLASLt git version: 1\n"))


def test_rows_of_the_runtime_tuning_cache() -> None:
    data = (SAMPLES / "tuning_cache.txt").read_bytes()
    found = read_times(data)
    shown = [(x.problem.label, x.solution.id, x.time_us, x.error) for x in found]
    assert shown == [
        ("TN 512×256×128 bf16_r", "77", 5.5, None),
        ("TN 512×256×128 bf16_r", "78", 6.5, None),
        (
            "TN 512×256×128 bf16_r GELU_BIAS",
            "77",
            7.5,
            "hipBLASLt ended this search early, because the time for tuning was used up",
        ),
        ("TN 512×256×128 bf16_r swizzled A 48 SMs", "0", 4.5, None),
    ]
    assert len({x.problem.text for x in found}) == 4, "each column of the problem separates"
    reasons = [r.reason for outcome in read(data) for r in outcome.records if isinstance(r, Reject)]
    assert reasons == [
        "entry of the runtime tuning cache: hipBLASLt build '50015815' measured this entry, but the file names build "
        "3b3d59eb",
        "entry of the runtime tuning cache: no k",
    ]  # fmt: skip


def test_lint_says_what_a_row_of_the_runtime_tuning_cache_is() -> None:
    data = (SAMPLES / "tuning_cache.txt").read_bytes()
    for target in ({}, {"hipblaslt_version": "100500"}):
        judged = inspect("t.txt", data, target)
        assert [(x.rule, x.severity) for x in judged.notes] == [("cache", "info")] * 6
    older = inspect("t.txt", data, {"hipblaslt_version": "100202"})
    assert {x.rule for x in older.notes if x.severity == "error"} == {"columns"}, "its reader drops them"


@pytest.mark.parametrize(
    ("line", "category"),
    [
        ("tuning-cache: summary shapes=12 matched=12 fellback=0 tuned=0 invalidated=0", "hipblaslt_tuning_cache"),
        ("tuning-cache: summary shapes=12 matched=5 fellback=7 tuned=0 invalidated=0", "info"),
        ("tuning-cache: summary shapes=12 matched=5 fellback=0 tuned=0 invalidated=7", "info"),
        ("tuning-cache: mode=cache path=x load=ok loaded=3", "hipblaslt_tuning_cache"),
    ],
)
def test_lines_about_the_runtime_tuning_cache_are_messages(line: str, category: str) -> None:
    (message,) = tuning_cache.read_line(line).records
    assert isinstance(message, Message)
    assert (message.category, message.text) == (category, line)
    assert tuning_cache.read_line(f"the {line}").unit == "foreign"


@pytest.mark.parametrize("kind", ["f32_c", "f64_c"])
def test_complex_types_are_read_by_the_newest_reader(kind: str) -> None:
    text = (SAMPLES / "tuning_7.0.txt").read_text().replace("bf16_r,bf16_r,bf16_r,bf16_r", ",".join([kind] * 4))
    newest, older = (inspect("t.txt", text.encode(), {"hipblaslt_version": x}) for x in ("100500", "100202"))
    assert any(row.live for row in newest.rows)
    assert any(x.rule == "type" for x in older.notes)
