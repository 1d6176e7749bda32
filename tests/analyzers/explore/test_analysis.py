"""Tests that the HTML page shows the same findings as ``logparse recommend``."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from analyzers.evidence.picks import picks_vs_best
from analyzers.evidence.tables import Settings, Tables
from analyzers.explore.load.actions import cards
from analyzers.explore.load.analysis import analyse, store_points
from analyzers.explore.plain_text import capitalize_first
from analyzers.explore.point_table import tabulate_findings
from analyzers.findings import layout_transposes
from analyzers.recommend.ranking import recommend
from analyzers.recommend.verb import advise
from analyzers.recommend.verdict import verdict
from logparse.ingest import ingest
from logparse.model import Replay
from logparse.store import Store, open_store
from tests.conftest import CORPUS, SAMPLES, needs_corpus

FIND_DB = SAMPLES / "miopen" / "gfx942130.HIP.fdb.txt"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = open_store(tmp_path / "store", create=True)
    ingest([str(FIND_DB)], made, run="demo", jobs=1)
    return made


def test_the_page_agrees_with_recommend(sampled: Store) -> None:
    """The web page shows the same findings as ``logparse recommend``.

    The page reads only a part of the stored rows.
    """
    settings = Settings()
    tables = Tables(run="demo", **sampled.frames())
    result, said = recommend(tables, settings), analyse(sampled)
    by_finding = said.found.drop(columns=["action", "todos"])
    pd.testing.assert_frame_equal(by_finding, tabulate_findings(result.findings).drop(columns=["action", "todos"]))
    todo = {x.name: capitalize_first(x.title) for x in verdict(result).todo}
    assert set(said.found["action"].dropna()) <= set(todo.values()), "as the list calls it"
    names = said.found.dropna(subset="action")["todos"].str.split("|")
    assert [todo[x[0]] for x in names] == said.found["action"].dropna().tolist()
    assert said.found["action"].notna().any()
    assert sorted(said.lines) == sorted(x.message for x in result.remarks)
    keys = ["problem", "pick"]
    columns = ["problem", "pick", "best", "best_us", "basis"]
    left, right = (
        x.sort_values(keys)[columns].reset_index(drop=True) for x in (said.compared, picks_vs_best(tables, settings))
    )
    pd.testing.assert_frame_equal(left, right, check_dtype=False)


def test_the_page_of_a_find_db_agrees_with_recommend(store: Store) -> None:
    result, said = recommend(Tables(run="demo", **store.frames()), Settings()), analyse(store)
    assert result.findings
    pd.testing.assert_frame_equal(
        said.found.drop(columns=["action", "todos"]),
        tabulate_findings(result.findings).drop(columns=["action", "todos"]),
    )


@needs_corpus
def test_a_row_names_the_change_that_brings_its_saving(tmp_path: Path) -> None:
    """The savings of the rows with one action add up to the saving of its kernels on the card."""
    store = open_store(tmp_path / "store", create=True)
    ingest([str(CORPUS / "h200/resnet50.trace.json.gz")], store, run="resnet", jobs=1)
    points = store_points(store).dropna(subset="action")
    measure = next(x for x in verdict(advise(store, Settings())).todo if isinstance(x.remedy, Replay))
    sums = points[points["saving_us"] > 0].groupby("action")["saving_us"].sum()
    assert set(sums.index) == {measured := capitalize_first(measure.title), "Use channels_last"}
    assert sums[measured] == pytest.approx(measure.saving_us, rel=1e-3)
    also = points["todos"].map(lambda x: layout_transposes.NAME in list(x))
    assert also.sum() > (points["action"] == "Use channels_last").sum(), "a row may have several things to do"
    # The transposes of all convolutions take 3.66 ms. Those of the others are in the saving of the other thing to do.
    assert 0 < sums["Use channels_last"] < 3_660
    assert set(points.loc[points["action"] == "Use channels_last", "saving_from"]) == {"estimated"}


def test_proposed_changes_of_a_trace_come_from_the_simulation(tmp_path: Path) -> None:
    """For a run with a trace, the HTML page's list of proposed changes comes from a simulation of the step.

    In an earlier version, the page promised to save kernel time although the host limited the step (on an H200).
    """
    made = open_store(tmp_path / "store", create=True)
    ingest([str(SAMPLES / "traces" / "job.trace.json")], made, run="demo", jobs=1)
    conclusion, said = verdict(advise(made, Settings())), analyse(made)
    assert said.headline == conclusion.headline
    assert [x.title for x in cards(said.recommendation)] == [x.title for x in conclusion.todo]
    assert said.lines[0] == conclusion.limit
    assert "the host limits a step" in conclusion.limit
