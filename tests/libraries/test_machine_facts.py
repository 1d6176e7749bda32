"""Tests of ``facts.json``, the file with facts about a machine. It can be written and read back.

Damaged files are rejected.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.ingest.stated_target import target_from
from logparse.libraries.kinds.format import Head
from logparse.libraries.own.machine_facts import FILE_NAME, FORMAT, dump, read, recognise
from logparse.model import FACTS, Fact, Reject
from tests.conftest import SAMPLES
from tests.libraries import reading
from tests.libraries.reading import Memory, outcomes

SAMPLE = (SAMPLES / "capture" / FILE_NAME).read_bytes()


def facts(data: bytes) -> dict[str, str]:
    return reading.facts(outcomes(FORMAT, data))


def test_the_sample_is_text_to_facts_to_text() -> None:
    assert dump(facts(SAMPLE)).encode() == SAMPLE
    assert recognise(Head("anything.json", SAMPLE))
    assert target_from([str(SAMPLES / "capture" / FILE_NAME)])["validator:PT_VERSION"] == "2.9.1"


@given(st.dictionaries(st.sampled_from(sorted(FACTS)) | st.text(), st.text()))
def test_facts_to_text_to_facts(values: dict[str, str]) -> None:
    assert facts(dump(values).encode()) == values


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not JSON"),
        (b'{"arch": ', "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'"arch"', "not a JSON object"),
        (b"[" * 100_000, "not JSON"),
        (b'{"arch": ["gfx942"]}', "'arch' is not a text"),
        (b'{"arch": null}', "'arch' is not a text"),
    ],
)
def test_what_is_no_object_of_texts_is_rejected(data: bytes, why: str) -> None:
    (outcome,) = read(Memory(data))
    assert outcome.unit == "reject"
    (reject,) = outcome.records
    assert isinstance(reject, Reject)
    assert why in reject.reason


def test_members_are_kept_one_by_one() -> None:
    found = list(read(Memory(b'\xef\xbb\xbf{"cu_count": 304, "arch": "gfx942", "arch": "gfx950", "x": true}')))
    assert [o.unit for o in found] == ["fact", "fact", "fact", "reject"]
    assert [r for o in found[:3] for r in o.records] == [
        Fact("cu_count", "304"),
        Fact("arch", "gfx942"),
        Fact("arch", "gfx950"),
    ]


@pytest.mark.parametrize("data", [b'{"traceEvents": []}', b'{"x": "y"}', b"{", b"", b"arch", b'{"arch": {}}'])
def test_other_json_is_left_alone(data: bytes) -> None:
    assert not recognise(Head("trace.json", data))


def test_compute_units_of_rdna_are_counted_as_hip_does() -> None:
    """The stored number of compute units is HIP's number, even if the file has the number that rocminfo prints."""
    # On RDNA HIP counts pairs of compute units, so its number is half as large. A file has rocminfo's number if it was
    # written by hand, or by an older version on a machine without PyTorch.
    for data, count in (
        (b'{"cu_count": "64", "arch": "gfx1201"}', "32"),
        (b'{"arch": "gfx1201", "cu_count": "32"}', "32"),
        (b'{"arch": "gfx1100", "cu_count": 96, "wgp_mode": "0"}', "96"),
        (b'{"cu_count": "64"}', "64"),
        (b'{"arch": "gfx1201", "cu_count": "%s"}' % (b"9" * 5000), "9" * 5000),
    ):
        facts = [x for o in read(Memory(data)) for x in o.records]
        assert Fact("cu_count", count) in facts, data
