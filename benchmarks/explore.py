"""Measure how long the page takes to show a store and to answer a click, in headless Chromium, and its memory.

    python benchmarks/explore.py STORE [--rounds 5] [--against ../other] [--chromium /usr/bin/chromium] [--out FILE]

The limits are for two stores. One is the find-db of gfx90a with 104 CUs, which ROCm ships (193,590 problems, 648,924
times); run ``logparse ingest gfx90a68.HIP.fdb.txt --store STORE`` first. The other has at least 570,000 problems: the
store ``many`` of benchmarks/answers.py has 580,770 problems, and 1.36 million rows of points (one per problem and
device).

A look is one start of the program with one view of the page. For each look, the output has the seconds from the start
of the program to its address, to the first words in the browser, to the headline and to the first view (cards or chart,
filters and rows of the table are there), and the CPU seconds of server and readers. With ``--against``, a look at the
page of another checkout follows each look, on the same browser. ``--looks 5 --rounds 0`` measures only looks.

For each kind of interaction (another view, a filter, a search, opening a row) the output has two times, as median and
largest. Both begin with the click or key as the browser saw it. The first time ends when nothing on the screen changes
any more (charts, filters, table and chips in the window). The second time ends when nothing on the page changes any
more (also charts below the window). The output also has the server's CPU time for the interaction.

Memory is the largest sum over server and readers at one moment (proportional set size: pages that both hold are counted
once). The last lines compare the figures with their limits (``--size``), with the load of the machine: two cores draw,
query and serve at once.

Three looks and five rounds take minutes, because each look waits for the analyzers, and each interaction until nothing
has changed for a second. Each part is printed when it is done.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from compileall import compile_dir
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from processes import Watch

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--use-gl=angle",
         "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]  # fmt: skip
DRAWN = """view => { const all = [...document.querySelectorAll('#charts .js-plotly-plot')];
    return (view === 'Overview' || all.some((g) => g.offsetParent && g.data))
        && document.querySelector('nav .here')?.textContent === view; }"""
TIMEOUT_MS = 600_000
POLL = 50  # milliseconds between two polls; polling every frame, as Playwright does, makes the page draw frames for it
FILLED = """() => document.querySelector('aside .entry') && document.querySelector(
    '#table tbody [data-column=label], #table .ag-row [col-id=label]')?.textContent.trim()"""
WORDS = "document.querySelector('#verdict strong')?.textContent"
HEADLINE = f"{WORDS} && !/^Reading|is being analysed/.test({WORDS})"
"""JavaScript condition that is true when the web page shows the result of the analyzers.

It also works for the page of an earlier version, so that the two can be compared.
"""
PARTS = "#charts .chart, #table-box, #facets, #chips, #verdict, #tabs, #intro, #detail"
WATCH = """parts => {
    if (!window.changed_) {
        window.changed_ = new Map();
        const note = (node) => {
            const part = (node.nodeType === 1 ? node : node.parentElement)?.closest?.(parts);
            if (part) window.changed_.set(part, performance.now());
        };
        new MutationObserver((all) => all.forEach((x) => note(x.target)))
            .observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
        addEventListener('click', (event) => { window.clicked_ = event.timeStamp; }, true);
        addEventListener('keydown', (event) => { window.clicked_ = event.timeStamp; }, true);
        window.note_ = note;
    }
    for (const g of document.querySelectorAll('#charts .js-plotly-plot')) {
        g.removeAllListeners?.('plotly_afterplot');
        g.on?.('plotly_afterplot', () => window.note_(g));
    }
    window.changed_.clear();
    window.clicked_ = 0; }"""
QUIET_MS, UNCHANGED_MS = 1000, 2500
"""How long the web page must stay unchanged before an interaction is taken to be over, ms.

