"""Tests that the examples of code in CONTRIBUTING.md work exactly as they are printed there."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analyzers.evidence.tables import Settings
from logparse.errors import EmissionError
from logparse.libraries.kinds.format import Head
from logparse.model import Gain, Measurement, Override, Reject, Solution
from tests.analyzers.build import tables, trace_rows
from tests.analyzers.example import gemm
from tests.libraries.reading import Memory

ROOT = Path(__file__).parents[1]
EXAMPLES = re.findall(r"^```python\n(\"\"\".*?)^```$", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.M | re.S)


CHOSEN = (("slow", 9.0), ('fast "{', 5.0))


def example(word: str) -> dict[str, Any]:
    """Run the example in CONTRIBUTING.md whose first line contains ``word``. Returns the names that it defines."""
    [text] = [x for x in EXAMPLES if word in x.partition("\n")[0]]
    names: dict[str, Any] = {"__name__": __name__}
    exec(text, names)
    return names


def test_the_example_of_a_log_format_reads_a_table() -> None:
    """The example of a new log format in CONTRIBUTING.md reads a table of times.

    A good row gives a time. A row with an unknown data type, or with a time of 0, is rejected with the reason.
    """
    rows = ("bf16,55.9", "int4,1", "bf16,0", "bf16,nan")
    data = "".join(["kernel,m,n,k,dtype,us\n", *(f"split_k_4,4096,512,1024,{x}\n" for x in rows)]).encode()
    format = example("Times of kernelbench")["FORMAT"]
    assert format.recognise(Head("times.csv", data))
    _, good, *bad = (list(outcome.records) for outcome in format.read(Memory(data)))
    assert [(type(x), x.time_us, x.problem.m) for x in good if isinstance(x, Measurement)] == [(Measurement, 55.9, 512)]
    assert [x.reason for [x] in bad if isinstance(x, Reject)] == [
        "dtype is 'int4', not one of bf16, fp16, fp32",
        "us is '0', which is no time",
        "us is 'nan', which is no time",
    ]


def test_the_example_of_an_override_format_reads_json() -> None:
    """The example of an override format in CONTRIBUTING.md notes each member of a JSON file that has no effect.

    Its rows can be cut out of the file, and merged.
    """
    lines = [
        '"4096,512,1024,bf16_r": {"kernel": "a", "us": 55.9},',
        '"4096,512,1024,bf16_r": {"kernel": "b", "us": 1, "us": 50.9},',
        '"what": {"kernel": "a"},',
        '"64,512,1024,f16_r": {"us": 3}',
    ]
    data = "\n".join(["{", *lines, "}"]).encode()
    format = example("kernelbench's choices")["OVERRIDE_FORMAT"]
    assert format.recognise(Head("choices.json", data))
    file = format.inspect("choices.json", data, {})
    assert [(x.line, x.rule) for x in file.notes] == [(2, "duplicate"), (3, "repeated"), (4, "key"), (5, "kernel")]
    [used] = [x for x in file.rows if x.live]
    assert (used.line, used.time_us, used.key) == (3, 50.9, format.key(used.problem, {}))
    rest = format.cut(data, file.rows, lambda line, text: line == used.line)
    assert [x.text for x in format.inspect("choices.json", rest, {}).rows] == [used.text]
    offers = [x for x in file.reading.offers(format.merging.work) if x.text == used.text]
    [made] = format.merging.write(offers, "choices.json", {}, 1)
    assert [x.text for x in format.inspect(made.name, made.data, {}).rows] == [used.text]
    assert format.inspect("choices.json", b"[]", {}).accepted is False
    kernels = [
        Override(problem=used.problem, solution=Solution("kernelbench", x), target={}, time_us=us) for x, us in CHOSEN
    ]
    assert all(map(format.writer.accepts, kernels))
    [made] = format.writer.write(kernels, {})
    [row] = format.inspect(made.name, made.data, {}).rows
    assert (row.problem, row.solution, row.time_us, row.live) == (used.problem, kernels[1].solution, 5.0, True)
    with pytest.raises(EmissionError, match="no key"):
        format.writer.write([replace(kernels[0], problem=replace(used.problem, batch_count=2))], {})


@pytest.mark.parametrize(("slow_us", "count"), [(120.0, 1), (119.0, 0)])
def test_the_example_of_a_finding_finds_the_slow_leading_dimension(slow_us: float, count: int) -> None:
    fast, slow = replace(gemm(1), lda=4160), replace(gemm(1), lda=4097)
    find = example("leading dimensions")["find"]
    found = find(tables(**trace_rows((fast, 100.0), (slow, slow_us))), Settings())
    assert [(x.problem, x.per_call, x.calls) for x in found] == [(slow.normal, Gain(120.0, 100.0), 4)] * count
    unknown = replace(slow, lda=None)
    assert not find(tables(**trace_rows((fast, 100.0), (unknown, 900.0))), Settings()), "it does not guess"
    one, two = trace_rows((fast, 100.0)), trace_rows((slow, 900.0), source="two")
    assert not find(tables(**{name: one[name] + two[name] for name in one}), Settings()), "two GPUs may differ"
