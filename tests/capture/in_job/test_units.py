"""Tests of how logparse finds a job's steps, and of when it traces some of them. The tests need no PyTorch."""

from __future__ import annotations

from itertools import cycle, islice

import pytest

from logparse.capture.in_job.logparse_in_job.units import ORDER, Leader, Series, unit_of
from logparse.capture.in_job.logparse_in_job.windows import Ranks, Window, Windows


def series_of(count: int, us: float = 1.0, name: str = "a") -> Series:
    series = Series()
    for _ in range(count):
        series.add_time(series.add(name), us)
    return series


def test_each_kind_of_step_settles_by_itself() -> None:
    """logparse decides for each kind of step separately if its times have become steady.

    A kind of step is, for example, a batch size.
    """
    # In an earlier version, a server with several batch sizes got no trace in 84 requests, because the times of
    # different sizes differ.
    series = series_of(35, 1.0, "1")
    for _ in range(25):
        series.add_time(series.add("16"), 16.0)
    assert series.ready() == "settled"


def test_tracing_begins_at_the_latest_after_some_units() -> None:
    series = Series()
    for number in range(200):
        assert series.ready() == ""
        series.add_time(series.add("a"), float(1 + number))  # each unit takes longer than the one before
    assert series.ready().startswith("not settled after 200 units")


@pytest.mark.parametrize(
    ("counts", "unit"),
    [
        ({}, None),
        ({"module": 1}, "module"),
        ({"module": 80, "optimizer": 5}, "module"),
        ({"module": 80, "optimizer": 6}, "optimizer"),
        ({"module": 3, "graph": 6}, "graph"),
        ({"forward": 40, "optimizer": 1}, "optimizer"),
        ({"forward": 400, "optimizer": 1}, "forward"),
        ({"forward": 5}, None),
        ({"forward": 6}, "forward"),
        ({"named": 1, "optimizer": 1}, "named"),
    ],
)
def test_the_unit_is_the_first_sort_that_the_job_repeats(counts: dict[str, int], unit: str | None) -> None:
    assert unit_of({sort: series_of(count) for sort, count in counts.items()}) == unit


@pytest.mark.parametrize(
    ("comes", "unit"),
    [
        ("o" * 11 + "g" * 49, "optimizer"),
        ("o" * 11 + "g" * 50, "graph"),  # a whole step in a graph, after 11 steps to warm up
        ("o" * 11 + "g" * 50 + "e" * 11 + "g", "graph"),  # an evaluation between
        ("o" * 11 + ("g" * 50 + "o") * 40, "optimizer"),  # a rollout in a graph before each step
        (("gh" * 64 + "o") * 40, "optimizer"),  # two graphs in turns
        ("n" * 6 + "g" * 300, "named"),
        ("o" * 3 + ("g" * 48 + "o") * 40, "optimizer"),  # 48 layers, each with a graph of its own
        ("o" * 11 + "g" * 5 + "o" + "g" * 50, "graph"),
        ("o" * 11 + "g" * 6 + "o" + "g" * 50, "optimizer"),
    ],
)
def test_replays_of_a_graph_lead_if_nothing_else_comes_any_more(comes: str, unit: str) -> None:
    sorts = {"o": "optimizer", "g": "graph", "h": "graph", "e": "module", "n": "named"}
    series = {sorts[one]: Series() for one in comes}
    steps = series.get("optimizer", Series())
    for one in comes:
        if sorts[one] == "graph":
            others = sum(x.count for x in series.values()) - series["graph"].count
            series["graph"].repeated_alone(one, others, steps.count)
        series[sorts[one]].add(one)
    assert unit_of(series) == unit


@pytest.mark.parametrize(
    ("comes", "units", "phases"),
    [
        ("a" * 20, 20, 1),
        ("aaaaab" * 50, 250, 1),  # a discriminator and a generator
        ("baaaaa" * 50, 50, 1),
        ("abcdefgh" * 50, 50, 1),  # an optimizer for each parameter
        ("a" * 30 + "ab" * 50, 80, 1),  # a generator, with a discriminator later on
        ("abbbaabbbbbbab" * 20, 80, 1),  # now the one, now the other
        ("a" * 12 + "b" * 40, 52, 2),  # a second phase
        ("a" * 200 + "b" * 6, 206, 2),
        ("a" * 200 + "b" * 2, 200, 1),
        ("a" * 9 + "b" * 9, 9, 1),
        ("aaaaab" * 50 + "c" * 6, 256, 2),
        ("baaaaa" * 50 + "c" * 12, 62, 2),
        ("a" * 50 + "b" * 50 + "c" * 5, 105, 3),
        (("a" * 50 + "b" * 50) * 5, 500, 2),  # now the one, now the other, 50 steps each
        (("a" * 100 + "b" * 5) * 5, 505, 2),  # the other one makes five steps from time to time
    ],
)
def test_one_of_several_leads(comes: str, units: int, phases: int) -> None:
    leader = Leader()
    assert sum(leader.comes(ord(x)) for x in comes) == units
    assert leader.phases == phases - 1


