from __future__ import annotations

from pathlib import Path

import pandas as pd

from logparse.ingest import ingest
from logparse.lookup import one_problem
from logparse.store import open_store

LINE = "TN 4096×512×1024 bf16_r"


def test_show_names_the_measured_problems_of_an_estimate(tmp_path: Path) -> None:
    """If an expected time was estimated from comparable matrix products, ``logparse show`` names these products.

    If an older version of logparse stored the estimate, the names are missing, because it had no column ``comparable``.
    """
    table = tmp_path / "job.csv"
    table.write_text(
        "trans_a,trans_b,m,n,k,batch_count,a_type,library,solution,time_us\nT,N,4096,512,1024,1,bf16_r,torch,Default,61.2\n"
    )
    store = open_store(str(tmp_path / "store"), create=True)
    ingest([str(table)], store, run="r")
    [known] = one_problem.show(store, LINE)
    problem = known.measurements["problem"][0].as_py()
    row = {"run": "r", "analyzer": "slower-than-comparable", "problem": problem, "message": "takes 61.2 µs"}
    store.write_findings(pd.DataFrame([row | {"comparable": "TN 4096×512×2048 bf16_r 50 µs"}]))
    expected = "takes 61.2 µs; compared with TN 4096×512×2048 bf16_r 50 µs"
    assert one_problem.found_about(store, [known]) == [expected]
    store.write_findings(pd.DataFrame([row]))
    assert one_problem.found_about(store, [known]) == ["takes 61.2 µs"]


def test_show_can_be_limited_to_one_run(tmp_path: Path) -> None:
    """Warnings of several runs name their run, and a run without the product is named."""
    head = "trans_a,trans_b,m,n,k,batch_count,a_type,library,solution,time_us\n"
    store = open_store(str(tmp_path / "store"), create=True)
    for run, k in (("one", 1024), ("two", 1024), ("three", 64)):
        table = tmp_path / f"{run}.csv"
        table.write_text(f"{head}T,N,4096,512,{k},1,bf16_r,torch,Default,61.2\n")
        ingest([str(table)], store, run=run)
    [known] = one_problem.show(store, LINE)
    assert known.measurements["run"].to_pylist() == ["one", "two"]
    for run in ("one", "two"):
        row = {"run": run, "analyzer": "slower-than-comparable", "problem": known.measurements["problem"][0].as_py()}
        store.write_findings(pd.DataFrame([row | {"message": f"takes long in {run}"}]), run)
    assert one_problem.found_about(store, [known]) == ["run one: takes long in one", "run two: takes long in two"]
    [only] = one_problem.show(store, LINE, "two")
    assert only.measurements["run"].to_pylist() == ["two"]
    assert one_problem.found_about(store, [only], "two") == ["takes long in two"]
    [absent] = one_problem.show(store, LINE, "three")
    told = next(iter(one_problem.known_lines(store, [absent], "three")))
    assert str(told).endswith("run three has neither calls nor times of this matrix product or convolution")
