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
from analyzers.findings.finding import RESTS_ON
from analyzers.job.gpu_time import COMMUNICATION, GpuTime, Part
from analyzers.recommend.apply_module import alternatives, calls, choose_default_changes
from analyzers.recommend.files_action import OVERRIDES, USER_FIND_DB
from analyzers.recommend.ranking import Recommendation
from logparse.capture.in_job.logparse_in_job.switches import TOGETHER
from logparse.model import (
    SURENESS,
    UPPER_BOUND,
    ChangeProgram,
    Finding,
    Gain,
    Remedy,
    Replay,
    Search,
    Sureness,
    UseRows,
)
from logparse.model.gains import total
from logparse.text import duration, in_one_unit, pluralize, signed_percent

Unit: TypeAlias = Literal["step", "run", "call"]
DATA = "data loading"
_LEAST = 0.01
"""A limit of the step, for example its host, is mentioned only if it matters.

It matters if the step would be shorter by at least this fraction (0 to 1) without it.
"""
_NOTHING = 1e-3
"""A thing to do is not listed if its gain is below this fraction of the step (0 to 1)."""
_SMALL = 0.02
"""A saving below this fraction of the traced time (0 to 1) is not listed before a larger upper bound."""
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
    * ``slowed_by``: what the step waits for, if the step gains less than half of what its kernels save, such as ``the
      host``. Else empty.
    * ``rests_on``: what the estimate takes for granted, such as ``50% of the roofline is reached``. Empty if it
      takes nothing for granted.
    * ``waits_for``: the wait of the step that the change shortens, ``host`` or ``communication``. Else empty.
    * ``assumes``: the condition under which anything is saved, if no file of the job settles it. Else empty.
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
    slowed_by: str = ""
    rests_on: str = ""
    waits_for: str = ""
    assumes: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the changes that are made together. Usually it is only ``name``."""
        return tuple(self.name.split(TOGETHER))

    @property
    def certainty(self) -> str:
        """How certain the saving is: how it was found (``sureness``), and whether a test confirmed it.

        For example: ``measured alone, confirmed``. If only the largest possible saving is known, it is ``upper bound
        only``.
        """
        known = UPPER_BOUND if self.sureness == "unknown" and self.gain is not None else self.sureness
        more = "confirmed" if self.confirmed else self.doubt
        return f"{known}, {more}" if more else known

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
    * ``whole``: what a saving per run is a part of: ``a run``, ``a run of 2 processes together``, or ``the whole
      trace`` if the times are of traces without marked steps.
    * ``hint``: how the user gets times of a step if no steps are marked. Else empty.
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
    whole: str = "a run"
    hint: str = ""

    def per(self, todo: Todo) -> str:
        """Return the unit of a saving as words that follow the saving, such as ``a step`` or ``a run``."""
        return _name_saving_unit(todo, self.word, self.whole)


def _name_saving_unit(todo: Todo, word: str, whole: str) -> str:
    return (
        f"a {word}"
        if todo.unit == "step"
        else f"a {of_calls(todo)}"
        if todo.unit == "call"
        else f"{'of ' * whole.startswith(('the', 'all'))}{whole}"
    )


def whole_of(found: Recommendation) -> str:
    """Return what a saving per run is a part of, such as ``a run of 2 processes together`` (``Verdict.whole``)."""
    if found.gpu_time is not None and not found.gpu_time.steps:
        return "all traces" if found.gpu_time.traces > 1 else "the whole trace"
    return f"a run of {found.processes} processes together" if found.processes > 1 else "a run"


def verdict(found: Recommendation) -> Verdict:
    """Make the list of things to do from a recommendation, with a headline. The surest saving comes first."""
    time = found.gpu_time
    steps = time.steps if time is not None else found.steps
    unit: Unit = "step" if steps else "run"
    listed = [*_with_combination(_actions(found), found), *_of_findings(found), *_of_the_job(found)]
    unseen = sorted((x for x in listed if _is_hidden(x, time)), key=lambda x: _rank(x, time))
    # Measured savings come first, then estimates, then savings of which only an upper bound is known. Among savings
    # that are equally sure, the largest comes first.
    todo = sorted((x for x in listed if x not in unseen), key=lambda x: _rank(x, time))
    gains = _gains(found, todo)
    headline = _headline(found, todo, len(unseen))
    limit, word, left_out = _limit(found), found.word, _left_out(time)
    return Verdict(
        headline,
        _divide_step(time),
        _whole_us(time),
        unit,
        tuple(todo),
        gains,
        tuple(unseen),
        limit,
        word,
        left_out,
        whole_of(found),
        _UNMARKED.format(whole_of(found)) if time is not None and not time.steps else "",
    )


_UNMARKED = "times are of {}; to see times of a step, state how many steps it has: `--steps N`"


def _left_out(time: GpuTime | None) -> tuple[str, ...]:
    """Return sentences for the user about gaps in the measured times.

    They state which traced work is in none of the times, and why the GPU's idle time is unknown.
    """
    return () if time is None else (*time.left_out, *filter(None, [time.unknown_idle]))


def _rank(todo: Todo, time: GpuTime | None) -> tuple[bool, int, bool, float, float, str]:
    """Return a sort key for things to do, the best first.

    The surest gains come first, then the largest. Savings per call come last, because the number of calls is unknown.
    """
    whole = _whole_us(time)
    # An upper bound is often far above the real gain, so surer gains come first. But a gain below _SMALL of the traced
    # time comes after larger upper bounds.
    small = todo.unit != "call" and whole is not None and todo.gained_us < _SMALL * whole
    in_job = todo.sureness == "measured in the job"
    sure = SURENESS.index("unknown") if small and not in_job else SURENESS.index(todo.sureness)
    # Equally sure gains without a condition come first. Then they are sorted by the time that a step gains, then by GPU
    # time.
    return todo.unit == "call", sure, bool(todo.assumes), -todo.gained_us, -todo.saving_us, todo.name


_TWICE, _NO_TIME = "a host twice as fast", "a host that takes no time"
_LIMITS = {"host": "the host", "kernels": "its kernels"}


def _limit(found: Recommendation) -> str:
    """Write the sentence about the limit of the step, which is for example its kernels, the host, or communication."""
    now, time = found.now, found.gpu_time
    one = f"a {found.word}" if time is None or time.steps else whole_of(found)
    if now is None:
        return f"{one} is not simulated: {found.step}" if found.step else ""
    ceilings, of_host = now.ceilings, now.limit == "host"
    traced = _whole_us(time) or now.now_us
    differs = abs(now.now_us - traced) > _LEAST * traced  # Without the profiler it takes another time than traced.
    as_traced = not differs and round(now.host_factor, 2) == 1
    profiled = time is not None and time.profiled and as_traced
    said = [f"{_LIMITS.get(now.limit, now.limit)} {'limit' if now.limit == 'kernels' else 'limits'} {one}"]
    if now.limit == COMMUNICATION and time is not None and time.exposed_us and time.window_us:
        share = f"{_pair(time.exposed_us / (time.steps or 1.0), 'of', time.window_us / (time.steps or 1.0))}"
        said[0] += f" ({share}, {time.exposed_us / time.window_us:.0%})"
    # The sentence also has the saving of a step with the best known kernels, with a faster host, and with communication
    # that takes no time.
    ends = (
        ("running the best known kernels", ceilings.best_us),
        (_TWICE, ceilings.half_host_us if of_host else None),
        (_NO_TIME, ceilings.fast_host_us),
    )
    for words, us in ends:
        if us is not None and us < now.now_us * (1 - _LEAST):
            saved_us = now.now_us - us
            most = "at most " if of_host and profiled else ""
            share = f"({saved_us / now.now_us:.0%})"
            if words == _NO_TIME and said[-1].startswith(_TWICE):  # The words before name the whole time already.
                said[-1] += f", one{words.removeprefix('a host')} {most}{duration(saved_us)} {share}"
            else:
                said.append(f"{words} saves {most}{_pair(saved_us, 'of', now.now_us)} {share}")
    free_us = ceilings.free_communication_us
    if free_us < now.now_us * (1 - _LEAST):
        saved = duration(now.now_us - free_us)
        if next_ := _name_next_limit(found):
            # Else the user wonders why a step saves much less than the time of its communication.
            works = "works meanwhile and " * (ceilings.next_limit == "host")
            still = f"would still take {duration(free_us)} (only {saved} less)"
            said.append(f"without communication {one} {still}, because {next_} {works}would then limit it")
        else:
            said.append(f"without communication {one} would be {saved} shorter")
    how = "simulated"
    if differs:
        how += f" as {duration(now.now_us)}"
    if of_host and now.beside_logs:
        how += ", from traces taken while the libraries wrote logs, which slows the host"
    elif profiled:
        how += "; the trace's profiler slowed the host"
    elif now.rough:
        how += ", roughly"
    if of_host and round(now.host_factor, 2) != 1:
        how += f", host time × {now.host_factor:.2f}"
    again = f"; {now.read_again}" if now.read_again else ""
    return f"{'; '.join(said)} ({how}){again}"


def _name_next_limit(found: Recommendation) -> str:
    """Return what would limit the step if communication, its limit now, took no time. Empty if nothing else would."""
    now = found.now
    if now is None or now.limit != COMMUNICATION or now.ceilings.next_limit == COMMUNICATION:
        return ""
    return _LIMITS.get(now.ceilings.next_limit, now.ceilings.next_limit)


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
        profiled = time is not None and time.profiled  # The host is slower than without the profiler.
        return not profiled and todo.gained_us < min(todo.saving_us / 2, _LEAST * whole)
    waits = time is not None and time.waits and time.steps and not time.profiled
    return bool(waits) and todo.saving_us < _SHOWS * whole


def find_hidden_changes(found: Recommendation) -> frozenset[str]:
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


def _divide_step(time: GpuTime | None) -> tuple[Share, ...]:
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

    One of them is the use of override files (the user's list of kernels for the libraries).
    """
    kept: list[ActionResult] = []
    unnamed = choose_default_changes(
        [x for x in found.actions if x.action.kind != "files"],
        find_hidden_changes(found),
        found.in_job,
        found.combination,
    )
    for result in sorted(found.actions, key=lambda x: -x.saving_us):
        files = result.action.kind == "files" and result.saving_us > 0
        # If two changes cannot be made together, or if one contains the other, only the one that saves more is kept.
        # Changes that the generated apply.py makes by default are always kept.
        if (result.pays or files) and (result in unnamed or not any(alternatives(result, x) for x in kept)):
            kept.append(result)
    return [_action(x, found) for x in kept]


