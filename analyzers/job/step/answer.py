"""Simulate how long a step of a job would take with other kernel times, and find out what limits it.

The profiler slows the host, so the host's traced times are multiplied by a factor (``host_factor``). Two measured times
determine this factor:

* The host's own time without the profiler, in steps before which the device was idle (``UnitKind.host_us``).
* The time of the unchanged step without the profiler. The simulation must reach this time, as far as the spread of the
  host's times allows.

If the host's own time was not measured, the unchanged step alone determines the factor. If the step does not wait for
the host, the step's time does not depend on the host. Then the factor stays 1, and the interval begins with a host that
is ``ROUGH`` times as fast.

The simulation also scales waits for things outside the traces. A trace of two steps shows only some of the waits for a
loader's workers. If ranks left no trace, the traces contain the waits of collectives while those ranks started their
profilers. All such waits are scaled until the unchanged step takes its untraced time (``fit_waits``). A remaining
difference becomes a factor on every answer. If that factor is too large (``_EXPLAINED``), there is no answer.

If a change removes calls, the host saves the time that it spent on launching their kernels. If it changes calls, the
host's time changes as a replay measured it. The savings and the additional time scale all of the host's work.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from analyzers.evidence.tables import Tables, cached_per_run
from analyzers.evidence.traces import unknown_idle
from analyzers.evidence.units import units
from analyzers.job.searches import searches
from analyzers.job.step.build import build
from analyzers.job.step.graph import COMMUNICATION, KERNELS, KINDS, Bounds, Floats, Graph, shares, times
from analyzers.job.step.traces import RankTrace, read_trace, trace_of
from logparse.errors import InputError
from logparse.ingest.input_file import CAPTURES, InputFile, source_id
from logparse.model import Gain
from logparse.text import duration

ERROR = 0.05
"""Relative error of the simulated time of a step after a change (0.05 means 5 %). The interval contains it.

It is at least twice the root mean square error over pairs of runs before and after a change, in the records
``benchmarks/results/jobs-…``. Only pairs are used whose times are known well and whose steps the host does not limit
(``steps.py``, ``own_errors``). The uncertainty of the host's own times is added to the interval separately.
"""
STARTS = 0.04
"""How much the host's time differs from one start of a program to the next: a relative standard deviation.

It is the root mean square over the measured jobs that wait for the host (``benchmarks/steps.py``, ``starts``). In
single jobs it is 0.009 to 0.083.
"""
BESIDE_LOGS = (
    "the steps were timed while libraries wrote logs, which slows the host (`logparse tune` times them without logs)"
)
_AS_TRACED = (
    "the step's time without the profiler is unknown, so the host is assumed to need the time that it took under the "
    "profiler"
)
_NOT_KEPT = "an older version of logparse ingested this trace and did not store the events of the step"
READ_AGAIN = f"{_NOT_KEPT}, so the trace was read again:"
_STORE_ANEW = "to store the events, run `logparse forget` for the trace, then ingest the trace again"
WORTH = 0.04
"""Smallest gain that is printed, as a fraction of the step's time."""
ROUGH = 1.5
"""If the profiler makes the host slower by more than this factor, the simulated times are called rough."""
UNPROFILED_HOST = 0.5
"""The usual part of the host's traced time that the host needs without the profiler.

Its median over 11 host-bound programs on H100 and H200 is 0.47 (docs/measurement.md).
"""
_SAME = 1e-3
_HOST_LEAST, _HOST_MOST, _HOST_EXACT = 0.1, 4.0, 1e-4
_DEPENDS = 0.5
"""Smallest dependence of the step's time on the host's speed that is not ignored.

The dependence is (relative change of the step's time) / (relative change of the host's time). If it is smaller, a
slower host does not explain why a step takes longer without the profiler than in the simulation.
"""
_WAITS_MOST = 8.0
"""Largest factor by which the simulation lengthens waits for data-loader workers and for ranks without a trace."""
_EXPLAINED = 1.3
"""Largest factor by which the simulated and the measured time of the unchanged step may differ.

If they differ more, the simulation is too wrong to answer what a change would do.
"""
_WINDOWS, _MOST_WORK = 2, 1_000_000
FORMAT = "torch-profiler"


