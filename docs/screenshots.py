"""Make the pictures of the README: ``python docs/screenshots.py [STORE] [--out docs/images]``.

Without a store it ingests the sample logs into a temporary one.  Needs the extra ``explore``, Playwright and chromium.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import threading
from pathlib import Path

from playwright.sync_api import sync_playwright
from werkzeug.serving import make_server

from analyzers.explore.app import application
from analyzers.explore.board import Board
from logparse.ingest import ingest
from logparse.store import open_store

ROOT = Path(__file__).parents[1]
FLAGS = ["--no-sandbox", "--disable-gpu", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
PICTURES = {
    "overview": ("light", "?view=overview"),
    "roofline": ("light", "?view=roofline"),
    "regret": ("light", "?view=regret"),
    "backward-weights": ("dark", "?view=weights"),
}
LARGEST = 200_000


logging.getLogger("werkzeug").setLevel(logging.ERROR)


def sample_store(folder: str) -> str:
    """A store of the sample logs."""
    store = open_store(f"{folder}/sample-store", create=True)
    patterns = ("hipblaslt/*.log", "miopen/*.txt", "miopen/*.log", "tunableop/*.csv", "tunableop/*.log")
    ingest([str(x) for p in patterns for x in sorted((ROOT / "sample_logs").glob(p))], store, run="demo", jobs=1)
    return store.url


def pictures(url: str, out: Path, chromium: str) -> None:
    """One picture per entry of ``PICTURES``, of the part of the page above the table."""
    board = Board(url)
    server = make_server("127.0.0.1", 0, application(board).server, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            for name, (theme, query) in PICTURES.items():
                page = browser.new_page(viewport={"width": 1280, "height": 1000}, color_scheme=theme)  # type: ignore[arg-type]
                page.goto(f"http://127.0.0.1:{server.port}/{query}")
                page.wait_for_selector("#chart-0 .main-svg", timeout=60_000)
                page.wait_for_function("!document.querySelector('#verdict').textContent.includes('Reading')")
                page.evaluate(
                    "document.querySelector('.store').textContent = ''"
                )  # the folder's name is nobody's business
                page.wait_for_timeout(2_500)
                path = out / f"{name}.png"
                page.screenshot(path=path)
                assert path.stat().st_size < LARGEST, f"{path} is larger than {LARGEST:,} bytes"
                page.close()
            browser.close()
    finally:
        server.shutdown()
        board.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", nargs="?")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        pictures(given.store or sample_store(folder), given.out, given.chromium)


if __name__ == "__main__":
    main()
