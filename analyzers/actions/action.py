"""The definition of an action: a change that a person makes once, with its effect on all problems of a job.

The effect includes problems that become slower. Each member of ``ACTIONS`` defines two things: how the action is
applied, and which ``Change`` it makes to each problem. The change names a solution of a problem. ``replay`` times this
solution, and its time is a call's time under the action. Because an action may lose time on some problems,
``totals.py`` sums the measured effect and decides whether the action pays.
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
    """The new form of a call: a solution (its text) of a problem. The default solution is the library's own choice.

    Without a ``problem`` (None), the action removes the call (for example a copy between layouts).
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

    * ``change``: returns the new form of a call. Returns None if the action does not change the call.
    * ``application``: returns how the action is applied in this job. Returns None if it cannot be applied.
    * ``added``: returns calls that only the action makes, for example a conversion of the job's inputs.
    * ``works``: returns the calls that the action may change. By default these are the calls of each problem by itself.
    * ``contains``: the actions that this action combines.
    * ``excludes``: a name. Of all actions with the same name here, only one can be applied.
    * ``exact``: False if the action changes results by more than another order of summation does.
    * ``needs``: a condition for applying the action, as a text for people.
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
"""Least saving (relative to the time now) that is worth an action.

Of 14 smaller gains that all samples promised, two were losses in the job (records below).
"""
_HOST = 0.05
"""Least decrease of the host's launch time, relative to the GPU time (0 to 1), with which an action pays.

On three jobs no action changed the host's time by 0.03 of the GPU time (``host_sums`` of
``benchmarks/results/jobs-NVIDIA-H100-80GB-HBM3-2026-11-28.json``).
"""
_TIMED = 0.95
"""Fraction (0 to 1) of the changed calls' time from which on the measurement counts as complete.

If a replay timed a smaller fraction, ``recommend`` and ``verify`` report the fraction.
"""
_STEP, _CHANGE = 0.015, 0.08
"""95 % deviation of a job from the prediction: relative to the job's time, and relative to the action's saving."""


def step_interval(now_us: float, then_us: float, low_us: float, high_us: float) -> tuple[float, float]:
    """Return the 95 % interval of a job's GPU time once an action is applied. Times in µs.

    ``low_us`` and ``high_us`` bound ``then_us`` by the samples of one replay. These bounds are too narrow, because the
    samples do not show how clocks, caches and other processes affect the calls of a whole job. In the records of 97
    actions on 30 programs, the bounds contain the measured time of 17 actions. The interval is widened by ``_STEP`` and
    ``_CHANGE`` and contains 92: 31 of 33 and 61 of 64 (``benchmarks/results/actions-NVIDIA-H200-2026-11-23.json``,
    ``actions-others-…``).
    """
    off = math.hypot(_STEP * now_us, _CHANGE * (now_us - then_us))
    return then_us - math.hypot(off, then_us - low_us), then_us + math.hypot(off, high_us - then_us)


@dataclass(frozen=True, kw_only=True)
class Part:
    """Effect of an action on all calls of one problem, GPU time in µs per run.

    * ``of``: text of the problem.
    * ``host_us``: additional time that the host takes to enqueue the calls, µs.
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

    * ``low_us``, ``high_us``: interval of ``then_us`` by the replay's samples alone. ``interval_us`` is the wider
      interval of the job's time.
    * ``parts``: calls with a measured time under the action. The calls that lose most come first.
    * ``untimed``: other calls that the action changes. ``then_us`` contains them with their time now. The interval
      allows them to gain or lose as the timed calls do (``untimed_factors``).
    * ``steps``: the number of steps of the run. None if nothing marks the steps.
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

        That is so in two cases:

        * The action saves time at both ends of ``ends_us``, and saves more than ``_LEAST``. Override files may save
          less than ``_LEAST``, because several processes have confirmed their savings.
        * The host launches faster by more than ``_HOST``, and the action does not lose GPU time.
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
        """Fraction of the changed calls' time (0 to 1) that belongs to calls with a measured time under the action."""
        return math.fsum(x.now_us for x in self.parts) / self.changed_us if self.changed_us else 0.0

    @property
    def in_part(self) -> str:
        """A sentence with the fraction of the changed calls' time that was timed. Empty if it is nearly all of the
        time.
        """
        if not self.untimed or self.measured_share >= _TIMED:
            return ""
        timed = f"only {self.measured_share:.0%} of the time that {self.action.name} changes was measured"
        return f"{timed}; the rest may gain or lose in the same way"

    @property
    def untimed_factors(self) -> tuple[float, float]:
        """The least and the largest factor (time under the action / time now) for calls that were not timed.

        The least factor is 1 − (savings of the timed calls that gain) / (time of all timed calls). The largest factor
        is 1 + (losses of the timed calls that lose) / (time of all timed calls).
        """
        changes = [x.then_us - x.now_us for x in self.parts if x.now_us]
        timed = math.fsum(x.now_us for x in self.parts) or 1.0
        return 1 + math.fsum(x for x in changes if x < 0) / timed, 1 + math.fsum(x for x in changes if x > 0) / timed

    @property
    def ends_us(self) -> tuple[float, float]:
        """Bounds of the job's GPU time under the action, µs: ``low_us`` and ``high_us``, widened for calls that were
        not timed.

        The untimed calls contribute their time multiplied by ``untimed_factors``.
        """
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
    """Return the fields of a result as one row. GPU time is in µs per run.

    ``steps`` has no value (None) if nothing marks the steps.
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
