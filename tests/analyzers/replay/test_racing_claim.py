"""Tests that dropping slow kernels early ("racing") saves as much measuring time as docs/results.md claims.

``benchmarks/racing.py`` repeats the races with times that were recorded on an H200.
"""

from __future__ import annotations

import gzip
import importlib
import json
import math
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def is_a_sample(path: Path) -> bool:
    """Tell whether the tests check docs/results.md against this file of recorded kernel times.

    All measurements that were planned for the file must be in it.
    """
    # Files with convolutions that were chosen for being slow (wgrads-flagged-…) are left out. docs/results.md is about
    # random ones above 2 GFLOP. Files with the convolutions of models (wgrads-models-…) are left out, too, because most
    # of them are shorter.
    if "flagged" in path.name or "models" in path.name:
        return False
    return bool(json.loads(gzip.decompress(path.read_bytes()))["finished"])


NAMES = ("wgrads-*", "fprops-*", "dgrads-*")
RECORDS = [x for name in NAMES for x in sorted((BENCHMARKS / "results").glob(f"{name}.json.gz")) if is_a_sample(x)]
assert RECORDS


@pytest.fixture
def racing(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("racing")


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.name)
def test_racing_chooses_as_well_as_exhaustive_timing_at_a_fraction(racing: Any, record: Path, tmp_path: Path) -> None:
    assert racing.main(["--recorded", str(record), "--results", str(tmp_path), "--seed", "1"]) == 0
    (written,) = tmp_path.glob("*.json")
    made = json.loads(written.read_text(encoding="utf-8"))
    assert made["summary"]["problems"] >= 60
    assert made["missed"] == []
    assert made["summary"]["exhaustive_time_us"] < 0.8 * made["summary"]["pick_time_us"]


def test_a_missed_target_is_named(racing: Any) -> None:
    row = {"gpu_s": 1.0, "time_us": 10.0, "wall_s": 1.0, "near_gpu_s": 1.0}
    rows = [{"racing": row, "exhaustive": row, "tunableop": row, "pick": row, "solutions": 3}]
    assert [line.split()[0] for line in racing.missed(racing.summary(rows))] == [
        "gpu_share_of_exhaustive",
        "gpu_share_of_tunableop",
    ]
    assert len(racing.missed(dict.fromkeys(racing.summary(rows), math.nan))) == 3
