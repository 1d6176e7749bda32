"""Make the list of things to do about a job, the best first, with a verdict and the parts of a step's time.

``recommend``, ``tune``, ``report.md``, ``findings.json``, ``report`` and the web page all show this list, so that
order, names and units are the same everywhere. No function reads files. Times are µs of GPU time per *unit*:

* a step, if traces mark steps or the user counts them;
* else the whole run;
* else one call of each operator (with sizes), if nothing counts calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from analyzers.actions import ActionResult
from analyzers.job.gpu_time import COMMUNICATION, GpuTime, Part
from analyzers.recommend.apply_module import alternatives, calls, chosen
from analyzers.recommend.files_action import OVERRIDES
from analyzers.recommend.ranking import Recommendation
from logparse.capture.in_job.logparse_in_job.switches import TOGETHER
from logparse.model import SURENESS, ChangeProgram, Finding, Gain, Remedy, Sureness, UseRows
from logparse.model.gains import total
from logparse.text import counted, duration

Unit: TypeAlias = Literal["step", "run", "call"]
DATA = "data loading"
_LEAST = 0.01
"""A limit of the step, for example its host, is mentioned only if it matters.

It matters if the step would be shorter by at least this fraction (0 to 1) without it.
"""
_NOTHING = 1e-3
"""A thing to do is not listed if its gain is below this fraction of the step (0 to 1)."""
_MEETS = 0.9
"""If removing a wait saves less than this fraction (0 to 1) of the wait, the text for the user states the reason.

The reason is that the step would then wait for something else.
"""
_SHOWS = 0.05
"""If the GPU waits for the host, smaller savings of GPU time than this fraction of the step (0 to 1) are not listed.

