"""Tests of using kernel times that were measured on other machines.

Some measurements need not be made then, others are repeated, and the output names both.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from analyzers.overrides.write import write
from analyzers.replay import sharing
from analyzers.replay.replay import history
from analyzers.replay.results import KNOWN, Result, environment_key, not_measured
from logparse.errors import InputError
from logparse.ingest.all_inputs import ingest, record
from logparse.model import Fact, GemmProblem, Measurement, OperatorProblem, Solution
from logparse.store import Store, open_store
from tests.analyzers.example import gemm
from tests.conftest import SAMPLES

HERE = {"arch": "gfx942"}
FAST, SLOW = Solution("hipblaslt", "7"), Solution("hipblaslt", "8")


def problems(count: int) -> list[GemmProblem]:
    return [x for n in range(count) if isinstance(x := gemm(8 * n + 8), GemmProblem)]


def store_races(store: Store, of: list[GemmProblem], environment: str = "5f0c") -> None:
    for problem in of:
        times = [
            Measurement(problem=problem, solution=x, origin="replay", time_us=us) for x, us in ((FAST, 1), (SLOW, 2))
        ]
        facts = [Fact("environment", environment), Fact("arch", "gfx942"), Fact("pick", SLOW.text)]
        record(store, [*times, *facts], run="other", name=problem.label, format="replay")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Write a file with times of 40 matrix products, as if another machine had measured them. Returns the path."""
    other = open_store(str(tmp_path / "other"), create=True)
    store_races(other, problems(40))
    write(sharing.bundled(other)[0], tmp_path / "shared")
    return tmp_path / "shared"


@pytest.fixture
def mine(tmp_path: Path) -> Store:
    store = open_store(str(tmp_path / "mine"), create=True)
    ingest([str(SAMPLES / "hipblaslt/hipblaslt_rank0_4242.log")], store, run="job")
    return store


def test_records_are_taken_once_and_count_no_calls(mine: Store, shared: Path) -> None:
    calls = mine.query("select sum(calls) as n from workload")["n"][0]
    for _ in range(2):
        sharing.take(mine, str(shared), None)
        assert len(mine.query("select * from measurements where origin = 'replay'")) == 80
    assert mine.query("select sum(calls) as n from workload")["n"][0] == calls
    assert mine.latest_run(None) == "job"


def test_a_tenth_is_tried_again_and_the_rest_is_known(mine: Store, shared: Path) -> None:
    sharing.take(mine, str(shared), None)
    known, of = sharing.without_checks(history(mine), mine)
    again = {x.text for x in problems(40) if zlib.crc32(x.text.encode()) % 10 == 0}
    assert again
    assert of.again == {("5f0c", x): FAST.text for x in again}
    assert of.settled == {("5f0c", x.text) for x in problems(40)} - {*of.again}
    assert {*known.races["5f0c"]} == {x for _, x in of.settled}


def test_what_this_machine_measured_itself_is_not_tried_again(mine: Store, shared: Path) -> None:
    sharing.take(mine, str(shared), None)
    store_races(mine, problems(40))
    known, of = sharing.without_checks(history(mine), mine)
    assert (of.settled, of.again, len(known.races["5f0c"])) == (set(), {}, 40)


def test_the_report_states_how_many_records_held() -> None:
    def result(problem: GemmProblem, fast: float, slow: float) -> Result:
        rows = [
            Measurement(problem=problem, solution=x, origin="replay", time_us=us)
            for x, us in ((FAST, fast), (SLOW, slow))
        ]
        return Result(problem=problem, rows=tuple(rows), best_us=min(fast, slow), facts=HERE)

    one, two, three, four, five = problems(5)
    key = environment_key(HERE)
    recorded = {(key, x.text) for x in (four, five)} | {("another", three.text)}
    of = sharing.Borrowed(recorded, {(key, one.text): FAST.text, (key, two.text): FAST.text})
    nothing_left = Result(problem=four, ended=KNOWN, facts=HERE)
    results = [result(one, 1.0, 2.0), result(two, 1.25, 1.0), result(three, 9.0, 1.0), nothing_left]
    (line,) = of.report(results)
    known, _, again = line.partition("; ")
    assert known == "1 problem answered by other machines' records"
    assert again == "2 were measured again, and the recorded best was as fast here in 1, at most 25.0% slower"
    assert sharing.Borrowed().report(results) == []


def test_records_of_another_environment_settle_nothing(mine: Store, shared: Path) -> None:
    sharing.take(mine, str(shared), None)
    _, of = sharing.without_checks(history(mine), mine)
    known = [Result(problem=x, ended=KNOWN, facts=HERE) for x in problems(40)]
    assert of.report(known) == ["0 problems answered by other machines' records"]


def test_a_place_without_records_is_an_error(mine: Store, tmp_path: Path) -> None:
    for place in (tmp_path / "none", SAMPLES / "hipblaslt"):
        with pytest.raises(InputError, match="--records"):
            sharing.take(mine, str(place), None)


def test_what_was_borrowed_is_not_passed_on(mine: Store, shared: Path) -> None:
    sharing.take(mine, str(shared), None)
    files, _ = sharing.bundled(mine)
    assert [x.name for x in files] == ["workload.json"]


def test_neither_messages_of_errors_nor_operators_of_the_user_are_passed_on(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "other"), create=True)
    why = "OutOfMemoryError: process 4711 of /home/user/job.py"
    failed = not_measured(gemm(8), FAST, "failed", why)
    own = replace(failed, problem=OperatorProblem("user_library::fused", ()), status="ok", time_us=3.0, error=None)
    record(store, [failed, own, Fact("environment", "5f0c")], run="run", name="x", format="replay")
    (file,), _ = sharing.bundled(store)
    assert b'"failed"' in file.data
    assert not [x for x in (b"4711", b"job.py", b"user_library") if x in file.data]
