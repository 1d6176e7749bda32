"""Remedies: what the user can do about a finding.

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


def _count(problems: Sequence[Problem | None]) -> str:
    """Return the number of distinct problems with a noun, such as ``3 GEMMs`` or ``5 GEMMs and convolutions``."""
    if {type(x) for x in problems} == {GemmProblem, ConvProblem}:
        return f"{len(set(problems)):,} GEMMs and convolutions"
    return _pluralize(len(set(problems)), _name(problems))


def _name(problems: Sequence[Problem | None]) -> str:
    """Return a noun for the problems, such as ``W convolution`` if all of them compute gradients of weights."""
    convolutions = [x for x in problems if isinstance(x, ConvProblem)]
    if convolutions and len(convolutions) == len(problems):
        return "W convolution" if all(x.direction == "W" for x in convolutions) else "convolution"
    return "GEMM" if problems and all(isinstance(x, GemmProblem) for x in problems) else "problem"


def _pluralize(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


AFTER_SEARCH = "then ingest its files and recommend again, as it prints"
"""Steps after the search of a library's own tool. ``recommend`` then writes rows of override files."""


@dataclass(frozen=True)
class UseRows:
    """The advice to use faster kernels, which are listed in a file for the library (override file).

    ``override`` names a matrix product and its faster kernel. A summary of such advice for many products has None
    there.
    """

    override: Override | None = None
    name: ClassVar[str] = "overrides"
    changes: ClassVar[str] = "apply rows of override files"

    @property
    def action(self) -> str:
        return f"use {self.override.solution.text}" if self.override is not None else "use rows"

    def title(self, problems: Sequence[Problem | None]) -> str:
        noun = "" if (kind := _name(problems)) == "problem" else f"{kind} "
        return f"use {_pluralize(len(set(problems)), f'faster {noun}solution')}"


@dataclass(frozen=True)
class Search:
    """A proposal to let the library's own tool search for faster kernels."""

    name: ClassVar[str] = "search"
    changes: ClassVar[str] = f"run the search (takes hours), {AFTER_SEARCH}"
    action: ClassVar[str] = "tune"

    def title(self, problems: Sequence[Problem | None]) -> str:
        kinds = {type(problem) for problem in problems}
        tools = [name for kind, name in ((ConvProblem, "MIOpen"), (GemmProblem, "hipBLASLt")) if kind in kinds]
        return f"search {' and '.join(tools) or 'the libraries'} for {_pluralize(len(set(problems)), _name(problems))}"


@dataclass(frozen=True)
class Replay:
    """A proposal to time the matrix product or convolution on the GPU with ``logparse replay``.

    ``on_target`` is True if a faster kernel is known, but not from a file that is known to be from the GPU model and
    library build of the target machine.
    """

    on_target: bool = False
    name: ClassVar[None] = None

    @property
    def changes(self) -> str:
        if self.on_target:
            return (
                "replay it on your machine, or give --same-build if the times were measured with the same GPU and "
                "library build"
            )
        return "run logparse replay, then recommend again"

    @property
    def action(self) -> str:
        return "measure on the target" if self.on_target else "replay"

    def title(self, problems: Sequence[Problem | None]) -> str:
        count = len(set(problems))
        if self.on_target:
            return f"check {_pluralize(count, 'faster solution')} on your machine"
        return f"measure {_count(problems)}, then use faster solutions"


@dataclass(frozen=True)
class Setting:
    """A proposal to change a setting or the memory layout of the whole program, which leads to a faster kernel.

    ``solution`` is that kernel.  The command ``logparse replay --only actions`` measures how much time the change
    saves.
    """

    solution: str
    name: ClassVar[str] = "a setting or layout"
    changes: ClassVar[str] = "run logparse replay --only actions"

    @property
    def action(self) -> str:
        return f"potential: {self.solution}"

    def title(self, problems: Sequence[Problem | None]) -> str:
        return f"try a setting or layout for {_count(problems)}"


@dataclass(frozen=True)
class ChangeProgram:
    """A proposal to change the program by hand, so that the library uses the kernel ``solution``.

    ``change`` tells what to do and begins with a verb.
    """

    solution: str
    change: str
    changes: str = "change the program"

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
    """A proposal in words only: the user should do what the text of the finding says.

    ``change`` is a short title that begins with a verb.  It is empty if the finding has no short title.
    """

    change: str = ""
    changes: str = "follow its advice"
    name: ClassVar[None] = None
    action: ClassVar[str] = "see its advice"

    def title(self, problems: Sequence[Problem | None]) -> str:
        return self.change


Remedy: TypeAlias = UseRows | Search | Replay | Setting | ChangeProgram | Advise

Sureness: TypeAlias = Literal["measured in the job", "measured alone", "estimated", "unknown"]
"""How surely a saving is known, the surest first.

=======================  ============================================================================================
``measured in the job``  measured with and without the change, in the user's own program
``measured alone``       both times of a call were measured, by a replay, by a tuner or in two files
``estimated``            the time now is known; the other is expected, from similar calls or a roofline
``unknown``              the saving has only one bound: it is at most the loss now
=======================  ============================================================================================
"""
UPPER_BOUND = "upper bound only"
"""The certainty of a saving of which only the largest possible value is known."""
SURENESS: tuple[Sureness, ...] = ("measured in the job", "measured alone", "estimated", "unknown")
