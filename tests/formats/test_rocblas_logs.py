"""rocBLAS's trace log and rocblas-bench's output: own samples, the real library's, the same problems elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.formats import rocblas_trace
from logparse.formats.rocblas import bench_output as rocblas_bench_output
from logparse.formats.rocblas import logs as rocblas
from logparse.ingest import ingest
from logparse.links import linked
from logparse.model import Call, Fact, GemmProblem, Measurement, Message, Record, Reject, Solution
from logparse.store import Store
from tests.conftest import CORPUS, SAMPLES, needs_corpus
from tests.formats.reading import read_lines, records, stream

TRACE = (SAMPLES / "rocblas/trace.log").read_text()
BENCH = (SAMPLES / "rocblas/bench_output.txt").read_bytes()
REAL = CORPUS / "realrocm" / "rocblas-5.2"
FORMATS = (rocblas.BENCH, rocblas.PROFILE, rocblas_trace.FORMAT, rocblas_bench_output.FORMAT)


def calls(found: list[Record]) -> list[Call]:
    return [one for one in found if isinstance(one, Call)]


def gemm(one: Call | Measurement) -> GemmProblem:
    assert isinstance(one.problem, GemmProblem)
    return one.problem


def test_a_call_is_the_same_whatever_its_addresses() -> None:
    found, _ = read_lines(TRACE, FORMATS)
    same = [one for one in calls(found) if gemm(one).a_type == "bf16_r"]
    assert {one.problem.text for one in same} == {same[0].problem.text}
    assert [one.solution for one in same] == [None, None, Solution("rocblas", "-3798")]
    assert same[0].problem.label == "TN 4096×512×1024 bf16_r"


@pytest.mark.parametrize("mark", ["    ", "[default0]:", "[1,0]<stderr>:", "job.log:", "logs/job.log:12:", "12:"])
def test_what_stands_before_a_line_hides_no_call(mark: str) -> None:
    marked = "".join(f"{mark}{line}\n" for line in TRACE.splitlines())
    assert len(calls(read_lines(marked, FORMATS)[0])) == len(calls(read_lines(TRACE, FORMATS)[0]))
    assert not calls(read_lines("detail::rocblas_sgemm,N,T,64,48,32,1,0x7f0000000000,64\n", FORMATS)[0])


def test_each_interface_has_its_own_arguments() -> None:
    found = {one.problem.label: gemm(one) for one in calls(read_lines(TRACE, FORMATS)[0])}
    assert sorted(found) == [
        "NC 64×32×16 f64_c",
        "NN 64×32×16 b5 f32_r",
        "NN 64×64×32 b8 f16_r",
        "NN 80×48×64 b6 f32_r",
        "NT 640×384×512 f32_r",
        "TN 128×64×32 b12 f16_r",
        "TN 256×128×64 f8_r",
        "TN 4096×512×1024 bf16_r",
    ]
    strided = found["TN 128×64×32 b12 f16_r"]
    assert (strided.stride_a, strided.stride_b, strided.stride_c, strided.stride_d) == (4096, 2048, 8192, 8192)
    assert (strided.beta, strided.compute_type) == ("nonzero", "f32_r")
    pointers = found["NN 64×64×32 b8 f16_r"]
    assert (pointers.batch_mode, pointers.beta) == ("pointer", None)  # no pointer to beta was given
    assert (found["NC 64×32×16 f64_c"].trans_b, found["NC 64×32×16 f64_c"].beta) == ("C", "zero")
    assert (found["TN 256×128×64 f8_r"].d_type, found["TN 256×128×64 f8_r"].compute_type) == ("f16_r", "f32_r")


def test_other_functions_are_messages_without_addresses() -> None:
    found, units = read_lines(TRACE, FORMATS)
    texts = {one.function: one.text for one in found if isinstance(one, Message)}
    assert texts["rocblas_saxpy"] == "rocblas_saxpy,1048576,2,0x@,1,0x@,1,atomics_not_allowed"
    other = ("create_handle", "set_stream", "saxpy", "destroy_handle")
    assert set(texts) == {f"rocblas_{x}" for x in other} | {rocblas.PLAIN}
    assert units["foreign"] == 3  # a sentence, and one whose list of names is split off


def test_lines_of_the_internal_layer_are_messages(store: Store, tmp_path: Path) -> None:
    """As the real rocBLAS 5.2 wrote them under ROCBLAS_LAYER=9: the call and what runs it count once."""
    call = (
        "rocblas_gemm_ex,T,T,96,64,128,1,0x7f6113fff010,bf16_r,128,0x7f6113fff010,bf16_r,64,0,0x7f6113fff010,bf16_r,96,"
        "0x7f6113fff010,bf16_r,96,f32_r,0,0,none,atomics_not_allowed"
    )
    inner = (
        "rocblas_internal,rocblas_gemm_tensile_backend,T,T,96,64,128,1,0x7f6113fff010,128,0x7f6113fff010,64,0,"
        "0x7f6113fff010,96,0x7f6113fff010,96,atomics_not_allowed"
    )
    path = tmp_path / "trace.log"
    path.write_text(f"{call}\n{inner}\n" * 3)
    ingest([str(path)], store)
    tables = store.frames()
    (counts,) = tables["sources"][["call_lines", "message_lines", "reject_lines"]].to_numpy().tolist()
    assert counts == [3, 3, 0]
    assert tables["messages"]["function"].tolist() == ["rocblas_gemm_tensile_backend"]


def test_a_cut_line_is_a_reject() -> None:
    (reject,) = rocblas_trace.read("rocblas_sgemm,N,T,640,384,512,1,0x7f2a00018000,640,0x7f2a00028000").records
    assert isinstance(reject, Reject)
    assert "13 arguments, not 9" in reject.reason
    assert rocblas_trace.read("rocblas_sgemm,N,T,x,384,512,1,0x1,640,0x2,384,0,0x3,640").unit == "reject"


def test_rows_of_the_bench_tool_are_measurements() -> None:
    outcomes, left = stream(rocblas_bench_output.FORMAT, BENCH)
    found = [*records(one for one in outcomes if one), *left]
    measured = [one for one in found if isinstance(one, Measurement)]
    assert [(one.problem.label, one.time_us) for one in measured] == [
        ("TN 4096×512×1024 ?", 60.294),
        ("TN 4096×512×1024 bf16_r", 60.294),
        ("NN 80×48×64 b6 f32_r", 12.031),
    ]
    assert {one.solution.text for one in measured} == {"rocblas:?"}
    assert [one.value for one in found if isinstance(one, Fact)] == [
        "5.2.0.4f6b2c1",
        "AMD Instinct MI300X",
        "gfx942:sramecc+:xnack-",
    ]
    assert [one.reason for one in found if isinstance(one, Reject)] == ["a row of 9 values under 16 names"]
    # syrk has no three sizes; the last header has no row
    assert [one.category for one in found if isinstance(one, Message)] == ["rocblas_bench_output", "partial"]


def test_trace_and_bench_output_link_to_the_bench_log() -> None:
    """The same problem in all: what one leaves open, no other contradicts."""
    typed = "rocblas-bench -f gemm_ex --transposeA T --transposeB N -m 4096 -n 512 -k 1024 --alpha 1 --a_type bf16_r"
    typed += " --lda 1024 --b_type bf16_r --ldb 1024 --beta 0 --c_type bf16_r --ldc 4096 --d_type bf16_r --ldd 4096"
    (logged,) = rocblas.read_bench(f"./{typed} --compute_type f32_r --algo 0 --solution_index 0 --flags 0").records
    assert isinstance(logged, Call)
    traced = next(one for one in calls(read_lines(TRACE, FORMATS)[0]) if gemm(one).a_type == "bf16_r")
    printed = list(records(o for o in stream(rocblas_bench_output.FORMAT, BENCH)[0] if o))
    measured = next(one for one in printed if isinstance(one, Measurement) and gemm(one).a_type == "bf16_r")
    assert traced.problem.text == logged.problem.text == measured.problem.text
    assert linked(traced.problem, measured.problem)


@given(st.sampled_from(TRACE.splitlines()), st.integers(0, 200), st.integers(0, 30), st.text(max_size=6))
def test_damage_of_a_trace_never_raises(line: str, place: int, cut: int, inserted: str) -> None:
    assert rocblas_trace.read(line[:place] + inserted + line[place + cut :]).lines == 1


@given(st.integers(0, len(BENCH)), st.integers(0, 60), st.binary(max_size=12))
def test_damage_of_the_output_is_accounted_for(place: int, cut: int, inserted: bytes) -> None:
    read_lines(BENCH[:place] + inserted + BENCH[place + cut :], FORMATS)


@needs_corpus
@pytest.mark.parametrize("name", ["rb_trace.log", "rb_bench.log"])
def test_the_real_library_logs_the_same_calls_in_both(name: str) -> None:
    found, units = read_lines((REAL / name).read_bytes(), FORMATS)
    assert {one.problem.text for one in calls(found)} == {
        calls(read_lines((REAL / "rb_profile.log").read_bytes(), FORMATS)[0])[0].problem.text
    }
    assert units["call"] == 4
    assert not units["foreign"] + units["reject"]


@needs_corpus
def test_the_real_tool_prints_a_row() -> None:
    found, units = read_lines((REAL / "out").read_bytes(), FORMATS)
    (measured,) = (one for one in found if isinstance(one, Measurement))
    assert (measured.problem.label, measured.time_us) == ("NT 512×1024×256 ?", 90.218)
    assert [one.value for one in found if isinstance(one, Fact)] == [
        "5.2.0",
        "AMD Instinct MI210",
        "gfx90a:sramecc+:xnack-",
    ]
    assert not units["reject"]
