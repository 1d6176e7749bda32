"""PyTorch on an H200 read 247 files: today's predictions of those files still add up to what it did with them.

``benchmarks/gpu_tunableop.py`` made the record, with no disagreement in any single file; its files are made here again.
"""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from types import ModuleType

from analyzers.overrides import tunableop_reader
from tests.conftest import ROOT


def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_tunableop", ROOT / "benchmarks/gpu_tunableop.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_record_is_of_the_reader_as_it_is() -> None:
    record = json.loads((ROOT / "benchmarks/results/tunableop_predictions.json").read_text())
    assert record["disagreements"] == {}
    made = benchmark()
    running = record["validators"]
    head = "".join(f"Validator,{key},{value}\n" for key, value in running.items())
    valid = head + "".join(f"{row}\n" for row in (*made.OTHERS[:2], f"{made.KEY},Default,0.01", made.OTHERS[2]))
    files = {**made.edits(head, running["PT_VERSION"]), "a valid file": valid.encode(), **made.mutations(valid)}
    assert (len(files), made.MUTATIONS, made.SEED) == (record["files"], record["mutations"], record["seed"])
    counts: Counter[str] = Counter()
    for data in files.values():
        predicted = tunableop_reader.predict(data, running)
        counts["accepted" if predicted.accepted else "rejected"] += 1
        counts[tunableop_reader.lookup(predicted, made.OP, made.PARAMS, {"Default"}, (2, 11))] += 1
    assert counts == record["observed"]
