from __future__ import annotations

import json
from dataclasses import replace

import pandas as pd
import pytest

from analyzers.evidence.picks import picks_vs_best
from analyzers.evidence.runs import tables_of
from analyzers.evidence.tables import Settings, Tables
from analyzers.findings import suboptimal_pick
from analyzers.findings.suboptimal_pick import regret
from logparse.ingest import ingest
from logparse.lookup.ranking import top
from logparse.model import Finding, Member, Replay, Search
from logparse.store import Store
from tests.analyzers.build import call, facts, frame, measurement, tables, work
from tests.analyzers.example import ARCH, W, gemm
from tests.conftest import SAMPLES

BUILD = {"arch": ARCH, "hipblaslt_version": "1201", "hipblaslt_revision": "4d62e135"}
CUDA = {"arch": "sm_90", "cublaslt_version": "130100", "backend": "CUDA", "pytorch_version": "2.11.0+cu130"}
G = gemm().text


def make_pick_tables(
    pick: str | None = "hipblaslt:7",
    *rows: dict[str, object],
    log: dict[str, str] | None = None,
    measured: dict[str, str] | None = None,
    problem: str = G,
) -> Tables:
    where = [*facts("log", **(BUILD if log is None else log)), *facts("m", **(BUILD if measured is None else measured))]
    return tables(calls=[call(problem, pick, 100)], workload=[work(problem, 100)], measurements=list(rows), facts=where)


def problems(t: Tables, settings: Settings | None = None) -> list[Finding]:
    return [x for x in suboptimal_pick.find(t, settings or Settings()) if x.problem is not None]


SLOWER = (measurement(G, "hipblaslt:7", 50.0), measurement(G, "hipblaslt:9", 40.0))


def planted() -> Tables:
    return make_pick_tables("hipblaslt:7", *SLOWER)


def test_a_measured_pick_that_is_not_the_best() -> None:
    [found] = problems(planted())
    assert (found.per_call_us, found.calls, found.saving_us) == (10.0, 100, 1000.0)
    assert found.override is not None
    assert found.override.solution.text == "hipblaslt:9"
    assert (found.override.time_us, found.override.default_us) == (40.0, 50.0)
    assert found.override.target["hipblaslt_revision"] == "4d62e135"


@pytest.mark.parametrize(("version", "written"), [("2.11.0+cu130", False), ("2.14.0+cu130", True)])
def test_a_solution_that_no_file_can_name_for_the_target_is_no_override(version: str, written: bool) -> None:
    build = {"arch": "sm_90", "cublaslt_version": "130100", "backend": "CUDA", "pytorch_version": version}
    rows = (measurement(G, "cublaslt:id=7", 50.0), measurement(G, "cublaslt:id=9", 40.0))
    [found] = problems(make_pick_tables("cublaslt:id=7", *rows, log=build, measured=build))
    assert found.saving_us == 1000.0
    assert (found.override is not None) == written
    assert written == (found.advice is None)
    assert written or str(found.advice).startswith("Call cuBLASLt directly")


def test_a_group_is_advised_for_the_program_because_no_file_chooses_for_it() -> None:
    text = replace(gemm(), members=(Member(m=2, n=3, k=4), Member(m=5, n=6, k=7))).text
    [found] = problems(make_pick_tables("hipblaslt:7", *({**row, "problem": text} for row in SLOWER), problem=text))
    assert (found.saving_us, found.override) == (1000.0, None)
    assert "hipblaslt_ext::getAlgosFromIndex(handle, {9}" in str(found.advice)


def test_kernels_that_need_more_workspace_are_not_written() -> None:
    """If a faster kernel needs more workspace than the calls give, it is not written into an override file.

    The user gets advice instead, because only the program can give more workspace. hipBLASLt would ignore the file's
    line.
    """
    rows = (measurement(G, "hipblaslt:7", 50.0), measurement(G, "hipblaslt:9", 40.0, workspace_bytes=4096))
    for stated, written in ((0, False), (4095, False), (4096, True)):
        trace = call(G, None, 100, category="trace", workspace_bytes=stated)
        logged = replace(
            make_pick_tables("hipblaslt:7", *rows), calls=frame("calls", [call(G, "hipblaslt:7", 100), trace])
        )
        [found] = problems(logged)
        assert (found.override is not None) is written
        assert ("Give these calls 4,096 bytes of workspace" in (found.advice or "")) is not written


