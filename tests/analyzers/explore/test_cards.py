"""Tests with random data that all parts of the web page state the same about a matrix product or a proposed change."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.evidence.tables import Settings
from analyzers.explore import queries
from analyzers.explore.load.actions import cards
from analyzers.explore.load.analysis import Analysis, analyse
from analyzers.explore.page.components import Leads, _card, detail
from analyzers.explore.page.paste import advice
from analyzers.explore.point_table import build
from analyzers.explore.selection import Selection
from analyzers.recommend.ranking import Recommendation, recommend
from analyzers.recommend.verdict import verdict
from logparse.ingest import record
from logparse.model import (
    Call,
    ConvProblem,
    Evidence,
    Fact,
    Finding,
    Gain,
    Kernel,
    Measurement,
    Problem,
    Status,
    solution_from_text,
)
from logparse.store import Store, open_store
from tests.analyzers.build import tables
from tests.analyzers.example import B, F, W
from tests.conftest import sized

PROBLEMS = [replace(x, k=64 * k) for x in (F, B, W) for k in range(1, 9)]
SOLUTIONS = ("Default", "miopen:A", "miopen:B")


def make_time(problem: Problem, solution: str, us: float, origin: str) -> Measurement:
    return Measurement(problem=problem, solution=solution_from_text(solution), origin=origin, time_us=us)


def make_traced_calls(problem: Problem, us: float, calls: int) -> list[object]:
    times = {"total_us": us * calls, "min_us": us, "max_us": us}
    kernel = Kernel(op="aten::convolution", problem=problem, kernel="k", calls=calls, device=0, **times)
    return [Call(problem=problem, category="profiler", count=calls), kernel]


def some(draw: random.Random, problems: Sequence[ConvProblem]) -> list[object]:
    """Return made-up times of convolutions, each for up to three random kernels.

    The kernels of one convolution differ in time by up to some tens of percent.
    """
    out: list[object] = []
    for problem in problems:
        about, origin = 10 ** draw.uniform(1, 3), draw.choice(("table", "replay-confirm", "find-db"))
        names = draw.sample(SOLUTIONS, draw.randint(0, 3))
        out += [make_time(problem, name, about * draw.uniform(0.7, 1.3), origin) for name in names]
    return out


def store_rows(store: Store, name: str, run: str, rows: Sequence[Any], device: str) -> None:
    facts = [Fact("arch", device), Fact("cu_count", "304")] if device else []
    record(store, [*rows, *facts], run=run, name=name, format="table")


def of_seed(seed: int, folder: Path, devices: Sequence[str]) -> Store:
    """Make a store (Parquet folder) with two runs of random traces, logs and kernel times.

    The times were measured with warm and with cold caches. Each file states one of the GPUs or none.
    """
    draw, store = random.Random(seed), open_store(folder / "store", create=True)
    for run in ("earlier", "run"):
        for device in devices:
            store_rows(store, f"{device}-times.csv", run, some(draw, draw.sample(PROBLEMS, 16)), device)
    rows = [
        row
        for x in draw.sample(PROBLEMS, 8)
        for row in make_traced_calls(x, 10 ** draw.uniform(1, 3), draw.randint(1, 9))
    ]
    store_rows(store, "trace.json", "run", rows, draw.choice(devices))
    calls = [Call(problem=x, category="bench", count=draw.randint(1, 99), pid=7) for x in draw.sample(PROBLEMS, 12)]
    store_rows(store, "log", "run", calls, draw.choice((*devices, "")))
    return store


def rows_of(store: Store, made: Analysis) -> list[dict[Any, Any]]:
    with store.connect() as con:
        build(con, made.run, made.compared, made.found)
        return con.execute("from points").df().to_dict("records")


def texts(component: Any) -> str:
    """Return all text of an element of the HTML page, including its child elements."""
    if isinstance(component, list | tuple):
        return " ".join(texts(x) for x in component)
    children = getattr(component, "children", component)
    return str(children) if isinstance(children, str) else texts(children) if children is not None else ""


@pytest.mark.parametrize("devices", [("gfx942",), ("gfx942", "gfx90a", "gfx1030")], ids=["one", "three"])
@pytest.mark.parametrize("seed", range(sized(1, 40)))
def test_a_problem_states_one_now_one_best_and_one_saving(tmp_path: Path, seed: int, devices: Sequence[str]) -> None:
    store = of_seed(seed, tmp_path, devices)
    made = analyse(store, "run")
    rows = rows_of(store, made)
    assert any(row["saving_us"] > 0 for row in rows), "or nothing is tested"
    for row in rows:
        now, then, loss, saving = (row[x] for x in ("time_us", "then_us", "loss_us", "saving_us"))
        assert not then > now * (1 + 1e-9), row
        assert math.isnan(loss) == math.isnan(saving), row
        if saving > 0:
            assert now > 0, row
        if pd.notna(row["pick_us"]):
            calls = 1.0 if math.isnan(row["calls"]) else row["calls"]
            assert saving == pytest.approx(calls * (now - then), abs=1e-6), row
    for todo in verdict(made.recommendation).todo:
        assert todo.gain is None or 0 <= todo.saving_us <= todo.gain.now_us * (1 + 1e-9), todo


def test_a_traced_time_is_multiplied_by_the_measured_ratio(store: Store) -> None:
    """To predict a call's time with a faster kernel, its time in the trace is multiplied by a measured ratio."""
    # The call takes 17 µs in the trace. Measured with cold caches, the default takes 20 µs and the faster kernel 18 µs.
    # So the prediction is 17 · 18 / 20 = 15.3 µs.
    rows = [
        *make_traced_calls(W, 17.0, 5),
        make_time(W, "Default", 20.0, "replay-confirm"),
        make_time(W, "miopen:A", 18.0, "replay-confirm"),
    ]
    store_rows(store, "a", "run", rows, "gfx942")
    [row] = rows_of(store, analyse(store, "run"))
    assert (row["time_us"], row["best_us"], row["then_us"]) == (17.0, 18.0, pytest.approx(15.3))
    assert row["saving_us"] == pytest.approx(5 * 1.7)
    given = pd.Series(row)
    shown = texts(detail(given, advice(given, {}), None, ""))  # type: ignore[arg-type]
    assert "Now 17 µs Best known 15.3 µs Calls 5 " in shown
    of_one = pd.Series(row | {"unit": "request"})
    assert "Calls of a request 5 " in texts(detail(of_one, advice(given, {}), None, ""))  # type: ignore[arg-type]
    assert "In this run a call takes 17 µs; at the same ratio, the best known solution would take 15.3 µs." in shown