def _with_combination(listed: Sequence[Todo], found: Recommendation) -> list[Todo]:
    """Put the changes that were measured together in the running job into one entry of the list of things to do.

    Without such a measurement the list is returned unchanged.
    """
    names = found.combination
    if not names:
        return list(listed)
    # The gain of the entry is the measured one, because the savings of single changes do not add up.
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
        changes=f"add {pluralize(lines, 'line')} to the program" if lines else "change the program",
        step=found.step_gain(name),
        exact=all(x.action.exact for x in results),
    )
    replaced = {x.action.name for x in found.actions if any(alternatives(x, y) for y in results)}
    return [entry, *(x for x in listed if x.name not in replaced.union(names))]


def _action(result: ActionResult, found: Recommendation) -> Todo:
    timed = {x.of for x in result.parts}
    files, assumed = result.action.kind == "files", result.action is USER_FIND_DB
    rows = tuple(
        n
        for n, x in enumerate(found.findings, 1)
        if x.override is not None
        and bool(x.evidence.assumes) == assumed
        and (not x.saving_us or (x.problem is not None and x.problem.text in timed))
    )
    assumes = next((x for n in rows if (x := found.findings[n - 1].evidence.assumes)), "")
    sure = files and all(found.findings[n - 1].confirmed for n in rows)
    lines = len(result.application.settings) + len(result.application.model)
    changes = {
        "files": f"apply {pluralize(len(rows), 'row')} of override files",
        "setting": f"change a setting: {result.application.line}",
        "program": f"add {pluralize(lines, 'line')} to the program" if lines else "change the program",
    }[result.action.kind]
    exact, name = result.action.exact, result.action.name
    changes += f", if {assumes}" if assumes else ""
    remedy: Remedy = UseRows() if files else ChangeProgram(name, f"use {name}")
    title = remedy.title([found.findings[n - 1].problem for n in rows]) + " of the user find-db" * assumed
    unit: Unit = "step" if result.steps else "run"
    in_job = name in found.in_job
    if files:
        doubt = UNSETTLED if assumes else _warn_of_doubt([found.findings[n - 1] for n in rows])
    else:
        doubt = NOTHING if (result.job_gain.saving_low_us or 0.0) <= 0 else ""
    step, gain = found.step_gain(name), result.job_gain.per(result.steps or 1.0)
    return Todo(
        name=name,
        title=title,
        what=result.action.about,
        gain=gain,
        unit=unit,
        sureness="measured in the job" if in_job else "measured alone",
        remedy=remedy,
        changes=changes if exact else calls(result) or changes,
        findings=rows if files else (),
        step=step,
        exact=exact,
        confirmed=sure,
        doubt="" if in_job else doubt,
        slowed_by="" if in_job else _slowed_by(step, gain, found),
        assumes=assumes,
    )


