"""Write the recommendation for a job as text and tables, for the file ``report.md`` and the terminal.

The short to-do list is made elsewhere: ``verdict`` makes it, and ``screen`` shows it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pandas as pd

from analyzers.actions import ActionResult
from analyzers.findings import completeness, stale_override
from analyzers.findings.finding import BESIDE
from analyzers.job.gpu_time import GpuTime
from analyzers.recommend.apply_module import calls
from analyzers.recommend.ceiling import Ceiling
from analyzers.recommend.confidence import Judgement
from analyzers.recommend.ranking import Recommendation
from analyzers.recommend.todo import Todo, differs_if_traced
from analyzers.recommend.whole import kind_name
from logparse.model import Finding, Gain
from logparse.output.terminal import Block
from logparse.text import duration, pluralize


def advice(recommendation: Recommendation) -> list[str]:
    """Return the advice texts of all findings as lines, each text once."""
    found = (*recommendation.remarks, *recommendation.findings)
    return list(dict.fromkeys(x.advice for x in found if x.advice))


def warnings_first(remarks: Sequence[Finding]) -> list[Finding]:
    """Return remarks about the job, first those which say that times, calls or files may be wrong or missing."""
    return sorted(remarks, key=lambda x: x.analyzer not in _WARNINGS)


_WARNINGS = frozenset({completeness.NAME, stale_override.NAME})


def gpu_time_lines(time: GpuTime | None) -> list[str]:
    """Return lines for the user that show how the GPU time of a step is divided, for example among GEMMs and attention.

    If the traces mark no steps, it is the GPU time of all traces.
    """
    if time is None:
        return []
    steps = time.steps or 1.0
    traces = pluralize(time.traces, "trace")
    count = f"{steps:,.0f}" if steps >= 10 else f"{steps:.2g}"
    of = f"per {time.word} ({count} in {traces})" if time.steps else f"in {traces} without marked steps"
    whole = time.window_us or time.kernels_us
    share = f", with shares of {duration(whole / steps)}" if time.window_us else ""
    out = [f"GPU time: {duration(time.kernels_us / steps)} of kernels {of}{share}"]
    shown = [x for x in time.parts if x.us >= _LEAST_PART * time.kernels_us]
    few = [x for x in time.parts if x not in shown]
    rows = [(kind_name(x, time), x.us) for x in shown]
    rows += [(pluralize(len(few), "more kind"), sum(x.us for x in few))] if few else []
    out += [f"  {name:<26} {duration(us / steps):>10} {us / whole:>7.1%}" for name, us in rows]
    if time.idle_us is not None and time.window_us:
        out.append(f"  {'idle':<26} {duration(time.idle_us / steps):>10} {time.idle_us / time.window_us:>7.1%}")
        if time.waiting_us:
            out.append(
                f"  of the idle time, {duration(time.waiting_us / steps)} are collectives that wait for another rank"
            )
    if time.unexplained_us:
        out.append(
            f"  {duration(time.unexplained_us / steps)} of graph launches belong to no known problem; only a trace "
            "of the HIP graph's capture, ingested with this trace, names their problems"
        )
    if time.untraced_share:
        out.append(f"  kinds of steps that take {time.untraced_share:.1%} of the job's time are in no trace")
    if time.before_us:
        out.append(f"  not counted: {duration(time.before_us)} of kernels launched before the trace began")
    out += [f"  left out: {x}" for x in (*time.left_out, *filter(None, [time.unknown_idle]))]
    return out


_LEAST_PART = 0.005
"""Kinds of work with less than this fraction (0 to 1) of the kernels' time are added up into one line."""


def ceiling_lines(ceiling: Ceiling) -> list[str]:
    """Return a line for the user about the greatest possible saving, and for how many of the calls it is known."""
    untimed = f"; {ceiling.untimed_share:.1%} of calls are not timed in any file" if ceiling.untimed_share else ""
    if ceiling.share is None:
        why = "no search timed both the kernels that run now and other kernels"
        return [f"ceiling (greatest possible saving): unknown, because {why}{untimed}"]
    assumed = f" ({duration(ceiling.assumed_us)} of it only if {ceiling.assumes})" if ceiling.assumed_us else ""
    return [
        f"ceiling (greatest possible saving): {duration(ceiling.saving_us)}{assumed} of the "
        f"{duration(ceiling.default_us)} of calls with two measured times ({_percent(ceiling.calls_share)} of all "
        f"calls), if each ran its best known solution{untimed}"
    ]


