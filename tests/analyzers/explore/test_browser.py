"""The page and the report in a real headless Chromium.

Needs Playwright and Debian's chromium (``apt-get install chromium``).  Where CI is set both must be there: a browser
test that skips itself would show nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from analyzers.explore.queries import COMPARED, TABLE
from logparse.store import Store
from tests.analyzers.explore.conftest import LINK, PLANTED, reading_here
from tests.conftest import NIGHTLY

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FloatRect, Locator, Page, Request, ViewportSize

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
         "--no-first-run", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
         "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")  # fmt: skip
SECONDS = 120_000  # of waiting at most: a machine that does other things, too, is slow
ASKING = """window.store?.getState().isLoading || !!document.querySelector('#content[aria-busy=true]')"""
"""Dash's own word for it, and the page's; a report has none."""


WINDOW: ViewportSize = {"width": 1400, "height": 1000}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not os.environ.get("CI"):
        pytest.importorskip("playwright", reason="no playwright")
        pytest.importorskip("dash", reason="no dash")
        if not Path(CHROMIUM).exists():
            pytest.skip("no chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield chromium
        chromium.close()


@dataclass
class Visit:
    """A page, and what it did that it should not: errors, requests to other hosts."""

    page: Page
    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def clean(self) -> None:
        assert self.errors == []
        assert self.outside == []
        assert self.page.evaluate("window.ran") is None, "a script of a log ran"


def visit(browser: Browser, theme: str = "light") -> Visit:
    context = browser.new_context(
        viewport=WINDOW,
        color_scheme=theme,
        permissions=["clipboard-read", "clipboard-write"],  # type: ignore[arg-type]
    )
    made = Visit(context.new_page())
    made.page.set_default_timeout(SECONDS)

    def note(request: Request) -> None:
        if not re.match(r"(http://127\.0\.0\.1:|file:|data:|blob:)", request.url):
            made.outside.append(request.url)

    context.on("request", note)  # FLAGS let none out; a route would switch Chromium's cache off
    made.page.on("console", lambda x: made.errors.append(x.text) if x.type == "error" else None)
    made.page.on("pageerror", lambda x: made.errors.append(str(x)))
    return made


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Visit]:
    """The tab that tests use one after another: loading the page takes 4 s of CPU, going to a view of it 0.4 s."""
    made = visit(browser)
    yield made
    made.page.context.close()


@contextmanager
def visiting(browser: Browser, tab: Visit, theme: str = "light") -> Iterator[Visit]:
    """A tab as a test wants it.  At full size, and in the dark, each test has a tab of its own."""
    if NIGHTLY or theme != "light":
        made = visit(browser, theme)
        yield made
        made.page.context.close()
        return
    tab.errors.clear()
    tab.outside.clear()
    tab.page.set_viewport_size(WINDOW)
    tab.page.emulate_media(reduced_motion="null", media="null")
    yield tab


@pytest.fixture(params=["light", pytest.param("dark", marks=pytest.mark.nightly)])
def themed(request: pytest.FixtureRequest, browser: Browser, tab: Visit) -> Iterator[Visit]:
    with visiting(browser, tab, request.param) as made:
        yield made


@pytest.fixture
def seen(browser: Browser, tab: Visit) -> Iterator[Visit]:
    with visiting(browser, tab) as made:
        yield made


@pytest.fixture
def alone(browser: Browser) -> Iterator[Visit]:
    """A tab that no other test sees."""
    made = visit(browser)
    yield made
    made.page.context.close()


@dataclass
class Served:
    url: str
    data: Any


def _serve(store: Store, other: str | None = None) -> Iterator[Served]:
    from werkzeug.serving import make_server

    from analyzers.explore.page.app import application
    from analyzers.explore.page.data import PageData

    data = PageData(store.url, other=other)
    server = make_server("127.0.0.1", 0, application(data).server, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Served(f"http://127.0.0.1:{server.port}/", data)
    server.shutdown()
    thread.join()
    server.server_close()
    data.close()


@pytest.fixture(scope="module")
def demo(sampled: Store, browser: Browser) -> Iterator[Served]:
    with reading_here():
        yield from _serve(sampled)


@pytest.fixture(scope="module")
def both(planted: Store, after: Store, browser: Browser) -> Iterator[Served]:
    with reading_here():
        yield from _serve(planted, after.url)


def ready(page: Page) -> None:
    """Everything of the view is drawn, and the analyzers' results are there."""
    drawn = ("#charts .main-svg:visible", "#charts .no-webgl", "#sql-text:visible", "#answer p:has-text('--compare')")
    page.wait_for_selector(", ".join(drawn))
    page.wait_for_selector("#verdict strong")
    page.wait_for_function("!document.querySelector('#verdict').textContent.includes('Reading')")
    page.wait_for_selector("#table .ag-row, #sql-text:visible")  # also rows that are being fetched
    page.wait_for_selector("#table-note:not(:empty), #sql-text:visible")
    page.wait_for_function(f"!({ASKING})")


