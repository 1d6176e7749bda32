"""Tests of ``benchmarks/in_job.py``, which compares gains in a real job with gains predicted from single calls.

The tests check what the benchmark counts, and its predictions for simulated jobs.
"""

from __future__ import annotations

import gzip
import importlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analyzers.evidence.confirmations import BETWEEN_PROCESSES, Pairs, judge_all
from tests.analyzers.example import B, F, W, gemm
from tests.conftest import sized

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("in_job")


def simulate_pairs(true: float, us: float, draw: np.random.Generator, processes: int = 4, blocks: int = 12) -> Pairs:
    held = Pairs((), ())
    for _ in range(processes):
        log = math.log(true) + BETWEEN_PROCESSES * draw.standard_normal() + 0.004 * draw.standard_normal(blocks)
        held = held.joined(Pairs(tuple(us * math.exp(x) for x in log), (us,) * blocks))
    return held


def test_the_prediction_covers_a_job_that_differs_as_jobs_do(benchmark: Any) -> None:
    draw, rounds = np.random.default_rng(1), sized(300, 3000)
    judged = judge_all({i: simulate_pairs(1.3, 50.0, draw) for i in range(rounds)})[0]
    inside = narrow = 0
    for confirmation in judged.values():
        value = 1.3 * math.exp(benchmark.IN_JOB * draw.standard_normal())
        predicted, further = benchmark.in_job(confirmation), benchmark.prediction(confirmation)
        inside += predicted.low <= value <= predicted.high
        narrow += further.low <= value <= further.high
    assert inside / rounds > 0.92
    assert narrow / rounds < 0.4, "the prediction of a further process alone does not"


def test_the_recorded_deviation_covers_models_that_it_was_not_fitted_on(benchmark: Any) -> None:
    record = json.loads(gzip.decompress((BENCHMARKS / "results/in-job-NVIDIA-H200-2026-11-22.json.gz").read_bytes()))
    off = [(x["model"], math.log(x["job_ratio"] / x["replay_ratio"])) for x in record["pairs"] if x["changed"]]
    assert (len(off), len({model for model, _ in off})) == (129, 5)
    assert math.sqrt(sum(x * x for _, x in off) / len(off)) == pytest.approx(benchmark.IN_JOB, abs=0.0005)
    covered = 0
    for left in {model for model, _ in off}:
        others = [x for model, x in off if model != left]
        deviation = math.sqrt(sum(x * x for x in others) / len(others))
        covered += sum(abs(x) <= 1.96 * deviation for model, x in off if model == left)
    assert covered / len(off) >= 0.85
    same = [math.log(x["job_ratio"]) for x in record["pairs"] if not x["changed"]]
    assert math.sqrt(sum(x * x for x in same) / len(same)) < 0.005, "the same kernel is equally fast"


def row(model: str, job: float, replay: float, *, inside: bool, changed: bool = True) -> dict[str, Any]:
    return {"model": model, "job_ratio": job, "replay_ratio": replay, "inside": inside, "changed": changed}


def test_what_is_counted(benchmark: Any) -> None:
    rows = [row(f"m{i % 4}", 1.1, 1.1, inside=i % 10 > 0) for i in range(60)]
    made = benchmark.summary(rows)
    assert (made["findings"]["count"], made["findings"]["models"], made["findings"]["inside"]) == (60, 4, 0.9)
    assert benchmark.missed(made) == []
    same = benchmark.summary([*rows, *(row("m9", 1.0, 1.0, inside=False, changed=False) for _ in range(60))])
    assert (same["pairs"]["count"], same["changed"]["count"]) == (120, 60)
    slight = benchmark.summary([*rows, *(row("m9", 1.0, 1.01, inside=False) for _ in range(60))])
    assert (slight["changed"]["inside"], slight["findings"]["inside"]) == (0.45, 0.9)
    assert benchmark.missed(slight) == ["changed: 45.0% of 120 pairs of 5 models are inside"]
    assert len(benchmark.missed(benchmark.summary([]))) == 2
    assert len(benchmark.missed(benchmark.summary(rows[::4]))) == 2, "one model, and too few"


def test_a_call_is_held_against_itself_in_another_layout(benchmark: Any) -> None:
    calls = benchmark.Calls(
        times={
            "default": {F.text: [9.0, 11.0], W.text: [30.0], gemm().text: [5.0]},
            "x": {F.text: [5.0], B.text: [1.0]},
        },
        kernels={"default": {F.text: "a", W.text: "c", gemm().text: "d"}, "x": {F.text: "b", B.text: "e"}},
        layouts={F.text: "F by default", W.text: W.text, gemm().text: gemm().text},
    )
    calls.layouts[F.text] = F.text
    [pair] = benchmark.pairs_of("m", [benchmark.Setting("x", "conv", "torch:x")], calls)
    assert (pair.problem, pair.ratio, pair.changed) == (F.text, 2.0, True)
    others = [benchmark.Pair(m, p, "s", (1.0,), (1.0,), ("", "")) for m, p in (("a", "1"), ("a", "2"), ("b", "3"))]
    assert [key[0] for key in benchmark.in_turns(others)] == ["1", "3", "2"]


def test_it_runs_on_a_cpu(benchmark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--device", "cpu", "--smoke", "--models", "gpt2", "--pairs", "3", "--processes", "1", "--blocks", "2"]
    assert benchmark.main([*words, "--results", str(tmp_path)]) == 0
    [path] = tmp_path.iterdir()
    record = json.loads(gzip.decompress(path.read_bytes()))
    assert (record["smoke"], record["failed"], len(record["pairs"])) == (True, {}, 3)
    for pair in record["pairs"]:
        assert pair["predicted"][0] < pair["replay_ratio"] < pair["predicted"][1]
        assert len(pair["log_ratios_ppm"]["cold"][0]) == 2
        assert min(*pair["job_before_us"], *pair["job_after_us"]) > 0


def test_resnext_is_the_published_one(benchmark: Any) -> None:
    made = importlib.import_module("models").resnext50()
    assert sum(x.numel() for x in made.parameters()) == 25_028_904
