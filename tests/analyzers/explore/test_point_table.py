"""Tests that the table behind the web page is right: its SQL must compute the same values as simple Python code."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pandas as pd
import pytest

from analyzers.explore import queries
from analyzers.explore.load.analysis import store_points
from analyzers.explore.point_table import build
from analyzers.explore.selection import Selection, facet_text
from logparse.ingest import record
from logparse.lookup.ranking import top
from logparse.model import (
    Call,
    ConvProblem,
    Evidence,
    Fact,
    Finding,
    Gain,
    GemmProblem,
    Kernel,
    Measurement,
    Sureness,
    problem_from_text,
    solution_from_text,
)
from logparse.store import Store
from tests.analyzers.example import B, F, W
from tests.analyzers.explore.frames import points
from tests.conftest import sized

EVERYTHING = ("*",)


def test_label_flops_and_bytes_are_the_models(sampled_points: pd.DataFrame) -> None:
    assert len(sampled_points) > 30
    for row in sampled_points.to_dict("records"):
        problem = problem_from_text(str(row["problem"]))
        assert isinstance(problem, GemmProblem | ConvProblem)
        if not problem.shape:
            continue
        assert row["label"] == problem.label
        assert row["flops"] == problem.flops
        assert row["bytes"] == problem.bytes or (problem.bytes is None and math.isnan(row["bytes"]))


def test_an_empty_column_has_the_type_string() -> None:
    """A column without any value gets the type "string" before DuckDB reads it.

    Otherwise DuckDB 1.5, the newest version for Python 3.10, would take a column of ``None`` as integers.
    """
    given = pd.DataFrame({"file": pd.Series([None, None], dtype=object), "us": [1.0, None], "some": ["a", None]})
    made = queries.copy_for_duckdb(given)
    assert [str(made[name].dtype) for name in given] == ["string", "float64", str(given["some"].dtype)]
    assert given["file"].dtype == object, "what was given stays as it is"


def test_w_stands_beside_its_own_f_and_b(example_points: pd.DataFrame) -> None:
    row = example_points.set_index("problem").loc[W.text]
    assert (row["f_us"], row["b_us"], row["sibling_us"]) == (187.0, 219.0, 219.0)
    assert (row["best"], row["best_us"], row["solutions"], row["failed"]) == ("miopen:GemmWrwUniversal", 5455.0, 2, 1)
    assert row["device"] == "MI300X"


@pytest.mark.parametrize(("names", "times"), [(2, 3), (130, 130), (130, 131)])
def test_each_measured_kernel_is_counted_once(example_views: dict[str, pd.DataFrame], names: int, times: int) -> None:
    """The column ``solutions`` has the number of different kernels that were measured, even if there are many.

    A kernel that was measured several times counts once.
    """
    mine = example_views["measurements"].query("problem == @W.text and status == 'ok'").head(1)
    rows = [mine.assign(solution=f"miopen:S{i % names}", time_us=1000.0 - i % names) for i in range(times)]
    made = points(example_views["conv_problems"], pd.concat(rows, ignore_index=True))
    (row,) = made.to_dict("records")
    assert row["solutions"] == names
    assert (row["best"], row["best_us"]) == (f"miopen:S{names - 1}", 1001.0 - names)


def test_no_saving_is_larger_than_the_time(sampled_points: pd.DataFrame) -> None:
    saving = sampled_points[sampled_points["saving_us"].notna()]
    assert len(saving)
    assert (saving["saving_us"] <= saving["total_us"]).all()


def test_a_problem_without_a_timed_pick_has_no_regret(example_points: pd.DataFrame) -> None:
    with queries.open_points(example_points) as con:
        assert queries.regrets(con, Selection())["problems"].sum() == 0


def test_workload_takes_the_place_of_what_is_only_measured(example_views: dict[str, pd.DataFrame]) -> None:
    v = example_views
    made = points(v["conv_problems"], v["measurements"], workload=v["workload"])
    assert list(made["problem"]) == [W.text]
    assert made["calls"].item() == 3
    assert made["total_us"].item() == 3 * 5455.0


def test_the_saving_is_the_one_that_recommend_computed(example_views: dict[str, pd.DataFrame]) -> None:
    """The table shows the saving that ``logparse recommend`` computed. It does not compute the saving again.

    The results could differ, because a trace and a log may have different numbers of calls.
    """
    v = example_views
    finding = Finding(
        analyzer="x", message="slow", problem=W, per_call=Gain(300.0, 200.0), in_run=Gain(600.0, 400.0), calls=2
    )
    made = points(v["conv_problems"], v["measurements"], workload=v["workload"], findings=[finding])
    assert (made["calls"].item(), made["loss_us"].item(), made["saving_us"].item()) == (3, 100.0, 200.0)


@pytest.mark.parametrize("sureness", ["measured alone", "estimated"])
def test_a_difference_of_two_measured_times_is_labelled_measured(
    example_views: dict[str, pd.DataFrame], sureness: Sureness
) -> None:
    """A saving that is the difference of two measured times is labelled "measured"."""
    # This is so even if no log names the kernel that ran. For example, MIOpen measured a faster solver for the user
    # than the one in the file that it ships.
    v, evidence = example_views, Evidence(sureness=sureness)
    finding = Finding(
        analyzer="x",
        message="slow",
        problem=W,
        per_call=Gain(5.0, 2.0),
        in_run=Gain(15.0, 6.0),
        calls=3,
        evidence=evidence,
    )
    made = points(v["conv_problems"], v["measurements"], workload=v["workload"], findings=[finding])
    assert made["saving_from"].item() == ("measured" if sureness == "measured alone" else "estimated")


def test_empty_in_empty_out(example_views: dict[str, pd.DataFrame]) -> None:
    made = points(example_views["conv_problems"].head(0), example_views["empty"])
    assert len(made) == 0
    assert {"id", "label", "time_us", "regret", "other_us"} <= set(made.columns)


def test_input_is_left_alone(example_views: dict[str, pd.DataFrame]) -> None:
    problems, measurements = example_views["conv_problems"], example_views["measurements"]
    before = problems.copy(), measurements.copy()
    points(problems, measurements)
    pd.testing.assert_frame_equal(problems, before[0])
    pd.testing.assert_frame_equal(measurements, before[1])


def test_sample_keeps_the_costliest_and_states_what_it_left_out(example_points: pd.DataFrame) -> None:
    with queries.open_points(example_points) as con:
        drawn = queries.sample(con, Selection(), EVERYTHING, size=2)
        assert drawn.rows["problem"].iloc[0] == W.text
        assert (len(drawn.rows), drawn.total) == (2, 3)
        assert drawn.note.startswith("2 of 3 problems drawn")
        assert not queries.sample(con, Selection(), EVERYTHING, size=3).note


@pytest.mark.parametrize(
    ("name", "rule", "left"),
    [
        ("label", {"type": "contains", "filter": "w 64"}, 1),
        ("label", {"type": "notContains", "filter": "w 64"}, 2),
        ("time_us", {"type": "greaterThan", "filter": 200}, 2),
        ("time_us", {"type": "inRange", "filter": 180, "filterTo": 190}, 1),
        ("total_us", {"type": "lessThan", "filter": 1}, 2),
        ("pick", {"type": "blank"}, 3),
        ("best", {"type": "notBlank"}, 3),
        ("best", {"operator": "OR", "conditions": [{"type": "contains", "filter": "universal"}]}, 3),
        ("no such column; drop table points", {"type": "contains", "filter": "x"}, 3),
        ("time_us", {"type": "'; drop table points", "filter": 1}, 3),
    ],
)
def test_grid_filters(example_points: pd.DataFrame, name: str, rule: dict[str, object], left: int) -> None:
    with queries.open_points(example_points) as con:
        frame, count = queries.table(con, Selection(), filters={name: rule})
    assert (len(frame), count) == (left, left)


def test_grid_sorts_by_known_columns_only(example_points: pd.DataFrame) -> None:
    with queries.open_points(example_points) as con:
        first, _ = queries.table(con, Selection(), sort=[{"colId": "time_us", "sort": "asc"}])
        same, _ = queries.table(con, Selection(), sort=[{"colId": "1; drop table points", "sort": "asc"}])
    assert list(first["time_us"]) == [187.0, 219.0, 5455.0]
    assert same["label"].iloc[0] == W.label


def test_a_search_finds_what_the_texts_hold(example_points: pd.DataFrame) -> None:
    with queries.open_points(example_points) as con:
        for text in ("w 64×", "GEMM", ".*", "(\\"):
            words = example_points[["label", "best", "problem"]].agg("\n".join, axis=1).str.lower()
            held = set(example_points["id"][words.str.contains(text.lower(), regex=False)])
            rows, count = queries.table(con, Selection(search=text))
            assert (set(rows["id"]), count) == (held, len(held)), text
            assert queries.totals(con, Selection(search=text))["problems"] == len(held)
            backward = held & set(example_points["id"][example_points["direction"] == "W"])
            searched = Selection(search=text, values={"direction": ("W",)})
            assert queries.totals(con, searched)["problems"] == queries.table(con, searched)[1] == len(backward)
            groups = queries.groups(con, searched)
            assert groups.loc[groups["facet"] == "direction", "problems"].sum() == len(held), "its own choice is open"


def test_estimates_are_not_added_to_what_was_measured(example_points: pd.DataFrame) -> None:
    made = example_points.assign(saving_us=[10.0, 20.0, 400.0], saving_from=["measured", "measured", "estimated"])
    with queries.open_points(made) as con:
        shown, total = queries.find_largest_savings(con, Selection()), queries.totals(con, Selection())
    assert list(shown["saving_us"]) == [20.0, 10.0]
    assert set(shown["total_saving_us"]) == {30.0}
    assert total["saving_us"] == 30.0
    with queries.open_points(made.assign(saving_from="estimated")) as con:
        shown = queries.find_largest_savings(con, Selection())
    assert not len(shown), "an estimate is no override row, so there is no curve of rows"


def test_facets_leave_their_own_choice_open(example_points: pd.DataFrame) -> None:
    with queries.open_points(example_points) as con:
        groups = queries.groups(con, Selection().toggled("direction", "W"))
    directions = groups[groups["facet"] == "direction"]
    assert set(directions["value"]) == {F.direction, B.direction, W.direction}
    assert groups.loc[groups["facet"] == "dtype", "problems"].tolist() == [1]


def test_store_and_frames_give_one_table(sampled: Store) -> None:
    with sampled.connect() as con:
        build(con, sampled.latest_run())
        one = con.execute("select * exclude (file, passes_from) from points order by id").df()
    other = points(
        [sampled.gemm_problems(), sampled.conv_problems()],
        sampled.measurements(),
        workload=sampled.workload(),
        calls=sampled.calls(),
        links=sampled.links(),
        facts=sampled.facts(),
    )
    other = other.sort_values("id", ignore_index=True).drop(columns=["file", "passes_from"])
    pd.testing.assert_frame_equal(one, other, check_dtype=False)


def test_two_descriptions_of_one_product_are_one_row(sampled: Store, sampled_points: pd.DataFrame) -> None:
    """If two logs describe one matrix product in two ways, the table has one row for it, as in ``logparse top``.

    Here one log names the kernel, and the other one has the number of calls.
    """
    called = sampled_points[sampled_points["calls_from"] != "–"]
    ranked = top(sampled, n=10_000)
    ranked = ranked[ranked["calls_from"].notna()]
    assert set(called["problem"]) == set(ranked["text"])
    assert called["calls"].sum() == ranked["calls"].sum()
    assert len(called) < len(sampled.frames(sampled.latest_run())["workload"]["problem"].unique())


def store_records(store: Store, run: str, *records: object, **facts: str) -> None:
    known = [Fact(name, value) for name, value in facts.items()]
    record(store, [*records, *known], run=run, name=f"{run}.csv", format="table")  # type: ignore[list-item]


def make_time(problem: ConvProblem, solution: str, us: float) -> Measurement:
    return Measurement(problem=problem, solution=solution_from_text(solution), origin="replay-confirm", time_us=us)


def make_traced_calls(problem: ConvProblem, us: float, calls: int) -> list[object]:
    times = {"total_us": us * calls, "min_us": us, "max_us": us}
    kernel = Kernel(op="aten::convolution", problem=problem, kernel="k", calls=calls, device=0, **times)
    return [Call(problem=problem, category="profiler", count=calls), kernel]


def test_the_present_time_comes_from_the_run_itself(store: Store) -> None:
    """How long a call takes now is read from the same run. Another run can only show that a kernel is faster.

    If it does, the column ``file`` names the other run.
    """
    store_records(
        store,
        "a",
        make_time(W, "Default", 300.0),
        make_time(W, "torch:benchmark", 150.0),
        arch="gfx942",
        cu_count="304",
    )
    store_records(store, "b", *make_traced_calls(W, 822.0, 5), arch="gfx942", cu_count="304")
    [row] = store_points(store, "b").to_dict("records")
    assert (row["time_us"], row["own"], row["pick_us"], row["best_us"]) == (822.0, True, 300.0, 150.0)
    assert (row["saving_us"], row["total_us"]) == (5 * 411.0, 5 * 822.0)
    assert row["file"] == "a.csv (run a)"
    [row] = store_points(store, "a").to_dict("records")
    assert (row["time_us"], row["own"], row["file"]) == (300.0, True, "a.csv")
    store_records(store, "c", Call(problem=W, category="bench", count=5), arch="gfx942", cu_count="304")
    [row] = store_points(store, "c").to_dict("records")
    assert (row["time_us"], row["own"], row["file"]) == (300.0, False, "a.csv (run a)")


def test_a_time_from_the_trace_is_used_for_all_calls(store: Store) -> None:
    """If a trace has the time of some calls of a product, this time is used for all its calls."""
    # Here the trace has two calls of 800 µs, and the log of another process has five calls. So the total is 7 · 800 µs.
    store_records(store, "a", Call(problem=W, category="bench", count=5, pid=7), *make_traced_calls(W, 800.0, 2))
    [row] = store_points(store, "a").to_dict("records")
    assert (row["calls"], row["time_us"], row["total_us"]) == (7, 800.0, 7 * 800.0)


def test_a_problem_of_a_trace_has_one_time(store: Store) -> None:
    """The time now is the mean of the trace on every view. The trace's median is no other time, and no better one."""
    rows: list[object] = [
        row
        for problem, mean, median in ((W, 45.7, 48.4), (F, 40.0, 38.0), (B, 30.0, 31.0))
        for row in (
            *make_traced_calls(problem, mean, 4),
            Measurement(problem=problem, solution=solution_from_text("kernel:k"), origin="trace", time_us=median),
        )
    ]
    for best_us in 45.7, 20.0:
        store_records(store, "a", *rows)
        [row] = store_points(store, "a").query("direction == 'W'").to_dict("records")
        assert (row["time_us"], row["w_us"], row["f_us"], row["b_us"]) == pytest.approx((45.7, 45.7, 40.0, 30.0))
        assert (row["best_us"], row["then_us"]) == pytest.approx((best_us, best_us))
        assert (row["w_solution"], row["passes_from"]) == ("kernel:k", "the trace")
        # A find-db of the same run does not take the place of the traced times.
        rows += [replace(make_time(x, "miopen:A", 20.0), origin="find-db") for x in (W, F, B)]