def show(page: Page, address: str) -> None:
    """Go to a view of the page: within it, as its own links do, where the tab holds a page of this server.

    That is over once the page has asked for nothing for a quarter of a second.
    """
    server, _, search = address.partition("?")
    if NIGHTLY or page.url.partition("?")[0] != server:
        page.goto(address)
    elif page.url != address:
        page.evaluate(
            "x => { history.pushState(null, '', x); dispatchEvent(new PopStateEvent('popstate')); }",
            f"{server}?{search}" if search else server,
        )
    ready(page)
    page.evaluate(
        f"""() => new Promise((done) => {{
            let since = performance.now();
            const look = () => {{
                if ({ASKING}) since = performance.now();
                if (performance.now() - since > 250) done(); else setTimeout(look, 50);
            }};
            look();
        }})"""
    )


def still(page: Page, found: Locator) -> FloatRect:
    """Where it stands, in the window, once the page neither scrolls nor asks for what it draws: closing a problem does
    both, and so does the verdict's arrival.
    """
    found.scroll_into_view_if_needed()
    box, now = None, found.bounding_box()
    while now is None or now != box or page.evaluate(ASKING):
        page.wait_for_timeout(300)
        box, now = now, found.bounding_box()
    return now


def click_bar(page: Page, chart: str, text: str) -> None:
    """Click the name of this bar in the overview."""
    label = page.locator(f"{chart} .scatterlayer .textpoint", has_text=re.compile(f"^{re.escape(text)}$")).first
    box = still(page, label)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def click_mark(page: Page, where: str) -> None:
    """Click the first mark of these where plotly sees it: under the pointer."""
    box = still(page, page.locator(where).first)
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x - 9, y - 3)
    page.mouse.move(x, y, steps=4)
    page.mouse.click(x, y)


def click_point(page: Page, chart: str, trace: str = "") -> str:
    """Click the first point (of this trace), which WebGL draws without an element of its own; the id of its problem."""
    still(page, page.locator(chart))
    x, y, problem = page.evaluate(
        """([chart, name]) => {
            const gd = document.querySelector(`${chart}.js-plotly-plot, ${chart} .js-plotly-plot`);
            const trace = gd._fullData.find((x) => x.customdata && (!name || x.name === name));
            const {xaxis, yaxis} = gd._fullLayout;
            const box = gd.getBoundingClientRect();
            return [box.x + xaxis._offset + xaxis.d2p(trace.x[0]), box.y + yaxis._offset + yaxis.d2p(trace.y[0]),
                    trace.customdata[0][0]];
        }""",
        [chart, trace],
    )
    page.mouse.move(x - 9, y - 3)
    page.mouse.move(x, y, steps=4)
    page.wait_for_selector(f"{chart} .hoverlayer .hovertext")
    page.mouse.click(x, y)
    return str(problem)


def drag(page: Page, where: str, left: float, top: float, right: float, bottom: float) -> None:
    """A box in the plot of a chart, its corners as shares of the plot."""
    box = still(page, page.locator(f"{where} .nsewdrag").first)
    page.mouse.move(box["x"] + left * box["width"], box["y"] + top * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + right * box["width"], box["y"] + bottom * box["height"], steps=6)
    page.mouse.up()


def hovered(page: Page, where: str) -> str:
    """The hover text of the first mark of a chart, as it is shown."""
    page.emulate_media(reduced_motion="reduce")
    box = still(page, page.locator(f"{where} .scatterlayer .point").first)
    page.mouse.move(box["x"] + box["width"] / 2 + 30, box["y"])
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=4)
    page.wait_for_selector(f"{where} .hoverlayer text", state="attached")
    return page.text_content(f"{where} .hoverlayer") or ""


def test_three_clicks_from_time_to_an_override(seen: Visit, demo: Served) -> None:
    page = seen.page
    show(page, demo.url)
    page.wait_for_function("document.querySelector('#verdict strong').textContent.includes('can be gained')")

    click_bar(page, "#chart-0", "GEMM")
    page.wait_for_url("**operation=GEMM*")
    page.wait_for_selector("#table .ag-row [col-id=label]:has-text('bf16_r')")
    page.wait_for_function(
        "[...document.querySelectorAll('#table .ag-row [col-id=label]')].every(x => !x.textContent.startsWith('W '))"
    )
    page.locator("#table .ag-row [col-id=label]").first.click()
    page.wait_for_selector("#text-override")
    row = page.inner_text("#text-override")
    page.click("#copy-override")
    page.wait_for_function("async row => (await navigator.clipboard.readText()).trim() === row.trim()", arg=row)
    assert "hipblaslt" in page.inner_text("#problem")
    assert len(row.splitlines()) >= 2
    page.wait_for_selector("#solutions .main-svg")
    seen.clean()


