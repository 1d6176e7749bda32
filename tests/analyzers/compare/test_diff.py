"""Tests of ``logparse diff``, which compares two runs: it must find the changes that the tests made, and no others.

The printed texts are compared with golden files (expected outputs).
"""

# After an upgrade of a library, diff must also say what to do with every line of an override file (the user's choice of
# kernels).

from __future__ import annotations

import bz2
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.compare.diff import CHANGED, diff
from analyzers.compare.render import (
    compare,
    count_proposed,
    diff_answer,
    diff_lines,
    diff_table,
    exit_code,
    say_proposed,
    worth_of_changes,
)
from analyzers.compare.timings import NEAREST, times_of_run, timings
from analyzers.compare.upgrade import PlannedRow, upgrade_plan
from analyzers.evidence.tables import Settings, Tables
from analyzers.overrides.lint import inspect
from analyzers.recommend.verb import advise
from logparse.ingest import ingest
from logparse.libraries.hipblaslt import tuning_file
from logparse.libraries.miopen import find_db
from logparse.libraries.tunableop import results
from logparse.model import Override, Solution, problem_from_text
from logparse.output import CHECK_FAILED, UNCHECKED
from logparse.store import Store, open_store
from tests.analyzers.build import call, facts, measurement, tables, work
from tests.analyzers.example import ARCH, W, gemm
from tests.analyzers.ingested import count_units
from tests.conftest import CORPUS, SAMPLES, needs_corpus, sized
from tests.libraries.torch_profiler.made import MadeTrace

G = [gemm(m).text for m in (4096, 2048, 1024, 512, 256, 128)]


def kernel(problem: str, name: str, calls: int, total: float) -> dict[str, object]:
    row = {"source_id": "t", "run": "r", "device": 0, "op": "aten::mm", "problem": problem, "kernel": name}
    return row | {"calls": calls, "total_us": total}


def run_a() -> Tables:
    return tables(
        workload=[work(g, 10) for g in G[:5]],
        calls=[call(g, "hipblaslt:1", 10) for g in G[:5]],
        kernels=[kernel(g, "k1", 10, 1000.0) for g in G[:4]],
    )


def run_b() -> Tables:
    return tables(
        workload=[work(g, 20) for g in (*G[:4], G[5])],
        calls=[
            call(g, s, 20) for g, s in zip((*G[:4], G[5]), ("hipblaslt:1",) * 3 + ("hipblaslt:2",) * 2, strict=True)
        ],
        kernels=[kernel(g, "k1", 20, t) for g, t in zip(G[:4], (2200.0, 1000.0, 2040.0, 2000.0), strict=True)],
    )


def test_two_devices_are_named() -> None:
    one, two = (
        tables(
            workload=[work(G[0], 10)],
            kernels=[kernel(G[0], "k1", 10, 1000.0)],
            facts=facts("t", arch="gfx942", cu_count=count),
            sources=[{"source_id": "t", "run": "r", "path": "t", "format": "torch-profiler"}],
        )
        for count in ("304", "80")
    )
    assert diff(one, two).devices == ("gfx942, 304 CUs", "gfx942, 80 CUs")
    assert "two devices (gfx942, 304 CUs and gfx942, 80 CUs)" in "\n".join(diff_lines(diff(one, two)))
    assert diff(one, one).devices is None


@pytest.mark.parametrize(
    ("machine", "other", "said"),
    [
        ({"arch": "gfx942"}, {"arch": "gfx942"}, "the library chose the same kernels for all 1 problem "),
        (
            {"arch": "gfx942"},
            {"arch": "gfx950"},
            "1 of the names are numbers, which may mean other kernels on the other",
        ),
        ({"hipblaslt_version": "1"}, {"hipblaslt_version": "2"}, "which may mean other kernels in the other build"),
    ],
)
def test_an_equal_number_is_no_equal_kernel_in_another_library(
    machine: dict[str, str], other: dict[str, str], said: str
) -> None:
    one, two = (
        tables(
            workload=[work(G[0], 10)],
            calls=[call(G[0], "hipblaslt:7", 10)],
            facts=facts("t", **stated),
            sources=[{"source_id": "t", "run": "r", "path": "t", "format": "hipblaslt-bench"}],
        )
        for stated in (machine, other)
    )
    (line,) = (x for x in diff_lines(diff(one, two)) if "whose choice both" in x)
    assert said in line
    assert ("chose the same kernels" in line) is (machine == other)


@pytest.mark.parametrize(("a", "b", "ok"), [(100.0, 105.0, True), (0.7, 0.735, True), (100.0, 105.001, False)])
def test_a_gate_that_is_met_exactly_passes(a: float, b: float, ok: bool) -> None:
    one, two = (tables(workload=[work(G[0], 1)], kernels=[kernel(G[0], "k1", 1, time)]) for time in (a, b))
    assert diff(one, two, fail_on=0.05).ok is ok
    assert diff(two, one, fail_on=0.05).rows["state"].tolist() == ["same" if ok else "faster"]


