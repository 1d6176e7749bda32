"""The passes of layers, as one SQL text makes them of DataFrames."""

from __future__ import annotations

import pandas as pd

from analyzers.times.passes import passes_of

KEY = "3-168-{0}-1x1-256-168-{0}-2-0x0-1x1-1x1-0-NCHW-FP32-W"
"""Of 216 and 296 for the width DuckDB's ``hash`` is the same; the find-db of gfx90a has both."""


def test_problems_whose_texts_have_one_hash_are_two() -> None:
    texts = [KEY.format(width) for width in (216, 296)]
    measured = pd.DataFrame(
        {"problem": texts, "time_us": [300.0, 200.0], "solution": ["miopen:A", "miopen:NaiveB"]}
    ).assign(source_id="db", kind="conv", origin="find-db", status="ok")
    convs = pd.DataFrame({"problem": texts, "layer": texts, "direction": "W", "flops": 1})
    made = passes_of(measured, convs).sort_values("problem")
    assert made["problem"].tolist() == texts
    assert made["best_us"].tolist() == [300.0, 200.0]
    assert made["naive"].tolist() == [False, True]
    assert made["all_us"].tolist() == [500.0, 500.0]
