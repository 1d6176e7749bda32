"""Remedies: what a person does about a finding, or to take an action.

A finding states its remedy.  All outputs read that remedy: the ranking, the screen, the page, the report, JSON and
the files.

====================  =====================================================================  ====================
remedy                what a person does                                                     what is written
====================  =====================================================================  ====================
``UseRows``           lets the library read rows of an override file                         the override file
``Search``            lets the library's own tool search, then lets the library read a file  a script that searches
``Replay``            times the problem on the GPU with ``logparse replay``                  nothing
``Setting``           sets something for the whole program                                   lines of ``apply.py``
``ChangeProgram``     changes lines of the program                                           lines of ``apply.py``
``Advise``            reads the finding's advice                                             nothing
====================  =====================================================================  ====================

``name`` is an id: the argument of ``--explain`` and a value in JSON.  None means the name of the finding or action.
``title`` begins with a verb and is shown.  ``changes`` tells what changes where, in a few words.  ``action`` is the
remedy of one finding in JSON and in tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from logparse.model.problems import ConvProblem, GemmProblem, Problem

if TYPE_CHECKING:
    from logparse.model.records import Override


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


@dataclass(frozen=True)
class UseRows:
    """Remedy in which rows of override files make the library use a faster solution.

    ``override`` is missing (None) for an action, because an action has the rows of many findings.
    """

    override: Override | None = None
    name: ClassVar[str] = "overrides"
    changes: ClassVar[str] = "rows of override files"

    @property
    def action(self) -> str:
        return f"use {self.override.solution.text}" if self.override is not None else "use rows"

    def title(self, problems: Sequence[Problem | None]) -> str:
        return f"use {_counted(len(set(problems)), 'faster solution')}"


@dataclass(frozen=True)
class Search:
    """Remedy in which the library's own tool searches for faster solutions."""

    name: ClassVar[str] = "search"
    changes: ClassVar[str] = "a search, then a file"
    action: ClassVar[str] = "tune"

    def title(self, problems: Sequence[Problem | None]) -> str:
        kinds = {type(problem) for problem in problems}
        tools = [name for kind, name in ((ConvProblem, "MIOpen"), (GemmProblem, "hipBLASLt")) if kind in kinds]
        return f"search {' and '.join(tools) or 'the libraries'} for {_counted(len(set(problems)), 'problem')}"


@dataclass(frozen=True)
class Replay:
    """Remedy in which ``logparse replay`` times the problem on the GPU.

    ``on_target`` is True if a faster solution is known from another device or build than the target's.
    """

    on_target: bool = False
    name: ClassVar[None] = None
    changes: ClassVar[str] = "logparse replay"

    @property
    def action(self) -> str:
        return "measure on the target" if self.on_target else "replay"

    def title(self, problems: Sequence[Problem | None]) -> str:
        return f"time {_counted(len(set(problems)), 'problem')} on the GPU"


@dataclass(frozen=True)
class Setting:
    """Setting or layout of the whole program that makes the library use ``solution``.

    Actions that were replayed tell how much time this saves.
    """

    solution: str
    name: ClassVar[str] = "a setting or layout"
    changes: ClassVar[str] = "logparse replay --only actions"

    @property
    def action(self) -> str:
        return f"potential: {self.solution}"

    def title(self, problems: Sequence[Problem | None]) -> str:
        return f"try a setting or layout for {_counted(len(set(problems)), 'problem')}"


@dataclass(frozen=True)
class ChangeProgram:
    """Change of the program by hand that makes the library use ``solution``.  ``change`` begins with a verb."""

    solution: str
    change: str
    changes: ClassVar[str] = "the program"

    @property
    def name(self) -> str:
        return self.solution

    @property
    def action(self) -> str:
        return f"by hand: {self.solution}"

    def title(self, problems: Sequence[Problem | None]) -> str:
        return self.change


@dataclass(frozen=True)
class Advise:
    """Remedy in which a person reads the finding's advice.

    ``change`` begins with a verb and is the title.  It is empty if the finding has no short title.
    """

    change: str = ""
    changes: str = "its advice"
    name: ClassVar[None] = None
    action: ClassVar[str] = "see its advice"

    def title(self, problems: Sequence[Problem | None]) -> str:
        return self.change


Remedy: TypeAlias = UseRows | Search | Replay | Setting | ChangeProgram | Advise

Sureness: TypeAlias = Literal["measured in the job", "measured alone", "estimated", "unknown"]
"""Sureness of a saving, the surest first.

=======================  ============================================================================================
``measured in the job``  measured with and without the change, in the user's own program
``measured alone``       both times of a call were measured, by a replay, by a tuner or in two files
``estimated``            the time now is known; the other is expected, from a sibling, from neighbours or a roofline
``unknown``              the saving has only one bound: it is at most the loss now
=======================  ============================================================================================
"""
SURENESS: tuple[Sureness, ...] = ("measured in the job", "measured alone", "estimated", "unknown")
