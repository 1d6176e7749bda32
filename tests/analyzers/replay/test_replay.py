"""Tests of ``logparse replay`` as a whole, without a GPU.

Some of the fake kernels crash, hang or give wrong results.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from analyzers.evidence.tables import Settings
from analyzers.recommend.verb import advise
from analyzers.replay import verb
from analyzers.replay.replay import Options, ReplayReport, ReplayStep, plan_replay, replay, seconds
from analyzers.replay.results import Method
from analyzers.replay.scheduler import Limits, MeasuringError, Scheduler
from analyzers.replay.worker import backend_named
from logparse.errors import InputError
from logparse.ingest import record
from logparse.libraries.all_backends import BACKENDS
from logparse.model import Measurement, Problem, Solution
from logparse.store import Store
from tests.analyzers.replay.fakes import NAME
from tests.analyzers.replay.problems import SMALL_W, named, store_of
from tests.conftest import sized
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("measuring_processes")
FAKE = Options(backends=(NAME,), devices=("cpu",), limits=Limits(hang_s=2.0))


def statuses(store: Store) -> dict[str, str]:
    rows = store.query("select solution, status from measurements where origin = 'replay'")
    return dict(zip(rows["solution"], rows["status"], strict=True))


def measure(path: Path, *problems: Problem, options: Options = FAKE) -> tuple[Store, ReplayReport]:
    store = store_of(path, problems)
    return store, replay(store, options)


def test_a_faster_solution_is_found_confirmed_and_stored(tmp_path: Path) -> None:
    store, report = measure(tmp_path, named("pick", "fast", "slow"))
    assert report.finished
    assert [result.best for result in report.results] == [Solution("fake", "fast")]
    (confirmation,) = report.confirmations.values()
    assert confirmation.confirmed
    assert confirmation.speedup.value == pytest.approx(2.0, rel=0.02)
    assert report.kept == set(report.confirmations)
    pairs = store.query("select samples_us from measurements where origin = 'replay-confirm'")["samples_us"]
    assert [len(samples) for samples in pairs] == [24, 24], "6 blocks in each of 4 processes"
    facts = store.facts()
    assert set(facts.loc[facts["name"] == "device", "value"]) == {"fake"}
    rows = store.query("select solution, len(samples_us) as n, error from measurements where origin = 'replay'")
    counts = dict(zip(rows["solution"], rows["n"], strict=True))
    assert counts["fake:pick"] >= 2
    assert counts["fake:slow"] == 1
    assert rows.set_index("solution").loc["fake:fast", "error"].startswith("relative error")


def test_each_confirming_process_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gain is confirmed by fresh processes, each of which measures only once."""
    # Here two kernels seem faster than the default, and three processes must confirm each. One process measures all
    # kernels first. Then three new processes each compare both kernels with the default. So there are 1 + 3 = 4
    # processes.
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "prepared"))
    problems = [named("pick", "fast", m=16), named("pick", "fast", m=24)]
    store, report = measure(tmp_path / "store", *problems, options=replace(FAKE, method=Method(processes=3)))
    assert {x.processes for x in report.confirmations.values()} == {3}
    lines = [line.split() for line in (tmp_path / "prepared").read_text().splitlines()]
    pids = {m: [pid for size, name, pid in lines if (size, name) == (m, "fast")] for m in ("16", "24")}
    assert [len(set(x)) for x in pids.values()] == [len(x) for x in pids.values()] == [4, 4]
    assert set(pids["16"]) == set(pids["24"]), "a process confirms all pairs"
    told = [json.loads(x) for x in store.query("select value from facts where name = 'confirmation'")["value"]]
    assert [(x["blocks"], x["complete"]) for x in told] == [([6, 6, 6], True)] * 2
    [first, second] = advise(store, Settings()).judgement.by_source.values()
    assert (first.confirmation.processes, second.kept) == (3, True)


def test_the_time_left_covers_the_confirmations(tmp_path: Path) -> None:
    steps: list[ReplayStep] = []
    store = store_of(tmp_path, [named("pick", "fast", m=16), named("pick", "fast", m=24)])
    replay(store, FAKE, steps.append)
    assert [step.confirmation is None for step in steps] == [True, True, False, False]
    left = [step.eta_s or 0.0 for step in steps]
    assert left[1] >= 8 * FAKE.limits.confirmation_s, "two pairs in four processes each, of which none has begun"
    assert left[2] > 0 == left[3]


def test_a_budget_that_ends_between_processes_keeps_what_they_measured(tmp_path: Path) -> None:
    store = store_of(tmp_path, [named("pick", "fast")])
    options = replace(FAKE, limits=Limits(hang_s=2.0, budget_s=1e9))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scheduler, "_left", lambda self: 0.0 if any(x.done for x in self._pairs) else 1e9)
        report = replay(store, options)
    assert not report.finished
    [told] = [json.loads(x) for x in store.query("select value from facts where name = 'confirmation'")["value"]]
    assert 1 <= len(told["blocks"]) < 4
    assert not told["complete"]
    assert replay(store, FAKE).confirmations, "and the next replay confirms the pair with all processes"


