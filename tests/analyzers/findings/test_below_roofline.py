from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from analyzers.evidence.joins import DEFAULT_TEXT
from analyzers.evidence.tables import Settings, Tables
from analyzers.findings import below_roofline, slower_than_comparable
from analyzers.job.efficiency import LEAST_US
from analyzers.recommend.ranking import recommend, to_search
from analyzers.replay.plan import PRIOR_REGRET, plan
from logparse.model import ConvProblem, Finding, GemmProblem, problem_from_text
from logparse.roofline import roofline_us
from tests.analyzers.build import MI300X, facts, measurement, tables, trace_rows, work
from tests.analyzers.example import W, gemm

LARGE: list[GemmProblem | ConvProblem] = [replace(gemm(1), m=4096, n=4096 + 256 * i, k=4096) for i in range(6)]


def least(problem: GemmProblem | ConvProblem) -> float:
    us = roofline_us(problem, MI300X)
    assert us is not None
    return us


def make_trace_tables(
    times: list[tuple[GemmProblem | ConvProblem, float]], calls: int = 4, source: str = "trace"
) -> Tables:
    """Return the tables of a trace in which each given matrix product or convolution was called ``calls`` times.

    ``times`` has the time of one call in µs.
    """
    return tables(**trace_rows(*times, calls=calls, source=source))


def planted() -> Tables:
    """Return a trace of six matrix products of similar sizes.

    Five reach 80 % of the GPU's roofline, one reaches only 10 %.
    """
    return make_trace_tables([(p, least(p) / (0.1 if i == 0 else 0.8)) for i, p in enumerate(LARGE)])


def find_all(t: Tables) -> list[Finding]:
    return list(below_roofline.find(t, Settings()))


def test_held_against_comparable_problems() -> None:
    [one] = find_all(planted())
    assert one.problem == problem_from_text(LARGE[0].text)
    now, within = least(LARGE[0]) / 0.1, least(LARGE[0]) / 0.8
    assert one.per_call_us == pytest.approx(now - within)
    assert (one.calls, one.saving_us) == (4, pytest.approx(4 * (now - within)))
    assert "5 comparable problems" in one.message
    assert "10.0% of the roofline" in one.message
    assert "5 comparable problems of the trace reach 80%" in one.message


def test_the_number_of_calls_comes_from_the_log() -> None:
    """The number of calls that is stated with a slow call comes from the job's log, not from the trace.

    ``logparse capture --trace`` traces only a few steps, but the log has the calls of all steps.
    """
    whole = [work(p.text, 20, calls_from="bench") for p in LARGE]
    [one] = find_all(replace(planted(), workload=tables(workload=whole).workload))
    assert one.per_call_us is not None
    assert (one.calls, one.saving_us) == (20, pytest.approx(20 * one.per_call_us))


def test_what_all_reach_is_no_finding() -> None:
    assert find_all(make_trace_tables([(p, least(p) / 0.2) for p in LARGE])) == []


@pytest.mark.parametrize(("efficiency", "count"), [(0.24, 1), (0.26, 0)])
def test_alone_it_is_held_against_the_roofline(efficiency: float, count: int) -> None:
    found_ = find_all(make_trace_tables([(LARGE[0], least(LARGE[0]) / efficiency)]))
    assert len(found_) == count
    assert all("fewer than 4 comparable problems" in x.message for x in found_)


def test_small_problems_are_never_expected_below_a_launch() -> None:
    small = replace(gemm(1), m=64, n=64, k=64)
    assert find_all(make_trace_tables([(small, 15.0)])) == []
    [one] = find_all(make_trace_tables([(small, 20.0)]))
    assert one.per_call_us == 20.0 - LEAST_US


def test_an_unknown_device_has_no_roofline() -> None:
    unknown = replace(planted(), facts=tables(facts=facts("trace", device="Abacus")).facts)
    assert find_all(unknown) == []


def test_convolutions_compare_within_their_direction() -> None:
    unknown = replace(W, mode="transposed")  # no measured times of such a convolution are shipped
    [one] = find_all(make_trace_tables([(unknown, 40 * least(unknown)), *((p, least(p)) for p in LARGE)]))
    assert one.problem is not None
    assert one.problem.text == unknown.text
    assert "fewer than" in one.message


def test_calls_with_comparable_times_are_left_to_another_analyzer() -> None:
    """The analyzer ``below-roofline`` does not judge a call if measured times of comparable calls exist.

    Then the analyzer ``slower-than-comparable`` judges the call. For example, logparse ships measured times of
    comparable convolutions on an MI300X.
    """
    plain = replace(W, groups=1)
    given = make_trace_tables([(plain, 40 * least(plain))])
    assert find_all(given) == []
    assert [x.problem for x in slower_than_comparable.find(given, Settings())] == [plain]


def test_an_estimate_is_replayed_and_not_searched_for() -> None:
    made = recommend(planted(), Settings())
    [one] = [x for x in made.findings if x.analyzer == below_roofline.NAME]
    assert to_search([one]) == []
    assert made.ceiling.share is None
    assert made.ceiling.saving_us == 0.0


def test_what_was_timed_is_no_longer_estimated() -> None:
    slow = least(LARGE[0]) / 0.1
    timed = [measurement(LARGE[0].text, name, slow, source_id="table") for name in (DEFAULT_TEXT, "torch:padded")]
    given = planted()
    for count, expected in ((1, 1), (2, 0)):
        replayed = tables(measurements=timed[:count], facts=facts("table", **MI300X))
        known = replace(
            given, measurements=replayed.measurements, facts=pd.concat([given.facts, replayed.facts], ignore_index=True)
        )
        assert len(find_all(known)) == expected


def test_a_replay_takes_it_first() -> None:
    first, *others = plan(planted(), Settings())
    assert first.problem.text == LARGE[0].text
    assert first.regret == pytest.approx(1 - 0.1 / 0.8)
    assert {x.regret for x in others} == {PRIOR_REGRET["gemm"]}
