"""Tests of the HTML page and the report in a real Chromium without a window. Most tests imitate a user's whole visit.

The tests need Playwright and Debian's chromium (``apt-get install chromium``).
"""

# Without them the tests are skipped, but if the environment variable CI is set, they fail, because a skipped test shows
# nothing.

from __future__ import annotations

import csv
import itertools
import json
import os
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from analyzers.explore.queries import COMPARED
from logparse.ingest import ingest
from logparse.store import Store, open_store
from tests.analyzers.explore.conftest import PLANTED, reading_here
from tests.conftest import NIGHTLY, SAMPLES

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FloatRect, Locator, Page, Request, ViewportSize

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
         "--no-first-run", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
         "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")  # fmt: skip
SECONDS = 120_000  # upper limit of a wait, in ms: a machine with other work is slow
ASKING = """!!document.querySelector('#content[aria-busy=true]')"""
"""JavaScript that is true while the HTML page waits for an answer."""


WINDOW: ViewportSize = {"width": 1400, "height": 1000}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not os.environ.get("CI"):
        pytest.importorskip("playwright", reason="no playwright")
        pytest.importorskip("flask", reason="no flask")
        if not Path(CHROMIUM).exists():
            pytest.skip("no chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield chromium
        chromium.close()


@dataclass
class Visit:
    """A page in the browser, with the JavaScript errors and the requests to other hosts that it caused.

    Both are faults.
    """

    page: Page
    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def clean(self) -> None:
        assert self.errors == []
        assert self.outside == []
        assert self.page.evaluate("window.ran") is None, "a script of a log ran"


def visit(browser: Browser) -> Visit:
    context = browser.new_context(
        viewport=WINDOW, color_scheme="light", permissions=["clipboard-read", "clipboard-write"]
    )
    made = Visit(context.new_page())
    made.page.set_default_timeout(SECONDS)

    def note(request: Request) -> None:
        if not re.match(r"(http://127\.0\.0\.1:|file:|data:|blob:)", request.url):
            made.outside.append(request.url)

    context.on("request", note)  # FLAGS block other hosts; a route would switch off Chromium's cache
    made.page.on("console", lambda x: made.errors.append(x.text) if x.type == "error" else None)
    made.page.on("pageerror", lambda x: made.errors.append(str(x)))
    return made


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Visit]:
    """Return a browser tab that all tests share.

    Loading the HTML page in a new tab takes 4 s of CPU time, but going to another view of a loaded page takes only 0.4
    s.
    """
    made = visit(browser)
    yield made
    made.page.context.close()


@pytest.fixture
def seen(browser: Browser, tab: Visit) -> Iterator[Visit]:
    """Return the shared browser tab, reset for this test.

    In the nightly run (``make nightly``), each test gets a new tab.
    """
    made = visit(browser) if NIGHTLY else tab
    made.errors.clear()
    made.outside.clear()
    made.page.set_viewport_size(WINDOW)
    made.page.emulate_media(reduced_motion="null", media="null")
    yield made
    if NIGHTLY:
        made.page.context.close()


@pytest.fixture
def alone(browser: Browser) -> Iterator[Visit]:
    """Return a browser tab that no other test uses."""
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
    from analyzers.explore.page.data import PageData, Pages

    data = PageData(store.url, other=other)
    pages = Pages(data)
    server = make_server("127.0.0.1", 0, application(pages), threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Served(f"http://127.0.0.1:{server.port}/", data)
    server.shutdown()
    thread.join()
    server.server_close()
    pages.close()


@pytest.fixture(scope="module")
def demo(sampled: Store, browser: Browser) -> Iterator[Served]:
    with reading_here():
        yield from _serve(sampled)


@pytest.fixture(scope="module")
def both(planted: Store, after: Store, browser: Browser) -> Iterator[Served]:
    with reading_here():
        yield from _serve(planted, after.url)


def ready(page: Page) -> None:
    """Wait until the HTML page has drawn its view and shows the analyzers' results."""
    nothing = "body:has(#content.nothing) #verdict strong"  # The content itself has no height then
    drawn = ("#charts .main-svg:visible", "#charts .no-webgl", ".overview", ".compare #answer p", nothing)
    page.wait_for_selector(", ".join(drawn))
    page.wait_for_selector("#verdict strong")
    page.wait_for_selector("#verdict .bone", state="detached")
    page.wait_for_selector("#table tbody tr", state="attached")
    page.wait_for_selector("#table-note:not(:empty)", state="attached")
    page.wait_for_function(f"!({ASKING})")


def show(page: Page, address: str) -> None:
    """Open an address in the browser tab, and wait until the web page makes no more requests for 0.25 s."""
    # If the tab already has a page of this server, the address is opened as the page's own links do it, without loading
    # the page again.
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
    """Wait until the HTML page no longer moves, and return the position and size of the element in the window."""
    # The page moves while it scrolls or waits for data to draw. For example, it does so after the user closed a card,
    # and when the analyzers' results arrive.
    found.scroll_into_view_if_needed()
    box, now = None, found.bounding_box()
    while now is None or now != box or page.evaluate(ASKING):
        page.wait_for_timeout(300)
        box, now = now, found.bounding_box()
    return now


def click_mark(page: Page, where: str) -> None:
    """Click the first mark of a chart that matches the CSS selector ``where``.

    The mouse moves there first, because plotly clicks only what the mouse hovers over.
    """
    box = still(page, page.locator(where).first)
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x - 9, y - 3)
    page.mouse.move(x, y, steps=4)
    page.mouse.click(x, y)