def test_a_dry_run_prints_all_measurements(tmp_path: Path) -> None:
    """``replay --dry-run`` only prints what it would measure: kernels for each product, and changes of the job.

    The convolutions of the job are in NCHW, so there is a change to measure: the layout channels_last.
    """
    store = store_of(tmp_path, [replace(SMALL_W, direction=x) for x in ("F", "B")])  # type: ignore[arg-type]
    both, actions, races = (list(verb.plan(store, Options(only=x)).blocks) for x in (None, "actions", "races"))
    (only,) = actions
    assert str(only).startswith("only timed for actions, without a search: 2 problems, ")
    assert both[-1] == only
    assert races[-1] == both[-2] != only


def test_replay_does_not_become_the_latest_run(tmp_path: Path) -> None:
    store, _ = measure(tmp_path, named("pick"))
    assert store.runs() == ["r"]


def test_what_is_as_fast_as_the_pick_is_not_confirmed(tmp_path: Path) -> None:
    _, report = measure(tmp_path, named("pick", "alike"))
    assert report.results[0].best == Solution("fake", "pick")
    assert not report.confirmations


@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [
        ("crash", "failed", "SIGSEGV"),
        ("hang", "timeout", "no message for"),
        ("raises", "failed", "launch failed"),
        ("poisons", "failed", "illegal memory access"),
        ("needs_memory", "out_of_memory", "1000.00 GiB"),
        ("unsupported", "unsupported", "not here"),
        ("wrong", "wrong", "relative error 5.00e-01 above"),
        ("unwritten", "wrong", "not all was written"),
    ],
)
def test_a_bad_solution_is_recorded_and_the_run_goes_on(tmp_path: Path, fault: str, status: str, reason: str) -> None:
    after = named("pick", "slow", m=40)
    store, report = measure(tmp_path, named("pick", fault, "fast"), after)
    assert report.finished
    assert statuses(store) == {
        "fake:pick": "ok",
        "fake:fast": "ok",
        "fake:slow": "ok",
        f"fake:{fault}": status,
    }
    errors = store.query("select error from measurements where status <> 'ok'")["error"]
    assert reason in errors[0]
    assert [result.best for result in report.results] == [Solution("fake", "fast"), Solution("fake", "pick")]


def test_a_pick_that_crashes_leaves_the_others_unconfirmed(tmp_path: Path) -> None:
    store, report = measure(tmp_path, named("crash", "fast"))
    assert statuses(store) == {"fake:crash": "failed", "fake:fast": "ok"}
    assert not report.confirmations


def test_operands_that_do_not_fit_skip_the_problem_with_its_size(tmp_path: Path) -> None:
    store, report = measure(tmp_path, named("too_large", "fast"), named("pick", m=40))
    assert report.finished
    assert statuses(store) == {"fake:too_large": "out_of_memory", "fake:pick": "ok"}


def test_a_problem_that_no_backend_runs_is_recorded_with_the_reason(tmp_path: Path) -> None:
    store, _ = measure(tmp_path, replace(named("pick"), activation="none"))
    rows = store.query("select status, error from measurements")
    assert list(rows["status"]) == ["unsupported"]
    assert "no names" in rows["error"][0]


def test_a_second_call_measures_nothing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "prepared"))
    store, _ = measure(tmp_path / "store", named("pick", "fast", "wrong"), named("pick", "slow", m=40))
    before = len(store.measurements())
    prepared = (tmp_path / "prepared").read_text()
    report = replay(store, FAKE)
    assert report.finished
    assert len(store.measurements()) == before
    assert (tmp_path / "prepared").read_text() == prepared
    assert {result.ended for result in report.results} == {"known"}
    replay(store, replace(FAKE, resume=False))
    assert len(store.measurements()) > before


def test_a_new_solution_is_raced_against_the_pick_and_the_best_known(tmp_path: Path) -> None:
    store = store_of(tmp_path, [named("pick", "slow", "alike", "fast")])
    replay(store, replace(FAKE, method=replace(FAKE.method, limit=3)))
    report = replay(store, FAKE)
    assert [row.solution.id for row in report.results[0].rows] == ["pick", "alike", "fast"]
    assert report.results[0].best == Solution("fake", "fast")


PROGRAM = """
import sys
from analyzers.replay.replay import Options, replay
from logparse.store import open_store
if __name__ == "__main__":
    replay(open_store(sys.argv[1]), Options(backends=({name!r},), devices=("cpu",)))
"""