def test_calls_and_sums_are_of_a_step_where_traces_alone_count_and_mark_them(store: Store) -> None:
    store_records(store, "a", *make_traced_calls(W, 800.0, 6), profiler_steps="3")
    store_records(
        store,
        "b",
        *make_traced_calls(W, 800.0, 6),
        Call(problem=W, category="bench", count=5, pid=7),
        profiler_steps="3",
    )
    [row] = store_points(store, "a").to_dict("records")
    assert (row["calls"], row["time_us"], row["total_us"], row["unit"]) == (2, 800.0, 1600.0, "step")
    [row] = store_points(store, "b").to_dict("records")
    assert (row["calls"], row["total_us"], row["unit"]) == (11, 11 * 800.0, "run"), "the log counts the whole job"
    store_records(store, "c", *make_traced_calls(W, 800.0, 6), profiler_steps="3", unit="time")
    assert store_points(store, "c")["unit"].tolist() == ["window"]


def test_traced_calls_are_scaled_to_the_whole_run(store: Store) -> None:
    """The number of calls in a trace is scaled up to the whole run, because only a few steps are traced."""
    # The run has 40 steps, and four of them were traced. So six traced calls count as 6 · 40 / 4 = 60. A log of the run
    # does not list these calls, so the trace is the only source. logparse recommend uses the same number.
    unit = {"unit": "module", "unit:16": json.dumps({"count": 40, "traced": 4, "us": []})}
    logged = Call(problem=F, category="bench", count=5, pid=7)
    store_records(store, "r", *make_traced_calls(W, 800.0, 6), logged, unit_kinds=json.dumps({"16": 4}), **unit)
    made = store_points(store).set_index("problem")
    assert made["calls"].to_dict() == {W.text: 60, F.text: 5}
    assert made.loc[W.text, "total_us"] == 60 * 800
    assert set(made["unit"]) == {"run"}


