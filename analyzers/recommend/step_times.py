"""Simulate the job's step from its traces, to predict its time and what limits it, now and with each change.

A change such as TF32 saves kernel time. The step may gain all of that time, some of it (if communication hides the
rest) or nothing (if the host launches too slowly). ``analyzers/job/step`` does the simulation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analyzers.actions import ActionResult
from analyzers.actions.totals import factors_of
from analyzers.evidence.tables import Tables
from analyzers.job.step.answer import Factor, StepAnswer, StepUnknown, step_of


@dataclass(frozen=True)
class StepTimes:
    """The simulated time of a job's step, as it is now and with each proposed change.

    * ``now``: the step as it is, with the largest gains that are possible.
    * ``under``: the step with a change, by the change's name.
    """

    now: StepAnswer
    under: Mapping[str, StepAnswer]


def step_times(tables: Tables, actions: Sequence[ActionResult]) -> StepTimes | StepUnknown:
    """Simulate the job's step, now and with each change.

    * To bound the possible gain, the step is also simulated with the best known time of each kernel. This is the
      shortest time that any worthwhile change gives.
    * If the simulation is impossible, the reason is returned. For example, the traces contain no calls of the host.
    """
    best: dict[str, Factor] = {}
    for factors in (factors_of(x) for x in actions if x.pays):
        best |= {of: x for of, x in factors.items() if x.value < best.get(of, Factor(1.0, 1.0, 1.0)).value}
    now = step_of(tables, {}, best or None)
    if isinstance(now, StepUnknown):
        return now
    under = {x.action.name: step_of(tables, factors_of(x)) for x in actions if x.parts}
    return StepTimes(now, {name: x for name, x in under.items() if isinstance(x, StepAnswer)})