def click_point(page: Page, chart: str, trace: str = "") -> str:
    """Click the first point of a chart, or of the named trace in it.

    Returns the id of the product that the point shows.

    WebGL draws points without an HTML element for each, so the position is computed from the axes.
    """
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
    """Drag the mouse over a rectangle in a chart.

    The corners are fractions of the chart's width and height (0 to 1).
    """
    box = still(page, page.locator(f"{where} .nsewdrag").first)
    page.mouse.move(box["x"] + left * box["width"], box["y"] + top * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + right * box["width"], box["y"] + bottom * box["height"], steps=6)
    page.mouse.up()


def hovered(page: Page, where: str) -> str:
    """Return the text that the HTML page shows when the mouse is over the first mark of a chart."""
    page.emulate_media(reduced_motion="reduce")
    box = still(page, page.locator(f"{where} .scatterlayer .point").first)
    page.mouse.move(box["x"] + box["width"] / 2 + 30, box["y"])
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=4)
    page.wait_for_selector(f"{where} .hoverlayer text", state="attached")
    return page.text_content(f"{where} .hoverlayer") or ""


def count(page: Page) -> int:
    """Return the number of products in the table of the HTML page, as the note below the table states it."""
    return int(page.inner_text("#table-note").split()[0].replace(",", ""))


def fewer(page: Page, before: int) -> None:
    page.wait_for_function(
        "before => parseInt(document.querySelector('#table-note').textContent.replace(',', '')) < before", arg=before
    )


def close(page: Page) -> None:
    page.click("#problem .close")
    page.wait_for_selector("#problem", state="detached")
    page.wait_for_function("!location.search.includes('problem=')")  # the panel goes before the address changes


def test_an_override_row_is_copied_with_three_clicks(seen: Visit, demo: Served) -> None:
    """Three clicks copy a line for an override file: on a filter, on a table row and on the copy button.

    An override file is the user's choice of kernels.
    """
    # The first screen shows where the time goes and the proposed changes. The table follows.
    page = seen.page
    page.set_viewport_size({"width": 1440, "height": 900})
    show(page, demo.url)
    page.wait_for_function("document.querySelector('#verdict strong').textContent.includes('faster GEMM solutions')")
    page.wait_for_selector("#answer .time-bar span")
    still(page, page.locator(".time-bar"))
    tops = page.evaluate(
        """() => Object.fromEntries(['#table-box', '.cards', '.time-bar'].map(
            (x) => [x, document.querySelector(x).getBoundingClientRect().y + scrollY]))"""
    )
    assert sorted(tops, key=lambda x: tops[x]) == [".time-bar", ".cards", "#table-box"]
    page.evaluate("scrollTo(0, 0)")
    assert tops[".cards"] < 450, "the cards are on the first screen; commands with a long store path may fill it"
    top = "document.querySelector('#tabs').getBoundingClientRect().y"
    before = page.evaluate(top)
    page.evaluate("document.querySelector('#doing').textContent = 'Writing the files to download … 37 s'")
    assert page.evaluate(f"{top} === {before}"), "the note about loading moves nothing"
    commands = page.locator(".cards pre code").first
    cut = "x => x.scrollWidth > x.clientWidth || x.parentNode.scrollHeight > x.parentNode.clientHeight"
    assert not commands.evaluate(cut), "a long command is shown whole"
    size = "x => [x.clientWidth, x.clientHeight, document.documentElement.scrollHeight]"
    before = commands.evaluate(size)
    page.hover(".cards pre >> nth=0")  # This may scroll, if the commands are long
    assert commands.evaluate(size) == before, "under the pointer nothing grows"
    label = "x => getComputedStyle(x, '::before').content"
    assert commands.locator(".line").first.evaluate(label) == '"confirm (advised)"'
    assert "confirm" not in commands.evaluate("x => x.textContent"), "the label is not copied"
    page.mouse.move(2, 2)
    for landmark in ("header", "nav", "main", "aside", "h1"):
        assert page.locator(landmark).count() == 1, landmark
    right = "x => Math.max(...[...document.querySelectorAll(x)].map((y) => y.getBoundingClientRect().right))"
    assert page.evaluate(right, "#table thead th") <= page.evaluate(right, "#table"), "every column of the set"
    times = page.locator("#table tbody tr [data-column=saving_us]").all_inner_texts()
    assert {x.split()[-1] for x in times if x} >= {"ms", "µs"}, "units scale"
    with page.expect_download() as waiting:
        page.click(".cards .get >> nth=0")
    assert Path(waiting.value.path()).read_bytes().startswith(b"PK")

    for again in (True, True, False):  # the same filter can be chosen again
        page.click("aside .entry:has-text('GEMM') >> nth=0")
        page.wait_for_url("**operation=GEMM*")
        page.wait_for_selector(".chip")
        page.wait_for_selector("#table tbody tr [data-column=label]:has-text('bf16_r')")
        page.wait_for_function(
            "[...document.querySelectorAll('#table tbody [data-column=label]')].every(x => x.textContent[0] !== 'W')"
        )
        if again:
            page.click(".chip")
            page.wait_for_selector(".chip", state="detached")
    page.locator("#table tbody tr:nth-child(1) [data-column=label]").click()
    page.wait_for_selector("#text-override")
    row = page.inner_text("#text-override")
    page.click("#copy-override")
    page.wait_for_function("async row => (await navigator.clipboard.readText()).trim() === row.trim()", arg=row)
    assert "hipblaslt" in page.inner_text("#problem")
    assert len(row.splitlines()) >= 2
    page.wait_for_selector("#solutions .main-svg")
    box = page.locator("#problem").bounding_box()
    assert box["x"] + box["width"] == page.evaluate("document.documentElement.clientWidth"), "a drawer at the right"
    page.evaluate("document.querySelector('#problem h2').textContent = 'x'.repeat(10000)")
    assert page.locator("#problem").bounding_box() == box, "a long name does not stretch it"
    assert page.evaluate(
        "document.querySelector('#problem').scrollWidth <= document.querySelector('#problem').clientWidth"
    )
    close(page)
    seen.clean()