@pytest.mark.parametrize(("build", "remedy"), [(CUDA, Replay()), (BUILD, Search())])
def test_advice_for_an_untimed_kernel_depends_on_the_vendor(build: dict[str, str], remedy: Replay | Search) -> None:
    """If the time of the kernel that the library chose is unknown, the advice differs between NVIDIA and AMD."""
    # On NVIDIA, logparse should measure it. On AMD, a tool of the library should search for faster kernels. NVIDIA has
    # no such tool.
    library = "cublaslt:id=" if build is CUDA else "hipblaslt:"
    [found] = problems(make_pick_tables(f"{library}7", measurement(G, f"{library}9", 40.0), log=build, measured=build))
    assert found.remedy == remedy


def test_the_best_pick_is_no_finding() -> None:
    t = make_pick_tables("hipblaslt:9", *SLOWER)
    assert problems(t) == []
    assert picks_vs_best(t, Settings())["pick_us"].tolist() == [40.0]


@pytest.mark.parametrize(
    "log",
    [
        BUILD | {"hipblaslt_revision": "other"},
        {"arch": ARCH},  # no build
        {"hipblaslt_version": "1201"},  # no arch
        {},
    ],
)
def test_indices_of_unknown_or_other_builds_are_not_compared(log: dict[str, str]) -> None:
    found = suboptimal_pick.find(make_pick_tables("hipblaslt:7", *SLOWER, log=log), Settings())
    assert [x.problem for x in found] == [None]
    assert "--same-build" in found[0].message


def test_times_of_another_device_than_the_log_say_nothing() -> None:
    assert (
        suboptimal_pick.find(make_pick_tables("hipblaslt:7", *SLOWER, log=BUILD | {"arch": "gfx90a"}), Settings()) == []
    )


def test_same_build_is_the_users_word_only_where_nothing_contradicts_it() -> None:
    word = Settings(same_build=True)
    [found] = problems(make_pick_tables("hipblaslt:7", *SLOWER, log={}), word)
    assert found.saving_us == 1000.0
    assert problems(make_pick_tables("hipblaslt:7", *SLOWER, log=BUILD | {"arch": "gfx90a"}), word) == []


def test_only_an_index_differs() -> None:
    [found] = problems(make_pick_tables("hipblaslt:7", measurement(G, "hipblaslt:9", 40.0, origin="tunableop")))
    assert "not timed" in found.message
    assert (found.saving_us, found.per_call_us, found.override) == (None, None, None)


def test_a_tuners_lone_winner_shows_no_regret() -> None:
    t = make_pick_tables("hipblaslt:9", measurement(G, "hipblaslt:9", 40.0, origin="tunableop"))
    [found] = suboptimal_pick.find(t, Settings())
    assert "median" not in found.evidence.shown
    assert (found.evidence.shown["agreeing"], found.evidence.shown["unmeasured"]) == (1, 0)


@pytest.mark.parametrize(("status", "unmeasured"), [("failed", 0), ("wrong", 0), ("timeout", 0), ("skipped", 1)])
def test_pick_is_the_best_if_all_others_failed(status: str, unmeasured: int) -> None:
    """If all other kernels failed when they were measured, the library's choice is taken as the fastest kernel.

    If another kernel was only skipped, it was not tried, so it may be faster.
    """
    other = measurement(G, "hipblaslt:9", None, origin="replay", status=status)
    made = make_pick_tables(
        None, measurement(G, "hipblaslt:7", 50.0, origin="replay"), other, measured=BUILD | {"pick": "hipblaslt:7"}
    )
    [found] = suboptimal_pick.find(made, Settings())
    assert found.problem is None
    assert found.evidence.shown["unmeasured"] == unmeasured
    assert found.evidence.shown.get("problems", 0) == 1 - unmeasured


def test_default_of_a_verbose_log_and_its_noise() -> None:
    def of(second: float) -> list[Finding]:
        default = (measurement(G, "Default", 50.0), measurement(G, "Default", second, ordinal=5))
        return problems(make_pick_tables(None, *default, measurement(G, "hipblaslt:9", 40.0)))

    [found] = of(52.0)
    assert (found.per_call_us, found.saving_us) == (11.0, 1100.0)  # mean of both Defaults against the best
    assert found.evidence.shown["noise_us"] == 2.0
    assert of(72.0) == []  # the two Defaults differ by more than the gain


def test_the_best_may_be_the_default() -> None:
    t = make_pick_tables(None, measurement(G, "Default", 30.0), measurement(G, "hipblaslt:9", 40.0))
    assert problems(t) == []