def test_the_overview_answers_before_it_breaks_down(seen: Visit, demo: Served) -> None:
    """At 1440 × 900: the time bar, the actions and the first rows of the table are on the screen; bars come after."""
    page = seen.page
    page.set_viewport_size({"width": 1440, "height": 900})
    show(page, demo.url)
    page.wait_for_selector("#answer .time-bar span")
    still(page, page.locator(".time-bar"))
    tops = page.evaluate(
        """() => Object.fromEntries(['#charts', '#table-box', '.cards', '.time-bar'].map(
            (x) => [x, document.querySelector(x).getBoundingClientRect().y + scrollY]))"""
    )
    assert sorted(tops, key=lambda x: tops[x]) == [".time-bar", ".cards", "#table-box", "#charts"]
    page.evaluate("scrollTo(0, 0)")
    assert page.locator("#table .ag-row").first.bounding_box()["y"] + 34 < 900
    with page.expect_download() as waiting:
        page.click(".cards .get >> nth=0")
    assert Path(waiting.value.path()).read_bytes().startswith(b"PK")
    assert page.locator("h1").count() == 1
    seen.clean()


def test_what_the_page_shows_is_whole_and_can_be_read_aloud(seen: Visit, demo: Served) -> None:
    page = seen.page
    page.set_viewport_size({"width": 1440, "height": 900})
    show(page, demo.url)
    for landmark in ("header", "nav", "main", "aside", "h1"):
        assert page.locator(landmark).count() == 1, landmark
    right = "x => Math.max(...[...document.querySelectorAll(x)].map((y) => y.getBoundingClientRect().right))"
    assert page.evaluate(right, "#table .ag-header-cell") <= page.evaluate(right, "#table"), "every column of the set"
    times = page.locator("#table .ag-row [col-id=saving_us]").all_inner_texts()
    assert {x.split()[-1] for x in times if x} >= {"ms", "µs"}, "units scale"
    assert (
        page.evaluate("getComputedStyle(document.querySelector('#table .ag-row [col-id=label]')).userSelect") == "text"
    )
    page.locator("#table .ag-row").first.click()
    page.wait_for_selector("#solutions .main-svg")
    before = page.locator("#problem").bounding_box()
    page.evaluate("document.querySelector('#problem h2').textContent = 'x'.repeat(10000)")
    assert page.locator("#problem").bounding_box() == before, "a long name does not stretch the card"
    assert page.evaluate(
        "document.querySelector('#problem').scrollWidth <= document.querySelector('#problem').clientWidth"
    )
    assert page.locator("#problem .bar").first.bounding_box()["height"] < 300
    seen.clean()


def test_a_problem_is_a_drawer_that_the_keyboard_leads(seen: Visit, demo: Served) -> None:
    page = seen.page
    show(page, demo.url)
    page.keyboard.press("/")
    page.wait_for_function("document.activeElement.id === 'search'")
    page.keyboard.press("Escape")
    page.wait_for_function("document.activeElement.id !== 'search'")
    page.locator("#table .ag-row[row-index='0'] [col-id=label]").click()
    page.wait_for_function("document.activeElement.id === 'problem'")
    box = page.locator("#problem").bounding_box()
    assert box["x"] + box["width"] == page.evaluate("document.documentElement.clientWidth"), "at the right"
    first = page.inner_text("#problem h2")
    page.keyboard.press("ArrowDown")
    page.wait_for_function("before => document.querySelector('#problem h2')?.textContent !== before", arg=first)
    page.wait_for_function("document.activeElement.id === 'problem'")
    page.keyboard.press("Escape")
    page.wait_for_selector("#problem", state="detached")
    seen.clean()


def test_url_is_the_state(seen: Visit, demo: Served) -> None:
    page = seen.page
    page.goto(demo.url + "?view=weights&direction=W")
    ready(page)
    assert page.inner_text(".chip").startswith("Direction: W")
    assert page.inner_text("nav .here") == "Backward weights"
    rows = page.inner_text("#table-note")
    page.click(".chip")
    page.wait_for_selector(".chip", state="detached")
    page.wait_for_function("before => document.querySelector('#table-note').textContent !== before", arg=rows)
    page.go_back()
    page.wait_for_selector(".chip")
    page.wait_for_function("before => document.querySelector('#table-note').textContent === before", arg=rows)
    seen.clean()


def test_a_closed_problem_opens_again_and_back_restores_it(seen: Visit, demo: Served) -> None:
    page = seen.page
    page.goto(demo.url + "?view=overview&search=NT+4096")
    ready(page)
    assert page.input_value("#search") == "NT 4096", "the search of the link stands in the box"
    row = page.locator("#table .ag-row[row-index='0'] [col-id=label]")
    row.click()
    page.wait_for_selector("#problem")
    page.click("#problem .close")
    page.wait_for_selector("#problem", state="detached")
    page.wait_for_selector("#table .ag-row-selected", state="detached")
    row.click()
    page.wait_for_selector("#problem")
    page.wait_for_function("location.search.includes('problem=')")
    page.click("#problem .close")
    page.wait_for_selector("#problem", state="detached")
    page.wait_for_function("!location.search.includes('problem=')")  # the panel goes before the address
    page.go_back()
    page.wait_for_selector("#problem")
    page.click(".chip")
    page.wait_for_function("document.querySelector('#search')?.value === ''")
    seen.clean()


