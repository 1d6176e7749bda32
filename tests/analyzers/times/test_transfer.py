"""Times of one device as those of another: what data sheets state, and what planted pairs correct."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analyzers.measure.replay import Options, planned
from analyzers.times.roofline import roofline_us
from analyzers.times.transfer import transferred
from logparse.ingest import record
from logparse.model import Call, Fact, GemmProblem, Measurement, Solution
from logparse.store import open_store
from tests.analyzers.times.test_predictions import ALL, product

MI210, MI300X = {"arch": "gfx90a", "cu_count": "104"}, {"arch": "gfx942", "cu_count": "304"}
TIMES = pd.Series({x.text: 4.0 + (x.flops or 0) / 1e7 for x in ALL})
NONE = pd.DataFrame({"source_us": [], "target_us": []})


def test_nothing_measured_on_both_is_the_middle_of_no_gain_and_the_rooflines() -> None:
    made = transferred(TIMES, NONE, MI210, MI300X)
    for problem in ALL:
        before, after = roofline_us(problem, MI210), roofline_us(problem, MI300X)
        assert before
        assert after
        assert made[problem.text] == pytest.approx(TIMES[problem.text] * math.sqrt(after / before))
    back = transferred(made, NONE, MI300X, MI210)
    assert back.to_dict() == pytest.approx(TIMES.to_dict())


def test_a_device_without_data_sheet_changes_nothing() -> None:
    assert transferred(TIMES, NONE, {"arch": "gfx906"}, MI300X).to_dict() == pytest.approx(TIMES.to_dict())


def test_problems_measured_on_both_devices_correct_it() -> None:
    """The other device: twice as fast for 10 µs, and the more so the longer a problem takes; one pair is far off."""
    true = 0.5 * TIMES * (TIMES / 10) ** -0.3
    known = TIMES.index[::3]
    both = pd.DataFrame({"source_us": TIMES[known], "target_us": true[known]})
    both.iloc[0, 1] *= 20
    left = TIMES.drop(known)
    made = transferred(left, both, MI210, MI300X)
    off, before = (np.exp(np.abs(np.log(x / true[left.index])).median()) for x in (made, left))
    assert off < 1.1
    assert before > 1.5


def test_one_pair_moves_less_than_it_deviates() -> None:
    one = TIMES.index[:1]
    plain = transferred(TIMES, NONE, MI210, MI300X)
    both = pd.DataFrame({"source_us": TIMES[one], "target_us": plain[one] / 2})
    share = np.log(plain / transferred(TIMES, both, MI210, MI300X)) / math.log(2)
    assert share.between(0.1, 0.9).all()


def test_a_problem_of_unknown_size_is_left_out() -> None:
    unknown = replace(product(64, 64), m=None)
    assert transferred(pd.Series({unknown.text: 5.0}), NONE, MI210, MI300X).empty


@pytest.mark.parametrize(("arch", "basis"), [("gfx90a", "predicted"), ("gfx942", "measured"), (None, "measured")])
def test_another_devices_times_are_no_measurement_of_a_plan(tmp_path: Path, arch: str | None, basis: str) -> None:
    """Where the log states its device; a file that states none may be of the same."""
    store, way = open_store(tmp_path, create=True), Solution("torch", "blas=other")
    times = [Measurement(problem=x, solution=way, origin="replay", time_us=TIMES[x.text]) for x in ALL]
    record(store, [*times, *facts(arch)], run="there", name="there", format="replay")
    called = ALL[7]
    calls = [Call(problem=called, category="trace", count=10)]
    record(store, [*calls, *facts("gfx942")], run="job", name="log", format="test")
    [item] = planned(store, Options(run="job"))
    assert item.basis == basis
    assert (item.time_us == TIMES[called.text]) == (basis == "measured")
    if basis == "predicted":
        assert item.time_us < TIMES[called.text]


def facts(arch: str | None) -> list[Fact]:
    cus = {"gfx90a": "104", "gfx942": "304"}
    return [Fact("arch", arch), Fact("cu_count", cus[arch])] if arch else []


def test_a_problem_measured_on_both_devices_is_measured(tmp_path: Path) -> None:
    store, way = open_store(tmp_path, create=True), Solution("torch", "blas=other")
    called: GemmProblem = ALL[7]
    for arch, factor in (("gfx90a", 1.0), ("gfx942", 0.5)):
        rows = [Measurement(problem=called, solution=way, origin="replay", time_us=8.0 * factor)]
        record(store, [*rows, *facts(arch)], run=arch, name=arch, format="replay")
    calls = [Call(problem=called, category="trace", count=10)]
    record(store, [*calls, *facts("gfx942")], run="job", name="log", format="test")
    [item] = planned(store, Options(run="job"))
    assert (item.basis, item.time_us) == ("measured", 4.0)
