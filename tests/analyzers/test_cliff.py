from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers import cliff
from analyzers.analyzer import Settings, Tables
from analyzers.cliff import unaligned
from analyzers.recommend.ranking import recommend
from logparse.model import GemmProblem
from logparse.store import Store
from tests.analyzers.build import measurement, tables
from tests.analyzers.ingested import bench, key, product, read, replayed, tables_of, tunableop

VOCABULARY = product(50257, 2048, 768)
PADDED = "torch:pad=64,stored"
ODD, EVEN = product(1023, 512, 512).text, product(1024, 512, 512).text


def planted() -> Tables:
    """A product whose size is odd, and its neighbour of a third of its time."""
    return tables(measurements=[measurement(ODD, "hipblaslt:2", 90.0), measurement(EVEN, "hipblaslt:2", 30.0)])


@pytest.mark.parametrize(
    ("problem", "what"),
    [
        (product(50257, 2048, 768), ("m 50257",)),
        (product(50304, 2048, 768), ()),
        (product(64, 64, 63), ("k 63",)),
        (product(64, 64, 64, ldb=65), ("ldb 65",)),  # a gap of one element after each column
        (product(64, 63, 64), ()),  # n is no leading dimension of TN
        (product(64, 1, 64, ldb=65), ()),  # one column: nothing begins after it
        (product(68, 64, 64), ("m 68",)),
        (product(68, 64, 64, a_type="f32_r", b_type="f32_r", c_type="f32_r", d_type="f32_r"), ()),  # 16 bytes are 4
        (product(72, 64, 72, a_type="f8_r", b_type="f8_r"), ("k 72",)),  # of A and B 16 elements, of D 8
        (GemmProblem(m=63, n=63, k=63, a_type="bf16_r"), ()),  # without transposes it is unknown what a row is
    ],
)
def test_what_is_unaligned(problem: GemmProblem, what: tuple[str, ...]) -> None:
    assert unaligned(problem) == what


def test_padding_that_was_measured(store: Store, tmp_path: Path) -> None:
    read(store, tmp_path, {"job.log": bench(50257, 2048, 768, count=10)})
    replayed(store, VOCABULARY, {"Default": 500.0, "torch:pad=8": 520.0, PADDED: 400.0}, PADDED)
    (found,) = cliff.find(tables_of(store), Settings())
    assert found.problem == VOCABULARY.normal
    assert (found.calls, found.per_call_us, found.saving_us) == (10, pytest.approx(100.0), pytest.approx(1000.0))
    assert "m 50257" in found.message
    assert "if the program keeps its operands padded" in found.message
    assert found.override is None
    told = next(x for x in recommend(tables_of(store), Settings()).findings if x.analyzer == "cliff")
    assert told.p is not None, "the confirmation's own test"
    assert told.interval_from == "processes"
    low, gain, high = (x or 0.0 for x in (told.saving_low_us, told.saving_us, told.saving_high_us))
    assert gain == pytest.approx(1000.0)
    assert 950 < low < gain < high < 1050, "pairs of one ratio: the width is that of the prior variance alone"


def test_padding_that_is_measured_and_no_faster_is_nothing(store: Store, tmp_path: Path) -> None:
    rows = tunableop((key(2048, 50257, 768), "Gemm_Hipblaslt_1", 0.5), (key(2048, 50304, 768), "Gemm_Hipblaslt_1", 0.3))
    read(store, tmp_path, {"r.csv": rows, "job.log": bench(50257, 2048, 768)})
    assert len(cliff.find(tables_of(store), Settings())) == 1
    replayed(store, VOCABULARY, {"Default": 500.0, "torch:pad=8": 520.0, PADDED: 490.0}, PADDED)
    assert cliff.find(tables_of(store), Settings()) == []


def test_padding_on_another_device_is_nothing(store: Store, tmp_path: Path) -> None:
    read(store, tmp_path, {"job.log": bench(50257, 2048, 768)})
    replayed(store, VOCABULARY, {"Default": 500.0, PADDED: 400.0}, PADDED)
    assert cliff.find(tables_of(store), Settings(target={"arch": "gfx90a"})) == []


def test_a_race_alone_claims_no_saving(store: Store, tmp_path: Path) -> None:
    read(store, tmp_path, {"job.log": bench(50257, 2048, 768, count=10)})
    replayed(store, VOCABULARY, {"Default": 500.0, PADDED: 300.0})
    (found,) = cliff.find(tables_of(store), Settings())
    assert (found.per_call_us, found.saving_us) == (None, None)
    assert "not confirmed" in found.message


def test_a_cliff_that_a_neighbour_shows(store: Store, tmp_path: Path) -> None:
    rows = tunableop((key(2048, 50257, 768), "Gemm_Hipblaslt_1", 0.5), (key(2048, 50304, 768), "Gemm_Hipblaslt_1", 0.3))
    (found,) = cliff.find(read(store, tmp_path, {"r.csv": rows}), Settings())
    assert found.evidence["neighbour_us"] == pytest.approx(300.0)
    assert (found.per_call_us, found.saving_us) == (None, None), "padding itself costs, and was not measured"


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        ([measurement(ODD, "hipblaslt:1", 50.0), measurement(EVEN, "hipblaslt:1", 40.0)], 1),
        ([measurement(ODD, "hipblaslt:1", 49.0), measurement(EVEN, "hipblaslt:1", 40.0)], 0),
        ([measurement(ODD, "hipblaslt:1", 50.0), measurement(EVEN, "hipblaslt:1", 40.0, source_id="other")], 0),
        ([measurement(ODD, "hipblaslt:1", 50.0)], 0),
        ([measurement(ODD, "hipblaslt:1", 50.0), measurement(product(2048, 512, 512).text, "hipblaslt:1", 9.0)], 0),
        ([measurement(ODD, "hipblaslt:1", 50.0), measurement(product(1016, 512, 512).text, "hipblaslt:1", 9.0)], 0),
    ],
)
def test_only_a_neighbour_shows_a_cliff(rows: list[dict[str, object]], count: int) -> None:
    assert len(cliff.find(tables(measurements=rows), Settings())) == count


small = st.integers(1, 200)


@given(st.lists(st.tuples(small, small, small), min_size=2, max_size=8), st.floats(0.01, 1e4))
def test_times_that_only_grow_give_nothing(shapes: list[tuple[int, int, int]], scale: float) -> None:
    rows = [measurement(product(*x).text, "hipblaslt:1", scale * (1 + sum(x))) for x in set(shapes)]
    assert cliff.find(tables(measurements=rows), Settings()) == []