def test_everything_is_reachable_by_keyboard_and_in_the_url(seen: Visit, demo: Served) -> None:
    """Everything on the web page can be reached by keyboard, and the URL contains the whole state of the page."""
    # The test opens a link that somebody else sent. By keyboard alone, it then uses filters, search, the table, a row's
    # details, sorting, column filters and the export.
    page = seen.page
    page.goto(demo.url + "?view=regret&operation=GEMM&search=NT+4096")
    ready(page)
    assert page.inner_text(".chip >> nth=0").startswith("Operation: GEMM")
    assert page.inner_text("nav .here") == "Regret"
    assert page.input_value("#search") == "NT 4096", "the search of the link stands in the box"
    some = count(page)
    page.click(".chip >> nth=1")
    page.wait_for_function("document.querySelector('#search').value === ''")
    page.wait_for_function("some => parseInt(document.querySelector('#table-note').textContent) > some", arg=some)
    page.go_back()
    page.wait_for_selector(".chip >> nth=1")
    page.wait_for_function("some => parseInt(document.querySelector('#table-note').textContent) === some", arg=some)

    show(page, demo.url)
    page.locator("aside .entry", has_text="convolution").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**operation=convolution*")
    page.wait_for_selector(".chip")
    page.keyboard.press("/")
    page.wait_for_function("document.activeElement.id === 'search'")
    page.keyboard.type("W 64")  # it answers while the reader types
    page.wait_for_url("**search=W+64*")
    page.wait_for_selector(".chip >> nth=1")
    page.keyboard.press("Escape")
    page.wait_for_function("document.activeElement.id !== 'search'")
    page.wait_for_selector("#table tbody tr:nth-child(1) [data-column=label]:has-text('W 64')")
    assert page.locator("#table [tabindex='0']").count() == 1, "one stop of the keyboard"
    page.focus("#table [tabindex='0']")
    for _ in range(2):  # past the filter of the column
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("#text-bench")
    page.focus("#copy-bench")
    page.keyboard.press("Enter")
    command = page.inner_text("#text-bench")
    page.wait_for_function("async text => (await navigator.clipboard.readText()) === text", arg=command)
    assert command.startswith("MIOpenDriver")
    page.focus("#problem")
    first = page.inner_text("#problem h2")
    page.keyboard.press("ArrowDown")
    page.wait_for_function("before => document.querySelector('#problem h2')?.textContent !== before", arg=first)
    page.wait_for_function("document.activeElement.id === 'problem'")
    page.keyboard.press("Escape")
    page.wait_for_selector("#problem", state="detached")
    page.wait_for_function("!location.search.includes('problem=')")
    page.go_back()
    page.wait_for_selector("#problem")
    close(page)

    show(page, demo.url + "?view=overview&direction=W")
    page.click("#table th[data-name=time_us]")
    page.wait_for_selector("#table th[data-name=time_us][aria-sort=descending]")  # largest times first
    page.wait_for_url("**table=*time_us*")
    page.wait_for_selector("#table tbody tr")
    shown = count(page)
    with page.expect_download() as waiting:
        page.click("#export")
    lines = Path(waiting.value.path()).read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("Problem,Could save (ms),Total time (ms),Calls,Now (µs)")
    assert len(lines) == shown + 1
    times = [float(line.split(",")[4]) for line in lines[1:] if line.split(",")[4]]
    assert times == sorted(times, reverse=True)
    page.fill("#table input[data-column=time_us]", "nonsense")
    page.wait_for_selector("#table input[data-column=time_us].wrong")
    page.fill("#table input[data-column=time_us]", "1 ms")  # a number alone means: greater than
    page.wait_for_url("**table=*greaterThan*1000*")
    fewer(page, shown)
    left = count(page)
    page.goto(page.url)  # a link from somebody
    ready(page)
    page.wait_for_selector("#table th[data-name=time_us][aria-sort=descending]")
    page.wait_for_function("left => parseInt(document.querySelector('#table-note').textContent) === left", arg=left)
    page.click("nav >> text=Regret")
    page.wait_for_function("location.search.includes('view=regret')")
    assert "table=" in page.url, "it stays while views change"
    seen.clean()


CUT_OFF = """cut => {
    const box = document.querySelector('#table-scroll');
    return (box.scrollWidth > box.clientWidth + 1) === cut; }"""