def _slowed_by(step: Gain | None, gain: Gain | None, found: Recommendation) -> str:
    """Return what the step waits for, if it gains less than half of what its kernels save. Else return an empty text.

    ``gain`` is the time of the kernels now and then.
    """
    if step is None or gain is None or found.now is None or found.now.limit == "kernels":
        return ""
    less = step.saving_us < gain.saving_us / 2 and gain.saving_us >= _NOTHING * step.now_us
    return _LIMITS.get(found.now.limit, found.now.limit) if less else ""


def _of_findings(found: Recommendation) -> list[Todo]:
    """Turn findings (possible savings) into entries for the list of things to do (``groups``)."""
    return [_group(key.partition("\n")[0], key, numbers, found) for key, numbers in groups(found).items()]


def groups(found: Recommendation) -> dict[str, list[int]]:
    """Group the findings that the user handles in the same way, for example by one search.

    The members are numbers, from 1, of findings in the ranking. A key's first line names the thing to do.
    """
    covered = {x.of for y in found.actions if y.pays or y.action.kind == "files" for x in y.parts}
    files = any(x.action is OVERRIDES for x in found.actions)
    out: dict[str, list[int]] = {}
    for number, finding in enumerate(found.findings, 1):
        text = finding.problem.text if finding.problem else ""
        # Savings that a listed change already includes are left out.
        if text not in covered and not (files and finding.override is not None):
            remedy = finding.remedy
            out.setdefault(f"{remedy.name or finding.analyzer}\n{remedy.changes}", []).append(number)
    return out


