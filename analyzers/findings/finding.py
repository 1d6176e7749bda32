"""The type of an analyzer: a function that gets the tables of a job and returns reasons why the job is slow.

An analyzer never reads files, never prints and never changes its input. Its result does not depend on the order of
rows. For empty tables it returns nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analyzers.evidence.tables import Settings, Tables
from logparse.model import Finding


@dataclass(frozen=True)
class Analyzer:
    """A function that finds one kind of trouble in a job, with its name and description.

    * ``about``, ``worth``: Markdown texts that tell what the analyzer looks for and what can be gained. They become its
      row in ``docs/findings.md``.
    * ``place``: its position among the findings about the whole job. Equal places are ordered by name.

    All analyzers are in ``analyzers.findings.ANALYZERS``.
    """

    name: str
    about: str
    find: Callable[[Tables, Settings], Sequence[Finding]]
    worth: str = ""
    place: int = 10
