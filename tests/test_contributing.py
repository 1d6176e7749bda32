"""Tests that the examples of code in CONTRIBUTING.md work exactly as they are printed there."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analyzers.evidence.tables import Settings
from logparse.libraries.kinds.format import Head
from logparse.model import Gain, GemmProblem, Measurement, Reject
from tests.analyzers.build import call, tables, work
from tests.analyzers.example import gemm
from tests.libraries.reading import Memory

ROOT = Path(__file__).parents[1]
EXAMPLES = re.findall(r"^```python\n(\"\"\".*?)^```$", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.M | re.S)


def example(word: str) -> dict[str, Any]:
    """Run the example in CONTRIBUTING.md whose first line contains ``word``. Returns the names that it defines."""
    [text] = [x for x in EXAMPLES if word in x.partition("\n")[0]]
    names: dict[str, Any] = {"__name__": "example"}
    exec(text, names)
    return names


def test_the_example_of_a_log_format_reads_a_table() -> None:
    """The example of a new log format in CONTRIBUTING.md reads a table of times.

    A good row gives a time. A row with an unknown data type is rejected with the reason.
    """
    data = b"kernel,m,n,k,dtype,us\nsplit_k_4,4096,512,1024,bf16,55.9\nsplit_k_4,4096,512,1024,int4,1\n"
    format = example("kernelbench")["FORMAT"]
    assert format.recognise(Head("times.csv", data))
    _, good, bad = (list(outcome.records) for outcome in format.read(Memory(data)))
    assert [(type(x), x.time_us, x.problem.m) for x in good if isinstance(x, Measurement)] == [(Measurement, 55.9, 512)]
    assert [x.reason for x in bad if isinstance(x, Reject)] == ["dtype is 'int4', not one of bf16, fp16, fp32"]


@pytest.mark.parametrize(("slow_us", "count"), [(120.0, 1), (114.0, 0)])
def test_the_example_of_a_finding_finds_the_slow_leading_dimension(slow_us: float, count: int) -> None:
    fast = replace(gemm(1), lda=4160)
    times: list[tuple[GemmProblem, float]] = [(fast, 100.0), (replace(fast, lda=4097), slow_us)]
    row = {"source_id": "trace", "run": "r", "op": "aten::mm", "kernel": "Cijk_", "calls": 4}
    traced = tables(
        kernels=[row | {"problem": x.text, "total_us": 4 * us, "min_us": us, "max_us": us} for x, us in times],
        calls=[call(x.text, count=4, source_id="trace", category="profiler") for x, _ in times],
        workload=[work(x.text, 4) for x, _ in times],
    )
    found = example("leading dimensions")["find"](traced, Settings())
    assert [(x.per_call, x.calls) for x in found] == [(Gain(120.0, 100.0), 4)] * count
