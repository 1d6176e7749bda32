"""The definition of an action: a change that a person makes once, with its effect on all problems of a job.

Problems that become slower count as well. A member of ``ACTIONS`` states two things: how the action is applied, and for
each problem the ``Change``. The change names the solution of a problem that ``replay`` times to learn a call's time
under the action. Whether an action pays is measured: ``totals.py`` sums its effect.
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
"""Kind of an action: override files, a setting of the process, or a change of the program."""
CONVOLUTION, GEMM = "convolution", "GEMM"


@dataclass(frozen=True)
class Change:
    """The new form of a call: a solution (its text) of a problem. The default is the library's own choice.

    A ``problem`` of None means that the call is no longer made (a copy between layouts).
    """

    problem: Problem | None
    solution: str = DEFAULT.text


@dataclass(frozen=True, kw_only=True)
class Application:
    """How an action is applied.

    * ``line``: the one line that applies it, for the user.
    * ``settings``, ``model``: lines of Python for the functions ``settings()`` and ``model(model)`` of a generated
      ``apply.py``.
    * ``helpers``: definitions that these lines use.
    * ``environment``: variables for the job.
    * ``by_hand``: what a person changes if no such line can do it.
    """

    line: str
    settings: tuple[Python, ...] = ()
    model: tuple[Python, ...] = ()
    helpers: tuple[Python, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    by_hand: str = ""


def definitions(module: str) -> Python:
    """Return the definitions of a module of ``changes/`` as text for ``apply.py``.

    A trial in the job calls them, too.
    """
    from logparse.capture.in_job.logparse_in_job import changes  # Imported here because most runs write no apply.py.

    code = Python(asset(Path(changes.__file__).with_name(f"{module}.py")))
    first = next(x for x in ast.parse(code).body if isinstance(x, (ast.FunctionDef, ast.ClassDef)))
    return joined(Python("\n"), lines_of(code)[first.lineno - 1 :])


@dataclass(frozen=True, kw_only=True)
class Action:
    """A member of ``ACTIONS``.

    * ``change``: returns what a call becomes. None if it stays as it is.
    * ``application``: returns how the action is applied in this job. None if it cannot be applied.
    * ``added``: returns calls that only the action makes, for example a conversion of the job's inputs.
    * ``works``: returns what the action may change, if that is not each problem by itself.
    * ``contains``: the actions that this action combines.
    * ``excludes``: a name. Among actions with the same name here only one can be applied.
    * ``exact``: False if the action changes results by more than the order of sums does.
    * ``needs``: a text for people.
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
        """Tell whether only one of the two can be applied: they exclude each other, or one contains the other."""
        excluded = self.excludes is not None and self.excludes == other.excludes
        return excluded or not {self.name, *self.contains}.isdisjoint({other.name, *other.contains})


_LEAST = 0.004
"""Least saving, as a share of the time now.

Of 14 smaller gains that all samples promised, two were losses in the job (records below).
"""
_HOST = 0.05
"""Share of the GPU time (0 to 1) by which the host must launch faster for an action to pay.

On three jobs no action changed the host's time by 0.03 of the GPU time (``host_sums`` of
``benchmarks/results/jobs-NVIDIA-H100-80GB-HBM3-2026-11-28.json``).
"""
_TIMED = 0.95
"""Least share (0 to 1) of the changed time that a replay must have timed.

If it timed less, ``recommend`` and ``verify`` report the share.
"""
_STEP, _CHANGE = 0.015, 0.08
"""Deviation of a job from the prediction (95 %), as shares of the job's time and of the action's saving."""


def step_interval(now_us: float, then_us: float, low_us: float, high_us: float) -> tuple[float, float]:
    """Return the 95 % interval of a job's GPU time once an action is applied. Times in µs.

    ``low_us`` and ``high_us`` bound ``then_us`` by the samples of one replay. These samples do not show the effect of
    clocks, caches and other processes on the calls of a whole job: of 97 actions on 30 programs, the bounds contain the
    measured time of 17. With ``_STEP`` and ``_CHANGE`` the interval contains 92: 31 of 33 and 61 of 64
    (``benchmarks/results/actions-NVIDIA-H200-2026-11-23.json``, ``actions-others-…``).
    """
    off = math.hypot(_STEP * now_us, _CHANGE * (now_us - then_us))
    return then_us - math.hypot(off, then_us - low_us), then_us + math.hypot(off, high_us - then_us)


