"""Make the pictures of the README and of docs/: ``python docs/screenshots.py FOLDER [--out docs/images]``.

All pictures but the demo's show real files.  ``FOLDER`` holds

- MIOpen's find-db of the MI300X as ROCm ships it (``miopen/gfx942130.HIP.fdb.txt.bz2``),
- from one training job on an H200: cuBLASLt's log, the profiler's trace and TunableOp's untuned CSV
  (``h200/cublaslt_*.log.gz``, ``h200/gpt2*``),
- a trace of an MI300X (``tracelens/mi300_resnet_train.json.gz``),
- a find-db of a gfx1201 (``field/miopen-finddb-gfx12``).

The times of a replay, and of jobs before and after, come from ``benchmarks/results``.  The script needs the extra
``explore``, Playwright and chromium.
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import sync_playwright
from werkzeug.serving import make_server

from analyzers.evidence.confirmations import Pairs, confirmation_text, judge
from analyzers.evidence.origins import PICK
from analyzers.evidence.statistics.intervals import median
from analyzers.explore.page.app import application
from analyzers.explore.page.data import PageData
from analyzers.replay.results import Confirmed, environment_key, make_measurement
from logparse.ingest import ingest, record
from logparse.model import DEFAULT, Call, Fact, Measurement, Problem, problem_from_text, solution_from_text
from logparse.store import Store, open_store

FLAGS = ["--no-sandbox", "--disable-gpu", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
LARGEST = 250_000
RECORDS = Path(__file__).parents[1] / "benchmarks" / "results"
SAMPLES = Path(__file__).parents[1] / "sample_logs"


@dataclass(frozen=True)
class Shown:
    """A store, and its pictures: name → theme and query.  ``fill`` makes the store."""

    fill: Callable[[Store, Path], None]
    views: Mapping[str, tuple[str, str]]


def demo(store: Store, folder: Path) -> None:
    """Ingest the sample logs of one job, as ``make demo`` does."""
    patterns = (
        "hipblaslt/*.log",
        "hipblaslt/*.txt",
        "miopen/*.log",
        "miopen/*.txt",
        "tunableop/*.csv",
        "tunableop/*.log",
    )
    ingest([str(x) for y in patterns for x in sorted(SAMPLES.glob(y))], store, run="demo", jobs=1)


def training(store: Store, folder: Path) -> None:
    """Ingest a log and a trace of GPT-2 steps on an H200, and the record of its products' replay."""
    _ingest(store, folder, "gpt2", "h200/cublaslt_*.log.gz", "h200/gpt2*")
    _replayed(store, RECORDS / "gemms-NVIDIA-H200-2026-11-22.json", "gpt2")


def find_db(store: Store, folder: Path) -> None:
    """Ingest MIOpen's find-db of the MI300X, as ROCm ships it."""
    _ingest(store, folder, "mi300x", "miopen/gfx942130.HIP.fdb.txt.bz2")


def three_devices(store: Store, folder: Path) -> None:
    """Ingest convolutions of six models on an H200, before and after a change of layout.

    The store also holds runs of an MI300X and of a gfx1201.
    """
    _ingest(store, folder, "mi300x", "tracelens/mi300_resnet_train.json.gz")
    _ingest(store, folder, "gfx1201", "field/miopen-finddb-gfx12/*.ufdb.txt")
    _in_job(store, RECORDS / "in-job-NVIDIA-H200-2026-11-22.json.gz")


STORES = (
    Shown(demo, {"demo": ("light", "?view=overview")}),
    Shown(
        training,
        {
            "overview": ("light", "?view=overview"),
            "timeline": ("light", "?view=timeline"),
            "regret": ("light", "?view=regret"),
        },
    ),
    Shown(
        find_db,
        {
            "roofline": ("light", "?view=roofline"),
            "backward-weights": ("dark", "?view=weights"),
        },
    ),
    Shown(three_devices, {"before-after": ("light", "?view=compare&run=after&compare=before")}),
)


