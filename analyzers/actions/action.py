"""The definition of an action: a change that a person makes once and that affects the whole job.

Examples are a setting of PyTorch (TF32), another memory layout of the images, or a padded output layer. An action may
make some operations faster and others slower. Each member of ``ACTIONS`` defines two things: how a person makes the
change, and what becomes of each call of a matrix product, convolution or other operator (``Change``). ``replay`` runs
the changed calls alone and times them. ``totals.py`` adds up the measured effects over the job and decides whether the
change is worth making.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from logparse.model import DEFAULT, ConvProblem, Gain, GemmProblem, OperatorProblem, Problem
from logparse.quoting import Python, asset, join_code, lines_of

if TYPE_CHECKING:
    from analyzers.actions.job import Job, Work

ActionKind: TypeAlias = Literal["files", "setting", "program"]
"""How a change is made to a job: by override files, by a setting of the process, or by a change of the program."""
CONVOLUTION, GEMM = "convolution", "GEMM"


@dataclass(frozen=True)
class Change:
    """The form that one call of an operator takes after a change of the job, such as TF32.

    * ``problem``: the new operator, or None if the call disappears.
    * ``solution``: its kernel, by default the library's choice.
    """

    # A call disappears, for example, if it copies from one memory layout to another and is no longer needed.
    problem: Problem | None
    solution: str = DEFAULT.text


@dataclass(frozen=True, kw_only=True)
class Application:
    """Instructions for making a change to the job, such as lines of Python or environment variables.

    * ``line``: the one line that the user is shown.
    * ``settings``, ``model``: lines of Python for the functions ``settings()`` and ``model(model)`` of the generated
      file ``apply.py``.
    * ``helpers``: Python definitions that these lines use.
    * ``environment``: environment variables of the job.
    * ``in_force``: for each setting of PyTorch that ``settings`` changes, a Python expression that is true as long as
      the setting has its new value. The keys are for people, for example ``torch.backends.cudnn.benchmark``. The trial
      in the running job names the settings by the same words (``disturbed``).
    * ``by_hand``: what a person must edit, if no such line can make the change.
    """

    line: str
    settings: tuple[Python, ...] = ()
    model: tuple[Python, ...] = ()
    helpers: tuple[Python, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    in_force: Mapping[str, Python] = field(default_factory=dict)
    by_hand: str = ""


def definitions(module: str) -> Python:
    """Return the source code of a module in the folder ``changes/``, from its first function or class on."""
    # The code is copied into the apply.py that is generated for the user. The same module tries a change in a running
    # job.
    from logparse.capture.in_job.logparse_in_job import changes  # Imported here because most runs write no apply.py.

    code = Python(asset(Path(changes.__file__).with_name(f"{module}.py")))
    first = next(x for x in ast.parse(code).body if isinstance(x, (ast.FunctionDef, ast.ClassDef)))
    return join_code(Python("\n"), lines_of(code)[first.lineno - 1 :])


@dataclass(frozen=True, kw_only=True)
class Action:
    """A change that a person makes once and that affects the whole job, for example TF32.

    * ``change``: a function that returns what becomes of a call, or None if the call stays as it is.
    * ``application``: a function that returns how to make the change to a job, or None if that is impossible.
    * ``added``: a function that returns additional calls that the change causes, for example a conversion of the
      inputs.
    * ``works``: a function that returns the calls that may change. By default these are all calls of the job.
    * ``contains``: the names of other actions that this action includes.
    * ``excludes``: a name. Of all actions with the same name here, only one can be used.
    * ``exact``: False if results change by more than they do when numbers are summed in another order.
    * ``needs``: a condition for making the change, as a text for people.
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
        """Tell whether only one of the two changes can be made.

        They are alternatives if they exclude each other, or if one contains the other.
        """
        excluded = self.excludes is not None and self.excludes == other.excludes
        return excluded or not {self.name, *self.contains}.isdisjoint({other.name, *other.contains})


