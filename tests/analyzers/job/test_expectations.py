from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from analyzers.evidence.tables import Settings
from analyzers.job.expectations import estimate_times, times
from analyzers.recommend.ranking import recommend
from analyzers.replay.plan import plan
from tests.analyzers.build import call, facts, tables, work
from tests.analyzers.findings.test_slower_than_comparable import DEVICE, FINE, SLOW, half, lone, planted, us


def test_the_call_furthest_above_its_expected_time_comes_first() -> None:
    """logparse first measures the call that is furthest above its expected time, even if other calls take longer.

    The expected time comes from comparable calls.
    """
    given = planted()
    large = half(3900, 3900, 3900)
    more = tables(
        measurements=[lone(large, 1.01 * us(3900, 3900, 3900))],
        calls=[call(large.text, count=10, source_id="log")],
        workload=[work(large.text, 10)],
    )
    both = {
        name: pd.concat([getattr(given, name), getattr(more, name)]) for name in ("measurements", "calls", "workload")
    }
    items = plan(replace(given, **both), Settings())
    assert [x.problem.text for x in items if x.problem.text in (SLOW.text, large.text)] == [SLOW.text, large.text]
    first = items[0]
    assert first.basis == "measured"
    assert first.time_us == pytest.approx(5 * us(1000, 1000, 1000))
    assert first.regret == pytest.approx(0.8, abs=0.1)


def test_searches_begin_with_the_largest_difference() -> None:
    found = [x for x in recommend(planted(), Settings()).findings if x.analyzer == "slower-than-comparable"]
    assert [x.problem.text for x in found if x.problem] == [SLOW.text]
    assert [x.saving_us for x in found] == sorted((x.saving_us or 0.0 for x in found), reverse=True)


def test_times_of_what_ran() -> None:
    rows = times(planted(), Settings())
    assert set(rows["problem"]) == {SLOW.text, FINE.text}
    assert set(rows["device"]) == {"gfx942 304"}
    assert set(estimate_times(planted(), Settings())) == {SLOW.text, FINE.text}


def test_a_missing_number_of_compute_units_comes_from_other_logs() -> None:
    """If a log does not state the GPU's number of compute units, the number comes from other logs of the same run.

    For example, the first lines of a TunableOp file state only the GPU's architecture.
    """
    given = planted()
    short = given.facts[~((given.facts["source_id"] == "job") & (given.facts["name"] == "cu_count"))]
    assert set(times(replace(given, facts=short), Settings())["device"]) == {"gfx942 304"}


def test_a_source_of_another_arch_is_not() -> None:
    given = planted()
    other = tables(facts=facts("job", arch="gfx950")).facts
    rest = given.facts[given.facts["source_id"] != "job"]
    assert not len(times(replace(given, facts=pd.concat([rest, other])), Settings(target=DEVICE)))