def test_states() -> None:
    found = diff(run_a(), run_b())
    states = dict(zip(found.rows["problem"], found.rows["state"], strict=True))
    assert states == dict(zip(G, ("slower", "faster", "same", "changed", "vanished", "new"), strict=True))
    assert found.rows["problem"].tolist()[:2] == G[:2]
    assert found.rows["delta_us"].tolist()[:2] == [pytest.approx(200.0), pytest.approx(-1000.0)]
    assert not found.ok
    assert found.cost("slower", "faster")[1] == pytest.approx(-800.0)
    assert diff(run_a(), run_b(), fail_on=0.2).ok


def test_new_and_vanished_problems_have_the_times_of_their_run() -> None:
    a, b = (
        tables(
            workload=[work(g, calls) for g in held],
            kernels=[kernel(g, f"k{calls}", calls, 1000.0) for g in held if g != G[3]],
            measurements=[measurement(held[-1], "hipblaslt:3", 7.0, origin="tunableop")],
        )
        for held, calls in (((G[0], G[1]), 10), ((G[0], G[2], G[3], G[4]), 20))
    )
    found = diff(a, b)
    rows = found.rows.set_index("problem")
    assert rows["state"].to_dict() == dict(zip(G, ("faster", "vanished", "new", "new", "new"), strict=False))
    assert rows["basis"].fillna("").to_dict() == dict(zip(G, ("trace", "trace", "trace", "", "trace"), strict=False)), (
        "a call's own time is nearer to the job than a tuned one"
    )
    assert rows.loc[G[2], ["b_us", "pick_b"]].tolist() == [50.0, "k20"]
    assert rows.loc[G[1], ["a_us", "pick_a"]].tolist() == [100.0, "k10"]
    assert rows.loc[[G[1], G[2]], ["ratio", "noise", "delta_us"]].isna().all(axis=None), "an absence is no saving"
    assert found.cost("slower", "faster")[1] == pytest.approx(-1000.0), "that of problems of both runs"
    assert found.flips == (1, 1, 0.5)
    assert diff_lines(found)[-2:] == [
        "only in r: 3 problems, 2 of which take 2 ms per run; the time or the number of calls of the others is unknown",
        "only in r: 1 problem, which takes 1 ms per run; work that is absent from a run is not counted as a saving",
    ]


def test_a_problem_of_one_run_has_the_time_of_the_kernel_that_its_log_names() -> None:
    """A driver's time of another kernel is nearer to a job than a find-db, but it is no time of the job's kernel."""
    once = {"origin": "driver", "time_us": 4000.0, "solution": "miopen:Slow"}
    named = {"origin": "find-db", "time_us": 200.0, "solution": "miopen:Fast"}
    a = tables(
        workload=[work(W.text, 7)],
        calls=[call(W.text, "miopen:Fast", 7)],
        measurements=[measurement(W.text, source_id=x["origin"], **x) for x in (once, named)],
    )
    [row] = diff_table(diff(a, tables())).to_pylist()
    assert (row["state"], row["a_us"], row["pick_a"]) == ("vanished", 200.0, "miopen:Fast")


def test_what_changed_comes_before_what_a_run_lacks(store: Store, tmp_path: Path) -> None:
    """``diff`` first says what changed. That the second run lacks files of the first run comes last."""
    # The first run has two logs and a MIOpen file with measured solver times. The second run has only one log. In four
    # cases the library chose other kernels in the second run, but only the first run has their times.
    log = SAMPLES / "hipblaslt" / "hipblaslt_rank0_4242.log"
    find_db = SAMPLES / "miopen" / "gfx942130.HIP.3_4_0_7c1e0a9d2.ufdb.txt"
    ingest([str(log), str(SAMPLES / "hipblaslt" / "bench_output.txt"), str(find_db)], store, run="before")
    text = log.read_text(encoding="utf-8").replace("index 91033", "index 91077")
    (tmp_path / "rank0_4300.log").write_text(text, encoding="utf-8")
    ingest([str(tmp_path / "rank0_4300.log")], store, run="after")
    found, _, worth = compare("before", "after", store.url)
    lines = diff_lines(found, worth)
    assert lines[0] == (
        "before → after: another kernel ran for 1 of 17 problems (6%). Whether the job got faster is "
        "unknown: no time was compared. The new kernels are expected to save 35 ms a run of after, by times "
        "measured alone (known for 1 of 1, not confirmed)"
    )
    (lacks,) = (x for x in lines if x.startswith("after lacks files that before has: "))
    assert "miopen-find-db (" in lacks
    answer = diff_answer(found, [], None, worth)
    tables_ = [x for x in answer.text or () if not isinstance(x, str)]
    assert [{x["state"] for x in rows} for rows in tables_] == [{"changed"}], "no absence is a row"
    first = tables_[0][0]
    assert (first["pick_before"], first["pick_after"]) == ("hipblaslt:91033", "hipblaslt:91077")
    assert first["may_save_ms"] == pytest.approx(35.03, rel=1e-3), "the name does not look like a measured time"
    assert found.rows.query("state == 'vanished'")["delta_us"].isna().all()
    back, _, worth = compare("after", "before", store.url)
    assert worth.saves_us == pytest.approx(-35_031, rel=1e-3)
    assert "The new kernels are expected to cost 35 ms" in "\n".join(diff_lines(back, worth))