_LEAST = 0.004
"""The smallest saving for which a change is worth making, as a fraction of the job's present GPU time.

Smaller savings are not reliable. In measurements of 97 changes on 30 programs, all samples of the single calls promised
a smaller saving 14 times, but two times the change made the whole job slower (records: see ``step_interval``).
"""
_HOST = 0.05
"""The smallest saving of the host's time that makes a change worthwhile, as a fraction (0 to 1) of the GPU time.

The host's time is the time in which it launches kernels. On three jobs no change altered it by 0.03 of the GPU time
(``host_sums`` of ``benchmarks/results/jobs-NVIDIA-H100-80GB-HBM3-2026-11-28.json``).
"""
_TIMED = 0.95
"""From this fraction (0 to 1) on, the measurement of a change is taken as complete.

The fraction is (time of the measured calls) / (time of all calls that change). If it is smaller, ``recommend`` and
``verify`` report it.
"""
_STEP, _CHANGE = 0.015, 0.08
"""How far a job's measured time may be from the prediction, at 95 % confidence.

The first number is a fraction of the job's time, for example 0.01 for 1 %. The second is a fraction of the predicted
saving.
"""


def with_job_interval(gain: Gain) -> Gain:
    """Return a job's predicted gain from a change with the 95 % interval of the GPU time that the job will take.

    The interval of ``gain`` comes from the samples of one replay (a run that times the calls alone). It is too narrow,
    because the samples do not show how clocks, caches and other processes affect the calls of a whole job. In the
    records of 97 changes on 30 programs, it contains the measured time of only 17 changes. Widened by ``_STEP`` and
    ``_CHANGE``, the interval contains 92: 31 of 33 and 61 of 64
    (``benchmarks/results/actions-NVIDIA-H200-2026-11-23.json``, ``actions-others-…``).
    """
    off, then, (low, high) = math.hypot(_STEP * gain.now_us, _CHANGE * gain.saving_us), gain.then_us, gain.ends_us
    least = max(then - math.hypot(off, then - low), min(0.0, then))  # No time is negative, unless ``then`` is.
    return Gain(gain.now_us, then, least, then + math.hypot(off, high - then))


