"""Simulate the job's step from its traces, to predict its time and what limits it, now and with each change.

Saved kernel time may not shorten the step, for example if the host launches too slowly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from analyzers.actions import ActionResult
from analyzers.actions.totals import factors_of
from analyzers.evidence.tables import Tables
from analyzers.findings import layout_transposes
from analyzers.job.gpu_time import TRANSPOSE, kernels_of_run
from analyzers.job.step.answer import UNPROFILED_HOST, Factor, StepAnswer, StepUnknown, gain_of, step_of
from analyzers.recommend.limit import is_as_profiled
from analyzers.recommend.ranking import Recommendation
from analyzers.recommend.todo_from_findings import groups
from logparse.model import Gain


@dataclass(frozen=True)
class StepTimes:
    """The simulated time of a job's step, as it is now and with each proposed change.

    * ``now`` is the step without a change, together with the bounds on its gain.
    * ``under`` has the step with each change that was timed, by the change's name.
    * ``expected`` has the step with the kernel times that findings expect, by the key of the findings' group
      (``todo_from_findings.groups``) or by the name of a finding about the whole job.
    * ``unslowed`` has all these steps as they usually are without the profiler: the host needs half of its traced time
      (docs/measurement.md). Empty if the host's time without the profiler is known.
    """

    now: StepAnswer
    under: Mapping[str, StepAnswer]
    expected: Mapping[str, Gain] = field(default_factory=dict)
    unslowed: Mapping[str, Gain] = field(default_factory=dict)

    def of_part(self, count: float) -> StepTimes:
        """Return the times of one of ``count`` equal steps, if the simulated step consists of so many."""
        under = {name: x.of_part(count) for name, x in self.under.items()}
        expected, unslowed = (
            {name: x.per(count) for name, x in gains.items()} for gains in (self.expected, self.unslowed)
        )
        return StepTimes(self.now.of_part(count), under, expected, unslowed)


def step_times(tables: Tables, actions: Sequence[ActionResult]) -> StepTimes | StepUnknown:
    """Simulate the job's step, now and with each change. Returns the reason if the simulation is impossible."""
    # To bound the possible gain, the step is also simulated with the best known time of each kernel. This is the
    # shortest time that any worthwhile change gives.
    best: dict[str, Factor] = {}
    for factors in (factors_of(x) for x in actions if x.pays):
        best |= {of: x for of, x in factors.items() if x.value < best.get(of, Factor(1.0, 1.0, 1.0)).value}
    now = step_of(tables, {}, best or None)
    # For example, the traces contain no calls of the host.
    if isinstance(now, StepUnknown):
        return now
    under = {x.action.name: step_of(tables, factors_of(x)) for x in actions if x.parts}
    return StepTimes(now, {name: x for name, x in under.items() if isinstance(x, StepAnswer)})


def with_expected(step: StepTimes, found: Recommendation, tables: Tables) -> StepTimes:
    """Add the step with the kernel times that findings expect, and all changed steps without the profiler.

    A group of findings is left out if the traces lack one of its operators, or if one of its times is unknown.
    """
    factors = _expected_factors(found, tables)
    expected = {key: x for key, of in factors.items() if (x := gain_of(tables, of)) is not None}
    step = replace(step, expected=expected)
    if not is_as_profiled(replace(found, step=step)):
        return step
    factors |= {x.action.name: factors_of(x) for x in found.actions if x.action.name in step.under}
    unslowed = {key: gain_of(tables, of, UNPROFILED_HOST) for key, of in factors.items()}
    return replace(step, unslowed={key: x for key, x in unslowed.items() if x is not None})


def _expected_factors(found: Recommendation, tables: Tables) -> dict[str, Mapping[str, Factor]]:
    """Return by which factors the kernel times change that findings expect, by the keys of ``StepTimes.expected``."""
    of: dict[str, Mapping[str, Factor]] = {}
    for key, numbers in groups(found).items():
        gains = {x.problem.text: x.per_call for x in (found.findings[n - 1] for n in numbers) if x.problem is not None}
        known = {text: Factor(*[x.ratio] * 3) for text, x in gains.items() if x is not None and x.now_us}
        if len(known) == len(gains):
            of[key] = known
    if any(x.analyzer == layout_transposes.NAME for x in found.remarks):
        kernels = kernels_of_run(tables)
        turned = kernels["problem"].notna() & kernels["kernel"].astype(str).str.contains(TRANSPOSE)
        of[layout_transposes.NAME] = {str(x): Factor(0.0, 0.0, 0.0) for x in kernels.loc[turned, "kernel"].unique()}
    return of