def test_proposed_picks_are_said_in_words() -> None:
    proposed = "that `logparse recommend` proposed for run a"
    assert say_proposed(4, 4, "a") == f"all 4 changed picks are the solutions {proposed}"
    assert say_proposed(1, 1, "a") == f"the changed pick is the solution {proposed}"
    assert say_proposed(2, 4, "a") == f"2 of 4 changed picks are solutions {proposed}"


def test_changed_picks_that_recommend_proposed_are_counted(store: Store, tmp_path: Path) -> None:
    """``diff`` counts the changed picks that ``recommend`` proposed, if the store still holds its findings."""
    log = SAMPLES / "hipblaslt" / "hipblaslt_rank0_4242.log"
    ingest([str(log), str(SAMPLES / "hipblaslt" / "bench_output.txt")], store, run="before")
    text = log.read_text(encoding="utf-8").replace("index 91033", "index 91077").replace("index 91104", "index 91105")
    (tmp_path / "rank0_4300.log").write_text(text, encoding="utf-8")
    ingest([str(tmp_path / "rank0_4300.log")], store, run="after")
    told = "1 of 2 changed picks is a solution that `logparse recommend` proposed for run before"

    def lines(a: str = "before", b: str = "after") -> list[str]:
        found, _, worth = compare(a, b, store.url)
        return diff_lines(found, worth)

    assert not any("proposed" in x for x in lines()), "recommend did not run"
    advise(store, Settings(), "before")
    assert lines()[1] == told
    assert not any("proposed" in x for x in lines("after", "before")), "nothing was proposed for the run after"
    turned, _, _ = compare("after", "before", store.url)
    assert count_proposed(turned, store, earlier="b") == 1, "the same count if the comparison is turned around"
    found, _, _ = compare("before", "after", store.url)
    other_build = replace(found, builds=("hipblaslt",))
    assert worth_of_changes(other_build, store, store).proposed == 0, "a number may mean another kernel there"
    advise(store, Settings(), "after")
    assert lines()[1] == told, "a recommend for another run changes nothing"
    # A comparison needs no findings, so it does not fail without them.
    (store.folder / "findings" / "findings.parquet").write_bytes(b"damaged")  # type: ignore[operator]
    assert not any("proposed" in x for x in lines())
    advise(store, Settings(), "after")
    assert not any("proposed" in x for x in lines()), "the damaged findings are gone"
    advise(store, Settings(), "before")
    assert lines()[1] == told


def test_calls_of_each_kind_and_process_are_compared(store: Store) -> None:
    logs = [SAMPLES / "hipblaslt" / f"hipblaslt_rank{n}_424{n + 2}.log" for n in (0, 1)]
    ingest([str(x) for x in logs], store, run="both")
    ingest([str(logs[0])], store := open_store(f"{store.url}-other", create=True), run="one")
    both = times_of_run(open_store(store.url.removesuffix("-other")), "both")
    assert diff_lines(diff(both, times_of_run(store, "one")))[1] == (
        "GEMMs: both 244 calls in 2 processes, one 122 calls in 1 process: per process these calls are the same"
    )


def test_other_kernels_of_a_trace_are_a_change() -> None:
    one, two = (tables(workload=[work(G[0], 10)], kernels=[kernel(G[0], name, 10, 1000.0)]) for name in ("k1", "k2"))
    assert diff(one, two).rows[["state", "pick_a", "pick_b"]].values.tolist() == [["changed", "k1", "k2"]]


def test_changes_below_the_floor_count_as_the_same() -> None:
    found = diff(run_a(), run_b(), floor_us=10.0)
    states = dict(zip(found.rows["problem"], found.rows["state"], strict=True))
    assert [states[g] for g in G[:2]] == ["same", "faster"], "110 µs instead of 100, and 50 instead of 100"
    assert found.ok
    assert "(changes beyond 3.0%, 10 µs and noise)" in diff_lines(found)[0]


def test_diff_has_an_exit_code_of_its_own_if_nothing_was_compared() -> None:
    """If ``diff`` found nothing to compare in two runs, it says so, and exits with neither 0 nor the code of a loss.

    In CI, a check that compared nothing must not look like a check that passed.
    """
    slower, other = diff(run_a(), run_b()), diff(run_a(), run_a())
    assert [exit_code(x) for x in (slower, other)] == [CHECK_FAILED, 0] == [3, 0]
    picks = [tables(workload=[work(G[0], 10)], calls=[call(G[0], "hipblaslt:1", 10)]) for _ in "ab"]
    found = diff(*picks)
    assert (found.ok, found.compared, exit_code(found), UNCHECKED) == (False, 0, 4, 4)
    nothing = (
        "no time was compared: no matrix product or convolution was timed in the same way (for example by traces) in "
        "both runs. So diff cannot tell whether anything became slower (exit code 4); to compare times, run both jobs "
        "under `logparse capture --trace 2`"
    )
    assert diff_lines(found)[1] == nothing


