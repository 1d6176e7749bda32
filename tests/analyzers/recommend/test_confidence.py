"""Tests of the intervals and p-values of gains, for each kind of measurement."""

from __future__ import annotations

import json
from collections.abc import Sequence

from analyzers.evidence.confirmations import Pairs
from analyzers.evidence.origins import CONFIRM
from analyzers.evidence.tables import Settings, Tables
from analyzers.recommend.confidence import judge_all_pairs
from analyzers.recommend.ranking import BELOW_FLOOR, NOT_CONFIRMED, recommend
from logparse.model import Evidence, Finding, Gain
from tests.analyzers.build import facts, measurement, tables, work
from tests.analyzers.example import ARCH, gemm
from tests.analyzers.null import confirmation

P, Q = gemm(), gemm(2048)
HERE = {"arch": ARCH, "cu_count": "304", "hipblaslt_version": "1201"}


def confirmed(pick_us: Sequence[float], winner_us: Sequence[float], source: str = "c", told: bool = True) -> Tables:
    """Return made-up data of a job that calls one matrix product ten times.

    A second measurement compared the library's default kernel with a faster one.
    """
    pairs = Pairs(tuple(pick_us), tuple(winner_us))
    rows = [
        measurement(
            P.text,
            solution,
            sorted(times)[len(times) // 2],
            source_id=source,
            origin=CONFIRM,
            samples_us=list(times),
        )
        for solution, times in (("Default", pick_us), ("hipblaslt:9", winner_us))
    ]
    more = {"confirmation": confirmation(P, "hipblaslt:9", pairs)} if told else {}
    return tables(measurements=rows, facts=facts(source, **HERE, **more), workload=[work(P.text, 10)])


FAST = ([100.0 + i % 3 for i in range(12)], [50.0 + i % 2 for i in range(12)])
SAME = ([100.0 + i % 3 for i in range(12)], [99.0 + i % 4 for i in range(12)])


def test_a_confirmation_gives_an_interval_over_processes_and_p() -> None:
    result = recommend(confirmed(*FAST), Settings())
    [finding] = result.findings
    assert finding.interval_from == "processes"
    assert finding.p is not None
    assert finding.p < 1e-6
    gain = finding.per_call
    assert gain is not None
    assert 48 < (gain.saving_low_us or 0) <= gain.saving_us <= (gain.saving_high_us or 0) < 52
    assert finding.in_run == gain.times(10)
    assert (finding.confirmed, finding.sureness, finding.remedy.action) == (True, "measured alone", "use hipblaslt:9")
    assert finding.evidence.shown["file"] == "c"
    better = gain.then_us
    assert (finding.then_us, finding.evidence.best_us) == (better, better)
    assert finding.override is not None
    assert finding.override.time_us == better, "not the median of its samples, which is another number"
    assert "less" in finding.message
    assert finding.evidence.shown["versions"] == HERE
    assert (len(result.judgement.by_source), result.judgement.kept) == (1, 1)


def test_what_does_not_confirm_is_left_out() -> None:
    result = recommend(confirmed(*SAME), Settings())
    assert not result.findings
    assert set(result.left_out) <= {NOT_CONFIRMED}
    by_a_hair = ([100.0] * 12, [98.0] * 12)  # surely faster, but by less than the floor
    assert recommend(confirmed(*by_a_hair), Settings()).left_out == {BELOW_FLOOR: 1}
    assert len(recommend(confirmed(*by_a_hair), Settings(min_gain=0.01)).findings) == 1


def test_without_the_fact_a_pair_is_no_test() -> None:
    [finding] = recommend(confirmed(*FAST, told=False), Settings()).findings
    assert finding.p is None
    assert (finding.confirmed, finding.sureness) == (False, "measured alone")


def test_a_confirmed_loss_is_no_gain_of_the_default() -> None:
    """If a second measurement shows that a kernel is slower than the library's default, no gain is reported."""
    # The default kernel is then the faster one, but that is not reported as a gain either. The measurement only tested
    # the other kernel.
    slow_winner = confirmed(FAST[1], FAST[0])
    assert not recommend(slow_winner, Settings()).findings
    picked = {"source_id": "log", "run": "r", "category": "bench", "kind": "gemm", "problem": P.text, "pid": 1}
    told = tables(
        measurements=slow_winner.measurements.to_dict("records"),
        calls=[picked | {"solution": "hipblaslt:9", "count": 10, "by_tool": False}],
        facts=[*slow_winner.facts.to_dict("records"), *facts("log", **HERE)],
        workload=[work(P.text, 10)],
    )
    result = recommend(told, Settings())
    assert not result.findings
    assert result.left_out == {NOT_CONFIRMED: 1}


def test_p_values_of_a_run_are_corrected_together() -> None:
    """The p-values of all confirming measurements of a run are corrected together for multiple testing.

    A p-value that is small enough for a single test is not small enough among many tests.
    """
    lucky = ([100.0] * 12, [98.9, 99.0] * 6)  # a gain of 1.1 %, from a single process
    alone = judge_all_pairs(confirmed(*lucky), 0.0)
    [one] = alone.by_source.values()
    assert 0.05 / 9 < one.confirmation.p < 0.05
    assert one.kept
    rows, told = [], []
    for i in range(8):
        part = confirmed(*(lucky if i == 0 else SAME), source=f"c{i}")
        rows += part.measurements.to_dict("records")
        told += part.facts.to_dict("records")
    among = judge_all_pairs(tables(measurements=rows, facts=told, workload=[work(P.text, 10)]), 0.0)
    assert len(among.by_source) == 8
    assert among.kept == 0


def test_of_two_confirmations_of_one_pair_the_one_with_more_processes_counts_and_not_the_luckier() -> None:
    lucky, refuted = confirmed(*FAST, source="a"), confirmed([99.0, 99.1] * 12, [100.0] * 24, source="b")
    stated = json.loads(refuted.facts.loc[refuted.facts["name"] == "confirmation", "value"].iloc[0])
    more = json.dumps(stated | {"blocks": [12, 12]})
    facts_of_b = refuted.facts.assign(value=refuted.facts["value"].where(refuted.facts["name"] != "confirmation", more))
    both = tables(
        measurements=[*lucky.measurements.to_dict("records"), *refuted.measurements.to_dict("records")],
        facts=[*lucky.facts.to_dict("records"), *facts_of_b.to_dict("records")],
        workload=[work(P.text, 10)],
    )
    judged = judge_all_pairs(both, 0.03)
    assert (judged.tested, judged.kept) == (1, 0)
    assert judged.by_source["a"] == judged.by_source["b"]
    assert not recommend(both, Settings()).findings


def test_confirmations_of_other_problems_do_not_count() -> None:
    foreign = confirmed(*FAST)
    elsewhere = tables(
        measurements=[{**row, "run": "old"} for row in foreign.measurements.to_dict("records")],
        facts=foreign.facts.to_dict("records"),
        workload=[work(Q.text, 10)],
    )
    assert not judge_all_pairs(elsewhere, 0.03).by_source


def test_times_that_a_file_states_once_have_no_interval() -> None:
    rows = [measurement(P.text, "Default", 100.0, std_us=3.0), measurement(P.text, "hipblaslt:9", 60.0, std_us=3.0)]
    [finding] = recommend(tables(measurements=rows, workload=[work(P.text, 10)]), Settings()).findings
    assert (finding.interval_from, finding.per_call, finding.p) == (None, Gain(100.0, 60.0), None)


def test_two_times_of_the_default_bound_the_gain() -> None:
    rows = [
        measurement(P.text, "Default", 98.0),
        measurement(P.text, "Default", 102.0, ordinal=9),
        measurement(P.text, "hipblaslt:9", 60.0),
    ]
    [finding] = recommend(tables(measurements=rows), Settings()).findings
    assert finding.interval_from == "repeat"
    assert finding.per_call == Gain(100.0, 60.0, low_us=56.0, high_us=64.0)


def test_the_floor() -> None:
    rows = [measurement(P.text, "Default", 100.0), measurement(P.text, "hipblaslt:9", 96.0)]
    assert len(recommend(tables(measurements=rows), Settings()).findings) == 1
    assert recommend(tables(measurements=rows), Settings(min_gain=0.05)).left_out == {BELOW_FLOOR: 1}


def test_times_before_and_after() -> None:
    def of(gain: Gain | None = None, **evidence: float) -> tuple[float | None, float | None]:
        finding = Finding(analyzer="x", message="", per_call=gain, evidence=Evidence(**evidence))  # type: ignore[arg-type]
        return finding.now_us, finding.then_us

    assert of(Gain(100.0, 60.0), best_us=90.0) == (100.0, 60.0)
    assert of(Gain(100.0, 60.0)) == (100.0, 60.0)
    assert of(None, now_us=100.0) == (100.0, None)
    assert of(None, best_us=100.0) == (None, 100.0)
    assert of() == (None, None)
