"""The tables that analyzers are given hold everything that any of them can use."""

from __future__ import annotations

from pathlib import Path

from analyzers.analyzer import Settings
from analyzers.evidence.runs import tables_of, tables_to_analyse
from analyzers.explore.load.analysis import analyse
from analyzers.explore.point_table import found
from analyzers.recommend.ranking import recommend
from logparse.store import Store
from tests.analyzers.ingested import bench, product, read, replayed


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
