"""Treat all override files together as one change of the job, with the sum of their savings.

An override file lists kernels that a library should use instead of its own choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from analyzers.actions import Action, ActionResult
from analyzers.actions.action import Application, Part, group_of
from analyzers.evidence.joins import calls_by_problem, linked_measurements
from analyzers.evidence.tables import Settings, Tables
from analyzers.evidence.units import word_of
from analyzers.job.gpu_time import kernels_of_run, steps, traced_us
from logparse.model import Finding, Gain
from logparse.text import pluralize

OVERRIDES = Action(
    name="overrides",
    kind="files",
    about="load the override files that were written for this GPU: their rows name the kernels that the library runs",
    change=lambda work, job: None,
    application=lambda job: None,
    needs=(
        "a program whose layouts and sizes stay as they are, because the files have no rows for calls with other "
        "layouts or sizes"
    ),
)
USER_FIND_DB = replace(
    OVERRIDES,
    name="user-find-db",
    about="load a user find-db (results of MIOpen's own search). Perhaps the job reads this file already",
)
"""The rows whose saving rests on a condition that no log settles (``libraries/miopen/find_db_choice.py``).

They are in the same files as the other rows, but their saving is stated apart.
"""
_LINE = (
    "source apply.sh of the target's folder in the shell that starts the job, or start the job with: logparse run "
    "--with FOLDER -- JOB"
)


def files_actions(
    findings: Sequence[Finding], default_us: float, tables: Tables, settings: Settings
) -> list[ActionResult]:
    """Return the changes "apply the override files", with their effect on the job's GPU time.

    There are at most two: rows that save time for sure (``OVERRIDES``), and rows whose saving rests on a condition
    (``USER_FIND_DB``). A change without a row of known saving is left out.

    * With a trace, the times are of the traced steps. The time of an operator (with sizes) comes from the trace,
      because a log counts the calls of the whole job. The saving is the fraction of this time that one call saves.
    * Without a trace, the times are of all calls that the log counts, and the time now is the sum over the operators of
      the rows.
    * If a trace exists, but contains none of these operators, the time now is ``default_us`` (µs).

    The intervals of the savings are added. A saving without an interval may be as small as 0, because the fastest of
    many times was partly luck.
    """
    written = [x for x in to_write(findings, settings) if x.saving_us]
    alone = {x.problem.text: (x.now_us or 0.0) * (x.calls or 1) for x in written if x.problem}
    in_trace = {text: us for text, us in _in_traces(tables).items() if text in alone}
    times = in_trace or alone
    traced = traced_us(tables)
    job_us = 0.0 if traced is None else traced if in_trace else default_us
    marked = steps(tables, settings)[0] if in_trace else float(settings.steps) if settings.steps else None
    out = []
    for action, of in (
        (OVERRIDES, [x for x in written if not x.evidence.assumes]),
        (USER_FIND_DB, [x for x in written if x.evidence.assumes]),
    ):
        rows = [
            (x, x.per_call.times(times[x.problem.text] / x.per_call.now_us))
            for x in of
            if x.problem and x.problem.text in times and x.per_call
        ]
        if rows:
            found = _result(action, of, rows, job_us)
            out.append(replace(found, steps=marked, word=word_of(tables)))
    return out


def _result(
    action: Action, written: Sequence[Finding], rows: Sequence[tuple[Finding, Gain]], job_us: float
) -> ActionResult:
    gains = [gain for _, gain in rows]
    now_us, confirmed = max(job_us, sum(x.now_us for x in gains)), sum(x.confirmed for x in written)
    return ActionResult(
        action=action,
        application=Application(line=f"{pluralize(len(written), 'row')}, {confirmed:,} confirmed: {_LINE}"),
        now_us=now_us,
        then_us=now_us - sum(x.saving_us for x in gains),
        low_us=now_us - sum(x.saving_high_us or x.saving_us for x in gains),
        high_us=now_us - sum(x.saving_low_us or 0.0 for x in gains),
        parts=tuple(_make_part(x, gain) for x, gain in rows),
    )


def to_write(findings: Sequence[Finding], settings: Settings) -> list[Finding]:
    """Return the findings (possible savings) whose better kernels will be written to override files, the best first.

    The user's settings may limit them to confirmed ones, and to the ``max_rows`` most valuable ones of each library.
    """
    rows, held, kept = [x for x in findings if x.override is not None], Counter[str](), []
    for row in rows:
        library = row.override.solution.library if row.override else ""
        sure = not settings.confirmed_only or row.confirmed
        if sure and (settings.max_rows is None or held[library] < settings.max_rows):
            held[library] += 1
            kept.append(row)
    return kept


def _in_traces(tables: Tables) -> Mapping[str, float]:
    """Return the time that the job's calls of each operator (with sizes) take in the traces, µs."""
    kernels = kernels_of_run(tables)
    traced = kernels[kernels["problem"].notna()].groupby("problem")["total_us"].sum().astype("float64")
    calls = calls_by_problem(tables.workload).dropna().astype("float64")
    if not len(traced) or not len(calls):
        return {}
    links = linked_measurements(tables, pd.Series(calls.index), pd.Series(traced.index))
    links = links[links["choices"] == 1]
    if not len(links):
        return {}  # An empty column of texts cannot become times.
    links = links.assign(calls=links["problem"].map(calls))
    # Logs may list an operator under several texts that the trace does not distinguish. Then its traced time is divided
    # among these texts in proportion to their calls.
    share = links["calls"] / links.groupby("other")["calls"].transform("sum")
    return dict(zip(links["problem"], links["other"].map(traced) * share, strict=True))


def _make_part(finding: Finding, gain: Gain) -> Part:
    problem = finding.problem
    return Part(
        of="" if problem is None else problem.text,
        label="" if problem is None else problem.label,
        group="" if problem is None else group_of(problem),
        calls=finding.calls,
        now_us=gain.now_us,
        then_us=gain.then_us,
    )
