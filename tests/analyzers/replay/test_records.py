"""Tests of the programs in ``benchmarks/`` that record measurements on GPUs: what they measure and count.

No test needs a GPU.
"""

from __future__ import annotations

import gzip
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from analyzers.replay.replay import racing_s
from logparse.model import problem_from_text
from tests.conftest import CORPUS, SAMPLES, needs_corpus

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
FIND_DB = CORPUS / "miopen" / "gfx942130.HIP.fdb.txt.bz2"


@pytest.fixture
def benchmark_module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


@pytest.mark.parametrize("log", ["profile_4242.log", "trace_4242.log", "hipblaslt_rank0_4242.log"])
def test_gemms_of_a_log_whatever_its_lines(benchmark_module: Any, log: str) -> None:
    found = benchmark_module("inputs").gemms_of(str(SAMPLES / "hipblaslt" / log))
    assert len(found.problems) == 17
    assert sum(found.calls.values()) == (17 if "trace" in log else 122)
    assert [found.calls[x] for x in found.problems] == sorted(found.calls.values(), reverse=True)
    assert bool(found.workspaces) == ("trace" in log)


@needs_corpus
def test_what_a_find_db_shows_as_slow_is_what_the_analyzer_flags(benchmark_module: Any) -> None:
    inputs = benchmark_module("inputs")
    slow = inputs.slow_wgrads(str(FIND_DB))
    assert len(slow) == 21, "of 299 flagged those above 2 GFLOP"
    assert slow[0].label == "W 64×512×56×56 k512 3×3 s2 g32 FP16 NCHW"
    sample = inputs.sampled_wgrads(str(FIND_DB), 64, 0)
    assert len(set(sample)) == 64
    assert all(x.direction == "W" and x.flops > 2e9 for x in (*slow, *sample))
    assert {x.direction for x in inputs.sampled_wgrads(str(FIND_DB), 8, 0, "F")} == {"F"}


@needs_corpus
def test_every_measured_slow_problem_is_confirmed_or_listed(benchmark_module: Any) -> None:
    pytest.importorskip("torch")
    inputs, records = benchmark_module("inputs"), benchmark_module("gpu_replay")
    yes, no, same, cut, unmeasured = (x.text for x in inputs.slow_wgrads(str(FIND_DB))[:5])
    ratio = {"low": 1.0, "high": 2.0, "winner": "cudnn:layout=NHWC,stored,eng65", "speedup": 1.5}
    record = {
        "results": [
            *({"problem": x, "pick": "Default", "best": "cudnn:eng1", "ended": "one left"} for x in (yes, no, cut)),
            {"problem": same, "pick": "Default", "best": "Default", "ended": "roofline"},
            {"problem": unmeasured, "pick": None, "best": None, "ended": "out of memory"},
        ],
        "confirmations": [{"problem": yes, "confirmed": True, **ratio}, {"problem": no, "confirmed": False, **ratio}],
    }
    said = records._said_slow([problem_from_text(x) for x in (yes, no, same, cut, unmeasured)], record)
    assert (said["in_find_db"], said["measured"], said["confirmed_by_stored_layout"]) == (5, 4, 1)
    assert [x["label"] for x in said["confirmed"]] == [problem_from_text(yes).label]
    assert [x.get("why") for x in said["not_confirmed"]] == [None, "roofline", "no time to confirm it"]
    lines = records._said_slow_lines(said)
    assert "4 measured here; 1 confirmed, 3 not confirmed" in lines[0]
    assert len(lines) == 5


def test_the_models_are_the_published_ones(benchmark_module: Any) -> None:
    pytest.importorskip("torch")
    models = benchmark_module("models")
    counts = {
        make: sum(x.numel() for x in getattr(models, make)().parameters()) for make in ("resnet50", "regnet_y_3_2gf")
    }
    assert counts == {"resnet50": 25_557_032, "regnet_y_3_2gf": 19_436_338}


@pytest.mark.parametrize("kind", ["fprops", "dgrads", "wgrads", "fprops-models", "dgrads-models", "wgrads-models"])
def test_the_time_left_of_a_replay_that_begins_with_the_costliest(kind: str) -> None:
    path = sorted((BENCHMARKS / "results").glob(f"{kind}-NVIDIA-*.json.gz"))[-1]
    results = json.loads(gzip.decompress(path.read_bytes()))["results"]
    times = [(next(y["time_us"] for y in x["rows"] if y["solution"] == x["pick"]), x["seconds"]) for x in results]
    took = [seconds for _, seconds in sorted(times, reverse=True)]
    reached = [sum(took[:i]) for i in range(len(took) + 1)]
    for share in (0.25, 0.5, 0.75):
        done = int(share * len(took))
        assert 0.7 < racing_s(reached[: done + 1], len(took) - done) / (reached[-1] - reached[done]) < 2.4
    assert racing_s([0.0, 3.0], 2) == 6.0
