"""Make the pictures of the README: ``python docs/screenshots.py FOLDER [--out docs/images]``.

They show real files.  ``FOLDER`` holds MIOpen's find-db of the MI300X as ROCm ships it
(``miopen/gfx942130.HIP.fdb.txt.bz2``), and of one training job on an H200 cuBLASLt's log, the profiler's trace and
TunableOp's untuned CSV (``h200/cublaslt_*.log.gz``, ``h200/gpt2*``).  Needs the extra ``explore``, Playwright and
chromium.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from playwright.sync_api import sync_playwright
from werkzeug.serving import make_server

from analyzers.explore.page.app import application
from analyzers.explore.page.data import PageData
from logparse.ingest import ingest
from logparse.store import open_store

FLAGS = ["--no-sandbox", "--disable-gpu", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
TRAINING = ("h200/cublaslt_*.log.gz", "h200/gpt2*")
MI300X = ("miopen/gfx942130.HIP.fdb.txt.bz2",)
PICTURES = {
    TRAINING: {"overview": ("light", "?view=overview")},
    MI300X: {
        "roofline": ("light", "?view=roofline"),
        "regret": ("light", "?view=regret"),
        "backward-weights": ("dark", "?view=weights"),
    },
}
LARGEST = 200_000


logging.getLogger("werkzeug").setLevel(logging.ERROR)


def pictures(store: str, views: Mapping[str, tuple[str, str]], out: Path, chromium: str) -> None:
    """One picture per view, of the part of the page above the table."""
    data = PageData(store)
    server = make_server("127.0.0.1", 0, application(data).server, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            for name, (theme, query) in views.items():
                page = browser.new_page(viewport={"width": 1120, "height": 870}, color_scheme=theme)  # type: ignore[arg-type]
                page.goto(f"http://127.0.0.1:{server.port}/{query}")
                page.wait_for_selector("#chart-0 .main-svg", timeout=60_000)
                page.wait_for_function("!document.querySelector('#verdict').textContent.includes('Reading')")
                page.evaluate("document.querySelector('.store').textContent = ''")  # a temporary folder's name
                page.wait_for_timeout(2_500)
                path = out / f"{name}.png"
                page.screenshot(path=path)
                assert path.stat().st_size < LARGEST, f"{path} is larger than {LARGEST:,} bytes"
                page.close()
            browser.close()
    finally:
        server.shutdown()
        data.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "images")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for patterns, views in PICTURES.items():
        files = [str(x) for pattern in patterns for x in sorted(given.folder.glob(pattern))]
        if not files:
            parser.error(f"{given.folder} holds no {' or '.join(patterns)}")
        with tempfile.TemporaryDirectory() as folder:
            store = open_store(f"{folder}/store", create=True)
            ingest(files, store, run="real files", jobs=1)
            pictures(store.url, views, given.out, given.chromium)


if __name__ == "__main__":
    main()
