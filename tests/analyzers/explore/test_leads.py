"""Tests that what the page and the report say about a run leads to the rows that show it, over all sample runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("flask", reason="the extra `explore` is not installed")

from flask.testing import FlaskClient

from analyzers.explore.page.app import application
from analyzers.explore.page.data import PageData, Pages
from analyzers.explore.report import write_report
from analyzers.explore.selection import from_url
from logparse.ingest import ingest
from logparse.store import Store, open_store
from logparse.text import duration
from tests.analyzers.explore.conftest import part, reading_here
from tests.conftest import SAMPLES

OTHERS = sorted(x.name for x in SAMPLES.iterdir() if x.is_dir() and x.name not in ("traces", "hipblaslt", "miopen"))
TRACES = sorted(x.name for x in (SAMPLES / "traces").glob("*.json"))
LOG = SAMPLES / "hipblaslt" / "hipblaslt_rank0_4242.log"
REPICKED = {"91033": "91077", "91104": "91131", "91201": "91266", "104002": "104377"}
"""Kernels that the run ``after`` uses instead of those of the run ``job``: from, to."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Return a store (Parquet folder) with all samples in a few runs, and one job before and after a change."""
    # The run "job" has all logs and files of a job with GEMMs and convolutions. One of its files is from another GPU
    # model, so the device of a log that names none is unknown.
    folder = tmp_path_factory.mktemp("leads")
    made = open_store(folder / "store", create=True)
    after = LOG.read_text(encoding="utf-8")
    for old, new in REPICKED.items():
        after = after.replace(f"index {old}", f"index {new}")
    (folder / "after.log").write_text(after, encoding="utf-8")
    job = [x for name in ("hipblaslt", "miopen") for x in sorted((SAMPLES / name).glob("*.*")) if x.suffix != ".md"]
    ingest([str(x) for x in job], made, run="job", jobs=1)
    ingest([str(folder / "after.log")], made, run="after", jobs=1)
    for n in range(3):
        files = [x for name in OTHERS[n::3] for x in sorted((SAMPLES / name).iterdir()) if x.is_file()]
        ingest([str(x) for x in files if x.suffix not in (".md", ".py")], made, run=f"others {n}", jobs=1)
    for name in TRACES:
        ingest([str(SAMPLES / "traces" / name)], made, run=name, jobs=1)
    return made


@pytest.fixture(scope="module")
def pages(store: Store) -> Iterator[Pages]:
    with reading_here():
        made = Pages(PageData(store.url, "job"))
        yield made
        made.close()


@pytest.fixture(scope="module")
def client(pages: Pages) -> FlaskClient:
    return application(pages).test_client()


def elements(given: Any, tag: str) -> Iterator[tuple[dict[str, str], Any]]:
    """Yield the attributes and children of all elements of a kind in a part of the page."""
    if isinstance(given, list):
        if len(given) == 3 and isinstance(given[0], str) and isinstance(given[1], dict):
            if given[0] == tag:
                yield given[1], given[2]
            yield from elements(given[2], tag)
        else:
            for one in given:
                yield from elements(one, tag)


def words(given: Any) -> str:
    if isinstance(given, list) and len(given) == 3 and isinstance(given[1], dict):
        return words(given[2])
    return "".join(map(words, given)) if isinstance(given, list) else str(given or "")


def surroundings(client: FlaskClient, pages: Pages, search: str) -> dict[str, Any]:
    assert pages.of(from_url(search)).wait(300)
    return part(client, "surroundings", search=search)


def rows(client: FlaskClient, search: str) -> list[dict[str, Any]]:
    found = part(client, "rows", search=search, start=0, end=500)
    assert len(found["rows"]) == found["count"]
    return list(found["rows"])


def test_every_card_and_remark_leads_to_the_rows_that_it_counts(
    store: Store, pages: Pages, client: FlaskClient
) -> None:
    leads = {run: _leads_of(client, pages, run) for run in store.runs()}
    assert sum(cards for cards, _ in leads.values()) > 5, "or nothing is tested"
    _, slow = leads["job"]
    assert len(slow) == 6, "7 of 15 are slow in the find-db, and the job runs a faster solution of one"
    assert all(x.startswith("W ") for x in slow)


def _leads_of(client: FlaskClient, pages: Pages, run: str) -> tuple[int, list[str]]:
    """Follow all cards and remarks of a run.

    Returns the number of cards that lead anywhere, and the rows to which the last remark leads.
    """
    shown = surroundings(client, pages, f"?run={quote(run)}")
    seen = 0
    for card in (x for _, x in elements(shown["answer"], "li")):
        links = [x for x, _ in elements(card, "a") if x.get("class") == "whole"]
        lead = [words(x) for given, x in elements(card, "span") if given.get("class") == "leads"]
        assert len(links) == len(lead), "a card that leads anywhere says where"
        for link in links:
            seen += 1
            if "view=timeline" in link["href"]:
                kernels = surroundings(client, pages, link["href"])["after"]
                assert len(list(elements(kernels, "tr"))) > 1, (run, link)
                continue
            count = re.fullmatch(r"Show ([\d,]+) problems?", lead[0])
            assert count, lead
            assert len(rows(client, link["href"])) == int(count[1].replace(",", "")) > 0, (run, lead)
            assert words(surroundings(client, pages, link["href"])["chips"]), "the filter has a name"
    labels: list[str] = []
    for link in [x for x, _ in elements(shown["verdict"], "a") if x.get("class") == "shows"]:
        labels = [x["label"] for x in rows(client, link["href"])]
        assert labels, (run, link)
    return seen, labels