def test_the_same_mark_can_be_clicked_again(seen: Visit, demo: Served) -> None:
    page = seen.page
    show(page, demo.url + "?view=overview")
    for _ in range(2):
        click_bar(page, "#chart-0", "GEMM")
        page.wait_for_url("**operation=GEMM*")
        page.click(".chip")
        page.wait_for_selector(".chip", state="detached")
    show(page, demo.url + "?view=shapes")
    for _ in range(2):
        click_mark(page, "#chart-1 .scatterlayer .point")
        page.wait_for_selector("#problem")
        page.click("#problem .close")
        page.wait_for_selector("#problem", state="detached")
    seen.clean()


def test_charts_keep_their_height_and_axes(seen: Visit, demo: Served) -> None:
    """Whatever the size of the window, and whichever view was there before."""
    page = seen.page
    show(page, demo.url + "?view=timeline")
    page.wait_for_selector("#chart-0 .heatmaplayer image")
    page.click("nav >> text=Shapes")
    page.wait_for_selector("#chart-0 .scatterlayer .textpoint text")
    ends = page.evaluate("document.querySelector('#chart-0 .js-plotly-plot')._fullLayout.yaxis.range")
    assert ends[0] == -0.5, "the timeline's reversed rows are not the map's"
    assert ends[1] > 5
    page.wait_for_selector("#chart-2 .main-svg")  # drawn last, when nothing else is to be done
    heights = "[...document.querySelectorAll('#charts .chart')].map(x => x.offsetHeight).filter(x => x)"
    before = page.evaluate(heights)
    page.set_viewport_size({"width": 1000, "height": 700})
    page.wait_for_function("document.querySelector('#chart-0 .main-svg').getBoundingClientRect().width < 760")
    assert page.evaluate(heights) == before
    assert min(before) > 300
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    seen.clean()


def test_a_legend_of_several_lines_stands_above_the_plot(seen: Visit, demo: Served) -> None:
    page = seen.page
    page.set_viewport_size({"width": 640, "height": 900})
    show(page, demo.url + "?view=roofline")
    box = "document.querySelector('#chart-3 {}').getBoundingClientRect()"
    legend, plot = (page.evaluate(box.format(x)) for x in (".legend .bg", ".nsewdrag"))
    assert legend["height"] > 30, "it has several lines"
    assert legend["y"] + legend["height"] <= plot["y"] + 1
    seen.clean()


def test_filters_are_reached_by_keyboard(seen: Visit, demo: Served) -> None:
    page = seen.page
    show(page, demo.url)
    page.locator("aside .entry", has_text="convolution").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**operation=convolution*")
    page.wait_for_selector(".chip")
    page.fill("#search", "W 64")
    page.keyboard.press("Enter")
    page.wait_for_url("**search=W+64*")
    page.wait_for_selector(".chip >> nth=1")
    page.locator("#table .ag-row[row-index='0'] [col-id=label]", has_text="W 64").focus()  # not one of before
    page.keyboard.press("Enter")
    page.wait_for_selector("#text-bench")
    page.focus("#copy-bench")
    page.keyboard.press("Enter")
    command = page.inner_text("#text-bench")
    page.wait_for_function("async text => (await navigator.clipboard.readText()) === text", arg=command)
    assert command.startswith("MIOpenDriver")
    seen.clean()


def test_table_sorts_filters_and_exports_what_it_shows(seen: Visit, demo: Served) -> None:
    page = seen.page
    show(page, demo.url + "?view=overview&direction=W")
    shown = int(page.inner_text("#table-note").split()[0])
    page.click("#table .ag-header-cell[col-id=time_us] .ag-header-cell-text")
    page.wait_for_selector("#table .ag-header-cell[col-id=time_us][aria-sort=descending]")  # the largest are asked for
    page.wait_for_selector("#table .ag-row")
    with page.expect_download() as waiting:
        page.click("#export")
    lines = Path(waiting.value.path()).read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("Problem,Could save (ms),Total time (ms),Calls,Now (µs)")
    assert len(lines) == shown + 1
    times = [float(line.split(",")[4]) for line in lines[1:] if line.split(",")[4]]
    assert times == sorted(times, reverse=True)
    seen.clean()


def test_sorting_and_column_filters_are_in_the_url(seen: Visit, demo: Served) -> None:
    page = seen.page
    show(page, demo.url + "?view=overview")
    everything = int(page.inner_text("#table-note").split()[0])
    page.click("#table .ag-header-cell[col-id=time_us] .ag-header-cell-text")
    page.wait_for_url("**table=*time_us*")
    page.evaluate("dash_ag_grid.getApi('table').setFilterModel({operation: {type: 'equals', filter: 'GEMM'}})")
    page.wait_for_url("**table=*GEMM*")
    page.wait_for_function(
        "before => parseInt(document.querySelector('#table-note').textContent) < before", arg=everything
    )
    fewer = page.inner_text("#table-note")
    page.goto(page.url)  # a link from somebody
    ready(page)
    page.wait_for_selector("#table .ag-header-cell[col-id=time_us][aria-sort=descending]")
    page.wait_for_function("text => document.querySelector('#table-note').textContent === text", arg=fewer)
    page.click("nav >> text=Regret")
    page.wait_for_function("location.search.includes('view=regret')")
    assert "table=" in page.url, "it stays while views change"
    seen.clean()