def test_renderings() -> None:
    found = diff(run_a(), run_b())
    assert diff_lines(found) == [
        "r → r: 1 slower, 1 faster, 1 with another pick, 1 same (changes beyond 3.0% and noise)",
        "another kernel ran for 1 of 4 problems (25%). The times of the two kernels differ by 0.0% (median)",
        "the slower and the faster problems together take 800 µs less per run, as far as their calls are known",
        "GEMMs: r 50 calls in 1 process, r 100 calls in 1 process",
        "only in r: 1 problem; their time per run is unknown",
        "only in r: 1 problem; their time per run is unknown",
    ]
    assert diff_table(found)["state"].to_pylist() == ["slower", "faster", "changed", "new", "vanished"]


@pytest.mark.parametrize(
    ("sample", "old", "new", "flips"),
    [
        (
            "tunableop/tunableop_results0.csv",
            "Hipblaslt_91077,1.7416",
            "Hipblaslt_91078,1.5",
            "for 1 of 20 problems (5%). The times of",
        ),
        ("hipblaslt/tuning_7.0.txt", ",105597,", ",105598,", "another kernel ran for 1 of "),
        ("tables/aiter_bf16_tuned_gemm.csv", "asm,5,13", "asm,6,13", "for 1 of 2 problems (50%)"),
        ("tables/te_hipblaslt_cache.csv", ",104379,1", ",104380,1", "The cost of this change is unknown"),
        ("moe/autotune_configs.json", "52", "53", "no time was compared. The cost of this"),
    ],
)
def test_products_with_another_fastest_kernel_are_counted(
    sample: str, old: str, new: str, flips: str, store: Store, tmp_path: Path
) -> None:
    """``diff`` counts for how many products two tuning runs found different fastest kernels.

    Both tuning runs were made on one machine. The test uses every kind of file in which a tuning run may be recorded.
    """
    text = (SAMPLES / sample).read_text(encoding="utf-8")
    for run, content in (("a", text), ("b", text.replace(old, new, 1))):
        (tmp_path / run).mkdir()
        path = tmp_path / run / Path(sample).name
        path.write_text(content, encoding="utf-8")
        ingest([str(path)], store, run=run)
    found = diff(times_of_run(store, "a"), times_of_run(store, "b"))
    assert found.flips[0] == 1
    assert flips in "\n".join(diff_lines(found))


def test_indices_of_two_builds_may_be_other_kernels() -> None:
    rows = [measurement(G[0], "hipblaslt:1", 100.0)]
    builds = [tables(measurements=rows, facts=facts("m", arch="gfx942", hipblaslt_revision=x)) for x in "ab"]
    assert "two builds of hipblaslt;" in "\n".join(diff_lines(diff(*builds)))
    assert not any("builds" in x for x in diff_lines(diff(builds[0], builds[0])))


def test_noise_is_respected() -> None:
    def one(time: float, samples: tuple[float, ...] = (), std: float | None = None) -> Tables:
        return tables(
            measurements=[measurement(G[0], "Default", time, origin="replay-confirm", samples_us=samples, std_us=std)]
        )

    assert diff(one(100.0), one(108.0)).count("slower") == 1
    assert diff(one(100.0, std=5.0), one(108.0, std=5.0)).count("same") == 1
    quiet = tuple(100.0 + x for x in (-0.1, 0.0, 0.1) * 4)
    assert diff(one(100.0, quiet), one(108.0, tuple(x + 8 for x in quiet))).count("slower") == 1
    assert math.isnan(timings(one(100.0))["noise"][0])


def test_times_of_two_kinds_are_never_compared() -> None:
    a = tables(measurements=[measurement(G[0], "Default", 100.0, origin="replay-confirm")])
    b = tables(measurements=[measurement(G[0], "Default", 200.0, origin="bench")])
    assert diff(a, b).count("unknown") == 1


def test_the_only_problem_that_may_be_meant_is_compared() -> None:
    full, vague = gemm(), gemm(lda=None, scale_type=None)
    a = tables(measurements=[measurement(full.text, "Default", 100.0)])
    b = tables(measurements=[measurement(vague.text, "Default", 200.0)])
    assert diff(a, b).rows["state"].tolist() == ["slower"]
    two = tables(measurements=[measurement(p.text, "Default", 100.0) for p in (full, gemm(lda=1088))])
    assert set(diff(two, b).rows["state"]) == {"unknown"}, "either may be the one that the other run calls"


