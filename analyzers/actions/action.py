"""What an action is: what a person does once, and what it does to all problems of a job, losers included.

A member of ``ACTIONS`` states for each problem which solution of which problem ``replay`` times to learn what a call
takes under the action (``Change``), and how the action is applied.  Whether it pays is measured: ``totals.py`` sums it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from analyzers.actions.job import Job, Work
from logparse.model import DEFAULT, Problem

ActionKind: TypeAlias = Literal["files", "setting", "program"]
"""Override files; a setting of the process; a change of the program."""


@dataclass(frozen=True)
class Change:
    """What a call becomes: a solution (its text) of a problem, by default the library's own choice.

    ``problem`` None: the call is not made any more (a copy between layouts).
    """

    problem: Problem | None
    solution: str = DEFAULT.text


@dataclass(frozen=True, kw_only=True)
class Application:
    """How an action is applied.

    ``settings`` and ``model`` are lines of Python for the functions ``settings()`` and ``model(model)`` of a generated
    ``apply.py``, ``helpers`` definitions that they use, ``environment`` holds variables for the job, ``by_hand`` what a
    person changes where no such line can.  ``line`` is the one line that does it.
    """

    line: str
    settings: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    helpers: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    by_hand: str = ""


@dataclass(frozen=True, kw_only=True)
class Action:
    """A member of ``ACTIONS``.

    ``change`` returns what a call becomes (None: it stays as it is), ``application`` how it is done in this job (None:
    it cannot be).  ``added`` are calls that only the action makes, such as a conversion of the job's inputs; ``works``
    what it may change, where that is not each problem for itself.  An action that ``waits`` lets the GPU wait less for
    the host: no replay measures that, and what the job waits is the most that it can gain.  One that ``contains``
    others is a combination of them; of those that name the same thing in ``excludes`` only one can be applied; one that
    is not ``exact`` changes results by more than the order of sums.  ``host_us`` is what its calls cost the host more
    (µs per run) at most, all of which is taken off the saving; ``least_host_us``: at least.  ``needs`` is for people.
    """

    name: str
    kind: ActionKind
    about: str
    change: Callable[[Work, Job], Change | None]
    application: Callable[[Job], Application | None]
    added: Callable[[Job], tuple[Work, ...]] = lambda job: ()
    works: Callable[[Job], tuple[Work, ...]] = lambda job: job.work
    waits: bool = False
    contains: tuple[str, ...] = ()
    excludes: str | None = None
    exact: bool = True
    host_us: float = 0.0
    least_host_us: float = 0.0
    needs: str = ""


@dataclass(frozen=True, kw_only=True)
class Part:
    """What an action does to all calls of one problem, GPU time in µs per run; ``of`` is the text of that problem."""

    of: str
    label: str
    group: str
    calls: float | None
    now_us: float
    then_us: float


@dataclass(frozen=True, kw_only=True)
class ActionResult:
    """What an action does to a job: GPU time in µs per run, now and then, with an interval of the latter.

    ``changed_us`` is the time now of all calls that it changes, ``measured_us`` the part of it whose time under the
    action is measured; the rest counts as unchanged.  ``parts`` are the measured calls, those that lose most first.
    ``steps`` is how many steps the run has, None where nothing marks them.  Of an action against waiting, GPU time is
    the same then as now, and ``idle_us`` the most that it can gain of the wall time.
    """

    action: Action
    application: Application
    now_us: float
    then_us: float
    low_us: float
    high_us: float
    changed_us: float
    measured_us: float
    parts: tuple[Part, ...]
    steps: float | None = None
    idle_us: float | None = None

    @property
    def saving_us(self) -> float:
        """GPU time, less what the action costs the host, as if none of that were hidden behind the GPU."""
        return self.now_us - self.then_us - self.action.host_us

    @property
    def losers(self) -> tuple[Part, ...]:
        """Calls that surely get slower, those that lose most first."""
        return tuple(x for x in self.parts if x.then_us > x.now_us)

    @property
    def pays(self) -> bool:
        """Whether the whole interval lies below the time now, also with what the action costs the host."""
        return self.high_us + self.action.host_us < self.now_us

    @property
    def loses(self) -> bool:
        """Whether the whole interval lies above the time now, with what the action costs the host."""
        return self.low_us + self.action.host_us > self.now_us

    @property
    def measured_share(self) -> float:
        """Part of the time of the changed calls whose time under the action is measured."""
        return self.measured_us / self.changed_us if self.changed_us else 0.0
