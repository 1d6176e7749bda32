"""Tests that leaving out stored rows does not change any result.

To save time, the subcommands read only the rows that some part of the analysis can use.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from analyzers.compare.diff import diff
from analyzers.compare.timings import times_of_run
from analyzers.evidence.runs import tables_of, tables_to_analyse, tables_to_check
from analyzers.evidence.tables import Settings, Tables
from analyzers.explore.load.analysis import analyse
from analyzers.explore.point_table import tabulate_findings
from analyzers.overrides.coverage import coverage
from analyzers.overrides.lint import lint
from analyzers.recommend.ranking import recommend
from logparse.ingest import ingest
from logparse.store import Store, open_store
from tests.analyzers.ingested import bench, product, read, store_race_times
from tests.conftest import NIGHTLY, SAMPLES, sized

OVERRIDES = [str(next(SAMPLES.rglob(name))) for name in ("*.ufdb.txt", "tunableop_results0.csv")]


def test_every_subcommand_reports_a_confirmed_padding(store: Store, tmp_path: Path) -> None:
    """If a matrix product gets faster with padded sizes, all subcommands and the web page report this."""
    # Here 1023 rows are padded to a multiple of 8, and a measurement confirmed the gain. An earlier version of the web
    # page did not report it, because the page did not read all measured times.
    read(store, tmp_path, {"bench.log": bench(1023, 512, 512, count=40)})
    store_race_times(store, product(1023, 512, 512), {"Default": 90.0, "torch:pad=8": 60.0}, "torch:pad=8")
    whole, narrow = (recommend(x, Settings()) for x in (tables_of(store), tables_to_analyse(store)))
    assert [x.per_call_us for x in whole.findings if x.analyzer == "suboptimal-pick"]
    assert narrow == whole
    shown = analyse(store).found
    of_the_list = ["action", "todos"]
    assert shown[of_the_list].notna().all(axis=None)
    assert shown.drop(columns=of_the_list).equals(tabulate_findings(whole.findings).drop(columns=of_the_list))


def test_needed_rows_give_the_same_override_files(samples: Store) -> None:
    """The same override files are written if only the needed rows of the store are read.

    The files include the parameters of MIOpen's solvers. Without its parameters, a solver runs several times slower
    than measured.
    """
    whole = recommend(tables_of(samples), Settings())
    narrowed = recommend(tables_to_analyse(samples), Settings())
    assert any(x.parameters for x in whole.overrides)
    assert narrowed.overrides == whole.overrides
    assert narrowed.findings == whole.findings


@pytest.mark.parametrize("seed", range(sized(1, 40)))
def test_needed_rows_of_random_data_give_the_same_findings(seed: int, tmp_path: Path) -> None:
    """For random data, reading all stored rows or only needed ones gives the same findings and the same ``diff``."""
    # The data are two runs of random sample logs and random find-db records (MIOpen's solver times). Times, chosen
    # kernels and GPUs differ between the runs.
    draw = random.Random(seed)
    files = sorted(str(x) for x in SAMPLES.rglob("*") if x.is_file() and x.stat().st_size < 100_000)
    store = open_store(tmp_path / "store", create=True)
    databases: list[str] = []
    for run in ("before", "after"):
        database = tmp_path / run / draw.choice(("gfx90a68.HIP.fdb.txt", "gfx942130.HIP.fdb.txt"))
        database.parent.mkdir()
        databases.append(str(database))
        database.write_text(random_find_db(draw), encoding="utf-8")
        ingest([*draw.sample(files, 8), str(database)], store, run=run, jobs=1)
        if run == "before" and not NIGHTLY:
            continue
        assert recommend(tables_to_analyse(store), Settings()) == recommend(tables_of(store), Settings())
        check(tables_of(store), tables_to_check(store), [*databases, *OVERRIDES])
    of_tables, of_store = (
        diff(tables_of(store, "before"), tables_of(store, "after")),
        diff(times_of_run(store, "before"), times_of_run(store, "after")),
    )
    assert (of_tables.rows["ratio"] != 1).any()
    pd.testing.assert_frame_equal(of_store.rows, of_tables.rows)


def check(whole: Tables, narrowed: Tables, files: Sequence[str]) -> None:
    """Check that leaving out unneeded rows of the store does not change the answers about override files.

    There are two answers about each file: which calls use a row of the file (``coverage``), and what ``lint`` says of
    its rows.
    """
    for path in files:
        one, two = (coverage(lint(path, None, tables), tables) for tables in (narrowed, whole))
        assert one == two
        assert lint(path, None, narrowed).notes == lint(path, None, whole).notes


def random_find_db(draw: random.Random) -> str:
    """Return a file of MIOpen's solver times for random convolutions. Some times are equal, zero or negative."""
    algorithms = {"ConvDirectNaiveConv{}": "Direct", "Gemm{}Rest": "GEMM", "ConvHipImplicitGemmGroup{}Xdlops": "GEMM"}
    lines = []
    for layer in draw.sample(range(40), 20):
        for direction in draw.sample("FBW", draw.randint(1, 3)):
            of, name = {"F": ("Fwd", "Fwd"), "B": ("BwdData", "Bwd"), "W": ("BwdWeights", "Wrw")}[direction]
            some = draw.sample(sorted(algorithms), draw.randint(1, 3))
            times = ((x, draw.choice((0.5, 0.5, 0.125, 7, 0, -1)), draw.choice((0, 0, 72, 4096))) for x in some)
            items = [f"{x.format(name)}:{t},{size},miopenConvolution{of}Algo{algorithms[x]}" for x, t, size in times]
            key = f"{64 + layer}-28-28-1x1-128-28-28-32-0x0-1x1-1x1-0-NCHW-FP32-{direction}"
            lines.append(f"{key}={';'.join(items)}\n")
    return "".join(lines)
