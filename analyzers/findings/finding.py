"""What a finder is: a pure function from the tables of a run to findings.

A finder never reads files, never prints and never changes its input.  The order of rows does not matter.  Empty tables
give no findings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analyzers.evidence.tables import Settings, Tables
from logparse.model import Finding


@dataclass(frozen=True)
class Analyzer:
    """A member of ``analyzers.findings.ANALYZERS``.

    ``about`` (what is seen) and ``worth`` (what a finding is worth) are its row of ``docs/findings.md``, as Markdown.
    ``place`` orders findings about the run; members with the same place are shown by name.
    """

    name: str
    about: str
    find: Callable[[Tables, Settings], Sequence[Finding]]
    worth: str = ""
    place: int = 10