class Factor(NamedTuple):
    """The effect of a change on the time of a kernel: (new time) / (time in the trace), with its interval.

    * ``host_us``: additional host time in an average step, µs.
    """

    # A factor of 0 means that the kernel is no longer launched.
    value: float
    low: float
    high: float
    host_us: float = 0.0


@dataclass(frozen=True)
class Ceilings:
    """How long the step would take if something were perfect, µs. The four times show how much can be gained at most.

    * ``best_us``: every kernel takes its best known time.
    * ``fast_host_us``: the host is infinitely fast.
    * ``free_communication_us``: communication takes no time.
    * ``free_kernels_us``: kernels take no time. It bounds the gain from other kernel times.
    * ``half_host_us``: the host is twice as fast. None if it was not simulated.
    * ``next_limit``: what limits the step if communication takes no time, one of ``graph.KINDS``. Empty if unknown.

    On real traces these limits are exact to 0.5 % only, because both ends of a step may move. So all except ``best_us``
    are never longer than the step's time now.
    """

    best_us: float
    fast_host_us: float
    free_communication_us: float
    free_kernels_us: float
    half_host_us: float | None = None
    next_limit: str = ""

    def per(self, count: float) -> Ceilings:
        """Return the times of one of ``count`` equal parts of the simulated step."""
        return Ceilings(
            self.best_us / count,
            self.fast_host_us / count,
            self.free_communication_us / count,
            self.free_kernels_us / count,
            None if self.half_host_us is None else self.half_host_us / count,
            self.next_limit,
        )


@dataclass(frozen=True, kw_only=True)
class StepAnswer(Gain):
    """The result of a simulation: the time of a step now and with changed kernels.

    * ``now_us``: measured without the profiler if that is known, else simulated.
    * ``then_us``: with the changed kernels.
    * ``low_us``, ``high_us``: an interval around ``then_us``. It covers the kernels' intervals, the range of the host's
      times, their difference between two starts (``STARTS``), and the simulation's ``ERROR``.
    * ``limit``: what the changed step waits for most (one of ``graph.KINDS``, for example ``host``).
    * ``shares``: the part of the changed step (0 to 1) that waits for each of ``graph.KINDS``.
    * ``host_factor``: the factor by which the host's traced times were multiplied.
    * ``launch_us``: time that the host takes to launch a kernel.
    * ``rough``: True if the profiler slowed the host too much, or if the time without it is unknown.
    """

    limit: str
    host_factor: float
    launch_us: float
    rough: bool
    shares: Mapping[str, float]
    ceilings: Ceilings
    notes: tuple[str, ...] = ()

    @property
    def beside_logs(self) -> bool:
        return BESIDE_LOGS in self.notes

    def of_part(self, count: float) -> StepAnswer:
        """Return the answer for one of ``count`` equal steps, if the simulated step consists of so many."""
        one, ceilings = self.per(count), self.ceilings.per(count)
        return replace(
            self,
            now_us=one.now_us,
            then_us=one.then_us,
            low_us=one.low_us,
            high_us=one.high_us,
            ceilings=ceilings,
        )

    @property
    def read_again(self) -> str:
        """A sentence for the user if trace files had to be opened again, because the stored tables lack their events.

        Empty if the stored tables have all events.
        """
        return next((note for note in self.notes if note.startswith(READ_AGAIN)), "")


@dataclass(frozen=True)
class StepUnknown:
    """The reason why a step cannot be simulated, so that the effect of a change on its time is unknown."""

    reason: str


