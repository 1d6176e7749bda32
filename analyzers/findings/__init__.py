"""Findings: ``ls`` of this folder is the list of what can be found.

``finding.py`` defines the kind; each other file is one finding.

``ANALYZERS`` holds the members, in the order in which their findings about the run are shown.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from logparse import lazy

if TYPE_CHECKING:
    from analyzers.findings.finding import Analyzer

    ANALYZERS: tuple[Analyzer, ...]


def _analyzers() -> tuple[Analyzer, ...]:
    """Import each module of this folder but the kind's; importing them takes half a second."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py"))
    members = [import_module(f"{__name__}.{name}").ANALYZER for name in names if name not in ("__init__", "finding")]
    return tuple(sorted(members, key=lambda member: (member.place, member.name)))


__getattr__ = lazy.members(__name__, {"ANALYZERS": _analyzers})

__all__ = ["ANALYZERS"]