def test_a_call_has_its_average_time_over_all_trace_files() -> None:
    """If a run has several trace files, ``diff`` uses the average time of a call over all of them."""
    # Steps of every kind are included. If a call launches several kernels, their times are added up to the time of one
    # call.

    def traced(*files: float) -> Tables:
        rows = [
            {**kernel(G[0], name, 2, us), "source_id": str(n), "unit": unit}
            for n, us in enumerate(files)
            for unit in ("16", "1")
            for name in ("splitk", "reduce")
        ]
        return tables(workload=[work(G[0], 100)], calls=[call(G[0], "hipblaslt:1", 100)], kernels=rows)

    rows = diff(traced(20.0), traced(20.0, 20.4)).rows
    assert rows[["state", "a_us", "b_us"]].values.tolist() == [["same", 20.0, pytest.approx(20.2)]]


def test_products_that_only_logparse_measured_are_ignored() -> None:
    """``diff`` ignores matrix products that logparse measured although the job never called them.

    Such products are neither compared nor reported as missing in the other run. Measurements by logparse are compared
    only if the store (Parquet folder) has nothing else.
    """
    rows = [measurement(g, "Default", 9.0, origin=x) for g in G[:2] for x in ("replay", "replay-confirm")]
    rows.append(measurement(G[2], "torch:pad=8", 9.0, origin="replay-action"))
    a, b = (tables(workload=[work(G[0], 3)], measurements=held) for held in (rows, []))
    assert [(x["problem"], x["state"]) for x in diff(a, b).table().to_pylist()] == [(G[0], "unknown")]
    alone = tables(measurements=rows)
    assert set(diff(alone, b).rows["state"]) == {"vanished", "unknown"}


def test_a_text_of_a_problem_that_both_runs_call_is_not_gone() -> None:
    full, vague = gemm().text, gemm(lda=None).text
    a, b = (tables(workload=[work(x, 3) for x in texts]) for texts in ((full, vague, G[1]), (full,)))
    states = {x["problem"]: x["state"] for x in diff(a, b).table().to_pylist()}
    assert states == {full: "unknown", vague: "unknown", G[1]: "vanished"}
    assert {x["state"] for x in diff(b, a).table().to_pylist()} == {"unknown", "new"}


def test_traced_calls_count_for_the_whole_run(store: Store) -> None:
    """If only two of a job's 40 steps were traced, each call in the trace is counted 20 times.

    Steps of another process, which ran without logs, are not counted.
    """
    ingest([str(SAMPLES / "traces" / "job.trace.json")], store, run="run")
    traced = times_of_run(store)
    count_units(store, "run")
    rows = diff(traced, times_of_run(store)).rows
    assert rows["calls_a"].notna().any()
    assert (rows["calls_a"] * 20).equals(rows["calls_b"])


@settings(max_examples=sized(5, 100))  # each example computes the tables of all analyzers for two runs
@given(st.lists(st.floats(1.0, 1e6), min_size=1, max_size=6), st.floats(0.001, 0.5))
def test_a_run_against_itself_has_no_change(times: list[float], fail_on: float) -> None:
    t = tables(
        measurements=[measurement(g, "hipblaslt:1", x) for g, x in zip(G, times, strict=False)],
        workload=[work(G[0], 3)],
    )
    found = diff(t, t, fail_on)
    assert set(found.rows["state"]) <= {"same", "unknown"}
    assert found.table(CHANGED).num_rows == 0


Measured = list[tuple[str, str, str, float | None]]
MEASURED = st.lists(
    st.tuples(
        st.sampled_from(G[:3]),
        st.sampled_from(("replay-confirm", "bench", "find-db", "replay")),
        st.sampled_from(("Default", "hipblaslt:1", "hipblaslt:2")),
        st.sampled_from((1.0, 1.02, 1.5, 0.0, None)),
    ),
    max_size=8,
)
PICKS = st.dictionaries(st.sampled_from(G[:3]), st.sampled_from(("hipblaslt:1", "hipblaslt:2")))


@given(MEASURED, MEASURED, PICKS, PICKS)
def test_random_runs_are_compared_as_plain_loops_compare_them(
    a: Measured, b: Measured, picks_a: dict[str, str], picks_b: dict[str, str]
) -> None:
    sides = ((a, picks_a), (b, picks_b))
    runs = [
        tables(
            measurements=[measurement(p, solution, us, origin=origin) for p, origin, solution, us in rows],
            calls=[call(p, pick, 2) for p, pick in picks.items()],
            workload=[work(p, 2) for p in picks],
        )
        for rows, picks in sides
    ]
    expected = {}
    for problem in G[:3]:
        held = [
            problem in picks or any(p == problem and us and not (picks and "replay" in x) for p, x, _, us in rows)
            for rows, picks in sides
        ]
        known = [fastest(problem, *side) for side in sides]
        bases = (*NEAREST, *sorted({x for times in known for x in times} - {*NEAREST}))
        both = [x for x in bases if all(x in times for times in known)]
        alone = [x for x in bases if any(x in times for times in known) and not all(held)]
        alone.sort(key=lambda x: x != "replay-confirm" and is_of_another(problem, x, known, (picks_a, picks_b)))
        basis = (both + alone + [None])[0]
        (a_us, ran_a), (b_us, ran_b) = (
            times.get(basis, (None, None)) if mine else (None, None) for times, mine in zip(known, held, strict=True)
        )
        pick_a, pick_b = picks_a.get(problem), picks_b.get(problem)
        state = "new" if not held[0] else "vanished" if not held[1] else None
        if state is None and a_us and b_us and not 1 / 1.03 <= b_us / a_us <= 1.03:
            state = "slower" if b_us > a_us else "faster"
        changed = any(x and y and x != y for x, y in ((pick_a, pick_b), (ran_a, ran_b)))
        state = state or ("changed" if changed else "same" if basis else "unknown")
        if any(held):
            expected[problem] = (state, basis, a_us, b_us, pick_a or ran_a, pick_b or ran_b)
    names = ("state", "basis", "a_us", "b_us", "pick_a", "pick_b")
    rows = diff(runs[0], runs[1]).table().to_pylist()
    assert {row["problem"]: tuple(row[x] for x in names) for row in rows} == expected


