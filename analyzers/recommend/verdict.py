"""Make the list of things to do about a job, the best first, with a verdict and the parts of a step's time.

``recommend``, ``tune``, ``report.md``, ``findings.json``, ``report`` and the web page all show this list, so that
order, names and units are the same everywhere. No function reads files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from analyzers.job.gpu_time import GpuTime
from analyzers.recommend.apply_module import choose_default_changes
from analyzers.recommend.files_action import OVERRIDES, USER_FIND_DB
from analyzers.recommend.limit import DATA, add_usual, as_traced, describe_limit, name_limit, name_next_limit
from analyzers.recommend.ranking import Recommendation
from analyzers.recommend.todo import Todo, Unit, gain, name_saving_unit, usual_text
from analyzers.recommend.todo_from_actions import find_hidden_changes, list_actions, with_combination
from analyzers.recommend.todo_from_findings import list_findings, list_remarks
from analyzers.recommend.todo_order import is_hidden, rank
from analyzers.recommend.whole import LEAST, Share, divide_step, whole_of, whole_us
from logparse.model import SURENESS, UPPER_BOUND, Replay, Search, Sureness, UseRows
from logparse.text import duration, pluralize, signed_percent

NOTHING_WORTH_DOING = "nothing worth doing"
"""The first words of a headline above an empty list."""


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
    * ``whole``: what a saving per run is a part of: ``a run``, or ``the whole trace`` if the times are of traces
      without marked steps.
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

    @property
    def profiled(self) -> str:
        """Words behind ``a step``: ``, with the profiler (probably ≈ 26.3 ms without it)``. Else empty."""
        unslowed = next((x.usual.now_us for x in self.todo if x.usual is not None), None)
        return "" if unslowed is None else f", with the profiler (probably ≈ {duration(unslowed)} without it)"

    def per(self, todo: Todo) -> str:
        """Return the unit of a saving as words that follow the saving, such as ``a step`` or ``a run``."""
        return name_saving_unit(todo, self.word, self.whole)


def verdict(found: Recommendation) -> Verdict:
    """Make the list of things to do from a recommendation, with a headline. The surest saving comes first."""
    time = found.gpu_time
    steps = time.steps if time is not None else found.steps
    unit: Unit = "step" if steps else "run"
    listed = [*with_combination(list_actions(found), found), *list_findings(found), *list_remarks(found)]
    listed = [replace(as_traced(add_usual(x, found), found), processes=_processes(x, found)) for x in listed]
    unseen = sorted((x for x in listed if is_hidden(x, time)), key=lambda x: rank(x, time))
    # Measured savings come first, then estimates, then savings of which only an upper bound is known. Among savings
    # that are equally sure, the largest comes first.
    todo = sorted((x for x in listed if x not in unseen), key=lambda x: rank(x, time))
    gains = _gains(found, todo)
    headline = _headline(found, todo, len(unseen))
    limit, word, left_out = describe_limit(found), found.word, _left_out(time)
    return Verdict(
        headline,
        divide_step(time),
        whole_us(time),
        unit,
        tuple(todo),
        gains,
        tuple(unseen),
        limit,
        word,
        left_out,
        whole_of(found),
        _hint_at_steps(found) if time is not None and not time.steps else "",
    )


def _processes(todo: Todo, found: Recommendation) -> int:
    """Return the number of processes whose calls a saving is the sum of. Convolutions have other logs than GEMMs."""
    problems = [found.findings[n - 1].problem for n in todo.findings]
    kinds: Iterable[str] = {x.kind for x in problems if x is not None} or found.processes
    return max((found.processes.get(kind, 0) for kind in kinds), default=0)


def _hint_at_steps(found: Recommendation) -> str:
    """Tell the user of a trace without marked steps how to get times of a step."""
    stepped = found.gpu_time.optimizer_steps if found.gpu_time is not None else 0
    if not stepped:
        return f"times are of {whole_of(found)}; to see times of a step, state how many steps it has: `--steps N`"
    times = "once" if stepped == 1 else f"{stepped:,} times"
    stated = f"so for times of a step: `--steps {stepped}`"
    return f"times are of {whole_of(found)}; an optimizer stepped {times}, {stated}"


def _left_out(time: GpuTime | None) -> tuple[str, ...]:
    """Return sentences for the user about gaps in the measured times.

    They state which traced work is in none of the times, and why the GPU's idle time is unknown.
    """
    return () if time is None else (*time.left_out, *filter(None, [time.unknown_idle]))


def _gains(found: Recommendation, todo: Sequence[Todo]) -> tuple[tuple[Sureness, float], ...]:
    """Return how much time can be saved in total, µs. Measured, estimated and other savings are added up separately.

    Only changes that can be made together are included, so that no time is saved twice. Savings with a condition
    (``assumes``) are left out. So are ranges, and savings that change each other (``_depend_on_each_other``).
    """
    together = {
        x.action.name
        for x in choose_default_changes(found.actions, find_hidden_changes(found), found.in_job, found.combination)
    }
    together |= {OVERRIDES.name, USER_FIND_DB.name} if not together else set()
    actions = {x.action.name for x in found.actions}
    unconditional = [x for x in todo if x.unit != "call" and not x.assumes]
    if _depend_on_each_other(todo):
        unconditional = [x for x in unconditional if not x.depends_on_limit]
    unconditional = [x for x in unconditional if x.most_us is None]
    counting = [x for x in unconditional if x.name not in actions or x.name in together]
    units = {x.unit for x in counting}
    of = "step" if "step" in units else "run"
    sums = dict.fromkeys(SURENESS, 0.0)
    for x in counting:
        if x.unit == of:  # A bound is not a measured gain, so the gain below the bound is unknown.
            sums["unknown" if x.bounded else x.sureness] += x.gained_us
    return tuple((x, us) for x, us in sums.items() if us > 0)


def _depend_on_each_other(todo: Sequence[Todo]) -> bool:
    """Tell whether several savings depend on what limits the step. Then one change makes another save more or less."""
    return sum(x.depends_on_limit for x in todo) > 1


def gain_text(sureness: Sureness, us: float) -> str:
    """Return a possible saving as a text, such as ``≈ 3 ms (estimated)``."""
    about = {"estimated": "≈ ", "unknown": "up to "}.get(sureness, "")
    return f"{about}{duration(us)} ({UPPER_BOUND if sureness == 'unknown' else sureness})"


def gains_text(conclusion: Verdict) -> str:
    """Return a sentence about how much time all things to do save together. Empty if there is only one thing."""
    if _depend_on_each_other(conclusion.todo):
        return (
            "Do not add up the savings: several depend on what limits the job (the host, communication), so one change "
            "may make another one save more or less"
        )
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
    return f"Add up what can be done together ({per}): {' and '.join(parts)}{''.join(perhaps)}"


def _headline(found: Recommendation, todo: Sequence[Todo], unseen: int) -> str:
    limit = name_limit(found)
    if not todo and unseen:
        why = f"{limit} is the limit; " if limit else ""
        return f"{why}{NOTHING_WORTH_DOING}: {unseen:,} with too small an effect on the {found.word}"
    if not todo:
        return explain_empty_list(found)
    first = next((x for x in todo if x.gain is not None), todo[0])
    shown = first.shown
    left = [x for x in todo if x is not first]
    # The limit of the step stands before the thing to do that shortens this very wait. Else it stands behind the saving
    # that the limit makes smaller, so that it does not look like the reason for something else.
    following = f" (the next one: {x})" if (x := name_next_limit(found)) else ""
    begins = f"{limit} is the limit{following}; " if limit and _eases(first, found) else ""
    if shown is None:
        more = f"; {pluralize(len(left), 'more thing')} to do" if left else ""
        return f"{begins}{first.title}: worth unknown, {_why_unknown(first)}{more}"
    larger = sum(x.unit == first.unit and x.expected_us > first.possible_us for x in left)
    sizes = f", {'' if larger == len(left) else f'{larger} of them '}larger but less sure" if larger else ""
    more = f"; {pluralize(len(left), 'more thing')} to do{sizes}" if left else ""
    told = bool(begins or not limit)
    more_of_kernels = "its kernels save more, but " if first.slowed_by and first.most_us is None else ""
    in_trace = "in the trace " if first.most_us is not None else ""
    ends = "" if told or first.usual is not None else f"; {more_of_kernels}{in_trace}{limit} is the limit"
    each = name_saving_unit(first, found.word, whole_of(found))
    whole = _is_whole(shown.now_us, first, found) and not first.assumes
    has_share = whole and first.most_us is None and round(1 - shown.ratio, 2) > 0
    share = f" ({signed_percent(shown.ratio - 1, digits=0)})" if has_share else ""
    sure = "how much of it can really be saved is not known" if first.sureness == "unknown" else first.certainty
    uncounted = "; no log counts the calls" if first.unit == "call" else ""
    # A time of the calls alone looks like the time of the whole run.
    of_calls_alone = isinstance(first.remedy, UseRows | Search | Replay) and bool(first.findings)
    apart = of_calls_alone and first.unit != "call" and not (whole or first.at_most or first.assumes)
    calls = "their calls " if apart and len(first.findings) > 1 else "its calls " if apart else ""
    saves = usual_text(first, each if first.unit == "step" else "") or f"{calls}{gain(first)} {each}{share}"
    return f"{begins}{first.title}: {saves}, {sure}{uncounted}{ends}{more}"


def _eases(todo: Todo, found: Recommendation) -> bool:
    """Tell whether a thing to do shortens the wait that limits the step."""
    limit = found.now.limit if found.now is not None else "host"
    # Advice about a slow host is also about a slow data loader.
    return todo.waits_for == limit or (todo.waits_for == "host" and limit == DATA)


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
    return now_us >= (1 - LEAST) * kernels_us


def explain_empty_list(found: Recommendation) -> str:
    """Return the sentence that explains why there is nothing to do."""
    ceiling = found.ceiling
    if found.unlike:
        return f"no verdict: {found.unlike}"
    if found.left_out:
        reasons = "; ".join(f"{count:,} {why}" for why, count in found.left_out.items())
        return f"{NOTHING_WORTH_DOING}: {reasons}"
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
    problems = pluralize(ceiling.problems, "measured problem")
    # A run with slow convolutions looks finished if no log of it has convolutions.
    called = {text.split(" ", 1)[0] for text in found.calls}
    unseen = [word for kind, word in _KINDS.items() if called and called.isdisjoint(kind)]
    seen = [word for word in _KINDS.values() if word not in unseen]
    among = f" among the {seen[0]}s" if unseen and seen else ""
    text = f"{NOTHING_WORTH_DOING}{among}: no better solution is known for any of {problems}"
    text += f"; {untimed:.1%} of calls untimed" if untimed >= 0.001 else ""
    return f"{text}; the run's logs show no {unseen[0]}s" if unseen else text


_KINDS = {("conv",): "convolution", ("gemm", "grouped"): "GEMM"}
"""The word for each kind of problem, by the first words of such a problem's text."""
