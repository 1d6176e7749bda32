"""Every origin of measurements is declared by its format: an undeclared one would be invisible to ``recommend``."""

from __future__ import annotations

from itertools import chain

from analyzers.evidence.origins import CONFIRM, EVIDENCE
from analyzers.findings import stale_override
from logparse.libraries import FORMATS
from logparse.store import Store


def test_every_origin_of_the_samples_is_declared_by_a_format(samples: Store) -> None:
    given = set(samples.measurements()["origin"])
    declared = {origin.name for format in FORMATS for origin in format.origins}
    assert len(given) > 5
    assert given <= declared


def test_an_origin_means_the_same_in_every_format() -> None:
    of_formats = set(chain.from_iterable(format.origins for format in FORMATS))
    assert len({origin.name for origin in of_formats}) == len(of_formats)
    assert {origin.name for origin in of_formats if origin.evidence} | {CONFIRM} == EVIDENCE


def test_a_finding_names_formats_that_exist() -> None:
    names = {format.name for format in FORMATS}
    assert {*stale_override.EFFECT, *stale_override.NO_LOGS} <= names | {"replay"}
