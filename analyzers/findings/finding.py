"""The type of an analyzer: a function that gets the tables of a job and returns reasons why the job is slow.

An analyzer reads no files, prints nothing and never changes its input. Empty tables give no result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analyzers.evidence.tables import Settings, Tables
from logparse.model import Finding

RESTS_ON = "rests_on"
"""Name of the detail of a finding's evidence that states what its estimate takes for granted.

The text is a clause that follows ``assumes that``, such as ``50% of the roofline is reached``.
"""
NOW = "now_is"
"""Name of the detail of a finding's evidence that says whose time the present time is, if it is not the job's own."""
THEN = "then_is"
"""Name of the detail of a finding's evidence that says whose time the expected time is, such as ``the time of its B``.
"""
BESIDE = "beside"
"""Name of the detail of a finding's evidence with a clause that the saving does not rest on.

Only ``recommend --explain`` prints it.
"""


@dataclass(frozen=True)
class Analyzer:
    """A function that finds one kind of trouble in a job, with its name and description.

    * ``about``, ``worth``: Markdown texts for ``docs/findings.md``: what is looked for, what can be gained.
    * ``place``: position among the findings about the whole job.
    """

    name: str
    about: str
    # The order of the tables' rows must not change the result.
    find: Callable[[Tables, Settings], Sequence[Finding]]
    worth: str = ""
    # Equal places are ordered by name.
    place: int = 10
