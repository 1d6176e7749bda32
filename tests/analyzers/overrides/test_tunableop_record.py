"""Tests that logparse accepts exactly the TunableOp files that PyTorch accepts.

The same files were given to PyTorch. The numbers of accepted files are compared.
"""

# PyTorch was run on 247 files on an H200, and the reader of PyTorch 2.15 on 4,094 files (benchmarks/gpu_tunableop.py
# and torch_reader.py). logparse judged every single file in the same way. The tests make the same files again.

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from types import ModuleType

import pytest

from tests.conftest import ROOT


def benchmark(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"benchmarks/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_record_is_of_the_reader_as_it_is() -> None:
    record = json.loads((ROOT / "benchmarks/results/tunableop_predictions.json").read_text())
    assert record["disagreements"] == {}
    made = benchmark("gpu_tunableop")
    running = record["validators"]
    head = "".join(f"Validator,{key},{value}\n" for key, value in running.items())
    valid = head + "".join(f"{row}\n" for row in (*made.OTHERS[:2], f"{made.KEY},Default,0.01", made.OTHERS[2]))
    files = {**made.edits(head, running["PT_VERSION"]), "a valid file": valid.encode(), **made.mutations(valid)}
    assert (len(files), made.MUTATIONS, made.SEED) == (record["files"], record["mutations"], record["seed"])
    counts: Counter[str] = Counter()
    for data in files.values():
        accepted, rows = made.predict(data, running)
        counts["accepted" if accepted else "rejected"] += 1
        counts[made.predicted_call(rows, (2, 11))] += 1
    assert counts == record["observed"]


def test_the_record_of_torch_2_15_is_of_the_reader_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    record = json.loads((ROOT / "benchmarks/results/tunableop_reader_torch2.15.json").read_text())
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    made = benchmark("torch_reader")
    assert (record["disagreements"], record["seeds"]) == ({}, list(made.SEEDS))
    counts: Counter[str] = Counter()
    for more in ({}, made.ROCM):
        running = {"PT_VERSION": record["torch"], **more}
        for data in made.files(running).values():
            accepted, rows = made.made.predict(data, running)
            counts["files"] += 1
            counts["accepted" if accepted else "rejected"] += 1
            counts["rows"] += len(rows)
    assert counts == {name: record[name] for name in counts}