def test_measured_but_never_logged() -> None:
    t = tables(
        measurements=[measurement(G, "Default", 50.0), measurement(G, "hipblaslt:9", 40.0)], facts=facts("m", **BUILD)
    )
    [found] = problems(t)
    assert (found.per_call_us, found.calls, found.saving_us) == (10.0, None, None)


def test_a_pick_of_several_ranks_counts_with_all_calls() -> None:
    t = tables(
        calls=[call(G, "hipblaslt:7", 60), call(G, "hipblaslt:7", 40, source_id="log2", pid=2)],
        workload=[work(G, 60), work(G, 40, pid=2)],
        measurements=list(SLOWER),
        facts=[*facts("log", **BUILD), *facts("log2", **BUILD), *facts("m", **BUILD)],
    )
    [found] = problems(t)
    assert found.saving_us == 1000.0


def test_two_picks_share_the_workload_and_categories_are_not_added() -> None:
    t = tables(
        calls=[
            call(G, "hipblaslt:7", 30),
            call(G, "hipblaslt:9", 70),
            call(G, "hipblaslt:7", 100, category="profile", source_id="other"),
            call(G, "hipblaslt:7", 1000, by_tool=True),
        ],
        workload=[work(G, 200)],
        measurements=list(SLOWER),
        facts=[*facts("log", **BUILD), *facts("other", **BUILD), *facts("m", **BUILD)],
    )
    calls = picks_vs_best(t, Settings()).set_index("pick")["calls"].to_dict()
    assert calls == {"hipblaslt:7": 60.0, "hipblaslt:9": 140.0}


def test_a_partial_problem_is_found_through_its_link() -> None:
    partial = replace(gemm(), activation=None, bias=None, gradient=None, aux=None)
    t = make_pick_tables(
        "hipblaslt:7",
        measurement(partial.text, "hipblaslt:7", 50.0, key_text="tn_4096_512_1024"),
        measurement(partial.text, "hipblaslt:9", 40.0, key_text="tn_4096_512_1024"),
    )
    [found] = problems(t)
    assert found.problem == gemm().normal
    assert found.evidence.shown["level"] == "layout"
    assert found.override is not None
    assert found.override.key_text == "tn_4096_512_1024"


def test_several_measured_problems_with_different_winners_give_no_override() -> None:
    one, two = gemm(activation="relu", bias=None), gemm(activation="gelu", bias=None)
    logged = gemm(activation=None, bias=None)
    rows = [
        measurement(p.text, s, t)
        for p, fast in ((one, "hipblaslt:9"), (two, "hipblaslt:8"))
        for s, t in (("hipblaslt:7", 50.0), (fast, 40.0))
    ]
    [found] = problems(make_pick_tables("hipblaslt:7", *rows, problem=logged.text))
    assert "whose fastest kernels differ" in found.message
    assert found.override is None


def test_an_override_is_for_the_target_it_was_measured_on() -> None:
    t = make_pick_tables("hipblaslt:7", *SLOWER)
    for target, proposed in (
        (BUILD, True),
        (BUILD | {"arch": "gfx942"}, True),
        (BUILD | {"hipblaslt_revision": "other"}, False),
        ({"arch": "gfx942"}, False),  # the build of the target is unknown
    ):
        [found] = problems(t, Settings(target=target))
        assert (found.override is not None) == proposed
    assert problems(t, Settings(target={"arch": "gfx90a"})) == []


def test_miopen_solver_names_need_the_device_only() -> None:
    rows = (measurement(W.text, "miopen:Slow", 500.0), measurement(W.text, "miopen:Fast", 100.0))
    [found] = problems(
        make_pick_tables("miopen:Slow", *rows, problem=W.text, log={"arch": "gfx942"}, measured={"arch": "gfx942"})
    )
    assert found.per_call_us == 400.0
    assert problems(make_pick_tables("miopen:Slow", *rows, problem=W.text, log={}, measured={"arch": "gfx942"})) == []


def test_the_solver_that_a_miopen_log_names_as_chosen() -> None:
    keyed, commanded = W, replace(W, bias=None)
    t = tables(
        calls=[call(commanded.text, None, 8, category="miopen_cmd")],
        workload=[work(commanded.text, 8)],
        measurements=[
            measurement(keyed.text, "miopen:Slow", 500.0, source_id="log", origin="miopen-chosen"),
            measurement(keyed.text, "miopen:Slow", 500.0),
            measurement(keyed.text, "miopen:Fast", 100.0),
        ],
        facts=[*facts("log", arch="gfx942"), *facts("m", arch="gfx942")],
    )
    [found] = problems(t)
    assert (found.evidence.shown["pick"], found.per_call_us, found.saving_us) == ("miopen:Slow", 400.0, 3200.0)


