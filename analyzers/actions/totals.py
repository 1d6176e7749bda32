"""Add up what a change does to all calls of a job, from the times that ``replay`` took. No files are read.

The time of a call with a change is (its time in the trace) · (replayed time with the change / replayed time now). One
replay in one environment takes both times of the ratio. For a convolution, the time that the job's caches save is
subtracted (``Ratio.in_job``). Without a trace, the time of the replay replaces the time in the trace.

A call that was not timed with the change is taken as unchanged, and the fraction of such calls is reported. The
interval of the sum adds up the intervals of all calls, as if all errors had the same direction. The interval of a timed
call lies between the least and the largest ratio of its samples. Calls that were not timed may gain or lose as the
timed calls do (``ActionResult.widened``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analyzers.actions.action import Action, ActionResult, Part, group_of, rank, with_job_interval
from analyzers.actions.job import Job, Work, fill_unknown_dtypes, job_of
from analyzers.actions.ratio import host_us, ratio
from analyzers.evidence.action_times import Samples, samples_of
from analyzers.evidence.origins import HOST
from analyzers.evidence.statistics.intervals import median
from analyzers.evidence.tables import Settings, Tables
from analyzers.job.step.answer import Factor
from logparse.model import DEFAULT, ConvProblem, OperatorProblem, Problem

_MOST = 600
"""The largest number of different operators with sizes that a replay times. The costliest come first."""
_SMALL = 2e-4
"""Calls that take less than this fraction of the job's GPU time (0 to 1) are not timed. They are taken as unchanged."""


def list_kernels_to_time(
    tables: Tables, actions: Sequence[Action], settings: Settings
) -> list[tuple[Problem, tuple[str, ...]]]:
    """List the kernels that must be timed to predict what changes of a job would gain, the costliest operators first.

    Each operator with its sizes comes with the names of its kernels.
    """
    job = job_of(tables, settings)
    least = _SMALL * (job.total_us or 0.0)
    solutions: dict[str, list[str]] = {}
    problems: dict[str, Problem] = {}

    def add(problem: Problem, solution: str) -> None:
        problems[problem.text] = problem
        # The first kernel is the library's own choice.
        solutions.setdefault(problem.text, [DEFAULT.text]).append(solution)

    chosen = [x for x in actions if x.application(job) is not None]
    actions_of: dict[Work, list[Action]] = {}
    for action in chosen:
        for work in action.works(job):
            actions_of.setdefault(work, []).append(action)
    weight = {x: (x.calls or 1.0) * (x.problem.flops or 0) * 1e-12 if x.us is None else x.us for x in actions_of}
    for work in sorted(actions_of, key=weight.__getitem__, reverse=True)[:_MOST]:
        for action in actions_of[work]:
            if work.us is not None and work.us < least:
                continue
            for one in _split_into_timeable(work, job):
                change = action.change(one, job)
                if change is not None:
                    add(one.problem, one.solution)
                    if change.problem is not None:
                        add(change.problem, change.solution)
    for added in (x for action in chosen for x in action.added(job)):
        add(added.problem, DEFAULT.text)
    return [(problem, tuple(dict.fromkeys(solutions[text]))) for text, problem in problems.items()]


def _split_into_timeable(work: Work, job: Job) -> tuple[Work, ...]:
    """Split a call of the job into calls that can be run and timed alone."""
    problem = work.problem
    if isinstance(problem, ConvProblem) and problem.direction == "B+W":
        # A trace may show the two gradients of a convolution as one entry (B+W). The entry becomes two calls.
        b, w = replace(problem, direction="B"), replace(problem, direction="W")
        return replace(work, problem=b), replace(work, problem=w)
    # Tensors whose type is unknown get the type that is assumed for the job.
    return (replace(work, problem=fill_unknown_dtypes(job, problem)) if isinstance(problem, OperatorProblem) else work,)


def results(
    tables: Tables, actions: Sequence[Action], settings: Settings, kept: Sequence[ActionResult] = ()
) -> list[ActionResult]:
    """Predict from measured times what each of several changes would save in a job, and return the best change first.

    * ``kept``: changes that the job already has. Only what can be combined with them is returned.
    """
    samples, host = samples_of(tables, settings), samples_of(tables, settings, HOST)
    if not samples:
        return []
    job = _apply_changes(job_of(tables, settings), kept)
    # A change must have been timed together with the changes that the job already has.
    beside = [x for x in actions if all(_is_gain_additive(x, y, job) for y in kept)]
    # A change is left out if none of its calls was timed.
    found = [x for y in beside if (x := estimate_result(y, job, samples, host)) is not None]
    return sorted(found, key=rank)


