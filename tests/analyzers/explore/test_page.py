"""Tests of the HTML page's server without a browser: whom it answers, what it sends, and what its CSV contains."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

pytest.importorskip("flask", reason="the extra `explore` is not installed")

from flask.testing import FlaskClient

from analyzers.explore.load.beside import compare_runs, find_run_to_compare, keep
from analyzers.explore.load.child import _most_to_save
from analyzers.explore.page.address import tunnel
from analyzers.explore.page.app import application
from analyzers.explore.page.data import PageData, Pages
from analyzers.explore.page.serve import explore
from analyzers.explore.page.table import csv, records
from analyzers.explore.plain_text import solution_name
from analyzers.explore.point_table import build
from analyzers.explore.queries import changes
from analyzers.explore.selection import Selection, from_url
from analyzers.explore.views import apply_click
from logparse.errors import LogparseError, StoreError
from logparse.ingest import record
from logparse.model import Call, Fact, Measurement, solution_from_text
from logparse.store import Store, open_store
from tests.analyzers.example import B, F, W
from tests.analyzers.explore.conftest import make_time, part, reading_here


@pytest.fixture(scope="module")
def client(planted: Store) -> Iterator[FlaskClient]:
    with reading_here():
        data = PageData(planted.url)
        assert data.wait(300), data.error
    yield application(data).test_client()
    data.close()


def test_a_click_in_a_chart_answers_with_a_url(client: FlaskClient) -> None:
    def after(data: object, *, boxed: bool = False, view: str = "overview") -> object:
        given = {"search": f"?view={view}&search=NT", "data": data, "boxed": boxed}
        return part(client, "click", **given)["search"]

    bar = {"points": [{"customdata": ["regret", 1, 2]}]}
    assert after(bar, view="regret") == "?view=regret&regret=1..2&search=NT"
    assert after({"points": []}) is None, "what selects nothing changes no URL"
    box = {"points": [], "range": {"x": [1, 2], "y": [3, 4]}}
    assert after(box, boxed=True, view="roofline") == "?view=roofline&intensity=1..2&tflops=3..4&search=NT"
    unreadable: object
    for unreadable in ("0", None, [], {"points": [3]}, {"points": [{"customdata": ["regret", "x"]}]}):
        assert after(unreadable, view="regret") is None
    assert after({"range": {"x": ["a", 1], "y": [1, 2]}}, boxed=True, view="roofline") is None


def test_the_server_sends_the_requested_rows(client: FlaskClient) -> None:
    """The server sends the rows that the table requests: sorted, and from one position to another.

    If a request contains something that the HTML page would never send, it is ignored.
    """
    by_time = part(client, "rows", search="", start=0, end=100, sort=[{"colId": "time_us", "sort": "asc"}], filter={})
    times = [x["time_us"] for x in by_time["rows"]]
    assert times == sorted(times)
    assert by_time["count"] == len(times) == 3
    assert by_time["note"] == "3 problems"
    plain = part(client, "rows", search="", start=0, end=2)
    assert [x["id"] for x in plain["rows"]] == [x["id"] for x in part(client, "rows", start=0, end=9)["rows"]][:2]
    odd = part(client, "rows", search=3, start=0, end=10**9, sort=[{"colId": ["x"]}, 3], filter={"time_us": 3, "x": {}})
    assert odd["count"] == 3


@pytest.mark.parametrize(("name", "body"), [("nosuch", {}), ("card", []), ("chart", "x")])
def test_what_asks_for_no_part_gets_none(client: FlaskClient, name: str, body: object) -> None:
    assert client.post(f"/part/{name}", json=body).status_code == 404


@pytest.mark.parametrize("host", ["127.0.0.1:8050", "localhost:8050", "localhost", "[::1]:8050"])
def test_requests_that_name_this_host_are_answered(client: FlaskClient, host: str) -> None:
    answer = client.get("/", headers={"Host": host})
    assert answer.status_code == 200
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "http" not in policy
    assert "'unsafe-inline'" not in policy.split("style-src")[0]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8050", "127.0.0.1.evil.example", "localhost@evil.example"]
)
def test_requests_that_name_another_host_are_refused(client: FlaskClient, host: str) -> None:
    for path in ("/", "/assets/explore.js", "/assets/plotly.min.js"):
        assert client.get(path, headers={"Host": host}).status_code == 403


def test_requests_of_other_sites_are_refused(client: FlaskClient) -> None:
    headers = {"Host": "127.0.0.1:8050", "Origin": "http://evil.example"}
    assert client.post("/part/rows", headers=headers, json={}).status_code == 403


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://127.0.0.1:8050", 200), ("http://127.0.0.1:9999", 403), ("http://127.0.0.1", 403), ("null", 403)],
)
def test_an_origin_must_be_this_host_and_port(client: FlaskClient, origin: str, status: int) -> None:
    headers = {"Host": "127.0.0.1:8050", "Origin": origin}
    assert client.get("/assets/explore.css", headers=headers).status_code == status


@pytest.mark.usefixtures("read_here")
def test_only_who_has_the_token_is_answered(planted: Store) -> None:
    data = PageData(planted.url)
    try:
        stranger, user = (application(data, token="secret").test_client() for _ in range(2))
        for path in ("/", "/assets/explore.js", "/overrides.zip", "/?token=wrong", "/?token="):
            assert stranger.get(path).status_code == 403, path
        assert stranger.post("/part/rows?token=secret", json={}).status_code == 403
        answer = user.get("/?view=regret&token=secret")
        assert answer.status_code == 200
        assert 'content="0; url=/?view=regret"' in answer.text, "a link of its own, with which the cookie comes"
        assert "secret" not in answer.text
        cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert user.get("/").status_code == 200, "the cookie has it from now on"
    finally:
        data.close()


@pytest.mark.usefixtures("read_here")
def test_an_unreadable_store_states_the_reason(tmp_path: object) -> None:
    data = PageData(f"{tmp_path}/nothing")
    try:
        with pytest.raises(LogparseError, match="no store at"):
            data.cursor()
    finally:
        data.close()


@pytest.mark.usefixtures("read_here")
def test_a_store_compared_with_its_copy_has_no_changes(sampled: Store, tmp_path: Path) -> None:
    """If a store (Parquet folder) is compared with its own copy, nothing is reported as faster or slower.

    The web page finds out which kernel the library chose for each call. This result must be used for both stores.
    """
    url = shutil.copytree(sampled.url, tmp_path / "store", ignore=shutil.ignore_patterns("explore"))
    data = PageData(str(url), other=str(url))
    try:
        assert data.wait(300), "the store is read and judged"
        with data.cursor() as con:
            told = changes(con, Selection())
            lost = con.execute("select count(*) from points where loss_us > 0").fetchone()
    finally:
        data.close()
    assert lost != (0,), "the time of some pick is not the best known one"
    assert told["problems"] > 20
    assert (told["faster"], told["slower"]) == (0, 0)
    assert told["here_us"] == pytest.approx(told["there_us"])


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Return a Parquet folder with two runs of a job, before and after a software change.

    After the change the forward convolution is faster, the backward-data pass is the same, and the weight gradient is
    slower.
    """
    store = open_store(tmp_path_factory.mktemp("two") / "store", create=True)
    for run, times in (("before", (187.0, 219.0, 5455.0)), ("after", (93.5, 220.0, 10910.0))):
        records = [make_time(problem, "ConvAsm", us) for problem, us in zip((F, B, W), times, strict=True)]
        record(store, records, run=run, name=f"{run}.HIP.fdb.txt", format="miopen-find-db")
    return store


