"""Tests that the results of trying changes in a running job can be stored and read back.

Damaged results are rejected.
"""

from __future__ import annotations

import json
import math

import pytest

from logparse.libraries.kinds.format import Head
from logparse.libraries.own.job_trials import FORMAT, Record, Seen, dump, recognise, record, seen_of
from logparse.model import Fact
from tests.libraries.reading import outcomes, records_of, units

TIMED = {
    "name": "channels_last",
    "ended": "decided",
    "why": "",
    "detail": "53 weights",
    "seconds": 6.2,
    "same": {"deviation": 2e-7, "allowed": 4e-6, "how": "output"},
    "pairs": [[-0.5, 200.0, 121.3]],
    "control": [[0.001, 200.0, 200.2]],
    "unlike": 1,
}
REFUSED = {"name": "tf32", "ended": "refused", "why": "no GPU\x1b[2J", "detail": "", "seconds": 0.1}
WHOLE = {"logparse_try": 1, "unit": "optimizer", "units": 412, "over": True, "actions": [TIMED, REFUSED]}


def data(**changed: object) -> bytes:
    return json.dumps(WHOLE | changed).encode()


def test_each_action_is_a_fact_that_says_the_same() -> None:
    assert recognise(Head("try_4242.json", data()))
    found = outcomes(FORMAT, data())
    facts = records_of(found, Fact)
    assert [x.name for x in facts] == ["trial:channels_last", "trial:tf32"]
    assert [json.loads(x.value)["unit"] for x in facts] == ["optimizer"] * 2
    assert tuple(seen_of(json.loads(x.value)) for x in facts) == record(data()).seen
    timed, refused = record(data()).seen
    assert timed == Seen(
        "channels_last", "decided", "", "53 weights", ((-0.5, 200.0, 121.3),), (0.001,), 1, 6.2, (2e-7, 4e-6, "output")
    )
    assert refused.why == "no GPU\\x1b[2J", "a job's own texts have no control characters"
    assert units(found) == {"fact": 1}


def test_a_record_is_written_as_it_is_read() -> None:
    held = record(data(rank=3, on="tf32", why="w", over=False))
    assert held == Record("optimizer", 412, False, "w", "tf32", 3, held.seen)
    assert record(dump(held)) == held


@pytest.mark.parametrize("deviation", [math.inf, math.nan, None])
def test_a_result_that_is_no_number_deviates_without_bound(deviation: float | None) -> None:
    same = {"deviation": deviation, "allowed": 1e-6, "how": "output"}
    (found,) = record(data(actions=[{**TIMED, "same": same}])).seen
    assert found.same == (math.inf, 1e-6, "output")
    assert record(dump(Record("", 0, True, "", "", 0, (found,)))).seen == (found,)


@pytest.mark.parametrize(
    "wrong",
    [
        data()[:-20],
        data(actions={}),
        data(units="many"),
        data(actions=[[]]),
        data(actions=[{"ended": "decided"}]),
        data(actions=[{**TIMED, "seconds": None}]),
        data(actions=[{**TIMED, "pairs": [[1.0, 2.0]]}]),
        data(actions=[{**TIMED, "pairs": [[1.0, -2.0, 1.0]]}]),
        data(actions=[{**TIMED, "pairs": "none"}]),
        data(actions=[{**TIMED, "control": [[math.inf, 1.0, 1.0]]}]),
        data(actions=[{**TIMED, "same": {}}]),
        b'{"logparse_try": 1, "\xff": 2}',
    ],
)
def test_what_is_damaged_is_a_reject(wrong: bytes) -> None:
    assert units(outcomes(FORMAT, wrong)) == {"reject": 1}
