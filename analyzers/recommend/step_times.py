"""Simulate the step from the run's traces: its time and its limit, now and under each action.

An action saves kernel time.  The step may gain all of that time, some of it (if communication hides the rest) or
nothing (if the host launches too slowly).  ``analyzers/job/step`` replays the traced step with the kernels' times under
the action.
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
    """Simulated steps: ``now`` is unchanged, with its ceilings; ``under`` is the step under each action, by name."""

    now: StepAnswer
    under: Mapping[str, StepAnswer]

    def us(self, action: str) -> tuple[float, float] | None:
        """Return the step's time now and under the named action, µs.  Return None if that is not simulated."""
        under = self.under.get(action)
        return (under.now_us, under.then_us) if under is not None else None


def step_times(tables: Tables, actions: Sequence[ActionResult]) -> StepTimes | StepUnknown:
    """Simulate the run's step.

    If the step is unknown, return the reason: its traces contain no calls of the host, or the store lacks them.  The
    first ceiling needs the best known times of kernels.  These are the fastest times under the actions that pay.
    """
    best: dict[str, Factor] = {}
    for factors in (factors_of(x) for x in actions if x.pays):
        best |= {of: x for of, x in factors.items() if x.value < best.get(of, Factor(1.0, 1.0, 1.0)).value}
    now = step_of(tables, {}, best or None)
    if isinstance(now, StepUnknown):
        return now
    under = {x.action.name: step_of(tables, factors_of(x)) for x in actions if x.parts}
    return StepTimes(now, {name: x for name, x in under.items() if isinstance(x, StepAnswer)})