def _sureness(findings: Sequence[Finding]) -> Sureness:
    """Return how well the savings of several findings are known, for example ``measured alone`` or ``estimated``.

    If the findings differ, the least certain answer is returned.
    """
    known = {finding.sureness for finding in findings if finding.per_call_us is not None}
    return max(known, key=SURENESS.index, default="unknown")


NOTHING, UNCONFIRMED = "may gain nothing", "not confirmed"
UNSETTLED = "if not in use yet"
"""The certainty of a saving by a user find-db that the job may read already."""


def _warn_of_doubt(findings: Sequence[Finding]) -> str:
    """Return a short warning about a saving that was measured outside the job, for example ``not confirmed``.

    The text is empty if a second test confirmed the saving, or if it was not measured outside the job.
    """
    known = [x for x in findings if x.per_call_us is not None]
    if _sureness(findings) != "measured alone" or all(x.confirmed for x in known):
        return ""
    gains = [x.per_call.times(x.calls or 1) for x in known if x.per_call is not None]
    lows = [x.saving_low_us for x in gains if x.saving_low_us is not None]
    return NOTHING if len(lows) == len(known) and math.fsum(lows) <= 0 else UNCONFIRMED


def _group(name: str, key: str, numbers: Sequence[int], found: Recommendation) -> Todo:
    """Combine several findings (possible savings) into one thing to do, and add up their savings.

    If several are about the same call, only the largest saving is added.
    """
    findings = [found.findings[n - 1] for n in numbers]
    unit: Unit = "step" if found.steps else "run"
    gain = _sum_largest_gains((x, x.in_run) for x in findings)
    gain = gain and gain.per(found.steps or 1.0)
    time, most = found.gpu_time, math.fsum(x.evidence.at_most_us or 0.0 for x in findings)
    whole = _whole_us(time)
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
        bounded=step is not None and step is bound,
        slowed_by=_slowed_by(step, gain, found),
        rests_on=_rests_on(findings),
        doubt=_warn_of_doubt(findings),
        confirmed=any(x.confirmed for x in findings) and all(x.confirmed or x.per_call_us is None for x in findings),
    )


def _rests_on(findings: Sequence[Finding]) -> str:
    """Return what the estimates of several findings take for granted, as a clause. Empty without such a thing.

    If the findings take different things for granted, the clause is about the largest saving, and says so.
    """
    largest_first = sorted(findings, key=lambda x: -(x.saving_us or x.per_call_us or 0.0))
    told = list(dict.fromkeys(str(x.evidence.details.get(RESTS_ON) or "") for x in largest_first))
    said = next(filter(None, told), "")
    return f"for some problems, {said}" if said and len(told) > 1 else said


