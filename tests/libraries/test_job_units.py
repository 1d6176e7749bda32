"""Tests of reading ``units_PID.json``, the file in which an observed job lists its steps.

Damaged files are rejected.
"""

from __future__ import annotations

import json

import pytest

from logparse.libraries.kinds.format import Head
from logparse.libraries.own.job_units import FORMAT, recognise
from logparse.model import Fact
from tests.libraries.reading import outcomes, records_of, units

KIND = {"count": 9, "traced": 2, "us": [10.5, 10.25]}
CONTENT = {"logparse_units": "request", "tracing": "settled", "windows": 3, "rank": 1}
CONTENT |= {"settings": ["cudnn_benchmark", "blas=cublas"], "kinds": {"int64[1, 8]": KIND}}


def test_kinds_are_facts() -> None:
    data = json.dumps(CONTENT).encode()
    assert recognise(Head("units_1.json", data))
    found = outcomes(FORMAT, data)
    assert [(x.name, x.value) for x in records_of(found, Fact)] == [
        ("unit", "request"),
        ("unit_tracing", "settled"),
        ("rank", "1"),
        ("job_settings", "cudnn_benchmark blas=cublas"),
        ("unit:int64[1, 8]", json.dumps(KIND)),
    ]
    assert units(found) == {"fact": 1}


@pytest.mark.parametrize("change", [{"kinds": []}, {"kinds": {"a": {"count": -1, "traced": 0, "us": []}}}])
def test_what_is_no_count_is_a_reject(change: dict[str, object]) -> None:
    assert units(outcomes(FORMAT, json.dumps(CONTENT | change).encode())) == {"reject": 1}
