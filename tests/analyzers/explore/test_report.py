"""Tests that the report's sentences agree with its own tables and charts."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path

from analyzers.evidence.tables import Settings
from analyzers.explore.report import write_report
from analyzers.explore.selection import VIEWS
from analyzers.findings import ANALYZERS
from analyzers.recommend.ranking import recommend
from analyzers.recommend.verdict import verdict
from logparse.model import Search
from logparse.store import Store
from tests.analyzers.build import measurement, tables, work
from tests.analyzers.example import B, F, W, gemm
from tests.analyzers.ingested import bench, read


def test_the_report_states_what_it_shows_and_of_which_run(store: Store, tmp_path: Path) -> None:
    sizes = range(64, 64 + 16 * 20, 16)
    read(store, tmp_path, {"bench.log": "".join(bench(m, 64, 64, count=2) for m in sizes)})
    out = tmp_path / "report.html"
    run = store.latest_run(None)
    made = write_report(store, out, top=12)
    assert (made.shown, made.total) == (12, 20)
    text = out.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)
    data = json.loads(found.group(1)) if found else {}
    assert data["notes"]["overview"] == "12 of 20 problems, the most time first"
    assert len(data["rows"]["id"]) == 12
    assert list(data["views"]) == [x for x in VIEWS if x != "compare"], "there is no other run"
    for view, content in data["views"].items():
        assert f"Run {run}." in str(content["verdict"]), view
    assert f'<span class="store">store, run {run}</span>' in text


def test_a_report_of_500_problems_has_at_most_3_mb_and_only_scripts_of_its_policy(store: Store, tmp_path: Path) -> None:
    sizes = range(64, 64 + 16 * 600, 16)
    read(store, tmp_path, {"bench.log": "".join(bench(m, 64, 64, count=2) for m in sizes)})
    made = write_report(store, tmp_path / "report.html")
    assert (made.shown, made.total) == (500, 600)
    assert len(made.text.data) < 3_000_000
    policy = html.unescape(re.findall(r"script-src ([^\"]*)", made.text)[0])
    scripts = re.findall(r"<script>(.*?)</script>", made.text, re.DOTALL)
    assert len(scripts) == 2
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_the_headline_agrees_with_the_findings() -> None:
    """If anything is slow, the headline does not say that nothing can be saved.

    Here the library chose the fastest kernel for every matrix product, but one weight gradient of a convolution is
    slow.
    """
    picks = [measurement(gemm().text, "Default", 60.0), measurement(gemm().text, "hipblaslt:9", 80.0)]
    times = zip((F, B, W), (187.0, 219.0, 5455.0), strict=True)
    found_in = {"origin": "find-db", "kind": "conv", "source_id": "f"}
    layer = [measurement(p.text, "miopen:ConvAsm", us) | found_in for p, us in times]
    works = [work(x.text, 4) for x in (gemm(), F, B, W)]
    slow = recommend(tables(measurements=[*picks, *layer], workload=works), Settings(), ANALYZERS)
    assert [x.analyzer for x in slow.findings] == ["slow-wrw"]
    assert verdict(slow).headline == f"{Search().title([W])}: its calls ≈ 21.8 ms → 876 µs a run, estimated"
    best = recommend(tables(measurements=picks, workload=works[:1]), Settings(), ANALYZERS)
    assert verdict(best).headline.startswith(
        "nothing worth doing among the GEMMs: no better solution is known for any of 1 measured"
    )
