"""Tests of how logparse finds a job's steps, and of when it traces some of them. The tests need no PyTorch."""

from __future__ import annotations

from itertools import cycle, islice

import pytest

from logparse.capture.in_job.logparse_in_job.units import Leader, Series, unit_of
from logparse.capture.in_job.logparse_in_job.windows import MOST, Ranks, Window, Windows


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
    ("comes", "units"),
    [
        ("a" * 20, 20),
        ("aaaaab" * 10, 50),  # a discriminator and a generator
        ("baaaaa" * 10, 10),
        ("abcdefgh" * 10, 10),  # an optimizer for each parameter
        ("a" * 12 + "b" * 40, 52),  # a second phase
    ],
)
def test_one_of_several_leads(comes: str, units: int) -> None:
    leader = Leader()
    assert sum(leader.comes(ord(x)) for x in comes) == units


def test_what_is_gone_leads_no_more() -> None:
    leader = Leader()
    leader.comes(1)
    leader.gone(1)
    assert leader.comes(2) == 1


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
    assert Windows(2).next(series_of(1), Ranks()) == Window(0, 0, 1)
    assert windows_of(4, Windows(2)) == [(0, 1)]


def test_settled_windows_follow_further_and_further_apart() -> None:
    assert windows_of(200, Windows(2)) == [(0, 1), (1, 20), (2, 29), (3, 44)]
    assert windows_of(200, Windows(0)) == [], "units are only timed"


def test_a_known_number_of_units_places_the_window() -> None:
    plan = Windows(2, expected=12)
    assert windows_of(12, plan) == [(0, 1), (1, 6)]
    assert plan.ready == "not settled after 6 of 12 units", "which an earlier run has counted"


def test_windows_that_are_given_up_come_again_but_not_for_ever() -> None:
    plan, series = Windows(2), series_of(1)
    for _ in range(20):
        assert plan.next(series, Ranks()) is not None
        plan.given_up(0, series)
    plan.given_up(0, series)
    assert plan.next(series, Ranks()) is None


def test_a_second_phase_is_traced_too() -> None:
    plan = Windows(2)
    windows_of(200, plan)
    assert plan.next(series_of(300), Ranks()) is None
    plan.go_on()
    assert plan.done < MOST
    assert plan.next(series_of(300, name="b"), Ranks()) is not None


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
        plan.provisional = True
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


def test_kinds_have_a_bound() -> None:
    series = Series()
    for number, _ in enumerate(islice(cycle("a"), 100)):
        series.add(str(number))
    assert len(series.kinds) == 65
    assert series.kinds["other"].count == 36
