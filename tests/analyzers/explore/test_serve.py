"""Tests of how ``logparse explore`` starts: the steps before the HTML page's first answer, and their order."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator
from functools import partial
from html import unescape
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("flask", reason="the extra `explore` is not installed")

from analyzers.explore.load import child
from analyzers.explore.load.job import FAILED, FIRST, READY, VERDICT, Job
from analyzers.explore.load.reader import StoreReading
from analyzers.explore.page import app, serve
from analyzers.explore.page.data import PageData
from logparse.store import Store
from tests.analyzers.explore.conftest import part
from tests.waiting import PATIENCE_S


def test_the_browser_can_ask_before_slow_imports(sampled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The browser can send its first request before the server has imported its slow modules.

    The server opens its socket first, so that the request waits there.
    """
    asked, answered, servers = threading.Event(), list[int](), list[Any]()
    files, said = list[tuple[str, Path, int, int]](), list[str]()

    def browse(url: str) -> None:
        page = Path(unquote(urlsplit(url).path))
        files.append((url, page, page.stat().st_mode & 0o777, page.parent.stat().st_mode & 0o777))
        found = re.search(r'content="0; url=([^"]+)"', page.read_text())
        assert found
        address = urlsplit(unescape(found[1]))
        connection = HTTPConnection("127.0.0.1", address.port or 0, timeout=120)
        connection.request("GET", f"{address.path}?{address.query}")
        asked.set()
        answered.append(connection.getresponse().status)
        connection.close()
        servers[0].shutdown()

    load = serve._server

    def loaded(*arguments: Any) -> tuple[Any, ...]:
        assert asked.wait(PATIENCE_S), "no request could come yet"
        make_server, application, data = load(*arguments)

        def kept(*words: Any, **more: Any) -> Any:
            servers.append(make_server(*words, **more))
            return servers[0]

        return kept, application, data

    monkeypatch.setattr(webbrowser, "open", browse)
    monkeypatch.setattr(serve, "_server", loaded)
    serve.explore(sampled.url, port=0, say=said.append)
    servers[0].server_close()
    assert answered == [200], "the address has the token, which becomes a cookie"
    (url, page, mode, of_folder) = files[0]
    token = re.search(r"\?token=([\w-]+)", said[0])
    assert token
    assert token[1] not in url, "`ps` shows what a browser was started with"
    assert (mode, of_folder) == (0o600, 0o700)
    assert not page.parent.exists()


def test_printed_text_does_not_disturb_progress_reports(capfd: pytest.CaptureFixture[str]) -> None:
    """Text that a library prints does not get into the progress reports of the process that reads the data.

    In an earlier version, a progress bar of DuckDB ended the web page of a large store (Parquet folder).
    """
    with child._reports() as reports:
        os.write(1, b"50%")
        print('["ready", ""]', file=reports, flush=True)
    os.write(1, b"as before")
    assert capfd.readouterr() == ('["ready", ""]\nas before', "50%")


def test_ctrl_c_does_not_end_the_starting_process(sampled: Store) -> None:
    """Ctrl-C does not end the helper process that reads the data for the web page, even while it is starting."""
    # A terminal sends Ctrl-C to all processes. In an earlier version, the helper process printed a traceback if Ctrl-C
    # came while it was importing modules.
    reading = StoreReading(sampled.url)
    try:
        reading._process.send_signal(signal.SIGINT)
        assert next(reading.steps())[0] == VERDICT
    finally:
        reading.close()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ()), "this process still takes it"