def test_killed_and_resumed_nothing_is_measured_twice(tmp_path: Path) -> None:
    problems = [named("pick", "patient", "slow", m=8 * i) for i in range(1, sized(6, 8))]
    store = store_of(tmp_path / "store", problems)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(name=NAME))
    root = str(Path(__file__).parents[3])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])}
    running = subprocess.Popen([sys.executable, str(program), str(tmp_path / "store")], env=environment)
    wait_until(lambda: len(store.commits()) >= 3 or running.poll() is not None)
    running.send_signal(signal.SIGKILL)
    running.wait()
    kept = len(store.commits()) - 1
    assert 2 <= kept < len(problems)
    report = replay(store, FAKE)
    assert report.finished
    rows = store.query("select problem, solution from measurements where origin = 'replay'")
    counts = Counter(zip(rows["problem"], rows["solution"], strict=True))
    assert set(counts.values()) == {1}
    assert len(counts) == 3 * len(problems)


def test_each_outcome_is_a_line_and_what_was_known_is_none(tmp_path: Path) -> None:
    store, lines = store_of(tmp_path, [named("pick", "fast", "slow")]), list[str]()
    answer = verb.measure(store, FAKE, lines.append)
    assert answer.code == 0
    assert lines[0].startswith("[1/1")
    assert ": pick 100" in lines[0]
    assert "3 solutions (one left)" in lines[0]
    assert "confirmed, ×2.0" in lines[1]
    verb.measure(store, FAKE, lines.append)
    assert len(lines) == 2


def test_interrupt_keeps_what_was_measured(tmp_path: Path) -> None:
    store = store_of(tmp_path, [named("pick", "fast", m=8 * i) for i in range(1, 6)])

    def interrupt(step: ReplayStep) -> None:
        if step.done == 2:
            raise KeyboardInterrupt

    report = replay(store, FAKE, interrupt)
    assert report.interrupted
    assert not report.finished
    assert store.query("select count(distinct problem) as n from measurements")["n"][0] == 2


def test_a_zero_budget_measures_nothing_and_reports_it(tmp_path: Path) -> None:
    store = store_of(tmp_path, [named("pick", "fast")])
    report = replay(store, replace(FAKE, limits=Limits(budget_s=0.0)))
    assert not report.finished
    assert not report.results


def test_two_devices_share_the_work(tmp_path: Path) -> None:
    problems = [named("pick", "patient", m=8 * i) for i in range(1, sized(5, 7))]
    store, report = measure(tmp_path, *problems, options=replace(FAKE, devices=("cpu", "cpu:1")))
    assert report.finished
    assert {x.problem.text for x in report.results} == {x.text for x in problems}
    assert store.query("select count(*) as n from measurements where origin = 'replay'")["n"][0] == 2 * len(problems)


def test_a_backend_that_cannot_be_opened_is_an_error_with_its_reason(tmp_path: Path) -> None:
    store = store_of(tmp_path, [named("pick")])
    with pytest.raises(InputError, match="--backend 'nosuch': unknown; name one of torch"):
        replay(store, replace(FAKE, backends=("nosuch",)))
    with pytest.raises(MeasuringError, match="cannot measure on cpu"):
        replay(store, replace(FAKE, backends=("tests.analyzers.replay.test_replay:BROKEN",)))


def _broken(place: object) -> object:
    raise RuntimeError("no such library")


BROKEN = type(BACKENDS[0])("broken", "cannot be opened", _broken)  # type: ignore[arg-type]


def test_a_budget_has_a_unit() -> None:
    assert [seconds(x) for x in ("90", "90s", "10m", "1.5h")] == [90, 90, 600, 5400]
    for text in ("", "m", "ten"):
        with pytest.raises(InputError, match="--silence"):
            seconds(text, "--silence")
        with pytest.raises(InputError, match="budget"):
            seconds(text)


def test_names_of_backends_are_unique_and_found() -> None:
    assert len({member.name for member in BACKENDS}) == len(BACKENDS)
    assert all(backend_named(member.name) is member for member in BACKENDS)


def test_the_plan_puts_expected_saving_per_second_first(tmp_path: Path) -> None:
    often, rarely, slow = named("a", m=16), named("b", m=24), named("c", m=32)
    store = store_of(tmp_path, [often, rarely, slow])
    times = [(often, 10.0), (rarely, 10.0), (slow, 1000.0)]
    rows = [Measurement(problem=p, solution=Solution("torch", "Default"), origin="bench", time_us=t) for p, t in times]
    rows.append(Measurement(problem=often, solution=Solution("torch", "x"), origin="bench", time_us=5.0))
    record(store, rows, run="r", name="bench", format="test")
    items = plan_replay(store, FAKE)
    assert [item.problem.text for item in items] == [slow.text, often.text, rarely.text]
    assert items[1].regret == pytest.approx(0.5)
    assert plan_replay(store, replace(FAKE, top=1)) == items[:1]
    assert plan_replay(store, replace(FAKE, kind="conv")) == []