def test_charts_are_reached_by_keyboard_and_lead_to_the_table(seen: Visit, demo: Served) -> None:
    page = seen.page
    show(page, demo.url + "?view=roofline")
    page.wait_for_selector("#chart-3[tabindex='0'][aria-label*='table below']")
    page.focus("#chart-3")
    page.keyboard.press("Enter")
    page.wait_for_function("!!document.activeElement.closest('#table .ag-row')")
    seen.clean()


def test_a_slice_of_the_timeline_filters_the_rest(seen: Visit, demo: Served) -> None:
    page = seen.page
    show(page, demo.url + "?view=timeline")
    before = int(page.inner_text("#table-note").split()[0])
    drag(page, "#chart-0", 0.1, 0.2, 0.3, 0.8)
    page.wait_for_url("**time=*")
    page.wait_for_selector(".chip:has-text('Called')")
    page.wait_for_function(
        "before => +document.querySelector('#table-note').textContent.split(' ')[0] < before", arg=before
    )
    page.click("nav >> text=Overview")
    page.wait_for_selector("#chart-0 .barlayer .point")
    assert "time=" in page.url
    seen.clean()


def test_a_box_over_a_parallel_axis_filters_the_rest(seen: Visit, demo: Served) -> None:
    page = seen.page
    show(page, demo.url + "?view=shapes")
    page.wait_for_selector("#chart-2 .scatterlayer .point")
    # The first axis, M, stands at (0 + 0.35) / 5.5 of the width; its upper half.
    drag(page, "#chart-2", 0.02, 0.0, 0.12, 0.5)
    page.wait_for_url("**m=*")
    page.wait_for_selector(".chip:has-text('M:')")
    seen.clean()


def test_sql_reads_and_cannot_write(seen: Visit, demo: Served, tmp_path: Path) -> None:
    page = seen.page
    show(page, demo.url + "?view=sql")
    page.fill("#sql-text", 'select \'<img src=x onerror="window.ran=3">\' as name, 7 as "<b>n"')
    page.click("#sql-run")
    page.wait_for_selector("#sql-result .ag-row")
    assert "<img src=x" in page.inner_text("#sql-result")
    assert "<b>n" in page.inner_text("#sql-result")
    page.fill("#sql-text", "select '=1+1' as name, sum(lines) as lines from sources")
    page.press("#sql-text", "Control+Enter")
    page.wait_for_selector("#result .ag-row:has-text('=1+1')")
    page.wait_for_selector("#sql-chart .xtick:has-text('=1+1')")  # a sum of whole numbers can be plotted
    assert "sql=select" in page.url, "a link shows the query to somebody else"
    with page.expect_download() as waiting:
        page.click("#result-export")
    assert "'=1+1" in Path(waiting.value.path()).read_text(encoding="utf-8-sig")
    page.reload()
    page.wait_for_function("document.querySelector('#sql-text')?.value.includes('=1+1')")
    assert page.locator("#result").count() == 0, "and runs nothing"
    target = tmp_path / "stolen.csv"
    page.fill("#sql-text", f"copy (select 1) to '{target}'")
    page.click("#sql-run")
    page.wait_for_function("document.querySelector('#sql-note').textContent.includes('SELECT')")
    assert not target.exists()
    seen.clean()


CUT_OFF = """cut => {
    const body = document.querySelector('#table .ag-center-cols-viewport');
    return (body.scrollWidth > body.clientWidth) === cut; }"""
SHOWN = """() => dash_ag_grid.getApi('table').getColumns().filter((x) => x.isVisible()).map((x) => x.getColId())"""
CHOOSE = """title => [...document.querySelectorAll('#chooser button')].find((x) => x.textContent === title).click()"""


def test_a_preset_shows_what_the_window_has_room_for(seen: Visit, demo: Served) -> None:
    from analyzers.explore.queries import PRESETS, SPARED

    page = seen.page
    for width in (1440, 1024):
        page.set_viewport_size({"width": width, "height": 900})
        show(page, demo.url)
        for title, names in PRESETS.items():
            page.evaluate(CHOOSE, title)
            page.wait_for_function(CUT_OFF, arg=False)
            shown = page.evaluate(SHOWN)
            assert set(names) - set(SPARED) <= set(shown) <= {"label", *names}, (title, width)
            assert title != "What to do" or ("device" in shown) == (width == 1440)
    page.evaluate(CHOOSE, "All")
    page.wait_for_function(CUT_OFF, arg=True)  # what is chosen beyond the sets is shown whole
    page.evaluate(CHOOSE, "What to do")
    seen.clean()


