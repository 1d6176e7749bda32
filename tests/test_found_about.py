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
