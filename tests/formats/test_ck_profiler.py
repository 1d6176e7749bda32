"""ckProfiler's output: own samples, published excerpts' grammar, damage."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from logparse.formats import ck_profiler, rocblas_trace
from logparse.links import linked
from logparse.model import Call, GemmProblem, Measurement, Message, Record, Reject
from tests.conftest import SAMPLES
from tests.formats.reading import read_lines, stream

FOLDER = SAMPLES / "ck_profiler"
GEMM, OTHERS = ((FOLDER / name).read_bytes() for name in ("gemm.log", "other_operations.log"))


def read(data: bytes) -> tuple[Counter[str], list[Record]]:
    outcomes, held = stream(ck_profiler.FORMAT, data)
    units = Counter(outcome.unit if outcome else "foreign" for outcome in outcomes)
    return units, [*(record for outcome in outcomes if outcome for record in outcome.records), *held]


def measured(data: bytes) -> list[Measurement]:
    return [one for one in read(data)[1] if isinstance(one, Measurement)]


def gemm(one: Measurement) -> GemmProblem:
    assert isinstance(one.problem, GemmProblem)
    return one.problem


def test_a_row_major_product_is_the_column_major_call() -> None:
    rows = [one for one in measured(GEMM) if gemm(one).k == 1024]
    problem = gemm(rows[0])
    assert problem.label == "TN 4096×512×1024 bf16_r"
    assert (problem.lda, problem.ldb, problem.ldd, problem.epilogue) == (1024, 1024, 4096, "DEFAULT")
    tiles = [(one.solution.id.split(",")[1:4], one.status, one.time_us) for one in rows]
    assert tiles == [
        (["256", "256", "128"], "ok", 81.2),
        (["256", "128", "128"], "ok", 61.25),
        (["64", "64", "64"], "unsupported", None),
        (["256", "128", "128"], "ok", 60.4),  # timed once more
    ]
    assert rows[1].solution == rows[3].solution
    assert rows[1].solution.id.endswith(",LoopScheduler:Default,PipelineVersion:v1")


def test_the_type_of_the_operands_follows_from_the_bytes_or_stays_unknown() -> None:
    mixed = [one for one in measured(GEMM) if gemm(one).k == 4096]
    assert {(gemm(one).a_type, gemm(one).b_type, gemm(one).d_type) for one in mixed} == {(None, None, "f16_r")}
    assert [(one.solution.id.rpartition(",")[2], one.time_us) for one in mixed] == [
        ("KBatch=1", 39.1),
        ("KBatch=4", 31.2),  # the last line repeats it
        ("KBatch=4", 50.2),
    ]


def test_the_problem_is_that_of_other_logs() -> None:
    trace = (SAMPLES / "rocblas/trace.log").read_text().splitlines()
    (call,) = rocblas_trace.read(next(line for line in trace if "bf16_r" in line)).records
    assert isinstance(call, Call)
    assert linked(call.problem, measured(GEMM)[0].problem)
    assert not linked(call.problem, measured(GEMM)[-1].problem)


def test_other_operations() -> None:
    units, found = read(OTHERS)
    batched, biased, alone, cut = (one for one in found if isinstance(one, Measurement))
    problem = gemm(batched)
    assert (problem.batch_count, problem.ldb, problem.stride_a, problem.stride_b) == (12, 80, 24576, 30720)
    assert (problem.trans_a, problem.trans_b, problem.a_type) == ("N", "N", None)
    assert (gemm(biased).trans_b, gemm(biased).bias, gemm(biased).activation) == ("T", None, None)
    assert (gemm(alone).label, alone.time_us) == ("NT 384×640×512 f32_r", 21.4)
    assert (gemm(cut).a_type, cut.time_us) == (None, 12.3)
    assert [one.reason for one in found if isinstance(one, Reject)] == [
        "ckProfiler: a row whose numbers cannot be read"
    ]
    assert [one.text for one in found if isinstance(one, Message)][
        -1
    ] == "ckProfiler: the output ends before the best kernel"
    assert units["foreign"] == 2  # a convolution


def test_published_lines() -> None:
    """The grammar of two rows in the tool's documentation, with sizes of their own: one without a kernel's name."""
    data = b"a_m_k: dim 2, lengths {48, 32}, strides {32, 1}\nb_k_n: dim 2, lengths {32, 16}, strides {16, 1}\n"
    data += b"c_m_n: dim 2, lengths {48, 16}, strides {16, 1}\nPerf: 0.5 ms, 0.1 TFlops, 0.0096 GB/s\n"
    data += b"Perf: 0.25 ms, 0.2 TFlops, 1 GB/s, deviceGemvDl<64, 16>\nBest Perf: 0.25 ms, 0.2 TFlops, 1 GB/s, x<64>\n"
    assert [(one.solution.text, one.time_us) for one in measured(data)] == [
        ("ck:?", 500.0),
        ("ck:deviceGemvDl<64,16>", 250.0),
        ("ck:x<64>", 250.0),
    ]


def test_a_stride_that_fits_both_layouts_leaves_the_transpose_unknown() -> None:
    data = GEMM.replace(
        b"a_m_k: dim 2, lengths {512, 1024}, strides {1024, 1}", b"a_m_k: dim 2, lengths {512, 1024}, strides {1, 1}"
    )
    assert (gemm(measured(data)[0]).trans_a, gemm(measured(data)[0]).trans_b) == ("T", None)


@given(st.sampled_from([GEMM, OTHERS]), st.integers(0, 4000), st.integers(0, 80), st.binary(max_size=12))
def test_damage_is_accounted_for(data: bytes, place: int, cut: int, inserted: bytes) -> None:
    read_lines(data[:place] + inserted + data[place + cut :], [ck_profiler.FORMAT])