@pytest.mark.parametrize("themed", ["dark"], indirect=True)
def test_the_dark_theme_draws_every_view(themed: Visit, demo: Served) -> None:
    from analyzers.explore.charts.palette import THEMES
    from analyzers.explore.selection import VIEWS

    page = themed.page
    page.set_viewport_size({"width": 1024, "height": 768})
    for view in VIEWS if NIGHTLY else ("overview", "compare", "roofline"):
        show(page, demo.url + f"?view={view}")
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), view
        drawn = page.locator("#charts .js-plotly-plot:visible").count()
        assert (drawn == 0) == (view in ("compare", "sql")), f"{view}: a chart of nothing, or none"
    show(page, demo.url + "?view=roofline")
    first = page.evaluate("document.documentElement.dataset.theme")
    page.click("#switch")
    second = "dark" if first == "light" else "light"
    page.wait_for_function(
        "c => document.querySelector('#chart-3 .js-plotly-plot')?.layout?.paper_bgcolor === c",
        arg=THEMES[second].panel,
    )
    assert page.evaluate("document.documentElement.dataset.theme") == second
    themed.clean()


def test_planted_markup_is_shown_and_not_run(themed: Visit, both: Served) -> None:
    page = themed.page
    for view in ("overview", "roofline", "regret", "weights", "shapes", "timeline", "compare"):
        show(page, both.url + f"?view={view}")
    show(page, both.url + "?view=weights&direction=W")
    assert PLANTED in page.inner_text("#verdict"), "the run's name is shown as it is"
    page.locator("#table .ag-row").first.click()
    page.wait_for_selector("#solutions .main-svg")
    assert "window.ran" in hovered(page, "#solutions"), "planted markup is read as text"
    assert "<img src=x" in (page.text_content("#solutions .yaxislayer-above") or "")
    assert page.locator("img[src=x], #page a[href*=outside]").count() == 0
    themed.clean()


