"""Every origin of measurements is declared by its format: an undeclared one would be invisible to ``recommend``."""

from __future__ import annotations

from analyzers.times.origins import EVIDENCE, ORIGINS
from logparse.formats import FORMATS
from logparse.store import Store


def test_every_origin_of_the_samples_is_declared_by_a_format(samples: Store) -> None:
    given = set(samples.measurements()["origin"])
    declared = {origin.name for format in FORMATS for origin in format.origins}
    assert len(given) > 5
    assert given <= declared


def test_an_origin_means_the_same_in_every_format() -> None:
    assert len({origin.name for origin in ORIGINS}) == len(ORIGINS)
    assert {"table", "aiter", "find-db", "replay-confirm"} <= EVIDENCE
    assert not EVIDENCE & {"replay", "trace", "miopen-chosen", "driver-list", "perf-db"}