@dataclass(frozen=True, eq=False)
class Step:
    """The traced steps of a job in a form that can be simulated, and times measured without the profiler.

    The steps are graphs of dependencies. The simulation must agree with the measured times.

    * ``counts``: how often each kind of step ran. If it is empty, the kinds are as frequent as in the traces.
    * ``untraced_us``: time of an average step without the profiler, µs.
    * ``host_us``: time of the host alone for a step of each kind, µs. It is the lower quartile, as in
      ``compare/unit_time.py``.
    * ``host_range``: the range that contains 90 % of the host's times, relative to the lower quartile.
    """

    graphs: Sequence[Graph]
    counts: Mapping[str, float]
    untraced_us: float | None = None
    notes: tuple[str, ...] = ()
    host_us: Mapping[str, float] = field(default_factory=dict)
    host_range: tuple[float, float] = (1.0, 1.0)

    def us(self, each: Callable[[Graph], Floats], host_factor: float) -> float:
        """Simulate the job's steps, and return how long a step takes on average, µs.

        * ``each``: returns the times of kernels and transfers in a simulated step.
        * ``host_factor``: multiplies the host's times. 0.8 is 20 % less.
        """
        return self.mean_us([times(graph, each(graph), host_factor) for graph in self.graphs])

    def mean_us(self, at: Sequence[Sequence[float]]) -> float:
        """Return how long a step takes on average (µs), from the simulated times ``at`` of the graphs' nodes.

        Two times are computed for each step, and the longer one is used: the time from its first to its last node, and
        the time of its host. The first time may be too short in a short trace, in which the device catches up with a
        host that was several steps ahead. In a long run, neither can be faster than the other.
        """

        def took(moments: Sequence[float], unit: Bounds, in_step: bool) -> float:
            host = moments[unit.issued] - moments[unit.begun] if in_step else 0.0
            return max(moments[unit.last] - moments[unit.first], host)

        return self._mean(self._by_kind(at, took))

    def issued_us(self, at: Sequence[Sequence[float]]) -> float:
        """Return the mean time until the simulated host has launched all kernels of a step, µs.

        * ``at``: for each graph, when each of its events happens.
        """
        found = self._by_kind(at, lambda moments, unit, _: moments[unit.issued] - moments[unit.begun])
        # A job may have several kinds of steps, for example training and evaluation. Only kinds with a measured host
        # time are used.
        return self._mean({kind: us for kind, us in found.items() if kind in self.host_us})

    @property
    def measured_host_us(self) -> float:
        """Measured mean time that the host works on a step if it never waits for the device, µs. 0 if it is unknown."""
        kinds = {unit.kind for graph in self.graphs for unit in graph.bounds}
        # The mean over the kinds of steps in the traces is weighted by how often they ran.
        return self._mean({kind: [us] for kind, us in self.host_us.items() if kind in kinds})

    @property
    def weights(self) -> list[float]:  # One weight per graph: how many units of the run a unit of the graph stands for.
        traced = Counter(unit.kind for graph in self.graphs for unit in graph.bounds)
        known = any(self.counts.get(x) for x in traced)
        each = {x: self.counts.get(x, 0.0) / n if known else 1.0 for x, n in traced.items()}
        return [math.fsum(each[x.kind] for x in graph.bounds) / max(len(graph.bounds), 1) for graph in self.graphs]

    def _by_kind(
        self, at: Sequence[Sequence[float]], took: Callable[[Sequence[float], Bounds, bool], float]
    ) -> dict[str, list[float]]:
        """Compute one number for each traced step, for example its time (µs), and return the numbers by kind of step.

        * ``took``: computes the number.
        """
        found: dict[str, list[float]] = defaultdict(list)
        first: dict[str, list[float]] = defaultdict(list)
        for graph, moments in zip(self.graphs, at, strict=True):
            begun: set[int] = set()
            for unit in graph.bounds:
                in_step = unit.rank in begun
                (found if in_step else first)[unit.kind].append(took(moments, unit, in_step))
                begun.add(unit.rank)
        # In the first step of a trace, the host is not yet as far ahead of the device as usual. So this step is used
        # only if there is no other of its kind.
        for kind, us in first.items():
            found.setdefault(kind, us)
        return found

    def _mean(self, found: Mapping[str, Sequence[float]]) -> float:
        known = {kind: self.counts.get(kind, 0.0) for kind in found}
        known = known if any(known.values()) else {kind: float(len(us)) for kind, us in found.items()}
        total = math.fsum(known.values())
        return math.fsum(known[kind] / total * math.fsum(us) / len(us) for kind, us in found.items()) if total else 0.0


class _Unit(NamedTuple):
    """Two mean times of a step, from a simulation, µs.

    ``us`` is the time of the whole step. ``issued_us`` is the time until the host has launched all its work.
    """

    us: float
    issued_us: float


