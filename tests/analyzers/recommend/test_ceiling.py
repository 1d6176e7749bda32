"""Tests of the "ceiling": the time that a job would save if every matrix product ran its fastest known kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzers.evidence.picks import picks_vs_best
from analyzers.evidence.tables import Settings, Tables
from analyzers.findings.finding import Analyzer
from analyzers.recommend import render
from analyzers.recommend.ceiling import ceiling
from analyzers.recommend.confidence import judge_all_pairs
from analyzers.recommend.ranking import recommend
from analyzers.recommend.verdict import verdict
from logparse.model import Evidence, Finding, Gain
from tests.analyzers.build import call, facts, measurement, tables, work
from tests.analyzers.example import B, W, gemm

ONE, TWO, THREE = gemm().text, gemm(2048).text, gemm(1024).text


def kernel(problem: str | None, total_us: float) -> dict[str, object]:
    row = {"source_id": "t", "run": "r", "device": 0, "op": "aten::mm", "kernel": "k", "calls": 1}
    return row | {"problem": problem, "total_us": total_us}


def traced() -> Tables:
    """Return made-up data of a trace of two steps, which call three matrix products."""
    # For the first product, the library's choice of kernel was also measured alone. The second product only has a time
    # in the trace. The third product has no time at all.
    called = ((ONE, 100), (TWO, 50), (THREE, 50))
    return tables(
        calls=[call(x, count=n, category="profiler", source_id="t") for x, n in called],
        workload=[work(x, n, calls_from="profiler") for x, n in called],
        measurements=[measurement(ONE, "Default", 100.0), measurement(ONE, "hipblaslt:9", 60.0)],
        kernels=[kernel(ONE, 12_000.0), kernel(TWO, 6_000.0), kernel(None, 2_000.0)],
        facts=facts("t"),
    )


def test_the_time_of_a_trace_counts_where_there_is_one() -> None:
    ceiling = recommend(traced(), Settings()).ceiling
    # 100 calls take 12,000 µs in the job, 120 µs each. By the measured times 40 % of that can be saved.
    assert (ceiling.default_us, ceiling.saving_us) == (12_000.0, pytest.approx(4_800.0))
    assert (ceiling.calls_share, ceiling.untimed_share) == (0.5, 0.25)
    assert render.ceiling_lines(ceiling) == [
        "ceiling (greatest possible saving): 4.8 ms of the 12 ms of calls with two measured times (50.0% of all "
        "calls), if each ran its best known solution; 25.0% of calls are not timed in any file"
    ]


def test_traced_time_is_used_for_all_logged_calls() -> None:
    """If a log has more calls of a product than the trace, the traced time is used for all of them."""
    # The log has 100 calls, and the trace has ten of them. A call takes 120 µs in the trace, and 100 µs if it is
    # measured alone. So each of the 100 calls is counted with 120 µs, as on the web page.
    t = tables(
        calls=[call(ONE, count=100), call(ONE, count=10, category="profiler", source_id="t")],
        workload=[work(ONE, 100)],
        measurements=[measurement(ONE, "Default", 100.0), measurement(ONE, "hipblaslt:9", 60.0)],
        kernels=[kernel(ONE, 1_200.0)],
    )
    found = recommend(t, Settings())
    assert (found.ceiling.default_us, found.ceiling.saving_us) == (12_000.0, pytest.approx(4_800.0))
    assert [x.saving_us for x in found.findings] == [pytest.approx(4_800.0)]


def test_products_with_their_fastest_kernel_are_part_of_the_total() -> None:
    """The possible saving in percent refers to all measured products, even if they already run their fastest kernel."""
    # The first product takes 90 µs and already runs its fastest kernel. The second product takes 10 µs, or 8 µs with
    # its fastest kernel. So the possible saving is (10 − 8) / (90 + 10) = 2 %, not (10 − 8) / 10 = 20 %.
    t = tables(
        workload=[work(ONE, 1), work(TWO, 1)],
        measurements=[
            measurement(ONE, "Default", 90.0, source_id="race", origin="replay"),
            measurement(ONE, "a:1", 95.0, source_id="race", origin="replay"),
            measurement(TWO, "Default", 10.0, source_id="pair", origin="replay-confirm"),
            measurement(TWO, "a:2", 8.0, source_id="pair", origin="replay-confirm"),
        ],
        facts=[*facts("race", pick="Default"), *facts("pair", pick="Default")],
    )
    found = recommend(t, Settings())
    assert (found.ceiling.default_us, found.ceiling.saving_us) == (100.0, pytest.approx(2.0))
    assert found.ceiling.share == pytest.approx(0.02)
    [line] = [x for x in found.remarks if x.analyzer == "suboptimal-pick"]
    assert line.evidence.shown["problems"] == 2, "the regret is one over all that was measured"
    lucky = replace(t, measurements=t.measurements.assign(time_us=[90.0, 80.0, 10.0, 8.0]))
    assert recommend(lucky, Settings()).ceiling.saving_us == pytest.approx(2.0), "a race's winner was lucky in part"


def test_the_possible_saving_includes_measured_savings() -> None:
    """The largest possible saving of a job also counts calls without a known kernel, if their saving was measured.

    Estimated savings do not count. A matrix product or convolution counts only once.
    """
    # Here no log names the kernel of a convolution, but a measurement shows how much time another kernel saves.
    t = tables(
        workload=[work(ONE, 10), work(W.text, 5)],
        measurements=[measurement(ONE, "Default", 9.0), measurement(ONE, "hipblaslt:1", 8.0)],
    )
    rows = picks_vs_best(t, Settings())
    known = Finding(
        analyzer="slow-wrw",
        message="",
        problem=W,
        per_call=Gain(80.0, 20.0),
        calls=5,
        in_run=Gain(400.0, 100.0),
        evidence=Evidence(sureness="measured alone"),
    )
    twice = replace(known, problem=gemm(), in_run=Gain(400.0, 392.0))
    guess = replace(known, problem=B, evidence=Evidence())
    findings = [known, replace(known, in_run=Gain(400.0, 150.0)), twice, guess]
    found = ceiling(rows, findings, t, judge_all_pairs(t, 0.03))
    assert (found.default_us, found.saving_us, found.problems) == (90.0 + 400.0, 10.0 + 300.0, 2)
    assert found.calls_share == 1.0


def test_verdicts() -> None:
    same = [measurement(ONE, "Default", 60.0), measurement(ONE, "hipblaslt:9", 60.0)]
    nothing = recommend(tables(workload=[work(ONE, 1)], measurements=same), Settings())
    assert verdict(nothing).headline == (
        "nothing worth doing among the GEMMs: no better solution is known for any of 1 measured problem; the run's "
        "logs show no convolutions"
    )
    half = recommend(tables(workload=[work(ONE, 1), work(gemm(3).text, 3)], measurements=same), Settings())
    assert "measured problem; 75.0% of calls untimed; the run's logs show no conv" in verdict(half).headline
    assert recommend(tables(workload=[work(ONE, 1)]), Settings()).ceiling.untimed_share == 1.0
    unknown = render.ceiling_lines(recommend(tables(workload=[work(ONE, 1)]), Settings()).ceiling)
    assert unknown == [
        "ceiling (greatest possible saving): unknown, because no search timed both the kernels that run now "
        "and other kernels; 100.0% of calls are not timed in any file"
    ]


def test_the_possible_saving_does_not_depend_on_min_gain() -> None:
    """The largest possible saving does not depend on ``--min-gain``, the smallest gain that the user wants to see.

    In an earlier version, a ``--min-gain`` above 75 % removed a measured gain of 75 % from it.
    """
    evidence, gain = Evidence(sureness="measured alone"), Gain(80.0, 20.0)
    known = Finding(
        analyzer="slow-wrw", message="", problem=W, per_call=gain, calls=5, in_run=gain.times(5), evidence=evidence
    )
    only = [Analyzer(name="slow-wrw", about="", find=lambda tables, settings: [known])]
    t = tables(
        workload=[work(ONE, 10), work(W.text, 5)],
        measurements=[measurement(ONE, "Default", 9.0), measurement(ONE, "hipblaslt:1", 8.0)],
    )
    usual = recommend(t, Settings(), only)
    assert (len(usual.findings), usual.ceiling.saving_us) == (1, 310.0)
    for asked in (Settings(min_gain=0.8), Settings(min_saving_us=301.0)):
        found = recommend(t, asked, only)
        assert (found.findings, found.ceiling) == ((), usual.ceiling)