def confidence_lines(judged: Judgement) -> list[str]:
    """Return a line for the user: how many gains were measured a second time, and how many of them were confirmed.

    Empty without such tests.
    """
    if not judged.tested:
        return []
    return [
        f"tested: {judged.kept:,} of {judged.tested:,} confirmations are more than {judged.floor:.0%} faster "
        f"(Benjamini–Hochberg over all of them: at most {judged.rate:.0%} of these are false)"
    ]


def counts(recommendation: Recommendation) -> str:
    """Return a line for the user: how many possible savings (findings) there are, and why others were left out.

    The line also states for how many there is an override, a kernel to use instead of the library's choice.
    """
    found, overrides = len(recommendation.findings), len(recommendation.overrides)
    reasons = "; ".join(f"{count:,} {why}" for why, count in recommendation.left_out.items())
    out = f"{pluralize(found, 'finding')} about single calls, {overrides:,} with an override"
    out += f"; left out: {reasons}" * bool(reasons)
    return out + f"; not used: {recommendation.not_used}" * bool(recommendation.not_used)


def explain_todo(recommendation: Recommendation, todo: Todo) -> list[str | Block]:
    """Return all details about one entry of the to-do list.

    An entry is a change of the job or a remark. The details are the calls that become faster, a table of their savings,
    and advice.
    """
    actions = [line for x in recommendation.actions if x.action.name in todo.names for line in _action(x, todo.title)]
    actions += list(_step(recommendation, todo.name))
    remarks = [x for x in recommendation.remarks if x.analyzer == todo.name]
    findings = [recommendation.findings[n - 1] for n in todo.findings]
    untimed = [x for x in findings if x.per_call_us is None]
    about = rows(replace(recommendation, findings=tuple(x for x in findings if x.per_call_us is not None)))
    columns = choose_columns(about, recommendation.steps, unit_of(recommendation))
    # The title of the thing to do says what to do. Only the solution to use differs from row to row.
    columns = columns if about["action"].str.startswith("use ").any() else columns.drop(columns="action")
    table: list[str | Block] = [columns] if len(about) else []
    reasons = [
        f"{x.problem.label}: {'; '.join(filter(None, [x.message, str(x.evidence.details.get(BESIDE) or '')]))}"
        for x in findings
        if x.problem is not None and x not in untimed
    ]
    table += [*reasons[:_SOME], *([f"and {len(reasons) - _SOME:,} more: see the report"] * (len(reasons) > _SOME))]
    unsure = " with the profiler, probably less without it" if todo.waits and differs_if_traced(todo) else ""
    said = [f"{x.analyzer}{unsure}: {x.message}" for x in remarks]
    said += [f"{x.problem.label if x.problem else x.analyzer}: {x.message}" for x in untimed[:_SOME]]
    said += [f"and {pluralize(len(untimed) - _SOME, 'more problem')}: see the report"] * (len(untimed) > _SOME)
    advised = dict.fromkeys(f"→ {x.advice}" for x in (*remarks, *findings) if x.advice)
    return [*actions, *said, *table, *_called_from(recommendation, todo, findings), *advised]


def _called_from(recommendation: Recommendation, todo: Todo, findings: Sequence[Finding]) -> list[str]:
    """Return lines that say from where the program calls the operators of a thing to do, the most valuable first.

    Empty if no trace shows it. Operators that are called from the same places have one line.
    """
    labels = {x.problem.text: x.problem.label for x in findings if x.problem is not None}
    parts = (y for x in recommendation.actions if x.action.name in todo.names for y in x.parts)
    for part in sorted(parts, key=lambda x: -x.saving_us):
        labels.setdefault(part.of, part.label)
    by_place: dict[str, list[str]] = {}
    for text, label in labels.items() if recommendation.callers else ():
        if told := recommendation.called_from([text]):
            by_place.setdefault(told, []).append(label)
    lines = [f"{', '.join(_first(of))}: {told}" for told, of in list(by_place.items())[:_SOME]]
    return [*lines, *([f"and {pluralize(len(by_place) - _SOME, 'more place')}"] * (len(by_place) > _SOME))]


