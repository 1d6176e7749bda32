"""Verbs that count problems agree with each other, on one store."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.analyzer import Settings
from analyzers.overrides.export import of_store
from analyzers.recommend.ranking import recommend
from analyzers.times.runs import tables_of
from logparse.ingest import ingest
from logparse.lookup import show, top
from logparse.store import Store
from tests.conftest import SAMPLES

TYPED = """\
./bin/MIOpenDriver conv -n 32 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 -F 1 -t 1
MIOpenDriver convfp16 -n 32 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 -F 2
convbfp16 -n 16 -c 96 -H 48 -W 32 -k 96 -y 3 -x 1 -p 1 -q 0 -m conv -g 1 -F 4 -t 1 --in_layout NHWC
convbfp16 -n 16 -c 96 -H 48 -W 32 -k 96 -y 3 -x 1 -p 1 -q 0 -m conv -g 1 -F 4 -t 1 --in_layout NHWC
"""
BENCH = (
    "hipblaslt-bench -m {m} -n 64 -k 32 --transA N --transB N --a_type f16_r --b_type f16_r --c_type f16_r "
    "--d_type f16_r --compute_type f32_r -i 10\n"
)
CASES = {
    "typed convolutions": (TYPED, 3),
    "typed GEMMs": (BENCH.format(m=64) + BENCH.format(m=128), 2),
    "tuning file": ("hipblaslt/tuning_7.0.txt", None),
    "table": ("tables/aiter_bf16_tuned_gemm.csv", None),
    "log of commands": ("miopen/miopen_cmd_4242.log", None),
}


@pytest.mark.parametrize("case", CASES)
def test_problems_are_counted_alike(case: str, store: Store, tmp_path: Path) -> None:
    text, wanted = CASES[case]
    path = tmp_path / "list.txt"
    if wanted is None:
        path = SAMPLES / text
    else:
        path.write_text(text, encoding="utf-8")
    [read] = ingest([str(path)], store)
    shown = top(store, n=10_000)
    assert read.problems == len(shown) == len(set(shown["text"]))
    assert wanted in (None, read.problems)
    for label, known in zip(shown["problem"], shown["text"], strict=True):
        assert known in {one.problem.text for one in show(store, label)}
    if shown["calls"].notna().all():
        assert of_store(store, "csv").count == read.problems
        assert len(recommend(tables_of(store), Settings()).calls) == read.problems