They would not make the step shorter.
"""


@dataclass(frozen=True)
class Share:
    """A kind of work in a step (for example ``GEMM``), and the time that it takes, µs."""

    name: str
    us: float


@dataclass(frozen=True)
class Todo:
    """One thing that the user can do to make the job faster.

    * ``gain``: the GPU time now and afterwards. None if unknown. If ``sureness`` is ``unknown``, its saving is the
      largest possible one.
    * ``name``: an id, the argument of ``--explain``. ``title``: a verb and its object.
    * ``changes``: what changes, such as a file that is read, a setting, or lines of the program.
    * ``findings``: the numbers, from 1, of its findings in the ranking. Actions and remarks are found by ``name``
      instead.
    * ``step``: the wall time of a step, now and afterwards. It was measured in the job, else simulated. None if
      unknown.
    * ``bounded``: True if ``step.then_us`` is only a lower bound, because the step cannot gain more than with kernels
      that take no time.
    * ``exact``: True if results change only by the order in which numbers are added.
    * ``waits``: True if the saving shortens a wait in the step and not the kernels.
    * ``confirmed``: True if a test confirmed every saving.
    * ``doubt``: ``not confirmed`` if a test could confirm the saving and none did, ``may gain nothing`` if the interval
      of the saving contains no gain, else empty.
    """

    name: str
    title: str
    what: str
    gain: Gain | None
    unit: Unit
    sureness: Sureness
    remedy: Remedy
    changes: str
    findings: tuple[int, ...] = ()
    step: Gain | None = None
    bounded: bool = False
    exact: bool = True
    waits: bool = False
    confirmed: bool = False
    doubt: str = ""

    @property
    def certainty(self) -> str:
        """How certain the saving is: how it was found (``sureness``), and whether a test confirmed it.

        For example: ``measured alone, confirmed``.
        """
        more = "confirmed" if self.confirmed else self.doubt
        return f"{self.sureness}, {more}" if more else self.sureness

    @property
    def shown(self) -> Gain | None:
        """The gain that is shown to the user: the time of a step if it is known, or else the GPU time."""
        return self.gain if self.step is None else self.step

    @property
    def at_most(self) -> bool:
        """True if the shown saving (``shown``) is only an upper bound."""
        return self.bounded or (self.step is None and self.sureness == "unknown")

    @property
    def saving_us(self) -> float:
        """The GPU time that is saved, µs."""
        return 0.0 if self.gain is None else self.gain.saving_us

    @property
    def gained_us(self) -> float:
        """How much shorter a step becomes by the change, µs. If that is unknown, how much GPU time is saved."""
        return self.saving_us if self.step is None else max(self.step.saving_us, 0.0)


@dataclass(frozen=True)
class Verdict:
    """The list of things to do about a job, with a verdict and the parts of a step's time.

    * ``headline``: the verdict, one sentence.
    * ``split``: the time of a step, or of all traces, by kind of work and idle. Empty without a trace.
    * ``gains``: the largest possible saving (µs) for each ``sureness``, by things to do that do not overlap.
    * ``unseen``: savings of GPU time that would not show in a step that waits for something else. They are not listed.
    * ``limit``: what limits the step, and how short it could be without each limit, or the reason why that is unknown.
      Empty without a trace.
    * ``word``: the user's word for a step.
    """

    headline: str
    split: tuple[Share, ...]
    whole_us: float | None
    unit: Unit
    todo: tuple[Todo, ...]
    gains: tuple[tuple[Sureness, float], ...] = ()
    unseen: tuple[Todo, ...] = ()
    limit: str = ""
    word: str = "step"
    left_out: tuple[str, ...] = ()


def verdict(found: Recommendation) -> Verdict:
    """Make the list of things to do from a recommendation, with a headline.

    The change that shortens a step most comes first.
    """
    time = found.gpu_time
    steps = time.steps if time is not None else found.steps
    unit: Unit = "step" if steps else "run"
    listed = [*_with_combination(_actions(found), found), *_of_findings(found), *_of_the_job(found)]
    unseen = sorted((x for x in listed if _is_hidden(x, time)), key=_rank)
    todo = sorted((x for x in listed if x not in unseen), key=_rank)
    gains = _gains(found, todo)
    headline = _headline(found, todo, len(unseen))
    limit, word, left_out = _limit(found), found.word, _left_out(time)
    return Verdict(
        headline, _split(time), _whole_us(time), unit, tuple(todo), gains, tuple(unseen), limit, word, left_out
    )


def _left_out(time: GpuTime | None) -> tuple[str, ...]:
    """Return sentences for the user about gaps in the measured times.

    They state which traced work is in none of the times, and why the GPU's idle time is unknown.
    """
    return () if time is None else (*time.left_out, *filter(None, [time.unknown_idle]))


def _rank(todo: Todo) -> tuple[bool, bool, float, float, str]:
    """Return a sort key that puts the best recommended change first.

    * Gains that were measured in the job come first, the largest gain of the step before others.
    * Savings per call come last, because the number of calls is unknown.
    """
    in_job = todo.sureness == "measured in the job"
    return todo.unit == "call", not in_job, -todo.gained_us, -todo.saving_us, todo.name


_LIMITS = {"host": "the host", "kernels": "its kernels"}


def _limit(found: Recommendation) -> str:
    """Write the sentence about the limit of the step, which is for example its kernels, the host, or communication.

    The sentence also tells how long the step would take with the best known kernels, with a host that takes no time,
    and with communication that takes no time.
    """
    now = found.now
    if now is None:
        return f"not simulated: {found.step}" if found.step else ""
    at_most = (
        ("the best known kernels", now.ceilings.best_us),
        ("a host that takes no time", now.ceilings.fast_host_us),
        ("communication that takes no time", now.ceilings.free_communication_us),
    )
    parts = "; ".join(
        f"{name} would save {_pair(now.now_us - us, 'of', now.now_us)}"
        for name, us in at_most
        if us < now.now_us * (1 - _LEAST)
    )
    rough = ", roughly" if now.rough else ""
    rough += (
        ", from traces taken while the libraries wrote logs, which slows the host"
        if now.beside_logs and now.limit == "host"
        else ""
    )
    scaled = "as traced" if round(now.host_factor, 2) == 1 else f"× {now.host_factor:.2f}"
    host = f" (host time {scaled})" if now.limit == "host" else ""
    again = f"; {now.read_again}" if now.read_again else ""
    traced = _whole_us(found.gpu_time) or now.now_us
    if abs(now.now_us - traced) > _LEAST * traced:  # without the profiler it takes another time than traced
        rough = f" as {duration(now.now_us)}{rough}"
    return (
        f"limited by {_LIMITS.get(now.limit, now.limit)} ({now.shares[now.limit]:.0%} of its time), simulated{rough}"
        + (f": {parts}{host}{again}" if parts else f"{host}{again}")
    )


def _is_hidden(todo: Todo, time: GpuTime | None) -> bool:
    """Tell whether a saving of GPU time should be left out of the list of things to do.

    There are two reasons: the saving is negligible, or the step waits for something else and would not become shorter.
    """
    whole = todo.step.now_us if todo.step is not None else _whole_us(time)
    if todo.unit != "step" or not whole or todo.gain is None or todo.waits:
        return False
    if todo.gained_us < _NOTHING * whole:
        return True
    if todo.step is not None:
        return todo.gained_us < min(todo.saving_us / 2, _LEAST * whole)
    waits = time is not None and time.waits and time.steps and not time.profiled
    return bool(waits) and todo.saving_us < _SHOWS * whole


def hidden(found: Recommendation) -> frozenset[str]:
    """Return the names of changes that make kernels faster but do not make a step visibly shorter.

    They are made only if the user names them. Changes that showed no gain when they were tried in the running job are
    included.
    """
    unseen = (x for x in found.actions if x.pays and _is_hidden(_action(x, found), found.gpu_time))
    names = (*(x.action.name for x in unseen), *(x.name for x in found.tried if x.shows_no_gain))
    return frozenset(names).difference(found.combination)


# ------------------------------------------------------------ where the time goes


def _whole_us(time: GpuTime | None) -> float | None:
    """Return the time of a step, µs. If the traces mark no steps, it is the time of all traces.

    If the time that the traces cover is unknown, the sum of the kernels' times takes its place.
    """
    if time is None:
        return None
    return (time.window_us or time.kernels_us) / (time.steps or 1.0)


def kind_name(part: Part, time: GpuTime) -> str:
    """Return the name of a kind of work for the user, for example ``GEMM``.

    Communication becomes ``exposed communication`` if its time is only the time in which nothing else runs.
    """
    return f"exposed {part.name}" if part.name == COMMUNICATION and time.alone_us is not None else part.name


def _split(time: GpuTime | None) -> tuple[Share, ...]:
    """Return how a step's time is divided among kinds of work, the longest first and idle time last.

    All convolutions are one kind.
    """
    if time is None:
        return ()
    sums: dict[str, float] = {}
    for part in time.parts:
        name = "convolutions" if part.name.startswith("convolution ") else kind_name(part, time)
        sums[name] = sums.get(name, 0.0) + part.us
    if time.idle_us:
        sums["idle"] = time.idle_us
    per = time.steps or 1.0
    order = sorted(sums, key=lambda x: (x == "idle", -sums[x], x))
    return tuple(Share(name, sums[name] / per) for name in order if sums[name] > 0)


# ------------------------------------------------------------ what to do


def _actions(found: Recommendation) -> list[Todo]:
    """Return the changes of the job that are worth making, as entries for the to-do list.

    * Kernels that the user lists for the libraries (override files) are one of the changes.
    * If two changes cannot be made together, or if one contains the other, only the one that saves more is kept.
    * Changes that the generated ``apply.py`` makes by default are always kept.
    """
    kept: list[ActionResult] = []
    unnamed = chosen([x for x in found.actions if x.action.kind != "files"], hidden(found), found.in_job)
    for result in sorted(found.actions, key=lambda x: -x.saving_us):
        files = result.action.kind == "files" and result.saving_us > 0
        if (result.pays or files) and (result in unnamed or not any(alternatives(result, x) for x in kept)):
            kept.append(result)
    return [_action(x, found) for x in kept]


def _with_combination(listed: Sequence[Todo], found: Recommendation) -> list[Todo]:
    """Put the changes that were measured together in the running job into one entry of the list of things to do.

    Their gain is the one that was measured, because the savings of single changes do not add up. Without such a
    measurement the list is returned unchanged.
    """
    names = found.combination
    if not names:
        return list(listed)
    results = [x for x in found.actions if x.action.name in names]
    lines = sum(len(x.application.settings) + len(x.application.model) for x in results)
    name, title = TOGETHER.join(names), f"use {' and '.join(names)}"
    entry = Todo(
        name=name,
        title=title,
        what="; ".join(x.action.about for x in results),
        gain=total(x.per(x.steps or 1.0) for x in results),
        unit="step",
        sureness="measured in the job",
        remedy=ChangeProgram(name, title),
        changes=f"{counted(lines, 'line')} of the program" if lines else "the program",
        step=found.step_gain(name),
        exact=all(x.action.exact for x in results),
    )
    replaced = {x.action.name for x in found.actions if any(alternatives(x, y) for y in results)}
    return [entry, *(x for x in listed if x.name not in replaced.union(names))]


def _action(result: ActionResult, found: Recommendation) -> Todo:
    timed = {x.of for x in result.parts}
    rows = tuple(
        n
        for n, x in enumerate(found.findings, 1)
        if x.override is not None and (not x.saving_us or (x.problem is not None and x.problem.text in timed))
    )
    files = result.action is OVERRIDES
    sure = files and all(found.findings[n - 1].confirmed for n in rows)
    lines = len(result.application.settings) + len(result.application.model)
    changes = {
        "files": f"{counted(len(rows), 'row')} of override files",
        "setting": f"a setting: {result.application.line}",
        "program": f"{counted(lines, 'line')} of the program" if lines else "the program",
    }[result.action.kind]
    exact, name = result.action.exact, result.action.name
    remedy: Remedy = UseRows() if files else ChangeProgram(name, f"use {name}")
    title = remedy.title([found.findings[n - 1].problem for n in rows])
    unit: Unit = "step" if result.steps else "run"
    in_job = name in found.in_job
    if files:
        doubt = _doubt([found.findings[n - 1] for n in rows])
    else:
        doubt = NOTHING if (result.job_gain.saving_low_us or 0.0) <= 0 else ""
    return Todo(
        name=name,
        title=title,
        what=result.action.about,
        gain=result.per(result.steps or 1.0),
        unit=unit,
        sureness="measured in the job" if in_job else "measured alone",
        remedy=remedy,
        changes=changes if exact else calls(result) or changes,
        findings=rows if files else (),
        step=found.step_gain(name),
        exact=exact,
        confirmed=sure,
        doubt="" if in_job else doubt,
    )


def _of_findings(found: Recommendation) -> list[Todo]:
    """Turn findings (possible savings) into entries for the list of things to do.

    Findings that the user handles in the same way (for example by one search) become one entry. Savings that a listed
    change already includes are left out.
    """
    covered = {x.of for y in found.actions if y.pays or y.action is OVERRIDES for x in y.parts}
    files = any(x.action is OVERRIDES for x in found.actions)
    groups: dict[tuple[str, str], list[int]] = {}
    for number, finding in enumerate(found.findings, 1):
        text = finding.problem.text if finding.problem else ""
        if text not in covered and not (files and finding.override is not None):
            remedy = finding.remedy
            groups.setdefault((remedy.name or finding.analyzer, remedy.changes), []).append(number)
    return [_group(name, numbers, found) for (name, _), numbers in groups.items()]


def _sureness(findings: Sequence[Finding]) -> Sureness:
    """Return how well the savings of several findings are known, for example ``measured alone`` or ``estimated``.

    If the findings differ, the least certain answer is returned.
    """
    known = {finding.sureness for finding in findings if finding.per_call_us is not None}
    return max(known, key=SURENESS.index, default="unknown")


NOTHING, UNCONFIRMED = "may gain nothing", "not confirmed"


def _doubt(findings: Sequence[Finding]) -> str:
    """Return a short warning about a saving that was measured outside the job, for example ``not confirmed``.

    The text is empty if a second test confirmed the saving, or if it was not measured outside the job.
    """
    known = [x for x in findings if x.per_call_us is not None]
    if _sureness(findings) != "measured alone" or all(x.confirmed for x in known):
        return ""
    gains = [x.per_call.times(x.calls or 1) for x in known if x.per_call is not None]
    lows = [x.saving_low_us for x in gains if x.saving_low_us is not None]
    return NOTHING if len(lows) == len(known) and math.fsum(lows) <= 0 else UNCONFIRMED


def _group(name: str, numbers: Sequence[int], found: Recommendation) -> Todo:
    """Combine several findings (possible savings) into one thing to do, and add up their savings.

    If several are about the same call, only the largest saving is added.
    """
    findings = [found.findings[n - 1] for n in numbers]
    unit: Unit = "step" if found.steps else "run"
    gain = _largest((x, x.in_run) for x in findings)
    gain = gain and gain.per(found.steps or 1.0)
    time, most = found.gpu_time, math.fsum(x.evidence.at_most_us or 0.0 for x in findings)
    whole = _whole_us(time)
    if gain is None and time is not None and whole is not None and most:
        unit = "step" if time.steps else "run"
        gain = Gain(whole, whole - min(most / (time.steps or 1.0), whole))
    elif gain is None:
        unit, gain = "call", _largest((x, x.per_call) for x in findings)
    problems = len({x.problem for x in findings})
    label = findings[0].problem.label if problems == 1 and findings[0].problem else counted(problems, "problem")
    step = _at_most(found, gain.saving_us) if unit == "step" and gain is not None else None
    remedy = findings[0].remedy
    return Todo(
        name=name,
        title=remedy.title([x.problem for x in findings]) or f"follow the advice of {name}",
        what=label,
        gain=gain,
        unit=unit,
        sureness=_sureness(findings),
        remedy=remedy,
        changes=remedy.changes,
        findings=tuple(numbers),
        step=step,
        bounded=step is not None,
        doubt=_doubt(findings),
        confirmed=any(x.confirmed for x in findings) and all(x.confirmed or x.per_call_us is None for x in findings),
    )


def _at_most(found: Recommendation, saving_us: float) -> Gain | None:
    """Return the time of a step now, and the shortest time that it can have after its kernels became faster.

    The second time is (time now) − ``saving_us``, but no less than a step whose kernels take no time. The profiler
    makes steps longer, so None is returned if no time without it is known.
    """
    now = found.now
    if now is None or (found.gpu_time is not None and found.gpu_time.profiled):
        return None
    return Gain(now.now_us, max(now.now_us - saving_us, now.ceilings.free_kernels_us))


def _largest(gains: Iterable[tuple[Finding, Gain | None]]) -> Gain | None:
    """Add up the gains of all operators (with sizes). For each operator, only its largest gain is counted.

    Returns None if no gain is known.
    """
    largest: dict[object, Gain] = {}
    for finding, gain in gains:
        if gain is not None and gain.saving_us > (0.0 if (x := largest.get(finding.problem)) is None else x.saving_us):
            largest[finding.problem] = gain
    return total(largest.values())


def waits_for_data(found: Recommendation) -> bool:
    """Tell whether the simulated step waits mostly for its data loader."""
    return found.now is not None and found.now.limit == DATA


def _of_the_job(found: Recommendation) -> list[Todo]:
    """Return recommendations about losses of the whole job, for example a GPU that waits for the host.

    The possible saving is the smaller one of two times: how long the step waits now, and how much shorter the simulated
    step is without this wait. The second can be smaller, because the step may then wait for something else.
    """
    time, named = found.gpu_time, {x.action.name for x in found.actions}
    whole = _whole_us(time)
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
        saved, changes = min(each, most), remark.remedy.changes
        if most < _MEETS * each:  # The step would wait for something else.
            changes += (
                f"; {duration(each)} are lost this way, but without this loss the step would still take "
                f"{duration(whole - saved)}"
            )
        if saved >= _LEAST * whole:
            out.append(
                Todo(
                    name=remark.analyzer,
                    title=remark.remedy.title([]) or f"follow the advice of {remark.analyzer}",
                    what="",
                    gain=Gain(whole, whole - saved),
                    unit="step" if time.steps else "run",
                    sureness="unknown" if remark.saving_us is None else remark.sureness,
                    remedy=remark.remedy,
                    changes=changes,
                    waits=waits == "host",
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
    )


def _gain_without(waits: str | None, found: Recommendation) -> float:
    """Return how much shorter the step would be without one kind of wait, according to the simulation, µs.

    ``waits`` is ``host`` (which includes waits for data) or ``communication``. Returns infinity, which means no limit,
    for other waits, or if the step is not simulated.
    """
    now = found.now
    if now is None or found.gpu_time is None:
        return math.inf
    traced = _whole_us(found.gpu_time) or 0.0
    if not found.gpu_time.steps and abs(now.now_us - traced) > _LEAST * traced:  # another time than that of all traces
        return math.inf
    if waits == "communication":
        return now.now_us - now.ceilings.free_communication_us
    if waits == "host":
        return max(now.now_us - now.ceilings.fast_host_us, now.shares[DATA] * now.now_us)
    return math.inf


# ------------------------------------------------------------ the verdict


def _gains(found: Recommendation, todo: Sequence[Todo]) -> tuple[tuple[Sureness, float], ...]:
    """Return how much time can be saved in total, µs. Measured, estimated and other savings are added up separately.

    Only changes that can be made together are included, so that no time is saved twice.
    """
    together = {x.action.name for x in chosen(found.actions, hidden(found), found.in_job)}
    together |= {OVERRIDES.name} if not together else set()
    actions = {x.action.name for x in found.actions}
    counting = [x for x in todo if x.unit != "call" and (x.name not in actions or x.name in together)]
    units = {x.unit for x in counting}
    of = "step" if "step" in units else "run"
    sums = dict.fromkeys(SURENESS, 0.0)
    for x in counting:
        if x.unit == of:  # A bound is not a measured gain, so the gain below the bound is unknown.
            sums["unknown" if x.bounded else x.sureness] += x.gained_us
    return tuple((x, us) for x, us in sums.items() if us > 0)


def gain_text(sureness: Sureness, us: float) -> str:
    """Return a possible saving as a text, such as ``≈ 3 ms (estimated)``."""
    about = {"estimated": "≈ ", "unknown": "up to "}.get(sureness, "")
    return f"{about}{duration(us)} ({sureness})"


def change_text(todo: Todo) -> str:
    """Describe the change for the user.

    It begins with "less precise" if results become less precise.
    """
    return todo.changes if todo.exact else f"less precise: {todo.changes}"


def gain(todo: Todo) -> str:
    """Write a gain as text: the time of a step before and after, or the GPU time if the step's time is unknown.

    * ``45.4 → 41.1 ms``: measured or simulated.
    * ``≈ 45.4 → 41.1 ms``: estimated.
    * ``up to 18.5 of 45.4 ms``: a bound, because nothing was measured.
    """
    shown = todo.shown
    if shown is None:
        return "unknown"
    if todo.at_most:
        return f"up to {_pair(todo.gained_us, 'of', shown.now_us)}"
    estimated = todo.step is None and todo.sureness == "estimated"
    return ("≈ " if estimated else "") + _pair(shown.now_us, "→", shown.then_us)


def kernels_text(todo: Todo) -> str:
    """Write the time of the kernels before and after a change as text, like ``kernels 54.9 → 51.2 ms: ``.

    It is shown together with the step's time. The text is empty if the step's time or the kernels' saving is unknown.
    """
    if todo.step is None or todo.gain is None or todo.sureness == "unknown":
        return ""
    return f"kernels {_pair(todo.gain.now_us, '→', todo.gain.then_us)}: "


def _pair(first: float, word: str, second: float) -> str:
    one, other = duration(first), duration(second)
    if one.rpartition(" ")[2] == other.rpartition(" ")[2]:
        one = one.rpartition(" ")[0]
    return f"{one} {word} {other}"


def _headline(found: Recommendation, todo: Sequence[Todo], unseen: int) -> str:
    if not todo and unseen:
        return f"{_limited(found)}nothing worth doing: {unseen:,} with too small an effect on the {found.word}"
    if not todo:
        return nothing(found)
    first = next((x for x in todo if x.gain is not None), todo[0])
    more = f"; {counted(len(todo) - 1, 'more thing')} to do" if todo[1:] else ""
    shown = first.shown
    if shown is None:
        return f"{_limited(found)}{first.title}: worth unknown, {_why_unknown(first)}{more}"
    each = found.word if first.unit == "step" else of_calls(first) if first.unit == "call" else first.unit
    share = f" (−{1 - shown.ratio:.0%})" if _is_whole(shown.now_us, first, found) and shown.saving_us > 0 else ""
    sure = "the saved share is unknown" if first.sureness == "unknown" else first.certainty
    uncounted = "; no log counts the calls" if first.unit == "call" else ""
    return f"{_limited(found)}{first.title}: {gain(first)} a {each}{share}, {sure}{uncounted}{more}"


def of_calls(todo: Todo) -> str:
    """Return the word that follows a saving per call: ``call``, or ``call of each`` for several operators."""
    return "call of each" if len(todo.findings) > 1 else "call"


def _why_unknown(todo: Todo) -> str:
    """Explain why it is unknown how much a recommended change would save."""
    if todo.unit == "call":
        return "because no measurement shows how much a call would save"
    return "because the GPU's one long gap may not happen again"


def _is_whole(now_us: float, todo: Todo, found: Recommendation) -> bool:
    """Tell whether ``now_us`` is the measured time of a whole step or run, so that a percentage of it makes sense.

    Without a trace, ``now_us`` is only the sum of the calls for which two kernels were timed. The time of the rest is
    then unknown.
    """
    if todo.sureness not in SURENESS[:2]:
        return False
    time = found.gpu_time
    kernels_us = time.kernels_us / (time.steps or 1.0) if time is not None else math.inf
    return todo.step is not None or now_us >= (1 - _LEAST) * kernels_us


def _limited(found: Recommendation) -> str:
    """Return what limits the step if it is not its kernels, for example "the host is the limit; ". Else it is empty.

    The simulation of the step decides. Without a simulation, the fraction of time in which the GPU is busy decides.
    """
    time, now = found.gpu_time, found.now
    if now is not None:
        return "" if now.limit == "kernels" else f"{_LIMITS.get(now.limit, now.limit)} is the limit; "
    return "the host is the limit; " if time is not None and time.waits and time.steps and not time.profiled else ""


def nothing(found: Recommendation) -> str:
    """Return the sentence that explains why there is nothing to do."""
    ceiling = found.ceiling
    if found.unlike:
        return f"no verdict: {found.unlike}"
    if found.left_out:
        reasons = "; ".join(f"{count:,} {why}" for why, count in found.left_out.items())
        return f"nothing worth doing: {reasons}"
    if ceiling.share is None:
        if not (found.calls or found.counted or found.gpu_time):
            return "no verdict: the run holds no calls and no times of matrix products or convolutions"
        fine, timed = found.as_expected
        if fine:
            return (
                f"no slow call is seen: for {fine:,} of {timed:,} timed problems the time is usual among comparable "
                "problems, by an estimate (`logparse replay` times other solutions)"
            )
        return "no verdict: nothing was timed with more than one kernel (run `logparse replay`)"
    untimed = 1.0 - (ceiling.calls_share if ceiling.calls_share is not None else 1.0)
    text = (
        f"nothing worth doing: no better solution is known for any of {counted(ceiling.problems, 'measured problem')}"
    )
    return f"{text}; {untimed:.1%} of calls untimed" if untimed >= 0.001 else text
