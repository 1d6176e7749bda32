"""Simulate the job's step from its traces, to predict its time and what limits it, now and with each change.

Saved kernel time may not shorten the step, for example if the host launches too slowly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from analyzers.actions import ActionResult
from analyzers.actions.totals import factors_of
from analyzers.evidence.tables import Tables
from analyzers.findings import layout_transposes
from analyzers.job.gpu_time import TRANSPOSE, kernels_of_run
from analyzers.job.step.answer import Factor, StepAnswer, StepUnknown, gain_of, step_of
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
    """

    now: StepAnswer
    under: Mapping[str, StepAnswer]
    expected: Mapping[str, Gain] = field(default_factory=dict)

    def of_part(self, count: float) -> StepTimes:
        """Return the times of one of ``count`` equal steps, if the simulated step consists of so many."""
        under = {name: x.of_part(count) for name, x in self.under.items()}
        expected = {name: x.per(count) for name, x in self.expected.items()}
        return StepTimes(self.now.of_part(count), under, expected)


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


def expected_steps(found: Recommendation, tables: Tables) -> Mapping[str, Gain]:
    """Simulate the job's step with the kernel times that findings expect (``StepTimes.expected``).

    A group of findings is left out if the traces lack one of its operators, or if one of its times is unknown.
    """
    of: dict[str, dict[str, Factor]] = {}
    for key, numbers in groups(found).items():
        gains = {x.problem.text: x.per_call for x in (found.findings[n - 1] for n in numbers) if x.problem is not None}
        known = {text: Factor(*[x.ratio] * 3) for text, x in gains.items() if x is not None and x.now_us}
        if len(known) == len(gains):
            of[key] = known
    if any(x.analyzer == layout_transposes.NAME for x in found.remarks):
        kernels = kernels_of_run(tables)
        turned = kernels["problem"].notna() & kernels["kernel"].astype(str).str.contains(TRANSPOSE)
        of[layout_transposes.NAME] = {str(x): Factor(0.0, 0.0, 0.0) for x in kernels.loc[turned, "kernel"].unique()}
    made = {key: gain_of(tables, factors) for key, factors in of.items()}
    return {key: x for key, x in made.items() if x is not None}