def test_problems_timed_by_a_find_db_alone_have_times(client: FlaskClient, pages: Pages) -> None:
    """The log of the convolutions names no device, but other logs of its process do.

    So the times of a file for this device are times of the calls. They are shown with the file that has them.
    """
    surroundings(client, pages, "?run=job&view=weights")  # waits for the analyzers
    listed = rows(client, "?run=job&view=weights")
    assert len(listed) == 15
    assert {x["direction"] for x in listed} == {"W"}
    for row in listed:
        assert row["sibling_ratio"] == pytest.approx(row["w_us"] / max(row["f_us"] or 0, row["b_us"] or 0)), row
        assert row["passes_from"].endswith("gfx942130.HIP.fdb.txt")
        assert row["beyond_us"] == pytest.approx(
            row["calls"] * max(0, row["w_us"] - max(row["f_us"], row["b_us"])) / 1e3
        )
        assert row["w_total_us"] == pytest.approx(row["calls"] * row["w_us"] / 1e3)
    beyond = [x["beyond_us"] for x in listed]
    assert beyond == sorted(beyond, reverse=True), "the layers that lose most come first"
    drawn = part(client, "chart", search="?run=job&view=weights", theme="light", webgl=True)["figure"]["data"]
    assert sum(len(x["customdata"]) for x in drawn if x.get("customdata")) == 15
    [named] = [x for x in listed if "; F and B from " in x["passes_from"]]
    assert named["w_us"] == pytest.approx(named["time_us"]), "a log names this solver, so W is its time"
    card = words(part(client, "card", search=f"?run=job&problem={named['id']}", theme="light")["card"])
    assert "1.02× (W 206 µs, F" in card
    for row in listed:
        card = words(part(client, "card", search=f"?run=job&problem={row['id']}", theme="light")["card"])
        assert "No solution of this problem is timed" not in card
        assert "nothing is measured" not in card


def test_the_name_of_a_direction_finds_it(client: FlaskClient, pages: Pages) -> None:
    for name, letter in {"forward": "F", "dgrad": "B", "Wgrad": "W", "backward weights": "W"}.items():
        assert {x["direction"] for x in rows(client, f"?run=job&search={name}")} == {letter}


def test_a_letter_finds_a_direction(client: FlaskClient, pages: Pages) -> None:
    for letter in "fBw":
        found = rows(client, f"?run=job&search={letter}")
        assert {x["direction"] for x in found} == {letter.upper()}
    begins = {"label": {"type": "contains", "filter": "W "}}
    found = part(client, "rows", search="?run=job", start=0, end=100, filter=begins)
    assert {x["direction"] for x in found["rows"]} == {"W"}


def test_a_comparison_goes_from_the_earlier_run_to_the_later_one(client: FlaskClient, pages: Pages) -> None:
    both = "?run=after&compare=job"
    shown = surroundings(client, pages, both)
    head = [words(x) for _, x in elements(shown["verdict"], "strong")]
    assert head == ["job → after: 4 of 17 picks changed; whether the job got faster is not known"]
    said = words(shown["verdict"])
    assert "The runs have no times that can be compared." in said
    assert "244 calls of GEMMs in 2 processes; run after logged no convolutions and 122 calls of GEMMs" in said
    assert "To compare their times, make both runs with logparse capture --trace 2." in said
    assert "−59.1%" not in said, "times of the kernels alone do not stand beside the verdict"
    compared = words(surroundings(client, pages, f"{both}&view=compare")["answer"])
    assert "4 of 17 problems with another pick" in compared
    assert "44 problems only in job." in compared, "calls alone count, where a run logs calls"
    assert "calls of GEMMs244 → 122" in compared
    assert "calls of convolutions697 → none in its logs (unknown)" in compared
    assert "The kernels alone, timed in a benchmark: 69.8 ms → 28.5 ms (−59.1%) at the calls of after" in compared
    assert "bench_output.txt (run job) has these times of both picks, for all 4" in compared
    assert "124 ms (calls × time of a call; times from bench_output.txt (run job))" in words(shown["verdict"])
    assert "times from" not in words(surroundings(client, pages, "?run=job")["verdict"]), "its own times need no name"
    first, second, *_ = rows(client, f"{both}&view=compare")
    assert (first["change_us"], second["change_us"]) == (
        pytest.approx(-35.031, rel=1e-3),
        pytest.approx(-3.6, rel=0.01),
    )
    asked = part(client, "rows", search=f"{both}&view=compare", start=0, end=1)
    assert asked["by"] == "change_us", "the column by which the rows are ordered is shown"
    assert (first["pick_there"], first["pick_here"]) == ("hipblaslt:91033", "hipblaslt:91077")
    assert (first["pick_there_us"], first["pick_here_us"]) == (6120.5, 1741.6)
    card = words(part(client, "card", search=f"{both}&problem={first['id']}", theme="light")["card"])
    assert "Pick, job → afterhipblaslt:91033 (6.12 ms) → hipblaslt:91077 (1.74 ms)" in card
    left = words(shown["verdict"])
    assert "Not judged: 44 problems of job, which after did not log." in left
    turned = surroundings(client, pages, "?run=job&compare=after&view=compare")
    assert words(turned["answer"]) == compared, "the direction is the same if the earlier run was chosen first"
    assert [words(x) for _, x in elements(turned["verdict"], "strong")] == head
    assert words(turned["runs"]).startswith("job → after")