def test_a_faster_run_of_the_pick_is_no_better_solution(store: Store) -> None:
    for run, us in (("before", 100.0), ("after", 150.0)):
        rows = [replace(make_time(W, x, t), origin="table") for x, t in (("Default", us), ("miopen:A", 200.0))]
        store_records(store, run, Call(problem=W, category="table", count=1), *rows, arch="gfx942", cu_count="304")
    [row] = store_points(store, "after").to_dict("records")
    assert (row["time_us"], row["best_us"], row["saving_us"], row["regret"]) == (150.0, 150.0, 0.0, 0.0)


def test_an_unknown_layout_is_named_with_its_reason(store: Store) -> None:
    open_ = replace(W, in_layout=None, weights_layout=None, out_layout=None)
    store_records(store, "a", *make_traced_calls(open_, 800.0, 2))
    [row] = store_points(store, "a").to_dict("records")
    assert facet_text("layout", row["layout"]) == facet_text("layout", "??") == facet_text("dtype", "?") == "unknown"


def test_times_come_from_the_same_gpu_model(store: Store) -> None:
    """A run is shown only with times that were measured on the same GPU model.

    The store (Parquet folder) has MIOpen's solver times for three GPUs, which differ.
    """
    times = {"gfx942": 100.0, "gfx90a": 400.0, "gfx1030": 900.0}
    for arch, us in times.items():
        store_records(store, arch, make_time(W, "Default", us), make_time(W, "miopen:A", us / 2), arch=arch)
    for arch, us in list(times.items())[: sized(1, 3)]:
        [row] = store_points(store, arch).to_dict("records")
        assert (row["time_us"], row["best_us"], row["file"]) == (us, us / 2, f"{arch}.csv")
    store_records(store, "job", Call(problem=W, category="bench", count=2), arch="gfx90a")
    [row] = store_points(store, "job").to_dict("records")
    assert (row["time_us"], row["best_us"], row["saving_us"]) == (400.0, 200.0, 400.0)
    store_records(store, "elsewhere", Call(problem=W, category="bench", count=2), arch="gfx1100")
    [row] = store_points(store, "elsewhere").to_dict("records")
    assert math.isnan(row["time_us"])