@dataclass(frozen=True, kw_only=True)
class Part(Gain):
    """How much GPU time per run a change saves in all calls of one operator with the same sizes.

    * ``of``: the operator and its sizes, as text.
    * ``host_us``: additional time to launch the calls, µs.
    """

    of: str
    label: str
    group: str
    calls: float | None
    host_us: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ActionResult(Gain):
    """The measured gain of a whole job from a change, in GPU time per run.

    * ``low_us``, ``high_us``: bounds of ``then_us`` by the samples of the replay (the run that timed the calls alone).
      The interval of ``job_gain`` is wider, because a whole job deviates by more.
    * ``parts``: the calls that were timed with the change. The calls that lose most come first.
    * ``untimed``: calls that change but were not timed. ``then_us`` contains them with their present time. The interval
      allows them to gain or lose as the timed calls do (``untimed_factors``).
    * ``steps``: the number of steps of the run, or None if nothing in the run's files marks the steps.
    * ``word``: the user's word for a step.
    """

    action: Action
    application: Application
    parts: tuple[Part, ...]
    untimed: tuple[Part, ...] = ()
    steps: float | None = None
    word: str = "step"

    @property
    def losers(self) -> tuple[Part, ...]:
        """The calls that the change makes slower. The calls that lose most come first."""
        return tuple(x for x in self.parts if x.then_us > x.now_us)

    @property
    def job_gain(self) -> Gain:
        """The GPU time that the whole job should save with the change, with a 95 % confidence interval."""
        # The times were measured one call at a time. Clocks and caches differ in a whole job, so the interval is made
        # wider.
        return with_job_interval(self.widened)

    @property
    def pays(self) -> bool:
        """True if the change is worth making, because it saves enough GPU time or host time.

        At least one of two conditions must hold:

        * The change saves GPU time at both ends of ``widened``, and it saves more than the fraction ``_LEAST``.
          Override files may save less, because several processes have confirmed their savings.
        * The host launches the kernels faster by more than the fraction ``_HOST``, and the change does not lose GPU
          time.
        """
        worth = self.action.kind == "files" or self.saving_us > _LEAST * self.now_us
        of_the_host = self.steps and -self.host_us > _HOST * self.now_us and not self.loses
        return bool(of_the_host) or (worth and self.widened.ends_us[1] < self.now_us)

    @property
    def host_us(self) -> float:
        """How much longer the host takes with the change to launch the changed calls, µs. Negative means less time."""
        return math.fsum(x.host_us for x in self.parts)

    @property
    def loses(self) -> bool:
        return self.widened.ends_us[0] > self.now_us

    @property
    def changed_us(self) -> float:
        """The present GPU time of all calls that the change will alter, µs."""
        return math.fsum(x.now_us for x in (*self.parts, *self.untimed))

    @property
    def measured_share(self) -> float:
        """The fraction (0 to 1) of the affected calls' time for which the effect of the change was measured.

        Affected calls are the ones that the change alters. Their time is the present one.
        """
        return math.fsum(x.now_us for x in self.parts) / self.changed_us if self.changed_us else 0.0

    @property
    def in_part(self) -> str:
        """A sentence that warns if only a part of the calls that the change affects was timed.

        Empty if nearly all were timed.
        """
        if not self.untimed or self.measured_share >= _TIMED:
            return ""
        timed = f"only {self.measured_share:.0%} of the time that {self.action.name} changes was measured"
        return f"{timed}; the rest may gain or lose in the same way"

    @property
    def untimed_factors(self) -> tuple[float, float]:
        """The smallest and the largest factor by which a change may multiply the time of calls that were not timed."""
        changes = [x.then_us - x.now_us for x in self.parts if x.now_us]
        timed = math.fsum(x.now_us for x in self.parts) or 1.0
        # Smallest: 1 − (savings of the calls that gain) / (time of all timed calls). Largest: 1 + (losses of the calls
        # that lose) / (time of all timed calls).
        return 1 + math.fsum(x for x in changes if x < 0) / timed, 1 + math.fsum(x for x in changes if x > 0) / timed

    @property
    def widened(self) -> Gain:
        """The gain with an interval that allows for changed calls which were not timed.

        Their time with the change is unknown. So the interval allows that they gain or lose as much as the timed calls
        (``untimed_factors``).
        """
        untimed, (least, most) = math.fsum(x.now_us for x in self.untimed), self.untimed_factors
        low, high = self.ends_us
        return Gain(self.now_us, self.then_us, low + (least - 1) * untimed, high + (most - 1) * untimed)


def rank(result: ActionResult) -> tuple[float, str]:
    return -result.saving_us, result.action.name


def group_of(problem: Problem) -> str:
    """Return the kind of an operator, as tables show it: ``convolution``, ``GEMM``, or a name like ``aten::add_``."""
    if isinstance(problem, ConvProblem):
        return CONVOLUTION
    if isinstance(problem, GemmProblem):
        return GEMM
    return problem.name if isinstance(problem, OperatorProblem) else problem.kind


def row(x: ActionResult) -> dict[str, object]:
    """Return the effect of a change as one row of a table. GPU times are in µs per run.

    ``steps`` (the number of steps) is empty (None) if nothing in the run's files marks the steps.
    """
    return {
        "action": x.action.name,
        "kind": x.action.kind,
        "now_us": x.now_us,
        "then_us": x.then_us,
        "then_low_us": x.job_gain.low_us,
        "then_high_us": x.job_gain.high_us,
        "saving_us": x.saving_us,
        "steps": x.steps,
        "changed_share": x.changed_us / x.now_us if x.now_us else 0.0,
        "measured_share": x.measured_share,
        "losers": len(x.losers),
        "lost_us": sum(-y.saving_us for y in x.losers),
        "exact": x.action.exact,
        "line": x.application.line,
    }
