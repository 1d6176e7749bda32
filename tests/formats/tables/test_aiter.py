"""aiter's tables: header generations, the swap to column-major, statuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.formats.format import Head
from logparse.formats.tables import aiter
from logparse.model import Call, Fact, GemmProblem, Measurement, Record, Reject, SolutionName
from tests.conftest import CORPUS, SAMPLES, needs_corpus
from tests.formats.tunableop.source import Memory, from_file, head, outcomes, records

FOLDER = SAMPLES / "tables"


def read(name: str) -> list[Record]:
    source = from_file(FOLDER / name)
    assert aiter.recognise(head(source))
    return records(outcomes(aiter.FORMAT, source))


def measured(found: list[Record]) -> list[Measurement]:
    return [record for record in found if isinstance(record, Measurement)]


def test_rows_become_the_column_major_call() -> None:
    first = measured(read("aiter_bf16_tuned_gemm.csv"))[0]
    assert first.problem == GemmProblem(
        trans_a="T", trans_b="N", m=64, n=8192, k=4096, batch_count=1, lda=4096, ldb=4096, ldc=64, ldd=64,
        a_type="bf16_r", b_type="bf16_r", c_type="bf16_r", d_type="bf16_r", compute_type="f32_r", scale_type="f32_r",
        activation="none", gradient=False, aux=False, bias=False, swizzle_a=False, beta="zero",
    )  # fmt: skip
    assert (first.solution.text, first.time_us, first.origin) == ("hipblaslt:104377", 23.6, "aiter")
    assert first.key_text == "gfx942,304,8192,64,4096,False,torch.bfloat16,torch.bfloat16,False,False"


def test_statuses_and_backends() -> None:
    found = read("aiter_bf16_tuned_gemm.csv")
    assert [(m.solution.text, m.status) for m in measured(found)[1:]] == [
        ("asm:5,splitK=13", "ok"),
        ("torch:0", "failed"),
        ("hipblaslt:heuristic", "unsupported"),
    ]
    (reject,) = [r for r in found if isinstance(r, Reject)]
    assert "'x'" in reject.reason
    assert [n.kernel_name for n in found if isinstance(n, SolutionName)][1] == "_ZN5aiter_splitk"
    assert Fact("arch", "gfx942") in found
    assert Fact("cu_count", "304") in found


def test_a_row_without_its_split_cell_is_not_read_one_column_off() -> None:
    short, full = measured(read("aiter_old_tuned_gemm.csv"))
    assert (short.solution.text, short.time_us) == ("hipblaslt:192883", 10.91)
    assert (full.solution.text, full.time_us) == ("rocblas:-624951541", 12.38)


def test_two_devices_in_one_file_equal_no_target() -> None:
    found = read("a8w8_bpreshuffle_tuned_gemm.csv")
    assert Fact("arch", "gfx942 gfx950") in found
    first, second = measured(found)
    assert isinstance(first.problem, GemmProblem)
    assert isinstance(second.problem, GemmProblem)
    assert (first.problem.a_type, first.problem.b_type, first.problem.compute_type) == ("f8_fnuz_r", None, "f32_r")
    assert (second.problem.a_type, second.problem.compute_type) == ("i8_r", None)


def test_untuned_tables_are_calls_without_a_count() -> None:
    (call,) = [r for r in read("a8w8_untuned_gemm.csv") if isinstance(r, Call)]
    assert (call.category, call.count, call.problem.label) == ("untuned", None, "TN 1280×1×8192 i8_r")


def test_the_online_cache_is_column_major_already_and_has_no_times() -> None:
    first, second = measured(read("hip_online_tuning_res.csv"))
    assert first.problem.label == "TN 1280×64×8192 bf16_r"
    assert (first.solution.text, first.status, first.origin) == ("hipblaslt:104377", "no_time", "aiter-online")
    assert isinstance(second.problem, GemmProblem)
    assert (second.problem.a_type, second.problem.scale_a, second.problem.swizzle_a) == ("f8_fnuz_r", "row", True)


@pytest.mark.parametrize("line", [b"", b"M,N,K", b"a,b,c", b"trans_a,m,n,k,time_us", b"\xff\xfe"])
def test_other_tables_are_left_alone(line: bytes) -> None:
    assert not aiter.recognise(Head("x.csv", line + b"\n1,2,3\n"))


SAMPLE = (FOLDER / "aiter_bf16_tuned_gemm.csv").read_bytes()


@given(st.integers(0, len(SAMPLE)), st.integers(0, 40), st.binary(max_size=12))
def test_damage_anywhere_is_accounted_for(place: int, cut: int, inserted: bytes) -> None:
    source = Memory(SAMPLE[:place] + inserted + SAMPLE[place + cut :])
    assert sum(o.lines for o in outcomes(aiter.FORMAT, source)) == len(list(source.lines()))


@needs_corpus
def test_every_header_generation_of_the_corpus() -> None:
    count = 0
    for path in sorted(CORPUS.glob("tunableop/aiter/*.csv")):
        source = from_file(path)
        assert aiter.recognise(head(source)), path
        found = records(outcomes(aiter.FORMAT, source))
        assert not [r for r in found if isinstance(r, Reject)], path
        rows = [r for r in found if isinstance(r, Measurement | Call)]
        assert len(rows) == len(source.data.decode().splitlines()) - 1
        assert all(m.status == "ok" for m in measured(found)), path
        count += len(rows)
    assert count == 125