def test_what_is_gone_leads_no_more() -> None:
    leader = Leader()
    leader.comes(1)
    leader.gone(1)
    assert leader.comes(2) == 1


@pytest.mark.parametrize(
    ("steps", "work", "phases"), [(200, "encoder", 1), (200, "head", 2), (5, "head", 1), (200, None, 1)]
)
def test_one_made_anew_begins_a_phase_if_it_does_other_work(steps: int, work: object, phases: int) -> None:
    leader = Leader()
    leader.follow(1, "encoder")
    assert sum(leader.comes(1) for _ in range(steps)) == steps
    leader.gone(1)
    leader.follow(2, work)
    assert leader.comes(2) == 1
    assert leader.phases == phases - 1


def test_optimizers_of_an_inner_loop_do_not_lead() -> None:
    """The outer optimizer's steps are the job's units, although five steps of a new optimizer come before each, as in
    meta-learning."""
    leader = Leader()
    units = 0
    for number in range(1, 100):
        units += leader.comes(0)
        assert sum(leader.comes(number) for _ in range(5)) == 0
        leader.gone(number)
    assert (units, leader.phases, leader.begun) == (99, 0, 0)


@pytest.mark.parametrize(
    ("comes", "begun"),
    [
        ("a" * 200, 0),
        ("a" * 200 + "b", 1),
        ("a" * 200 + "bb", 2),
        ("aaaaab" * 50, 0),
        ("baaaaa" * 50, 0),
        ("abcdef", 0),
    ],
)
def test_steps_of_another_one_at_the_end_are_told(comes: str, begun: int) -> None:
    leader = Leader()
    for each in comes:
        leader.comes(ord(each))
    assert leader.begun == begun
    leader.gone(ord(comes[-1]))
    assert leader.begun == begun
    if begun:
        leader.comes(ord("a"))
        assert leader.begun == 0


def windows_of(units: int, plan: Windows) -> list[tuple[int, int]]:
    """Return at which steps of a job of ``units`` steps logparse would trace.

    The result has a pair for each trace: (number of the trace, number of the step before its beginning).
    """
    # The next trace begins after the end of the last one.
    series, out, ends = Series(), [], 0
    for number in range(1, units + 1):
        series.add_time(series.add("a"), 5e4)
        if number < ends:
            continue
        if ends and number == ends and out[-1][0]:
            plan.written(series)
        window = plan.next(series, Ranks())
        if window is not None:
            out.append((window.number, number))
            ends = number + window.warm_up + window.units
            for kind in series.kinds.values():
                kind.traced += window.units
    return out


def test_a_job_of_two_units_has_a_window() -> None:
    assert Windows(2).next(series_of(1), Ranks()) == Window(0, 0, 1, provisional=True)
    assert windows_of(4, Windows(2)) == [(0, 1)]


def test_settled_windows_follow_further_and_further_apart() -> None:
    assert windows_of(200, Windows(2)) == [(0, 1), (1, 20), (2, 29), (3, 44)]
    assert windows_of(200, Windows(0)) == [], "units are only timed"


def test_a_known_number_of_units_places_the_window() -> None:
    plan = Windows(2, expected=12)
    assert windows_of(12, plan) == [(0, 1), (1, 6)]
    assert plan.ready == "not settled after 6 of 12 units", "which an earlier run has counted"


def test_a_window_that_does_not_end_is_not_called_settled() -> None:
    """If the job ends within the first window of settled steps, only the trace of an early step is left."""
    plan, series = Windows(2), series_of(1)
    plan.next(series, Ranks())
    while plan.next(series, Ranks()) is None:
        series.add("a", 1)
        series.add_time(series.kind("a"), 100.0)
    assert plan.ready == "not settled: unit 2 alone was traced"
    plan.written(series)
    assert plan.ready == "settled"


def test_windows_that_are_given_up_come_again_but_not_for_ever() -> None:
    plan, series = Windows(2), series_of(1)
    for _ in range(20):
        window = plan.next(series, Ranks())
        assert window is not None
        plan.given_up(window, series)
    plan.given_up(window, series)
    assert plan.next(series, Ranks()) is None