@cached_per_run
def _simulate_as_traced(step: Step, host_factor: float, without: int | None = None) -> _Unit:
    """Simulate the step with the kernel times of the trace, but with a faster or slower host.

    * ``host_factor``: the factor by which the host's times are multiplied.
    * ``without``: a kind of work (kernels or communication) that takes no time.
    """
    us = [graph.us if without is None else graph.without(without) for graph in step.graphs]
    at = [times(graph, each, host_factor) for graph, each in zip(step.graphs, us, strict=True)]
    return _Unit(step.mean_us(at), step.issued_us(at))


def _scale_outside_waits(step: Step, factor: float) -> Step:
    """Return a copy of the step in which waits for things outside the traces are multiplied by ``factor``.

    Such waits are for data-loader workers, or for ranks that left no trace.
    """
    return replace(step, graphs=[graph.waiting(factor) for graph in step.graphs])


@cached_per_run
def fit_waits(step: Step) -> Step:
    """Correct the simulation's waits for things outside the traces, so that the step takes its measured time.

    For example, the step waits for data-loader workers or for ranks without a trace.
    """
    target = step.untraced_us
    # The step stays as it is if it has no such waits, or if its time without the profiler is unknown.
    if target is None or not any(graph.outside for graph in step.graphs):
        return step
    host = _fit_host_factor(step) if step.measured_host_us else 1.0

    @cache
    def simulated(factor: float) -> float:
        return _simulate_as_traced(_scale_outside_waits(step, factor), host).us

    if abs(simulated(1.0) / target - 1.0) <= ERROR / 2:
        return step
    factor = _find_factor(target, simulated, 0.0, _WAITS_MOST)
    note = (
        f"waits for data-loader workers, or for ranks without a trace, are taken as {factor:.2f} of their traced time"
    )
    return replace(_scale_outside_waits(step, factor), notes=(*step.notes, note))


@cached_per_run
def _fit_host_factor(step: Step) -> float:
    """Return the factor by which the host's traced times must be multiplied so that the simulated host is not too slow.

    A traced host works more slowly than usual. The factor makes the simulation as fast as the host was without the
    profiler. Waits for things outside the traces, such as data-loader workers, are left out of this simulation. The
    measured host times hardly contain such waits, because the lower quartile of many steps is used.
    """
    free = _scale_outside_waits(step, 0.0) if any(graph.outside for graph in step.graphs) else step
    return _find_factor(
        step.measured_host_us, lambda x: _simulate_as_traced(free, x).issued_us, _HOST_LEAST, _HOST_MOST
    )


@cached_per_run
def host_factor_of(step: Step) -> float:
    """Return the factor by which the host's traced times are multiplied, because the profiler slows the host.

    Two measured times can determine the factor. F is the factor with which the simulated host takes the host's own
    time. G is the factor with which the unchanged step takes its measured time.

    * If both times are known, F is returned if the step then takes its measured time.
    * Otherwise G is returned. But if G is outside the spread of the host's times, or if kernels limit the step, F is
      returned.
    * If only the host's own time is known, F is returned.
    * If only the time of the step is known, G is returned. If no factor reaches that time, it is the factor nearest to
      1 that comes closest.
    * If neither time is known, 1 is returned.
    """
    if not step.measured_host_us:
        return _of_step(step)
    alone, target = _fit_host_factor(step), step.untraced_us
    simulated = _simulate_as_traced(step, alone).us
    if target is None or abs(simulated / target - 1.0) <= ERROR / 2:
        return alone
    if simulated < target:  # The host of the untraced units was slower, if the spread of its times allows that.
        slower = _find_factor(target, lambda x: _simulate_as_traced(step, x).us, alone, _HOST_MOST)
        return (
            slower
            if _simulate_as_traced(step, slower).issued_us <= step.measured_host_us * step.host_range[1]
            else alone
        )
    # If the simulated step is too long even with the fastest host, kernels limit it. Then the step's time does not
    # depend on the host, and says nothing about the factor.
    witness = target > _simulate_as_traced(step, _HOST_LEAST).us * (1.0 + ERROR / 2)
    return min(alone, _of_step(step)) if witness else alone


