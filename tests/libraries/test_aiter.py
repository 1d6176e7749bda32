"""Tests of reading and writing aiter's tables of tuned kernels, with the headers of all versions.

aiter's matrices are row-major, so they are converted to column-major matrix products.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.errors import EmissionError
from logparse.libraries.aiter import tables as aiter
from logparse.libraries.kinds.format import Head
from logparse.model import Call, Fact, GemmProblem, Measurement, Override, Record, Reject, Solution, SolutionName
from tests.analyzers.example import plain
from tests.conftest import CORPUS, SAMPLES, needs_corpus
from tests.libraries.reading import Memory, from_file, head, outcomes, records

FOLDER = SAMPLES / "tables"


def read(name: str) -> list[Record]:
    source = from_file(FOLDER / name)
    assert aiter.FORMAT.recognise(head(source))
    return records(outcomes(aiter.FORMAT, source))


def keep_measurements(found: list[Record]) -> list[Measurement]:
    return [record for record in found if isinstance(record, Measurement)]


def test_rows_become_the_column_major_call() -> None:
    first = keep_measurements(read("aiter_bf16_tuned_gemm.csv"))[0]
    assert first.problem == plain(
        trans_a="T", trans_b="N", m=64, n=8192, k=4096, batch_count=1, lda=4096, ldb=4096, ldc=64, ldd=64,
        a_type="bf16_r", b_type="bf16_r", c_type="bf16_r", d_type="bf16_r", compute_type="f32_r", scale_type="f32_r",
        activation="none", gradient=False, aux=False, bias=False, beta="zero",
    )  # fmt: skip
    assert (first.solution.text, first.time_us, first.origin) == ("hipblaslt:104377", 23.6, "aiter")
    assert first.key_text == "gfx942,304,8192,64,4096,False,torch.bfloat16,torch.bfloat16,False,False"


def test_statuses_and_backends() -> None:
    found = read("aiter_bf16_tuned_gemm.csv")
    assert [(m.solution.text, m.status) for m in keep_measurements(found)[1:]] == [
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
    short, full = keep_measurements(read("aiter_old_tuned_gemm.csv"))
    assert (short.solution.text, short.time_us) == ("hipblaslt:192883", 10.91)
    assert (full.solution.text, full.time_us) == ("rocblas:-624951541", 12.38)


def test_two_devices_in_one_file_equal_no_target() -> None:
    found = read("a8w8_bpreshuffle_tuned_gemm.csv")
    assert Fact("arch", "gfx942 gfx950") in found
    first, second = keep_measurements(found)
    assert isinstance(first.problem, GemmProblem)
    assert isinstance(second.problem, GemmProblem)
    assert (first.problem.a_type, first.problem.b_type, first.problem.compute_type) == ("f8_fnuz_r", None, "f32_r")
    assert (second.problem.a_type, second.problem.compute_type) == ("i8_r", None)


def test_untuned_tables_are_calls_without_a_count() -> None:
    (call,) = [r for r in read("a8w8_untuned_gemm.csv") if isinstance(r, Call)]
    assert (call.category, call.count, call.problem.label) == ("untuned", None, "TN 1280×1×8192 i8_r")


@pytest.mark.parametrize(
    ("name", "text", "types"),
    [
        ("a8w8_blockscale_untuned_gemm.csv", b"M,N,K\n16, 1536, 7168\n\n", None),
        ("a4w4_blockscale_untuned_gemm_mine.csv", b"\xef\xbb\xbfM,N,K\n16,1536,7168\n", "f4_r"),
        ("bf16_untuned_batched_gemm.csv", b"B,M,N,K\n8, 16, 1536, 7168\n", "bf16_r"),
    ],
)
def test_untuned_tables_of_nothing_but_sizes(name: str, text: bytes, types: str | None) -> None:
    assert aiter.FORMAT.recognise(Head(name, text))
    assert not aiter.FORMAT.recognise(Head("shapes.csv", text)), "any program's list of sizes"
    (call,) = (one for one in records(list(aiter.FORMAT.read(Memory(text, name)))) if isinstance(one, Call))
    assert isinstance(call.problem, GemmProblem)
    sizes = (call.problem.m, call.problem.n, call.problem.k, call.problem.batch_count)
    assert (call.count, sizes) == (None, (1536, 16, 7168, 8 if text.startswith(b"B") else 1))
    assert call.problem.a_type == types


@pytest.mark.parametrize(("arch", "dtype"), [("gfx942", "f8_fnuz_r"), ("gfx950", "f8_r"), ("", None)])
def test_block_scaled_operands_are_the_8_bit_floats_of_the_row_s_arch(arch: str, dtype: str | None) -> None:
    name = "a8w8_blockscale_bpreshuffle_tuned_gemm_dsv3.csv"
    header = b"gfx,cu_num,M,N,K,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n"
    text = header + f"{arch},304,16,512,7168,asm,6,7,7.9,k,14.7,476.9,0.0029\n".encode()
    (row,) = keep_measurements(records(list(aiter.FORMAT.read(Memory(text, name)))))
    assert isinstance(row.problem, GemmProblem)
    assert (row.problem.a_type, row.problem.b_type) == (dtype, dtype)
    assert (row.problem.scale_a, row.problem.scale_b, row.problem.swizzle_a) == ("block128x128", "block128", True)


def test_a_batched_table_with_small_letters() -> None:
    header = b"gfx,b,m,n,k,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n"
    text = header + b"gfx950,2,1,1024,4096,opus,311,1,7.8,opus_bmm_kernel,2.2,1076.95,0.0015\n"
    name = "batched_gemm_a8w8_blockscale_mxscale_tuned.csv"
    assert aiter.FORMAT.recognise(Head(name, text))
    (row,) = keep_measurements(records(list(aiter.FORMAT.read(Memory(text, name)))))
    assert isinstance(row.problem, GemmProblem)
    assert (row.problem.m, row.problem.n, row.problem.k, row.problem.batch_count) == (1024, 1, 4096, 2)
    assert (row.solution.text, row.time_us) == ("opus:311,splitK=1", 7.8)


@pytest.mark.parametrize("line", [b"", b"M,N,K", b"a,b,c", b"trans_a,m,n,k,time_us", b"\xff\xfe"])
def test_other_tables_are_left_alone(line: bytes) -> None:
    assert not aiter.FORMAT.recognise(Head("x.csv", line + b"\n1,2,3\n"))


@needs_corpus
def test_every_header_generation_of_the_corpus() -> None:
    count = 0
    for path in sorted(CORPUS.glob("tunableop/aiter/*.csv")):
        source = from_file(path)
        assert aiter.FORMAT.recognise(head(source)), path
        found = records(outcomes(aiter.FORMAT, source))
        assert not [r for r in found if isinstance(r, Reject)], path
        rows = [r for r in found if isinstance(r, Measurement | Call)]
        assert len(rows) == len(source.data.decode().splitlines()) - 1
        assert all(m.status == "ok" for m in keep_measurements(found)), path
        count += len(rows)
    assert count == 125


# ------------------------------------------------------------------------------------------------------ writing

TARGET = {"arch": "gfx942:sramecc+:xnack-", "cu_count": "304"}


def overrides(name: str) -> list[Override]:
    """Convert each measured row of aiter's table to a row for an override file (the user's choice of kernels).

    The row also has the name of the kernel.
    """
    found = read(name)
    kernels = {r.solution: r.kernel_name for r in found if isinstance(r, SolutionName)}
    return [
        Override(
            problem=m.problem, solution=m.solution, target=TARGET, time_us=m.time_us, key_text=m.key_text,
            parameters=kernels.get(m.solution),
        )
        for m in keep_measurements(found)
    ]  # fmt: skip


def test_a_table_read_and_written_is_the_same() -> None:
    """If an aiter table is read and written again, all its columns have the same values.

    The columns err_ratio, tflops and bw are exceptions, because they are computed.
    """
    lines = (FOLDER / "aiter_bf16_tuned_gemm.csv").read_text().splitlines()
    wanted = [line.split(",")[:15] for line in (lines[1], lines[2])]
    (file,) = aiter.write(overrides("aiter_bf16_tuned_gemm.csv")[:2], TARGET)
    rows = file.data.decode().splitlines()
    assert (file.name, rows[0]) == ("bf16_tuned_gemm.csv", lines[0])
    assert sorted(row.split(",")[:15] for row in rows[1:]) == sorted(wanted)


def test_speed_is_computed_as_the_tuner_does() -> None:
    (one,) = (x for x in overrides("aiter_bf16_tuned_gemm.csv") if x.solution.library == "asm")
    (file,) = aiter.write([one], TARGET)
    *_, us, kernel, error, tflops, bw = file.data.decode().splitlines()[1].split(",")
    assert (us, kernel, error) == ("7.9191", "_ZN5aiter_splitk", "")
    assert float(tflops) == pytest.approx(2 * 64 * 256 * 5120 / 7.9191 / 1e6, abs=0.005)
    assert float(bw) == pytest.approx((64 * 5120 * 2 + 256 * 5120 * 2 + 64 * 256 * 4) / 7.9191 / 1e3, abs=0.005)


def test_who_is_meant() -> None:
    asm, ours = (overrides("aiter_bf16_tuned_gemm.csv")[i] for i in (1, 0))
    assert aiter.accepts(asm)
    assert aiter.accepts(ours), "an index that aiter measured"
    assert not aiter.accepts(replace(ours, key_text=None)), "an index that anyone may have measured"
    assert not aiter.accepts(replace(ours, solution=Solution("rocblas", "-61")))


def test_what_aiter_would_not_find_is_not_written() -> None:
    asm, ours = (overrides("aiter_bf16_tuned_gemm.csv")[i] for i in (1, 0))
    for target in ({}, {"arch": "gfx942"}, {"cu_count": "304"}):
        with pytest.raises(EmissionError, match="needs"):
            aiter.write([ours], target)
    with pytest.raises(EmissionError, match=r"name of a kernel|must name the kernel"):
        aiter.write([replace(asm, parameters=None)], TARGET)
    with pytest.raises(EmissionError, match=r"name of a kernel|must name the kernel"):
        aiter.write([replace(asm, parameters="a,b")], TARGET)
    with pytest.raises(EmissionError, match="cannot choose"):
        aiter.write([replace(ours, solution=Solution("rocblas", "-61"))], TARGET)
    for change in ({"trans_a": "N"}, {"batch_count": 2}, {"activation": "gelu"}, {"beta": "nonzero"}):
        assert aiter.key(replace(gemm_of(ours), **change), TARGET) is None  # type: ignore[arg-type]
    with pytest.raises(EmissionError, match="transA = T, transB = N"):
        aiter.write([replace(ours, problem=replace(gemm_of(ours), trans_a="N"))], TARGET)
    assert aiter.write([], TARGET) == []


def gemm_of(override: Override) -> GemmProblem:
    assert isinstance(override.problem, GemmProblem)
    return override.problem


def test_of_one_key_the_fastest() -> None:
    ours = overrides("aiter_bf16_tuned_gemm.csv")[0]
    other = replace(ours, solution=Solution("hipblaslt", "7"), time_us=3.0)
    for both in ([ours, other], [other, ours]):
        (file,) = aiter.write(both, TARGET)
        assert [row.split(",")[11] for row in file.data.decode().splitlines()[1:]] == ["7"]
    with pytest.raises(EmissionError, match="not both have a time"):
        aiter.write([ours, replace(other, time_us=None)], TARGET)
    (file,) = aiter.write([replace(ours, time_us=None), ours], TARGET)
    assert b",23.6," in file.data


sizes = st.integers(1, 1 << 20)
written = st.builds(
    lambda mnk, types, bias, index, split, us: Override(
        problem=plain(
            trans_a="T", trans_b="N", m=mnk[0], n=mnk[1], k=mnk[2], batch_count=1, lda=mnk[2], ldb=mnk[2], ldc=mnk[0],
            ldd=mnk[0], a_type=types[0], b_type=types[0], c_type=types[1], d_type=types[1], compute_type="f32_r",
            scale_type="f32_r", activation="none", gradient=False, aux=False, bias=bias, beta="zero",
        ),
        solution=Solution("opus", f"{index},splitK={split}" if split else str(index)),
        target=TARGET,
        time_us=(us + math.prod(mnk) // 10_000) / 10_000,  # at most 200 Tflop/s
    ),
    st.tuples(sizes, sizes, sizes),
    st.sampled_from([("bf16_r", "bf16_r"), ("bf16_r", "f32_r"), ("f16_r", "f16_r")]),
    st.booleans(), st.integers(0, 1 << 30), st.integers(0, 32), st.integers(1, 1 << 40),
)  # fmt: skip


@given(st.lists(written, min_size=1, max_size=5, unique_by=lambda o: aiter.key(o.problem, TARGET)))
def test_object_to_text_to_object(wanted: list[Override]) -> None:
    (file,) = aiter.write(wanted, TARGET)
    source = Memory(file.data, file.name)
    assert aiter.FORMAT.recognise(head(source))
    got = keep_measurements(records(outcomes(aiter.FORMAT, source)))
    by_key = {m.key_text: m for m in got}
    assert len(got) == len(wanted)
    for o in wanted:
        m = by_key[aiter.key(o.problem, TARGET)]
        assert (m.problem, m.solution) == (o.problem, o.solution)
        assert m.time_us == pytest.approx(o.time_us)