@dataclass(frozen=True, kw_only=True)
class Part:
    """Effect of an action on all calls of one problem, GPU time in µs per run.

    ``of``: text of the problem. ``host_us``: the additional time that the host takes to enqueue the calls, µs.
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
    """Effect of an action on a job: GPU time now and then, µs per run.

    * ``low_us``, ``high_us``: interval of ``then_us`` by the replay's samples alone. ``interval_us`` is the interval of
      the job's time.
    * ``parts``: calls with a measured time under the action. The calls that lose most come first.
    * ``untimed``: other calls that the action changes. They count as unchanged in ``then_us``. In the interval they may
      gain like the timed calls that gain, and lose like the timed calls that lose.
    * ``steps``: the number of steps of the run. None if nothing marks them.
    * ``word``: the user's word for a step.
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
        """Calls that become slower. The calls that lose most come first."""
        return tuple(x for x in self.parts if x.then_us > x.now_us)

    @property
    def interval_us(self) -> tuple[float, float]:
        """95 % interval of the job's GPU time once the action is applied (``step_interval``), µs."""
        return step_interval(self.now_us, self.then_us, *self.ends_us)

    @property
    def pays(self) -> bool:
        """True if the action is worth applying.

        * All samples say that it saves time, whatever the untimed calls do, and it saves more than ``_LEAST``. Override
          files may save less, because their savings are confirmed in several processes.
        * Or the host launches faster by more than ``_HOST``, and the action does not lose GPU time.
        """
        worth = self.action.kind == "files" or self.saving_us > _LEAST * self.now_us
        of_the_host = self.steps and -self.host_us > _HOST * self.now_us and not self.loses
        return bool(of_the_host) or (worth and self.ends_us[1] < self.now_us)

    @property
    def host_us(self) -> float:
        """Additional time that the host takes to enqueue the calls that the action changes, µs."""
        return math.fsum(x.host_us for x in self.parts)

    @property
    def loses(self) -> bool:
        return self.ends_us[0] > self.now_us

    @property
    def changed_us(self) -> float:
        """Time now of all calls that the action changes, µs."""
        return math.fsum(x.now_us for x in (*self.parts, *self.untimed))

    @property
    def measured_share(self) -> float:
        """Share of the changed calls' time (0 to 1) whose time under the action is measured."""
        return math.fsum(x.now_us for x in self.parts) / self.changed_us if self.changed_us else 0.0

    @property
    def in_part(self) -> str:
        """A sentence with the share of the changed time that was timed. Empty if it is nearly all."""
        if not self.untimed or self.measured_share >= _TIMED:
            return ""
        timed = f"{self.measured_share:.0%} of what {self.action.name} changes was timed"
        return f"{timed}: the rest may gain or lose likewise"

    @property
    def untimed_factors(self) -> tuple[float, float]:
        """The least and the largest factor (time under the action / time now) for calls that were not timed."""
        changes = [x.then_us - x.now_us for x in self.parts if x.now_us]
        timed = math.fsum(x.now_us for x in self.parts) or 1.0
        return 1 + math.fsum(x for x in changes if x < 0) / timed, 1 + math.fsum(x for x in changes if x > 0) / timed

    @property
    def ends_us(self) -> tuple[float, float]:
        """``low_us`` and ``high_us`` with the calls that were not timed."""
        untimed, (least, most) = math.fsum(x.now_us for x in self.untimed), self.untimed_factors
        return self.low_us + (least - 1) * untimed, self.high_us + (most - 1) * untimed


def rank(result: ActionResult) -> tuple[float, str]:
    return -result.saving_us, result.action.name


def group_of(problem: Problem) -> str:
    """Return the kind of operator, for tables: ``convolution``, ``GEMM``, ``aten::add_``."""
    if isinstance(problem, ConvProblem):
        return CONVOLUTION
    if isinstance(problem, GemmProblem):
        return GEMM
    return problem.name if isinstance(problem, OperatorProblem) else problem.kind


def row(x: ActionResult) -> dict[str, object]:
    """Return the fields of a result as one row. GPU time in µs per run.

    If nothing marks steps, ``steps`` has no value (None).
    """
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