def test_a_time_alone_saves_nothing(store: Store) -> None:
    store_rows(store, "a", "run", make_traced_calls(W, 800.0, 5), "")
    [row] = rows_of(store, analyse(store, "run"))
    assert (row["time_us"], row["total_us"]) == (800.0, 4000.0)
    assert math.isnan(row["saving_us"])


@pytest.mark.parametrize("others", [[], ["skipped"], ["failed"], ["ok"]], ids=["alone", "skipped", "failed", "slower"])
def test_untried_and_slower_kernels_are_distinguished(store: Store, others: Sequence[Status]) -> None:
    """The web page distinguishes between "no other kernel was tried" and "no other kernel is faster".

    This must be true for the table, its CSV, a row's details, the sums and the view ``regret``.
    """
    tries = [
        Measurement(
            problem=W,
            solution=solution_from_text("miopen:A"),
            origin="table",
            status=x,
            time_us=70.0 if x == "ok" else None,
        )
        for x in others
    ]
    rows = [Call(problem=W, category="bench", count=4), make_time(W, "Default", 50.0, "table"), *tries]
    store_rows(store, "a", "run", rows, "gfx942")
    made = analyse(store, "run")
    [row] = rows_of(store, made)
    assert (row["time_us"], row["then_us"], row["total_us"]) == (50.0, 50.0, 200.0)
    known = bool(set(others) & {"failed", "ok"})
    given = pd.Series(row)
    shown = texts(detail(given, advice(given, {}), None, ""))  # type: ignore[arg-type]
    assert ("Could save 0" in shown, "Could save unknown" in shown) == (known, not known)
    assert ("Only the pick (the solution that the library chose) is timed" in shown) != known
    with store.connect() as con:
        build(con, made.run, made.compared, made.found)
        table, _ = queries.table(con, Selection())
        assert (0.0 if known else None) == (None if table["regret"].isna().item() else table["regret"].item())
        assert table["saving_us"].isna().item() != known
        assert queries.regrets(con, Selection())["problems"].sum() == known
        assert pd.isna(queries.totals(con, Selection())["saving_us"]) != known


def test_calls_of_an_unknown_device_weigh_no_time_of_one_of_several(store: Store) -> None:
    for device, us in (("gfx942", 100.0), ("gfx90a", 400.0)):
        solutions = {"Default": us * 3, "miopen:A": us * 2}
        store_rows(store, f"{device}.csv", "run", [make_time(W, x, t, "table") for x, t in solutions.items()], device)
    store_rows(store, "log", "run", [Call(problem=W, category="bench", count=7)], "")
    made = analyse(store, "run")
    [row] = rows_of(store, made)
    assert row["calls"] == 7
    assert math.isnan(row["total_us"])
    assert math.isnan(row["saving_us"])
    assert all(x.saving_us is None for x in made.recommendation.findings)
    store_rows(store, "log of one", "later", [Call(problem=W, category="bench", count=7)], "gfx90a")
    [row] = rows_of(store, analyse(store, "later"))
    assert (row["time_us"], row["then_us"], row["saving_us"]) == (1200.0, 800.0, pytest.approx(7 * 400.0))


AMOUNTS = st.none() | st.floats(0.1, 1e6)


SAVINGS = st.tuples(st.sampled_from((F, B, W)), AMOUNTS, AMOUNTS)


@pytest.fixture(scope="module")
def nothing_found() -> Recommendation:
    return recommend(tables(), Settings())


@settings(max_examples=sized(40, 1000))
@given(savings=st.lists(SAVINGS, min_size=1, max_size=6), measured=st.booleans())
def test_an_unknown_saving_stands_beside_no_number(
    nothing_found: Recommendation, savings: Sequence[tuple[ConvProblem, float | None, float | None]], measured: bool
) -> None:
    evidence = Evidence(sureness="measured alone" if measured else "estimated", now_us=1e6, best="torch:pad=8")
    texts_ = {"analyzer": "a", "message": "", "advice": "Pad it."}

    def gain_of(saving_us: float | None) -> Gain | None:
        return None if saving_us is None else Gain(1e6, 1e6 - saving_us)

    found = tuple(
        Finding(problem=problem, in_run=gain_of(saving), per_call=gain_of(per_call), evidence=evidence, **texts_)
        for problem, saving, per_call in savings
    )
    recommendation = replace(nothing_found, findings=found)
    for todo, made in zip(verdict(recommendation).todo, cards(recommendation), strict=True):
        card, of = (
            texts(_card(made, 1, (), Leads({}, traced=False), Selection())),
            [found[n - 1] for n in todo.findings],
        )
        assert (made.gain == "unknown") != ("→" in card or "up to" in card)
        known = any(x.saving_us is not None or x.per_call_us is not None for x in of)
        assert (made.gain == "unknown") != known, "the time now is known, so any saving is"
        assert ("≈" in card) <= (not measured), "what is measured is no estimate"
