"""Nouns to measurements, findings and proof.

``ANALYZERS`` lists the analyzers, in the order in which their findings about the run are shown.
"""

from __future__ import annotations

from analyzers import completeness, convolution, heuristics, hints, queries
from analyzers.analyzer import Analyzer

ANALYZERS: tuple[Analyzer, ...] = (
    completeness.ANALYZER,
    convolution.ANALYZER,
    heuristics.ANALYZER,
    hints.ANALYZER,
    queries.ANALYZER,
)

__all__ = ["ANALYZERS"]