SHOWN = """() => [...document.querySelectorAll('#table thead th')].map((x) => x.dataset.name)"""
CHOOSE = """title => [...document.querySelectorAll('#chooser button')].find((x) => x.textContent === title).click()"""


def test_charts_and_table_suit_every_window_and_theme(seen: Visit, demo: Served) -> None:
    from analyzers.explore.charts.palette import THEMES
    from analyzers.explore.queries import PRESETS, SPARED
    from analyzers.explore.selection import VIEWS

    page = seen.page
    whole = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    for width in (1440, 1024):
        page.set_viewport_size({"width": width, "height": 900})
        show(page, demo.url)
        for title, names in PRESETS.items():
            page.evaluate(CHOOSE, title)
            page.wait_for_function(CUT_OFF, arg=False)
            shown = page.evaluate(SHOWN)
            empty = set(COMPARED) if title == "Two runs" else set()  # no column is empty
            assert set(names) - set(SPARED) - empty <= set(shown) <= {"label", *names} - empty, (title, width)
            assert title != "What to do" or ("device" in shown) == (width == 1440)
    page.evaluate(CHOOSE, "All")
    page.wait_for_function(CUT_OFF, arg=True)  # columns that are chosen beyond the sets are shown whole
    page.evaluate(CHOOSE, "What to do")

    page.click("#switch")
    for view in VIEWS:
        show(page, demo.url + f"?view={view}")
        assert page.evaluate(whole), view
        drawn = page.locator("#charts .js-plotly-plot:visible").count()
        assert (drawn == 0) == (view in ("overview", "compare")), f"{view}: a chart of nothing, or none"
    show(page, demo.url + "?view=roofline")
    colour = "c => document.querySelector('#chart .js-plotly-plot')?.layout?.paper_bgcolor === c"
    page.wait_for_function(colour, arg=THEMES["dark"].panel)
    page.click("#switch")
    page.wait_for_function(colour, arg=THEMES["light"].panel)
    height = page.evaluate("document.querySelector('#chart').offsetHeight")
    page.set_viewport_size({"width": 360, "height": 700})
    page.wait_for_function("document.querySelector('#chart .main-svg').getBoundingClientRect().width < 360")
    assert page.evaluate(whole), "nothing scrolls sideways on a phone"
    assert page.evaluate("document.querySelector('#chart').offsetHeight") >= height > 300, "broken lines need more"
    box = "document.querySelector('#chart {}').getBoundingClientRect()"
    legend, plot = (page.evaluate(box.format(x)) for x in (".legend .bg", ".nsewdrag"))
    assert legend["height"] > 30, "it has several lines"
    assert legend["y"] + legend["height"] <= plot["y"] + 1, "above the plot"
    page.wait_for_selector("#chart[tabindex='0'][aria-label*='table below']")
    page.focus("#chart")
    page.keyboard.press("Enter")
    page.wait_for_function("!!document.activeElement.closest('#table tbody tr')")
    seen.clean()


def test_two_stores_are_compared_and_markup_of_a_log_is_text(seen: Visit, both: Served) -> None:
    page = seen.page
    for view in ("overview", "roofline", "regret"):
        show(page, both.url + f"?view={view}")
    show(page, both.url + "?view=weights")
    assert PLANTED in page.inner_text("#verdict"), "the run's name is shown as it is"
    whole = page.locator("#chart .legendtoggle title").all_text_contents()
    assert PLANTED in whole, "a name in the legend has a tooltip"
    problem = click_point(page, "#chart")
    page.wait_for_selector("#problem h2:has-text('W 64×256×56×56')")
    page.wait_for_url(f"**problem={problem}*")  # the panel may be there before the address changes
    page.wait_for_selector("#solutions .scatterlayer .point >> nth=1")
    solvers = page.text_content("#solutions .yaxislayer-above") or ""
    assert PLANTED[:20] in solvers
    assert "Slow<a href" in solvers, "both of W"
    assert "window.ran" in hovered(page, "#solutions"), "planted markup is read as text"
    close(page)

    show(page, both.url + "?view=compare")
    for text in ("3 problems have a time in both runs", "1 faster, 1 slower"):
        answer, chart = (page.text_content(x) or "" for x in ("#answer", "#chart"))
        assert (text in answer, text in chart) == (True, False), "stated once"
    assert PLANTED[:10] in (page.text_content("#chart") or "")
    page.wait_for_function("document.querySelectorAll('#table tbody tr [data-column=here_us]').length >= 3")
    page.wait_for_function("document.querySelector('#table-note').textContent.endsWith('the largest change first')")
    page.wait_for_selector("#table tbody tr:nth-child(1) [data-column=moved]:has-text('faster')")
    page.click("#table th[data-name=other_us]")
    page.wait_for_function("""() => document.querySelector('#table tbody tr:nth-child(1) [data-column=other_us]')
        ?.textContent === '10.9 ms'""")
    page.wait_for_function(f"!({ASKING})")
    names = ("moved", "change", "other_us", "here_us")
    rows = [page.inner_text(f"#table tbody tr:nth-child({i + 1}) [data-column={x}]") for i in (0, 2) for x in names]
    assert rows == ["faster", "−50.0", "10.9 ms", "5.46 ms", "slower", "+100.0", "93.5 µs", "187 µs"]
    for _ in range(2):  # the same mark can be clicked again
        problem = click_point(page, "#chart", "faster in store")
        page.wait_for_selector("#problem dd:has-text('10.9 ms → 5.46 ms')")
        page.wait_for_url(f"**problem={problem}*")
        assert PLANTED in page.inner_text("#problem dl div:last-child dd"), "the picks of both runs"
        close(page)
    drag(page, "#chart", 0.01, 0.5, 0.5, 0.99)  # F and B, which take a twentieth of W's time
    page.wait_for_selector(".chip >> nth=1")
    page.wait_for_function("document.querySelector('#table-note').textContent.startsWith('2 problems')")
    page.wait_for_url("**other_us=*")
    assert page.locator("img[src=x], #page a[href^=http]").count() == 0
    seen.clean()


