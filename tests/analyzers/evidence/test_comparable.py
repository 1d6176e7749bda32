from __future__ import annotations

import json
from dataclasses import asdict, astuple
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analyzers.evidence import comparable, expected_times, make_expected_times
from analyzers.evidence.comparable import (
    ELSEWHERE,
    BestTimes,
    best_rows,
    best_times,
    calibrations,
    device_name,
    lone_times,
)
from analyzers.evidence.expected_times import SHIPPED, shipped
from analyzers.evidence.families import parse_sizes
from analyzers.evidence.joins import facts_of
from analyzers.evidence.make_expected_times import best_of_files, keep_predictable, thin_out_times, write
from tests.analyzers.build import facts, measurement, tables
from tests.analyzers.example import W
from tests.analyzers.findings.test_slower_than_comparable import best, half, us
from tests.conftest import ROOT

DEVICE = "gfx942 304"
SHIPPED_DEVICES = ("gfx90a 104", "gfx90a 110", "gfx942 304", "gfx950 256")
HINT = "after a wanted change: python -m analyzers.evidence.make_expected_times --out analyzers/evidence/expected_times"


def rows(scale: float = 1.0, source: str = "own", step: int = 1) -> pd.DataFrame:
    known = best()[::step]
    return pd.DataFrame(
        {
            "device": DEVICE,
            "problem": [x.text for x, _ in known],
            "time_us": [scale * t for _, t in known],
            "source": source,
        }
    )


def test_a_time_is_best_only_if_several_kernels_were_tried() -> None:
    """A time is taken as the best possible time only if several kernels were tried for it."""
    # This is true for times in a tuner's file, and for the fastest of at least two kernels. It is not true for the time
    # of the default kernel alone. The time of a kernel with wrong results never counts.
    one, two, three = (half(m, 64, 64).text for m in (1, 2, 3))
    given = tables(
        measurements=[
            measurement(one, "hipblaslt:1", 7.0, origin="tunableop"),
            measurement(two, "Default", 9.0, origin="bench"),
            measurement(three, "Default", 9.0, origin="bench"),
            measurement(three, "hipblaslt:1", 8.0, origin="bench"),
            measurement(three, "hipblaslt:2", 1.0, origin="bench", status="wrong"),
        ],
        facts=facts("m", arch="gfx942:sramecc+:xnack-", cu_count="304"),
    )
    found = best_rows(given.measurements, facts_of(given))
    assert dict(zip(found["problem"], found["time_us"], strict=True)) == {one: 7.0, three: 8.0}
    assert set(found["device"]) == {DEVICE}
    assert lone_times(given)["problem"].tolist() == [two]


@pytest.mark.parametrize(
    ("known", "name"),
    [
        ({"arch": "gfx942:sramecc+:xnack-", "cu_count": "304"}, "gfx942 304"),
        ({"device": "AMD Instinct MI300X"}, "gfx942 304"),
        ({"arch": "gfx942"}, None),
        ({}, None),
    ],
)
def test_devices_by_arch_and_cu_count(known: dict[str, str], name: str | None) -> None:
    assert device_name(known) == name


FAMILY = "TN f16_r"
ASKED = half(900, 900, 900).text


def test_one_factor_is_learned_where_both_have_times_and_it_is_stated() -> None:
    own, table = rows(1.3, step=3), rows(1.0, SHIPPED + " A")
    family = BestTimes(DEVICE, own, table).families("gemm")[FAMILY]
    assert len(family.problems) == len(table), "of a problem in both the store's own time counts"
    assert list(family.problems) == sorted(table["problem"])
    [source] = set(family.sources) - {"own"}
    scale = float(source.removeprefix(f"{SHIPPED} A × "))
    assert scale == pytest.approx(1.3, rel=0.1)
    assert not family.unscaled.any()
    found = BestTimes(DEVICE, own, table).expect([ASKED])
    assert found.expected_us[0] == pytest.approx(1.3 * us(900, 900, 900), rel=0.3)