def is_of_another(
    problem: str, basis: str, known: Sequence[Mapping[str | None, tuple[float, str]]], picks: Sequence[dict[str, str]]
) -> bool:
    """Tell whether the only time of this kind is of another kernel than the one that the job's log names."""
    return any(
        basis in times and problem in named and times[basis][1] != named[problem]
        for times, named in zip(known, picks, strict=True)
    )


def fastest(problem: str, rows: Measured, picks: dict[str, str]) -> dict[str | None, tuple[float, str]]:
    """Return which measured time of a matrix product ``logparse diff`` should use, for each kind of measurement.

    The result is {kind of measurement: (µs, kernel)}.
    """
    # The result names the kernel that ran in the job, if it was measured. Otherwise it names PyTorch's default kernel,
    # if the measurement compared only two kernels (replay-confirm), and the fastest kernel in all other cases.
    out: dict[str | None, tuple[float, str]] = {}
    for origin in {x for _, x, _, _ in rows} - {"replay"}:
        mine = [(us, solution) for p, x, solution, us in rows if us and (p, x) == (problem, origin)]
        preferred = [x for x in mine if x[1] == picks.get(problem)]
        if origin == "replay-confirm":
            preferred = preferred or [x for x in mine if x[1] == "Default"]
        if mine:
            out[origin] = min(preferred or mine)
    return out


@needs_corpus
def test_exactly_the_planted_changes_of_a_shipped_find_db(tmp_path: Path, store: Store) -> None:
    name = "gfx90a68.HIP.fdb.txt"
    lines = bz2.decompress((CORPUS / f"miopen/{name}.bz2").read_bytes()).decode().splitlines()[:4000]
    keys = [line.partition("=")[0] for line in lines]
    planted: dict[str, str] = {}
    changed = list(lines)
    for number in range(0, 4000, 400):
        factor, state = (1.5, "slower") if number % 800 else (0.5, "faster")
        changed[number] = re.sub(r":([\d.e-]+),", lambda m, x=factor: f":{float(m[1]) * x:g},", lines[number])
        planted[keys[number]] = state
    gone, new = 1, "7" + lines[2]
    planted[keys[gone]], planted["7" + keys[2]] = "vanished", "new"
    changed = [line for number, line in enumerate(changed) if number != gone] + [new]
    for run, text in (("old", lines), ("new", changed)):
        (tmp_path / run).mkdir()
        (tmp_path / run / name).write_text("\n".join(text) + "\n")
        ingest([str(tmp_path / run / name)], store, run=run)
    a, b = (Tables(run=run, **store.frames(run)) for run in ("old", "new"))
    found = diff(a, b)
    table = found.table(CHANGED)
    changes = zip(table["problem"].to_pylist(), table["state"].to_pylist(), strict=True)
    assert {find_db.key(problem_from_text(text), {}): state for text, state in changes} == planted
    assert len(planted) == 12


# ------------------------------------------------------------------------------------------------------ upgrade plan

HERE = {"arch": ARCH, "hipblaslt_revision": "3b3d59eb", "cu_count": "304"}


def plan(target: dict[str, str], **more: object) -> list[PlannedRow]:
    made = tuning_file.write(
        [Override(problem=gemm(m), solution=Solution("hipblaslt", "7"), target=HERE) for m in (4096, 2048)], HERE
    )
    file = inspect("t.txt", made[0].data, {})
    return upgrade_plan([file], tables(facts=facts("x", **target), **more))  # type: ignore[arg-type]


def actions(steps: list[PlannedRow]) -> list[tuple[str, str]]:
    return [(x.action, x.reason) for x in steps]


def test_plan_of_an_unchanged_build() -> None:
    assert actions(plan(HERE)) == [("keep", "the file and the new run have the same library build")] * 2
    assert [x for x, _ in actions(plan(HERE, workload=[work(G[0], 3)]))] == ["keep", "drop"]


def test_plan_of_another_build_or_device() -> None:
    assert {x for x, _ in actions(plan(HERE | {"hipblaslt_revision": "new"}))} == {"re-measure"}
    assert "another kernel" in plan(HERE | {"hipblaslt_revision": "new"})[0].reason
    assert "unknown build" in plan({"arch": ARCH})[0].reason
    assert "another kind of GPU" in plan(HERE | {"arch": "gfx90a"})[0].reason


