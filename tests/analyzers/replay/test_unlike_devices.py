"""Tests of measuring on two different GPUs at once: the times of one GPU are never compared with those on the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.evidence.tables import Settings
from analyzers.recommend.verb import advise
from analyzers.replay.replay import Options, replay
from analyzers.replay.scheduler import Limits
from tests.analyzers.replay.fakes import UNLIKE
from tests.analyzers.replay.problems import named, store_of

TIMES = dict(UNLIKE.values())
OPTIONS = {
    "local": Options(devices=("cpu:0", "cpu:1")),
    "ray": Options(devices=("cpu", "cpu"), engine="ray"),
}


@pytest.mark.parametrize(
    "engine", ["local", pytest.param("ray", marks=[pytest.mark.xdist_group("cluster"), pytest.mark.nightly])]
)
def test_measurements_are_not_pooled_and_findings_name_the_device(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest, measuring_processes: None
) -> None:
    if engine == "ray":
        request.getfixturevalue("cluster")
    store = store_of(tmp_path / "store", [named("pick", "fast", m=8 * n) for n in range(1, 13)])
    given = {"backends": ("tests.analyzers.replay.fakes:UNLIKES",), "limits": Limits(hang_s=60.0)}
    report = replay(store, Options(**{**vars(OPTIONS[engine]), **given}))
    assert report.finished

    rows = store.query(
        """select m.*, a.value as arch, e.value as environment, d.value as device, s.path
           from measurements m join facts a using (source_id) join facts e using (source_id)
           join facts d using (source_id) join sources s using (source_id)
           where a.name = 'arch' and e.name = 'environment' and d.name = 'device'"""
    )
    assert not rows["arch"].isna().any()
    assert rows.groupby("arch")["environment"].nunique().to_dict() == {"gfx942": 1, "gfx90a": 1}, "both took part"
    assert rows["environment"].nunique() == 2
    for row in rows.itertuples():
        wanted = TIMES[row.arch][row.solution.partition(":")[2]]
        assert row.samples_us == pytest.approx([wanted] * len(row.samples_us), rel=0.01), "of this device alone"
    races = rows[rows["origin"] == "replay"]
    assert not races.duplicated(["problem", "solution"]).any(), "no problem is raced on both"
    raced_on = dict(zip(races["problem"], races["arch"], strict=True))
    confirmed = rows[rows["origin"] == "replay-confirm"]
    assert set(confirmed["arch"]) == {"gfx942"}, "where `fast` won its race, and nowhere else"
    assert all(raced_on[row.problem] == row.arch for row in confirmed.itertuples())

    findings = [x for x in advise(store, Settings()).findings if x.problem is not None and x.p is not None]
    assert {x.problem.text for x in findings if x.problem} == {
        text for text, arch in raced_on.items() if arch == "gfx942"
    }
    for finding in findings:
        assert finding.evidence.shown["versions"]["device"] == "made-up gfx942"
        assert (finding.now_us, finding.evidence.best_us) == pytest.approx((100.0, 50.0), rel=0.01)
