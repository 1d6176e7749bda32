"""The report's statements about its own tables and charts are true."""

from __future__ import annotations

import json
import re
from pathlib import Path

from analyzers.evidence.tables import Settings
from analyzers.explore.report import write_report
from analyzers.findings import ANALYZERS
from analyzers.recommend.ranking import recommend
from analyzers.recommend.verdict import verdict
from logparse.store import Store
from tests.analyzers.build import measurement, tables, work
from tests.analyzers.example import B, F, W, gemm
from tests.analyzers.ingested import bench, read


def test_every_chart_and_the_table_state_what_they_show_and_of_which_run(store: Store, tmp_path: Path) -> None:
    sizes = range(64, 64 + 16 * 20, 16)
    read(store, tmp_path, {"bench.log": "".join(bench(m, 64, 64, count=2) for m in sizes)})
    out = tmp_path / "report.html"
    run = store.latest_run(None)
    write_report(store, out, top=12)
    text = out.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)
    data = json.loads(found.group(1)) if found else {}
    assert list(data["captions"]) == list(data["charts"])
    assert all(x.endswith(f" Run {run}.") for x in data["captions"].values())
    assert f'<caption class="hidden">Problems of run {run}, 12 of 20, the most worthwhile first</caption>' in text


def test_the_headline_agrees_with_the_list_of_findings() -> None:
    """Every timed pick is the best known solution, but one wgrad call is slow.

    So the headline must not state that nothing can be gained.
    """
    picks = [measurement(gemm().text, "Default", 60.0), measurement(gemm().text, "hipblaslt:9", 80.0)]
    times = zip((F, B, W), (187.0, 219.0, 5455.0), strict=True)
    found_in = {"origin": "find-db", "kind": "conv", "source_id": "f"}
    layer = [measurement(p.text, "miopen:ConvAsm", us) | found_in for p, us in times]
    works = [work(x.text, 4) for x in (gemm(), F, B, W)]
    slow = recommend(tables(measurements=[*picks, *layer], workload=works), Settings(), ANALYZERS)
    assert [x.analyzer for x in slow.findings] == ["slow-wrw"]
    assert verdict(slow).headline == "search MIOpen for 1 problem: ≈ 21.8 ms → 876 µs a run, estimated"
    best = recommend(tables(measurements=picks, workload=works[:1]), Settings(), ANALYZERS)
    assert verdict(best).headline == "nothing worth doing: none of 1 measured problem has a better known solution"