def _first(labels: Sequence[str]) -> list[str]:
    """Return the first labels, and how many more there are."""
    distinct = list(dict.fromkeys(labels))
    more = len(distinct) - _SOME
    return [*distinct[:_SOME], *([f"{more:,} more"] if more > 0 else [])]


def _step(recommendation: Recommendation, name: str) -> Iterator[str]:
    """Yield lines about how long a step of the job will take with a change (``name``), according to a simulation.

    They also state what limits the step, and how far the simulation can be trusted.
    """
    if recommendation.step is None or isinstance(recommendation.step, str):
        return
    under = recommendation.step.under.get(name)
    if under is not None:
        host = f"the host is taken to need {under.host_factor:.2f} of the time that it took under the profiler"
        yield f"      the {recommendation.word}, simulated: {_times(under)}, limited by {under.limit}; {host}"
        (result,) = (x for x in recommendation.actions if x.action.name == name)
        steps = result.steps or math.inf
        gained, saved = under.saving_us, result.saving_us / steps
        if under.limit != "kernels" and saved > 0 and gained < _PART * saved:
            host_us = min(under.then_us, under.ceilings.free_kernels_us)
            took = f"{duration(host_us)} what the GPU computes in {duration(result.then_us / steps)}"
            why = f"the host launches in {took}" if under.limit == "host" else f"it waits for {under.limit}"
            little = f"gains {duration(gained)} of the {duration(saved)} saved in its kernels"
            faster = little if gained > _SHOWS * under.now_us else "does not get faster"
            yield f"      the {recommendation.word} {faster}: {why}"
        yield from (f"      {note}" for note in under.notes)


_SHOWS = 0.01
"""A gain below this fraction of the step's time (0 to 1) is treated as no gain."""
_PART = 0.5
"""If a step becomes shorter by less than this fraction of the time that its kernels save, the text explains why."""
_TEXT = ("analyzer", "kind", "problem", "label", "message", "interval_from", "confidence", "action")
_NUMBERS = (
    *("pre_us", "post_us", "per_call_us", "per_call_low_us", "per_call_high_us"),
    *("saving_us", "saving_low_us", "saving_high_us", "saving_share", "p"),
)


def rows(recommendation: Recommendation) -> pd.DataFrame:
    """Return a table of the findings (possible savings) about operators, the most important first.

    Columns as in ``findings.json`` (docs/findings.md). ``saving_us`` is per run of the job, µs.
    """
    rows, columns = recommendation.rows, [*_TEXT, "calls", *_NUMBERS, "solution", "advice"]
    # The saving is missing if the calls or the gain are unknown.
    values = {"run": [recommendation.run] * len(rows)} | {name: [row[name] for row in rows] for name in columns}
    out = pd.DataFrame(values if rows else None, columns=["run", *columns])
    return out.astype({"calls": "Int64", **dict.fromkeys(_NUMBERS, "float64")})


def name_proposal(finding: Finding) -> str | None:
    """Return the better kernel for a slow call, or another layout or code that is faster. None if none is known.

    It is returned even if the library cannot be told to use the kernel.
    """
    return finding.override.solution.text if finding.override else finding.evidence.best


def unit_of(recommendation: Recommendation) -> str:
    """Return the word for what a saving in a table is a part of: the user's word for a step, ``trace`` or ``run``."""
    if recommendation.steps:
        return recommendation.word
    return "run" if recommendation.gpu_time is None else "trace"