def test_without_common_problems_there_is_no_factor_and_the_bound_is_wider() -> None:
    own = rows(1.3).iloc[:3]
    family = BestTimes(DEVICE, own, rows(1.0, "A")).families("gemm")[FAMILY]
    assert sorted(set(family.sources)) == ["A", "own"]
    assert family.unscaled.sum() == len(rows()) - 3
    table, mine = BestTimes(DEVICE, own.iloc[:0], rows(1.0, "A")), BestTimes(DEVICE, rows())
    assert table.families("gemm")[FAMILY].measured.time_us.sum() == pytest.approx(rows()["time_us"].sum())
    one, other = table.expect([ASKED]), mine.expect([ASKED])
    assert one.expected_us == other.expected_us
    assert one.high_us == pytest.approx(ELSEWHERE * other.high_us)


@pytest.mark.parametrize(("here", "scale"), [(1.2, 1.2), (0.8, 1.0)])
def test_a_slower_machine_does_not_make_calls_look_slow(here: float, scale: float) -> None:
    """If all calls of a job are slower than the times that ship with logparse, the machine is slow, not the calls."""
    # The expected times for this machine are then longer. But they are never made shorter: a call with only one timed
    # kernel may not run the fastest one, so it does not show how fast the machine is.
    table = BestTimes(DEVICE, rows().iloc[:0], rows(1.0, SHIPPED))
    calls = [half(m, 1000, 1000) for m in range(500, 900, 40)]
    alone = pd.DataFrame(
        {"problem": [x.text for x in calls], "time_us": [here * us(m, 1000, 1000) for m in range(500, 900, 40)]}
    )
    found, before = table.beside(alone).expect([ASKED]), table.expect([ASKED])
    assert found.expected_us / before.expected_us == pytest.approx(scale, rel=0.1)
    assert found.high_us / found.expected_us == pytest.approx(before.high_us / before.expected_us / ELSEWHERE)
    assert {x.source for x in before.neighbours(0)} == {SHIPPED}
    assert all(x.source.endswith(" (from the run's own times)") for x in found.neighbours(0))
    few = table.beside(alone.iloc[:7]).expect([ASKED])
    assert few.high_us == before.high_us


def test_each_group_of_products_has_its_own_factor() -> None:
    """logparse finds out for each data type separately how much slower this machine is than the shipped times."""
    # Here float16 products take 1.3 times as long as in the shipped table, and bfloat16 products take as long as there.
    # If none of a type's products was measured, the factor of the other types is used.
    bf16 = rows().assign(problem=rows()["problem"].str.replace("f16_r", "bf16_r"))
    table = pd.concat([rows(1.0, SHIPPED), bf16.assign(source=SHIPPED)], ignore_index=True)
    own = pd.concat([rows(1.3, step=3), bf16[::3]], ignore_index=True)
    families = BestTimes(DEVICE, own, table).families("gemm")
    sources = {name: {x for x in family.sources if x != "own"} for name, family in families.items()}
    assert set(sources) == {FAMILY, "TN bf16_r"}
    assert all(float(x.rpartition("× ")[2]) == pytest.approx(1.3, rel=0.1) for x in sources[FAMILY])
    assert all(float(x.rpartition("× ")[2]) == pytest.approx(1.0, rel=0.1) for x in sources["TN bf16_r"])
    only = BestTimes(DEVICE, rows(1.3, step=3), table).families("gemm")["TN bf16_r"]
    assert not only.unscaled.any(), "a family without common problems has the factor of all families"


def test_times_of_one_device_say_nothing_of_another() -> None:
    given = tables(
        measurements=[measurement(x.text, "hipblaslt:1", us_, origin="tunableop") for x, us_ in best()],
        facts=facts("m", arch="gfx942", cu_count="304"),
    )
    asked = [half(900, 900, 900).text]
    assert np.isfinite(best_times(given, DEVICE).expect(asked).expected_us).all()
    other = best_times(given, "gfx942 80").expect(asked)
    assert np.isnan(other.expected_us).all()
    assert other.neighbours(0) == []