MANGLED = "_ZN7ck_tile6kernel" + "I" * 990


@pytest.fixture(scope="module")
def traced(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Start the web page on a store (Parquet folder) with a trace of a job, and two logs of another job.

    A kernel of the trace has a name of 1,000 characters. Between the two logs the library chose another kernel.
    """
    folder = tmp_path_factory.mktemp("traced")
    store = open_store(folder / "store", create=True)
    log = (SAMPLES / "hipblaslt" / "hipblaslt_rank0_4242.log").read_text(encoding="utf-8")
    (folder / "before.log").write_text(log, encoding="utf-8")
    (folder / "after.log").write_text(log.replace("index 91033", "index 91077"), encoding="utf-8")
    for run in ("before", "after"):
        ingest([str(folder / f"{run}.log")], store, run=run, jobs=1)
    trace = json.loads((SAMPLES / "traces" / "job.trace.json").read_text(encoding="utf-8"))
    kernel = next(x for x in trace["traceEvents"] if x.get("cat") == "kernel" and "Cijk" in x["name"])
    kernel["name"] = MANGLED
    (folder / "job.trace.json").write_text(json.dumps(trace), encoding="utf-8")
    ingest([str(folder / "job.trace.json")], store, run="job", jobs=1)
    with reading_here():
        yield from _serve(store)


BAR_WIDTHS = """async () => {
    const plot = document.querySelector('#chart .js-plotly-plot');
    const { range, _length: px } = plot._fullLayout.xaxis, far = 50 * range[1];
    await Plotly.relayout(plot, { 'xaxis.range': [0, far] });
    const drawn = [...plot.querySelectorAll('.barlayer .trace')].map((x) => [...x.querySelectorAll('path')]);
    const made = plot.data.map(({ name, x }, i) => [name, x.reduce((sum, ms) => sum + (px * ms) / far, 0),
        drawn[i].reduce((sum, bar) => sum + bar.getBBox().width, 0), x.length]);
    await Plotly.relayout(plot, { 'xaxis.range': range });
    return made; }"""
"""JavaScript that makes the bars of the timeline narrower than a pixel.

It returns for each entry of the legend its name, the width of its time, how wide it is drawn (px), and its bars.
"""


CHOOSE_RUN = """name => {
    [...document.querySelectorAll('#runs ul a')].find((x) => x.textContent === name).click();
    const text = (x) => document.querySelector(x).innerText;
    const drawn = document.querySelector('#chart').checkVisibility({ visibilityProperty: true });
    const shown = text('#page').replace(text('#doing'), '');
    return { button: text('#runs summary'), headline: text('#verdict strong'), text: shown, drawn }; }"""
"""JavaScript that chooses another run, and returns what the page shows before the server has answered."""


def test_a_step_leads_to_its_kernels_and_two_runs_to_changed_picks(seen: Visit, traced: Served) -> None:
    page = seen.page
    show(page, traced.url + "?run=job&view=timeline")
    page.wait_for_selector("#chart .barlayer .point")
    assert "no kernel runs" in (page.text_content("#chart .yaxislayer-above") or "")
    for name, wide, drawn, bars in page.evaluate(BAR_WIDTHS):
        assert drawn == pytest.approx(wide, abs=0.01 * bars), f"{name}: no bar is wider than its time"
    assert page.locator("#after .kernels tbody tr").count() > 3
    row = page.locator("#after .kernels tbody tr", has=page.locator(f"th[title={MANGLED}]"))
    assert row.evaluate("x => x.offsetHeight") < 100, "a name of 1,000 characters takes a few lines"
    row.locator("a").click()
    page.wait_for_selector("#problem >> text=Its kernels")
    launched = page.locator("#problem .launched li", has=page.locator(f"[title={MANGLED}]"))
    assert launched.evaluate("x => x.offsetHeight") < 100, "here, too"
    for box in ("document.documentElement", "document.querySelector('#problem')"):
        assert page.evaluate(f"{box}.scrollWidth <= {box}.clientWidth"), box
    page.wait_for_selector("#after .kernels tr.here")
    page.click("#problem >> text=Close")
    show(page, traced.url + "?run=job")
    whole = page.inner_text(".time")
    page.click("aside .entry >> nth=0")
    page.wait_for_function("x => document.querySelector('.time')?.textContent.trim() !== x", arg=whole.strip())
    assert page.inner_text(".time").startswith("Selected problems: "), "a filter moves the bar"

    show(page, traced.url + "?run=after&view=compare&compare=before")
    page.wait_for_selector("#answer >> text=1 of 17 problems with another pick")
    first = [
        page.inner_text(f"#table tbody tr:nth-child(1) [data-column={x}]") for x in ("moved", "pick_here", "pick_there")
    ]
    assert first == ["other pick", "hipblaslt:91077", "hipblaslt:91033"]
    heads = page.locator("#table thead th").all_inner_texts()
    assert {"Pick, after", "Pick, before"} < {x.strip() for x in heads}
    empty = page.evaluate(
        """() => [...document.querySelectorAll('#table thead th')].map((x) => x.dataset.name).filter((name) =>
            [...document.querySelectorAll(`#table tbody [data-column=${name}]`)].every((x) => !x.textContent))"""
    )
    assert empty == [], "no column is empty"
    show(page, traced.url + "?run=job&view=timeline")
    page.wait_for_selector("#after .kernels")
    shown = page.evaluate(CHOOSE_RUN, "after")
    assert (shown["button"], shown["headline"]) == ("Run after", "Reading run after …"), "before any answer"
    assert not re.search(r"\d (µs|ms|s)\b|\d%", shown["text"]), "no figure of the run before"
    assert not shown["drawn"], "nor its chart"
    page.wait_for_function("document.querySelector('#page').className === ''")
    assert page.inner_text("nav .here") == "Overview", "this run has no trace"
    assert page.get_attribute("nav .off >> nth=0", "title") == "This run has no trace."
    show(page, traced.url + "?run=nosuch")
    assert "This store has no run “nosuch”" in page.inner_text("#verdict")
    page.click("#verdict a:has-text('job')")
    page.wait_for_url("**run=job*")
    page.wait_for_selector(".time")
    seen.clean()


@pytest.fixture(scope="module")
def reports(planted: Store, sampled: Store, after: Store, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write two HTML reports and return their paths by name.

    * ``demo`` shows the samples.
    * ``beside`` compares two stores (Parquet folders) whose texts contain HTML markup, to test that it is quoted.
    """
    from typer.testing import CliRunner

    from analyzers.explore.report import LIMIT_BYTES
    from logparse.cli import app

    folder = tmp_path_factory.mktemp("reports")
    made = {"demo": folder / "demo.html", "beside": folder / "beside.html"}
    for out, words in (
        (made["demo"], ["--store", sampled.url]),
        (made["beside"], ["--store", planted.url, "--compare", after.url]),
    ):
        result = CliRunner().invoke(app, ["report", *words, "--out", str(out)])
        assert (result.exit_code, result.output.startswith(f"{out}: ")) == (0, True), result.output
        assert out.stat().st_size < LIMIT_BYTES
    return made


def test_a_report_leads_from_its_cards_and_filters_to_rows(seen: Visit, reports: dict[str, Path]) -> None:
    page, rows = seen.page, "#table tbody tr"
    page.goto(reports["demo"].as_uri())
    page.wait_for_selector(rows)
    counted = "n => document.querySelector('#table-note').textContent.startsWith(`${n} of `)"
    leads = page.locator(".cards .leads").all_inner_texts()
    assert len(leads) > 1
    for number, lead in enumerate(leads):
        count = int(lead.split()[1])
        page.click(f".cards .whole >> nth={number}")
        page.wait_for_function(counted, arg=count)
        assert page.locator(rows).count() == count > 0
        page.click(".clear")
    whole = "[...document.querySelectorAll('.cards pre code')].every(x => x.scrollWidth <= x.clientWidth)"
    page.emulate_media(media="print")
    assert page.evaluate(whole), "commands wrap on paper"
    page.emulate_media(media="screen")

    page.click("nav a:has-text('Backward weights')")
    page.wait_for_selector("#table th[data-name=beyond_us][aria-sort=descending]")
    labels = page.locator(f"{rows} td:first-child").all_inner_texts()
    assert len(labels) == 15
    assert all(x.startswith("W ") for x in labels)
    page.click("nav a:has-text('Overview')")
    page.click("aside .entry:has-text('B (dgrad)')")
    page.wait_for_selector(".chip:has-text('Direction: B (dgrad)')")
    page.wait_for_selector(f"{rows}:nth-child(1) td:first-child:has-text('B ')")
    assert all(x.startswith("B ") for x in page.locator(f"{rows} td:first-child").all_inner_texts())
    page.click("aside .entry.on")
    page.wait_for_selector(".chip", state="detached")
    page.fill("#table .rules [data-column=label]", "W ")
    page.wait_for_function(counted, arg=15)
    seen.clean()


def test_reports_open_offline_and_are_the_page(seen: Visit, reports: dict[str, Path]) -> None:
    page, rows = seen.page, "#table tbody tr"
    page.goto(reports["demo"].as_uri())
    page.wait_for_selector(rows)
    assert "Use 4 faster GEMM solutions" in page.inner_text(".verdict strong")
    assert page.inner_text(".cards .saves >> nth=0").startswith("saves ")
    assert page.evaluate("document.querySelector('.order').nextElementSibling.matches('.cards')"), "above the cards"
    assert page.locator(".time-bar span").count() > 1, "several colours without traces, too"
    assert page.locator(".js-plotly-plot").count() == 0, "the first view needs no plotly.js"
    everything = count(page)
    page.click("#table th[data-name=calls]")
    page.wait_for_selector("#table th[data-name=calls][aria-sort=descending]")
    page.click(".cards .whole >> nth=0")
    page.wait_for_selector(".chip:has-text('Use 4 faster GEMM solutions')")
    page.wait_for_function("document.querySelector('#table-note').textContent.startsWith('4 of')")
    page.fill("#table input[data-column=time_us]", "1 ms")
    fewer(page, 4)
    some = count(page)
    page.locator(rows).first.click()
    page.wait_for_selector("#problem .main-svg")
    page.click("#problem .close")
    page.wait_for_selector("#problem", state="detached")
    with page.expect_download() as waiting:
        page.click("#export")
    lines = list(csv.reader(Path(waiting.value.path()).read_text(encoding="utf-8").splitlines(keepends=True)))
    assert len(lines) == some + 1
    page.click("#chips .clear")
    page.fill("#table input[data-column=time_us]", "")
    page.wait_for_function(f"parseInt(document.querySelector('#table-note').textContent) === {everything}")
    tabs = page.locator("nav a").all_inner_texts()
    assert "Compare" not in tabs
    for tab in tabs:
        page.click(f"nav a:has-text('{tab}')")
        page.wait_for_function(f"document.querySelector('nav .here').textContent === '{tab}' && !({ASKING})")
        assert tab == "Overview" or page.locator("#chart .main-svg").count() or page.inner_text("#after")
    page.click("nav a:has-text('Regret')")
    page.wait_for_selector("#chart .barlayer .point path")
    click_mark(page, "#chart .barlayer .point path")
    page.wait_for_selector(".chip:has-text('regret')")
    assert 0 < count(page) < everything
    page.click("#switch")

    page.goto(reports["beside"].as_uri())
    page.wait_for_selector(rows)
    page.wait_for_selector("nav .here:has-text('Compare')")
    page.click("nav a:has-text('Overview')")
    page.wait_for_selector("nav .here:has-text('Overview')")
    assert f"later {PLANTED} of {PLANTED}" in page.inner_text("header .store")
    asked = "{search: '?view=roofline&tflops=1..9&direction=W'}"
    tabs = page.evaluate(f"logparseReport.answer('surroundings', {asked}).then(x => x.tabs.map(y => y[1].href))")
    assert [x for x in tabs if x and "tflops" not in x] == ["?view=compare&direction=W"], "as Selection.on_tab"
    page.click("nav a:has-text('Compare')")
    page.wait_for_selector("#answer >> text=1 faster, 1 slower")
    page.wait_for_selector("#chart .main-svg")
    page.click("#table th[data-name=change]")
    page.wait_for_selector("#table th[data-name=change][aria-sort=descending]")
    cells = [
        page.inner_text(f"{rows}:nth-child(1) [data-column={x}]") for x in ("moved", "change", "other_us", "here_us")
    ]
    assert cells == ["slower", "+100.0", "93.5 µs", "187 µs"]
    problem = click_point(page, "#chart", "faster in store")
    page.wait_for_selector("#problem dd:has-text('10.9 ms → 5.46 ms')")
    assert page.locator(f"#table tr.here[data-id='{problem}']").count() == 1
    page.wait_for_selector("#problem .scatterlayer .point")
    assert "window.ran" in hovered(page, "#problem"), "planted markup is read as text"
    page.keyboard.press("Escape")
    drag(page, "#chart", 0.01, 0.5, 0.5, 0.99)
    page.wait_for_function("document.querySelector('#table-note').textContent.startsWith('2 of')")
    assert page.locator("img, #page a[href*=outside]").count() == 0
    seen.clean()


@pytest.mark.nightly
def test_points_are_drawn_where_there_is_no_webgl(alone: Visit, both: Served, reports: dict[str, Path]) -> None:
    page = alone.page
    page.add_init_script("HTMLCanvasElement.prototype.getContext = () => null")
    for url in (both.url + "?view=roofline", reports["beside"].as_uri()):
        page.goto(url)
        if url.startswith("file:"):
            page.click("nav a:has-text('Roofline')")
        page.wait_for_selector("#chart .scatterlayer .points path")
        assert page.locator(".no-webgl").count() == 0
    alone.clean()


@pytest.mark.nightly
def test_a_printed_report_is_complete(seen: Visit, reports: dict[str, Path]) -> None:
    """A printed report has light colours, and every chart and row fits on the paper.

    After printing, the screen looks as before.
    """
    page = seen.page
    page.goto(reports["demo"].as_uri())
    page.wait_for_selector("#table tbody tr")
    if page.evaluate("document.documentElement.dataset.theme") == "light":
        page.click("#switch")
    page.wait_for_function("window.logparsePage.page.theme === 'dark'")
    page.fill("#table input[data-column=label]", "NCHW")
    page.wait_for_url("**table=*NCHW*")
    chosen = count(page)
    page.set_viewport_size({"width": 700, "height": 990})  # A4 within the margins of @page
    page.emulate_media(media="print")
    page.wait_for_selector("#print section >> nth=1")
    assert page.locator("#print .main-svg").count() >= page.locator("#print h2").count() > 1
    assert page.locator("#table tbody tr:visible").count() == chosen > 3
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    edge = page.evaluate(
        "Math.max(...[...document.querySelectorAll('#print svg, #table tr')].map(x => x.getBoundingClientRect().right))"
    )
    assert edge <= 700
    tall = page.locator("#table tbody tr").evaluate_all(
        "rows => Math.max(...rows.map(x => x.getBoundingClientRect().height))"
    )
    assert tall < 60, "a row has a few lines"
    time = page.locator("#table tbody td.number").first
    assert time.evaluate("x => getComputedStyle(x).whiteSpace") == "nowrap", "a time is not broken"
    inside = "x => getComputedStyle(x).breakInside"
    assert page.locator("#answer").evaluate(inside) == "auto", "the cards go on at the next page"
    assert page.locator(".cards li").first.evaluate(inside) == "avoid"
    charts = page.locator("#print section").evaluate_all("all => all.map(x => x.getBoundingClientRect().height)")
    assert max(charts) < 500, "two charts have room on a page"
    lines = page.locator(".cards pre code:visible")
    assert lines.count() > 0
    assert lines.evaluate_all("all => all.every(x => getComputedStyle(x).whiteSpace === 'pre-wrap')"), (
        "paper does not scroll"
    )
    assert not page.locator("#chart").is_visible()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.emulate_media(media="screen")
    page.wait_for_selector("#print section", state="detached")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    seen.clean()


def test_a_filter_of_the_report_leaves_nothing_of_the_whole_run(seen: Visit, reports: dict[str, Path]) -> None:
    """Cards and remarks about the rows that are left stay, and the bar and the sums of the whole run are hidden."""
    page = seen.page
    page.goto(f"{reports['demo'].as_uri()}#?view=overview")
    page.wait_for_selector("#table tbody tr")
    assert page.locator(".time-bar").count() == 1
    assert "(calls × time of a call" in page.inner_text("#verdict")
    cards = page.locator(".cards li").count()
    action = page.locator("#table tbody td[data-column=action]:not(:empty)").first
    title, label = action.inner_text(), action.locator("xpath=..").locator("[data-column=label]").inner_text()
    page.fill("#search", label)
    page.wait_for_selector("#verdict >> text=clear the filters to see them")
    assert page.locator(".time-bar").count() == 0
    assert "calls × time" not in page.inner_text("#verdict")
    assert title in page.inner_text(".cards")
    assert 0 < page.locator(".cards li").count() <= cards
    page.fill("#search", "no such problem")
    page.wait_for_selector(".cards li", state="detached")
    page.fill("#search", "")
    page.wait_for_selector(".time-bar")
    assert page.locator(".cards li").count() == cards
    seen.clean()


def test_on_a_phone_no_text_of_a_chart_is_cut_off(seen: Visit, demo: Served) -> None:
    """Two plots that have no room side by side stand one below the other, and long lines are broken."""
    page = seen.page
    page.set_viewport_size({"width": 390, "height": 844})
    show(page, f"{demo.url}?view=regret")
    page.wait_for_selector("#chart .main-svg .gtitle")
    box, *texts = page.evaluate(
        """() => [document.querySelector('#chart'), ...document.querySelectorAll(
             '#chart .gtitle, #chart .xtitle, #chart .x2title, #chart .annotation-text')].map((x) => {
            const { left, right, top, bottom } = x.getBoundingClientRect();
            return { left, right, top, bottom };
        })"""
    )
    assert len(texts) == 5, "a headline, and of each plot a title and the title of its axis"
    assert all(box["left"] <= x["left"] and x["right"] <= box["right"] for x in texts)
    order = sorted(texts, key=lambda x: x["top"])
    assert all(above["bottom"] <= below["top"] + 2 for above, below in itertools.pairwise(order))
    page.set_viewport_size(WINDOW)
    page.wait_for_function("document.querySelector('#chart .js-plotly-plot')._fullLayout.xaxis2.domain[0] > 0.5")
    seen.clean()


@pytest.mark.nightly
def test_columns_are_chosen_by_set_and_one_by_one(seen: Visit, demo: Served) -> None:
    page = seen.page
    show(page, demo.url)
    head = "#table th[data-name={}]"
    assert page.locator(head.format("action")).count() == 1
    assert re.search(r"\d (µs|ms|s)$", page.inner_text("#table tbody tr:nth-child(1) [data-column=total_us]"))
    page.click("#choose summary")
    page.click("#chooser button:has-text('Times')")
    page.wait_for_selector(head.format("action"), state="detached")
    page.check("#chooser input[value=action]")
    page.wait_for_selector(head.format("action"))
    show(page, f"{demo.url}?view=roofline")
    page.wait_for_selector(head.format("efficiency"))
    show(page, f"{demo.url}?view=weights")
    page.wait_for_selector("#table tbody [data-column=w_us]:has-text('≥ ')")
    page.wait_for_selector("#table tbody [data-column=beyond_us]:has-text('≈ ')")
    assert "does not name the solver" in page.inner_text("#after")
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
    show(page, demo.url)
    page.focus(".cards .whole >> nth=0")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.activeElement === document.querySelectorAll('.cards .whole')[1]")
    assert page.locator(".cards [tabindex='0']").count() <= 3, "of the cards one is reached by Tab"
    page.keyboard.press("Enter")
    page.wait_for_url("**todo=*")
    show(page, f"{demo.url}?view=compare")
    page.focus("#tabs a.here")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.textContent") == "Backward weights"
    seen.clean()