def _apply_changes(job: Job, kept: Sequence[ActionResult]) -> Job:
    """Return a copy of the job in which each call uses the kernel that it has after some changes (``kept``)."""
    work = list(job.work)
    for action in (x.action for x in kept):
        for i, one in enumerate(work):
            change = action.change(one, job)
            if change is not None and change.problem is not None and change.problem.text == one.problem.text:
                work[i] = replace(one, solution=change.solution)
    return replace(job, work=tuple(work))


def _is_gain_additive(action: Action, kept: ActionResult, job: Job) -> bool:
    """Tell whether a change gains as much as was measured, although the job also makes another change (``kept``)."""
    other = kept.action
    if action.name == other.name or (action.excludes is not None and action.excludes == other.excludes):
        return False
    # Each change was measured alone. If this change contains the other one, the other one was part of the measurement.
    if other.name in action.contains:
        return True
    # Otherwise the measured gain is valid only if the two changes affect different calls.
    changed = {x.of or x.problem.text for x in action.works(job) if action.change(x, job) is not None}
    return action.name not in other.contains and changed.isdisjoint(x.of for x in kept.parts)


def estimate_result(action: Action, job: Job, samples: Samples, host: Samples | None = None) -> ActionResult | None:
    """Return what one change would save in a job, computed from measured times.

    Returns None if the change cannot be made, alters nothing, or has no timed call.
    """
    application = action.application(job)
    if application is None:
        return None
    now = sum(_now_us(work, job, samples) for work in job.work)
    then = low = high = now
    # True if a replay timed something. Calls that the action removes need no replay, but they alone make no action.
    replayed = False
    parts, untimed = [], []
    for work in action.works(job):
        us = _now_us(work, job, samples)
        passes = _split_into_timeable(work, job)
        changes = [change for one in passes if (change := action.change(one, job)) is not None]
        if not changes:
            continue
        found = ratio(passes, changes, samples)
        if found is None:
            untimed.append(_make_part(work, us, us))
            continue
        if isinstance(work.problem, ConvProblem) and work.us is not None and work.calls:
            found = found.in_job(us / work.calls)
        replayed = replayed or any(x.problem is not None for x in changes)
        # Without a trace no step is simulated, so the host's time does not count.
        calls = work.calls if work.calls and work.us is not None else 0.0
        then, low, high = then + us * (found.value - 1), low + us * (found.low - 1), high + us * (found.high - 1)
        parts.append(_make_part(work, us, us * found.value, host_us(passes, changes, host or {}) * calls))
    for work in action.added(job):
        held = samples.get((work.problem.text, DEFAULT.text))
        if held is not None:
            times, calls = held[1], work.calls or 1.0
            then, low, high = then + calls * median(times), low + calls * min(times), high + calls * max(times)
            parts.append(_make_part(work, 0.0, calls * median(times)))
    if not replayed:
        return None
    rest = 0.0 if job.total_us is None else job.total_us - now
    return ActionResult(
        action=action,
        application=application,
        now_us=now + rest,
        then_us=then + rest,
        low_us=low + rest,
        high_us=high + rest,
        parts=tuple(sorted(parts, key=lambda x: x.saving_us)),
        untimed=tuple(untimed),
        steps=job.steps,
        word=job.word,
    )


def _now_us(work: Work, job: Job, samples: Samples) -> float:
    """Return how much GPU time all calls of one operator with these sizes take now, µs. 0 if it is unknown."""
    if work.us is not None:
        return work.us
    # Without a trace, the time is (number of calls) · (time of a call that was measured alone).
    held = [samples.get((one.problem.text, one.solution)) for one in _split_into_timeable(work, job)]
    return (work.calls or 1.0) * sum(median(x[1]) for x in held if x is not None)


def _make_part(work: Work, now_us: float, then_us: float, host_us: float = 0.0) -> Part:
    return Part(
        of=work.of or work.problem.text,
        label=work.problem.label,
        group=group_of(work.problem),
        calls=work.calls,
        now_us=now_us,
        then_us=then_us,
        host_us=host_us,
    )


def factors_of(result: ActionResult) -> dict[str, Factor]:
    """For each operator (a text with its sizes), return the factor by which a change multiplies its time.

    A factor of 0.8 means 20 % less time. Each factor has an interval.
    """
    gain = with_job_interval(result)
    # The interval of a factor has the same relative width as the interval of the whole job's saving.
    low, high = ((gain.now_us - us) / gain.saving_us if gain.saving_us else 1.0 for us in gain.ends_us)
    out = {part.of: Factor(1.0, *result.untimed_factors) for part in result.untimed}
    for part in result.parts:
        if part.now_us > 0:
            change = part.ratio - 1
            least, most = sorted(max(1 + change * end, 0.0) for end in (low, high))
            out[part.of] = Factor(1 + change, least, most, part.host_us / result.steps if result.steps else 0.0)
    return out