def test_unneeded_convolution_times_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a job that has only matrix products, logparse does not parse the convolution times that it ships.

    This saves half a second.
    """
    parsed: list[str] = []

    def recorded(texts: pa.Array) -> object:
        parsed.extend(texts.to_pylist())
        return parse_sizes(texts)

    monkeypatch.setattr(comparable, "parse_sizes", recorded)
    both = pd.concat([rows(), rows().assign(problem=W.text)], ignore_index=True)
    known = BestTimes(DEVICE, both.iloc[:0], both)
    known.expect([half(900, 900, 900).text])
    assert W.text not in parsed
    assert rows()["problem"][0] in parsed
    known.expect([W.text])
    assert W.text in parsed


def test_neighbours_have_their_own_time_and_one_scaled_to_the_size() -> None:
    found = BestTimes(DEVICE, rows()).expect(["operator x", half(900, 900, 900).text])
    near = found.neighbours(1)
    assert found.neighbours(0) == []
    assert len(near) == 8
    assert min(x.scaled_us for x in near) <= found.expected_us[1] <= max(x.scaled_us for x in near)
    assert found.calibration(0) is None
    known = found.calibration(1)
    assert known is not None
    assert known.median_error < 0.2


def test_thinning_keeps_every_group_of_sizes() -> None:
    kept = thin_out_times(rows(), 60)
    assert len(kept) == 60
    assert set(kept["problem"]) <= set(rows()["problem"])
    assert len(thin_out_times(rows(), 1000)) == len(rows())
    assert len(thin_out_times(rows().iloc[:0], 10)) == 0


def test_groups_with_wrong_estimates_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """If the times of some matrix products cannot be estimated from each other, logparse does not ship these times.

    The data types are judged separately.
    """
    # Times in float16 are shipped. Two data types are left out: bfloat16, because its times are shuffled here, so that
    # estimates are wrong, and float32, because its weight matrices have only two sizes. With so few sizes, estimates
    # cannot be tested.
    shuffled = np.random.default_rng(2).permutation(rows()["time_us"].to_numpy(dtype=float))
    bf16 = rows().assign(problem=rows()["problem"].str.replace("f16_r", "bf16_r"), time_us=shuffled)
    two = [half(m, n, 512) for m in (256, 4096) for n in range(64, 4096, 64)]
    texts = [x.text.replace("f16_r", "f32_r") for x in two]
    times = [us(x.m or 0, x.n or 0, 512) for x in two]
    few = pd.DataFrame({"device": DEVICE, "problem": texts, "time_us": times, "source": "own"})
    kept = keep_predictable(pd.concat([rows(), bf16, few], ignore_index=True), DEVICE)
    assert sorted(kept["problem"]) == sorted(rows()["problem"])
    said = capsys.readouterr().out
    assert "TN f16_r: 125 problems kept" in said
    assert "TN bf16_r: 125 problems left out" in said
    assert "TN f32_r: 126 problems left out" in said


def test_a_table_keeps_its_rows_of_other_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / expected_times.file_name(DEVICE)
    write(rows(1.0, "MIOpen x"), path)
    known = rows(2.0, "aiter y").assign(problem=rows()["problem"].str.replace("f16_r", "bf16_r"))
    monkeypatch.setattr(make_expected_times, "best_of_files", lambda files, source: known)
    for _ in range(2):
        monkeypatch.setattr("sys.argv", ["make", "--source", "aiter y", "--out", str(tmp_path), "f.csv"])
        assert make_expected_times.main() == 0
        table = pq.read_table(path).to_pandas()
        assert table["source"].value_counts().to_dict() == {"MIOpen x": len(rows()), "aiter y": len(rows())}
    monkeypatch.setattr("sys.argv", ["make", "--source", "z", "--out", str(tmp_path), "--device", "gfx9 1", "f.csv"])
    assert make_expected_times.main() == 0
    assert set(pq.read_table(path).to_pandas()["source"]) == {"MIOpen x", "aiter y"}, "another device"


def test_a_table_is_made_of_a_find_db_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = best_of_files([str(ROOT / "sample_logs/miopen/gfx942130.HIP.fdb.txt")], "MIOpen x")
    assert len(made) > 3
    assert set(made["device"]) == {DEVICE}
    assert write(made, tmp_path / expected_times.file_name(DEVICE)) > 0
    monkeypatch.setattr(expected_times, "files", lambda _: tmp_path)
    forget_shipped()
    read, other, known = shipped(DEVICE), shipped("gfx000 1"), expected_times.calibrations(DEVICE)
    assert expected_times.calibrations("gfx000 1") == {}
    forget_shipped()
    assert read is not None
    assert other is None
    assert read["problem"].tolist() == made["problem"].tolist()
    assert read["time_us"].to_numpy() == pytest.approx(made["time_us"].to_numpy(dtype=float), rel=1e-3)
    assert set(read["source"]) == {f"{SHIPPED} MIOpen x"}
    assert known == {}, "the sample has too few convolutions to test estimates"


def forget_shipped() -> None:
    for read in (shipped, expected_times._table):
        read.cache_clear()


def test_a_table_has_calibrations_of_its_rounded_times_and_renewing_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / expected_times.file_name(DEVICE)
    write(pd.concat([rows(1.00001), rows(3.0)]).iloc[::-1], path)
    made, data = pq.read_table(path), path.read_bytes()
    assert made["problem"].to_pylist() == sorted(rows()["problem"]), "the shortest time of each problem, sorted"
    assert made["time_us"].to_pylist() == pytest.approx(rows().sort_values("problem")["time_us"].tolist(), rel=1e-3)
    known = calibrations(DEVICE, made.to_pandas())
    assert {x: asdict(y) for x, y in known.items()} == json.loads(made.schema.metadata[expected_times.CALIBRATIONS])
    assert [*known] == ["TN f16_r"]
    pq.write_table(made.replace_schema_metadata(None), path)
    monkeypatch.setattr("sys.argv", ["make", "--out", str(tmp_path)])
    assert make_expected_times.main() == 0
    assert path.read_bytes() == data


def test_what_is_shipped_is_small_read_by_its_device_and_named_in_the_readme() -> None:
    folder = Path(expected_times.__file__).parent
    tables_ = sorted(folder.glob("*.parquet"))
    assert tables_
    assert sum(x.stat().st_size for x in tables_) <= 2_000_000
    readme = (folder / "README.md").read_text(encoding="utf-8")
    for path in tables_:
        assert path.name in readme
        found = shipped(path.stem.replace("-", " "))
        assert found is not None
        assert len(found) == pq.read_metadata(path).num_rows > 1000
        assert (found["time_us"] > 0).all()
        assert found["problem"].is_monotonic_increasing, "it is read without sorting"
        assert found["problem"].is_unique


@pytest.mark.parametrize("device", SHIPPED_DEVICES)
def test_shipped_calibrations_are_those_of_the_shipped_times(device: str) -> None:
    table, kept = shipped(device), expected_times.calibrations(device)
    assert table is not None
    computed = calibrations(device, table)
    assert kept.keys() == computed.keys(), HINT
    # Another version of NumPy rounds distances differently, so it may choose another of two equally near neighbours.
    assert {name: astuple(x) for name, x in kept.items()} == {
        name: pytest.approx(astuple(x), rel=0.01) for name, x in computed.items()
    }, HINT
    for kind in ("gemm", "conv"):
        for name, family in BestTimes(device, table.iloc[:0], table).families(kind).items():
            assert family.measured.calibration == kept.get(name)


def test_shipped_times_are_parsed_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    table = shipped(DEVICE)
    assert table is not None
    one, two = (BestTimes(DEVICE, table.iloc[:0], table) for _ in range(2))
    expected, parsed = one.families("conv").keys(), list[str]()
    monkeypatch.setattr(comparable, "parse_sizes", lambda texts: [parsed.extend(texts), *parse_sizes(texts)][1:])
    assert two.families("conv").keys() == expected
    assert parsed == []