* ``QUIET_MS``: the time after the last change, if the page is not waiting for an answer either.
* ``UNCHANGED_MS``: the time for an interaction that changes nothing at all.
"""
SETTLED = f"""() => new Promise((resolve) => {{
    const asked = performance.now();
    const look = () => {{  // by timer: what runs with every frame makes the page draw frames
        const last = Math.max(0, ...window.changed_.values()), now = performance.now();
        const busy = document.querySelector('#content').ariaBusy === 'true';
        const over = !busy && (last ? now - last > {QUIET_MS} : now - asked > {UNCHANGED_MS});
        over ? resolve() : setTimeout(look, 100);
    }};
    look(); }})"""
CHANGED = """() => {
    const times = [...window.changed_].filter(([part]) => part.offsetParent).map(([part, at]) => {
        const box = part.getBoundingClientRect();
        return [at - window.clicked_, box.top < innerHeight && box.bottom > 0];
    });
    const last = (chosen) => Math.max(0, ...chosen.map(([at]) => at));
    return [last(times.filter(([, seen]) => seen)), last(times)]; }"""
VIEWS = ("Overview", "Roofline", "Regret", "Backward weights")
FILTERS = ("FP16", "BF16", "FP32", "INT8")


SHOWN = {
    "the first words": f"() => {WORDS}",
    "first view": f"() => ({DRAWN})('Overview') && ({FILLED})()",
    "the headline": f"() => {HEADLINE}",
}
"""JavaScript conditions that are true when the web page shows something for the first time."""
ANY_SHOWN = f"""names => {{
    const shown = {{ {", ".join(f"{name!r}: {condition}" for name, condition in SHOWN.items())} }};
    return names.find((name) => shown[name]()); }}"""


def first_view(page: Any, url: str, note: Callable[[str], None] = lambda shown: None) -> float:
    """Open the web page. Return the number of seconds until its first view is complete.

    Waits for the headline, too. ``note`` is called with each name of ``SHOWN``, as soon as the page shows this.
    """
    # The headline may come before or after the tables of the first view.
    start, missing, viewed = time.perf_counter(), list(SHOWN), 0.0
    page.goto(url, wait_until="commit")
    while missing:
        shown = page.wait_for_function(ANY_SHOWN, arg=missing, polling=POLL).json_value()
        missing.remove(shown)
        note(shown)
        if shown == "first view":
            viewed = time.perf_counter() - start
    return viewed


SEARCHES = ("1x1", "ConvAsm", "FP16", "256-56", "no such text")
VIEW, AGAIN, FILTER, SEARCH, ROW = "view", "view again", "filter", "search", "row opened"
"""The kinds of interactions with the web page that are timed.

* ``VIEW``: another tab is opened for the first time with the present filters.
* ``AGAIN``: another tab is opened that was already drawn with the present filters.
* ``FILTER``, ``SEARCH``, ``ROW``: a filter is switched, a text is searched, a row of the table is opened.
"""


def timed(page: Any, view: str, act: Callable[[], None], watch: Watch) -> tuple[float, float, float]:
    """Do one interaction, such as a click, and measure how long the web page takes for it.

    Returns the milliseconds until the screen and the whole page no longer change, and the server's CPU milliseconds.
    """
    # Both times reach from the click or key to the last change that it causes, first on the screen, then on the whole
    # page.
    page.evaluate(WATCH, PARTS)
    used = watch.cpu_s
    act()
    page.mouse.move(2, 2)  # If the pointer stayed, it would go on changing the element under it.
    page.evaluate(SETTLED)
    assert page.evaluate(DRAWN, view), f"{view} is not drawn"
    screen, whole = page.evaluate(CHANGED)
    return float(screen), float(whole), (watch.cpu_s - used) * 1e3


def interactions(page: Any, rounds: int, watch: Watch) -> dict[str, list[tuple[float, float, float]]]:
    """Do all interactions with the web page, and return their times by kind and tab."""
    # In each tab, filters are switched on and off, another filter each time. All tabs are opened with other filters
    # each time, and are opened again with the same filters. Then texts are searched, and rows of the table are opened.
    times: dict[str, list[tuple[float, float, float]]] = {}

    def take(what: str, view: str, act: Callable[[], None]) -> None:
        times.setdefault(f"{what}, {view}", []).append(timed(page, view, act, watch))

    for view in VIEWS:
        page.click(f"nav >> text={view}")
        page.wait_for_function(DRAWN, arg=view)
        page.wait_for_timeout(1500)
        for i in range(rounds):
            for _switch in "on", "off":
                take(FILTER, view, lambda i=i: page.click(_entry(i)))  # type: ignore[misc]
    for i in range(rounds):
        page.click(_entry(i))
        page.wait_for_timeout(1500)
        others = [x for x in VIEWS if x != page.inner_text("nav .here")]
        for what, views in ((VIEW, others), (AGAIN, VIEWS)):
            for view in views:
                take(what, view, lambda view=view: page.click(f"nav >> text={view}"))  # type: ignore[misc]
    page.click(f"nav >> text={VIEWS[0]}")
    for i in range(rounds):
        page.click(_entry(i))
        page.wait_for_timeout(1500)
    for i in range(rounds):
        place = f"#table tbody tr:nth-child({i + 1}) [data-column=label]"
        take(ROW, VIEWS[0], lambda place=place: page.click(place))  # type: ignore[misc]
    for text in SEARCHES[:rounds]:
        page.fill("#search", text)
        take(SEARCH, VIEWS[0], lambda: page.press("#search", "Enter"))
    return times


def _entry(i: int) -> str:
    return f"aside .entry:has-text('{FILTERS[i % len(FILTERS)]}')"


@contextmanager
def serving(store: str, checkout: Path) -> Iterator[tuple[str, Watch]]:
    """Context manager: run ``logparse explore`` of a checkout on stored data.

    Yields the page's address and an object that measures the server's memory and CPU time.
    """
    # With this variable, each start would compile all modules again. Users do not have it.
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    compiled["PYTHONPATH"] = str(checkout)
    command = [sys.executable, "-m", "logparse", "explore", "--store", store, "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=compiled, cwd=checkout) as server:
        assert server.stdout
        watch = Watch(server.pid)
        try:
            yield server.stdout.readline().split()[0], watch
        finally:
            watch.stop()
            server.terminate()


def look(browser: Any, store: str, checkout: Path) -> dict[str, object]:
    """Start the server, open the web page, and wait until the results of the analyzers are shown. Returns the times."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.set_default_timeout(TIMEOUT_MS)
    begun = time.perf_counter()
    out: dict[str, float] = {}

    def note(shown: str) -> None:
        out[f"start to {shown} (s)"] = round(time.perf_counter() - begun, 2)

    with serving(store, checkout) as (url, watch):
        note("the address")
        out["page to first view (s)"] = round(first_view(page, url, note), 2)
        out["CPU of server and readers in all (s)"] = round(watch.cpu_s, 2)
        page.close()
        return {**out, "largest memory of server and readers (MB)": round(watch.peak_mb)}


