"""How long the page takes to show a store, and to answer a click, in headless Chromium.

    python benchmarks/explore.py STORE [--rounds 5] [--chromium /usr/bin/chromium]

The README's claim is for the find-db of gfx90a with 104 CUs, which ROCm ships (193,590 problems, 648,924 times):
``logparse ingest gfx90a68.HIP.fdb.txt --store STORE`` first.  Prints seconds from the start of the program to the first
view, from opening the page to the first view once the server is up, the time of each kind of interaction (median and
largest, from the click to the last redraw of chart and table), and the peak memory of the server and of its reader.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from typing import Any

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--use-gl=angle",
         "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]  # fmt: skip
SERVE = """import sys
from analyzers.explore.serve import explore
explore(sys.argv[1], port=0, browser=False, say=lambda x: print(x, flush=True))"""
DRAWN = """view => { const g = document.querySelector('#chart-0 .js-plotly-plot');
    return g && g.data && document.querySelector('nav .here')?.textContent === view; }"""
COUNT = """() => { const g = document.querySelector('#chart-0 .js-plotly-plot'); window.drawn_ = 0;
    g.removeAllListeners('plotly_afterplot');
    g.on('plotly_afterplot', () => { window.drawn_ = performance.now(); }); }"""


def peak_mb(pid: int) -> float:
    """Peak resident memory of a process in MB (10^6 bytes)."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next((int(line.split()[1]) for line in status if line.startswith("VmHWM")), 0) * 1024 / 1e6


def children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as listed:
        return [int(x) for x in listed.read().split()]


def first_view(page: Any, url: str) -> float:
    start = time.perf_counter()
    page.goto(url)
    page.wait_for_function(DRAWN, arg="Overview")
    page.wait_for_selector("#table .ag-row")
    return time.perf_counter() - start


def click(page: Any, selector: str, view: str) -> float:
    """Milliseconds from a click on a link to the chart's last redraw."""
    page.evaluate(COUNT)
    begun = page.evaluate("performance.now()")
    page.click(selector)
    page.wait_for_function("window.drawn_ > 0")
    page.wait_for_function(DRAWN, arg=view)
    return float(page.evaluate("window.drawn_")) - float(begun)


def interactions(page: Any, rounds: int) -> dict[str, list[float]]:
    """Switch a filter off and on in each view, ``rounds`` times."""
    times: dict[str, list[float]] = {}
    for view in ("Overview", "Roofline", "Regret", "Backward weights", "Shapes"):
        page.click(f"nav >> text={view}")
        page.wait_for_function(DRAWN, arg=view)
        page.wait_for_timeout(1500)
        for _ in range(rounds):
            for _switch in "on", "off":
                times.setdefault(f"filter, {view}", []).append(click(page, "aside .entry:has-text('FP16')", view))
                page.wait_for_timeout(600)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=given.chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(120_000)
        begun = time.perf_counter()
        with subprocess.Popen([sys.executable, "-c", SERVE, given.store], stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout
            url = re.match(r"(\S+)", server.stdout.readline()).group(1)  # type: ignore[union-attr]
            cold = first_view(page, url)
            out: dict[str, object] = {"start to first view (s)": round(time.perf_counter() - begun, 2)}
            out["page to first view, server just started (s)"] = round(cold, 2)
            reader = 0.0
            while not page.evaluate("!document.querySelector('#verdict').textContent.includes('Reading')"):
                reader = max([reader, *(peak_mb(x) for x in children(server.pid))])
                time.sleep(0.05)
            warm = [first_view(page, url) for _ in range(given.rounds)]
            out["page to first view (s)"] = round(statistics.median(warm), 2)
            for name, values in interactions(page, given.rounds).items():
                out[f"{name} (ms): median, largest"] = [round(statistics.median(values)), round(max(values))]
            out["server peak (MB)"] = round(peak_mb(server.pid))
            out["reader peak (MB), ends after the first seconds"] = round(reader)
            server.terminate()
        browser.close()
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