@pytest.fixture(scope="module")
def reports(planted: Store, sampled: Store, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    from analyzers.explore.report import LIMIT_BYTES, write_report

    folder = tmp_path_factory.mktemp("reports")
    made = {"planted": folder / "planted.html", "demo": folder / "demo.html"}
    for name, store in (("planted", planted), ("demo", sampled)):
        write_report(store, made[name])
        assert made[name].stat().st_size < LIMIT_BYTES
    return made


@pytest.fixture(scope="module")
def beside(planted: Store, after: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from typer.testing import CliRunner

    from analyzers.explore.report import LIMIT_BYTES
    from logparse.cli import app

    out = tmp_path_factory.mktemp("beside") / "report.html"
    words = ["report", "--store", planted.url, "--compare", after.url, "--out", str(out)]
    result = CliRunner().invoke(app, words)
    assert (result.exit_code, result.output) == (0, f"{out}: 3 of 3 problems\n")
    assert out.stat().st_size < LIMIT_BYTES
    return out


TIMES = "() => document.querySelectorAll('#table .ag-row [col-id=here_us]').length"
STATED = ["3 problems have a time in both runs", "1 faster, 1 slower"]


def test_two_stores_are_compared_in_the_page(themed: Visit, both: Served) -> None:
    page = themed.page
    show(page, both.url + "?view=compare")
    page.wait_for_function(
        "document.querySelector('#verdict strong').textContent !== 'Reading what the analyzers say …'"
    )
    page.wait_for_selector("#chart-3 .barlayer .point >> nth=2")
    answer, chart = (page.text_content(x) or "" for x in ("#answer", "#chart-3"))
    for text in STATED:
        assert (text in answer, text in chart) == (True, False), "stated once"
    assert "<img src=x" in chart
    page.wait_for_function(f"({TIMES})() >= 3")
    page.click("#table .ag-header-cell[col-id=other_us] .ag-header-cell-text")
    page.wait_for_function("""() => document.querySelector('#table .ag-row[row-index="0"] [col-id=other_us]')
        ?.textContent === '10.9 ms'""")
    rows = [page.inner_text(f"#table .ag-row[row-index='{i}'] [col-id={x}]") for i in (0, 2) for x in COMPARED]
    assert rows == ["5.46 ms", "10.9 ms", "+100.0", "slower", "187 µs", "93.5 µs", "−50.0", "faster"]
    problem = click_point(page, "#chart-3", "slower there")
    page.wait_for_selector("#problem >> text=Both runs")
    page.wait_for_url(f"**problem={problem}*")  # the panel may be there before the address
    assert page.inner_text("#problem dl div:last-child dd") == "5.46 ms → 10.9 ms"
    page.click("#problem .close")
    page.wait_for_selector("#problem", state="detached")
    click_mark(page, "#chart-3 .barlayer .point:nth-child(3) path")
    page.wait_for_selector("#problem")
    page.click("#problem .close")
    page.wait_for_selector("#problem", state="detached")
    drag(page, "#chart-3", 0.01, 0.5, 0.5, 0.99)  # F and B, which take a twentieth of the time of W
    page.wait_for_selector(".chip >> nth=1")
    page.wait_for_function("document.querySelector('#table-note').textContent.startsWith('2 problems')")
    page.wait_for_url("**other_us=*")
    assert page.locator("img[src=x], #page a[href^=http]").count() == 0
    themed.clean()


def test_a_mark_of_the_backward_weights_opens_the_solver_times_of_its_layer(
    seen: Visit, both: Served, reports: dict[str, Path]
) -> None:
    page = seen.page
    for url, chart, solutions in (
        (both.url + "?view=weights", "#chart-3", "#solutions"),
        (reports["planted"].as_uri(), "#chart", "#problem .js-plotly-plot"),
    ):
        if chart == "#chart":
            page.goto(url)
            page.click("nav button:has-text('Backward weights')")
        else:
            show(page, url)
        problem = click_point(page, chart)
        page.wait_for_selector("#problem h2:has-text('W 64×256×56×56')")
        page.wait_for_selector(f"{solutions} .scatterlayer .point >> nth=1")
        solvers = page.text_content(f"{solutions} .yaxislayer-above") or ""
        assert PLANTED[:20] in solvers
        assert "Slow<a href" in solvers, "both of W"
        cells = page.locator("#layer td").all_inner_texts()
        assert cells == ["F", "ConvAsm", "187 µs", "B", f"Other{LINK}", "219 µs"], "and what F and B take"
        assert f"problem={problem}" in page.url or page.locator(f"tr.here[data-id='{problem}']").count() == 1
    assert page.locator("#page a[href^=http]").count() == 0
    seen.clean()


def test_two_stores_are_compared_in_the_report(themed: Visit, beside: Path) -> None:
    page = themed.page
    page.goto(beside.as_uri())
    summary = page.inner_text(".verdict")
    assert f"Compared with run later {PLANTED} of {PLANTED}." in summary
    page.click("nav button:has-text('Compare')")
    page.wait_for_selector("#chart .barlayer .point >> nth=2")
    page.click("th[data-name=change] button")
    titles = page.locator("#table thead button").all_inner_texts()
    cells = page.locator("#table tbody tr >> nth=0").locator("th, td").all_inner_texts()
    shown = dict(zip(titles, cells, strict=True))
    assert [shown[TABLE[x]] for x in COMPARED] == ["5,455", "10,910", "100", "slower"]
    for text in ("3 problems timed in both", "1 faster, 1 slower", "<img src=x"):
        assert text in (page.text_content("#chart") or "")
    problem = click_point(page, "#chart", "slower there")
    page.wait_for_selector("#problem >> text=In the other run (µs)")
    assert page.locator(f"#table tr.here[data-id='{problem}']").count() == 1
    assert page.inner_text("#problem dl div:last-child dd") == "10,910"
    click_mark(page, "#chart .barlayer .point:nth-child(3) path")
    page.wait_for_selector("#problem .main-svg")
    drag(page, "#chart", 0.01, 0.5, 0.5, 0.99)
    page.wait_for_selector("#chips button:has-text('2 marked in a chart')")
    assert page.locator("#table tbody tr").count() == 2
    assert page.locator("img, #page a[href*=outside]").count() == 0
    themed.clean()


def test_report_opens_offline_and_is_linked(themed: Visit, reports: dict[str, Path]) -> None:
    page = themed.page
    page.goto(reports["demo"].as_uri())
    page.wait_for_selector("#chart .main-svg")
    assert "can be gained" in page.inner_text(".verdict strong")
    everything = page.locator("#table tbody tr").count()
    assert page.locator("#table thead th[scope=col][aria-sort=none]").count() == page.locator("#table thead th").count()
    assert page.locator("#table tbody th[scope=row]").count() == everything
    page.click("th:has-text('Calls') button")
    for order in ("descending", "ascending"):
        assert page.locator(f"th[aria-sort={order}]").inner_text() == "Calls"
        page.click("th:has-text('Calls') button")
    click_bar(page, "#chart", "GEMM")
    page.wait_for_selector("#chips button")
    fewer = page.locator("#table tbody tr").count()
    assert 0 < fewer < everything
    page.fill("input[data-column=time_us]", ">1000")
    assert 0 < page.locator("#table tbody tr").count() < fewer
    page.click("th:has-text('Now') button")
    page.locator("#table tbody tr").first.click()
    page.wait_for_selector("#problem .main-svg")
    with page.expect_download() as waiting:
        page.click("#export")
    lines = Path(waiting.value.path()).read_text(encoding="utf-8").splitlines()
    assert len(lines) == page.locator("#table tbody tr").count() + 1
    for tab in page.locator("nav button").all_inner_texts():
        page.click(f"nav button:has-text('{tab}')")
        page.wait_for_selector("#chart .main-svg")
        assert page.get_attribute("#chart", "aria-label") == tab
        assert "Run demo" in page.inner_text("#caption")
    page.click("#switch")
    height = page.locator("#chart").bounding_box()
    page.set_viewport_size({"width": 1000, "height": 700})
    page.wait_for_timeout(500)
    now = page.locator("#chart").bounding_box()
    assert height
    assert now
    assert height["height"] == now["height"] > 300
    themed.clean()


@pytest.mark.nightly
def test_a_report_prints_whole(seen: Visit, reports: dict[str, Path]) -> None:
    """On paper: every chart and row in the light colours, within the page; back on the screen as it was."""
    page = seen.page
    page.goto(reports["demo"].as_uri())
    page.click("#switch")
    tabs = page.locator("nav button").all_inner_texts()
    page.fill("input[data-column=operation]", "convolution")
    chosen = json.loads(page.text_content("#data") or "")["columns"]["operation"].count("convolution")
    page.set_viewport_size({"width": 700, "height": 990})  # A4 within the margins of @page
    page.emulate_media(media="print")
    page.wait_for_selector(f"#print section >> nth={len(tabs) - 1}")
    assert page.locator("#print h2").all_inner_texts() == tabs
    assert page.locator("#print .main-svg").count() >= len(tabs)
    assert page.locator("#table tbody tr:visible").count() == chosen > 10
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    edge = page.evaluate(
        "Math.max(...[...document.querySelectorAll('#print svg, #table tr')].map(x => x.getBoundingClientRect().right))"
    )
    assert edge <= 700
    tall = page.locator("#table tbody tr").evaluate_all(
        "rows => Math.max(...rows.map(x => x.getBoundingClientRect().height))"
    )
    assert tall < 60, "a row has a few lines"
    assert not page.locator("#chart").is_visible()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.emulate_media(media="screen")
    page.wait_for_selector("#print section", state="detached")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    seen.clean()


@pytest.mark.nightly
def test_columns_are_chosen_by_set_and_one_by_one(seen: Visit, demo: Served) -> None:
    page = seen.page
    show(page, demo.url)
    head = "#table .ag-header-cell[col-id={}]"
    assert page.locator(head.format("action")).count() == 1
    assert re.search(r"\d (µs|ms|s)$", page.inner_text("#table .ag-row[row-index='0'] [col-id=total_us]"))
    page.click("#choose summary")
    page.click("#chooser button:has-text('Times')")
    page.wait_for_selector(head.format("action"), state="detached")
    page.check("#chooser input[value=action]")
    page.wait_for_selector(head.format("action"))
    show(page, f"{demo.url}?view=roofline")
    page.wait_for_selector(head.format("efficiency"))
    page.wait_for_selector(head.format("override"), state="detached")
    seen.clean()


@pytest.mark.nightly
def test_the_table_is_at_most_ten_tabs_away(seen: Visit, demo: Served) -> None:
    page = seen.page
    for view in ("overview", "roofline", "compare"):
        show(page, f"{demo.url}?view={view}")
        passed = []
        while not page.evaluate("!!document.activeElement.closest('#table')"):
            page.keyboard.press("Tab")
            passed.append(page.evaluate("document.activeElement.outerHTML.slice(0, 40)"))
            assert len(passed) <= 10, "\n".join(passed)
    page.focus("#tabs a.here")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == "Files"
    seen.clean()


def test_bars_of_regret_and_cells_of_the_map_filter_the_report(seen: Visit, reports: dict[str, Path]) -> None:
    """A report of one store, which compares nothing."""
    page = seen.page
    page.goto(reports["demo"].as_uri())
    assert "Compare" not in page.locator("nav button").all_inner_texts()
    page.click("nav button:has-text('Regret')")
    everything = page.locator("#table tbody tr").count()
    click_mark(page, "#chart .barlayer .point path")
    page.wait_for_selector("#chips button:has-text('marked in a chart')")
    assert 0 < page.locator("#table tbody tr").count() < everything
    assert page.locator("#detail").inner_text() == ""
    page.click("#chips button:has-text('Clear all')")
    assert page.locator("#table tbody tr").count() == everything
    page.click("nav button:has-text('Shapes')")
    click_mark(page, "#chart .scatterlayer .textpoint text")
    page.wait_for_selector("#chips button:has-text('marked in a chart')")
    assert 0 < page.locator("#table tbody tr").count() < everything
    page.locator("#table tbody tr").first.click()
    page.wait_for_selector("#problem")
    assert "other run" not in page.inner_text("#page")
    seen.clean()


def test_points_are_drawn_where_there_is_no_webgl(alone: Visit, both: Served, reports: dict[str, Path]) -> None:
    page = alone.page
    page.add_init_script("HTMLCanvasElement.prototype.getContext = () => null")
    for url, chart in ((both.url + "?view=roofline", "#chart-3"), (reports["planted"].as_uri(), "#chart")):
        page.goto(url)
        if chart == "#chart":
            page.click("nav button:has-text('Roofline')")
        page.wait_for_selector(f"{chart} .scatterlayer .points path")
        assert page.locator(".no-webgl").count() == 0
    alone.clean()


def test_planted_markup_is_not_run_in_the_report(themed: Visit, reports: dict[str, Path]) -> None:
    page = themed.page
    page.goto(reports["planted"].as_uri())
    page.wait_for_selector("#chart .main-svg")
    for tab in page.locator("nav button").all_inner_texts():
        page.click(f"nav button:has-text('{tab}')")
        page.wait_for_selector("#chart .main-svg")
    page.locator("#table tbody tr").first.click()
    page.wait_for_selector("#problem .scatterlayer .point")
    assert "window.ran" in hovered(page, "#problem"), "planted markup is read as text"
    assert PLANTED in page.inner_text("#table")
    assert page.locator("img, #page a[href*=outside]").count() == 0
    themed.clean()
