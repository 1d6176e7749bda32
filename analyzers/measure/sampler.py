"""The solutions of one problem on a device: prepared when their turn comes, checked before they may win, timed.

Before each step that a library may crash or hang in, ``tell`` says which solution is in hand, so that the parent knows
whom to blame when the process dies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn, TypeAlias

from analyzers.measure.backend import Backend, Conditions, OutOfMemoryError, Runnable, UnsupportedError
from analyzers.measure.correctness import acceptable
from analyzers.measure.racing import WithdrawnError
from analyzers.measure.results import Method, measured, not_measured
from logparse.model import Measurement, Problem, Solution, Status

Tell: TypeAlias = Callable[[Solution | str], None]
"""Takes the solution that is in hand, or the name of another step."""

_BANDS = ((20.0, 64), (100.0, 24), (1_000.0, 6), (10_000.0, 2))
"""Executions per sample, by latency below … µs: about 1 ms, long for the timer, short for the budget."""

_HICCUP_US = 1_000.0
"""A single execution that takes longer, and far too long, is believed: timing it again is what makes races dear."""


class SickError(Exception):
    """The device no longer answers in this process: only a new process will measure right."""


def executions(time_us: float) -> int:
    """How many executions make one sample."""
    return next((count for below, count in _BANDS if time_us < below), 1)


class Samples:
    """``owners``: who runs a solution, by its text.  ``bound``: the largest relative error that rounding explains."""

    def __init__(
        self,
        problem: Problem,
        owners: Mapping[str, Backend],
        *,
        method: Method,
        conditions: Conditions,
        bound: float,
        tell: Tell,
    ) -> None:
        self._problem, self._owners, self._bound, self._tell = problem, owners, bound, tell
        self._method, self._conditions = method, conditions
        self.refused: dict[str, Measurement] = {}
        """What was given up, by solution text: a status and a reason instead of times."""
        self._prepared: dict[str, Runnable] = {}
        self._errors: dict[str, float] = {}
        self._taken: dict[str, int] = {}
        self._single_us: dict[str, float] = {}
        self._fastest = math.inf

    def take(self, solution: Solution) -> float:
        """One sample for a race.  The first tells whether a solution is hopeless; before the second it is checked.

        Raises WithdrawnError when the solution is given up, SickError, and OutOfMemoryError where not even the
        operands fit: no other solution would fare better then.
        """
        taken = self._taken.get(solution.text, 0)
        self._tell(solution)
        try:
            time_us = self._first(solution) if taken == 0 else self._next(solution, taken)
        except (WithdrawnError, SickError):
            raise
        except UnsupportedError as error:
            self._give_up(solution, "unsupported", str(error))
        except OutOfMemoryError as error:
            if not self._prepared:
                raise
            self._give_up(solution, "out_of_memory", str(error))
        except Exception as error:  # whatever a library raises is this solution's failure, not the run's
            self._failed(solution, error)
        self._taken[solution.text] = taken + 1
        self._fastest = min(self._fastest, time_us)
        return time_us

    def enter(self, solution: Solution) -> None:
        """Prepare, check and look at a solution that is to be confirmed.  Raises WithdrawnError where it is wrong."""
        self._tell(solution)
        runnable = self._ready(solution)
        self._check(solution, runnable)
        self._single_us[solution.text] = runnable.sample_us(1)

    def take_in_block(self, solution: Solution, block: int) -> float:
        """One sample of a confirmation, on the inputs of its block."""
        self._tell(solution)
        self._fresh_inputs(self._method.seed + block, solution)
        return self._ready(solution).sample_us(executions(self._single_us[solution.text]))

    def measured(self, solution: Solution, samples: Sequence[float]) -> Measurement:
        """A measurement of what ``take`` gave, with what else is known of the solution."""
        runnable = self._prepared.get(solution.text)
        return measured(
            self._problem,
            solution,
            samples,
            workspace_bytes=runnable.workspace_bytes if runnable else None,
            error=self._errors.get(solution.text),
        )

    def _first(self, solution: Solution) -> float:
        """A single execution or a few where that tells enough, else a whole sample."""
        runnable, hopeless = self._ready(solution), self._method.rules.hopeless * self._fastest
        once = runnable.sample_us(1)
        if 2 * hopeless < once < max(8 * hopeless, _HICCUP_US):
            once = min(once, runnable.sample_us(1))  # a hiccup is no verdict
        self._single_us[solution.text] = once
        if once > 2 * hopeless:  # twice, because a single execution is timed long by what surrounds it
            return once
        count = executions(once)
        if once > hopeless:
            glance = runnable.sample_us(max(1, count // 8))
            if glance > hopeless:
                return glance
        return runnable.sample_us(count)

    def _next(self, solution: Solution, taken: int) -> float:
        runnable = self._ready(solution)
        if taken == 1:
            self._check(solution, runnable)
        # Other random data in each round of the race; within a round all solutions see the same.
        self._fresh_inputs(self._method.seed + taken.bit_length() - 1, solution)
        return runnable.sample_us(executions(self._single_us[solution.text]))

    def _ready(self, solution: Solution) -> Runnable:
        if solution.text not in self._prepared:
            backend = self._owners[solution.text]
            self._prepared[solution.text] = backend.prepare(self._problem, solution, self._conditions)
        return self._prepared[solution.text]

    def _check(self, solution: Solution, runnable: Runnable) -> None:
        error = self._errors[solution.text] = runnable.error()
        if not acceptable(error, self._bound):
            what = (
                f"relative error {error:.2e} above {self._bound:.2e}" if math.isfinite(error) else "not all was written"
            )
            self._give_up(solution, "wrong", what)

    def _fresh_inputs(self, seed: int, first: Solution) -> None:
        """Other random data, then a sample of whoever comes first that does not count.

        Whoever runs right after the data were written finds other caches and clocks than the rest, and that would
        always be the same one: without this, a copy of the pick beat it.
        """
        if seed != self._conditions.seed:
            self._conditions = replace(self._conditions, seed=seed)
            for backend in dict.fromkeys(self._owners.values()):
                backend.refresh(seed)
            self._ready(first).sample_us(executions(self._single_us[first.text]))

    def _failed(self, solution: Solution, error: Exception) -> NoReturn:
        text = f"{type(error).__name__}: {error}"[:300]
        if not self._owners[solution.text].healthy():
            raise SickError(text) from error
        self._give_up(solution, "failed", text)

    def _give_up(self, solution: Solution, status: Status, why: str) -> NoReturn:
        self.refused[solution.text] = not_measured(self._problem, solution, status, why)
        self._prepared.pop(solution.text, None)
        raise WithdrawnError(status)
