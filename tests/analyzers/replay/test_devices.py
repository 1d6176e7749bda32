"""Tests of how ``logparse replay`` reads which GPUs and which matrix products the user asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.replay import device_workers, verb
from analyzers.replay.device_workers import local_devices
from analyzers.replay.replay import Options, ReplayReport, replay
from analyzers.replay.results import Result
from analyzers.replay.verb import report_lines
from logparse.errors import InputError
from tests.analyzers.replay.fakes import NAME
from tests.analyzers.replay.problems import named, store_of


def test_a_dry_run_refuses_the_gpus_that_the_replay_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(tmp_path, [named("pick")])
    for seen, names, why in (
        (("cpu",), ("cuda:0",), "--device: there is no GPU 0; PyTorch sees none on this machine"),
        (("cuda:0", "cuda:1"), ("cuda:0", "cuda:2"), "--device: there is no GPU 2; PyTorch sees 0, 1 on this machine"),
        (("cuda:0", "cuda:1"), ("cuda:0", "cuda:0"), "--device names GPU 0 twice"),
    ):
        monkeypatch.setattr(device_workers, "visible_devices", lambda seen=seen: seen)
        options = Options(backends=(NAME,), devices=names)
        for does in (verb.plan, replay):
            with pytest.raises(InputError, match=f"^{why}$"):
                does(store, options)
    assert local_devices(()) == ("cuda:0", "cuda:1")
    assert local_devices(("cuda:1",)) == ("cuda:1",)


def test_a_replay_of_no_problem_states_that_alone(tmp_path: Path) -> None:
    report = replay(store_of(tmp_path, [named("pick")]), Options(backends=(NAME,), devices=("cpu",), kind="conv"))
    assert report_lines(report)[0] == f"run {report.run}: none of the requested problems can be measured"
    assert not any("flagged" in line for line in report_lines(report))


def test_what_goes_on_from_here_is_what_resumes() -> None:
    done = Result(problem=named("pick"))
    lines = {
        words: report_lines(ReplayReport(run="r", total=2, finished=False, results=results, resume=resume))[-1]
        for words, results, resume in (("on", [done], True), ("again", [done], False), ("none", [], True))
    }
    assert lines == {
        "on": "the time budget is spent; the same command continues from here",
        "again": "the time budget is spent; the same command without --again continues from here",
        "none": "the time budget was spent before anything was measured; give a longer --budget",
    }