def test_regret_is_a_distribution() -> None:
    rows = pd.DataFrame({"pick_us": [10.0, 10.5, 30.0], "best_us": [10.0, 10.0, 10.0], "calls": [100.0, 10.0, 1.0]})
    found = regret(rows)
    assert (found["problems"], found["median"], found["largest"]) == (3, pytest.approx(0.05), pytest.approx(2.0))
    assert found["p90"] == pytest.approx(0.05 + 0.8 * 1.95)
    assert found["share_above_10_percent"] == pytest.approx(30.0 / (1000.0 + 105.0 + 30.0))
    assert regret(rows[:0]) == {}


def test_the_number_of_calls_is_the_same_as_in_top(store: Store) -> None:
    """The report of a slow kernel states the same number of calls as ``logparse top``."""
    # Some log lines do not name the kernel that a call used. If exactly one other entry can be the same matrix product,
    # the report and top both count the calls for that entry.
    names = ("hipblaslt/hipblaslt_rank0_4242.log", "hipblaslt/bench_output.txt", "tunableop/tunableop_verbose.log",
             "miopen/find.log", "miopen/miopen_cmd_4242.log", "miopen/gfx942130.HIP.fdb.txt")  # fmt: skip
    ingest([str(SAMPLES / name) for name in names], store, run="run")
    told = top(store, n=1000).set_index("text")
    rows = picks_vs_best(tables_of(store), Settings())
    rows = rows[rows["calls"].notna()]
    assert "bench+tunableop" in set(told["calls_from"])
    assert rows.groupby("problem")["calls"].sum().to_dict() == told.loc[rows["problem"].unique(), "calls"].to_dict()


@pytest.mark.parametrize("best", ["torch:layout=NHWC,stored", "torch:pad=64", "kernel:mine:gemm", "cudnn:eng1_k2=0"])
def test_a_gain_that_no_file_can_express_is_advice(best: str) -> None:
    """If a faster way to compute a product cannot be written into an override file, the user gets advice instead."""
    # For example, no library reads from a file that it should use another layout, padding, a user's own kernel or a
    # plan of cuDNN.
    [found] = problems(make_pick_tables(None, measurement(G, "Default", 50.0), measurement(G, best, 40.0)))
    assert found.override is None
    assert found.advice


def test_the_latest_confirmation_is_used() -> None:
    """If a faster kernel was measured several times, the latest measurement is used, not the most favourable one.

    The most favourable one would overstate the gain. But a measurement by more processes is preferred to a later one by
    fewer processes.
    """
    text = gemm().text
    pairs = {"old": 50.0, "new": 80.0}
    given = tables(
        workload=[work(text, 10)],
        measurements=[
            measurement(text, solution, us, source_id=source, origin="replay-confirm")
            for source, best in pairs.items()
            for solution, us in (("Default", 100.0), ("hipblaslt:1", best))
        ],
    )
    times = given.sources["source_id"].map({"old": 1.0, "new": 2.0})
    aged = replace(given, sources=given.sources.assign(ingested_at=times))
    assert picks_vs_best(aged, Settings())["best_us"].tolist() == [80.0]
    more = [
        *facts("old", confirmation=json.dumps({"blocks": [6, 6]})),
        *facts("new", confirmation=json.dumps({"blocks": [12]})),
    ]
    assert picks_vs_best(replace(aged, facts=frame("facts", more)), Settings())["best_us"].tolist() == [50.0]


def test_channels_last_is_not_proposed_for_unknown_layouts() -> None:
    """If a trace does not state the memory layout of a convolution, channels_last is not proposed for the job.

    The job may already use it.
    """
    vague = replace(W, in_layout=None, weights_layout=None, out_layout=None)
    rows = [
        measurement(W.text, solution, us, source_id="m", origin="replay-confirm")
        for solution, us in (("Default", 800.0), ("torch:layout=NHWC,stored", 200.0))
    ]
    for called, proposed in ((vague, False), (W, True)):
        found = suboptimal_pick.find(tables(measurements=rows, workload=[work(called.text, 5)]), Settings())
        assert any(x.per_call_us for x in found) is proposed