def test_plan_by_what_was_measured() -> None:
    rows = [
        measurement(G[0], "Default", 100.0),
        measurement(G[0], "hipblaslt:7", 90.0),
        measurement(G[1], "Default", 100.0),
        measurement(G[1], "hipblaslt:7", 99.0),
    ]
    steps = plan(HERE, workload=[work(g, 3) for g in G[:2]], measurements=rows)
    assert actions(steps) == [
        ("keep", "measured in the new run: +11.1% against the library's default"),
        ("drop", "measured in the new run: +1.0% against the library's default"),
    ]


def test_plan_of_other_formats() -> None:
    old = {f"validator:{k}": "1" for k in ("HIP_VERSION", "HIPBLASLT_VERSION", "GCN_ARCH_NAME", "ROCBLAS_VERSION")}
    old |= {"validator:PT_VERSION": "2.6.0", "pytorch_version": "2.6.0", "backend": "HIP"}
    made = results.write([Override(problem=gemm(), solution=Solution("torch", "Default"), target=old)], old)
    file = inspect("r0.csv", made[0].data, {})
    t = tables(facts=facts("x", **(old | {"validator:PT_VERSION": "2.9.1", "pytorch_version": "2.9.1"})))
    [step] = upgrade_plan([file], t)
    assert (step.action, step.reason.partition(",")[0]) == ("re-measure", "the row's key lacks leading dimensions")
    key = find_db.key(W, {})
    text = f"{key}=GemmWrwUniversal:3.9,6422528,miopenConvolutionBwdWeightsAlgoGEMM\n{key}=x:1,2,3\n"
    file = inspect("gfx942130.HIP.3_4_0_x.ufdb.txt", text.encode(), {})
    steps = upgrade_plan([file], tables(facts=facts("x", arch="gfx942", cu_count="304", miopen_version="3.5.0")))
    assert [x.action for x in steps] == ["keep", "drop"]
    assert steps[0].reason.endswith("; write the row into a new file, because the new build ignores this file")


DRIVER = (
    "MIOpenDriver conv -n 16 -c 64 -H 28 -W 28 -k 64 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 4 -t 1"
)
RAN = """\
{command}
MIOpen Backward Weights Conv. Algorithm: {code}, Solution: {solver}
GPU Kernel Time Backward Weights Conv. Elapsed: {ms} ms (average)
"""
GEMM, NAIVE = {"code": 0, "solver": "102/GemmWrwUniversal"}, {"code": 1, "solver": "87/ConvDirectNaiveConvWrw"}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ([GEMM], [GEMM, NAIVE], "several kernels ran for 1 problem"),
        ([NAIVE, GEMM], [GEMM], "several kernels ran for 1 problem"),
        ([GEMM], [GEMM, GEMM], "the library chose the same kernels for all 1 problem whose choice both runs name"),
        ([GEMM], [NAIVE], "another kernel ran for 1 of 1 problems"),
    ],
)
def test_a_run_that_holds_two_algorithms_of_one_problem(
    before: list[dict[str, object]], after: list[dict[str, object]], said: str, store: Store, tmp_path: Path
) -> None:
    for run, ran in (("a", before), ("b", after)):
        path = tmp_path / f"{run}.txt"
        texts = [RAN.format(command=DRIVER, ms=0.5 if x is GEMM else 9.5, **x) for x in ran]
        path.write_text("".join(texts), encoding="utf-8")
        ingest([str(path)], store, run=run)
    lines = diff_lines(diff(times_of_run(store, "a"), times_of_run(store, "b")))
    assert [x for x in lines if said in x]
    words = ("the library chose", "another kernel ran", "several kernels")
    assert len([x for x in lines if any(word in x for word in words)]) == 1


def test_the_most_frequent_of_several_kernels_is_compared() -> None:
    """If the library chose several kernels for one matrix product, ``diff`` compares the kernel that ran most often.

    The output states that there were others.
    """
    one, both = (
        tables(workload=[work(G[0], 9)], calls=[call(G[0], x, n) for x, n in picked])
        for picked in ([("hipblaslt:1", 9)], [("hipblaslt:1", 6), ("hipblaslt:2", 3)])
    )
    assert [x for x in diff_lines(diff(one, both)) if "several kernels ran for 1 problem" in x]
    assert not [x for x in diff_lines(diff(one, one)) if "several" in x]


SAME = ": per step these calls are the same"


def traced(path: Path, steps: int, products: int, marked: bool = True) -> str:
    """Write a trace of some steps of 5 ms, each with a number of equal matrix products. Returns the file's path."""
    trace = MadeTrace()
    for step in range(steps):
        at = 5000.0 * step
        if marked:
            trace.step(at, at + 5000, f"ProfilerStep#{step + 2}")
        for number in range(products):
            trace.operator("aten::mm", at + 20 + number * 400, [("Cijk_Alik_Bljk_BBS", 100.0)])
    return str(trace.write(path))


