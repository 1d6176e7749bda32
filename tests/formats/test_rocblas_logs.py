"""rocblas-bench's output: own samples, the real library's, the same problems elsewhere."""

from __future__ import annotations

from logparse.formats.rocblas import bench_output as rocblas_bench_output
from logparse.formats.rocblas import logs as rocblas
from logparse.model import Call, Fact, GemmProblem, Measurement, Message, Record, Reject
from tests.conftest import CORPUS, SAMPLES, needs_corpus
from tests.formats.reading import read_lines, records, stream

BENCH = (SAMPLES / "rocblas/bench_output.txt").read_bytes()
REAL = CORPUS / "realrocm" / "rocblas-5.2"
FORMATS = (rocblas.BENCH, rocblas.PROFILE, rocblas_bench_output.FORMAT)


def calls(found: list[Record]) -> list[Call]:
    return [one for one in found if isinstance(one, Call)]


def gemm(one: Call | Measurement) -> GemmProblem:
    assert isinstance(one.problem, GemmProblem)
    return one.problem


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


def test_bench_output_links_to_the_bench_log() -> None:
    """The same problem in both."""
    typed = "rocblas-bench -f gemm_ex --transposeA T --transposeB N -m 4096 -n 512 -k 1024 --alpha 1 --a_type bf16_r"
    typed += " --lda 1024 --b_type bf16_r --ldb 1024 --beta 0 --c_type bf16_r --ldc 4096 --d_type bf16_r --ldd 4096"
    (logged,) = rocblas.read_bench(f"./{typed} --compute_type f32_r --algo 0 --solution_index 0 --flags 0").records
    assert isinstance(logged, Call)
    printed = list(records(o for o in stream(rocblas_bench_output.FORMAT, BENCH)[0] if o))
    measured = next(one for one in printed if isinstance(one, Measurement) and gemm(one).a_type == "bf16_r")
    assert logged.problem.text == measured.problem.text


@needs_corpus
def test_the_real_library_logs_the_same_calls_in_both() -> None:
    found, units = read_lines((REAL / "rb_bench.log").read_bytes(), FORMATS)
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
