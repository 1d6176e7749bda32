"""Tests of override files (the user's choice of kernels) with lines for sizes between two measured sizes.

The tests check which lines are written, and which sizes are measured for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from analyzers.evidence import ladders
from analyzers.evidence.runs import tables_of
from analyzers.evidence.tables import Settings
from analyzers.overrides.lint import inspect
from analyzers.recommend import screen
from analyzers.recommend.override_files import make_files
from analyzers.recommend.ranking import Recommendation, recommend
from analyzers.replay.plan import plan
from analyzers.replay.replay import Options
from logparse.errors import UsageError
from logparse.libraries.hipblaslt.tuning_file import WRITER
from logparse.model import GemmProblem, Problem
from logparse.store import Store
from tests.analyzers.example import W
from tests.analyzers.ingested import HERE, bench, product, read, store_race_times

TARGET = HERE | {"hipblaslt_revision": "4d62e135", "hipblaslt_version": "100202"}
PICK, BEST, OTHER = "hipblaslt:5", "hipblaslt:7", "hipblaslt:9"
STEP = Settings(ladder=128)


def calls(store: Store, folder: Path, *sizes: int) -> None:
    """Read the log of a job into the store (Parquet folder). The job calls a matrix product with several sizes N."""
    read(store, folder, {"job.log": "".join(bench(4096, n, 1024, count=10) for n in sizes)})


def store_race(store: Store, n: int, times: Mapping[str, float], winner: str | None) -> None:
    store_race_times(store, product(4096, n, 1024), times, winner, pick=PICK, facts=TARGET)


def found_of(store: Store, settings: Settings = STEP) -> Recommendation:
    return recommend(tables_of(store), settings)


def sizes_written(found: Recommendation, settings: Settings = STEP) -> dict[int, str]:
    """Return the kernel that the written tuning file has for each size N: {n: kernel}.

    The file is written for the given recommendation, and then read as hipBLASLt would read it.
    """
    made = make_files(found, TARGET, [WRITER], settings)
    data = next((x.data for x in made.files if x.name == "hipblaslt_tuning.txt"), b"")
    file = inspect("t.txt", data, TARGET)
    assert file.ok
    problems = [row.problem for row in file.rows]
    assert all(isinstance(x, GemmProblem) and x.ldd == 4096 for x in problems)
    return {x.n: row.solution.text for x, row in zip(problems, file.rows, strict=True)}  # type: ignore[union-attr,misc]


def test_the_sizes_between_get_the_solution_of_an_end(store: Store, tmp_path: Path) -> None:
    calls(store, tmp_path, 512, 1024)
    for n in (512, 1024):
        store_race(store, n, {PICK: 50.0, BEST: 40.0, OTHER: 45.0}, BEST)
    (rung,) = found_of(store).ladder
    assert (list(rung.sizes), rung.middle.n, rung.why) == (
        [640, 768, 896],
        768,
        "no replay timed the kernel at N = 768",
    )
    assert sizes_written(found_of(store)) == {512: BEST, 1024: BEST}
    lines = screen.screen(found_of(store), screen.Written(tmp_path, store="s"))
    assert "ladder   0 rows on 0 of 1 rungs: see the report" in lines
    assert "ladder   logparse replay --store s --run run --backend hipblaslt --ladder 128" in lines

    store_race(store, 768, {PICK: 50.0, BEST: 40.8, OTHER: 40.0}, None)
    found = found_of(store)
    (rung,) = found.ladder
    assert rung.regrets == pytest.approx((0.0, 0.02, 0.0))
    assert sizes_written(found) == {512: BEST, 640: BEST, 768: BEST, 896: BEST, 1024: BEST}
    costs = "0.0% at 512, 2.0% at 768, 0.0% at 1,024; 3 rows"
    assert f"n = 1,024: hipblaslt:7 regret (time lost against the best solution) {costs}" in rung.line
    assert rung.line in make_files(found, TARGET, [WRITER], STEP).notes
    assert not any("replay" in x for x in screen.screen(found, screen.Written(tmp_path)) if x.startswith("ladder"))
    assert sizes_written(found_of(store, Settings())).keys() == {512, 1024}, "only where it is asked for"
    few = Settings(ladder=128, max_rows=3)
    assert sizes_written(found_of(store, few), few).keys() == {512, 640, 1024}


@pytest.mark.parametrize(
    ("middle", "high", "why"),
    [
        ({PICK: 50.0, BEST: 41.3, OTHER: 40.0}, {PICK: 50.0, BEST: 40.0}, "the kernel's regret is above 3%"),
        ({PICK: 50.0, BEST: 40.0}, {PICK: 50.0, BEST: 49.0, OTHER: 47.0}, "the kernel's regret is above 3%"),
        (
            {PICK: 40.0, BEST: 40.8},
            {PICK: 50.0, BEST: 40.0},
            "at N = 768, halfway, the library's own choice is faster than this kernel",
        ),
        ({PICK: 50.0, OTHER: 40.0}, {PICK: 50.0, BEST: 40.0}, "no replay timed the kernel at N = 768"),
    ],
)
def test_a_rung_that_costs_too_much_is_not_written(
    middle: Mapping[str, float], high: Mapping[str, float], why: str, store: Store, tmp_path: Path
) -> None:
    calls(store, tmp_path, 512, 1024)
    store_race(store, 512, {PICK: 50.0, BEST: 40.0}, BEST)
    store_race(store, 768, middle, None)
    store_race(store, 1024, high, None)
    found = found_of(store)
    assert [x.why for x in found.ladder] == [why]
    assert sizes_written(found) == {512: BEST}


def test_of_two_winners_the_one_that_costs_less_serves(store: Store, tmp_path: Path) -> None:
    calls(store, tmp_path, 512, 1024)
    store_race(store, 512, {PICK: 50.0, BEST: 40.0, OTHER: 40.4}, BEST)
    store_race(store, 768, {PICK: 50.0, BEST: 41.0, OTHER: 40.0}, None)
    store_race(store, 1024, {PICK: 50.0, BEST: 44.0, OTHER: 40.0}, OTHER)
    assert sizes_written(found_of(store)) == {512: BEST, **dict.fromkeys((640, 768, 896, 1024), OTHER)}


def test_an_override_of_a_size_between_stays(store: Store, tmp_path: Path) -> None:
    calls(store, tmp_path, 512, 1024)
    for n, winner in ((512, BEST), (768, OTHER), (1024, BEST)):
        store_race(store, n, {PICK: 50.0, BEST: 40.0, OTHER: 39.8 if winner == OTHER else 41.0}, winner)
    assert sizes_written(found_of(store)) == {512: BEST, 640: BEST, 768: OTHER, 896: BEST, 1024: BEST}


def test_times_of_another_build_judge_no_override(store: Store, tmp_path: Path) -> None:
    calls(store, tmp_path, 512, 1024)
    for n in (512, 768, 1024):
        store_race(store, n, {PICK: 50.0, BEST: 40.0}, BEST if n != 768 else None)
    mine = found_of(store).overrides
    other = [replace(x, target=TARGET | {"hipblaslt_revision": "other"}) for x in mine]
    assert [len(ladders.choose_rungs(tables_of(store), STEP, 128, x)) for x in (mine, other)] == [1, 0]


def test_a_rung_lies_between_calls_that_are_alike_in_all_else() -> None:
    given: list[Problem] = [product(4096, n, 1024) for n in (512, 1, 1024, 520)]
    given += [product(4096, 2048, 1024, ldd=5000), product(64, 2048, 1024), W]
    assert [(x.low.n, list(x.sizes), x.high.n) for x in ladders.rungs(given, 256)] == [
        (1, [256], 512),
        (520, [768], 1024),
    ]
    (rung, *_) = ladders.rungs(given, 100)
    assert rung.middle == product(4096, 300, 1024)


def test_a_replay_times_the_middles_last(store: Store, tmp_path: Path) -> None:
    calls(store, tmp_path, 512, 1024)
    planned = [x.problem for x in plan(tables_of(store), Settings(), ladder=128)]
    assert [x.n for x in planned if isinstance(x, GemmProblem)] == [1024, 512, 768]
    store_race(store, 768, {PICK: 50.0}, None)
    assert len(plan(tables_of(store), Settings(), ladder=128)) == 3, "a middle is no end"
    assert len(plan(tables_of(store), Settings(), ladder=128, top=1)) == 1
    with pytest.raises(UsageError, match="--backend hipblaslt"):
        Options(ladder=16)