@pytest.mark.parametrize(
    ("before", "after", "marked", "said"),
    [
        (
            (4, 10),
            (2, 10),
            True,
            "40 calls in 4 traced steps, b 20 calls in 2 traced steps: per step these calls are the same",
        ),
        ((4, 10), (4, 5), True, "40 calls in 4 traced steps, b 20 calls in 4 traced steps"),
        ((2, 10), (4, 5), True, "20 calls in 2 traced steps, b 20 calls in 4 traced steps"),
        ((4, 10), (4, 10), True, ""),
        ((4, 10), (2, 10), False, "40 calls in 1 process, b 20 calls in 1 process"),
    ],
)
def test_calls_of_traces_are_stated_of_their_steps(
    before: tuple[int, int], after: tuple[int, int], marked: bool, said: str, store: Store, tmp_path: Path
) -> None:
    """A trace of fewer steps has fewer calls, which is no change of the job."""
    for run, (steps, products) in (("a", before), ("b", after)):
        ingest([traced(tmp_path / f"{run}.json", steps, products, marked)], store, run=run)
    found = diff_lines(diff(times_of_run(store, "a"), times_of_run(store, "b")))
    assert [x.partition(": a ")[2] for x in found if x.startswith("GEMMs")] == [said] * bool(said)


LOGGED = (
    "hipblaslt-bench --api_method c -m 768 -n 512 -k 256 --lda 256 --ldb 256 --ldc 768 --ldd 768 --stride_a 0 "
    "--stride_b 0 --stride_c 0 --stride_d 0 --alpha 1.000000 --beta 0.000000 --transA T --transB N --batch_count 1 "
    "--scaleA 0 --scaleB 0 --a_type bf16_r --b_type bf16_r --c_type bf16_r --d_type bf16_r --scale_type f32_r "
    "--bias_type f32_r --compute_type f32_r --algo_method index --solution_index {index} --activation_type none\n"
)
TIMED = (
    "[0]:transA,transB,grouped_gemm,batch_count,m,n,k,lda,stride_a,beta,ldb,stride_b,ldc,stride_c,ldd,stride_d,a_type,"
    "b_type,c_type,d_type,compute_type,activation_type,bias_vector,hipblaslt-Gflops,us\n"
    "    T,N,0,1,768,512,256,256,0,0,256,0,768,0,768,0,bf16_r,bf16_r,bf16_r,bf16_r,f32_r,none,0,1.0,{us}\n"
    "    --Solution index: {index}\n"
)


@pytest.mark.parametrize(
    ("picks", "timed", "state", "delta_us"),
    [
        ((7, 7), ({7: 50.0, 8: 40.0}, {7: 50.0}), "same", 0.0),
        ((7, 8), ({7: 50.0, 8: 40.0}, {7: 50.0, 8: 40.0}), "faster", -30.0),
        ((7, 8), ({7: 50.0, 8: 40.0}, {7: 50.0}), "changed", None),
        ((7, 7), ({8: 40.0}, {7: 50.0}), "unknown", None),
    ],
    ids=["a file lacks another kernel", "another pick", "the pick of b is not timed", "the pick of a is not timed"],
)
def test_a_benchmark_of_a_logged_call_gives_the_time_of_its_kernel(
    picks: tuple[int, int],
    timed: tuple[dict[int, float], dict[int, float]],
    state: str,
    delta_us: float | None,
    store: Store,
    tmp_path: Path,
) -> None:
    """A benchmark's output states less than a log, so the texts of one product differ. ``diff`` joins them."""
    for run, pick, times in zip("ab", picks, timed, strict=True):
        log, output = tmp_path / f"{run}.log", tmp_path / f"{run}.txt"
        log.write_text(LOGGED.format(index=pick) * 3, encoding="utf-8")
        output.write_text("".join(TIMED.format(index=i, us=us) for i, us in times.items()), encoding="utf-8")
        ingest([str(log), str(output)], store, run=run)
    found = diff(times_of_run(store, "a"), times_of_run(store, "b"))
    assert found.rows["state"].tolist() == [state]
    assert (None if found.rows["delta_us"].isna()[0] else found.rows["delta_us"][0]) == delta_us


def test_two_texts_of_a_file_that_may_be_one_call_are_not_joined(store: Store, tmp_path: Path) -> None:
    """If a benchmark timed a product with two activations, and the log states none, no time is the call's."""
    log = LOGGED.format(index=7).replace("--activation_type none", "")
    for run in "ab":
        (tmp_path / f"{run}.log").write_text(log, encoding="utf-8")
        (tmp_path / f"{run}.txt").write_text(
            TIMED.format(index=7, us=50) + TIMED.format(index=7, us=60 if run == "a" else 30).replace("none", "relu"),
            encoding="utf-8",
        )
        ingest([str(tmp_path / f"{run}.log"), str(tmp_path / f"{run}.txt")], store, run=run)
    found = diff(times_of_run(store, "a"), times_of_run(store, "b"))
    assert found.rows["delta_us"].isna().all()
