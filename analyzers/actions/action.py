"""What an action is: what a person does once, and what it does to all problems of a job, losers included.

A member of ``ACTIONS`` states for each problem which solution of which problem ``replay`` times to learn what a call
takes under the action (``Change``), and how the action is applied.  Whether it pays is measured: ``totals.py`` sums it.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from logparse.model import DEFAULT, ConvProblem, GemmProblem, OperatorProblem, Problem
from logparse.quoting import Python, asset, joined, lines_of

if TYPE_CHECKING:
    from analyzers.actions.job import Job, Work

ActionKind: TypeAlias = Literal["files", "setting", "program"]
"""Override files; a setting of the process; a change of the program."""
CONVOLUTION, GEMM = "convolution", "GEMM"


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
    settings: tuple[Python, ...] = ()
    model: tuple[Python, ...] = ()
    helpers: tuple[Python, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    by_hand: str = ""


def definitions(module: str) -> Python:
    """The definitions of a module of ``changes/``, which a trial in the job calls, as text for ``apply.py``."""
    from logparse.capture.in_job.logparse_in_job import changes  # here: most runs write no apply.py

    code = Python(asset(Path(changes.__file__).with_name(f"{module}.py")))
    first = next(x for x in ast.parse(code).body if isinstance(x, (ast.FunctionDef, ast.ClassDef)))
    return joined(Python("\n"), lines_of(code)[first.lineno - 1 :])


@dataclass(frozen=True, kw_only=True)
class Action:
    """A member of ``ACTIONS``.

    ``change`` returns what a call becomes (None: it stays as it is), ``application`` how it is done in this job (None:
    it cannot be).  ``added`` are calls that only the action makes, such as a conversion of the job's inputs; ``works``
    what it may change, where that is not each problem for itself.  One that ``contains`` others is a combination of
    them; of those that name the same thing in ``excludes`` only one can be applied; one that is not ``exact`` changes
    results by more than the order of sums.  ``needs`` is for people.
    """

    name: str
    kind: ActionKind
    about: str
    change: Callable[[Work, Job], Change | None]
    application: Callable[[Job], Application | None]
    added: Callable[[Job], tuple[Work, ...]] = lambda job: ()
    works: Callable[[Job], tuple[Work, ...]] = lambda job: job.work
    contains: tuple[str, ...] = ()
    excludes: str | None = None
    exact: bool = True
    needs: str = ""

    def is_alternative_to(self, other: Action) -> bool:
        """Whether only one of the two can be applied: they exclude each other, or one contains the other."""
        excluded = self.excludes is not None and self.excludes == other.excludes
        return excluded or not {self.name, *self.contains}.isdisjoint({other.name, *other.contains})


_LEAST = 0.004
"""Of the time now: of 14 smaller gains that all samples promised two were losses in the job (records below)."""
_HOST = 0.05
"""Share of the GPU time by which the host must launch faster for an action to pay.  On three jobs no action changed its
time by 0.03 (``host_sums`` of ``benchmarks/results/jobs-NVIDIA-H100-80GB-HBM3-2026-11-28.json``).
"""
_TIMED = 0.95
"""If a replay timed a smaller share of what an action changes, ``recommend`` and ``verify`` report the share."""
_STEP, _CHANGE = 0.015, 0.08
"""By which shares of its time, and of what the action saves, a job lies off the prediction (95 %)."""


def step_interval(now_us: float, then_us: float, low_us: float, high_us: float) -> tuple[float, float]:
    """Where the GPU time of a job lies once an action is applied: 95 %, times in µs.

    ``low_us`` and ``high_us`` bound ``then_us`` by the samples of one replay, which say nothing of what clocks, caches
    and another process do to the calls of a whole job: of 97 actions on 30 programs they hold the measured time of 17.
    With ``_STEP`` and ``_CHANGE`` it is 92: 31 of 33 and 61 of 64
    (``benchmarks/results/actions-NVIDIA-H200-2026-11-23.json``, ``actions-others-…``).
    """
    off = math.hypot(_STEP * now_us, _CHANGE * (now_us - then_us))
    return then_us - math.hypot(off, then_us - low_us), then_us + math.hypot(off, high_us - then_us)


@dataclass(frozen=True, kw_only=True)
class Part:
    """What an action does to all calls of one problem, GPU time in µs per run; ``of`` is the text of that problem, and
    ``host_us`` by how much longer the host takes to enqueue them.
    """

    of: str
    label: str
    group: str
    calls: float | None
    now_us: float
    then_us: float
    host_us: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ActionResult:
    """What an action does to a job: GPU time in µs per run, now and then.  ``low_us`` and ``high_us`` are the interval
    of the latter by the replay's samples alone; ``interval_us`` is where the job lies.

    ``parts`` are the calls whose time under the action is measured, those that lose most first.  ``untimed`` are the
    others that it changes: they count as unchanged, and may gain as those do that gain, and lose as those that lose.
    ``steps`` is how many steps the run has, None where nothing marks them, ``word`` what a user calls one.
    """

    action: Action
    application: Application
    now_us: float
    then_us: float
    low_us: float
    high_us: float
    parts: tuple[Part, ...]
    untimed: tuple[Part, ...] = ()
    steps: float | None = None
    word: str = "step"

    @property
    def saving_us(self) -> float:
        return self.now_us - self.then_us

    @property
    def losers(self) -> tuple[Part, ...]:
        """Calls that surely get slower, those that lose most first."""
        return tuple(x for x in self.parts if x.then_us > x.now_us)

    @property
    def interval_us(self) -> tuple[float, float]:
        """Where the GPU time of the job lies once the action is applied (``step_interval``)."""
        return step_interval(self.now_us, self.then_us, *self.ends_us)

    @property
    def pays(self) -> bool:
        """Whether all samples say that it saves more than ``_LEAST``, whatever the untimed calls do, or the host
        launches that much faster.  The savings of files are confirmed in several processes and may be smaller.
        """
        worth = self.action.kind == "files" or self.saving_us > _LEAST * self.now_us
        of_the_host = self.steps and -self.host_us > _HOST * self.now_us and not self.loses
        return bool(of_the_host) or (worth and self.ends_us[1] < self.now_us)

    @property
    def host_us(self) -> float:
        """By how much longer the host takes to enqueue what it changes."""
        return math.fsum(x.host_us for x in self.parts)

    @property
    def loses(self) -> bool:
        return self.ends_us[0] > self.now_us

    @property
    def changed_us(self) -> float:
        """The time now of all calls that it changes."""
        return math.fsum(x.now_us for x in (*self.parts, *self.untimed))

    @property
    def measured_share(self) -> float:
        """Part of the time of the changed calls whose time under the action is measured."""
        return math.fsum(x.now_us for x in self.parts) / self.changed_us if self.changed_us else 0.0

    @property
    def in_part(self) -> str:
        """The share of what it changes that was timed, as a sentence; empty if that is nearly all."""
        if not self.untimed or self.measured_share >= _TIMED:
            return ""
        timed = f"{self.measured_share:.0%} of what {self.action.name} changes was timed"
        return f"{timed}: the rest may gain or lose likewise"

    @property
    def untimed_factors(self) -> tuple[float, float]:
        """The least and the largest time under the action of what was not timed, over its time now."""
        changes = [x.then_us - x.now_us for x in self.parts if x.now_us]
        timed = math.fsum(x.now_us for x in self.parts) or 1.0
        return 1 + math.fsum(x for x in changes if x < 0) / timed, 1 + math.fsum(x for x in changes if x > 0) / timed

    @property
    def ends_us(self) -> tuple[float, float]:
        """``low_us`` and ``high_us`` with what was not timed."""
        untimed, (least, most) = math.fsum(x.now_us for x in self.untimed), self.untimed_factors
        return self.low_us + (least - 1) * untimed, self.high_us + (most - 1) * untimed


def rank(result: ActionResult) -> tuple[float, str]:
    return -result.saving_us, result.action.name


def group_of(problem: Problem) -> str:
    """The kind of operator, for tables: ``convolution``, ``GEMM``, ``aten::add_``."""
    if isinstance(problem, ConvProblem):
        return CONVOLUTION
    if isinstance(problem, GemmProblem):
        return GEMM
    return problem.name if isinstance(problem, OperatorProblem) else problem.kind


def row(x: ActionResult) -> dict[str, object]:
    """The fields of a result, flat; GPU time in µs per run, ``steps`` None where nothing marks them."""
    return {
        "action": x.action.name,
        "kind": x.action.kind,
        "now_us": x.now_us,
        "then_us": x.then_us,
        "then_low_us": x.interval_us[0],
        "then_high_us": x.interval_us[1],
        "saving_us": x.saving_us,
        "steps": x.steps,
        "changed_share": x.changed_us / x.now_us if x.now_us else 0.0,
        "measured_share": x.measured_share,
        "losers": len(x.losers),
        "lost_us": sum(y.then_us - y.now_us for y in x.losers),
        "exact": x.action.exact,
        "line": x.application.line,
    }
