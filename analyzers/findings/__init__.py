"""Analyzers: each file of this folder finds one kind of trouble in a job, for example a GPU that waits for the host.

``ANALYZERS`` contains all of them, in the order of their findings.
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
    """Import all analyzers of this folder. It is done on first use, because the imports take half a second."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py"))
    members = [import_module(f"{__name__}.{name}").ANALYZER for name in names if name not in ("__init__", "finding")]
    return tuple(sorted(members, key=lambda member: (member.place, member.name)))


__getattr__ = lazy.members(__name__, {"ANALYZERS": _analyzers})

__all__ = ["ANALYZERS"]