def _of_step(step: Step) -> float:
    target = step.untraced_us
    traced = _simulate_as_traced(step, 1.0).us
    if target is None or not traced or abs(traced / target - 1.0) < _SAME:
        return 1.0

    def simulated(factor: float) -> float:
        return _simulate_as_traced(step, factor).us

    if traced > target:
        least = simulated(_HOST_LEAST) * (1.0 + _SAME)
        return _find_factor(max(target, least), simulated, _HOST_LEAST, 1.0)
    depends = simulated(1.02) / traced - 1.0 >= 0.02 * _DEPENDS
    return _find_factor(target, simulated, 1.0, _HOST_MOST) if depends else 1.0


def _find_factor(target: float, us: Callable[[float], float], low: float, high: float) -> float:
    """Find the factor between ``low`` and ``high`` with which the simulated time ``us(factor)`` is ``target``.

    If no factor reaches the target, the nearer end is returned. ``us`` must cache its values.

    The simulated time is a maximum of straight lines in the factor. So the line through two points above the target
    leads to the factor. But the mean of several steps is no such maximum. So if an iteration does not reduce the
    interval enough, the next one bisects it.
    """

    def crossing(one: float, other: float) -> float:
        rise = us(other) - us(one)
        return other - (us(other) - target) * (other - one) / rise if rise else one

    if us(low) >= target or us(high) < target:
        return low if us(low) >= target else high
    beyond, width = low, math.inf
    while high - low > _HOST_EXACT:
        factor = crossing(beyond, high)
        if not low < factor < high:
            factor = crossing(low, high)
        if high - low > 0.6 * width:
            factor = (low + high) / 2
        width = high - low
        factor = min(max(factor, low + _HOST_EXACT / 2), high - _HOST_EXACT / 2)
        if us(factor) < target:
            low = factor
        else:
            beyond, high = high, factor
    return min(low, high, key=lambda x: abs(us(x) - target))


def answer(step: Step, factors: Mapping[str, Factor], best: Mapping[str, Factor] | None = None) -> StepAnswer:
    """Simulate the step with other kernel times. Returns its time, and the parts that limit it.

    * ``factors``: by the text of a GEMM or convolution, or the name of an operator or kernel.
    * ``best``: factors for each kernel's best known time.
    """
    step = fit_waits(step)
    host = host_factor_of(step)
    simulated = _simulate_as_traced(step, host).us
    now = step.untraced_us or simulated
    scale = now / simulated if simulated else 1.0
    witnessed = step.measured_host_us or _simulate_as_traced(step, host / ROUGH).us < simulated * (1.0 - 2 * _SAME)
    least, most = step.host_range if witnessed else (1.0 / ROUGH, 1.0)

    def under(given: Mapping[str, Factor], left: float, which: int, host_factor: float = host) -> float:
        """Simulate a change that makes kernels faster or slower, and return how long a step of the job then takes, µs.

        * ``given``: for each kernel, the factor on its time: an estimate with a lower and an upper bound.
        * ``which``: 0 to use the estimates, 1 or 2 to use the bounds.
        * ``left``: how much of the host's work the change leaves, as a fraction.
        * ``host_factor``: corrects the host's times, because a traced host is slower.
        """
        us = step.us(lambda x: x.scaled(factors_of(x, given)[which]), host_factor * left)
        return now * us / _simulate_as_traced(step, host_factor).us

    changed = [x.scaled(factors_of(x, factors)[0]) for x in step.graphs]
    left = _estimate_host_work_left(step, factors, host)
    at = [times(graph, us, host * left) for graph, us in zip(step.graphs, changed, strict=True)]
    then = scale * step.mean_us(at)
    ends = [under(factors, left, which, host * part) for which in (1, 2) for part in dict.fromkeys((least, 1.0, most))]
    parts = _shares(step, changed, at, host * left)
    error = error_of(parts) if factors else 0.0
    known, launches = step.untraced_us is not None, np.concatenate([x.launch for x in step.graphs])
    texts = dict.fromkeys(text for graph in step.graphs for text in graph.notes)
    notes = [*step.notes, *(text.format(sum(x.notes.get(text, 0.0) for x in step.graphs)) for text in texts)]
    notes += [] if known else [_AS_TRACED]
    return StepAnswer(
        now_us=now,
        then_us=then,
        low_us=min(*ends, then) * (1.0 - error),
        high_us=max(*ends, then) * (1.0 + error),
        limit=max(KINDS, key=lambda x: parts[x]),
        host_factor=host,
        launch_us=host * float(launches[launches > 0].mean()) if launches.any() else 0.0,
        rough=not known or not 1.0 / ROUGH <= host <= ROUGH,
        shares=parts,
        ceilings=Ceilings(
            best_us=then if best is None else under(best, _estimate_host_work_left(step, best, host), 0),
            fast_host_us=min(scale * _simulate_as_traced(step, 0.0).us, now),
            free_communication_us=min(scale * _simulate_as_traced(step, host, without=COMMUNICATION).us, now),
            free_kernels_us=min(scale * _simulate_as_traced(step, host, without=KERNELS).us, now),
            half_host_us=min(scale * _simulate_as_traced(step, host * UNPROFILED_HOST).us, now),
            next_limit=_limit_without_communication(step, host),
        ),
        notes=tuple(notes),
    )


