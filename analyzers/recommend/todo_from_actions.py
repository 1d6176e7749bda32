"""Turn actions (changes that were timed) into things to do, and find changes that make no step visibly shorter."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.actions import ActionResult
from analyzers.recommend.apply_module import alternatives, calls, choose_default_changes
from analyzers.recommend.files_action import USER_FIND_DB
from analyzers.recommend.limit import bound_gain, estimate_gain, name_slowing_limit
from analyzers.recommend.ranking import Recommendation
from analyzers.recommend.todo import NOTHING, UNSETTLED, Todo, Unit
from analyzers.recommend.todo_from_findings import warn_of_doubt
from analyzers.recommend.todo_order import is_hidden
from logparse.capture.in_job.logparse_in_job.switches import TOGETHER
from logparse.model import ChangeProgram, Remedy, UseRows
from logparse.model.gains import total
from logparse.text import pluralize


def list_actions(found: Recommendation) -> list[Todo]:
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


def with_combination(listed: Sequence[Todo], found: Recommendation) -> list[Todo]:
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
    title = remedy.title([found.findings[n - 1].problem for n in rows]) + ", from the user find-db" * assumed
    unit: Unit = "step" if result.steps else "run"
    in_job = name in found.in_job
    if files:
        doubt = UNSETTLED if assumes else warn_of_doubt([found.findings[n - 1] for n in rows])
    else:
        doubt = NOTHING if (result.job_gain.saving_low_us or 0.0) <= 0 else ""
    step, gain = found.step_gain(name), result.job_gain.per(result.steps or 1.0)
    most_us = None if in_job or assumes else bound_gain(step, gain, found)
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
        slowed_by="" if in_job else name_slowing_limit(step, gain, found),
        most_us=most_us,
        usual=estimate_gain(name, step.saving_us, most_us, found) if step is not None else None,
        assumes=assumes,
    )


def find_hidden_changes(found: Recommendation) -> frozenset[str]:
    """Return the names of changes that make kernels faster but do not make a step visibly shorter.

    They are made only if the user names them. Changes that showed no gain when they were tried in the running job are
    included.
    """
    unseen = (x for x in found.actions if x.pays and is_hidden(_action(x, found), found.gpu_time))
    names = (*(x.action.name for x in unseen), *(x.name for x in found.tried if x.shows_no_gain))
    return frozenset(names).difference(found.combination)
