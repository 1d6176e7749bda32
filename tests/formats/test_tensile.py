"""Results of Tensile's benchmark client: own samples, names of kernels, damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.formats import FORMATS, rocblas_trace, tensile
from logparse.formats.format import FileFormat, Head
from logparse.links import linked
from logparse.model import Call, GemmProblem, Measurement, Reject
from tests.conftest import SAMPLES
from tests.formats.reading import Memory, from_file, head, outcomes, records_of, units

FOLDER = SAMPLES / "tensile"
WINNERS = "Cijk_Alik_Bljk_BBS_BH_00_CSVWinner.csv"
DATA = (FOLDER / WINNERS).read_bytes()


def measured(name: str, data: bytes | None = None) -> list[Measurement]:
    source = from_file(FOLDER / name) if data is None else Memory(data, name)
    return records_of(outcomes(tensile.FORMAT, source), Measurement)


def gemm(one: Measurement) -> GemmProblem:
    assert isinstance(one.problem, GemmProblem)
    return one.problem


def tile(one: Measurement) -> str:
    return one.solution.id.partition("_MT")[2].partition("_")[0]


def test_every_kernel_of_a_row_is_a_measurement_of_its_time() -> None:
    rows = measured(WINNERS)
    first = [one for one in rows if one.problem == rows[0].problem]
    assert [(tile(one), one.time_us) for one in first] == [
        ("256x128x32", 60.2934),  # the winner's own time
        ("128x128x32", 63.1499),  # 2·4096·512·1024 / 68012.25 GFlop/s
        ("64x64x64", 107.0797),
    ]
    assert first[0].problem.label == "TN 4096×512×1024 bf16_r"
    assert [(tile(one), one.status, one.time_us) for one in rows if gemm(one).batch_count == 256] == [
        ("256x128x32", "failed", None),
        ("128x128x32", "ok", 89.0148),
        ("64x64x64", "ok", 94.3946),
    ]


def test_the_problem_is_that_of_other_logs() -> None:
    trace = (SAMPLES / "rocblas/trace.log").read_text().splitlines()
    (call,) = rocblas_trace.read(next(line for line in trace if "bf16_r" in line)).records
    assert isinstance(call, Call)
    assert linked(call.problem, measured(WINNERS)[0].problem)


def test_results_without_the_winners_columns() -> None:
    found = outcomes(tensile.FORMAT, from_file(FOLDER / "00_Final.csv"))
    assert units(found) == {"fact": 1, "measurement": 2, "reject": 2}
    rows = records_of(found, Measurement)
    problem = gemm(rows[0])
    assert (problem.trans_a, problem.trans_b, problem.a_type, problem.compute_type) == ("N", "C", "f64_c", "f64_c")
    assert len(rows) == 3  # an empty cell is a kernel that was not tried
    assert rows[0].time_us == round(8 * 256 * 128 * 64 / 1250.5 / 1e3, 4)
    assert [one.reason.partition(": ")[2] for one in records_of(found, Reject)] == [
        "7 values for 12 columns",
        "invalid literal for int() with base 10: 'many'",
    ]


def test_speeds_per_compute_unit_are_no_times() -> None:
    rows = measured("Cij_Aik_Bkj_HBH_00_CSVWinner.csv")
    assert [(tile(one), one.status, one.time_us) for one in rows] == [
        ("64x64x8", "no_time", None),
        ("32x32x8", "ok", 77.1875),
    ]
    problem = gemm(rows[0])
    assert (problem.m, problem.n, problem.k, problem.batch_count) == (640, 384, 512, 1)
    assert (problem.a_type, problem.compute_type) == ("f16_r", "f32_r")


@pytest.mark.parametrize(
    ("name", "trans", "types"),
    [
        ("Cijk_Ailk_Bljk_HHS_BH", "NN", ("f16_r", "f16_r", "f16_r", "f32_r")),
        ("Cijk_Alik_Bjlk_HSS_BH", "TT", ("f16_r", "f16_r", "f32_r", "f32_r")),
        ("Cijk_Ailk_Bjlk_SB", "NT", ("f32_r", "f32_r", "f32_r", "f32_r")),
        ("Cijk_Alik_Bljk_I8II_BH", "TN", ("i8_r", "i8_r", "i32_r", "i32_r")),
        ("Cijk_Alik_Bljk_F8B8HS_BH", "TN", ("f8_r", "bf8_r", "f16_r", "f32_r")),
        ("Cijk_Alik_Bljk_F8B8S_BH", "TN", ("f8_r", "f8_r", "bf8_r", "f32_r")),
        ("Cijk_Alik_Bljk_F8NHS_BH_Bias_HAS_SAV", "TN", ("f8_fnuz_r", "f8_fnuz_r", "f16_r", "f32_r")),
        ("Cijk_AlikC_BjlkC_CB", "CC", ("f32_c", "f32_c", "f32_c", "f32_c")),
        ("Cijk_AlikC_BjlkC_DB_GB", "TT", ("f64_r", "f64_r", "f64_r", "f64_r")),
        ("Cijk_Alik_Bljk_4xi8II_BH", "TN", (None, None, None, None)),
    ],
)
def test_a_kernels_name_has_transposes_and_types(name: str, trans: str, types: tuple[str | None, ...]) -> None:
    data = f"GFlops, SizeI, SizeJ, SizeK, SizeL, TotalFlops, {name}_MT64x64x8\n0, 8, 16, 3, 32, 24576, 2.0\n".encode()
    (one,) = measured("00_Final.csv", data)
    problem = gemm(one)
    assert f"{problem.trans_a}{problem.trans_b}" == trans
    assert (problem.a_type, problem.b_type, problem.d_type, problem.compute_type) == types
    assert (problem.m, problem.n, problem.k, problem.batch_count) == (8, 16, 32, 3)
    assert (problem.batch_mode, one.time_us) == ("pointer" if "_GB" in name else "strided", 12.288)


def test_short_names_leave_it_to_the_files_name() -> None:
    data = b"GFlops, SizeI, SizeJ, SizeK, SizeL, TotalFlops, MT64x64\n0, 8, 16, 1, 32, 8192, 2.0\n"
    assert gemm(measured("Cijk_Ailk_Bljk_HHS_BH_00.csv", data)[0]).label == "NN 8×16×32 f16_r"
    assert gemm(measured("results.csv", data)[0]).label == "?? 8×16×32 ?"


def test_other_tables_are_left_alone() -> None:
    for data in (b"", b"m,n,k,time_us\n", b"GFlops,M,N,K\n", b"x, GFlops, SizeI, SizeJ, SizeK\n"):
        assert not tensile.recognise(Head(WINNERS, data))
    ours = head(from_file(FOLDER / WINNERS))
    assert [x.name for x in FORMATS if isinstance(x, FileFormat) and x.recognise(ours)] == ["tensile-results"]


@given(st.integers(0, len(DATA)), st.integers(0, 60), st.binary(max_size=12))
def test_damage_is_accounted_for(place: int, cut: int, inserted: bytes) -> None:
    source = Memory(DATA[:place] + inserted + DATA[place + cut :], WINNERS)
    assert sum(units(outcomes(tensile.FORMAT, source)).values()) == len(list(source.lines()))
