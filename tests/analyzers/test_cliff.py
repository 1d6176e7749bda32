from __future__ import annotations

from pathlib import Path

import pytest

from analyzers import cliff
from analyzers.analyzer import Settings, Tables
from analyzers.cliff import unaligned
from analyzers.recommend.ranking import recommend
from analyzers.times.runs import tables_of
from logparse.model import GemmProblem
from logparse.store import Store
from tests.analyzers.build import measurement, tables
from tests.analyzers.ingested import bench, product, read, replayed

VOCABULARY = product(50257, 2048, 768)
PADDED = "torch:pad=64,stored"
ODD = product(1023, 512, 512).text


def planted() -> Tables:
    """A product whose size is odd, and a race in which it took a third of its time padded."""
    race = {"origin": "replay", "source_id": "race"}
    return tables(
        measurements=[measurement(ODD, x, us, **race) for x, us in (("Default", 90.0), ("torch:pad=8", 30.0))]
    )


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
    read(store, tmp_path, {"job.log": bench(50257, 2048, 768)})
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