def error_of(parts: Mapping[str, float], starts: float = STARTS) -> float:
    """Return by which fraction the time of a real step may differ from the simulated one (95 %).

    The host's speed differs between two starts of a job, by the relative standard deviation ``starts``. So the result
    is larger if more of the step waits for the host or for data. ``parts`` has the fraction of the step that waits for
    each kind of work. The formula is √(``ERROR``² + (1.96 · √2 · ``starts`` · (host + data loading))²).
    """
    return math.hypot(ERROR, 1.96 * math.sqrt(2) * starts * (parts["host"] + parts["data loading"]))


def _limit_without_communication(step: Step, host: float) -> str:
    """Return what the step waits for most if communication takes no time, one of ``graph.KINDS``."""
    free = [graph.without(COMMUNICATION) for graph in step.graphs]
    at = [times(graph, us, host) for graph, us in zip(step.graphs, free, strict=True)]
    parts = _shares(step, free, at, host)
    return max(KINDS, key=lambda x: parts[x])


def factors_of(graph: Graph, given: Mapping[str, Factor]) -> Floats:
    """Return the factor by which the time of each kernel changes, in three rows: values, low ends and high ends.

    * ``given``: the changes, by the key that fits a kernel (see ``answer``).
    """
    # The first key that fits is used: the text of a GEMM or convolution, the name of the operator, or the name of the
    # kernel.
    return np.array([x[:3] for x in _compute_kernel_factors(graph, given)], dtype=np.float64).reshape(-1, 3).T


def _compute_kernel_factors(graph: Graph, given: Mapping[str, Factor]) -> list[Factor]:
    """Return by which factor a change of the job multiplies the time of each kernel of a simulated step.

    * ``given``: factors by kernel, operator, or GEMM or convolution. A kernel without one gets 1.
    """
    one = Factor(1.0, 1.0, 1.0)
    return [
        next((given[x] for x in (each.problem, each.op, each.kernel) if x and x in given), one)
        for each in graph.identities
    ]


def _estimate_host_work_left(step: Step, given: Mapping[str, Factor], host: float) -> float:
    """Return the fraction of the host's work that remains after a change. 1 means all of it.

    * ``host``: the factor by which the host's traced times are multiplied.
    """
    spared = whole = units = 0.0
    for graph, weight in zip(step.graphs, step.weights, strict=True):
        # Removed kernels need not be launched any more, so the host saves this time.
        spared += weight * graph.launches_us([x.value == 0 for x in _compute_kernel_factors(graph, given)])
        whole, units = whole + weight * float(graph.host.sum()), units + weight * len(graph.bounds)
    # If calls take longer on the host, this time is added.
    longer = units * sum(x.host_us for x in given.values()) / host
    return max(1.0 + (longer - spared) / whole, 0.0) if whole else 1.0


def _shares(step: Step, changed: Sequence[Floats], at: Sequence[Sequence[float]], host: float) -> dict[str, float]:
    """Return what the changed step spends its time on: the host, kernels, communication and data loading.

    The results are fractions that add up to 1.
    """
    out = dict.fromkeys(KINDS, 0.0)
    for graph, weight, us, moments in zip(step.graphs, step.weights, changed, at, strict=True):
        for kind, part in shares(graph, moments, us, host).items():
            out[kind] += weight * part
    # If the clocks of ranks differ, a fraction may be negative. It is then set to 0.
    total = math.fsum(max(part, 0.0) for part in out.values())
    return {kind: max(part, 0.0) / total if total else 0.0 for kind, part in out.items()}