def test_a_second_phase_is_traced_too() -> None:
    """It has windows of its own, even if it is short or rare."""
    plan, series = Windows(2), series_of(1000)
    windows_of(200, plan)
    assert plan.next(series, Ranks()) is None
    for name, first in (("b", 4), ("c", 8)):
        series.add(name, 3)
        plan.go_on(series.count, 3)
        began, found = series.count, []
        for _ in range(400):
            window = plan.next(series, Ranks())
            if window is not None:
                found.append((window.number, series.count - began + 3, window.provisional))
                series.kind(name).traced += 1
                if not window.provisional:
                    plan.written(series)
            series.add(name)
        assert found == [(first, 3, True), (first + 1, 10, False), (first + 2, 16, False), (first + 3, 28, False)]


def test_a_phase_before_the_first_settled_window_does_not_hasten_it() -> None:
    plan = Windows(2)
    assert windows_of(12, plan) == [(0, 1)]
    plan.go_on(12, 10)
    window = plan.next(series_of(12), Ranks())
    assert window == Window(1, 0, 1, provisional=True)
    assert plan.next(series_of(13), Ranks()) is None


def test_phases_with_windows_have_a_bound() -> None:
    plan, traced = Windows(2), 0
    for phase in range(100):
        plan.go_on(100 * phase, 10)
        while plan.next(series_of(100 * phase + 99), Ranks()) is not None and traced < 1000:
            traced += 1
    assert traced < 50
    plan = Windows(0)
    plan.go_on(100, 10)
    assert plan.over, "units are only timed"


class Store(dict[str, bytes]):
    def set(self, name: str, text: str) -> None:
        self[name] = text.encode()

    def get(self, name: str, default: object = None) -> bytes:  # type: ignore[override]
        return self[name]

    def check(self, names: list[str]) -> bool:
        return all(x in self for x in names)


def test_all_ranks_trace_the_same_steps() -> None:
    """All ranks of a job trace the same steps, even if the host of one rank is some steps ahead."""
    # In an earlier version, a rank that was four steps ahead traced later steps than its neighbour, and then waited for
    # the neighbour's profiler.
    store = Store()

    def begins(rank: int, count: int) -> list[tuple[int, int]]:
        plan, series, found = Windows(2), series_of(count, 5e4), []
        plan.next(series_of(1), Ranks(store, rank))
        while len(found) < 2 and series.count < 200:
            window = plan.next(series, Ranks(store, rank))
            if window is not None:
                found.append((series.count, window.number))
                plan.written(series_of(series.count + 3))
            series.add("a")
        return found

    first = begins(0, 60)
    assert first == [(73, 1), (82, 2)]
    assert begins(1, 63) == begins(2, 73) == first
    assert begins(3, 74) == [(82, 2), (97, 3)], "one that learns too late joins in the second window"


def test_ranks_meet_even_if_one_of_them_traced_other_steps_before() -> None:
    """Rank 0 alone evaluates its model before it trains. Then all ranks trace the same optimizer steps."""
    store, found = Store(), []
    for rank in (0, 1):
        plan = Windows(2)
        if rank == 0:
            for count in range(1, 80):
                plan.next(series_of(count), Ranks(store, rank, "module"))
            assert plan.begin_at, "its calls were announced"
            plan.begin_anew()
        steps = [(count, plan.next(series_of(count), Ranks(store, rank, "optimizer"))) for count in range(1, 80)]
        found.append([count for count, window in steps if window is not None and not window.provisional])
    assert found[0]
    assert found[0] == found[1]


def test_windows_of_time_that_the_user_asked_for_are_kept() -> None:
    pytest.importorskip("torch")
    from logparse.capture.in_job.logparse_in_job.record import Record
    from logparse.capture.in_job.logparse_in_job.tracing import Tracing
    from logparse.capture.in_job.logparse_in_job.windows import BY_TIME

    tracing = Tracing(Record("nowhere", alone=False), {x: series_of(30) for x in ORDER}, 2, 2.0, 0, lambda: None)
    tracing._sort, tracing.written, tracing.several_threads = BY_TIME, [1, 2], True
    assert tracing.begin_call("request") is None
    tracing.unit_ended("optimizer", "a")
    assert tracing.written == [1, 2]


def test_all_ranks_trace_the_same_steps_of_a_second_phase() -> None:
    """The ranks need no announcement, because a phase begins at the same step on all of them."""
    store = Store()
    found = []
    for rank in (1, 0):
        plan = Windows(2)
        windows_of(200, plan)
        plan.go_on(203, 3)
        windows = [(count, plan.next(series_of(count), Ranks(store, rank))) for count in range(203, 220)]
        found.append([(count, window.number) for count, window in windows if window is not None])
    assert found[0] == found[1]
    assert found[0][:2] == [(203, 4), (210, 5)]
    assert not store


def test_kinds_have_a_bound() -> None:
    series = Series()
    for number, _ in enumerate(islice(cycle("a"), 100)):
        series.add(str(number))
    assert len(series.kinds) == 65
    assert series.kinds["other"].count == 36
