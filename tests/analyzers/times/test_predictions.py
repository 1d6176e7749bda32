"""Predictions from planted measurements, and the order of work that follows from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analyzers.measure.plan import Item
from analyzers.measure.render import plan_rows
from analyzers.measure.replay import Options, planned
from analyzers.measure.tune_script import script
from analyzers.times.predictions import LEAST, Prediction, Predictor
from logparse.ingest import record
from logparse.model import DEFAULT, Call, ConvProblem, GemmProblem, Measurement, Solution
from logparse.store import open_store
from tests.analyzers.example import W
from tests.analyzers.measure.problems import gemm


def product(m: int, n: int, trans_a: str = "N") -> GemmProblem:
    return replace(gemm(), trans_a=trans_a, m=m, n=n, k=256, lda=m, ldb=256, ldc=None, ldd=m)


SIZES = [(m, n) for m in (64, 128, 256, 512, 1024) for n in (64, 96, 192, 384, 768)]
"""Not those that are predicted."""


def planted_us(problem: GemmProblem) -> float:
    return 4.0 + (problem.flops or 0) / 1e7


def planted_regret(problem: GemmProblem) -> float:
    return 0.4 if problem.trans_a == "T" else 0.02


def measured(*problems: GemmProblem) -> pd.DataFrame:
    return pd.DataFrame(
        {"time_us": [planted_us(x) for x in problems], "regret": [planted_regret(x) for x in problems]},
        index=[x.text for x in problems],
    )


ALL = [product(m, n, t) for m, n in SIZES for t in "NT"]


@pytest.mark.parametrize("trans", "NT")
def test_time_and_regret_of_sizes_between_measured_ones(trans: str) -> None:
    asked = [product(m, n, trans) for m in (90, 180, 700) for n in (130, 300)]
    made = Predictor(measured(*ALL)).predict(asked)
    found = [x for x in made if x is not None]
    assert len(found) == len(asked)
    off = [abs(math.log(x.time_us / planted_us(p))) for x, p in zip(found, asked, strict=True)]
    assert np.exp(np.median(off)) < 1.15
    for x, p in zip(found, asked, strict=True):
        assert x.regret == pytest.approx(planted_regret(p), abs=0.05)
        assert x.best_us == pytest.approx(x.time_us * (1 - (x.regret or 0)))
        assert ((x.risk or 0) > 0.5) == (trans == "T")


def test_the_order_of_what_was_measured_does_not_matter() -> None:
    rows, asked = measured(*ALL), [product(90, 130), product(700, 300, "T")]
    assert Predictor(rows).predict(asked) == Predictor(rows.sample(frac=1, random_state=1)).predict(asked)


def test_nothing_is_predicted_from_too_little_or_another_operation() -> None:
    few = measured(*ALL[: LEAST - 1])
    assert Predictor(few).predict([product(90, 130)]) == [None]
    unknown = replace(product(90, 130), m=None)
    assert Predictor(measured(*ALL)).predict([unknown, product(90, 130)])[0] is None
    assert Predictor(measured()).predict([product(90, 130)]) == [None]


def test_without_a_known_regret_only_the_time_is_predicted() -> None:
    [made] = Predictor(measured(*ALL).assign(regret=np.nan)).predict([product(90, 130)])
    assert made is not None
    assert (made.regret, made.risk) == (None, None)
    assert made.best_us == made.time_us


def layers(direction: str, channels: Sequence[int]) -> list[ConvProblem]:
    size = {"n": 32, "h": 28, "w": 28, "out_h": 28, "out_w": 28, "groups": 1}
    return [replace(W, direction=direction, c=x, k=y, **size) for x in channels for y in channels]


def regrets(problems: Sequence[ConvProblem], regret: float) -> pd.DataFrame:
    return pd.DataFrame({"time_us": 20.0, "regret": regret}, index=[x.text for x in problems])


def test_a_regret_is_learned_from_another_direction_too() -> None:
    """Of backward weights only small layers are known; forward, large ones lose much."""
    own, others = regrets(layers("W", (16, 24, 32, 48)), 0.1), regrets(layers("F", (512, 640, 768, 1024)), 0.7)
    asked = layers("W", (900,))
    [alone], [both] = (Predictor(x).predict(asked) for x in (own, pd.concat([own, others])))
    assert alone is not None
    assert both is not None
    assert alone.regret == pytest.approx(0.1)
    assert 0.3 < (both.regret or 0) < 0.8
    assert both.time_us == alone.time_us, "times are learned from the same direction"


def test_nothing_but_another_direction_s_regrets_predicts_none() -> None:
    """Its own may be of a kind that the other direction does not have."""
    few = regrets(layers("W", (16, 24, 32, 48)), np.nan)
    few.iloc[: LEAST - 1, few.columns.get_loc("regret")] = 0.1
    others = regrets(layers("F", (512, 640, 768, 1024)), 0.7)
    [made] = Predictor(pd.concat([few, others])).predict(layers("W", (900,)))
    assert made is not None
    assert (made.regret, made.risk) == (None, None)


def test_an_unmeasured_problem_is_ordered_by_its_prediction_and_shown_as_one(tmp_path: Path) -> None:
    """Two problems of one size and count: the one whose like lose 40 % comes first; a sum of other types is assumed."""
    store = open_store(tmp_path, create=True)
    times = [(x, planted_us(x), s, 1 - planted_regret(x) * share) for x in ALL for s, share in WAYS.items()]
    rows = [Measurement(problem=x, solution=s, origin="replay", time_us=us * f) for x, us, s, f in times]
    record(store, rows, run="replay", name="replay", format="replay")
    asked = [product(90, 130, "N"), product(90, 130, "T")]
    record(store, [Call(problem=x, category="trace", count=10) for x in asked], run="job", name="log", format="test")
    plan = planned(store, Options(run="job"))
    assert [(x.problem, x.basis) for x in plan] == [(asked[1].normal, "predicted"), (asked[0].normal, "predicted")]
    assert plan[0].risk is not None
    assert plan[0].risk > 0.5
    assert plan_rows(plan)["basis"].tolist() == ["predicted"] * 2
    text = script(plan)
    assert "not measured on this device; predicted:" in text
    assert "more than 10% too slow with a probability of 95%" in text, "never sure"
    assert "to save" not in text, "a prediction is no saving"


WAYS = {DEFAULT: 0.0, Solution("torch", "blas=other"): 1.0}


def test_what_was_measured_is_no_prediction() -> None:
    item = Item(problem=product(64, 64), calls=2, time_us=9.0, regret=0.5, solutions=2, cost_s=1.0, basis="measured")
    assert "about 9 µs per run to save" in script([item])
    assert "assumed: 9 µs per call" in script([replace(item, basis="assumed")])
    assert Prediction(10.0, 0.2).best_us == 8.0