def test_files_of_one_run_keep_their_own_times(store: Store) -> None:
    for arch, us in (("gfx942", 100.0), ("gfx90a", 400.0)):
        known = [Fact("arch", arch), make_time(W, "Default", us), make_time(W, "miopen:A", us / 2)]
        record(store, known, run="both", name=f"{arch}.csv", format="table")
    made = store_points(store).sort_values("time_us")
    assert made["time_us"].tolist() == [100.0, 400.0]
    assert made["best_us"].tolist() == [50.0, 200.0]
    assert made["saving_us"].sum() <= 250.0


def test_top_mixes_no_devices(store: Store) -> None:
    times = {"gfx942": 100.0, "gfx90a": 400.0, "gfx1030": 900.0}
    for arch, us in times.items():
        store_records(store, arch, make_time(W, "Default", us), make_time(W, "miopen:A", us / 2), arch=arch)
    for arch, us in times.items():
        [row] = top(store, run=arch).to_dict("records")
        assert (row["pick_us"], row["best_us"]) == (us, us / 2)
    store_records(store, "job", Call(problem=W, category="bench", count=2), arch="gfx90a")
    [row] = top(store, run="job").to_dict("records")
    assert (row["pick_us"], row["best_us"], row["total_us"]) == (400.0, 200.0, 800.0)
    store_records(store, "other", Call(problem=W, category="bench", count=2), arch="gfx1100")
    assert math.isnan(top(store, run="other")["best_us"].item())
    # One run of several devices: all times of a row are of the same device.
    for arch, us in times.items():
        known = [Fact("arch", arch), make_time(W, "Default", us), make_time(W, "miopen:A", us / 2)]
        record(store, known, run="all", name=f"{arch}.csv", format="table")
    [row] = top(store, run="all").to_dict("records")
    assert row["pick_us"] == 2 * row["best_us"]