class Stepwise(StoreReading):
    """Stand-in for the process that reads a store (Parquet folder).

    It makes its next step only when the test asks for it.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.next = threading.Semaphore(0)

    def steps(self) -> Iterator[tuple[str, str]]:
        for step in super().steps():
            self.next.acquire()
            yield step


def test_tables_are_shown_if_the_analysis_of_a_small_store_fails(
    sampled: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small store is analysed before its tables are written. If that fails, the tables are written all the same."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr("analyzers.explore.load.analysis.analyse", fail)
    steps = list(child._steps(Job(sampled.url, None, None, {}, str(tmp_path))))
    assert steps == [(READY, ""), (FAILED, "RuntimeError: no such kernel")]
    assert (tmp_path / FIRST).is_file()


@pytest.mark.usefixtures("read_here")
def test_the_page_shows_progress_until_the_analysis_is_there(
    sampled: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "_FEW", 0)  # as if the store were large
    url = str(shutil.copytree(sampled.url, tmp_path / "store", ignore=shutil.ignore_patterns("explore")))
    reading = Stepwise(url)
    data = PageData(url, reading=reading)
    client = app.application(data).test_client()

    def line() -> str:
        return str(part(client, "watch")["doing"])

    def begins(text: str) -> bool:
        return line().startswith(text)

    try:
        assert line().startswith("Reading the store … ")
        reading.next.release()
        assert wait_until(partial(begins, "All problems are read")), line()
        assert re.search(r" … \d+ s\Z", line())
        assert not part(client, "watch")["finished"], "more is to come"
        overview = part(client, "surroundings", search="?view=overview")
        assert "calls of" not in str(overview["verdict"]), "no sum that would change"
        assert "bone" in str(overview["verdict"]), "the place of the verdict"
        listed = part(client, "rows", search="", start=0, end=9)
        assert listed["count"] > 0, "the first step is enough for the table"
        assert not listed["final"]
        assert all("label" in x and "time_us" not in x and "saving_us" not in x for x in listed["rows"])
        shares = {entry["share"] for facet in overview["filters"] for entry in facet["entries"]}
        assert (shares, overview["base"]) == ({""}, ""), "no share that would change"
        assert part(client, "chart", search="?view=roofline", theme="light") == {}, "no point that would move"
        card = part(client, "card", search=f"?problem={listed['rows'][0]['id']}", theme="light")
        assert "being analysed" in str(card)
        reading.next.release()
        assert wait_until(partial(begins, "The analyzers have run")), line()
        overview = part(client, "surroundings", search="?view=overview")
        assert data.verdict.headline[1:] in str(overview["verdict"]), "all but the first letter, which is a capital"
        assert "Run demo." not in str(overview["verdict"]), "no sum that would change"
        assert "cards" in str(overview["answer"])
        assert not part(client, "rows", search="", start=0, end=9)["final"], "the tables are still the first ones"
        reading.next.release()
        assert wait_until(partial(begins, "Writing the files")), line()
        overview = part(client, "surroundings", search="?view=overview")
        assert "Run demo." in str(overview["verdict"])
        assert "%" in overview["filters"][0]["entries"][0]["share"]
        assert part(client, "rows", search="", start=0, end=1)["rows"][0]["time_us"] > 0
        before = part(client, "watch")["version"]
        reading.next.release()
        assert data.wait(PATIENCE_S)
        assert line() == ""
        assert part(client, "watch")["finished"]
        assert part(client, "watch")["version"] > before, "nothing on the page waits for more"
        assert data.verdict.headline
    finally:
        data.close()


@pytest.mark.usefixtures("read_here")
def test_a_small_store_shows_its_headline_before_its_tables(sampled: Store) -> None:
    reading = Stepwise(sampled.url)
    data = PageData(sampled.url, reading=reading)
    client = app.application(data).test_client()
    try:
        reading.next.release()
        overview = part(client, "surroundings", search="?view=overview")
        assert data.verdict.headline[1:] in str(overview["verdict"])
        assert "Run demo." not in str(overview["verdict"]), "the sums are in no table yet"
        cards = str(overview["answer"])
        assert data.verdict.actions[0].title[1:] in cards
        assert "Show " not in cards, "no row to show is known yet"
        assert (overview["tabs"], overview["filters"], overview["runs"]) == ([], [], [])
        filtered = part(client, "surroundings", search="?view=overview&dtype=FP16")
        assert "cards" not in str(filtered["answer"]), "which cards are about these rows is not known yet"
        assert "no run" in str(part(client, "surroundings", search="?run=never")["verdict"]).lower()
        (before, tables) = (overview["version"], overview["tables"])
        asked = time.monotonic()
        reading.next.release()
        assert wait_until(lambda: data.settled)
        news = part(client, "watch", search="", version=before)
        assert (news["version"], news["tables"]) == (before + 1, tables + 1)
        assert time.monotonic() - asked < PATIENCE_S
        overview = part(client, "surroundings", search="?view=overview")
        assert "Run demo." in str(overview["verdict"])
        assert "Show " in str(overview["answer"])
    finally:
        data.close()


@pytest.mark.usefixtures("read_here")
def test_the_answer_about_progress_waits_for_news(sampled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analyzers.explore.page.parts._NEWS_S", PATIENCE_S)
    reading = Stepwise(sampled.url)
    data = PageData(sampled.url, reading=reading)
    client, told = app.application(data).test_client(), list[dict[str, Any]]()
    asking = threading.Thread(target=lambda: told.append(part(client, "watch", search="", version=0)), daemon=True)
    try:
        asking.start()
        asking.join(0.3)
        assert not told, "there is no news yet"
        reading.next.release()
        asking.join(PATIENCE_S)
        assert told[0]["version"] == 1
        assert part(client, "watch", search="", version=0)["version"] == 1, "known news is told at once"
    finally:
        data.close()


@pytest.mark.parametrize(
    "end",
    [signal.SIGTERM, *(pytest.param(x, marks=pytest.mark.nightly) for x in (signal.SIGHUP, signal.SIGINT))],
)
def test_a_page_that_is_ended_leaves_no_folder_behind(sampled: Store, tmp_path: Path, end: signal.Signals) -> None:
    command = [sys.executable, "-m", "logparse", "explore", "--store", sampled.url, "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)}) as page:
        assert page.stdout
        assert page.stdout.readline().startswith(b"http")
        assert len(list(tmp_path.glob("logparse-explore-*"))) == 1
        page.send_signal(end)
        page.wait(PATIENCE_S)
    assert wait_until(lambda: not list(tmp_path.glob("logparse-explore-*"))), "a reader may write until it notices"


def wait_until(true: Callable[[], bool], seconds: float = 120.0) -> bool:
    end = time.monotonic() + seconds
    while not (so := true()) and time.monotonic() < end:
        time.sleep(0.05)
    return so
