"""Tests of bundles: files with the kernel times of one machine for use on another one.

A bundle contains nothing private, and every time arrives unchanged.
"""

from __future__ import annotations

import json

import pytest

from logparse.libraries.kinds.format import Head
from logparse.libraries.own import bundle
from logparse.model import Call, Fact, Measurement, Reject, Solution
from tests.analyzers.example import gemm
from tests.libraries.reading import Memory

TIME = Measurement(
    problem=gemm(), solution=Solution("hipblaslt", "7"), origin="replay", time_us=3.5, samples_us=(3.0, 4.0),
    workspace_bytes=64, key_text="a key of no use elsewhere",
)  # fmt: skip
FACTS = {"arch": "gfx942", "pid": "71", "hostname": "node7", "environment": "5f0c", "replay_cache": "cold"}


def records(name: str, data: bytes) -> list[object]:
    assert bundle.recognise(Head(name, data))
    return [x for outcome in bundle.read(Memory(data, name)) for x in outcome.records]


def test_a_record_comes_back_as_it_was_measured() -> None:
    name, data = bundle.dump(FACTS, [TIME], {})
    (time,) = (x for x in records(name, data) if isinstance(x, Measurement))
    assert (time.problem.text, time.solution, time.samples_us) == (TIME.problem.text, TIME.solution, (3.0, 4.0))
    assert (time.time_us, time.workspace_bytes, time.origin, time.status) == (3.5, 64, "replay", "ok")


def test_facts_of_a_process_and_unknown_ones_stay_at_home() -> None:
    name, data = bundle.dump(FACTS, [TIME], {})
    assert {x.name for x in records(name, data) if isinstance(x, Fact)} == {"arch", "environment", "replay_cache"}
    assert b"node7" not in data
    assert b"key of no use" not in data


def test_names_are_of_the_content() -> None:
    one, other = (bundle.dump({"arch": x}, [TIME], {})[0] for x in ("gfx942", "gfx950"))
    assert one != other
    assert one == bundle.dump({"arch": "gfx942"}, [TIME], {})[0]
    assert one.startswith(bundle.RECORD)


def test_a_workload_is_calls_in_no_order_of_time() -> None:
    calls = {gemm(64).text: 3, gemm(32).text: 5}
    name, data = bundle.dump({}, [], calls)
    assert name == "workload.json"
    assert data == bundle.dump({}, [], dict(reversed(calls.items())))[1]
    made = [x for x in records(name, data) if isinstance(x, Call)]
    assert {x.problem.text: x.count for x in made} == calls


@pytest.mark.parametrize(
    "change",
    [
        {"logparse_bundle": 2},
        {"times": [{"problem": "gemm x", "solution": "a:1", "origin": "replay", "status": "ok"}]},
        {"times": [{"problem": gemm().text, "solution": "a:1", "origin": "replay", "status": "fast"}]},
        {"times": [{"problem": gemm().text, "solution": "a:1", "origin": "replay", "time_us": "3"}]},
        {"times": [{"problem": gemm().text, "solution": "a:1"}]},
        {"times": [7]},
        {"calls": {gemm().text: 0}},
        {"calls": {"conv": 1}},
    ],
)
def test_what_is_none_is_a_counted_reject(change: dict[str, object]) -> None:
    data = json.dumps({"logparse_bundle": 1, "facts": {}, "times": [], "calls": {}} | change).encode()
    assert [type(x) for x in records("x.json", data)] == [Reject]


def test_a_damaged_product_is_rejected() -> None:
    """If the text of a matrix product in a bundle is damaged, it is rejected, even if it still looks valid."""
    # For example, a text that was cut may have a number where a type belongs. In an earlier version this ended the
    # whole ingest.
    text = gemm(64).text
    cut = text[: text.index("compute=") + 8] + "on=?,0" + text[text.index(" aux=") :]
    name, data = bundle.dump({}, [], {text: 3})
    found = records(name, data.replace(text.encode(), cut.encode()))
    assert [type(x) for x in found] == [Reject]
