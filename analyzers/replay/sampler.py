"""Prepare, check and time the kernels for one GEMM or convolution on a GPU.

A library may crash or hang in this process. So ``announce`` first tells the parent process which kernel is next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn, TypeAlias

from analyzers.replay.racing import WithdrawnError
from analyzers.replay.results import Method, make_measurement, not_measured
from logparse.libraries.kinds.backend import (
    Backend,
    Conditions,
    HostBoundError,
    OutOfMemoryError,
    Runnable,
    UnsupportedError,
)
from logparse.libraries.kinds.correctness import is_acceptable
from logparse.model import Measurement, Problem, Solution, Status

Announce: TypeAlias = Callable[[Solution | str], None]
"""Type of a function that a worker calls with the name of the kernel or of another step that is about to run."""

_BANDS = ((20.0, 64), (100.0, 24), (1_000.0, 6), (10_000.0, 2))
"""How many executions make one sample, for example 64 for a kernel that takes less than 20 µs.

Each entry is a pair: a limit for the time of one execution (µs), and the number of executions up to this limit. A
sample takes about 1 ms, which is long enough for the timer, and short enough for many samples.
"""

_OUTLIER_US = 1_000.0
"""If the first execution of a kernel took longer than this (µs), it is not timed a second time.

A slow first execution is usually timed again, because the process may have been interrupted. But an interruption is
shorter than this, so the kernel itself is slow, and timing it again would cost most.
"""


class UnhealthyDeviceError(Exception):
    """Raised if the GPU no longer works in this process. Only a new process measures correctly."""


def executions(time_us: float) -> int:
    """Return how many times a kernel runs for one sample, if it takes ``time_us`` (µs) once."""
    return next((count for below, count in _BANDS if time_us < below), 1)


class Sampler:
    """Prepares, checks and times the kernels for one GEMM or convolution.

    ``owners`` has the backend of each kernel, by the kernel's name. ``bound`` is the largest relative error of a result
    that rounding can explain.
    """

    def __init__(
        self,
        problem: Problem,
        owners: Mapping[str, Backend],
        *,
        method: Method,
        conditions: Conditions,
        bound: float,
        announce: Announce,
    ) -> None:
        self._problem, self._owners, self._bound, self._announce = problem, owners, bound, announce
        self._method, self._conditions = method, conditions
        self.refused: dict[str, Measurement] = {}
        """Status and reason of each kernel that was given up, by the kernel's name."""
        self._prepared: dict[str, Runnable] = {}
        self._errors: dict[str, float] = {}
        self._taken: dict[str, int] = {}
        self._single_us: dict[str, float] = {}
        self._fastest = math.inf

    def take(self, solution: Solution) -> float:
        """Run a kernel repeatedly, and return the time of one execution, µs. It raises

        * WithdrawnError if the kernel is not usable
        * UnhealthyDeviceError if the GPU fails
        * OutOfMemoryError if not even the operands fit, so that no kernel can run
        """
        taken = self._taken.get(solution.text, 0)
        # At the first call, the kernel is prepared, and its time shows whether it is much too slow. Before the second
        # one, its result is checked.
        time_us = self._guarded(solution, lambda: self._first(solution) if taken == 0 else self._next(solution, taken))
        self._taken[solution.text] = taken + 1
        self._fastest = min(self._fastest, time_us)
        return time_us

    def unchecked(self, solution: Solution) -> float:
        """Run a kernel repeatedly without checking its result, and return the time of one execution, µs.

        Raises the same errors as ``take``.
        """

        def sample() -> float:
            # This is for kernels that a proposed change of the job would use. The first execution decides how many
            # executions are timed together.
            runnable = self.ready(solution)
            if solution.text not in self._single_us:
                self._single_us[solution.text] = runnable.sample_us(1)
            return runnable.sample_us(executions(self._single_us[solution.text]))

        return self._guarded(solution, sample)

    def _guarded(self, solution: Solution, sample: Callable[[], float]) -> float:
        self._announce(solution)
        try:
            return sample()
        except (WithdrawnError, UnhealthyDeviceError):
            raise
        except UnsupportedError as error:
            self._give_up(solution, "unsupported", str(error))
        except HostBoundError as error:
            self._give_up(solution, "skipped", str(error))
        except OutOfMemoryError as error:
            if not self._prepared:
                raise
            self._give_up(solution, "out_of_memory", str(error))
        except Exception as error:  # Any exception of a library means that this solution failed. The run goes on.
            self._failed(solution, error)

    def enter(self, solution: Solution) -> None:
        """Prepare a kernel whose gain is to be confirmed, and check its result.

        Raises WithdrawnError if the result is wrong.
        """
        self._announce(solution)
        runnable = self.ready(solution)
        self._check(solution, runnable)
        self._single_us[solution.text] = runnable.sample_us(1)

    def take_in_block(self, solution: Solution, block: int) -> float:
        """Take one sample of a kernel whose gain is to be confirmed, on the inputs of a block. Return its time, µs.

        All kernels run equally often in one sample. Otherwise a kernel whose first execution was slow would run less
        often, and the fixed cost of a sample would make each of its executions seem longer. A copy of the library's
        choice would then differ from the original by half a percent.
        """
        self._announce(solution)
        count = executions(min(self._single_us.values()))
        self._fresh_inputs(self._method.seed + block, solution, count)
        return self.ready(solution).sample_us(count)

    def measured(self, solution: Solution, samples: Sequence[float]) -> Measurement:
        """Combine the times of a kernel (``samples``, from ``take``) into one measurement.

        It also contains the workspace (bytes) and the relative error of the kernel's result.
        """
        runnable = self._prepared.get(solution.text)
        return make_measurement(
            self._problem,
            solution,
            samples,
            workspace_bytes=runnable.workspace_bytes if runnable else None,
            error=self._errors.get(solution.text),
        )

    def _first(self, solution: Solution) -> float:
        """Find out quickly whether a kernel is much too slow, and return the time of one execution, µs.

        The kernel is run once, or a few times. If it is not too slow, a whole sample is taken.
        """
        runnable, hopeless = self.ready(solution), self._method.rules.hopeless * self._fastest
        once = runnable.sample_us(1)
        if 2 * hopeless < once < max(8 * hopeless, _OUTLIER_US):
            once = min(once, runnable.sample_us(1))  # One slow run may be noise, so it is timed again.
        self._single_us[solution.text] = once
        if once > 2 * hopeless:  # The limit is doubled because launch overhead lengthens a single execution.
            return once
        count = executions(once)
        if once > hopeless:
            short = runnable.sample_us(max(1, count // 8))
            if short > hopeless:
                return short
        return runnable.sample_us(count)

    def _next(self, solution: Solution, taken: int) -> float:
        runnable = self.ready(solution)
        if taken == 1:
            self._check(solution, runnable)
        # Each round of the race has other random data. Within a round all solutions get the same data.
        count = executions(self._single_us[solution.text])
        self._fresh_inputs(self._method.seed + taken.bit_length() - 1, solution, count)
        return runnable.sample_us(count)

    def ready(self, solution: Solution) -> Runnable:
        """Return a kernel that can be run at once. The kernel is prepared at its first use and then kept.

        Raises the errors of the kernel's backend.
        """
        if solution.text not in self._prepared:
            backend = self._owners[solution.text]
            self._prepared[solution.text] = backend.prepare(self._problem, solution, self._conditions)
        return self._prepared[solution.text]

    def _check(self, solution: Solution, runnable: Runnable) -> None:
        error = self._errors[solution.text] = runnable.error()
        if not is_acceptable(error, self._bound):
            far = f"relative error {error:.2e} above {self._bound:.2e}"
            self._give_up(solution, "wrong", far if math.isfinite(error) else "not all was written")
        fault = runnable.fault()
        if fault:
            self._give_up(solution, "wrong", fault)

    def _fresh_inputs(self, seed: int, first: Solution, count: int) -> None:
        """If ``seed`` is new, write new random data into the inputs, and run the kernel once without using its time."""
        if seed != self._conditions.seed:
            self._conditions = replace(self._conditions, seed=seed)
            for backend in dict.fromkeys(self._owners.values()):
                backend.refresh(seed)
            # This run is not timed. Otherwise the same kernel of a block would always be the first one after new data.
            # The first run after new data is slower or faster than later ones, because caches and clocks differ.
            # Without the unused run, a copy of the library's choice seemed faster than the original.
            self.ready(first).sample_us(count)

    def _failed(self, solution: Solution, error: Exception) -> NoReturn:
        text = f"{type(error).__name__}: {error}"[:300]
        if not self._owners[solution.text].healthy():
            raise UnhealthyDeviceError(text) from error
        self._give_up(solution, "failed", text)

    def _give_up(self, solution: Solution, status: Status, why: str) -> NoReturn:
        self.refused[solution.text] = not_measured(self._problem, solution, status, why)
        self._prepared.pop(solution.text, None)
        raise WithdrawnError(status)
