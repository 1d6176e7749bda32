"""The type of an analyzer: a pure function from the tables of a run to findings.

An analyzer never reads files, never prints and never changes its input. Its result does not depend on the order of
rows. Empty tables give no findings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analyzers.evidence.tables import Settings, Tables
from logparse.model import Finding


@dataclass(frozen=True)
class Analyzer:
    """A member of ``analyzers.findings.ANALYZERS``.

    ``about`` (what the analyzer sees) and ``worth`` (what its findings gain) are Markdown texts. They become the
    analyzer's row in ``docs/findings.md``.
    ``place`` orders findings about the run; members with the same place are shown by name.
    """

    name: str
    about: str
    find: Callable[[Tables, Settings], Sequence[Finding]]
    worth: str = ""
    place: int = 10
