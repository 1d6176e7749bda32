"""Turn findings, and remarks about the whole job, into things to do.

Findings that the user handles in the same way are one thing to do. No saving is counted twice: not that of a call with
several findings, and not one that a change of the job includes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from analyzers.findings.finding import RESTS_ON
from analyzers.job.gpu_time import GpuTime
from analyzers.recommend.files_action import OVERRIDES
from analyzers.recommend.limit import (
    DATA,
    bound_gain,
    estimate_gain,
    estimate_usual_gain,
    is_understated,
    name_slowing_limit,
)
from analyzers.recommend.ranking import Recommendation
from analyzers.recommend.todo import NOTHING, UNCONFIRMED, Todo, Unit
from analyzers.recommend.whole import LEAST, whole_us
from logparse.model import SURENESS, Finding, Gain, Sureness
from logparse.model.gains import total
from logparse.text import pluralize

_AS_TRACED = "all communication is hidden"


def list_findings(found: Recommendation) -> list[Todo]:
    """Turn findings (possible savings) into entries for the list of things to do (``groups``)."""
    return [_group(key.partition("\n")[0], key, numbers, found) for key, numbers in groups(found).items()]


def groups(found: Recommendation) -> dict[str, list[int]]:
    """Group the findings that the user handles in the same way, for example by one search.

    The members are numbers, from 1, of findings in the ranking. A key's first line names the thing to do.
    """
    made = (x for x in found.actions if x.pays or x.action.kind == "files" or x.action.name in found.in_job)
    covered = {part.of for x in made for part in x.parts}
    files = any(x.action is OVERRIDES for x in found.actions)
    refuted = {x.name for x in found.tried if x.shows_no_gain}  # A trial in the job says more than an estimate.
    out: dict[str, list[int]] = {}
    for number, finding in enumerate(found.findings, 1):
        text = finding.problem.text if finding.problem else ""
        if finding.remedy.name in refuted:
            continue
        # Savings that a listed change already includes are left out.
        if text not in covered and not (files and finding.override is not None):
            remedy = finding.remedy
            out.setdefault(f"{remedy.name or finding.analyzer}\n{remedy.changes}", []).append(number)
    return out


def _group(name: str, key: str, numbers: Sequence[int], found: Recommendation) -> Todo:
    """Combine several findings (possible savings) into one thing to do, and add up their savings.

    If several are about the same call, only the largest saving is added.
    """
    findings = [found.findings[n - 1] for n in numbers]
    unit: Unit = "step" if found.steps else "run"
    gain = _sum_largest_gains((x, x.in_run) for x in findings)
    gain = gain and gain.per(found.steps or 1.0)
    time, most = found.gpu_time, math.fsum(x.evidence.at_most_us or 0.0 for x in findings)
    whole = whole_us(time)
    bounds = gain is None and bool(most)
    if bounds and time is not None and whole is not None:
        unit = "step" if time.steps else "run"
        gain = Gain(whole, whole - min(most / (time.steps or 1.0), whole))
    elif gain is None:
        unit, gain = "call", _sum_largest_gains((x, x.per_call) for x in findings)
    problems = len({x.problem for x in findings})
    label = findings[0].problem.label if problems == 1 and findings[0].problem else pluralize(problems, "problem")
    bound = _at_most(found, gain.saving_us) if unit == "step" and gain is not None else None
    step = bound if unit == "call" or bounds else _find_simulated_gain(found, key) or bound
    in_job = name in found.in_job
    if in_job:
        step, bound = found.step_gain(name), None
    remedy = findings[0].remedy
    most_us = None if in_job or bounds or unit == "call" or step is bound else bound_gain(step, gain, found)
    return Todo(
        name=name,
        title=remedy.title([x.problem for x in findings]) or f"follow the advice of {name}",
        what=label,
        gain=gain,
        unit=unit,
        sureness="measured in the job" if in_job else _sureness(findings),
        remedy=remedy,
        changes=remedy.changes,
        findings=tuple(numbers),
        step=step,
        bounded=step is not None and step is bound,
        slowed_by="" if in_job else name_slowing_limit(step, gain, found),
        most_us=most_us,
        usual=estimate_gain(key, step.saving_us, most_us, found) if step is not None else None,
        rests_on="" if in_job else _rests_on(findings),
        doubt=warn_of_doubt(findings),
        confirmed=any(x.confirmed for x in findings) and all(x.confirmed or x.per_call_us is None for x in findings),
    )


def _sureness(findings: Sequence[Finding]) -> Sureness:
    """Return how well the savings of several findings are known, for example ``measured alone`` or ``estimated``.

    If the findings differ, the least certain answer is returned.
    """
    known = {finding.sureness for finding in findings if finding.per_call_us is not None}
    return max(known, key=SURENESS.index, default="unknown")


def warn_of_doubt(findings: Sequence[Finding]) -> str:
    """Return a short warning about a saving that was measured outside the job, for example ``not confirmed``.

    The text is empty if a second test confirmed the saving, or if it was not measured outside the job.
    """
    known = [x for x in findings if x.per_call_us is not None]
    if _sureness(findings) != "measured alone" or all(x.confirmed for x in known):
        return ""
    gains = [x.per_call.times(x.calls or 1) for x in known if x.per_call is not None]
    lows = [x.saving_low_us for x in gains if x.saving_low_us is not None]
    return NOTHING if len(lows) == len(known) and math.fsum(lows) <= 0 else UNCONFIRMED


def _rests_on(findings: Sequence[Finding]) -> str:
    """Return what the estimates of several findings take for granted, as a clause. Empty without such a thing.

    If the findings take different things for granted, the clause is about the largest saving, and says so.
    """
    largest_first = sorted(findings, key=lambda x: -(x.saving_us or x.per_call_us or 0.0))
    told = list(dict.fromkeys(str(x.evidence.details.get(RESTS_ON) or "") for x in largest_first))
    said = next(filter(None, told), "")
    return f"for some problems, {said}" if said and len(told) > 1 else said


def _sum_largest_gains(gains: Iterable[tuple[Finding, Gain | None]]) -> Gain | None:
    """Add up the gains of all operators (with sizes). For each operator, only its largest gain is counted.

    Returns None if no gain is known.
    """
    largest: dict[object, Gain] = {}
    for finding, gain in gains:
        if gain is not None and gain.saving_us > (0.0 if (x := largest.get(finding.problem)) is None else x.saving_us):
            largest[finding.problem] = gain
    return total(largest.values())


def _at_most(found: Recommendation, saving_us: float) -> Gain | None:
    """Return the time of a step now, and the shortest time that it can have after its kernels became faster.

    None if no time without the profiler is known.
    """
    now = found.now
    # The profiler makes steps longer.
    if now is None or (found.gpu_time is not None and found.gpu_time.profiled):
        return None
    # The new time is no less than the time of a step whose kernels take no time.
    return Gain(now.now_us, max(now.now_us - saving_us, now.ceilings.free_kernels_us))


def _find_simulated_gain(found: Recommendation, key: str) -> Gain | None:
    """Return the simulated time of a step now, and with the kernel times that some findings expect. None if unknown.

    ``key`` is the key of their group, or the name of a finding about the whole job.
    """
    if found.step is None or isinstance(found.step, str) or not _is_of_the_trace(found):
        return None
    step = found.step.expected.get(key)
    return step and Gain(step.now_us, min(step.then_us, step.now_us))


def _is_of_the_trace(found: Recommendation) -> bool:
    """Tell whether the simulated time is the time of which savings are a part.

    If no steps are marked, savings are parts of all traces. But the simulation is of one window, which may be shorter.
    """
    if found.now is None or found.gpu_time is None:
        return False
    traced = whole_us(found.gpu_time) or 0.0
    return bool(found.gpu_time.steps) or abs(found.now.now_us - traced) <= LEAST * traced


def list_remarks(found: Recommendation) -> list[Todo]:
    """Return recommendations about losses of the whole job, for example a GPU that waits for the host."""
    time, named = found.gpu_time, {x.action.name for x in found.actions}
    whole = whole_us(time)
    if time is None or whole is None:
        return []
    if found.now is not None and time.steps:  # The gains below are differences to the simulated step.
        whole = found.now.now_us
    out = []
    for remark in found.remarks:
        lost = remark.evidence.at_most_us if remark.saving_us is None else remark.saving_us
        waits = remark.evidence.waits_for
        if lost is None and waits is not None:  # The step waits, and nothing bounds for how long.
            out.append(_of_unknown_worth(remark, time))
        # A measured action says more than the remark that predicted it.
        if lost is None or remark.remedy.name in named:
            continue
        each, most = lost / (time.steps or 1.0), _gain_without(waits, found)
        # The possible saving is the smaller one of two times: how long the step waits now, and how much shorter the
        # simulated step is without this wait. The second can be smaller, because the step may then wait for something
        # else.
        saved = min(each, most)
        known = remark.saving_us is not None and remark.in_run is not None
        step = _find_simulated_gain(found, remark.analyzer) if known else None
        gain = Gain(whole, whole - saved)
        if step is not None and remark.in_run is not None:
            gain = remark.in_run.per(time.steps or 1.0)
        # The simulated saving is no upper bound if the host, which was slower than usual, bounds it.
        understated = waits == "communication" and most < each and is_understated(found)
        if understated:
            step = gain
        estimated: Sureness = "estimated" if understated else "unknown"
        most_us = bound_gain(step, gain, found) if known else None
        usual = estimate_usual_gain(found) if waits == "host" else None
        usual = usual if usual is not None and usual.saving_us < saved * (1 - LEAST) else None
        if step is not None and most_us is not None:
            usual = estimate_gain(remark.analyzer, step.saving_us, most_us, found)
        if saved >= LEAST * whole:
            out.append(
                Todo(
                    name=remark.analyzer,
                    title=remark.remedy.title([]) or f"follow the advice of {remark.analyzer}",
                    what="",
                    gain=gain,
                    unit="step" if time.steps else "run",
                    sureness=estimated if remark.saving_us is None else remark.sureness,
                    remedy=remark.remedy,
                    changes=remark.remedy.changes,
                    step=step,
                    waits=waits == "host",
                    usual=usual,
                    slowed_by=name_slowing_limit(step, gain, found),
                    most_us=most_us,
                    rests_on=_AS_TRACED if understated else _rests_on([remark]),
                    waits_for=waits or "",
                )
            )
    return out


def _of_unknown_worth(remark: Finding, time: GpuTime) -> Todo:
    return Todo(
        name=remark.analyzer,
        title=remark.remedy.title([]) or f"follow the advice of {remark.analyzer}",
        what="",
        gain=None,
        unit="step" if time.steps else "run",
        sureness="unknown",
        remedy=remark.remedy,
        changes=remark.remedy.changes,
        waits=True,
        waits_for=remark.evidence.waits_for or "",
    )


def _gain_without(waits: str | None, found: Recommendation) -> float:
    """Return how much shorter the step would be without one kind of wait, according to the simulation, µs.

    * ``waits``: ``host`` (includes data) or ``communication``. Otherwise, or without a simulation: infinity (no limit).
    """
    now = found.now
    if now is None or not _is_of_the_trace(found):
        return math.inf
    if waits == "communication":
        return now.now_us - now.ceilings.free_communication_us
    if waits == "host":
        return max(now.now_us - now.ceilings.fast_host_us, now.shares[DATA] * now.now_us)
    return math.inf