def test_the_report_leads_as_the_page_does(store: Store, tmp_path: Path) -> None:
    write_report(store, tmp_path / "report.html", run="after", compare="job")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)
    data = json.loads(found.group(1)) if found else {}
    assert "job → after: 4 of 17 picks changed" in str(data["views"]["overview"]["verdict"])
    assert data["opens"] == "?view=compare"
    order = sorted(range(17), key=lambda i: data["rows"]["rank_compare"][i])
    assert [data["rows"]["pick_here"][i] != data["rows"]["pick_there"][i] for i in order[:5]] == [True] * 4 + [False]


def test_a_tab_without_data_is_no_link_and_says_why(client: FlaskClient, pages: Pages) -> None:
    shown = surroundings(client, pages, "?run=after")
    off = {words(text): given["title"] for given, text in elements(shown["tabs"], "span")}
    assert off["Timeline"] == "This run has no trace."
    assert "Backward weights" in off
    assert len(list(elements(shown["tabs"], "a"))) == 4
    with_weights = surroundings(client, pages, "?run=job&view=weights")
    assert "Backward weights" in {words(x) for _, x in elements(with_weights["tabs"], "a")}
    leads = [given["href"] for given, x in elements(with_weights["runs"], "a") if words(x) == "after"]
    assert leads[0].startswith("?view=overview&run=after"), "another run may not have this tab"


def test_shares_name_their_base(client: FlaskClient, pages: Pages) -> None:
    assert surroundings(client, pages, "?run=job")["base"] == "Share of the 777 ms of GEMMs and convolutions"
    some = surroundings(client, pages, "?run=job&direction=W")["base"]
    assert some == "Share of the time of GEMMs and convolutions; each list ignores its own filter."


def test_an_estimated_saving_stands_beside_the_time_that_it_assumes(client: FlaskClient, pages: Pages) -> None:
    listed = rows(client, "?run=job")
    estimated = [x for x in listed if x["saving_from"] == "estimated"]
    assert estimated
    for row in estimated:
        assert row["calls"] * (row["time_us"] - row["aim_us"]) / 1e3 == pytest.approx(row["saving_us"])
    assert all(x["aim_us"] is None for x in listed if x["saving_from"] != "estimated")
    slow = next(x for x in estimated if x["label"].startswith("W "))
    card = words(part(client, "card", search=f"?run=job&problem={slow['id']}", theme="light")["card"])
    expected = duration(slow["aim_us"])
    assert re.search(rf"Expected, the time of its [FB]≈ {expected}", card), "the drawer has the table's time"
    assert re.search(rf"The expected {expected} \(the time of its [FB]\) needs another change: “Search MIOpen", card)
    assert f"Could save, estimated≈ {duration(slow['saving_us'] * 1e3)}" in card
    assert f"Now{'≥ ' * slow['at_least']}{duration(slow['time_us'])}" in card
    answer = client.get("/problems.csv?run=job")
    assert answer.text.startswith("Problem,Could save (ms),Total time (ms),Calls,Now (µs),Best (µs),")
    assert answer.text.splitlines()[0].endswith(",Finding")


def test_the_card_names_the_places_in_the_program(tmp_path: Path) -> None:
    """A trace with stacks shows from where the program calls a problem. Other traces add no line to the card."""
    made = open_store(tmp_path / "store", create=True)
    for run in ("stacks", "job"):
        ingest([str(SAMPLES / "traces" / f"{run}.trace.json")], made, run=run, jobs=1)
    told = {}
    for run in ("stacks", "job"):
        with reading_here():
            pages = Pages(PageData(made.url, run))
            client = application(pages).test_client()
            assert pages.first.wait(300)
            rows = part(client, "rows", search=f"?run={run}", start=0, end=500)["rows"]
            cards = [part(client, "card", search=f"?run={run}&problem={x['id']}", theme="light")["card"] for x in rows]
            pages.close()
        told[run] = {words(x) for card in cards for given, x in elements(card, "p") if given.get("class") == "caller"}
    assert told["stacks"] == {
        "Called from model.py:20 (attention), model.py:12 (forward)",
        "Called from model.py:20 (attention)",
    }
    assert told["job"] == set()
