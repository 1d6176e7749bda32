"""The tables that analyzers are given hold everything that any of them can use."""

from __future__ import annotations

import random
from pathlib import Path

import pandas as pd
import pytest

from analyzers.analyzer import Settings
from analyzers.evidence.runs import tables_of, tables_to_analyse, tables_to_compare
from analyzers.explore.load.analysis import analyse
from analyzers.explore.point_table import found
from analyzers.proof.diff import diff
from analyzers.recommend.ranking import recommend
from logparse.ingest import ingest
from logparse.store import Store, open_store
from tests.analyzers.ingested import bench, product, read, replayed
from tests.conftest import SAMPLES, sized


def test_a_confirmed_formulation_is_found_by_every_verb(store: Store, tmp_path: Path) -> None:
    """Its interval is of the paired samples, which the page's reader once left out."""
    read(store, tmp_path, {"bench.log": bench(1023, 512, 512, count=40)})
    replayed(store, product(1023, 512, 512), {"Default": 90.0, "torch:pad=8": 60.0}, "torch:pad=8")
    whole, narrow = (recommend(x, Settings()) for x in (tables_of(store), tables_to_analyse(store)))
    assert [x.per_call_us for x in whole.findings if x.analyzer == "cliff"]
    assert narrow == whole
    assert analyse(store).found.equals(found(whole.findings))


def test_the_narrowed_tables_give_the_same_findings_and_overrides(samples: Store) -> None:
    """Overrides too: a solver without the parameters of its perf-db row runs several times slower than measured."""
    whole = recommend(tables_of(samples), Settings())
    narrowed = recommend(tables_to_analyse(samples), Settings())
    assert any(x.parameters for x in whole.overrides)
    assert narrowed.overrides == whole.overrides
    assert narrowed.findings == whole.findings


@pytest.mark.parametrize("seed", range(sized(1, 40)))
def test_narrowed_tables_of_random_stores_give_the_same_findings_and_differences(seed: int, tmp_path: Path) -> None:
    """Two runs, of random sample logs and of random find-db records, in which times, picks and devices differ."""
    draw = random.Random(seed)
    files = sorted(str(x) for x in SAMPLES.rglob("*") if x.is_file() and x.stat().st_size < 100_000)
    store = open_store(tmp_path / "store", create=True)
    for run in ("before", "after"):
        database = tmp_path / run / draw.choice(("gfx90a68.HIP.fdb.txt", "gfx942130.HIP.fdb.txt"))
        database.parent.mkdir()
        database.write_text(random_find_db(draw), encoding="utf-8")
        ingest([*draw.sample(files, 8), str(database)], store, run=run, jobs=1)
        assert recommend(tables_to_analyse(store), Settings()) == recommend(tables_of(store), Settings())
    whole, narrowed = (diff(read(store, "before"), read(store, "after")) for read in (tables_of, tables_to_compare))
    assert (whole.rows["ratio"] != 1).any()
    pd.testing.assert_frame_equal(narrowed.rows, whole.rows)


def random_find_db(draw: random.Random) -> str:
    """Records of some layers in some directions, with equal, zero and negative times among them."""
    solvers = ("ConvDirectNaiveConv", "GemmFwdRest", "ConvAsmImplicitGemmGTCDynamicFwdXdlops")
    lines = []
    for layer in draw.sample(range(40), 20):
        for direction in draw.sample("FBW", draw.randint(1, 3)):
            algorithm = {"F": "Fwd", "B": "BwdData", "W": "BwdWeights"}[direction]
            times = ((x, draw.choice((0.5, 0.5, 0.125, 7, 0, -1))) for x in draw.sample(solvers, draw.randint(1, 3)))
            items = [f"{solver}:{time},0,miopenConvolution{algorithm}AlgoGEMM" for solver, time in times]
            key = f"{64 + layer}-28-28-1x1-128-28-28-32-0x0-1x1-1x1-0-NCHW-FP32-{direction}"
            lines.append(f"{key}={';'.join(items)}\n")
    return "".join(lines)