def _ingest(store: Store, folder: Path, run: str, *patterns: str) -> None:
    files = [str(x) for pattern in patterns for x in sorted(folder.glob(pattern))]
    if not files:
        raise SystemExit(f"{folder} holds no {' or '.join(patterns)}")
    ingest(files, store, run=run, jobs=1)


def _replayed(store: Store, path: Path, run: str) -> None:
    """Store a record of ``benchmarks/gpu_replay.py`` as the replay itself would have written it."""
    made = json.loads(path.read_text())
    known = made["environment"] | made["before"] | {"environment": environment_key(made["environment"])}

    def write(problem: Problem, rows: Sequence[Measurement], **extra: str) -> None:
        facts = [Fact(name, str(value)) for name, value in sorted((known | extra).items())]
        record(store, [*rows, *facts], run=run, name=f"replay/cuda:0/{problem.label}", format="replay")

    for race in made["results"]:
        problem = problem_from_text(race["problem"])
        timed = [x for x in race["rows"] if x["status"] == "ok"]
        rows = [make_measurement(problem, solution_from_text(x["solution"]), x["samples_us"]) for x in timed]
        write(problem, rows, **{PICK: race["pick"]})
    for one in made["confirmations"]:
        problem, pairs = problem_from_text(one["problem"]), Pairs(tuple(one["pick_us"]), tuple(one["winner_us"]))
        pick, winner = solution_from_text(one["pick"]), solution_from_text(one["winner"])
        done = Confirmed(problem=problem, pick=pick, winner=winner, pairs=pairs)
        verdict = confirmation_text(
            problem.text, pick.text, winner.text, pairs, judge(pairs, floor=0.03), complete=True
        )
        write(problem, done.rows, **{PICK: pick.text, "confirmation": verdict})


def _in_job(store: Store, path: Path) -> None:
    """Store the calls' times in the traces of ``benchmarks/in_job.py`` as two runs, before and after."""
    with gzip.open(path) as file:
        made = json.load(file)
    facts = [Fact(name, made["environment"][name]) for name in ("arch", "cu_count", "device", "pytorch_version")]
    for run, column in (("before", "job_before_us"), ("after", "job_after_us")):
        times: dict[str, list[float]] = {}
        for pair in made["pairs"]:
            if pair["problem"].startswith("conv"):
                times.setdefault(pair["problem"], []).extend(pair[column])
        problems = {text: problem_from_text(text) for text in times}
        rows = [
            Measurement(problem=problems[text], solution=DEFAULT, origin="table", time_us=median(us))
            for text, us in times.items()
        ]
        calls = [Call(problem=problem, category="table", count=1) for problem in problems.values()]
        record(store, [*rows, *calls, *facts], run=run, name=f"{run}.csv", format="table")


logging.getLogger("werkzeug").setLevel(logging.ERROR)


def pictures(store: str, views: Mapping[str, tuple[str, str]], out: Path, chromium: str) -> None:
    """Take one picture per view: the part of the page above the table."""
    os.environ["LOGPARSE_STORE"] = store  # so that the lines to type do not name the temporary folder
    data = PageData(store)
    server = make_server("127.0.0.1", 0, application(data), threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            for name, (theme, query) in views.items():
                page = browser.new_page(viewport={"width": 1120, "height": 870}, color_scheme=theme)  # type: ignore[arg-type]
                page.set_default_timeout(180_000)
                page.goto(f"http://127.0.0.1:{server.port}/{query}")
                page.wait_for_selector("#verdict .bone", state="detached")
                page.wait_for_selector(".cards" if "overview" in query else "#charts .chart:visible .main-svg")
                rows = "table.kernels tbody tr" if "timeline" in query else "#table tbody tr:has-text('s')"
                page.wait_for_selector(rows)
                page.wait_for_function("document.querySelector('#doing').textContent === ''")
                page.evaluate("document.querySelector('.store').textContent = ''")  # it shows a temporary folder's name
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
    for shown in STORES:
        with tempfile.TemporaryDirectory() as folder:
            store = open_store(f"{folder}/store", create=True)
            shown.fill(store, given.folder)
            pictures(store.url, shown.views, given.out, given.chromium)


if __name__ == "__main__":
    main()