def granted(todo: Todo) -> str:
    """Write what an estimate takes for granted as text: ``assumes that 50% of the roofline is reached``."""
    return f"assumes that {todo.rests_on}" if todo.rests_on else ""


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
    traced = _whole_us(found.gpu_time) or 0.0
    return bool(found.gpu_time.steps) or abs(found.now.now_us - traced) <= _LEAST * traced


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


def _sum_largest_gains(gains: Iterable[tuple[Finding, Gain | None]]) -> Gain | None:
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
    """Return recommendations about losses of the whole job, for example a GPU that waits for the host."""
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
        # The possible saving is the smaller one of two times: how long the step waits now, and how much shorter the
        # simulated step is without this wait. The second can be smaller, because the step may then wait for something
        # else.
        saved = min(each, most)
        known = remark.saving_us is not None and remark.in_run is not None
        step = _find_simulated_gain(found, remark.analyzer) if known else None
        gain = Gain(whole, whole - saved)
        if step is not None and remark.in_run is not None:
            gain = remark.in_run.per(time.steps or 1.0)
        if saved >= _LEAST * whole:
            out.append(
                Todo(
                    name=remark.analyzer,
                    title=remark.remedy.title([]) or f"follow the advice of {remark.analyzer}",
                    what="",
                    gain=gain,
                    unit="step" if time.steps else "run",
                    sureness="unknown" if remark.saving_us is None else remark.sureness,
                    remedy=remark.remedy,
                    changes=remark.remedy.changes,
                    step=step,
                    waits=waits == "host",
                    slowed_by=_slowed_by(step, gain, found),
                    rests_on=_rests_on([remark]),
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


# ------------------------------------------------------------ the verdict


def _gains(found: Recommendation, todo: Sequence[Todo]) -> tuple[tuple[Sureness, float], ...]:
    """Return how much time can be saved in total, µs. Measured, estimated and other savings are added up separately.

    Only changes that can be made together are included, so that no time is saved twice. Savings with a condition
    (``assumes``) are left out.
    """
    together = {
        x.action.name
        for x in choose_default_changes(found.actions, find_hidden_changes(found), found.in_job, found.combination)
    }
    together |= {OVERRIDES.name, USER_FIND_DB.name} if not together else set()
    actions = {x.action.name for x in found.actions}
    counting = [x for x in todo if x.unit != "call" and (x.name not in actions or x.name in together) and not x.assumes]
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
    return f"{about}{duration(us)} ({UPPER_BOUND if sureness == 'unknown' else sureness})"


def gains_text(conclusion: Verdict) -> str:
    """Return a sentence about how much time all things to do save together. Empty if there is only one thing."""
    if len(conclusion.todo) < 2 or not conclusion.gains:
        return ""
    per = f"a {conclusion.word}" if conclusion.unit == "step" else conclusion.whole
    known = [gain_text(*x) for x in conclusion.gains if x[0] != "unknown"]
    bounds = [gain_text(*x) for x in conclusion.gains if x[0] == "unknown"]
    more = f"{' more' * bool(known)}, of which only an upper bound is known"
    parts = [*known, *(f"{x.rpartition(' (')[0]}{more}" for x in bounds)]
    of = "step" if conclusion.unit == "step" else "run"
    perhaps = [
        f"; another {duration(x.gained_us)} if {x.assumes}" for x in conclusion.todo if x.assumes and x.unit == of
    ]
    return f"Add up what can be done together: {' and '.join(parts)} ({per}){''.join(perhaps)}"


def change_text(todo: Todo) -> str:
    """Describe the change for the user.

    It begins with "less precise" if results become less precise.
    """
    return todo.changes if todo.exact else f"less precise: {todo.changes}"


def gain(todo: Todo) -> str:
    """Write a gain as text: the time of a step (else of the GPU) before and after.

    * ``45.4 → 41.1 ms``: measured or simulated
    * ``≈ 45.4 → 41.1 ms``: estimated
    * ``up to 18.5 of 45.4 ms``: a bound, not measured
    * ``0 or 18.5 of 45.4 ms``: measured, if a condition holds
    """
    shown = todo.shown
    if shown is None:
        return "unknown"
    if todo.at_most:
        return f"up to {_pair(todo.gained_us, 'of', shown.now_us)}"
    if todo.assumes:
        return f"{mark(todo)}{_pair(todo.gained_us, 'of', shown.now_us)}"
    return mark(todo) + _pair(shown.now_us, "→", shown.then_us)


def mark(todo: Todo) -> str:
    """Return the words before a saving that say how surely it is known.

    For example ``≈ `` before an estimate, ``up to `` before a bound, and ``0 or `` if it rests on a condition.
    """
    if todo.at_most:
        return "up to "
    return "0 or " if todo.assumes else "≈ " if todo.sureness == "estimated" else ""


def interval_text(todo: Todo) -> str:
    """Return the interval of the saving as a text like ``range of the saving: 0 to 91.3 ms``.

    Empty if an end is unknown, or if the interval is small.
    """
    shown = todo.shown
    least, most = (None, None) if shown is None else (shown.saving_low_us, shown.saving_high_us)
    if shown is None or least is None or most is None or most - least < _LEAST * shown.now_us:
        return ""
    # The interval of an action is one of 95 %. The interval of rows of a file adds up the intervals of the rows, and a
    # row that was not confirmed may save nothing.
    of_action = isinstance(todo.remedy, ChangeProgram) and not todo.findings
    name = "95% interval" if of_action else "range"
    why = " (no test confirmed it)" if least <= 0 and todo.doubt == UNCONFIRMED else ""
    return f"{name} of the saving: {_pair(least, 'to', most) if least > 0 else f'0 to {duration(most)}'}{why}"


def kernels_text(todo: Todo) -> str:
    """Write the time of the kernels before and after a change as text, like ``kernels 54.9 → 51.2 ms``.

    It is empty if the step's time or the kernels' saving is unknown.
    """
    if todo.step is None or todo.gain is None or todo.sureness == "unknown":
        return ""
    # The text is shown together with the step's time. If the step gains much less than its kernels, the text says how
    # much, and what the step waits for.
    but = ""
    if todo.slowed_by:
        (gained, saved), unit = in_one_unit([todo.gained_us, todo.saving_us])
        most = "at most " if todo.at_most else ""
        gains = f"{most}{gained} of these {saved} {unit}" if todo.gained_us > 0 else "nothing"
        but = f", but {todo.slowed_by} limits the job's gain to {gains}"
    return f"kernels {_pair(todo.gain.now_us, '→', todo.gain.then_us)}{but}"


def basis(todo: Todo) -> str:
    """Write what a saving rests on as text. Empty if there is nothing to say.

    It has the range of the saving, how much of the kernels' saving arrives in a step, and what an estimate assumes.
    """
    interval = "" if todo.at_most or todo.assumes else interval_text(todo)
    return "; ".join(filter(None, [interval, kernels_text(todo), granted(todo)]))


def _pair(first: float, word: str, second: float) -> str:
    one, other = duration(first), duration(second)
    if one.rpartition(" ")[2] == other.rpartition(" ")[2]:
        one = one.rpartition(" ")[0]
    return f"{one} {word} {other}"


def _headline(found: Recommendation, todo: Sequence[Todo], unseen: int) -> str:
    limit = _limit_name(found)
    if not todo and unseen:
        why = f"{limit} is the limit; " if limit else ""
        return f"{why}nothing worth doing: {unseen:,} with too small an effect on the {found.word}"
    if not todo:
        return explain_empty_list(found)
    first = next((x for x in todo if x.gain is not None), todo[0])
    shown = first.shown
    left = [x for x in todo if x is not first]
    # The limit of the step stands before the thing to do that shortens this very wait. Else it stands behind the saving
    # that the limit makes smaller, so that it does not look like the reason for something else.
    begins = f"{limit} is the limit; " if limit and _eases(first, found) else ""
    if shown is None:
        more = f"; {pluralize(len(left), 'more thing')} to do" if left else ""
        return f"{begins}{first.title}: worth unknown, {_why_unknown(first)}{more}"
    less_sure = (x for x in left if x.unit == first.unit and x.gained_us > first.gained_us)
    larger = max(less_sure, key=lambda x: x.gained_us, default=None)
    told, more = bool(begins or not limit), f"; {pluralize(len(left), 'more thing')} to do" if left else ""
    if larger is not None:
        following = f", then {x}" if (x := _name_next_limit(found)) else ""
        why = "" if told or not _eases(larger, found) else f"{limit} is the limit{following}"
        sure = "" if larger.at_most else larger.certainty
        because = f" ({'; '.join(filter(None, [sure, why]))})" if sure or why else ""
        more = f"; larger but less sure: {larger.title}, {mark(larger)}{duration(larger.gained_us)}{because}"
        told = told or bool(why)
    ends = "" if told else f"; {'its kernels save more, but ' if first.slowed_by else ''}{limit} is the limit"
    each = _name_saving_unit(first, found.word, whole_of(found)).removesuffix(" together")
    whole = _is_whole(shown.now_us, first, found) and not first.assumes
    share = f" ({signed_percent(shown.ratio - 1, digits=0)})" if whole and shown.saving_us > 0 else ""
    sure = "how much of it can really be saved is not known" if first.sureness == "unknown" else first.certainty
    uncounted = "; no log counts the calls" if first.unit == "call" else ""
    # A time of the calls alone looks like the time of the whole run.
    of_calls_alone = isinstance(first.remedy, UseRows | Search | Replay) and bool(first.findings)
    apart = of_calls_alone and first.unit != "call" and not (whole or first.at_most or first.assumes)
    calls = "their calls " if apart and len(first.findings) > 1 else "its calls " if apart else ""
    return f"{begins}{first.title}: {calls}{gain(first)} {each}{share}, {sure}{uncounted}{ends}{more}"


def _eases(todo: Todo, found: Recommendation) -> bool:
    """Tell whether a thing to do shortens the wait that limits the step."""
    limit = found.now.limit if found.now is not None else "host"
    # Advice about a slow host is also about a slow data loader.
    return todo.waits_for == limit or (todo.waits_for == "host" and limit == DATA)


def of_calls(todo: Todo) -> str:
    """Return the word that follows a saving per call: ``call``, or ``call of each`` for several operators."""
    return "call of each" if len(todo.findings) > 1 else "call"


def _why_unknown(todo: Todo) -> str:
    """Explain why it is unknown how much a recommended change would save."""
    if todo.unit == "call":
        return "because no measurement shows how much a call would save"
    return "because the GPU was idle in one long gap, which may not happen again"


def _is_whole(now_us: float, todo: Todo, found: Recommendation) -> bool:
    """Tell whether ``now_us`` is the measured time of a whole step or run, so that a percentage of it makes sense."""
    if todo.step is not None:
        return not todo.at_most
    if todo.sureness not in SURENESS[:2]:
        return False
    time = found.gpu_time
    # Without a trace, the time is only the sum of the calls for which two kernels were timed. The time of the rest is
    # then unknown.
    kernels_us = time.kernels_us / (time.steps or 1.0) if time is not None else math.inf
    return now_us >= (1 - _LEAST) * kernels_us


def _limit_name(found: Recommendation) -> str:
    """Return what limits the step if it is not its kernels, for example ``the host``. Else it is empty."""
    time, now = found.gpu_time, found.now
    # The simulation of the step decides. Without a simulation, the fraction of time in which the GPU is busy decides.
    if now is not None:
        return "" if now.limit == "kernels" else _LIMITS.get(now.limit, now.limit)
    return "the host" if time is not None and time.waits and time.steps and not time.profiled else ""


def explain_empty_list(found: Recommendation) -> str:
    """Return the sentence that explains why there is nothing to do."""
    ceiling = found.ceiling
    if found.unlike:
        return f"no verdict: {found.unlike}"
    if found.left_out:
        reasons = "; ".join(f"{count:,} {why}" for why, count in found.left_out.items())
        return f"nothing worth doing: {reasons}"
    if ceiling.share is None:
        if not (found.calls or found.counted or found.gpu_time):
            empty = "the run holds no calls and no times of matrix products or convolutions"
            return f"no verdict: {found.choices or empty}"
        fine, timed = found.as_expected
        if fine:
            return (
                f"no slow call is seen: for {fine:,} of {timed:,} timed problems the time is usual among comparable "
                "problems, by an estimate (`logparse replay` times other solutions)"
            )
        one = f"{found.choices}, and " if found.choices else ""
        return f"no verdict: {one}nothing was timed with more than one kernel (run `logparse replay`)"
    untimed = 1.0 - (ceiling.calls_share if ceiling.calls_share is not None else 1.0)
    text = (
        f"nothing worth doing: no better solution is known for any of {pluralize(ceiling.problems, 'measured problem')}"
    )
    return f"{text}; {untimed:.1%} of calls untimed" if untimed >= 0.001 else text