# ------------------------------------------------------------------------------------------------------ from the store


def step_of(
    tables: Tables, factors: Mapping[str, Factor], best: Mapping[str, Factor] | None = None
) -> StepAnswer | StepUnknown:
    """Predict how long a step of the job takes with other kernel times. Returns the reason if that is impossible.

    * ``factors``: the changes of kernel times.
    * ``best``: the changes to each kernel's best known time.
    """
    step = traced_step(tables)
    if isinstance(step, StepUnknown):
        return step
    now, held = step.untraced_us, fit_waits(step)
    found = _simulate_as_traced(held, host_factor_of(held)).us
    if not found and any(graph.us.any() for graph in step.graphs):
        return StepUnknown(
            "the run's traces are too short to show a step (each holds, for example, only one kernel); trace more steps"
        )
    if not found:
        return StepUnknown("the events of the run's traces take no time, so their time stamps are damaged")
    if now and not 1 / _EXPLAINED <= found / now <= _EXPLAINED:
        return StepUnknown(
            f"according to the run's traces, a step takes {duration(found)}, but without the profiler, a step takes "
            f"{duration(now)}. These times differ by more than a factor of {_EXPLAINED:g}; trace other steps"
        )
    return answer(step, factors, best)


def gain_of(tables: Tables, factors: Mapping[str, Factor], host_part: float = 1.0) -> Gain | None:
    """Simulate a step of the job with changed kernel times, and return its time now and then (µs).

    * ``factors``: as for ``step_of``.
    * ``host_part``: the part of the host's time that both steps take. 0.5 is a host that is twice as fast.

    None if the simulation is impossible.
    """
    step = traced_step(tables)
    if isinstance(step, StepUnknown):
        return None
    step = fit_waits(step)
    known = {name for graph in step.graphs for x in graph.identities for name in (x.problem, x.op, x.kernel)}
    host = host_factor_of(step) * host_part
    simulated = _simulate_as_traced(step, host).us
    # There is also no result if the traces lack one of the operators or kernels.
    if not simulated or not factors or not known.issuperset(factors):
        return None
    then = step.us(lambda x: x.scaled(factors_of(x, factors)[0]), host * _estimate_host_work_left(step, factors, host))
    now = simulated if step.untraced_us is None or host_part != 1.0 else step.untraced_us
    return Gain(now, now * then / simulated)


def beside_logs(tables: Tables) -> bool:
    """Tell whether the job's step times are too long because the libraries wrote logs meanwhile.

    That is so if the job was never timed without logs.
    """
    found, logged = units(tables), ~tables.calls["category"].isin(["profiler", "untuned"])
    return not (found and found.alone) and bool(logged.any())


