"""Tests of the Python interface for notebooks: opening a store (Parquet folder), its runs, and the subcommands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import plotly.graph_objects as go
import pytest

import logparse
from analyzers.recommend.verdict import verdict
from logparse import api
from logparse.errors import InputError, StoreError
from logparse.store import Store
from tests.conftest import SAMPLES
from tests.program import run

TUNED = SAMPLES / "tunableop" / "tunableop_results0.csv"
PICKED = "NT 4096×12288×8192 bf16_r"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> api.OpenStore:
    """Return a store (Parquet folder) with two runs of one job, ``before`` and ``after``.

    The run ``after`` has no convolutions, and in it the library chose another kernel for one matrix product.
    """
    folder = tmp_path_factory.mktemp("api")
    log = SAMPLES / "hipblaslt" / "hipblaslt_rank0_4242.log"
    later = folder / "hipblaslt_rank0_4300.log"
    later.write_text(log.read_text(encoding="utf-8").replace("index 91033", "index 91077"), encoding="utf-8")
    api.ingest(later, folder / "store", run="after")
    names = ("miopen/miopen_cmd_4242.log", "miopen/gfx942130.HIP.fdb.txt")
    api.ingest([log, *(SAMPLES / name for name in names), TUNED], folder / "store", run="before")
    return logparse.open(folder / "store")


def test_a_run_has_its_list_views_and_figures(store: api.OpenStore) -> None:
    job = store.run("before")
    assert isinstance(store, Store)
    assert repr(store.run()) == repr(job), "the latest run"
    assert repr(job) == f"Run('before': {job.headline})"
    conclusion = verdict(job.recommendation)
    assert job.todo["title"].tolist() == [x.title for x in conclusion.todo] != []
    assert job.todo["saves_us"].tolist() == [x.gained_us for x in conclusion.todo]
    html = job._repr_html_()
    assert (html.count("<table"), conclusion.todo[0].title in html) == (1, True)
    assert set(job.view("workload")["run"]) == {"before"}
    assert len(job.top(3)) == 3
    figures = [job.roofline(), job.backward_weights(), job.solutions(PICKED)]
    assert all(isinstance(x, go.Figure) and x.data for x in figures)
    assert isinstance(job.regret(), go.Figure), "no pick of this run is timed against another solution"
    with pytest.raises(InputError, match="nosuch: run before has no matrix product or convolution of this name"):
        job.solutions("nosuch")
    with pytest.raises(StoreError, match="no run 'nosuch'"):
        store.run("nosuch")


def test_tab_completion_shows_a_dozen_names(store: api.OpenStore) -> None:
    for known in (store, store.run("before"), api, logparse):
        names = dir(known)
        assert 10 <= len(names) <= 14
        assert all(hasattr(known, name) for name in names)
        assert not any(name.startswith("_") for name in names)


def test_the_package_has_the_functions_of_the_api_whatever_was_imported(tmp_path: Path) -> None:
    """In a new process, ``logparse`` shows the same names before and after their use, and each is a function."""
    code = """
import logparse
before = dir(logparse)
print(logparse.ingest(PATHS, STORE, run="job")[0].state)  # before anything imports the package of this name
from logparse.ingest import ingest_at
print(logparse.ingest(PATHS, STORE, run="job")[0].state)
print(logparse.status(STORE).table["run"].tolist(), dir(logparse) == before)
"""
    log = SAMPLES / "hipblaslt" / "hipblaslt_rank0_4242.log"
    given = f"PATHS, STORE = {str(log)!r}, {str(tmp_path / 'store')!r}\n"
    out = subprocess.run([sys.executable, "-c", given + code], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines() == ["new", "unchanged", "['job'] True"]
    assert all(getattr(logparse, name) is getattr(api, name) for name in dir(logparse) if name != "ingest")
    assert [name for name in dir(logparse) if not callable(getattr(logparse, name))] == []


def test_report_writes_the_file_of_the_terminal(store: api.OpenStore, tmp_path: Path) -> None:
    here, there = tmp_path / "here.html", tmp_path / "there.html"
    assert logparse.report(store, "before", out=here, top=5) == here
    run("report", "--run", "before", "--store", store.url, "--out", str(there), "-n", "5")
    assert here.read_bytes() == there.read_bytes()
    with pytest.raises(StoreError, match="no run 'nosuch'"):
        logparse.report(store, "nosuch", out=here)


def test_verbs_are_functions_with_the_words_of_the_terminal(store: api.OpenStore) -> None:
    at = ("--store", store.url)
    results = {
        ("show", PICKED, *at): api.show(PICKED, store),
        ("diff", "before", "after", *at): api.diff("before", "after", store),
        ("lint", str(TUNED)): api.lint([TUNED]),
        ("coverage", str(TUNED), "--run", "before", *at): api.coverage([TUNED], "before", store),
        ("verify", "before", "after", str(TUNED), *at): api.verify("before", "after", [TUNED], store),
    }
    for words, result in results.items():
        printed = run(*words).stdout
        assert result.lines, words
        assert all(line in printed for line in result.lines), words
        assert 1 <= len(repr(result).splitlines()) <= 2
        assert repr(result).startswith(result.lines[0])
        assert "<p>" in result._repr_html_()
    assert api.status(store).table["files"].sum() == 5
    assert "before" in api.status(store)._repr_html_()


def test_what_cannot_be_read_is_no_silence(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello\n")
    result = api.lint([TUNED, tmp_path / "notes.txt"])
    assert any("notes.txt" in line for line in result.lines)


def test_texts_of_files_are_no_markup_and_no_controls() -> None:
    rows = [{"problem": "<b>x</b>\x1b[31m", "n": 1}]
    html = api.Result(api.Answer(["<i>first</i>", rows], rows))._repr_html_()
    assert "<b>" not in html
    assert "<i>" not in html
    assert "\x1b" not in html
    assert "&lt;b&gt;x" in html
