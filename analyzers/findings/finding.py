"""The type of an analyzer: a function that gets the tables of a job and returns what makes the job slow.

An analyzer never reads files, never prints and never changes its input. Its result does not depend on the order of
rows. For empty tables it returns no findings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analyzers.evidence.tables import Settings, Tables
from logparse.model import Finding


@dataclass(frozen=True)
class Analyzer:
    """A function that finds one kind of trouble in a job, with its description.

    All analyzers are in ``analyzers.findings.ANALYZERS``.

    * ``about`` (what the analyzer looks for) and ``worth`` (what its findings gain) are Markdown texts. They become the
      analyzer's row in ``docs/findings.md``.
    * ``place`` orders the findings about the whole job. Analyzers with the same place are ordered by name.
    """

    name: str
    about: str
    find: Callable[[Tables, Settings], Sequence[Finding]]
    worth: str = ""
    place: int = 10