@cached_per_run
def traced_step(tables: Tables) -> Step | StepUnknown:
    """Read the job's traces, and build the graphs with which its steps are simulated.

    There is one graph for each traced period, with all of its ranks. If no trace can be read, the reason is returned.
    """
    left_out = frozenset[str]().union(*(x.sources for x in tables.left_out))
    rows = tables.sources[
        (tables.sources["run"] == tables.run)
        & ~tables.sources["source_id"].isin(list(left_out))
        & tables.sources["format"].astype(str).str.contains(FORMAT, regex=False, na=False)
        # While a graph is captured, no unit runs.
        & ~tables.sources["path"].astype(str).str.contains(CAPTURES, regex=False, na=False)
    ]
    if not len(rows):
        return StepUnknown("the run has no torch.profiler trace")
    if reason := unknown_idle(tables):
        return StepUnknown(reason)
    if searches(tables):
        return StepUnknown("the run's traces contain a search for solvers; warm the job up before you trace it")
    windows: dict[str, list[RankTrace]] = defaultdict(list)
    skipped: list[str] = []
    again: list[str] = []
    for source, path in _choose_traces(tables, rows):
        row = tables.timeline(source)
        try:
            trace = read_trace(_open_if_unchanged(source, path)) if row is None else trace_of(row)
        except (OSError, EOFError, zlib.error, InputError) as error:
            skipped.append(f"{path}: {error}")
            continue
        again += [path] if row is None else []
        if trace.calls and trace.works:
            windows[path if trace.rank in {x.rank for x in windows[trace.window]} else trace.window].append(trace)
        else:
            skipped.append(f"{path}: the trace holds no runtime calls, or no kernels that such calls launched")
        if sum(len(x.works) for each in windows.values() for x in each) > _MOST_WORK:
            skipped.append("the remaining traces, because the traces read so far have a million kernels")
            break
    graphs = [build(each) for each in windows.values() if each]
    graphs = [x for x in graphs if x.bounds]
    if not graphs:
        return StepUnknown("; ".join(skipped) or "no trace of the run has events of the host")
    found = units(tables)
    traced = {unit.kind for graph in graphs for unit in graph.bounds}
    if found and any(x.name in traced for x in found.kinds):
        kinds = [x for x in found.kinds if x.name in traced]
        found = replace(found, kinds=tuple([x for x in kinds if x.mean_us is not None] or kinds))
    counts = {x.name: float(x.count) for x in found.kinds} if found else {}
    untraced = found.mean_us if found else None
    hosts = {x.name: x.late_host_us for x in found.kinds if len(x.late_host_us) > 1} if found else {}
    notes = [f"not simulated: {x}" for x in skipped]
    if again:
        more = f" and {len(again) - 1:,} more" * (len(again) > 1)
        notes.append(f"{READ_AGAIN} {again[0]}{more}: {_STORE_ANEW}")
    if found is not None and beside_logs(tables):
        notes.append(BESIDE_LOGS)
    each = {name: np.quantile(us, (0.05, 0.25, 0.95)) for name, us in hosts.items()}
    usual = {name: float(x[1]) for name, x in each.items() if x[1] > 0}
    least, most = (math.fsum(each[x][i] / us for x, us in usual.items()) / max(len(usual), 1) for i in (0, 2))
    return Step(
        graphs,
        counts,
        untraced or _read_untraced_step_us(tables),
        tuple(notes),
        usual,
        (least, most) if usual else (1.0, 1.0),
    )


def _open_if_unchanged(source: str, path: str) -> InputFile:
    """Open a trace file that must be read again, and make sure that it is still the same file.

    Raises InputError if the file is gone or has changed.
    """
    file = InputFile(path)
    try:
        # Traces that an early version of logparse stored lack the events that the simulation of a step needs, so these
        # are taken from the file.
        same = source_id(path, file.digest(file.size)) == source
    except (OSError, InputError) as error:
        raise InputError(f"{_NOT_KEPT}, and the file cannot be opened ({error}): {_STORE_ANEW}") from error
    if not same:
        raise InputError(f"{_NOT_KEPT}, and the trace file has changed after that ingest: {_STORE_ANEW}")
    return file


def _choose_traces(tables: Tables, rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Choose which traces of the job to use for the simulation of a step, and yield their ids and paths."""
    facts = tables.facts[tables.facts["run"] == tables.run]
    of = {
        name: facts[facts["name"] == name].drop_duplicates("source_id").set_index("source_id")["value"].to_dict()
        for name in ("first_unit", "unit_kinds")
    }
    seen: dict[str, set[str]] = {}
    windows = rows["source_id"].map(lambda x: float(of["first_unit"].get(x, 0)))
    # The job may have been traced several times while it ran. The time span with traces of most ranks is used first,
    # and the earliest of several such.
    order = zip(-windows.map(windows.value_counts()), windows, rows["source_id"], rows["path"], strict=True)
    for _, window, source, path in sorted(order):
        kinds = str(of["unit_kinds"].get(source, ""))
        known = {kind for each in seen.values() for kind in each}
        # A further time span is used if it has a kind of step, for example evaluation, that the first does not have.
        if str(window) in seen or len(seen) < _WINDOWS or kinds not in known:
            seen.setdefault(str(window), set()).add(kinds)
            yield str(source), str(path)


def _read_untraced_step_us(tables: Tables) -> float | None:
    """Return the time of a step without the profiler (µs), if it was stored with the traces. Otherwise None."""
    facts = tables.facts[(tables.facts["run"] == tables.run) & (tables.facts["name"] == "untraced_step_us")]
    values = pd.to_numeric(facts["value"], errors="coerce").dropna()
    return float(values.mean()) if len(values) else None