def test_compare_takes_a_store_a_run_or_both(two_runs: Store, sampled: Store) -> None:
    def found(word: str) -> tuple[str, str]:
        store, run = find_run_to_compare(word, sampled)
        return store.url, run

    assert found(two_runs.url) == (two_runs.url, "after")
    assert found(f"{two_runs.url}:before") == found(f"{two_runs.url}#before") == (two_runs.url, "before")
    assert found("demo") == (sampled.url, "demo")
    with pytest.raises(StoreError, match="no run 'nosuch'"):
        found(f"{two_runs.url}:nosuch")
    with pytest.raises(StoreError, match=r"neither a store nor a run of .*demo"):
        found("nosuch")
    with pytest.raises(StoreError, match="neither a store nor a run"):
        explore(two_runs.url, compare="nosuch", port=0, browser=False)


@pytest.mark.usefixtures("read_here")
def test_a_run_that_is_read_while_the_page_is_open_is_found(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", create=True)
    record(store, [make_time(F, "ConvAsm", 187.0)], run="first", name="a.HIP.fdb.txt", format="miopen-find-db")
    pages = Pages(PageData(store.url))
    try:
        client = application(pages).test_client()
        assert "no run “later”" in str(part(client, "surroundings", search="?run=later")["verdict"])
        record(store, [make_time(F, "ConvAsm", 93.0)], run="later", name="b.HIP.fdb.txt", format="miopen-find-db")
        assert pages.of(from_url("?run=later")).wait(300)
        answer = part(client, "surroundings", search="?run=later")
        assert "Run later." in str(answer["verdict"])
        assert "run=later" in str(part(client, "surroundings", search="")["runs"]), "the list has it, too"
    finally:
        pages.close()


@pytest.mark.usefixtures("read_here")
def test_runs_of_one_store_are_chosen_and_compared_in_the_page(two_runs: Store) -> None:
    first = PageData(two_runs.url)
    pages = Pages(first)
    try:
        client = application(pages).test_client()

        def shown(search: str) -> dict[str, str]:
            page = pages.of(from_url(search))
            assert page.wait(300), page.error
            answer = part(client, "surroundings", search=search)
            return {name: str(values) for name, values in answer.items()}

        assert "Run after." in shown("?view=overview")["verdict"]
        assert "?view=overview&run=before" in shown("?view=overview")["runs"]
        offered = shown("?view=compare&sibling_ratio=3..1000000")["answer"]
        assert "'?view=compare&run=after&compare=before'" in offered, "a link without filters of other tabs"
        assert "compare=after" not in offered, "no run is compared with itself"
        assert pages.of(from_url("?run=nosuch&compare=<img>")) is first, "what a link names and is not there"
        unknown = part(client, "surroundings", search="?run=nosuch")
        assert "This store has no run “nosuch”" in str(unknown["verdict"])
        assert "?view=overview&run=before" in str(unknown["verdict"]), "the way out"
        assert (unknown["answer"], unknown["filters"]) == ([], [])
        itself = pages.of(from_url("?run=before&compare=before"))
        assert (itself.run, itself.other) == ("before", ""), "no run is compared with itself"
        both = "?view=compare&run=after&compare=before"
        found = shown(both)["answer"]
        data = pages.of(from_url(both))
        assert (data.run, data.other) == ("after", "before")
        assert data is pages.of(from_url(both.replace("compare&", "regret&", 1))), "read once"
        turned = "?view=compare&run=before&compare=after"
        assert pages.of(from_url(turned)) is data, "from the earlier run to the later one, whichever was chosen first"
        assert shown(turned)["answer"] == found
        heading = str(part(client, "surroundings", search=turned)["runs"][0][2][0])
        assert "['b', {}, 'before'], ' → ', ['b', {}, 'after']" in heading
        earlier = pages.of(from_url(turned.replace("compare&", "overview&", 1)))
        assert (earlier.run, earlier.other) == ("before", ""), "the other tabs have the run that the user looks at"
        chosen = shown("?view=overview&run=before&compare=after")["runs"]
        assert "'Run ', ['b', {}, 'before'], ' · ', ['b', {}, 'before'], ' → ', ['b', {}, 'after']" in chosen
        assert "?view=overview&run=after&compare=before" in chosen, "the pair stays"
        assert "?view=overview&run=before&compare=after" in shown(both)["runs"]
        assert "5.86 ms → 11.2 ms (+91.5%): 1 faster, 1 slower" in found
        assert (
            "3 problems have a time in both runs (each counted as one call, because no file of the run counts the "
            "calls)" in found
        )
        rows = part(client, "rows", search=both, start=0, end=9)
        assert [x["moved"] for x in rows["rows"]] == ["slower", "faster", "same"], "by what the time changed"
        assert rows["note"] == "3 problems, the largest change first"
        with data.cursor() as con:
            files = con.execute("select distinct file from points").fetchall()
        assert files == [("after.HIP.fdb.txt",)], "other runs' measurements are no rows of this one"
    finally:
        pages.close()


@pytest.mark.parametrize("open_run", ["before", "after"])
def test_an_unknown_layout_is_compared_as_in_diff(tmp_path: Path, open_run: str) -> None:
    """A convolution with unknown memory layout is compared with the matching convolution of the other run.

    The other run must have only one convolution that matches in all other properties. ``logparse diff`` compares in the
    same way.
    """
    store = open_store(tmp_path / "store", create=True)
    for run, us in (("before", 100.0), ("after", 60.0)):
        unknown: dict[str, Any] = {}
        if run == open_run:
            unknown = dict.fromkeys(("in_layout", "weights_layout", "out_layout"))
        rows = [make_time(replace(problem, **unknown), "ConvAsm", us) for problem in (F, replace(W, k=512))]
        record(store, rows, run=run, name=f"{run}.HIP.fdb.txt", format="miopen-find-db")
    found = compare_runs(store, "after", store, "before")
    assert set(found.rows["state"]) == {"slower"}, "before was slower"
    with store.connect() as con:
        build(con, "after", others=keep(found, tmp_path))
        shown = changes(con, Selection())
    assert (shown["problems"], shown["called"], shown["faster"], shown["slower"]) == (2, 0, 2, 0)
    assert (shown["here_us"], shown["there_us"]) == (120.0, 200.0)


def test_the_tunnel_names_the_port() -> None:
    assert "ssh -N -L 8123:127.0.0.1:8123" in tunnel(8123)


def test_csv_runs_no_formula_and_keeps_negative_numbers() -> None:
    frame = pd.DataFrame({"id": ["a"], "label": ["=cmd|' /C calc'!A0"], "saving_us": [-1.5]})
    assert csv(frame) == "Problem,Could save (ms)\n'=cmd|' /C calc'!A0,-1.5\n"


def test_csv_and_table_show_control_and_direction_characters_escaped() -> None:
    frame = pd.DataFrame({"id": ["a"], "label": ["evil\u202egnp\x1b[31m"]})
    assert csv(frame) == "Problem\nevil\\u202egnp\\x1b[31m\n"
    assert records(frame)[0]["label"] == "evil\\u202egnp\\x1b[31m"


@pytest.mark.parametrize(
    ("solution", "name"),
    [
        ("miopen:ConvDirectNaiveConvWrw", "ConvDirectNaiveConvWrw"),
        ("Default", "Default"),
        ("kernel:void cutlass::Kernel2<cutlass_80_nn_align1>(cutlass_80_nn_align1::Params)", "cutlass_80_nn_align1"),
        ("kernel:void at::f<4, (anonymous namespace)::g>(int, T1)", "at::f<4, (anonymous namespace)::g>"),
        # Better the whole name than a name cut at the wrong place.
        ("kernel:void f(int, void (*)(int))", "void f(int, void (*)(int))"),
    ],
)
def test_a_short_solution_name_is_what_distinguishes_it(solution: str, name: str) -> None:
    assert solution_name(solution) == name


def test_records_are_json() -> None:
    assert records(pd.DataFrame({"a": [1.0, float("nan")], "b": ["x", pd.NA]})) == [
        {"a": 1.0, "b": "x"},
        {"a": None, "b": None},
    ]


@pytest.mark.parametrize(
    ("view", "data", "boxed", "url"),
    [
        ("roofline", {"points": [{"customdata": ["abc", "x"]}]}, False, "?view=roofline&problem=abc"),
        ("roofline", {"range": {"x": [100, 1], "y": [2, 3]}}, True, "?view=roofline&intensity=1..100&tflops=2..3"),
        (
            "weights",
            {"range": {"x": [1, 2], "y": [3, 4]}},
            True,
            "?view=weights&sibling_us=1000..2000&w_us=3000..4000",
        ),
        ("regret", {"points": [{"customdata": 17}]}, False, "?view=regret"),
        ("roofline", {}, True, "?view=roofline"),
    ],
)
def test_a_click_is_a_url(view: str, data: dict[str, object], boxed: bool, url: str) -> None:
    assert apply_click(Selection(view=view), data, boxed=boxed).url() == url


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),  # a link in an e-mail
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
    ],
)
def test_what_other_sites_load_from_the_page_is_refused(
    client: FlaskClient, headers: dict[str, str], status: int
) -> None:
    assert client.get("/", headers=headers).status_code == status


def test_the_page_first_shows_the_run_with_the_largest_saving(tmp_path: Path) -> None:
    """The HTML page first shows the run in which the most time can be saved. This may not be the latest run."""
    # After a change the latest run may have nothing left to do. For a large store (Parquet folder) the latest run is
    # shown, because comparing the runs would take too long.
    store = open_store(tmp_path / "store", create=True)
    for run, pick in (("before", "Default"), ("after", "miopen:A")):
        rows = [Call(problem=W, category="bench", count=9, solution=solution_from_text(pick), pid=1)]
        record(store, [*rows, Fact("arch", "gfx942"), Fact("cu_count", "304")], run=run, name=run, format="table")
    times = [
        Measurement(problem=W, solution=solution_from_text(x), origin="table", time_us=us)
        for x, us in (("Default", 50.0), ("miopen:A", 20.0))
    ]
    facts = [Fact("arch", "gfx942"), Fact("cu_count", "304")]
    record(store, [*times, *facts], run="before", name="times.csv", format="table")
    assert store.latest_run(None) == "after"
    assert _most_to_save(store, 2) == "before"
    assert _most_to_save(store, 10**6) == "after", "a large store opens with its latest run"
