"""Analyzers of ingested runs: measurements, findings, override files and proof.

``ANALYZERS`` lists the analyzers, in the order in which their findings about the run are shown.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from logparse import lazy

if TYPE_CHECKING:
    from analyzers.findings.finding import Analyzer

    ANALYZERS: tuple[Analyzer, ...]

_MODULES = (
    "host_bound",
    "exposed_communication",
    "completeness",
    "solver_search",
    "layout_transposes",
    "slow_wrw",
    "naive_convolution",
    "suboptimal_pick",
    "stale_override",
    "slower_than_comparable",
    "missed_fusion",
    "unfused_attention",
    "below_roofline",
)
"""Modules of this package with an ``ANALYZER``; imported when they are first asked for, which takes half a second."""


def _analyzers() -> tuple[Analyzer, ...]:
    return tuple(import_module(f"{__name__}.{module}").ANALYZER for module in _MODULES)


__getattr__ = lazy.members(__name__, {"ANALYZERS": _analyzers})

__all__ = ["ANALYZERS"]