def test_a_time_is_a_lower_bound_if_no_log_names_the_solver(store: Store) -> None:
    """The best time of a find-db is shown as at least that long, unless a log names the solver of the call."""
    named, unnamed = replace(W, k=512), W
    called = Call(problem=named, category="miopen", solution=solution_from_text("miopen:GemmWrwUniversal"))
    times = [make_time(x, "miopen:GemmWrwUniversal", 500.0) for x in (named, unnamed)]
    store_records(store, "r", called, Call(problem=unnamed, category="miopen"), *times)
    rows = store_points(store, "r").set_index("problem")
    assert rows["time_us"].tolist() == [500.0, 500.0]
    assert bool(rows.at[unnamed.text, "at_least"])
    assert not bool(rows.at[named.text, "at_least"])


def test_an_order_by_savings_of_zero_is_not_claimed(example_points: pd.DataFrame) -> None:
    """If no problem has a saving, the table is sorted by time, and says so."""
    with queries.open_points(example_points.assign(saving_us=0.0)) as con:
        empty = queries.empty_columns(con) | queries.find_zero_columns(con)
    assert queries.order_of("overview", compared=False, empty=empty).first == "the most time"
    with queries.open_points(example_points.assign(saving_us=1.0)) as con:
        assert "saving_us" not in queries.find_zero_columns(con)
