"""Nouns to measurements, findings and proof.

``ANALYZERS`` lists the analyzers, in the order in which their findings about the run are shown.
"""

from __future__ import annotations

from analyzers import (
    cliffs,
    completeness,
    convolution,
    flat_cost,
    fusion,
    heuristics,
    hints,
    near_misses,
    precision,
    queries,
    stale_overrides,
)
from analyzers.analyzer import Analyzer

ANALYZERS: tuple[Analyzer, ...] = (
    completeness.ANALYZER,
    convolution.ANALYZER,
    heuristics.ANALYZER,
    hints.ANALYZER,
    queries.ANALYZER,
    stale_overrides.ANALYZER,
    flat_cost.ANALYZER,
    cliffs.ANALYZER,
    fusion.ANALYZER,
    precision.ANALYZER,
    near_misses.ANALYZER,
)

__all__ = ["ANALYZERS"]
