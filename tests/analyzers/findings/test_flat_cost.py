from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.evidence.tables import Settings, Tables
from analyzers.findings import flat_cost
from analyzers.findings.flat_cost import GROWTH, LATENCY_US, SAME, Timed, as_long
from logparse.roofline import resized
from logparse.store import Store
from tests.analyzers.build import facts, measurement, tables
from tests.analyzers.ingested import bench, key, product, read, tunableop

SMALL, LARGE = 512, 8192


def planted() -> Tables:
    """Two products of about one time, the larger of 32 times the work."""
    times = ((128, 500.0), (4096, 510.0))
    return tables(measurements=[measurement(product(m, 256, 8192).text, "hipblaslt:1", us) for m, us in times])


def test_a_kernel_made_for_more_tokens(store: Store, tmp_path: Path) -> None:
    rows = tunableop(
        (key(SMALL), "Gemm_Hipblaslt_1", 5.0),
        (key(2048), "Gemm_Hipblaslt_1", 5.05),
        (key(LARGE), "Gemm_Hipblaslt_1", 5.1),
    )
    found = flat_cost.find(
        read(store, tmp_path, {"r.csv": rows, "job.log": bench(4096, SMALL, 8192, count=6)}), Settings()
    )
    small = next(x for x in found if x.problem is not None and x.problem.n == SMALL)  # type: ignore[union-attr]
    # 16 times the work; of the bytes the weights are most: (64 + 8 + 4) / (64 + 128 + 64) MiB of 5.1 ms.
    expected = 5100.0 * 76 / 256
    assert small.evidence.shown["expected_us"] == pytest.approx(expected)
    assert small.evidence.shown["larger_us"] == pytest.approx(5100.0)
    assert small.per_call_us == pytest.approx(5000.0 - expected)
    assert (small.calls, small.saving_us) == (6, pytest.approx(6 * (5000.0 - expected)))
    assert small.override is None, "no faster kernel is known"


def test_streaming_the_same_weights_is_not_flat(store: Store, tmp_path: Path) -> None:
    rows = tunableop((key(1), "Gemm_Hipblaslt_1", 0.05), (key(16), "Gemm_Hipblaslt_1", 0.05))
    assert flat_cost.find(read(store, tmp_path, {"r.csv": rows}), Settings()) == []


def times(*given_us: tuple[int, float], source: str = "m") -> list[dict[str, object]]:
    return [measurement(product(4096, n, 8192).text, "hipblaslt:1", us, source_id=source) for n, us in given_us]


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        (times((512, 5000.0), (8192, 5000.0)), 1),
        (times((512, 5000.0), (8192, 6300.0)), 0),  # it grows
        (times((512, 1500.0), (8192, 5000.0)), 0),
        (times((512, 5000.0), (1536, 5000.0)), 0),  # three times the work only
        (times((1, 12.0), (8192, 12.0)), 0),  # all latency
        (times((512, 5000.0)) + times((8192, 5000.0), source="other"), 0),  # two sources
        (times((512, 5000.0), (8192, 5000.0)) + times((512, 900.0), source="other"), 0),  # a faster one is known
    ],
)
def test_criterion(rows: list[dict[str, object]], count: int) -> None:
    assert len(flat_cost.find(tables(measurements=rows), Settings())) == count


def test_another_leading_dimension_is_another_family() -> None:
    padded = product(4096, 512, 8192, ldb=8200)
    rows = [*times((8192, 5000.0)), measurement(padded.text, "hipblaslt:1", 5000.0)]
    assert flat_cost.find(tables(measurements=rows), Settings()) == []
    assert resized(product(512, 64, 32), "m", None) == resized(product(77, 64, 32), "m", None)
    assert resized(product(512, 64, 32, ldd=600), "m", None) != resized(product(77, 64, 32), "m", None)


sizes = st.integers(1, 1 << 15)
rate = st.floats(1e3, 1e9)


@given(st.lists(st.tuples(sizes, sizes), min_size=2, max_size=8), rate, rate, st.floats(0, LATENCY_US))
def test_a_device_that_follows_the_roofline_gives_nothing(
    shapes: list[tuple[int, int]], flops_per_us: float, bytes_per_us: float, latency_us: float
) -> None:
    rows = []
    for m, n in {*shapes, *((m, shapes[0][1]) for m, _ in shapes), *((shapes[0][0], n) for _, n in shapes)}:
        problem = product(m, n, 64)
        least = max((problem.flops or 0) / flops_per_us, (problem.bytes or 0) / bytes_per_us)
        rows.append(measurement(problem.text, "hipblaslt:1", latency_us + least + 1e-9))
    assert flat_cost.find(tables(measurements=rows), Settings()) == []


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(1, 40)), max_size=12))
def test_what_takes_as_long_is_that_of_the_plain_definition(shapes: list[tuple[int, int]]) -> None:
    members = []
    for n, tenths in shapes:
        problem = product(64, n, 64)
        work = float(problem.flops or 0), float(problem.bytes or 0)
        members.append(Timed("m", "", "table", problem, problem.text, 10.0 + tenths / 10, *work))
    plain = {}
    for small in members:
        same = [
            x
            for x in members
            if x.flops >= GROWTH * small.flops and 1 / SAME <= x.time_us / small.time_us <= SAME
        ]  # fmt: skip
        if same:
            plain[small] = max(same, key=lambda x: (x.flops, x.time_us, x.text))
    assert dict(as_long(members)) == plain


def test_another_device_is_no_neighbour_and_no_faster_time() -> None:
    here, there = facts("m", arch="gfx942", cu_count="304"), facts("other", arch="gfx950", cu_count="256")
    slow = times((512, 5000.0), (8192, 5000.0))
    (found,) = flat_cost.find(tables(measurements=slow, facts=here), Settings())
    for more in (times((512, 900.0), source="other"), times((512, 4000.0), (8192, 4000.0), source="other")):
        both = flat_cost.find(tables(measurements=[*slow, *more], facts=here + there), Settings())
        assert found in both
    assert not flat_cost.find(tables(measurements=[*slow, *times((512, 900.0), source="m2")], facts=here), Settings())


def test_rows_of_two_devices_in_one_table_are_not_compared(store: Store, tmp_path: Path) -> None:
    head = "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName\n"
    call = "8192,4096,False,torch.bfloat16,torch.bfloat16,False,False,hipblaslt,7,0"
    one, two = f"gfx942,304,512,{call},5000.0,k\n", f"gfx950,256,8192,{call},5100.0,k\n"
    given = read(store, tmp_path, {"bf16_tuned_gemm.csv": head + one + two})
    assert flat_cost.find(given, Settings()) == []
    devices = given.facts[given.facts["name"] == "arch"]
    assert sorted(devices["value"]) == ["gfx942", "gfx950"]
    assert set(given.measurements["source_id"]) == set(devices["source_id"]) <= set(given.sources["source_id"])
    alike = read(store, tmp_path, {"of_one_device.csv": head + one + two.replace("gfx950,256", "gfx942,304")})
    [found] = flat_cost.find(alike, Settings())
    assert (found.evidence.arch, found.evidence.cu_count) == ("gfx942", "304")