def choose_columns(frame: pd.DataFrame, steps: float | None = None, word: str = "run") -> pd.DataFrame:
    """Return the columns of ``rows`` that fit into a terminal.

    Times of one call are in µs. The saving is in ms per ``word``, which is one of ``steps`` equal parts of the run.
    Without a known interval, the table has no column of intervals.
    """
    chosen = pd.DataFrame(
        {
            f"saving_ms/{word}": frame["saving_us"] / (1e3 * (steps or 1.0)),
            "pre_us": frame["pre_us"],
            "post_us": frame["post_us"],
            "gain": (frame["per_call_us"] / frame["pre_us"]).map(_percent),
            "interval": list(map(interval, frame["per_call_low_us"], frame["per_call_high_us"], frame["pre_us"])),
            "calls": frame["calls"],
            "confidence": frame["confidence"],
            "problem": frame["label"],
            "action": frame["action"],
            "finding": frame["analyzer"],
        }
    )
    return chosen if (chosen["interval"] != _UNKNOWN).any() else chosen.drop(columns="interval")


_UNKNOWN = "unknown"


def interval(low_us: float | None, high_us: float | None, pre_us: float | None) -> str:
    """Return the interval of a gain as percentages of the present time, for example ``1.2% … 3.4%``.

    Returns ``unknown`` if a number is unknown.
    """
    if low_us is None or high_us is None or pre_us is None or not all(map(math.isfinite, (low_us, high_us, pre_us))):
        return _UNKNOWN
    return f"{low_us / pre_us:.1%} … {high_us / pre_us:.1%}"


def _percent(share: float | None) -> str:
    return "unknown" if share is None or math.isnan(share) else f"{share:.1%}"


_SOME, _HOST = 3, 0.01
"""How many calls that become slower are listed, and the smallest change of the host's time that is shown.

The change is a fraction of the GPU time (0 to 1).
"""


def action_lines(results: Sequence[ActionResult], time: GpuTime | None) -> list[str]:
    """Return lines for the user about possible changes of the job, in the given order. Empty without changes.

    ``time`` is the job's GPU time, or None without a trace.
    """
    if not results:
        return []
    step = results[0].word if results[0].steps else "run"
    whole = time is not None
    of = f"of the whole job per {step}" if whole else f"per {step} of the calls that were timed as now and as changed"
    out = [f"actions, with the GPU time {of}:"]
    for result in results:
        out += _action(result)
    return out


def _times(gain: Gain) -> str:
    """Format a gain with its interval: ``28.5 ms → 20.5 ms [19.1 ms, 21.9 ms]``."""
    ends = f"[{duration(gain.low_us)}, {duration(gain.high_us)}]"
    return f"{duration(gain.now_us)} → {duration(gain.then_us)} {ends}"


def _action(result: ActionResult, title: str = "") -> list[str]:
    """Return lines about a possible change of the job. The first begins with ``title``, else with the change's name."""
    per = result.steps or 1.0
    gain = result.job_gain.per(per)
    unsure = ": slower, do not apply" if result.loses else "" if result.pays else ": not confirmed"
    head = f"  {title or result.action.name}: {_times(gain)}{unsure}"
    out = [head, f"      {result.application.line}", f"      {result.action.about}"]
    out += [f"      {result.in_part}"] * bool(result.in_part)
    if result.steps and abs(host := result.host_us / per) > _HOST * gain.now_us:
        more, most = ("more", max) if host > 0 else ("less", min)
        largest = most(result.parts, key=lambda x: x.host_us).label
        out.append(f"      host: {duration(abs(host))} {more} to launch the changed calls, mostly {largest}")
    if result.losers:
        shown = ", ".join(f"{x.label} (+{duration(-x.saving_us / per)})" for x in result.losers[:_SOME])
        more = f" and {len(result.losers) - _SOME:,} more" if len(result.losers) > _SOME else ""
        step = f"a {result.word}" if result.steps else "in all"
        out.append(f"      slower, {step}: {shown}{more}")
    if result.action.needs:
        out.append(f"      needs {result.action.needs}")
    if not result.action.exact:
        named = f" alone: import apply; {calls(result)}" if calls(result) else ""
        out.append(
            f"      results are less precise, so the action is not part of any total and is applied only by name{named}"
        )
    if result.application.by_hand:
        out.append(f"      or {result.application.by_hand}")
    return out