def clicks(browser: Any, store: str, rounds: int) -> dict[str, object]:
    """Measure how fast the web page answers, on a server that has been running for a while.

    The page is opened again, and every interaction is tried.
    """
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.set_default_timeout(TIMEOUT_MS)
    out: dict[str, object] = {}
    with serving(store, HERE) as (url, watch):
        first_view(page, url)
        warm = [first_view(page, url) for _ in range(rounds)]
        out["page to first view, warm (s)"] = round(statistics.median(warm), 2)
        for act, times in interactions(page, rounds, watch).items():
            for what, values in zip(
                ("screen", "whole page", "CPU of the server"), zip(*times, strict=True), strict=True
            ):
                out[f"{act}: {what} (ms): median, largest"] = [
                    round(statistics.median(values)),
                    round(max(values)),
                ]
        out["largest memory of server and readers (MB)"] = round(watch.peak_mb)
    page.close()
    return out


HERE = Path(__file__).resolve().parents[1]


def load() -> str:
    return f"{os.getloadavg()[0]:.1f} of {os.cpu_count()} cores"


OWED: Mapping[str, Mapping[str, float]] = {
    "trace": {"headline (s)": 3.0, "first view (s)": 2.5, "interaction (ms)": 200.0, "memory (MB)": 700.0},
    "find-db": {"headline (s)": 4.0, "first view (s)": 2.5, "interaction (ms)": 200.0, "memory (MB)": 700.0},
    "one": {"first view (s)": 2.5, "interaction (ms)": 200.0, "memory (MB)": 700.0},
    "many": {"first view (s)": 3.0, "interaction (ms)": 300.0, "memory (MB)": 1000.0},
}
"""Largest allowed times and memory of the web page, for four sizes of data.

The sizes are one trace, a find-db of 9,600 convolutions, a find-db of 193,590 convolutions (``one``), and at least
570,000 convolutions (``many``).
"""


def owed(out: dict[str, Any], size: str) -> dict[str, object]:
    """Compare the measured speed and memory of the web page with the limits that are promised."""
    # Four figures are compared: the median time until the page shows its headline (the result of the analysis), the
    # longest time until charts, filters and table are there for the first time, the median time of the slowest click,
    # and the largest memory of the server and its helper processes.
    looks = [value for name, value in out.items() if name.startswith("look")]
    memory = "largest memory of server and readers (MB)"
    up = out.get("once up", {})
    worst = {
        "headline (s)": statistics.median(x["start to the headline (s)"] for x in looks),
        "first view (s)": max(x["page to first view (s)"] for x in looks),
        "interaction (ms)": max((value[0] for name, value in up.items() if ": screen" in name), default=None),
        "memory (MB)": max(x[memory] for x in [*looks, *([up] if up else [])]),
    }
    known = {name: limit for name, limit in OWED[size].items() if worst[name] is not None}
    return {name: {"owed": limit, "is": worst[name], "met": worst[name] <= limit} for name, limit in known.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", choices=OWED, default="one", help="whose figures are required")
    parser.add_argument("--against", type=Path, help="another checkout, whose page is looked at in turn")
    parser.add_argument("--looks", type=int, default=3, help="how often it is started")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--out", help="write the record to this file, too")
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    # An installed package is compiled already.
    for checkout in (HERE, *([given.against.resolve()] if given.against else [])):
        for package in ("logparse", "analyzers"):
            compile_dir(checkout / package, quiet=1)
    store = str(Path(given.store).resolve()) if Path(given.store).exists() else given.store
    out: dict[str, Any] = {"load before": load()}

    def take(name: str, measured: dict[str, object]) -> None:
        out[name] = measured
        print(f"{name}: {json.dumps(measured)}", file=sys.stderr, flush=True)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=given.chromium, args=FLAGS)
        for i in range(given.looks):
            take(f"look {i + 1}", look(browser, store, HERE))
            if given.against:
                take(f"against: look {i + 1}", look(browser, store, given.against.resolve()))
        if given.rounds:
            take("once up", clicks(browser, store, given.rounds))
        browser.close()
    record = json.dumps({**out, "load after": load(), "owed": owed(out, given.size)}, indent=1)
    print(record)
    if given.out:
        Path(given.out).write_text(record + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
