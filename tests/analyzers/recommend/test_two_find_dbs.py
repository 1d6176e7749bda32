"""Test that all views state one time of a convolution if the system and a user find-db name different solvers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analyzers.compare.diff import diff
from analyzers.compare.timings import times_of_run, timings
from analyzers.evidence.runs import tables_to_analyse
from analyzers.evidence.tables import Settings
from analyzers.explore.load.actions import cards
from analyzers.explore.load.analysis import store_points
from analyzers.recommend import screen, verb
from analyzers.recommend.verdict import gains_text, verdict
from logparse.ingest import ingest
from logparse.libraries.miopen.find_db_choice import ASSUMES
from logparse.lookup import one_problem
from logparse.lookup.ranking import rank_problems
from logparse.store import Store
from logparse.store.settling import settling
from tests.conftest import SAMPLES

SYSTEM, USER = "miopen:GemmWrwUniversal", "miopen:ConvHipImplicitGemmGroupWrwXdlops"
LAYER = "W 64×128×56×56 k128 3×3 g32 FP16 NCHW"
NOW_US, BEST_US, CALLS = 5370.83, 278.6, 18
FILES = ("miopen_cmd_4242.log", "gfx942130.HIP.fdb.txt", "gfx942130.HIP.3_4_0_7c1e0a9d2.ufdb.txt")
LOGGED = (
    "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver convfp16 -n 64 -c 128 -H 56 -W 56 -k 128 -y 3 -x 3 "
    "-p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 32 -F 4 -t 1 -S 0\n"
    "MIOpen(HIP): Info [ConvolutionWrwImmediate] solver_id = {}, workspace = 0\n"
)
"""Lines for a call of immediate mode, as MIOpen 3.5.1 prints them (MIOPEN_LOG_LEVEL=5, MIOPEN_ENABLE_LOGGING_CMD=1)."""


@pytest.fixture
def read(store: Store, tmp_path: Path) -> Store:
    """Return a store with the convolutions of a job, the find-db of the system, and the one of a user."""
    ingest([str(SAMPLES / "miopen" / x) for x in FILES], store, run="job", jobs=1)
    return store


def _top(store: Store) -> dict[str, object]:
    rows = rank_problems(store, by="time", n=1000).rows.to_pylist()
    [row] = [x for x in rows if x["problem"] == LAYER]
    return dict(row)


def test_all_views_state_one_time_and_the_solver_that_takes_it(read: Store, tmp_path: Path) -> None:
    row = _top(read)
    assert (row["pick"], row["best"], row["saves_only_if"]) == (SYSTEM, USER, ASSUMES)
    assert (row["pick_us"], row["best_us"]) == pytest.approx((NOW_US, BEST_US))
    assert row["total_us"] == pytest.approx(CALLS * NOW_US)
    points = store_points(read)
    [point] = points[points["label"] == LAYER].to_dict("records")
    assert (point["pick"], point["w_solution"], point["best"]) == (SYSTEM, SYSTEM, USER)
    assert (point["time_us"], point["w_us"], point["then_us"]) == pytest.approx((NOW_US, NOW_US, BEST_US))
    assert point["saving_from"] == "conditional"
    found = verb.advise(read, Settings())
    [finding] = [x for x in found.findings if x.problem and x.problem.label == LAYER]
    assert (finding.now_us, finding.then_us, finding.evidence.assumes) == (
        *map(pytest.approx, (NOW_US, BEST_US)),
        ASSUMES,
    )
    said = "\n".join(str(x) for x in one_problem.known_lines(read, one_problem.show(read, LAYER)))
    assert f"{SYSTEM} of the system find-db takes 5.37 ms a call, and {USER} of the user find-db 279 µs" in said


def test_sums_of_all_views_agree_and_leave_the_condition_apart(read: Store) -> None:
    ranking, points = rank_problems(read, by="time"), store_points(read)
    assert ranking.total_us == pytest.approx(points["total_us"].sum())
    conditional = points[points["saving_from"] == "conditional"]
    assert len(conditional) == ranking.unsettled == 4
    assert ranking.saves_if_us == pytest.approx(conditional["saving_us"].sum())
    assert not ranking.saves_us
    [todo] = [x for x in verdict(verb.advise(read, Settings())).todo if x.assumes]
    assert todo.gained_us == pytest.approx(ranking.saves_if_us)
    assert todo.gain is not None
    assert todo.gain.now_us == pytest.approx(conditional["total_us"].sum()), "the time now is that of its rows"
    assert ranking.total.endswith(f"; the best known solutions save 217 ms if {ASSUMES}")


def test_diff_takes_the_time_of_top(read: Store, tmp_path: Path) -> None:
    """A run is compared with one that has no call, so that ``diff`` adds up all times of the run."""
    empty = tmp_path / "empty.log"
    empty.write_text(LOGGED.format("ConvDirectNaiveConvFwd").replace("-F 4", "-F 1").replace("-n 64", "-n 1"))
    ingest([str(empty)], read, run="empty", jobs=1)
    known, us = diff(times_of_run(read, "job"), times_of_run(read, "empty")).alone("vanished")
    ranking = rank_problems(read, run="job")
    assert (known, us) == (ranking.timed, pytest.approx(ranking.total_us))
    tables = tables_to_analyse(read, "job")
    [row] = timings(tables).query("problem.str.contains('conv W spatial=2 in=64,128,1,56,56 k=128')").to_dict("records")
    assert (row["solution"], row["time_us"]) == (SYSTEM, pytest.approx(NOW_US))


def test_the_screen_states_the_condition_and_the_command_that_settles_it(read: Store, tmp_path: Path) -> None:
    found = verb.advise(read, Settings())
    files, _ = verb.write(found, Settings(), tmp_path / "out")
    lines = screen.screen(found, screen.Written(tmp_path / "out", files, read.url, read.runs()))
    text = "\n".join(lines)
    assert re.search(r" use 4 faster W convolution.*  0 or 217 of 229 ms", text)
    assert "measured alone, if not in use yet" in text
    assert f"if {ASSUMES}" in text
    [settle] = [x for x in lines if x.startswith("settle   ")]
    assert re.match("settle +MIOPEN_LOG_LEVEL=5 logparse capture ", settle)
    conclusion = verdict(found)
    assert gains_text(conclusion).endswith(f"; another 217 ms if {ASSUMES}")
    assert [sureness for sureness, _ in conclusion.gains] == ["estimated"], (
        "no saving with a condition is added to them"
    )
    note = rank_problems(read, by="time").unsettled_note(read, "job")
    assert LAYER in note
    assert settling(read.url, "job", read.runs(), "top")[0] in note


def test_the_card_says_what_its_commands_do(read: Store) -> None:
    [card] = [x for x in cards(verb.advise(read, Settings())) if x.saves.startswith("0 or ")]
    assert card.changes == "find out which find-db the job reads. `recommend` then lists 4 rows or none"
    assert not card.detail
    capture, again = card.lines
    assert capture.startswith("MIOPEN_LOG_LEVEL=5 logparse capture ")
    assert again.startswith("logparse recommend ")


def test_a_search_command_belongs_to_a_listed_thing(read: Store, tmp_path: Path) -> None:
    """The commands and the card search only with the tool that a listed thing names."""
    ingest([str(SAMPLES / "hipblaslt")], read, run="job", jobs=1)
    found = verb.advise(read, Settings())
    files, _ = verb.write(found, Settings(), tmp_path / "out")
    written = screen.Written(tmp_path / "out", files, read.url, read.runs())
    place = [x.name for x in verdict(found).todo].index("search")
    assert place > 0
    for n, scripts in (place, []), (place + 1, ["tune_miopen.sh"]):
        text = "\n".join(screen.screen(found, written, n))
        assert re.findall(r"tune_\w+\.\w+", text) == scripts
        assert bool(re.search(r"^ *[\d,]+ search ", text, re.MULTILINE)) == bool(scripts)
    [card] = [x for x in cards(found) if x.name == "search"]
    assert re.findall(r"tune_[\w*]+\.\w+", card.lines[1]) == ["tune_miopen.sh"]


def test_the_commands_name_a_run_that_does_not_exist() -> None:
    capture, again = settling(None, "job", ["job", "job-solvers"])
    assert capture == "MIOPEN_LOG_LEVEL=5 logparse capture --run job-solvers2 -- JOB"
    assert again == "logparse recommend --run job-solvers2"


def test_the_page_takes_the_device_of_a_log_from_other_logs_of_its_process(read: Store) -> None:
    """The log of the convolutions names no device, and a tuning cache of the run is from another device.

    Other logs of the process name the device. So the times of the find-dbs are times of the calls.
    """
    ingest([str(SAMPLES / "hipblaslt")], read, run="job", jobs=1)
    points = store_points(read)
    [point] = points[points["label"] == LAYER].to_dict("records")
    assert (point["time_us"], point["then_us"]) == pytest.approx((NOW_US, BEST_US))
    estimated = points.loc[points["saving_from"] == "estimated", "saving_us"].sum()
    [search] = [x for x in verdict(verb.advise(read, Settings())).todo if x.name == "search"]
    assert estimated == pytest.approx(search.gained_us)


def test_a_search_script_is_only_in_the_folder_of_its_library(read: Store, tmp_path: Path) -> None:
    ingest([str(SAMPLES / "hipblaslt")], read, run="job", jobs=1)
    files, _ = verb.write(verb.advise(read, Settings()), Settings(), tmp_path / "out")
    folders = {str(x.path.parent.name) for x in files if x.path is not None and x.path.parent != tmp_path / "out"}
    assert len(folders) == 2
    tuned = [x.path.parent.name for x in files if x.path is not None and x.name == "tune_miopen.sh"]
    assert tuned == ["gfx942-304cu-miopen-3.4.0"]


@pytest.mark.parametrize(("solver", "settled_us"), [(USER, BEST_US), (SYSTEM, NOW_US)])
def test_a_log_that_names_the_solver_settles_it(read: Store, tmp_path: Path, solver: str, settled_us: float) -> None:
    log = tmp_path / "level5_4242.log"
    log.write_text(LOGGED.format(solver.removeprefix("miopen:")))
    ingest([str(log)], read, run="job", jobs=1)
    row = _top(read)
    assert (row["pick"], row["saves_only_if"]) == (solver, None)
    assert row["pick_us"] == pytest.approx(settled_us)
    points = store_points(read)
    [point] = points[points["label"] == LAYER].to_dict("records")
    assert point["saving_from"] != "conditional"
    assert (point["time_us"], point["w_us"]) == pytest.approx((settled_us, settled_us))
    assert point["w_solution"] == solver
    found = [x for x in verb.advise(read, Settings()).findings if x.problem and x.problem.label == LAYER]
    assert [x.evidence.assumes for x in found] == ([] if solver == USER else [None])
